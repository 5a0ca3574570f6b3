//! A few reader threads, each with its own connection.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};

use rusqlite::Connection;
use tokio::sync::oneshot;
use toolgate_core::{StoreError, run_contained_sync};

use super::{SqliteOptions, connect, identity::FileIdentity, queue::JobQueue, read::SqliteReader};
use crate::DatabaseError;

/// A read that answers its caller by itself.
pub(super) type ReadJob = Box<dyn FnOnce(Result<&SqliteReader<'_>, DatabaseError>) + Send>;

/// Creates the job of a read, and the answer to it.
pub(super) fn read_job<T: Send + 'static>(
    read: impl FnOnce(&SqliteReader<'_>) -> Result<T, StoreError> + Send + 'static,
) -> (ReadJob, oneshot::Receiver<Result<T, StoreError>>) {
    let (reply, answer) = oneshot::channel();
    let job: ReadJob = Box::new(move |reader| {
        // The caller may have dropped its future; then the answer is not needed.
        let _ = reply.send(reader.map_err(StoreError::from).and_then(read));
    });
    (job, answer)
}

/// Pending reads, and the threads that perform them. Threads are started on demand.
pub(super) struct SqliteReaderPool {
    path: PathBuf,
    file: FileIdentity,
    options: SqliteOptions,
    queue: Arc<JobQueue<ReadJob>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    started: AtomicUsize,
}

impl SqliteReaderPool {
    pub(super) fn new(path: PathBuf, file: FileIdentity, options: SqliteOptions) -> Self {
        let threads = Mutex::default();
        let started = AtomicUsize::new(0);
        Self {
            path,
            file,
            options,
            queue: Arc::new(JobQueue::new()),
            threads,
            started,
        }
    }

    /// Runs a read on one of the threads.
    pub(super) fn push_read(&self, job: ReadJob) {
        if !self.queue.push(job) {
            self.start_thread();
        }
    }

    /// Ends the threads and closes their connections.
    pub(super) fn close(&self) {
        self.queue.close();
        let threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        threads.into_iter().for_each(|thread| drop(thread.join()));
    }

    /// Starts another thread, unless there are enough.
    fn start_thread(&self) {
        let most = self.options.readers.max(1);
        // Counted before the start, so that concurrent callers do not start too many.
        let more = |started: usize| (started < most).then_some(started + 1);
        if self
            .started
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_err()
        {
            return;
        }
        let path = self.path.clone();
        let file = self.file.clone();
        let options = self.options.clone();
        let queue = self.queue.clone();
        let thread = thread::Builder::new()
            .name("toolgate-read".into())
            .spawn(move || run_reader(&path, &file, &options, &queue));
        match thread {
            Ok(thread) => self
                .threads
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(thread),
            Err(_) => drop(self.started.fetch_sub(1, Ordering::Relaxed)),
        }
    }
}

fn run_reader(
    path: &PathBuf,
    file: &FileIdentity,
    options: &SqliteOptions,
    queue: &JobQueue<ReadJob>,
) {
    let mut connection: Option<Connection> = None;
    while let Some(job) = queue.take_jobs(1).pop() {
        if connection.is_none() {
            // Another file in the place of ours has other sessions.
            match connect::open_reader(path, options).and_then(|open| file.check().map(|()| open)) {
                Ok(opened) => connection = Some(opened),
                Err(error) => {
                    job(Err(error));
                    continue;
                }
            }
        }
        let connection = connection.as_ref().expect("it was opened above");
        // A read that panics drops its reply, so its caller gets an error; the thread continues
        // with the next one.
        let _ = run_contained_sync(|| job(Ok(&SqliteReader { connection, path })));
    }
}
