//! Looks back in the log of a session: whether its last run has ended, and whether a model was
//! asked.

use std::sync::Arc;

use toolgate_core::{Event, SessionEvent, StoreError, TurnId};

use crate::{SessionError, session::SessionShared};

impl SessionShared {
    /// Checks whether the last run has no recorded end: its process was lost before it could write
    /// one.
    pub(crate) async fn is_last_run_open(&self) -> Result<bool, SessionError> {
        self.journal().when_flushed().await?;
        let last = self
            .find_last_event(|event| event.as_session().is_some())
            .await?;
        let last = last.as_ref().and_then(|event| event.as_session());
        Ok(last.is_some_and(|last| !matches!(last, SessionEvent::RunEnded { .. })))
    }

    /// Checks whether the log says that a model was asked for a turn.
    pub(crate) async fn was_asked(&self, turn: TurnId) -> Result<bool, StoreError> {
        let asked = |event: &Event| {
            matches!(
                event.as_session(),
                Some(SessionEvent::InferenceStarted { .. })
            ) && event.turn_info().turn == turn
        };
        Ok(self.find_last_event(asked).await?.is_some())
    }

    /// Returns the last event that `wanted` accepts, however old it is.
    pub(crate) async fn find_last_event(
        &self,
        wanted: impl Fn(&Event) -> bool,
    ) -> Result<Option<Arc<Event>>, StoreError> {
        const PAGE: u64 = 256;
        let store = self.dispatcher.store();
        let session = self.dispatcher.session();
        // Backwards, because the event is usually among the last.
        let mut before = store.revision(session).await?;
        while before > 0 {
            let after = before.saturating_sub(PAGE);
            let page = store.events(session, after, PAGE as usize).await?;
            let found = page
                .into_iter()
                .rev()
                .find(|event| event.sequence() <= before && wanted(event));
            if found.is_some() {
                return Ok(found);
            }
            before = after;
        }
        Ok(None)
    }
}
