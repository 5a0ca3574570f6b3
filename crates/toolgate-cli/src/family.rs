//! Which sessions belong together: an agent's session is named after the call that began it.

use toolgate::{CallId, Record, RecordKey, SessionFilter, SessionId, StoreHandle, TurnFilter};

use crate::CliError;

/// How many rows are read at once.
const PAGE: usize = 200;
/// How deep agents delegate at most, as far as anybody is told.
const DEPTH: usize = 32;

/// Whether a session is that of an agent: then a call of its name ran outside the stack.
pub(crate) async fn is_agent(store: &StoreHandle, session: SessionId) -> Result<bool, CliError> {
    let call = CallId::new(session.uuid());
    let outside = RecordKey::Layer(call, "outside/1".into());
    Ok(store.record(&outside).await?.is_some()
        || store.record(&RecordKey::Outcome(call)).await?.is_some())
}

/// The session that everything else works for: the one that can be resumed.
pub(crate) async fn root(store: &StoreHandle, session: SessionId) -> Result<SessionId, CliError> {
    let mut found = session;
    for _ in 0..DEPTH {
        match parent(store, found).await? {
            Some(parent) => found = parent,
            None => break,
        }
    }
    Ok(found)
}

/// The session that delegated to this one, as long as its turn is open.
async fn parent(store: &StoreHandle, session: SessionId) -> Result<Option<SessionId>, CliError> {
    if !is_agent(store, session).await? {
        return Ok(None);
    }
    let call = CallId::new(session.uuid());
    let mut filter = SessionFilter {
        with_open_turns: true,
        limit: PAGE,
        ..SessionFilter::default()
    };
    loop {
        let page = store.sessions(filter.clone()).await?;
        for row in page.iter().filter(|row| row.session != session) {
            if asks_for(store, row.session, call).await? {
                return Ok(Some(row.session));
            }
        }
        match page.last() {
            Some(last) if page.len() == PAGE => filter.after = Some(last.session),
            _ => return Ok(None),
        }
    }
}

/// Whether an open turn of a session asks for a call.
async fn asks_for(store: &StoreHandle, session: SessionId, call: CallId) -> Result<bool, CliError> {
    for turn in store.turns(TurnFilter::open(session)).await? {
        if let Some(Record::Requests(requests)) =
            store.record(&RecordKey::Requests(turn.turn)).await?
            && requests.calls.iter().any(|taken| taken.id == call)
        {
            return Ok(true);
        }
    }
    Ok(false)
}
