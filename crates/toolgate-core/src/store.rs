//! Where sessions live: an ordered log of events per session, records that are written once, and blobs.

use std::{fmt, future::Future, ops::Range, sync::Arc};

use bytes::Bytes;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::{Answer, ApprovalRequest, CallId, Digest, Event, Json, SessionId, Settled, ToolRequest, TurnId, TurnInfo};

/// Keeps what must not be lost.
///
/// A session is its log of events, numbered from 1 without gaps. Appending names the last number the
/// writer knows; if the log has moved on, nothing is written, which is what keeps two processes from
/// driving one session. Records are written once and never changed. When an `append` or `once` returns,
/// what it wrote survives the loss of the process.
pub trait Store: Send + Sync + 'static {
    /// Appends a batch whole or not at all, if the log of `session` ends at `expected`.
    ///
    /// Returns the number of the last event afterwards.
    fn append(
        &self,
        session: SessionId,
        expected: u64,
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
    fn once(&self, key: RecordKey, record: Record) -> impl Future<Output = Result<Option<Record>, StoreError>> + Send;

    /// Reads a record.
    fn record(&self, key: &RecordKey) -> impl Future<Output = Result<Option<Record>, StoreError>> + Send;

    /// Keeps bytes under their digest. Keeping the same bytes twice is keeping them once.
    fn put_blob(&self, bytes: Bytes) -> impl Future<Output = Result<Digest, StoreError>> + Send;

    /// Reads a part of a blob; a range that reaches past the end is cut there.
    fn blob(&self, digest: Digest, range: Range<u64>)
    -> impl Future<Output = Result<Option<Bytes>, StoreError>> + Send;
}

/// What is written together.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// Events, in order.
    pub events: Vec<Arc<Event>>,
    /// Records that must not exist yet.
    pub records: Vec<(RecordKey, Record)>,
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
    /// Anything else.
    Json(Json),
}

/// What the model asked for in a turn, raw, so that the turn can be taken up again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnRequests {
    /// The turn.
    pub info: TurnInfo,
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
    /// The store failed; `source()` has the cause.
    #[error("the store did not complete the request")]
    Backend(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Any store, shared.
#[derive(Clone)]
pub struct StoreHandle(Arc<dyn DynStore>);

impl StoreHandle {
    /// Shares a store.
    pub fn new(store: impl Store) -> Self {
        Self(Arc::new(store))
    }

    /// See [`Store::append`].
    pub fn append(
        &self,
        session: SessionId,
        expected: u64,
        batch: Batch,
    ) -> BoxFuture<'static, Result<u64, StoreError>> {
        self.0.clone().append(session, expected, batch)
    }

    /// See [`Store::events`].
    pub async fn events(&self, session: SessionId, after: u64, limit: usize) -> Result<Vec<Arc<Event>>, StoreError> {
        self.0.events(session, after, limit).await
    }

    /// See [`Store::revision`].
    pub async fn revision(&self, session: SessionId) -> Result<u64, StoreError> {
        self.0.revision(session).await
    }

    /// See [`Store::once`].
    pub async fn once(&self, key: RecordKey, record: Record) -> Result<Option<Record>, StoreError> {
        self.0.once(key, record).await
    }

    /// See [`Store::record`].
    pub async fn record(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        self.0.record(key).await
    }

    /// See [`Store::put_blob`].
    pub async fn put_blob(&self, bytes: Bytes) -> Result<Digest, StoreError> {
        self.0.put_blob(bytes).await
    }

    /// See [`Store::blob`].
    pub async fn blob(&self, digest: Digest, range: Range<u64>) -> Result<Option<Bytes>, StoreError> {
        self.0.blob(digest, range).await
    }
}

impl fmt::Debug for StoreHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreHandle")
    }
}

/// [`Store`] as it is kept behind a handle.
trait DynStore: Send + Sync {
    fn append(
        self: Arc<Self>,
        session: SessionId,
        expected: u64,
        batch: Batch,
    ) -> BoxFuture<'static, Result<u64, StoreError>>;
    fn events(
        &self,
        session: SessionId,
        after: u64,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<Arc<Event>>, StoreError>>;
    fn revision(&self, session: SessionId) -> BoxFuture<'_, Result<u64, StoreError>>;
    fn once(&self, key: RecordKey, record: Record) -> BoxFuture<'_, Result<Option<Record>, StoreError>>;
    fn record<'a>(&'a self, key: &'a RecordKey) -> BoxFuture<'a, Result<Option<Record>, StoreError>>;
    fn put_blob(&self, bytes: Bytes) -> BoxFuture<'_, Result<Digest, StoreError>>;
    fn blob(&self, digest: Digest, range: Range<u64>) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>>;
}

impl<S: Store> DynStore for S {
    fn append(
        self: Arc<Self>,
        session: SessionId,
        expected: u64,
        batch: Batch,
    ) -> BoxFuture<'static, Result<u64, StoreError>> {
        Box::pin(async move { Store::append(&*self, session, expected, batch).await })
    }
    fn events(
        &self,
        session: SessionId,
        after: u64,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<Arc<Event>>, StoreError>> {
        Box::pin(Store::events(self, session, after, limit))
    }
    fn revision(&self, session: SessionId) -> BoxFuture<'_, Result<u64, StoreError>> {
        Box::pin(Store::revision(self, session))
    }
    fn once(&self, key: RecordKey, record: Record) -> BoxFuture<'_, Result<Option<Record>, StoreError>> {
        Box::pin(Store::once(self, key, record))
    }
    fn record<'a>(&'a self, key: &'a RecordKey) -> BoxFuture<'a, Result<Option<Record>, StoreError>> {
        Box::pin(Store::record(self, key))
    }
    fn put_blob(&self, bytes: Bytes) -> BoxFuture<'_, Result<Digest, StoreError>> {
        Box::pin(Store::put_blob(self, bytes))
    }
    fn blob(&self, digest: Digest, range: Range<u64>) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>> {
        Box::pin(Store::blob(self, digest, range))
    }
}
