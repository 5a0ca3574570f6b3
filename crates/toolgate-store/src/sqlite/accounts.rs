//! Accounts and charges: how they are changed within the transaction of a group, and how they are read.

use rusqlite::{Row, params, params_from_iter, types::Value};
use toolgate_core::{
    AccountKey, AccountRow, AccountRows, Charge, ChargeFilter, Movement, StoreError,
};

use super::{
    read::Read,
    tx::{Tx, id},
};
use crate::encoded::{account_key, from_db, from_text, limit, to_db, to_text};

impl Tx<'_> {
    pub(super) fn reserve(&self, charge: &Charge) -> Result<Charge, StoreError> {
        if let Some(open) = self.open_charge(charge)? {
            return Ok(open);
        }
        let mut rows = self.account_rows(charge)?;
        charge.reserve_in(&mut rows)?;
        self.put_accounts(&rows)?;
        let (session, body) = (charge.session.map(id), to_text(charge)?);
        let sql = "INSERT INTO charges (id, session, body) VALUES (?1, ?2, ?3)";
        self.execute(sql, params![charge.id.to_string(), session, body])?;
        Ok(charge.clone())
    }

    pub(super) fn settle_charge(
        &self,
        charge: &Charge,
        actual: &[u64],
    ) -> Result<Vec<Movement>, StoreError> {
        self.close_charge(charge, |rows| charge.settle_in(rows, actual))
    }

    pub(super) fn release_charge(&self, charge: &Charge) -> Result<(), StoreError> {
        self.close_charge(charge, |rows| charge.release_in(rows))
    }

    /// Ends a charge, if it is this one that is open.
    fn close_charge<T: Default>(
        &self,
        charge: &Charge,
        end: impl FnOnce(&mut AccountRows) -> T,
    ) -> Result<T, StoreError> {
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
            self.row("SELECT body FROM charges WHERE id = ?1", [&name], |row| {
                row.get(0)
            })?;
        body.map(|body| from_text(&body, || format!("the charge {name}")))
            .transpose()
    }

    fn account_rows(&self, charge: &Charge) -> Result<AccountRows, StoreError> {
        let mut rows = AccountRows::new();
        for account in charge.accounts() {
            let sql = "SELECT spent, reserved FROM accounts WHERE key = ?1";
            let found = self.row(sql, [account.to_string()], |row| {
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

impl Read<'_> {
    pub(super) fn charges(&self, filter: &ChargeFilter) -> Result<Vec<Charge>, StoreError> {
        let mut sql = String::from("SELECT id, body FROM charges WHERE 1");
        let conditions = [
            filter
                .id
                .map(|id| (" AND id = ?", Value::from(id.to_string()))),
            filter
                .session
                .map(|session| (" AND session = ?", Value::from(id(session).to_vec()))),
            filter
                .after
                .map(|after| (" AND id > ?", Value::from(after.to_string()))),
        ];
        let (conditions, values): (Vec<&str>, Vec<Value>) =
            conditions.into_iter().flatten().unzip();
        sql.extend(conditions);
        sql.push_str(&format!(" ORDER BY id LIMIT {}", limit(filter.limit)));
        self.rows(&sql, params_from_iter(values), |row| {
            let what = || format!("the charge {}", row.get::<_, String>(0).unwrap_or_default());
            Ok(from_text(row.get_ref(1)?.as_str()?, what))
        })
    }

    pub(super) fn account(&self, account: &AccountKey) -> Result<Option<AccountRow>, StoreError> {
        let sql = "SELECT key, spent, reserved FROM accounts WHERE key = ?1";
        Ok(self.rows(sql, [account.to_string()], account_row)?.pop())
    }

    pub(super) fn accounts(
        &self,
        prefix: &str,
        after: Option<&AccountKey>,
        most: usize,
    ) -> Result<Vec<AccountRow>, StoreError> {
        let after = after
            .map(AccountKey::to_string)
            .filter(|after| after.as_str() >= prefix);
        let sql = match after {
            Some(_) => {
                "SELECT key, spent, reserved FROM accounts WHERE key > ?1 ORDER BY key LIMIT ?2"
            }
            None => {
                "SELECT key, spent, reserved FROM accounts WHERE key >= ?1 ORDER BY key LIMIT ?2"
            }
        };
        let from = after.as_deref().unwrap_or(prefix);
        let mut found = self.rows(sql, params![from, limit(most)], account_row)?;
        // Those that start alike lie side by side. SQLite itself would stop comparing at a zero byte.
        let end = found
            .iter()
            .position(|row| !row.account.to_string().starts_with(prefix));
        found.truncate(end.unwrap_or(found.len()));
        Ok(found)
    }
}

fn account_row(row: &Row<'_>) -> rusqlite::Result<Result<AccountRow, StoreError>> {
    let (spent, reserved) = (from_db(row.get(1)?), from_db(row.get(2)?));
    Ok(
        account_key(row.get_ref(0)?.as_str()?).map(|account| AccountRow {
            account,
            spent,
            reserved,
        }),
    )
}
