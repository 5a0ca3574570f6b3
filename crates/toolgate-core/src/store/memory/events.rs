//! Logs and leases of the in-memory store.

use std::sync::Arc;

use crate::{
    Event, EventStore, Lease, LeaseRequest, LeaseTerm, LogPosition, RowChange, SessionId,
    SessionUpdate, StoreError, WriteBatch,
    store::memory::{MemorySession, MemoryStore},
};

impl EventStore for MemoryStore {
    async fn append(
        &self,
        session: SessionId,
        at: LogPosition,
        batch: WriteBatch,
    ) -> Result<u64, StoreError> {
        let shelf = &mut *self.lock_state();
        // All checks come before the first change, so that a batch is written completely or not at
        // all.
        let known = shelf.sessions.get(&session);
        let revision = known.map_or(0, MemorySession::revision);
        at.check_writable(session, revision, known.map_or(0, |known| known.fence))?;
        at.check_sequence(batch.events.iter().map(|event| event.sequence()))?;
        shelf.check_records(&batch.records)?;
        shelf.insert_records(batch.records);
        batch
            .entries
            .into_iter()
            .for_each(|draft| drop(shelf.append_entry(draft)));
        batch
            .events
            .iter()
            .filter_map(|event| RowChange::from_event(event))
            .for_each(|change| shelf.apply_row_change(change));
        let is_used = revision == 0 || SessionUpdate::from_events(batch.events.iter()).is_some();
        let known = shelf.sessions.entry(session).or_default();
        if is_used && !batch.events.is_empty() {
            shelf.last_use += 1;
            known.last_use = shelf.last_use;
        }
        if let Some((held, term)) = known.held.as_mut().zip(at.lease_term) {
            held.1 = term.expiry();
        }
        for event in &batch.events {
            known.totals.add_event(event);
        }
        known.log.extend(batch.events);
        if let Some(taken) = batch.taken_posts {
            known.posts.retain(|number, _| *number > taken);
        }
        Ok(known.revision())
    }

    async fn events(
        &self,
        session: SessionId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Arc<Event>>, StoreError> {
        let shelf = self.lock_state();
        let log = shelf
            .sessions
            .get(&session)
            .map_or(&[][..], |known| known.log.as_slice());
        let from = usize::try_from(after).unwrap_or(usize::MAX).min(log.len());
        Ok(log[from..].iter().take(limit).cloned().collect())
    }

    async fn revision(&self, session: SessionId) -> Result<u64, StoreError> {
        Ok(self
            .lock_state()
            .sessions
            .get(&session)
            .map_or(0, MemorySession::revision))
    }

    async fn acquire_lease(&self, request: LeaseRequest) -> Result<Lease, StoreError> {
        let mut shelf = self.lock_state();
        let LeaseRequest { session, .. } = request;
        let known = shelf.sessions.entry(session).or_default();
        request.check_granted(known.held.as_ref(), known.fence, request.term.now)?;
        // Also for the same holder: its older lease is fenced off.
        known.fence += 1;
        known.held = Some((request.holder, request.term.expiry()));
        known.parent = known.parent.or(request.parent);
        known.directory = known.directory.take().or(request.directory);
        Ok(Lease {
            session,
            fence: known.fence,
            revision: known.revision(),
        })
    }

    async fn renew_lease(&self, lease: &Lease, term: LeaseTerm) -> Result<(), StoreError> {
        let mut shelf = self.lock_state();
        let fenced = |found| StoreError::Fenced {
            session: lease.session,
            found,
        };
        let known = shelf.sessions.get_mut(&lease.session).ok_or(fenced(0))?;
        let held = known
            .held
            .as_mut()
            .filter(|_| known.fence == lease.fence)
            .ok_or(fenced(known.fence))?;
        held.1 = term.expiry();
        Ok(())
    }

    async fn release_lease(&self, lease: &Lease) -> Result<(), StoreError> {
        let mut shelf = self.lock_state();
        if let Some(known) = shelf
            .sessions
            .get_mut(&lease.session)
            // An old lease must not end the one of a newer holder.
            .filter(|known| known.fence == lease.fence)
        {
            known.held = None;
        }
        Ok(())
    }
}
