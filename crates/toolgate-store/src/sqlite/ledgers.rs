//! Chains in an SQLite file.

use std::sync::Arc;

use rusqlite::params;
use toolgate_core::{
    Digest, LedgerDraft, LedgerHead, LedgerName, LedgerStore, SealedEntry, SessionId, StoreError,
};
use uuid::Uuid;

use super::{
    SqliteStore,
    bodies::{EncodedEntry, ShortBodies},
    read::{SqliteReader, parse_ledger_name},
    transaction::SqliteWriteTx,
};
use crate::{
    encoded::{from_db, limit_to_db, to_db},
    short_text::complete_alone,
};

impl LedgerStore for SqliteStore {
    async fn seal_entries(&self, drafts: Vec<LedgerDraft>) -> Result<Vec<LedgerHead>, StoreError> {
        // The texts of entries stand alone, so any session will do.
        let mut bodies = ShortBodies::new(SessionId::new(Uuid::nil()));
        let entries: Vec<_> = drafts
            .into_iter()
            .map(|draft| bodies.encode_entry(draft))
            .collect();
        self.queue_write(move |tx| tx.seal_entries(&entries)).await
    }

    async fn entries(
        &self,
        ledger: &LedgerName,
        after: u64,
        limit: usize,
    ) -> Result<Vec<SealedEntry>, StoreError> {
        let ledger = ledger.clone();
        self.run_read(move |read| {
            let sql =
                "SELECT counter, previous, hash, body FROM entries WHERE ledger = ?1 AND counter > ?2
                       ORDER BY counter LIMIT ?3";
            read.query_rows(
                sql,
                params![ledger.as_str(), to_db(after), limit_to_db(limit)],
                |row| {
                    let counter = from_db(row.get(0)?);
                    let body = entry_body(row.get_ref(3)?.as_str()?);
                    let previous = Digest::from_bytes(row.get(1)?);
                    let hash = Digest::from_bytes(row.get(2)?);
                    Ok(Ok(SealedEntry {
                        ledger: ledger.clone(),
                        counter,
                        previous,
                        body,
                        hash,
                    }))
                },
            )
        })
        .await
    }

    async fn ledgers(&self) -> Result<Vec<LedgerHead>, StoreError> {
        self.run_read(|read| read.read_ledgers()).await
    }
}

/// Returns the whole body of an entry. One that was changed so that it cannot be completed is
/// returned as it is stored: its hash does not match, and a verification names the entry.
pub(super) fn entry_body(stored: &str) -> Arc<str> {
    complete_alone(stored, String::new).map_or_else(|_| stored.into(), Arc::from)
}

impl SqliteReader<'_> {
    pub(super) fn read_ledgers(&self) -> Result<Vec<LedgerHead>, StoreError> {
        self.query_rows(
            "SELECT name, counter, hash FROM ledgers ORDER BY name",
            [],
            |row| {
                let counter = from_db(row.get(1)?);
                let hash = Digest::from_bytes(row.get(2)?);
                Ok(parse_ledger_name(row.get(0)?).map(|ledger| LedgerHead {
                    ledger,
                    counter,
                    hash,
                }))
            },
        )
    }
}

impl SqliteWriteTx<'_> {
    pub(super) fn seal_entries(
        &self,
        entries: &[EncodedEntry],
    ) -> Result<Vec<LedgerHead>, StoreError> {
        entries.iter().map(|entry| self.seal_entry(entry)).collect()
    }

    fn seal_entry(&self, encoded: &EncodedEntry) -> Result<LedgerHead, StoreError> {
        let ledger = &encoded.draft.ledger;
        let sql = "SELECT counter, hash FROM ledgers WHERE name = ?1";
        let found = self.query_row(sql, [ledger.as_str()], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, [u8; 32]>(1)?))
        })?;
        let head = match found {
            Some((counter, hash)) => LedgerHead {
                ledger: ledger.clone(),
                counter: from_db(counter),
                hash: Digest::from_bytes(hash),
            },
            None => LedgerHead::start_of(ledger.clone()),
        };
        // `BEGIN IMMEDIATE` excludes other writers, so two entries never follow the same head.
        let entry = head.seal_entry(encoded.draft.body.clone());
        let counter = to_db(entry.counter);
        let hash = entry.hash.as_bytes();
        let sql = "INSERT INTO entries (ledger, counter, previous, hash, body) VALUES (?1, ?2, ?3, ?4, ?5)";
        self.execute(
            sql,
            params![
                ledger.as_str(),
                counter,
                entry.previous.as_bytes(),
                hash,
                encoded.stored_body()
            ],
        )?;
        let sql = "INSERT INTO ledgers (name, counter, hash) VALUES (?1, ?2, ?3)
                   ON CONFLICT (name) DO UPDATE SET counter = excluded.counter, hash = excluded.hash";
        self.execute(sql, params![ledger.as_str(), counter, hash])?;
        Ok(entry.head())
    }
}
