//! Memories in a PostgreSQL database.
//!
//! Each write is a transaction of its own: memories are rare, and the group writer plans events.

mod query;
mod write;

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
    id::PgUuid,
    read::{PostgresReader, RowError, uuid_column},
    writer::with_timeout,
};
use crate::memory_rows::{EncodedMemory, decode_memory, with_vector};

/// The maximum number of attempts when other processes interfere.
const MAX_ATTEMPTS: usize = 20;

impl MemoryRecordStore for PostgresStore {
    async fn put_memory(&self, draft: MemoryDraft) -> Result<PutMemory, StoreError> {
        let put: MemoryWrite<_, _> = |to, draft| Box::pin(write::put_memory(to, draft));
        self.reads.write_memories(&draft, put).await
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
        let write: MemoryWrite<_, _> =
            |to, (id, change)| Box::pin(write::change_memory(to, *id, change));
        self.reads.write_memories(&(id, change), write).await
    }

    async fn put_memory_vector(
        &self,
        id: MemoryId,
        key: Digest,
        vector: MemoryVector,
    ) -> Result<bool, StoreError> {
        let write: MemoryWrite<_, _> =
            |to, (id, key, vector)| Box::pin(write::put_vector(to, *id, *key, vector));
        self.reads.write_memories(&(id, key, vector), write).await
    }

    async fn mark_recalled(&self, ids: Vec<MemoryId>, at: Timestamp) -> Result<(), StoreError> {
        if ids.is_empty() {
            return Ok(());
        }
        let write: MemoryWrite<_, _> =
            |to, (ids, at): &(Vec<MemoryId>, _)| Box::pin(write::mark_recalled(to, ids, *at));
        self.reads.write_memories(&(ids, at), write).await
    }

    async fn forget_memories(&self, filter: MemoryFilter) -> Result<ForgottenMemories, StoreError> {
        let write: MemoryWrite<_, _> = |to, filter| Box::pin(write::forget_memories(to, filter));
        let ids = self.reads.write_memories(&filter, write).await?;
        let remains = if ids.is_empty() {
            TextRemains::Nothing
        } else {
            TextRemains::UntilVacuum
        };
        Ok(ForgottenMemories { ids, remains })
    }
}

/// A write within a transaction that its caller opens and commits. It may be repeated.
type MemoryWrite<A, T> =
    for<'c> fn(&'c mut PgConnection, &'c A) -> BoxFuture<'c, Result<T, RowError>>;

impl PostgresReader {
    /// Performs a write in a transaction, again if another process interferes.
    async fn write_memories<A: Sync, T>(
        &self,
        what: &A,
        write: MemoryWrite<A, T>,
    ) -> Result<T, StoreError> {
        let mut connection = self.address.open_connection().await?;
        let mut tries = 0;
        let written = loop {
            tries += 1;
            let attempt = async {
                connection.execute("BEGIN").await?;
                write(&mut connection, what).await
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

/// The query whose rows [`check_memory_row`] checks.
pub(super) const CHECKED_MEMORIES: &str =
    "SELECT id, body, checksum, owner, scope, key, kind, session, expires_at FROM memories";

/// Checks whether a memory is intact, and whether its columns are those of the memory.
pub(super) fn check_memory_row(row: &PgRow) -> Result<bool, sqlx::Error> {
    let record = match memory_row(row) {
        Ok(record) => record,
        Err(RowError::Content(_)) => return Ok(false),
        Err(RowError::Column(error)) => return Err(error),
    };
    let Ok(wanted) = EncodedMemory::new(&record) else {
        return Ok(false);
    };
    let session: Option<PgUuid> = row.try_get(7)?;
    Ok(row.try_get::<&[u8], _>(3)? == wanted.owner.as_bytes()
        && row.try_get::<&[u8], _>(4)? == wanted.scope.as_bytes()
        && row.try_get::<&[u8], _>(5)? == wanted.key.as_bytes()
        && row.try_get::<&str, _>(6)? == wanted.kind
        && session == wanted.session.map(|session| PgUuid(session.uuid()))
        && row.try_get::<Option<i64>, _>(8)? == wanted.expires_at)
}

/// Reads a memory from the columns id, body, checksum.
fn memory_row(row: &PgRow) -> Result<MemoryRecord, RowError> {
    let id = MemoryId::new(uuid_column(row, 0)?);
    let checksum: i64 = row.try_get(2)?;
    Ok(decode_memory(id, row.try_get(1)?, Some(checksum))?)
}
