//! The single writer task: it performs all pending writes in one transaction and then answers every
//! caller.

use sqlx::{Executor, PgConnection, Row};
use tokio::{
    sync::{mpsc, oneshot},
    time::{sleep, timeout},
};
use toolgate_core::{StoreError, run_contained_sync};
use uuid::Uuid;

use super::{
    connect::{
        ANSWER_TIMEOUT, DatabaseAddress, LARGE_WRITE_TIMEOUT, is_conflict, is_connection_lost,
        no_answer_error,
    },
    id::PgUuid,
    locked_rows::{LockedRows, RowSelection},
    plan::PostgresWritePlan,
    statement::{self, CommitMark},
};
use crate::{
    DatabaseError, commit_hold::begin_commit, patience::Patience, write_answer::answer_write,
};

/// The maximum number of writes that share a commit, so that no caller waits for too many others.
const MAX_GROUP: usize = 512;

/// The maximum number of repetitions of a group that conflicts with other processes.
const MAX_CONFLICTS: usize = 20;

/// A write that waits for its commit.
pub(super) trait PostgresWriteJob: Send {
    /// Names the rows that the write depends on.
    fn add_rows(&self, wants: &mut RowSelection);

    /// Decides the write and adds it to the plan, or rejects it. A plan that cannot be written is
    /// built again.
    fn run(&mut self, plan: &mut PostgresWritePlan);

    /// Answers the caller. A rejected write stays rejected; any other is committed or, with an
    /// error, is not.
    fn answer_caller(self: Box<Self>, end: Result<(), &DatabaseError>);
}

pub(super) struct PostgresQueuedWrite<T, A, W> {
    pub(super) about: A,
    pub(super) work: W,
    pub(super) done: Option<Result<T, StoreError>>,
    pub(super) reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, A, W> PostgresWriteJob for PostgresQueuedWrite<T, A, W>
where
    T: Send,
    A: Fn(&mut RowSelection) + Send,
    W: FnMut(&mut PostgresWritePlan) -> Result<T, StoreError> + Send,
{
    fn add_rows(&self, wants: &mut RowSelection) {
        (self.about)(wants);
    }

    fn run(&mut self, plan: &mut PostgresWritePlan) {
        // An earlier attempt must not answer for one that panics.
        self.done = None;
        self.done = Some((self.work)(plan));
    }

    fn answer_caller(self: Box<Self>, end: Result<(), &DatabaseError>) {
        answer_write(self.reply, self.done, end);
    }
}

/// The reason why a group was not written.
enum GroupFailure {
    /// Nothing was written, because of a conflict. A retry can succeed.
    Conflict(DatabaseError),
    /// Nothing was written, because another process held a lock for too long. A later retry can
    /// succeed.
    Locked(DatabaseError),
    /// Nothing was written, and the connection is lost.
    ConnectionLost(DatabaseError),
    /// Nothing was written.
    Rejected(DatabaseError),
    /// The outcome of the commit is unknown, and the connection is lost.
    OutcomeUnknown(DatabaseError),
}

impl GroupFailure {
    fn into_error(self) -> DatabaseError {
        match self {
            Self::Conflict(error)
            | Self::Locked(error)
            | Self::ConnectionLost(error)
            | Self::Rejected(error)
            | Self::OutcomeUnknown(error) => error,
        }
    }
}

/// Performs the jobs of the queue until its last sender is dropped.
pub(super) async fn run_writer(
    mut writer: PostgresGroupWriter,
    mut queue: mpsc::UnboundedReceiver<Box<dyn PostgresWriteJob>>,
) {
    let mut group = Vec::new();
    while queue.recv_many(&mut group, MAX_GROUP).await > 0 {
        let end = writer.write_group(&mut group).await;
        if matches!(end, Err(GroupFailure::Rejected(_))) && group.len() > 1 {
            // One job cannot be written. Run alone, each job gets its own answer.
            for job in group.drain(..) {
                let mut alone = vec![job];
                let end = writer.write_group(&mut alone).await;
                answer_group(alone.drain(..), end);
            }
        } else {
            answer_group(group.drain(..), end);
        }
    }
    writer.sign_off().await;
}

fn answer_group(
    group: impl Iterator<Item = Box<dyn PostgresWriteJob>>,
    end: Result<(), GroupFailure>,
) {
    let end = end.map_err(GroupFailure::into_error);
    group.for_each(|job| job.answer_caller(end.as_ref().copied()));
}

/// The connection that writes, and its row in the table `writers`.
///
/// The row has the number of the last group that was committed, and each group updates it. So a
/// commit whose answer was lost is looked up, and repeated only if it did not happen.
pub(super) struct PostgresGroupWriter {
    address: DatabaseAddress,
    connection: Option<PgConnection>,
    id: Uuid,
    /// The number of the last group that is known to be committed.
    committed: i64,
}

impl PostgresGroupWriter {
    /// Creates the row of this writer, and deletes those of processes that are long gone.
    pub(super) async fn sign_on(
        address: DatabaseAddress,
        mut connection: PgConnection,
    ) -> Result<Self, DatabaseError> {
        let id = Uuid::now_v7();
        // The row exists before the first group: a row that a lost transaction inserts could not be
        // waited for.
        let row = sqlx::query(
            "WITH old AS (DELETE FROM writers WHERE committed_at < now() - interval '30 days')
             INSERT INTO writers (id, last_group, committed_at) VALUES ($1, 0, now())",
        )
        .bind(PgUuid(id))
        .execute(&mut connection);
        with_timeout(row)
            .await
            .map_err(|error| address.database_error(error))?;
        Ok(Self {
            address,
            connection: Some(connection),
            id,
            committed: 0,
        })
    }

    /// Deletes the row of this writer. If that fails, another process deletes it later.
    async fn sign_off(mut self) {
        if let Some(connection) = &mut self.connection {
            let row = sqlx::query("DELETE FROM writers WHERE id = $1").bind(PgUuid(self.id));
            let _ = with_timeout(row.execute(connection)).await;
        }
    }

    /// Writes a group; retries while the server is away, another process holds a lock, or the group
    /// conflicts with another process.
    async fn write_group(
        &mut self,
        group: &mut [Box<dyn PostgresWriteJob>],
    ) -> Result<(), GroupFailure> {
        let mut patience = Patience::starting_now(self.address.patience);
        let mut conflicts = 0;
        let mut is_unknown = false;
        loop {
            let tried = if is_unknown {
                self.look_up_commit().await
            } else {
                self.attempt_group(group).await.map(|()| true)
            };
            let failure = match tried {
                Ok(true) => {
                    self.committed += 1;
                    return Ok(());
                }
                // The group is not in the database, so repeating it is safe.
                Ok(false) => {
                    is_unknown = false;
                    continue;
                }
                Err(failure) => failure,
            };
            match failure {
                GroupFailure::Conflict(_) if conflicts < MAX_CONFLICTS => {
                    conflicts += 1;
                    continue;
                }
                GroupFailure::Conflict(_) | GroupFailure::Rejected(_) => return Err(failure),
                GroupFailure::Locked(_) => {}
                GroupFailure::ConnectionLost(_) => self.connection = None,
                GroupFailure::OutcomeUnknown(_) => {
                    self.connection = None;
                    is_unknown = true;
                }
            }
            match patience.next_delay() {
                Some(delay) => sleep(delay).await,
                None => return Err(failure),
            }
        }
    }

    async fn connection(&mut self) -> Result<&mut PgConnection, DatabaseError> {
        match &mut self.connection {
            Some(open) => Ok(open),
            closed => Ok(closed.insert(self.address.open_connection().await?)),
        }
    }

    /// Checks whether the last group was committed, after its answer was lost.
    async fn look_up_commit(&mut self) -> Result<bool, GroupFailure> {
        let id = self.id;
        let number = self.committed + 1;
        let connection = self
            .connection()
            .await
            .map_err(GroupFailure::OutcomeUnknown)?;
        // The lock waits for the lost transaction, if the server still works on it.
        let row = sqlx::query("SELECT last_group FROM writers WHERE id = $1 FOR UPDATE")
            .bind(PgUuid(id))
            .fetch_one(connection);
        let found = with_timeout(async { row.await?.try_get::<i64, _>(0) }).await;
        match found {
            Ok(found) => Ok(found == number),
            Err(error) => Err(GroupFailure::OutcomeUnknown(self.address.lost_error(error))),
        }
    }

    async fn attempt_group(
        &mut self,
        group: &mut [Box<dyn PostgresWriteJob>],
    ) -> Result<(), GroupFailure> {
        let mark = CommitMark {
            writer: self.id,
            number: self.committed + 1,
        };
        let address = self.address.clone();
        let connection = self
            .connection()
            .await
            .map_err(GroupFailure::ConnectionLost)?;
        // A process that is about to be suspended waits for this, and then no lock is held.
        let _commit = begin_commit().await;
        let plan = match with_timeout(plan_group(connection, group)).await {
            Ok(plan) => plan,
            Err(error) => return Err(roll_back(&address, connection, error).await),
        };
        let limit = if plan.blobs.is_empty() {
            ANSWER_TIMEOUT
        } else {
            LARGE_WRITE_TIMEOUT
        };
        let written = timeout(limit, statement::write_plan(connection, &plan, mark))
            .await
            .unwrap_or_else(|_| Err(no_answer_error()));
        if let Err(error) = written {
            return Err(roll_back(&address, connection, error).await);
        }
        match with_timeout(connection.execute("COMMIT")).await {
            Ok(_) => Ok(()),
            Err(error) if is_conflict(&error) => {
                Err(GroupFailure::Conflict(address.database_error(error)))
            }
            // The server may have committed and only its answer was lost.
            Err(error) => Err(GroupFailure::OutcomeUnknown(address.lost_error(error))),
        }
    }
}

/// Waits for the server with a time limit. A server that vanished silently must not block all
/// callers forever.
pub(super) async fn with_timeout<T>(
    asked: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    timeout(ANSWER_TIMEOUT, asked)
        .await
        .unwrap_or_else(|_| Err(no_answer_error()))
}

/// Opens a transaction, reads what the group depends on, and plans the group.
async fn plan_group(
    connection: &mut PgConnection,
    group: &mut [Box<dyn PostgresWriteJob>],
) -> Result<PostgresWritePlan, sqlx::Error> {
    // A panic breaks the group, not the task: other jobs still have to be written.
    let panicked = |report: String| sqlx::Error::Encode(report.into());
    let mut wants = RowSelection::default();
    run_contained_sync(|| group.iter().for_each(|job| job.add_rows(&mut wants)))
        .map_err(panicked)?;
    connection.execute("BEGIN").await?;
    let mut plan = PostgresWritePlan::new(LockedRows::lock_rows(connection, &wants).await?);
    // In order of arrival: each job sees the changes of those before it.
    run_contained_sync(|| group.iter_mut().for_each(|job| job.run(&mut plan))).map_err(panicked)?;
    Ok(plan)
}

/// Rolls back and classifies the failure.
async fn roll_back(
    address: &DatabaseAddress,
    connection: &mut PgConnection,
    error: sqlx::Error,
) -> GroupFailure {
    let race = is_conflict(&error);
    let lost = is_connection_lost(&error);
    let error = address.database_error(error);
    // Without a rollback the transaction may still hold locks; closing the connection ends it.
    if lost || with_timeout(connection.execute("ROLLBACK")).await.is_err() {
        return GroupFailure::ConnectionLost(error);
    }
    match error {
        error if race => GroupFailure::Conflict(error),
        error @ DatabaseError::Locked { .. } => GroupFailure::Locked(error),
        error => GroupFailure::Rejected(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_write_that_panics_fails_alone() {
        let Ok(url) = std::env::var("TOOLGATE_TEST_POSTGRES") else {
            return;
        };
        let address = DatabaseAddress::parse(&url).expect("an address");
        let connection = address.open_connection().await.expect("connects");
        // These writes change nothing, so the database needs no tables.
        let writer = PostgresGroupWriter {
            address,
            connection: Some(connection),
            id: Uuid::nil(),
            committed: 0,
        };
        let (queue, jobs) = mpsc::unbounded_channel::<Box<dyn PostgresWriteJob>>();
        let write = |n: u32, panics: bool| {
            let (reply, answer) = oneshot::channel();
            let work = move |_: &mut PostgresWritePlan| {
                assert!(!panics, "the test wants a panic");
                Ok(n)
            };
            let job = PostgresQueuedWrite {
                about: |_: &mut RowSelection| (),
                work,
                done: None,
                reply,
            };
            assert!(queue.send(Box::new(job)).is_ok());
            answer
        };
        let answers = [write(1, false), write(2, true), write(3, false)];
        drop(queue);
        run_writer(writer, jobs).await;
        let answers = answers.map(|mut answer| answer.try_recv().expect("is answered").ok());
        assert_eq!(answers, [Some(1), None, Some(3)]);
    }
}
