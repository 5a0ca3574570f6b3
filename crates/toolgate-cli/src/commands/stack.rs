//! `toolgate stack`: the layers that every call passes here, and problems in their order.

use clap::{Args, Subcommand};
use serde_json::json;
use toolgate::{
    Band, Gate,
    layers::{self, StackLine, lint},
};

use crate::{
    CliError, CommandContext, Exit, GateArgs,
    env::style,
    show::render::{StyledLine, TextTable},
};

/// Shows the layers that every call passes, and checks their order.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate stack show
  toolgate stack lint")]
pub struct StackArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: StackCommand,
}

/// A subcommand of `toolgate stack`.
#[derive(Debug, Subcommand)]
pub enum StackCommand {
    /// List the layers, outermost first, with the reason for each position
    Show(StackShowArgs),
    /// Report problems in their order; exits with 1 if there are any
    Lint(StackLintArgs),
}

/// Lists the layers that every call passes, outermost first, with what each does and the reason for
/// its position.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate stack show
  toolgate stack show --all                  also the layers that a configuration can enable
  toolgate stack show --json | jq -r .name")]
pub struct StackShowArgs {
    /// Also list the layers that are not in the stack
    #[arg(long)]
    pub all: bool,
}

/// Reports problems in the order, such as a cache outside an approval. Exits with 1 if there are
/// any.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate stack lint
  toolgate stack lint --config ci/toolgate.toml --quiet")]
pub struct StackLintArgs {}

/// Shows or checks the stack.
pub(crate) fn run(args: &StackArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    let preview = GateArgs::default().open_preview(cx)?;
    match &args.command {
        StackCommand::Show(args) => show_stack(args, cx, &preview),
        StackCommand::Lint(StackLintArgs {}) => lint_stack(cx, &preview),
    }
}

fn show_stack(args: &StackShowArgs, cx: &CommandContext, preview: &Gate) -> Result<Exit, CliError> {
    let catalog = preview.configuration().catalog();
    let stack = &preview.stack().any_layers();
    let mut table =
        TextTable::for_output().with_head(["BAND", "LAYER", "WHAT IT DOES, AND WHY IT IS HERE"]);
    for StackLine {
        name,
        band,
        summary,
        why,
        ..
    } in layers::describe(stack, catalog)
    {
        if cx.out.is_json() {
            cx.out.print_json(
                &json!({ "name": name, "band": band, "on": true, "summary": summary, "why": why }),
            )?;
        }
        table.add_row([
            band_label(band),
            style::bold(name),
            format!("{summary} Here: {why}.").into(),
        ]);
    }
    // A configuration can give a layer another name, so it is matched by its kind.
    let on = |name: &str| {
        stack
            .iter()
            .any(|layer| layer.capabilities().kind == Some(name))
    };
    for entry in catalog
        .entries()
        .iter()
        .filter(|entry| args.all && !on(entry.name))
    {
        if cx.out.is_json() {
            let name = entry.name;
            let band = entry.band;
            let summary = entry.summary;
            let why = entry.why;
            cx.out.print_json(
                &json!({ "name": name, "band": band, "on": false, "summary": summary, "why": why }),
            )?;
        }
        table.add_row([
            style::dim("off"),
            style::dim(entry.name),
            entry.summary.into(),
        ]);
    }
    if !cx.out.is_json() {
        cx.out.print_line(table)?;
    }
    Ok(Exit::Done)
}

fn band_label(band: Band) -> StyledLine {
    match band {
        Band::Decide => style::warn(band),
        Band::Record | Band::Shape | Band::Repeat | Band::Bound => style::note(band),
    }
}

fn lint_stack(cx: &CommandContext, preview: &Gate) -> Result<Exit, CliError> {
    let deadline = preview
        .configuration()
        .stack()
        .turn_deadline
        .map(layers::HumanDuration::get);
    let findings = lint(&preview.stack().any_layers(), deadline);
    let warnings = preview.stack().warnings();
    for finding in &findings {
        if cx.out.is_json() {
            cx.out.print_json(finding)?
        } else {
            cx.out
                .print_line(format_args!("{} {finding}", style::bad("finding:")))?
        }
    }
    for warning in warnings {
        if cx.out.is_json() {
            cx.out
                .print_json(&json!({ "rule": "fits-no-tool", "reason": warning.to_string() }))?
        } else {
            cx.out
                .print_line(format_args!("{} {warning}", style::bad("finding:")))?
        }
    }
    match findings.len() + warnings.len() {
        0 => {
            let layers = preview.stack().layers().count();
            cx.out.print_note(format_args!(
                "{} {layers} layers in a good order",
                style::good("fine:")
            ))?;
            Ok(Exit::Done)
        }
        found => {
            cx.out.print_note(format_args!(
                "hint: {found} to fix in toolgate.toml; `toolgate stack show` explains where layers belong"
            ))?;
            Ok(Exit::Failed)
        }
    }
}
