//! Records that are written once, messages, and blobs.

use std::{fmt, future::Future, ops::Range, sync::Arc};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    ApprovalAnswer, ApprovalRequest, CallId, Digest, Json, MessageRecord, ProviderCall, SessionId,
    SettledOutcome, StoreError, ToolRequest, TurnId, TurnInfo,
};

/// Records that are written once and never changed, and bytes under their digest.
pub trait RecordStore: Send + Sync + 'static {
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

    /// Stores bytes under their digest. Storing the same bytes twice stores them once.
    fn put_blob(&self, bytes: Bytes) -> impl Future<Output = Result<Digest, StoreError>> + Send;

    /// Reads a part of a blob; a range that reaches past the end is truncated there.
    fn blob(
        &self,
        digest: Digest,
        range: Range<u64>,
    ) -> impl Future<Output = Result<Option<Bytes>, StoreError>> + Send;
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
            // Padded, so that the names sort like the numbers.
            Self::Message(session, number) => write!(f, "message/{session}/{number:012}"),
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
