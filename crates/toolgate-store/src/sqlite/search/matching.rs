//! Finds documents by words: the newest ones of each word, and how frequent it is.

use std::collections::HashMap;

use rusqlite::params;
use toolgate_core::{
    FREQUENCY_SAMPLE, MatchTerm, SearchCandidate, SearchDocumentId, SearchRequirement, SessionId,
    StoreError, TextMatches, TextSearch, WordCounts, estimate_frequency,
};

use super::{DOCUMENT_COLUMNS, clearing::IndexState, document_row, expression::Fts5Dialect};
use crate::{
    encoded::{from_db, limit_to_db},
    search_shared::{
        DocumentPlace, FREQUENCY_MATCHES, IndexNumbers, NewestRows, TermFrequency, TextCollector,
        limits_term, match_expression,
    },
    sqlite::{
        read::{SqliteReader, uuid_column},
        transaction::session_bytes,
    },
};

/// The number of candidates that are loaded in the same read: they are all hits of the first page.
const LOADED_ALONG: usize = 10;

impl SqliteReader<'_> {
    /// Finds the documents of a search by words. All queries see the same state of the file.
    pub(super) fn match_text(&self, search: &TextSearch) -> Result<TextMatches, StoreError> {
        let _snapshot = self.begin_snapshot()?;
        let index = self.index_numbers()?;
        let mut collector = TextCollector::new(search, &index);
        for term in &search.terms {
            let list = self.newest_rows(&[term], &search.required, search.most_per_term)?;
            let frequency = self.term_frequency(term, &search.required, &list, index.documents)?;
            collector.add_term(list, frequency);
        }
        if let Some(terms) = collector.missing_terms() {
            let list = self.newest_rows(&terms, &search.required, search.most_per_term)?;
            collector.add_all_terms(list);
        }
        let is_few = collector.ids().len() <= LOADED_ALONG;
        let rows = self.load_candidates(collector.ids())?;
        let mut loaded = Vec::new();
        for (row, _) in rows.iter().filter(|_| is_few) {
            loaded.extend(self.load_hit(row)?.map(|document| (row.id, document)));
        }
        let candidates = rows.into_iter().map(|(_, candidate)| candidate);
        let mut found = collector.finish(candidates.collect());
        found.loaded = loaded;
        Ok(found)
    }

    fn index_numbers(&self) -> Result<IndexNumbers, StoreError> {
        let sql = "SELECT documents, words, version,
                       EXISTS (SELECT 1 FROM sessions WHERE is_behind = 1)
                   FROM search_state";
        let found = self.query_row(sql, [], |row| {
            let state = IndexState::from_column(row.get(2)?);
            Ok(IndexNumbers {
                documents: from_db(row.get(0)?),
                words: from_db(row.get(1)?),
                is_behind: row.get::<_, bool>(3)? || !state.is_usable(),
            })
        })?;
        Ok(found.unwrap_or_default())
    }

    /// Returns the newest documents that have all terms and fulfil a requirement.
    pub(super) fn newest_rows(
        &self,
        terms: &[&MatchTerm],
        required: &SearchRequirement,
        limit: usize,
    ) -> Result<NewestRows, StoreError> {
        let Some(wanted) = match_expression::<Fts5Dialect>(terms, required) else {
            return Ok(NewestRows::default());
        };
        let (first, end) = required.id_range();
        let most = limit_to_db(limit.saturating_add(1));
        let has_time = required.after.is_some() || required.before.is_some();
        let ids = if has_time {
            // Ids only follow the time roughly, so it is checked, too.
            let sql = "SELECT search_index.rowid FROM search_index
                       JOIN search_documents ON search_documents.id = search_index.rowid
                       WHERE search_index MATCH ?1 AND search_index.rowid >= ?2 AND search_index.rowid < ?3
                           AND at >= ?5 AND at < ?6
                       ORDER BY search_index.rowid DESC LIMIT ?4";
            let after = required.after.map_or(i64::MIN, |after| after.as_micros());
            let before = required
                .before
                .map_or(i64::MAX, |before| before.as_micros());
            self.query_rows(
                sql,
                params![wanted, first, end, most, after, before],
                read_id,
            )?
        } else {
            let sql = "SELECT rowid FROM search_index WHERE search_index MATCH ?1 ORDER BY rowid DESC LIMIT ?2";
            self.query_rows(sql, params![wanted, most], read_id)?
        };
        Ok(NewestRows::cut(ids, limit))
    }

    fn term_frequency(
        &self,
        term: &MatchTerm,
        required: &SearchRequirement,
        list: &NewestRows,
        documents: u64,
    ) -> Result<u64, StoreError> {
        let frequency = if limits_term(required, term) {
            let nothing = SearchRequirement::default();
            self.newest_rows(&[term], &nothing, FREQUENCY_MATCHES)?
                .frequency()
        } else {
            list.frequency()
        };
        match frequency {
            TermFrequency::Known(frequency) => Ok(frequency),
            TermFrequency::Since(oldest, found) => {
                let sql =
                    "SELECT count(*) FROM (SELECT 1 FROM search_documents WHERE id >= ?1 LIMIT ?2)";
                let sample = params![oldest.get(), limit_to_db(FREQUENCY_SAMPLE)];
                let seen = self.query_row(sql, sample, |row| row.get::<_, i64>(0))?;
                let seen = usize::try_from(seen.unwrap_or(0)).unwrap_or(usize::MAX);
                Ok(estimate_frequency(found, seen, documents))
            }
        }
    }

    /// Loads documents to rank, and where their texts are, except those of hidden sessions.
    fn load_candidates(
        &self,
        ids: impl Iterator<Item = SearchDocumentId>,
    ) -> Result<Vec<(DocumentPlace, SearchCandidate)>, StoreError> {
        let sql = format!("SELECT {DOCUMENT_COLUMNS}, counts FROM search_documents WHERE id = ?1");
        let rows = self.query_each(&sql, ids.map(|id| [id.get()]), |row| {
            let place = document_row(row)?;
            let counts = WordCounts::from_bytes(row.get_ref(5)?.as_blob()?);
            let candidate = SearchCandidate {
                id: place.id,
                counts,
            };
            Ok((place, candidate))
        })?;
        let mut shown = ShownSessions::default();
        let mut candidates = Vec::with_capacity(rows.len());
        for (row, candidate) in rows {
            if shown.check(self, row.session)? {
                candidates.push((row, candidate));
            }
        }
        Ok(candidates)
    }

    /// Checks whether a document exists and its session is not hidden.
    pub(super) fn is_shown(
        &self,
        id: SearchDocumentId,
        shown: &mut ShownSessions,
    ) -> Result<bool, StoreError> {
        let sql = "SELECT session FROM search_documents WHERE id = ?1";
        match self.query_row(sql, [id.get()], |row| uuid_column(row, 0))? {
            Some(session) => shown.check(self, SessionId::new(session)),
            None => Ok(false),
        }
    }
}

/// The sessions that were checked during one search. Hits come from few sessions, so each is looked up
/// once.
#[derive(Default)]
pub(super) struct ShownSessions(HashMap<SessionId, bool>);

impl ShownSessions {
    /// Checks whether a session exists and is not hidden.
    pub(super) fn check(
        &mut self,
        read: &SqliteReader<'_>,
        session: SessionId,
    ) -> Result<bool, StoreError> {
        if let Some(is_shown) = self.0.get(&session) {
            return Ok(*is_shown);
        }
        let sql = "SELECT hidden_at IS NULL FROM sessions WHERE id = ?1";
        let found = read.query_row(sql, [session_bytes(session)], |row| row.get(0))?;
        let is_shown = found.unwrap_or(false);
        self.0.insert(session, is_shown);
        Ok(is_shown)
    }
}

fn read_id(row: &rusqlite::Row<'_>) -> rusqlite::Result<Result<SearchDocumentId, StoreError>> {
    Ok(Ok(SearchDocumentId::new(row.get(0)?)))
}
