//! Relates sessions to each other: an agent's session has the id of the call that started it.

use toolgate::{
    store::{RecordKey, SessionFilter, StoreHandle, StoreRecord, TurnFilter},
    value::{CallId, SessionId},
};

use crate::CliError;

/// The page size when listing sessions.
const PAGE_SIZE: usize = 200;
/// The most levels of delegation that [`root_session`] climbs. A damaged store must not loop it forever.
const MAX_DEPTH: usize = 32;

/// Checks whether a session belongs to an agent: a call with its id ran outside the stack.
pub(crate) async fn is_agent_session(
    store: &StoreHandle,
    session: SessionId,
) -> Result<bool, CliError> {
    let call = CallId::new(session.uuid());
    // The runtime stores the arguments of a call that runs outside the stack under this key. The
    // outcome record is there once the call has settled.
    let outside = RecordKey::Layer(call, "outside/1".into());
    Ok(store.load_record(&outside).await?.is_some()
        || store
            .load_record(&RecordKey::Outcome(call))
            .await?
            .is_some())
}

/// Returns the session at the root of the delegation: the one that can be resumed.
pub(crate) async fn root_session(
    store: &StoreHandle,
    session: SessionId,
) -> Result<SessionId, CliError> {
    let mut found = session;
    for _ in 0..MAX_DEPTH {
        match parent_session(store, found).await? {
            Some(parent) => found = parent,
            None => break,
        }
    }
    Ok(found)
}

/// Returns the session that delegated to this one, as long as its turn is open.
async fn parent_session(
    store: &StoreHandle,
    session: SessionId,
) -> Result<Option<SessionId>, CliError> {
    if !is_agent_session(store, session).await? {
        return Ok(None);
    }
    let call = CallId::new(session.uuid());
    let mut filter = SessionFilter {
        with_open_turns: true,
        limit: PAGE_SIZE,
        ..SessionFilter::default()
    };
    loop {
        let page = store.sessions(filter.clone()).await?;
        for row in page.iter().filter(|row| row.session != session) {
            if requests_call(store, row.session, call).await? {
                return Ok(Some(row.session));
            }
        }
        match page.last() {
            Some(last) if page.len() == PAGE_SIZE => filter.after = Some(last.session),
            _ => return Ok(None),
        }
    }
}

/// Checks whether an open turn of a session requested a call.
async fn requests_call(
    store: &StoreHandle,
    session: SessionId,
    call: CallId,
) -> Result<bool, CliError> {
    for turn in store.turns(TurnFilter::open_in(session)).await? {
        if let Some(StoreRecord::Requests(requests)) =
            store.load_record(&RecordKey::Requests(turn.turn)).await?
            && requests.calls.iter().any(|taken| taken.id == call)
        {
            return Ok(true);
        }
    }
    Ok(false)
}
