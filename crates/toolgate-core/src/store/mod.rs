//! The store of sessions: eight traits, each with a file of its name in every backend.

pub(crate) mod accounts;
pub(crate) mod catalogue;
pub(crate) mod erasure;
pub(crate) mod events;
pub(crate) mod handle;
pub(crate) mod import_origin;
pub(crate) mod ledgers;
pub(crate) mod mailbox;
pub(crate) mod memories;
pub(crate) mod memory;
pub(crate) mod record_key;
pub(crate) mod records;
pub(crate) mod rows;
pub(crate) mod run_record;
pub(crate) mod search;
pub(crate) mod session_totals;

use std::sync::Arc;

use crate::{
    AccountKey, AccountStore, CatalogueStore, EventStore, LedgerStore, MailboxStore,
    MemoryRecordStore, RecordKey, RecordStore, SearchStore, SessionId, Timestamp,
};

/// Durable storage for sessions: all eight parts.
///
/// When a method that writes returns, what it wrote survives the loss of the process.
pub trait Store:
    EventStore
    + RecordStore
    + MailboxStore
    + LedgerStore
    + AccountStore
    + CatalogueStore
    + SearchStore
    + MemoryRecordStore
{
}

impl<S> Store for S where
    S: EventStore
        + RecordStore
        + MailboxStore
        + LedgerStore
        + AccountStore
        + CatalogueStore
        + SearchStore
        + MemoryRecordStore
{
}

/// The reason the store could not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another writer saved first; load the session again.
    #[error("session {session} has moved on to revision {found}")]
    Conflict {
        /// The session.
        session: SessionId,
        /// The number of its last event.
        found: u64,
    },
    /// A record of the batch exists already, so nothing of the batch was written.
    #[error("the record {key} already exists")]
    RecordExists {
        /// The key of the record.
        key: RecordKey,
    },
    /// A record is of another kind than its key requires; another program changed it.
    #[error("the record {key} is of the kind {found}, not {expected}")]
    WrongRecordKind {
        /// The key of the record.
        key: RecordKey,
        /// The kind that the key requires.
        expected: &'static str,
        /// The kind that is stored.
        found: &'static str,
    },
    /// The events of a batch do not continue the log.
    #[error("event {found} does not follow event {expected}")]
    SequenceGap {
        /// The last number of the log or of the event before.
        expected: u64,
        /// The number of the event.
        found: u64,
    },
    /// Another process holds a newer lease; nothing was written.
    #[error("session {session} is now driven by another process")]
    Fenced {
        /// The session.
        session: SessionId,
        /// The fence of the newest lease.
        found: u64,
    },
    /// Another process holds the lease.
    #[error("session {session} is driven by another process")]
    LeaseHeld {
        /// The session.
        session: SessionId,
        /// The lease holder.
        holder: Arc<str>,
        /// The time the lease expires, unless it is renewed.
        until: Timestamp,
        /// True if it has expired by the clock of the store.
        is_expired: bool,
        /// The fence of its lease.
        fence: u64,
    },
    /// An account has not enough left, so nothing was reserved.
    #[error("{wanted} is more than the {left} that is left in {account}")]
    AccountShort {
        /// The account.
        account: AccountKey,
        /// The amount wanted from it.
        wanted: u64,
        /// The amount left in it.
        left: u64,
    },
    /// Stored data cannot be read; another program changed it or it is damaged.
    #[error("{what} in the store cannot be read: {source}")]
    Damaged {
        /// The name of the data.
        what: String,
        /// The problem with it.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The store cannot be used now, and waiting for it did not help.
    ///
    /// Whether a write that was under way is in the store is not known. What was acknowledged
    /// before is kept.
    #[error("the store {}: {source}", reason.text())]
    Unavailable {
        /// The reason.
        reason: UnavailableReason,
        /// The error of the backend.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The store failed; `source()` has the cause.
    #[error("the store did not complete the request: {0}")]
    Backend(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The reason why a store cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UnavailableReason {
    /// The server could not be reached, or the connection was lost.
    Away,
    /// Another process held a lock for too long.
    Locked,
    /// There is no space left.
    Full,
    /// The database was deleted or replaced while it was in use.
    Gone,
}

impl UnavailableReason {
    /// All reasons.
    pub const ALL: [Self; 4] = [Self::Away, Self::Locked, Self::Full, Self::Gone];

    /// Returns the wire name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Away => "away",
            Self::Locked => "locked",
            Self::Full => "full",
            Self::Gone => "gone",
        }
    }

    /// Returns the text that people read; it follows "the store".
    pub const fn text(self) -> &'static str {
        match self {
            Self::Away => "cannot be reached",
            Self::Locked => "is locked by another process",
            Self::Full => "has no space left",
            Self::Gone => "was deleted or replaced",
        }
    }
}

impl StoreError {
    /// Returns the reason why the store cannot be used, if this is the error.
    pub fn unavailable_reason(&self) -> Option<UnavailableReason> {
        match self {
            Self::Unavailable { reason, .. } => Some(*reason),
            _ => None,
        }
    }
}
