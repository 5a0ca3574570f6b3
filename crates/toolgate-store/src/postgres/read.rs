//! The queries of each kind of read.

use std::{ops::Range, sync::Arc};

use bytes::{Bytes, BytesMut};
use serde::de::DeserializeOwned;
use sqlx::{
    Arguments, AssertSqlSafe, PgPool, Postgres, Row,
    error::BoxDynError,
    postgres::{PgArguments, PgRow},
    query::Query,
};
use toolgate_core::{
    ApprovalFilter, ApprovalRow, CallId, Digest, Event, LedgerHead, LedgerName, MailboxItem,
    MessageRecord, SealedEntry, SessionFilter, SessionId, SessionRow, StoreError, StoreRecord,
    Timestamp, TurnFilter, TurnId, TurnRow,
};
use uuid::Uuid;

use super::{
    connect::{DatabaseAddress, is_connection_lost},
    id::PgUuid,
    locked_rows::parse_digest,
};
use crate::encoded::{
    BLOB_PIECE_BYTES, decode_json, decode_message, from_db, hidden_condition, limit_to_db,
    message_keys, parse_state, to_db,
};

/// The query for the newest input per session. Consumed inputs are deleted, so they are not
/// counted.
const NEWEST_POSTS_SQL: &str =
    "SELECT session, max(number) FROM posts WHERE session = ANY($1) GROUP BY session";

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
    pub(super) async fn read_events(
        &self,
        session: SessionId,
        after: u64,
        most: usize,
    ) -> Result<Vec<Arc<Event>>, StoreError> {
        let sql = "SELECT sequence, body FROM events WHERE session = $1 AND sequence > $2 ORDER BY sequence LIMIT $3";
        let ask = || {
            sqlx::query(sql)
                .bind(PgUuid(session.uuid()))
                .bind(to_db(after))
                .bind(limit_to_db(most))
        };
        let what = |row: &PgRow| format!("event {} of session {session}", row.get::<i64, _>(0));
        self.query_rows(ask, |row| {
            Ok(Arc::new(decode_column(row, 1, || what(row))?))
        })
        .await
    }

    pub(super) async fn read_revision(&self, session: SessionId) -> Result<u64, StoreError> {
        let ask = || {
            sqlx::query("SELECT revision FROM sessions WHERE id = $1").bind(PgUuid(session.uuid()))
        };
        Ok(self
            .query_row(ask, |row| Ok(from_db(row.try_get(0)?)))
            .await?
            .unwrap_or(0))
    }

    pub(super) async fn read_record(&self, name: &str) -> Result<Option<StoreRecord>, StoreError> {
        let ask = || sqlx::query("SELECT body FROM records WHERE key = $1").bind(name.as_bytes());
        self.query_row(ask, |row| decode_column(row, 0, || name.to_owned()))
            .await
    }

    pub(super) async fn list_records(
        &self,
        prefix: &str,
        after: Option<&str>,
        most: usize,
    ) -> Result<Vec<(Arc<str>, StoreRecord)>, StoreError> {
        let start = format!("other/{prefix}");
        let from = after
            .filter(|after| *after >= prefix)
            .map(|after| format!("other/{after}"));
        let sql = match from {
            Some(_) => {
                "SELECT key, body FROM records WHERE key > $1 AND key < $2 ORDER BY key LIMIT $3"
            }
            None => {
                "SELECT key, body FROM records WHERE key >= $1 AND key < $2 ORDER BY key LIMIT $3"
            }
        };
        // No text has a byte 255, so this is the end of all keys that start with `start`.
        let end = [start.as_bytes(), &[255]].concat();
        let from = from.as_ref().unwrap_or(&start);
        let ask = || {
            sqlx::query(sql)
                .bind(from.as_bytes())
                .bind(end.as_slice())
                .bind(limit_to_db(most))
        };
        self.query_rows(ask, |row| {
            let key = String::from_utf8_lossy(row.try_get(0)?).into_owned();
            let record = decode_column(row, 1, || key.clone())?;
            Ok((
                Arc::from(key.strip_prefix("other/").unwrap_or(&key)),
                record,
            ))
        })
        .await
    }

    pub(super) async fn read_messages(
        &self,
        session: SessionId,
        before: u64,
        most: usize,
    ) -> Result<Vec<(u64, Arc<MessageRecord>)>, StoreError> {
        let sql =
            "SELECT key, body FROM records WHERE key >= $1 AND key < $2 ORDER BY key DESC LIMIT $3";
        let [first, end] = message_keys(session, before);
        let ask = || {
            sqlx::query(sql)
                .bind(first.as_bytes())
                .bind(end.as_bytes())
                .bind(limit_to_db(most))
        };
        let found = self.query_rows(ask, |row| {
            let key = String::from_utf8_lossy(row.try_get(0)?).into_owned();
            let record = decode_column(row, 1, || key.clone())?;
            Ok((key, record))
        });
        let mut found = found.await?;
        found.reverse();
        found
            .into_iter()
            .map(|(key, record)| decode_message(&key, record))
            .collect()
    }

    pub(super) async fn read_blob(
        &self,
        kept: Digest,
        range: Range<u64>,
    ) -> Result<Option<Bytes>, StoreError> {
        let ask =
            || sqlx::query("SELECT size FROM blobs WHERE digest = $1").bind(&kept.as_bytes()[..]);
        let Some(size) = self
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
                    .bind(&kept.as_bytes()[..])
                    .bind(to_db(number))
                    .bind(skip)
                    .bind(count)
            };
            let piece: Option<Vec<u8>> = self.query_row(ask, |row| Ok(row.try_get(0)?)).await?;
            found.extend_from_slice(&piece.unwrap_or_default());
        }
        if found.len() as u64 != end - start {
            let what = format!("blob {kept}");
            return Err(StoreError::Damaged {
                what,
                source: "a piece of it is missing".into(),
            });
        }
        Ok(Some(found.freeze()))
    }

    pub(super) async fn read_posts(
        &self,
        session: SessionId,
        after: u64,
        most: usize,
    ) -> Result<Vec<(u64, MailboxItem)>, StoreError> {
        let sql = "SELECT number, body FROM posts WHERE session = $1 AND number > $2 ORDER BY number LIMIT $3";
        let ask = || {
            sqlx::query(sql)
                .bind(PgUuid(session.uuid()))
                .bind(to_db(after))
                .bind(limit_to_db(most))
        };
        self.query_rows(ask, |row| {
            let number = from_db(row.try_get(0)?);
            Ok((
                number,
                decode_column(row, 1, || format!("post {number} of session {session}"))?,
            ))
        })
        .await
    }

    /// Returns the number of the newest input in the mailbox of each session that has any.
    pub(super) async fn newest_posts(
        &self,
        sessions: &[SessionId],
    ) -> Result<Vec<(SessionId, u64)>, StoreError> {
        let ids: Vec<PgUuid> = sessions
            .iter()
            .map(|session| PgUuid(session.uuid()))
            .collect();
        let ask = || sqlx::query(NEWEST_POSTS_SQL).bind(ids.clone());
        self.query_rows(ask, |row| {
            Ok((
                SessionId::new(uuid_column(row, 0)?),
                from_db(row.try_get(1)?),
            ))
        })
        .await
    }

    pub(super) async fn list_sessions(
        &self,
        filter: &SessionFilter,
    ) -> Result<Vec<SessionRow>, StoreError> {
        let open = if filter.with_open_turns {
            "AND EXISTS (SELECT 1 FROM turns WHERE session = sessions.id AND settled_at IS NULL)"
        } else {
            ""
        };
        let hidden = hidden_condition(filter.hidden);
        let sql = format!(
            "SELECT id, revision, created_at, updated_at, holder, lease_until, hidden_at FROM sessions
             WHERE ($1::uuid IS NULL OR id > $1) AND ($2::uuid IS NULL OR id = $2) AND revision > 0 {hidden} {open}
             ORDER BY id LIMIT $3"
        );
        let after = filter.after.map(|after| PgUuid(after.uuid()));
        let only = filter.session.map(|only| PgUuid(only.uuid()));
        let ask = || {
            sqlx::query(AssertSqlSafe(sql.clone()))
                .bind(after)
                .bind(only)
                .bind(limit_to_db(filter.limit))
        };
        self.query_rows(ask, |row| {
            let holder: Option<String> = row.try_get(4)?;
            let until: Option<i64> = row.try_get(5)?;
            Ok(SessionRow {
                session: SessionId::new(uuid_column(row, 0)?),
                revision: from_db(row.try_get(1)?),
                created_at: time_column(row, 2)?,
                updated_at: time_column(row, 3)?,
                held: holder.map(Arc::from).zip(until.map(Timestamp::from_micros)),
                hidden_at: row
                    .try_get::<Option<i64>, _>(6)?
                    .map(Timestamp::from_micros),
            })
        })
        .await
    }

    pub(super) async fn list_turns(&self, filter: &TurnFilter) -> Result<Vec<TurnRow>, StoreError> {
        let open = if filter.open {
            "AND settled_at IS NULL"
        } else {
            ""
        };
        let sql = format!(
            "SELECT turn, session, opened_at, settled_at FROM turns
             WHERE session = $1 AND ($2::uuid IS NULL OR turn > $2) {open} ORDER BY turn LIMIT $3"
        );
        let session = PgUuid(filter.session.uuid());
        let after = filter.after.map(|after| PgUuid(after.uuid()));
        let ask = || {
            sqlx::query(AssertSqlSafe(sql.clone()))
                .bind(session)
                .bind(after)
                .bind(limit_to_db(filter.limit))
        };
        self.query_rows(ask, |row| {
            Ok(TurnRow {
                turn: TurnId::new(uuid_column(row, 0)?),
                session: SessionId::new(uuid_column(row, 1)?),
                opened_at: time_column(row, 2)?,
                settled_at: row
                    .try_get::<Option<i64>, _>(3)?
                    .map(Timestamp::from_micros),
            })
        })
        .await
    }

    pub(super) async fn list_approvals(
        &self,
        filter: &ApprovalFilter,
    ) -> Result<Vec<ApprovalRow>, StoreError> {
        let ask = || approvals_query(filter).expect("ids, names and numbers can be encoded");
        self.query_rows(ask, |row| {
            let call = uuid_column(row, 0)?;
            Ok(ApprovalRow {
                session: SessionId::new(uuid_column(row, 1)?),
                turn: TurnId::new(uuid_column(row, 2)?),
                asked_at: time_column(row, 3)?,
                state: parse_state(row.try_get(4)?)?,
                request: Arc::new(decode_column(row, 5, || {
                    format!("the approval of call {call}")
                })?),
            })
        })
        .await
    }

    pub(super) async fn read_entries(
        &self,
        ledger: &LedgerName,
        after: u64,
        most: usize,
    ) -> Result<Vec<SealedEntry>, StoreError> {
        let sql =
            "SELECT counter, previous, hash, body FROM entries WHERE ledger = $1 AND counter > $2
                   ORDER BY counter LIMIT $3";
        let ask = || {
            sqlx::query(sql)
                .bind(ledger.as_str())
                .bind(to_db(after))
                .bind(limit_to_db(most))
        };
        self.query_rows(ask, |row| {
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

    pub(super) async fn read_ledgers(&self) -> Result<Vec<LedgerHead>, StoreError> {
        let ask = || sqlx::query("SELECT name, counter, hash FROM ledgers ORDER BY name");
        self.query_rows(ask, |row| {
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
        let rows = match ask().fetch_all(&self.pool).await {
            // Reading twice changes nothing, and a pooled connection may have been lost since its
            // last use.
            Err(error) if is_connection_lost(&error) => ask().fetch_all(&self.pool).await,
            answer => answer,
        };
        let rows = rows.map_err(|error| self.address.database_error(error))?;
        let read = rows.iter().map(|row| match read(row) {
            Ok(found) => Ok(found),
            Err(RowError::Column(error)) => Err(self.address.database_error(error).into()),
            Err(RowError::Content(error)) => Err(error),
        });
        read.collect()
    }
}

fn approvals_query(filter: &ApprovalFilter) -> Result<PgQuery<'static>, BoxDynError> {
    let mut sql = String::from(
        "SELECT call, session, turn, asked_at, state, request FROM approvals WHERE true",
    );
    let mut arguments = PgArguments::default();
    let ids = [
        (" AND call =", filter.call.map(CallId::uuid)),
        (" AND session =", filter.session.map(SessionId::uuid)),
        (
            " AND call >",
            filter.after.map(|after| after.call_id().uuid()),
        ),
    ];
    for (condition, id) in ids {
        if let Some(id) = id {
            arguments.add(PgUuid(id))?;
            sql.push_str(&format!("{condition} ${}", arguments.len()));
        }
    }
    if let Some(tool) = &filter.tool {
        arguments.add(tool.as_str())?;
        sql.push_str(&format!(" AND tool = ${}", arguments.len()));
    }
    if filter.pending {
        sql.push_str(" AND state = 'pending'");
    }
    arguments.add(limit_to_db(filter.limit))?;
    sql.push_str(&format!(" ORDER BY call LIMIT ${}", arguments.len()));
    Ok(sqlx::query_with(AssertSqlSafe(sql), arguments))
}

/// Parses a column that holds JSON.
pub(super) fn decode_column<T: DeserializeOwned>(
    row: &PgRow,
    column: usize,
    what: impl FnOnce() -> String,
) -> Result<T, RowError> {
    Ok(decode_json(row.try_get(column)?, what)?)
}

fn uuid_column(row: &PgRow, column: usize) -> Result<Uuid, sqlx::Error> {
    row.try_get::<PgUuid, _>(column).map(|id| id.0)
}

fn time_column(row: &PgRow, column: usize) -> Result<Timestamp, sqlx::Error> {
    row.try_get(column).map(Timestamp::from_micros)
}
