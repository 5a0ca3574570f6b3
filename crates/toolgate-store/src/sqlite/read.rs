//! A connection that reads, and how its columns become values.

use std::{path::Path, sync::Arc};

use rusqlite::{Connection, OptionalExtension, Params, Row};
use serde::de::DeserializeOwned;
use toolgate_core::{LedgerName, StoreError, Timestamp};
use uuid::Uuid;

use super::connect::database_error;
use crate::encoded::decode_json;

/// A connection that reads committed data, or within a transaction also its changes.
pub(super) struct SqliteReader<'a> {
    pub(super) connection: &'a Connection,
    pub(super) path: &'a Path,
}

impl SqliteReader<'_> {
    pub(super) fn query_rows<T>(
        &self,
        sql: &str,
        params: impl Params,
        mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<Result<T, StoreError>>,
    ) -> Result<Vec<T>, StoreError> {
        let failed = |error| StoreError::from(database_error(self.path, error));
        let mut statement = self.connection.prepare_cached(sql).map_err(failed)?;
        let mut rows = statement.query(params).map_err(failed)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().map_err(failed)? {
            found.push(read(row).map_err(failed)??);
        }
        Ok(found)
    }

    /// Looks up a row for each of many keys with one statement. Keys without a row are left out.
    pub(super) fn query_each<K: Params, T>(
        &self,
        sql: &str,
        keys: impl Iterator<Item = K>,
        mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        let failed = |error| StoreError::from(database_error(self.path, error));
        let mut statement = self.connection.prepare_cached(sql).map_err(failed)?;
        let mut found = Vec::with_capacity(keys.size_hint().0);
        for key in keys {
            let row = statement.query_row(key, &mut read).optional();
            found.extend(row.map_err(failed)?);
        }
        Ok(found)
    }

    /// Makes all queries see the same state of the file, until the value is dropped. It also saves
    /// each of them from locking the file anew.
    pub(super) fn begin_snapshot(&self) -> Result<ReadSnapshot<'_>, StoreError> {
        let begun = self
            .connection
            .prepare_cached("BEGIN")
            .and_then(|mut begin| begin.execute([]));
        begun
            .map(|_| ReadSnapshot(self.connection))
            .map_err(|error| database_error(self.path, error).into())
    }

    pub(super) fn query_row<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        let found = self
            .connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_row(params, read));
        found
            .optional()
            .map_err(|error| database_error(self.path, error).into())
    }
}

/// A transaction that only reads.
pub(super) struct ReadSnapshot<'a>(&'a Connection);

impl Drop for ReadSnapshot<'_> {
    fn drop(&mut self) {
        let ended = self.0.prepare_cached("ROLLBACK");
        // A failure here means that SQLite has ended the transaction by itself.
        let _ = ended.and_then(|mut end| end.execute([]));
    }
}

pub(super) fn parse_ledger_name(name: String) -> Result<LedgerName, StoreError> {
    LedgerName::try_from(name).map_err(|error| StoreError::Damaged {
        what: "the name of a ledger".into(),
        source: Box::new(error),
    })
}

/// Parses a column that holds JSON.
pub(super) fn decode_column<T: DeserializeOwned>(
    row: &Row<'_>,
    column: usize,
    what: impl FnOnce() -> String,
) -> rusqlite::Result<Result<T, StoreError>> {
    Ok(decode_json(row.get_ref(column)?.as_str()?, what))
}

pub(super) fn uuid_column(row: &Row<'_>, column: usize) -> rusqlite::Result<Uuid> {
    row.get(column).map(Uuid::from_bytes)
}

pub(super) fn time_column(row: &Row<'_>, column: usize) -> rusqlite::Result<Timestamp> {
    row.get(column).map(Timestamp::from_micros)
}

/// Reads the lease of a session: the holder, and the time the lease expires in the next column.
pub(super) fn held_columns(
    row: &Row<'_>,
    column: usize,
) -> rusqlite::Result<Option<(Arc<str>, Timestamp)>> {
    let holder = row.get::<_, Option<Arc<str>>>(column)?;
    let until = row.get::<_, Option<i64>>(column + 1)?;
    Ok(holder.zip(until.map(Timestamp::from_micros)))
}
