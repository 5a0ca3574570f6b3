//! `toolgate sessions undo`: undoes file changes in a turn of that session, through the whole gate.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use toolgate::{
    Decision, Status,
    approval::FixedApprover,
    session::{CallResult, TurnRequest},
    stack::ToolRequest,
    store::StoreHandle,
    value::{CallId, SessionId},
};
use toolgate_tools::{ChangeSet, UndoChanges, Workspace};

use super::{SessionUndoArgs, show::fold_with_agents};
use crate::{
    CliError, CommandContext, Exit, GateArgs,
    commands::receipts::sign_receipts,
    env::{confirm::require_confirmation, ids, style},
    show::{
        render,
        screen::{CallState, CallView, SessionScreen},
    },
};

pub(super) async fn run_undo(
    args: &SessionUndoArgs,
    cx: &CommandContext,
) -> Result<Exit, CliError> {
    let store = cx.open_store().await?;
    let session = ids::find_session(&store, &args.id).await?;
    let own_cx = if cx.paths.is_dir_named {
        cx.clone()
    } else {
        cx.in_directory_of(&store, session).await?
    };
    let cx = &own_cx;
    let screen = fold_with_agents(&store, session, None).await?;
    let changes = find_changes(args, cx, &store, &screen).await?;
    if changes.is_empty() {
        cx.out.print_note(
            "there is nothing to undo: no file tool of this session changed anything here",
        )?;
        return Ok(Exit::Done);
    }
    for change in &changes {
        print_change(cx, &store, change, args.dry_run).await?;
    }
    if args.dry_run {
        return Ok(Exit::Done);
    }
    require_confirmation(
        cx,
        &format!("Undo {}?", changes_label(changes.len())),
        args.yes,
    )?;
    undo_each(args, cx, store, session, &changes).await
}

fn changes_label(count: usize) -> String {
    if count == 1 {
        "this change".to_owned()
    } else {
        format!("these {count} changes")
    }
}

/// Loads the changes to undo, newest first.
async fn find_changes(
    args: &SessionUndoArgs,
    cx: &CommandContext,
    store: &StoreHandle,
    screen: &SessionScreen,
) -> Result<Vec<ChangeSet>, CliError> {
    let undone = undone_calls(screen);
    let mut changes = Vec::new();
    let mut elsewhere = None;
    let mut calls: Vec<&CallView> = screen
        .calls()
        .iter()
        .filter(|call| may_be_undone(args, call))
        .collect();
    // Newest first: if two calls changed a file, the later change has to be undone before the
    // earlier.
    calls.sort_by_key(|call| {
        (
            call.settled_at.unwrap_or(call.requested_at),
            call.invocation.id,
        )
    });
    for call in calls.into_iter().rev() {
        let id = call.invocation.id;
        let is_undo = call.invocation.tool.as_str() == UndoChanges::NAME;
        // An undo is a change, too. Without `--call`, neither it nor the change it undid is undone
        // again.
        if args.call.is_none() && (is_undo || undone.contains(&id)) {
            continue;
        }
        let Some(change) = ChangeSet::load(store, id).await? else {
            continue;
        };
        if change.root == cx.paths.workspace.to_string_lossy() {
            changes.push(change)
        } else {
            elsewhere = Some(change.root)
        }
    }
    match elsewhere {
        Some(root) if changes.is_empty() => {
            Err(CliError::usage(format!("the session worked in {root}"))
                .with_hint(format!("add `-C {root}`")))
        }
        _ => Ok(changes),
    }
}

/// Returns true if a call matches `--call` and may have changed something.
fn may_be_undone(args: &SessionUndoArgs, call: &CallView) -> bool {
    let id = call.invocation.id.to_string();
    let named = args
        .call
        .as_deref()
        .is_none_or(|part| id.starts_with(part) || id.ends_with(part));
    let refused = matches!(call.state, CallState::Settled(status) if status.is_refusal());
    named && !refused
}

/// Returns the calls that were undone before.
fn undone_calls(screen: &SessionScreen) -> BTreeSet<CallId> {
    let undo = |call: &&CallView| {
        call.invocation.tool.as_str() == UndoChanges::NAME
            && call.state == CallState::Settled(Status::Ok)
    };
    let named = |call: &CallView| call.arguments.as_ref()?.get("call")?.as_str()?.parse().ok();
    screen
        .calls()
        .iter()
        .filter(undo)
        .filter_map(named)
        .collect()
}

async fn print_change(
    cx: &CommandContext,
    store: &StoreHandle,
    change: &ChangeSet,
    dry_run: bool,
) -> Result<(), CliError> {
    let files: Vec<&str> = change.files.iter().map(|file| file.path.as_str()).collect();
    if cx.out.is_json() {
        let said =
            json!({ "call": change.call, "tool": change.tool, "files": files, "state": "found" });
        return if dry_run {
            cx.out.print_json(&said)
        } else {
            Ok(())
        };
    }
    cx.out.print_line(format_args!(
        "{} {} did this:",
        style::bold(&change.tool),
        style::dim(ids::short_id(change.call))
    ))?;
    let diff = change.diff(store).await?;
    let rows = match render::output_width() {
        Some(width) => render::render_diff_rows(&diff, width),
        // A pipe gets the diff as it is, which `patch` understands.
        None => render::render_diff(&diff),
    };
    rows.iter().try_for_each(|line| cx.out.print_line(line))
}

/// Undoes the changes one by one, and stops at the first that cannot be undone.
async fn undo_each(
    args: &SessionUndoArgs,
    cx: &CommandContext,
    store: StoreHandle,
    session: SessionId,
    changes: &[ChangeSet],
) -> Result<Exit, CliError> {
    // The user has seen the changes and confirmed, which is the approval. Policy can still block
    // the call.
    let me = cx.current_user();
    let workspace = Workspace::open(&cx.paths.workspace)
        .map_err(|error| CliError::from_error(&error))?
        .with_undo_store(store.clone());
    let gate = GateArgs::default()
        .gate_builder_over(cx, store)?
        // The model's tool undoes changes of its own session only; agents of this session have
        // their own.
        .replace_tool(UndoChanges::for_any_session(workspace))
        .approver(FixedApprover::new(Decision::approve(
            cx.current_approver(None),
        )))
        .open()
        .await?;
    let view = gate.view()?;
    let dispatcher = gate.dispatcher(Some(session)).await?;
    for change in changes {
        let arguments: Value = json!({ "call": change.call, "force": args.force });
        let request = ToolRequest::from_json("", UndoChanges::NAME, arguments);
        let turn = TurnRequest::new(view.clone(), vec![request]).principal(me.clone());
        let report = dispatcher.open_turn(turn).await?.run().await?;
        let signed = sign_receipts(cx, &gate.evidence(), Exit::Done).await?;
        let result = report
            .results
            .first()
            .ok_or_else(|| CliError::new("the report of the turn lacks the call"))?;
        let exit = match print_result(cx, change, result)? {
            Exit::Done => signed,
            exit => exit,
        };
        if exit != Exit::Done {
            return Ok(exit);
        }
    }
    Ok(Exit::Done)
}

fn print_result(
    cx: &CommandContext,
    change: &ChangeSet,
    result: &CallResult,
) -> Result<Exit, CliError> {
    let exit = result.status().map_or(Exit::Suspended, Exit::from);
    let text = result
        .outcome
        .as_ref()
        .map(|settled| settled.model_text().into_owned())
        .unwrap_or_default();
    if cx.out.is_json() {
        let status = result.status().map_or("suspended", Status::as_str);
        cx.out.print_json(
            &json!({ "call": change.call, "undone_by": result.id, "status": status, "text": text }),
        )?;
        return Ok(exit);
    }
    let name = format!("{} {}", change.tool, ids::short_id(change.call));
    match exit {
        Exit::Done => cx
            .out
            .print_line(format_args!("{} {name}", style::good("undone")))?,
        _ => {
            let problem = CliError::new(format!(
                "{name} could not be undone: {}",
                style::escape_controls(&text)
            ));
            cx.out.print_error(&problem.with_hint(
                "--force restores files even if they were changed since; --call names one change",
            ));
        }
    }
    Ok(exit)
}
