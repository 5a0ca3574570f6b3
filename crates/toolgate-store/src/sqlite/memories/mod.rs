//! Memories in an SQLite file.

mod query;

use rusqlite::{Row, params};
use toolgate_core::{
    ChangedMemory, Digest, ForgottenMemories, MemoryChange, MemoryDraft, MemoryFilter, MemoryId,
    MemoryRecord, MemoryRecordStore, MemoryVector, PutMemory, StoreError, StoredMemory,
    TextRemains, Timestamp,
};

use self::query::select_memories;
use super::{
    SqliteStore,
    read::{SqliteReader, uuid_column},
    transaction::SqliteWriteTx,
};
use crate::memory_rows::{EncodedMemory, MAX_NEIGHBOURS, decode_memory, with_vector};

impl MemoryRecordStore for SqliteStore {
    async fn put_memory(&self, draft: MemoryDraft) -> Result<PutMemory, StoreError> {
        self.queue_write(move |tx| tx.put_memory(&draft)).await
    }

    async fn memories(&self, filter: MemoryFilter) -> Result<Vec<StoredMemory>, StoreError> {
        self.run_read(move |read| read.read_memories(&filter)).await
    }

    async fn change_memory(
        &self,
        id: MemoryId,
        change: MemoryChange,
    ) -> Result<ChangedMemory, StoreError> {
        let is_new_text = change.content.is_some();
        let changed = self
            .queue_write(move |tx| tx.change_memory(id, &change))
            .await?;
        if is_new_text && matches!(changed, ChangedMemory::Changed(_)) {
            // The old text must not stay in the log of the file.
            self.truncate_wal().await?;
        }
        Ok(changed)
    }

    async fn put_memory_vector(
        &self,
        id: MemoryId,
        key: Digest,
        vector: MemoryVector,
    ) -> Result<bool, StoreError> {
        self.queue_write(move |tx| {
            let sql = "UPDATE memories SET embedder = ?3, vector = ?4 WHERE id = ?1 AND key = ?2";
            let embedder = vector.embedder.as_str();
            let id = id.uuid().into_bytes();
            tx.execute(
                sql,
                params![id, key.as_bytes(), embedder, vector.to_bytes()],
            )
            .map(|changed| changed > 0)
        })
        .await
    }

    async fn mark_recalled(&self, ids: Vec<MemoryId>, at: Timestamp) -> Result<(), StoreError> {
        // A lost use changes nothing but the order of equally relevant memories.
        self.queue_unsynced_write(move |tx| {
            for id in &ids {
                if let Some(mut record) = tx.read_memory(*id)? {
                    record.note_use(at);
                    tx.update_memory(&record)?;
                }
            }
            Ok(())
        })
        .await
    }

    async fn forget_memories(&self, filter: MemoryFilter) -> Result<ForgottenMemories, StoreError> {
        let ids = self
            .queue_write(move |tx| tx.forget_memories(&filter))
            .await?;
        let remains = if ids.is_empty() {
            TextRemains::Nothing
        } else {
            self.truncate_wal().await?
        };
        Ok(ForgottenMemories { ids, remains })
    }
}

impl SqliteReader<'_> {
    fn read_memories(&self, filter: &MemoryFilter) -> Result<Vec<StoredMemory>, StoreError> {
        let (sql, values) = select_memories(filter);
        self.query_rows(&sql, rusqlite::params_from_iter(values), |row| {
            let embedder = row.get_ref(3)?.as_str_or_null()?;
            let wanted = embedder.filter(|found| {
                let named = filter.embedder.as_ref();
                named.is_some_and(|wanted| wanted.as_str() == *found)
            });
            let vector = row.get_ref(4)?.as_blob_or_null()?;
            Ok(memory_row(row)?.map(|record| with_vector(record, wanted, vector)))
        })
    }

    fn read_memory(&self, id: MemoryId) -> Result<Option<MemoryRecord>, StoreError> {
        let sql = "SELECT id, body, checksum FROM memories WHERE id = ?1";
        let found = self.query_rows(sql, [id.uuid().into_bytes()], memory_row)?;
        Ok(found.into_iter().next())
    }

    fn read_memory_by_key(&self, key: Digest) -> Result<Option<MemoryRecord>, StoreError> {
        let sql = "SELECT id, body, checksum FROM memories WHERE key = ?1";
        let found = self.query_rows(sql, [key.as_bytes()], memory_row)?;
        Ok(found.into_iter().next())
    }

    /// Finds a memory of the same scope that says the same: its vector is near enough, and it does not
    /// negate what the other says.
    fn find_near_memory(
        &self,
        draft: &MemoryDraft,
        row: &EncodedMemory,
    ) -> Result<Option<MemoryRecord>, StoreError> {
        let (Some(vector), Some(threshold)) = (&draft.vector, draft.near) else {
            return Ok(None);
        };
        let sql = "SELECT id, vector FROM memories
                   WHERE owner = ?1 AND scope = ?2 AND embedder = ?3 AND vector IS NOT NULL
                   ORDER BY id DESC LIMIT ?4";
        let embedder = vector.embedder.as_str();
        let limit = crate::encoded::limit_to_db(MAX_NEIGHBOURS);
        let neighbours =
            self.query_rows(sql, params![row.owner, row.scope, embedder, limit], |row| {
                let id = MemoryId::new(uuid_column(row, 0)?);
                let values = MemoryVector::from_bytes(embedder, row.get_ref(1)?.as_blob()?);
                Ok(Ok(values.map(|values| (id, values))))
            })?;
        let neighbours = neighbours
            .iter()
            .flatten()
            .map(|(id, vector)| (*id, vector));
        for id in vector.find_near(neighbours, threshold) {
            let found = self.read_memory(id)?;
            let same = found.filter(|found| !found.content.contradicts(&draft.record.content));
            if same.is_some() {
                return Ok(same);
            }
        }
        Ok(None)
    }
}

impl SqliteWriteTx<'_> {
    fn put_memory(&self, draft: &MemoryDraft) -> Result<PutMemory, StoreError> {
        let row = EncodedMemory::new(&draft.record)?;
        let same = match self.read_memory_by_key(row.key)? {
            Some(same) => Some(same),
            None => self.find_near_memory(draft, &row)?,
        };
        if let Some(mut same) = same {
            same.absorb_duplicate(&draft.record);
            self.update_memory(&same)?;
            return Ok(PutMemory::Duplicate(same));
        }
        let sql = "INSERT INTO memories (id, owner, scope, key, kind, session, expires_at, body, checksum, embedder, vector)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
        let vector = draft.vector.as_ref();
        self.execute(
            sql,
            params![
                row.id.uuid().into_bytes(),
                row.owner,
                row.scope,
                row.key.as_bytes(),
                row.kind,
                row.session.map(|session| session.uuid().into_bytes()),
                row.expires_at,
                row.body,
                row.checksum.to_db(),
                vector.map(|vector| vector.embedder.as_str()),
                vector.map(MemoryVector::to_bytes),
            ],
        )?;
        Ok(PutMemory::Stored(draft.record.clone()))
    }

    fn change_memory(
        &self,
        id: MemoryId,
        change: &MemoryChange,
    ) -> Result<ChangedMemory, StoreError> {
        let Some(mut record) = self.read_memory(id)? else {
            return Ok(ChangedMemory::Missing);
        };
        let is_new_text = change.apply_to(&mut record);
        if let Some(other) = self.read_memory_by_key(record.dedup_key())?
            && other.id != id
        {
            return Ok(ChangedMemory::Duplicate(other.id));
        }
        self.update_memory(&record)?;
        if is_new_text {
            let sql = "UPDATE memories SET embedder = ?2, vector = ?3 WHERE id = ?1";
            let embedder = change
                .vector
                .as_ref()
                .map(|vector| vector.embedder.as_str());
            let vector = change.vector.as_ref().map(MemoryVector::to_bytes);
            self.execute(sql, params![id.uuid().into_bytes(), embedder, vector])?;
        }
        Ok(ChangedMemory::Changed(Box::new(record)))
    }

    /// Writes the columns that follow from the record; its vector stays.
    fn update_memory(&self, record: &MemoryRecord) -> Result<(), StoreError> {
        let row = EncodedMemory::new(record)?;
        let sql = "UPDATE memories SET key = ?2, kind = ?3, expires_at = ?4, body = ?5, checksum = ?6 WHERE id = ?1";
        let id = row.id.uuid().into_bytes();
        let sum = row.checksum.to_db();
        let key = row.key.as_bytes();
        self.execute(
            sql,
            params![id, key, row.kind, row.expires_at, row.body, sum],
        )
        .map(drop)
    }

    fn forget_memories(&self, filter: &MemoryFilter) -> Result<Vec<MemoryId>, StoreError> {
        let (sql, values) = query::select_ids(filter);
        let ids = self.query_rows(&sql, rusqlite::params_from_iter(values), |row| {
            Ok(Ok(MemoryId::new(uuid_column(row, 0)?)))
        })?;
        for id in &ids {
            let id = id.uuid().into_bytes();
            self.execute("DELETE FROM memories WHERE id = ?1", [id])?;
        }
        Ok(ids)
    }
}

/// The query whose rows [`check_memory_row`] checks.
pub(super) const CHECKED_MEMORIES: &str =
    "SELECT id, body, checksum, owner, scope, key, kind, session, expires_at FROM memories";

/// Checks whether a memory is intact, and whether its columns are those of the memory.
pub(super) fn check_memory_row(row: &Row<'_>) -> rusqlite::Result<bool> {
    let Ok(record) = memory_row(row)? else {
        return Ok(false);
    };
    let Ok(wanted) = EncodedMemory::new(&record) else {
        return Ok(false);
    };
    let session: Option<[u8; 16]> = row.get(7)?;
    Ok(row.get_ref(3)?.as_str()? == wanted.owner
        && row.get_ref(4)?.as_str()? == wanted.scope
        && row.get_ref(5)?.as_blob()? == wanted.key.as_bytes()
        && row.get_ref(6)?.as_str()? == wanted.kind
        && session == wanted.session.map(|session| session.uuid().into_bytes())
        && row.get::<_, Option<i64>>(8)? == wanted.expires_at)
}

/// Reads a memory from the columns id, body, checksum.
fn memory_row(row: &Row<'_>) -> rusqlite::Result<Result<MemoryRecord, StoreError>> {
    let id = MemoryId::new(uuid_column(row, 0)?);
    let checksum = row.get(2)?;
    Ok(decode_memory(id, row.get_ref(1)?.as_str()?, checksum))
}
