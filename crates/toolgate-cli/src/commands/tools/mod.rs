//! `toolgate tools`: lists the tools of agents, shows one, calls one by hand.

mod call;
mod show;

pub(crate) use call::finish_call;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use toolgate::{
    gate::{AgentSection, AgentsSection},
    tool::ToolEntry,
    value::serialized_word,
};

use crate::{
    CallArgs, CliError, CommandContext, Exit, GateArgs, env::style, show::render::TextTable,
};

/// Lists the tools that agents have here, shows one, or calls one through the gate.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate tools list
  toolgate tools show read_file
  toolgate tools call read_file path=README.md")]
pub struct ToolsArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: ToolsCommand,
}

/// A subcommand of `toolgate tools`.
#[derive(Debug, Subcommand)]
pub enum ToolsCommand {
    /// List the tools that agents have here
    List(ToolsListArgs),
    /// Show the description and parameters of a tool, as the model sees them
    Show(ToolShowArgs),
    /// Call a tool through the whole gate, as a model would
    Call(ToolCallArgs),
}

/// Lists the tools that agents have here, with the strongest side effect of each, and the agents that
/// work can be delegated to.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate tools list
  toolgate tools list --json | jq -r 'select(.effect == \"read_only\") | .name'")]
pub struct ToolsListArgs {}

/// Shows the description, the parameters and the declared side effects of a tool.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate tools show read_file
  toolgate tools show read_file --json | jq .input")]
pub struct ToolShowArgs {
    /// The tool
    pub tool: String,
}

/// Calls a tool as a model would: checked, decided on, bounded, and recorded with a receipt.
#[derive(Debug, Args)]
#[command(after_help = "\
A call that needs an approval stays pending: the command exits with 3 and prints how to decide.
After the decision, `toolgate run --resume SESSION` finishes it.

Examples:
  toolgate tools call read_file path=README.md
  toolgate tools call run_shell command='cargo test' --approve yes
  echo '{\"path\": \"a.txt\", \"content\": \"hello\"}' | toolgate tools call write_file @- --json")]
pub struct ToolCallArgs {
    /// The call.
    #[command(flatten)]
    pub call: CallArgs,
    /// The options of the gate.
    #[command(flatten)]
    pub gate: GateArgs,
}

/// Lists, shows or calls tools.
pub(crate) fn run(args: &ToolsArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    match &args.command {
        ToolsCommand::List(ToolsListArgs {}) => list_tools(cx),
        ToolsCommand::Show(args) => show::show_tool(&args.tool, cx),
        ToolsCommand::Call(args) => call::call_tool(args, cx),
    }
}

fn list_tools(cx: &CommandContext) -> Result<Exit, CliError> {
    let preview = GateArgs::default().open_preview(cx)?;
    let view = preview.view()?;
    let mut table = TextTable::for_output().with_head(["TOOL", "EFFECT", "WHAT IT DOES"]);
    for tool in view.specs().filter_map(|spec| view.get(spec.name.as_str())) {
        if cx.out.is_json() {
            cx.out
                .print_json(&describe_tool(&tool.entry, &tool.spec.description))?;
        }
        let first = tool.spec.description.lines().next().unwrap_or_default();
        let effect = tool.entry.spec.annotations.strongest_effect();
        table.add_row([
            style::bold(&tool.spec.name),
            serialized_word(&effect).into(),
            first.into(),
        ]);
    }
    for agent in AgentsSection::of(preview.configuration())?.0 {
        let AgentSection {
            name, description, ..
        } = agent;
        if cx.out.is_json() {
            cx.out.print_json(
                &json!({ "name": name, "description": description, "executor": "agent" }),
            )?;
        }
        let first = description.lines().next().unwrap_or_default();
        table.add_row([style::bold(name), "agent".into(), first.into()]);
    }
    if !cx.out.is_json() {
        cx.out.print_line(table)?;
    }
    Ok(Exit::Done)
}

/// Returns a tool as JSON, without its schemas.
fn describe_tool(entry: &ToolEntry, description: &str) -> Value {
    json!({
        "name": entry.spec.name,
        "description": description,
        "effect": entry.spec.annotations.strongest_effect(),
        "annotations": entry.spec.annotations,
        "executor": entry.executor.to_string(),
        "fingerprint": entry.fingerprint,
    })
}
