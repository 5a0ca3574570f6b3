//! Vectors in a PostgreSQL database. The server compares them where it can; otherwise a process that
//! searches holds those of its embedder in memory.

use std::{collections::HashSet, sync::Arc};

use sqlx::Row;
use tokio::sync::Mutex;
use toolgate_core::{
    NearestVectors, RankedDocument, SearchDocumentId, StoreError, VectorIndex, VectorMatches,
    VectorSearch, best_documents,
};

use super::pgvector::PgvectorCopy;
use crate::{
    postgres::read::PostgresReader,
    search_shared::{CachedVectors, StoredVectors, VectorSource},
};

/// The number of vectors that are loaded at a time.
const PAGE_VECTORS: i64 = 20_000;

/// The ways to find the nearest documents: by the server, or by a scan of the vectors of one embedder
/// in memory.
#[derive(Clone, Default)]
pub(in crate::postgres) struct PostgresVectorCache {
    copy: Arc<PgvectorCopy>,
    /// The lock is held while vectors are loaded, so that two searches do not load them twice.
    loaded: Arc<Mutex<Option<CachedVectors>>>,
}

impl PostgresVectorCache {
    pub(super) async fn match_vectors(
        &self,
        reads: &PostgresReader,
        search: &VectorSearch,
    ) -> Result<VectorMatches, StoreError> {
        let Some(embedder) = reads.newest_embedder(&search.embedder).await? else {
            return Ok(VectorMatches::default());
        };
        let mut found = VectorMatches::default();
        let allowed = if search.required.is_empty() {
            None
        } else {
            let newest = reads
                .newest_rows(&[], &search.required, search.most_allowed)
                .await?;
            found.is_truncated = newest.is_truncated;
            Some(newest.ids)
        };
        let allowed = allowed.as_deref();
        // More than wanted, because those of hidden sessions are left out below.
        let wanted = search.limit.saturating_mul(2);
        let by_server = self.copy.nearest(reads, embedder, search, allowed, wanted);
        let ranking = match by_server.await {
            Some(ranking) => ranking,
            None => self.scan(reads, embedder, search, allowed, wanted).await?,
        };
        let shown = reads.shown_documents(&ranking).await?;
        let shown = ranking.into_iter().filter(|hit| shown.contains(&hit.id));
        found.ranking = shown.take(search.limit).collect();
        Ok(found)
    }

    /// Checks whether the server compares vectors, so that new ones are copied.
    pub(super) async fn is_copied(&self, reads: &PostgresReader) -> bool {
        self.copy.is_usable(reads).await
    }

    async fn scan(
        &self,
        reads: &PostgresReader,
        embedder: i64,
        search: &VectorSearch,
        allowed: Option<&[SearchDocumentId]>,
        wanted: usize,
    ) -> Result<Vec<RankedDocument>, StoreError> {
        let allowed = allowed.map(|allowed| allowed.iter().copied().collect());
        let nearest = {
            let mut cached = self.loaded.lock().await;
            let index = reads
                .refresh_vectors(&mut cached, embedder, search.dimensions)
                .await?;
            index.nearest(&search.query, allowed.as_ref(), wanted)
        };
        match nearest {
            NearestVectors::Exact(ranking) => Ok(ranking),
            NearestVectors::Coarse(ids) => {
                reads.compare_vectors(&ids, embedder, search, wanted).await
            }
        }
    }
}

impl PostgresReader {
    /// Loads the vectors that are new.
    async fn refresh_vectors<'c>(
        &self,
        cached: &'c mut Option<CachedVectors>,
        embedder: i64,
        dimensions: usize,
    ) -> Result<&'c VectorIndex, StoreError> {
        let sql = "SELECT erasures, (SELECT coalesce(max(number), 0) FROM search_vectors) FROM search_state";
        let ask = || sqlx::query(sql);
        let stored = self.query_row(ask, |row| {
            Ok(StoredVectors {
                erasures: row.try_get(0)?,
                newest: row.try_get(1)?,
            })
        });
        let stored = stored.await?.unwrap_or_default();
        let mut vectors = CachedVectors::keep(cached.take(), embedder, dimensions, &stored);
        while stored.newest > vectors.last && self.load_page(&mut vectors).await? {}
        Ok(&cached.insert(vectors).index)
    }

    /// Loads a page of vectors. Returns false if there were none.
    async fn load_page(&self, vectors: &mut CachedVectors) -> Result<bool, StoreError> {
        let source = vectors.source();
        let sql = match source {
            VectorSource::Signs => {
                "SELECT number, document, signs FROM search_signs WHERE number > $1 AND embedder = $2 ORDER BY number LIMIT $3"
            }
            VectorSource::Vectors => {
                "SELECT number, document, vector FROM search_vectors WHERE number > $1 AND embedder = $2 ORDER BY number LIMIT $3"
            }
        };
        let last = vectors.last;
        let embedder = vectors.embedder;
        let ask = || {
            sqlx::query(sql)
                .bind(last)
                .bind(embedder)
                .bind(PAGE_VECTORS)
        };
        let page = self.query_rows(ask, |row| {
            let bytes = row.try_get::<Vec<u8>, _>(2)?;
            Ok((
                row.try_get::<i64, _>(0)?,
                SearchDocumentId::new(row.try_get(1)?),
                bytes,
            ))
        });
        let page = page.await?;
        for (number, document, bytes) in &page {
            vectors.add(source, *number, *document, bytes);
        }
        Ok(!page.is_empty())
    }

    /// Compares candidates exactly.
    async fn compare_vectors(
        &self,
        ids: &[SearchDocumentId],
        embedder: i64,
        search: &VectorSearch,
        limit: usize,
    ) -> Result<Vec<RankedDocument>, StoreError> {
        let numbers: Vec<i64> = ids.iter().map(|id| id.get()).collect();
        let sql = "SELECT document, vector FROM search_vectors WHERE document = ANY($1) AND embedder = $2";
        let ask = || sqlx::query(sql).bind(numbers.clone()).bind(embedder);
        let scored = self.query_rows(ask, |row| {
            let score = search.query.similarity(row.try_get(1)?);
            let id = SearchDocumentId::new(row.try_get(0)?);
            Ok(score.map(|score| RankedDocument { id, score }))
        });
        Ok(best_documents(scored.await?.into_iter().flatten(), limit))
    }

    /// Returns which documents exist in sessions that are not hidden.
    async fn shown_documents(
        &self,
        ranking: &[RankedDocument],
    ) -> Result<HashSet<SearchDocumentId>, StoreError> {
        let numbers: Vec<i64> = ranking.iter().map(|hit| hit.id.get()).collect();
        let sql = "SELECT search_documents.id FROM search_documents
                       JOIN sessions ON sessions.id = search_documents.session
                   WHERE search_documents.id = ANY($1) AND hidden_at IS NULL";
        let ask = || sqlx::query(sql).bind(numbers.clone());
        let shown = self.query_rows(ask, |row| Ok(SearchDocumentId::new(row.try_get(0)?)));
        Ok(shown.await?.into_iter().collect())
    }
}
