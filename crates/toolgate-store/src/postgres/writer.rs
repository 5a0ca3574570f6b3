//! The single writer task: it performs all pending writes in one transaction and then answers every
//! caller.

use sqlx::{Executor, PgConnection};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use toolgate_core::{StoreError, run_contained_sync};

use super::{
    connect::{ANSWER_TIMEOUT, DatabaseAddress, is_conflict, is_connection_lost, no_answer_error},
    locked_rows::{LockedRows, RowSelection},
    plan::PostgresWritePlan,
    statement,
};
use crate::{DatabaseError, write_answer::answer_write};

/// The maximum number of writes that share a commit, so that no caller waits for too many others.
const MAX_GROUP: usize = 512;

/// The maximum number of attempts for a group that conflicts with other processes.
const MAX_ATTEMPTS: usize = 20;

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
    /// Nothing was written, and the connection is lost.
    ConnectionLost(DatabaseError),
    /// Nothing was written.
    Rejected(DatabaseError),
    /// The outcome of the commit is unknown.
    OutcomeUnknown(DatabaseError),
}

/// Performs the jobs of the queue until its last sender is dropped.
pub(super) async fn run_writer(
    address: DatabaseAddress,
    first: PgConnection,
    mut queue: mpsc::UnboundedReceiver<Box<dyn PostgresWriteJob>>,
) {
    let mut connection = Some(first);
    let mut group = Vec::new();
    while queue.recv_many(&mut group, MAX_GROUP).await > 0 {
        let end = write_group(&address, &mut connection, &mut group).await;
        if matches!(end, Err(GroupFailure::Rejected(_))) && group.len() > 1 {
            // One job cannot be written. Run alone, each job gets its own answer.
            for job in group.drain(..) {
                let mut alone = vec![job];
                let end = write_group(&address, &mut connection, &mut alone).await;
                answer_group(alone.drain(..), end);
            }
        } else {
            answer_group(group.drain(..), end);
        }
    }
}

fn answer_group(
    group: impl Iterator<Item = Box<dyn PostgresWriteJob>>,
    end: Result<(), GroupFailure>,
) {
    let end = end.map_err(|failure| match failure {
        GroupFailure::Conflict(error)
        | GroupFailure::ConnectionLost(error)
        | GroupFailure::Rejected(error)
        | GroupFailure::OutcomeUnknown(error) => error,
    });
    group.for_each(|job| job.answer_caller(end.as_ref().copied()));
}

/// Writes a group; retries if it conflicts with another process or the connection is lost before
/// the commit.
async fn write_group(
    address: &DatabaseAddress,
    connection: &mut Option<PgConnection>,
    group: &mut [Box<dyn PostgresWriteJob>],
) -> Result<(), GroupFailure> {
    let mut lost_before = false;
    for _ in 1..MAX_ATTEMPTS {
        match attempt_group(address, connection, group).await {
            Err(GroupFailure::Conflict(_)) => {}
            // Nothing was committed, so one reconnect is safe. If that fails too, the callers
            // should know.
            Err(GroupFailure::ConnectionLost(_)) if !lost_before => {
                *connection = None;
                lost_before = true;
            }
            end => {
                if matches!(
                    end,
                    Err(GroupFailure::ConnectionLost(_) | GroupFailure::OutcomeUnknown(_))
                ) {
                    *connection = None;
                }
                return end;
            }
        }
    }
    attempt_group(address, connection, group).await
}

async fn attempt_group(
    address: &DatabaseAddress,
    connection: &mut Option<PgConnection>,
    group: &mut [Box<dyn PostgresWriteJob>],
) -> Result<(), GroupFailure> {
    let connection = match connection {
        Some(open) => open,
        None => connection.insert(
            address
                .open_connection()
                .await
                .map_err(GroupFailure::ConnectionLost)?,
        ),
    };
    let plan = match with_timeout(plan_group(connection, group)).await {
        Ok(plan) => plan,
        Err(error) => return Err(roll_back(address, connection, error).await),
    };
    // Large blobs need more time.
    let written = timeout(
        10 * ANSWER_TIMEOUT,
        statement::write_plan(connection, &plan),
    )
    .await
    .unwrap_or_else(|_| Err(no_answer_error()));
    if let Err(error) = written {
        return Err(roll_back(address, connection, error).await);
    }
    match with_timeout(connection.execute("COMMIT")).await {
        Ok(_) => Ok(()),
        Err(error) if is_conflict(&error) => {
            Err(GroupFailure::Conflict(address.database_error(error)))
        }
        // The server may have committed and only its answer was lost. A retry could perform the
        // write twice.
        Err(error) => {
            let database = address.name.clone();
            let source = std::sync::Arc::new(error);
            Err(GroupFailure::OutcomeUnknown(DatabaseError::Lost {
                database,
                source,
            }))
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
    if race {
        GroupFailure::Conflict(error)
    } else {
        GroupFailure::Rejected(error)
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
        run_writer(address, connection, jobs).await;
        let answers = answers.map(|mut answer| answer.try_recv().expect("is answered").ok());
        assert_eq!(answers, [Some(1), None, Some(3)]);
    }
}
