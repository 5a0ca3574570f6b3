//! Batches and rows as text. Encoding happens on the caller's task, so that the writer only writes.

use std::{borrow::Cow, sync::Arc};

use serde::{Serialize, de::DeserializeOwned};
use toolgate_core::{
    AccountKey, AccountRow, ApprovalState, Charge, Digest, Event, HiddenSessions, Labels, LastRun,
    LedgerDraft, MailboxItem, MessageRecord, Principal, RecordKey, RowChange, RunState, SessionId,
    SessionOrder, SessionTitle, SessionTotals, SessionUpdate, StoreError, StoreRecord, Timestamp,
    WriteBatch,
};

use crate::checksum::{RowChecksum, row_name};

/// The size in bytes of one piece of a blob.
pub(crate) const BLOB_PIECE_BYTES: u64 = 256 * 1024;

/// A batch in its encoded form.
pub(crate) struct EncodedBatch {
    pub(crate) events: Vec<EncodedEvent>,
    pub(crate) records: Vec<EncodedRecord>,
    pub(crate) entries: Vec<LedgerDraft>,
    pub(crate) taken_posts: Option<u64>,
    pub(crate) session: Option<EncodedSessionUpdate>,
    /// True if the events are a use of the session.
    pub(crate) is_use: bool,
    /// What the events add to the totals of the session.
    pub(crate) totals: SessionTotals,
}

/// The changed columns of a session's row, in their encoded form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EncodedSessionUpdate {
    pub(crate) principal: Option<Principal>,
    /// JSON; never empty, so that a column without a change can be told apart.
    pub(crate) labels: Cow<'static, str>,
    pub(crate) last_run: Option<LastRun>,
    pub(crate) title: Option<SessionTitle>,
}

/// An event in its encoded form.
pub(crate) struct EncodedEvent {
    pub(crate) sequence: u64,
    pub(crate) at: Timestamp,
    pub(crate) body: String,
    pub(crate) checksum: RowChecksum,
    pub(crate) change: Option<RowChange>,
}

/// A record in its encoded form.
pub(crate) struct EncodedRecord {
    pub(crate) key: RecordKey,
    pub(crate) name: String,
    pub(crate) body: String,
    pub(crate) checksum: RowChecksum,
}

/// The form in which a database stores the bodies of a write. Events come first, in order.
pub(crate) trait BodyEncoder {
    /// Returns the body of an event as it is stored.
    fn encode_event(&mut self, event: &Event, body: String) -> String;

    /// Returns the body of a record as it is stored.
    fn encode_record(&mut self, key: &RecordKey, body: String) -> String;
}

/// Stores every body as it is.
pub(crate) struct WholeBodies;

impl BodyEncoder for WholeBodies {
    fn encode_event(&mut self, _: &Event, body: String) -> String {
        body
    }

    fn encode_record(&mut self, _: &RecordKey, body: String) -> String {
        body
    }
}

impl EncodedBatch {
    /// Encodes a batch.
    pub(crate) fn new(
        of: SessionId,
        batch: WriteBatch,
        bodies: &mut impl BodyEncoder,
    ) -> Result<Self, StoreError> {
        let session = SessionUpdate::from_events(batch.events.iter())
            .map(EncodedSessionUpdate::new)
            .transpose()?;
        let is_first = batch
            .events
            .first()
            .is_some_and(|event| event.sequence() == 1);
        let is_use = is_first || session.is_some();
        let totals = SessionTotals::from_events(batch.events.iter().map(|event| &**event));
        let events = batch
            .events
            .into_iter()
            .map(|event| EncodedEvent::new(of, event, bodies))
            .collect::<Result<_, _>>()?;
        let records = batch
            .records
            .into_iter()
            .map(|(key, record)| EncodedRecord::encode(key, &record, bodies))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            events,
            records,
            entries: batch.entries,
            taken_posts: batch.taken_posts,
            session,
            is_use,
            totals,
        })
    }
}

impl EncodedSessionUpdate {
    fn new(update: SessionUpdate) -> Result<Self, StoreError> {
        let labels = if update.labels.is_empty() {
            Cow::Borrowed("{}")
        } else {
            Cow::Owned(encode_json(&update.labels)?)
        };
        Ok(Self {
            principal: update.principal,
            labels,
            last_run: update.last_run,
            title: update.title,
        })
    }
}

impl EncodedEvent {
    fn new(
        session: SessionId,
        event: Arc<Event>,
        bodies: &mut impl BodyEncoder,
    ) -> Result<Self, StoreError> {
        let change = RowChange::from_event(&event);
        let sequence = event.sequence();
        let body = bodies.encode_event(&event, encode_json(&*event)?);
        Ok(Self {
            sequence,
            at: event.at(),
            checksum: RowChecksum::of_event(session, sequence, &body),
            body,
            change,
        })
    }
}

impl EncodedRecord {
    /// Encodes a record that is stored whole.
    pub(crate) fn new(key: RecordKey, record: &StoreRecord) -> Result<Self, StoreError> {
        Self::encode(key, record, &mut WholeBodies)
    }

    fn encode(
        key: RecordKey,
        record: &StoreRecord,
        bodies: &mut impl BodyEncoder,
    ) -> Result<Self, StoreError> {
        let name = key.to_string();
        let body = bodies.encode_record(&key, encode_json(record)?);
        Ok(Self {
            checksum: RowChecksum::of_record(&name, &body),
            name,
            body,
            key,
        })
    }
}

pub(crate) fn encode_records(
    records: Vec<(RecordKey, StoreRecord)>,
) -> Result<Vec<EncodedRecord>, StoreError> {
    records
        .into_iter()
        .map(|(key, record)| EncodedRecord::new(key, &record))
        .collect()
}

/// Encodes a value as JSON.
pub(crate) fn encode_json(value: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Backend(Box::new(error)))
}

/// Parses what [`encode_json`] encoded; `what` names the value in an error.
pub(crate) fn decode_json<T: DeserializeOwned>(
    text: &str,
    what: impl FnOnce() -> String,
) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| StoreError::Damaged {
        what: what(),
        source: Box::new(error),
    })
}

/// Names a record in an error.
pub(crate) fn record_name(name: &str) -> String {
    format!("the record {name}")
}

/// Checks the checksum of a record's body as it is stored.
pub(crate) fn check_record_body(
    name: &str,
    stored: &str,
    checksum: Option<i64>,
) -> Result<(), StoreError> {
    RowChecksum::of_record(name, stored).check(checksum, || record_name(name))
}

/// Parses the body of a record that is stored whole, after a check of its checksum.
pub(crate) fn decode_record(
    name: &str,
    body: &str,
    checksum: Option<i64>,
) -> Result<StoreRecord, StoreError> {
    check_record_body(name, body, checksum)?;
    decode_json(body, || record_name(name))
}

/// Names an event in an error.
pub(crate) fn event_name(session: SessionId, sequence: u64) -> String {
    format!("event {sequence} of session {session}")
}

/// Checks the checksum of an event's body as it is stored.
pub(crate) fn check_event_body(
    session: SessionId,
    sequence: u64,
    stored: &str,
    checksum: Option<i64>,
) -> Result<(), StoreError> {
    let computed = RowChecksum::of_event(session, sequence, stored);
    computed.check(checksum, || event_name(session, sequence))
}

/// Parses the whole body of an event.
pub(crate) fn decode_event_body(
    session: SessionId,
    sequence: u64,
    body: &str,
) -> Result<Event, StoreError> {
    decode_json(body, || event_name(session, sequence))
}

/// Parses the body of an event that is stored whole, after a check of its checksum.
#[cfg(feature = "postgres")]
pub(crate) fn decode_event(
    session: SessionId,
    sequence: u64,
    body: &str,
    checksum: Option<i64>,
) -> Result<Event, StoreError> {
    check_event_body(session, sequence, body, checksum)?;
    decode_event_body(session, sequence, body)
}

/// Returns the key range of a session's messages: the smallest key, and the end of those before
/// number `before`.
pub(crate) fn message_keys(session: SessionId, before: u64) -> [String; 2] {
    // Keys are zero-padded: they sort like numbers only up to a number of digits that no session
    // reaches.
    [0, before.min(999_999_999_999)].map(|number| RecordKey::Message(session, number).to_string())
}

/// Returns the number of a message and the message.
pub(crate) fn decode_message(
    session: SessionId,
    name: &str,
    record: StoreRecord,
) -> Result<(u64, Arc<MessageRecord>), StoreError> {
    let number = name.rsplit_once('/').map_or(name, |(_, number)| number);
    let number = number
        .parse()
        .map_err(|error: std::num::ParseIntError| StoreError::Damaged {
            what: name.to_owned(),
            source: Box::new(error),
        })?;
    let message = record.into_content(&RecordKey::Message(session, number))?;
    Ok((number, message))
}

/// Checks that a blob that was read whole has the digest that names it. A part of one cannot be
/// checked.
pub(crate) fn check_blob(digest: Digest, found: &[u8], size: u64) -> Result<(), StoreError> {
    if (found.len() as u64) < size || Digest::of_bytes(found) == digest {
        return Ok(());
    }
    Err(StoreError::Damaged {
        what: format!("blob {digest}"),
        source: "its content has another digest".into(),
    })
}

/// Returns the end of the key range that starts with `start`, which ends with a slash.
#[cfg(feature = "postgres")]
pub(crate) fn prefix_end(start: &str) -> String {
    // `0` is the character after the slash.
    format!("{}0", start.strip_suffix('/').unwrap_or(start))
}

/// Reads an account, after a check of its checksum.
pub(crate) fn decode_account(
    key: &[u8],
    spent: i64,
    reserved: i64,
    checksum: Option<i64>,
) -> Result<AccountRow, StoreError> {
    let name = String::from_utf8_lossy(key);
    let what = || row_name("accounts", &name);
    RowChecksum::of_account(key, spent, reserved).check(checksum, what)?;
    let account: AccountKey = name.parse().map_err(|error| StoreError::Damaged {
        what: what(),
        source: Box::new(error),
    })?;
    Ok(AccountRow {
        account,
        spent: from_db(spent),
        reserved: from_db(reserved),
    })
}

/// Parses the body of a charge, after a check of its checksum.
pub(crate) fn decode_charge(
    id: &[u8],
    session: Option<SessionId>,
    body: &[u8],
    checksum: Option<i64>,
) -> Result<Charge, StoreError> {
    let what = || row_name("charges", String::from_utf8_lossy(id));
    RowChecksum::of_charge(id, session, body).check(checksum, what)?;
    decode_json(&String::from_utf8_lossy(body), what)
}

/// Parses an item of a mailbox. One that is damaged is unreadable, so that it does not block those
/// after it.
pub(crate) fn decode_post(
    session: SessionId,
    number: i64,
    body: &[u8],
    checksum: Option<i64>,
) -> MailboxItem {
    let text = String::from_utf8_lossy(body);
    let sum = RowChecksum::of_post(session, number, body);
    match sum.check(checksum, String::new) {
        Ok(()) => MailboxItem::from_stored(&text),
        Err(_) => MailboxItem::damaged(&text),
    }
}

/// Parses the stored word for the state of an approval, [`ApprovalState::as_str`].
pub(crate) fn parse_state(word: &str) -> Result<ApprovalState, StoreError> {
    match word {
        "pending" => Ok(ApprovalState::Pending),
        "answered" => Ok(ApprovalState::Answered),
        "running" => Ok(ApprovalState::Running),
        status => status
            .parse()
            .map(ApprovalState::Settled)
            .map_err(|error| StoreError::Damaged {
                what: "the state of an approval".into(),
                source: Box::new(error),
            }),
    }
}

/// Builds the last run of a session from its columns: number, word for the state, time.
pub(crate) fn decode_last_run(
    run: Option<i64>,
    state: Option<&str>,
    at: Option<i64>,
) -> Result<Option<LastRun>, StoreError> {
    let (Some(run), Some(word), Some(at)) = (run, state, at) else {
        return Ok(None);
    };
    let state = RunState::from_word(word).ok_or_else(|| StoreError::Damaged {
        what: "the state of a run".into(),
        source: format!("{word:?} is not the state of a run").into(),
    })?;
    Ok(Some(LastRun {
        run: from_db(run),
        state,
        at: Timestamp::from_micros(at),
    }))
}

/// Parses the labels of a session.
pub(crate) fn decode_labels(text: Option<&str>) -> Result<Labels, StoreError> {
    let stored = text.filter(|text| *text != "{}");
    stored.map_or(Ok(Labels::default()), |text| {
        decode_json(text, || "the labels of a session".into())
    })
}

/// Returns the SQL condition for sessions whose last run has not ended.
pub(crate) fn unfinished_condition(unfinished: bool) -> &'static str {
    if unfinished {
        "AND run_state IN ('running', 'suspended')"
    } else {
        ""
    }
}

/// Returns the SQL for the order of a list of sessions.
pub(crate) fn session_order(order: SessionOrder) -> &'static str {
    match order {
        SessionOrder::Id => "id",
        SessionOrder::LastUse => "last_use DESC, id",
    }
}

/// Returns the SQL condition for hidden sessions in a list.
pub(crate) fn hidden_condition(hidden: HiddenSessions) -> &'static str {
    match hidden {
        HiddenSessions::Excluded => "AND hidden_at IS NULL",
        HiddenSessions::Included => "",
        HiddenSessions::Only => "AND hidden_at IS NOT NULL",
    }
}

/// Converts a number for the database; a value beyond its range becomes the largest.
pub(crate) fn to_db(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts a number from the database.
pub(crate) fn from_db(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Converts a limit for the database.
pub(crate) fn limit_to_db(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate_core::Status;

    #[test]
    fn every_state_of_an_approval_survives_encoding() {
        let states = Status::ALL.into_iter().map(ApprovalState::Settled);
        let open = [
            ApprovalState::Pending,
            ApprovalState::Answered,
            ApprovalState::Running,
        ];
        for state in states.chain(open) {
            assert_eq!(parse_state(state.as_str()).expect("a known word"), state);
        }
        assert!(matches!(
            parse_state("approved"),
            Err(StoreError::Damaged { .. })
        ));
    }
}
