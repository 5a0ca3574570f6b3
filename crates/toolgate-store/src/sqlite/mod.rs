//! A store in one SQLite file.

mod accounts;
mod backup;
mod check;
mod connect;
mod erase;
mod look;
mod posted;
mod queue;
mod read;
mod readers;
mod tx;
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
    AccountKey, AccountRow, ApprovalFilter, ApprovalRow, Batch, Charge, ChargeFilter, Digest,
    Erased, Event, Lease, LeaseRequest, LedgerDraft, LedgerHead, LedgerName, Movement, Position,
    Post, Record, RecordKey, Said, SealedEntry, SessionFilter, SessionId, SessionRow, Store,
    StoreError, Timestamp, TurnFilter, TurnRow,
};

pub use self::look::Look;
use self::{posted::Posted, queue::Queue, readers::Readers, tx::Tx, writer::Job};
use crate::{
    DatabaseError,
    encoded::{EncodedBatch, EncodedRecord, encode_records, to_text},
};

/// Keeps everything in one SQLite file.
///
/// One thread writes: it does all writes that wait in one commit (WAL, synced) and then answers each caller. Leases and
/// the ends of charges alone are not synced: they outlast the process and reach the disk with whatever is written next,
/// and nobody drives a session when the machine is lost. Several processes may use the same file. Cloning shares the store; when the last clone is dropped, what was queued is
/// still written and the file is closed.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let path = directory.path().join("toolgate.db");
/// let store = toolgate_store::SqliteStore::open(&path)?;
/// assert!(store.check()?.is_empty());
/// # Ok::<(), toolgate_store::DatabaseError>(())
/// ```
#[derive(Clone)]
pub struct SqliteStore(Arc<Open>);

/// How a file is used.
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    /// How long a write waits for another process before it fails; 10 seconds unless said otherwise.
    pub busy_timeout: Duration,
    /// How many threads read at most; 2 unless said otherwise.
    pub readers: usize,
    /// How many pages of 4 KiB the file may have, if there is a limit. A write that needs more fails.
    pub max_pages: Option<u32>,
}

struct Open {
    path: PathBuf,
    options: SqliteOptions,
    queue: Arc<Queue<Box<dyn Job>>>,
    readers: Readers,
    posted: Posted,
    writer: Option<JoinHandle<()>>,
}

impl SqliteStore {
    /// Opens a file, makes it if there is none, and brings it up to date.
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
        let connection = connect::writer(&path, &options)?;
        let queue = Arc::new(Queue::new());
        let writer = {
            let (path, queue) = (path.clone(), queue.clone());
            let thread = thread::Builder::new().name("toolgate-write".into());
            thread.spawn(move || writer::run(&connection, &path, &queue))
        };
        let failed = |error| DatabaseError::Failed {
            database: connect::name(&path),
            source: Arc::new(error),
        };
        let writer = Some(writer.map_err(failed)?);
        let readers = Readers::new(path.clone(), options.clone());
        let posted = Posted::new(path.clone(), options.clone());
        Ok(Self(Arc::new(Open {
            path,
            options,
            queue,
            readers,
            posted,
            writer,
        })))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Queues a write and waits for its commit.
    async fn write<T: Send + 'static>(
        &self,
        work: impl FnMut(&Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.commit(true, work).await
    }

    /// Queues a change of who drives a session.
    ///
    /// It outlasts a process, not a machine: whoever drives a session in a file is lost with the machine, and what it
    /// wrote under its lease took the lease to the disk along with it.
    async fn write_lease<T: Send + 'static>(
        &self,
        work: impl FnMut(&Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.commit(false, work).await
    }

    /// Queues the end of a charge.
    ///
    /// It outlasts a process by itself, and goes to the disk with the next event. If the machine is lost before that,
    /// the charge is open again, and whoever takes up what it was for ends it.
    async fn write_charge<T: Send + 'static>(
        &self,
        work: impl FnMut(&Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.commit(false, work).await
    }

    async fn commit<T: Send + 'static>(
        &self,
        needs_sync: bool,
        work: impl FnMut(&Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.0.queue.push(writer::job(work, needs_sync, reply));
        match answer.await {
            Ok(done) => done,
            Err(_) => Err(DatabaseError::Closed {
                database: connect::name(&self.0.path),
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

impl Drop for Open {
    fn drop(&mut self) {
        // The connection that writes is closed last: whoever is last brings the log back into the file.
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
        at: Position,
        batch: Batch,
    ) -> Result<u64, StoreError> {
        let batch = EncodedBatch::new(batch)?;
        self.write(move |tx| tx.append(session, at, &batch)).await
    }

    async fn events(
        &self,
        session: SessionId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Arc<Event>>, StoreError> {
        self.0
            .readers
            .read(move |read| read.events(session, after, limit))
            .await
    }

    async fn revision(&self, session: SessionId) -> Result<u64, StoreError> {
        self.0
            .readers
            .read(move |read| read.revision(session))
            .await
    }

    async fn once(&self, key: RecordKey, record: Record) -> Result<Option<Record>, StoreError> {
        let record = EncodedRecord::new(key, &record)?;
        self.write(move |tx| tx.once(&record)).await
    }

    async fn record(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        let name = key.to_string();
        self.0.readers.read(move |read| read.record(&name)).await
    }

    async fn put_blob(&self, bytes: Bytes) -> Result<Digest, StoreError> {
        // Large bytes take a while to hash, which the threads that read do not mind.
        let hashed = bytes.clone();
        let digest = self
            .0
            .readers
            .read(move |_| Ok(Digest::of_bytes(&hashed)))
            .await?;
        self.write(move |tx| tx.put_blob(digest, &bytes)).await?;
        Ok(digest)
    }

    async fn blob(&self, digest: Digest, range: Range<u64>) -> Result<Option<Bytes>, StoreError> {
        self.0
            .readers
            .read(move |read| read.blob(digest, range))
            .await
    }

    async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Arc<str>, Record)>, StoreError> {
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        self.0
            .readers
            .read(move |read| read.list(&prefix, after.as_deref(), limit))
            .await
    }

    async fn messages(
        &self,
        session: SessionId,
        before: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Arc<Said>)>, StoreError> {
        self.0
            .readers
            .read(move |read| read.messages(session, before, limit))
            .await
    }

    async fn lease(&self, request: LeaseRequest) -> Result<Lease, StoreError> {
        self.write_lease(move |tx| tx.lease(&request)).await
    }

    async fn renew(&self, lease: &Lease, until: Timestamp) -> Result<(), StoreError> {
        let lease = lease.clone();
        self.write_lease(move |tx| tx.renew(&lease, until)).await
    }

    async fn release(&self, lease: &Lease) -> Result<(), StoreError> {
        let lease = lease.clone();
        self.write_lease(move |tx| tx.release(&lease)).await
    }

    async fn post(
        &self,
        session: SessionId,
        post: Post,
        records: Vec<(RecordKey, Record)>,
    ) -> Result<(), StoreError> {
        let (body, records) = (to_text(&post)?, encode_records(records)?);
        let answered = if let Post::Answer { call, .. } = post {
            Some(call)
        } else {
            None
        };
        let number = self
            .write(move |tx| tx.post(session, answered, &body, &records))
            .await?;
        self.0.posted.note(session, number);
        Ok(())
    }

    async fn posts(
        &self,
        session: SessionId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Post)>, StoreError> {
        self.0
            .readers
            .read(move |read| read.posts(session, after, limit))
            .await
    }

    fn posted(&self, session: SessionId, after: u64) -> impl Future<Output = ()> + Send {
        self.0.posted.wait(session, after)
    }

    async fn sessions(&self, filter: SessionFilter) -> Result<Vec<SessionRow>, StoreError> {
        self.0
            .readers
            .read(move |read| read.sessions(&filter))
            .await
    }

    async fn hide(&self, session: SessionId, at: Option<Timestamp>) -> Result<(), StoreError> {
        self.write(move |tx| tx.hide(session, at)).await
    }

    async fn erase(&self, session: SessionId, now: Timestamp) -> Result<Erased, StoreError> {
        self.write(move |tx| tx.erase(session, now)).await
    }

    async fn turns(&self, filter: TurnFilter) -> Result<Vec<TurnRow>, StoreError> {
        self.0.readers.read(move |read| read.turns(&filter)).await
    }

    async fn approvals(&self, filter: ApprovalFilter) -> Result<Vec<ApprovalRow>, StoreError> {
        self.0
            .readers
            .read(move |read| read.approvals(&filter))
            .await
    }

    async fn seal(&self, drafts: Vec<LedgerDraft>) -> Result<Vec<LedgerHead>, StoreError> {
        self.write(move |tx| tx.seal(&drafts)).await
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
            .read(move |read| read.entries(&ledger, after, limit))
            .await
    }

    async fn ledgers(&self) -> Result<Vec<LedgerHead>, StoreError> {
        self.0.readers.read(|read| read.ledgers()).await
    }

    async fn reserve(&self, charge: Charge) -> Result<Charge, StoreError> {
        self.write(move |tx| tx.reserve(&charge)).await
    }

    async fn settle_charge(
        &self,
        charge: Charge,
        actual: Vec<u64>,
    ) -> Result<Vec<Movement>, StoreError> {
        self.write_charge(move |tx| tx.settle_charge(&charge, &actual))
            .await
    }

    async fn release_charge(&self, charge: Charge) -> Result<(), StoreError> {
        self.write_charge(move |tx| tx.release_charge(&charge))
            .await
    }

    async fn charges(&self, filter: ChargeFilter) -> Result<Vec<Charge>, StoreError> {
        self.0.readers.read(move |read| read.charges(&filter)).await
    }

    async fn account(&self, account: &AccountKey) -> Result<Option<AccountRow>, StoreError> {
        let account = account.clone();
        self.0
            .readers
            .read(move |read| read.account(&account))
            .await
    }

    async fn accounts(
        &self,
        prefix: &str,
        after: Option<&AccountKey>,
        limit: usize,
    ) -> Result<Vec<AccountRow>, StoreError> {
        let (prefix, after) = (prefix.to_owned(), after.cloned());
        self.0
            .readers
            .read(move |read| read.accounts(&prefix, after.as_ref(), limit))
            .await
    }
}
