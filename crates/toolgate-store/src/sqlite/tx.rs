//! What each kind of write does within the transaction of its group.
//!
//! Everything that can be refused is refused before the first change, so that the writes beside it in the group are
//! not touched by it.

use std::{cell::Cell, path::Path, sync::Arc};

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Params, params};
use toolgate_core::{
    ApprovalState, CallId, Digest, Lease, LeaseRequest, LedgerDraft, LedgerHead, LedgerName,
    Position, Record, RowChange, SessionId, StoreError, Timestamp,
};

use super::connect::database_error;
use crate::encoded::{
    EncodedBatch, EncodedEvent, EncodedRecord, PIECE, from_db, from_text, state_word, to_db,
    to_text,
};

/// The transaction of a group of writes.
pub(super) struct Tx<'a> {
    pub(super) connection: &'a Connection,
    pub(super) path: &'a Path,
    /// Whether commits wait for the disk at present.
    pub(super) synced: Cell<bool>,
}

/// What a write must know about its session.
#[derive(Default)]
struct Standing {
    known: bool,
    revision: u64,
    fence: u64,
    held: Option<(String, Timestamp)>,
    posted: u64,
}

impl Tx<'_> {
    pub(super) fn append(
        &self,
        session: SessionId,
        at: Position,
        batch: &EncodedBatch,
    ) -> Result<u64, StoreError> {
        let standing = self.standing(session)?;
        at.check(session, standing.revision, standing.fence)?;
        batch.check_sequence(at.revision)?;
        self.insert_records(&batch.records)?;
        self.seal(&batch.entries)?;
        batch
            .events
            .iter()
            .try_for_each(|event| self.insert_event(session, event))?;
        self.move_on(session, &standing, at, &batch.events)?;
        if let Some(taken) = batch.taken_posts {
            self.execute(
                "DELETE FROM posts WHERE session = ?1 AND number <= ?2",
                params![id(session), to_db(taken)],
            )?;
        }
        Ok(standing.revision + batch.events.len() as u64)
    }

    pub(super) fn once(&self, record: &EncodedRecord) -> Result<Option<Record>, StoreError> {
        if self.insert_record(record)? {
            return Ok(None);
        }
        let sql = "SELECT body FROM records WHERE key = ?1";
        let body: Option<String> = self.row(sql, [&record.name], |row| row.get(0))?;
        body.map(|body| from_text(&body, || record.name.clone()))
            .transpose()
    }

    pub(super) fn put_blob(&self, digest: Digest, bytes: &Bytes) -> Result<(), StoreError> {
        let sql = "INSERT INTO blobs (digest, size) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
        if self.execute(sql, params![digest.as_bytes(), to_db(bytes.len() as u64)])? == 0 {
            return Ok(());
        }
        for (number, piece) in (0_i64..).zip(bytes.chunks(PIECE as usize)) {
            let sql = "INSERT INTO blob_pieces (digest, number, bytes) VALUES (?1, ?2, ?3)";
            self.execute(sql, params![digest.as_bytes(), number, piece])?;
        }
        Ok(())
    }

    pub(super) fn lease(&self, request: &LeaseRequest) -> Result<Lease, StoreError> {
        let LeaseRequest { session, .. } = *request;
        let standing = self.standing(session)?;
        let (fence, revision) = (standing.fence + 1, standing.revision);
        let held = standing
            .held
            .as_ref()
            .map(|(holder, until)| (holder.as_str(), *until));
        if let Some((holder, until)) =
            held.filter(|held| !request.is_granted(Some(*held), standing.fence))
        {
            return Err(StoreError::Held {
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
                id(session),
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

    pub(super) fn renew(&self, lease: &Lease, until: Timestamp) -> Result<(), StoreError> {
        let sql = "UPDATE sessions SET lease_until = ?3 WHERE id = ?1 AND fence = ?2 AND holder IS NOT NULL";
        match self.execute(
            sql,
            params![id(lease.session), to_db(lease.fence), until.as_micros()],
        )? {
            0 => Err(StoreError::Fenced {
                session: lease.session,
                found: self.standing(lease.session)?.fence,
            }),
            _ => Ok(()),
        }
    }

    pub(super) fn release(&self, lease: &Lease) -> Result<(), StoreError> {
        let sql =
            "UPDATE sessions SET holder = NULL, lease_until = NULL WHERE id = ?1 AND fence = ?2";
        self.execute(sql, params![id(lease.session), to_db(lease.fence)])
            .map(drop)
    }

    /// Returns the number of the post.
    pub(super) fn post(
        &self,
        session: SessionId,
        answered: Option<CallId>,
        body: &str,
        records: &[EncodedRecord],
    ) -> Result<u64, StoreError> {
        self.insert_records(records)?;
        if let Some(call) = answered {
            self.mark(call, ApprovalState::Answered)?;
        }
        let standing = self.standing(session)?;
        self.ensure_session(session, &standing)?;
        let number = standing.posted + 1;
        self.execute(
            "UPDATE sessions SET posted = ?2 WHERE id = ?1",
            params![id(session), to_db(number)],
        )?;
        let sql = "INSERT INTO posts (session, number, body) VALUES (?1, ?2, ?3)";
        self.execute(sql, params![id(session), to_db(number), body])?;
        Ok(number)
    }

    pub(super) fn seal(&self, drafts: &[LedgerDraft]) -> Result<Vec<LedgerHead>, StoreError> {
        drafts
            .iter()
            .map(|draft| self.seal_one(&draft.ledger, &draft.body))
            .collect()
    }

    fn seal_one(&self, ledger: &LedgerName, body: &Arc<str>) -> Result<LedgerHead, StoreError> {
        let sql = "SELECT counter, hash FROM ledgers WHERE name = ?1";
        let found = self.row(sql, [ledger.as_str()], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, [u8; 32]>(1)?))
        })?;
        let head = match found {
            Some((counter, hash)) => LedgerHead {
                ledger: ledger.clone(),
                counter: from_db(counter),
                hash: Digest::from_bytes(hash),
            },
            None => LedgerHead::start(ledger.clone()),
        };
        let entry = head.seal(body.clone());
        let (counter, hash) = (to_db(entry.counter), entry.hash.as_bytes());
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

    fn standing(&self, session: SessionId) -> Result<Standing, StoreError> {
        let sql = "SELECT revision, fence, holder, lease_until, posted FROM sessions WHERE id = ?1";
        let found = self.row(sql, [id(session)], |row| {
            let held = row
                .get::<_, Option<String>>(2)?
                .zip(row.get::<_, Option<i64>>(3)?);
            Ok(Standing {
                known: true,
                revision: from_db(row.get(0)?),
                fence: from_db(row.get(1)?),
                held: held.map(|(holder, until)| (holder, Timestamp::from_micros(until))),
                posted: from_db(row.get(4)?),
            })
        })?;
        Ok(found.unwrap_or_default())
    }

    fn ensure_session(&self, session: SessionId, standing: &Standing) -> Result<(), StoreError> {
        if standing.known {
            return Ok(());
        }
        let sql = "INSERT INTO sessions (id, revision, created_at, updated_at, fence, posted) VALUES (?1, 0, 0, 0, 0, 0)";
        self.execute(sql, [id(session)]).map(drop)
    }

    /// Brings the row of a session up to its new events.
    fn move_on(
        &self,
        session: SessionId,
        standing: &Standing,
        at: Position,
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
            let until = at.lease_until.map(Timestamp::as_micros);
            let (revision, updated) = (to_db(last.sequence), last.at.as_micros());
            self.execute(sql, params![id(session), revision, updated, created, until])?;
        } else if let Some(until) = at.lease_until {
            let sql = "UPDATE sessions SET lease_until = ?2 WHERE id = ?1 AND holder IS NOT NULL";
            self.execute(sql, params![id(session), until.as_micros()])?;
        }
        Ok(())
    }

    fn insert_event(&self, session: SessionId, event: &EncodedEvent) -> Result<(), StoreError> {
        let sql = "INSERT INTO events (session, sequence, body) VALUES (?1, ?2, ?3)";
        self.execute(sql, params![id(session), to_db(event.sequence), event.body])?;
        event
            .change
            .as_ref()
            .map_or(Ok(()), |change| self.apply(change))
    }

    /// Inserts all of them or, if one exists, none.
    fn insert_records(&self, records: &[EncodedRecord]) -> Result<(), StoreError> {
        for (count, record) in records.iter().enumerate() {
            if !self.insert_record(record)? {
                for record in &records[..count] {
                    self.execute("DELETE FROM records WHERE key = ?1", [&record.name])?;
                }
                return Err(StoreError::Exists {
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

    fn apply(&self, change: &RowChange) -> Result<(), StoreError> {
        match change {
            RowChange::TurnOpened(row) => {
                let sql = "INSERT OR REPLACE INTO turns (turn, session, opened_at, settled_at) VALUES (?1, ?2, ?3, ?4)";
                let (turn, settled) = (
                    row.turn.uuid().into_bytes(),
                    row.settled_at.map(Timestamp::as_micros),
                );
                self.execute(
                    sql,
                    params![turn, id(row.session), row.opened_at.as_micros(), settled],
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
                let call = row.request.approval_id.call().uuid().into_bytes();
                let (turn, tool) = (row.turn.uuid().into_bytes(), row.request.tool.as_str());
                let (asked, state) = (row.asked_at.as_micros(), state_word(row.state));
                let request = to_text(&*row.request)?;
                self.execute(
                    sql,
                    params![call, id(row.session), turn, tool, asked, state, request],
                )
                .map(drop)
            }
            RowChange::Answered(call) => self.mark(*call, ApprovalState::Answered),
            RowChange::Settled(call, status) => self.mark(*call, ApprovalState::Settled(*status)),
        }
    }

    fn mark(&self, call: CallId, state: ApprovalState) -> Result<(), StoreError> {
        let sql = "UPDATE approvals SET state = ?2 WHERE call = ?1";
        self.execute(sql, params![call.uuid().as_bytes(), state_word(state)])
            .map(drop)
    }

    pub(super) fn execute(&self, sql: &str, params: impl Params) -> Result<usize, StoreError> {
        let done = self
            .connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.execute(params));
        done.map_err(|error| self.failed(error))
    }

    pub(super) fn row<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        let found = self
            .connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_row(params, read));
        found.optional().map_err(|error| self.failed(error))
    }

    pub(super) fn failed(&self, error: rusqlite::Error) -> StoreError {
        database_error(self.path, error).into()
    }
}

pub(super) fn id(session: SessionId) -> [u8; 16] {
    session.uuid().into_bytes()
}
