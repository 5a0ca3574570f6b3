//! The one task that writes: it does all that is waiting in one transaction and then answers everybody.

use sqlx::{Executor, PgConnection};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use toolgate_core::StoreError;

use super::{
    connect::{Address, QUIET, is_lost, is_race, silent},
    facts::{Facts, Wants},
    plan::Plan,
    statement,
};
use crate::DatabaseError;

/// How many writes share a commit at most, so that no caller waits for too many others.
const GROUP: usize = 512;

/// How often a group is judged anew because it met other processes half-way.
const TRIES: usize = 20;

/// A write that waits for its commit.
pub(super) trait Job: Send {
    /// Says what the write is about.
    fn wants(&self, wants: &mut Wants);

    /// Judges the write and adds it to the plan, or refuses it. A plan that cannot be written is made again.
    fn run(&mut self, plan: &mut Plan);

    /// Answers the caller. What was refused stays refused; what was done is done or, with an error, is not.
    fn answer(self: Box<Self>, end: Result<(), &DatabaseError>);
}

pub(super) struct Write<T, A, W> {
    pub(super) about: A,
    pub(super) work: W,
    pub(super) done: Option<Result<T, StoreError>>,
    pub(super) reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, A, W> Job for Write<T, A, W>
where
    T: Send,
    A: Fn(&mut Wants) + Send,
    W: FnMut(&mut Plan) -> Result<T, StoreError> + Send,
{
    fn wants(&self, wants: &mut Wants) {
        (self.about)(wants);
    }

    fn run(&mut self, plan: &mut Plan) {
        self.done = Some((self.work)(plan));
    }

    fn answer(self: Box<Self>, end: Result<(), &DatabaseError>) {
        let answer = match (end, self.done) {
            (_, Some(Err(refused))) => Err(refused),
            (Ok(()), Some(done)) => done,
            (Ok(()), None) => return,
            (Err(error), _) => Err(error.clone().into()),
        };
        // A caller that went away needs no answer.
        let _ = self.reply.send(answer);
    }
}

/// Why a group was not written.
enum Failure {
    /// Nothing was written. The same can be tried again.
    Race(DatabaseError),
    /// Nothing was written, and the connection is gone.
    Gone(DatabaseError),
    /// Nothing was written.
    Refused(DatabaseError),
    /// It was or was not written; nobody knows.
    Unknown(DatabaseError),
}

/// Does everything in the queue until the last one who could add to it is gone.
pub(super) async fn run(
    address: Address,
    first: PgConnection,
    mut queue: mpsc::UnboundedReceiver<Box<dyn Job>>,
) {
    let mut connection = Some(first);
    let mut group = Vec::new();
    while queue.recv_many(&mut group, GROUP).await > 0 {
        let end = write(&address, &mut connection, &mut group).await;
        if matches!(end, Err(Failure::Refused(_))) && group.len() > 1 {
            // One of them cannot be written. Alone, each of them gets the answer that is its own.
            for job in group.drain(..) {
                let mut alone = vec![job];
                let end = write(&address, &mut connection, &mut alone).await;
                answer(alone.drain(..), end);
            }
        } else {
            answer(group.drain(..), end);
        }
    }
}

fn answer(group: impl Iterator<Item = Box<dyn Job>>, end: Result<(), Failure>) {
    let end = end.map_err(|failure| match failure {
        Failure::Race(error)
        | Failure::Gone(error)
        | Failure::Refused(error)
        | Failure::Unknown(error) => error,
    });
    group.for_each(|job| job.answer(end.as_ref().copied()));
}

/// Writes a group, again if another process came in between or the connection was lost before the commit.
async fn write(
    address: &Address,
    connection: &mut Option<PgConnection>,
    group: &mut [Box<dyn Job>],
) -> Result<(), Failure> {
    let mut lost_before = false;
    for _ in 1..TRIES {
        match attempt(address, connection, group).await {
            Err(Failure::Race(_)) => {}
            Err(Failure::Gone(_)) if !lost_before => {
                (*connection, lost_before) = (None, true);
            }
            end => {
                if matches!(end, Err(Failure::Gone(_) | Failure::Unknown(_))) {
                    *connection = None;
                }
                return end;
            }
        }
    }
    attempt(address, connection, group).await
}

async fn attempt(
    address: &Address,
    connection: &mut Option<PgConnection>,
    group: &mut [Box<dyn Job>],
) -> Result<(), Failure> {
    let connection = match connection {
        Some(open) => open,
        None => connection.insert(address.connect().await.map_err(Failure::Gone)?),
    };
    let plan = match answered(plan(connection, group)).await {
        Ok(plan) => plan,
        Err(error) => return Err(not_written(address, connection, error).await),
    };
    // Large blobs take their time.
    let written = timeout(10 * QUIET, statement::write(connection, &plan))
        .await
        .unwrap_or_else(|_| Err(silent()));
    if let Err(error) = written {
        return Err(not_written(address, connection, error).await);
    }
    match answered(connection.execute("COMMIT")).await {
        Ok(_) => Ok(()),
        Err(error) if is_race(&error) => Err(Failure::Race(address.error(error))),
        // The server may have committed and only its answer was lost. Doing it again could do it twice.
        Err(error) => {
            let (database, source) = (address.name.clone(), std::sync::Arc::new(error));
            Err(Failure::Unknown(DatabaseError::Lost { database, source }))
        }
    }
}

/// The answer of the server. One that is gone without a word must not keep everybody waiting for ever.
async fn answered<T>(
    asked: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    timeout(QUIET, asked)
        .await
        .unwrap_or_else(|_| Err(silent()))
}

/// Opens a transaction, looks at what the group is about, and judges the group.
async fn plan(
    connection: &mut PgConnection,
    group: &mut [Box<dyn Job>],
) -> Result<Plan, sqlx::Error> {
    let mut wants = Wants::default();
    group.iter().for_each(|job| job.wants(&mut wants));
    connection.execute("BEGIN").await?;
    let mut plan = Plan::new(Facts::read(connection, &wants).await?);
    group.iter_mut().for_each(|job| job.run(&mut plan));
    Ok(plan)
}

/// Rolls back and says what the failure means.
async fn not_written(
    address: &Address,
    connection: &mut PgConnection,
    error: sqlx::Error,
) -> Failure {
    let (race, lost) = (is_race(&error), is_lost(&error));
    let error = address.error(error);
    if lost || answered(connection.execute("ROLLBACK")).await.is_err() {
        return Failure::Gone(error);
    }
    if race {
        Failure::Race(error)
    } else {
        Failure::Refused(error)
    }
}
