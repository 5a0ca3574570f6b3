//! What is written and read, as text. It is made where the caller waits, so that the writer only writes.

use std::sync::Arc;

use serde::{Serialize, de::DeserializeOwned};
use toolgate_core::{
    AccountKey, ApprovalState, Batch, Event, Hidden, LedgerDraft, Record, RecordKey, RowChange,
    Said, SessionId, StoreError, Timestamp,
};

/// The bytes of one piece of a blob.
pub(crate) const PIECE: u64 = 256 * 1024;

/// A batch in the form in which it is written.
pub(crate) struct EncodedBatch {
    pub(crate) events: Vec<EncodedEvent>,
    pub(crate) records: Vec<EncodedRecord>,
    pub(crate) entries: Vec<LedgerDraft>,
    pub(crate) taken_posts: Option<u64>,
}

/// An event in the form in which it is written.
pub(crate) struct EncodedEvent {
    pub(crate) sequence: u64,
    pub(crate) at: Timestamp,
    pub(crate) body: String,
    pub(crate) change: Option<RowChange>,
}

/// A record in the form in which it is written.
pub(crate) struct EncodedRecord {
    pub(crate) key: RecordKey,
    pub(crate) name: String,
    pub(crate) body: String,
}

impl EncodedBatch {
    pub(crate) fn new(batch: Batch) -> Result<Self, StoreError> {
        let events = batch
            .events
            .into_iter()
            .map(EncodedEvent::new)
            .collect::<Result<_, _>>()?;
        let records = encode_records(batch.records)?;
        Ok(Self {
            events,
            records,
            entries: batch.entries,
            taken_posts: batch.taken_posts,
        })
    }

    /// Checks that the events continue a log that ends with number `revision`.
    pub(crate) fn check_sequence(&self, revision: u64) -> Result<(), StoreError> {
        for (before, event) in (revision..).zip(&self.events) {
            if event.sequence != before + 1 {
                return Err(StoreError::Gap {
                    expected: before,
                    found: event.sequence,
                });
            }
        }
        Ok(())
    }
}

impl EncodedEvent {
    fn new(event: Arc<Event>) -> Result<Self, StoreError> {
        let change = RowChange::of(&event);
        Ok(Self {
            sequence: event.sequence(),
            at: event.at(),
            body: to_text(&*event)?,
            change,
        })
    }
}

impl EncodedRecord {
    pub(crate) fn new(key: RecordKey, record: &Record) -> Result<Self, StoreError> {
        Ok(Self {
            name: key.to_string(),
            body: to_text(record)?,
            key,
        })
    }
}

pub(crate) fn encode_records(
    records: Vec<(RecordKey, Record)>,
) -> Result<Vec<EncodedRecord>, StoreError> {
    records
        .into_iter()
        .map(|(key, record)| EncodedRecord::new(key, &record))
        .collect()
}

/// Writes something as JSON.
pub(crate) fn to_text(value: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Backend(Box::new(error)))
}

/// Reads what [`to_text`] wrote; `what` names it if it is damaged.
pub(crate) fn from_text<T: DeserializeOwned>(
    text: &str,
    what: impl FnOnce() -> String,
) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| StoreError::Damaged {
        what: what(),
        source: Box::new(error),
    })
}

/// The names of a session's messages: the first there can be, and the end of those before number `before`.
pub(crate) fn message_keys(session: SessionId, before: u64) -> [String; 2] {
    // Names sort like numbers only up to a number of digits that no session reaches.
    [0, before.min(999_999_999_999)].map(|number| RecordKey::Message(session, number).to_string())
}

/// A message and its number.
pub(crate) fn message(key: &str, record: Record) -> Result<(u64, Arc<Said>), StoreError> {
    let number = key
        .rsplit_once('/')
        .and_then(|(_, number)| number.parse().ok());
    match (number, record) {
        (Some(number), Record::Message(said)) => Ok((number, said)),
        _ => Err(StoreError::Damaged {
            what: key.to_owned(),
            source: "it is no message".into(),
        }),
    }
}

/// The end of all names that start like `start`, which ends with a slash.
pub(crate) fn end_of(start: &str) -> String {
    // The character after the slash.
    format!("{}0", start.strip_suffix('/').unwrap_or(start))
}

/// Reads the name of an account.
pub(crate) fn account_key(text: &str) -> Result<AccountKey, StoreError> {
    text.parse().map_err(|error| StoreError::Damaged {
        what: "the name of an account".into(),
        source: Box::new(error),
    })
}

/// The state of an approval as it is kept: a word of its own, or the word of a status.
pub(crate) fn state_word(state: ApprovalState) -> &'static str {
    match state {
        ApprovalState::Pending => "pending",
        ApprovalState::Answered => "answered",
        ApprovalState::Settled(status) => status.as_str(),
    }
}

/// Reads what [`state_word`] wrote.
pub(crate) fn state_of(word: &str) -> Result<ApprovalState, StoreError> {
    match word {
        "pending" => Ok(ApprovalState::Pending),
        "answered" => Ok(ApprovalState::Answered),
        status => status
            .parse()
            .map(ApprovalState::Settled)
            .map_err(|error| StoreError::Damaged {
                what: "the state of an approval".into(),
                source: Box::new(error),
            }),
    }
}

/// The condition that leaves out what a list of sessions does not show.
pub(crate) fn hidden_condition(hidden: Hidden) -> &'static str {
    match hidden {
        Hidden::LeftOut => "AND hidden_at IS NULL",
        Hidden::Included => "",
        Hidden::Only => "AND hidden_at IS NOT NULL",
    }
}

/// A number as databases count; nothing real is larger than they can.
pub(crate) fn to_db(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number back from a database.
pub(crate) fn from_db(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// A limit as databases count.
pub(crate) fn limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate_core::Status;

    #[test]
    fn every_state_of_an_approval_is_read_back() {
        let states = Status::ALL.into_iter().map(ApprovalState::Settled);
        for state in states.chain([ApprovalState::Pending, ApprovalState::Answered]) {
            assert_eq!(state_of(state_word(state)).expect("a known word"), state);
        }
        assert!(matches!(
            state_of("approved"),
            Err(StoreError::Damaged { .. })
        ));
    }
}
