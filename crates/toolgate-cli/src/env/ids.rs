//! Sessions and approvals by a part of their id, and the sessions of a workspace.
//!
//! Ids are UUIDs whose first half is the time, so people see the last eight characters. Any part at
//! the beginning or the end that matches exactly one id is accepted.

use std::path::{Path, PathBuf};

use toolgate::{
    store::{
        ApprovalFilter, ApprovalRow, HiddenSessions, SessionFilter, SessionOrder, SessionRow,
        StoreHandle,
    },
    value::{ApprovalId, SessionId},
};

use crate::CliError;

/// The number of characters of a shortened id.
const SHORT_LENGTH: usize = 8;
/// The minimum length of a part of an id.
const MIN_LENGTH: usize = 4;
/// The number of rows per query.
const PAGE: usize = 500;

/// Shortens an id to its last characters.
pub fn short_id(id: impl ToString) -> String {
    let text = id.to_string();
    // The end: ids begin with the time, so those of the same minute begin alike.
    let start = text.len().saturating_sub(SHORT_LENGTH);
    text.get(start..).unwrap_or(&text).to_owned()
}

/// Finds the session that `text` names: a whole id, or a part at its beginning or end.
///
/// # Errors
///
/// Fails if no session or more than one matches, or if the store cannot answer.
pub async fn find_session(store: &StoreHandle, text: &str) -> Result<SessionId, CliError> {
    let unknown = || {
        CliError::usage(format!("there is no session {text}"))
            .with_hint("`toolgate sessions list` shows them")
    };
    if let Ok(id) = text.trim().parse::<SessionId>() {
        return if store.revision(id).await? > 0 {
            Ok(id)
        } else {
            Err(unknown())
        };
    }
    let part = IdPart::parse(text).ok_or_else(unknown)?;
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let page = store
            .sessions(SessionFilter {
                after,
                // A hidden session can still be named, for example to restore it.
                hidden: HiddenSessions::Included,
                limit: PAGE,
                ..SessionFilter::default()
            })
            .await?;
        found.extend(
            page.iter()
                .map(|row| row.session)
                .filter(|id| part.matches(&id.to_string())),
        );
        match page.last() {
            Some(last) if page.len() == PAGE => after = Some(last.session),
            _ => break,
        }
    }
    single_match(text, "session", found).and_then(|found| found.ok_or_else(unknown))
}

/// Finds the approval that `text` names: `approval_…`, the id of its call, or a part of that at its
/// beginning or end.
///
/// # Errors
///
/// Fails if no approval or more than one matches, or if the store cannot answer.
pub async fn find_approval(store: &StoreHandle, text: &str) -> Result<ApprovalRow, CliError> {
    let unknown = || {
        CliError::usage(format!("there is no approval {text}"))
            .with_hint("`toolgate approvals list --all` shows them")
    };
    let name = text.trim().strip_prefix("approval_").unwrap_or(text.trim());
    if let Ok(call) = name.parse() {
        let mut rows = store.approvals(ApprovalFilter::for_call(call)).await?;
        // The row of a call may hold the request of another one, if it was changed by hand.
        rows.retain(|row| row.request.approval_id.call_id() == call);
        return rows.pop().ok_or_else(unknown);
    }
    let part = IdPart::parse(name).ok_or_else(unknown)?;
    let mut found = Vec::new();
    let mut after = None::<ApprovalId>;
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
                .filter(|row| part.matches(&row.request.approval_id.call_id().to_string())),
        );
        if !full {
            break;
        }
    }
    let ids = found.iter().map(|row| row.request.approval_id).collect();
    let id = single_match(text, "approval", ids)?.ok_or_else(unknown)?;
    found
        .into_iter()
        .find(|row| row.request.approval_id == id)
        .ok_or_else(unknown)
}

/// Returns the directory that a session works in, if it was stored.
///
/// # Errors
///
/// Fails if the store cannot answer.
pub async fn workspace_of(
    store: &StoreHandle,
    session: SessionId,
) -> Result<Option<PathBuf>, CliError> {
    let rows = store.sessions(SessionFilter::for_session(session)).await?;
    let directory = rows.into_iter().find_map(|row| row.directory);
    Ok(directory.map(|directory| PathBuf::from(&*directory)))
}

/// Returns the one of `ids` that begins or ends with `text`; `None` if no id does.
pub fn find_id<Id: Copy + PartialEq + ToString>(
    text: &str,
    what: &str,
    ids: impl IntoIterator<Item = Id>,
) -> Result<Option<Id>, CliError> {
    let Some(part) = IdPart::parse(text) else {
        return Ok(None);
    };
    let mut found: Vec<Id> = Vec::new();
    for id in ids.into_iter().filter(|id| part.matches(&id.to_string())) {
        if !found.contains(&id) {
            found.push(id);
        }
    }
    single_match(text, what, found)
}

/// Returns the session of `workspace` that was used last; hidden ones are skipped, and so are single
/// calls, the sessions of agents, and imported ones.
///
/// # Errors
///
/// Fails if the store cannot answer.
pub async fn last_session(
    store: &StoreHandle,
    workspace: &Path,
) -> Result<Option<SessionId>, CliError> {
    let filter = SessionFilter {
        directory: Some(workspace.display().to_string().into()),
        order: SessionOrder::LastUse,
        limit: PAGE,
        ..SessionFilter::default()
    };
    let rows = store.sessions(filter).await?;
    let is_resumable = |row: &&SessionRow| {
        row.last_run.is_some() && row.parent.is_none() && row.imported.is_none()
    };
    Ok(rows.iter().find(is_resumable).map(|row| row.session))
}

/// A part of an id.
struct IdPart(String);

impl IdPart {
    fn parse(text: &str) -> Option<Self> {
        let part = text.trim().to_ascii_lowercase();
        let readable =
            part.len() >= MIN_LENGTH && part.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
        readable.then_some(Self(part))
    }

    fn matches(&self, id: &str) -> bool {
        id.starts_with(&self.0) || id.ends_with(&self.0)
    }
}

fn single_match<Id: Copy + ToString>(
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
                    .with_hint(format!("give a longer part: {}{more}", ids.join(", "))),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use toolgate::{Registry, Session, model::ScriptedModel, store::MemoryStore, value::Timestamp};
    use toolgate_testkit::TestClock;

    async fn run_session(
        store: &StoreHandle,
        directory: &'static str,
        clock: TestClock,
    ) -> SessionId {
        let model = ScriptedModel::from_toml("[[reply]]\ntext = 'hello'").expect("a scenario");
        let kept = store.clone();
        let builder = Session::ungated(model, Registry::new()).dispatcher(|builder| {
            builder
                .store(kept)
                .directory(Path::new(directory))
                .clock(clock)
        });
        let session = builder.build().await.expect("builds");
        session.run("hello").await.expect("runs");
        session.id()
    }

    #[tokio::test]
    async fn a_session_is_found_by_a_unique_beginning_or_end_of_its_id() {
        let store = StoreHandle::new(MemoryStore::new());
        let here = "/here";
        let one = run_session(&store, here, TestClock::new()).await;
        let two = run_session(&store, here, TestClock::new()).await;
        assert_eq!(
            find_session(&store, &one.to_string()).await.expect("found"),
            one
        );
        assert_eq!(
            find_session(&store, &short_id(two)).await.expect("found"),
            two
        );
        assert_eq!(
            find_session(&store, &short_id(two).to_uppercase())
                .await
                .expect("found"),
            two
        );
        let both = find_session(&store, &one.to_string()[..6])
            .await
            .expect_err("both ids begin with it");
        assert!(both.to_string().contains("names 2 sessions"), "{both}");
        assert!(
            both.hint_text()
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
            assert_eq!(error.exit_status(), crate::Exit::Usage, "{wrong}");
        }
    }

    #[tokio::test]
    async fn the_last_session_of_a_workspace_is_the_one_that_was_used_last() {
        let store = StoreHandle::new(MemoryStore::new());
        let here = Path::new("/here");
        assert_eq!(last_session(&store, here).await.expect("reads"), None);
        let clock = TestClock::new();
        clock.advance(Duration::from_secs(3_600));
        let old = run_session(&store, "/here", clock).await;
        // The clock was set back by an hour.
        let one = run_session(&store, "/here", TestClock::new()).await;
        run_session(&store, "/there", TestClock::new()).await;
        assert_eq!(last_session(&store, here).await.expect("reads"), Some(one));
        store
            .hide_session(one, Some(Timestamp::EPOCH))
            .await
            .expect("hides");
        assert_eq!(last_session(&store, here).await.expect("reads"), Some(old));
        assert_eq!(
            find_session(&store, &short_id(one))
                .await
                .expect("a hidden session is found by its id"),
            one
        );
    }
}
