//! Records and blobs in a PostgreSQL database.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::Arc,
};

use bytes::{Bytes, BytesMut};
use sqlx::{Row, postgres::PgRow};
use toolgate_core::{
    Digest, ErasureNames, MessageRecord, RecordKey, RecordStore, SessionId, StoreError, StoreRecord,
};

use super::{PostgresStore, plan::PostgresWritePlan, read::RowError};
use crate::encoded::{
    BLOB_PIECE_BYTES, EncodedRecord, check_blob, decode_message, decode_record, from_db,
    limit_to_db, message_keys, to_db,
};

impl RecordStore for PostgresStore {
    async fn put_record_once(
        &self,
        key: RecordKey,
        record: StoreRecord,
    ) -> Result<Option<StoreRecord>, StoreError> {
        let record = EncodedRecord::new(key, &record)?;
        let name = record.name.clone();
        self.queue_write(
            move |wants| wants.add_record(&name),
            move |plan| {
                if let Some((body, checksum)) = plan.facts.records.get(&record.name) {
                    return decode_record(&record.name, body, *checksum).map(Some);
                }
                plan.insert_record(&record);
                Ok(None)
            },
        )
        .await
    }

    async fn load_record(&self, key: &RecordKey) -> Result<Option<StoreRecord>, StoreError> {
        let name = key.to_string();
        let ask = || {
            sqlx::query("SELECT key, body, checksum FROM records WHERE key = $1")
                .bind(name.as_bytes())
        };
        self.reads
            .query_row(ask, |row| record_columns(row, &name))
            .await
    }

    async fn load_records(
        &self,
        keys: &[RecordKey],
    ) -> Result<Vec<Option<StoreRecord>>, StoreError> {
        let names: Vec<_> = keys.iter().map(RecordKey::to_string).collect();
        let wanted: Vec<_> = names.iter().map(String::as_bytes).collect();
        let sql = "SELECT key, body, checksum FROM records WHERE key = ANY($1)";
        let ask = || sqlx::query(sql).bind(&wanted);
        let found = self.reads.query_rows(ask, |row| {
            let name = String::from_utf8_lossy(row.try_get(0)?).into_owned();
            let record = record_columns(row, &name)?;
            Ok((name, record))
        });
        let found: BTreeMap<String, StoreRecord> = found.await?.into_iter().collect();
        Ok(names.iter().map(|name| found.get(name).cloned()).collect())
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
                "SELECT key, body, checksum FROM records WHERE key > $1 AND key < $2 ORDER BY key LIMIT $3"
            }
            None => {
                "SELECT key, body, checksum FROM records WHERE key >= $1 AND key < $2 ORDER BY key LIMIT $3"
            }
        };
        // No text has a byte 255, so this is the end of all keys that start with `start`.
        let end = [start.as_bytes(), &[255]].concat();
        let from = from.as_ref().unwrap_or(&start);
        let ask = || {
            sqlx::query(sql)
                .bind(from.as_bytes())
                .bind(end.as_slice())
                .bind(limit_to_db(limit))
        };
        self.reads
            .query_rows(ask, |row| {
                let key = String::from_utf8_lossy(row.try_get(0)?).into_owned();
                let record = record_columns(row, &key)?;
                Ok((
                    Arc::from(key.strip_prefix("other/").unwrap_or(&key)),
                    record,
                ))
            })
            .await
    }

    async fn records_named(
        &self,
        names: &ErasureNames,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Arc<str>, StoreRecord)>, StoreError> {
        let (first, end): (Vec<_>, Vec<_>) = names
            .ranges()
            .into_iter()
            .map(|(first, end)| (first.into_bytes(), end.into_bytes()))
            .unzip();
        // One query for all ranges: a session has several for each of its calls.
        let sql = "SELECT records.key, records.body, records.checksum
                   FROM unnest($1::bytea[], $2::bytea[]) AS ranges (first, bound)
                   JOIN records ON records.key >= ranges.first AND records.key < ranges.bound
                   WHERE records.key > $3 ORDER BY records.key LIMIT $4";
        let after = after.unwrap_or_default().as_bytes();
        let ask = || {
            sqlx::query(sql)
                .bind(&first)
                .bind(&end)
                .bind(after)
                .bind(limit_to_db(limit))
        };
        self.reads
            .query_rows(ask, |row| {
                let key = String::from_utf8_lossy(row.try_get(0)?).into_owned();
                let record = record_columns(row, &key)?;
                Ok((Arc::from(key), record))
            })
            .await
    }

    async fn messages(
        &self,
        session: SessionId,
        before: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Arc<MessageRecord>)>, StoreError> {
        let sql = "SELECT key, body, checksum FROM records WHERE key >= $1 AND key < $2 ORDER BY key DESC LIMIT $3";
        let [first, end] = message_keys(session, before);
        let ask = || {
            sqlx::query(sql)
                .bind(first.as_bytes())
                .bind(end.as_bytes())
                .bind(limit_to_db(limit))
        };
        let found = self.reads.query_rows(ask, |row| {
            let key = String::from_utf8_lossy(row.try_get(0)?).into_owned();
            let record = record_columns(row, &key)?;
            Ok((key, record))
        });
        let mut found = found.await?;
        found.reverse();
        found
            .into_iter()
            .map(|(key, record)| decode_message(session, &key, record))
            .collect()
    }

    async fn put_blob(&self, bytes: Bytes) -> Result<Digest, StoreError> {
        // Hashing large data takes a while.
        let hashed = bytes.clone();
        let digest = tokio::task::spawn_blocking(move || Digest::of_bytes(&hashed)).await;
        let digest = digest.map_err(|error| StoreError::Backend(Box::new(error)))?;
        self.queue_write(
            |_| (),
            move |plan| {
                plan.blobs.insert(digest, bytes.clone());
                Ok(())
            },
        )
        .await?;
        Ok(digest)
    }

    async fn blob(&self, digest: Digest, range: Range<u64>) -> Result<Option<Bytes>, StoreError> {
        let ask =
            || sqlx::query("SELECT size FROM blobs WHERE digest = $1").bind(&digest.as_bytes()[..]);
        let Some(size) = self
            .reads
            .query_row(ask, |row| Ok(from_db(row.try_get(0)?)))
            .await?
        else {
            return Ok(None);
        };
        // Blobs never change, so the queries need no common transaction.
        let start = range.start.min(size);
        let end = range.end.min(size);
        if start >= end {
            return Ok(Some(Bytes::new()));
        }
        let first = start / BLOB_PIECE_BYTES;
        let last = (end - 1) / BLOB_PIECE_BYTES;
        let mut found = BytesMut::with_capacity((end - start) as usize);
        for number in first..=last {
            // Only the requested part leaves the server.
            let from = start.max(number * BLOB_PIECE_BYTES);
            let until = end.min((number + 1) * BLOB_PIECE_BYTES);
            let sql = "SELECT substring(bytes FROM $3 FOR $4) FROM blob_pieces WHERE digest = $1 AND number = $2";
            let skip = (from - number * BLOB_PIECE_BYTES) as i32 + 1;
            let count = (until - from) as i32;
            let ask = || {
                sqlx::query(sql)
                    .bind(&digest.as_bytes()[..])
                    .bind(to_db(number))
                    .bind(skip)
                    .bind(count)
            };
            let piece: Option<Vec<u8>> =
                self.reads.query_row(ask, |row| Ok(row.try_get(0)?)).await?;
            found.extend_from_slice(&piece.unwrap_or_default());
        }
        if found.len() as u64 != end - start {
            let what = format!("blob {digest}");
            return Err(StoreError::Damaged {
                what,
                source: "a piece of it is missing".into(),
            });
        }
        check_blob(digest, &found, size)?;
        Ok(Some(found.freeze()))
    }
}

impl PostgresWritePlan {
    /// Adds all records or, if one exists, none.
    pub(super) fn insert_records(&mut self, records: &[EncodedRecord]) -> Result<(), StoreError> {
        // All names are checked before the first is added: the plan cannot be rolled back for one
        // write.
        let mut names = BTreeSet::new();
        for record in records {
            if self.facts.records.contains_key(&record.name) || !names.insert(&record.name) {
                return Err(StoreError::RecordExists {
                    key: record.key.clone(),
                });
            }
        }
        records.iter().for_each(|record| self.insert_record(record));
        Ok(())
    }

    fn insert_record(&mut self, record: &EncodedRecord) {
        let EncodedRecord {
            name,
            body,
            checksum,
            ..
        } = record;
        let known = (body.clone(), Some(checksum.to_db()));
        self.facts.records.insert(name.clone(), known);
        self.records.push((name.clone(), body.clone(), *checksum));
    }
}

/// Reads a record from its body and its checksum, which follow the key.
fn record_columns(row: &PgRow, key: &str) -> Result<StoreRecord, RowError> {
    Ok(decode_record(key, row.try_get(1)?, row.try_get(2)?)?)
}
