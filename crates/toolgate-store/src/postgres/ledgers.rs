//! Chains in a PostgreSQL database.

use std::sync::Arc;

use sqlx::Row;
use toolgate_core::{LedgerDraft, LedgerHead, LedgerName, LedgerStore, SealedEntry, StoreError};

use super::{
    PostgresStore,
    locked_rows::{RowSelection, parse_digest},
    plan::PostgresWritePlan,
};
use crate::encoded::{from_db, limit_to_db, to_db};

impl LedgerStore for PostgresStore {
    async fn seal_entries(&self, drafts: Vec<LedgerDraft>) -> Result<Vec<LedgerHead>, StoreError> {
        let drafts = Arc::new(drafts);
        let about = {
            let drafts = drafts.clone();
            move |wants: &mut RowSelection| wants.add_ledgers(&drafts)
        };
        self.queue_write(about, move |plan| Ok(plan.seal_entries(&drafts)))
            .await
    }

    async fn entries(
        &self,
        ledger: &LedgerName,
        after: u64,
        limit: usize,
    ) -> Result<Vec<SealedEntry>, StoreError> {
        let sql =
            "SELECT counter, previous, hash, body FROM entries WHERE ledger = $1 AND counter > $2
                   ORDER BY counter LIMIT $3";
        let ask = || {
            sqlx::query(sql)
                .bind(ledger.as_str())
                .bind(to_db(after))
                .bind(limit_to_db(limit))
        };
        self.reads
            .query_rows(ask, |row| {
                let counter = from_db(row.try_get(0)?);
                let body = row.try_get::<&str, _>(3)?.into();
                let previous = parse_digest(row.try_get(1)?)?;
                let hash = parse_digest(row.try_get(2)?)?;
                Ok(SealedEntry {
                    ledger: ledger.clone(),
                    counter,
                    previous,
                    body,
                    hash,
                })
            })
            .await
    }

    async fn ledgers(&self) -> Result<Vec<LedgerHead>, StoreError> {
        let ask = || sqlx::query("SELECT name, counter, hash FROM ledgers ORDER BY name");
        self.reads
            .query_rows(ask, |row| {
                let ledger = LedgerName::try_from(row.try_get::<String, _>(0)?);
                let ledger = ledger.map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
                Ok(LedgerHead {
                    ledger,
                    counter: from_db(row.try_get(1)?),
                    hash: parse_digest(row.try_get(2)?)?,
                })
            })
            .await
    }
}

impl PostgresWritePlan {
    pub(super) fn seal_entries(&mut self, drafts: &[LedgerDraft]) -> Vec<LedgerHead> {
        drafts.iter().map(|draft| self.seal_entry(draft)).collect()
    }

    fn seal_entry(&mut self, draft: &LedgerDraft) -> LedgerHead {
        let ledger = &draft.ledger;
        if !self.facts.ledgers.contains_key(ledger) {
            self.new_ledgers.insert(ledger.clone());
            self.facts
                .ledgers
                .insert(ledger.clone(), LedgerHead::start_of(ledger.clone()));
        } else if !self.new_ledgers.contains(ledger) {
            self.changed_ledgers.insert(ledger.clone());
        }
        let entry = self.facts.ledgers[ledger].seal_entry(draft.body.clone());
        let head = entry.head();
        self.facts.ledgers.insert(ledger.clone(), head.clone());
        self.entries.push(entry);
        head
    }
}
