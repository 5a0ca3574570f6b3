//! Takes back what a session changed in files: a turn in that session, through the whole gate.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use toolgate::{
    CallId, CallResult, Decision, Dispatcher, SessionId, Status, StoreHandle, ToolRequest,
    TurnRequest, View,
};
use toolgate_tools::{ChangeSet, UndoChanges, Workspace};

use super::{UndoArgs, show::with_agents};
use crate::{
    CliError, Cx, Exit, Gate, GateArgs,
    confirm::confirm,
    ids, render,
    screen::{CallState, CallView, Screen},
    style,
};

pub(super) async fn run(args: &UndoArgs, cx: &Cx) -> Result<Exit, CliError> {
    let store = cx.store().await?;
    let session = ids::find_session(&store, &args.id).await?;
    let screen = with_agents(&store, session).await?;
    let changes = wanted(args, cx, &store, &screen).await?;
    if changes.is_empty() {
        cx.out.note(
            "there is nothing to take back: no file tool of this session changed anything here",
        )?;
        return Ok(Exit::Done);
    }
    for change in &changes {
        show(cx, &store, change, args.dry_run).await?;
    }
    if args.dry_run {
        return Ok(Exit::Done);
    }
    confirm(
        cx,
        &format!("Take back {}?", counted(changes.len())),
        args.yes,
    )?;
    take_back(args, cx, store, session, &changes).await
}

fn counted(count: usize) -> String {
    if count == 1 {
        "this change".to_owned()
    } else {
        format!("these {count} changes")
    }
}

/// The changes to take back, newest first.
async fn wanted(
    args: &UndoArgs,
    cx: &Cx,
    store: &StoreHandle,
    screen: &Screen,
) -> Result<Vec<ChangeSet>, CliError> {
    let undone = undone(screen);
    let (mut changes, mut elsewhere) = (Vec::new(), None);
    let mut calls: Vec<&CallView> = screen
        .calls()
        .iter()
        .filter(|call| is_meant(args, call))
        .collect();
    calls.sort_by_key(|call| {
        (
            call.settled_at.unwrap_or(call.requested_at),
            call.invocation.id,
        )
    });
    for call in calls.into_iter().rev() {
        let id = call.invocation.id;
        let is_undo = call.invocation.tool.as_str() == UndoChanges::NAME;
        if args.call.is_none() && (is_undo || undone.contains(&id)) {
            continue;
        }
        let Some(change) = ChangeSet::of(store, id).await? else {
            continue;
        };
        match change.root == cx.paths.workspace.to_string_lossy() {
            true => changes.push(change),
            false => elsewhere = Some(change.root),
        }
    }
    match elsewhere {
        Some(root) if changes.is_empty() => {
            Err(CliError::usage(format!("the session worked in {root}"))
                .hint(format!("say `-C {root}`")))
        }
        _ => Ok(changes),
    }
}

/// Whether a call is meant, and may have changed something.
fn is_meant(args: &UndoArgs, call: &CallView) -> bool {
    let id = call.invocation.id.to_string();
    let named = args
        .call
        .as_deref()
        .is_none_or(|part| id.starts_with(part) || id.ends_with(part));
    let refused = matches!(call.state, CallState::Settled(status) if status.is_refusal());
    named && !refused
}

/// The calls that were taken back before.
fn undone(screen: &Screen) -> BTreeSet<CallId> {
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

async fn show(
    cx: &Cx,
    store: &StoreHandle,
    change: &ChangeSet,
    dry_run: bool,
) -> Result<(), CliError> {
    let files: Vec<&str> = change.files.iter().map(|file| file.path.as_str()).collect();
    if cx.out.is_json() {
        let said =
            json!({ "call": change.call, "tool": change.tool, "files": files, "state": "found" });
        return if dry_run { cx.out.json(&said) } else { Ok(()) };
    }
    cx.out.line(format_args!(
        "{} {} did this:",
        style::bold(&change.tool),
        style::dim(ids::short(change.call))
    ))?;
    render::diff(&change.diff(store).await?)
        .iter()
        .try_for_each(|line| cx.out.line(line))
}

/// Takes the changes back one by one, and stops at the first that cannot be.
async fn take_back(
    args: &UndoArgs,
    cx: &Cx,
    store: StoreHandle,
    session: SessionId,
    changes: &[ChangeSet],
) -> Result<Exit, CliError> {
    // Whoever sits at the keyboard has seen what will happen and said yes; policy still has its say.
    let mut gate = Gate::over(cx, cx.config()?, store.clone(), &GateArgs::default())?;
    gate.answer = Some(Decision::approve(gate.me.clone()));
    let workspace = Workspace::open(&cx.paths.workspace)
        .map_err(|error| CliError::of(&error))?
        .keeping(store);
    gate.registry.remove(UndoChanges::NAME);
    gate.registry
        .register(UndoChanges::of_any_session(workspace))?;
    let view = View::under(&gate.registry, &gate.stack)?;
    let builder = Dispatcher::builder(gate.stack.clone());
    let dispatcher = gate.dispatcher(Some(session))(builder).build().await?;
    for change in changes {
        let arguments: Value = json!({ "call": change.call, "force": args.force });
        let request = ToolRequest::json("", UndoChanges::NAME, arguments);
        let turn = TurnRequest::new(view.clone(), vec![request]).principal(gate.me.clone());
        let report = dispatcher.open(turn).await?.run().await?;
        let result = report
            .results
            .first()
            .ok_or_else(|| CliError::new("the turn came back without the call"))?;
        let exit = tell(cx, change, result)?;
        if exit != Exit::Done {
            return Ok(exit);
        }
    }
    Ok(Exit::Done)
}

fn tell(cx: &Cx, change: &ChangeSet, result: &CallResult) -> Result<Exit, CliError> {
    let exit = result.status().map_or(Exit::Suspended, Exit::from);
    let text = result
        .outcome
        .as_ref()
        .map(|settled| settled.model_text().into_owned())
        .unwrap_or_default();
    if cx.out.is_json() {
        let status = result.status().map_or("suspended", Status::as_str);
        cx.out.json(
            &json!({ "call": change.call, "undone_by": result.id, "status": status, "text": text }),
        )?;
        return Ok(exit);
    }
    let name = format!("{} {}", change.tool, ids::short(change.call));
    match exit {
        Exit::Done => cx
            .out
            .line(format_args!("{} {name}", style::good("took back")))?,
        _ => {
            let problem = CliError::new(format!(
                "{name} could not be taken back: {}",
                style::plain(&text)
            ));
            cx.out.error(
                &problem.hint("--force puts files back whatever they are; --call names one change"),
            );
        }
    }
    Ok(exit)
}
