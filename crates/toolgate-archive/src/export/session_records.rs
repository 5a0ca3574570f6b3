//! Reads everything that belongs to a session, page by page.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use serde_json::Value;
use toolgate_core::{
    CallId, Digest, ErasureNames, Event, EventBody, RecordKey, SessionId, StoreError, StoreHandle,
    StoreRecord, TurnId,
};

/// The number of events that are in memory at a time.
pub(crate) const PAGE_EVENTS: usize = 500;

/// The number of records that are in memory at a time.
const PAGE_RECORDS: usize = 100;

/// Follows the log of a session, and says which turns and calls are new.
#[derive(Default)]
pub(crate) struct LogScan {
    turns: HashSet<TurnId>,
    calls: HashSet<CallId>,
}

impl LogScan {
    /// Returns the names of the records of turns and calls that occur here for the first time, and
    /// these calls in order.
    pub(crate) fn add_events(&mut self, events: &[Arc<Event>]) -> (ErasureNames, Vec<CallId>) {
        let mut names = ErasureNames::default();
        let mut calls = Vec::new();
        for event in events {
            let turn = event.turn_info().turn;
            if self.turns.insert(turn) {
                names.add_turn(turn);
            }
            if let EventBody::Tool(invocation, _) = event.body()
                && self.calls.insert(invocation.id)
            {
                names.add_call(invocation.id);
                calls.push(invocation.id);
            }
        }
        (names, calls)
    }
}

/// Reads the records with these names, a page at a time.
pub(crate) struct RecordPages<'a> {
    store: &'a StoreHandle,
    names: ErasureNames,
    after: Option<Arc<str>>,
    ended: bool,
}

impl<'a> RecordPages<'a> {
    pub(crate) fn new(store: &'a StoreHandle, names: ErasureNames) -> Self {
        Self {
            store,
            ended: names == ErasureNames::default(),
            names,
            after: None,
        }
    }

    /// Creates the pages of the records of the session itself: messages, runs, outputs.
    pub(crate) fn of_session(store: &'a StoreHandle, session: SessionId) -> Self {
        let mut names = ErasureNames::default();
        names.add_session(session);
        Self::new(store, names)
    }

    /// Returns the next page; an empty one at the end.
    pub(crate) async fn next_page(&mut self) -> Result<Vec<(Arc<str>, StoreRecord)>, StoreError> {
        if self.ended {
            return Ok(Vec::new());
        }
        let page = self
            .store
            .records_named(&self.names, self.after.as_deref(), PAGE_RECORDS)
            .await?;
        self.after = page.last().map(|(name, _)| name.clone());
        self.ended = page.len() < PAGE_RECORDS;
        Ok(page)
    }
}

/// Checks whether a record belongs to this store and not to the session: the state of an import.
pub(crate) fn is_local_state(name: &str) -> bool {
    name.starts_with("other/archive/")
}

/// Adds the digests of the bytes that a record names.
///
/// Only records whose form is known count. Any other text that looks like a digest may come from a
/// model, which could name the bytes of another session.
pub(crate) fn collect_blobs(name: &str, record: &StoreRecord, found: &mut BTreeSet<Digest>) {
    let Some(RecordKey::Other(key)) = RecordKey::from_name(name) else {
        return;
    };
    if key.starts_with("output/") {
        let digest: Option<Digest> = key
            .rsplit_once('/')
            .and_then(|(_, digest)| digest.parse().ok());
        found.extend(digest);
    } else if key.starts_with("undo/")
        && let StoreRecord::Json(json) = record
    {
        collect_digests(json.as_value(), found);
    }
}

/// Adds the values of all fields `digest`.
fn collect_digests(value: &Value, found: &mut BTreeSet<Digest>) {
    match value {
        Value::Array(values) => values
            .iter()
            .for_each(|value| collect_digests(value, found)),
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str() {
                    Some(text) if name == "digest" => found.extend(text.parse::<Digest>().ok()),
                    _ => collect_digests(value, found),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
