//! Plans a group of writes: decides them one after the other and collects the rows of those that
//! are not rejected.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use toolgate_core::{
    ApprovalRow, ApprovalState, CallId, Digest, Lease, LeaseRequest, LedgerDraft, LedgerHead,
    LedgerName, LogPosition, RowChange, SealedEntry, SessionId, StoreError, StoreRecord, Timestamp,
    TurnId, TurnRow,
};

use super::locked_rows::{LockedRows, PostgresSessionState};
use crate::encoded::{EncodedBatch, EncodedRecord, decode_json};

/// The result of a group of writes. Each write sees the changes of those before it in the group.
#[derive(Default)]
pub(super) struct PostgresWritePlan {
    pub(super) facts: LockedRows,
    /// The sessions that are not in the database yet.
    pub(super) new_sessions: BTreeSet<SessionId>,
    pub(super) changed_sessions: BTreeSet<SessionId>,
    pub(super) events: Vec<(SessionId, u64, String)>,
    pub(super) records: Vec<(String, String)>,
    pub(super) posts: BTreeMap<(SessionId, u64), String>,
    pub(super) taken: BTreeMap<SessionId, u64>,
    pub(super) turns: BTreeMap<TurnId, TurnRow>,
    pub(super) settled_turns: BTreeMap<TurnId, Timestamp>,
    pub(super) approvals: BTreeMap<CallId, ApprovalRow>,
    pub(super) marks: BTreeMap<CallId, ApprovalState>,
    pub(super) entries: Vec<SealedEntry>,
    pub(super) new_ledgers: BTreeSet<LedgerName>,
    pub(super) changed_ledgers: BTreeSet<LedgerName>,
    pub(super) blobs: HashMap<Digest, Bytes>,
}

impl PostgresWritePlan {
    pub(super) fn new(facts: LockedRows) -> Self {
        Self {
            facts,
            ..Self::default()
        }
    }

    pub(super) fn append_batch(
        &mut self,
        session: SessionId,
        at: LogPosition,
        batch: &EncodedBatch,
    ) -> Result<u64, StoreError> {
        let standing = self
            .facts
            .sessions
            .get(&session)
            .cloned()
            .unwrap_or_default();
        // A rejection must come before the first change of the plan: the plan is shared with the
        // rest of the group.
        at.check_writable(session, standing.revision, standing.fence)?;
        batch.check_sequence(at.revision)?;
        self.insert_records(&batch.records)?;
        self.seal_entries(&batch.entries);
        let known = self.change_session(session);
        if let Some((held, until)) = known.held.as_mut().zip(at.lease_until) {
            held.1 = until;
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
        let revision = known.revision;
        for event in &batch.events {
            self.events
                .push((session, event.sequence, event.body.clone()));
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

    pub(super) fn insert_once(
        &mut self,
        record: &EncodedRecord,
    ) -> Result<Option<StoreRecord>, StoreError> {
        if let Some(body) = self.facts.records.get(&record.name) {
            return decode_json(body, || record.name.clone()).map(Some);
        }
        self.insert_record(record);
        Ok(None)
    }

    pub(super) fn grant_lease(&mut self, request: &LeaseRequest) -> Result<Lease, StoreError> {
        let LeaseRequest { session, .. } = *request;
        let standing = self
            .facts
            .sessions
            .get(&session)
            .cloned()
            .unwrap_or_default();
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
        let known = self.change_session(session);
        // Every lease gets a new fence, so that writes under an earlier lease fail.
        known.fence += 1;
        known.held = Some((request.holder.to_string(), request.until));
        Ok(Lease {
            session,
            fence: known.fence,
            revision: known.revision,
        })
    }

    pub(super) fn renew_lease(
        &mut self,
        lease: &Lease,
        until: Timestamp,
    ) -> Result<(), StoreError> {
        let session = lease.session;
        let found = self
            .facts
            .sessions
            .get(&session)
            .map_or(0, |known| known.fence);
        let held = self
            .facts
            .sessions
            .get(&session)
            .is_some_and(|known| known.held.is_some());
        // A renewal that was under way when the lease was released must not bring it back.
        if found != lease.fence || !held {
            return Err(StoreError::Fenced { session, found });
        }
        if let Some(held) = &mut self.change_session(session).held {
            held.1 = until;
        }
        Ok(())
    }

    pub(super) fn release_lease(&mut self, lease: &Lease) {
        if self
            .facts
            .sessions
            .get(&lease.session)
            .is_some_and(|known| known.fence == lease.fence)
        {
            self.change_session(lease.session).held = None;
        }
    }

    pub(super) fn add_post(
        &mut self,
        session: SessionId,
        answered: Option<CallId>,
        body: &str,
        records: &[EncodedRecord],
    ) -> Result<(), StoreError> {
        self.insert_records(records)?;
        answered
            .into_iter()
            .for_each(|call| self.mark_approval(call, ApprovalState::Answered));
        let known = self.change_session(session);
        // Counted in the row of the session: consumed inputs are deleted, and numbers must not be
        // reused.
        known.posted += 1;
        let number = known.posted;
        self.posts.insert((session, number), body.to_owned());
        Ok(())
    }

    pub(super) fn seal_entries(&mut self, drafts: &[LedgerDraft]) -> Vec<LedgerHead> {
        drafts.iter().map(|draft| self.seal_entry(draft)).collect()
    }

    fn seal_entry(&mut self, draft: &LedgerDraft) -> LedgerHead {
        let ledger = &draft.ledger;
        if !self.facts.ledgers.contains_key(ledger) {
            self.new_ledgers.insert(ledger.clone());
            self.facts
                .ledgers
                .insert(ledger.clone(), LedgerHead::start_of(ledger.clone()));
        } else if !self.new_ledgers.contains(ledger) {
            self.changed_ledgers.insert(ledger.clone());
        }
        let entry = self.facts.ledgers[ledger].seal_entry(draft.body.clone());
        let head = entry.head();
        self.facts.ledgers.insert(ledger.clone(), head.clone());
        self.entries.push(entry);
        head
    }

    /// Returns the state of a session after the writes so far.
    pub(super) fn session_state(&self, session: SessionId) -> PostgresSessionState {
        self.facts
            .sessions
            .get(&session)
            .cloned()
            .unwrap_or_default()
    }

    /// Returns the end of a chain after the writes so far.
    pub(super) fn ledger_head(&self, ledger: &LedgerName) -> &LedgerHead {
        &self.facts.ledgers[ledger]
    }

    fn change_session(&mut self, session: SessionId) -> &mut PostgresSessionState {
        if !self.facts.sessions.contains_key(&session) {
            self.new_sessions.insert(session);
        } else if !self.new_sessions.contains(&session) {
            self.changed_sessions.insert(session);
        }
        self.facts.sessions.entry(session).or_default()
    }

    /// Adds all records or, if one exists, none.
    fn insert_records(&mut self, records: &[EncodedRecord]) -> Result<(), StoreError> {
        // All names are checked before the first is added: the plan cannot be rolled back for one
        // write.
        let mut names = BTreeSet::new();
        for record in records {
            if self.facts.records.contains_key(&record.name) || !names.insert(&record.name) {
                return Err(StoreError::RecordExists {
                    key: record.key.clone(),
                });
            }
        }
        records.iter().for_each(|record| self.insert_record(record));
        Ok(())
    }

    fn insert_record(&mut self, record: &EncodedRecord) {
        self.facts
            .records
            .insert(record.name.clone(), record.body.clone());
        self.records
            .push((record.name.clone(), record.body.clone()));
    }

    fn apply_change(&mut self, change: RowChange) {
        match change {
            RowChange::TurnOpened(row) => {
                // The statement writes each turn once, so a later change replaces an earlier one.
                self.settled_turns.remove(&row.turn);
                self.turns.insert(row.turn, row);
            }
            RowChange::TurnSettled(turn, at) => match self.turns.get_mut(&turn) {
                Some(row) => row.settled_at = Some(at),
                None => drop(self.settled_turns.insert(turn, at)),
            },
            RowChange::Asked(row) => {
                let call = row.request.approval_id.call_id();
                // The statement must not write one row twice, and the new request is pending,
                // whatever became of the old one.
                self.marks.remove(&call);
                self.approvals.insert(call, *row);
            }
            RowChange::Answered(call) => self.mark_approval(call, ApprovalState::Answered),
            RowChange::Settled(call, status) => {
                self.mark_approval(call, ApprovalState::Settled(status))
            }
        }
    }

    fn mark_approval(&mut self, call: CallId, state: ApprovalState) {
        match self.approvals.get_mut(&call) {
            Some(row) => row.state = state,
            None => drop(self.marks.insert(call, state)),
        }
    }
}
