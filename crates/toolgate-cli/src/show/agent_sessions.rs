//! Relates the sessions of agents to the session that can be resumed.

use toolgate::{
    store::{SessionFilter, StoreHandle},
    value::SessionId,
};

use crate::CliError;

/// The most levels of delegation that [`root_session`] climbs. A damaged store must not loop it forever.
const MAX_DEPTH: usize = 32;

/// Returns the session at the root of the delegation: the one that can be resumed.
pub(crate) async fn root_session(
    store: &StoreHandle,
    session: SessionId,
) -> Result<SessionId, CliError> {
    let mut found = session;
    for _ in 0..MAX_DEPTH {
        let row = store
            .sessions(SessionFilter::for_session(found))
            .await?
            .pop();
        match row.and_then(|row| row.parent) {
            Some(parent) => found = parent,
            None => break,
        }
    }
    Ok(found)
}
