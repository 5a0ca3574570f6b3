//! A shared handle to a store of any type.

use std::{fmt, ops::Range, sync::Arc};

use bytes::Bytes;
use futures::future::BoxFuture;

use crate::{
    AccountKey, AccountMovement, AccountRow, AccountStore, ApprovalFilter, ApprovalRow,
    CatalogueStore, ChangedMemory, Charge, ChargeFilter, Digest, EmbedderId, ErasedSessions,
    ErasureNames, Event, EventStore, ForgottenMemories, IndexBatch, Lease, LeaseRequest, LeaseTerm,
    LedgerDraft, LedgerHead, LedgerName, LedgerStore, LogPosition, MailboxItem, MailboxStore,
    MemoryChange, MemoryDraft, MemoryFilter, MemoryId, MemoryRecordStore, MemoryVector,
    MessageRecord, PutMemory, RecordKey, RecordStore, SealedEntry, SearchCounts, SearchDocument,
    SearchDocumentId, SearchStore, SessionEvent, SessionFilter, SessionId, SessionRow,
    SessionTitle, StaleSession, Store, StoreError, StoreRecord, StoredMemory, TextMatches,
    TextSearch, Timestamp, TurnFilter, TurnRow, VectorMatches, VectorSearch, WriteBatch,
};

/// A shared store of any type. Cloning shares it.
#[derive(Clone)]
pub struct StoreHandle(Arc<dyn DynStore>, Option<RunEndHook>);

/// Called after the end of a run was stored.
type RunEndHook = Arc<dyn Fn() + Send + Sync>;

impl StoreHandle {
    /// Creates a handle to a store.
    pub fn new(store: impl Store) -> Self {
        Self(Arc::new(store), None)
    }

    /// Appends a batch; see [`EventStore::append`]. The future does not borrow the handle.
    ///
    /// # Errors
    ///
    /// As for [`EventStore::append`].
    pub fn append(
        &self,
        session: SessionId,
        at: LogPosition,
        batch: WriteBatch,
    ) -> BoxFuture<'static, Result<u64, StoreError>> {
        let is_end =
            |event: &Arc<Event>| matches!(event.as_session(), Some(SessionEvent::RunEnded { .. }));
        let hook = self.1.clone().filter(|_| batch.events.iter().any(is_end));
        let appended = self.0.clone().append(session, at, batch);
        match hook {
            None => appended,
            Some(hook) => Box::pin(async move {
                let appended = appended.await?;
                hook();
                Ok(appended)
            }),
        }
    }

    /// Calls `hook` whenever the end of a run was stored through this handle or a clone of it. The
    /// hook has to return at once: the run waits for it.
    #[must_use]
    pub fn on_run_end(mut self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        self.1 = Some(Arc::new(hook));
        self
    }

    /// Waits for a mailbox item; see [`MailboxStore::wait_for_post`]. The future does not borrow
    /// the handle.
    pub fn wait_for_post(&self, session: SessionId, after: u64) -> BoxFuture<'static, ()> {
        self.0.clone().wait_for_post(session, after)
    }
}

impl<S: Store> From<S> for StoreHandle {
    fn from(store: S) -> Self {
        Self::new(store)
    }
}

impl fmt::Debug for StoreHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreHandle")
    }
}

/// Defines the methods that a handle forwards unchanged: its own, and those of [`DynStore`].
macro_rules! passed_on {
    ($($part:ident { $($name:ident<$a:lifetime>($($arg:ident: $type:ty),*) -> $out:ty;)* })*) => {
        impl StoreHandle {
            $($(
                #[doc = concat!("Forwards to [`", stringify!($part), "::", stringify!($name), "`].")]
                pub async fn $name<$a>(&$a self, $($arg: $type),*) -> Result<$out, StoreError> {
                    self.0.$name($($arg),*).await
                }
            )*)*
        }

        /// The object-safe form of [`Store`] behind a handle.
        trait DynStore: Send + Sync {
            fn append(
                self: Arc<Self>,
                session: SessionId,
                at: LogPosition,
                batch: WriteBatch,
            ) -> BoxFuture<'static, Result<u64, StoreError>>;
            fn wait_for_post(self: Arc<Self>, session: SessionId, after: u64) -> BoxFuture<'static, ()>;
            $($(fn $name<$a>(&$a self, $($arg: $type),*) -> BoxFuture<$a, Result<$out, StoreError>>;)*)*
        }

        impl<S: Store> DynStore for S {
            fn append(
                self: Arc<Self>,
                session: SessionId,
                at: LogPosition,
                batch: WriteBatch,
            ) -> BoxFuture<'static, Result<u64, StoreError>> {
                Box::pin(async move { EventStore::append(&*self, session, at, batch).await })
            }
            fn wait_for_post(self: Arc<Self>, session: SessionId, after: u64) -> BoxFuture<'static, ()> {
                Box::pin(async move { MailboxStore::wait_for_post(&*self, session, after).await })
            }
            $($(
                fn $name<$a>(&$a self, $($arg: $type),*) -> BoxFuture<$a, Result<$out, StoreError>> {
                    Box::pin($part::$name(self, $($arg),*))
                }
            )*)*
        }
    };
}

passed_on! {
    EventStore {
        events<'a>(session: SessionId, after: u64, limit: usize) -> Vec<Arc<Event>>;
        revision<'a>(session: SessionId) -> u64;
        acquire_lease<'a>(request: LeaseRequest) -> Lease;
        renew_lease<'a>(lease: &'a Lease, term: LeaseTerm) -> ();
        release_lease<'a>(lease: &'a Lease) -> ();
    }
    RecordStore {
        put_record_once<'a>(key: RecordKey, record: StoreRecord) -> Option<StoreRecord>;
        load_record<'a>(key: &'a RecordKey) -> Option<StoreRecord>;
        load_records<'a>(keys: &'a [RecordKey]) -> Vec<Option<StoreRecord>>;
        list_records<'a>(prefix: &'a str, after: Option<&'a str>, limit: usize) -> Vec<(Arc<str>, StoreRecord)>;
        records_named<'a>(names: &'a ErasureNames, after: Option<&'a str>, limit: usize) -> Vec<(Arc<str>, StoreRecord)>;
        messages<'a>(session: SessionId, before: u64, limit: usize) -> Vec<(u64, Arc<MessageRecord>)>;
        put_blob<'a>(bytes: Bytes) -> Digest;
        blob<'a>(digest: Digest, range: Range<u64>) -> Option<Bytes>;
    }
    MailboxStore {
        post_item<'a>(session: SessionId, post: MailboxItem, records: Vec<(RecordKey, StoreRecord)>) -> ();
        posts<'a>(session: SessionId, after: u64, limit: usize) -> Vec<(u64, MailboxItem)>;
    }
    LedgerStore {
        seal_entries<'a>(drafts: Vec<LedgerDraft>) -> Vec<LedgerHead>;
        entries<'a>(ledger: &'a LedgerName, after: u64, limit: usize) -> Vec<SealedEntry>;
        ledgers<'a>() -> Vec<LedgerHead>;
    }
    AccountStore {
        reserve<'a>(charge: Charge) -> Charge;
        settle_charge<'a>(charge: Charge, actual: Vec<u64>) -> Vec<AccountMovement>;
        release_charge<'a>(charge: Charge) -> ();
        charges<'a>(filter: ChargeFilter) -> Vec<Charge>;
        account<'a>(account: &'a AccountKey) -> Option<AccountRow>;
        accounts<'a>(prefix: &'a str, after: Option<&'a AccountKey>, limit: usize) -> Vec<AccountRow>;
    }
    CatalogueStore {
        sessions<'a>(filter: SessionFilter) -> Vec<SessionRow>;
        turns<'a>(filter: TurnFilter) -> Vec<TurnRow>;
        approvals<'a>(filter: ApprovalFilter) -> Vec<ApprovalRow>;
        hide_session<'a>(session: SessionId, at: Option<Timestamp>) -> ();
        rename_session<'a>(session: SessionId, title: SessionTitle) -> ();
        erase_session<'a>(session: SessionId, now: Timestamp) -> ErasedSessions;
    }
    SearchStore {
        stale_sessions<'a>(limit: usize) -> Vec<StaleSession>;
        index_batch<'a>(batch: IndexBatch) -> bool;
        match_text<'a>(search: TextSearch) -> TextMatches;
        match_vectors<'a>(search: VectorSearch) -> VectorMatches;
        load_documents<'a>(ids: Vec<SearchDocumentId>) -> Vec<(SearchDocumentId, SearchDocument)>;
        unembedded_documents<'a>(embedder: EmbedderId, limit: usize) -> Vec<(SearchDocumentId, SearchDocument)>;
        put_vectors<'a>(embedder: EmbedderId, vectors: Vec<(SearchDocumentId, Vec<f32>)>) -> ();
        replaced_embedder<'a>(embedder: EmbedderId) -> Option<EmbedderId>;
        session_directories<'a>() -> Vec<Arc<str>>;
        search_counts<'a>(embedder: Option<EmbedderId>) -> SearchCounts;
        clear_index<'a>() -> ();
    }
    MemoryRecordStore {
        put_memory<'a>(draft: MemoryDraft) -> PutMemory;
        memories<'a>(filter: MemoryFilter) -> Vec<StoredMemory>;
        change_memory<'a>(id: MemoryId, change: MemoryChange) -> ChangedMemory;
        put_memory_vector<'a>(id: MemoryId, key: Digest, vector: MemoryVector) -> bool;
        mark_recalled<'a>(ids: Vec<MemoryId>, at: Timestamp) -> ();
        forget_memories<'a>(filter: MemoryFilter) -> ForgottenMemories;
    }
}
