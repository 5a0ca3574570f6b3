//! An in-memory store: for tests, for embedding, and as the shortest description of a store.

mod accounts;
mod catalogue;
mod events;
mod ledgers;
mod mailbox;
mod memories;
mod records;
mod search;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use hashbrown::HashMap;
use tokio::sync::watch;

use crate::{
    ApprovalRow, CallId, Digest, Event, LedgerName, MailboxItem, MemoryId, RecordKey, SealedEntry,
    SessionId, SessionTitle, SessionTotals, StoreRecord, StoredMemory, Timestamp, TurnId, TurnRow,
    store::memory::{accounts::MemoryAccountBook, catalogue::MemoryUnsettled, search::MemoryIndex},
};

/// A store in memory. Its data lives as long as any clone of it.
///
/// Cloning shares the store, so a second runtime can resume what a first one left.
#[derive(Clone, Default)]
pub struct MemoryStore(Arc<Mutex<MemoryState>>);

#[derive(Default)]
struct MemoryState {
    sessions: BTreeMap<SessionId, MemorySession>,
    turns: BTreeMap<(SessionId, TurnId), TurnRow>,
    approvals: BTreeMap<CallId, ApprovalRow>,
    records: HashMap<RecordKey, StoreRecord>,
    /// The same records as `RecordKey::Other`, for listing.
    named: BTreeMap<Arc<str>, StoreRecord>,
    /// The same records as `RecordKey::Message`, by number, for reading them in order.
    messages: HashMap<SessionId, Vec<(u64, StoreRecord)>>,
    blobs: HashMap<Digest, Bytes>,
    ledgers: BTreeMap<LedgerName, Vec<SealedEntry>>,
    /// Wakes the waiters for mailbox items, also of a session that does not exist yet.
    waiting: HashMap<SessionId, watch::Sender<()>>,
    till: MemoryAccountBook,
    memories: BTreeMap<MemoryId, StoredMemory>,
    /// The number of the last use of any session.
    last_use: u64,
    index: MemoryIndex,
}

#[derive(Default)]
struct MemorySession {
    log: Vec<Arc<Event>>,
    fence: u64,
    held: Option<(Arc<str>, Timestamp)>,
    hidden_at: Option<Timestamp>,
    parent: Option<SessionId>,
    directory: Option<Arc<str>>,
    /// The title that the session was given.
    renamed: Option<SessionTitle>,
    /// The number of the last event that is indexed.
    indexed: u64,
    /// True if the title that it was given is not indexed yet.
    is_retitled: bool,
    last_use: u64,
    totals: SessionTotals,
    unsettled: MemoryUnsettled,
    posts: BTreeMap<u64, MailboxItem>,
    /// The number of the newest mailbox item.
    posted: u64,
}

impl MemoryStore {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self::default()
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
}
