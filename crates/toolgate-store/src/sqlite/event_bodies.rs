//! Reads bodies of events that are stored without their beginning.

use std::collections::VecDeque;

use rusqlite::params;
use toolgate_core::{Event, SessionId, StoreError};

use super::{read::SqliteReader, transaction::session_bytes};
use crate::{
    encoded::{check_event_body, decode_event_body, event_name, to_db},
    shared_beginnings::ShortenedBody,
};

/// The number of bodies that later ones may refer to without another query.
const REMEMBERED: usize = 8;

/// Completes the bodies of a session's events as they are read, in order.
pub(super) struct EventBodies<'a> {
    reader: &'a SqliteReader<'a>,
    session: SessionId,
    recent: VecDeque<(u64, String)>,
}

impl<'a> EventBodies<'a> {
    pub(super) fn new(reader: &'a SqliteReader<'a>, session: SessionId) -> Self {
        Self {
            reader,
            session,
            recent: VecDeque::with_capacity(REMEMBERED),
        }
    }

    /// Checks, completes and parses the body of an event.
    pub(super) fn decode_event(
        &mut self,
        sequence: u64,
        stored: &str,
        checksum: Option<i64>,
    ) -> Result<Event, StoreError> {
        let body = self.complete_body(sequence, stored, checksum)?;
        let event = decode_event_body(self.session, sequence, &body);
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back((sequence, body));
        event
    }

    fn complete_body(
        &self,
        sequence: u64,
        stored: &str,
        checksum: Option<i64>,
    ) -> Result<String, StoreError> {
        check_event_body(self.session, sequence, stored, checksum)?;
        let what = || event_name(self.session, sequence);
        let Some(short) = ShortenedBody::parse(sequence, stored, what)? else {
            return Ok(stored.to_owned());
        };
        let recent = self.recent.iter();
        match recent.rev().find(|(number, _)| *number == short.like) {
            Some((_, earlier)) => short.complete(earlier, what),
            // The page begins in the middle of a write.
            None => short.complete(&self.load_body(short.like)?, what),
        }
    }

    fn load_body(&self, sequence: u64) -> Result<String, StoreError> {
        let sql = "SELECT body, checksum FROM events WHERE session = ?1 AND sequence = ?2";
        let key = params![session_bytes(self.session), to_db(sequence)];
        let found = self
            .reader
            .query_row(sql, key, |row| Ok((row.get(0)?, row.get(1)?)))?;
        let (stored, checksum): (String, Option<i64>) =
            found.ok_or_else(|| StoreError::Damaged {
                what: event_name(self.session, sequence),
                source: "it is missing, and a later event refers to it".into(),
            })?;
        self.complete_body(sequence, &stored, checksum)
    }
}
