//! What each kind of read asks the database.

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
    ApprovalFilter, ApprovalRow, CallId, Digest, Event, LedgerHead, LedgerName, Post, Record, Said,
    SealedEntry, SessionFilter, SessionId, SessionRow, StoreError, Timestamp, TurnFilter, TurnId,
    TurnRow,
};
use uuid::Uuid;

use super::{
    connect::{Address, is_lost},
    facts::digest,
    id::Id,
};
use crate::encoded::{
    PIECE, from_db, from_text, hidden_condition, limit, message, message_keys, state_of, to_db,
};

/// What was taken up is not there any more.
const POSTED: &str =
    "SELECT session, max(number) FROM posts WHERE session = ANY($1) GROUP BY session";

/// Connections that read what is committed.
pub(super) struct Reads {
    pub(super) pool: PgPool,
    pub(super) address: Address,
}

/// Why a row cannot be given out.
pub(super) enum Bad {
    Column(sqlx::Error),
    Content(StoreError),
}

impl From<sqlx::Error> for Bad {
    fn from(error: sqlx::Error) -> Self {
        Self::Column(error)
    }
}

impl From<StoreError> for Bad {
    fn from(error: StoreError) -> Self {
        Self::Content(error)
    }
}

pub(super) type Asked<'q> = Query<'q, Postgres, PgArguments>;

impl Reads {
    pub(super) async fn events(
        &self,
        session: SessionId,
        after: u64,
        most: usize,
    ) -> Result<Vec<Arc<Event>>, StoreError> {
        let sql = "SELECT sequence, body FROM events WHERE session = $1 AND sequence > $2 ORDER BY sequence LIMIT $3";
        let ask = || {
            sqlx::query(sql)
                .bind(Id(session.uuid()))
                .bind(to_db(after))
                .bind(limit(most))
        };
        let what = |row: &PgRow| format!("event {} of session {session}", row.get::<i64, _>(0));
        self.rows(ask, |row| Ok(Arc::new(body(row, 1, || what(row))?)))
            .await
    }

    pub(super) async fn revision(&self, session: SessionId) -> Result<u64, StoreError> {
        let ask =
            || sqlx::query("SELECT revision FROM sessions WHERE id = $1").bind(Id(session.uuid()));
        Ok(self
            .row(ask, |row| Ok(from_db(row.try_get(0)?)))
            .await?
            .unwrap_or(0))
    }

    pub(super) async fn record(&self, name: &str) -> Result<Option<Record>, StoreError> {
        let ask = || sqlx::query("SELECT body FROM records WHERE key = $1").bind(name.as_bytes());
        self.row(ask, |row| body(row, 0, || name.to_owned())).await
    }

    pub(super) async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        most: usize,
    ) -> Result<Vec<(Arc<str>, Record)>, StoreError> {
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
        // No text has a byte 255, so this is the end of all keys that start like `start`.
        let end = [start.as_bytes(), &[255]].concat();
        let from = from.as_ref().unwrap_or(&start);
        let ask = || {
            sqlx::query(sql)
                .bind(from.as_bytes())
                .bind(end.as_slice())
                .bind(limit(most))
        };
        self.rows(ask, |row| {
            let key = String::from_utf8_lossy(row.try_get(0)?).into_owned();
            let record = body(row, 1, || key.clone())?;
            Ok((
                Arc::from(key.strip_prefix("other/").unwrap_or(&key)),
                record,
            ))
        })
        .await
    }

    pub(super) async fn messages(
        &self,
        session: SessionId,
        before: u64,
        most: usize,
    ) -> Result<Vec<(u64, Arc<Said>)>, StoreError> {
        let sql =
            "SELECT key, body FROM records WHERE key >= $1 AND key < $2 ORDER BY key DESC LIMIT $3";
        let [first, end] = message_keys(session, before);
        let ask = || {
            sqlx::query(sql)
                .bind(first.as_bytes())
                .bind(end.as_bytes())
                .bind(limit(most))
        };
        let found = self.rows(ask, |row| {
            let key = String::from_utf8_lossy(row.try_get(0)?).into_owned();
            let record = body(row, 1, || key.clone())?;
            Ok((key, record))
        });
        let mut found = found.await?;
        found.reverse();
        found
            .into_iter()
            .map(|(key, record)| message(&key, record))
            .collect()
    }

    pub(super) async fn blob(
        &self,
        kept: Digest,
        range: Range<u64>,
    ) -> Result<Option<Bytes>, StoreError> {
        let ask =
            || sqlx::query("SELECT size FROM blobs WHERE digest = $1").bind(&kept.as_bytes()[..]);
        let Some(size) = self.row(ask, |row| Ok(from_db(row.try_get(0)?))).await? else {
            return Ok(None);
        };
        let (start, end) = (range.start.min(size), range.end.min(size));
        if start >= end {
            return Ok(Some(Bytes::new()));
        }
        let (first, last) = (start / PIECE, (end - 1) / PIECE);
        let mut found = BytesMut::with_capacity((end - start) as usize);
        for number in first..=last {
            // Only the part that is wanted leaves the server.
            let (from, until) = (start.max(number * PIECE), end.min((number + 1) * PIECE));
            let sql = "SELECT substring(bytes FROM $3 FOR $4) FROM blob_pieces WHERE digest = $1 AND number = $2";
            let (skip, count) = ((from - number * PIECE) as i32 + 1, (until - from) as i32);
            let ask = || {
                sqlx::query(sql)
                    .bind(&kept.as_bytes()[..])
                    .bind(to_db(number))
                    .bind(skip)
                    .bind(count)
            };
            let piece: Option<Vec<u8>> = self.row(ask, |row| Ok(row.try_get(0)?)).await?;
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

    pub(super) async fn posts(
        &self,
        session: SessionId,
        after: u64,
        most: usize,
    ) -> Result<Vec<(u64, Post)>, StoreError> {
        let sql = "SELECT number, body FROM posts WHERE session = $1 AND number > $2 ORDER BY number LIMIT $3";
        let ask = || {
            sqlx::query(sql)
                .bind(Id(session.uuid()))
                .bind(to_db(after))
                .bind(limit(most))
        };
        self.rows(ask, |row| {
            let number = from_db(row.try_get(0)?);
            Ok((
                number,
                body(row, 1, || format!("post {number} of session {session}"))?,
            ))
        })
        .await
    }

    /// The numbers of the newest posts of some sessions.
    /// The newest post of each session that is not taken up yet.
    pub(super) async fn posted(
        &self,
        sessions: &[SessionId],
    ) -> Result<Vec<(SessionId, u64)>, StoreError> {
        let ids: Vec<Id> = sessions.iter().map(|session| Id(session.uuid())).collect();
        let ask = || sqlx::query(POSTED).bind(ids.clone());
        self.rows(ask, |row| {
            Ok((SessionId::new(uuid(row, 0)?), from_db(row.try_get(1)?)))
        })
        .await
    }

    pub(super) async fn sessions(
        &self,
        filter: &SessionFilter,
    ) -> Result<Vec<SessionRow>, StoreError> {
        let open = match filter.with_open_turns {
            true => {
                "AND EXISTS (SELECT 1 FROM turns WHERE session = sessions.id AND settled_at IS NULL)"
            }
            false => "",
        };
        let hidden = hidden_condition(filter.hidden);
        let sql = format!(
            "SELECT id, revision, created_at, updated_at, holder, lease_until, hidden_at FROM sessions
             WHERE ($1::uuid IS NULL OR id > $1) AND ($2::uuid IS NULL OR id = $2) AND revision > 0 {hidden} {open}
             ORDER BY id LIMIT $3"
        );
        let (after, only) = (
            filter.after.map(|after| Id(after.uuid())),
            filter.session.map(|only| Id(only.uuid())),
        );
        let ask = || {
            sqlx::query(AssertSqlSafe(sql.clone()))
                .bind(after)
                .bind(only)
                .bind(limit(filter.limit))
        };
        self.rows(ask, |row| {
            let holder: Option<String> = row.try_get(4)?;
            let until: Option<i64> = row.try_get(5)?;
            Ok(SessionRow {
                session: SessionId::new(uuid(row, 0)?),
                revision: from_db(row.try_get(1)?),
                created_at: time(row, 2)?,
                updated_at: time(row, 3)?,
                held: holder.map(Arc::from).zip(until.map(Timestamp::from_micros)),
                hidden_at: row
                    .try_get::<Option<i64>, _>(6)?
                    .map(Timestamp::from_micros),
            })
        })
        .await
    }

    pub(super) async fn turns(&self, filter: &TurnFilter) -> Result<Vec<TurnRow>, StoreError> {
        let open = if filter.open {
            "AND settled_at IS NULL"
        } else {
            ""
        };
        let sql = format!(
            "SELECT turn, session, opened_at, settled_at FROM turns
             WHERE session = $1 AND ($2::uuid IS NULL OR turn > $2) {open} ORDER BY turn LIMIT $3"
        );
        let (session, after) = (
            Id(filter.session.uuid()),
            filter.after.map(|after| Id(after.uuid())),
        );
        let ask = || {
            sqlx::query(AssertSqlSafe(sql.clone()))
                .bind(session)
                .bind(after)
                .bind(limit(filter.limit))
        };
        self.rows(ask, |row| {
            Ok(TurnRow {
                turn: TurnId::new(uuid(row, 0)?),
                session: SessionId::new(uuid(row, 1)?),
                opened_at: time(row, 2)?,
                settled_at: row
                    .try_get::<Option<i64>, _>(3)?
                    .map(Timestamp::from_micros),
            })
        })
        .await
    }

    pub(super) async fn approvals(
        &self,
        filter: &ApprovalFilter,
    ) -> Result<Vec<ApprovalRow>, StoreError> {
        let ask = || ask_for_approvals(filter).expect("ids, names and numbers can be sent");
        self.rows(ask, |row| {
            let call = uuid(row, 0)?;
            Ok(ApprovalRow {
                session: SessionId::new(uuid(row, 1)?),
                turn: TurnId::new(uuid(row, 2)?),
                asked_at: time(row, 3)?,
                state: state_of(row.try_get(4)?)?,
                request: Arc::new(body(row, 5, || format!("the approval of call {call}"))?),
            })
        })
        .await
    }

    pub(super) async fn entries(
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
                .bind(limit(most))
        };
        self.rows(ask, |row| {
            let (counter, body) = (from_db(row.try_get(0)?), row.try_get::<&str, _>(3)?.into());
            let (previous, hash) = (digest(row.try_get(1)?)?, digest(row.try_get(2)?)?);
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

    pub(super) async fn ledgers(&self) -> Result<Vec<LedgerHead>, StoreError> {
        let ask = || sqlx::query("SELECT name, counter, hash FROM ledgers ORDER BY name");
        self.rows(ask, |row| {
            let ledger = LedgerName::try_from(row.try_get::<String, _>(0)?);
            let ledger = ledger.map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
            Ok(LedgerHead {
                ledger,
                counter: from_db(row.try_get(1)?),
                hash: digest(row.try_get(2)?)?,
            })
        })
        .await
    }

    pub(super) async fn row<'q, T>(
        &self,
        ask: impl Fn() -> Asked<'q>,
        read: impl Fn(&PgRow) -> Result<T, Bad>,
    ) -> Result<Option<T>, StoreError> {
        Ok(self.rows(ask, read).await?.pop())
    }

    pub(super) async fn rows<'q, T>(
        &self,
        ask: impl Fn() -> Asked<'q>,
        read: impl Fn(&PgRow) -> Result<T, Bad>,
    ) -> Result<Vec<T>, StoreError> {
        let rows = match ask().fetch_all(&self.pool).await {
            // Reading twice changes nothing, and a connection can have been lost since it was last used.
            Err(error) if is_lost(&error) => ask().fetch_all(&self.pool).await,
            answer => answer,
        };
        let rows = rows.map_err(|error| self.address.error(error))?;
        let read = rows.iter().map(|row| match read(row) {
            Ok(found) => Ok(found),
            Err(Bad::Column(error)) => Err(self.address.error(error).into()),
            Err(Bad::Content(error)) => Err(error),
        });
        read.collect()
    }
}

fn ask_for_approvals(filter: &ApprovalFilter) -> Result<Asked<'static>, BoxDynError> {
    let mut sql = String::from(
        "SELECT call, session, turn, asked_at, state, request FROM approvals WHERE true",
    );
    let mut arguments = PgArguments::default();
    let ids = [
        (" AND call =", filter.call.map(CallId::uuid)),
        (" AND session =", filter.session.map(SessionId::uuid)),
        (" AND call >", filter.after.map(|after| after.call().uuid())),
    ];
    for (condition, id) in ids {
        if let Some(id) = id {
            arguments.add(Id(id))?;
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
    arguments.add(limit(filter.limit))?;
    sql.push_str(&format!(" ORDER BY call LIMIT ${}", arguments.len()));
    Ok(sqlx::query_with(AssertSqlSafe(sql), arguments))
}

/// Reads what is kept as JSON in a column.
pub(super) fn body<T: DeserializeOwned>(
    row: &PgRow,
    column: usize,
    what: impl FnOnce() -> String,
) -> Result<T, Bad> {
    Ok(from_text(row.try_get(column)?, what)?)
}

fn uuid(row: &PgRow, column: usize) -> Result<Uuid, sqlx::Error> {
    row.try_get::<Id, _>(column).map(|id| id.0)
}

fn time(row: &PgRow, column: usize) -> Result<Timestamp, sqlx::Error> {
    row.try_get(column).map(Timestamp::from_micros)
}
