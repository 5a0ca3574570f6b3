//! Hides and erases sessions within the transaction of a group.

use rusqlite::params;
use toolgate_core::{
    Charge, ChargeFilter, Erased, SessionId, StoreError, Timestamp, TraceNames, Traces,
};

use super::{
    read::Read,
    tx::{Tx, id},
};
use crate::encoded::{end_of, from_db};

/// How many events are in memory at a time.
const PAGE: usize = 1_000;

impl Tx<'_> {
    pub(super) fn hide(&self, session: SessionId, at: Option<Timestamp>) -> Result<(), StoreError> {
        let at = at.map(Timestamp::as_micros);
        for session in self.traces(session)?.sessions() {
            self.execute(
                "UPDATE sessions SET hidden_at = ?2 WHERE id = ?1",
                params![id(*session), at],
            )?;
        }
        Ok(())
    }

    pub(super) fn erase(&self, session: SessionId, now: Timestamp) -> Result<Erased, StoreError> {
        let traces = self.traces(session)?;
        let mut open = Vec::new();
        for session in traces.sessions() {
            self.check_free(*session, now)?;
            open.extend(self.open_charges(*session)?);
        }
        let mut erased = Erased::default();
        for charge in &open {
            erased.booked.extend(self.settle_charge(charge, &[])?);
        }
        for session in traces.sessions() {
            if self.clear(*session)? {
                erased.sessions.push(*session);
            }
        }
        self.forget(&traces.names())?;
        Ok(erased)
    }

    /// The session and those of its agents.
    fn traces(&self, session: SessionId) -> Result<Traces, StoreError> {
        let mut traces = Traces::of(session);
        let mut unread = vec![session];
        while !unread.is_empty() {
            unread
                .drain(..)
                .try_for_each(|session| self.take_in(session, &mut traces))?;
            for agent in traces.agents() {
                if self
                    .row("SELECT 1 FROM sessions WHERE id = ?1", [id(agent)], |_| {
                        Ok(())
                    })?
                    .is_some()
                {
                    unread.push(agent);
                }
            }
            traces.add(unread.iter().copied());
        }
        Ok(traces)
    }

    fn take_in(&self, session: SessionId, traces: &mut Traces) -> Result<(), StoreError> {
        let mut after = 0;
        loop {
            let page = self.read().events(session, after, PAGE)?;
            page.iter().for_each(|event| traces.take_in(event));
            match page.last() {
                Some(last) if page.len() == PAGE => after = last.sequence(),
                _ => return Ok(()),
            }
        }
    }

    /// Says who drives a session at the time `now`, if somebody does.
    fn check_free(&self, session: SessionId, now: Timestamp) -> Result<(), StoreError> {
        let sql =
            "SELECT holder, lease_until, fence FROM sessions WHERE id = ?1 AND holder IS NOT NULL
                       AND lease_until > ?2";
        let held = self.row(sql, params![id(session), now.as_micros()], |row| {
            Ok((row.get::<_, String>(0)?, row.get(1)?, row.get(2)?))
        })?;
        match held {
            Some((holder, until, fence)) => Err(StoreError::Held {
                session,
                holder: holder.into(),
                until: Timestamp::from_micros(until),
                fence: from_db(fence),
            }),
            None => Ok(()),
        }
    }

    fn open_charges(&self, session: SessionId) -> Result<Vec<Charge>, StoreError> {
        self.read().charges(&ChargeFilter {
            session: Some(session),
            limit: usize::MAX,
            ..ChargeFilter::default()
        })
    }

    /// Removes everything of a session but its fence, which ends all leases so far. Says whether there were events.
    fn clear(&self, session: SessionId) -> Result<bool, StoreError> {
        let had_events = self.execute("DELETE FROM events WHERE session = ?1", [id(session)])? > 0;
        for sql in [
            "DELETE FROM posts WHERE session = ?1",
            "DELETE FROM turns WHERE session = ?1",
            "DELETE FROM approvals WHERE session = ?1",
            "UPDATE sessions SET revision = 0, created_at = 0, updated_at = 0, holder = NULL, lease_until = NULL,
                 hidden_at = NULL, fence = CASE WHEN revision > 0 OR fence > 0 THEN fence + 1 ELSE 0 END WHERE id = ?1",
        ] {
            self.execute(sql, [id(session)])?;
        }
        Ok(had_events)
    }

    fn forget(&self, names: &TraceNames) -> Result<(), StoreError> {
        for name in &names.whole {
            self.execute("DELETE FROM records WHERE key = ?1", [name])?;
        }
        for start in &names.starts {
            self.execute(
                "DELETE FROM records WHERE key >= ?1 AND key < ?2",
                [start, &end_of(start)],
            )?;
        }
        Ok(())
    }

    /// Reads what the transaction sees.
    fn read(&self) -> Read<'_> {
        Read {
            connection: self.connection,
            path: self.path,
        }
    }
}
