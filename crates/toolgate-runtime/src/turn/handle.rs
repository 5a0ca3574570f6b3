//! A handle to a turn that is being driven, for interruptions and messages.

use std::sync::Arc;

use toolgate_core::{CallId, TurnId};

use crate::{
    JournalError,
    journal::BatchExtras,
    turn::{
        open_turn::{DriverInput, OpenTurn},
        queue::Urgency,
    },
};

/// A handle to a turn that is being driven. Clones share it.
///
/// Decisions and external results are delivered through [`ApprovalService`](crate::ApprovalService).
#[derive(Clone)]
pub struct TurnHandle(Arc<OpenTurn>);

impl TurnHandle {
    pub(crate) fn new(active: Arc<OpenTurn>) -> Self {
        Self(active)
    }

    /// Returns the turn's id.
    pub fn turn(&self) -> TurnId {
        self.0.info.turn
    }

    /// Stops the turn. Returns true if there was something to stop.
    ///
    /// Finished results are kept; the other calls settle as `cancelled` or `outcome_unknown`. A
    /// turn without a driver is not stopped: resume it and interrupt it then.
    ///
    /// # Errors
    ///
    /// Fails if the interruption could not be recorded.
    pub async fn interrupt(&self, reason: &str) -> Result<bool, JournalError> {
        match self.0.interrupt_turn(reason, BatchExtras::default()) {
            Some(durable) => durable.await.map(|()| true),
            None => Ok(false),
        }
    }

    /// Stops one call that runs in this process or waits to start. Returns true if there was one;
    /// false if the call is unknown, has settled, waits for an approver, or is run by an external
    /// party.
    ///
    /// The other calls continue. The call is stopped like one that exceeds its time limit: its token
    /// is cancelled, and after the grace period its task is aborted. It settles as `cancelled`, or
    /// as `outcome_unknown` if it may have written; the model reads that.
    pub fn cancel_call(&self, call: CallId) -> bool {
        self.0.cancel_call(call)
    }

    /// Stops what runs and suspends the turn: pending calls can still be decided, and calls that have
    /// not started do so when the turn is resumed. Without pending calls it is
    /// [`TurnHandle::interrupt`].
    ///
    /// # Errors
    ///
    /// Fails if the interruption could not be recorded.
    pub async fn stop_running(&self, reason: &str) -> Result<(), JournalError> {
        if self.0.has_pending_calls() {
            self.0.stop_running(reason);
            return Ok(());
        }
        self.interrupt(reason).await.map(drop)
    }

    /// Adds a message that is reported with the turn.
    pub fn send_message(&self, text: impl Into<String>) {
        self.0
            .inbox
            .push(Urgency::Message, DriverInput::Message(text.into()));
    }
}

impl std::fmt::Debug for TurnHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TurnHandle").field(&self.turn()).finish()
    }
}
