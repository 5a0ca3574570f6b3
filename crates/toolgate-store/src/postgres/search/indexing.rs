//! Writes the index, in transactions of its own that wait for each other.

use std::collections::BTreeMap;

use sqlx::{Connection, Executor, PgConnection, Row};
use toolgate_core::{
    EmbedderId, IndexBatch, IndexEntry, SEARCH_INDEX_VERSION, SearchDocumentId, StoreError,
    encode_signs, encode_vector,
};

use super::{
    expression::document_lexemes,
    pgvector::{create_copy_table, insert_copies, try_copies},
};
use crate::{
    encoded::{from_db, to_db},
    postgres::{
        connect::{is_conflict, is_locked},
        id::PgUuid,
        read::PostgresReader,
        writer::with_timeout,
    },
};

/// The advisory lock held while the index is written: of two processes that index, one waits, so
/// that the numbers of vectors are committed in their order.
const INDEX_LOCK: i64 = 0x7467_7365;

/// The maximum number of attempts when other processes interfere.
const MAX_ATTEMPTS: usize = 5;

/// A change of the index.
pub(super) enum IndexChange<'a> {
    Batch(&'a IndexBatch),
    /// Stores vectors, and copies them if the server compares them.
    Vectors(&'a EmbedderId, &'a BTreeMap<i64, &'a [f32]>, bool),
    /// Creates the table of vectors that the server compares.
    CopyTable,
    /// Copies vectors into it.
    Copies,
    Clear,
}

impl PostgresReader {
    pub(super) async fn index_batch(&self, batch: &IndexBatch) -> Result<bool, StoreError> {
        self.change_index(IndexChange::Batch(batch)).await
    }

    pub(super) async fn put_vectors(
        &self,
        embedder: &EmbedderId,
        vectors: &[(SearchDocumentId, Vec<f32>)],
        is_copied: bool,
    ) -> Result<(), StoreError> {
        let vectors: BTreeMap<i64, &[f32]> = vectors
            .iter()
            .map(|(id, vector)| (id.get(), vector.as_slice()))
            .collect();
        self.change_index(IndexChange::Vectors(embedder, &vectors, is_copied))
            .await
            .map(drop)
    }

    pub(super) async fn clear_index(&self) -> Result<(), StoreError> {
        self.change_index(IndexChange::Clear).await.map(drop)
    }

    /// Performs a change in one transaction, again if another process interferes. A batch that was
    /// committed although its answer was lost is not stored twice: its place in the log has moved.
    pub(super) async fn change_index(&self, change: IndexChange<'_>) -> Result<bool, StoreError> {
        let mut connection = self.address.open_connection().await?;
        let mut tries = 0;
        loop {
            tries += 1;
            match attempt_change(&mut connection, &change).await {
                Ok(done) => {
                    let _ = connection.close().await;
                    return Ok(done);
                }
                Err(error)
                    if (is_conflict(&error) || is_locked(&error)) && tries < MAX_ATTEMPTS => {}
                // The connection is dropped, which makes the server roll back.
                Err(error) => return Err(self.address.database_error(error).into()),
            }
            let rolled_back = with_timeout(connection.execute("ROLLBACK")).await;
            rolled_back.map_err(|error| self.address.database_error(error))?;
        }
    }
}

async fn attempt_change(
    connection: &mut PgConnection,
    change: &IndexChange<'_>,
) -> Result<bool, sqlx::Error> {
    connection.execute("BEGIN").await?;
    let lock = sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(INDEX_LOCK);
    lock.execute(&mut *connection).await?;
    let done = match change {
        IndexChange::Batch(batch) => insert_batch(connection, batch).await?,
        IndexChange::Vectors(embedder, vectors, is_copied) => {
            insert_vectors(connection, embedder, vectors).await?;
            if *is_copied {
                try_copies(connection).await?;
            }
            true
        }
        IndexChange::CopyTable => {
            create_copy_table(connection).await?;
            true
        }
        IndexChange::Copies => insert_copies(connection).await?,
        IndexChange::Clear => {
            clear_tables(connection).await?;
            true
        }
    };
    connection.execute("COMMIT").await?;
    Ok(done)
}

async fn insert_batch(
    connection: &mut PgConnection,
    batch: &IndexBatch,
) -> Result<bool, sqlx::Error> {
    // The lock on the session makes an erasure wait, or shows that it was erased.
    let sql =
        "SELECT indexed, revision, created_at, (SELECT version FROM search_state), title FROM sessions
               WHERE id = $1 FOR NO KEY UPDATE";
    let session = PgUuid(batch.session.uuid());
    let Some(row) = sqlx::query(sql)
        .bind(session)
        .fetch_optional(&mut *connection)
        .await?
    else {
        return Ok(false);
    };
    let version = i64::from(SEARCH_INDEX_VERSION);
    let known: i64 = row.try_get(3)?;
    let is_current = from_db(row.try_get(0)?) == batch.from
        && from_db(row.try_get(1)?) >= batch.to
        && row.try_get::<i64, _>(2)? == batch.created_at.as_micros()
        && (known == 0 || known == version)
        && batch.has_title(row.try_get(4)?);
    if !is_current {
        return Ok(false);
    }
    if let Some(title) = &batch.title {
        replace_title(connection, title).await?;
    }
    insert_entries(connection, &batch.entries).await?;
    let sql = "UPDATE search_state SET version = $1 WHERE version != $1";
    sqlx::query(sql)
        .bind(version)
        .execute(&mut *connection)
        .await?;
    let sql = "UPDATE sessions SET indexed = $2 WHERE id = $1";
    let asked = sqlx::query(sql).bind(session).bind(to_db(batch.to));
    asked.execute(&mut *connection).await?;
    Ok(true)
}

async fn insert_entries(
    connection: &mut PgConnection,
    entries: &[IndexEntry],
) -> Result<(), sqlx::Error> {
    if entries.is_empty() {
        return Ok(());
    }
    let ids = free_ids(connection, entries).await?;
    let mut words = 0_i64;
    let sql = "INSERT INTO search_documents (id, session, sequence, project, at, counts, lexemes)
               SELECT id, session, sequence, project, at, counts, lexemes::tsvector
               FROM UNNEST($1::bigint[], $2::uuid[], $3::bigint[], $4::text[], $5::bigint[], $6::bytea[], $7::text[])
                   AS new (id, session, sequence, project, at, counts, lexemes)
               ON CONFLICT (session, sequence) DO NOTHING";
    let mut sessions = Vec::new();
    let mut sequences = Vec::new();
    let mut projects: Vec<Option<String>> = Vec::new();
    let mut times = Vec::new();
    let mut counts = Vec::new();
    let mut lexemes = Vec::new();
    for entry in entries {
        let document = &entry.document;
        words += i64::from(entry.counts.length());
        sessions.push(PgUuid(document.session.uuid()));
        sequences.push(to_db(document.sequence));
        projects.push(document.project.as_deref().map(str::to_owned));
        times.push(document.at.as_micros());
        counts.push(entry.counts.to_bytes());
        lexemes.push(document_lexemes(entry));
    }
    let asked = sqlx::query(sql).bind(ids).bind(sessions).bind(sequences);
    let asked = asked.bind(projects).bind(times).bind(counts).bind(lexemes);
    asked.execute(&mut *connection).await?;
    let sql = "UPDATE search_state SET documents = documents + $1, words = words + $2";
    let asked = sqlx::query(sql)
        .bind(to_db(entries.len() as u64))
        .bind(words);
    asked.execute(&mut *connection).await.map(drop)
}

/// Returns a free id for each entry: the first one of its time, or the next after the one before.
async fn free_ids(
    connection: &mut PgConnection,
    entries: &[IndexEntry],
) -> Result<Vec<i64>, sqlx::Error> {
    let sql =
        "SELECT CASE WHEN NOT EXISTS (SELECT 1 FROM search_documents WHERE id = $1) THEN $1 ELSE (
                   SELECT id + 1 FROM search_documents AS taken WHERE id >= $1
                       AND NOT EXISTS (SELECT 1 FROM search_documents WHERE id = taken.id + 1)
                   ORDER BY id LIMIT 1) END";
    let mut ids: Vec<i64> = Vec::with_capacity(entries.len());
    for entry in entries {
        let wanted = SearchDocumentId::first_at(entry.document.at);
        ids.push(ids.last().map_or(wanted, |last| wanted.max(last + 1)));
    }
    // Nearly always all of them are free.
    let taken =
        sqlx::query("SELECT 1 FROM search_documents WHERE id = ANY($1) LIMIT 1").bind(ids.clone());
    if taken.fetch_optional(&mut *connection).await?.is_none() {
        return Ok(ids);
    }
    ids.clear();
    for entry in entries {
        let wanted = SearchDocumentId::first_at(entry.document.at);
        let wanted = ids.last().map_or(wanted, |last| wanted.max(last + 1));
        let row = sqlx::query(sql)
            .bind(wanted)
            .fetch_one(&mut *connection)
            .await?;
        ids.push(row.try_get(0)?);
    }
    Ok(ids)
}

async fn replace_title(
    connection: &mut PgConnection,
    title: &IndexEntry,
) -> Result<(), sqlx::Error> {
    let session = PgUuid(title.document.session.uuid());
    for sql in [
        "DELETE FROM search_signs WHERE document IN (SELECT id FROM search_documents WHERE session = $1 AND sequence = 0)",
        "DELETE FROM search_vectors WHERE document IN (SELECT id FROM search_documents WHERE session = $1 AND sequence = 0)",
        "WITH gone AS (DELETE FROM search_documents WHERE session = $1 AND sequence = 0
             RETURNING get_byte(counts, 0) AS words)
         UPDATE search_state SET documents = documents - (SELECT count(*) FROM gone),
             words = words - (SELECT sum(words) FROM gone)
         WHERE EXISTS (SELECT 1 FROM gone)",
    ] {
        sqlx::query(sql)
            .bind(session)
            .execute(&mut *connection)
            .await?;
    }
    insert_entries(connection, std::slice::from_ref(title)).await?;
    let sql = "UPDATE sessions SET indexed_title = $2, is_retitled = false WHERE id = $1";
    let asked = sqlx::query(sql)
        .bind(session)
        .bind(title.document.text.clone());
    asked.execute(&mut *connection).await.map(drop)
}

async fn insert_vectors(
    connection: &mut PgConnection,
    embedder: &EmbedderId,
    vectors: &BTreeMap<i64, &[f32]>,
) -> Result<(), sqlx::Error> {
    let number = number_embedder(connection, embedder).await?;
    let ids: Vec<i64> = vectors.keys().copied().collect();
    let bytes: Vec<Vec<u8>> = vectors
        .values()
        .map(|vector| encode_vector(vector))
        .collect();
    let signs: Vec<Vec<u8>> = vectors
        .values()
        .map(|vector| encode_signs(vector))
        .collect();
    for sql in [
        "DELETE FROM search_signs WHERE document = ANY($1)",
        "DELETE FROM search_vectors WHERE document = ANY($1)",
    ] {
        sqlx::query(sql)
            .bind(ids.clone())
            .execute(&mut *connection)
            .await?;
    }
    // Documents that were erased meanwhile get no vector.
    let sql = "WITH known AS (UPDATE search_documents SET embedded = $1 WHERE id = ANY($2) RETURNING id),
               stored AS (
                   INSERT INTO search_vectors (document, embedder, vector)
                   SELECT new.id, $1, vector FROM UNNEST($2::bigint[], $3::bytea[]) AS new (id, vector)
                       JOIN known ON known.id = new.id ORDER BY new.id
                   RETURNING number, document)
               INSERT INTO search_signs (number, document, embedder, signs)
               SELECT stored.number, stored.document, $1, new.signs FROM stored
                   JOIN UNNEST($2::bigint[], $4::bytea[]) AS new (id, signs) ON new.id = stored.document";
    let asked = sqlx::query(sql)
        .bind(number)
        .bind(ids)
        .bind(bytes)
        .bind(signs);
    asked.execute(connection).await.map(drop)
}

/// Returns the number of an embedder. One that was used before and is used again gets a new number,
/// so that the vectors it has made are never mixed with others.
async fn number_embedder(
    connection: &mut PgConnection,
    embedder: &EmbedderId,
) -> Result<i64, sqlx::Error> {
    let sql = "SELECT number FROM search_embedders
               WHERE name = $1 AND number = (SELECT max(number) FROM search_embedders)";
    let name = embedder.as_str();
    if let Some(row) = sqlx::query(sql)
        .bind(name)
        .fetch_optional(&mut *connection)
        .await?
    {
        return row.try_get(0);
    }
    let sql = "DELETE FROM search_embedders WHERE name = $1";
    sqlx::query(sql)
        .bind(name)
        .execute(&mut *connection)
        .await?;
    let sql = "INSERT INTO search_embedders (name) VALUES ($1) RETURNING number";
    sqlx::query(sql)
        .bind(name)
        .fetch_one(connection)
        .await?
        .try_get(0)
}

async fn clear_tables(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    for sql in [
        "DELETE FROM search_documents",
        "DELETE FROM search_vectors",
        "DELETE FROM search_signs",
        "UPDATE sessions SET indexed = 0, is_retitled = (is_retitled OR indexed_title IS NOT NULL), indexed_title = NULL
         WHERE indexed > 0 OR indexed_title IS NOT NULL",
        "UPDATE search_state SET version = 0, documents = 0, words = 0, erasures = erasures + 1",
    ] {
        connection.execute(sql).await?;
    }
    Ok(())
}
