//! Where sessions live: logs of events, records that are written once, blobs, chains of sealed entries, and accounts.

use std::{fmt, future::Future, ops::Range, sync::Arc};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    AccountKey, AccountRow, Answer, ApprovalFilter, ApprovalRequest, ApprovalRow, CallId, Charge,
    ChargeFilter, Digest, Erased, Event, Json, Lease, LeaseRequest, LedgerDraft, LedgerHead,
    LedgerName, Movement, Post, ProviderCall, Said, SealedEntry, SessionFilter, SessionId,
    SessionRow, Settled, Timestamp, ToolRequest, TurnFilter, TurnId, TurnInfo, TurnRow,
};

/// Keeps what must not be lost.
///
/// A session is its log of events, numbered from 1 without gaps. Appending names the last number the writer knows and
/// the fence of its lease; if the log has moved on or somebody else has taken the lease, nothing is written, which is
/// what keeps two processes from driving one session. Records are written once and never changed. Whoever does not
/// drive a session can leave a post for the one who does. When a method that writes returns, what it wrote survives
/// the loss of the process.
///
/// Besides the logs a store keeps lists that are made from them, in the same write: sessions, turns, approvals. They
/// can be asked without reading a log.
pub trait Store: Send + Sync + 'static {
    /// Appends a batch whole or not at all, if the log of `session` stands where `at` says.
    ///
    /// Returns the number of the last event afterwards.
    fn append(
        &self,
        session: SessionId,
        at: Position,
        batch: Batch,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Reads up to `limit` events after number `after`, oldest first.
    fn events(
        &self,
        session: SessionId,
        after: u64,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Arc<Event>>, StoreError>> + Send;

    /// The number of the last event of a session; 0 if there is none.
    fn revision(&self, session: SessionId) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Writes a record unless there is one, and returns the one that was there.
    fn once(
        &self,
        key: RecordKey,
        record: Record,
    ) -> impl Future<Output = Result<Option<Record>, StoreError>> + Send;

    /// Reads a record.
    fn record(
        &self,
        key: &RecordKey,
    ) -> impl Future<Output = Result<Option<Record>, StoreError>> + Send;

    /// Keeps bytes under their digest. Keeping the same bytes twice is keeping them once.
    fn put_blob(&self, bytes: Bytes) -> impl Future<Output = Result<Digest, StoreError>> + Send;

    /// Reads a part of a blob; a range that reaches past the end is cut there.
    fn blob(
        &self,
        digest: Digest,
        range: Range<u64>,
    ) -> impl Future<Output = Result<Option<Bytes>, StoreError>> + Send;

    /// Lists records under [`RecordKey::Other`] whose key starts with `prefix`, in the order of their keys, from the
    /// one behind `after` on.
    fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<(Arc<str>, Record)>, StoreError>> + Send;

    /// The last `limit` messages of a session before number `before`, oldest first, with their numbers.
    fn messages(
        &self,
        session: SessionId,
        before: u64,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<(u64, Arc<Said>)>, StoreError>> + Send;

    /// Lets somebody drive a session, alone. An earlier holder's writes are refused from then on.
    ///
    /// Granted if nobody holds the session, the last lease has run out, the holder is the same, or the request names
    /// the lease that it replaces. Otherwise the error says who holds it.
    fn lease(
        &self,
        request: LeaseRequest,
    ) -> impl Future<Output = Result<Lease, StoreError>> + Send;

    /// Lets a lease run until another time, if it is still the newest.
    fn renew(
        &self,
        lease: &Lease,
        until: Timestamp,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Gives a lease back. Of one that is not the newest any more, nothing is said.
    fn release(&self, lease: &Lease) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Leaves something for whoever drives the session, together with records that must not exist yet.
    fn post(
        &self,
        session: SessionId,
        post: Post,
        records: Vec<(RecordKey, Record)>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// What was left for the session behind number `after` and not taken up yet, oldest first, with its numbers.
    fn posts(
        &self,
        session: SessionId,
        after: u64,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<(u64, Post)>, StoreError>> + Send;

    /// Completes when something behind number `after` was left for the session, by any process, and is not taken up yet.
    ///
    /// What was taken up completes nothing, so whoever knows no number yet can begin with 0. It may complete once for
    /// something that is taken up at the same moment.
    fn posted(&self, session: SessionId, after: u64) -> impl Future<Output = ()> + Send;

    /// Lists sessions, oldest first. Hidden ones are left out unless the filter asks for them.
    fn sessions(
        &self,
        filter: SessionFilter,
    ) -> impl Future<Output = Result<Vec<SessionRow>, StoreError>> + Send;

    /// Hides a session and those of its agents from then on, or brings them back. Nothing of them is lost, and whoever
    /// knows a hidden session can still use it. Of one that is not there, nothing is said.
    fn hide(
        &self,
        session: SessionId,
        at: Option<Timestamp>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Removes a session and those of its agents for good, all or nothing: events, messages, records of turns and calls,
    /// approvals, posts and leases. Of one that is not there, nothing is said.
    ///
    /// If somebody drives one of them at the time `now`, nothing is removed and the error says who. What is still set
    /// aside is booked, since nobody can find out any more what it took. What stays: chains, which have digests and must
    /// be whole; accounts; blobs, because others may have kept the same bytes; standing rules and the marks of used
    /// tokens; and the number of the newest lease, so that whoever drove the session long ago cannot write to it.
    fn erase(
        &self,
        session: SessionId,
        now: Timestamp,
    ) -> impl Future<Output = Result<Erased, StoreError>> + Send;

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

    /// Adds entries to the ends of their chains, all or none, and returns where they stand.
    fn seal(
        &self,
        drafts: Vec<LedgerDraft>,
    ) -> impl Future<Output = Result<Vec<LedgerHead>, StoreError>> + Send;

    /// Reads entries of a chain behind number `after`, in order.
    fn entries(
        &self,
        ledger: &LedgerName,
        after: u64,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<SealedEntry>, StoreError>> + Send;

    /// The end of every chain, by name.
    fn ledgers(&self) -> impl Future<Output = Result<Vec<LedgerHead>, StoreError>> + Send;

    /// Sets amounts aside in all accounts of a charge, or in none and says which is short.
    ///
    /// Charges made at the same time, by any process, never overshoot a limit together. If there is an open charge
    /// for the same thing, nothing is set aside anew and that one is returned: it is the one to settle or release.
    fn reserve(&self, charge: Charge) -> impl Future<Output = Result<Charge, StoreError>> + Send;

    /// Books what something took, line by line, in place of what was set aside for it, and returns how much more was
    /// spent from each account. A line without an amount is booked as it was set aside.
    ///
    /// If this very charge is not open any more, nothing is booked and nothing returned. So of all that happens to an
    /// account, each movement is told once.
    fn settle_charge(
        &self,
        charge: Charge,
        actual: Vec<u64>,
    ) -> impl Future<Output = Result<Vec<Movement>, StoreError>> + Send;

    /// Gives back what was set aside. If this very charge is not open any more, nothing happens.
    fn release_charge(&self, charge: Charge)
    -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Lists open charges, in the order of their names.
    fn charges(
        &self,
        filter: ChargeFilter,
    ) -> impl Future<Output = Result<Vec<Charge>, StoreError>> + Send;

    /// How an account stands; nothing if nothing was ever paid from it.
    fn account(
        &self,
        account: &AccountKey,
    ) -> impl Future<Output = Result<Option<AccountRow>, StoreError>> + Send;

    /// Lists accounts whose name starts with `prefix`, in the order of their names, from the one behind `after` on.
    fn accounts(
        &self,
        prefix: &str,
        after: Option<&AccountKey>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<AccountRow>, StoreError>> + Send;
}

/// Where a writer knows a log to stand, and by what right it writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// The number of the last event.
    pub revision: u64,
    /// The fence of the writer's lease; 0 for a session that was never leased.
    pub fence: u64,
    /// Lets the lease run until then, along with the write.
    pub lease_until: Option<Timestamp>,
}

impl Position {
    /// At the end of a log that was never leased.
    pub const fn unleased(revision: u64) -> Self {
        Self {
            revision,
            fence: 0,
            lease_until: None,
        }
    }

    /// Whether somebody here may write to a log of `session` that stands at `revision`, under the newest `fence`.
    pub const fn check(
        self,
        session: SessionId,
        revision: u64,
        fence: u64,
    ) -> Result<(), StoreError> {
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

/// What is written together.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// Events, in order.
    pub events: Vec<Arc<Event>>,
    /// Records that must not exist yet. A key that is given twice counts as one that exists.
    pub records: Vec<(RecordKey, Record)>,
    /// Entries for the ends of chains.
    pub entries: Vec<LedgerDraft>,
    /// Every post up to this number is taken up by this batch.
    pub taken_posts: Option<u64>,
}

impl Batch {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        let Self {
            events,
            records,
            entries,
            taken_posts,
        } = self;
        events.is_empty() && records.is_empty() && entries.is_empty() && taken_posts.is_none()
    }
}

/// Names a record.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RecordKey {
    /// What came of a call. The first outcome stands.
    Outcome(CallId),
    /// What the model asked for in a turn.
    Requests(TurnId),
    /// That a turn is settled as a whole.
    Ended(TurnId),
    /// The turn that continued another one. There is only one.
    Successor(TurnId),
    /// The question about a call, by generation.
    Question(CallId, u32),
    /// The answer to it.
    Answer(CallId, u32),
    /// The result of an attempt that ran outside, counted from 1.
    Result(CallId, u32),
    /// Something a layer did once for a call.
    Layer(CallId, Arc<str>),
    /// A message of a session, numbered from 0 without gaps.
    Message(SessionId, u64),
    /// Anything else.
    Other(Arc<str>),
}

impl fmt::Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outcome(call) => write!(f, "outcome/{call}"),
            Self::Requests(turn) => write!(f, "requests/{turn}"),
            Self::Ended(turn) => write!(f, "ended/{turn}"),
            Self::Successor(turn) => write!(f, "successor/{turn}"),
            Self::Question(call, generation) => write!(f, "question/{call}/{generation}"),
            Self::Answer(call, generation) => write!(f, "answer/{call}/{generation}"),
            Self::Result(call, attempt) => write!(f, "result/{call}/{attempt}"),
            Self::Layer(call, key) => write!(f, "layer/{call}/{key}"),
            Self::Message(session, number) => {
                f.write_str(&crate::message::message_key(*session, *number))
            }
            Self::Other(key) => write!(f, "other/{key}"),
        }
    }
}

/// A record that is written once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// What came of a call.
    Outcome(Arc<Settled>),
    /// What the model asked for in a turn.
    Requests(Arc<TurnRequests>),
    /// A turn.
    Turn(TurnId),
    /// A question.
    Question(Arc<ApprovalRequest>),
    /// An answer.
    Answer(Arc<Answer>),
    /// A message.
    Message(Arc<Said>),
    /// Anything else.
    Json(Json),
}

/// What the model asked for in a turn, raw, so that the turn can be taken up again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnRequests {
    /// The turn.
    pub info: Arc<TurnInfo>,
    /// The number of the last event before the turn; its own events come after it.
    pub after_sequence: u64,
    /// The requests in order, with the ids and labels under which they were taken in.
    pub calls: Vec<TakenCall>,
}

/// One request as it was taken in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TakenCall {
    /// The runtime's own id.
    pub id: CallId,
    /// The label under which the provider is answered.
    pub call_id: Arc<str>,
    /// What the model wrote.
    pub request: ToolRequest,
    /// What came of it, if the provider has run it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran: Option<Arc<ProviderCall>>,
}

/// Why the store could not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another writer saved first; load the session again.
    #[error("session {session} has moved on to revision {found}")]
    Conflict {
        /// Which session.
        session: SessionId,
        /// Where its log ends now.
        found: u64,
    },
    /// A record of the batch exists already, so nothing of the batch was written.
    #[error("{key} was written before")]
    Exists {
        /// Which record.
        key: RecordKey,
    },
    /// The events of a batch do not continue the log.
    #[error("event {found} does not follow event {expected}")]
    Gap {
        /// The last number of the log or of the event before.
        expected: u64,
        /// The number that came.
        found: u64,
    },
    /// Somebody else has taken the lease since; nothing was written.
    #[error("session {session} is driven by somebody else now")]
    Fenced {
        /// Which session.
        session: SessionId,
        /// The fence of the newest lease.
        found: u64,
    },
    /// Somebody else holds the lease.
    #[error("session {session} is driven by {holder} until {until}")]
    Held {
        /// Which session.
        session: SessionId,
        /// Who holds it.
        holder: Arc<str>,
        /// Until when, unless it is renewed.
        until: Timestamp,
        /// The fence of its lease.
        fence: u64,
    },
    /// There is not enough left in an account, so nothing was set aside.
    #[error("{wanted} is more than the {left} that is left in {account}")]
    Short {
        /// Which account.
        account: AccountKey,
        /// How much was wanted from it.
        wanted: u64,
        /// How much is left in it.
        left: u64,
    },
    /// What is stored cannot be read; it was changed by something else or is damaged.
    #[error("{what} in the store cannot be read")]
    Damaged {
        /// What it is.
        what: String,
        /// What is wrong with it.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The store failed; `source()` has the cause.
    #[error("the store did not complete the request")]
    Backend(#[source] Box<dyn std::error::Error + Send + Sync>),
}
