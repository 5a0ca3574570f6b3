//! The store of sessions: event logs, write-once records, blobs, chains of sealed entries,
//! accounts.

pub(crate) mod erasure;
pub(crate) mod handle;
pub(crate) mod lease;
pub(crate) mod memory;
pub(crate) mod rows;

use std::{fmt, future::Future, ops::Range, sync::Arc};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    AccountKey, AccountMovement, AccountRow, ApprovalAnswer, ApprovalFilter, ApprovalRequest,
    ApprovalRow, CallId, Charge, ChargeFilter, Digest, ErasedSessions, Event, Json, Lease,
    LeaseRequest, LedgerDraft, LedgerHead, LedgerName, MailboxItem, MessageRecord, ProviderCall,
    SealedEntry, SessionFilter, SessionId, SessionRow, SettledOutcome, Timestamp, ToolRequest,
    TurnFilter, TurnId, TurnInfo, TurnRow,
};

/// Durable storage for sessions.
///
/// A session is its log of events, numbered from 1 without gaps. Appending names the last number
/// the writer knows and the fence of its lease; if the log is longer or another process holds a
/// newer lease, nothing is written. This keeps two processes from driving one session. Records are
/// written once and never changed. A process that does not drive a session can put an item into the
/// mailbox of the driver. When a method that writes returns, what it wrote survives the loss of the
/// process.
///
/// Beside the logs a store has lists that it derives from them in the same write: sessions, turns,
/// approvals. They can be queried without reading a log.
pub trait Store: Send + Sync + 'static {
    /// Appends a batch atomically, if the log of `session` is at the position `at`.
    ///
    /// Returns the number of the last event afterwards.
    ///
    /// # Errors
    ///
    /// [`StoreError::Fenced`] or [`StoreError::Conflict`] if another process wrote or took the
    /// lease, [`StoreError::RecordExists`] if a record exists; then nothing was written. After another
    /// error it is unknown whether the batch was written.
    fn append(
        &self,
        session: SessionId,
        at: LogPosition,
        batch: WriteBatch,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Reads up to `limit` events after number `after`, oldest first.
    fn events(
        &self,
        session: SessionId,
        after: u64,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Arc<Event>>, StoreError>> + Send;

    /// Returns the number of the last event of a session; 0 if there is none.
    fn revision(&self, session: SessionId) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Writes a record unless there is one, and returns the one that was there.
    fn put_record_once(
        &self,
        key: RecordKey,
        record: StoreRecord,
    ) -> impl Future<Output = Result<Option<StoreRecord>, StoreError>> + Send;

    /// Reads a record.
    fn load_record(
        &self,
        key: &RecordKey,
    ) -> impl Future<Output = Result<Option<StoreRecord>, StoreError>> + Send;

    /// Stores bytes under their digest. Storing the same bytes twice stores them once.
    fn put_blob(&self, bytes: Bytes) -> impl Future<Output = Result<Digest, StoreError>> + Send;

    /// Reads a part of a blob; a range that reaches past the end is truncated there.
    fn blob(
        &self,
        digest: Digest,
        range: Range<u64>,
    ) -> impl Future<Output = Result<Option<Bytes>, StoreError>> + Send;

    /// Lists records under [`RecordKey::Other`] whose key starts with `prefix`, in the order of
    /// their keys, starting after `after`.
    fn list_records(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<(Arc<str>, StoreRecord)>, StoreError>> + Send;

    /// Returns the last `limit` messages of a session before number `before`, oldest first, with
    /// their numbers.
    fn messages(
        &self,
        session: SessionId,
        before: u64,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<(u64, Arc<MessageRecord>)>, StoreError>> + Send;

    /// Grants the exclusive right to drive a session. An earlier holder's writes are rejected from
    /// then on.
    ///
    /// Granted if the session has no lease, the last lease has expired, the holder is the same, or
    /// the request names the lease that it replaces.
    ///
    /// # Errors
    ///
    /// [`StoreError::LeaseHeld`] with the holder, if another process holds the lease.
    fn acquire_lease(
        &self,
        request: LeaseRequest,
    ) -> impl Future<Output = Result<Lease, StoreError>> + Send;

    /// Extends a lease, if it is still the newest.
    ///
    /// # Errors
    ///
    /// [`StoreError::Fenced`] if there is a newer lease.
    fn renew_lease(
        &self,
        lease: &Lease,
        until: Timestamp,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Releases a lease. If it is not the newest, nothing happens and this is not an error.
    fn release_lease(&self, lease: &Lease) -> impl Future<Output = Result<(), StoreError>> + Send;

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

    /// Lists sessions, oldest first. Hidden ones are left out unless the filter asks for them.
    fn sessions(
        &self,
        filter: SessionFilter,
    ) -> impl Future<Output = Result<Vec<SessionRow>, StoreError>> + Send;

    /// Hides a session and those of its agents, or shows them again. Nothing is deleted, and a
    /// caller that knows the id can still use a hidden session. A session that does not exist is
    /// not an error.
    fn hide_session(
        &self,
        session: SessionId,
        at: Option<Timestamp>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Deletes a session and those of its agents, all or nothing: events, messages, records of
    /// turns and calls, approvals, mailbox items and leases. A session that does not exist is not
    /// an error.
    ///
    /// Amounts still reserved are booked as spent, because the actual amounts can no longer be
    /// known. What stays: ledger chains, which contain digests and must be complete; accounts;
    /// blobs, because another session may have stored the same bytes; standing rules and the marks
    /// of used tokens; and the fence of the newest lease, so that an old driver cannot write to the
    /// session.
    ///
    /// # Errors
    ///
    /// [`StoreError::LeaseHeld`] with the holder, if a process drives one of them at the time `now`;
    /// then nothing was deleted.
    fn erase_session(
        &self,
        session: SessionId,
        now: Timestamp,
    ) -> impl Future<Output = Result<ErasedSessions, StoreError>> + Send;

    /// Lists turns, oldest first.
    fn turns(
        &self,
        filter: TurnFilter,
    ) -> impl Future<Output = Result<Vec<TurnRow>, StoreError>> + Send;

    /// Lists approvals, oldest first.
    fn approvals(
        &self,
        filter: ApprovalFilter,
    ) -> impl Future<Output = Result<Vec<ApprovalRow>, StoreError>> + Send;

    /// Adds entries to the ends of their chains, all or none, and returns the new ends.
    fn seal_entries(
        &self,
        drafts: Vec<LedgerDraft>,
    ) -> impl Future<Output = Result<Vec<LedgerHead>, StoreError>> + Send;

    /// Reads entries of a chain after number `after`, in order.
    fn entries(
        &self,
        ledger: &LedgerName,
        after: u64,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<SealedEntry>, StoreError>> + Send;

    /// Returns the end of every chain, by name.
    fn ledgers(&self) -> impl Future<Output = Result<Vec<LedgerHead>, StoreError>> + Send;

    /// Reserves the amounts of a charge in all its accounts, or in none.
    ///
    /// Concurrent charges of any processes never exceed a limit together. If there is an open
    /// charge with the same id, nothing more is reserved and that one is returned: it is the one to
    /// settle or release.
    ///
    /// # Errors
    ///
    /// [`StoreError::AccountShort`] with the account that has not enough left.
    fn reserve(&self, charge: Charge) -> impl Future<Output = Result<Charge, StoreError>> + Send;

    /// Books the actual amounts, line by line, instead of the reserved ones, and returns the amount
    /// spent from each account. A line without an actual amount is booked as reserved.
    ///
    /// If this exact charge is no longer open, nothing is booked or returned. So each movement of
    /// an account is returned once.
    fn settle_charge(
        &self,
        charge: Charge,
        actual: Vec<u64>,
    ) -> impl Future<Output = Result<Vec<AccountMovement>, StoreError>> + Send;

    /// Releases the reserved amounts. If this exact charge is no longer open, nothing happens.
    fn release_charge(&self, charge: Charge)
    -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Lists open charges, in the order of their names.
    fn charges(
        &self,
        filter: ChargeFilter,
    ) -> impl Future<Output = Result<Vec<Charge>, StoreError>> + Send;

    /// Returns an account; `None` if nothing was ever charged to it.
    fn account(
        &self,
        account: &AccountKey,
    ) -> impl Future<Output = Result<Option<AccountRow>, StoreError>> + Send;

    /// Lists accounts whose name starts with `prefix`, in the order of their names, starting after
    /// `after`.
    fn accounts(
        &self,
        prefix: &str,
        after: Option<&AccountKey>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<AccountRow>, StoreError>> + Send;
}

/// The end of a log as a writer knows it, and the fence under which it writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogPosition {
    /// The number of the last event.
    pub revision: u64,
    /// The fence of the writer's lease; 0 for a session that was never leased.
    pub fence: u64,
    /// The time to which the write also extends the lease.
    pub lease_until: Option<Timestamp>,
}

impl LogPosition {
    /// Creates the position at the end of a log that was never leased.
    pub const fn unleased(revision: u64) -> Self {
        Self {
            revision,
            fence: 0,
            lease_until: None,
        }
    }

    /// Checks whether a writer with this position may append to the log of `session`, which is at
    /// `revision` with the newest `fence`.
    pub const fn check_writable(
        self,
        session: SessionId,
        revision: u64,
        fence: u64,
    ) -> Result<(), StoreError> {
        // The fence first: a driver that lost its lease must stop, while one with an old revision
        // may load the log and retry.
        if self.fence != fence {
            return Err(StoreError::Fenced {
                session,
                found: fence,
            });
        }
        if self.revision != revision {
            return Err(StoreError::Conflict {
                session,
                found: revision,
            });
        }
        Ok(())
    }
}

/// A batch that is written atomically.
#[derive(Debug, Clone, Default)]
pub struct WriteBatch {
    /// Events, in order.
    pub events: Vec<Arc<Event>>,
    /// Records that must not exist yet. A key that is given twice counts as one that exists.
    pub records: Vec<(RecordKey, StoreRecord)>,
    /// Entries for the ends of chains.
    pub entries: Vec<LedgerDraft>,
    /// The number up to which this batch consumes mailbox items.
    pub taken_posts: Option<u64>,
}

impl WriteBatch {
    /// Checks whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        // Destructured, so that a new field cannot be forgotten here.
        let Self {
            events,
            records,
            entries,
            taken_posts,
        } = self;
        events.is_empty() && records.is_empty() && entries.is_empty() && taken_posts.is_none()
    }
}

/// The key of a record.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RecordKey {
    /// The outcome of a call. The first outcome stands.
    Outcome(CallId),
    /// The model's requests in a turn.
    Requests(TurnId),
    /// The mark that a turn is settled as a whole.
    Ended(TurnId),
    /// The turn that continued another one. There is only one.
    Successor(TurnId),
    /// The approval request for a call, by generation.
    Question(CallId, u32),
    /// The answer to an approval request, by generation.
    Answer(CallId, u32),
    /// The external result of an attempt, counted from 1.
    Result(CallId, u32),
    /// The answer of an action that a layer performs once for a call.
    Layer(CallId, Arc<str>),
    /// A message of a session, numbered from 0 without gaps.
    Message(SessionId, u64),
    /// Anything else.
    Other(Arc<str>),
}

impl fmt::Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Stored keys: changing one of these texts would orphan existing records.
            Self::Outcome(call) => write!(f, "outcome/{call}"),
            Self::Requests(turn) => write!(f, "requests/{turn}"),
            Self::Ended(turn) => write!(f, "ended/{turn}"),
            Self::Successor(turn) => write!(f, "successor/{turn}"),
            Self::Question(call, generation) => write!(f, "question/{call}/{generation}"),
            Self::Answer(call, generation) => write!(f, "answer/{call}/{generation}"),
            Self::Result(call, attempt) => write!(f, "result/{call}/{attempt}"),
            Self::Layer(call, key) => write!(f, "layer/{call}/{key}"),
            Self::Message(session, number) => {
                f.write_str(&crate::model::message::message_key(*session, *number))
            }
            Self::Other(key) => write!(f, "other/{key}"),
        }
    }
}

/// A record that is written once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreRecord {
    /// The outcome of a call.
    Outcome(Arc<SettledOutcome>),
    /// The model's requests in a turn.
    Requests(Arc<TurnRequests>),
    /// A turn.
    Turn(TurnId),
    /// An approval request.
    Question(Arc<ApprovalRequest>),
    /// An answer.
    Answer(Arc<ApprovalAnswer>),
    /// A message.
    Message(Arc<MessageRecord>),
    /// Anything else.
    Json(Json),
}

/// The model's requests in a turn, raw, so that the turn can be resumed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnRequests {
    /// The turn.
    pub info: Arc<TurnInfo>,
    /// The number of the last event before the turn; its own events come after it.
    pub after_sequence: u64,
    /// The requests in order, with the ids and labels they were given.
    pub calls: Vec<AcceptedCall>,
}

/// One accepted request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AcceptedCall {
    /// The runtime's own id.
    pub id: CallId,
    /// The label under which the provider is answered.
    pub call_id: Arc<str>,
    /// The request as the model wrote it.
    pub request: ToolRequest,
    /// The provider's result, if this is a provider-executed call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran: Option<Arc<ProviderCall>>,
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
    #[error("session {session} is driven by {holder} until {until}")]
    LeaseHeld {
        /// The session.
        session: SessionId,
        /// The lease holder.
        holder: Arc<str>,
        /// The time the lease expires, unless it is renewed.
        until: Timestamp,
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
    #[error("{what} in the store cannot be read")]
    Damaged {
        /// The name of the data.
        what: String,
        /// The problem with it.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The store failed; `source()` has the cause.
    #[error("the store did not complete the request")]
    Backend(#[source] Box<dyn std::error::Error + Send + Sync>),
}
