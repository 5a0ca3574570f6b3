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
    AccountKey, AccountMovement, AccountRow, ApprovalFilter, ApprovalRow, Charge, ChargeFilter,
    Digest, ErasedSessions, Event, Lease, LeaseRequest, LedgerDraft, LedgerHead, LedgerName,
    LogPosition, MailboxItem, MessageRecord, RecordKey, SealedEntry, SessionFilter, SessionId,
    SessionRow, Store, StoreError, StoreRecord, Timestamp, TurnFilter, TurnRow, WriteBatch,
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
    PutBlob,
    Blob,
    ListRecords,
    Messages,
    AcquireLease,
    RenewLease,
    ReleaseLease,
    PostItem,
    Posts,
    Sessions,
    HideSession,
    EraseSession,
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
}

impl StoreCall {
    /// Checks whether it changes what is stored.
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
            C::Reserve | C::SettleCharge | C::ReleaseCharge | C::HideSession | C::EraseSession
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
/// use toolgate_core::{MemoryStore, StoreRecord, RecordKey, Store, StoreError};
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

impl<S: Store> Store for FaultyStore<S> {
    async fn append(
        &self,
        session: SessionId,
        at: LogPosition,
        batch: WriteBatch,
    ) -> Result<u64, StoreError> {
        self.with_fault(StoreCall::Append, self.inner.append(session, at, batch))
            .await
    }
    async fn events(
        &self,
        session: SessionId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Arc<Event>>, StoreError> {
        self.with_fault(StoreCall::Events, self.inner.events(session, after, limit))
            .await
    }
    async fn revision(&self, session: SessionId) -> Result<u64, StoreError> {
        self.with_fault(StoreCall::Revision, self.inner.revision(session))
            .await
    }
    async fn put_record_once(
        &self,
        key: RecordKey,
        record: StoreRecord,
    ) -> Result<Option<StoreRecord>, StoreError> {
        self.with_fault(
            StoreCall::PutRecordOnce,
            self.inner.put_record_once(key, record),
        )
        .await
    }
    async fn load_record(&self, key: &RecordKey) -> Result<Option<StoreRecord>, StoreError> {
        self.with_fault(StoreCall::LoadRecord, self.inner.load_record(key))
            .await
    }
    async fn put_blob(&self, bytes: Bytes) -> Result<Digest, StoreError> {
        self.with_fault(StoreCall::PutBlob, self.inner.put_blob(bytes))
            .await
    }
    async fn blob(&self, digest: Digest, range: Range<u64>) -> Result<Option<Bytes>, StoreError> {
        self.with_fault(StoreCall::Blob, self.inner.blob(digest, range))
            .await
    }
    async fn list_records(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Arc<str>, StoreRecord)>, StoreError> {
        self.with_fault(
            StoreCall::ListRecords,
            self.inner.list_records(prefix, after, limit),
        )
        .await
    }
    async fn messages(
        &self,
        session: SessionId,
        before: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Arc<MessageRecord>)>, StoreError> {
        self.with_fault(
            StoreCall::Messages,
            self.inner.messages(session, before, limit),
        )
        .await
    }

    async fn acquire_lease(&self, request: LeaseRequest) -> Result<Lease, StoreError> {
        self.with_fault(StoreCall::AcquireLease, self.inner.acquire_lease(request))
            .await
    }
    async fn renew_lease(&self, lease: &Lease, until: Timestamp) -> Result<(), StoreError> {
        self.with_fault(StoreCall::RenewLease, self.inner.renew_lease(lease, until))
            .await
    }
    async fn release_lease(&self, lease: &Lease) -> Result<(), StoreError> {
        self.with_fault(StoreCall::ReleaseLease, self.inner.release_lease(lease))
            .await
    }
    async fn post_item(
        &self,
        session: SessionId,
        post: MailboxItem,
        records: Vec<(RecordKey, StoreRecord)>,
    ) -> Result<(), StoreError> {
        self.with_fault(
            StoreCall::PostItem,
            self.inner.post_item(session, post, records),
        )
        .await
    }
    async fn posts(
        &self,
        session: SessionId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, MailboxItem)>, StoreError> {
        self.with_fault(StoreCall::Posts, self.inner.posts(session, after, limit))
            .await
    }
    // A wait, not a call with an answer: there is nothing that could fail here.
    async fn wait_for_post(&self, session: SessionId, after: u64) {
        self.inner.wait_for_post(session, after).await;
    }
    async fn sessions(&self, filter: SessionFilter) -> Result<Vec<SessionRow>, StoreError> {
        self.with_fault(StoreCall::Sessions, self.inner.sessions(filter))
            .await
    }
    async fn hide_session(
        &self,
        session: SessionId,
        at: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        self.with_fault(StoreCall::HideSession, self.inner.hide_session(session, at))
            .await
    }
    async fn erase_session(
        &self,
        session: SessionId,
        now: Timestamp,
    ) -> Result<ErasedSessions, StoreError> {
        self.with_fault(
            StoreCall::EraseSession,
            self.inner.erase_session(session, now),
        )
        .await
    }
    async fn turns(&self, filter: TurnFilter) -> Result<Vec<TurnRow>, StoreError> {
        self.with_fault(StoreCall::Turns, self.inner.turns(filter))
            .await
    }
    async fn approvals(&self, filter: ApprovalFilter) -> Result<Vec<ApprovalRow>, StoreError> {
        self.with_fault(StoreCall::Approvals, self.inner.approvals(filter))
            .await
    }
    async fn seal_entries(&self, drafts: Vec<LedgerDraft>) -> Result<Vec<LedgerHead>, StoreError> {
        self.with_fault(StoreCall::SealEntries, self.inner.seal_entries(drafts))
            .await
    }
    async fn entries(
        &self,
        ledger: &LedgerName,
        after: u64,
        limit: usize,
    ) -> Result<Vec<SealedEntry>, StoreError> {
        self.with_fault(StoreCall::Entries, self.inner.entries(ledger, after, limit))
            .await
    }
    async fn ledgers(&self) -> Result<Vec<LedgerHead>, StoreError> {
        self.with_fault(StoreCall::Ledgers, self.inner.ledgers())
            .await
    }
    async fn reserve(&self, charge: Charge) -> Result<Charge, StoreError> {
        self.with_fault(StoreCall::Reserve, self.inner.reserve(charge))
            .await
    }
    async fn settle_charge(
        &self,
        charge: Charge,
        actual: Vec<u64>,
    ) -> Result<Vec<AccountMovement>, StoreError> {
        self.with_fault(
            StoreCall::SettleCharge,
            self.inner.settle_charge(charge, actual),
        )
        .await
    }
    async fn release_charge(&self, charge: Charge) -> Result<(), StoreError> {
        self.with_fault(StoreCall::ReleaseCharge, self.inner.release_charge(charge))
            .await
    }
    async fn charges(&self, filter: ChargeFilter) -> Result<Vec<Charge>, StoreError> {
        self.with_fault(StoreCall::Charges, self.inner.charges(filter))
            .await
    }
    async fn account(&self, account: &AccountKey) -> Result<Option<AccountRow>, StoreError> {
        self.with_fault(StoreCall::Account, self.inner.account(account))
            .await
    }
    async fn accounts(
        &self,
        prefix: &str,
        after: Option<&AccountKey>,
        limit: usize,
    ) -> Result<Vec<AccountRow>, StoreError> {
        self.with_fault(
            StoreCall::Accounts,
            self.inner.accounts(prefix, after, limit),
        )
        .await
    }
}
