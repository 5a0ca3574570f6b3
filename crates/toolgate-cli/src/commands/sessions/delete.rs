//! `toolgate sessions delete` and `restore`: hides sessions, restores them, erases them
//! permanently.

use serde_json::json;
use toolgate::{
    Registry, Stack,
    memory::{MemoryFilter, MemoryId},
    session::Dispatcher,
    store::{ErasedSessions, Lease, StoreError, StoreHandle},
    value::SessionId,
};

use super::{SessionDeleteArgs, SessionRestoreArgs};
use crate::{
    CliError, CommandContext, Exit,
    env::{confirm::require_confirmation, ids, style, times},
};

pub(super) async fn delete_sessions(
    args: &SessionDeleteArgs,
    cx: &CommandContext,
) -> Result<Exit, CliError> {
    let store = cx.open_store().await?;
    // All of them before the first is erased: a misspelt id must not be noticed halfway.
    let sessions = find_sessions(&store, &args.ids).await?;
    if !args.erase {
        for session in sessions {
            store
                .hide_session(session, Some(times::current_time()))
                .await?;
            print_state(cx, session, "hidden")?;
        }
        let next = style::note("next");
        cx.out.print_note(format_args!(
            "{next}: `toolgate sessions restore` shows it again; nothing is lost"
        ))?;
        return Ok(Exit::Done);
    }
    if !args.yes && !cx.out.is_json() {
        cx.out.print_line(
            "Events, messages, results, approvals and undo data are erased permanently, with those of its agents.\n\
             Receipts stay, because their chain has to stay intact; so do budgets, and the bytes of long outputs.",
        )?;
        cx.out.print_line(if args.memories {
            "The memories that came from it are deleted, too."
        } else {
            "The memories that came from it stay; --memories deletes them, too."
        })?;
    }
    let count = if sessions.len() == 1 {
        "this session".to_owned()
    } else {
        format!("{} sessions", sessions.len())
    };
    require_confirmation(cx, &format!("Erase {count} permanently?"), args.yes)?;
    for session in sessions {
        let erased = erase_session(&store, session).await?;
        let memories = forget_memories(&store, session, args.memories).await?;
        if cx.out.is_json() {
            cx.out.print_json(&json!({
                "session": session,
                "state": "erased",
                "erased": erased.sessions,
                "memories": memories,
            }))?
        } else {
            cx.out.print_line(format_args!(
                "{} {}",
                style::bad("erased"),
                erased_label(session, &erased)
            ))?
        }
    }
    Ok(Exit::Done)
}

/// Deletes the memories that came from a session, if that is wanted, and returns their ids.
async fn forget_memories(
    store: &StoreHandle,
    session: SessionId,
    wanted: bool,
) -> Result<Vec<MemoryId>, CliError> {
    if !wanted {
        return Ok(Vec::new());
    }
    let filter = MemoryFilter::of_session(session);
    Ok(store.forget_memories(filter).await?.ids)
}

pub(super) async fn restore_sessions(
    args: &SessionRestoreArgs,
    cx: &CommandContext,
) -> Result<Exit, CliError> {
    let store = cx.open_store().await?;
    for session in find_sessions(&store, &args.ids).await? {
        store.hide_session(session, None).await?;
        print_state(cx, session, "restored")?;
    }
    Ok(Exit::Done)
}

async fn find_sessions(store: &StoreHandle, texts: &[String]) -> Result<Vec<SessionId>, CliError> {
    let mut found = Vec::new();
    for text in texts {
        let session = ids::find_session(store, text).await?;
        if !found.contains(&session) {
            found.push(session);
        }
    }
    Ok(found)
}

fn print_state(cx: &CommandContext, session: SessionId, state: &str) -> Result<(), CliError> {
    if cx.out.is_json() {
        cx.out
            .print_json(&json!({ "session": session, "state": state }))
    } else {
        cx.out
            .print_line(format_args!("{} {session}", style::good(state)))
    }
}

fn erased_label(session: SessionId, erased: &ErasedSessions) -> String {
    match erased.sessions.len() {
        0 | 1 => session.to_string(),
        2 => format!("{session} and the session of an agent"),
        more => format!("{session} and {} sessions of agents", more - 1),
    }
}

/// Erases a session. The lease of a dead process of this machine does not protect it.
async fn erase_session(
    store: &StoreHandle,
    session: SessionId,
) -> Result<ErasedSessions, CliError> {
    loop {
        let (held, fence) = match store.erase_session(session, times::current_time()).await {
            Err(StoreError::LeaseHeld { session, fence, .. }) => (session, fence),
            answer => return Ok(answer?),
        };
        let stack = Stack::over(Registry::new()).build()?;
        let taken = Dispatcher::builder(stack)
            .store(store.clone())
            .session(held)
            .build()
            .await;
        drop(taken.map_err(|error| {
            CliError::from(error)
                .with_hint("wait until it is done, or stop its driver; then erase it")
        })?);
        // Building the dispatcher took over the lease, which raised the fence by one. Release
        // exactly that lease: dropping the dispatcher does not wait for its release.
        store
            .release_lease(&Lease {
                session: held,
                fence: fence + 1,
                revision: 0,
            })
            .await?;
    }
}
