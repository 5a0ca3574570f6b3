//! `toolgate tools call`: one call by hand, through the whole gate.

use std::io::{IsTerminal, Write};

use serde_json::{Value, json};
use toolgate::{
    Gate, Status,
    approval::ApprovalRequest,
    session::{CallResult, TurnEnd, TurnReport, TurnRequest, TurnRun},
    stack::{SettledOutcome, Suspension, ToolRequest},
    store::TurnFilter,
    value::SessionId,
};

use super::ToolCallArgs;
use crate::{
    CliError, CommandContext, Exit, GateArgs, SessionArgs,
    commands::receipts::sign_receipts,
    env::{
        ids, runtime,
        signals::{StopSignal, StopSignals},
        style,
    },
    hints,
};

pub(super) fn call_tool(args: &ToolCallArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    runtime::block_on(async {
        let gate = args.gate.open_gate(cx).await?;
        args.gate.check_tools(cx, &gate)?;
        let view = gate.view()?;
        let schema = view
            .get(&args.call.tool)
            .map(|shown| shown.spec.input.clone());
        let request = ToolRequest::from_json(
            "",
            &args.call.tool,
            args.call.parse_arguments(schema.as_ref())?,
        );
        let dispatcher = gate.dispatcher(None).await?;
        let session = dispatcher.session();
        let talk = SessionArgs {
            gate: args.gate.clone(),
            ..SessionArgs::default()
        };
        talk.store_for(cx, &gate, session).await?;
        let turn = TurnRequest::new(view, vec![request]).principal(cx.current_user());
        run_to_result(cx, &gate, session, dispatcher.open_turn(turn).await?).await
    })
}

/// Finishes the call of a session that was made by hand, after its approval.
///
/// # Errors
///
/// Fails if no call of the session is open.
pub(crate) async fn finish_call(
    cx: &CommandContext,
    args: &GateArgs,
    session: SessionId,
) -> Result<Exit, CliError> {
    let gate = args.open_gate(cx).await?;
    let open = TurnFilter {
        session,
        after: None,
        open: true,
        limit: 1,
    };
    let Some(row) = gate.store().turns(open).await?.pop() else {
        let short = ids::short_id(session);
        let show = cx.command_line(&format!("sessions show {short}"));
        return Err(
            CliError::usage(format!("session {short} is one call, and it has settled"))
                .with_hint(format!("`{show}` shows it")),
        );
    };
    let dispatcher = gate.dispatcher(Some(session)).await?;
    let turn = dispatcher.resume(row.turn, gate.view()?).await?;
    run_to_result(cx, &gate, session, turn).await
}

/// Drives the turn of one call, and prints its result.
async fn run_to_result(
    cx: &CommandContext,
    gate: &Gate,
    session: SessionId,
    turn: TurnRun,
) -> Result<Exit, CliError> {
    let (report, stopped) = run_interruptible(turn).await?;
    let result = report
        .results
        .first()
        .ok_or_else(|| CliError::new("the report of the turn lacks the call"))?;
    let exit = exit_for(&report, stopped, result);
    let exit = sign_receipts(cx, &gate.evidence(), exit).await?;
    if cx.out.is_json() {
        cx.out
            .print_json(&result_json(session, &report, result, exit))?
    } else {
        print_result(cx, session, result)?
    }
    Ok(exit)
}

/// Drives the turn. A signal to stop interrupts the call, and its outcome is still recorded.
async fn run_interruptible(turn: TurnRun) -> Result<(TurnReport, Option<StopSignal>), CliError> {
    let mut stops = StopSignals::listen();
    let handle = turn.handle();
    let driven = turn.run();
    tokio::pin!(driven);
    let stopped;
    tokio::select! {
        report = &mut driven => return Ok((report?, None)),
        stop = stops.next() => stopped = stop,
    }
    // The turn must still be driven to process the interrupt and record the outcome.
    let (_, report) = tokio::join!(handle.interrupt("the program was stopped"), driven);
    Ok((report?, Some(stopped)))
}

fn exit_for(report: &TurnReport, stopped: Option<StopSignal>, result: &CallResult) -> Exit {
    match (stopped, report.end) {
        // The call may have settled all the same; the exit code reports the interruption.
        (Some(stopped), _) => stopped.exit_status(),
        (None, TurnEnd::Interrupted) => Exit::Interrupted,
        (None, TurnEnd::Settled | TurnEnd::Suspended | TurnEnd::Aborted) => {
            result.status().map_or(Exit::Suspended, Exit::from)
        }
    }
}

fn result_json(session: SessionId, report: &TurnReport, result: &CallResult, exit: Exit) -> Value {
    let mut said = json!({
        "session": session,
        "turn": report.turn,
        "call": result.id,
        "tool": result.tool,
        "status": result.status().map_or("suspended", Status::as_str),
        "exit": exit.code(),
    });
    if let Some(settled) = &result.outcome {
        said["text"] = settled.model_text().into();
        said["value"] = settled.value.as_value().clone();
        said["took_ms"] = (settled.ended_at.since(settled.started_at).as_millis() as u64).into();
    }
    if let Some(request) = approval_request(result) {
        said["approval"] = request.approval_id.to_string().into();
        said["reason"] = request.reason.clone().into();
    }
    said
}

fn approval_request(result: &CallResult) -> Option<&ApprovalRequest> {
    match result.waits_for.as_ref()? {
        Suspension::Decision(request) => Some(request),
        Suspension::Result => None,
    }
}

fn print_result(
    cx: &CommandContext,
    session: SessionId,
    result: &CallResult,
) -> Result<(), CliError> {
    let pending = style::warn("pending");
    let next = style::note("next");
    let short = ids::short_id(session);
    match (&result.outcome, approval_request(result)) {
        (Some(settled), _) => print_settled(cx, session, settled),
        (None, Some(request)) => {
            let why = request.reason.as_deref().map(style::escape_controls);
            let why = why.map_or_else(String::new, |why| format!(": {why}"));
            cx.out.print_note(format_args!(
                "{pending}: {} needs an approval{why}",
                style::escape_controls(request.tool.as_str())
            ))?;
            let approve = format!("approvals approve {}", ids::short_id(request.approval_id));
            let resume = format!("run --resume {}", ids::short_id(session));
            cx.out.print_note(format_args!(
                "{next}: `{}` (or deny), then `{}`",
                cx.command_line(&approve),
                cx.command_line(&resume)
            ))
        }
        (None, None) => cx.out.print_note(format_args!(
            "{pending}: waiting for an external result; session {short}"
        )),
    }
}

/// Prints the outcome: the result to the standard output, everything else to the error output.
fn print_settled(
    cx: &CommandContext,
    session: SessionId,
    settled: &SettledOutcome,
) -> Result<(), CliError> {
    let text = settled.model_text();
    let session = ids::short_id(session);
    let took = settled.ended_at.since(settled.started_at).as_millis();
    if matches!(settled.status, Status::Ok | Status::DryRun) {
        // A pipe gets the bytes unchanged; only a terminal would obey escape codes.
        if std::io::stdout().is_terminal() {
            cx.out.print_line(style::escape_controls(&text))?
        } else {
            writeln!(std::io::stdout(), "{text}")?
        }
        return cx.out.print_note(format_args!(
            "{} in {took} ms; session {session}",
            style::good(settled.status.text())
        ));
    }
    let refused = CliError::new(format!(
        "{}: {}",
        settled.status.text(),
        style::escape_controls(&text)
    ));
    cx.out
        .print_error(&match hints::status_hint(settled.status) {
            Some(hint) => refused.with_hint(hint),
            None => refused,
        });
    cx.out.print_note(format_args!("session {session}"))
}
