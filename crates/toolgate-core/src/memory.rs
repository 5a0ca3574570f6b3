//! A store in memory: for tests, for embedding, and as the shortest description of what a store does.

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
    AccountKey, AccountRow, ApprovalFilter, ApprovalRow, ApprovalState, Batch, CallId, Charge,
    ChargeFilter, Digest, Erased, Event, Lease, LeaseRequest, LedgerDraft, LedgerHead, LedgerName,
    Movement, Position, Post, Record, RecordKey, RowChange, Said, SealedEntry, SessionFilter,
    SessionId, SessionRow, Store, StoreError, Timestamp, TurnFilter, TurnId, TurnRow,
    memory_accounts::Till,
};

/// Keeps everything in memory, for as long as some clone of it lives.
///
/// Cloning shares the store, so a second runtime can be built over what a first one left behind.
#[derive(Clone, Default)]
pub struct MemoryStore(Arc<Mutex<Shelf>>);

#[derive(Default)]
pub(crate) struct Shelf {
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    pub(crate) turns: BTreeMap<TurnId, TurnRow>,
    pub(crate) approvals: BTreeMap<CallId, ApprovalRow>,
    pub(crate) records: HashMap<RecordKey, Record>,
    /// The same records as `RecordKey::Other`, for listing.
    pub(crate) named: BTreeMap<Arc<str>, Record>,
    /// The same records as `RecordKey::Message`, by number, for reading them in order.
    pub(crate) messages: HashMap<SessionId, Vec<(u64, Arc<Said>)>>,
    blobs: HashMap<Digest, Bytes>,
    ledgers: BTreeMap<LedgerName, Vec<SealedEntry>>,
    /// Tells those who wait for posts of a session, whether it is there yet or not.
    waiting: HashMap<SessionId, watch::Sender<()>>,
    pub(crate) till: Till,
}

#[derive(Default)]
pub(crate) struct Session {
    pub(crate) log: Vec<Arc<Event>>,
    pub(crate) fence: u64,
    pub(crate) held: Option<(Arc<str>, Timestamp)>,
    pub(crate) hidden_at: Option<Timestamp>,
    pub(crate) posts: BTreeMap<u64, Post>,
    /// The number of the newest post.
    posted: u64,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn has_post(&self, session: SessionId, after: u64) -> bool {
        let shelf = self.shelf();
        let newest = shelf
            .sessions
            .get(&session)
            .and_then(|known| known.posts.last_key_value());
        newest.is_some_and(|(number, _)| *number > after)
    }

    // Every change below is checked first and then made whole, so a poisoned lock hides nothing half-done.
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore")
            .field("sessions", &self.shelf().sessions.len())
            .finish_non_exhaustive()
    }
}

impl Session {
    fn revision(&self) -> u64 {
        self.log.len() as u64
    }

    fn row(&self, session: SessionId) -> SessionRow {
        let at = |event: Option<&Arc<Event>>| event.map_or(Timestamp::EPOCH, |event| event.at());
        let (created_at, updated_at) = (at(self.log.first()), at(self.log.last()));
        let (held, hidden_at) = (self.held.clone(), self.hidden_at);
        SessionRow {
            session,
            revision: self.revision(),
            created_at,
            updated_at,
            held,
            hidden_at,
        }
    }

    /// Whether somebody at `at` may append these events.
    fn check(
        &self,
        session: SessionId,
        at: Position,
        events: &[Arc<Event>],
    ) -> Result<(), StoreError> {
        at.check(session, self.revision(), self.fence)?;
        for (before, event) in (at.revision..).zip(events) {
            if event.sequence() != before + 1 {
                return Err(StoreError::Gap {
                    expected: before,
                    found: event.sequence(),
                });
            }
        }
        Ok(())
    }
}

impl Shelf {
    fn check_records(&self, records: &[(RecordKey, Record)]) -> Result<(), StoreError> {
        // A set is only worth its making for many.
        let few = records.len() <= 8;
        let mut named = HashSet::with_capacity(if few { 0 } else { records.len() });
        for (at, (key, _)) in records.iter().enumerate() {
            let twice = if few {
                records[..at].iter().any(|(other, _)| other == key)
            } else {
                !named.insert(key)
            };
            if twice || self.records.contains_key(key) {
                return Err(StoreError::Exists { key: key.clone() });
            }
        }
        Ok(())
    }

    fn keep(&mut self, records: Vec<(RecordKey, Record)>) {
        for (key, record) in records {
            match (&key, &record) {
                (RecordKey::Other(name), record) => {
                    drop(self.named.insert(name.clone(), record.clone()))
                }
                (RecordKey::Message(session, number), Record::Message(said)) => {
                    let messages = self.messages.entry(*session).or_default();
                    let place = messages.partition_point(|(before, _)| before < number);
                    messages.insert(place, (*number, said.clone()));
                }
                _ => {}
            }
            self.records.insert(key, record);
        }
    }

    fn apply(&mut self, change: RowChange) {
        match change {
            RowChange::TurnOpened(row) => drop(self.turns.insert(row.turn, row)),
            RowChange::TurnSettled(turn, at) => {
                if let Some(row) = self.turns.get_mut(&turn) {
                    row.settled_at = Some(at);
                }
            }
            RowChange::Asked(row) => {
                drop(self.approvals.insert(row.request.approval_id.call(), *row))
            }
            RowChange::Answered(call) => self.mark(call, ApprovalState::Answered),
            RowChange::Settled(call, status) => self.mark(call, ApprovalState::Settled(status)),
        }
    }

    fn mark(&mut self, call: CallId, state: ApprovalState) {
        if let Some(row) = self.approvals.get_mut(&call) {
            row.state = state;
        }
    }

    fn seal(&mut self, draft: LedgerDraft) -> LedgerHead {
        let chain = self.ledgers.entry(draft.ledger.clone()).or_default();
        let head = chain
            .last()
            .map_or_else(|| LedgerHead::start(draft.ledger), SealedEntry::head);
        let entry = head.seal(draft.body);
        let head = entry.head();
        chain.push(entry);
        head
    }
}

impl Store for MemoryStore {
    async fn append(
        &self,
        session: SessionId,
        at: Position,
        batch: Batch,
    ) -> Result<u64, StoreError> {
        let shelf = &mut *self.shelf();
        match shelf.sessions.get(&session) {
            Some(known) => known.check(session, at, &batch.events)?,
            None => Session::default().check(session, at, &batch.events)?,
        }
        shelf.check_records(&batch.records)?;
        shelf.keep(batch.records);
        batch
            .entries
            .into_iter()
            .for_each(|draft| drop(shelf.seal(draft)));
        batch
            .events
            .iter()
            .filter_map(|event| RowChange::of(event))
            .for_each(|change| shelf.apply(change));
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
        let shelf = self.shelf();
        let log = shelf
            .sessions
            .get(&session)
            .map_or(&[][..], |known| known.log.as_slice());
        let from = usize::try_from(after).unwrap_or(usize::MAX).min(log.len());
        Ok(log[from..].iter().take(limit).cloned().collect())
    }

    async fn revision(&self, session: SessionId) -> Result<u64, StoreError> {
        Ok(self
            .shelf()
            .sessions
            .get(&session)
            .map_or(0, Session::revision))
    }

    async fn once(&self, key: RecordKey, record: Record) -> Result<Option<Record>, StoreError> {
        let mut shelf = self.shelf();
        let there = shelf.records.get(&key).cloned();
        if there.is_none() {
            shelf.keep(vec![(key, record)]);
        }
        Ok(there)
    }

    async fn record(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        Ok(self.shelf().records.get(key).cloned())
    }

    async fn put_blob(&self, bytes: Bytes) -> Result<Digest, StoreError> {
        let digest = Digest::of_bytes(&bytes);
        self.shelf().blobs.insert(digest, bytes);
        Ok(digest)
    }

    async fn blob(&self, digest: Digest, range: Range<u64>) -> Result<Option<Bytes>, StoreError> {
        let shelf = self.shelf();
        let cut = |bytes: &Bytes| {
            let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
            let (start, end) = (place(range.start), place(range.end));
            bytes.slice(start..end.max(start))
        };
        Ok(shelf.blobs.get(&digest).map(cut))
    }

    async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Arc<str>, Record)>, StoreError> {
        let from = match after.filter(|after| *after >= prefix) {
            Some(after) => Bound::Excluded(after),
            None => Bound::Included(prefix),
        };
        let shelf = self.shelf();
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
    ) -> Result<Vec<(u64, Arc<Said>)>, StoreError> {
        let shelf = self.shelf();
        let messages = shelf.messages.get(&session).map_or(&[][..], Vec::as_slice);
        let end = messages.partition_point(|(number, _)| *number < before);
        Ok(messages[end.saturating_sub(limit)..end].to_vec())
    }

    async fn lease(&self, request: LeaseRequest) -> Result<Lease, StoreError> {
        let mut shelf = self.shelf();
        let LeaseRequest { session, .. } = request;
        let known = shelf.sessions.entry(session).or_default();
        let held = known
            .held
            .as_ref()
            .map(|(holder, until)| (&**holder, *until));
        if let Some((holder, until)) =
            held.filter(|held| !request.is_granted(Some(*held), known.fence))
        {
            return Err(StoreError::Held {
                session,
                holder: holder.into(),
                until,
                fence: known.fence,
            });
        }
        known.fence += 1;
        known.held = Some((request.holder, request.until));
        Ok(Lease {
            session,
            fence: known.fence,
            revision: known.revision(),
        })
    }

    async fn renew(&self, lease: &Lease, until: Timestamp) -> Result<(), StoreError> {
        let mut shelf = self.shelf();
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

    async fn release(&self, lease: &Lease) -> Result<(), StoreError> {
        let mut shelf = self.shelf();
        if let Some(known) = shelf
            .sessions
            .get_mut(&lease.session)
            .filter(|known| known.fence == lease.fence)
        {
            known.held = None;
        }
        Ok(())
    }

    async fn post(
        &self,
        session: SessionId,
        post: Post,
        records: Vec<(RecordKey, Record)>,
    ) -> Result<(), StoreError> {
        let shelf = &mut *self.shelf();
        shelf.check_records(&records)?;
        shelf.keep(records);
        if let Post::Answer { call, .. } = &post {
            shelf.mark(*call, ApprovalState::Answered);
        }
        let known = shelf.sessions.entry(session).or_default();
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
    ) -> Result<Vec<(u64, Post)>, StoreError> {
        let shelf = self.shelf();
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

    fn posted(&self, session: SessionId, after: u64) -> impl Future<Output = ()> + Send {
        let mut watching = self.shelf().waiting.entry(session).or_default().subscribe();
        let store = self.clone();
        async move {
            // The sender lives as long as the store. What was taken since wakes nobody.
            while !store.has_post(session, after) && watching.changed().await.is_ok() {}
        }
    }

    async fn sessions(&self, filter: SessionFilter) -> Result<Vec<SessionRow>, StoreError> {
        let shelf = self.shelf();
        let open = |session| {
            shelf
                .turns
                .values()
                .any(|row| row.session == session && row.settled_at.is_none())
        };
        let from = filter.after.map_or(Bound::Unbounded, Bound::Excluded);
        let found = shelf
            .sessions
            .range((from, Bound::Unbounded))
            .filter(|(_, known)| !known.log.is_empty());
        let found =
            found.filter(|(session, _)| filter.session.is_none_or(|wanted| wanted == **session));
        let found = found.filter(|(_, known)| filter.hidden.lists(known.hidden_at.is_some()));
        let found = found.filter(|(session, _)| !filter.with_open_turns || open(**session));
        Ok(found
            .take(filter.limit)
            .map(|(session, known)| known.row(*session))
            .collect())
    }

    async fn hide(&self, session: SessionId, at: Option<Timestamp>) -> Result<(), StoreError> {
        self.shelf().hide(session, at);
        Ok(())
    }

    async fn erase(&self, session: SessionId, now: Timestamp) -> Result<Erased, StoreError> {
        self.shelf().erase(session, now)
    }

    async fn turns(&self, filter: TurnFilter) -> Result<Vec<TurnRow>, StoreError> {
        let shelf = self.shelf();
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
        let shelf = self.shelf();
        Ok(shelf
            .approvals
            .values()
            .filter(|row| filter.wants(row))
            .take(filter.limit)
            .cloned()
            .collect())
    }

    async fn seal(&self, drafts: Vec<LedgerDraft>) -> Result<Vec<LedgerHead>, StoreError> {
        let mut shelf = self.shelf();
        Ok(drafts.into_iter().map(|draft| shelf.seal(draft)).collect())
    }

    async fn entries(
        &self,
        ledger: &LedgerName,
        after: u64,
        limit: usize,
    ) -> Result<Vec<SealedEntry>, StoreError> {
        let shelf = self.shelf();
        let chain = shelf.ledgers.get(ledger).map_or(&[][..], Vec::as_slice);
        let from = usize::try_from(after)
            .unwrap_or(usize::MAX)
            .min(chain.len());
        Ok(chain[from..].iter().take(limit).cloned().collect())
    }

    async fn ledgers(&self) -> Result<Vec<LedgerHead>, StoreError> {
        Ok(self
            .shelf()
            .ledgers
            .values()
            .filter_map(|chain| chain.last())
            .map(SealedEntry::head)
            .collect())
    }

    async fn reserve(&self, charge: Charge) -> Result<Charge, StoreError> {
        self.shelf().till.reserve(charge)
    }

    async fn settle_charge(
        &self,
        charge: Charge,
        actual: Vec<u64>,
    ) -> Result<Vec<Movement>, StoreError> {
        Ok(self.shelf().till.settle(&charge, &actual))
    }

    async fn release_charge(&self, charge: Charge) -> Result<(), StoreError> {
        self.shelf().till.release(&charge);
        Ok(())
    }

    async fn charges(&self, filter: ChargeFilter) -> Result<Vec<Charge>, StoreError> {
        Ok(self.shelf().till.charges(&filter))
    }

    async fn account(&self, account: &AccountKey) -> Result<Option<AccountRow>, StoreError> {
        Ok(self.shelf().till.account(account))
    }

    async fn accounts(
        &self,
        prefix: &str,
        after: Option<&AccountKey>,
        limit: usize,
    ) -> Result<Vec<AccountRow>, StoreError> {
        Ok(self.shelf().till.accounts(prefix, after, limit))
    }
}
