//! Memories in a PostgreSQL database.
//!
//! Each write is a transaction of its own: memories are rare, and the group writer plans events.

mod query;
mod write;

use std::sync::Arc;

use futures::future::BoxFuture;
use sqlx::{Connection, Executor, PgConnection, Row, postgres::PgRow};
use tokio::time::timeout;
use toolgate_core::{
    ChangedMemory, Digest, ForgottenMemories, MemoryChange, MemoryDraft, MemoryFilter, MemoryId,
    MemoryRecord, MemoryRecordStore, MemoryVector, PutMemory, StoreError, StoredMemory,
    TextRemains, Timestamp,
};

use super::{
    PostgresStore,
    connect::{LARGE_WRITE_TIMEOUT, is_conflict, is_locked, no_answer_error},
    read::{PostgresReader, RowError, uuid_column},
    writer::with_timeout,
};
use crate::memory_rows::{decode_memory, with_vector};

/// The maximum number of attempts when other processes interfere.
const MAX_ATTEMPTS: usize = 20;

impl MemoryRecordStore for PostgresStore {
    async fn put_memory(&self, draft: MemoryDraft) -> Result<PutMemory, StoreError> {
        let draft = Arc::new(draft);
        let put = move |connection| -> BoxFuture<'_, _> {
            let draft = draft.clone();
            Box::pin(async move { write::put_memory(connection, &draft).await })
        };
        self.reads.write_memories(put).await
    }

    async fn memories(&self, filter: MemoryFilter) -> Result<Vec<StoredMemory>, StoreError> {
        let ask = || query::select_memories(&filter).expect("ids and words can be encoded");
        let read = |row: &PgRow| {
            let embedder: Option<&str> = row.try_get(3)?;
            let wanted = embedder.filter(|found| {
                let named = filter.embedder.as_ref();
                named.is_some_and(|wanted| wanted.as_str() == *found)
            });
            let vector: Option<&[u8]> = row.try_get(4)?;
            Ok(with_vector(memory_row(row)?, wanted, vector))
        };
        self.reads.query_rows(ask, read).await
    }

    async fn change_memory(
        &self,
        id: MemoryId,
        change: MemoryChange,
    ) -> Result<ChangedMemory, StoreError> {
        let change = Arc::new(change);
        let write = move |connection| -> BoxFuture<'_, _> {
            let change = change.clone();
            Box::pin(async move { write::change_memory(connection, id, &change).await })
        };
        self.reads.write_memories(write).await
    }

    async fn put_memory_vector(
        &self,
        id: MemoryId,
        key: Digest,
        vector: MemoryVector,
    ) -> Result<bool, StoreError> {
        let vector = Arc::new(vector);
        let write = move |connection| -> BoxFuture<'_, _> {
            let vector = vector.clone();
            Box::pin(async move { write::put_vector(connection, id, key, &vector).await })
        };
        self.reads.write_memories(write).await
    }

    async fn mark_recalled(&self, ids: Vec<MemoryId>, at: Timestamp) -> Result<(), StoreError> {
        if ids.is_empty() {
            return Ok(());
        }
        let ids = Arc::new(ids);
        let write = move |connection| -> BoxFuture<'_, _> {
            let ids = ids.clone();
            Box::pin(async move { write::mark_recalled(connection, &ids, at).await })
        };
        self.reads.write_memories(write).await
    }

    async fn forget_memories(&self, filter: MemoryFilter) -> Result<ForgottenMemories, StoreError> {
        let filter = Arc::new(filter);
        let write = move |connection| -> BoxFuture<'_, _> {
            let filter = filter.clone();
            Box::pin(async move { write::forget_memories(connection, &filter).await })
        };
        let ids = self.reads.write_memories(write).await?;
        let remains = if ids.is_empty() {
            TextRemains::Nothing
        } else {
            TextRemains::UntilVacuum
        };
        Ok(ForgottenMemories { ids, remains })
    }
}

impl PostgresReader {
    /// Performs a write in a transaction, again if another process interferes.
    async fn write_memories<T>(
        &self,
        write: impl for<'c> Fn(&'c mut PgConnection) -> BoxFuture<'c, Result<T, RowError>>,
    ) -> Result<T, StoreError> {
        let mut connection = self.address.open_connection().await?;
        let mut tries = 0;
        let written = loop {
            tries += 1;
            let attempt = async {
                connection.execute("BEGIN").await?;
                write(&mut connection).await
            };
            let tried = timeout(LARGE_WRITE_TIMEOUT, attempt).await;
            match tried.unwrap_or_else(|_| Err(no_answer_error().into())) {
                Ok(written) => break written,
                Err(RowError::Column(error))
                    if (is_conflict(&error) || is_locked(&error)) && tries < MAX_ATTEMPTS => {}
                // The connection is dropped, which makes the server roll back.
                Err(bad) => return Err(self.to_store_error(bad)),
            }
            with_timeout(connection.execute("ROLLBACK"))
                .await
                .map_err(|error| self.to_store_error(error.into()))?;
        };
        // The server may have committed and only its answer was lost.
        with_timeout(connection.execute("COMMIT"))
            .await
            .map_err(|error| self.address.lost_error(error))?;
        let _ = connection.close().await;
        Ok(written)
    }
}

/// Reads a memory from the columns id, body, checksum.
pub(super) fn memory_row(row: &PgRow) -> Result<MemoryRecord, RowError> {
    let id = MemoryId::new(uuid_column(row, 0)?);
    let checksum: i64 = row.try_get(2)?;
    Ok(decode_memory(id, row.try_get(1)?, Some(checksum))?)
}
