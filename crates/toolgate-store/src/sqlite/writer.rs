//! The one thread that writes: it does all that is waiting in one commit and then answers everybody.

use std::{cell::Cell, path::PathBuf, sync::Arc};

use rusqlite::Connection;
use tokio::sync::oneshot;
use toolgate_core::{StoreError, contained_sync};

use super::{connect::database_error, queue::Queue, tx::Tx};
use crate::DatabaseError;

/// How many writes share a commit at most, so that no caller waits for too many others.
const GROUP: usize = 512;

/// A write that waits for its commit.
pub(super) trait Job: Send {
    /// Does the write within the transaction. `Err` means that the transaction cannot be used any more.
    fn run(&mut self, tx: &Tx<'_>) -> Result<(), DatabaseError>;

    /// Whether it has to outlast the machine. What need not still outlasts the process.
    fn needs_sync(&self) -> bool;

    /// Answers the caller. What was refused stays refused; what was done is done or, with an error, is not.
    fn answer(self: Box<Self>, end: Result<(), &DatabaseError>);
}

/// Makes a job of something that can be done again if its first transaction fails.
pub(super) fn job<T, W>(
    work: W,
    needs_sync: bool,
    reply: oneshot::Sender<Result<T, StoreError>>,
) -> Box<dyn Job>
where
    T: Send + 'static,
    W: FnMut(&Tx<'_>) -> Result<T, StoreError> + Send + 'static,
{
    Box::new(Write {
        work,
        needs_sync,
        done: None,
        reply,
    })
}

struct Write<T, W> {
    work: W,
    needs_sync: bool,
    done: Option<Result<T, StoreError>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, W> Job for Write<T, W>
where
    T: Send,
    W: FnMut(&Tx<'_>) -> Result<T, StoreError> + Send,
{
    fn run(&mut self, tx: &Tx<'_>) -> Result<(), DatabaseError> {
        match (self.work)(tx) {
            // Whatever was written before the database failed must not be committed.
            Err(StoreError::Backend(cause)) => Err(super::connect::cause(tx.path, cause)),
            Err(StoreError::Damaged { source, .. }) if source.is::<DatabaseError>() => {
                Err(super::connect::cause(tx.path, source))
            }
            done => {
                self.done = Some(done);
                Ok(())
            }
        }
    }

    fn needs_sync(&self) -> bool {
        self.needs_sync
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

/// Does everything in the queue until it is closed and empty.
pub(super) fn run(connection: &Connection, path: &PathBuf, queue: &Arc<Queue<Box<dyn Job>>>) {
    let tx = Tx {
        connection,
        path,
        synced: Cell::new(true),
    };
    loop {
        let group = queue.take(GROUP);
        if group.is_empty() {
            return;
        }
        if let Err(group) = write(&tx, group) {
            // One of them broke the transaction. Alone, each of them gets the answer that is its own.
            group
                .into_iter()
                .for_each(|job| drop(write(&tx, vec![job])));
        }
    }
}

/// Does a group in one transaction, or gives it back if one of several broke it.
fn write(tx: &Tx<'_>, mut group: Vec<Box<dyn Job>>) -> Result<(), Vec<Box<dyn Job>>> {
    let needs_sync = group.iter().any(|job| job.needs_sync());
    let end = match set_sync(tx, needs_sync).and_then(|()| execute(tx, "BEGIN IMMEDIATE")) {
        Err(error) => Err(error),
        Ok(()) => match group.iter_mut().try_for_each(|job| run_one(tx, &mut **job)) {
            Ok(()) => execute(tx, "COMMIT").inspect_err(|_| roll_back(tx)),
            Err(error) => {
                roll_back(tx);
                if group.len() > 1 {
                    return Err(group);
                }
                Err(error)
            }
        },
    };
    group
        .into_iter()
        .for_each(|job| job.answer(end.as_ref().copied()));
    Ok(())
}

/// A job that panics has broken the transaction, not the thread: others still want to write.
fn run_one(tx: &Tx<'_>, job: &mut dyn Job) -> Result<(), DatabaseError> {
    contained_sync(|| job.run(tx))
        .unwrap_or_else(|report| Err(super::connect::cause(tx.path, report.into())))
}

/// Sees to it that the next commit waits for the disk, or does not.
fn set_sync(tx: &Tx<'_>, synced: bool) -> Result<(), DatabaseError> {
    if tx.synced.get() == synced {
        return Ok(());
    }
    let level = if synced { "FULL" } else { "NORMAL" };
    let done = tx.connection.pragma_update(None, "synchronous", level);
    done.map(|()| tx.synced.set(synced))
        .map_err(|error| database_error(tx.path, error))
}

fn execute(tx: &Tx<'_>, sql: &str) -> Result<(), DatabaseError> {
    let done = tx
        .connection
        .prepare_cached(sql)
        .and_then(|mut statement| statement.execute([]));
    done.map(drop)
        .map_err(|error| database_error(tx.path, error))
}

/// SQLite rolls some failures back by itself; then there is nothing left to do.
fn roll_back(tx: &Tx<'_>) {
    if !tx.connection.is_autocommit() {
        let _ = tx.connection.execute_batch("ROLLBACK");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_panics_fails_alone() {
        let connection = Connection::open_in_memory().expect("opens");
        connection
            .execute_batch("CREATE TABLE t (n)")
            .expect("is made");
        let queue = Arc::new(Queue::new());
        let insert = |n: i64, panics: bool| {
            let (reply, answer) = oneshot::channel();
            let work = move |tx: &Tx<'_>| {
                tx.connection
                    .execute("INSERT INTO t VALUES (?1)", [n])
                    .expect("is written");
                assert!(!panics, "as the test wants it");
                Ok(n)
            };
            queue.push(job(work, true, reply));
            answer
        };
        let answers = [insert(1, false), insert(2, true), insert(3, false)];
        queue.close();
        run(&connection, &PathBuf::from("t"), &queue);
        let answers = answers.map(|mut answer| answer.try_recv().expect("is answered").ok());
        assert_eq!(answers, [Some(1), None, Some(3)]);
        let sum = connection.query_row("SELECT sum(n) FROM t", [], |row| row.get::<_, i64>(0));
        assert_eq!(sum.expect("reads"), 4);
    }
}
