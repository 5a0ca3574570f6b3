//! A store that fails when a test wants it to: before a write, after it, slowly, or with the whole process.

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
    AccountKey, AccountRow, ApprovalFilter, ApprovalRow, Batch, Charge, ChargeFilter, Digest,
    Erased, Event, Lease, LeaseRequest, LedgerDraft, LedgerHead, LedgerName, Movement, Position,
    Post, Record, RecordKey, Said, SealedEntry, SessionFilter, SessionId, SessionRow, Store,
    StoreError, Timestamp, TurnFilter, TurnRow,
};

/// Which method of a store is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is the method of the same name")]
pub enum StoreCall {
    Append,
    Events,
    Revision,
    Once,
    Record,
    PutBlob,
    Blob,
    List,
    Messages,
    Lease,
    Renew,
    Release,
    Post,
    Posts,
    Sessions,
    Hide,
    Erase,
    Turns,
    Approvals,
    Seal,
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
    /// Whether it changes what is stored.
    pub const fn writes(self) -> bool {
        use StoreCall as C;
        matches!(
            self,
            C::Append | C::Once | C::PutBlob | C::Lease | C::Renew | C::Release | C::Post | C::Seal
        ) || matches!(
            self,
            C::Reserve | C::SettleCharge | C::ReleaseCharge | C::Hide | C::Erase
        )
    }
}

/// What goes wrong with one call of a store.
pub enum Fault {
    /// Nothing.
    Pass,
    /// It is not done, and the caller is told so: disk full, busy.
    Fail(StoreError),
    /// It is done, but the caller is told that it failed: the connection was lost before the answer came.
    DoneButFail(StoreError),
    /// It is done after this: a slow disk.
    Wait(BoxFuture<'static, ()>),
    /// It panics before it is done.
    Panic(&'static str),
    /// The process ends before it is done, with no chance to clear up.
    KillBefore,
    /// The process ends when it is done, before the caller hears of it.
    KillAfter,
}

/// Decides what goes wrong: is told which method is called and the how-manieth write it is, counted from 1 (0 for reads).
type Plan = dyn Fn(StoreCall, u64) -> Fault + Send + Sync;

/// A store behind a plan of faults. Cloning shares both.
///
/// ```
/// use toolgate_core::{MemoryStore, Record, RecordKey, Store, StoreError};
/// use toolgate_testkit::{Fault, FaultyStore};
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let full = |_, write| if write == 2 { Fault::Fail(StoreError::Backend("disk full".into())) } else { Fault::Pass };
/// let store = FaultyStore::new(MemoryStore::new(), full);
/// let write = |key: &str| store.once(RecordKey::Other(key.into()), Record::Json("x".into()));
/// assert!(write("a").await.is_ok() && write("b").await.is_err() && write("c").await.is_ok());
/// # });
/// ```
#[derive(Clone)]
pub struct FaultyStore<S> {
    inner: S,
    plan: Arc<Plan>,
    writes: Arc<AtomicU64>,
    reads: Arc<AtomicU64>,
}

impl<S: Store> FaultyStore<S> {
    /// Puts `plan` in front of `inner`.
    pub fn new(inner: S, plan: impl Fn(StoreCall, u64) -> Fault + Send + Sync + 'static) -> Self {
        Self {
            inner,
            plan: Arc::new(plan),
            writes: Arc::default(),
            reads: Arc::default(),
        }
    }

    /// The store behind the plan.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// How many writes were asked for so far.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }

    /// How many reads were asked for so far.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::SeqCst)
    }

    async fn with_fault<T>(
        &self,
        call: StoreCall,
        work: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let counter = if call.writes() {
            &self.writes
        } else {
            &self.reads
        };
        let count = counter.fetch_add(1, Ordering::SeqCst) + 1;
        match (self.plan)(call, if call.writes() { count } else { 0 }) {
            Fault::Pass => work.await,
            Fault::Fail(error) => Err(error),
            Fault::DoneButFail(error) => {
                work.await?;
                Err(error)
            }
            Fault::Wait(wait) => {
                wait.await;
                work.await
            }
            Fault::Panic(text) => panic!("{text}"),
            Fault::KillBefore => kill_this_process(),
            Fault::KillAfter => {
                let _ = work.await;
                kill_this_process()
            }
        }
    }
}

/// Ends this process the way a power cut or the kernel would: nothing is flushed, nothing is cleared up.
pub fn kill_this_process() -> ! {
    // The signal comes from the kernel directly: a program that sends it would leave other threads time to go on.
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
        at: Position,
        batch: Batch,
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
    async fn once(&self, key: RecordKey, record: Record) -> Result<Option<Record>, StoreError> {
        self.with_fault(StoreCall::Once, self.inner.once(key, record))
            .await
    }
    async fn record(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        self.with_fault(StoreCall::Record, self.inner.record(key))
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
    async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Arc<str>, Record)>, StoreError> {
        self.with_fault(StoreCall::List, self.inner.list(prefix, after, limit))
            .await
    }
    async fn messages(
        &self,
        session: SessionId,
        before: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Arc<Said>)>, StoreError> {
        self.with_fault(
            StoreCall::Messages,
            self.inner.messages(session, before, limit),
        )
        .await
    }

    async fn lease(&self, request: LeaseRequest) -> Result<Lease, StoreError> {
        self.with_fault(StoreCall::Lease, self.inner.lease(request))
            .await
    }
    async fn renew(&self, lease: &Lease, until: Timestamp) -> Result<(), StoreError> {
        self.with_fault(StoreCall::Renew, self.inner.renew(lease, until))
            .await
    }
    async fn release(&self, lease: &Lease) -> Result<(), StoreError> {
        self.with_fault(StoreCall::Release, self.inner.release(lease))
            .await
    }
    async fn post(
        &self,
        session: SessionId,
        post: Post,
        records: Vec<(RecordKey, Record)>,
    ) -> Result<(), StoreError> {
        self.with_fault(StoreCall::Post, self.inner.post(session, post, records))
            .await
    }
    async fn posts(
        &self,
        session: SessionId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Post)>, StoreError> {
        self.with_fault(StoreCall::Posts, self.inner.posts(session, after, limit))
            .await
    }
    async fn posted(&self, session: SessionId, after: u64) {
        self.inner.posted(session, after).await;
    }
    async fn sessions(&self, filter: SessionFilter) -> Result<Vec<SessionRow>, StoreError> {
        self.with_fault(StoreCall::Sessions, self.inner.sessions(filter))
            .await
    }
    async fn hide(&self, session: SessionId, at: Option<Timestamp>) -> Result<(), StoreError> {
        self.with_fault(StoreCall::Hide, self.inner.hide(session, at))
            .await
    }
    async fn erase(&self, session: SessionId, now: Timestamp) -> Result<Erased, StoreError> {
        self.with_fault(StoreCall::Erase, self.inner.erase(session, now))
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
    async fn seal(&self, drafts: Vec<LedgerDraft>) -> Result<Vec<LedgerHead>, StoreError> {
        self.with_fault(StoreCall::Seal, self.inner.seal(drafts))
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
    ) -> Result<Vec<Movement>, StoreError> {
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
