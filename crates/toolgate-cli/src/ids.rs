//! Sessions and approvals by a part of their id, and the sessions of a workspace.
//!
//! Ids are UUIDs whose first half is the time, so people are shown the last eight characters, and any part at the
//! beginning or the end that names one thing only is understood.

use std::path::{Path, PathBuf};

use serde_json::json;
use toolgate::{
    ApprovalFilter, ApprovalId, ApprovalRow, Digest, Hidden, Json, Record, RecordKey,
    SessionFilter, SessionId, StoreHandle, Timestamp,
};

use crate::CliError;

/// How many characters of an id people are shown.
const SHORT: usize = 8;
/// The shortest part of an id that is looked for.
const LEAST: usize = 4;
/// How many rows are read at once.
const PAGE: usize = 500;
/// Among how many sessions of a workspace the last one is looked for.
const RECENT: usize = 50;

/// What people are shown of an id: its last characters.
pub fn short(id: impl ToString) -> String {
    let text = id.to_string();
    let start = text.len().saturating_sub(SHORT);
    text.get(start..).unwrap_or(&text).to_owned()
}

/// The session that `text` names: a whole id, or a part at its beginning or end.
pub async fn find_session(store: &StoreHandle, text: &str) -> Result<SessionId, CliError> {
    let unknown = || {
        CliError::usage(format!("there is no session {text}"))
            .hint("`toolgate sessions list` shows them")
    };
    if let Ok(id) = text.trim().parse::<SessionId>() {
        return if store.revision(id).await? > 0 {
            Ok(id)
        } else {
            Err(unknown())
        };
    }
    let part = Part::read(text).ok_or_else(unknown)?;
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = store
            .sessions(SessionFilter {
                after,
                hidden: Hidden::Included,
                limit: PAGE,
                ..SessionFilter::default()
            })
            .await?;
        found.extend(
            page.iter()
                .map(|row| row.session)
                .filter(|id| part.fits(&id.to_string())),
        );
        match page.last() {
            Some(last) if page.len() == PAGE => after = Some(last.session),
            _ => break,
        }
    }
    only(text, "session", found).and_then(|found| found.ok_or_else(unknown))
}

/// The approval that `text` names: `approval_…`, the id of its call, or a part of that at its beginning or end.
pub async fn find_approval(store: &StoreHandle, text: &str) -> Result<ApprovalRow, CliError> {
    let unknown = || {
        CliError::usage(format!("there is no approval {text}"))
            .hint("`toolgate approvals list --all` shows them")
    };
    let name = text.trim().strip_prefix("approval_").unwrap_or(text.trim());
    if let Ok(call) = name.parse() {
        return store
            .approvals(ApprovalFilter::of(call))
            .await?
            .pop()
            .ok_or_else(unknown);
    }
    let part = Part::read(name).ok_or_else(unknown)?;
    let (mut found, mut after) = (Vec::new(), None::<ApprovalId>);
    loop {
        let filter = ApprovalFilter {
            pending: false,
            after,
            limit: PAGE,
            ..ApprovalFilter::default()
        };
        let page = store.approvals(filter).await?;
        let full = page.len() == PAGE;
        after = page.last().map(|row| row.request.approval_id);
        found.extend(
            page.into_iter()
                .filter(|row| part.fits(&row.request.approval_id.call().to_string())),
        );
        if !full {
            break;
        }
    }
    let ids = found.iter().map(|row| row.request.approval_id).collect();
    let id = only(text, "approval", ids)?.ok_or_else(unknown)?;
    found
        .into_iter()
        .find(|row| row.request.approval_id == id)
        .ok_or_else(unknown)
}

/// Writes down that a session works in `workspace`.
pub async fn remember_workspace(
    store: &StoreHandle,
    workspace: &Path,
    session: SessionId,
) -> Result<(), CliError> {
    let key = RecordKey::Other(format!("{}{session}", prefix(workspace)).into());
    let value = Json::new(json!({ "workspace": workspace.display().to_string() }))
        .unwrap_or_else(|_| Json::null());
    store.once(key, Record::Json(value.clone())).await?;
    store.once(place(session), Record::Json(value)).await?;
    Ok(())
}

/// The directory that a session works in, if that was written down.
pub async fn workspace_of(
    store: &StoreHandle,
    session: SessionId,
) -> Result<Option<PathBuf>, CliError> {
    Ok(match store.record(&place(session)).await? {
        Some(Record::Json(value)) => value
            .get("workspace")
            .and_then(|path| path.as_str())
            .map(PathBuf::from),
        Some(_) | None => None,
    })
}

/// The session that `text` names, if it works in `workspace`: what a model has read of one directory, it must not write
/// to another one.
pub async fn find_session_of(
    store: &StoreHandle,
    text: &str,
    workspace: &Path,
) -> Result<SessionId, CliError> {
    let session = find_session(store, text).await?;
    match workspace_of(store, session).await? {
        Some(there) if there != workspace => {
            let problem = format!("session {} works in {}", short(session), there.display());
            Err(CliError::usage(problem).hint(format!("say -C {}", there.display())))
        }
        Some(_) | None => Ok(session),
    }
}

fn place(session: SessionId) -> RecordKey {
    RecordKey::Other(format!("workspace-of/{session}").into())
}

/// The one of `ids` that `text` is a part of, at its beginning or end; nothing if there is none.
pub fn one_of<Id: Copy + PartialEq + ToString>(
    text: &str,
    what: &str,
    ids: impl IntoIterator<Item = Id>,
) -> Result<Option<Id>, CliError> {
    let Some(part) = Part::read(text) else {
        return Ok(None);
    };
    let mut found: Vec<Id> = Vec::new();
    for id in ids.into_iter().filter(|id| part.fits(&id.to_string())) {
        if !found.contains(&id) {
            found.push(id);
        }
    }
    only(text, what, found)
}

/// The session of `workspace` in which something happened last, unless it is hidden.
pub async fn last_session(
    store: &StoreHandle,
    workspace: &Path,
) -> Result<Option<SessionId>, CliError> {
    let mut last: Option<(Timestamp, SessionId)> = None;
    for session in sessions_of(store, workspace)
        .await?
        .into_iter()
        .rev()
        .take(RECENT)
    {
        let row = store
            .sessions(SessionFilter::of(session))
            .await?
            .pop()
            .filter(|row| row.hidden_at.is_none());
        if let Some(row) = row
            && last.is_none_or(|(at, _)| row.updated_at > at)
        {
            last = Some((row.updated_at, session));
        }
    }
    Ok(last.map(|(_, session)| session))
}

/// The sessions of `workspace`, oldest first.
pub async fn sessions_of(
    store: &StoreHandle,
    workspace: &Path,
) -> Result<Vec<SessionId>, CliError> {
    let prefix = prefix(workspace);
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = store.list(&prefix, after.as_deref(), PAGE).await?;
        found.extend(
            page.iter()
                .filter_map(|(key, _)| key.strip_prefix(&prefix)?.parse::<SessionId>().ok()),
        );
        match page.last() {
            Some((last, _)) if page.len() == PAGE => after = Some(last.to_string()),
            _ => return Ok(found),
        }
    }
}

fn prefix(workspace: &Path) -> String {
    // A path may hold anything; its digest fits into a key.
    format!(
        "workspace/{}/",
        Digest::of_bytes(workspace.as_os_str().as_encoded_bytes())
    )
}

/// A part of an id.
struct Part(String);

impl Part {
    fn read(text: &str) -> Option<Self> {
        let part = text.trim().to_ascii_lowercase();
        let readable =
            part.len() >= LEAST && part.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
        readable.then_some(Self(part))
    }

    fn fits(&self, id: &str) -> bool {
        id.starts_with(&self.0) || id.ends_with(&self.0)
    }
}

fn only<Id: Copy + ToString>(
    text: &str,
    what: &str,
    found: Vec<Id>,
) -> Result<Option<Id>, CliError> {
    match *found {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        [..] => {
            let ids: Vec<String> = found.iter().take(5).map(ToString::to_string).collect();
            let more = if found.len() > ids.len() { ", …" } else { "" };
            Err(
                CliError::usage(format!("{text} names {} {what}s", found.len()))
                    .hint(format!("say more of it: {}{more}", ids.join(", "))),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate::{MemoryStore, Registry, Session, models::Scripted};

    async fn talk(store: &StoreHandle) -> SessionId {
        let model = Scripted::from_toml("[[reply]]\ntext = 'hello'").expect("a scenario");
        let kept = store.clone();
        let builder = Session::builder(model, Registry::new())
            .dispatcher(|builder| builder.store_handle(kept));
        let session = builder.build().await.expect("builds");
        session.run("hello").await.expect("runs");
        session.id()
    }

    #[tokio::test]
    async fn a_session_is_found_by_either_end_of_its_id_if_no_other_has_it() {
        let store = StoreHandle::new(MemoryStore::new());
        let (one, two) = (talk(&store).await, talk(&store).await);
        assert_eq!(
            find_session(&store, &one.to_string()).await.expect("found"),
            one
        );
        assert_eq!(find_session(&store, &short(two)).await.expect("found"), two);
        assert_eq!(
            find_session(&store, &short(two).to_uppercase())
                .await
                .expect("found"),
            two
        );
        let both = find_session(&store, &one.to_string()[..6])
            .await
            .expect_err("both begin like that");
        assert!(both.to_string().contains("names 2 sessions"), "{both}");
        assert!(
            both.next_step()
                .is_some_and(|hint| hint.contains(&two.to_string()))
        );
        for wrong in [
            "",
            "abc",
            "nonsense",
            "00000000-0000-0000-0000-000000000001",
            "%",
        ] {
            let error = find_session(&store, wrong)
                .await
                .expect_err("there is none");
            assert_eq!(error.code(), crate::Exit::Usage, "{wrong}");
        }
    }

    #[tokio::test]
    async fn the_last_session_of_a_workspace_is_the_one_that_was_used_last() {
        let store = StoreHandle::new(MemoryStore::new());
        let (here, there) = (Path::new("/here"), Path::new("/there"));
        assert_eq!(last_session(&store, here).await.expect("reads"), None);
        let one = talk(&store).await;
        remember_workspace(&store, here, one).await.expect("kept");
        let two = talk(&store).await;
        remember_workspace(&store, there, two).await.expect("kept");
        assert_eq!(
            find_session_of(&store, &short(two), there)
                .await
                .expect("it works there"),
            two
        );
        let elsewhere = find_session_of(&store, &short(two), here)
            .await
            .expect_err("not here");
        assert!(
            elsewhere
                .next_step()
                .is_some_and(|hint| hint.contains("-C")),
            "{elsewhere}"
        );
        assert_eq!(last_session(&store, here).await.expect("reads"), Some(one));
        assert_eq!(sessions_of(&store, there).await.expect("reads"), [two]);
        store
            .hide(one, Some(Timestamp::EPOCH))
            .await
            .expect("hides");
        assert_eq!(last_session(&store, here).await.expect("reads"), None);
        assert_eq!(
            find_session(&store, &short(one))
                .await
                .expect("is found by whoever names it"),
            one
        );
    }
}
