//! What each kind of read asks the database.

use std::{ops::Range, path::Path, sync::Arc};

use bytes::{Bytes, BytesMut};
use rusqlite::{
    Connection, OptionalExtension, Params, Row, params, params_from_iter, types::Value,
};
use serde::de::DeserializeOwned;
use toolgate_core::{
    ApprovalFilter, ApprovalRow, Digest, Event, LedgerHead, LedgerName, Post, Record, Said,
    SealedEntry, SessionFilter, SessionId, SessionRow, StoreError, Timestamp, TurnFilter, TurnId,
    TurnRow,
};
use uuid::Uuid;

use super::{connect::database_error, tx::id};
use crate::encoded::{
    PIECE, from_db, from_text, hidden_condition, limit, message, message_keys, state_of, to_db,
};

/// A connection that reads what is committed.
pub(super) struct Read<'a> {
    pub(super) connection: &'a Connection,
    pub(super) path: &'a Path,
}

impl Read<'_> {
    pub(super) fn events(
        &self,
        session: SessionId,
        after: u64,
        most: usize,
    ) -> Result<Vec<Arc<Event>>, StoreError> {
        let sql = "SELECT sequence, body FROM events WHERE session = ?1 AND sequence > ?2 ORDER BY sequence LIMIT ?3";
        self.rows(
            sql,
            params![id(session), to_db(after), limit(most)],
            |row| {
                let what = || {
                    format!(
                        "event {} of session {session}",
                        row.get::<_, i64>(0).unwrap_or_default()
                    )
                };
                Ok(body(row, 1, what)?.map(Arc::new))
            },
        )
    }

    pub(super) fn revision(&self, session: SessionId) -> Result<u64, StoreError> {
        let sql = "SELECT revision FROM sessions WHERE id = ?1";
        Ok(self
            .row(sql, [id(session)], |row| row.get(0))?
            .map_or(0, from_db))
    }

    pub(super) fn record(&self, name: &str) -> Result<Option<Record>, StoreError> {
        let sql = "SELECT body FROM records WHERE key = ?1";
        self.row(sql, [name], |row| body(row, 0, || name.to_owned()))?
            .transpose()
    }

    pub(super) fn list(
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
            Some(_) => "SELECT key, body FROM records WHERE key > ?1 ORDER BY key LIMIT ?2",
            None => "SELECT key, body FROM records WHERE key >= ?1 ORDER BY key LIMIT ?2",
        };
        let failed = |error| StoreError::from(database_error(self.path, error));
        let mut statement = self.connection.prepare_cached(sql).map_err(failed)?;
        let mut rows = statement
            .query(params![from.as_ref().unwrap_or(&start), limit(most)])
            .map_err(failed)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().map_err(failed)? {
            let key: String = row.get(0).map_err(failed)?;
            if !key.starts_with(&start) {
                break;
            }
            let record = body(row, 1, || key.clone()).map_err(failed)??;
            found.push((Arc::from(&key["other/".len()..]), record));
        }
        Ok(found)
    }

    pub(super) fn messages(
        &self,
        session: SessionId,
        before: u64,
        most: usize,
    ) -> Result<Vec<(u64, Arc<Said>)>, StoreError> {
        let sql =
            "SELECT key, body FROM records WHERE key >= ?1 AND key < ?2 ORDER BY key DESC LIMIT ?3";
        let [first, end] = message_keys(session, before);
        let mut found = self.rows(sql, params![first, end, limit(most)], |row| {
            let key: String = row.get(0)?;
            Ok(body(row, 1, || key.clone())?.and_then(|record| message(&key, record)))
        })?;
        found.reverse();
        Ok(found)
    }

    pub(super) fn blob(
        &self,
        digest: Digest,
        range: Range<u64>,
    ) -> Result<Option<Bytes>, StoreError> {
        let sql = "SELECT size FROM blobs WHERE digest = ?1";
        let Some(size) = self.row(sql, [digest.as_bytes()], |row| row.get(0).map(from_db))? else {
            return Ok(None);
        };
        let (start, end) = (range.start.min(size), range.end.min(size));
        if start >= end {
            return Ok(Some(Bytes::new()));
        }
        let (first, last) = (start / PIECE, (end - 1) / PIECE);
        let sql = "SELECT number, bytes FROM blob_pieces WHERE digest = ?1 AND number BETWEEN ?2 AND ?3 ORDER BY number";
        let mut found = BytesMut::with_capacity((end - start) as usize);
        self.rows(
            sql,
            params![digest.as_bytes(), to_db(first), to_db(last)],
            |row| {
                let from = from_db(row.get(0)?) * PIECE;
                let piece = row.get_ref(1)?.as_blob()?;
                let place = |at: u64| (at.saturating_sub(from) as usize).min(piece.len());
                found.extend_from_slice(&piece[place(start)..place(end)]);
                Ok(Ok(()))
            },
        )?;
        if found.len() as u64 != end - start {
            let what = format!("blob {digest}");
            return Err(StoreError::Damaged {
                what,
                source: "a piece of it is missing".into(),
            });
        }
        Ok(Some(found.freeze()))
    }

    pub(super) fn posts(
        &self,
        session: SessionId,
        after: u64,
        most: usize,
    ) -> Result<Vec<(u64, Post)>, StoreError> {
        let sql = "SELECT number, body FROM posts WHERE session = ?1 AND number > ?2 ORDER BY number LIMIT ?3";
        self.rows(
            sql,
            params![id(session), to_db(after), limit(most)],
            |row| {
                let number = from_db(row.get(0)?);
                Ok(
                    body(row, 1, || format!("post {number} of session {session}"))?
                        .map(|post| (number, post)),
                )
            },
        )
    }

    /// The number of the newest post of a session.
    pub(super) fn posted(&self, session: SessionId) -> Result<u64, StoreError> {
        let sql = "SELECT coalesce(max(number), 0) FROM posts WHERE session = ?1";
        Ok(self
            .row(sql, [id(session)], |row| row.get(0))?
            .map_or(0, from_db))
    }

    pub(super) fn sessions(&self, filter: &SessionFilter) -> Result<Vec<SessionRow>, StoreError> {
        let open = match filter.with_open_turns {
            true => {
                "AND EXISTS (SELECT 1 FROM turns WHERE session = sessions.id AND settled_at IS NULL)"
            }
            false => "",
        };
        let hidden = hidden_condition(filter.hidden);
        let sql = format!(
            "SELECT id, revision, created_at, updated_at, holder, lease_until, hidden_at FROM sessions
             WHERE id > ?1 AND id >= ?2 AND id <= ?3 AND revision > 0 {hidden} {open} ORDER BY id LIMIT ?4"
        );
        let after = filter.after.map_or(Vec::new(), |after| id(after).to_vec());
        let (first, last) = filter
            .session
            .map_or(([0; 16], [255; 16]), |only| (id(only), id(only)));
        self.rows(
            &sql,
            params![after, first, last, limit(filter.limit)],
            |row| {
                let holder = row.get::<_, Option<String>>(4)?.map(Arc::from);
                Ok(Ok(SessionRow {
                    session: SessionId::new(uuid(row, 0)?),
                    revision: from_db(row.get(1)?),
                    created_at: time(row, 2)?,
                    updated_at: time(row, 3)?,
                    held: holder.zip(row.get::<_, Option<i64>>(5)?.map(Timestamp::from_micros)),
                    hidden_at: row.get::<_, Option<i64>>(6)?.map(Timestamp::from_micros),
                }))
            },
        )
    }

    pub(super) fn turns(&self, filter: &TurnFilter) -> Result<Vec<TurnRow>, StoreError> {
        let open = if filter.open {
            "AND settled_at IS NULL"
        } else {
            ""
        };
        let sql = format!(
            "SELECT turn, session, opened_at, settled_at FROM turns
             WHERE session = ?1 AND turn > ?2 {open} ORDER BY turn LIMIT ?3"
        );
        let after = filter
            .after
            .map_or(Vec::new(), |after| after.uuid().into_bytes().to_vec());
        self.rows(
            &sql,
            params![id(filter.session), after, limit(filter.limit)],
            |row| {
                Ok(Ok(TurnRow {
                    turn: TurnId::new(uuid(row, 0)?),
                    session: SessionId::new(uuid(row, 1)?),
                    opened_at: time(row, 2)?,
                    settled_at: row.get::<_, Option<i64>>(3)?.map(Timestamp::from_micros),
                }))
            },
        )
    }

    pub(super) fn approvals(
        &self,
        filter: &ApprovalFilter,
    ) -> Result<Vec<ApprovalRow>, StoreError> {
        let mut wanted = String::from(
            "SELECT call, session, turn, asked_at, state, request FROM approvals WHERE 1",
        );
        let blob = |id: uuid::Uuid| Value::from(id.into_bytes().to_vec());
        let conditions = [
            filter.call.map(|call| (" AND call = ?", blob(call.uuid()))),
            filter
                .session
                .map(|session| (" AND session = ?", blob(session.uuid()))),
            filter
                .tool
                .as_ref()
                .map(|tool| (" AND tool = ?", Value::from(tool.as_str().to_owned()))),
            filter
                .after
                .map(|after| (" AND call > ?", blob(after.call().uuid()))),
        ];
        let (conditions, values): (Vec<&str>, Vec<Value>) =
            conditions.into_iter().flatten().unzip();
        wanted.extend(conditions);
        if filter.pending {
            wanted.push_str(" AND state = 'pending'");
        }
        wanted.push_str(&format!(" ORDER BY call LIMIT {}", limit(filter.limit)));
        self.rows(&wanted, params_from_iter(values), approval)
    }

    pub(super) fn entries(
        &self,
        ledger: &LedgerName,
        after: u64,
        most: usize,
    ) -> Result<Vec<SealedEntry>, StoreError> {
        let sql =
            "SELECT counter, previous, hash, body FROM entries WHERE ledger = ?1 AND counter > ?2
                   ORDER BY counter LIMIT ?3";
        self.rows(
            sql,
            params![ledger.as_str(), to_db(after), limit(most)],
            |row| {
                let (counter, body) = (from_db(row.get(0)?), row.get_ref(3)?.as_str()?.into());
                let (previous, hash) = (
                    Digest::from_bytes(row.get(1)?),
                    Digest::from_bytes(row.get(2)?),
                );
                Ok(Ok(SealedEntry {
                    ledger: ledger.clone(),
                    counter,
                    previous,
                    body,
                    hash,
                }))
            },
        )
    }

    pub(super) fn ledgers(&self) -> Result<Vec<LedgerHead>, StoreError> {
        self.rows(
            "SELECT name, counter, hash FROM ledgers ORDER BY name",
            [],
            |row| {
                let (counter, hash) = (from_db(row.get(1)?), Digest::from_bytes(row.get(2)?));
                Ok(ledger_name(row.get(0)?).map(|ledger| LedgerHead {
                    ledger,
                    counter,
                    hash,
                }))
            },
        )
    }

    pub(super) fn rows<T>(
        &self,
        sql: &str,
        params: impl Params,
        mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<Result<T, StoreError>>,
    ) -> Result<Vec<T>, StoreError> {
        let failed = |error| StoreError::from(database_error(self.path, error));
        let mut statement = self.connection.prepare_cached(sql).map_err(failed)?;
        let mut rows = statement.query(params).map_err(failed)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().map_err(failed)? {
            found.push(read(row).map_err(failed)??);
        }
        Ok(found)
    }

    pub(super) fn row<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        let found = self
            .connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_row(params, read));
        found
            .optional()
            .map_err(|error| database_error(self.path, error).into())
    }
}

fn approval(row: &Row<'_>) -> rusqlite::Result<Result<ApprovalRow, StoreError>> {
    let call = uuid(row, 0)?;
    let (session, turn) = (SessionId::new(uuid(row, 1)?), TurnId::new(uuid(row, 2)?));
    let asked_at = time(row, 3)?;
    let state = state_of(row.get_ref(4)?.as_str()?);
    let request = body(row, 5, || format!("the approval of call {call}"))?;
    Ok(state.and_then(|state| {
        Ok(ApprovalRow {
            request: Arc::new(request?),
            session,
            turn,
            asked_at,
            state,
        })
    }))
}

pub(super) fn ledger_name(name: String) -> Result<LedgerName, StoreError> {
    LedgerName::try_from(name).map_err(|error| StoreError::Damaged {
        what: "the name of a ledger".into(),
        source: Box::new(error),
    })
}

/// Reads what is kept as JSON in a column.
fn body<T: DeserializeOwned>(
    row: &Row<'_>,
    column: usize,
    what: impl FnOnce() -> String,
) -> rusqlite::Result<Result<T, StoreError>> {
    Ok(from_text(row.get_ref(column)?.as_str()?, what))
}

pub(super) fn uuid(row: &Row<'_>, column: usize) -> rusqlite::Result<Uuid> {
    row.get(column).map(Uuid::from_bytes)
}

fn time(row: &Row<'_>, column: usize) -> rusqlite::Result<Timestamp> {
    row.get(column).map(Timestamp::from_micros)
}
