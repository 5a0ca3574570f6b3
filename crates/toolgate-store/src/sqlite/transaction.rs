//! The transaction of a group of writes.
//!
//! Every check that can reject a write comes before its first change, so that a rejected write does
//! not affect the other writes of its group.

use std::{cell::Cell, ops::Deref};

use rusqlite::Params;
use toolgate_core::{SessionId, StoreError};

use super::{connect::database_error, read::SqliteReader};

/// The transaction of a group of writes. What it reads includes its own changes.
pub(super) struct SqliteWriteTx<'a> {
    pub(super) reader: SqliteReader<'a>,
    /// True if commits currently wait for the disk.
    pub(super) synced: Cell<bool>,
}

impl<'a> Deref for SqliteWriteTx<'a> {
    type Target = SqliteReader<'a>;

    fn deref(&self) -> &SqliteReader<'a> {
        &self.reader
    }
}

impl SqliteWriteTx<'_> {
    pub(super) fn execute(&self, sql: &str, params: impl Params) -> Result<usize, StoreError> {
        let done = self
            .connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.execute(params));
        done.map_err(|error| database_error(self.path, error).into())
    }
}

pub(super) fn session_bytes(session: SessionId) -> [u8; 16] {
    session.uuid().into_bytes()
}
