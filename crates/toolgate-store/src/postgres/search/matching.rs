//! Finds documents by words: the newest ones of each word, and how frequent it is.

use std::collections::BTreeSet;

use sqlx::Row;
use toolgate_core::{
    FREQUENCY_SAMPLE, MatchTerm, SearchCandidate, SearchDocumentId, SearchRequirement, StoreError,
    TermMatches, TextMatches, TextSearch, WordCounts, estimate_frequency,
};

use super::expression::match_expression;
use crate::{
    encoded::{from_db, limit_to_db},
    postgres::read::PostgresReader,
};

/// The number of documents with a term that are looked at for its frequency.
const FREQUENCY_MATCHES: usize = 1_000;

/// The newest documents that match.
pub(super) struct NewestRows {
    pub(super) ids: Vec<SearchDocumentId>,
    pub(super) is_truncated: bool,
}

impl PostgresReader {
    pub(super) async fn match_text(&self, search: &TextSearch) -> Result<TextMatches, StoreError> {
        let ask = || sqlx::query("SELECT documents, words FROM search_state");
        let state = self.query_row(ask, |row| {
            Ok((from_db(row.try_get(0)?), from_db(row.try_get(1)?)))
        });
        let (documents, words) = state.await?.unwrap_or_default();
        let mut found = TextMatches {
            documents,
            average_length: words as f32 / documents.max(1) as f32,
            ..TextMatches::default()
        };
        let mut ids = BTreeSet::new();
        let mut is_any_truncated = search.terms.is_empty();
        for term in &search.terms {
            let list = self
                .newest_rows(&[term], &search.required, search.most_per_term)
                .await?;
            ids.extend(list.ids.iter().map(|id| id.get()));
            is_any_truncated |= list.is_truncated;
            found.is_truncated = list.is_truncated;
            found.terms.push(TermMatches {
                frequency: self
                    .term_frequency(term, &search.required, &list, documents)
                    .await?,
                ids: list.ids,
            });
        }
        // Documents with all words may be older than the newest ones of a common word.
        if is_any_truncated && search.terms.len() != 1 {
            let all: Vec<&MatchTerm> = search.terms.iter().map(|term| &**term).collect();
            let list = self
                .newest_rows(&all, &search.required, search.most_per_term)
                .await?;
            ids.extend(list.ids.iter().map(|id| id.get()));
            found.is_truncated = list.is_truncated;
        }
        found.candidates = self.load_candidates(ids.into_iter().collect()).await?;
        Ok(found)
    }

    /// Returns the newest documents that have all terms and fulfil a requirement.
    pub(super) async fn newest_rows(
        &self,
        terms: &[&MatchTerm],
        required: &SearchRequirement,
        limit: usize,
    ) -> Result<NewestRows, StoreError> {
        let Some(wanted) = match_expression(terms, required) else {
            return Ok(NewestRows {
                ids: Vec::new(),
                is_truncated: false,
            });
        };
        let (first, end) = required.id_range();
        let after = required.after.map_or(i64::MIN, |after| after.as_micros());
        let before = required
            .before
            .map_or(i64::MAX, |before| before.as_micros());
        let sql = "SELECT id FROM search_documents
                   WHERE lexemes @@ $1::tsquery AND id >= $2 AND id < $3 AND at >= $4 AND at < $5
                   ORDER BY id DESC LIMIT $6";
        let ask = || {
            let asked = sqlx::query(sql).bind(wanted.clone()).bind(first).bind(end);
            asked
                .bind(after)
                .bind(before)
                .bind(limit_to_db(limit.saturating_add(1)))
        };
        let mut ids = self
            .query_rows(ask, |row| Ok(SearchDocumentId::new(row.try_get(0)?)))
            .await?;
        let is_truncated = ids.len() > limit;
        ids.truncate(limit);
        Ok(NewestRows { ids, is_truncated })
    }

    async fn term_frequency(
        &self,
        term: &MatchTerm,
        required: &SearchRequirement,
        list: &NewestRows,
        documents: u64,
    ) -> Result<u64, StoreError> {
        let everywhere;
        let newest = if required.is_empty() {
            list
        } else {
            let nothing = SearchRequirement::default();
            everywhere = self
                .newest_rows(&[term], &nothing, FREQUENCY_MATCHES)
                .await?;
            &everywhere
        };
        match newest.ids.last() {
            Some(oldest) if newest.is_truncated => {
                let sql = "SELECT count(*) FROM (SELECT 1 FROM search_documents WHERE id >= $1 LIMIT $2) AS sample";
                let ask = || {
                    sqlx::query(sql)
                        .bind(oldest.get())
                        .bind(limit_to_db(FREQUENCY_SAMPLE))
                };
                let seen = self
                    .query_row(ask, |row| Ok(row.try_get::<i64, _>(0)?))
                    .await?;
                let seen = usize::try_from(seen.unwrap_or(0)).unwrap_or(usize::MAX);
                Ok(estimate_frequency(newest.ids.len(), seen, documents))
            }
            Some(_) | None => Ok(newest.ids.len() as u64),
        }
    }

    /// Loads the documents to rank, except those of hidden sessions.
    async fn load_candidates(&self, ids: Vec<i64>) -> Result<Vec<SearchCandidate>, StoreError> {
        let sql = "SELECT search_documents.id, counts FROM search_documents
                       JOIN sessions ON sessions.id = search_documents.session
                   WHERE search_documents.id = ANY($1) AND hidden_at IS NULL";
        let ask = || sqlx::query(sql).bind(ids.clone());
        self.query_rows(ask, |row| {
            Ok(SearchCandidate {
                id: SearchDocumentId::new(row.try_get(0)?),
                counts: WordCounts::from_bytes(row.try_get(1)?),
            })
        })
        .await
    }
}
