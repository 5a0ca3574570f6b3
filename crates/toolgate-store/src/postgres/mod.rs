//! A store in a PostgreSQL database that many machines share.

mod accounts;
mod catalogue;
mod check;
mod connect;
mod erase;
mod events;
mod id;
mod ledgers;
mod locked_rows;
mod mailbox;
mod plan;
mod read;
mod records;
mod statement;
mod writer;

use std::{fmt, sync::Arc};

use tokio::sync::{mpsc, oneshot};
use toolgate_core::StoreError;

use self::{
    connect::DatabaseAddress,
    locked_rows::RowSelection,
    mailbox::PostgresMailbox,
    plan::PostgresWritePlan,
    read::PostgresReader,
    writer::{PostgresQueuedWrite, PostgresWriteJob},
};
use crate::DatabaseError;

/// Stores everything in a PostgreSQL database.
///
/// One task writes: it performs all pending writes in one transaction and then answers each caller.
/// Many processes on many machines may use the same database. A lost connection is opened again; a
/// write whose commit was not confirmed is reported as failed and never repeated. Cloning shares
/// the store; when the last clone is dropped, queued writes are still performed.
///
/// It runs on tokio: connect and use it within a runtime that lives as long as the store.
#[derive(Clone)]
pub struct PostgresStore {
    reads: Arc<PostgresReader>,
    posted: Arc<PostgresMailbox>,
    queue: mpsc::UnboundedSender<Box<dyn PostgresWriteJob>>,
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
        let address = DatabaseAddress::parse(url)?;
        let mut connection = address.open_connection().await?;
        address.migrate_schema(&mut connection).await?;
        let (queue, jobs) = mpsc::unbounded_channel();
        tokio::spawn(writer::run_writer(address.clone(), connection, jobs));
        let reads = Arc::new(PostgresReader {
            pool: address.open_reader_pool(),
            address,
        });
        Ok(Self {
            reads,
            posted: Arc::default(),
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
