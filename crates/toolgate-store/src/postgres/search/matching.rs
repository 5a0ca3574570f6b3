//! Finds documents by words: the newest ones of each word, and how frequent it is.

use sqlx::Row;
use toolgate_core::{
    FREQUENCY_SAMPLE, MatchTerm, SEARCH_INDEX_VERSION, SearchCandidate, SearchDocumentId,
    SearchRequirement, StoreError, TextMatches, TextSearch, WordCounts, estimate_frequency,
};

use super::expression::TsqueryDialect;
use crate::{
    encoded::{from_db, limit_to_db},
    postgres::read::PostgresReader,
    search_shared::{
        FREQUENCY_MATCHES, IndexNumbers, NewestRows, TermFrequency, TextCollector, limits_term,
        match_expression,
    },
};

impl PostgresReader {
    pub(super) async fn match_text(&self, search: &TextSearch) -> Result<TextMatches, StoreError> {
        let index = self.index_numbers().await?;
        let mut collector = TextCollector::new(search, &index);
        for term in &search.terms {
            let list = self
                .newest_rows(&[term], &search.required, search.most_per_term)
                .await?;
            let frequency = self
                .term_frequency(term, &search.required, &list, index.documents)
                .await?;
            collector.add_term(list, frequency);
        }
        if let Some(terms) = collector.missing_terms() {
            let list = self
                .newest_rows(&terms, &search.required, search.most_per_term)
                .await?;
            collector.add_all_terms(list);
        }
        let ids = collector.ids().map(|id| id.get()).collect();
        let candidates = self.load_candidates(ids).await?;
        Ok(collector.finish(candidates))
    }

    async fn index_numbers(&self) -> Result<IndexNumbers, StoreError> {
        let sql = "SELECT documents, words, version,
                       EXISTS (SELECT 1 FROM sessions WHERE revision > indexed OR is_retitled)
                   FROM search_state";
        let found = self.query_row(
            || sqlx::query(sql),
            |row| {
                let version: i64 = row.try_get(2)?;
                let is_ours = version == 0 || version == i64::from(SEARCH_INDEX_VERSION);
                Ok(IndexNumbers {
                    documents: from_db(row.try_get(0)?),
                    words: from_db(row.try_get(1)?),
                    is_behind: row.try_get::<bool, _>(3)? || !is_ours,
                })
            },
        );
        Ok(found.await?.unwrap_or_default())
    }

    /// Returns the newest documents that have all terms and fulfil a requirement.
    pub(super) async fn newest_rows(
        &self,
        terms: &[&MatchTerm],
        required: &SearchRequirement,
        limit: usize,
    ) -> Result<NewestRows, StoreError> {
        let Some(wanted) = match_expression::<TsqueryDialect>(terms, required) else {
            return Ok(NewestRows::default());
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
            // Planned each time: a rare word is looked up in the index, and of a common one the newest
            // documents are read until there are enough. A statement that is kept has one plan for all
            // words from its sixth use on: it reads every document for a rare word, or collects all
            // documents of a common one. The conditions are written out even if they exclude nothing,
            // because without statistics the planner would read every document for rare words.
            let asked = sqlx::query(sql).persistent(false).bind(wanted.clone());
            let asked = asked.bind(first).bind(end);
            asked
                .bind(after)
                .bind(before)
                .bind(limit_to_db(limit.saturating_add(1)))
        };
        let ids = self
            .query_rows(ask, |row| Ok(SearchDocumentId::new(row.try_get(0)?)))
            .await?;
        Ok(NewestRows::cut(ids, limit))
    }

    async fn term_frequency(
        &self,
        term: &MatchTerm,
        required: &SearchRequirement,
        list: &NewestRows,
        documents: u64,
    ) -> Result<u64, StoreError> {
        let frequency = if limits_term(required, term) {
            let nothing = SearchRequirement::default();
            let everywhere = self
                .newest_rows(&[term], &nothing, FREQUENCY_MATCHES)
                .await?;
            everywhere.frequency()
        } else {
            list.frequency()
        };
        match frequency {
            TermFrequency::Known(frequency) => Ok(frequency),
            TermFrequency::Since(oldest, found) => {
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
                Ok(estimate_frequency(found, seen, documents))
            }
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
