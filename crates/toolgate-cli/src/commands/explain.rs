//! `toolgate explain`: what the gate would do with a call, and why, without executing it.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use toolgate::{
    Status,
    gate::ApproveMode,
    layers::{CallVerdict, ExplainedLayer, Explanation},
};

use crate::{
    CallArgs, CliError, CommandContext, Exit, GateArgs,
    env::{runtime, style},
    show::render::{StyledLine, TextTable},
};

/// Explains what the gate would do with a call, layer by layer. Nothing is executed, counted or
/// asked.
#[derive(Debug, Args)]
#[command(after_help = "\
The tool takes part: what it checks before it changes anything is checked, such as whether a file
exists. Exits with 0 if the call would run, 1 if the tool would fail, 3 if the call would need an
approval, 5 if it would be blocked.

Examples:
  toolgate explain read_file path=README.md
  toolgate explain run_shell command='git push'
  toolgate explain write_file @call.json --deny 'write_file(src/**)'
  toolgate explain read_file path=.env --json")]
pub struct ExplainArgs {
    /// The call.
    #[command(flatten)]
    pub call: CallArgs,
    /// The options of the gate.
    #[command(flatten)]
    pub gate: GateArgs,
}

/// Explains the call.
pub(crate) fn run(args: &ExplainArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    runtime::block_on(async {
        let gate = args.gate.open_gate(cx).await?;
        args.gate.check_tools(cx, &gate)?;
        let view = gate.view()?;
        let schema = view
            .get(&args.call.tool)
            .map(|shown| shown.spec.input.clone());
        let arguments = args.call.parse_arguments(schema.as_ref())?;
        let explanation = gate.explain(&args.call.tool, arguments.clone()).await?;
        let answer = ExplanationReport {
            explanation: &explanation,
            approve: gate.approve_mode(),
        };
        if cx.out.is_json() {
            cx.out
                .print_json(&answer.to_json(&args.call.tool, &arguments))?
        } else {
            answer.print(cx)?
        }
        Ok(answer.exit())
    })
}

/// An explanation, and the handling of approval requests.
struct ExplanationReport<'a> {
    explanation: &'a Explanation,
    approve: ApproveMode,
}

impl ExplanationReport<'_> {
    fn exit(&self) -> Exit {
        match (self.explanation.verdict, self.approve) {
            (CallVerdict::Runs, _) | (CallVerdict::Asks, ApproveMode::Yes) => Exit::Done,
            (CallVerdict::Asks, ApproveMode::Never) => Exit::NotAllowed,
            (CallVerdict::Asks, _) => Exit::Suspended,
            (CallVerdict::Settles(status) | CallVerdict::Fails(status), _) => Exit::from(status),
        }
    }

    fn to_json(&self, tool: &str, arguments: &Value) -> Value {
        let layers: Vec<Value> = own_times(&self.explanation.layers)
            .map(|(layer, took)| layer_json(layer, took))
            .collect();
        let mut said = verdict_json(self.explanation.verdict);
        said["tool"] = tool.into();
        said["arguments"] = arguments.clone();
        said["text"] = self.explanation.text.clone().into();
        said["exit"] = self.exit().code().into();
        said["layers"] = layers.into();
        said
    }

    fn print(&self, cx: &CommandContext) -> Result<(), CliError> {
        let mut table =
            TextTable::for_output().with_head(["BAND", "LAYER", "VERDICT", "TOOK", "WHY"]);
        for (layer, took) in own_times(&self.explanation.layers) {
            table.add_row([
                layer.band.to_string().into(),
                style::bold(&layer.name),
                verdict_label(layer),
                format!("{} µs", took.as_micros()).into(),
                layer.reason.as_deref().unwrap_or_default().into(),
            ]);
        }
        if !table.is_empty() {
            cx.out.print_line(format_args!("{table}\n"))?;
        }
        cx.out.print_line(self.conclusion())?;
        match self.explanation.verdict {
            CallVerdict::Settles(status @ (Status::ToolNotFound | Status::SchemaViolation)) => {
                let hint = crate::hints::status_hint(status).unwrap_or_default();
                cx.out
                    .print_note(format_args!("{}: {hint}", style::note("hint")))
            }
            CallVerdict::Runs
            | CallVerdict::Asks
            | CallVerdict::Settles(_)
            | CallVerdict::Fails(_) => Ok(()),
        }
    }

    fn conclusion(&self) -> String {
        let text = style::escape_controls(self.explanation.text.as_deref().unwrap_or_default());
        match (self.explanation.verdict, self.approve) {
            (CallVerdict::Runs, _) => style::good("the call would run").to_string(),
            (CallVerdict::Asks, ApproveMode::Yes) => {
                style::good("the call would be approved, and run").to_string()
            }
            (CallVerdict::Asks, ApproveMode::Never) => {
                style::bad("the call would be denied: approvals are switched off").to_string()
            }
            (CallVerdict::Asks, _) => style::warn("the call would run if approved").to_string(),
            (CallVerdict::Settles(status), _) => {
                let lead = style::bad("the call would not run:");
                format!("{lead} {}: {text}", status.text())
            }
            (CallVerdict::Fails(_), _) => {
                format!("{} {text}", style::bad("the tool would fail:"))
            }
        }
    }
}

/// Returns each layer with its own time; the library measures a layer together with everything
/// below it.
fn own_times(layers: &[ExplainedLayer]) -> impl Iterator<Item = (&ExplainedLayer, Duration)> {
    let below = layers
        .iter()
        .skip(1)
        .map(|layer| layer.took)
        .chain([Duration::ZERO]);
    layers
        .iter()
        .zip(below)
        .map(|(layer, below)| (layer, layer.took.saturating_sub(below)))
}

fn verdict_label(layer: &ExplainedLayer) -> StyledLine {
    match layer.verdict {
        CallVerdict::Runs if layer.changed => style::note("changes it"),
        CallVerdict::Runs => style::dim(layer.verdict),
        CallVerdict::Asks => style::warn(layer.verdict),
        CallVerdict::Settles(_) | CallVerdict::Fails(_) => style::bad(layer.verdict),
    }
}

fn layer_json(layer: &ExplainedLayer, took: Duration) -> Value {
    let mut said = verdict_json(layer.verdict);
    said["band"] = layer.band.to_string().into();
    said["layer"] = layer.name.as_str().into();
    said["changed"] = layer.changed.into();
    said["reason"] = layer.reason.clone().into();
    said["took_us"] = (took.as_micros() as u64).into();
    said
}

fn verdict_json(verdict: CallVerdict) -> Value {
    match verdict {
        CallVerdict::Runs => json!({ "verdict": "runs" }),
        CallVerdict::Asks => json!({ "verdict": "asks" }),
        CallVerdict::Settles(status) => json!({ "verdict": "settles", "status": status.as_str() }),
        CallVerdict::Fails(status) => json!({ "verdict": "fails", "status": status.as_str() }),
    }
}
