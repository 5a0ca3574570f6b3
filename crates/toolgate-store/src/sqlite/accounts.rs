//! Accounts and charges in an SQLite file.

use rusqlite::{Row, params, params_from_iter, types::Value};
use toolgate_core::{
    AccountKey, AccountMovement, AccountRow, AccountRows, AccountStore, Charge, ChargeFilter,
    StoreError,
};

use super::{
    SqliteStore,
    read::SqliteReader,
    transaction::{SqliteWriteTx, session_bytes},
};
use crate::encoded::{decode_json, encode_json, from_db, limit_to_db, parse_account_key, to_db};

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
            let sql = "INSERT INTO charges (id, session, body) VALUES (?1, ?2, ?3)";
            tx.execute(sql, params![charge.id.to_string(), session, body])?;
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
            let sql = "SELECT key, spent, reserved FROM accounts WHERE key = ?1";
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
                "SELECT key, spent, reserved FROM accounts WHERE key > ?1 ORDER BY key LIMIT ?2"
            }
            None => {
                "SELECT key, spent, reserved FROM accounts WHERE key >= ?1 ORDER BY key LIMIT ?2"
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
        let body: Option<String> =
            self.query_row("SELECT body FROM charges WHERE id = ?1", [&name], |row| {
                row.get(0)
            })?;
        body.map(|body| decode_json(&body, || format!("the charge {name}")))
            .transpose()
    }

    fn account_rows(&self, charge: &Charge) -> Result<AccountRows, StoreError> {
        let mut rows = AccountRows::new();
        for account in charge.accounts() {
            let sql = "SELECT spent, reserved FROM accounts WHERE key = ?1";
            let found = self.query_row(sql, [account.to_string()], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
            if let Some((spent, reserved)) =
                found.map(|(spent, reserved)| (from_db(spent), from_db(reserved)))
            {
                rows.insert(
                    account.clone(),
                    AccountRow {
                        account: account.clone(),
                        spent,
                        reserved,
                    },
                );
            }
        }
        Ok(rows)
    }

    fn put_accounts(&self, rows: &AccountRows) -> Result<(), StoreError> {
        for row in rows.values() {
            let sql = "INSERT INTO accounts (key, spent, reserved) VALUES (?1, ?2, ?3)
                       ON CONFLICT (key) DO UPDATE SET spent = excluded.spent, reserved = excluded.reserved";
            self.execute(
                sql,
                params![
                    row.account.to_string(),
                    to_db(row.spent),
                    to_db(row.reserved)
                ],
            )?;
        }
        Ok(())
    }
}

impl SqliteReader<'_> {
    pub(super) fn read_charges(&self, filter: &ChargeFilter) -> Result<Vec<Charge>, StoreError> {
        let mut sql = String::from("SELECT id, body FROM charges WHERE 1");
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
        self.query_rows(&sql, params_from_iter(values), |row| {
            let what = || format!("the charge {}", row.get::<_, String>(0).unwrap_or_default());
            Ok(decode_json(row.get_ref(1)?.as_str()?, what))
        })
    }
}

fn account_row(row: &Row<'_>) -> rusqlite::Result<Result<AccountRow, StoreError>> {
    let spent = from_db(row.get(1)?);
    let reserved = from_db(row.get(2)?);
    Ok(
        parse_account_key(row.get_ref(0)?.as_str()?).map(|account| AccountRow {
            account,
            spent,
            reserved,
        }),
    )
}
