//! A store in a PostgreSQL database that many machines share.

mod accounts;
mod catalogue;
mod check;
mod check_rows;
mod connect;
mod erase;
mod events;
mod id;
mod ledgers;
mod locked_rows;
mod mailbox;
mod memories;
mod plan;
mod read;
mod records;
mod search;
mod session_checksum;
mod statement;
mod writer;

use std::{fmt, sync::Arc, time::Duration};

use tokio::sync::{mpsc, oneshot};
use toolgate_core::StoreError;

use self::{
    connect::DatabaseAddress,
    locked_rows::RowSelection,
    mailbox::PostgresMailbox,
    plan::PostgresWritePlan,
    read::PostgresReader,
    search::PostgresVectorCache,
    writer::{PostgresGroupWriter, PostgresQueuedWrite, PostgresWriteJob},
};
use crate::{DatabaseError, open::DEFAULT_PATIENCE};

/// Stores everything in a PostgreSQL database.
///
/// One task writes: it performs all pending writes in one transaction and then answers each caller.
/// Many processes on many machines may use the same database. While the server is away, requests
/// wait for it with growing delays, by default for 30 seconds. A commit whose answer was lost is
/// looked up before it is repeated, so it is never performed twice. Cloning shares the store; when
/// the last clone is dropped, queued writes are still performed.
///
/// It runs on tokio: connect and use it within a runtime that lives as long as the store.
#[derive(Clone)]
pub struct PostgresStore {
    reads: Arc<PostgresReader>,
    posted: Arc<PostgresMailbox>,
    vectors: PostgresVectorCache,
    queue: mpsc::UnboundedSender<Box<dyn PostgresWriteJob>>,
}

/// Options for a PostgreSQL database.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// The time for which a request waits for a server that is away before it fails; 30 seconds by
    /// default. Connecting for the first time does not wait.
    pub patience: Duration,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            patience: DEFAULT_PATIENCE,
        }
    }
}

impl PostgresStore {
    /// Connects to the database at `url` and migrates it to the newest schema.
    ///
    /// The address has the form `postgres://user:password@host/database`. No error and no log
    /// repeats it.
    ///
    /// # Errors
    ///
    /// Fails if the address is invalid, the server cannot be reached, or the database belongs to
    /// another program or has a newer schema.
    pub async fn connect(url: &str) -> Result<Self, DatabaseError> {
        Self::connect_with(url, PostgresOptions::default()).await
    }

    /// Connects with options.
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect).
    pub async fn connect_with(url: &str, options: PostgresOptions) -> Result<Self, DatabaseError> {
        let mut address = DatabaseAddress::parse(url)?;
        address.patience = options.patience;
        let mut connection = address.open_connection().await?;
        address.migrate_schema(&mut connection).await?;
        let (queue, jobs) = mpsc::unbounded_channel();
        let writer = PostgresGroupWriter::sign_on(address.clone(), connection).await?;
        tokio::spawn(writer::run_writer(writer, jobs));
        let reads = Arc::new(PostgresReader {
            pool: address.open_reader_pool(),
            address,
        });
        Ok(Self {
            reads,
            posted: Arc::default(),
            vectors: PostgresVectorCache::default(),
            queue,
        })
    }

    /// Fails always: a PostgreSQL database is copied with `pg_dump`, as the hint of the error says.
    pub fn backup_to(&self, _path: impl AsRef<std::path::Path>) -> Result<(), DatabaseError> {
        Err(DatabaseError::CopyUnsupported {
            database: self.reads.address.name.clone(),
        })
    }

    /// Queues a write with the rows it depends on (`about`) and waits for its commit.
    async fn queue_write<T: Send + 'static>(
        &self,
        about: impl Fn(&mut RowSelection) + Send + 'static,
        work: impl FnMut(&mut PostgresWritePlan) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        // If the writer has ended, the job is dropped and the answer fails below.
        let _ = self.queue.send(Box::new(PostgresQueuedWrite {
            about,
            work,
            done: None,
            reply,
        }));
        match answer.await {
            Ok(done) => done,
            Err(_) => Err(DatabaseError::Closed {
                database: self.reads.address.name.clone(),
            }
            .into()),
        }
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("database", &self.reads.address.name)
            .finish_non_exhaustive()
    }
}
