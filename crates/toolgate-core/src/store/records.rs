//! Records that are written once, messages, and blobs.

use std::{future::Future, ops::Range, sync::Arc};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    ApprovalAnswer, ApprovalRequest, CallId, Digest, ErasureNames, Json, MessageRecord,
    ProviderCall, RecordKey, RunRecord, SessionId, SettledOutcome, StoreError, StoreHandle,
    ToolRequest, TurnId, TurnInfo,
};

/// Records that are written once and never changed, and bytes under their digest.
///
/// The kind of a record follows from its key. [`StoreHandle`] reads and writes each kind with
/// methods of its own, such as [`load_outcome`](StoreHandle::load_outcome): a record of another kind
/// is an error there, and never counts as missing.
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

    /// Returns the records under these keys, in the order of the keys; `None` for one that does not
    /// exist. A store reads them in one step, as of one moment.
    fn load_records(
        &self,
        keys: &[RecordKey],
    ) -> impl Future<Output = Result<Vec<Option<StoreRecord>>, StoreError>> + Send;

    /// Lists records under [`RecordKey::Other`] whose key starts with `prefix`, in the order of
    /// their keys, starting after `after`.
    fn list_records(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<(Arc<str>, StoreRecord)>, StoreError>> + Send;

    /// Returns the records with these names, in the order of their names, starting after the name
    /// `after`. Names are those that [`RecordKey`] displays.
    ///
    /// It is how everything that belongs to a session is read, whatever layer stored it.
    fn records_named(
        &self,
        names: &ErasureNames,
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
    /// The settings of a run.
    Run(Arc<RunRecord>),
    /// Anything else.
    Json(Json),
}

/// The content of one kind of record.
pub trait RecordContent: Sized {
    /// The stored word for the kind.
    const KIND: &'static str;

    /// Returns the content, or the record if it is of another kind.
    fn from_record(record: StoreRecord) -> Result<Self, StoreRecord>;

    /// Creates the record.
    fn into_record(self) -> StoreRecord;
}

/// Ties each kind of record to the type of its content and to its stored word.
macro_rules! record_kinds {
    ($($kind:ident($content:ty) = $word:literal;)*) => {
        impl StoreRecord {
            /// Returns the stored word for the kind.
            pub const fn kind(&self) -> &'static str {
                match self { $(Self::$kind(_) => $word,)* }
            }
        }

        $(impl RecordContent for $content {
            const KIND: &'static str = $word;

            fn from_record(record: StoreRecord) -> Result<Self, StoreRecord> {
                if let StoreRecord::$kind(content) = record { Ok(content) } else { Err(record) }
            }

            fn into_record(self) -> StoreRecord {
                StoreRecord::$kind(self)
            }
        })*
    };
}

record_kinds! {
    Outcome(Arc<SettledOutcome>) = "outcome";
    Requests(Arc<TurnRequests>) = "requests";
    Turn(TurnId) = "turn";
    Question(Arc<ApprovalRequest>) = "question";
    Answer(Arc<ApprovalAnswer>) = "answer";
    Message(Arc<MessageRecord>) = "message";
    Run(Arc<RunRecord>) = "run";
    Json(Json) = "json";
}

impl StoreRecord {
    /// Returns the content of the record with this key.
    ///
    /// # Errors
    ///
    /// [`StoreError::WrongRecordKind`] if the record is of another kind.
    pub fn into_content<T: RecordContent>(self, key: &RecordKey) -> Result<T, StoreError> {
        T::from_record(self).map_err(|record| StoreError::WrongRecordKind {
            key: key.clone(),
            expected: T::KIND,
            found: record.kind(),
        })
    }
}

/// Defines a method for each kind of key whose record is loaded.
macro_rules! typed_records {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) -> $content:ty = $key:expr;)*) => {
        impl StoreHandle {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                ///
                /// [`StoreError::WrongRecordKind`] if the stored record is of another kind.
                pub async fn $name(&self, $($arg: $type),*) -> Result<Option<$content>, StoreError> {
                    self.load_content(&$key).await
                }
            )*
        }
    };
}

typed_records! {
    /// Loads the outcome of a call.
    load_outcome(call: CallId) -> Arc<SettledOutcome> = RecordKey::Outcome(call);
    /// Loads the model's requests in a turn.
    load_turn_requests(turn: TurnId) -> Arc<TurnRequests> = RecordKey::Requests(turn);
    /// Loads the mark that a turn is settled as a whole.
    load_turn_end(turn: TurnId) -> TurnId = RecordKey::Ended(turn);
    /// Loads the turn that continued another one.
    load_successor(turn: TurnId) -> TurnId = RecordKey::Successor(turn);
    /// Loads an approval request as it was made, not as events and lists show it.
    load_approval_request(call: CallId, generation: u32) -> Arc<ApprovalRequest> =
        RecordKey::Question(call, generation);
    /// Loads the answer to an approval request.
    load_answer(call: CallId, generation: u32) -> Arc<ApprovalAnswer> =
        RecordKey::Answer(call, generation);
    /// Loads the external result of an attempt, counted from 1.
    load_result(call: CallId, attempt: u32) -> Arc<SettledOutcome> =
        RecordKey::Result(call, attempt);
    /// Loads the settings of a run, by the number of the message that begins it.
    load_run(session: SessionId, number: u64) -> Arc<RunRecord> = RecordKey::Run(session, number);
    /// Loads a record that a layer or another part of the program stored as JSON.
    load_json(key: &RecordKey) -> Json = *key;
}

impl StoreHandle {
    /// Writes JSON unless there is a record, and returns the one that was there.
    ///
    /// # Errors
    ///
    /// [`StoreError::WrongRecordKind`] if there is a record of another kind.
    pub async fn put_json_once(
        &self,
        key: RecordKey,
        value: Json,
    ) -> Result<Option<Json>, StoreError> {
        self.put_content_once(key, value).await
    }

    /// Lists the JSON under [`RecordKey::Other`] as [`RecordStore::list_records`] does.
    ///
    /// # Errors
    ///
    /// [`StoreError::WrongRecordKind`] if one of the records is of another kind.
    pub async fn list_json(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Arc<str>, Json)>, StoreError> {
        let found = self.list_records(prefix, after, limit).await?;
        let typed = found.into_iter().map(|(name, record)| {
            let value = record.into_content(&RecordKey::Other(name.clone()))?;
            Ok((name, value))
        });
        typed.collect()
    }

    async fn load_content<T: RecordContent>(
        &self,
        key: &RecordKey,
    ) -> Result<Option<T>, StoreError> {
        let found = self.load_record(key).await?;
        found.map(|record| record.into_content(key)).transpose()
    }

    async fn put_content_once<T: RecordContent>(
        &self,
        key: RecordKey,
        content: T,
    ) -> Result<Option<T>, StoreError> {
        let there = self
            .put_record_once(key.clone(), content.into_record())
            .await?;
        there.map(|record| record.into_content(&key)).transpose()
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arguments, Call, MemoryStore, Message, Status};
    use uuid::Uuid;

    const CALL: CallId = CallId::new(Uuid::from_u128(1));
    const TURN: TurnId = TurnId::new(Uuid::from_u128(2));

    /// Returns a store with a record of the wrong kind under `key`.
    async fn store_with_wrong_kind(key: &RecordKey) -> StoreHandle {
        let store = StoreHandle::new(MemoryStore::new());
        let wrong = match key {
            RecordKey::Layer(..) | RecordKey::Other(_) => StoreRecord::Turn(TURN),
            _ => StoreRecord::Json(Json::null()),
        };
        store
            .put_record_once(key.clone(), wrong)
            .await
            .expect("is stored");
        store
    }

    fn is_wrong_kind<T>(found: Result<T, StoreError>, key: &RecordKey, kind: &str) -> bool {
        matches!(
            found,
            Err(StoreError::WrongRecordKind { key: named, expected, found })
                if named == *key && expected == kind && found != kind
        )
    }

    #[test]
    fn a_record_of_the_wrong_kind_is_an_error_for_every_kind() {
        futures::executor::block_on(async {
            macro_rules! check {
                ($key:expr, $kind:literal, $load:ident($($arg:expr),*)) => {
                    let store = store_with_wrong_kind(&$key).await;
                    assert!(is_wrong_kind(store.$load($($arg),*).await, &$key, $kind), $kind);
                };
            }
            check!(RecordKey::Outcome(CALL), "outcome", load_outcome(CALL));
            check!(
                RecordKey::Requests(TURN),
                "requests",
                load_turn_requests(TURN)
            );
            check!(RecordKey::Ended(TURN), "turn", load_turn_end(TURN));
            check!(RecordKey::Successor(TURN), "turn", load_successor(TURN));
            check!(
                RecordKey::Question(CALL, 1),
                "question",
                load_approval_request(CALL, 1)
            );
            check!(RecordKey::Answer(CALL, 1), "answer", load_answer(CALL, 1));
            check!(RecordKey::Result(CALL, 1), "outcome", load_result(CALL, 1));
            let session = SessionId::new(Uuid::from_u128(3));
            check!(RecordKey::Run(session, 0), "run", load_run(session, 0));
            let layer = RecordKey::Layer(CALL, "x".into());
            check!(layer, "json", load_json(&layer));
            check!(layer, "json", put_json_once(layer.clone(), Json::null()));
            let other = RecordKey::Other("x/y".into());
            check!(other, "json", load_json(&other));
            check!(other, "json", list_json("x/", None, 10));
            let message = RecordKey::Message(session, 0);
            check!(message, "message", messages(session, u64::MAX, 10));
        });
    }

    #[test]
    fn an_action_with_a_record_of_the_wrong_kind_does_not_run() {
        futures::executor::block_on(async {
            let call = Call::detached("t", Arguments::empty());
            let key = RecordKey::Layer(call.id, "k".into());
            let store = call.env().store();
            let wrong = store.put_record_once(key.clone(), StoreRecord::Turn(TURN));
            wrong.await.expect("is stored");
            let done = call.perform_once("k", || async { panic!("it runs") });
            assert!(is_wrong_kind(done.await, &key, "json"));
        });
    }

    #[test]
    fn a_kind_has_the_word_under_which_it_is_stored() {
        let message = Arc::new(Message::user("x"));
        let records = [
            StoreRecord::Outcome(Arc::new(SettledOutcome::new(Status::Ok))),
            StoreRecord::Turn(TURN),
            StoreRecord::Message(Arc::new(MessageRecord::new(TURN, 0, 0, message))),
            StoreRecord::Run(Arc::default()),
            StoreRecord::Json(Json::null()),
        ];
        for record in records {
            let stored = serde_json::to_value(&record).expect("is JSON");
            assert!(stored.get(record.kind()).is_some(), "{stored}");
        }
    }
}
