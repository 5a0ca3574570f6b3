//! An in-memory store: for tests, for embedding, and as the shortest description of a store.

mod accounts;
mod erase;

use std::{
    collections::BTreeMap,
    future::Future,
    ops::{Bound, Range},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use hashbrown::{HashMap, HashSet};
use tokio::sync::watch;

use crate::{
    AccountKey, AccountMovement, AccountRow, ApprovalFilter, ApprovalRow, ApprovalState, CallId,
    Charge, ChargeFilter, Digest, ErasedSessions, Event, Lease, LeaseRequest, LedgerDraft,
    LedgerHead, LedgerName, LogPosition, MailboxItem, MessageRecord, RecordKey, RowChange,
    SealedEntry, SessionFilter, SessionId, SessionRow, Store, StoreError, StoreRecord, Timestamp,
    TurnFilter, TurnId, TurnRow, WriteBatch, store::memory::accounts::MemoryAccountBook,
};

/// A store in memory. Its data lives as long as any clone of it.
///
/// Cloning shares the store, so a second runtime can resume what a first one left.
#[derive(Clone, Default)]
pub struct MemoryStore(Arc<Mutex<MemoryState>>);

#[derive(Default)]
pub(crate) struct MemoryState {
    pub(crate) sessions: BTreeMap<SessionId, MemorySession>,
    pub(crate) turns: BTreeMap<TurnId, TurnRow>,
    pub(crate) approvals: BTreeMap<CallId, ApprovalRow>,
    pub(crate) records: HashMap<RecordKey, StoreRecord>,
    /// The same records as `RecordKey::Other`, for listing.
    pub(crate) named: BTreeMap<Arc<str>, StoreRecord>,
    /// The same records as `RecordKey::Message`, by number, for reading them in order.
    pub(crate) messages: HashMap<SessionId, Vec<(u64, Arc<MessageRecord>)>>,
    blobs: HashMap<Digest, Bytes>,
    ledgers: BTreeMap<LedgerName, Vec<SealedEntry>>,
    /// Wakes the waiters for mailbox items, also of a session that does not exist yet.
    waiting: HashMap<SessionId, watch::Sender<()>>,
    pub(crate) till: MemoryAccountBook,
}

#[derive(Default)]
pub(crate) struct MemorySession {
    pub(crate) log: Vec<Arc<Event>>,
    pub(crate) fence: u64,
    pub(crate) held: Option<(Arc<str>, Timestamp)>,
    pub(crate) hidden_at: Option<Timestamp>,
    pub(crate) posts: BTreeMap<u64, MailboxItem>,
    /// The number of the newest mailbox item.
    posted: u64,
}

impl MemoryStore {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn has_mailbox_item(&self, session: SessionId, after: u64) -> bool {
        let shelf = self.lock_state();
        let newest = shelf
            .sessions
            .get(&session)
            .and_then(|known| known.posts.last_key_value());
        newest.is_some_and(|(number, _)| *number > after)
    }

    // A poisoned lock is usable: every change below is checked first and then made completely.
    fn lock_state(&self) -> MutexGuard<'_, MemoryState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore")
            .field("sessions", &self.lock_state().sessions.len())
            .finish_non_exhaustive()
    }
}

impl MemorySession {
    fn revision(&self) -> u64 {
        self.log.len() as u64
    }

    fn to_row(&self, session: SessionId) -> SessionRow {
        let at = |event: Option<&Arc<Event>>| event.map_or(Timestamp::EPOCH, |event| event.at());
        let created_at = at(self.log.first());
        let updated_at = at(self.log.last());
        let held = self.held.clone();
        let hidden_at = self.hidden_at;
        SessionRow {
            session,
            revision: self.revision(),
            created_at,
            updated_at,
            held,
            hidden_at,
        }
    }

    /// Checks whether a writer at `at` may append these events.
    fn check_append(
        &self,
        session: SessionId,
        at: LogPosition,
        events: &[Arc<Event>],
    ) -> Result<(), StoreError> {
        at.check_writable(session, self.revision(), self.fence)?;
        for (before, event) in (at.revision..).zip(events) {
            if event.sequence() != before + 1 {
                return Err(StoreError::SequenceGap {
                    expected: before,
                    found: event.sequence(),
                });
            }
        }
        Ok(())
    }
}

impl MemoryState {
    fn check_records(&self, records: &[(RecordKey, StoreRecord)]) -> Result<(), StoreError> {
        // For a few records, comparing pairs is faster than building a set.
        let few = records.len() <= 8;
        let mut named = HashSet::with_capacity(if few { 0 } else { records.len() });
        for (at, (key, _)) in records.iter().enumerate() {
            let twice = if few {
                records[..at].iter().any(|(other, _)| other == key)
            } else {
                !named.insert(key)
            };
            if twice || self.records.contains_key(key) {
                return Err(StoreError::RecordExists { key: key.clone() });
            }
        }
        Ok(())
    }

    fn insert_records(&mut self, records: Vec<(RecordKey, StoreRecord)>) {
        for (key, record) in records {
            match (&key, &record) {
                (RecordKey::Other(name), record) => {
                    drop(self.named.insert(name.clone(), record.clone()))
                }
                (RecordKey::Message(session, number), StoreRecord::Message(said)) => {
                    let messages = self.messages.entry(*session).or_default();
                    let place = messages.partition_point(|(before, _)| before < number);
                    messages.insert(place, (*number, said.clone()));
                }
                _ => {}
            }
            self.records.insert(key, record);
        }
    }

    fn apply_row_change(&mut self, change: RowChange) {
        match change {
            RowChange::TurnOpened(row) => drop(self.turns.insert(row.turn, row)),
            RowChange::TurnSettled(turn, at) => {
                if let Some(row) = self.turns.get_mut(&turn) {
                    row.settled_at = Some(at);
                }
            }
            RowChange::Asked(row) => drop(
                self.approvals
                    .insert(row.request.approval_id.call_id(), *row),
            ),
            RowChange::Answered(call) => self.set_approval_state(call, ApprovalState::Answered),
            RowChange::Settled(call, status) => {
                self.set_approval_state(call, ApprovalState::Settled(status))
            }
        }
    }

    fn set_approval_state(&mut self, call: CallId, state: ApprovalState) {
        if let Some(row) = self.approvals.get_mut(&call) {
            row.state = state;
        }
    }

    fn append_entry(&mut self, draft: LedgerDraft) -> LedgerHead {
        let chain = self.ledgers.entry(draft.ledger.clone()).or_default();
        let head = chain
            .last()
            .map_or_else(|| LedgerHead::start_of(draft.ledger), SealedEntry::head);
        let entry = head.seal_entry(draft.body);
        let head = entry.head();
        chain.push(entry);
        head
    }
}

impl Store for MemoryStore {
    async fn append(
        &self,
        session: SessionId,
        at: LogPosition,
        batch: WriteBatch,
    ) -> Result<u64, StoreError> {
        let shelf = &mut *self.lock_state();
        // All checks come before the first change, so that a batch is written completely or not at
        // all.
        match shelf.sessions.get(&session) {
            Some(known) => known.check_append(session, at, &batch.events)?,
            // Checked against an empty session, so that a rejected append creates none.
            None => MemorySession::default().check_append(session, at, &batch.events)?,
        }
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
        let known = shelf.sessions.entry(session).or_default();
        if let Some((held, until)) = known.held.as_mut().zip(at.lease_until) {
            held.1 = until;
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

    async fn put_record_once(
        &self,
        key: RecordKey,
        record: StoreRecord,
    ) -> Result<Option<StoreRecord>, StoreError> {
        let mut shelf = self.lock_state();
        let there = shelf.records.get(&key).cloned();
        if there.is_none() {
            shelf.insert_records(vec![(key, record)]);
        }
        Ok(there)
    }

    async fn load_record(&self, key: &RecordKey) -> Result<Option<StoreRecord>, StoreError> {
        Ok(self.lock_state().records.get(key).cloned())
    }

    async fn put_blob(&self, bytes: Bytes) -> Result<Digest, StoreError> {
        let digest = Digest::of_bytes(&bytes);
        self.lock_state().blobs.insert(digest, bytes);
        Ok(digest)
    }

    async fn blob(&self, digest: Digest, range: Range<u64>) -> Result<Option<Bytes>, StoreError> {
        let shelf = self.lock_state();
        let cut = |bytes: &Bytes| {
            let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
            let start = place(range.start);
            let end = place(range.end);
            bytes.slice(start..end.max(start))
        };
        Ok(shelf.blobs.get(&digest).map(cut))
    }

    async fn list_records(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Arc<str>, StoreRecord)>, StoreError> {
        // A cursor before the prefix would begin at a foreign key, and the list would end at once.
        let from = match after.filter(|after| *after >= prefix) {
            Some(after) => Bound::Excluded(after),
            None => Bound::Included(prefix),
        };
        let shelf = self.lock_state();
        let found = shelf.named.range::<str, _>((from, Bound::Unbounded));
        let found = found
            .take_while(|(key, _)| key.starts_with(prefix))
            .take(limit);
        Ok(found
            .map(|(key, record)| (key.clone(), record.clone()))
            .collect())
    }

    async fn messages(
        &self,
        session: SessionId,
        before: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Arc<MessageRecord>)>, StoreError> {
        let shelf = self.lock_state();
        let messages = shelf.messages.get(&session).map_or(&[][..], Vec::as_slice);
        let end = messages.partition_point(|(number, _)| *number < before);
        Ok(messages[end.saturating_sub(limit)..end].to_vec())
    }

    async fn acquire_lease(&self, request: LeaseRequest) -> Result<Lease, StoreError> {
        let mut shelf = self.lock_state();
        let LeaseRequest { session, .. } = request;
        let known = shelf.sessions.entry(session).or_default();
        let held = known
            .held
            .as_ref()
            .map(|(holder, until)| (&**holder, *until));
        if let Some((holder, until)) =
            held.filter(|held| !request.is_granted(Some(*held), known.fence))
        {
            return Err(StoreError::LeaseHeld {
                session,
                holder: holder.into(),
                until,
                fence: known.fence,
            });
        }
        // Also for the same holder: its older lease is fenced off.
        known.fence += 1;
        known.held = Some((request.holder, request.until));
        Ok(Lease {
            session,
            fence: known.fence,
            revision: known.revision(),
        })
    }

    async fn renew_lease(&self, lease: &Lease, until: Timestamp) -> Result<(), StoreError> {
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
        held.1 = until;
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

    async fn post_item(
        &self,
        session: SessionId,
        post: MailboxItem,
        records: Vec<(RecordKey, StoreRecord)>,
    ) -> Result<(), StoreError> {
        let shelf = &mut *self.lock_state();
        shelf.check_records(&records)?;
        shelf.insert_records(records);
        if let MailboxItem::Answer { call, .. } = &post {
            // Lists show the decision at once, not only after the driver has consumed the item.
            shelf.set_approval_state(*call, ApprovalState::Answered);
        }
        let known = shelf.sessions.entry(session).or_default();
        // Numbers are never reused, so a cursor stays valid when items are consumed.
        known.posted += 1;
        known.posts.insert(known.posted, post);
        if let Some(waiting) = shelf.waiting.get(&session) {
            waiting.send_replace(());
        }
        Ok(())
    }

    async fn posts(
        &self,
        session: SessionId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, MailboxItem)>, StoreError> {
        let shelf = self.lock_state();
        let Some(known) = shelf.sessions.get(&session) else {
            return Ok(Vec::new());
        };
        let found = known
            .posts
            .range((Bound::Excluded(after), Bound::Unbounded))
            .take(limit);
        Ok(found
            .map(|(number, post)| (*number, post.clone()))
            .collect())
    }

    fn wait_for_post(&self, session: SessionId, after: u64) -> impl Future<Output = ()> + Send {
        let mut watching = self
            .lock_state()
            .waiting
            .entry(session)
            .or_default()
            .subscribe();
        let store = self.clone();
        async move {
            // Subscribed before the first check, so that no item is missed in between. Consumed
            // items do not count.
            while !store.has_mailbox_item(session, after) && watching.changed().await.is_ok() {}
        }
    }

    async fn sessions(&self, filter: SessionFilter) -> Result<Vec<SessionRow>, StoreError> {
        let shelf = self.lock_state();
        let open = |session| {
            shelf
                .turns
                .values()
                .any(|row| row.session == session && row.settled_at.is_none())
        };
        let from = filter.after.map_or(Bound::Unbounded, Bound::Excluded);
        // A lease or a mailbox item creates a session before its first event; it is not listed yet.
        let found = shelf
            .sessions
            .range((from, Bound::Unbounded))
            .filter(|(_, known)| !known.log.is_empty());
        let found =
            found.filter(|(session, _)| filter.session.is_none_or(|wanted| wanted == **session));
        let found = found.filter(|(_, known)| filter.hidden.includes(known.hidden_at.is_some()));
        let found = found.filter(|(session, _)| !filter.with_open_turns || open(**session));
        Ok(found
            .take(filter.limit)
            .map(|(session, known)| known.to_row(*session))
            .collect())
    }

    async fn hide_session(
        &self,
        session: SessionId,
        at: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        self.lock_state().hide_session(session, at);
        Ok(())
    }

    async fn erase_session(
        &self,
        session: SessionId,
        now: Timestamp,
    ) -> Result<ErasedSessions, StoreError> {
        self.lock_state().erase_session(session, now)
    }

    async fn turns(&self, filter: TurnFilter) -> Result<Vec<TurnRow>, StoreError> {
        let shelf = self.lock_state();
        let from = filter.after.map_or(Bound::Unbounded, Bound::Excluded);
        let found = shelf
            .turns
            .range((from, Bound::Unbounded))
            .map(|(_, row)| row);
        let wanted = |row: &&TurnRow| {
            row.session == filter.session && (!filter.open || row.settled_at.is_none())
        };
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

    async fn seal_entries(&self, drafts: Vec<LedgerDraft>) -> Result<Vec<LedgerHead>, StoreError> {
        let mut shelf = self.lock_state();
        Ok(drafts
            .into_iter()
            .map(|draft| shelf.append_entry(draft))
            .collect())
    }

    async fn entries(
        &self,
        ledger: &LedgerName,
        after: u64,
        limit: usize,
    ) -> Result<Vec<SealedEntry>, StoreError> {
        let shelf = self.lock_state();
        let chain = shelf.ledgers.get(ledger).map_or(&[][..], Vec::as_slice);
        let from = usize::try_from(after)
            .unwrap_or(usize::MAX)
            .min(chain.len());
        Ok(chain[from..].iter().take(limit).cloned().collect())
    }

    async fn ledgers(&self) -> Result<Vec<LedgerHead>, StoreError> {
        Ok(self
            .lock_state()
            .ledgers
            .values()
            .filter_map(|chain| chain.last())
            .map(SealedEntry::head)
            .collect())
    }

    async fn reserve(&self, charge: Charge) -> Result<Charge, StoreError> {
        self.lock_state().till.reserve_charge(charge)
    }

    async fn settle_charge(
        &self,
        charge: Charge,
        actual: Vec<u64>,
    ) -> Result<Vec<AccountMovement>, StoreError> {
        Ok(self.lock_state().till.settle_charge(&charge, &actual))
    }

    async fn release_charge(&self, charge: Charge) -> Result<(), StoreError> {
        self.lock_state().till.release_charge(&charge);
        Ok(())
    }

    async fn charges(&self, filter: ChargeFilter) -> Result<Vec<Charge>, StoreError> {
        Ok(self.lock_state().till.list_charges(&filter))
    }

    async fn account(&self, account: &AccountKey) -> Result<Option<AccountRow>, StoreError> {
        Ok(self.lock_state().till.find_account(account))
    }

    async fn accounts(
        &self,
        prefix: &str,
        after: Option<&AccountKey>,
        limit: usize,
    ) -> Result<Vec<AccountRow>, StoreError> {
        Ok(self.lock_state().till.list_accounts(prefix, after, limit))
    }
}
