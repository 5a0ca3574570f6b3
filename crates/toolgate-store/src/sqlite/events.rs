//! Logs and leases in an SQLite file.

use std::sync::Arc;

use rusqlite::params;
use toolgate_core::{
    Event, EventStore, Lease, LeaseRequest, LeaseTerm, LogPosition, Principal, SessionId,
    SessionTitle, StoreError, Timestamp, WriteBatch,
};

use super::{
    SHORT_PAGE, SqliteStore,
    bodies::{EncodedEntry, EventBodies, ShortBodies},
    read::{SqliteReader, held_columns},
    transaction::{SqliteWriteTx, session_bytes},
};
use crate::encoded::{
    EncodedBatch, EncodedEvent, EncodedSessionUpdate, from_db, limit_to_db, to_db,
};

impl EventStore for SqliteStore {
    async fn append(
        &self,
        session: SessionId,
        at: LogPosition,
        batch: WriteBatch,
    ) -> Result<u64, StoreError> {
        let mut bodies = ShortBodies::new(session);
        let mut batch = EncodedBatch::new(session, batch, &mut bodies)?;
        let drafts = std::mem::take(&mut batch.entries).into_iter();
        let entries: Vec<_> = drafts.map(|draft| bodies.encode_entry(draft)).collect();
        self.queue_write(move |tx| tx.append_batch(session, at, &batch, &entries))
            .await
    }

    async fn events(
        &self,
        session: SessionId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Arc<Event>>, StoreError> {
        let first = limit.min(SHORT_PAGE);
        let mut found = self
            .run_short_read(move |read| read.read_events(session, after, first))
            .await?;
        let left = limit - first;
        if let Some(last) = found.last().filter(|_| left > 0 && found.len() == first) {
            let after = last.sequence();
            let rest = self.run_read(move |read| read.read_events(session, after, left));
            found.extend(rest.await?);
        }
        Ok(found)
    }

    async fn revision(&self, session: SessionId) -> Result<u64, StoreError> {
        self.run_short_read(move |read| Ok(read.session_state(session)?.revision))
            .await
    }

    async fn acquire_lease(&self, request: LeaseRequest) -> Result<Lease, StoreError> {
        self.queue_unsynced_write(move |tx| tx.grant_lease(&request))
            .await
    }

    async fn renew_lease(&self, lease: &Lease, term: LeaseTerm) -> Result<(), StoreError> {
        let Lease { session, fence, .. } = *lease;
        self.queue_unsynced_write(move |tx| {
            // The condition on the fence makes the check and the update one step.
            let sql = "UPDATE sessions SET lease_until = ?3 WHERE id = ?1 AND fence = ?2 AND holder IS NOT NULL";
            let found = params![session_bytes(session), to_db(fence), term.expiry().as_micros()];
            match tx.execute(sql, found)? {
                0 => Err(StoreError::Fenced {
                    session,
                    found: tx.session_state(session)?.fence,
                }),
                _ => Ok(()),
            }
        })
        .await
    }

    async fn release_lease(&self, lease: &Lease) -> Result<(), StoreError> {
        let Lease { session, fence, .. } = *lease;
        self.queue_unsynced_write(move |tx| {
            // A stale lease changes nothing: another driver may already hold the session.
            let sql = "UPDATE sessions SET holder = NULL, lease_until = NULL WHERE id = ?1 AND fence = ?2";
            tx.change_checked(session, || {
                tx.execute(sql, params![session_bytes(session), to_db(fence)])
                    .map(drop)
            })
        })
        .await
    }
}

/// The state of a session that its writes depend on.
#[derive(Default)]
pub(super) struct SqliteSessionState {
    known: bool,
    pub(super) revision: u64,
    pub(super) fence: u64,
    pub(super) held: Option<(Arc<str>, Timestamp)>,
    pub(super) posted: u64,
}

impl SqliteWriteTx<'_> {
    fn append_batch(
        &self,
        session: SessionId,
        at: LogPosition,
        batch: &EncodedBatch,
        entries: &[EncodedEntry],
    ) -> Result<u64, StoreError> {
        let standing = self.session_state(session)?;
        at.check_writable(session, standing.revision, standing.fence)?;
        at.check_sequence(batch.events.iter().map(|event| event.sequence))?;
        // The only step that can still reject the write undoes its own inserts (see
        // `insert_records`).
        self.insert_records(&batch.records)?;
        self.seal_entries(entries)?;
        batch
            .events
            .iter()
            .try_for_each(|event| self.insert_event(session, event))?;
        self.update_session(session, &standing, at, &batch.events)?;
        self.add_totals(session, &batch.totals)?;
        if let Some(update) = &batch.session {
            self.update_last_run(session, update)?;
        }
        if batch.is_use {
            // The row of an erased session keeps its number, so that none is given twice. The session
            // that was used last is still the last, and its index is not written again.
            let sql = "UPDATE sessions SET last_use = (SELECT max(last_use) + 1 FROM sessions)
                       WHERE id = ?1 AND (last_use = 0 OR last_use < (SELECT max(last_use) FROM sessions))";
            self.execute(sql, [session_bytes(session)])?;
        }
        // Consumed inputs are deleted in the commit of their events, so that none is handled twice.
        if let Some(taken) = batch.taken_posts {
            self.execute(
                "DELETE FROM posts WHERE session = ?1 AND number <= ?2",
                params![session_bytes(session), to_db(taken)],
            )?;
        }
        Ok(standing.revision + batch.events.len() as u64)
    }

    fn grant_lease(&self, request: &LeaseRequest) -> Result<Lease, StoreError> {
        let session = request.session;
        let standing = self.session_state(session)?;
        self.check_session(session)?;
        request.check_granted(standing.held.as_ref(), standing.fence, request.term.now)?;
        self.ensure_session(session, &standing)?;
        let sql = "UPDATE sessions SET fence = ?2, holder = ?3, lease_until = ?4, parent = coalesce(parent, ?5),
                       directory = coalesce(directory, ?6)
                   WHERE id = ?1";
        // Every lease gets a new fence, so that writes under an earlier lease fail.
        let fence = standing.fence + 1;
        self.execute(
            sql,
            params![
                session_bytes(session),
                to_db(fence),
                &*request.holder,
                request.term.expiry().as_micros(),
                request.parent.map(session_bytes),
                request.directory.as_deref()
            ],
        )?;
        self.update_session_checksum(session)?;
        Ok(Lease {
            session,
            fence,
            revision: standing.revision,
        })
    }

    pub(super) fn ensure_session(
        &self,
        session: SessionId,
        standing: &SqliteSessionState,
    ) -> Result<(), StoreError> {
        if standing.known {
            return Ok(());
        }
        let sql = "INSERT INTO sessions (id, revision, created_at, updated_at, fence, posted) VALUES (?1, 0, 0, 0, 0, 0)";
        self.execute(sql, [session_bytes(session)])?;
        self.update_session_checksum(session)
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
            let until = at.lease_term.map(|term| term.expiry().as_micros());
            let revision = to_db(last.sequence);
            let updated = last.at.as_micros();
            self.execute(
                sql,
                params![session_bytes(session), revision, updated, created, until],
            )?;
            // Only if it changes: its index is a page of every commit otherwise.
            let sql = "UPDATE sessions SET is_behind = 1 WHERE id = ?1 AND is_behind = 0";
            self.execute(sql, [session_bytes(session)])?;
        } else if let Some(term) = at.lease_term {
            let sql = "UPDATE sessions SET lease_until = ?2 WHERE id = ?1 AND holder IS NOT NULL";
            self.execute(
                sql,
                params![session_bytes(session), term.expiry().as_micros()],
            )?;
        }
        Ok(())
    }

    /// Updates principal, labels, the last run and the title of a session.
    fn update_last_run(
        &self,
        session: SessionId,
        update: &EncodedSessionUpdate,
    ) -> Result<(), StoreError> {
        let last = update.last_run;
        let sql = "UPDATE sessions SET labels = ?2, run = coalesce(?3, run), run_at = coalesce(?4, run_at),
                       title = coalesce(title, ?5)
                   WHERE id = ?1";
        self.execute(
            sql,
            params![
                session_bytes(session),
                update.labels,
                last.map(|last| to_db(last.run)),
                last.map(|last| last.at.as_micros()),
                update.title.as_ref().map(SessionTitle::as_str)
            ],
        )?;
        // By themselves and only if they change: SQLite writes the indexes of every column that is set.
        let sql = "UPDATE sessions SET principal = coalesce(?2, principal), run_state = coalesce(?3, run_state)
                   WHERE id = ?1 AND (principal IS NOT coalesce(?2, principal)
                                      OR run_state IS NOT coalesce(?3, run_state))";
        self.execute(
            sql,
            params![
                session_bytes(session),
                update.principal.as_ref().map(Principal::as_str),
                last.map(|last| last.state.as_str())
            ],
        )
        .map(drop)
    }

    fn insert_event(&self, session: SessionId, event: &EncodedEvent) -> Result<(), StoreError> {
        let sql = "INSERT INTO events (session, sequence, body, checksum) VALUES (?1, ?2, ?3, ?4)";
        self.execute(
            sql,
            params![
                session_bytes(session),
                to_db(event.sequence),
                event.body,
                event.checksum.to_db()
            ],
        )?;
        event
            .change
            .as_ref()
            .map_or(Ok(()), |change| self.apply_change(change))
    }
}

impl SqliteReader<'_> {
    pub(super) fn read_events(
        &self,
        session: SessionId,
        after: u64,
        most: usize,
    ) -> Result<Vec<Arc<Event>>, StoreError> {
        let sql = "SELECT sequence, body, checksum FROM events
                   WHERE session = ?1 AND sequence > ?2 ORDER BY sequence LIMIT ?3";
        let mut bodies = EventBodies::new(self, session);
        self.query_rows(
            sql,
            params![session_bytes(session), to_db(after), limit_to_db(most)],
            |row| {
                let sequence = from_db(row.get(0)?);
                let stored = row.get_ref(1)?.as_str()?;
                Ok(bodies
                    .decode_event(sequence, stored, row.get(2)?)
                    .map(Arc::new))
            },
        )
    }

    pub(super) fn session_state(
        &self,
        session: SessionId,
    ) -> Result<SqliteSessionState, StoreError> {
        let sql = "SELECT revision, fence, holder, lease_until, posted FROM sessions WHERE id = ?1";
        let found = self.query_row(sql, [session_bytes(session)], |row| {
            Ok(SqliteSessionState {
                known: true,
                revision: from_db(row.get(0)?),
                fence: from_db(row.get(1)?),
                held: held_columns(row, 2)?,
                posted: from_db(row.get(4)?),
            })
        })?;
        Ok(found.unwrap_or_default())
    }
}
