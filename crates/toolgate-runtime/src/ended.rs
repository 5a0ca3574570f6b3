//! Looks back in the log of a session: whether its last run has ended, and whether a model was asked.

use std::sync::Arc;

use toolgate_core::{Event, LoopEvent, StoreError, TurnId};

use crate::{SessionError, session::Shared};

impl Shared {
    /// Whether there was a run of which nobody has said how it ended: whoever was to say it was lost.
    pub(crate) async fn has_not_ended(&self) -> Result<bool, SessionError> {
        self.journal().flushed().await?;
        let last = self.last_event(|event| event.as_loop().is_some()).await?;
        let last = last.as_ref().and_then(|event| event.as_loop());
        Ok(last.is_some_and(|last| !matches!(last, LoopEvent::RunEnded { .. })))
    }

    /// Whether a model was asked for a turn, as far as anybody can tell.
    pub(crate) async fn was_asked(&self, turn: TurnId) -> Result<bool, StoreError> {
        let asked = |event: &Event| {
            matches!(event.as_loop(), Some(LoopEvent::InferenceStarted { .. }))
                && event.turn_info().turn == turn
        };
        Ok(self.last_event(asked).await?.is_some())
    }

    /// The last event that is wanted, however long ago it was.
    async fn last_event(
        &self,
        wanted: impl Fn(&Event) -> bool,
    ) -> Result<Option<Arc<Event>>, StoreError> {
        const PAGE: u64 = 256;
        let (store, session) = (self.dispatcher.store(), self.dispatcher.session());
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
