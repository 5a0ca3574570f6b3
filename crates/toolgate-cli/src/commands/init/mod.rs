//! `toolgate init`: writes a configuration for the model and the policy that fit, and checks the set-up.

mod models;
mod render;
mod write;

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use toolgate::{
    Config,
    gate::{CONFIG_NAME, ConfigFile, ConfigOwner, TrustedConfigs, gate_catalog, parse_model_name},
};

use self::models::FoundModel;
pub use self::render::StartingPolicy;
use crate::{
    CliError, CommandContext, Exit,
    commands::doctor::{self, DoctorArgs},
    env::{confirm, style},
};

/// Writes a toolgate.toml to start from, trusts it, and checks that everything works here.
///
/// It looks for keys in the environment and for servers of models on this machine. On a terminal you
/// choose; elsewhere, or with --yes, the first model and the policy solo are taken.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate init                              for this project
  toolgate init --policy team --model anthropic:claude-sonnet-4-5 --yes
  toolgate init --policy blank all.toml      every option explained, none set
  toolgate init --user                       for all projects that have none
  toolgate config init                       the same command")]
pub struct InitArgs {
    /// The file to write, instead of toolgate.toml in this directory
    pub file: Option<PathBuf>,
    /// The policy to start from
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<StartingPolicy>,
    /// The model, as provider:name, instead of one that is found here
    #[arg(
        long,
        short,
        value_name = "MODEL",
        env = "TOOLGATE_MODEL",
        hide_env_values = true
    )]
    pub model: Option<String>,
    /// The address of the model's provider, such as http://127.0.0.1:8000/v1
    #[arg(long, value_name = "URL", requires = "model")]
    pub base_url: Option<String>,
    /// Write the user's configuration, for all projects that have none
    #[arg(long, conflicts_with = "file")]
    pub user: bool,
    /// Take the first model and the policy solo, unless others are named, without asking
    #[arg(long, short)]
    pub yes: bool,
    /// Replace an existing file, and keep a backup of it
    #[arg(long)]
    pub force: bool,
}

/// What is going to be written.
struct InitPlan {
    path: PathBuf,
    policy: StartingPolicy,
    model: Option<FoundModel>,
    text: String,
}

/// Writes the file, trusts it and checks the set-up.
pub(crate) fn run(args: &InitArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    let plan = make_plan(args, cx)?;
    let backup = write::write_config(&plan.path, &plan.text, args.force)?;
    if !args.user {
        cx.paths.home.create()?;
        // Trusted at once: the user asked for the file, and its text is ours.
        let file = ConfigFile::read(ConfigOwner::Project, plan.path.clone())?;
        TrustedConfigs::load(&cx.paths.home)?.add_trust(&cx.paths.home, &file)?;
    }
    report_written(cx, &plan, backup.as_ref(), !args.user)?;
    let mut cx = cx.clone();
    if args.user {
        cx.paths.user = Some(plan.path.clone());
    }
    let exit = doctor::run(&DoctorArgs { deep: false }, &cx)?;
    print_next_steps(&cx, &plan)?;
    Ok(exit)
}

fn make_plan(args: &InitArgs, cx: &CommandContext) -> Result<InitPlan, CliError> {
    let path = target_path(args, cx)?;
    if !args.force {
        write::require_new(&path)?;
    }
    let asks = cx.out.is_interactive() && !args.yes;
    let model = match &args.model {
        Some(name) => Some(FoundModel {
            name: name.clone(),
            source: "as named".to_owned(),
        }),
        None => choose_model(cx, models::find_models()?, asks)?,
    };
    let policy = match args.policy {
        Some(policy) => policy,
        None if asks => choose_policy(cx)?,
        None => StartingPolicy::Solo,
    };
    let name = model.as_ref().map(|model| model.name.as_str());
    name.map(parse_model_name).transpose()?;
    let text = render::render_config(policy, name, args.base_url.as_deref());
    // Nothing is written that the next command would reject.
    Config::parse_with_catalog(&path.display().to_string(), &text, gate_catalog())?;
    Ok(InitPlan {
        path,
        policy,
        model,
        text,
    })
}

fn target_path(args: &InitArgs, cx: &CommandContext) -> Result<PathBuf, CliError> {
    match (&args.file, args.user) {
        (Some(file), _) => Ok(file.clone()),
        (None, false) => Ok(cx.paths.workspace.join(CONFIG_NAME)),
        (None, true) => cx.paths.user_config.clone().ok_or_else(|| {
            CliError::new("there is no home directory to write to")
                .with_hint("name the file: `toolgate init FILE`")
        }),
    }
}

fn choose_policy(cx: &CommandContext) -> Result<StartingPolicy, CliError> {
    let all = StartingPolicy::ALL;
    let rows = all.map(|policy| (policy.as_str().to_owned(), policy.summary().to_owned()));
    Ok(all[choose_row(cx, "Which policy?", &rows)?])
}

/// Returns the model that the user chooses, or the first one.
fn choose_model(
    cx: &CommandContext,
    found: Vec<FoundModel>,
    asks: bool,
) -> Result<Option<FoundModel>, CliError> {
    if !asks || found.is_empty() {
        return Ok(found.into_iter().next());
    }
    let rows = found
        .iter()
        .map(|model| (model.name.clone(), model.source.clone()));
    let none = (
        "none".to_owned(),
        "name one with --model in every run".to_owned(),
    );
    let rows: Vec<_> = rows.chain([none]).collect();
    let chosen = choose_row(cx, "Which model?", &rows)?;
    Ok(found.into_iter().nth(chosen))
}

/// Prints numbered rows and returns the index of the one that the user chooses, by default the first.
fn choose_row(
    cx: &CommandContext,
    question: &str,
    rows: &[(String, String)],
) -> Result<usize, CliError> {
    cx.out.print_line(style::bold(question))?;
    let width = rows.iter().map(|(name, _)| name.chars().count()).max();
    let width = width.unwrap_or_default();
    for (number, (name, about)) in rows.iter().enumerate() {
        let name = style::escape_controls(name);
        let about = style::dim(style::escape_controls(about));
        cx.out
            .print_line(format_args!("  {} {name:width$}  {about}", number + 1))?;
    }
    loop {
        let answer = confirm::read_answer(cx, &format!("1 to {} [1]", rows.len()))?;
        let named = rows.iter().position(|(name, _)| *name == answer);
        let number = answer.parse::<usize>().ok();
        let number = number.and_then(|number| number.checked_sub(1));
        let chosen = named.or(number).filter(|index| *index < rows.len());
        match chosen {
            Some(index) => return Ok(index),
            None if answer.is_empty() => return Ok(0),
            None => cx.out.print_note(format_args!(
                "{} is not one of them",
                style::escape_controls(&answer)
            ))?,
        }
    }
}

fn report_written(
    cx: &CommandContext,
    plan: &InitPlan,
    backup: Option<&PathBuf>,
    trusted: bool,
) -> Result<(), CliError> {
    if cx.out.is_json() {
        return cx.out.print_json(&json!({
            "written": plan.path,
            "backup": backup,
            "policy": plan.policy.as_str(),
            "model": plan.model.as_ref().map(|model| &model.name),
            "model_source": plan.model.as_ref().map(|model| &model.source),
            "trusted": trusted,
        }));
    }
    let shown = |path: &PathBuf| style::escape_controls(&path.display().to_string());
    let written = style::good("written:");
    cx.out
        .print_line(format_args!("{written} {}", shown(&plan.path)))?;
    if let Some(backup) = backup {
        cx.out
            .print_note(format_args!("backup:  {}", shown(backup)))?;
    }
    let policy = plan.policy;
    let policy = format!("policy:  {}: {}", policy.as_str(), policy.summary());
    cx.out.print_wrapped_note(&policy.into(), "         ")?;
    let model = match &plan.model {
        Some(model) => style::escape_controls(&format!("{}, {}", model.name, model.source)),
        None => "none found: no key is set, and no server answers on this machine".to_owned(),
    };
    let model = format!("model:   {model}");
    cx.out.print_wrapped_note(&model.into(), "         ")?;
    cx.out.print_note("")
}

fn print_next_steps(cx: &CommandContext, plan: &InitPlan) -> Result<(), CliError> {
    if cx.out.is_json() {
        return Ok(());
    }
    cx.out.print_note("")?;
    let next = if plan.model.is_some() {
        "toolgate run \"what does this project do?\""
    } else {
        "export ANTHROPIC_API_KEY=…, or start Ollama, and then: toolgate init --force"
    };
    cx.out
        .print_note(format_args!("{} {next}", style::note("next:")))?;
    cx.out
        .print_note("After a change of the file: toolgate config check && toolgate config trust")
}
