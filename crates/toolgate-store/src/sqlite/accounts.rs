//! Accounts and charges in an SQLite file.

use rusqlite::{Row, params, params_from_iter, types::Value};
use toolgate_core::{
    AccountKey, AccountMovement, AccountRow, AccountRows, AccountStore, Charge, ChargeFilter,
    SessionId, StoreError,
};
use uuid::Uuid;

use super::{
    SqliteStore,
    read::SqliteReader,
    transaction::{SqliteWriteTx, session_bytes},
};
use crate::{
    checksum::RowChecksum,
    encoded::{decode_account, decode_charge, encode_json, limit_to_db, to_db},
};

impl AccountStore for SqliteStore {
    async fn reserve(&self, charge: Charge) -> Result<Charge, StoreError> {
        self.queue_write(move |tx| {
            if let Some(open) = tx.open_charge(&charge)? {
                return Ok(open);
            }
            let mut rows = tx.account_rows(&charge)?;
            charge.reserve_in(&mut rows)?;
            tx.put_accounts(&rows)?;
            let session = charge.session.map(session_bytes);
            let body = encode_json(&charge)?;
            let id = charge.id.to_string();
            let checksum = RowChecksum::of_charge(id.as_bytes(), charge.session, body.as_bytes());
            let sql = "INSERT INTO charges (id, session, body, checksum) VALUES (?1, ?2, ?3, ?4)";
            tx.execute(sql, params![id, session, body, checksum.to_db()])?;
            Ok(charge.clone())
        })
        .await
    }

    async fn settle_charge(
        &self,
        charge: Charge,
        actual: Vec<u64>,
    ) -> Result<Vec<AccountMovement>, StoreError> {
        self.queue_unsynced_write(move |tx| tx.settle_charge(&charge, &actual))
            .await
    }

    async fn release_charge(&self, charge: Charge) -> Result<(), StoreError> {
        self.queue_unsynced_write(move |tx| {
            tx.close_charge(&charge, |rows| charge.release_in(rows))
        })
        .await
    }

    async fn charges(&self, filter: ChargeFilter) -> Result<Vec<Charge>, StoreError> {
        self.run_read(move |read| read.read_charges(&filter)).await
    }

    async fn account(&self, account: &AccountKey) -> Result<Option<AccountRow>, StoreError> {
        let account = account.to_string();
        self.run_read(move |read| {
            let sql = "SELECT key, spent, reserved, checksum FROM accounts WHERE key = ?1";
            Ok(read.query_rows(sql, [account], account_row)?.pop())
        })
        .await
    }

    async fn accounts(
        &self,
        prefix: &str,
        after: Option<&AccountKey>,
        limit: usize,
    ) -> Result<Vec<AccountRow>, StoreError> {
        let prefix = prefix.to_owned();
        let after = after
            .map(AccountKey::to_string)
            .filter(|after| after.as_str() >= prefix.as_str());
        let sql = match after {
            Some(_) => {
                "SELECT key, spent, reserved, checksum FROM accounts WHERE key > ?1 ORDER BY key LIMIT ?2"
            }
            None => {
                "SELECT key, spent, reserved, checksum FROM accounts WHERE key >= ?1 ORDER BY key LIMIT ?2"
            }
        };
        self.run_read(move |read| {
            let from = after.as_deref().unwrap_or(&prefix);
            let mut found = read.query_rows(sql, params![from, limit_to_db(limit)], account_row)?;
            // Keys with the same prefix are adjacent. SQLite itself would stop comparing at a zero
            // byte.
            let end = found
                .iter()
                .position(|row| !row.account.to_string().starts_with(&prefix));
            found.truncate(end.unwrap_or(found.len()));
            Ok(found)
        })
        .await
    }
}

impl SqliteWriteTx<'_> {
    pub(super) fn settle_charge(
        &self,
        charge: &Charge,
        actual: &[u64],
    ) -> Result<Vec<AccountMovement>, StoreError> {
        self.close_charge(charge, |rows| charge.settle_in(rows, actual))
    }

    /// Closes a charge, if exactly this one is open.
    fn close_charge<T: Default>(
        &self,
        charge: &Charge,
        end: impl FnOnce(&mut AccountRows) -> T,
    ) -> Result<T, StoreError> {
        // A retry after a lost answer finds the charge closed, or another one under its id: nothing
        // is booked twice.
        if self.open_charge(charge)?.as_ref() != Some(charge) {
            return Ok(T::default());
        }
        let mut rows = self.account_rows(charge)?;
        let ended = end(&mut rows);
        self.put_accounts(&rows)?;
        self.execute("DELETE FROM charges WHERE id = ?1", [charge.id.to_string()])?;
        Ok(ended)
    }

    fn open_charge(&self, charge: &Charge) -> Result<Option<Charge>, StoreError> {
        let name = charge.id.to_string();
        let sql = "SELECT id, session, body, checksum FROM charges WHERE id = ?1";
        self.query_row(sql, [&name], charge_row)?.transpose()
    }

    fn account_rows(&self, charge: &Charge) -> Result<AccountRows, StoreError> {
        let mut rows = AccountRows::new();
        for account in charge.accounts() {
            let sql = "SELECT key, spent, reserved, checksum FROM accounts WHERE key = ?1";
            let found = self.query_row(sql, [account.to_string()], account_row)?;
            if let Some(row) = found.transpose()? {
                rows.insert(account.clone(), row);
            }
        }
        Ok(rows)
    }

    fn put_accounts(&self, rows: &AccountRows) -> Result<(), StoreError> {
        for row in rows.values() {
            let sql = "INSERT INTO accounts (key, spent, reserved, checksum) VALUES (?1, ?2, ?3, ?4)
                       ON CONFLICT (key) DO UPDATE SET spent = excluded.spent, reserved = excluded.reserved,
                           checksum = excluded.checksum";
            let key = row.account.to_string();
            let spent = to_db(row.spent);
            let reserved = to_db(row.reserved);
            let checksum = RowChecksum::of_account(key.as_bytes(), spent, reserved);
            self.execute(sql, params![key, spent, reserved, checksum.to_db()])?;
        }
        Ok(())
    }
}

impl SqliteReader<'_> {
    pub(super) fn read_charges(&self, filter: &ChargeFilter) -> Result<Vec<Charge>, StoreError> {
        let mut sql = String::from("SELECT id, session, body, checksum FROM charges WHERE 1");
        let conditions = [
            filter
                .id
                .map(|id| (" AND id = ?", Value::from(id.to_string()))),
            filter.session.map(|session| {
                (
                    " AND session = ?",
                    Value::from(session_bytes(session).to_vec()),
                )
            }),
            filter
                .after
                .map(|after| (" AND id > ?", Value::from(after.to_string()))),
        ];
        let (conditions, values): (Vec<&str>, Vec<Value>) =
            conditions.into_iter().flatten().unzip();
        sql.extend(conditions);
        sql.push_str(&format!(" ORDER BY id LIMIT {}", limit_to_db(filter.limit)));
        self.query_rows(&sql, params_from_iter(values), charge_row)
    }
}

/// Reads an account from its key, its amounts and its checksum.
pub(super) fn account_row(row: &Row<'_>) -> rusqlite::Result<Result<AccountRow, StoreError>> {
    let key = row.get_ref(0)?.as_bytes()?;
    Ok(decode_account(key, row.get(1)?, row.get(2)?, row.get(3)?))
}

/// Reads a charge from its id, its session, its body and its checksum.
pub(super) fn charge_row(row: &Row<'_>) -> rusqlite::Result<Result<Charge, StoreError>> {
    let id = row.get_ref(0)?.as_bytes()?;
    let session = row.get::<_, Option<[u8; 16]>>(1)?;
    let session = session.map(|id| SessionId::new(Uuid::from_bytes(id)));
    let body = row.get_ref(2)?.as_bytes()?;
    Ok(decode_charge(id, session, body, row.get(3)?))
}
