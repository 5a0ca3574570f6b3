//! The queries of each kind of read.

use std::{ops::Range, path::Path, sync::Arc};

use bytes::{Bytes, BytesMut};
use rusqlite::{
    Connection, OptionalExtension, Params, Row, params, params_from_iter, types::Value,
};
use serde::de::DeserializeOwned;
use toolgate_core::{
    ApprovalFilter, ApprovalRow, Digest, Event, LedgerHead, LedgerName, MailboxItem, MessageRecord,
    SealedEntry, SessionFilter, SessionId, SessionRow, StoreError, StoreRecord, Timestamp,
    TurnFilter, TurnId, TurnRow,
};
use uuid::Uuid;

use super::{connect::database_error, transaction::session_bytes};
use crate::encoded::{
    BLOB_PIECE_BYTES, decode_json, decode_message, from_db, hidden_condition, limit_to_db,
    message_keys, parse_state, to_db,
};

/// A connection that reads committed data.
pub(super) struct SqliteReader<'a> {
    pub(super) connection: &'a Connection,
    pub(super) path: &'a Path,
}

impl SqliteReader<'_> {
    pub(super) fn read_events(
        &self,
        session: SessionId,
        after: u64,
        most: usize,
    ) -> Result<Vec<Arc<Event>>, StoreError> {
        let sql = "SELECT sequence, body FROM events WHERE session = ?1 AND sequence > ?2 ORDER BY sequence LIMIT ?3";
        self.query_rows(
            sql,
            params![session_bytes(session), to_db(after), limit_to_db(most)],
            |row| {
                let what = || {
                    format!(
                        "event {} of session {session}",
                        row.get::<_, i64>(0).unwrap_or_default()
                    )
                };
                Ok(decode_column(row, 1, what)?.map(Arc::new))
            },
        )
    }

    pub(super) fn read_revision(&self, session: SessionId) -> Result<u64, StoreError> {
        let sql = "SELECT revision FROM sessions WHERE id = ?1";
        Ok(self
            .query_row(sql, [session_bytes(session)], |row| row.get(0))?
            .map_or(0, from_db))
    }

    pub(super) fn read_record(&self, name: &str) -> Result<Option<StoreRecord>, StoreError> {
        let sql = "SELECT body FROM records WHERE key = ?1";
        self.query_row(sql, [name], |row| decode_column(row, 0, || name.to_owned()))?
            .transpose()
    }

    pub(super) fn list_records(
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
            Some(_) => "SELECT key, body FROM records WHERE key > ?1 ORDER BY key LIMIT ?2",
            None => "SELECT key, body FROM records WHERE key >= ?1 ORDER BY key LIMIT ?2",
        };
        let failed = |error| StoreError::from(database_error(self.path, error));
        let mut statement = self.connection.prepare_cached(sql).map_err(failed)?;
        let mut rows = statement
            .query(params![from.as_ref().unwrap_or(&start), limit_to_db(most)])
            .map_err(failed)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().map_err(failed)? {
            let key: String = row.get(0).map_err(failed)?;
            // Keys with the same prefix are adjacent, so the first other key ends the list.
            if !key.starts_with(&start) {
                break;
            }
            let record = decode_column(row, 1, || key.clone()).map_err(failed)??;
            found.push((Arc::from(&key["other/".len()..]), record));
        }
        Ok(found)
    }

    pub(super) fn read_messages(
        &self,
        session: SessionId,
        before: u64,
        most: usize,
    ) -> Result<Vec<(u64, Arc<MessageRecord>)>, StoreError> {
        let sql =
            "SELECT key, body FROM records WHERE key >= ?1 AND key < ?2 ORDER BY key DESC LIMIT ?3";
        let [first, end] = message_keys(session, before);
        let mut found = self.query_rows(sql, params![first, end, limit_to_db(most)], |row| {
            let key: String = row.get(0)?;
            Ok(decode_column(row, 1, || key.clone())?
                .and_then(|record| decode_message(&key, record)))
        })?;
        found.reverse();
        Ok(found)
    }

    pub(super) fn read_blob(
        &self,
        digest: Digest,
        range: Range<u64>,
    ) -> Result<Option<Bytes>, StoreError> {
        let sql = "SELECT size FROM blobs WHERE digest = ?1";
        let Some(size) = self.query_row(sql, [digest.as_bytes()], |row| row.get(0).map(from_db))?
        else {
            return Ok(None);
        };
        let start = range.start.min(size);
        let end = range.end.min(size);
        if start >= end {
            return Ok(Some(Bytes::new()));
        }
        let first = start / BLOB_PIECE_BYTES;
        let last = (end - 1) / BLOB_PIECE_BYTES;
        let sql = "SELECT number, bytes FROM blob_pieces WHERE digest = ?1 AND number BETWEEN ?2 AND ?3 ORDER BY number";
        let mut found = BytesMut::with_capacity((end - start) as usize);
        self.query_rows(
            sql,
            params![digest.as_bytes(), to_db(first), to_db(last)],
            |row| {
                let from = from_db(row.get(0)?) * BLOB_PIECE_BYTES;
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

    pub(super) fn read_posts(
        &self,
        session: SessionId,
        after: u64,
        most: usize,
    ) -> Result<Vec<(u64, MailboxItem)>, StoreError> {
        let sql = "SELECT number, body FROM posts WHERE session = ?1 AND number > ?2 ORDER BY number LIMIT ?3";
        self.query_rows(
            sql,
            params![session_bytes(session), to_db(after), limit_to_db(most)],
            |row| {
                let number = from_db(row.get(0)?);
                Ok(
                    decode_column(row, 1, || format!("post {number} of session {session}"))?
                        .map(|post| (number, post)),
                )
            },
        )
    }

    /// Returns the number of the newest input in a session's mailbox.
    pub(super) fn newest_post(&self, session: SessionId) -> Result<u64, StoreError> {
        let sql = "SELECT coalesce(max(number), 0) FROM posts WHERE session = ?1";
        Ok(self
            .query_row(sql, [session_bytes(session)], |row| row.get(0))?
            .map_or(0, from_db))
    }

    pub(super) fn list_sessions(
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
             WHERE id > ?1 AND id >= ?2 AND id <= ?3 AND revision > 0 {hidden} {open} ORDER BY id LIMIT ?4"
        );
        // An empty blob sorts before every id.
        let after = filter
            .after
            .map_or(Vec::new(), |after| session_bytes(after).to_vec());
        let (first, last) = filter.session.map_or(([0; 16], [255; 16]), |only| {
            (session_bytes(only), session_bytes(only))
        });
        self.query_rows(
            &sql,
            params![after, first, last, limit_to_db(filter.limit)],
            |row| {
                let holder = row.get::<_, Option<String>>(4)?.map(Arc::from);
                Ok(Ok(SessionRow {
                    session: SessionId::new(uuid_column(row, 0)?),
                    revision: from_db(row.get(1)?),
                    created_at: time_column(row, 2)?,
                    updated_at: time_column(row, 3)?,
                    held: holder.zip(row.get::<_, Option<i64>>(5)?.map(Timestamp::from_micros)),
                    hidden_at: row.get::<_, Option<i64>>(6)?.map(Timestamp::from_micros),
                }))
            },
        )
    }

    pub(super) fn list_turns(&self, filter: &TurnFilter) -> Result<Vec<TurnRow>, StoreError> {
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
        self.query_rows(
            &sql,
            params![
                session_bytes(filter.session),
                after,
                limit_to_db(filter.limit)
            ],
            |row| {
                Ok(Ok(TurnRow {
                    turn: TurnId::new(uuid_column(row, 0)?),
                    session: SessionId::new(uuid_column(row, 1)?),
                    opened_at: time_column(row, 2)?,
                    settled_at: row.get::<_, Option<i64>>(3)?.map(Timestamp::from_micros),
                }))
            },
        )
    }

    pub(super) fn list_approvals(
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
                .map(|after| (" AND call > ?", blob(after.call_id().uuid()))),
        ];
        let (conditions, values): (Vec<&str>, Vec<Value>) =
            conditions.into_iter().flatten().unzip();
        wanted.extend(conditions);
        if filter.pending {
            wanted.push_str(" AND state = 'pending'");
        }
        wanted.push_str(&format!(
            " ORDER BY call LIMIT {}",
            limit_to_db(filter.limit)
        ));
        self.query_rows(&wanted, params_from_iter(values), approval_row)
    }

    pub(super) fn read_entries(
        &self,
        ledger: &LedgerName,
        after: u64,
        most: usize,
    ) -> Result<Vec<SealedEntry>, StoreError> {
        let sql =
            "SELECT counter, previous, hash, body FROM entries WHERE ledger = ?1 AND counter > ?2
                   ORDER BY counter LIMIT ?3";
        self.query_rows(
            sql,
            params![ledger.as_str(), to_db(after), limit_to_db(most)],
            |row| {
                let counter = from_db(row.get(0)?);
                let body = row.get_ref(3)?.as_str()?.into();
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
    }

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

    pub(super) fn query_rows<T>(
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

    pub(super) fn query_row<T>(
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

fn approval_row(row: &Row<'_>) -> rusqlite::Result<Result<ApprovalRow, StoreError>> {
    let call = uuid_column(row, 0)?;
    let session = SessionId::new(uuid_column(row, 1)?);
    let turn = TurnId::new(uuid_column(row, 2)?);
    let asked_at = time_column(row, 3)?;
    let state = parse_state(row.get_ref(4)?.as_str()?);
    let request = decode_column(row, 5, || format!("the approval of call {call}"))?;
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

pub(super) fn parse_ledger_name(name: String) -> Result<LedgerName, StoreError> {
    LedgerName::try_from(name).map_err(|error| StoreError::Damaged {
        what: "the name of a ledger".into(),
        source: Box::new(error),
    })
}

/// Parses a column that holds JSON.
fn decode_column<T: DeserializeOwned>(
    row: &Row<'_>,
    column: usize,
    what: impl FnOnce() -> String,
) -> rusqlite::Result<Result<T, StoreError>> {
    Ok(decode_json(row.get_ref(column)?.as_str()?, what))
}

pub(super) fn uuid_column(row: &Row<'_>, column: usize) -> rusqlite::Result<Uuid> {
    row.get(column).map(Uuid::from_bytes)
}

fn time_column(row: &Row<'_>, column: usize) -> rusqlite::Result<Timestamp> {
    row.get(column).map(Timestamp::from_micros)
}
