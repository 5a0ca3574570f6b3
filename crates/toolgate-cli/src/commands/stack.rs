//! `toolgate stack`: the layers that every call passes here, and what is wrong with their order.

use clap::{Args, Subcommand};
use serde_json::json;
use toolgate::{
    Band,
    layers::{self, StackLine},
    lint,
};

use crate::{CliError, Cx, Exit, GateArgs, preview::Preview, style, table::Table};

/// Shows the layers that every call passes, and checks their order.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate stack show
  toolgate stack lint")]
pub struct StackArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: StackCommand,
}

/// What to do with the stack.
#[derive(Debug, Subcommand)]
pub enum StackCommand {
    /// List the layers, outermost first, with why each stands where it does
    Show(ShowArgs),
    /// Find what is wrong with their order; ends with 1 if something is
    Lint(LintArgs),
}

/// Lists the layers that every call passes, outermost first, with what each does and why it stands there.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate stack show
  toolgate stack show --all                  also the layers that a file can switch on
  toolgate stack show --json | jq -r .name")]
pub struct ShowArgs {
    /// Also list the layers that are not in the stack
    #[arg(long)]
    pub all: bool,
}

/// Finds orders that go wrong, such as a cache outside an approval. Ends with 1 if there is something to mend.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate stack lint
  toolgate stack lint --config ci/toolgate.toml --quiet")]
pub struct LintArgs {}

/// Shows or checks the stack.
pub(crate) fn run(args: &StackArgs, cx: &Cx) -> Result<Exit, CliError> {
    let preview = Preview::open(cx, &GateArgs::default())?;
    match &args.command {
        StackCommand::Show(args) => show(args, cx, &preview),
        StackCommand::Lint(LintArgs {}) => check(cx, &preview),
    }
}

fn show(args: &ShowArgs, cx: &Cx, preview: &Preview) -> Result<Exit, CliError> {
    let catalog = preview.config.catalog();
    let stack = preview.stack.any_layers();
    let mut table = Table::new().head(["BAND", "LAYER", "WHAT IT DOES, AND WHY IT STANDS HERE"]);
    for StackLine {
        name,
        band,
        summary,
        why,
        ..
    } in layers::describe(&stack, catalog)
    {
        if cx.out.is_json() {
            cx.out.json(
                &json!({ "name": name, "band": band, "on": true, "summary": summary, "why": why }),
            )?;
        }
        table.row([
            band_shown(band),
            style::bold(name).to_string(),
            format!("{summary} Here: {why}."),
        ]);
    }
    let on = |name: &str| stack.iter().any(|layer| layer.traits().kind == Some(name));
    for entry in catalog
        .entries()
        .iter()
        .filter(|entry| args.all && !on(entry.name))
    {
        if cx.out.is_json() {
            let (name, band, summary, why) = (entry.name, entry.band, entry.summary, entry.why);
            cx.out.json(
                &json!({ "name": name, "band": band, "on": false, "summary": summary, "why": why }),
            )?;
        }
        table.row([
            style::dim("off").to_string(),
            style::dim(entry.name).to_string(),
            entry.summary.to_owned(),
        ]);
    }
    if !cx.out.is_json() {
        cx.out.line(table)?;
    }
    Ok(Exit::Done)
}

fn band_shown(band: Band) -> String {
    match band {
        Band::Decide => style::warn(band).to_string(),
        Band::Record | Band::Shape | Band::Repeat | Band::Bound => style::note(band).to_string(),
    }
}

fn check(cx: &Cx, preview: &Preview) -> Result<Exit, CliError> {
    let deadline = preview.config.stack().turn_deadline.map(layers::Span::get);
    let findings = lint(&preview.stack.any_layers(), deadline);
    let warnings = preview.stack.warnings();
    for finding in &findings {
        match cx.out.is_json() {
            true => cx.out.json(finding)?,
            false => cx
                .out
                .line(format_args!("{} {finding}", style::bad("finding:")))?,
        }
    }
    for warning in warnings {
        match cx.out.is_json() {
            true => cx
                .out
                .json(&json!({ "rule": "fits-no-tool", "reason": warning.to_string() }))?,
            false => cx
                .out
                .line(format_args!("{} {warning}", style::bad("finding:")))?,
        }
    }
    match findings.len() + warnings.len() {
        0 => {
            let layers = preview.stack.layers().count();
            cx.out.note(format_args!(
                "{} {layers} layers in a good order",
                style::good("fine:")
            ))?;
            Ok(Exit::Done)
        }
        found => {
            cx.out.note(format_args!(
                "hint: {found} to mend in toolgate.toml; `toolgate stack show` says where layers belong"
            ))?;
            Ok(Exit::Failed)
        }
    }
}
