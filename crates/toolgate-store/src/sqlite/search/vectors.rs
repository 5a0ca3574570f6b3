//! Vectors in an SQLite file. A process that searches holds those of its embedder in memory.

use std::{
    collections::HashSet as StdHashSet,
    sync::{Arc, Mutex, PoisonError},
};

use rusqlite::params;
use toolgate_core::{
    EmbedderId, NearestVectors, RankedDocument, SearchDocumentId, StoreError, VectorIndex,
    VectorMatches, VectorSearch, best_documents, encode_signs, encode_vector,
};

use super::matching::ShownSessions;
use crate::sqlite::{read::SqliteReader, transaction::SqliteWriteTx};

/// The vectors of one embedder in memory.
#[derive(Clone, Default)]
pub(in crate::sqlite) struct SqliteVectorCache(Arc<Mutex<Option<CachedVectors>>>);

struct CachedVectors {
    embedder: i64,
    dimensions: usize,
    /// Counts erasures: after one, everything is loaded again.
    erasures: i64,
    /// The number of the last vector that is loaded.
    last: i64,
    index: VectorIndex,
}

impl SqliteVectorCache {
    pub(super) fn match_vectors(
        &self,
        read: &SqliteReader<'_>,
        search: &VectorSearch,
    ) -> Result<VectorMatches, StoreError> {
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
                let mut ranked = Vec::new();
                for id in ids {
                    let score = read.load_vector(id, embedder)?;
                    let score = score.and_then(|vector| search.query.similarity(&vector));
                    ranked.extend(score.map(|score| RankedDocument { id, score }));
                }
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
        let state = self.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let (erasures, newest): (i64, i64) = state.unwrap_or_default();
        let is_current = |cached: &CachedVectors| {
            cached.embedder == embedder
                && cached.dimensions == dimensions
                && cached.erasures == erasures
        };
        let kept = cached.take().filter(is_current);
        let expected = usize::try_from(newest).unwrap_or(usize::MAX);
        let vectors = cached.insert(kept.unwrap_or_else(|| CachedVectors {
            embedder,
            dimensions,
            erasures,
            last: 0,
            index: VectorIndex::new(dimensions, expected),
        }));
        if newest > vectors.last {
            self.load_new_vectors(vectors)?;
        }
        Ok(&vectors.index)
    }

    fn load_new_vectors(&self, vectors: &mut CachedVectors) -> Result<(), StoreError> {
        let is_coarse = vectors.index.is_coarse();
        let sql = if is_coarse {
            "SELECT number, document, signs FROM search_signs WHERE number > ?1 AND embedder = ?2 ORDER BY number"
        } else {
            "SELECT number, document, vector FROM search_vectors WHERE number > ?1 AND embedder = ?2 ORDER BY number"
        };
        let index = &mut vectors.index;
        let numbers = self.query_rows(sql, params![vectors.last, vectors.embedder], |row| {
            let document = SearchDocumentId::new(row.get(1)?);
            let bytes = row.get_ref(2)?.as_blob()?;
            if is_coarse {
                index.add_signs(document, bytes);
            } else {
                index.add_vector(document, bytes);
            }
            Ok(Ok(row.get::<_, i64>(0)?))
        })?;
        vectors.last = numbers.last().copied().unwrap_or(vectors.last);
        Ok(())
    }

    fn load_vector(
        &self,
        id: SearchDocumentId,
        embedder: i64,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let sql = "SELECT vector FROM search_vectors WHERE document = ?1 AND embedder = ?2";
        self.query_row(sql, [id.get(), embedder], |row| row.get(0))
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
