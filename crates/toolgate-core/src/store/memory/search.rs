//! The index of the in-memory store: every document is read for every search.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    EmbedderId, IndexBatch, IndexEntry, MatchTerm, SearchCandidate, SearchCounts, SearchDocument,
    SearchDocumentId, SearchRequirement, SearchStore, SessionId, StaleSession, StoreError,
    TermMatches, TextMatches, TextSearch, VectorMatches, VectorSearch, best_documents,
    encode_vector,
    search::rank::RankedDocument,
    store::memory::{MemoryState, MemoryStore},
};

/// The documents and their vectors.
#[derive(Default)]
pub(super) struct MemoryIndex {
    entries: BTreeMap<SearchDocumentId, IndexEntry>,
    vectors: BTreeMap<SearchDocumentId, (EmbedderId, Vec<u8>)>,
}

impl MemoryIndex {
    pub(super) fn erase_sessions(&mut self, sessions: &BTreeSet<SessionId>) {
        self.entries
            .retain(|_, entry| !sessions.contains(&entry.document.session));
        self.vectors.retain(|id, _| self.entries.contains_key(id));
    }

    fn insert(&mut self, entry: IndexEntry) {
        let mut id = SearchDocumentId::first_at(entry.document.at);
        while self.entries.contains_key(&SearchDocumentId::new(id)) {
            id += 1;
        }
        self.entries.insert(SearchDocumentId::new(id), entry);
    }

    fn remove_title(&mut self, session: SessionId) {
        self.entries
            .retain(|_, entry| entry.document.session != session || entry.document.sequence > 0);
        self.vectors.retain(|id, _| self.entries.contains_key(id));
    }

    /// Returns the documents that fulfil a requirement and have a term, newest first.
    fn newest<'a>(
        &'a self,
        required: &'a SearchRequirement,
        terms: &'a [&'a MatchTerm],
    ) -> impl Iterator<Item = SearchDocumentId> + 'a {
        let newest = self.entries.iter().rev();
        let found = newest.filter(move |(_, entry)| {
            fulfils(entry, required) && terms.iter().all(|term| has_term(entry, term))
        });
        found.map(|(id, _)| *id)
    }
}

impl SearchStore for MemoryStore {
    async fn stale_sessions(&self, limit: usize) -> Result<Vec<StaleSession>, StoreError> {
        let state = self.lock_state();
        let known = state.sessions.iter();
        let stale =
            known.filter(|(_, known)| known.revision() > known.indexed || known.is_retitled);
        let stale = stale.map(|(session, known)| {
            let row = known.to_row(*session);
            StaleSession {
                session: *session,
                indexed: known.indexed,
                revision: row.revision,
                created_at: row.created_at,
                updated_at: row.updated_at,
                directory: row.directory,
                title: row.title,
                is_retitled: known.is_retitled,
            }
        });
        Ok(stale.take(limit).collect())
    }

    async fn index_batch(&self, batch: IndexBatch) -> Result<bool, StoreError> {
        let state = &mut *self.lock_state();
        let Some(known) = state.sessions.get_mut(&batch.session) else {
            return Ok(false);
        };
        let row = known.to_row(batch.session);
        let is_same = known.indexed == batch.from
            && row.created_at == batch.created_at
            && batch.has_title(row.title.as_ref().map(|title| title.as_str()));
        if !is_same || known.revision() < batch.to {
            return Ok(false);
        }
        known.indexed = batch.to;
        if let Some(title) = batch.title {
            known.is_retitled = false;
            state.index.remove_title(batch.session);
            state.index.insert(*title);
        }
        batch
            .entries
            .into_iter()
            .for_each(|entry| state.index.insert(entry));
        Ok(true)
    }

    async fn match_text(&self, search: TextSearch) -> Result<TextMatches, StoreError> {
        let state = self.lock_state();
        let index = &state.index;
        let mut found = TextMatches {
            documents: index.entries.len() as u64,
            average_length: average_length(index),
            is_behind: state
                .sessions
                .values()
                .any(|known| known.revision() > known.indexed || known.is_retitled),
            ..TextMatches::default()
        };
        let mut ids = BTreeSet::new();
        let everything = SearchRequirement::default();
        for term in &search.terms {
            let term = [&**term];
            let list = state.newest_shown(&search.required, &term, search.most_per_term);
            ids.extend(list.ids.iter().copied());
            found.terms.push(TermMatches {
                ids: list.ids,
                frequency: index.newest(&everything, &term).count() as u64,
            });
        }
        // Documents with all words may be older than the newest ones of each word.
        let all: Vec<&MatchTerm> = search.terms.iter().map(|term| &**term).collect();
        let list = state.newest_shown(&search.required, &all, search.most_per_term);
        ids.extend(list.ids);
        found.is_truncated = list.is_truncated;
        found.candidates = ids
            .into_iter()
            .map(|id| SearchCandidate {
                id,
                counts: index.entries[&id].counts.clone(),
            })
            .collect();
        Ok(found)
    }

    async fn match_vectors(&self, search: VectorSearch) -> Result<VectorMatches, StoreError> {
        let state = self.lock_state();
        let index = &state.index;
        let vectors = index.vectors.iter();
        let ours = vectors.filter(|(_, (embedder, _))| *embedder == search.embedder);
        let ranked = ours.filter_map(|(id, (_, vector))| {
            let entry = index.entries.get(id)?;
            let is_found = fulfils(entry, &search.required) && state.is_shown(entry);
            let score = search.query.similarity(vector).filter(|_| is_found)?;
            Some(RankedDocument { id: *id, score })
        });
        Ok(VectorMatches {
            ranking: best_documents(ranked, search.limit),
            is_truncated: false,
        })
    }

    async fn load_documents(
        &self,
        ids: Vec<SearchDocumentId>,
    ) -> Result<Vec<(SearchDocumentId, SearchDocument)>, StoreError> {
        let state = self.lock_state();
        let found = |id: SearchDocumentId| {
            let document = &state.index.entries.get(&id)?.document;
            let session = state.sessions.get(&document.session)?;
            let is_shown = session.hidden_at.is_none();
            is_shown.then(|| (id, document.clone()))
        };
        Ok(ids.into_iter().filter_map(found).collect())
    }

    async fn unembedded_documents(
        &self,
        embedder: EmbedderId,
        limit: usize,
    ) -> Result<Vec<(SearchDocumentId, SearchDocument)>, StoreError> {
        let state = self.lock_state();
        let is_missing = |id: &SearchDocumentId| {
            let vector = state.index.vectors.get(id);
            vector.is_none_or(|(made_by, _)| *made_by != embedder)
        };
        let missing = state
            .index
            .entries
            .iter()
            .rev()
            .filter(|(id, _)| is_missing(id));
        Ok(missing
            .take(limit)
            .map(|(id, entry)| (*id, entry.document.clone()))
            .collect())
    }

    async fn put_vectors(
        &self,
        embedder: EmbedderId,
        vectors: Vec<(SearchDocumentId, Vec<f32>)>,
    ) -> Result<(), StoreError> {
        let index = &mut self.lock_state().index;
        for (id, vector) in vectors {
            if index.entries.contains_key(&id) {
                index
                    .vectors
                    .insert(id, (embedder.clone(), encode_vector(&vector)));
            }
        }
        Ok(())
    }

    async fn replaced_embedder(
        &self,
        embedder: EmbedderId,
    ) -> Result<Option<EmbedderId>, StoreError> {
        let state = self.lock_state();
        let mut made_by = state.index.vectors.values().map(|(made_by, _)| made_by);
        Ok(made_by.find(|made_by| **made_by != embedder).cloned())
    }

    async fn session_directories(&self) -> Result<Vec<Arc<str>>, StoreError> {
        let state = self.lock_state();
        let directories = state
            .sessions
            .values()
            .filter_map(|known| known.directory.clone());
        Ok(directories.collect::<BTreeSet<_>>().into_iter().collect())
    }

    async fn search_counts(
        &self,
        embedder: Option<EmbedderId>,
    ) -> Result<SearchCounts, StoreError> {
        let state = self.lock_state();
        let vectors = state.index.vectors.values();
        let embedded = vectors.filter(|(made_by, _)| Some(made_by) == embedder.as_ref());
        let stale = state.sessions.values();
        let stale = stale.filter(|known| known.revision() > known.indexed || known.is_retitled);
        let behind = stale.map(|known| known.revision() - known.indexed);
        let behind: Vec<u64> = behind.collect();
        Ok(SearchCounts {
            documents: state.index.entries.len() as u64,
            embedded: embedded.count() as u64,
            stale_sessions: behind.len() as u64,
            stale_events: behind.iter().sum(),
        })
    }

    async fn clear_index(&self) -> Result<(), StoreError> {
        let state = &mut *self.lock_state();
        state.index = MemoryIndex::default();
        for known in state.sessions.values_mut() {
            known.indexed = 0;
            known.is_retitled = known.renamed.is_some();
        }
        Ok(())
    }
}

struct NewestDocuments {
    ids: Vec<SearchDocumentId>,
    is_truncated: bool,
}

impl MemoryState {
    fn newest_shown(
        &self,
        required: &SearchRequirement,
        terms: &[&MatchTerm],
        limit: usize,
    ) -> NewestDocuments {
        let shown = self.index.newest(required, terms);
        let shown = shown.filter(|id| self.is_shown(&self.index.entries[id]));
        let mut ids: Vec<_> = shown.take(limit + 1).collect();
        let is_truncated = ids.len() > limit;
        ids.truncate(limit);
        NewestDocuments { ids, is_truncated }
    }

    fn is_shown(&self, entry: &IndexEntry) -> bool {
        let session = self.sessions.get(&entry.document.session);
        session.is_some_and(|known| known.hidden_at.is_none())
    }
}

fn has_term(entry: &IndexEntry, term: &MatchTerm) -> bool {
    let words: Vec<&str> = entry.words.split(' ').collect();
    let names: Vec<&str> = entry.names.split(' ').collect();
    term.matches(&words, &names)
}

fn fulfils(entry: &IndexEntry, required: &SearchRequirement) -> bool {
    let has_facet = |group: &Vec<crate::SearchFacet>| {
        let mut tokens = entry.facets.split(' ');
        tokens.any(|token| group.iter().any(|facet| facet.matches(token)))
    };
    required.includes_time(entry.document.at)
        && required.facets.iter().all(has_facet)
        && required
            .phrases
            .iter()
            .all(|phrase| has_term(entry, phrase))
        && !required
            .excluded
            .iter()
            .any(|excluded| has_term(entry, excluded))
}

fn average_length(index: &MemoryIndex) -> f32 {
    let total: u64 = index
        .entries
        .values()
        .map(|entry| u64::from(entry.counts.length()))
        .sum();
    total as f32 / index.entries.len().max(1) as f32
}
