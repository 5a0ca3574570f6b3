//! A few threads that read, each with a connection of its own.

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
use toolgate_core::{StoreError, contained_sync};

use super::{SqliteOptions, connect, queue::Queue, read::Read};
use crate::DatabaseError;

type Job = Box<dyn FnOnce(Result<&Read<'_>, DatabaseError>) + Send>;

/// Reads that wait, and the threads that do them. Threads are started when they are needed.
pub(super) struct Readers {
    path: PathBuf,
    options: SqliteOptions,
    queue: Arc<Queue<Job>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    started: AtomicUsize,
}

impl Readers {
    pub(super) fn new(path: PathBuf, options: SqliteOptions) -> Self {
        let (threads, started) = (Mutex::default(), AtomicUsize::new(0));
        Self {
            path,
            options,
            queue: Arc::new(Queue::new()),
            threads,
            started,
        }
    }

    /// Reads something on one of the threads.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Read<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let waiting = self.queue.push(Box::new(move |reader| {
            // A caller that went away needs no answer.
            let _ = reply.send(reader.map_err(StoreError::from).and_then(read));
        }));
        if !waiting {
            self.start_one();
        }
        match answer.await {
            Ok(found) => found,
            Err(_) => Err(DatabaseError::Closed {
                database: connect::name(&self.path),
            }
            .into()),
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
    fn start_one(&self) {
        let most = self.options.readers.max(1);
        let more = |started: usize| (started < most).then_some(started + 1);
        if self
            .started
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_err()
        {
            return;
        }
        let (path, options, queue) = (self.path.clone(), self.options.clone(), self.queue.clone());
        let thread = thread::Builder::new()
            .name("toolgate-read".into())
            .spawn(move || run(&path, &options, &queue));
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

fn run(path: &PathBuf, options: &SqliteOptions, queue: &Queue<Job>) {
    let mut connection: Option<Connection> = None;
    while let Some(job) = queue.take(1).pop() {
        if connection.is_none() {
            match connect::reader(path, options) {
                Ok(opened) => connection = Some(opened),
                Err(error) => {
                    job(Err(error));
                    continue;
                }
            }
        }
        let connection = connection.as_ref().expect("it was opened above");
        // A read that panics gives no answer; the thread is there for the next one.
        let _ = contained_sync(|| job(Ok(&Read { connection, path })));
    }
}
