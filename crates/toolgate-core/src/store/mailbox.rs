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
        /// The attempt that it is the result of, counted from 1; 0 in an item that was stored
        /// before this field existed.
        #[serde(default)]
        attempt: u32,
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
    /// An item that this version cannot read. A store returns it in place of the item, so that it
    /// does not block those after it; it is never stored.
    #[serde(skip)]
    Unreadable {
        /// The turn and the call that it names, if it names them.
        about: Option<(TurnId, CallId)>,
    },
}

impl MailboxItem {
    /// Reads an item as it is stored.
    pub fn from_stored(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_else(|_| Self::damaged(text))
    }

    /// Returns an item that cannot be read in place of a stored one that was damaged.
    pub fn damaged(text: &str) -> Self {
        let named: Option<ItemSubject> = serde_json::from_str(text).ok();
        Self::Unreadable {
            about: named.map(|named| (named.turn, named.call)),
        }
    }
}

/// The part of an item that says what it is about.
#[derive(Deserialize)]
struct ItemSubject {
    turn: TurnId,
    call: CallId,
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn an_item_that_cannot_be_read_names_what_it_is_about_if_it_can() {
        let turn = TurnId::new(Uuid::from_u128(1));
        let call = CallId::new(Uuid::from_u128(2));
        let newer = format!(r#"{{"post":"newer","turn":"{turn}","call":"{call}"}}"#);
        let about = Some((turn, call));
        assert_eq!(
            MailboxItem::from_stored(&newer),
            MailboxItem::Unreadable { about }
        );
        assert_eq!(
            MailboxItem::from_stored("{"),
            MailboxItem::Unreadable { about: None }
        );
        let item = MailboxItem::Answer {
            turn,
            call,
            generation: 1,
        };
        let stored = serde_json::to_string(&item).expect("is JSON");
        assert_eq!(MailboxItem::from_stored(&stored), item);
    }
}
