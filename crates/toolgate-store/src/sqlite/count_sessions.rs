//! Counts the events of sessions that an older version wrote, when their file is migrated.

use rusqlite::params;
use toolgate_core::{RowChange, SessionId, SessionTotals, StoreError};

use super::{
    read::{SqliteReader, uuid_column},
    transaction::{SqliteWriteTx, session_bytes},
};

/// The number of events that are read at once.
const PAGE: usize = 1_000;

impl SqliteWriteTx<'_> {
    /// Fills in the totals of sessions that have none. Those of a session with an event that cannot
    /// be read stay unknown.
    pub(super) fn count_sessions(&self) -> Result<(), StoreError> {
        let sql = "SELECT id FROM sessions WHERE calls IS NULL";
        let read_id = |row: &rusqlite::Row<'_>| Ok(Ok(SessionId::new(uuid_column(row, 0)?)));
        for session in self.query_rows(sql, [], read_id)? {
            match self.count_session(session) {
                Ok(totals) => {
                    let sql = "UPDATE sessions SET calls = 0 WHERE id = ?1";
                    self.execute(sql, [session_bytes(session)])?;
                    self.add_totals(session, &totals)?;
                }
                // The file can be used all the same, and `doctor --deep` says what is damaged.
                Err(StoreError::Damaged { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Fills in the providers of the models that replied last, which a file of version 11 to 13 does not
    /// have. Those of a session with an event that cannot be read stay unknown.
    pub(super) fn fill_providers(&self) -> Result<(), StoreError> {
        let sql = "SELECT id FROM sessions WHERE model IS NOT NULL";
        let read_id = |row: &rusqlite::Row<'_>| Ok(Ok(SessionId::new(uuid_column(row, 0)?)));
        for session in self.query_rows(sql, [], read_id)? {
            match self.count_session(session) {
                Ok(totals) => {
                    let sql = "UPDATE sessions SET provider = ?2 WHERE id = ?1";
                    let provider = totals.provider.as_deref();
                    self.execute(sql, params![session_bytes(session), provider])?;
                }
                Err(StoreError::Damaged { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Adds up the events of a session, and marks the approved calls that have started.
    fn count_session(&self, session: SessionId) -> Result<SessionTotals, StoreError> {
        let reader: &SqliteReader<'_> = self;
        let mut totals = SessionTotals::default();
        let mut after = 0;
        loop {
            let page = reader.read_events(session, after, PAGE)?;
            for event in &page {
                totals.add_event(event);
                if let Some(RowChange::Started(call)) = RowChange::from_event(event) {
                    let sql = "UPDATE approvals SET state = 'running' WHERE call = ?1 AND state = 'answered'";
                    self.execute(sql, params![call.uuid().as_bytes()])?;
                }
            }
            match page.last() {
                Some(last) if page.len() == PAGE => after = last.sequence(),
                _ => return Ok(totals),
            }
        }
    }
}
