//! The search index of a store: a projection of its logs that can be rebuilt at any time.

use std::{future::Future, sync::Arc};

use crate::{
    EmbedderId, IndexEntry, RankedDocument, SearchDocument, SearchDocumentId, SearchRequirement,
    SessionId, SessionTitle, StoreError, TextSearch, Timestamp, VectorQuery, WordCounts,
};

/// The search index of a store.
///
/// It is behind the logs: [`stale_sessions`](Self::stale_sessions) says which sessions have events
/// that are not indexed, and [`index_batch`](Self::index_batch) stores documents together with the
/// place up to which the log is indexed. A crash between two batches loses nothing.
pub trait SearchStore: Send + Sync + 'static {
    /// Lists sessions whose events or title are not indexed yet.
    fn stale_sessions(
        &self,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<StaleSession>, StoreError>> + Send;

    /// Stores documents and the place up to which the session is indexed, in one transaction.
    ///
    /// Returns false, and stores nothing, if the session is no longer at the place where the batch
    /// begins: another process has indexed it, or it was erased.
    fn index_batch(
        &self,
        batch: IndexBatch,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Finds documents by their words: for each term the newest ones, and those that have all terms.
    /// Documents of hidden sessions are left out.
    fn match_text(
        &self,
        search: TextSearch,
    ) -> impl Future<Output = Result<TextMatches, StoreError>> + Send;

    /// Finds the documents whose vectors of this embedder are nearest. Documents of hidden sessions
    /// are left out.
    fn match_vectors(
        &self,
        search: VectorSearch,
    ) -> impl Future<Output = Result<VectorMatches, StoreError>> + Send;

    /// Loads documents with their texts from the logs. Those that no longer exist are missing.
    fn load_documents(
        &self,
        ids: Vec<SearchDocumentId>,
    ) -> impl Future<Output = Result<Vec<(SearchDocumentId, SearchDocument)>, StoreError>> + Send;

    /// Lists documents that have no vector of this embedder, newest first.
    fn unembedded_documents(
        &self,
        embedder: EmbedderId,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<(SearchDocumentId, SearchDocument)>, StoreError>> + Send;

    /// Stores vectors. Each replaces the one that another embedder made; documents that no longer
    /// exist get none.
    fn put_vectors(
        &self,
        embedder: EmbedderId,
        vectors: Vec<(SearchDocumentId, Vec<f32>)>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Returns an embedder whose vectors are still stored and are to be replaced by those of this one;
    /// none if every vector is of this one.
    fn replaced_embedder(
        &self,
        embedder: EmbedderId,
    ) -> impl Future<Output = Result<Option<EmbedderId>, StoreError>> + Send;

    /// Lists the directories that sessions work in.
    fn session_directories(&self)
    -> impl Future<Output = Result<Vec<Arc<str>>, StoreError>> + Send;

    /// Counts documents, vectors and what is not indexed yet.
    fn search_counts(
        &self,
        embedder: Option<EmbedderId>,
    ) -> impl Future<Output = Result<SearchCounts, StoreError>> + Send;

    /// Deletes the index, so that every session has to be indexed again. The logs stay.
    fn clear_index(&self) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// A session that is not completely indexed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaleSession {
    /// The session.
    pub session: SessionId,
    /// The number of the last event that is indexed.
    pub indexed: u64,
    /// The number of its last event.
    pub revision: u64,
    /// The time of its first event, by which a session that was erased and begun again is known.
    pub created_at: Timestamp,
    /// The time of its last event.
    pub updated_at: Timestamp,
    /// The directory that it works in.
    pub directory: Option<Arc<str>>,
    /// Its title.
    pub title: Option<SessionTitle>,
    /// True if it was given a title that is not indexed yet.
    pub is_retitled: bool,
}

/// Documents of one session, to be stored together.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexBatch {
    /// The session.
    pub session: SessionId,
    /// The time of its first event.
    pub created_at: Timestamp,
    /// The number of the last event that was indexed before.
    pub from: u64,
    /// The number of the last event that is indexed with this batch.
    pub to: u64,
    /// The documents, in the order of their events.
    pub entries: Vec<IndexEntry>,
    /// The document of its title, if that is to be replaced.
    pub title: Option<Box<IndexEntry>>,
}

impl IndexBatch {
    /// Checks whether the title of the batch is still that of the session. A store rejects a batch
    /// whose session was renamed or erased meanwhile.
    pub fn has_title(&self, current: Option<&str>) -> bool {
        let text = |title: &IndexEntry| title.document.text == current.unwrap_or_default();
        self.title.as_deref().is_none_or(text)
    }
}

/// The documents that a store found for words.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TextMatches {
    /// The number of documents of the index.
    pub documents: u64,
    /// Their average number of words.
    pub average_length: f32,
    /// The documents of each term, in the order of the terms.
    pub terms: Vec<TermMatches>,
    /// The documents to rank.
    pub candidates: Vec<SearchCandidate>,
    /// True if older documents that have all terms were left out.
    pub is_truncated: bool,
    /// True if there are events or titles that are not indexed yet.
    pub is_behind: bool,
    /// Candidates that the store loaded along, because they are few; the others are loaded when they
    /// are hits.
    pub loaded: Vec<(SearchDocumentId, SearchDocument)>,
}

/// The documents that have a term.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TermMatches {
    /// The newest ones that fulfil the requirement.
    pub ids: Vec<SearchDocumentId>,
    /// The number of documents that have the term; an estimate if there are many.
    pub frequency: u64,
}

/// A document to rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchCandidate {
    /// The document.
    pub id: SearchDocumentId,
    /// How often its words occur.
    pub counts: WordCounts,
}

/// A search for vectors in a store.
#[derive(Debug, Clone, PartialEq)]
pub struct VectorSearch {
    /// The embedder whose vectors are compared.
    pub embedder: EmbedderId,
    /// The number of dimensions of its vectors.
    pub dimensions: usize,
    /// The vector to compare with.
    pub query: VectorQuery,
    /// What every hit has to fulfil.
    pub required: SearchRequirement,
    /// The maximum number of documents that are checked for a requirement: the newest ones.
    pub most_allowed: usize,
    /// The maximum number of hits.
    pub limit: usize,
}

/// The nearest documents.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VectorMatches {
    /// The documents, the nearest first, with their similarity.
    pub ranking: Vec<RankedDocument>,
    /// True if older documents that fulfil the requirement were left out.
    pub is_truncated: bool,
}

/// The size of an index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SearchCounts {
    /// The number of documents.
    pub documents: u64,
    /// The number of documents that have a vector of the embedder.
    pub embedded: u64,
    /// The number of sessions that are not completely indexed.
    pub stale_sessions: u64,
    /// The number of their events that are not indexed.
    pub stale_events: u64,
}

/// The number of documents over which the frequency of a term is estimated.
pub const FREQUENCY_SAMPLE: usize = 20_000;

/// Estimates in how many documents a term occurs: `found` of the newest `seen` documents have it.
pub fn estimate_frequency(found: usize, seen: usize, documents: u64) -> u64 {
    if seen == 0 {
        return found as u64;
    }
    let share = found as f64 / seen.max(found) as f64;
    ((documents as f64 * share) as u64).max(found as u64)
}
