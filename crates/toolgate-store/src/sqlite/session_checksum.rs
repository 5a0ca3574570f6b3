//! The checksums of sessions in an SQLite file.

use rusqlite::{Row, params};
use toolgate_core::{SessionId, StoreError};
use uuid::Uuid;

use super::{
    read::SqliteReader,
    transaction::{SqliteWriteTx, session_bytes},
};
use crate::checksum::{CheckedColumns, RowChecksum, row_name};

/// Computes the checksum of a session from the columns fence, holder, posted, hidden_at, parent and
/// directory, which begin at column 1.
pub(super) fn computed_checksum(
    session: SessionId,
    row: &Row<'_>,
) -> rusqlite::Result<RowChecksum> {
    let parent = row.get::<_, Option<[u8; 16]>>(5)?;
    let columns = CheckedColumns {
        fence: row.get(1)?,
        holder: row.get_ref(2)?.as_bytes_or_null()?,
        posted: row.get(3)?,
        hidden_at: row.get(4)?,
        parent: parent.map(|id| SessionId::new(Uuid::from_bytes(id))),
        directory: row.get_ref(6)?.as_bytes_or_null()?,
    };
    Ok(RowChecksum::of_session(session, &columns))
}

impl SqliteReader<'_> {
    /// Compares a session with its checksum.
    ///
    /// # Errors
    ///
    /// [`StoreError::Damaged`] if they differ.
    pub(super) fn check_session(&self, session: SessionId) -> Result<(), StoreError> {
        let found = self.query_row(CHECKED_SQL, [session_bytes(session)], |row| {
            Ok((computed_checksum(session, row)?, row.get(7)?))
        })?;
        found.map_or(Ok(()), |(computed, stored)| {
            computed.check(stored, || row_name("sessions", session))
        })
    }
}

const CHECKED_SQL: &str = "SELECT id, fence, holder, posted, hidden_at, parent, directory, checksum FROM sessions WHERE id = ?1";

impl SqliteWriteTx<'_> {
    /// Stores the checksum of a session as it is now.
    pub(super) fn update_session_checksum(&self, session: SessionId) -> Result<(), StoreError> {
        let computed = self.query_row(CHECKED_SQL, [session_bytes(session)], |row| {
            computed_checksum(session, row)
        })?;
        let Some(computed) = computed else {
            return Ok(());
        };
        let sql = "UPDATE sessions SET checksum = ?2 WHERE id = ?1";
        self.execute(sql, params![session_bytes(session), computed.to_db()])
            .map(drop)
    }

    /// Changes columns of a session that its checksum covers. That of a damaged session stays as it
    /// is, so that the damage is still found.
    pub(super) fn change_checked<T>(
        &self,
        session: SessionId,
        change: impl FnOnce() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let is_intact = self.check_session(session).is_ok();
        let changed = change()?;
        if is_intact {
            self.update_session_checksum(session)?;
        }
        Ok(changed)
    }
}
