//! The writes of memories, each within a transaction that the caller opens and commits.

use sqlx::{PgConnection, Row};
use toolgate_core::{
    ChangedMemory, Digest, MemoryChange, MemoryDraft, MemoryFilter, MemoryId, MemoryRecord,
    MemoryVector, PutMemory, Timestamp,
};

use super::{memory_row, query};
use crate::{
    encoded::limit_to_db,
    memory_rows::{EncodedMemory, MAX_NEIGHBOURS},
    postgres::{
        id::PgUuid,
        read::{RowError, uuid_column},
    },
};

pub(super) async fn put_memory(
    connection: &mut PgConnection,
    draft: &MemoryDraft,
) -> Result<PutMemory, RowError> {
    let row = EncodedMemory::new(&draft.record)?;
    lock_scope(connection, &row).await?;
    let same = match find_by_key(connection, row.key).await? {
        Some(same) => Some(same),
        None => find_near(connection, draft, &row).await?,
    };
    if let Some(mut same) = same {
        // Committed before, and the answer was lost.
        let is_own = same.id == draft.record.id;
        same.absorb_duplicate(&draft.record);
        update_memory(connection, &same).await?;
        return Ok(if is_own {
            PutMemory::Stored(same)
        } else {
            PutMemory::Duplicate(same)
        });
    }
    insert_memory(connection, &row, draft.vector.as_ref()).await?;
    Ok(PutMemory::Stored(draft.record.clone()))
}

/// Locks the scope until the transaction ends: two processes that store near texts at the same time
/// would otherwise both store theirs.
async fn lock_scope(connection: &mut PgConnection, row: &EncodedMemory) -> Result<(), sqlx::Error> {
    let name = format!("toolgate memory {}\n{}", row.owner, row.scope);
    let digest = Digest::of_bytes(name.as_bytes());
    let (first, _) = digest.as_bytes().split_at(8);
    let key = i64::from_be_bytes(first.try_into().expect("8 bytes"));
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(key)
        .execute(connection)
        .await
        .map(drop)
}

async fn insert_memory(
    connection: &mut PgConnection,
    row: &EncodedMemory,
    vector: Option<&MemoryVector>,
) -> Result<(), sqlx::Error> {
    let sql = "INSERT INTO memories (id, owner, scope, key, kind, session, expires_at, body, checksum, embedder, vector)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
    sqlx::query(sql)
        .bind(PgUuid(row.id.uuid()))
        .bind(row.owner.as_bytes())
        .bind(row.scope.as_bytes())
        .bind(&row.key.as_bytes()[..])
        .bind(row.kind)
        .bind(row.session.map(|session| PgUuid(session.uuid())))
        .bind(row.expires_at)
        .bind(&row.body)
        .bind(row.checksum.to_db())
        .bind(vector.map(|vector| vector.embedder.as_str()))
        .bind(vector.map(MemoryVector::to_bytes))
        .execute(connection)
        .await
        .map(drop)
}

async fn find_by_key(
    connection: &mut PgConnection,
    key: Digest,
) -> Result<Option<MemoryRecord>, RowError> {
    let sql = "SELECT id, body, checksum FROM memories WHERE key = $1 FOR UPDATE";
    let found = sqlx::query(sql).bind(&key.as_bytes()[..]);
    let found = found.fetch_optional(connection).await?;
    found.as_ref().map(memory_row).transpose()
}

async fn find_by_id(
    connection: &mut PgConnection,
    id: MemoryId,
) -> Result<Option<MemoryRecord>, RowError> {
    let sql = "SELECT id, body, checksum FROM memories WHERE id = $1 FOR UPDATE";
    let found = sqlx::query(sql).bind(PgUuid(id.uuid()));
    let found = found.fetch_optional(connection).await?;
    found.as_ref().map(memory_row).transpose()
}

/// Finds a memory of the same scope that says the same: its vector is near enough, and it does not
/// negate what the other says.
async fn find_near(
    connection: &mut PgConnection,
    draft: &MemoryDraft,
    row: &EncodedMemory,
) -> Result<Option<MemoryRecord>, RowError> {
    let (Some(vector), Some(threshold)) = (&draft.vector, draft.near) else {
        return Ok(None);
    };
    let sql = "SELECT id, vector FROM memories
               WHERE owner = $1 AND scope = $2 AND embedder = $3 AND vector IS NOT NULL
               ORDER BY id DESC LIMIT $4";
    let rows = sqlx::query(sql)
        .bind(row.owner.as_bytes())
        .bind(row.scope.as_bytes())
        .bind(vector.embedder.as_str())
        .bind(limit_to_db(MAX_NEIGHBOURS))
        .fetch_all(&mut *connection)
        .await?;
    let mut neighbours = Vec::with_capacity(rows.len());
    for row in &rows {
        let id = MemoryId::new(uuid_column(row, 0)?);
        let values = MemoryVector::from_bytes(vector.embedder.as_str(), row.try_get(1)?);
        neighbours.extend(values.map(|values| (id, values)));
    }
    let others = neighbours.iter().map(|(id, vector)| (*id, vector));
    for id in vector.find_near(others, threshold) {
        let found = find_by_id(connection, id).await?;
        let same = found.filter(|found| !found.content.contradicts(&draft.record.content));
        if same.is_some() {
            return Ok(same);
        }
    }
    Ok(None)
}

pub(super) async fn change_memory(
    connection: &mut PgConnection,
    id: MemoryId,
    change: &MemoryChange,
) -> Result<ChangedMemory, RowError> {
    let Some(mut record) = find_by_id(connection, id).await? else {
        return Ok(ChangedMemory::Missing);
    };
    lock_scope(connection, &EncodedMemory::new(&record)?).await?;
    let is_new_text = change.apply_to(&mut record);
    if let Some(other) = find_by_key(connection, record.dedup_key()).await?
        && other.id != id
    {
        return Ok(ChangedMemory::Duplicate(other.id));
    }
    update_memory(connection, &record).await?;
    if is_new_text {
        let sql = "UPDATE memories SET embedder = $2, vector = $3 WHERE id = $1";
        let vector = change.vector.as_ref();
        sqlx::query(sql)
            .bind(PgUuid(id.uuid()))
            .bind(vector.map(|vector| vector.embedder.as_str()))
            .bind(vector.map(MemoryVector::to_bytes))
            .execute(connection)
            .await?;
    }
    Ok(ChangedMemory::Changed(Box::new(record)))
}

/// Writes the columns that follow from the record; its vector stays.
async fn update_memory(
    connection: &mut PgConnection,
    record: &MemoryRecord,
) -> Result<(), RowError> {
    let row = EncodedMemory::new(record)?;
    let sql = "UPDATE memories SET key = $2, kind = $3, expires_at = $4, body = $5, checksum = $6 WHERE id = $1";
    sqlx::query(sql)
        .bind(PgUuid(row.id.uuid()))
        .bind(&row.key.as_bytes()[..])
        .bind(row.kind)
        .bind(row.expires_at)
        .bind(&row.body)
        .bind(row.checksum.to_db())
        .execute(connection)
        .await?;
    Ok(())
}

pub(super) async fn put_vector(
    connection: &mut PgConnection,
    id: MemoryId,
    key: Digest,
    vector: &MemoryVector,
) -> Result<bool, RowError> {
    let sql = "UPDATE memories SET embedder = $3, vector = $4 WHERE id = $1 AND key = $2";
    let done = sqlx::query(sql)
        .bind(PgUuid(id.uuid()))
        .bind(&key.as_bytes()[..])
        .bind(vector.embedder.as_str())
        .bind(vector.to_bytes())
        .execute(connection)
        .await?;
    Ok(done.rows_affected() > 0)
}

pub(super) async fn mark_recalled(
    connection: &mut PgConnection,
    ids: &[MemoryId],
    at: Timestamp,
) -> Result<(), RowError> {
    // In the order of their ids, as every writer locks them, so that there is no deadlock.
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    for id in ids {
        if let Some(mut record) = find_by_id(connection, id).await? {
            record.note_use(at);
            update_memory(connection, &record).await?;
        }
    }
    Ok(())
}

pub(super) async fn forget_memories(
    connection: &mut PgConnection,
    filter: &MemoryFilter,
) -> Result<Vec<MemoryId>, RowError> {
    let gone = query::delete_memories(filter).expect("ids and words can be encoded");
    let rows = gone.fetch_all(connection).await?;
    rows.iter()
        .map(|row| Ok(MemoryId::new(uuid_column(row, 0)?)))
        .collect()
}
