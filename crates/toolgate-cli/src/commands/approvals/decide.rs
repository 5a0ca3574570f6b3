//! Decisions from the command line: durable when the command returns.

use serde_json::json;
use toolgate::{
    Admitted, ApprovalFilter, ApprovalRow, Approvals, Arguments, Decision, PostCode, PostError,
    Principal, Question, SessionFilter, SessionId, StoreHandle, Verdict,
};

use super::{ApproveArgs, DenyArgs, Which, show::every};
use crate::{CliError, Cx, Exit, confirm::confirm, family, ids, style, times};

pub(super) async fn approve(args: &ApproveArgs, cx: &Cx) -> Result<Exit, CliError> {
    let verdict = match &args.edit {
        Some(_) if args.which.ids.len() > 1 => {
            return Err(CliError::usage("--edit is for one call at a time"));
        }
        Some(text) => Verdict::ApproveWithEdits {
            arguments: edited(text)?,
        },
        None => Verdict::Approve,
    };
    decide(&args.which, cx, verdict).await
}

pub(super) async fn deny(args: &DenyArgs, cx: &Cx) -> Result<Exit, CliError> {
    decide(
        &args.which,
        cx,
        Verdict::Deny {
            reason: args.reason.clone(),
        },
    )
    .await
}

fn edited(text: &str) -> Result<Arguments, CliError> {
    let text = match text.strip_prefix('@') {
        Some(path) => std::fs::read_to_string(path)
            .map_err(|error| CliError::usage(format!("{path}: {error}")))?,
        None => text.to_owned(),
    };
    let how = "write an object: --edit '{\"path\": \"a.txt\"}', or --edit @arguments.json";
    Arguments::parse(&text)
        .map_err(|error| CliError::usage(format!("the new arguments: {error}")).hint(how))
}

async fn decide(which: &Which, cx: &Cx, verdict: Verdict) -> Result<Exit, CliError> {
    let store = cx.store().await?;
    let desk = Approvals::new(store.clone()).keyring(cx.keys()?.keyring());
    let rows = wanted(which, cx, &store, &desk, &verdict).await?;
    let by = which.by.as_deref().map_or_else(|| cx.me(), Principal::from);
    let (mut exit, mut sessions) = (Exit::Done, Vec::new());
    for row in &rows {
        let decision = Decision {
            verdict: verdict.clone(),
            by: by.clone(),
        };
        let answer = desk.decide(Question::from(&*row.request), decision).await;
        if answer.is_err() {
            exit = Exit::Failed;
        } else if !sessions.contains(&row.session) {
            sessions.push(row.session);
        }
        tell(cx, row, &verdict, &answer)?;
    }
    for session in sessions {
        next_step(cx, &store, session).await?;
    }
    Ok(exit)
}

/// The approvals that are meant. Whoever wants all of them sees them first.
async fn wanted(
    which: &Which,
    cx: &Cx,
    store: &StoreHandle,
    desk: &Approvals,
    verdict: &Verdict,
) -> Result<Vec<ApprovalRow>, CliError> {
    if !which.all {
        let mut rows = Vec::new();
        for id in &which.ids {
            rows.push(ids::find_approval(store, id).await?);
        }
        return Ok(rows);
    }
    let rows = every(
        desk,
        ApprovalFilter {
            limit: 500,
            ..ApprovalFilter::default()
        },
    )
    .await?;
    if rows.is_empty() {
        cx.out.note("nothing waits for a decision")?;
        return Ok(rows);
    }
    for row in rows.iter().filter(|_| !which.yes && !cx.out.is_json()) {
        cx.out.line(format_args!(
            "{}  {}",
            ids::short(row.request.approval_id),
            row.request.tool
        ))?;
    }
    let what = if matches!(verdict, Verdict::Deny { .. }) {
        "Deny"
    } else {
        "Approve"
    };
    confirm(cx, &format!("{what} all {}?", rows.len()), which.yes)?;
    Ok(rows)
}

fn tell(
    cx: &Cx,
    row: &ApprovalRow,
    verdict: &Verdict,
    answer: &Result<Admitted, PostError>,
) -> Result<(), CliError> {
    let (id, tool) = (row.request.approval_id, &row.request.tool);
    if cx.out.is_json() {
        let (taken, missing) = match answer {
            Ok(Admitted::Decided { .. }) => ("decided", None),
            Ok(Admitted::Counted { missing }) => ("counted", Some(*missing)),
            Err(_) => ("refused", None),
        };
        let error = answer.as_ref().err();
        return cx.out.json(&json!({
            "approval_id": id, "session": row.session, "tool": tool, "taken": taken, "missing": missing,
            "code": error.and_then(PostError::code), "error": error.map(ToString::to_string),
        }));
    }
    let name = format!("{tool} ({})", ids::short(id));
    match (answer, verdict) {
        (Ok(Admitted::Decided { .. }), Verdict::Deny { .. }) => {
            cx.out.line(format_args!("{} {name}", style::bad("denied")))
        }
        (Ok(Admitted::Decided { .. }), Verdict::Approve | Verdict::ApproveWithEdits { .. }) => cx
            .out
            .line(format_args!("{} {name}", style::good("approved"))),
        (Ok(Admitted::Counted { missing }), _) => cx.out.line(format_args!(
            "{} {name}; {missing} more have to agree",
            style::warn("counted")
        )),
        (Err(error), _) => {
            cx.out
                .error(&CliError::new(format!("{name}: {}", in_words(error))));
            Ok(())
        }
    }
}

/// A refusal with the word that is in the log for it.
fn in_words(error: &PostError) -> String {
    let word = error
        .code()
        .and_then(|code| serde_json::to_value(code).ok());
    let word = word.and_then(|word| word.as_str().map(|word| format!(" ({word})")));
    let said = match error.code() {
        Some(PostCode::Duplicate) => "somebody has decided on it already".to_owned(),
        Some(PostCode::AlreadyDenied) => "it was denied already".to_owned(),
        _ => CliError::of(error).to_string(),
    };
    format!("{said}{}", word.unwrap_or_default())
}

/// Says what happens next with the session that waits.
async fn next_step(cx: &Cx, store: &StoreHandle, session: SessionId) -> Result<(), CliError> {
    if cx.out.is_json() {
        return Ok(());
    }
    let root = family::root(store, session).await?;
    let row = store.sessions(SessionFilter::of(root)).await?.pop();
    let driven = row
        .and_then(|row| row.held)
        .is_some_and(|(_, until)| until > times::now());
    match driven {
        true => cx.out.note(format_args!(
            "session {} is running and goes on by itself",
            ids::short(root)
        )),
        false => {
            let next = style::note("next");
            cx.out.note(format_args!(
                "{next}: `toolgate run --resume {}` goes on",
                ids::short(root)
            ))
        }
    }
}
