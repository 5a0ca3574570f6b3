//! The single writer thread: it performs all pending writes in one commit and then answers every
//! caller.

use std::{
    cell::Cell,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use rusqlite::Connection;
use tokio::sync::oneshot;
use toolgate_core::{StoreError, run_contained_sync};

use super::{
    connect::{check_schema_version, database_error},
    identity::FileIdentity,
    queue::JobQueue,
    read::SqliteReader,
    reader_pool::ReadJob,
    transaction::SqliteWriteTx,
};
use crate::{
    DatabaseError, commit_hold::begin_commit_blocking, patience::Patience,
    write_answer::answer_write,
};

/// The maximum number of writes that share a commit, so that no caller waits for too many others.
const MAX_GROUP: usize = 512;

/// The first delay of an attempt to take the lock; each one is twice as long as the one before. SQLite's
/// own begin with a millisecond, several times the length of the commit that holds the lock.
const FIRST_LOCK_DELAY: Duration = Duration::from_micros(50);

/// The delays of one attempt to take the lock: about 200 milliseconds in all.
const LOCK_DELAYS: i32 = 12;

/// The time for which queued writes wait for the lock after the store was closed. The program is
/// ending then.
const CLOSING_PATIENCE: Duration = Duration::from_secs(2);

/// The time for which writes that nothing waits for are kept back, for others to share their commit.
pub(super) const COMPANY_DELAY: Duration = Duration::from_millis(5);

/// What the writing thread is asked for.
pub(super) enum WriterJob {
    Write(Box<dyn SqliteWriteJob>),
    /// A read of a few rows, for which the thread was idle.
    Read(ReadJob),
}

/// A write that waits for its commit.
pub(super) trait SqliteWriteJob: Send {
    /// Performs the write within the transaction. `Err` means that the transaction is no longer
    /// usable.
    fn run(&mut self, tx: &SqliteWriteTx<'_>) -> Result<(), DatabaseError>;

    /// Checks whether the write has to survive the loss of the machine. All writes survive the loss
    /// of the process.
    fn needs_sync(&self) -> bool;

    /// Checks whether anything depends on when it is performed: a caller that waits, or the disk.
    fn is_awaited(&self) -> bool;

    /// Answers the caller. A rejected write stays rejected; any other is committed or, with an
    /// error, is not.
    fn answer_caller(self: Box<Self>, end: Result<(), &DatabaseError>);
}

/// Creates a job from work that can be repeated if its first transaction fails.
pub(super) fn queued_write<T, W>(
    work: W,
    needs_sync: bool,
    reply: oneshot::Sender<Result<T, StoreError>>,
) -> Box<dyn SqliteWriteJob>
where
    T: Send + 'static,
    W: FnMut(&SqliteWriteTx<'_>) -> Result<T, StoreError> + Send + 'static,
{
    Box::new(SqliteQueuedWrite {
        work,
        needs_sync,
        done: None,
        reply,
    })
}

struct SqliteQueuedWrite<T, W> {
    work: W,
    needs_sync: bool,
    done: Option<Result<T, StoreError>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, W> SqliteWriteJob for SqliteQueuedWrite<T, W>
where
    T: Send,
    W: FnMut(&SqliteWriteTx<'_>) -> Result<T, StoreError> + Send,
{
    fn run(&mut self, tx: &SqliteWriteTx<'_>) -> Result<(), DatabaseError> {
        match (self.work)(tx) {
            // Anything written before the database failed must not be committed.
            Err(StoreError::Backend(cause) | StoreError::Unavailable { source: cause, .. }) => {
                Err(super::connect::into_database_error(tx.path, cause))
            }
            Err(StoreError::Damaged { source, .. }) if source.is::<DatabaseError>() => {
                Err(super::connect::into_database_error(tx.path, source))
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

    fn is_awaited(&self) -> bool {
        self.needs_sync || !self.reply.is_closed()
    }

    fn answer_caller(self: Box<Self>, end: Result<(), &DatabaseError>) {
        answer_write(self.reply, self.done, end);
    }
}

/// The thread that writes: its connection, its jobs, and its patience with other processes.
pub(super) struct SqliteWriter {
    pub(super) connection: Connection,
    pub(super) file: FileIdentity,
    pub(super) path: PathBuf,
    pub(super) queue: Arc<JobQueue<WriterJob>>,
    /// The time for which a group waits for the lock of another process.
    pub(super) patience: Duration,
    /// The time for which writes that nothing waits for are kept back: [`COMPANY_DELAY`].
    pub(super) company_delay: Duration,
}

impl SqliteWriter {
    /// Performs the jobs of the queue until it is closed and empty.
    pub(super) fn run(&mut self) {
        // This thread waits itself, so that it can stop waiting when the store is closed.
        let _ = self.connection.busy_handler(Some(wait_for_lock));
        let tx = SqliteWriteTx {
            reader: SqliteReader {
                connection: &self.connection,
                path: &self.path,
            },
            synced: Cell::new(true),
        };
        loop {
            let group = self.next_group(&tx.reader);
            if group.is_empty() {
                return;
            }
            if let Err(group) = self.write_group(&tx, group) {
                // One job broke the transaction. Run alone, each job gets its own answer.
                group
                    .into_iter()
                    .for_each(|job| drop(self.write_group(&tx, vec![job])));
            }
        }
    }

    /// Waits for writes, and answers reads meanwhile. An empty group means that the queue is closed.
    fn next_group(&self, reader: &SqliteReader<'_>) -> Vec<Box<dyn SqliteWriteJob>> {
        let mut group: Vec<Box<dyn SqliteWriteJob>> = Vec::new();
        let mut kept_until: Option<Instant> = None;
        loop {
            let jobs = match kept_until {
                None => self.queue.take_jobs(MAX_GROUP),
                Some(end) => self.queue.take_jobs_until(MAX_GROUP, end),
            };
            if jobs.is_empty() {
                return group;
            }
            for job in jobs {
                match job {
                    WriterJob::Write(write) => group.push(write),
                    // A read that panics drops its reply, so its caller gets an error. This connection
                    // would also read a file that was deleted since.
                    WriterJob::Read(read) => {
                        let reader = self.file.check().map(|()| reader);
                        drop(run_contained_sync(|| read(reader)));
                    }
                }
            }
            let is_late = kept_until.is_some_and(|end| end <= Instant::now());
            let is_due = is_late || group.iter().any(|write| write.is_awaited());
            if is_due || group.len() >= MAX_GROUP {
                return group;
            }
            if !group.is_empty() {
                kept_until.get_or_insert_with(|| Instant::now() + self.company_delay);
            }
        }
    }

    /// Performs a group in one transaction, or returns it if one of several jobs broke the
    /// transaction.
    fn write_group(
        &self,
        tx: &SqliteWriteTx<'_>,
        mut group: Vec<Box<dyn SqliteWriteJob>>,
    ) -> Result<(), Vec<Box<dyn SqliteWriteJob>>> {
        // A process that is about to be suspended waits for this, and then no lock is held.
        let _commit = begin_commit_blocking();
        // One write that must survive the loss of the machine makes the whole group wait for the
        // disk.
        let needs_sync = group.iter().any(|job| job.needs_sync());
        // The level is set before `BEGIN`: SQLite rejects the change within a transaction.
        let end = match set_sync(tx, needs_sync).and_then(|()| self.begin(tx)) {
            Err(error) => Err(error),
            Ok(()) => match group
                .iter_mut()
                .try_for_each(|job| run_contained(tx, &mut **job))
            {
                // A failed commit can leave the transaction open, and the next group could not
                // begin.
                Ok(()) => execute_sql(tx, "COMMIT").inspect_err(|_| roll_back(tx)),
                Err(error) => {
                    roll_back(tx);
                    if group.len() > 1 {
                        return Err(group);
                    }
                    Err(error)
                }
            },
        };
        // After the commit: a write to a file that is gone is lost, and other errors follow from it.
        let end = self.file.check().and(end);
        group
            .into_iter()
            .for_each(|job| job.answer_caller(end.as_ref().copied()));
        Ok(())
    }

    /// Takes the lock for writing; waits for other processes.
    fn begin(&self, tx: &SqliteWriteTx<'_>) -> Result<(), DatabaseError> {
        let mut patience = Patience::new(self.patience);
        let mut closing = Patience::new(self.patience.min(CLOSING_PATIENCE));
        loop {
            let locked = match execute_sql(tx, "BEGIN IMMEDIATE") {
                Err(error @ DatabaseError::Locked { .. }) => error,
                begun => {
                    // A newer program may have migrated the file since it was opened here.
                    return begun
                        .and_then(|()| check_schema_version(tx))
                        .inspect_err(|_| roll_back(tx));
                }
            };
            let mut delay = patience.next_delay();
            if self.queue.is_closed() {
                delay = delay.and(closing.next_delay());
            }
            match delay {
                Some(delay) => std::thread::sleep(delay),
                None => return Err(locked),
            }
        }
    }
}

/// Waits before SQLite tries again to take a lock, and returns whether it should.
fn wait_for_lock(delays_before: i32) -> bool {
    if delays_before >= LOCK_DELAYS {
        return false;
    }
    std::thread::sleep(FIRST_LOCK_DELAY * (1 << delays_before.max(0)));
    true
}

/// Runs a job. A panic breaks the transaction, not the thread: other jobs still have to be written.
fn run_contained(
    tx: &SqliteWriteTx<'_>,
    job: &mut dyn SqliteWriteJob,
) -> Result<(), DatabaseError> {
    run_contained_sync(|| job.run(tx))
        .unwrap_or_else(|report| Err(super::connect::into_database_error(tx.path, report.into())))
}

/// Sets whether the next commit waits for the disk.
fn set_sync(tx: &SqliteWriteTx<'_>, synced: bool) -> Result<(), DatabaseError> {
    if tx.synced.get() == synced {
        return Ok(());
    }
    let level = if synced { "FULL" } else { "NORMAL" };
    let done = tx.connection.pragma_update(None, "synchronous", level);
    done.map(|()| tx.synced.set(synced))
        .map_err(|error| database_error(tx.path, error))
}

fn execute_sql(tx: &SqliteWriteTx<'_>, sql: &str) -> Result<(), DatabaseError> {
    let done = tx
        .connection
        .prepare_cached(sql)
        .and_then(|mut statement| statement.execute([]));
    done.map(drop)
        .map_err(|error| database_error(tx.path, error))
}

/// Rolls back. SQLite rolls back some failures by itself; then there is nothing left to do.
fn roll_back(tx: &SqliteWriteTx<'_>) {
    if !tx.connection.is_autocommit() {
        let _ = tx.connection.execute_batch("ROLLBACK");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oneshot::Receiver;

    type Answer = Receiver<Result<i64, StoreError>>;

    /// Creates a writer of a table `t` in memory.
    fn writer(company_delay: Duration) -> SqliteWriter {
        let connection = Connection::open_in_memory().expect("opens");
        connection
            .execute_batch("CREATE TABLE t (n)")
            .expect("is made");
        let path = PathBuf::from("t");
        SqliteWriter {
            connection,
            file: FileIdentity::of(&path),
            path,
            queue: Arc::new(JobQueue::new()),
            patience: Duration::ZERO,
            company_delay,
        }
    }

    fn insert(n: i64, panics: bool, needs_sync: bool) -> (WriterJob, Answer) {
        let (reply, answer) = oneshot::channel();
        let work = move |tx: &SqliteWriteTx<'_>| {
            tx.connection
                .execute("INSERT INTO t VALUES (?1)", [n])
                .expect("is written");
            assert!(!panics, "the test wants a panic");
            Ok(n)
        };
        let write = queued_write(work, needs_sync, reply);
        (WriterJob::Write(write), answer)
    }

    /// Returns the number of writes in the next group.
    fn next_group_size(writer: &SqliteWriter) -> usize {
        let reader = SqliteReader {
            connection: &writer.connection,
            path: &writer.path,
        };
        writer.next_group(&reader).len()
    }

    #[test]
    fn a_write_that_panics_fails_alone() {
        let mut writer = writer(COMPANY_DELAY);
        let queue = writer.queue.clone();
        let write = |n, panics| {
            let (job, answer) = insert(n, panics, true);
            queue.push(job);
            answer
        };
        let answers = [write(1, false), write(2, true), write(3, false)];
        queue.close();
        writer.run();
        let connection = writer.connection;
        let answers = answers.map(|mut answer| answer.try_recv().expect("is answered").ok());
        assert_eq!(answers, [Some(1), None, Some(3)]);
        let sum = connection.query_row("SELECT sum(n) FROM t", [], |row| row.get::<_, i64>(0));
        assert_eq!(sum.expect("reads"), 4);
    }

    #[test]
    fn a_write_that_nothing_waits_for_shares_the_commit_of_the_next_one() {
        let writer = writer(Duration::from_secs(3600));
        let queue = writer.queue.clone();
        let (dropped, _) = insert(1, false, false);
        queue.push(dropped);
        let size = std::thread::spawn(move || next_group_size(&writer));
        let (mut awaited, _answer) = insert(2, false, false);
        // The thread waits for another job only if it keeps the first one back.
        while let Err(job) = queue.push_if_idle(awaited) {
            assert!(!size.is_finished(), "the first write was not kept back");
            awaited = job;
            std::thread::yield_now();
        }
        assert_eq!(size.join().expect("ends"), 2);
    }

    #[test]
    fn a_write_that_nothing_waits_for_is_performed_without_another_one() {
        for (company_delay, closed) in [(Duration::ZERO, false), (Duration::from_secs(3600), true)]
        {
            let writer = writer(company_delay);
            let (dropped, _) = insert(1, false, false);
            writer.queue.push(dropped);
            if closed {
                writer.queue.close();
            }
            assert_eq!(next_group_size(&writer), 1, "{closed}");
        }
    }

    #[test]
    fn a_write_that_a_caller_or_the_disk_waits_for_is_not_kept_back() {
        let writer = writer(Duration::from_secs(3600));
        let (awaited, _answer) = insert(1, false, false);
        writer.queue.push(awaited);
        assert_eq!(next_group_size(&writer), 1);
        let (synced, _) = insert(2, false, true);
        writer.queue.push(synced);
        assert_eq!(next_group_size(&writer), 1);
    }
}
