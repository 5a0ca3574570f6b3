//! The result of a turn, and the errors that stop one.

use std::sync::Arc;

use toolgate_core::{
    Arguments, CallId, LayerName, SessionId, SettledOutcome, Status, StoreError, Suspension,
    Timestamp, ToolName, TurnId,
};

use crate::JournalError;

/// The results of a turn, in the order the model asked.
#[derive(Debug, Clone)]
pub struct TurnReport {
    /// The turn's id.
    pub turn: TurnId,
    /// The end of the turn, or the state in which it was left.
    pub end: TurnEnd,
    /// The result of each call.
    pub results: Vec<CallResult>,
    /// Messages of the user that arrived meanwhile.
    pub messages: Vec<String>,
}

/// The end of a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnEnd {
    /// Every call is settled: the model can be asked to continue. Reported once.
    Settled,
    /// Some calls wait for a decision or an external result.
    Suspended,
    /// The turn was interrupted; everything is settled.
    Interrupted,
    /// A call failed and the others were cancelled; everything is settled.
    Aborted,
}

/// The result of one call.
#[derive(Debug, Clone)]
pub struct CallResult {
    /// The runtime's own id.
    pub id: CallId,
    /// The label under which the provider gets the result.
    pub call_id: Arc<str>,
    /// The provider's id as it was received, perhaps empty or used twice.
    pub provider_call_id: Arc<str>,
    /// The tool's name.
    pub tool: ToolName,
    /// The number of times its executor was started.
    pub attempts: u32,
    /// The outcome, once it is settled.
    pub outcome: Option<Arc<SettledOutcome>>,
    /// The decision or result it waits for, if it is suspended.
    pub waits_for: Option<Suspension>,
    /// The arguments for the external execution, if the call waits for its result.
    pub arguments: Option<Arguments>,
    /// The number of the newest attempt, counted from 1; 0 if none has started.
    pub attempt: u32,
}

impl TurnReport {
    /// Returns the calls that are settled.
    pub(crate) fn settled_calls(&self) -> Vec<CallResult> {
        let settled = self.results.iter().filter(|call| call.outcome.is_some());
        settled.cloned().collect()
    }
}

impl CallResult {
    /// Returns exactly what the model reads; nothing while the call is suspended.
    pub fn model_text(&self) -> Option<std::borrow::Cow<'_, str>> {
        self.outcome.as_ref().map(|settled| settled.model_text())
    }

    /// Returns the status of a settled call.
    pub fn status(&self) -> Option<Status> {
        self.outcome.as_ref().map(|settled| settled.status)
    }
}

/// Reason why a turn could not be driven.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DispatchError {
    /// The journal cannot be written. What ran is in the store as far as it got; nothing more is
    /// run.
    #[error("the turn stopped because its journal failed: {0}")]
    Journal(#[source] JournalError),
    /// The store could not answer.
    #[error("the store could not answer: {0}")]
    Store(#[source] StoreError),
    /// Another process holds the lease of the session.
    #[error("session {session} is driven by {}", crate::describe_holder(.holder))]
    Held {
        /// The session's id.
        session: SessionId,
        /// The lease holder.
        holder: Arc<str>,
        /// The end of the lease, unless it is renewed.
        until: Timestamp,
    },
    /// Another process has taken the session over. Nothing was written since.
    #[error("session {session} was taken over by another process")]
    Fenced {
        /// The session's id.
        session: SessionId,
    },
    /// The session was imported. It is history and cannot be driven.
    #[error("session {session} was imported ({format}) and cannot be resumed")]
    Imported {
        /// The session's id.
        session: SessionId,
        /// The format that it was imported from.
        format: Arc<str>,
    },
    /// There is no such turn.
    #[error("there is no turn {turn} in the store")]
    UnknownTurn {
        /// The turn's id.
        turn: TurnId,
    },
    /// The turn has been continued by another one.
    #[error("turn {turn} was continued already")]
    AlreadyContinued {
        /// The turn's id.
        turn: TurnId,
    },
    /// The turn has unsettled calls, so it cannot be continued.
    #[error("turn {turn} is not settled")]
    NotSettled {
        /// The turn's id.
        turn: TurnId,
    },
    /// The turn was resumed elsewhere in this process, and is driven there.
    #[error("turn {turn} was resumed elsewhere and is driven there now")]
    Superseded {
        /// The turn's id.
        turn: TurnId,
    },
    /// The stored events of the turn contradict each other.
    #[error("the log of turn {turn} is damaged: {source}")]
    Damaged {
        /// The turn's id.
        turn: TurnId,
        /// The event that does not fit.
        #[source]
        source: toolgate_core::TurnError,
    },
    /// An approval layer accepts only signed approvals, and the dispatcher cannot sign them.
    #[error(
        "layer {layer} accepts only approvals that are signed with keys the dispatcher does not have"
    )]
    KeysDiffer {
        /// The layer's name.
        layer: LayerName,
    },
    /// A turn cannot have this many calls.
    #[error("the model asked for too many calls in one turn")]
    TooManyCalls,
}

impl From<StoreError> for DispatchError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::LeaseHeld {
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
