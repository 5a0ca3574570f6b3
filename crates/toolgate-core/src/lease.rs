//! Who drives a session, and what others leave for them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{CallId, PostCode, PostKind, SessionId, Settled, Timestamp, TurnId};

/// Asks to drive a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRequest {
    /// Which session.
    pub session: SessionId,
    /// Who asks: names one process, so that others can tell whether it still lives.
    pub holder: Arc<str>,
    /// What time it is.
    pub now: Timestamp,
    /// Until when the lease is wanted; it can be renewed.
    pub until: Timestamp,
    /// The fence of a lease whose holder is known to be gone, so that nobody has to wait for its end.
    pub instead_of: Option<u64>,
}

impl LeaseRequest {
    /// Whether a session that stands like `held` can be leased to whoever asks this.
    pub fn is_granted(&self, held: Option<(&str, Timestamp)>, fence: u64) -> bool {
        held.is_none_or(|(holder, until)| {
            until <= self.now || *holder == *self.holder || self.instead_of == Some(fence)
        })
    }
}

/// The right to drive a session. Each new one has a higher fence and ends the ones before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Which session.
    pub session: SessionId,
    /// Its number; writes that carry a lower one are refused.
    pub fence: u64,
    /// Where the log of the session stood when the lease was given.
    pub revision: u64,
}

/// Something left for whoever drives a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "post", rename_all = "snake_case")]
pub enum Post {
    /// A question was answered; the answer is in the store.
    Answer {
        /// In which turn.
        turn: TurnId,
        /// About which call.
        call: CallId,
        /// Asked for the how-manieth time.
        generation: u32,
    },
    /// A call that runs outside has a result.
    Result {
        /// In which turn.
        turn: TurnId,
        /// Which call.
        call: CallId,
        /// The result.
        outcome: Arc<Settled>,
    },
    /// Something was sent in that changed nothing. It is still to be written into the log.
    Refused {
        /// In which turn.
        turn: TurnId,
        /// For which call.
        call: CallId,
        /// What came.
        what: PostKind,
        /// Why it was refused.
        code: PostCode,
    },
    /// Somebody wants the turn to stop.
    Interrupt {
        /// Which turn.
        turn: TurnId,
        /// Why.
        reason: String,
    },
}
