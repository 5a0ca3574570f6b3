//! A handle to a turn that is being driven, for interruptions and messages.

use std::sync::Arc;

use toolgate_core::TurnId;

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
