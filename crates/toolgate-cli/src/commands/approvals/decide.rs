//! `toolgate approvals approve` and `deny`: a decision is stored before the command returns.

use serde_json::json;
use toolgate::{
    Arguments, Decision,
    approval::{AdmittedDecision, ApprovalRequestRef, ApprovalService, Verdict},
    session::DeliverError,
    store::{ApprovalFilter, ApprovalRow, SessionFilter, StoreHandle},
    value::SessionId,
};

use super::{ApproveArgs, DecisionArgs, DenyArgs, show::load_approvals};
use crate::{
    CliError, CommandContext, Exit,
    env::{confirm::require_confirmation, ids, style, times},
    show::{
        agent_sessions,
        entitlement::{describe_missing, describe_rejection},
    },
};

pub(super) async fn run_approve(args: &ApproveArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    let verdict = match &args.edit {
        Some(_) if args.which.ids.len() > 1 => {
            return Err(CliError::usage("--edit is for one call at a time"));
        }
        Some(text) => Verdict::ApproveWithEdits {
            arguments: parse_edited_arguments(text)?,
        },
        None => Verdict::Approve,
    };
    decide_approvals(&args.which, cx, verdict).await
}

pub(super) async fn run_deny(args: &DenyArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    decide_approvals(
        &args.which,
        cx,
        Verdict::Deny {
            reason: args.reason.clone(),
        },
    )
    .await
}

fn parse_edited_arguments(text: &str) -> Result<Arguments, CliError> {
    let text = match text.strip_prefix('@') {
        Some(path) => std::fs::read_to_string(path)
            .map_err(|error| CliError::usage(format!("{path}: {error}")))?,
        None => text.to_owned(),
    };
    let how = "write an object: --edit '{\"path\": \"a.txt\"}', or --edit @arguments.json";
    Arguments::parse(&text)
        .map_err(|error| CliError::usage(format!("the new arguments: {error}")).with_hint(how))
}

async fn decide_approvals(
    which: &DecisionArgs,
    cx: &CommandContext,
    verdict: Verdict,
) -> Result<Exit, CliError> {
    let store = cx.open_store().await?;
    let desk = ApprovalService::new(store.clone()).keyring(cx.load_keys()?.keyring());
    // All ids are resolved first: a misspelt one must not leave half of the decisions made.
    let rows = find_approvals(which, cx, &store, &desk, &verdict).await?;
    let by = cx.current_approver(which.by.as_deref());
    let mut exit = Exit::Done;
    let mut sessions = Vec::new();
    for row in &rows {
        let decision = Decision {
            verdict: verdict.clone(),
            by: by.clone(),
        };
        let answer = desk
            .decide(ApprovalRequestRef::from(&*row.request), decision)
            .await;
        // A rejected decision does not stop the others; the exit code reports it.
        if answer.is_err() {
            exit = Exit::Failed;
        } else if !sessions.contains(&row.session) {
            sessions.push(row.session);
        }
        print_decision(cx, row, &verdict, &answer)?;
    }
    for session in sessions {
        print_next_step(cx, &store, session).await?;
    }
    Ok(exit)
}

/// Finds the approvals to decide on. With `--all` they are listed and confirmed first.
async fn find_approvals(
    which: &DecisionArgs,
    cx: &CommandContext,
    store: &StoreHandle,
    desk: &ApprovalService,
    verdict: &Verdict,
) -> Result<Vec<ApprovalRow>, CliError> {
    if !which.all {
        let mut rows = Vec::new();
        for id in &which.ids {
            rows.push(ids::find_approval(store, id).await?);
        }
        return Ok(rows);
    }
    let rows = load_approvals(
        desk,
        ApprovalFilter {
            limit: 500,
            ..ApprovalFilter::default()
        },
    )
    .await?;
    if rows.is_empty() {
        cx.out.print_note("no approval is pending")?;
        return Ok(rows);
    }
    for row in rows.iter().filter(|_| !which.yes && !cx.out.is_json()) {
        cx.out.print_line(format_args!(
            "{}  {}",
            ids::short_id(row.request.approval_id),
            row.request.tool
        ))?;
    }
    let what = if matches!(verdict, Verdict::Deny { .. }) {
        "Deny"
    } else {
        "Approve"
    };
    require_confirmation(cx, &format!("{what} all {}?", rows.len()), which.yes)?;
    Ok(rows)
}

fn print_decision(
    cx: &CommandContext,
    row: &ApprovalRow,
    verdict: &Verdict,
    answer: &Result<AdmittedDecision, DeliverError>,
) -> Result<(), CliError> {
    let id = row.request.approval_id;
    let tool = &row.request.tool;
    if cx.out.is_json() {
        let (taken, missing) = match answer {
            Ok(AdmittedDecision::Decided { .. }) => ("decided", None),
            Ok(AdmittedDecision::Counted { missing }) => ("counted", Some(*missing)),
            Err(_) => ("refused", None),
        };
        let error = answer.as_ref().err();
        return cx.out.print_json(&json!({
            "approval_id": id, "session": row.session, "tool": tool, "taken": taken, "missing": missing,
            "code": error.and_then(DeliverError::code), "error": error.map(ToString::to_string),
        }));
    }
    let name = format!("{tool} ({})", ids::short_id(id));
    match (answer, verdict) {
        (Ok(AdmittedDecision::Decided { .. }), Verdict::Deny { .. }) => cx
            .out
            .print_line(format_args!("{} {name}", style::bad("denied"))),
        (
            Ok(AdmittedDecision::Decided { .. }),
            Verdict::Approve | Verdict::ApproveWithEdits { .. },
        ) => cx
            .out
            .print_line(format_args!("{} {name}", style::good("approved"))),
        (Ok(AdmittedDecision::Counted { missing }), _) => cx.out.print_line(format_args!(
            "{} {name}; {}",
            style::warn("counted"),
            describe_missing(*missing)
        )),
        (Err(error), _) => {
            cx.out.print_error(&CliError::new(format!(
                "{name}: {}",
                describe_rejection(error)
            )));
            Ok(())
        }
    }
}

/// Prints how the suspended session continues.
async fn print_next_step(
    cx: &CommandContext,
    store: &StoreHandle,
    session: SessionId,
) -> Result<(), CliError> {
    if cx.out.is_json() {
        return Ok(());
    }
    // The session of an agent is resumed through the one that delegated to it.
    let root = agent_sessions::root_session(store, session).await?;
    let row = store
        .sessions(SessionFilter::for_session(root))
        .await?
        .pop();
    let driven = row
        .and_then(|row| row.held)
        .is_some_and(|(_, until)| until > times::current_time());
    if driven {
        cx.out.print_note(format_args!(
            "session {} is running and continues by itself",
            ids::short_id(root)
        ))
    } else {
        let next = style::note("next");
        cx.out.print_note(format_args!(
            "{next}: `toolgate run --resume {}` continues the session",
            ids::short_id(root)
        ))
    }
}
