//! Memories in a store: stored once, listed by scope, changed, and forgotten.

use std::future::Future;

use crate::{
    Digest, EmbedderId, MemoryId, MemoryKind, MemoryRecord, MemoryText, MemoryVector, Principal,
    RecallScope, SessionId, StoreError, Timestamp,
};

/// Memories: texts that outlive their session.
///
/// They are not part of a log, so they can be changed and forgotten. Erasing a session leaves its
/// memories; [`MemoryFilter::of_session`] selects them.
pub trait MemoryRecordStore: Send + Sync + 'static {
    /// Stores a memory, unless its owner has the same one in the same scope: the same normalised
    /// text, or a text whose vector is near enough. Then that one is returned, and it expires no
    /// earlier than the new one would have. Looking and storing is one transaction.
    fn put_memory(
        &self,
        draft: MemoryDraft,
    ) -> impl Future<Output = Result<PutMemory, StoreError>> + Send;

    /// Lists memories, newest first.
    fn memories(
        &self,
        filter: MemoryFilter,
    ) -> impl Future<Output = Result<Vec<StoredMemory>, StoreError>> + Send;

    /// Changes a memory. A new text deletes the vector of the old one.
    fn change_memory(
        &self,
        id: MemoryId,
        change: MemoryChange,
    ) -> impl Future<Output = Result<ChangedMemory, StoreError>> + Send;

    /// Stores the vector of a memory, in place of one of another embedder. Returns false if the
    /// memory is gone or has another text by now.
    fn put_memory_vector(
        &self,
        id: MemoryId,
        key: Digest,
        vector: MemoryVector,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Notes one more use of each memory. One that is gone is not an error.
    fn mark_recalled(
        &self,
        ids: Vec<MemoryId>,
        at: Timestamp,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Deletes all memories that the filter selects, whatever its limit: text and vector. Returns
    /// them, and whether bytes of them can remain in the files of the store.
    fn forget_memories(
        &self,
        filter: MemoryFilter,
    ) -> impl Future<Output = Result<ForgottenMemories, StoreError>> + Send;
}

/// A memory to be stored.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryDraft {
    /// The memory.
    pub record: MemoryRecord,
    /// Its vector, if there is an embedder.
    pub vector: Option<MemoryVector>,
    /// The similarity from which another memory counts as the same, if vectors are compared.
    pub near: Option<f32>,
}

/// The result of storing a memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PutMemory {
    /// It is new.
    Stored(MemoryRecord),
    /// This one says the same.
    Duplicate(MemoryRecord),
}

impl PutMemory {
    /// Returns the memory that is in the store now.
    pub fn record(&self) -> &MemoryRecord {
        match self {
            Self::Stored(record) | Self::Duplicate(record) => record,
        }
    }
}

/// A stored memory with its vector.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredMemory {
    /// The memory.
    pub record: MemoryRecord,
    /// Its vector, if it has one of the embedder that the filter names.
    pub vector: Option<MemoryVector>,
}

/// A change of a memory; a field without a value stays as it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MemoryChange {
    /// The new text.
    pub content: Option<MemoryText>,
    /// The vector of the new text.
    pub vector: Option<MemoryVector>,
    /// The new kind.
    pub kind: Option<MemoryKind>,
    /// The new expiry, or that there is none.
    pub expires_at: Option<Option<Timestamp>>,
}

/// The result of changing a memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangedMemory {
    /// It was changed.
    Changed(Box<MemoryRecord>),
    /// There is no such memory.
    Missing,
    /// Nothing was changed: this memory has the new text already.
    Duplicate(MemoryId),
}

/// The memories that were deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgottenMemories {
    /// The ids, newest first.
    pub ids: Vec<MemoryId>,
    /// What remains of them in the files of the store.
    pub remains: TextRemains,
}

/// What remains of deleted text in the files of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TextRemains {
    /// Nothing: deleted bytes were overwritten.
    Nothing,
    /// The write-ahead log of the file has it until a checkpoint; another process is reading.
    UntilCheckpoint,
    /// The server has it in dead rows until a vacuum, and in its write-ahead log for as long as it
    /// keeps that.
    UntilVacuum,
}

impl TextRemains {
    /// Returns the wire name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::UntilCheckpoint => "until_checkpoint",
            Self::UntilVacuum => "until_vacuum",
        }
    }
}

/// Which memories are listed or forgotten.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryFilter {
    /// Only those of this owner.
    pub owner: MemoryOwner,
    /// Only those of these scopes; of all, if there are none.
    pub scopes: Vec<RecallScope>,
    /// Only these; all, if there are none.
    pub ids: Vec<MemoryId>,
    /// Only those of this kind.
    pub kind: Option<MemoryKind>,
    /// Only those that came from this session.
    pub session: Option<SessionId>,
    /// Whether expired ones count.
    pub expiry: ExpiryFilter,
    /// Only those older than this one, for the next page.
    pub before: Option<MemoryId>,
    /// The maximum number of a page.
    pub limit: usize,
    /// The embedder whose vectors are returned.
    pub embedder: Option<EmbedderId>,
}

/// The owner of the memories that a filter selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryOwner {
    /// Every owner; for operators.
    Any,
    /// This user, or memories without an owner.
    Only(Option<Principal>),
}

/// Whether a filter selects expired memories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpiryFilter {
    /// All of them, expired or not.
    Any,
    /// Those that have not expired at this time.
    Current(Timestamp),
    /// Those that have expired at this time.
    Expired(Timestamp),
}

impl MemoryFilter {
    /// Creates a filter for all memories of an owner, also expired ones, without a limit.
    pub const fn of_owner(owner: Option<Principal>) -> Self {
        Self {
            owner: MemoryOwner::Only(owner),
            scopes: Vec::new(),
            ids: Vec::new(),
            kind: None,
            session: None,
            expiry: ExpiryFilter::Any,
            before: None,
            limit: usize::MAX,
            embedder: None,
        }
    }

    /// Creates a filter for all memories that came from a session, of every owner.
    pub fn of_session(session: SessionId) -> Self {
        Self {
            owner: MemoryOwner::Any,
            session: Some(session),
            ..Self::of_owner(None)
        }
    }

    /// Checks whether a memory is selected, apart from the limit.
    pub fn matches(&self, record: &MemoryRecord) -> bool {
        let is_owned = match &self.owner {
            MemoryOwner::Any => true,
            MemoryOwner::Only(owner) => record.owner == *owner,
        };
        let is_current = match self.expiry {
            ExpiryFilter::Any => true,
            ExpiryFilter::Current(now) => !record.is_expired(now),
            ExpiryFilter::Expired(now) => record.is_expired(now),
        };
        is_owned
            && is_current
            && (self.scopes.is_empty() || self.scopes.contains(&record.scope))
            && (self.ids.is_empty() || self.ids.contains(&record.id))
            && self.kind.is_none_or(|kind| kind == record.kind)
            && (self.session.is_none() || self.session == record.source.session)
            && self.before.is_none_or(|before| record.id < before)
    }
}

impl MemoryChange {
    /// Applies the change to a record. Returns true if the text is another one now.
    pub fn apply_to(&self, record: &mut MemoryRecord) -> bool {
        if let Some(kind) = self.kind {
            record.kind = kind;
        }
        if let Some(expires_at) = self.expires_at {
            record.expires_at = expires_at;
        }
        match &self.content {
            Some(content) if *content != record.content => {
                record.content = content.clone();
                true
            }
            Some(_) | None => false,
        }
    }
}
