//! A store in one SQLite file.

mod accounts;
mod backup;
mod bodies;
mod catalogue;
mod check;
mod connect;
mod count_sessions;
mod erase;
mod events;
mod identity;
mod inspect;
mod ledgers;
mod mailbox;
mod memories;
mod queue;
mod read;
mod reader_pool;
mod record_keys;
mod records;
mod search;
mod session_checksum;
mod transaction;
mod writer;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::sync::oneshot;
use toolgate_core::StoreError;

pub use self::inspect::SqliteInspection;
use self::{
    identity::FileIdentity,
    mailbox::SqliteMailbox,
    queue::JobQueue,
    read::SqliteReader,
    reader_pool::{SqliteReaderPool, read_job},
    search::SqliteVectorCache,
    transaction::SqliteWriteTx,
    writer::{SqliteWriter, WriterJob},
};
use crate::{DatabaseError, open::DEFAULT_PATIENCE};

/// The most rows of a read that the writing thread answers: writes wait for it.
const SHORT_PAGE: usize = 64;

/// Stores everything in one SQLite file.
///
/// One thread writes: it performs all pending writes in one commit (WAL, synced) and then answers
/// each caller. Only leases and the ends of charges are not synced: they survive the loss of the
/// process and reach the disk with the next write, and if the machine is lost, so is the driver of
/// every session in the file. A write that nothing waits for, such as the release of the lease of a session
/// that is dropped, waits a few milliseconds for others to share their commit. Several processes may use the same file; a write waits for the lock of
/// another one. A file that is deleted or replaced while it is in use is noticed with the next
/// write, which fails. Cloning shares the store;
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
    /// The time that a write waits for another process before it fails; 30 seconds by default.
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
    queue: Arc<JobQueue<WriterJob>>,
    readers: SqliteReaderPool,
    posted: SqliteMailbox,
    vectors: SqliteVectorCache,
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
        let file = FileIdentity::of(&path);
        let mut writer = SqliteWriter {
            connection,
            file: file.clone(),
            path: path.clone(),
            queue: queue.clone(),
            patience: options.busy_timeout,
            company_delay: writer::COMPANY_DELAY,
        };
        let thread = thread::Builder::new().name("toolgate-write".into());
        let writer = thread.spawn(move || writer.run());
        let failed = |error| DatabaseError::Failed {
            database: connect::database_name(&path),
            source: Arc::new(error),
        };
        let writer = Some(writer.map_err(failed)?);
        let readers = SqliteReaderPool::new(path.clone(), file, options.clone());
        let posted = SqliteMailbox::new(path.clone(), options.clone());
        Ok(Self(Arc::new(OpenDatabase {
            path,
            options,
            queue,
            readers,
            posted,
            vectors: SqliteVectorCache::default(),
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

    /// Queues a change of a lease, or the end of a charge.
    ///
    /// It survives the loss of the process by itself, but of the machine only with the next event.
    /// The driver of a session in a file is lost with the machine, and everything that it wrote
    /// under its lease also synced the lease; a charge that is open again is closed by the driver
    /// that resumes the work.
    async fn queue_unsynced_write<T: Send + 'static>(
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
        self.0.queue.push(WriterJob::Write(writer::queued_write(
            work, needs_sync, reply,
        )));
        match answer.await {
            Ok(done) => done,
            Err(_) => Err(DatabaseError::Closed {
                database: connect::database_name(&self.0.path),
            }
            .into()),
        }
    }

    /// Runs a read on a thread that only reads.
    async fn run_read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&SqliteReader<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (job, answer) = read_job(read);
        self.0.readers.push_read(job);
        self.await_read(answer).await
    }

    /// Runs a read of a few rows: on the thread that writes, if it has nothing to do. Its connection has
    /// the pages that it wrote in memory, where every other one reads them again after each commit.
    async fn run_short_read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&SqliteReader<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (job, answer) = read_job(read);
        if let Err(WriterJob::Read(job)) = self.0.queue.push_if_idle(WriterJob::Read(job)) {
            self.0.readers.push_read(job);
        }
        self.await_read(answer).await
    }

    async fn await_read<T>(
        &self,
        answer: oneshot::Receiver<Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        answer.await.unwrap_or_else(|_| {
            Err(DatabaseError::Closed {
                database: connect::database_name(&self.0.path),
            }
            .into())
        })
    }
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            busy_timeout: DEFAULT_PATIENCE,
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
