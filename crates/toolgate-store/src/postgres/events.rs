//! Logs and leases in a PostgreSQL database.

use std::sync::Arc;

use sqlx::Row;
use toolgate_core::{
    Event, EventStore, Lease, LeaseRequest, LeaseTerm, LogPosition, SessionId, StoreError,
    WriteBatch,
};

use super::{PostgresStore, id::PgUuid, locked_rows::RowSelection, plan::PostgresWritePlan};
use crate::encoded::{EncodedBatch, WholeBodies, decode_event, from_db, limit_to_db, to_db};

impl EventStore for PostgresStore {
    async fn append(
        &self,
        session: SessionId,
        at: LogPosition,
        batch: WriteBatch,
    ) -> Result<u64, StoreError> {
        let batch = Arc::new(EncodedBatch::new(session, batch, &mut WholeBodies)?);
        let about = {
            let batch = batch.clone();
            move |wants: &mut RowSelection| {
                wants.add_session(session);
                wants.add_records(&batch.records);
                wants.add_ledgers(&batch.entries);
            }
        };
        self.queue_write(about, move |plan| plan.append_batch(session, at, &batch))
            .await
    }

    async fn events(
        &self,
        session: SessionId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Arc<Event>>, StoreError> {
        let sql = "SELECT sequence, body, checksum FROM events
                   WHERE session = $1 AND sequence > $2 ORDER BY sequence LIMIT $3";
        let ask = || {
            sqlx::query(sql)
                .bind(PgUuid(session.uuid()))
                .bind(to_db(after))
                .bind(limit_to_db(limit))
        };
        self.reads
            .query_rows(ask, |row| {
                let sequence = from_db(row.try_get(0)?);
                let event = decode_event(session, sequence, row.try_get(1)?, row.try_get(2)?)?;
                Ok(Arc::new(event))
            })
            .await
    }

    async fn revision(&self, session: SessionId) -> Result<u64, StoreError> {
        let ask = || {
            sqlx::query("SELECT revision FROM sessions WHERE id = $1").bind(PgUuid(session.uuid()))
        };
        Ok(self
            .reads
            .query_row(ask, |row| Ok(from_db(row.try_get(0)?)))
            .await?
            .unwrap_or(0))
    }

    async fn acquire_lease(&self, request: LeaseRequest) -> Result<Lease, StoreError> {
        let session = request.session;
        self.queue_write(
            move |wants| wants.add_session(session),
            move |plan| plan.grant_lease(&request),
        )
        .await
    }

    async fn renew_lease(&self, lease: &Lease, term: LeaseTerm) -> Result<(), StoreError> {
        let Lease { session, fence, .. } = *lease;
        self.queue_write(
            move |wants| wants.add_session(session),
            move |plan| plan.renew_lease(session, fence, term),
        )
        .await
    }

    async fn release_lease(&self, lease: &Lease) -> Result<(), StoreError> {
        let Lease { session, fence, .. } = *lease;
        self.queue_write(
            move |wants| wants.add_session(session),
            move |plan| {
                let known = plan.facts.sessions.get(&session);
                // A lease of a session that does not exist creates none.
                if known.is_some_and(|known| known.fence == fence) {
                    plan.change_session(session).held = None;
                }
                Ok(())
            },
        )
        .await
    }
}

impl PostgresWritePlan {
    fn append_batch(
        &mut self,
        session: SessionId,
        at: LogPosition,
        batch: &EncodedBatch,
    ) -> Result<u64, StoreError> {
        let standing = self.session_state(session);
        // A rejection must come before the first change of the plan: the plan is shared with the
        // rest of the group.
        at.check_writable(session, standing.revision, standing.fence)?;
        at.check_sequence(batch.events.iter().map(|event| event.sequence))?;
        self.insert_records(&batch.records)?;
        self.seal_entries(&batch.entries);
        let now = self.facts.now;
        let known = self.change_session(session);
        if let Some((held, term)) = known.held.as_mut().zip(at.lease_term) {
            held.1 = term.expiry_after(now);
        }
        if let Some((first, last)) = batch.events.first().zip(batch.events.last()) {
            known.created_at = if first.sequence == 1 {
                first.at
            } else {
                known.created_at
            };
            known.updated_at = last.at;
            known.revision = last.sequence;
        }
        if let Some(update) = &batch.session {
            known.change_last_run(update.clone());
        }
        known.is_used |= batch.is_use;
        known.totals.add_later(&batch.totals);
        let revision = known.revision;
        for event in &batch.events {
            self.events
                .push((session, event.sequence, event.body.clone(), event.checksum));
            event
                .change
                .clone()
                .into_iter()
                .for_each(|change| self.apply_change(change));
        }
        // Consumed inputs are deleted in the commit of their events, so that none is handled twice.
        if let Some(taken) = batch.taken_posts {
            // Also out of the plan: the parts of the statement do not see each other, so the
            // deletion would miss an input of the same group.
            self.posts
                .retain(|(of, number), _| *of != session || *number > taken);
            let most = self.taken.entry(session).or_default();
            *most = taken.max(*most);
        }
        Ok(revision)
    }

    fn grant_lease(&mut self, request: &LeaseRequest) -> Result<Lease, StoreError> {
        let session = request.session;
        let standing = self.session_state(session);
        // Leases go by the clock of the server: those of many machines differ.
        let now = self.facts.now;
        standing.check(session)?;
        request.check_granted(standing.held.as_ref(), standing.fence, now)?;
        let known = self.change_session(session);
        // Every lease gets a new fence, so that writes under an earlier lease fail.
        known.fence += 1;
        known.held = Some((request.holder.clone(), request.term.expiry_after(now)));
        known.parent = known.parent.or(request.parent);
        known.directory = known.directory.take().or(request.directory.clone());
        Ok(Lease {
            session,
            fence: known.fence,
            revision: known.revision,
        })
    }

    fn renew_lease(
        &mut self,
        session: SessionId,
        fence: u64,
        term: LeaseTerm,
    ) -> Result<(), StoreError> {
        let standing = self.session_state(session);
        // A renewal that was under way when the lease was released must not bring it back.
        if standing.fence != fence || standing.held.is_none() {
            return Err(StoreError::Fenced {
                session,
                found: standing.fence,
            });
        }
        let until = term.expiry_after(self.facts.now);
        if let Some(held) = &mut self.change_session(session).held {
            held.1 = until;
        }
        Ok(())
    }
}
