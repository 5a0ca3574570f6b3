//! Nearest documents found by the server, where it has the extension `vector`.
//!
//! The table `search_pgvectors` is a copy of `search_vectors`, which stays the truth. It is no part of
//! the versioned schema, because a server without the extension has to open the same database.

use std::fmt::Write as _;

use sqlx::{Executor, PgConnection, Row};
use tokio::sync::OnceCell;
use toolgate_core::{
    RankedDocument, SearchDocumentId, StoreError, VectorIndex, VectorSearch, best_documents,
    decode_vector,
};

use super::indexing::IndexChange;
use crate::postgres::read::PostgresReader;

/// The number of vectors that are copied in one transaction.
const PAGE_VECTORS: i64 = 2_000;

/// The table of copies. A dimension is stored as the number of steps of the scale, at most 127, which
/// 16 bits hold exactly. The reference makes the server delete the copy of every vector that is deleted,
/// also by a program that does not know of copies.
const CREATE_TABLE: [&str; 3] = [
    "CREATE EXTENSION IF NOT EXISTS vector",
    // Left without vectors when the extension was dropped.
    "DROP TABLE IF EXISTS search_pgvectors",
    "CREATE TABLE search_pgvectors (
         number   bigint  NOT NULL PRIMARY KEY REFERENCES search_vectors (number) ON DELETE CASCADE,
         document bigint  NOT NULL UNIQUE,
         embedder bigint  NOT NULL,
         scale    real    NOT NULL,
         vector   halfvec NOT NULL
     )",
];

/// Vectors that the server compares. Whatever goes wrong with them, the scan finds the same documents.
#[derive(Default)]
pub(super) struct PgvectorCopy {
    is_usable: OnceCell<bool>,
}

impl PgvectorCopy {
    /// Returns the nearest documents; none if they have to be found by a scan.
    pub(super) async fn nearest(
        &self,
        reads: &PostgresReader,
        embedder: i64,
        search: &VectorSearch,
        allowed: Option<&[SearchDocumentId]>,
        limit: usize,
    ) -> Option<Vec<RankedDocument>> {
        if !self.is_usable(reads).await {
            return None;
        }
        let (newest, copied) = reads.newest_copy().await.ok()?;
        // All of very many vectors are compared faster by their signs, in memory.
        let are_many = VectorIndex::new(search.dimensions, newest).is_coarse();
        if are_many && allowed.is_none() {
            return None;
        }
        if newest != copied && !reads.copy_vectors().await.ok()? {
            return None;
        }
        let found = reads.nearest_copies(embedder, search, allowed, limit);
        found.await.ok()
    }

    /// Checks whether the server has the extension, and creates the table. It is found out once, unless
    /// the server cannot be asked.
    pub(super) async fn is_usable(&self, reads: &PostgresReader) -> bool {
        let found = self.is_usable.get_or_try_init(|| reads.prepare_pgvector());
        found.await.is_ok_and(|usable| *usable)
    }
}

/// What a database has of the extension.
struct PgvectorState {
    has_table: bool,
    has_type: bool,
    is_installed: bool,
}

impl PostgresReader {
    /// Creates the table of copies, and the extension if this role may. Returns false if the extension
    /// cannot be used.
    async fn prepare_pgvector(&self) -> Result<bool, StoreError> {
        let Some(state) = self.pgvector_state().await? else {
            return Ok(false);
        };
        if state.has_type && state.has_table {
            return Ok(true);
        }
        if !state.has_type && (state.is_installed || !self.may_create_extension().await?) {
            return Ok(false);
        }
        Ok(self.change_index(IndexChange::CopyTable).await.is_ok())
    }

    async fn pgvector_state(&self) -> Result<Option<PgvectorState>, StoreError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass('search_pgvectors')
                                  AND attname = 'vector' AND NOT attisdropped),
                          to_regtype('halfvec') IS NOT NULL,
                          EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'vector')";
        let ask = || sqlx::query(sql);
        let found = self.query_row(ask, |row| {
            Ok(PgvectorState {
                has_table: row.try_get(0)?,
                has_type: row.try_get(1)?,
                is_installed: row.try_get(2)?,
            })
        });
        found.await
    }

    /// Checks whether the server has the extension and this role may create it. Without this, the log
    /// of the server would have an error for each process.
    async fn may_create_extension(&self) -> Result<bool, StoreError> {
        let sql = "SELECT EXISTS (
                       SELECT 1 FROM pg_available_extension_versions
                       WHERE name = 'vector' AND (
                           (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
                           OR (trusted AND has_database_privilege(current_database(), 'CREATE'))))";
        let ask = || sqlx::query(sql);
        let found = self.query_row(ask, |row| Ok(row.try_get(0)?));
        Ok(found.await?.unwrap_or(false))
    }

    /// Returns the numbers of the newest vector and of the newest copy.
    async fn newest_copy(&self) -> Result<(usize, usize), StoreError> {
        let sql = "SELECT (SELECT coalesce(max(number), 0) FROM search_vectors),
                          (SELECT coalesce(max(number), 0) FROM search_pgvectors)";
        let ask = || sqlx::query(sql).persistent(false);
        let found = self.query_row(ask, |row| {
            let number = |column| {
                let number = row.try_get::<i64, usize>(column)?;
                Ok::<_, sqlx::Error>(usize::try_from(number).unwrap_or(usize::MAX))
            };
            Ok((number(0)?, number(1)?))
        });
        Ok(found.await?.unwrap_or_default())
    }

    /// Copies a page of vectors. Returns false if there may be more.
    async fn copy_vectors(&self) -> Result<bool, StoreError> {
        self.change_index(IndexChange::Copies).await
    }

    /// Compares all copies of an embedder. The product of steps is a whole number that `real` holds
    /// exactly up to 1,040 dimensions, and the rest is computed as the scan does it: the order is the
    /// same, also of documents that are nearly equal.
    async fn nearest_copies(
        &self,
        embedder: i64,
        search: &VectorSearch,
        allowed: Option<&[SearchDocumentId]>,
        limit: usize,
    ) -> Result<Vec<RankedDocument>, StoreError> {
        let sql = match allowed {
            None => {
                "SELECT near.document, search_vectors.vector FROM (
                     SELECT number, document FROM search_pgvectors
                     WHERE embedder = $1 AND vector_dims(vector) = $2
                     ORDER BY (vector <#> (SELECT $3::text::halfvec))::real * scale * $4::real, document DESC LIMIT $5
                 ) AS near JOIN search_vectors ON search_vectors.number = near.number"
            }
            // The same condition before the join would make the planner expect few vectors, and it would
            // join them the slow way round. Here vectors of others are last, and left out.
            Some(_) => {
                "SELECT near.document, search_vectors.vector FROM (
                     SELECT number, copy.document, CASE WHEN embedder = $1 AND vector_dims(vector) = $2 THEN
                             (vector <#> (SELECT $3::text::halfvec))::real * scale * $4::real END AS distance
                     FROM search_pgvectors AS copy
                         JOIN UNNEST($6::bigint[]) AS allowed (document) ON allowed.document = copy.document
                     ORDER BY distance, copy.document DESC LIMIT $5
                 ) AS near JOIN search_vectors ON search_vectors.number = near.number
                 WHERE near.distance IS NOT NULL"
            }
        };
        let dimensions = i32::try_from(search.dimensions).unwrap_or(i32::MAX);
        let steps = write_steps(search.query.steps());
        let allowed: Option<Vec<i64>> =
            allowed.map(|allowed| allowed.iter().map(|id| id.get()).collect());
        let ask = || {
            // Planned each time: the best plan depends on how many documents are allowed.
            let asked = sqlx::query(sql).persistent(false).bind(embedder);
            let asked = asked.bind(dimensions).bind(steps.clone());
            let asked = asked.bind(search.query.scale());
            let asked = asked.bind(i64::try_from(limit).unwrap_or(i64::MAX));
            match &allowed {
                Some(allowed) => asked.bind(allowed.clone()),
                None => asked,
            }
        };
        let found = self.query_rows(ask, |row| {
            let score = search.query.similarity(row.try_get(1)?);
            let id = SearchDocumentId::new(row.try_get(0)?);
            Ok(score.map(|score| RankedDocument { id, score }))
        });
        Ok(best_documents(found.await?.into_iter().flatten(), limit))
    }
}

/// Creates the extension and the table, unless another process has done so meanwhile.
pub(super) async fn create_copy_table(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let sql = "SELECT 1 FROM pg_attribute
               WHERE attrelid = to_regclass('search_pgvectors') AND attname = 'vector' AND NOT attisdropped";
    if connection.fetch_optional(sql).await?.is_some() {
        return Ok(());
    }
    for sql in CREATE_TABLE {
        connection.execute(sql).await?;
    }
    Ok(())
}

/// Copies vectors in a transaction that has written some. Those that cannot be copied now are copied by
/// a later search; the transaction is continued without them.
pub(super) async fn try_copies(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    connection.execute("SAVEPOINT copies").await?;
    if insert_copies(connection).await.is_err() {
        connection.execute("ROLLBACK TO SAVEPOINT copies").await?;
    }
    Ok(())
}

/// Copies the next vectors. Returns false if there may be more.
pub(super) async fn insert_copies(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    // An erasure that has begun is not waited for, since it may wait for us; one that begins now waits.
    let sql = "SELECT number, document, embedder, vector FROM search_vectors
               WHERE number > (SELECT coalesce(max(number), 0) FROM search_pgvectors)
               ORDER BY number LIMIT $1 FOR KEY SHARE NOWAIT";
    let page = sqlx::query(sql).persistent(false).bind(PAGE_VECTORS);
    let page = page.fetch_all(&mut *connection).await?;
    let mut numbers: Vec<i64> = Vec::with_capacity(page.len());
    let mut documents: Vec<i64> = Vec::with_capacity(page.len());
    let mut embedders: Vec<i64> = Vec::with_capacity(page.len());
    let mut scales: Vec<f32> = Vec::with_capacity(page.len());
    let mut vectors: Vec<String> = Vec::with_capacity(page.len());
    for row in &page {
        // A damaged vector is not found by a scan either.
        if let Some((scale, steps)) = decode_vector(row.try_get(3)?).filter(is_comparable) {
            numbers.push(row.try_get(0)?);
            documents.push(row.try_get(1)?);
            embedders.push(row.try_get(2)?);
            scales.push(scale);
            vectors.push(write_steps(&steps));
        }
    }
    let sql = "INSERT INTO search_pgvectors (number, document, embedder, scale, vector)
               SELECT number, document, embedder, scale, vector::halfvec
               FROM UNNEST($1::bigint[], $2::bigint[], $3::bigint[], $4::real[], $5::text[])
                   AS new (number, document, embedder, scale, vector)";
    let asked = sqlx::query(sql).persistent(false).bind(numbers);
    let asked = asked.bind(documents).bind(embedders).bind(scales);
    asked.bind(vectors).execute(&mut *connection).await?;
    Ok((page.len() as i64) < PAGE_VECTORS)
}

fn is_comparable((_, steps): &(f32, Vec<i8>)) -> bool {
    !steps.is_empty()
}

/// Writes a vector as the extension reads it.
fn write_steps(steps: &[i8]) -> String {
    let mut text = String::with_capacity(2 + steps.len() * 4);
    for (place, step) in steps.iter().enumerate() {
        text.push(if place == 0 { '[' } else { ',' });
        // Writing to a text cannot fail.
        let _ = write!(text, "{step}");
    }
    text.push(']');
    text
}
