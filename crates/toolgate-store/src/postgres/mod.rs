//! A store in a PostgreSQL database that many machines share.

mod accounts;
mod check;
mod connect;
mod erase;
mod id;
mod locked_rows;
mod mailbox;
mod plan;
mod read;
mod statement;
mod writer;

use std::{fmt, ops::Range, sync::Arc};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use toolgate_core::{
    AccountKey, AccountMovement, AccountRow, ApprovalFilter, ApprovalRow, Charge, ChargeFilter,
    Digest, ErasedSessions, Event, Lease, LeaseRequest, LedgerDraft, LedgerHead, LedgerName,
    LogPosition, MailboxItem, MessageRecord, RecordKey, SealedEntry, SessionFilter, SessionId,
    SessionRow, Store, StoreError, StoreRecord, Timestamp, TurnFilter, TurnRow, WriteBatch,
};

use self::{
    accounts::charge_rows,
    connect::DatabaseAddress,
    erase::SessionChange,
    locked_rows::RowSelection,
    mailbox::PostgresMailbox,
    plan::PostgresWritePlan,
    read::PostgresReader,
    writer::{PostgresQueuedWrite, PostgresWriteJob},
};
use crate::{
    DatabaseError,
    encoded::{EncodedBatch, EncodedRecord, encode_json, encode_records},
};

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

impl Store for PostgresStore {
    async fn append(
        &self,
        session: SessionId,
        at: LogPosition,
        batch: WriteBatch,
    ) -> Result<u64, StoreError> {
        let batch = Arc::new(EncodedBatch::new(batch)?);
        let about = {
            let batch = batch.clone();
            move |wants: &mut RowSelection| {
                wants.add_session(session);
                wants.add_records(&batch.records);
                wants.add_ledgers(&batch.entries);
            }
        };
        self.queue_write(about, move |plan| plan.append_batch(session, at, &batch))
            .await
    }

    async fn events(
        &self,
        session: SessionId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Arc<Event>>, StoreError> {
        self.reads.read_events(session, after, limit).await
    }

    async fn revision(&self, session: SessionId) -> Result<u64, StoreError> {
        self.reads.read_revision(session).await
    }

    async fn put_record_once(
        &self,
        key: RecordKey,
        record: StoreRecord,
    ) -> Result<Option<StoreRecord>, StoreError> {
        let record = EncodedRecord::new(key, &record)?;
        let name = record.name.clone();
        self.queue_write(
            move |wants| wants.add_record(&name),
            move |plan| plan.insert_once(&record),
        )
        .await
    }

    async fn load_record(&self, key: &RecordKey) -> Result<Option<StoreRecord>, StoreError> {
        self.reads.read_record(&key.to_string()).await
    }

    async fn put_blob(&self, bytes: Bytes) -> Result<Digest, StoreError> {
        // Hashing large data takes a while.
        let hashed = bytes.clone();
        let digest = tokio::task::spawn_blocking(move || Digest::of_bytes(&hashed)).await;
        let digest = digest.map_err(|error| StoreError::Backend(Box::new(error)))?;
        self.queue_write(
            |_| (),
            move |plan| {
                plan.blobs.insert(digest, bytes.clone());
                Ok(())
            },
        )
        .await?;
        Ok(digest)
    }

    async fn blob(&self, digest: Digest, range: Range<u64>) -> Result<Option<Bytes>, StoreError> {
        self.reads.read_blob(digest, range).await
    }

    async fn list_records(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Arc<str>, StoreRecord)>, StoreError> {
        self.reads.list_records(prefix, after, limit).await
    }

    async fn messages(
        &self,
        session: SessionId,
        before: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Arc<MessageRecord>)>, StoreError> {
        self.reads.read_messages(session, before, limit).await
    }

    async fn acquire_lease(&self, request: LeaseRequest) -> Result<Lease, StoreError> {
        let session = request.session;
        self.queue_write(
            move |wants| wants.add_session(session),
            move |plan| plan.grant_lease(&request),
        )
        .await
    }

    async fn renew_lease(&self, lease: &Lease, until: Timestamp) -> Result<(), StoreError> {
        let lease = lease.clone();
        let session = lease.session;
        self.queue_write(
            move |wants| wants.add_session(session),
            move |plan| plan.renew_lease(&lease, until),
        )
        .await
    }

    async fn release_lease(&self, lease: &Lease) -> Result<(), StoreError> {
        let lease = lease.clone();
        let session = lease.session;
        self.queue_write(
            move |wants| wants.add_session(session),
            move |plan| {
                plan.release_lease(&lease);
                Ok(())
            },
        )
        .await
    }

    async fn post_item(
        &self,
        session: SessionId,
        post: MailboxItem,
        records: Vec<(RecordKey, StoreRecord)>,
    ) -> Result<(), StoreError> {
        let body = encode_json(&post)?;
        let records = Arc::new(encode_records(records)?);
        let answered = if let MailboxItem::Answer { call, .. } = post {
            Some(call)
        } else {
            None
        };
        let about = {
            let records = records.clone();
            move |wants: &mut RowSelection| {
                wants.add_session(session);
                wants.add_records(&records);
            }
        };
        self.queue_write(about, move |plan| {
            plan.add_post(session, answered, &body, &records)
        })
        .await
    }

    async fn posts(
        &self,
        session: SessionId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, MailboxItem)>, StoreError> {
        self.reads.read_posts(session, after, limit).await
    }

    async fn wait_for_post(&self, session: SessionId, after: u64) {
        self.posted.wait_for_post(&self.reads, session, after).await;
    }

    async fn sessions(&self, filter: SessionFilter) -> Result<Vec<SessionRow>, StoreError> {
        self.reads.list_sessions(&filter).await
    }

    async fn hide_session(
        &self,
        session: SessionId,
        at: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        self.reads
            .change_sessions(session, SessionChange::Hide(at))
            .await
            .map(drop)
    }

    async fn erase_session(
        &self,
        session: SessionId,
        now: Timestamp,
    ) -> Result<ErasedSessions, StoreError> {
        self.reads
            .change_sessions(session, SessionChange::Erase { now })
            .await
    }

    async fn turns(&self, filter: TurnFilter) -> Result<Vec<TurnRow>, StoreError> {
        self.reads.list_turns(&filter).await
    }

    async fn approvals(&self, filter: ApprovalFilter) -> Result<Vec<ApprovalRow>, StoreError> {
        self.reads.list_approvals(&filter).await
    }

    async fn seal_entries(&self, drafts: Vec<LedgerDraft>) -> Result<Vec<LedgerHead>, StoreError> {
        let drafts = Arc::new(drafts);
        let about = {
            let drafts = drafts.clone();
            move |wants: &mut RowSelection| wants.add_ledgers(&drafts)
        };
        self.queue_write(about, move |plan| Ok(plan.seal_entries(&drafts)))
            .await
    }

    async fn entries(
        &self,
        ledger: &LedgerName,
        after: u64,
        limit: usize,
    ) -> Result<Vec<SealedEntry>, StoreError> {
        self.reads.read_entries(ledger, after, limit).await
    }

    async fn ledgers(&self) -> Result<Vec<LedgerHead>, StoreError> {
        self.reads.read_ledgers().await
    }

    async fn reserve(&self, charge: Charge) -> Result<Charge, StoreError> {
        let about = charge_rows(&charge);
        self.queue_write(about, move |plan| plan.reserve_charge(&charge))
            .await
    }

    async fn settle_charge(
        &self,
        charge: Charge,
        actual: Vec<u64>,
    ) -> Result<Vec<AccountMovement>, StoreError> {
        let about = charge_rows(&charge);
        self.queue_write(about, move |plan| Ok(plan.settle_charge(&charge, &actual)))
            .await
    }

    async fn release_charge(&self, charge: Charge) -> Result<(), StoreError> {
        let about = charge_rows(&charge);
        self.queue_write(about, move |plan| {
            plan.release_charge(&charge);
            Ok(())
        })
        .await
    }

    async fn charges(&self, filter: ChargeFilter) -> Result<Vec<Charge>, StoreError> {
        self.reads.read_charges(&filter).await
    }

    async fn account(&self, account: &AccountKey) -> Result<Option<AccountRow>, StoreError> {
        self.reads.read_account(account).await
    }

    async fn accounts(
        &self,
        prefix: &str,
        after: Option<&AccountKey>,
        limit: usize,
    ) -> Result<Vec<AccountRow>, StoreError> {
        self.reads.list_accounts(prefix, after, limit).await
    }
}
