//! How the store in memory hides and erases sessions.

use crate::{
    ChargeFilter, Erased, Movement, SessionId, StoreError, Timestamp, Traces,
    memory::{Session, Shelf},
};

impl Shelf {
    pub(crate) fn hide(&mut self, session: SessionId, at: Option<Timestamp>) {
        for session in self.traces(session).sessions() {
            if let Some(known) = self.sessions.get_mut(session) {
                known.hidden_at = at;
            }
        }
    }

    pub(crate) fn erase(
        &mut self,
        session: SessionId,
        now: Timestamp,
    ) -> Result<Erased, StoreError> {
        let traces = self.traces(session);
        for session in traces.sessions() {
            self.sessions
                .get(session)
                .map_or(Ok(()), |known| known.check_free(*session, now))?;
        }
        let mut erased = Erased::default();
        for session in traces.sessions() {
            erased.booked.extend(self.book_open(*session));
            if self.sessions.get_mut(session).is_some_and(Session::clear) {
                erased.sessions.push(*session);
            }
        }
        self.forget(&traces);
        Ok(erased)
    }

    /// The session and those of its agents.
    fn traces(&self, session: SessionId) -> Traces {
        let mut traces = Traces::of(session);
        let mut unread = vec![session];
        while !unread.is_empty() {
            let logs = unread
                .iter()
                .filter_map(|session| self.sessions.get(session));
            logs.flat_map(|known| &known.log)
                .for_each(|event| traces.take_in(event));
            unread = traces
                .agents()
                .filter(|agent| self.sessions.contains_key(agent))
                .collect();
            traces.add(unread.iter().copied());
        }
        traces
    }

    fn book_open(&mut self, session: SessionId) -> Vec<Movement> {
        let filter = ChargeFilter {
            session: Some(session),
            limit: usize::MAX,
            ..ChargeFilter::default()
        };
        let open = self.till.charges(&filter);
        open.iter()
            .flat_map(|charge| self.till.settle(charge, &[]))
            .collect()
    }

    /// Removes all that is kept beside the logs.
    fn forget(&mut self, traces: &Traces) {
        let (sessions, names) = (traces.sessions(), traces.names());
        self.turns.retain(|_, row| !sessions.contains(&row.session));
        self.approvals
            .retain(|_, row| !sessions.contains(&row.session));
        self.messages
            .retain(|session, _| !sessions.contains(session));
        self.records.retain(|key, _| !names.has(&key.to_string()));
        self.named
            .retain(|name, _| !names.has(&format!("other/{name}")));
    }
}

impl Session {
    /// Says who drives the session at the time `now`, if somebody does.
    fn check_free(&self, session: SessionId, now: Timestamp) -> Result<(), StoreError> {
        match &self.held {
            Some((holder, until)) if *until > now => Err(StoreError::Held {
                session,
                holder: holder.clone(),
                until: *until,
                fence: self.fence,
            }),
            _ => Ok(()),
        }
    }

    /// Removes everything but the fence, which ends all leases so far. Says whether there were events.
    fn clear(&mut self) -> bool {
        let had_events = !self.log.is_empty();
        if had_events || self.fence > 0 {
            self.fence += 1;
        }
        self.log.clear();
        self.posts.clear();
        (self.held, self.hidden_at) = (None, None);
        had_events
    }
}
