//! Leases on sessions, and the items in a driver's mailbox.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{CallId, InputKind, RejectCode, SessionId, SettledOutcome, Timestamp, TurnId};

/// A request to drive a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRequest {
    /// The session.
    pub session: SessionId,
    /// The requesting process, named so that others can check whether it is alive.
    pub holder: Arc<str>,
    /// The current time.
    pub now: Timestamp,
    /// The time the lease expires; it can be renewed.
    pub until: Timestamp,
    /// The fence of a lease whose holder is known to be dead; it is replaced before it expires.
    pub instead_of: Option<u64>,
}

impl LeaseRequest {
    /// Checks whether the request is granted for a session with the lease `held` and this `fence`.
    pub fn is_granted(&self, held: Option<(&str, Timestamp)>, fence: u64) -> bool {
        held.is_none_or(|(holder, until)| {
            // `instead_of` names the fence that was seen: if another process replaced the dead
            // holder in the meantime, its lease stays.
            until <= self.now || *holder == *self.holder || self.instead_of == Some(fence)
        })
    }
}

/// The right to drive a session. Each new one has a higher fence and ends the ones before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The session.
    pub session: SessionId,
    /// The number of the lease; writes with a lower one are rejected.
    pub fence: u64,
    /// The number of the session's last event when the lease was granted.
    pub revision: u64,
}

/// An item in the mailbox of a session's driver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "post", rename_all = "snake_case")]
pub enum MailboxItem {
    /// An approval request was decided; the answer is in the store.
    Answer {
        /// The turn.
        turn: TurnId,
        /// The call.
        call: CallId,
        /// The generation of the call.
        generation: u32,
    },
    /// The external result of a call.
    Result {
        /// The turn.
        turn: TurnId,
        /// The call.
        call: CallId,
        /// The result.
        outcome: Arc<SettledOutcome>,
    },
    /// An input was rejected. The driver still has to record it in the log.
    Refused {
        /// The turn.
        turn: TurnId,
        /// The call.
        call: CallId,
        /// The kind of input.
        what: InputKind,
        /// The reason it was rejected.
        code: RejectCode,
    },
    /// A request to interrupt a turn.
    Interrupt {
        /// The turn.
        turn: TurnId,
        /// The reason.
        reason: String,
    },
}
