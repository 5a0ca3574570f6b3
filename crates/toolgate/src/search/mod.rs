//! Search over everything that was said and done: [`Gate::search`](crate::Gate::search).
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use toolgate::{Gate, model::ScriptedModel, search::SearchRequest};
//!
//! let gate = Gate::in_memory()?;
//! let session = gate.session(ScriptedModel::new(["The walrus is deployed."])).await?;
//! session.run("Please deploy the walrus.").await?;
//! let answer = gate.search().search(&SearchRequest::new("walrus role:assistant")).await?;
//! assert_eq!(answer.hits[0].snippet.text, "The walrus is deployed.");
//! # Ok::<(), toolgate::Error>(())
//! # }).unwrap();
//! ```

mod section;

pub use self::section::{EmbedderChoice, EndpointSection, SearchSection};
pub use toolgate_core::{
    EmbedError, Embedder, EmbedderId, InvalidSearchCursor, InvalidSearchFilter, MatchTerm,
    SEARCH_FILTER_WORDS, SearchAnswer, SearchCounts, SearchCursor, SearchDocument, SearchError,
    SearchFilter, SearchHit, SearchKind, SearchMode, SearchProgress, SearchQuery, SearchRequest,
    SearchService, SearchSnippet, SearchStatus, SearchStore, SearchTime, is_project, split_words,
};
