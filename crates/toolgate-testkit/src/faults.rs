//! A store that fails when a test wants it to: before a write, after it, slowly, or with the whole
//! process.

use std::{
    fmt,
    future::Future,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use futures::future::BoxFuture;
use toolgate_core::{
    AccountKey, AccountMovement, AccountRow, AccountStore, ApprovalFilter, ApprovalRow,
    CatalogueStore, ChangedMemory, Charge, ChargeFilter, Digest, EmbedderId, ErasedSessions,
    ErasureNames, Event, EventStore, ForgottenMemories, IndexBatch, Lease, LeaseRequest, LeaseTerm,
    LedgerDraft, LedgerHead, LedgerName, LedgerStore, LogPosition, MailboxItem, MailboxStore,
    MemoryChange, MemoryDraft, MemoryFilter, MemoryId, MemoryRecordStore, MemoryVector,
    MessageRecord, PutMemory, RecordKey, RecordStore, SealedEntry, SearchCounts, SearchDocument,
    SearchDocumentId, SearchStore, SessionFilter, SessionId, SessionRow, SessionTitle,
    StaleSession, Store, StoreError, StoreRecord, StoredMemory, TextMatches, TextSearch, Timestamp,
    TurnFilter, TurnRow, VectorMatches, VectorSearch, WriteBatch,
};

/// A method of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is the method of the same name")]
pub enum StoreCall {
    Append,
    Events,
    Revision,
    PutRecordOnce,
    LoadRecord,
    LoadRecords,
    PutBlob,
    Blob,
    ListRecords,
    RecordsNamed,
    Messages,
    AcquireLease,
    RenewLease,
    ReleaseLease,
    PostItem,
    Posts,
    Sessions,
    HideSession,
    RenameSession,
    EraseSession,
    StaleSessions,
    IndexBatch,
    MatchText,
    MatchVectors,
    LoadDocuments,
    UnembeddedDocuments,
    PutVectors,
    ReplacedEmbedder,
    SessionDirectories,
    SearchCounts,
    ClearIndex,
    Turns,
    Approvals,
    SealEntries,
    Entries,
    Ledgers,
    Reserve,
    SettleCharge,
    ReleaseCharge,
    Charges,
    Account,
    Accounts,
    PutMemory,
    Memories,
    ChangeMemory,
    PutMemoryVector,
    MarkRecalled,
    ForgetMemories,
}

impl StoreCall {
    /// Checks whether it changes what is stored. The search index is only a projection, which is
    /// written in the background: its writes are not counted, so that other writes keep their numbers.
    pub const fn is_write(self) -> bool {
        use StoreCall as C;
        matches!(
            self,
            C::Append
                | C::PutRecordOnce
                | C::PutBlob
                | C::AcquireLease
                | C::RenewLease
                | C::ReleaseLease
                | C::PostItem
                | C::SealEntries
        ) || matches!(
            self,
            C::Reserve
                | C::SettleCharge
                | C::ReleaseCharge
                | C::HideSession
                | C::RenameSession
                | C::EraseSession
        ) || matches!(
            self,
            C::PutMemory
                | C::ChangeMemory
                | C::PutMemoryVector
                | C::MarkRecalled
                | C::ForgetMemories
        )
    }
}

/// The fault of one store call.
pub enum StoreFault {
    /// No fault.
    Pass,
    /// The call is not carried out, and the caller gets the error: disk full, busy.
    Fail(StoreError),
    /// The call is carried out, but the caller gets an error: the connection was lost before the
    /// answer.
    DoneButFail(StoreError),
    /// The call is carried out after this future: a slow disk.
    Wait(BoxFuture<'static, ()>),
    /// The call panics before it is carried out.
    Panic(&'static str),
    /// The process is killed before the call is carried out, without any cleanup.
    KillBefore,
    /// The process is killed after the call is carried out, before the caller gets the answer.
    KillAfter,
}

/// Chooses the fault: gets the method, and the number of the write counted from 1 (0 for reads).
type FaultPlan = dyn Fn(StoreCall, u64) -> StoreFault + Send + Sync;

/// A store behind a plan of faults. Cloning shares both.
///
/// ```
/// use toolgate_core::{MemoryStore, StoreRecord, RecordKey, RecordStore, StoreError};
/// use toolgate_testkit::{StoreFault, FaultyStore};
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let full = |_, write| if write == 2 { StoreFault::Fail(StoreError::Backend("disk full".into())) } else { StoreFault::Pass };
/// let store = FaultyStore::new(MemoryStore::new(), full);
/// let write = |key: &str| store.put_record_once(RecordKey::Other(key.into()), StoreRecord::Json("x".into()));
/// assert!(write("a").await.is_ok() && write("b").await.is_err() && write("c").await.is_ok());
/// # });
/// ```
#[derive(Clone)]
pub struct FaultyStore<S> {
    inner: S,
    plan: Arc<FaultPlan>,
    writes: Arc<AtomicU64>,
    reads: Arc<AtomicU64>,
}

impl<S: Store> FaultyStore<S> {
    /// Puts `plan` in front of `inner`.
    pub fn new(
        inner: S,
        plan: impl Fn(StoreCall, u64) -> StoreFault + Send + Sync + 'static,
    ) -> Self {
        Self {
            inner,
            plan: Arc::new(plan),
            writes: Arc::default(),
            reads: Arc::default(),
        }
    }

    /// Returns the store behind the plan.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Returns the number of writes requested so far.
    pub fn write_count(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }

    /// Returns the number of reads requested so far.
    pub fn read_count(&self) -> u64 {
        self.reads.load(Ordering::SeqCst)
    }

    async fn with_fault<T>(
        &self,
        call: StoreCall,
        work: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let counter = if call.is_write() {
            &self.writes
        } else {
            &self.reads
        };
        let count = counter.fetch_add(1, Ordering::SeqCst) + 1;
        // Reads are not numbered: how many there are depends on timing, and a plan has to hit the
        // same point in every run.
        match (self.plan)(call, if call.is_write() { count } else { 0 }) {
            StoreFault::Pass => work.await,
            StoreFault::Fail(error) => Err(error),
            StoreFault::DoneButFail(error) => {
                // A real failure wins over the planned one.
                work.await?;
                Err(error)
            }
            StoreFault::Wait(wait) => {
                wait.await;
                work.await
            }
            StoreFault::Panic(text) => panic!("{text}"),
            StoreFault::KillBefore => kill_this_process(),
            StoreFault::KillAfter => {
                let _ = work.await;
                kill_this_process()
            }
        }
    }
}

/// Ends this process as a power cut or the kernel would: nothing is flushed, nothing is cleaned up.
pub fn kill_this_process() -> ! {
    // The kernel delivers the signal directly: starting a program that sends it would give other
    // threads time to continue.
    #[cfg(unix)]
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    std::process::abort()
}

impl<S> fmt::Debug for FaultyStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyStore")
            .field("writes", &self.writes)
            .finish_non_exhaustive()
    }
}

/// Defines methods that first ask the plan for the fault of their call.
macro_rules! with_fault {
    ($($name:ident = $call:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        $(async fn $name(&self, $($arg: $type),*) -> Result<$out, StoreError> {
            self.with_fault(StoreCall::$call, self.inner.$name($($arg),*)).await
        })*
    };
}

impl<S: Store> EventStore for FaultyStore<S> {
    with_fault! {
        append = Append(session: SessionId, at: LogPosition, batch: WriteBatch) -> u64;
        events = Events(session: SessionId, after: u64, limit: usize) -> Vec<Arc<Event>>;
        revision = Revision(session: SessionId) -> u64;
        acquire_lease = AcquireLease(request: LeaseRequest) -> Lease;
        renew_lease = RenewLease(lease: &Lease, term: LeaseTerm) -> ();
        release_lease = ReleaseLease(lease: &Lease) -> ();
    }
}

impl<S: Store> RecordStore for FaultyStore<S> {
    with_fault! {
        put_record_once = PutRecordOnce(key: RecordKey, record: StoreRecord) -> Option<StoreRecord>;
        load_record = LoadRecord(key: &RecordKey) -> Option<StoreRecord>;
        load_records = LoadRecords(keys: &[RecordKey]) -> Vec<Option<StoreRecord>>;
        list_records = ListRecords(prefix: &str, after: Option<&str>, limit: usize) -> Vec<(Arc<str>, StoreRecord)>;
        records_named = RecordsNamed(names: &ErasureNames, after: Option<&str>, limit: usize) -> Vec<(Arc<str>, StoreRecord)>;
        messages = Messages(session: SessionId, before: u64, limit: usize) -> Vec<(u64, Arc<MessageRecord>)>;
        put_blob = PutBlob(bytes: Bytes) -> Digest;
        blob = Blob(digest: Digest, range: Range<u64>) -> Option<Bytes>;
    }
}

impl<S: Store> MailboxStore for FaultyStore<S> {
    with_fault! {
        post_item = PostItem(session: SessionId, post: MailboxItem, records: Vec<(RecordKey, StoreRecord)>) -> ();
        posts = Posts(session: SessionId, after: u64, limit: usize) -> Vec<(u64, MailboxItem)>;
    }
    // A wait, not a call with an answer: there is nothing that could fail here.
    async fn wait_for_post(&self, session: SessionId, after: u64) {
        self.inner.wait_for_post(session, after).await;
    }
}

impl<S: Store> LedgerStore for FaultyStore<S> {
    with_fault! {
        seal_entries = SealEntries(drafts: Vec<LedgerDraft>) -> Vec<LedgerHead>;
        entries = Entries(ledger: &LedgerName, after: u64, limit: usize) -> Vec<SealedEntry>;
        ledgers = Ledgers() -> Vec<LedgerHead>;
    }
}

impl<S: Store> AccountStore for FaultyStore<S> {
    with_fault! {
        reserve = Reserve(charge: Charge) -> Charge;
        settle_charge = SettleCharge(charge: Charge, actual: Vec<u64>) -> Vec<AccountMovement>;
        release_charge = ReleaseCharge(charge: Charge) -> ();
        charges = Charges(filter: ChargeFilter) -> Vec<Charge>;
        account = Account(account: &AccountKey) -> Option<AccountRow>;
        accounts = Accounts(prefix: &str, after: Option<&AccountKey>, limit: usize) -> Vec<AccountRow>;
    }
}

impl<S: Store> CatalogueStore for FaultyStore<S> {
    with_fault! {
        sessions = Sessions(filter: SessionFilter) -> Vec<SessionRow>;
        turns = Turns(filter: TurnFilter) -> Vec<TurnRow>;
        approvals = Approvals(filter: ApprovalFilter) -> Vec<ApprovalRow>;
        hide_session = HideSession(session: SessionId, at: Option<Timestamp>) -> ();
        rename_session = RenameSession(session: SessionId, title: SessionTitle) -> ();
        erase_session = EraseSession(session: SessionId, now: Timestamp) -> ErasedSessions;
    }
}

impl<S: Store> SearchStore for FaultyStore<S> {
    with_fault! {
        stale_sessions = StaleSessions(limit: usize) -> Vec<StaleSession>;
        index_batch = IndexBatch(batch: IndexBatch) -> bool;
        match_text = MatchText(search: TextSearch) -> TextMatches;
        match_vectors = MatchVectors(search: VectorSearch) -> VectorMatches;
        load_documents = LoadDocuments(ids: Vec<SearchDocumentId>) -> Vec<(SearchDocumentId, SearchDocument)>;
        unembedded_documents = UnembeddedDocuments(embedder: EmbedderId, limit: usize) -> Vec<(SearchDocumentId, SearchDocument)>;
        put_vectors = PutVectors(embedder: EmbedderId, vectors: Vec<(SearchDocumentId, Vec<f32>)>) -> ();
        replaced_embedder = ReplacedEmbedder(embedder: EmbedderId) -> Option<EmbedderId>;
        session_directories = SessionDirectories() -> Vec<Arc<str>>;
        search_counts = SearchCounts(embedder: Option<EmbedderId>) -> SearchCounts;
        clear_index = ClearIndex() -> ();
    }
}

impl<S: Store> MemoryRecordStore for FaultyStore<S> {
    with_fault! {
        put_memory = PutMemory(draft: MemoryDraft) -> PutMemory;
        memories = Memories(filter: MemoryFilter) -> Vec<StoredMemory>;
        change_memory = ChangeMemory(id: MemoryId, change: MemoryChange) -> ChangedMemory;
        put_memory_vector = PutMemoryVector(id: MemoryId, key: Digest, vector: MemoryVector) -> bool;
        mark_recalled = MarkRecalled(ids: Vec<MemoryId>, at: Timestamp) -> ();
        forget_memories = ForgetMemories(filter: MemoryFilter) -> ForgottenMemories;
    }
}
