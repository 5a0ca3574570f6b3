//! `toolgate config check`: the problems of a configuration, with their lines.

use serde_json::json;
use toolgate::{
    gate::{
        AgentsSection, ConfigFile, ConfigOwner, ConfigTrust, RunSection, display_address,
        parse_model_name,
    },
    layers::{Approval, ApprovalOptions, HumanDuration, lint},
};

use super::ConfigCheckArgs;
use crate::{CliError, CommandContext, Exit, GateArgs, env::style};

pub(super) fn check_config(args: &ConfigCheckArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    let found = match &args.file {
        Some(file) => Some((ConfigOwner::Named, file.clone())),
        None => cx.paths.find_config(),
    };
    let Some((owner, path)) = found else {
        return Err(
            CliError::usage("there is no configuration here; defaults apply")
                .with_hint("`toolgate init` writes one to start from"),
        );
    };
    let file = ConfigFile::read(owner, path)?.in_reach_of(&cx.paths.workspace);
    let config = file.parse_own_config()?;
    // A named file is checked by itself: the variables of this shell may not be set where it is
    // used.
    let config = if args.file.is_some() {
        config
    } else {
        config.with_process_environment()?
    };
    check_model_names(&config.section()?, &config.section()?)?;
    let preview = GateArgs::default().preview_gate(cx, config)?;
    let findings = lint(
        &preview.stack().any_layers(),
        preview
            .configuration()
            .stack()
            .turn_deadline
            .map(HumanDuration::get),
    )
    .len();
    let layers = preview.stack().layers().count();
    let approval = preview.configuration().layer_options::<Approval>()?;
    let unreachable = unreachable_quorum(&approval, &cx.paths.db);
    let unknown = preview.unknown_tools()?;
    let trust = file.check_trust(&cx.paths.home)?;
    if cx.out.is_json() {
        let trusted = trust == ConfigTrust::Trusted;
        cx.out.print_json(
            &json!({ "file": file.path, "valid": true, "trusted": trusted, "layers": layers, "findings": findings,
                "unreachable_quorum": unreachable,
                "unknown_tools": unknown.iter().map(ToString::to_string).collect::<Vec<_>>() }),
        )?;
        return Ok(Exit::Done);
    }
    cx.out.print_line(format_args!(
        "{} {}: {layers} layers",
        style::good("valid:"),
        style::escape_controls(&file.path.display().to_string())
    ))?;
    for unknown in unknown {
        let text = style::escape_controls(&unknown.to_string());
        cx.out
            .print_note(format_args!("{}: {text}", style::warn("warning")))?;
    }
    if trust != ConfigTrust::Trusted {
        cx.out
            .print_note("note: it is not trusted, so it has no effect yet; `toolgate config trust` shows it and asks")?;
    }
    if findings > 0 {
        cx.out.print_note(format_args!(
            "note: {findings} findings about the order of layers; `toolgate stack lint` lists them"
        ))?;
    }
    if let Some(problem) = unreachable {
        cx.out.print_note(format_args!("note: {problem}"))?;
    }
    Ok(Exit::Done)
}

/// Returns why the required approvals cannot be collected with this database, if so.
fn unreachable_quorum(options: &ApprovalOptions, database: &str) -> Option<String> {
    let needed = options.quorum.or(options.approvers.as_ref().map(|_| 1))?;
    // Other databases can be reached from several accounts, each with the same keys.
    if database.starts_with("postgres") {
        return None;
    }
    Some(format!(
        "the quorum of {needed} cannot be reached at this command line: the database {} and the keys \
         belong to one account, votes of one account count once, and the account that requests a \
         call cannot approve it; use PostgreSQL from several accounts, or a program that \
         authenticates its approvers",
        display_address(database)
    ))
}

/// Rejects malformed names of models. A missing key is not an error of the file.
fn check_model_names(run: &RunSection, agents: &AgentsSection) -> Result<(), CliError> {
    let of_agents = agents.0.iter().filter_map(|agent| agent.model.as_deref());
    run.model
        .as_deref()
        .into_iter()
        .chain(of_agents)
        .try_for_each(|name| Ok(parse_model_name(name).map(drop)?))
}
