//! `toolgate tools call`: one call by hand, through the whole gate.

use std::io::{IsTerminal, Write};

use serde_json::{Value, json};
use toolgate::{
    ApprovalRequest, CallResult, Dispatcher, SessionId, Settled, Status, Suspension, ToolRequest,
    TurnEnd, TurnReport, TurnRequest, TurnRun, View,
};

use super::ToolCallArgs;
use crate::{CliError, Cx, Exit, Gate, hints, runtime, style};

pub(super) fn run(args: &ToolCallArgs, cx: &Cx) -> Result<Exit, CliError> {
    runtime::block_on(async {
        let gate = Gate::open(cx, &args.gate).await?;
        let view = View::under(&gate.registry, &gate.stack)?;
        let schema = view
            .get(&args.call.tool)
            .map(|shown| shown.spec.input.clone());
        let request = ToolRequest::json("", &args.call.tool, args.call.read(schema.as_ref())?);
        let dispatcher = gate.dispatcher(None)(Dispatcher::builder(gate.stack.clone()))
            .build()
            .await?;
        let turn = TurnRequest::new(view, vec![request]).principal(gate.me.clone());
        let report = interruptible(dispatcher.open(turn).await?).await?;
        let session = dispatcher.session();
        let result = report
            .results
            .first()
            .ok_or_else(|| CliError::new("the turn came back without the call"))?;
        match cx.out.is_json() {
            true => cx.out.json(&shown_json(session, &report, result))?,
            false => print(cx, session, result)?,
        }
        Ok(exit(&report, result))
    })
}

/// Drives the turn; Ctrl-C stops the call, and what is known of it is kept.
async fn interruptible(turn: TurnRun) -> Result<TurnReport, CliError> {
    let handle = turn.handle();
    let driven = turn.run();
    tokio::pin!(driven);
    tokio::select! {
        report = &mut driven => return Ok(report?),
        Ok(()) = tokio::signal::ctrl_c() => {}
    }
    // The turn has to be driven on while it is told to stop.
    let (_, report) = tokio::join!(handle.interrupt("interrupted with Ctrl-C"), driven);
    Ok(report?)
}

fn exit(report: &TurnReport, result: &CallResult) -> Exit {
    match report.end {
        TurnEnd::Interrupted => Exit::Interrupted,
        TurnEnd::Settled | TurnEnd::Suspended | TurnEnd::Aborted => {
            result.status().map_or(Exit::Suspended, Exit::from)
        }
    }
}

fn shown_json(session: SessionId, report: &TurnReport, result: &CallResult) -> Value {
    let mut said = json!({
        "session": session,
        "turn": report.turn,
        "call": result.id,
        "tool": result.tool,
        "status": result.status().map_or("suspended", Status::as_str),
        "exit": exit(report, result).code(),
    });
    if let Some(settled) = &result.outcome {
        said["text"] = settled.model_text().into();
        said["value"] = settled.value.as_value().clone();
        said["took_ms"] = (settled.ended_at.since(settled.started_at).as_millis() as u64).into();
    }
    if let Some(request) = question(result) {
        said["approval"] = request.approval_id.to_string().into();
        said["reason"] = request.reason.clone().into();
    }
    said
}

fn question(result: &CallResult) -> Option<&ApprovalRequest> {
    match result.waits_for.as_ref()? {
        Suspension::Decision(request) => Some(request),
        Suspension::Result => None,
    }
}

fn print(cx: &Cx, session: SessionId, result: &CallResult) -> Result<(), CliError> {
    let (waiting, hint) = (style::warn("waiting"), style::note("hint"));
    match (&result.outcome, question(result)) {
        (Some(settled), _) => settled_line(cx, session, settled),
        (None, Some(request)) => {
            let why = request.reason.as_deref().map(style::plain);
            let why = why.map_or_else(String::new, |why| format!(": {why}"));
            cx.out.note(format_args!(
                "{waiting}: {} needs an approval{why}",
                request.tool
            ))?;
            let id = &request.approval_id;
            cx.out.note(format_args!(
                "{hint}: `toolgate approvals approve {id}`, or deny; session {session}"
            ))
        }
        (None, None) => cx.out.note(format_args!(
            "{waiting} for a result from outside; session {session}"
        )),
    }
}

/// What came of the call: what it gives to the standard output, everything else beside it.
fn settled_line(cx: &Cx, session: SessionId, settled: &Settled) -> Result<(), CliError> {
    let text = settled.model_text();
    let took = settled.ended_at.since(settled.started_at).as_millis();
    if matches!(settled.status, Status::Ok | Status::DryRun) {
        // A file that is piped on stays as it is; only a terminal could be steered by it.
        match std::io::stdout().is_terminal() {
            true => cx.out.line(style::plain(&text))?,
            false => writeln!(std::io::stdout(), "{text}")?,
        }
        return cx.out.note(format_args!(
            "{} in {took} ms; session {session}",
            style::good(settled.status)
        ));
    }
    let refused = CliError::new(format!("{}: {}", settled.status, style::plain(&text)));
    cx.out.error(&match hints::about_status(settled.status) {
        Some(hint) => refused.hint(hint),
        None => refused,
    });
    cx.out.note(format_args!("session {session}"))
}
