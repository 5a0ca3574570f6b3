//! A store in memory: for tests, for embedding, and as the shortest description of what a store does.

use std::{
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use hashbrown::{HashMap, hash_map::Entry};

use crate::{Batch, Digest, Event, Record, RecordKey, SessionId, Store, StoreError};

/// Keeps everything in memory, for as long as some clone of it lives.
///
/// Cloning shares the store, so a second runtime can be built over what a first one left behind.
#[derive(Clone, Default)]
pub struct MemoryStore(Arc<Mutex<Shelf>>);

#[derive(Default)]
struct Shelf {
    logs: HashMap<SessionId, Vec<Arc<Event>>>,
    records: HashMap<RecordKey, Record>,
    blobs: HashMap<Digest, Bytes>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    // Every change below is checked first and then made whole, so a poisoned lock hides nothing half-done.
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore").field("sessions", &self.shelf().logs.len()).finish_non_exhaustive()
    }
}

impl Store for MemoryStore {
    async fn append(&self, session: SessionId, expected: u64, batch: Batch) -> Result<u64, StoreError> {
        let mut shelf = self.shelf();
        let found = shelf.logs.get(&session).map_or(0, |log| log.len() as u64);
        if found != expected {
            return Err(StoreError::Conflict { session, found });
        }
        for (before, event) in (expected..).zip(&batch.events) {
            if event.sequence() != before + 1 {
                return Err(StoreError::Gap { expected: before, found: event.sequence() });
            }
        }
        if let Some((key, _)) = batch.records.iter().find(|(key, _)| shelf.records.contains_key(key)) {
            return Err(StoreError::Exists { key: key.clone() });
        }
        shelf.records.extend(batch.records);
        let log = shelf.logs.entry(session).or_default();
        log.extend(batch.events);
        Ok(log.len() as u64)
    }

    async fn events(&self, session: SessionId, after: u64, limit: usize) -> Result<Vec<Arc<Event>>, StoreError> {
        let shelf = self.shelf();
        let log = shelf.logs.get(&session).map_or(&[][..], Vec::as_slice);
        let from = usize::try_from(after).unwrap_or(usize::MAX).min(log.len());
        Ok(log[from..].iter().take(limit).cloned().collect())
    }

    async fn revision(&self, session: SessionId) -> Result<u64, StoreError> {
        Ok(self.shelf().logs.get(&session).map_or(0, |log| log.len() as u64))
    }

    async fn once(&self, key: RecordKey, record: Record) -> Result<Option<Record>, StoreError> {
        match self.shelf().records.entry(key) {
            Entry::Occupied(entry) => Ok(Some(entry.get().clone())),
            Entry::Vacant(entry) => {
                entry.insert(record);
                Ok(None)
            }
        }
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
}
