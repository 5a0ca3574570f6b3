//! Memories of the in-memory store.

use crate::{
    ChangedMemory, Digest, ForgottenMemories, MemoryChange, MemoryDraft, MemoryFilter, MemoryId,
    MemoryRecordStore, MemoryVector, PutMemory, StoreError, StoredMemory, TextRemains, Timestamp,
    store::memory::{MemoryState, MemoryStore},
};

impl MemoryRecordStore for MemoryStore {
    async fn put_memory(&self, draft: MemoryDraft) -> Result<PutMemory, StoreError> {
        let shelf = &mut *self.lock_state();
        if let Some(known) = shelf.find_duplicate(&draft) {
            let stored = shelf.memories.get_mut(&known);
            let stored = stored.expect("it was just found");
            stored.record.absorb_duplicate(&draft.record);
            return Ok(PutMemory::Duplicate(stored.record.clone()));
        }
        let stored = StoredMemory {
            record: draft.record,
            vector: draft.vector,
        };
        let record = stored.record.clone();
        shelf.memories.insert(record.id, stored);
        Ok(PutMemory::Stored(record))
    }

    async fn memories(&self, filter: MemoryFilter) -> Result<Vec<StoredMemory>, StoreError> {
        let shelf = self.lock_state();
        let found = shelf.memories.values().rev();
        let found = found.filter(|stored| filter.matches(&stored.record));
        let wanted = |vector: &MemoryVector| filter.embedder.as_ref() == Some(&vector.embedder);
        Ok(found
            .take(filter.limit)
            .map(|stored| StoredMemory {
                record: stored.record.clone(),
                vector: stored.vector.clone().filter(wanted),
            })
            .collect())
    }

    async fn change_memory(
        &self,
        id: MemoryId,
        change: MemoryChange,
    ) -> Result<ChangedMemory, StoreError> {
        let shelf = &mut *self.lock_state();
        let Some(stored) = shelf.memories.get(&id) else {
            return Ok(ChangedMemory::Missing);
        };
        let mut record = stored.record.clone();
        let is_new_text = change.apply_to(&mut record);
        let key = record.dedup_key();
        let other = { shelf.memories.values() }
            .find(|other| other.record.id != id && other.record.dedup_key() == key);
        if let Some(other) = other {
            return Ok(ChangedMemory::Duplicate(other.record.id));
        }
        let vector = if is_new_text {
            change.vector
        } else {
            stored.vector.clone()
        };
        let stored = StoredMemory { record, vector };
        let record = stored.record.clone();
        shelf.memories.insert(id, stored);
        Ok(ChangedMemory::Changed(Box::new(record)))
    }

    async fn put_memory_vector(
        &self,
        id: MemoryId,
        key: Digest,
        vector: MemoryVector,
    ) -> Result<bool, StoreError> {
        match self.lock_state().memories.get_mut(&id) {
            Some(stored) if stored.record.dedup_key() == key => {
                stored.vector = Some(vector);
                Ok(true)
            }
            Some(_) | None => Ok(false),
        }
    }

    async fn mark_recalled(&self, ids: Vec<MemoryId>, at: Timestamp) -> Result<(), StoreError> {
        let shelf = &mut *self.lock_state();
        for id in ids {
            if let Some(stored) = shelf.memories.get_mut(&id) {
                stored.record.note_use(at);
            }
        }
        Ok(())
    }

    async fn forget_memories(&self, filter: MemoryFilter) -> Result<ForgottenMemories, StoreError> {
        let shelf = &mut *self.lock_state();
        let found = shelf.memories.values().rev();
        let found = found.filter(|stored| filter.matches(&stored.record));
        let ids: Vec<MemoryId> = found.map(|stored| stored.record.id).collect();
        for id in &ids {
            shelf.memories.remove(id);
        }
        Ok(ForgottenMemories {
            ids,
            remains: TextRemains::Nothing,
        })
    }
}

impl MemoryState {
    fn find_duplicate(&self, draft: &MemoryDraft) -> Option<MemoryId> {
        let key = draft.record.dedup_key();
        let same = { self.memories.values() }.find(|stored| stored.record.dedup_key() == key);
        if let Some(same) = same {
            return Some(same.record.id);
        }
        let near = draft.near?;
        let vector = draft.vector.as_ref()?;
        let neighbours = self.memories.values().filter(|stored| {
            stored.record.owner == draft.record.owner && stored.record.scope == draft.record.scope
        });
        let vectors =
            neighbours.filter_map(|stored| Some((stored.record.id, stored.vector.as_ref()?)));
        let says_the_same = |id: &MemoryId| {
            let found = self.memories.get(id);
            found.is_some_and(|found| !found.record.content.contradicts(&draft.record.content))
        };
        vector
            .find_near(vectors, near)
            .into_iter()
            .find(says_the_same)
    }
}
