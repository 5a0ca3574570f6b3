//! `toolgate config check`: what is wrong with a configuration, and where.

use serde_json::json;
use toolgate::{layers::Span, lint};

use super::CheckArgs;
use crate::{
    CliError, Cx, Exit, GateArgs,
    config_file::{ConfigFile, Owner, Trust},
    preview::Preview,
    settings::{AgentsSection, RunSection},
    style,
};

pub(super) fn run(args: &CheckArgs, cx: &Cx) -> Result<Exit, CliError> {
    let found = match &args.file {
        Some(file) => Some((Owner::Named, file.clone())),
        None => ConfigFile::find(&cx.paths),
    };
    let Some((owner, path)) = found else {
        return Err(
            CliError::usage("there is no configuration here; all is as by default")
                .hint("`toolgate config init` writes one to begin with"),
        );
    };
    let file = ConfigFile::read(owner, path)?;
    let config = file.config()?;
    let config = if args.file.is_some() {
        config
    } else {
        config.with_process_environment()?
    };
    models(&config.section()?, &config.section()?)?;
    let preview = Preview::of(cx, config, &GateArgs::default())?;
    let findings = lint(
        &preview.stack.any_layers(),
        preview.config.stack().turn_deadline.map(Span::get),
    )
    .len();
    let (layers, trust) = (preview.stack.layers().count(), file.trust(&cx.paths.home)?);
    if cx.out.is_json() {
        let trusted = trust == Trust::Trusted;
        cx.out.json(
            &json!({ "file": file.path, "valid": true, "trusted": trusted, "layers": layers, "findings": findings }),
        )?;
        return Ok(Exit::Done);
    }
    cx.out.line(format_args!(
        "{} {}: {layers} layers",
        style::good("valid:"),
        style::plain(&file.path.display().to_string())
    ))?;
    if trust != Trust::Trusted {
        cx.out
            .note("note: it does not count yet; `toolgate config trust` shows it and asks")?;
    }
    if findings > 0 {
        cx.out.note(format_args!(
            "note: {findings} findings about the order of layers; `toolgate stack lint` lists them"
        ))?;
    }
    Ok(Exit::Done)
}

/// Refuses names of models that cannot be any; whether there is a key for them is not the file's matter.
fn models(run: &RunSection, agents: &AgentsSection) -> Result<(), CliError> {
    let of_agents = agents.0.iter().filter_map(|agent| agent.model.as_deref());
    run.model
        .as_deref()
        .into_iter()
        .chain(of_agents)
        .try_for_each(|name| crate::model::read(name).map(drop))
}
