//! Lists of the in-memory store, and hiding and erasing sessions.

use std::{ops::Bound, sync::Arc};

use uuid::Uuid;

use crate::{
    AccountMovement, ApprovalFilter, ApprovalRow, ApprovalState, CallId, CatalogueStore,
    ChargeFilter, ErasedSessions, ErasureScope, Event, ImportOrigin, Lease, RowChange,
    SessionFilter, SessionId, SessionOrder, SessionRow, SessionTitle, SessionTotals, SessionUpdate,
    StoreError, Timestamp, TurnFilter, TurnId, TurnRow, UnsettledWork,
    store::memory::{MemorySession, MemoryState, MemoryStore},
};

impl CatalogueStore for MemoryStore {
    async fn sessions(&self, filter: SessionFilter) -> Result<Vec<SessionRow>, StoreError> {
        let shelf = self.lock_state();
        let from = filter.after.map_or(Bound::Unbounded, Bound::Excluded);
        // A lease or a mailbox item creates a session before its first event; it is not listed yet.
        let found = shelf
            .sessions
            .range((from, Bound::Unbounded))
            .filter(|(_, known)| !known.log.is_empty());
        let found =
            found.filter(|(session, _)| filter.session.is_none_or(|wanted| wanted == **session));
        let found = found.filter(|(_, known)| filter.hidden.includes(known.hidden_at.is_some()));
        let found =
            found.filter(|(_, known)| !filter.with_open_turns || known.unsettled.open_turns > 0);
        let found = found.map(|(session, known)| {
            let mut row = known.to_row(*session);
            row.imported = shelf.import_origin(*session);
            row
        });
        let mut found: Vec<_> = found.filter(|row| filter.matches_run(row)).collect();
        if filter.order == SessionOrder::LastUse {
            found.sort_by_key(|row| std::cmp::Reverse(row.last_use));
        }
        found.truncate(filter.limit);
        Ok(found)
    }

    async fn turns(&self, filter: TurnFilter) -> Result<Vec<TurnRow>, StoreError> {
        let shelf = self.lock_state();
        let first = (filter.session, TurnId::new(Uuid::nil()));
        let from = filter.after.map_or(Bound::Included(first), |after| {
            Bound::Excluded((filter.session, after))
        });
        let found = shelf
            .turns
            .range((from, Bound::Unbounded))
            .map(|(_, row)| row)
            .take_while(|row| row.session == filter.session);
        let wanted = |row: &&TurnRow| !filter.open || row.settled_at.is_none();
        Ok(found.filter(wanted).take(filter.limit).cloned().collect())
    }

    async fn approvals(&self, filter: ApprovalFilter) -> Result<Vec<ApprovalRow>, StoreError> {
        let shelf = self.lock_state();
        Ok(shelf
            .approvals
            .values()
            .filter(|row| filter.matches(row))
            .take(filter.limit)
            .cloned()
            .collect())
    }

    async fn hide_session(
        &self,
        session: SessionId,
        at: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        let shelf = &mut *self.lock_state();
        for session in shelf.collect_scope(session).sessions() {
            if let Some(known) = shelf.sessions.get_mut(session) {
                known.hidden_at = at;
            }
        }
        Ok(())
    }

    async fn rename_session(
        &self,
        session: SessionId,
        title: SessionTitle,
    ) -> Result<(), StoreError> {
        if let Some(known) = self.lock_state().sessions.get_mut(&session) {
            known.renamed = Some(title);
            known.is_retitled = true;
        }
        Ok(())
    }

    async fn erase_session(
        &self,
        session: SessionId,
        now: Timestamp,
    ) -> Result<ErasedSessions, StoreError> {
        let shelf = &mut *self.lock_state();
        let traces = shelf.collect_scope(session);
        // All of them are checked first: nothing is deleted if one is in use.
        for session in traces.sessions() {
            if let Some(known) = shelf.sessions.get(session) {
                Lease::check_free(*session, known.held.as_ref(), known.fence, now)?;
            }
        }
        let mut erased = ErasedSessions::default();
        for session in traces.sessions() {
            erased.booked.extend(shelf.settle_open_charges(*session));
            let known = shelf.sessions.get_mut(session);
            if known.is_some_and(MemorySession::clear_all_but_fence) {
                erased.sessions.push(*session);
            }
        }
        shelf.delete_records(&traces);
        Ok(erased)
    }
}

impl MemoryState {
    pub(super) fn apply_row_change(&mut self, change: RowChange) {
        match change {
            RowChange::TurnOpened(row) => {
                let session = row.session;
                let before = self.turns.insert((session, row.turn), row);
                if before.is_none_or(|before| before.settled_at.is_some()) {
                    self.unsettled(session).open_turns += 1;
                }
            }
            RowChange::TurnSettled(session, turn, at) => {
                let Some(row) = self.turns.get_mut(&(session, turn)) else {
                    return;
                };
                if row.settled_at.replace(at).is_none() {
                    self.unsettled(session).open_turns -= 1;
                }
            }
            RowChange::Asked(row) => {
                let session = row.session;
                let call = row.request.approval_id.call_id();
                let before = self.approvals.insert(call, *row);
                if let Some(before) = before {
                    let unsettled = self.unsettled(before.session);
                    unsettled.remove_approval(before.state);
                }
                self.unsettled(session).add_approval(ApprovalState::Pending);
            }
            RowChange::Answered(call) => self.set_approval_state(call, ApprovalState::Answered),
            RowChange::Started(call) => self.set_approval_state(call, ApprovalState::Running),
            RowChange::Settled(call, status) => {
                self.set_approval_state(call, ApprovalState::Settled(status))
            }
        }
    }

    pub(super) fn set_approval_state(&mut self, call: CallId, state: ApprovalState) {
        let Some(row) = self.approvals.get_mut(&call) else {
            return;
        };
        let session = row.session;
        let before = std::mem::replace(&mut row.state, state);
        let unsettled = self.unsettled(session);
        unsettled.remove_approval(before);
        unsettled.add_approval(state);
    }

    fn unsettled(&mut self, session: SessionId) -> &mut MemoryUnsettled {
        &mut self.sessions.entry(session).or_default().unsettled
    }

    /// Returns the origin of a session, if it was imported.
    fn import_origin(&self, session: SessionId) -> Option<ImportOrigin> {
        let keys = [
            ImportOrigin::record_key(session),
            ImportOrigin::archive_key(session),
        ];
        let mark = keys.iter().find_map(|key| self.records.get(key))?;
        Some(ImportOrigin::from_record(Ok(mark.clone())))
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
        self.index.erase_sessions(sessions);
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

/// The numbers of unsettled turns and approvals of a session.
#[derive(Default)]
pub(super) struct MemoryUnsettled {
    open_turns: u64,
    pending: u64,
    answered: u64,
    running: u64,
}

impl MemoryUnsettled {
    fn add_approval(&mut self, state: ApprovalState) {
        if let Some(count) = self.count_of(state) {
            *count += 1;
        }
    }

    fn remove_approval(&mut self, state: ApprovalState) {
        if let Some(count) = self.count_of(state) {
            *count -= 1;
        }
    }

    fn count_of(&mut self, state: ApprovalState) -> Option<&mut u64> {
        match state {
            ApprovalState::Pending => Some(&mut self.pending),
            ApprovalState::Answered => Some(&mut self.answered),
            ApprovalState::Running => Some(&mut self.running),
            ApprovalState::Settled(_) => None,
        }
    }

    fn to_work(&self) -> UnsettledWork {
        UnsettledWork {
            pending: self.pending,
            answered: self.answered,
            running: self.running,
            has_open_turn: self.open_turns > 0,
        }
    }
}

impl MemorySession {
    pub(super) fn to_row(&self, session: SessionId) -> SessionRow {
        let at = |event: Option<&Arc<Event>>| event.map_or(Timestamp::EPOCH, |event| event.at());
        let last = SessionUpdate::from_events(self.log.iter()).unwrap_or_default();
        SessionRow {
            session,
            revision: self.revision(),
            created_at: at(self.log.first()),
            updated_at: at(self.log.last()),
            held: self.held.clone(),
            hidden_at: self.hidden_at,
            parent: self.parent,
            principal: last.principal,
            labels: last.labels,
            last_run: last.last_run,
            title: self.renamed.clone().or(last.title),
            directory: self.directory.clone(),
            last_use: self.last_use,
            totals: Some(self.totals.clone()),
            unsettled: self.unsettled.to_work(),
            imported: None,
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
        self.parent = None;
        self.directory = None;
        self.renamed = None;
        self.indexed = 0;
        self.is_retitled = false;
        self.totals = SessionTotals::default();
        self.unsettled = MemoryUnsettled::default();
        had_events
    }
}
