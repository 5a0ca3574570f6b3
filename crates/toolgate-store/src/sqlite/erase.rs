//! Hides and erases sessions within the transaction of a group.

use std::time::Duration;

use rusqlite::{OpenFlags, params};
use toolgate_core::{
    Charge, ChargeFilter, ErasedSessions, ErasureNames, ErasureScope, Lease, SessionId, StoreError,
    TextRemains, Timestamp,
};

use super::{
    SqliteStore, connect,
    record_keys::KeyRange,
    transaction::{SqliteWriteTx, session_bytes},
};

/// The number of events that are in memory at a time.
const PAGE_EVENTS: usize = 1_000;

/// The number of documents that are deleted from the index in one transaction.
const UNINDEXED_AT_ONCE: usize = 16;

/// The time for which emptying the WAL waits for other processes.
const CHECKPOINT_PATIENCE: Duration = Duration::from_secs(2);

impl SqliteStore {
    /// Deletes the words of a session and of its agents from the index before they are erased, in
    /// small transactions: removing words from their pages takes long, and others have to write
    /// meanwhile.
    pub(super) async fn unindex_session(
        &self,
        session: SessionId,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        // Words of another version, or set aside, cannot be deleted one by one.
        self.clear_unusable_index().await?;
        let sessions = self
            .queue_unsynced_write(move |tx| {
                let traces = tx.collect_traces(session)?;
                for session in traces.sessions() {
                    tx.check_erasable(*session, now)?;
                }
                Ok(traces.sessions().clone())
            })
            .await?;
        for session in sessions {
            // The place up to which it is indexed is forgotten with its first documents: if the
            // process ends before the session is erased, the next search indexes it again.
            let delete = move |tx: &SqliteWriteTx<'_>| {
                tx.forget_place(session)?;
                tx.delete_some_documents(session, UNINDEXED_AT_ONCE)
            };
            while self.queue_unsynced_write(delete).await? {}
        }
        Ok(())
    }

    /// Moves the write-ahead log into the file and empties it: it has pages as they were before
    /// something was deleted. A reader of another process can prevent that for as long as it reads;
    /// then the next checkpoint does it.
    pub(super) async fn truncate_wal(&self) -> Result<TextRemains, StoreError> {
        let options = self.0.options.clone();
        self.run_read(move |read| {
            let failed = |error| StoreError::from(connect::database_error(read.path, error));
            // The connections of this store read or are busy with writes.
            let access = OpenFlags::SQLITE_OPEN_READ_WRITE;
            let connection =
                connect::open_connection(read.path, access, &options).map_err(failed)?;
            let patience = options.busy_timeout.min(CHECKPOINT_PATIENCE);
            connection.busy_timeout(patience).map_err(failed)?;
            let busy = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
                row.get::<_, i64>(0)
            });
            Ok(match busy.map_err(failed)? {
                0 => TextRemains::Nothing,
                _ => TextRemains::UntilCheckpoint,
            })
        })
        .await
    }
}

impl SqliteWriteTx<'_> {
    pub(super) fn hide_session(
        &self,
        session: SessionId,
        at: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        let at = at.map(Timestamp::as_micros);
        for session in self.collect_traces(session)?.sessions() {
            let sql = "UPDATE sessions SET hidden_at = ?2 WHERE id = ?1";
            self.change_checked(*session, || {
                self.execute(sql, params![session_bytes(*session), at])
            })?;
        }
        Ok(())
    }

    pub(super) fn erase_session(
        &self,
        session: SessionId,
        now: Timestamp,
    ) -> Result<ErasedSessions, StoreError> {
        let traces = self.collect_traces(session)?;
        let mut open = Vec::new();
        // All checks come before the first change: a session that is leased must not be left half
        // erased.
        for session in traces.sessions() {
            self.check_erasable(*session, now)?;
            open.extend(self.open_charges(*session)?);
        }
        let mut erased = ErasedSessions::default();
        for charge in &open {
            erased.booked.extend(self.settle_charge(charge, &[])?);
        }
        for session in traces.sessions() {
            if self.clear_session(*session)? {
                erased.sessions.push(*session);
            }
        }
        self.delete_records(&traces.record_names())?;
        Ok(erased)
    }

    /// Fails if a session is leased.
    fn check_erasable(&self, session: SessionId, now: Timestamp) -> Result<(), StoreError> {
        let standing = self.session_state(session)?;
        Lease::check_free(session, standing.held.as_ref(), standing.fence, now)
    }

    /// Collects the session and the sessions of its agents.
    fn collect_traces(&self, session: SessionId) -> Result<ErasureScope, StoreError> {
        let mut traces = ErasureScope::for_session(session);
        let mut unread = vec![session];
        // Agents have sessions of their own, and these may have agents, too.
        while !unread.is_empty() {
            unread
                .drain(..)
                .try_for_each(|session| self.collect_events(session, &mut traces))?;
            for agent in traces.agent_sessions() {
                if self
                    .query_row(
                        "SELECT 1 FROM sessions WHERE id = ?1",
                        [session_bytes(agent)],
                        |_| Ok(()),
                    )?
                    .is_some()
                {
                    unread.push(agent);
                }
            }
            traces.add_sessions(unread.iter().copied());
        }
        Ok(traces)
    }

    fn collect_events(
        &self,
        session: SessionId,
        traces: &mut ErasureScope,
    ) -> Result<(), StoreError> {
        let mut after = 0;
        loop {
            let page = self.read_events(session, after, PAGE_EVENTS)?;
            page.iter().for_each(|event| traces.add_event(event));
            match page.last() {
                Some(last) if page.len() == PAGE_EVENTS => after = last.sequence(),
                _ => return Ok(()),
            }
        }
    }

    fn open_charges(&self, session: SessionId) -> Result<Vec<Charge>, StoreError> {
        self.read_charges(&ChargeFilter {
            session: Some(session),
            limit: usize::MAX,
            ..ChargeFilter::default()
        })
    }

    /// Deletes everything of a session but its fence, which invalidates all leases so far. Returns
    /// whether there were events.
    fn clear_session(&self, session: SessionId) -> Result<bool, StoreError> {
        self.delete_documents(session)?;
        let had_events = self.execute(
            "DELETE FROM events WHERE session = ?1",
            [session_bytes(session)],
        )? > 0;
        for sql in [
            "DELETE FROM posts WHERE session = ?1",
            "DELETE FROM turns WHERE session = ?1",
            "DELETE FROM approvals WHERE session = ?1",
            "UPDATE sessions SET revision = 0, created_at = 0, updated_at = 0, holder = NULL, lease_until = NULL,
                 hidden_at = NULL, parent = NULL, principal = NULL, labels = NULL, run = NULL, run_state = NULL,
                 run_at = NULL, title = NULL, directory = NULL, indexed = 0, indexed_title = NULL, is_retitled = 0, is_behind = 0,
                 calls = 0, cost = NULL, model = NULL, provider = NULL, first_tool = NULL,
                 fence = CASE WHEN revision > 0 OR fence > 0 THEN fence + 1 ELSE 0 END WHERE id = ?1",
        ] {
            self.execute(sql, [session_bytes(session)])?;
        }
        self.update_session_checksum(session)?;
        Ok(had_events)
    }

    fn delete_records(&self, names: &ErasureNames) -> Result<(), StoreError> {
        for range in KeyRange::of_names(names) {
            self.execute(
                "DELETE FROM keyed_records WHERE key >= ?1 AND key < ?2",
                params![range.first, range.end],
            )?;
        }
        Ok(())
    }
}
