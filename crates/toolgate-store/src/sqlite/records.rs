//! Records and blobs in an SQLite file.

use std::{ops::Range, sync::Arc};

use bytes::{Bytes, BytesMut};
use rusqlite::{Row, params};
use toolgate_core::{
    Digest, ErasureNames, MessageRecord, RecordKey, RecordStore, SessionId, StoreError, StoreRecord,
};

use super::{
    SHORT_PAGE, SqliteStore,
    bodies::RecordBodies,
    connect::database_error,
    read::SqliteReader,
    record_keys::{KeyRange, record_name, stored_key},
    transaction::SqliteWriteTx,
};
use crate::encoded::{
    BLOB_PIECE_BYTES, EncodedRecord, check_blob, decode_message, from_db, limit_to_db,
    message_keys, to_db,
};

impl RecordStore for SqliteStore {
    async fn put_record_once(
        &self,
        key: RecordKey,
        record: StoreRecord,
    ) -> Result<Option<StoreRecord>, StoreError> {
        let record = EncodedRecord::new(key, &record)?;
        self.queue_write(move |tx| {
            if tx.insert_record(&record)? {
                return Ok(None);
            }
            tx.read_record(&record.name)
        })
        .await
    }

    async fn load_record(&self, key: &RecordKey) -> Result<Option<StoreRecord>, StoreError> {
        let name = key.to_string();
        self.run_short_read(move |read| read.read_record(&name))
            .await
    }

    async fn load_records(
        &self,
        keys: &[RecordKey],
    ) -> Result<Vec<Option<StoreRecord>>, StoreError> {
        let names: Vec<_> = keys.iter().map(RecordKey::to_string).collect();
        self.run_short_read(move |read| {
            let _snapshot = read.begin_snapshot()?;
            names.iter().map(|name| read.read_record(name)).collect()
        })
        .await
    }

    async fn list_records(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Arc<str>, StoreRecord)>, StoreError> {
        let start = format!("other/{prefix}");
        let from = after
            .filter(|after| *after >= prefix)
            .map(|after| format!("other/{after}"));
        let sql = match from {
            Some(_) => {
                "SELECT key, body, checksum FROM keyed_records WHERE key > ?1 ORDER BY key LIMIT ?2"
            }
            None => {
                "SELECT key, body, checksum FROM keyed_records WHERE key >= ?1 ORDER BY key LIMIT ?2"
            }
        };
        self.run_read(move |read| {
            let failed = |error| StoreError::from(database_error(read.path, error));
            let mut statement = read.connection.prepare_cached(sql).map_err(failed)?;
            let mut rows = statement
                .query(params![from.as_ref().unwrap_or(&start), limit_to_db(limit)])
                .map_err(failed)?;
            let mut found = Vec::new();
            let mut bodies = RecordBodies::new(read);
            while let Some(row) = rows.next().map_err(failed)? {
                // Keys with the same prefix are adjacent, so the first other key ends the list.
                let key = row.get_ref(0).map_err(failed)?.as_str().ok();
                let Some(key) = key.filter(|key| key.starts_with(&start)) else {
                    break;
                };
                let record = record_columns(row, key, &mut bodies).map_err(failed)??;
                found.push((Arc::from(&key["other/".len()..]), record));
            }
            Ok(found)
        })
        .await
    }

    async fn records_named(
        &self,
        names: &ErasureNames,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Arc<str>, StoreRecord)>, StoreError> {
        let ranges = KeyRange::of_names(names);
        let after = after.unwrap_or_default().to_owned();
        self.run_read(move |read| {
            let sql = "SELECT key, body, checksum FROM keyed_records WHERE key >= ?1 AND key < ?2 AND key > ?3 ORDER BY key LIMIT ?4";
            let mut found = Vec::new();
            let mut bodies = RecordBodies::new(read);
            // The ranges are in order and do not overlap, so the records are in order, too.
            for range in &ranges {
                let Some(after) = range.rest_after(&after) else {
                    continue;
                };
                let left = limit_to_db(limit - found.len());
                let wanted = params![range.first, range.end, after, left];
                found.extend(read.query_rows(sql, wanted, |row| {
                    let name = name_column(row)?;
                    let record = record_columns(row, &name, &mut bodies)?;
                    Ok(record.map(|record| (Arc::from(name), record)))
                })?);
                if found.len() >= limit {
                    break;
                }
            }
            Ok(found)
        })
        .await
    }

    async fn messages(
        &self,
        session: SessionId,
        before: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Arc<MessageRecord>)>, StoreError> {
        let read = move |read: &SqliteReader<'_>| {
            let sql = "SELECT key, body, checksum FROM keyed_records WHERE key >= ?1 AND key < ?2 ORDER BY key DESC LIMIT ?3";
            let [first, end] = message_keys(session, before).map(|name| stored_key(&name));
            let mut bodies = RecordBodies::new(read);
            let mut found =
                read.query_rows(sql, params![first, end, limit_to_db(limit)], |row| {
                    let name = name_column(row)?;
                    Ok(record_columns(row, &name, &mut bodies)?
                        .and_then(|record| decode_message(session, &name, record)))
                })?;
            found.reverse();
            Ok(found)
        };
        if limit <= SHORT_PAGE {
            return self.run_short_read(read).await;
        }
        self.run_read(read).await
    }

    async fn put_blob(&self, bytes: Bytes) -> Result<Digest, StoreError> {
        // Hashing large data takes a while; reader threads may block, an async worker may not.
        let hashed = bytes.clone();
        let digest = self
            .run_read(move |_| Ok(Digest::of_bytes(&hashed)))
            .await?;
        self.queue_write(move |tx| {
            let sql = "INSERT INTO blobs (digest, size) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
            // Blobs are named by their content, so an existing one has the same bytes.
            if tx.execute(sql, params![digest.as_bytes(), to_db(bytes.len() as u64)])? == 0 {
                return Ok(());
            }
            for (number, piece) in (0_i64..).zip(bytes.chunks(BLOB_PIECE_BYTES as usize)) {
                let sql = "INSERT INTO blob_pieces (digest, number, bytes) VALUES (?1, ?2, ?3)";
                tx.execute(sql, params![digest.as_bytes(), number, piece])?;
            }
            Ok(())
        })
        .await?;
        Ok(digest)
    }

    async fn blob(&self, digest: Digest, range: Range<u64>) -> Result<Option<Bytes>, StoreError> {
        self.run_read(move |read| {
            let sql = "SELECT size FROM blobs WHERE digest = ?1";
            let Some(size) = read.query_row(sql, [digest.as_bytes()], |row| row.get(0).map(from_db))?
            else {
                return Ok(None);
            };
            let start = range.start.min(size);
            let end = range.end.min(size);
            if start >= end {
                return Ok(Some(Bytes::new()));
            }
            let first = start / BLOB_PIECE_BYTES;
            let last = (end - 1) / BLOB_PIECE_BYTES;
            let sql = "SELECT number, bytes FROM blob_pieces WHERE digest = ?1 AND number BETWEEN ?2 AND ?3 ORDER BY number";
            let mut found = BytesMut::with_capacity((end - start) as usize);
            read.query_rows(
                sql,
                params![digest.as_bytes(), to_db(first), to_db(last)],
                |row| {
                    let from = from_db(row.get(0)?) * BLOB_PIECE_BYTES;
                    let piece = row.get_ref(1)?.as_blob()?;
                    let place = |at: u64| (at.saturating_sub(from) as usize).min(piece.len());
                    found.extend_from_slice(&piece[place(start)..place(end)]);
                    Ok(Ok(()))
                },
            )?;
            if found.len() as u64 != end - start {
                let what = format!("blob {digest}");
                return Err(StoreError::Damaged {
                    what,
                    source: "a piece of it is missing".into(),
                });
            }
            check_blob(digest, &found, size)?;
            Ok(Some(found.freeze()))
        })
        .await
    }
}

impl SqliteWriteTx<'_> {
    /// Inserts all records or, if one exists, none.
    pub(super) fn insert_records(&self, records: &[EncodedRecord]) -> Result<(), StoreError> {
        for (count, record) in records.iter().enumerate() {
            if !self.insert_record(record)? {
                // The transaction is shared with other writes, so it cannot be rolled back for this
                // one alone.
                for record in &records[..count] {
                    let key = stored_key(&record.name);
                    self.execute("DELETE FROM keyed_records WHERE key = ?1", [key])?;
                }
                return Err(StoreError::RecordExists {
                    key: record.key.clone(),
                });
            }
        }
        Ok(())
    }

    fn insert_record(&self, record: &EncodedRecord) -> Result<bool, StoreError> {
        let sql = "INSERT INTO keyed_records (key, body, checksum) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
        let key = stored_key(&record.name);
        let row = params![key, record.body, record.checksum.to_db()];
        Ok(self.execute(sql, row)? == 1)
    }
}

impl SqliteReader<'_> {
    fn read_record(&self, name: &str) -> Result<Option<StoreRecord>, StoreError> {
        let sql = "SELECT key, body, checksum FROM keyed_records WHERE key = ?1";
        let mut bodies = RecordBodies::new(self);
        self.query_row(sql, [stored_key(name)], |row| {
            record_columns(row, name, &mut bodies)
        })?
        .transpose()
    }
}

/// Reads the name of a record from its key, the first column.
fn name_column(row: &Row<'_>) -> rusqlite::Result<String> {
    let key = row.get_ref(0)?;
    record_name(key)
        .ok_or_else(|| rusqlite::Error::InvalidColumnType(0, "key".into(), key.data_type()))
}

/// Reads a record from its body and its checksum, which follow the key.
fn record_columns(
    row: &Row<'_>,
    key: &str,
    bodies: &mut RecordBodies<'_>,
) -> rusqlite::Result<Result<StoreRecord, StoreError>> {
    Ok(bodies.decode_record(key, row.get_ref(1)?.as_str()?, row.get(2)?))
}
