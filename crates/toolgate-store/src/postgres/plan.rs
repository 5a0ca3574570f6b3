//! Judges the writes of a group one after the other and gathers what is to be written for those that are not refused.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use toolgate_core::{
    ApprovalRow, ApprovalState, CallId, Digest, Lease, LeaseRequest, LedgerDraft, LedgerHead,
    LedgerName, Position, Record, RowChange, SealedEntry, SessionId, StoreError, Timestamp, TurnId,
    TurnRow,
};

use super::facts::{Facts, Standing};
use crate::encoded::{EncodedBatch, EncodedRecord, from_text};

/// What a group of writes comes to. Each write sees what those before it in the group have done.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) facts: Facts,
    /// Sessions that are not in the database yet.
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

impl Plan {
    pub(super) fn new(facts: Facts) -> Self {
        Self {
            facts,
            ..Self::default()
        }
    }

    pub(super) fn append(
        &mut self,
        session: SessionId,
        at: Position,
        batch: &EncodedBatch,
    ) -> Result<u64, StoreError> {
        let standing = self
            .facts
            .sessions
            .get(&session)
            .cloned()
            .unwrap_or_default();
        at.check(session, standing.revision, standing.fence)?;
        batch.check_sequence(at.revision)?;
        self.insert_records(&batch.records)?;
        self.seal(&batch.entries);
        let known = self.change(session);
        if let Some((held, until)) = known.held.as_mut().zip(at.lease_until) {
            held.1 = until;
        }
        if let Some((first, last)) = batch.events.first().zip(batch.events.last()) {
            known.created_at = if first.sequence == 1 {
                first.at
            } else {
                known.created_at
            };
            (known.updated_at, known.revision) = (last.at, last.sequence);
        }
        let revision = known.revision;
        for event in &batch.events {
            self.events
                .push((session, event.sequence, event.body.clone()));
            event
                .change
                .clone()
                .into_iter()
                .for_each(|change| self.apply(change));
        }
        if let Some(taken) = batch.taken_posts {
            self.posts
                .retain(|(of, number), _| *of != session || *number > taken);
            let most = self.taken.entry(session).or_default();
            *most = taken.max(*most);
        }
        Ok(revision)
    }

    pub(super) fn once(&mut self, record: &EncodedRecord) -> Result<Option<Record>, StoreError> {
        if let Some(body) = self.facts.records.get(&record.name) {
            return from_text(body, || record.name.clone()).map(Some);
        }
        self.insert_record(record);
        Ok(None)
    }

    pub(super) fn lease(&mut self, request: &LeaseRequest) -> Result<Lease, StoreError> {
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
            return Err(StoreError::Held {
                session,
                holder: holder.into(),
                until,
                fence: standing.fence,
            });
        }
        let known = self.change(session);
        known.fence += 1;
        known.held = Some((request.holder.to_string(), request.until));
        Ok(Lease {
            session,
            fence: known.fence,
            revision: known.revision,
        })
    }

    pub(super) fn renew(&mut self, lease: &Lease, until: Timestamp) -> Result<(), StoreError> {
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
        if found != lease.fence || !held {
            return Err(StoreError::Fenced { session, found });
        }
        if let Some(held) = &mut self.change(session).held {
            held.1 = until;
        }
        Ok(())
    }

    pub(super) fn release(&mut self, lease: &Lease) {
        if self
            .facts
            .sessions
            .get(&lease.session)
            .is_some_and(|known| known.fence == lease.fence)
        {
            self.change(lease.session).held = None;
        }
    }

    pub(super) fn post(
        &mut self,
        session: SessionId,
        answered: Option<CallId>,
        body: &str,
        records: &[EncodedRecord],
    ) -> Result<(), StoreError> {
        self.insert_records(records)?;
        answered
            .into_iter()
            .for_each(|call| self.mark(call, ApprovalState::Answered));
        let known = self.change(session);
        known.posted += 1;
        let number = known.posted;
        self.posts.insert((session, number), body.to_owned());
        Ok(())
    }

    pub(super) fn seal(&mut self, drafts: &[LedgerDraft]) -> Vec<LedgerHead> {
        drafts.iter().map(|draft| self.seal_one(draft)).collect()
    }

    fn seal_one(&mut self, draft: &LedgerDraft) -> LedgerHead {
        let ledger = &draft.ledger;
        if !self.facts.ledgers.contains_key(ledger) {
            self.new_ledgers.insert(ledger.clone());
            self.facts
                .ledgers
                .insert(ledger.clone(), LedgerHead::start(ledger.clone()));
        } else if !self.new_ledgers.contains(ledger) {
            self.changed_ledgers.insert(ledger.clone());
        }
        let entry = self.facts.ledgers[ledger].seal(draft.body.clone());
        let head = entry.head();
        self.facts.ledgers.insert(ledger.clone(), head.clone());
        self.entries.push(entry);
        head
    }

    /// How a session stands after the writes so far.
    pub(super) fn session(&self, session: SessionId) -> Standing {
        self.facts
            .sessions
            .get(&session)
            .cloned()
            .unwrap_or_default()
    }

    /// Where a chain ends after the writes so far.
    pub(super) fn ledger(&self, ledger: &LedgerName) -> &LedgerHead {
        &self.facts.ledgers[ledger]
    }

    fn change(&mut self, session: SessionId) -> &mut Standing {
        if !self.facts.sessions.contains_key(&session) {
            self.new_sessions.insert(session);
        } else if !self.new_sessions.contains(&session) {
            self.changed_sessions.insert(session);
        }
        self.facts.sessions.entry(session).or_default()
    }

    /// Takes all of them or, if one exists, none.
    fn insert_records(&mut self, records: &[EncodedRecord]) -> Result<(), StoreError> {
        let mut names = BTreeSet::new();
        for record in records {
            if self.facts.records.contains_key(&record.name) || !names.insert(&record.name) {
                return Err(StoreError::Exists {
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

    fn apply(&mut self, change: RowChange) {
        match change {
            RowChange::TurnOpened(row) => {
                self.settled_turns.remove(&row.turn);
                self.turns.insert(row.turn, row);
            }
            RowChange::TurnSettled(turn, at) => match self.turns.get_mut(&turn) {
                Some(row) => row.settled_at = Some(at),
                None => drop(self.settled_turns.insert(turn, at)),
            },
            RowChange::Asked(row) => {
                let call = row.request.approval_id.call();
                self.marks.remove(&call);
                self.approvals.insert(call, *row);
            }
            RowChange::Answered(call) => self.mark(call, ApprovalState::Answered),
            RowChange::Settled(call, status) => self.mark(call, ApprovalState::Settled(status)),
        }
    }

    fn mark(&mut self, call: CallId, state: ApprovalState) {
        match self.approvals.get_mut(&call) {
            Some(row) => row.state = state,
            None => drop(self.marks.insert(call, state)),
        }
    }
}
