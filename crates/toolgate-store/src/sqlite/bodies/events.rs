//! Reads bodies of events that refer to others.

use std::{
    collections::{BTreeMap, VecDeque},
    rc::Rc,
};

use rusqlite::params;
use toolgate_core::{Event, SessionId, StoreError};

use crate::sqlite::{read::SqliteReader, transaction::session_bytes};
use crate::{
    encoded::{check_event_body, decode_event_body, event_name, to_db},
    shared_beginnings::ShortenedBody,
    short_text::{REACH, ReferredEvent, complete_text},
};

/// The number of bodies that later ones may refer to without another query.
const REMEMBERED: usize = REACH as usize;
/// The most references that are followed from one event to another. What this program and earlier
/// ones write needs four; a file that was made to exhaust the stack would have more.
const MAX_DEPTH: u32 = 8;

/// The number of other bodies that are in memory at a time.
const MOST_LOADED: usize = 64;

/// Completes the bodies of a session's events as they are read, in order.
pub(in crate::sqlite) struct EventBodies<'a> {
    reader: &'a SqliteReader<'a>,
    session: SessionId,
    recent: VecDeque<(u64, Rc<str>)>,
    /// Bodies that are not part of the page, or that records refer to.
    loaded: BTreeMap<u64, Rc<str>>,
}

impl<'a> EventBodies<'a> {
    pub(in crate::sqlite) fn new(reader: &'a SqliteReader<'a>, session: SessionId) -> Self {
        Self {
            reader,
            session,
            recent: VecDeque::with_capacity(REMEMBERED),
            loaded: BTreeMap::new(),
        }
    }

    /// Checks, completes and parses the body of an event.
    pub(in crate::sqlite) fn decode_event(
        &mut self,
        sequence: u64,
        stored: &str,
        checksum: Option<i64>,
    ) -> Result<Event, StoreError> {
        let body = self.complete_body(sequence, stored, checksum, 0)?;
        let event = decode_event_body(self.session, sequence, &body);
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back((sequence, body));
        event
    }

    /// Returns the whole body of an event.
    pub(in crate::sqlite) fn load_body(&mut self, sequence: u64) -> Result<Rc<str>, StoreError> {
        self.load_referred(sequence, 0)
    }

    fn complete_body(
        &mut self,
        sequence: u64,
        stored: &str,
        checksum: Option<i64>,
        depth: u32,
    ) -> Result<Rc<str>, StoreError> {
        let session = self.session;
        check_event_body(session, sequence, stored, checksum)?;
        let what = || event_name(session, sequence);
        if let Some(short) = ShortenedBody::parse(sequence, stored, what)? {
            let earlier = self.load_referred(short.like, depth + 1)?;
            return short.complete(&earlier, what).map(Rc::from);
        }
        let load = &mut |event| {
            let ReferredEvent::Before(places) = event else {
                return Ok(None);
            };
            let Some(earlier) = sequence.checked_sub(places) else {
                return Ok(None);
            };
            self.load_referred(earlier, depth + 1).map(Some)
        };
        complete_text(stored, load, what).map(Rc::from)
    }

    fn load_referred(&mut self, sequence: u64, depth: u32) -> Result<Rc<str>, StoreError> {
        let mut recent = self.recent.iter().rev();
        if let Some((_, body)) = recent.find(|(number, _)| *number == sequence) {
            return Ok(body.clone());
        }
        if let Some(body) = self.loaded.get(&sequence) {
            return Ok(body.clone());
        }
        let damaged = |problem: &'static str| StoreError::Damaged {
            what: event_name(self.session, sequence),
            source: problem.into(),
        };
        if depth > MAX_DEPTH {
            return Err(damaged("too many references lead to it"));
        }
        // The page begins in the middle of a write.
        let sql = "SELECT body, checksum FROM events WHERE session = ?1 AND sequence = ?2";
        let key = params![session_bytes(self.session), to_db(sequence)];
        let found = self
            .reader
            .query_row(sql, key, |row| Ok((row.get(0)?, row.get(1)?)))?;
        let (stored, checksum): (String, Option<i64>) =
            found.ok_or_else(|| damaged("it is missing, and another row refers to it"))?;
        let body = self.complete_body(sequence, &stored, checksum, depth)?;
        if self.loaded.len() == MOST_LOADED {
            self.loaded.clear();
        }
        self.loaded.insert(sequence, body.clone());
        Ok(body)
    }
}
