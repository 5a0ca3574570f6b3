//! Hiding and erasing sessions in the in-memory store.

use crate::{
    AccountMovement, ChargeFilter, ErasedSessions, ErasureScope, SessionId, StoreError, Timestamp,
    store::memory::{MemorySession, MemoryState},
};

impl MemoryState {
    pub(crate) fn hide_session(&mut self, session: SessionId, at: Option<Timestamp>) {
        for session in self.collect_scope(session).sessions() {
            if let Some(known) = self.sessions.get_mut(session) {
                known.hidden_at = at;
            }
        }
    }

    pub(crate) fn erase_session(
        &mut self,
        session: SessionId,
        now: Timestamp,
    ) -> Result<ErasedSessions, StoreError> {
        let traces = self.collect_scope(session);
        // All of them are checked first: nothing is deleted if one is in use.
        for session in traces.sessions() {
            self.sessions
                .get(session)
                .map_or(Ok(()), |known| known.check_not_leased(*session, now))?;
        }
        let mut erased = ErasedSessions::default();
        for session in traces.sessions() {
            erased.booked.extend(self.settle_open_charges(*session));
            if self
                .sessions
                .get_mut(session)
                .is_some_and(MemorySession::clear_all_but_fence)
            {
                erased.sessions.push(*session);
            }
        }
        self.delete_records(&traces);
        Ok(erased)
    }

    /// Collects the session and those of its agents.
    fn collect_scope(&self, session: SessionId) -> ErasureScope {
        let mut traces = ErasureScope::for_session(session);
        let mut unread = vec![session];
        // Agents may have agents of their own.
        while !unread.is_empty() {
            let logs = unread
                .iter()
                .filter_map(|session| self.sessions.get(session));
            logs.flat_map(|known| &known.log)
                .for_each(|event| traces.add_event(event));
            unread = traces
                .agent_sessions()
                .filter(|agent| self.sessions.contains_key(agent))
                .collect();
            traces.add_sessions(unread.iter().copied());
        }
        traces
    }

    fn settle_open_charges(&mut self, session: SessionId) -> Vec<AccountMovement> {
        let filter = ChargeFilter {
            session: Some(session),
            limit: usize::MAX,
            ..ChargeFilter::default()
        };
        let open = self.till.list_charges(&filter);
        open.iter()
            .flat_map(|charge| self.till.settle_charge(charge, &[]))
            .collect()
    }

    /// Deletes everything stored beside the logs.
    fn delete_records(&mut self, traces: &ErasureScope) {
        let sessions = traces.sessions();
        let names = traces.record_names();
        self.turns.retain(|_, row| !sessions.contains(&row.session));
        self.approvals
            .retain(|_, row| !sessions.contains(&row.session));
        self.messages
            .retain(|session, _| !sessions.contains(session));
        self.records
            .retain(|key, _| !names.contains(&key.to_string()));
        self.named
            .retain(|name, _| !names.contains(&format!("other/{name}")));
    }
}

impl MemorySession {
    /// Returns an error with the lease holder if a process drives the session at the time `now`.
    fn check_not_leased(&self, session: SessionId, now: Timestamp) -> Result<(), StoreError> {
        match &self.held {
            Some((holder, until)) if *until > now => Err(StoreError::LeaseHeld {
                session,
                holder: holder.clone(),
                until: *until,
                fence: self.fence,
            }),
            _ => Ok(()),
        }
    }

    /// Deletes everything but the fence, which ends all leases so far. Returns true if there were
    /// events.
    fn clear_all_but_fence(&mut self) -> bool {
        let had_events = !self.log.is_empty();
        if had_events || self.fence > 0 {
            self.fence += 1;
        }
        self.log.clear();
        // `posted` stays: numbers are not reused, so an old cursor cannot skip a new item.
        self.posts.clear();
        self.held = None;
        self.hidden_at = None;
        had_events
    }
}
