//! `toolgate explain`: what the gate would do with a call, and why, without doing it.

use std::{sync::Arc, time::Duration};

use clap::Args;
use serde_json::{Value, json};
use toolgate::{
    CallSeed, Dispatcher, Env, Status, SystemClock, ToolRequest, Unwatched, View, explain,
    layers::{Explained, ExplainedLayer, Explanation},
};

use crate::{
    CallArgs, CliError, Cx, Exit, Gate, GateArgs, runtime, settings::ApproveMode, style,
    table::Table,
};

/// Says what the gate would do with a call, layer by layer, and why. Nothing is run, counted or asked.
#[derive(Debug, Args)]
#[command(after_help = "\
Ends with 0 if the call would run, 3 if somebody would be asked, 5 if it would be refused.

Examples:
  toolgate explain read_file path=README.md
  toolgate explain run_shell command='git push'
  toolgate explain write_file @call.json --deny 'write_file(src/**)'
  toolgate explain read_file path=.env --json")]
pub struct ExplainArgs {
    /// The call.
    #[command(flatten)]
    pub call: CallArgs,
    /// What the gate lets through.
    #[command(flatten)]
    pub gate: GateArgs,
}

/// Explains the call.
pub(crate) fn run(args: &ExplainArgs, cx: &Cx) -> Result<Exit, CliError> {
    runtime::block_on(async {
        let gate = Gate::open(cx, &args.gate).await?;
        let view = View::under(&gate.registry, &gate.stack)?;
        let schema = view
            .get(&args.call.tool)
            .map(|shown| shown.spec.input.clone());
        let arguments = args.call.read(schema.as_ref())?;
        let request = ToolRequest::json("", &args.call.tool, arguments.clone());
        let explanation = explain(&gate.stack, rehearsal(&gate, &view, &request).await?).await;
        let answer = Answer {
            explanation: &explanation,
            approve: gate.approve,
        };
        match cx.out.is_json() {
            true => cx.out.json(&answer.json(&args.call.tool, &arguments))?,
            false => answer.print(cx)?,
        }
        Ok(answer.exit())
    })
}

/// The call as a session would make it, in a session that leaves no trace.
async fn rehearsal(gate: &Gate, view: &View, request: &ToolRequest) -> Result<CallSeed, CliError> {
    // Driving a session takes a lease in its store, so this one has a store of its own; layers still see the real one.
    let dispatcher = Dispatcher::builder(gate.stack.clone()).build().await?;
    let env = Env::new(
        Arc::new(SystemClock::new()),
        gate.store.clone(),
        Arc::new(Unwatched),
    );
    Ok(CallSeed {
        env,
        ..dispatcher.rehearsal(view, request)
    })
}

/// An explanation, and who would answer a question.
struct Answer<'a> {
    explanation: &'a Explanation,
    approve: ApproveMode,
}

impl Answer<'_> {
    fn exit(&self) -> Exit {
        match (self.explanation.verdict, self.approve) {
            (Explained::Runs, _) | (Explained::Asks, ApproveMode::Yes) => Exit::Done,
            (Explained::Asks, ApproveMode::Never) => Exit::Refused,
            (Explained::Asks, _) => Exit::Suspended,
            (Explained::Settles(status), _) => Exit::from(status),
        }
    }

    fn json(&self, tool: &str, arguments: &Value) -> Value {
        let layers: Vec<Value> = own_times(&self.explanation.layers)
            .map(|(layer, took)| json_layer(layer, took))
            .collect();
        let mut said = verdict(self.explanation.verdict);
        said["tool"] = tool.into();
        said["arguments"] = arguments.clone();
        said["text"] = self.explanation.text.clone().into();
        said["exit"] = self.exit().code().into();
        said["layers"] = layers.into();
        said
    }

    fn print(&self, cx: &Cx) -> Result<(), CliError> {
        let mut table = Table::new().head(["BAND", "LAYER", "VERDICT", "TOOK", "WHY"]);
        for (layer, took) in own_times(&self.explanation.layers) {
            table.row([
                layer.band.to_string(),
                style::bold(&layer.name).to_string(),
                shown(layer),
                format!("{} µs", took.as_micros()),
                style::plain(layer.reason.as_deref().unwrap_or_default()),
            ]);
        }
        if !table.is_empty() {
            cx.out.line(format_args!("{table}\n"))?;
        }
        cx.out.line(self.conclusion())?;
        match self.explanation.verdict {
            Explained::Settles(status @ (Status::ToolNotFound | Status::SchemaViolation)) => {
                let hint = crate::hints::about_status(status).unwrap_or_default();
                cx.out.note(format_args!("{}: {hint}", style::note("hint")))
            }
            Explained::Runs | Explained::Asks | Explained::Settles(_) => Ok(()),
        }
    }

    fn conclusion(&self) -> String {
        let text = style::plain(self.explanation.text.as_deref().unwrap_or_default());
        match (self.explanation.verdict, self.approve) {
            (Explained::Runs, _) => style::good("the call would run").to_string(),
            (Explained::Asks, ApproveMode::Yes) => {
                style::good("the call would be approved, and run").to_string()
            }
            (Explained::Asks, ApproveMode::Never) => {
                style::bad("the call would be denied: nobody is asked").to_string()
            }
            (Explained::Asks, _) => {
                style::warn("the call would run if somebody agrees").to_string()
            }
            (Explained::Settles(status), _) => {
                format!("{} {status}: {text}", style::bad("the call would not run:"))
            }
        }
    }
}

/// Each layer with the time it took by itself; what the library measures holds everything below it, too.
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

fn shown(layer: &ExplainedLayer) -> String {
    match layer.verdict {
        Explained::Runs if layer.changed => style::note("changes it").to_string(),
        Explained::Runs => style::dim("lets it through").to_string(),
        Explained::Asks => style::warn("asks").to_string(),
        Explained::Settles(status) => style::bad(format!("answers {status}")).to_string(),
    }
}

fn json_layer(layer: &ExplainedLayer, took: Duration) -> Value {
    let mut said = verdict(layer.verdict);
    said["band"] = layer.band.to_string().into();
    said["layer"] = layer.name.as_str().into();
    said["changed"] = layer.changed.into();
    said["reason"] = layer.reason.clone().into();
    said["took_us"] = (took.as_micros() as u64).into();
    said
}

fn verdict(verdict: Explained) -> Value {
    match verdict {
        Explained::Runs => json!({ "verdict": "runs" }),
        Explained::Asks => json!({ "verdict": "asks" }),
        Explained::Settles(status) => json!({ "verdict": "settles", "status": status.as_str() }),
    }
}
