//! Hides sessions, brings them back, and erases them for good.

use serde_json::json;
use toolgate::{Dispatcher, Erased, Lease, Registry, SessionId, Stack, StoreError, StoreHandle};

use super::{DeleteArgs, RestoreArgs};
use crate::{CliError, Cx, Exit, confirm::confirm, ids, style, times};

pub(super) async fn delete(args: &DeleteArgs, cx: &Cx) -> Result<Exit, CliError> {
    let store = cx.store().await?;
    let sessions = found(&store, &args.ids).await?;
    if !args.erase {
        for session in sessions {
            store.hide(session, Some(times::now())).await?;
            tell(cx, session, "hidden")?;
        }
        let next = style::note("next");
        cx.out.note(format_args!(
            "{next}: `toolgate sessions restore` brings it back; nothing of it is lost"
        ))?;
        return Ok(Exit::Done);
    }
    if !args.yes && !cx.out.is_json() {
        cx.out.line(
            "Events, messages, results, approvals and what could be undone go for good, with those of its agents.\n\
             Receipts stay, because their chain has to stay whole; so do budgets, and the bytes of long outputs.",
        )?;
    }
    let count = if sessions.len() == 1 {
        "this session".to_owned()
    } else {
        format!("{} sessions", sessions.len())
    };
    confirm(cx, &format!("Erase {count} for good?"), args.yes)?;
    for session in sessions {
        let erased = erase(&store, session).await?;
        match cx.out.is_json() {
            true => cx.out.json(
                &json!({ "session": session, "state": "erased", "erased": erased.sessions }),
            )?,
            false => cx.out.line(format_args!(
                "{} {}",
                style::bad("erased"),
                counted(session, &erased)
            ))?,
        }
    }
    Ok(Exit::Done)
}

pub(super) async fn restore(args: &RestoreArgs, cx: &Cx) -> Result<Exit, CliError> {
    let store = cx.store().await?;
    for session in found(&store, &args.ids).await? {
        store.hide(session, None).await?;
        tell(cx, session, "restored")?;
    }
    Ok(Exit::Done)
}

async fn found(store: &StoreHandle, texts: &[String]) -> Result<Vec<SessionId>, CliError> {
    let mut found = Vec::new();
    for text in texts {
        let session = ids::find_session(store, text).await?;
        if !found.contains(&session) {
            found.push(session);
        }
    }
    Ok(found)
}

fn tell(cx: &Cx, session: SessionId, state: &str) -> Result<(), CliError> {
    match cx.out.is_json() {
        true => cx.out.json(&json!({ "session": session, "state": state })),
        false => cx
            .out
            .line(format_args!("{} {session}", style::good(state))),
    }
}

fn counted(session: SessionId, erased: &Erased) -> String {
    match erased.sessions.len() {
        0 | 1 => session.to_string(),
        2 => format!("{session} and the session of an agent"),
        more => format!("{session} and {} sessions of agents", more - 1),
    }
}

/// Erases a session. The lease of a process of this machine that is gone does not keep it.
async fn erase(store: &StoreHandle, session: SessionId) -> Result<Erased, CliError> {
    loop {
        let (held, fence) = match store.erase(session, times::now()).await {
            Err(StoreError::Held { session, fence, .. }) => (session, fence),
            answer => return Ok(answer?),
        };
        let stack = Stack::over(Registry::new()).build()?;
        let taken = Dispatcher::builder(stack)
            .store_handle(store.clone())
            .session(held)
            .build()
            .await;
        drop(taken.map_err(|error| {
            CliError::from(error)
                .hint("wait until it is done, or stop the process that drives it; then erase it")
        })?);
        // The one that was just taken is the next; given back here, it is certain that it is.
        store
            .release(&Lease {
                session: held,
                fence: fence + 1,
                revision: 0,
            })
            .await?;
    }
}
