//! What came of a turn, and why one could not be driven.

use std::sync::Arc;

use toolgate_core::{
    Arguments, CallId, SessionId, Settled, Status, StoreError, Suspension, Timestamp, ToolName,
    TurnId,
};

use crate::JournalError;

/// What came of a turn, in the order the model asked.
#[derive(Debug, Clone)]
pub struct TurnReport {
    /// Which turn.
    pub turn: TurnId,
    /// How far it came.
    pub end: TurnEnd,
    /// What came of each call.
    pub results: Vec<CallResult>,
    /// What the user said meanwhile.
    pub messages: Vec<String>,
}

/// How far a turn came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnEnd {
    /// Every call is settled: the model can be asked to go on. Reported once.
    Settled,
    /// Some calls wait for a decision or a result from outside.
    Suspended,
    /// Somebody stopped it; everything is settled.
    Interrupted,
    /// A call failed and the others were not wanted any more; everything is settled.
    Aborted,
}

/// What came of one call.
#[derive(Debug, Clone)]
pub struct CallResult {
    /// The runtime's own id.
    pub id: CallId,
    /// The label under which the provider is answered.
    pub call_id: Arc<str>,
    /// The provider's id as it was, perhaps empty or used twice.
    pub provider_call_id: Arc<str>,
    /// Which tool.
    pub tool: ToolName,
    /// The outcome, once it is settled.
    pub outcome: Option<Arc<Settled>>,
    /// What it waits for, if it is suspended.
    pub waits_for: Option<Suspension>,
    /// With what the tool is to be run outside, if its result is waited for.
    pub arguments: Option<Arguments>,
}

impl CallResult {
    /// Exactly what the model is told; nothing while the call is suspended.
    pub fn model_text(&self) -> Option<std::borrow::Cow<'_, str>> {
        self.outcome.as_ref().map(|settled| settled.model_text())
    }

    /// How the call settled, if it did.
    pub fn status(&self) -> Option<Status> {
        self.outcome.as_ref().map(|settled| settled.status)
    }
}

/// Why a turn could not be driven.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DispatchError {
    /// The journal cannot be written. What ran is in the store as far as it got; nothing more is run.
    #[error("the turn stopped because its journal failed")]
    Journal(#[source] JournalError),
    /// The store could not answer.
    #[error("the store could not answer")]
    Store(#[source] StoreError),
    /// Somebody else drives the session.
    #[error("session {session} is driven by {holder} until {until}")]
    Held {
        /// Which session.
        session: SessionId,
        /// Who drives it.
        holder: Arc<str>,
        /// Until when, unless it goes on.
        until: Timestamp,
    },
    /// Somebody else has taken the session over. Nothing was written since.
    #[error("session {session} was taken over by somebody else")]
    Fenced {
        /// Which session.
        session: SessionId,
    },
    /// There is no such turn.
    #[error("there is no turn {turn} in the store")]
    UnknownTurn {
        /// Which turn.
        turn: TurnId,
    },
    /// The turn has been continued by another one.
    #[error("turn {turn} was continued already")]
    AlreadyContinued {
        /// Which turn.
        turn: TurnId,
    },
    /// The turn has unsettled calls, so it cannot be continued.
    #[error("turn {turn} is not settled")]
    NotSettled {
        /// Which turn.
        turn: TurnId,
    },
    /// The turn was taken up again elsewhere in this process, and is driven there.
    #[error("turn {turn} is driven by somebody else now")]
    Superseded {
        /// Which turn.
        turn: TurnId,
    },
    /// The stored events of the turn do not fit together.
    #[error("the log of turn {turn} is damaged")]
    Damaged {
        /// Which turn.
        turn: TurnId,
        /// What does not fit.
        #[source]
        source: toolgate_core::TurnError,
    },
    /// A turn cannot have this many calls.
    #[error("the model asked for too many calls in one turn")]
    TooManyCalls,
}

impl From<StoreError> for DispatchError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Held {
                session,
                holder,
                until,
                ..
            } => Self::Held {
                session,
                holder,
                until,
            },
            StoreError::Fenced { session, .. } => Self::Fenced { session },
            other => Self::Store(other),
        }
    }
}

impl From<JournalError> for DispatchError {
    fn from(error: JournalError) -> Self {
        match &error {
            JournalError::Store { session, .. } if error.is_fenced() => {
                Self::Fenced { session: *session }
            }
            _ => Self::Journal(error),
        }
    }
}
