//! Memories: stores, recalls, changes and forgets them, for one user and one project.

pub(crate) mod embedding;
pub(crate) mod extractor;
pub(crate) mod model_extractor;
pub(crate) mod recall;
pub(crate) mod tools;
mod transfer;

use std::{fmt, sync::Arc};

use toolgate_core::{
    ChangedMemory, Clock, Embedder, ExpiryFilter, ForgottenMemories, IdSource, InvalidMemoryText,
    MemoryChange, MemoryDraft, MemoryFilter, MemoryId, MemoryKind, MemoryOwner, MemoryRecord,
    MemorySource, MemoryText, Principal, PutMemory, RankedMemory, RecallCandidate, RecallOptions,
    RecallScope, Redactor, ScopeWord, SessionId, StoreError, StoreHandle, Timestamp, rank_memories,
};

use self::embedding::MemoryEmbedder;
pub use self::transfer::ImportedMemories;
use crate::{SystemClock, TimeOrderedIds};

/// The similarity from which two texts count as the same memory.
const NEAR_DUPLICATE: f32 = 0.95;

/// The maximum number of memories that are compared with a query: the newest ones of its scopes.
const MAX_CANDIDATES: usize = 10_000;

/// The memories of one user, with what they need: a store, a redactor, a clock, and an embedder if
/// there is one. Clones share it.
///
/// Text is redacted before it is stored. A redactor that fails stores nothing.
///
/// ```
/// use toolgate_core::{MemoryKind, MemoryStore, RecallOptions, RecallScope, StoreHandle};
/// use toolgate_runtime::{Memory, NewMemory};
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let memory = Memory::new(StoreHandle::new(MemoryStore::new()));
/// memory.add(NewMemory::new("I prefer small commits.", RecallScope::User)).await?;
/// let found = memory.search("How large should commits be?", &RecallOptions::default()).await?;
/// assert_eq!(found[0].record.content.as_str(), "I prefer small commits.");
/// # Ok::<(), toolgate_runtime::MemoryError>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Memory {
    store: StoreHandle,
    embedder: Option<MemoryEmbedder>,
    redactor: Option<Arc<dyn Redactor>>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    owner: Option<Principal>,
    project: Option<Arc<str>>,
}

/// A memory to be stored.
#[derive(Debug, Clone)]
pub struct NewMemory {
    /// The text; secrets in it are redacted.
    pub content: String,
    /// The kind; `note` by default.
    pub kind: MemoryKind,
    /// The scope.
    pub scope: RecallScope,
    /// The source; by default, the user added it.
    pub source: MemorySource,
    /// The time at which it expires, if it does.
    pub expires_at: Option<Timestamp>,
}

impl NewMemory {
    /// Creates a note that the user adds and that does not expire.
    pub fn new(content: impl Into<String>, scope: RecallScope) -> Self {
        Self {
            content: content.into(),
            kind: MemoryKind::Note,
            scope,
            source: MemorySource::new(toolgate_core::MemoryOrigin::User),
            expires_at: None,
        }
    }
}

/// A change of a memory; what has no value stays as it is.
#[derive(Debug, Clone, Default)]
pub struct MemoryEdit {
    /// The new text.
    pub content: Option<String>,
    /// The new kind.
    pub kind: Option<MemoryKind>,
    /// The new time at which it expires, or that it does not.
    pub expires_at: Option<Option<Timestamp>>,
}

/// The memories to list: a page, newest first.
#[derive(Debug, Clone)]
pub struct MemoryPage {
    /// Only those of these scopes; of all, if there are none.
    pub scopes: Vec<RecallScope>,
    /// Only those of this kind.
    pub kind: Option<MemoryKind>,
    /// Only those that came from this session.
    pub session: Option<SessionId>,
    /// True if expired ones are listed, too.
    pub with_expired: bool,
    /// Only those older than this one: the last of the page before.
    pub before: Option<MemoryId>,
    /// The maximum number.
    pub limit: usize,
}

impl Default for MemoryPage {
    fn default() -> Self {
        Self {
            scopes: Vec::new(),
            kind: None,
            session: None,
            with_expired: false,
            before: None,
            limit: 100,
        }
    }
}

/// The reason why a memory could not be stored, read or forgotten.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The text cannot be a memory.
    #[error("{0}")]
    Text(#[from] InvalidMemoryText),
    /// Secrets in the text could not be redacted, so nothing was stored.
    #[error("the text could not be redacted, so nothing was stored")]
    Redaction,
    /// A scope needs a project, and there is none.
    #[error("there is no project: a directory is needed for the scope project")]
    NoProject,
    /// A scope needs a session, and there is none.
    #[error("there is no session for the scope session")]
    NoSession,
    /// The store failed.
    #[error("the store could not answer: {0}")]
    Store(#[from] StoreError),
}

impl Memory {
    /// Creates the memories in a store, without owner, project, redactor and embedder.
    pub fn new(store: StoreHandle) -> Self {
        Self {
            store,
            embedder: None,
            redactor: None,
            clock: Arc::new(SystemClock::new()),
            ids: Arc::new(TimeOrderedIds),
            owner: None,
            project: None,
        }
    }

    /// Sets the clock.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the source of ids. Later ids have to sort after earlier ones.
    pub fn ids(mut self, ids: Arc<dyn IdSource>) -> Self {
        self.ids = ids;
        self
    }

    /// Sets the redactor, which every text passes before it is stored.
    pub fn redactor(mut self, redactor: Arc<dyn Redactor>) -> Self {
        self.redactor = Some(redactor);
        self
    }

    /// Sets the embedder. Without one, near duplicates are not found, and relevance is by words.
    pub fn embedder(mut self, embedder: Arc<dyn Embedder>) -> Self {
        self.embedder = Some(MemoryEmbedder::new(embedder));
        self
    }

    /// Sets the user to whom the memories belong. Those of other users are not seen.
    pub fn owner(mut self, owner: Principal) -> Self {
        self.owner = Some(owner);
        self
    }

    /// Sets the directory of the project.
    pub fn project(mut self, directory: impl Into<Arc<str>>) -> Self {
        self.project = Some(directory.into());
        self
    }

    /// Returns the directory of the project, if there is one.
    pub fn project_directory(&self) -> Option<&Arc<str>> {
        self.project.as_ref()
    }

    /// Returns the scope that a word means here.
    ///
    /// # Errors
    ///
    /// Fails if there is no project, or no session.
    pub fn resolve_scope(
        &self,
        word: ScopeWord,
        session: Option<SessionId>,
    ) -> Result<RecallScope, MemoryError> {
        match word {
            ScopeWord::User => Ok(RecallScope::User),
            ScopeWord::Project => { self.project.clone() }
                .map(RecallScope::Project)
                .ok_or(MemoryError::NoProject),
            ScopeWord::Session => session
                .map(RecallScope::Session)
                .ok_or(MemoryError::NoSession),
        }
    }

    /// Stores a memory, unless there is one in the same scope that says the same.
    ///
    /// # Errors
    ///
    /// Fails if the text is empty or too long, if it cannot be redacted, or if the store fails.
    pub async fn add(&self, new: NewMemory) -> Result<PutMemory, MemoryError> {
        let content = self.redact(&new.content)?;
        let now = self.clock.now();
        let id = MemoryId::from_source(&*self.ids);
        let mut record = MemoryRecord::new(id, new.kind, content, new.scope, new.source, now);
        record.owner = self.owner.clone();
        record.expires_at = new.expires_at;
        Ok(self.store.put_memory(self.draft(record).await).await?)
    }

    async fn draft(&self, record: MemoryRecord) -> MemoryDraft {
        let vector = match &self.embedder {
            Some(embedder) => embedder.embed_one(record.content.as_str()).await,
            None => None,
        };
        MemoryDraft {
            near: vector.is_some().then_some(NEAR_DUPLICATE),
            vector,
            record,
        }
    }

    /// Returns the text without secrets. Bounded first: a redactor reads all of it.
    fn redact(&self, text: &str) -> Result<MemoryText, MemoryError> {
        let text = MemoryText::new(text)?;
        let Some(redactor) = &self.redactor else {
            return Ok(text);
        };
        let redacted = redactor.redact_text(text.as_str());
        let redacted = redacted.map_err(|_| MemoryError::Redaction)?;
        Ok(MemoryText::new(&redacted)?)
    }

    /// Lists memories, newest first.
    ///
    /// # Errors
    ///
    /// Fails if the store does.
    pub async fn list(&self, page: MemoryPage) -> Result<Vec<MemoryRecord>, MemoryError> {
        let filter = MemoryFilter {
            scopes: page.scopes,
            kind: page.kind,
            session: page.session,
            expiry: if page.with_expired {
                ExpiryFilter::Any
            } else {
                ExpiryFilter::Current(self.clock.now())
            },
            before: page.before,
            limit: page.limit,
            ..self.filter()
        };
        let found = self.store.memories(filter).await?;
        Ok(found.into_iter().map(|stored| stored.record).collect())
    }

    /// Returns a filter for everything of the owner.
    pub fn filter(&self) -> MemoryFilter {
        MemoryFilter::of_owner(self.owner.clone())
    }

    /// Returns a memory, also one that has expired.
    ///
    /// # Errors
    ///
    /// Fails if the store does.
    pub async fn show(&self, id: MemoryId) -> Result<Option<MemoryRecord>, MemoryError> {
        let filter = MemoryFilter {
            ids: vec![id],
            limit: 1,
            ..self.filter()
        };
        let found = self.store.memories(filter).await?;
        Ok(found.into_iter().next().map(|stored| stored.record))
    }

    /// Finds the memories that are relevant to a text, most relevant first. Nothing is noted.
    ///
    /// # Errors
    ///
    /// Fails if the store does. An embedder that fails leaves the relevance to words.
    pub async fn search(
        &self,
        query: &str,
        options: &RecallOptions,
    ) -> Result<Vec<RankedMemory>, MemoryError> {
        let scopes = options.scopes();
        if scopes.is_empty() {
            return Ok(Vec::new());
        }
        let filter = MemoryFilter {
            scopes,
            expiry: ExpiryFilter::Current(self.clock.now()),
            limit: MAX_CANDIDATES,
            embedder: { self.embedder.as_ref() }.map(|embedder| embedder.id().clone()),
            ..self.filter()
        };
        let mut candidates: Vec<RecallCandidate> = { self.store.memories(filter).await? }
            .into_iter()
            .map(|stored| RecallCandidate {
                record: stored.record,
                vector: stored.vector,
            })
            .collect();
        let query_vector = match &self.embedder {
            Some(embedder) if !candidates.is_empty() => {
                embedder.complete(&self.store, query, &mut candidates).await
            }
            Some(_) | None => None,
        };
        Ok(rank_memories(
            query,
            query_vector.as_ref(),
            candidates,
            options,
        ))
    }

    /// Finds memories as [`search`](Self::search) does, and notes their use.
    ///
    /// # Errors
    ///
    /// Fails if the store does.
    pub async fn recall(
        &self,
        query: &str,
        options: &RecallOptions,
    ) -> Result<Vec<RankedMemory>, MemoryError> {
        let found = self.search(query, options).await?;
        let ids: Vec<MemoryId> = found.iter().map(|ranked| ranked.record.id).collect();
        if !ids.is_empty() {
            self.store.mark_recalled(ids, self.clock.now()).await?;
        }
        Ok(found)
    }

    /// Changes a memory of the owner.
    ///
    /// # Errors
    ///
    /// Fails as [`add`](Self::add) does.
    pub async fn edit(&self, id: MemoryId, edit: MemoryEdit) -> Result<ChangedMemory, MemoryError> {
        // A memory of another user is not seen, and not changed.
        if self.show(id).await?.is_none() {
            return Ok(ChangedMemory::Missing);
        }
        let content = edit.content.as_deref().map(|text| self.redact(text));
        let content = content.transpose()?;
        let vector = match (&self.embedder, &content) {
            (Some(embedder), Some(content)) => embedder.embed_one(content.as_str()).await,
            (None, _) | (_, None) => None,
        };
        let change = MemoryChange {
            content,
            vector,
            kind: edit.kind,
            expires_at: edit.expires_at,
        };
        Ok(self.store.change_memory(id, change).await?)
    }

    /// Deletes the memories that the filter selects among those of the owner: text and vector.
    ///
    /// # Errors
    ///
    /// Fails if the store does.
    pub async fn forget(&self, filter: MemoryFilter) -> Result<ForgottenMemories, MemoryError> {
        let filter = MemoryFilter {
            owner: MemoryOwner::Only(self.owner.clone()),
            ..filter
        };
        Ok(self.store.forget_memories(filter).await?)
    }

    /// Deletes the memories that have expired.
    ///
    /// # Errors
    ///
    /// Fails if the store does.
    pub async fn forget_expired(&self) -> Result<ForgottenMemories, MemoryError> {
        let filter = MemoryFilter {
            expiry: ExpiryFilter::Expired(self.clock.now()),
            ..self.filter()
        };
        self.forget(filter).await
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("owner", &self.owner)
            .field("project", &self.project)
            .finish_non_exhaustive()
    }
}
