//! Accounts and charges in a PostgreSQL database.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::{
    Arguments, AssertSqlSafe, PgConnection, Row,
    error::BoxDynError,
    postgres::{PgArguments, PgRow},
};
use toolgate_core::{
    AccountKey, AccountMovement, AccountRow, AccountRows, AccountStore, Charge, ChargeFilter,
    SessionId, StoreError,
};

use super::{
    PostgresStore,
    id::PgUuid,
    locked_rows::RowSelection,
    read::{PgQuery, RowError},
};
use crate::{
    checksum::{RowChecksum, row_name},
    encoded::{decode_account, decode_charge, encode_json, limit_to_db, to_db},
};

impl AccountStore for PostgresStore {
    async fn reserve(&self, charge: Charge) -> Result<Charge, StoreError> {
        let about = charge_rows(&charge);
        self.queue_write(about, move |plan| plan.facts.books.reserve_charge(&charge))
            .await
    }

    async fn settle_charge(
        &self,
        charge: Charge,
        actual: Vec<u64>,
    ) -> Result<Vec<AccountMovement>, StoreError> {
        let about = charge_rows(&charge);
        self.queue_write(about, move |plan| {
            let settle = |rows: &mut AccountRows| charge.settle_in(rows, &actual);
            plan.facts.books.close_charge(&charge, settle)
        })
        .await
    }

    async fn release_charge(&self, charge: Charge) -> Result<(), StoreError> {
        let about = charge_rows(&charge);
        self.queue_write(about, move |plan| {
            let release = |rows: &mut AccountRows| charge.release_in(rows);
            plan.facts.books.close_charge(&charge, release)
        })
        .await
    }

    async fn charges(&self, filter: ChargeFilter) -> Result<Vec<Charge>, StoreError> {
        let ask = || charges_query(&filter).expect("ids, names and numbers can be encoded");
        self.reads.query_rows(ask, |row| charge_row(row, 0)).await
    }

    async fn account(&self, account: &AccountKey) -> Result<Option<AccountRow>, StoreError> {
        let key = account.to_string();
        let ask = || {
            sqlx::query("SELECT key, spent, reserved, checksum FROM accounts WHERE key = $1")
                .bind(key.clone().into_bytes())
        };
        self.reads.query_row(ask, |row| account_row(row, 0)).await
    }

    async fn accounts(
        &self,
        prefix: &str,
        after: Option<&AccountKey>,
        limit: usize,
    ) -> Result<Vec<AccountRow>, StoreError> {
        let after = after
            .map(AccountKey::to_string)
            .filter(|after| after.as_str() >= prefix);
        let sql = match after {
            Some(_) => {
                "SELECT key, spent, reserved, checksum FROM accounts WHERE key > $1 AND key < $2 ORDER BY key LIMIT $3"
            }
            None => {
                "SELECT key, spent, reserved, checksum FROM accounts WHERE key >= $1 AND key < $2 ORDER BY key LIMIT $3"
            }
        };
        // No text has a byte 255, so this is the end of all keys that start with `prefix`.
        let end = [prefix.as_bytes(), &[255]].concat();
        let from = after.as_deref().unwrap_or(prefix);
        let ask = || {
            sqlx::query(sql)
                .bind(from.as_bytes())
                .bind(end.as_slice())
                .bind(limit_to_db(limit))
        };
        self.reads.query_rows(ask, |row| account_row(row, 0)).await
    }
}

/// Names what a change of a charge depends on: the charge and all its accounts.
pub(super) fn charge_rows(charge: &Charge) -> impl Fn(&mut RowSelection) + Send + 'static {
    let id = charge.id.to_string();
    let accounts = charge
        .accounts()
        .map(AccountKey::to_string)
        .collect::<Vec<_>>();
    move |wants| {
        wants.charges.insert(id.clone());
        wants.accounts.extend(accounts.iter().cloned());
    }
}

/// The accounts and charges that a group depends on, in their state after the writes so far.
#[derive(Default)]
pub(super) struct LockedAccounts {
    accounts: AccountRows,
    known_accounts: BTreeSet<AccountKey>,
    changed_accounts: BTreeSet<AccountKey>,
    open: BTreeMap<String, Charge>,
    /// The charges that are in the database, whatever the group has done to them.
    known_charges: BTreeSet<String>,
    changed_charges: BTreeSet<String>,
    /// The names of rows that differ from their checksums. Only their own writes are rejected, and
    /// not the rest of the group.
    damaged: BTreeSet<String>,
}

// Locked in the order of names, charges first, so that two processes never deadlock.
const LOCK_ACCOUNTS_SQL: &str = "
    WITH locked_charges AS MATERIALIZED (
        SELECT id, session, body, checksum FROM charges WHERE id = ANY($1) ORDER BY id FOR UPDATE
    ), locked_accounts AS MATERIALIZED (
        SELECT key, spent, reserved, checksum FROM accounts WHERE key = ANY($2) ORDER BY key FOR UPDATE
    )
    SELECT id, session, body, checksum, NULL::bytea AS key, NULL::bigint AS spent, NULL::bigint AS reserved,
           NULL::bigint AS account_checksum FROM locked_charges
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, key, spent, reserved, checksum FROM locked_accounts";

impl LockedAccounts {
    pub(super) async fn lock_accounts(
        connection: &mut PgConnection,
        wants: &RowSelection,
    ) -> Result<Self, sqlx::Error> {
        let mut books = Self::default();
        if wants.charges.is_empty() {
            return Ok(books);
        }
        let charges: Vec<&str> = wants.charges.iter().map(String::as_str).collect();
        let accounts: Vec<&[u8]> = wants.accounts.iter().map(String::as_bytes).collect();
        for row in &sqlx::query(LOCK_ACCOUNTS_SQL)
            .bind(charges)
            .bind(accounts)
            .fetch_all(connection)
            .await?
        {
            if row.try_get::<Option<&str>, _>("body")?.is_some() {
                books.add_charge(row.try_get("id")?, charge_row(row, 0))?;
            } else {
                let key = String::from_utf8_lossy(row.try_get("key")?).into_owned();
                books.add_account(key, account_row(row, 4))?;
            }
        }
        Ok(books)
    }

    fn add_charge(
        &mut self,
        id: String,
        read: Result<Charge, RowError>,
    ) -> Result<(), sqlx::Error> {
        match read {
            Ok(charge) => {
                self.known_charges.insert(id.clone());
                self.open.insert(id, charge);
            }
            Err(RowError::Content(_)) => {
                self.damaged.insert(row_name("charges", id));
            }
            Err(RowError::Column(error)) => return Err(error),
        }
        Ok(())
    }

    fn add_account(
        &mut self,
        key: String,
        read: Result<AccountRow, RowError>,
    ) -> Result<(), sqlx::Error> {
        match read {
            Ok(row) => {
                self.known_accounts.insert(row.account.clone());
                self.accounts.insert(row.account.clone(), row);
            }
            Err(RowError::Content(_)) => {
                self.damaged.insert(row_name("accounts", key));
            }
            Err(RowError::Column(error)) => return Err(error),
        }
        Ok(())
    }

    /// Fails if the row of a charge or of one of its accounts is damaged.
    fn check_intact(&self, charge: &Charge) -> Result<(), StoreError> {
        let accounts = charge
            .accounts()
            .map(|account| row_name("accounts", account));
        let names = std::iter::once(row_name("charges", charge.id)).chain(accounts);
        match names.into_iter().find(|name| self.damaged.contains(name)) {
            Some(what) => Err(StoreError::Damaged {
                what,
                source: "its checksum does not match".into(),
            }),
            None => Ok(()),
        }
    }

    fn reserve_charge(&mut self, charge: &Charge) -> Result<Charge, StoreError> {
        self.check_intact(charge)?;
        let name = charge.id.to_string();
        if let Some(open) = self.open.get(&name) {
            return Ok(open.clone());
        }
        let known = charge
            .accounts()
            .filter_map(|account| self.accounts.get(account));
        // On copies: a charge that is short in its last account must not change the plan, which the
        // whole group shares.
        let mut rows: AccountRows = known
            .map(|row| (row.account.clone(), row.clone()))
            .collect();
        charge.reserve_in(&mut rows)?;
        self.accounts.extend(rows);
        self.mark_changed(charge);
        self.open.insert(name, charge.clone());
        Ok(charge.clone())
    }

    /// Closes a charge, if exactly this one is open.
    pub(super) fn close_charge<T: Default>(
        &mut self,
        charge: &Charge,
        end: impl FnOnce(&mut AccountRows) -> T,
    ) -> Result<T, StoreError> {
        self.check_intact(charge)?;
        let name = charge.id.to_string();
        // A retry after a lost answer finds the charge closed, or another one under its id: nothing
        // is booked twice.
        if self.open.get(&name) != Some(charge) {
            return Ok(T::default());
        }
        self.open.remove(&name);
        self.mark_changed(charge);
        Ok(end(&mut self.accounts))
    }

    fn mark_changed(&mut self, charge: &Charge) {
        self.changed_charges.insert(charge.id.to_string());
        self.changed_accounts.extend(charge.accounts().cloned());
    }

    /// Writes the changes within the open transaction.
    ///
    /// If another process created the same account or charge at the same time, this fails, and the
    /// group is planned again.
    pub(super) fn is_unchanged(&self) -> bool {
        self.changed_charges.is_empty()
    }

    pub(super) async fn write_changes(
        &self,
        connection: &mut PgConnection,
    ) -> Result<(), sqlx::Error> {
        if self.is_unchanged() {
            return Ok(());
        }
        let update = "UPDATE accounts SET spent = new.spent, reserved = new.reserved, checksum = new.checksum
                      FROM UNNEST($1::bytea[], $2::bigint[], $3::bigint[], $4::bigint[])
                          AS new (key, spent, reserved, checksum)
                      WHERE accounts.key = new.key";
        let insert = "INSERT INTO accounts (key, spent, reserved, checksum)
                      SELECT * FROM UNNEST($1::bytea[], $2::bigint[], $3::bigint[], $4::bigint[])";
        for (sql, known) in [(update, true), (insert, false)] {
            let changed = self
                .changed_accounts
                .iter()
                .filter(|key| self.known_accounts.contains(*key) == known);
            let rows: Vec<&AccountRow> = changed.filter_map(|key| self.accounts.get(key)).collect();
            if rows.is_empty() {
                continue;
            }
            let keys: Vec<Vec<u8>> = rows
                .iter()
                .map(|row| row.account.to_string().into_bytes())
                .collect();
            let spent: Vec<i64> = rows.iter().map(|row| to_db(row.spent)).collect();
            let reserved: Vec<i64> = rows.iter().map(|row| to_db(row.reserved)).collect();
            let checksums: Vec<i64> = keys
                .iter()
                .zip(spent.iter().zip(&reserved))
                .map(|(key, (spent, reserved))| RowChecksum::of_account(key, *spent, *reserved))
                .map(RowChecksum::to_db)
                .collect();
            sqlx::query(sql)
                .bind(keys)
                .bind(spent)
                .bind(reserved)
                .bind(checksums)
                .execute(&mut *connection)
                .await?;
        }
        self.write_charges(connection).await
    }

    async fn write_charges(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        // Deleted first: a group may close a charge and reserve another one under the same id.
        let ended: Vec<&str> = self
            .changed_charges
            .intersection(&self.known_charges)
            .map(String::as_str)
            .collect();
        if !ended.is_empty() {
            sqlx::query("DELETE FROM charges WHERE id = ANY($1)")
                .bind(ended)
                .execute(&mut *connection)
                .await?;
        }
        let open = || {
            self.changed_charges
                .iter()
                .filter_map(|name| self.open.get_key_value(name))
        };
        let names: Vec<&str> = open().map(|(name, _)| name.as_str()).collect();
        if names.is_empty() {
            return Ok(());
        }
        let sessions: Vec<Option<PgUuid>> = open()
            .map(|(_, open)| open.session.map(|id| PgUuid(id.uuid())))
            .collect();
        let bodies = open()
            .map(|(_, open)| encode_json(open))
            .collect::<Result<Vec<String>, StoreError>>();
        let bodies = bodies.map_err(|error| sqlx::Error::Encode(Box::new(error)))?;
        let checksums: Vec<i64> = open()
            .zip(&bodies)
            .map(|((name, open), body)| {
                RowChecksum::of_charge(name.as_bytes(), open.session, body.as_bytes()).to_db()
            })
            .collect();
        let sql = "INSERT INTO charges (id, session, body, checksum)
                   SELECT * FROM UNNEST($1::text[], $2::uuid[], $3::text[], $4::bigint[])";
        sqlx::query(sql)
            .bind(names)
            .bind(sessions)
            .bind(bodies)
            .bind(checksums)
            .execute(connection)
            .await
            .map(drop)
    }
}

fn charges_query(filter: &ChargeFilter) -> Result<PgQuery<'static>, BoxDynError> {
    let mut sql = String::from("SELECT id, session, body, checksum FROM charges WHERE true");
    let mut arguments = PgArguments::default();
    let names = [
        (" AND id =", filter.id.map(|id| id.to_string())),
        (" AND id >", filter.after.map(|id| id.to_string())),
    ];
    for (condition, name) in names {
        if let Some(name) = name {
            arguments.add(name)?;
            sql.push_str(&format!("{condition} ${}", arguments.len()));
        }
    }
    if let Some(session) = filter.session {
        arguments.add(PgUuid(session.uuid()))?;
        sql.push_str(&format!(" AND session = ${}", arguments.len()));
    }
    arguments.add(limit_to_db(filter.limit))?;
    sql.push_str(&format!(" ORDER BY id LIMIT ${}", arguments.len()));
    // Safe: the text holds only our literals and placeholders, and every value is bound.
    Ok(sqlx::query_with(AssertSqlSafe(sql), arguments))
}

/// Reads an account whose key, amounts and checksum are in the columns from `first` on.
pub(super) fn account_row(row: &PgRow, first: usize) -> Result<AccountRow, RowError> {
    Ok(decode_account(
        row.try_get(first)?,
        row.try_get(first + 1)?,
        row.try_get(first + 2)?,
        row.try_get(first + 3)?,
    )?)
}

/// Reads a charge whose id, session, body and checksum are in the columns from `first` on.
pub(super) fn charge_row(row: &PgRow, first: usize) -> Result<Charge, RowError> {
    let id: &str = row.try_get(first)?;
    let session = row.try_get::<Option<PgUuid>, _>(first + 1)?;
    let session = session.map(|id| SessionId::new(id.0));
    let body: &str = row.try_get(first + 2)?;
    let checksum = row.try_get(first + 3)?;
    Ok(decode_charge(
        id.as_bytes(),
        session,
        body.as_bytes(),
        checksum,
    )?)
}
