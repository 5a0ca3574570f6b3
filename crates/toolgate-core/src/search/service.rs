//! The search service: it brings the index up to date, asks the store, ranks, and cuts snippets.

use std::{fmt, sync::Arc};

use hashbrown::HashMap;

use crate::{
    Clock, Embedder, EmbedderId, MatchTerm, RankedDocument, SearchAnswer, SearchCounts,
    SearchCursor, SearchDocument, SearchDocumentId, SearchError, SearchHit, SearchMode,
    SearchProgress, SearchRequest, SearchRequirement, SearchSnippet, StoreHandle, TextSearch,
    VectorQuery, VectorSearch,
    search::{
        indexing::{embed_documents, index_events},
        rank::{RANK_DEPTH, fuse_rankings, rank_text, scale_scores},
    },
};

/// The number of events that a search indexes before it answers.
const EVENTS_BEFORE_ANSWER: u64 = 2_000;

/// The number of documents that a search embeds before it answers.
const EMBEDDED_BEFORE_ANSWER: u64 = 256;

/// The number of documents that are ranked for one query: the newest ones of each word.
const MAX_CANDIDATES: usize = 800;

/// The number of documents that a filter may leave for semantic search: the newest ones.
const MAX_ALLOWED: usize = 20_000;

/// Documents that are loaded already.
type LoadedDocuments = HashMap<SearchDocumentId, SearchDocument>;

/// Searches all sessions of a store.
///
/// The log is the truth; the index is filled behind it. A search first indexes what is new, up to a
/// bound, and says so if something is left.
#[derive(Clone)]
pub struct SearchService {
    store: StoreHandle,
    clock: Arc<dyn Clock>,
    embedder: Option<Arc<dyn Embedder>>,
}

/// The state of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SearchStatus {
    /// The numbers of documents, vectors and events that are not indexed.
    pub counts: SearchCounts,
    /// The id of the embedder, if there is one.
    pub embedder: Option<EmbedderId>,
    /// Another embedder whose vectors are still stored, and are to be replaced.
    pub replaced: Option<EmbedderId>,
}

impl SearchStatus {
    /// Returns a hint if the vectors are those of another embedder: two projects that share a database
    /// would replace each other's again and again.
    pub fn hint(&self) -> Option<String> {
        let embedder = self.embedder.as_ref()?;
        let replaced = self.replaced.as_ref()?;
        Some(replacing_hint(replaced, embedder))
    }
}

impl SearchService {
    /// Creates a service without an embedder.
    pub fn new(store: impl Into<StoreHandle>, clock: impl Clock) -> Self {
        Self {
            store: store.into(),
            clock: Arc::new(clock),
            embedder: None,
        }
    }

    /// Uses an embedder for semantic and hybrid search.
    #[must_use]
    pub fn with_embedder(mut self, embedder: Arc<dyn Embedder>) -> Self {
        self.embedder = Some(embedder);
        self
    }

    /// Searches. Any text is a valid query; without an embedder, every mode searches by words.
    ///
    /// # Errors
    ///
    /// Fails if the store or the embedder fails, or if the cursor belongs to another search.
    pub async fn search(&self, request: &SearchRequest) -> Result<SearchAnswer, SearchError> {
        let mut answer = SearchAnswer {
            hints: request.query.hints.clone(),
            ..SearchAnswer::default()
        };
        let mode = self.effective_mode(request.mode, &mut answer);
        let mut loaded = LoadedDocuments::new();
        let ranking = match &request.cursor {
            Some(cursor) => cursor
                .hits_of(request.fingerprint())
                .ok_or(SearchError::OtherSearch)?,
            None => self.rank(request, mode, &mut answer, &mut loaded).await?,
        };
        let split = ranking.len().min(request.limit);
        let (page, rest) = ranking.split_at(split);
        answer.hits = self.load_hits(request, page, loaded).await?;
        answer.next = SearchCursor::new(request.fingerprint(), rest);
        if answer.hits.is_empty() && answer.next.is_none() {
            answer.hints.push(empty_hint(request).to_owned());
        }
        Ok(answer)
    }

    /// Indexes what is new, up to a number of events and documents to embed.
    ///
    /// # Errors
    ///
    /// Fails if the store or the embedder fails. What was indexed before stays indexed.
    pub async fn catch_up(&self, most: u64) -> Result<SearchProgress, SearchError> {
        let mut progress = index_events(&self.store, most, |_| ()).await?;
        if let Some(embedder) = &self.embedder {
            let embedded = embed_documents(&self.store, &**embedder, most, |_| ()).await?;
            progress.embedded = embedded.embedded;
            progress.is_complete &= embedded.is_complete;
        }
        Ok(progress)
    }

    /// Deletes the index and builds it again from the logs. Other processes can write meanwhile.
    ///
    /// If it is interrupted, [`continue_index`](Self::continue_index) continues it.
    ///
    /// # Errors
    ///
    /// Fails if the store or the embedder fails.
    pub async fn reindex(
        &self,
        report: impl FnMut(SearchProgress),
    ) -> Result<SearchProgress, SearchError> {
        self.store.clear_index().await?;
        self.continue_index(report).await
    }

    /// Indexes everything that is not indexed yet.
    ///
    /// # Errors
    ///
    /// Fails if the store or the embedder fails. What was indexed before stays indexed.
    pub async fn continue_index(
        &self,
        mut report: impl FnMut(SearchProgress),
    ) -> Result<SearchProgress, SearchError> {
        let pending_events = self.status().await?.counts.stale_events;
        let mut total = index_events(&self.store, u64::MAX, |events| {
            report(SearchProgress {
                events,
                pending_events,
                ..SearchProgress::default()
            });
        })
        .await?;
        total.pending_events = pending_events;
        if let Some(embedder) = &self.embedder {
            let counts = self.status().await?.counts;
            total.pending_documents = counts.documents.saturating_sub(counts.embedded);
            let indexed = total;
            let done = embed_documents(&self.store, &**embedder, u64::MAX, |embedded| {
                report(SearchProgress {
                    embedded,
                    is_complete: false,
                    ..indexed
                });
            })
            .await?;
            total.embedded = done.embedded;
            total.is_complete &= done.is_complete;
        }
        Ok(total)
    }

    /// Returns the state of the index.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn status(&self) -> Result<SearchStatus, SearchError> {
        let embedder = self.embedder.as_ref().map(|embedder| embedder.id().clone());
        let counts = self.store.search_counts(embedder.clone()).await?;
        let replaced = match &embedder {
            Some(embedder) => self.store.replaced_embedder(embedder.clone()).await?,
            None => None,
        };
        Ok(SearchStatus {
            counts,
            embedder,
            replaced,
        })
    }

    fn effective_mode(&self, asked: SearchMode, answer: &mut SearchAnswer) -> SearchMode {
        match asked {
            SearchMode::Semantic | SearchMode::Hybrid if self.embedder.is_none() => {
                answer.searched = Some(SearchMode::Text);
                if asked == SearchMode::Semantic {
                    answer.hints.push(
                        "there is no embedder, so words were searched; set embedder in the section [search] of the configuration"
                            .into(),
                    );
                }
                SearchMode::Text
            }
            SearchMode::Text | SearchMode::Semantic | SearchMode::Hybrid => asked,
        }
    }

    /// Ranks the hits of the first page and those after it.
    async fn rank(
        &self,
        request: &SearchRequest,
        mode: SearchMode,
        answer: &mut SearchAnswer,
        loaded: &mut LoadedDocuments,
    ) -> Result<Vec<RankedDocument>, SearchError> {
        let mut filter = request.filter.clone();
        filter.merge(&request.query.filter);
        if request.query.is_empty() && filter.is_empty() {
            return Ok(Vec::new());
        }
        // A search by words notices by itself that something is not indexed.
        if mode != SearchMode::Text {
            self.index_new_events(answer).await?;
        }
        let directories = if filter.projects.is_empty() {
            Vec::new()
        } else {
            self.store.session_directories().await?
        };
        let mut required = SearchRequirement {
            phrases: request.query.phrases.clone(),
            excluded: request.query.excluded.clone(),
            ..SearchRequirement::default()
        };
        filter.apply(&mut required, self.clock.now(), &directories);
        let mut meant = SearchAnswer::default();
        // At the same time: a store has a thread for each.
        let (text, semantic) = futures::join!(
            async {
                match mode {
                    SearchMode::Text | SearchMode::Hybrid => {
                        self.rank_words(request, mode, &required, answer, loaded)
                            .await
                    }
                    SearchMode::Semantic => Ok(Vec::new()),
                }
            },
            async {
                match mode {
                    SearchMode::Semantic | SearchMode::Hybrid => {
                        self.rank_meaning(request, &required, &mut meant).await
                    }
                    SearchMode::Text => Ok(Vec::new()),
                }
            }
        );
        let text = text?;
        let semantic = semantic?;
        answer.hints.append(&mut meant.hints);
        answer.notices.append(&mut meant.notices);
        let mut ranking = match mode {
            SearchMode::Text => text,
            SearchMode::Semantic => semantic,
            SearchMode::Hybrid => fuse_rankings(&text, &semantic),
        };
        scale_scores(&mut ranking, mode);
        Ok(ranking)
    }

    async fn rank_words(
        &self,
        request: &SearchRequest,
        mode: SearchMode,
        required: &SearchRequirement,
        answer: &mut SearchAnswer,
        loaded: &mut LoadedDocuments,
    ) -> Result<Vec<RankedDocument>, SearchError> {
        let phrases = request.query.phrases.iter().cloned().map(Arc::new);
        let terms: Vec<_> = request.query.terms.iter().cloned().chain(phrases).collect();
        let search = TextSearch {
            most_per_term: MAX_CANDIDATES / terms.len().max(2),
            terms,
            required: required.clone(),
        };
        let mut found = self.store.match_text(search.clone()).await?;
        // Nearly always everything is indexed, and then this was the only read of the store.
        if found.is_behind && mode == SearchMode::Text {
            self.index_new_events(answer).await?;
            found = self.store.match_text(search.clone()).await?;
        }
        if found.is_truncated {
            answer.notices.push(
                "a word or filter matches very many documents, so only the newest of them were ranked"
                    .into(),
            );
        }
        let ranking = rank_text(&search, &found);
        loaded.extend(found.loaded);
        Ok(ranking)
    }

    async fn rank_meaning(
        &self,
        request: &SearchRequest,
        required: &SearchRequirement,
        answer: &mut SearchAnswer,
    ) -> Result<Vec<RankedDocument>, SearchError> {
        let plain = request.query.plain_text.as_str();
        let Some(embedder) = self.embedder.as_ref().filter(|_| !plain.is_empty()) else {
            return Ok(Vec::new());
        };
        let embedded =
            embed_documents(&self.store, &**embedder, EMBEDDED_BEFORE_ANSWER, |_| ()).await?;
        if !embedded.is_complete {
            answer.notices.push(
                "some documents are not embedded yet, so semantic search is incomplete".into(),
            );
            let replaced = self.store.replaced_embedder(embedder.id().clone()).await?;
            answer
                .hints
                .extend(replaced.map(|other| replacing_hint(&other, embedder.id())));
        }
        let vectors = embedder.embed(&[plain]).await?;
        let Some(vector) = vectors
            .first()
            .filter(|vector| vector.iter().any(|value| *value != 0.0))
        else {
            return Ok(Vec::new());
        };
        let search = VectorSearch {
            embedder: embedder.id().clone(),
            dimensions: embedder.dimensions(),
            query: VectorQuery::new(vector),
            required: required.clone(),
            most_allowed: MAX_ALLOWED,
            limit: RANK_DEPTH,
        };
        let mut found = self.store.match_vectors(search).await?;
        if found.is_truncated {
            answer.notices.push(
                "a filter leaves very many documents, so only the newest of them were compared by meaning"
                    .into(),
            );
        }
        // A vector of zeros is similar to nothing, and an opposite meaning is no hit.
        found.ranking.retain(|hit| hit.score > 0.0);
        Ok(found.ranking)
    }

    async fn index_new_events(&self, answer: &mut SearchAnswer) -> Result<(), SearchError> {
        let progress = index_events(&self.store, EVENTS_BEFORE_ANSWER, |_| ()).await?;
        if !progress.is_complete {
            answer
                .notices
                .push("new events are not indexed yet, so the newest hits may be missing".into());
            answer
                .hints
                .push("`toolgate search reindex --continue` indexes everything now".into());
        }
        Ok(())
    }

    async fn load_hits(
        &self,
        request: &SearchRequest,
        page: &[RankedDocument],
        mut loaded: LoadedDocuments,
    ) -> Result<Vec<SearchHit>, SearchError> {
        let missing = page
            .iter()
            .map(|hit| hit.id)
            .filter(|id| !loaded.contains_key(id));
        let missing: Vec<_> = missing.collect();
        if !missing.is_empty() {
            loaded.extend(self.store.load_documents(missing).await?);
        }
        let terms = request.query.marked_terms();
        // A document that was erased after it was ranked is left out.
        let hits = page.iter().filter_map(|ranked| {
            let document = loaded.remove(&ranked.id)?;
            Some(to_hit(document, ranked.score, &terms))
        });
        Ok(hits.collect())
    }
}

fn to_hit(document: SearchDocument, score: f32, terms: &[&MatchTerm]) -> SearchHit {
    SearchHit {
        snippet: SearchSnippet::new(&document.text, terms),
        session: document.session,
        sequence: document.sequence,
        kind: document.kind,
        tool: document.tool,
        status: document.status,
        agent: document.agent,
        model: document.model,
        project: document.project,
        at: document.at,
        score,
    }
}

fn replacing_hint(replaced: &EmbedderId, embedder: &EmbedderId) -> String {
    format!(
        "the vectors of {replaced} are being replaced by those of {embedder}; projects that share a database need the same embedder, or each replaces the vectors of the other"
    )
}

fn empty_hint(request: &SearchRequest) -> &'static str {
    let query = &request.query;
    if query.is_empty() && request.filter.is_empty() {
        "write a word, a \"phrase\", or a filter such as tool:shell"
    } else if !query.filter.is_empty() || !request.filter.is_empty() {
        "no document passes the filters; leave one out"
    } else if !query.phrases.is_empty() || !query.excluded.is_empty() {
        "leave out the quotes or the exclusions, or use fewer words"
    } else {
        "use other words, or the beginning of one: depl*"
    }
}

impl fmt::Debug for SearchService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let embedder = self.embedder.as_ref().map(|embedder| embedder.id().clone());
        f.debug_struct("SearchService")
            .field("embedder", &embedder)
            .finish_non_exhaustive()
    }
}
