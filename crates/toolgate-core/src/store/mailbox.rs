//! The mailboxes of drivers: inputs from processes that do not drive a session.

use std::{future::Future, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    CallId, InputKind, RecordKey, RejectCode, SessionId, SettledOutcome, StoreError, StoreRecord,
    TurnId,
};

/// The mailboxes of sessions.
///
/// A process that does not drive a session can put an item into the mailbox of the driver. The
/// driver consumes items with the batch that records what they led to
/// ([`WriteBatch::taken_posts`](crate::WriteBatch::taken_posts)), so that none is handled twice.
pub trait MailboxStore: Send + Sync + 'static {
    /// Puts an item into the session's mailbox, together with records that must not exist yet.
    ///
    /// # Errors
    ///
    /// [`StoreError::RecordExists`] if a record exists; then nothing was written.
    fn post_item(
        &self,
        session: SessionId,
        post: MailboxItem,
        records: Vec<(RecordKey, StoreRecord)>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Returns the mailbox items after number `after` that the driver has not consumed, oldest
    /// first.
    fn posts(
        &self,
        session: SessionId,
        after: u64,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<(u64, MailboxItem)>, StoreError>> + Send;

    /// Completes when the mailbox has an item after number `after` that is not consumed, from any
    /// process.
    ///
    /// A consumed item completes nothing, so a caller that knows no number can begin with 0. It may
    /// complete once for an item that is consumed at the same moment.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing: the items stay in the mailbox.
    fn wait_for_post(&self, session: SessionId, after: u64) -> impl Future<Output = ()> + Send;
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
