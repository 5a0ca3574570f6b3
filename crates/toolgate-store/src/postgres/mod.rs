//! A store in a PostgreSQL database that many machines share.

mod accounts;
mod check;
mod connect;
mod erase;
mod facts;
mod id;
mod plan;
mod posted;
mod read;
mod statement;
mod writer;

use std::{fmt, ops::Range, sync::Arc};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use toolgate_core::{
    AccountKey, AccountRow, ApprovalFilter, ApprovalRow, Batch, Charge, ChargeFilter, Digest,
    Erased, Event, Lease, LeaseRequest, LedgerDraft, LedgerHead, LedgerName, Movement, Position,
    Post, Record, RecordKey, Said, SealedEntry, SessionFilter, SessionId, SessionRow, Store,
    StoreError, Timestamp, TurnFilter, TurnRow,
};

use self::{
    accounts::about,
    connect::Address,
    erase::Change,
    facts::Wants,
    plan::Plan,
    posted::Posted,
    read::Reads,
    writer::{Job, Write},
};
use crate::{
    DatabaseError,
    encoded::{EncodedBatch, EncodedRecord, encode_records, to_text},
};

/// Keeps everything in a PostgreSQL database.
///
/// One task writes: it does all writes that wait in one transaction and then answers each caller. Many processes on
/// many machines may use the same database. A connection that is lost is opened again; a write whose commit was not
/// confirmed is reported as failed and never repeated. Cloning shares the store; when the last clone is dropped,
/// what was queued is still written.
///
/// It runs on tokio: connect and use it within a runtime that lives as long as the store.
#[derive(Clone)]
pub struct PostgresStore {
    reads: Arc<Reads>,
    posted: Arc<Posted>,
    queue: mpsc::UnboundedSender<Box<dyn Job>>,
}

impl PostgresStore {
    /// Connects to the database at `url` and brings it up to date.
    ///
    /// The address reads `postgres://user:password@host/database`. No error and no log repeats it.
    pub async fn connect(url: &str) -> Result<Self, DatabaseError> {
        let address = Address::read(url)?;
        let mut connection = address.connect().await?;
        address.migrate(&mut connection).await?;
        let (queue, jobs) = mpsc::unbounded_channel();
        tokio::spawn(writer::run(address.clone(), connection, jobs));
        let reads = Arc::new(Reads {
            pool: address.pool(),
            address,
        });
        Ok(Self {
            reads,
            posted: Arc::default(),
            queue,
        })
    }

    /// Refuses: a PostgreSQL database is copied with `pg_dump`, which the hint of the error says.
    pub fn backup_to(&self, _path: impl AsRef<std::path::Path>) -> Result<(), DatabaseError> {
        Err(DatabaseError::NoCopies {
            database: self.reads.address.name.clone(),
        })
    }

    /// Queues a write that is about something and waits for its commit.
    async fn write<T: Send + 'static>(
        &self,
        about: impl Fn(&mut Wants) + Send + 'static,
        work: impl FnMut(&mut Plan) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        // If nobody takes the job any more, the answer says so.
        let _ = self.queue.send(Box::new(Write {
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
        at: Position,
        batch: Batch,
    ) -> Result<u64, StoreError> {
        let batch = Arc::new(EncodedBatch::new(batch)?);
        let about = {
            let batch = batch.clone();
            move |wants: &mut Wants| {
                wants.session(session);
                wants.records(&batch.records);
                wants.ledgers(&batch.entries);
            }
        };
        self.write(about, move |plan| plan.append(session, at, &batch))
            .await
    }

    async fn events(
        &self,
        session: SessionId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Arc<Event>>, StoreError> {
        self.reads.events(session, after, limit).await
    }

    async fn revision(&self, session: SessionId) -> Result<u64, StoreError> {
        self.reads.revision(session).await
    }

    async fn once(&self, key: RecordKey, record: Record) -> Result<Option<Record>, StoreError> {
        let record = EncodedRecord::new(key, &record)?;
        let name = record.name.clone();
        self.write(
            move |wants| wants.record(&name),
            move |plan| plan.once(&record),
        )
        .await
    }

    async fn record(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        self.reads.record(&key.to_string()).await
    }

    async fn put_blob(&self, bytes: Bytes) -> Result<Digest, StoreError> {
        // Large bytes take a while to hash.
        let hashed = bytes.clone();
        let digest = tokio::task::spawn_blocking(move || Digest::of_bytes(&hashed)).await;
        let digest = digest.map_err(|error| StoreError::Backend(Box::new(error)))?;
        self.write(
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
        self.reads.blob(digest, range).await
    }

    async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(Arc<str>, Record)>, StoreError> {
        self.reads.list(prefix, after, limit).await
    }

    async fn messages(
        &self,
        session: SessionId,
        before: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Arc<Said>)>, StoreError> {
        self.reads.messages(session, before, limit).await
    }

    async fn lease(&self, request: LeaseRequest) -> Result<Lease, StoreError> {
        let session = request.session;
        self.write(
            move |wants| wants.session(session),
            move |plan| plan.lease(&request),
        )
        .await
    }

    async fn renew(&self, lease: &Lease, until: Timestamp) -> Result<(), StoreError> {
        let lease = lease.clone();
        let session = lease.session;
        self.write(
            move |wants| wants.session(session),
            move |plan| plan.renew(&lease, until),
        )
        .await
    }

    async fn release(&self, lease: &Lease) -> Result<(), StoreError> {
        let lease = lease.clone();
        let session = lease.session;
        self.write(
            move |wants| wants.session(session),
            move |plan| {
                plan.release(&lease);
                Ok(())
            },
        )
        .await
    }

    async fn post(
        &self,
        session: SessionId,
        post: Post,
        records: Vec<(RecordKey, Record)>,
    ) -> Result<(), StoreError> {
        let (body, records) = (to_text(&post)?, Arc::new(encode_records(records)?));
        let answered = if let Post::Answer { call, .. } = post {
            Some(call)
        } else {
            None
        };
        let about = {
            let records = records.clone();
            move |wants: &mut Wants| {
                wants.session(session);
                wants.records(&records);
            }
        };
        self.write(about, move |plan| {
            plan.post(session, answered, &body, &records)
        })
        .await
    }

    async fn posts(
        &self,
        session: SessionId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Post)>, StoreError> {
        self.reads.posts(session, after, limit).await
    }

    async fn posted(&self, session: SessionId, after: u64) {
        self.posted.wait(&self.reads, session, after).await;
    }

    async fn sessions(&self, filter: SessionFilter) -> Result<Vec<SessionRow>, StoreError> {
        self.reads.sessions(&filter).await
    }

    async fn hide(&self, session: SessionId, at: Option<Timestamp>) -> Result<(), StoreError> {
        self.reads.change(session, Change::Hide(at)).await.map(drop)
    }

    async fn erase(&self, session: SessionId, now: Timestamp) -> Result<Erased, StoreError> {
        self.reads.change(session, Change::Erase { now }).await
    }

    async fn turns(&self, filter: TurnFilter) -> Result<Vec<TurnRow>, StoreError> {
        self.reads.turns(&filter).await
    }

    async fn approvals(&self, filter: ApprovalFilter) -> Result<Vec<ApprovalRow>, StoreError> {
        self.reads.approvals(&filter).await
    }

    async fn seal(&self, drafts: Vec<LedgerDraft>) -> Result<Vec<LedgerHead>, StoreError> {
        let drafts = Arc::new(drafts);
        let about = {
            let drafts = drafts.clone();
            move |wants: &mut Wants| wants.ledgers(&drafts)
        };
        self.write(about, move |plan| Ok(plan.seal(&drafts))).await
    }

    async fn entries(
        &self,
        ledger: &LedgerName,
        after: u64,
        limit: usize,
    ) -> Result<Vec<SealedEntry>, StoreError> {
        self.reads.entries(ledger, after, limit).await
    }

    async fn ledgers(&self) -> Result<Vec<LedgerHead>, StoreError> {
        self.reads.ledgers().await
    }

    async fn reserve(&self, charge: Charge) -> Result<Charge, StoreError> {
        let about = about(&charge);
        self.write(about, move |plan| plan.reserve(&charge)).await
    }

    async fn settle_charge(
        &self,
        charge: Charge,
        actual: Vec<u64>,
    ) -> Result<Vec<Movement>, StoreError> {
        let about = about(&charge);
        self.write(about, move |plan| Ok(plan.settle_charge(&charge, &actual)))
            .await
    }

    async fn release_charge(&self, charge: Charge) -> Result<(), StoreError> {
        let about = about(&charge);
        self.write(about, move |plan| {
            plan.release_charge(&charge);
            Ok(())
        })
        .await
    }

    async fn charges(&self, filter: ChargeFilter) -> Result<Vec<Charge>, StoreError> {
        self.reads.charges(&filter).await
    }

    async fn account(&self, account: &AccountKey) -> Result<Option<AccountRow>, StoreError> {
        self.reads.account(account).await
    }

    async fn accounts(
        &self,
        prefix: &str,
        after: Option<&AccountKey>,
        limit: usize,
    ) -> Result<Vec<AccountRow>, StoreError> {
        self.reads.accounts(prefix, after, limit).await
    }
}
