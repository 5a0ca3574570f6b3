//! Finds documents by words: the newest ones of each word, and how frequent it is.

use std::collections::{BTreeSet, HashMap};

use rusqlite::params;
use toolgate_core::{
    FREQUENCY_SAMPLE, MatchTerm, SearchCandidate, SearchDocumentId, SearchRequirement, StoreError,
    TermMatches, TextMatches, TextSearch, WordCounts, estimate_frequency,
};
use uuid::Uuid;

use super::expression::match_expression;
use crate::{
    encoded::{from_db, limit_to_db},
    sqlite::read::{SqliteReader, uuid_column},
};

/// The number of documents with a term that are looked at for its frequency.
const FREQUENCY_MATCHES: usize = 1_000;

/// The number of candidates that are loaded in the same read: they are all hits of the first page.
const LOADED_ALONG: usize = 10;

/// The newest documents that match.
pub(super) struct NewestRows {
    pub(super) ids: Vec<SearchDocumentId>,
    pub(super) is_truncated: bool,
}

impl SqliteReader<'_> {
    pub(super) fn match_text(&self, search: &TextSearch) -> Result<TextMatches, StoreError> {
        let sql = "SELECT documents, words FROM search_state";
        let state = self.query_row(sql, [], |row| {
            Ok((from_db(row.get(0)?), from_db(row.get(1)?)))
        })?;
        let (documents, words) = state.unwrap_or_default();
        let mut found = TextMatches {
            documents,
            average_length: words as f32 / documents.max(1) as f32,
            ..TextMatches::default()
        };
        let mut ids = BTreeSet::new();
        let mut is_any_truncated = search.terms.is_empty();
        for term in &search.terms {
            let list = self.newest_rows(&[term], &search.required, search.most_per_term)?;
            ids.extend(list.ids.iter().copied());
            is_any_truncated |= list.is_truncated;
            found.is_truncated = list.is_truncated;
            found.terms.push(TermMatches {
                frequency: self.term_frequency(term, &search.required, &list, documents)?,
                ids: list.ids,
            });
        }
        // Documents with all words may be older than the newest ones of a common word.
        if is_any_truncated && search.terms.len() != 1 {
            let all: Vec<&MatchTerm> = search.terms.iter().map(|term| &**term).collect();
            let list = self.newest_rows(&all, &search.required, search.most_per_term)?;
            ids.extend(list.ids);
            found.is_truncated = list.is_truncated;
        }
        let mut shown = ShownSessions::default();
        for id in ids {
            found
                .candidates
                .extend(self.load_candidate(id, &mut shown)?);
        }
        if found.candidates.len() <= LOADED_ALONG {
            found.loaded =
                self.load_documents(found.candidates.iter().map(|candidate| candidate.id))?;
        }
        Ok(found)
    }

    /// Returns the newest documents that have all terms and fulfil a requirement.
    pub(super) fn newest_rows(
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
        let most = limit_to_db(limit.saturating_add(1));
        let has_time = required.after.is_some() || required.before.is_some();
        let mut ids = if has_time {
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
        let is_truncated = ids.len() > limit;
        ids.truncate(limit);
        Ok(NewestRows { ids, is_truncated })
    }

    fn term_frequency(
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
            everywhere =
                self.newest_rows(&[term], &SearchRequirement::default(), FREQUENCY_MATCHES)?;
            &everywhere
        };
        match newest.ids.last() {
            Some(oldest) if newest.is_truncated => {
                let sql = "SELECT count(*) FROM (SELECT 1 FROM search_index
                           WHERE search_index MATCH 'facets : \"d\"' AND rowid >= ?1 LIMIT ?2)";
                let sample = params![oldest.get(), limit_to_db(FREQUENCY_SAMPLE)];
                let seen = self.query_row(sql, sample, |row| row.get::<_, i64>(0))?;
                let seen = usize::try_from(seen.unwrap_or(0)).unwrap_or(usize::MAX);
                Ok(estimate_frequency(newest.ids.len(), seen, documents))
            }
            Some(_) | None => Ok(newest.ids.len() as u64),
        }
    }

    /// Loads a document to rank, unless its session is hidden.
    fn load_candidate(
        &self,
        id: SearchDocumentId,
        shown: &mut ShownSessions,
    ) -> Result<Option<SearchCandidate>, StoreError> {
        let sql = "SELECT session, counts FROM search_documents WHERE id = ?1";
        let found = self.query_row(sql, [id.get()], |row| {
            let counts = WordCounts::from_bytes(row.get_ref(1)?.as_blob()?);
            Ok((uuid_column(row, 0)?, SearchCandidate { id, counts }))
        })?;
        let Some((session, candidate)) = found else {
            return Ok(None);
        };
        Ok(shown.check(self, session)?.then_some(candidate))
    }

    /// Checks whether a document exists and its session is not hidden.
    pub(super) fn is_shown(
        &self,
        id: SearchDocumentId,
        shown: &mut ShownSessions,
    ) -> Result<bool, StoreError> {
        let sql = "SELECT session FROM search_documents WHERE id = ?1";
        match self.query_row(sql, [id.get()], |row| uuid_column(row, 0))? {
            Some(session) => shown.check(self, session),
            None => Ok(false),
        }
    }
}

/// The sessions that were checked during one search. Hits come from few sessions, so each is looked up
/// once.
#[derive(Default)]
pub(super) struct ShownSessions(HashMap<Uuid, bool>);

impl ShownSessions {
    fn check(&mut self, read: &SqliteReader<'_>, session: Uuid) -> Result<bool, StoreError> {
        if let Some(is_shown) = self.0.get(&session) {
            return Ok(*is_shown);
        }
        let sql = "SELECT hidden_at IS NULL FROM sessions WHERE id = ?1";
        let found = read.query_row(sql, [session.as_bytes()], |row| row.get(0))?;
        let is_shown = found.unwrap_or(false);
        self.0.insert(session, is_shown);
        Ok(is_shown)
    }
}

fn read_id(row: &rusqlite::Row<'_>) -> rusqlite::Result<Result<SearchDocumentId, StoreError>> {
    Ok(Ok(SearchDocumentId::new(row.get(0)?)))
}
