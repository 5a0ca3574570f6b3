//! The steps of each kind of write within the transaction of its group.
//!
//! Every check that can reject a write comes before its first change, so that a rejected write does
//! not affect the other writes of its group.

use std::{cell::Cell, path::Path, sync::Arc};

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Params, params};
use toolgate_core::{
    ApprovalState, CallId, Digest, Lease, LeaseRequest, LedgerDraft, LedgerHead, LedgerName,
    LogPosition, RowChange, SessionId, StoreError, StoreRecord, Timestamp,
};

use super::connect::database_error;
use crate::encoded::{
    BLOB_PIECE_BYTES, EncodedBatch, EncodedEvent, EncodedRecord, decode_json, encode_json, from_db,
    to_db,
};

/// The transaction of a group of writes.
pub(super) struct SqliteWriteTx<'a> {
    pub(super) connection: &'a Connection,
    pub(super) path: &'a Path,
    /// True if commits currently wait for the disk.
    pub(super) synced: Cell<bool>,
}

/// The state of a session that its writes depend on.
#[derive(Default)]
struct SqliteSessionState {
    known: bool,
    revision: u64,
    fence: u64,
    held: Option<(String, Timestamp)>,
    posted: u64,
}

impl SqliteWriteTx<'_> {
    pub(super) fn append_batch(
        &self,
        session: SessionId,
        at: LogPosition,
        batch: &EncodedBatch,
    ) -> Result<u64, StoreError> {
        let standing = self.session_state(session)?;
        at.check_writable(session, standing.revision, standing.fence)?;
        batch.check_sequence(at.revision)?;
        // The only step that can still reject the write undoes its own inserts (see
        // `insert_records`).
        self.insert_records(&batch.records)?;
        self.seal_entries(&batch.entries)?;
        batch
            .events
            .iter()
            .try_for_each(|event| self.insert_event(session, event))?;
        self.update_session(session, &standing, at, &batch.events)?;
        // Consumed inputs are deleted in the commit of their events, so that none is handled twice.
        if let Some(taken) = batch.taken_posts {
            self.execute(
                "DELETE FROM posts WHERE session = ?1 AND number <= ?2",
                params![session_bytes(session), to_db(taken)],
            )?;
        }
        Ok(standing.revision + batch.events.len() as u64)
    }

    pub(super) fn insert_once(
        &self,
        record: &EncodedRecord,
    ) -> Result<Option<StoreRecord>, StoreError> {
        if self.insert_record(record)? {
            return Ok(None);
        }
        let sql = "SELECT body FROM records WHERE key = ?1";
        let body: Option<String> = self.query_row(sql, [&record.name], |row| row.get(0))?;
        body.map(|body| decode_json(&body, || record.name.clone()))
            .transpose()
    }

    pub(super) fn put_blob(&self, digest: Digest, bytes: &Bytes) -> Result<(), StoreError> {
        let sql = "INSERT INTO blobs (digest, size) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
        // Blobs are named by their content, so an existing one has the same bytes.
        if self.execute(sql, params![digest.as_bytes(), to_db(bytes.len() as u64)])? == 0 {
            return Ok(());
        }
        for (number, piece) in (0_i64..).zip(bytes.chunks(BLOB_PIECE_BYTES as usize)) {
            let sql = "INSERT INTO blob_pieces (digest, number, bytes) VALUES (?1, ?2, ?3)";
            self.execute(sql, params![digest.as_bytes(), number, piece])?;
        }
        Ok(())
    }

    pub(super) fn grant_lease(&self, request: &LeaseRequest) -> Result<Lease, StoreError> {
        let LeaseRequest { session, .. } = *request;
        let standing = self.session_state(session)?;
        // Every lease gets a new fence, so that writes under an earlier lease fail.
        let fence = standing.fence + 1;
        let revision = standing.revision;
        let held = standing
            .held
            .as_ref()
            .map(|(holder, until)| (holder.as_str(), *until));
        if let Some((holder, until)) =
            held.filter(|held| !request.is_granted(Some(*held), standing.fence))
        {
            return Err(StoreError::LeaseHeld {
                session,
                holder: holder.into(),
                until,
                fence: standing.fence,
            });
        }
        self.ensure_session(session, &standing)?;
        let sql = "UPDATE sessions SET fence = ?2, holder = ?3, lease_until = ?4 WHERE id = ?1";
        self.execute(
            sql,
            params![
                session_bytes(session),
                to_db(fence),
                &*request.holder,
                request.until.as_micros()
            ],
        )?;
        Ok(Lease {
            session,
            fence,
            revision,
        })
    }

    pub(super) fn renew_lease(&self, lease: &Lease, until: Timestamp) -> Result<(), StoreError> {
        // The condition on the fence makes the check and the update one step.
        let sql = "UPDATE sessions SET lease_until = ?3 WHERE id = ?1 AND fence = ?2 AND holder IS NOT NULL";
        match self.execute(
            sql,
            params![
                session_bytes(lease.session),
                to_db(lease.fence),
                until.as_micros()
            ],
        )? {
            0 => Err(StoreError::Fenced {
                session: lease.session,
                found: self.session_state(lease.session)?.fence,
            }),
            _ => Ok(()),
        }
    }

    pub(super) fn release_lease(&self, lease: &Lease) -> Result<(), StoreError> {
        let sql =
            "UPDATE sessions SET holder = NULL, lease_until = NULL WHERE id = ?1 AND fence = ?2";
        // A stale lease changes nothing: another driver may already hold the session.
        self.execute(
            sql,
            params![session_bytes(lease.session), to_db(lease.fence)],
        )
        .map(drop)
    }

    /// Stores an input in the mailbox and returns its number.
    pub(super) fn add_post(
        &self,
        session: SessionId,
        answered: Option<CallId>,
        body: &str,
        records: &[EncodedRecord],
    ) -> Result<u64, StoreError> {
        self.insert_records(records)?;
        if let Some(call) = answered {
            self.mark_approval(call, ApprovalState::Answered)?;
        }
        let standing = self.session_state(session)?;
        self.ensure_session(session, &standing)?;
        // Counted in the row of the session: consumed inputs are deleted, and numbers must not be
        // reused.
        let number = standing.posted + 1;
        self.execute(
            "UPDATE sessions SET posted = ?2 WHERE id = ?1",
            params![session_bytes(session), to_db(number)],
        )?;
        let sql = "INSERT INTO posts (session, number, body) VALUES (?1, ?2, ?3)";
        self.execute(sql, params![session_bytes(session), to_db(number), body])?;
        Ok(number)
    }

    pub(super) fn seal_entries(
        &self,
        drafts: &[LedgerDraft],
    ) -> Result<Vec<LedgerHead>, StoreError> {
        drafts
            .iter()
            .map(|draft| self.seal_entry(&draft.ledger, &draft.body))
            .collect()
    }

    fn seal_entry(&self, ledger: &LedgerName, body: &Arc<str>) -> Result<LedgerHead, StoreError> {
        let sql = "SELECT counter, hash FROM ledgers WHERE name = ?1";
        let found = self.query_row(sql, [ledger.as_str()], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, [u8; 32]>(1)?))
        })?;
        let head = match found {
            Some((counter, hash)) => LedgerHead {
                ledger: ledger.clone(),
                counter: from_db(counter),
                hash: Digest::from_bytes(hash),
            },
            None => LedgerHead::start_of(ledger.clone()),
        };
        // `BEGIN IMMEDIATE` excludes other writers, so two entries never follow the same head.
        let entry = head.seal_entry(body.clone());
        let counter = to_db(entry.counter);
        let hash = entry.hash.as_bytes();
        let sql = "INSERT INTO entries (ledger, counter, previous, hash, body) VALUES (?1, ?2, ?3, ?4, ?5)";
        self.execute(
            sql,
            params![
                ledger.as_str(),
                counter,
                entry.previous.as_bytes(),
                hash,
                &**body
            ],
        )?;
        let sql = "INSERT INTO ledgers (name, counter, hash) VALUES (?1, ?2, ?3)
                   ON CONFLICT (name) DO UPDATE SET counter = excluded.counter, hash = excluded.hash";
        self.execute(sql, params![ledger.as_str(), counter, hash])?;
        Ok(entry.head())
    }

    fn session_state(&self, session: SessionId) -> Result<SqliteSessionState, StoreError> {
        let sql = "SELECT revision, fence, holder, lease_until, posted FROM sessions WHERE id = ?1";
        let found = self.query_row(sql, [session_bytes(session)], |row| {
            let held = row
                .get::<_, Option<String>>(2)?
                .zip(row.get::<_, Option<i64>>(3)?);
            Ok(SqliteSessionState {
                known: true,
                revision: from_db(row.get(0)?),
                fence: from_db(row.get(1)?),
                held: held.map(|(holder, until)| (holder, Timestamp::from_micros(until))),
                posted: from_db(row.get(4)?),
            })
        })?;
        Ok(found.unwrap_or_default())
    }

    fn ensure_session(
        &self,
        session: SessionId,
        standing: &SqliteSessionState,
    ) -> Result<(), StoreError> {
        if standing.known {
            return Ok(());
        }
        let sql = "INSERT INTO sessions (id, revision, created_at, updated_at, fence, posted) VALUES (?1, 0, 0, 0, 0, 0)";
        self.execute(sql, [session_bytes(session)]).map(drop)
    }

    /// Updates the row of a session to its new events.
    fn update_session(
        &self,
        session: SessionId,
        standing: &SqliteSessionState,
        at: LogPosition,
        events: &[EncodedEvent],
    ) -> Result<(), StoreError> {
        self.ensure_session(session, standing)?;
        if let Some(last) = events.last() {
            let created = events
                .first()
                .filter(|event| event.sequence == 1)
                .map(|event| event.at.as_micros());
            let sql = "UPDATE sessions SET revision = ?2, updated_at = ?3, created_at = coalesce(?4, created_at),
                           lease_until = CASE WHEN holder IS NULL THEN NULL ELSE coalesce(?5, lease_until) END
                       WHERE id = ?1";
            // An append also renews the lease, unless it was released.
            let until = at.lease_until.map(Timestamp::as_micros);
            let revision = to_db(last.sequence);
            let updated = last.at.as_micros();
            self.execute(
                sql,
                params![session_bytes(session), revision, updated, created, until],
            )?;
        } else if let Some(until) = at.lease_until {
            let sql = "UPDATE sessions SET lease_until = ?2 WHERE id = ?1 AND holder IS NOT NULL";
            self.execute(sql, params![session_bytes(session), until.as_micros()])?;
        }
        Ok(())
    }

    fn insert_event(&self, session: SessionId, event: &EncodedEvent) -> Result<(), StoreError> {
        let sql = "INSERT INTO events (session, sequence, body) VALUES (?1, ?2, ?3)";
        self.execute(
            sql,
            params![session_bytes(session), to_db(event.sequence), event.body],
        )?;
        event
            .change
            .as_ref()
            .map_or(Ok(()), |change| self.apply_change(change))
    }

    /// Inserts all records or, if one exists, none.
    fn insert_records(&self, records: &[EncodedRecord]) -> Result<(), StoreError> {
        for (count, record) in records.iter().enumerate() {
            if !self.insert_record(record)? {
                // The transaction is shared with other writes, so it cannot be rolled back for this
                // one alone.
                for record in &records[..count] {
                    self.execute("DELETE FROM records WHERE key = ?1", [&record.name])?;
                }
                return Err(StoreError::RecordExists {
                    key: record.key.clone(),
                });
            }
        }
        Ok(())
    }

    fn insert_record(&self, record: &EncodedRecord) -> Result<bool, StoreError> {
        let sql = "INSERT INTO records (key, body) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
        Ok(self.execute(sql, [&record.name, &record.body])? == 1)
    }

    fn apply_change(&self, change: &RowChange) -> Result<(), StoreError> {
        match change {
            RowChange::TurnOpened(row) => {
                let sql = "INSERT OR REPLACE INTO turns (turn, session, opened_at, settled_at) VALUES (?1, ?2, ?3, ?4)";
                let turn = row.turn.uuid().into_bytes();
                let settled = row.settled_at.map(Timestamp::as_micros);
                self.execute(
                    sql,
                    params![
                        turn,
                        session_bytes(row.session),
                        row.opened_at.as_micros(),
                        settled
                    ],
                )
                .map(drop)
            }
            RowChange::TurnSettled(turn, at) => {
                let sql = "UPDATE turns SET settled_at = ?2 WHERE turn = ?1";
                self.execute(sql, params![turn.uuid().as_bytes(), at.as_micros()])
                    .map(drop)
            }
            RowChange::Asked(row) => {
                let sql = "INSERT OR REPLACE INTO approvals (call, session, turn, tool, asked_at, state, request)
                           VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
                let call = row.request.approval_id.call_id().uuid().into_bytes();
                let turn = row.turn.uuid().into_bytes();
                let tool = row.request.tool.as_str();
                let asked = row.asked_at.as_micros();
                let state = row.state.as_str();
                let request = encode_json(&*row.request)?;
                self.execute(
                    sql,
                    params![
                        call,
                        session_bytes(row.session),
                        turn,
                        tool,
                        asked,
                        state,
                        request
                    ],
                )
                .map(drop)
            }
            RowChange::Answered(call) => self.mark_approval(*call, ApprovalState::Answered),
            RowChange::Settled(call, status) => {
                self.mark_approval(*call, ApprovalState::Settled(*status))
            }
        }
    }

    fn mark_approval(&self, call: CallId, state: ApprovalState) -> Result<(), StoreError> {
        let sql = "UPDATE approvals SET state = ?2 WHERE call = ?1";
        self.execute(sql, params![call.uuid().as_bytes(), state.as_str()])
            .map(drop)
    }

    pub(super) fn execute(&self, sql: &str, params: impl Params) -> Result<usize, StoreError> {
        let done = self
            .connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.execute(params));
        done.map_err(|error| self.to_store_error(error))
    }

    pub(super) fn query_row<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        let found = self
            .connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_row(params, read));
        found.optional().map_err(|error| self.to_store_error(error))
    }

    pub(super) fn to_store_error(&self, error: rusqlite::Error) -> StoreError {
        database_error(self.path, error).into()
    }
}

pub(super) fn session_bytes(session: SessionId) -> [u8; 16] {
    session.uuid().into_bytes()
}
