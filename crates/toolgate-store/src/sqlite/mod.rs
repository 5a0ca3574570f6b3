//! A store in one SQLite file.

mod accounts;
mod backup;
mod check;
mod connect;
mod erase;
mod inspect;
mod mailbox;
mod queue;
mod read;
mod reader_pool;
mod transaction;
mod writer;

use std::{
    fmt,
    future::Future,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use bytes::Bytes;
use tokio::sync::oneshot;
use toolgate_core::{
    AccountKey, AccountMovement, AccountRow, ApprovalFilter, ApprovalRow, Charge, ChargeFilter,
    Digest, ErasedSessions, Event, Lease, LeaseRequest, LedgerDraft, LedgerHead, LedgerName,
    LogPosition, MailboxItem, MessageRecord, RecordKey, SealedEntry, SessionFilter, SessionId,
    SessionRow, Store, StoreError, StoreRecord, Timestamp, TurnFilter, TurnRow, WriteBatch,
};

pub use self::inspect::SqliteInspection;
use self::{
    mailbox::SqliteMailbox, queue::JobQueue, reader_pool::SqliteReaderPool,
    transaction::SqliteWriteTx, writer::SqliteWriteJob,
};
use crate::{
    DatabaseError,
    encoded::{EncodedBatch, EncodedRecord, encode_json, encode_records},
};

/// Stores everything in one SQLite file.
///
/// One thread writes: it performs all pending writes in one commit (WAL, synced) and then answers
/// each caller. Only leases and the ends of charges are not synced: they survive the loss of the
/// process and reach the disk with the next write, and if the machine is lost, so is the driver of
/// every session in the file. Several processes may use the same file. Cloning shares the store;
/// when the last clone is dropped, queued writes are still performed and the file is closed.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let path = directory.path().join("toolgate.db");
/// let store = toolgate_store::SqliteStore::open(&path)?;
/// assert!(store.check()?.is_empty());
/// # Ok::<(), toolgate_store::DatabaseError>(())
/// ```
#[derive(Clone)]
pub struct SqliteStore(Arc<OpenDatabase>);

/// Options for opening a file.
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    /// The time that a write waits for another process before it fails; 10 seconds by default.
    pub busy_timeout: Duration,
    /// The maximum number of reader threads; 2 by default.
    pub readers: usize,
    /// The maximum number of 4 KiB pages of the file, if there is a limit. A write that needs more
    /// fails.
    pub max_pages: Option<u32>,
}

struct OpenDatabase {
    path: PathBuf,
    options: SqliteOptions,
    queue: Arc<JobQueue<Box<dyn SqliteWriteJob>>>,
    readers: SqliteReaderPool,
    posted: SqliteMailbox,
    writer: Option<JoinHandle<()>>,
}

impl SqliteStore {
    /// Opens a file, creates it if there is none, and migrates it to the newest schema.
    ///
    /// This reads and may write the disk before it returns.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, DatabaseError> {
        Self::open_with(path, SqliteOptions::default())
    }

    /// Opens a file with options.
    pub fn open_with(
        path: impl AsRef<Path>,
        options: SqliteOptions,
    ) -> Result<Self, DatabaseError> {
        let path = path.as_ref().to_owned();
        let connection = connect::open_writer(&path, &options)?;
        let queue = Arc::new(JobQueue::new());
        let writer = {
            let path = path.clone();
            let queue = queue.clone();
            let thread = thread::Builder::new().name("toolgate-write".into());
            thread.spawn(move || writer::run_writer(&connection, &path, &queue))
        };
        let failed = |error| DatabaseError::Failed {
            database: connect::database_name(&path),
            source: Arc::new(error),
        };
        let writer = Some(writer.map_err(failed)?);
        let readers = SqliteReaderPool::new(path.clone(), options.clone());
        let posted = SqliteMailbox::new(path.clone(), options.clone());
        Ok(Self(Arc::new(OpenDatabase {
            path,
            options,
            queue,
            readers,
            posted,
            writer,
        })))
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Queues a write and waits for its commit.
    async fn queue_write<T: Send + 'static>(
        &self,
        work: impl FnMut(&SqliteWriteTx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.queue_job(true, work).await
    }

    /// Queues a change of a session's lease.
    ///
    /// It survives the loss of the process, but not of the machine: the driver of a session in a
    /// file is lost with the machine, and everything that it wrote under its lease also synced the
    /// lease.
    async fn queue_lease_write<T: Send + 'static>(
        &self,
        work: impl FnMut(&SqliteWriteTx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.queue_job(false, work).await
    }

    /// Queues the end of a charge.
    ///
    /// It survives the loss of the process by itself, and is synced with the next event. If the
    /// machine is lost before that, the charge is open again, and the driver that resumes the work
    /// closes it.
    async fn queue_charge_write<T: Send + 'static>(
        &self,
        work: impl FnMut(&SqliteWriteTx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.queue_job(false, work).await
    }

    async fn queue_job<T: Send + 'static>(
        &self,
        needs_sync: bool,
        work: impl FnMut(&SqliteWriteTx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.0
            .queue
            .push(writer::queued_write(work, needs_sync, reply));
        match answer.await {
            Ok(done) => done,
            Err(_) => Err(DatabaseError::Closed {
                database: connect::database_name(&self.0.path),
            }
            .into()),
        }
    }
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            busy_timeout: Duration::from_secs(10),
            readers: 2,
            max_pages: None,
        }
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore")
            .field("path", &self.0.path)
            .finish_non_exhaustive()
    }
}

impl Drop for OpenDatabase {
    fn drop(&mut self) {
        // The writing connection is closed last: the last connection to close checkpoints the WAL
        // into the file.
        self.readers.close();
        self.posted.close();
        self.queue.close();
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

impl Store for SqliteStore {
    async fn append(
        &self,
        session: SessionId,
        at: LogPosition,
        batch: WriteBatch,
    ) -> Result<u64, StoreError> {
        let batch = EncodedBatch::new(batch)?;
        self.queue_write(move |tx| tx.append_batch(session, at, &batch))
            .await
    }

    async fn events(
        &self,
        session: SessionId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Arc<Event>>, StoreError> {
        self.0
            .readers
            .run_read(move |read| read.read_events(session, after, limit))
            .await
    }

    async fn revision(&self, session: SessionId) -> Result<u64, StoreError> {
        self.0
            .readers
            .run_read(move |read| read.read_revision(session))
            .await
    }

    async fn put_record_once(
        &self,
        key: RecordKey,
        record: StoreRecord,
    ) -> Result<Option<StoreRecord>, StoreError> {
        let record = EncodedRecord::new(key, &record)?;
        self.queue_write(move |tx| tx.insert_once(&record)).await
    }

    async fn load_record(&self, key: &RecordKey) -> Result<Option<StoreRecord>, StoreError> {
        let name = key.to_string();
        self.0
            .readers
            .run_read(move |read| read.read_record(&name))
            .await
    }

    async fn put_blob(&self, bytes: Bytes) -> Result<Digest, StoreError> {
        // Hashing large data takes a while; reader threads may block, an async worker may not.
        let hashed = bytes.clone();
        let digest = self
            .0
            .readers
            .run_read(move |_| Ok(Digest::of_bytes(&hashed)))
            .await?;
        self.queue_write(move |tx| tx.put_blob(digest, &bytes))
            .await?;
        Ok(digest)
    }

    async fn blob(&self, digest: Digest, range: Range<u64>) -> Result<Option<Bytes>, StoreError> {
        self.0
            .readers
            .run_read(move |read| read.read_blob(digest, range))
            .await
    }

    async fn list_records(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Arc<str>, StoreRecord)>, StoreError> {
        let prefix = prefix.to_owned();
        let after = after.map(str::to_owned);
        self.0
            .readers
            .run_read(move |read| read.list_records(&prefix, after.as_deref(), limit))
            .await
    }

    async fn messages(
        &self,
        session: SessionId,
        before: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Arc<MessageRecord>)>, StoreError> {
        self.0
            .readers
            .run_read(move |read| read.read_messages(session, before, limit))
            .await
    }

    async fn acquire_lease(&self, request: LeaseRequest) -> Result<Lease, StoreError> {
        self.queue_lease_write(move |tx| tx.grant_lease(&request))
            .await
    }

    async fn renew_lease(&self, lease: &Lease, until: Timestamp) -> Result<(), StoreError> {
        let lease = lease.clone();
        self.queue_lease_write(move |tx| tx.renew_lease(&lease, until))
            .await
    }

    async fn release_lease(&self, lease: &Lease) -> Result<(), StoreError> {
        let lease = lease.clone();
        self.queue_lease_write(move |tx| tx.release_lease(&lease))
            .await
    }

    async fn post_item(
        &self,
        session: SessionId,
        post: MailboxItem,
        records: Vec<(RecordKey, StoreRecord)>,
    ) -> Result<(), StoreError> {
        let body = encode_json(&post)?;
        let records = encode_records(records)?;
        let answered = if let MailboxItem::Answer { call, .. } = post {
            Some(call)
        } else {
            None
        };
        let number = self
            .queue_write(move |tx| tx.add_post(session, answered, &body, &records))
            .await?;
        // After the commit: a waiter that wakes has to find the input.
        self.0.posted.note_post(session, number);
        Ok(())
    }

    async fn posts(
        &self,
        session: SessionId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, MailboxItem)>, StoreError> {
        self.0
            .readers
            .run_read(move |read| read.read_posts(session, after, limit))
            .await
    }

    fn wait_for_post(&self, session: SessionId, after: u64) -> impl Future<Output = ()> + Send {
        self.0.posted.wait_for_post(session, after)
    }

    async fn sessions(&self, filter: SessionFilter) -> Result<Vec<SessionRow>, StoreError> {
        self.0
            .readers
            .run_read(move |read| read.list_sessions(&filter))
            .await
    }

    async fn hide_session(
        &self,
        session: SessionId,
        at: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        self.queue_write(move |tx| tx.hide_session(session, at))
            .await
    }

    async fn erase_session(
        &self,
        session: SessionId,
        now: Timestamp,
    ) -> Result<ErasedSessions, StoreError> {
        self.queue_write(move |tx| tx.erase_session(session, now))
            .await
    }

    async fn turns(&self, filter: TurnFilter) -> Result<Vec<TurnRow>, StoreError> {
        self.0
            .readers
            .run_read(move |read| read.list_turns(&filter))
            .await
    }

    async fn approvals(&self, filter: ApprovalFilter) -> Result<Vec<ApprovalRow>, StoreError> {
        self.0
            .readers
            .run_read(move |read| read.list_approvals(&filter))
            .await
    }

    async fn seal_entries(&self, drafts: Vec<LedgerDraft>) -> Result<Vec<LedgerHead>, StoreError> {
        self.queue_write(move |tx| tx.seal_entries(&drafts)).await
    }

    async fn entries(
        &self,
        ledger: &LedgerName,
        after: u64,
        limit: usize,
    ) -> Result<Vec<SealedEntry>, StoreError> {
        let ledger = ledger.clone();
        self.0
            .readers
            .run_read(move |read| read.read_entries(&ledger, after, limit))
            .await
    }

    async fn ledgers(&self) -> Result<Vec<LedgerHead>, StoreError> {
        self.0.readers.run_read(|read| read.read_ledgers()).await
    }

    async fn reserve(&self, charge: Charge) -> Result<Charge, StoreError> {
        self.queue_write(move |tx| tx.reserve_charge(&charge)).await
    }

    async fn settle_charge(
        &self,
        charge: Charge,
        actual: Vec<u64>,
    ) -> Result<Vec<AccountMovement>, StoreError> {
        self.queue_charge_write(move |tx| tx.settle_charge(&charge, &actual))
            .await
    }

    async fn release_charge(&self, charge: Charge) -> Result<(), StoreError> {
        self.queue_charge_write(move |tx| tx.release_charge(&charge))
            .await
    }

    async fn charges(&self, filter: ChargeFilter) -> Result<Vec<Charge>, StoreError> {
        self.0
            .readers
            .run_read(move |read| read.read_charges(&filter))
            .await
    }

    async fn account(&self, account: &AccountKey) -> Result<Option<AccountRow>, StoreError> {
        let account = account.clone();
        self.0
            .readers
            .run_read(move |read| read.read_account(&account))
            .await
    }

    async fn accounts(
        &self,
        prefix: &str,
        after: Option<&AccountKey>,
        limit: usize,
    ) -> Result<Vec<AccountRow>, StoreError> {
        let prefix = prefix.to_owned();
        let after = after.cloned();
        self.0
            .readers
            .run_read(move |read| read.list_accounts(&prefix, after.as_ref(), limit))
            .await
    }
}
