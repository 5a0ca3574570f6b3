//! Vectors in an SQLite file. A process that searches holds those of its embedder in memory.

use std::{
    collections::HashSet as StdHashSet,
    sync::{Arc, Mutex, PoisonError},
};

use rusqlite::params;
use toolgate_core::{
    EmbedderId, NearestVectors, RankedDocument, SearchDocumentId, StoreError, VectorIndex,
    VectorMatches, VectorQuery, VectorSearch, best_documents, encode_signs, encode_vector,
};

use super::matching::ShownSessions;
use crate::{
    search_shared::{CachedVectors, StoredVectors, VectorSource},
    sqlite::{read::SqliteReader, transaction::SqliteWriteTx},
};

/// The vectors of one embedder in memory.
#[derive(Clone, Default)]
pub(in crate::sqlite) struct SqliteVectorCache(Arc<Mutex<Option<CachedVectors>>>);

impl SqliteVectorCache {
    pub(super) fn match_vectors(
        &self,
        read: &SqliteReader<'_>,
        search: &VectorSearch,
    ) -> Result<VectorMatches, StoreError> {
        let _snapshot = read.begin_snapshot()?;
        let Some(embedder) = read.newest_embedder(&search.embedder)? else {
            return Ok(VectorMatches::default());
        };
        let mut found = VectorMatches::default();
        let allowed = if search.required.is_empty() {
            None
        } else {
            let newest = read.newest_rows(&[], &search.required, search.most_allowed)?;
            found.is_truncated = newest.is_truncated;
            Some(newest.ids.into_iter().collect())
        };
        // More than wanted, because those of hidden sessions are left out below.
        let wanted = search.limit.saturating_mul(2);
        let nearest = {
            let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let index = read.refresh_vectors(&mut cached, embedder, search.dimensions)?;
            index.nearest(&search.query, allowed.as_ref(), wanted)
        };
        let ranking = match nearest {
            NearestVectors::Exact(ranking) => ranking,
            NearestVectors::Coarse(ids) => {
                let ranked = read.compare_vectors(ids, embedder, &search.query)?;
                best_documents(ranked.into_iter(), wanted)
            }
        };
        let mut shown = ShownSessions::default();
        for hit in ranking {
            if found.ranking.len() < search.limit && read.is_shown(hit.id, &mut shown)? {
                found.ranking.push(hit);
            }
        }
        Ok(found)
    }
}

impl SqliteReader<'_> {
    /// Returns the number of an embedder, if it is the newest one. The vectors of others are
    /// replaced.
    pub(super) fn newest_embedder(&self, embedder: &EmbedderId) -> Result<Option<i64>, StoreError> {
        let sql = "SELECT number FROM search_embedders
                   WHERE name = ?1 AND number = (SELECT max(number) FROM search_embedders)";
        self.query_row(sql, [embedder.as_str()], |row| row.get(0))
    }

    /// Loads the vectors that are new.
    fn refresh_vectors<'c>(
        &self,
        cached: &'c mut Option<CachedVectors>,
        embedder: i64,
        dimensions: usize,
    ) -> Result<&'c VectorIndex, StoreError> {
        let sql = "SELECT erasures, (SELECT coalesce(max(number), 0) FROM search_vectors) FROM search_state";
        let stored = self.query_row(sql, [], |row| {
            Ok(StoredVectors {
                erasures: row.get(0)?,
                newest: row.get(1)?,
            })
        })?;
        let stored = stored.unwrap_or_default();
        let vectors = CachedVectors::keep(cached.take(), embedder, dimensions, &stored);
        let vectors = cached.insert(vectors);
        if stored.newest > vectors.last {
            self.load_new_vectors(vectors)?;
        }
        Ok(&vectors.index)
    }

    fn load_new_vectors(&self, vectors: &mut CachedVectors) -> Result<(), StoreError> {
        let source = vectors.source();
        let sql = match source {
            VectorSource::Signs => {
                "SELECT number, document, signs FROM search_signs WHERE number > ?1 AND embedder = ?2 ORDER BY number"
            }
            VectorSource::Vectors => {
                "SELECT number, document, vector FROM search_vectors WHERE number > ?1 AND embedder = ?2 ORDER BY number"
            }
        };
        let newer = [vectors.last, vectors.embedder];
        self.query_rows(sql, newer, |row| {
            let document = SearchDocumentId::new(row.get(1)?);
            let bytes = row.get_ref(2)?.as_blob()?;
            vectors.add(source, row.get(0)?, document, bytes);
            Ok(Ok(()))
        })
        .map(drop)
    }

    /// Compares candidates exactly.
    fn compare_vectors(
        &self,
        mut ids: Vec<SearchDocumentId>,
        embedder: i64,
        query: &VectorQuery,
    ) -> Result<Vec<RankedDocument>, StoreError> {
        // Neighbours are often in the same pages.
        ids.sort_unstable();
        let sql =
            "SELECT document, vector FROM search_vectors WHERE document = ?1 AND embedder = ?2";
        let keys = ids.iter().map(|id| [id.get(), embedder]);
        let compared = self.query_each(sql, keys, |row| {
            let id = SearchDocumentId::new(row.get(0)?);
            let score = query.similarity(row.get_ref(1)?.as_blob()?);
            Ok(score.map(|score| RankedDocument { id, score }))
        })?;
        Ok(compared.into_iter().flatten().collect())
    }
}

impl SqliteWriteTx<'_> {
    pub(super) fn put_vectors(
        &self,
        embedder: &EmbedderId,
        vectors: &[(SearchDocumentId, Vec<f32>)],
    ) -> Result<(), StoreError> {
        let number = self.number_embedder(embedder)?;
        let mut seen = StdHashSet::new();
        for (id, vector) in vectors.iter().filter(|(id, _)| seen.insert(*id)) {
            let sql = "UPDATE search_documents SET embedded = ?2 WHERE id = ?1";
            if self.execute(sql, [id.get(), number])? == 0 {
                continue;
            }
            let sql = "DELETE FROM search_signs WHERE number IN (SELECT number FROM search_vectors WHERE document = ?1)";
            self.execute(sql, [id.get()])?;
            let sql = "INSERT OR REPLACE INTO search_vectors (document, embedder, vector) VALUES (?1, ?2, ?3)";
            self.execute(sql, params![id.get(), number, encode_vector(vector)])?;
            let sql = "INSERT INTO search_signs (number, document, embedder, signs) VALUES (last_insert_rowid(), ?1, ?2, ?3)";
            self.execute(sql, params![id.get(), number, encode_signs(vector)])?;
        }
        Ok(())
    }

    /// Returns the number of an embedder. One that was used before and is used again gets a new
    /// number, so that the vectors it has made are never mixed with others.
    fn number_embedder(&self, embedder: &EmbedderId) -> Result<i64, StoreError> {
        if let Some(number) = self.newest_embedder(embedder)? {
            return Ok(number);
        }
        self.execute(
            "DELETE FROM search_embedders WHERE name = ?1",
            [embedder.as_str()],
        )?;
        self.execute(
            "INSERT INTO search_embedders (name) VALUES (?1)",
            [embedder.as_str()],
        )?;
        Ok(self.connection.last_insert_rowid())
    }
}
