//! Connections that read, and how columns become values.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use sqlx::{
    PgPool, Postgres, Row,
    postgres::{PgArguments, PgRow},
    query::Query,
};
use tokio::time::sleep;
use toolgate_core::{StoreError, Timestamp};
use uuid::Uuid;

use super::{
    connect::{DatabaseAddress, is_connection_lost},
    id::PgUuid,
};
use crate::{encoded::decode_json, patience::Patience};

/// Connections that read committed data.
pub(super) struct PostgresReader {
    pub(super) pool: PgPool,
    pub(super) address: DatabaseAddress,
}

/// The reason why a row cannot be returned.
pub(super) enum RowError {
    Column(sqlx::Error),
    Content(StoreError),
}

impl From<sqlx::Error> for RowError {
    fn from(error: sqlx::Error) -> Self {
        Self::Column(error)
    }
}

impl From<StoreError> for RowError {
    fn from(error: StoreError) -> Self {
        Self::Content(error)
    }
}

pub(super) type PgQuery<'q> = Query<'q, Postgres, PgArguments>;

impl PostgresReader {
    pub(super) async fn query_row<'q, T>(
        &self,
        ask: impl Fn() -> PgQuery<'q>,
        read: impl Fn(&PgRow) -> Result<T, RowError>,
    ) -> Result<Option<T>, StoreError> {
        Ok(self.query_rows(ask, read).await?.pop())
    }

    pub(super) async fn query_rows<'q, T>(
        &self,
        ask: impl Fn() -> PgQuery<'q>,
        read: impl Fn(&PgRow) -> Result<T, RowError>,
    ) -> Result<Vec<T>, StoreError> {
        let rows = self
            .fetch_rows(ask)
            .await
            .map_err(|error| self.address.database_error(error))?;
        let read = rows.iter().map(|row| match read(row) {
            Ok(found) => Ok(found),
            Err(RowError::Column(error)) => Err(self.address.database_error(error).into()),
            Err(RowError::Content(error)) => Err(error),
        });
        read.collect()
    }
}

impl PostgresReader {
    /// Queries the database, again and again while the server is away. Reading twice changes
    /// nothing.
    async fn fetch_rows<'q>(
        &self,
        ask: impl Fn() -> PgQuery<'q>,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let mut patience = Patience::starting_now(self.address.patience);
        let mut is_first = true;
        loop {
            let error = match ask().fetch_all(&self.pool).await {
                Err(error) if is_connection_lost(&error) => error,
                answer => return answer,
            };
            // A pooled connection may have been lost since its last use; another one may be good.
            if std::mem::take(&mut is_first) {
                continue;
            }
            match patience.next_delay() {
                Some(delay) => sleep(delay).await,
                None => return Err(error),
            }
        }
    }
}

/// Parses a column that holds JSON.
pub(super) fn decode_column<T: DeserializeOwned>(
    row: &PgRow,
    column: usize,
    what: impl FnOnce() -> String,
) -> Result<T, RowError> {
    Ok(decode_json(row.try_get(column)?, what)?)
}

pub(super) fn uuid_column(row: &PgRow, column: usize) -> Result<Uuid, sqlx::Error> {
    row.try_get::<PgUuid, _>(column).map(|id| id.0)
}

pub(super) fn time_column(row: &PgRow, column: usize) -> Result<Timestamp, sqlx::Error> {
    row.try_get(column).map(Timestamp::from_micros)
}

/// Reads the lease of a session: the holder, and the time the lease expires in the next column.
pub(super) fn held_columns(
    row: &PgRow,
    column: usize,
) -> Result<Option<(Arc<str>, Timestamp)>, sqlx::Error> {
    let holder: Option<String> = row.try_get(column)?;
    let until: Option<i64> = row.try_get(column + 1)?;
    Ok(holder.map(Arc::from).zip(until.map(Timestamp::from_micros)))
}
