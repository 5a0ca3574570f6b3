//! Records and blobs of the in-memory store.

use std::{
    ops::{Bound, Range},
    sync::Arc,
};

use bytes::Bytes;
use hashbrown::HashSet;

use crate::{
    Digest, ErasureNames, MessageRecord, RecordKey, RecordStore, SessionId, StoreError,
    StoreRecord,
    store::memory::{MemoryState, MemoryStore},
};

impl RecordStore for MemoryStore {
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

    async fn load_records(
        &self,
        keys: &[RecordKey],
    ) -> Result<Vec<Option<StoreRecord>>, StoreError> {
        let shelf = self.lock_state();
        Ok(keys
            .iter()
            .map(|key| shelf.records.get(key).cloned())
            .collect())
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

    async fn records_named(
        &self,
        names: &ErasureNames,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Arc<str>, StoreRecord)>, StoreError> {
        let shelf = self.lock_state();
        let named = shelf
            .records
            .iter()
            .map(|(key, record)| (key.to_string(), record));
        let mut found: Vec<_> = named
            .filter(|(name, _)| names.contains(name))
            .filter(|(name, _)| after.is_none_or(|after| name.as_str() > after))
            .collect();
        found.sort_by(|(left, _), (right, _)| left.cmp(right));
        found.truncate(limit);
        let owned = found
            .into_iter()
            .map(|(name, record)| (Arc::from(name), record.clone()));
        Ok(owned.collect())
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
        let found = messages[end.saturating_sub(limit)..end].iter();
        let typed = found.map(|(number, record)| {
            let key = RecordKey::Message(session, *number);
            Ok((*number, record.clone().into_content(&key)?))
        });
        typed.collect()
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
}

impl MemoryState {
    pub(super) fn check_records(
        &self,
        records: &[(RecordKey, StoreRecord)],
    ) -> Result<(), StoreError> {
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

    pub(super) fn insert_records(&mut self, records: Vec<(RecordKey, StoreRecord)>) {
        for (key, record) in records {
            match &key {
                RecordKey::Other(name) => drop(self.named.insert(name.clone(), record.clone())),
                RecordKey::Message(session, number) => {
                    let messages = self.messages.entry(*session).or_default();
                    let place = messages.partition_point(|(before, _)| before < number);
                    messages.insert(place, (*number, record.clone()));
                }
                _ => {}
            }
            self.records.insert(key, record);
        }
    }
}
