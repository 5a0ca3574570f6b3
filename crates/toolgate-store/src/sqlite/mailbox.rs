//! Wakes waiters when the mailbox of their session gets an input, from this process or another one.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use rusqlite::Connection;
use tokio::sync::watch;
use toolgate_core::SessionId;

use super::{SqliteOptions, connect, read::SqliteReader};

/// The interval at which the file is checked for writes of other processes, while there are
/// waiters.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The waiters, by session.
pub(super) struct SqliteMailbox {
    path: PathBuf,
    options: SqliteOptions,
    shared: Arc<SqliteMailboxWatcher>,
}

#[derive(Default)]
struct SqliteMailboxWatcher {
    state: Mutex<SqliteMailboxState>,
    changed: Condvar,
}

#[derive(Default)]
struct SqliteMailboxState {
    sessions: HashMap<SessionId, watch::Sender<u64>>,
    /// True if a waiter has registered whose mailbox was not checked yet.
    unseen: bool,
    closed: bool,
    thread: Option<JoinHandle<()>>,
}

impl SqliteMailbox {
    pub(super) fn new(path: PathBuf, options: SqliteOptions) -> Self {
        Self {
            path,
            options,
            shared: Arc::default(),
        }
    }

    /// Records an input that this process has stored; wakes everything that waits for it.
    pub(super) fn note_post(&self, session: SessionId, number: u64) {
        self.shared.notify_waiters(session, number);
    }

    /// Ends the thread and closes its connection.
    pub(super) fn close(&self) {
        // The lock is released before the join: the thread needs it to see `closed`.
        let thread = {
            let mut state = self.shared.lock_state();
            state.closed = true;
            state.thread.take()
        };
        self.shared.changed.notify_all();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    /// Waits for an input with a number greater than `after`.
    pub(super) fn wait_for_post(
        &self,
        session: SessionId,
        after: u64,
    ) -> impl Future<Output = ()> + Send + use<> {
        let mut state = self.shared.lock_state();
        let sender = state.sessions.entry(session).or_default();
        if sender.receiver_count() == 0 {
            // The number that earlier waiters saw may belong to an input that was consumed since.
            sender.send_replace(0);
        }
        let mut newest = sender.subscribe();
        // The input may already be in the file, so the thread has to check at once.
        state.unseen = true;
        if state.thread.is_none() {
            let path = self.path.clone();
            let options = self.options.clone();
            let shared = self.shared.clone();
            let watcher = thread::Builder::new().name("toolgate-posts".into());
            state.thread = watcher
                .spawn(move || shared.run_watcher(&path, &options))
                .ok();
        }
        drop(state);
        self.shared.changed.notify_one();
        async move {
            if newest.wait_for(|newest| *newest > after).await.is_err() {
                // The store is closed, so nothing will ever arrive.
                std::future::pending::<()>().await;
            }
        }
    }
}

impl SqliteMailboxWatcher {
    fn lock_state(&self) -> MutexGuard<'_, SqliteMailboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify_waiters(&self, session: SessionId, number: u64) {
        if let Some(newest) = self.lock_state().sessions.get(&session) {
            // The writer and the watcher race: an old number must not replace a newer one.
            newest.send_if_modified(|newest| {
                let more = number > *newest;
                *newest = number.max(*newest);
                more
            });
        }
    }

    fn run_watcher(&self, path: &PathBuf, options: &SqliteOptions) {
        let mut connection: Option<Connection> = None;
        let mut seen = None;
        while let Some((waiting, unseen)) = self.next_check() {
            if connection.is_none() {
                // Waiters keep waiting; the next check opens the connection again.
                connection = connect::open_reader(path, options).ok();
            }
            let Some(connection) = &connection else {
                continue;
            };
            let version = connection
                .query_row("PRAGMA data_version", [], |row| row.get::<_, i64>(0))
                .ok();
            // `data_version` changes when another connection has committed. Only then, or for new
            // waiters, is a query worth it.
            if unseen || version != seen || version.is_none() {
                seen = version;
                let read = SqliteReader { connection, path };
                for session in waiting {
                    self.notify_waiters(session, read.newest_post(session).unwrap_or(0));
                }
            }
        }
    }

    /// Waits until the next check is due, and returns the sessions to check and whether there are
    /// new waiters; `None` at the end.
    fn next_check(&self) -> Option<(Vec<SessionId>, bool)> {
        let mut state = self.lock_state();
        loop {
            if state.closed {
                return None;
            }
            state
                .sessions
                .retain(|_, newest| newest.receiver_count() > 0);
            if state.unseen {
                break;
            }
            state = if state.sessions.is_empty() {
                self.changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner)
            } else {
                let (state, waited) = self
                    .changed
                    .wait_timeout(state, POLL_INTERVAL)
                    .unwrap_or_else(PoisonError::into_inner);
                if waited.timed_out() && !state.closed {
                    return Some((state.sessions.keys().copied().collect(), false));
                }
                state
            };
        }
        state.unseen = false;
        Some((state.sessions.keys().copied().collect(), true))
    }
}
