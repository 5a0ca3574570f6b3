//! `toolgate tools`: what agents can call here, and calling it by hand.

mod call;
mod show;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use toolgate::{ToolEntry, View};

use crate::{CallArgs, CliError, Cx, Exit, GateArgs, preview::Preview, style, table::Table};

/// Lists the tools that agents have here, shows one, or calls one through the gate.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate tools list
  toolgate tools show read_file
  toolgate tools call read_file path=README.md")]
pub struct ToolsArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ToolsCommand,
}

/// What to do with tools.
#[derive(Debug, Subcommand)]
pub enum ToolsCommand {
    /// List the tools that agents have here
    List(ListArgs),
    /// Show what a tool does and takes, as the model is told
    Show(ShowArgs),
    /// Call a tool through the whole gate, as a model would
    Call(ToolCallArgs),
}

/// Lists the tools that agents have here, with the most that each can do to the world.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate tools list
  toolgate tools list --json | jq -r 'select(.effect == \"read_only\") | .name'")]
pub struct ListArgs {}

/// Shows what a tool does, what it takes, and what it is said to do to the world.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate tools show read_file
  toolgate tools show read_file --json | jq .input")]
pub struct ShowArgs {
    /// The tool
    pub tool: String,
}

/// Calls a tool as a model would: checked, decided on, bounded, and recorded with a receipt.
#[derive(Debug, Args)]
#[command(after_help = "\
What needs an approval waits for it: the command ends with 3 and says how to decide.

Examples:
  toolgate tools call read_file path=README.md
  toolgate tools call run_shell command='cargo test' --approve yes
  echo '{\"path\": \"a.txt\", \"content\": \"hello\"}' | toolgate tools call write_file @- --json")]
pub struct ToolCallArgs {
    /// The call.
    #[command(flatten)]
    pub call: CallArgs,
    /// What the gate lets through.
    #[command(flatten)]
    pub gate: GateArgs,
}

/// Lists, shows or calls tools.
pub(crate) fn run(args: &ToolsArgs, cx: &Cx) -> Result<Exit, CliError> {
    match &args.command {
        ToolsCommand::List(ListArgs {}) => list(cx),
        ToolsCommand::Show(args) => show::run(&args.tool, cx),
        ToolsCommand::Call(args) => call::run(args, cx),
    }
}

fn list(cx: &Cx) -> Result<Exit, CliError> {
    let preview = Preview::open(cx, &GateArgs::default())?;
    let view = View::under(&preview.registry, &preview.stack)?;
    let mut table = Table::new().head(["TOOL", "EFFECT", "WHAT IT DOES"]);
    for tool in view.specs().filter_map(|spec| view.get(spec.name.as_str())) {
        if cx.out.is_json() {
            cx.out
                .json(&described(&tool.entry, &tool.spec.description))?;
        }
        let first = tool.spec.description.lines().next().unwrap_or_default();
        let effect = tool.entry.spec.annotations.effect();
        table.row([
            style::bold(&tool.spec.name).to_string(),
            word(&effect),
            style::plain(first),
        ]);
    }
    if !cx.out.is_json() {
        cx.out.line(table)?;
    }
    Ok(Exit::Done)
}

/// What is known of a tool, without its schemas.
fn described(entry: &ToolEntry, description: &str) -> Value {
    json!({
        "name": entry.spec.name,
        "description": description,
        "effect": entry.spec.annotations.effect(),
        "annotations": entry.spec.annotations,
        "executor": entry.executor.to_string(),
        "fingerprint": entry.fingerprint,
    })
}

/// The word on the wire for a value of one of our enumerations.
fn word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value)
        .ok()
        .and_then(|word| word.as_str().map(str::to_owned))
        .unwrap_or_default()
}
