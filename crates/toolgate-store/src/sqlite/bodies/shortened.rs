//! Bodies of records and entries that are stored without what they repeat.

use toolgate_core::{
    ErasureScope, Event, LedgerDraft, RecordKey, SessionId, StoreError, StoreRecord,
};

use super::EventBodies;
use crate::sqlite::read::SqliteReader;
use crate::{
    encoded::{BodyEncoder, check_record_body, decode_json, record_name},
    short_text::{ReferredEvent, TextShortener, complete_text},
};

/// Shortens the bodies of one write.
pub(in crate::sqlite) struct ShortBodies {
    texts: TextShortener,
    /// What is erased together with the events of the write.
    scope: ErasureScope,
}

impl ShortBodies {
    pub(in crate::sqlite) fn new(session: SessionId) -> Self {
        Self {
            texts: TextShortener::new(session),
            scope: ErasureScope::for_session(session),
        }
    }

    /// Returns the body of an entry as it is stored. An entry stays when its session is erased, so
    /// it refers to no event.
    pub(in crate::sqlite) fn encode_entry(&mut self, draft: LedgerDraft) -> EncodedEntry {
        EncodedEntry {
            stored: self.texts.shorten_alone(&draft.body),
            draft,
        }
    }
}

impl BodyEncoder for ShortBodies {
    fn encode_event(&mut self, event: &Event, body: String) -> String {
        self.scope.add_event(event);
        self.texts.shorten_event(event.sequence(), body)
    }

    fn encode_record(&mut self, key: &RecordKey, body: String) -> String {
        let is_short = match key {
            // Evidence beside the log: a program that removes events does not remove it with them.
            RecordKey::Outcome(_) => return self.texts.shorten_alone(&body).unwrap_or(body),
            RecordKey::Requests(_)
            | RecordKey::Ended(_)
            | RecordKey::Successor(_)
            | RecordKey::Result(..)
            | RecordKey::Layer(..)
            | RecordKey::Message(..)
            | RecordKey::Run(..) => self.scope.owns_record(key),
            // What a person was asked and answered can be read with any program.
            RecordKey::Question(..) | RecordKey::Answer(..) | RecordKey::Other(_) => false,
        };
        if is_short {
            self.texts.shorten_record(body)
        } else {
            body
        }
    }
}

/// An entry of a ledger in its encoded form. The whole body is hashed.
pub(in crate::sqlite) struct EncodedEntry {
    pub(in crate::sqlite) draft: LedgerDraft,
    /// The body as it is stored, if it is not stored whole.
    stored: Option<String>,
}

impl EncodedEntry {
    pub(in crate::sqlite) fn stored_body(&self) -> &str {
        self.stored.as_deref().unwrap_or(&self.draft.body)
    }
}

/// Completes the bodies of records as they are read.
pub(in crate::sqlite) struct RecordBodies<'a> {
    reader: &'a SqliteReader<'a>,
    /// The events to which the last records referred.
    events: Option<(SessionId, EventBodies<'a>)>,
}

impl<'a> RecordBodies<'a> {
    pub(in crate::sqlite) fn new(reader: &'a SqliteReader<'a>) -> Self {
        Self {
            reader,
            events: None,
        }
    }

    /// Checks, completes and parses the body of a record.
    pub(in crate::sqlite) fn decode_record(
        &mut self,
        name: &str,
        stored: &str,
        checksum: Option<i64>,
    ) -> Result<StoreRecord, StoreError> {
        check_record_body(name, stored, checksum)?;
        let what = || record_name(name);
        let load = &mut |event| match event {
            ReferredEvent::Numbered(session, sequence) => {
                self.events_of(session).load_body(sequence).map(Some)
            }
            ReferredEvent::Before(_) => Ok(None),
        };
        decode_json(&complete_text(stored, load, what)?, what)
    }

    fn events_of(&mut self, session: SessionId) -> &mut EventBodies<'a> {
        let known = self.events.take().filter(|(of, _)| *of == session);
        let known = known.unwrap_or_else(|| (session, EventBodies::new(self.reader, session)));
        &mut self.events.insert(known).1
    }
}
