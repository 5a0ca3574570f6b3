//! Tells those who wait for posts that there are some, left by this process or by another one.

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

use super::{SqliteOptions, connect, read::Read};

/// How often the file is asked whether another process has written to it, while somebody waits.
const POLL: Duration = Duration::from_millis(100);

/// Those who wait, by session.
pub(super) struct Posted {
    path: PathBuf,
    options: SqliteOptions,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    sessions: HashMap<SessionId, watch::Sender<u64>>,
    /// Somebody began to wait whom nobody has looked for yet.
    unseen: bool,
    closed: bool,
    thread: Option<JoinHandle<()>>,
}

impl Posted {
    pub(super) fn new(path: PathBuf, options: SqliteOptions) -> Self {
        Self {
            path,
            options,
            shared: Arc::default(),
        }
    }

    /// Notes a post of this process; everybody who waits for it goes on.
    pub(super) fn note(&self, session: SessionId, number: u64) {
        self.shared.note(session, number);
    }

    /// Ends the thread and closes its connection.
    pub(super) fn close(&self) {
        let thread = {
            let mut state = self.shared.state();
            state.closed = true;
            state.thread.take()
        };
        self.shared.changed.notify_all();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    /// Waits for a post behind number `after`.
    pub(super) fn wait(
        &self,
        session: SessionId,
        after: u64,
    ) -> impl Future<Output = ()> + Send + use<> {
        let mut state = self.shared.state();
        let sender = state.sessions.entry(session).or_default();
        if sender.receiver_count() == 0 {
            // What was told to those who waited before may have been taken up since.
            sender.send_replace(0);
        }
        let mut newest = sender.subscribe();
        state.unseen = true;
        if state.thread.is_none() {
            let (path, options, shared) =
                (self.path.clone(), self.options.clone(), self.shared.clone());
            let watcher = thread::Builder::new().name("toolgate-posts".into());
            state.thread = watcher.spawn(move || shared.run(&path, &options)).ok();
        }
        drop(state);
        self.shared.changed.notify_one();
        async move {
            if newest.wait_for(|newest| *newest > after).await.is_err() {
                // The store is gone, so nothing will ever come.
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, session: SessionId, number: u64) {
        if let Some(newest) = self.state().sessions.get(&session) {
            newest.send_if_modified(|newest| {
                let more = number > *newest;
                *newest = number.max(*newest);
                more
            });
        }
    }

    fn run(&self, path: &PathBuf, options: &SqliteOptions) {
        let mut connection: Option<Connection> = None;
        let mut seen = None;
        while let Some((waiting, unseen)) = self.next() {
            if connection.is_none() {
                // Whoever waits keeps waiting; the next look tries again.
                connection = connect::reader(path, options).ok();
            }
            let Some(connection) = &connection else {
                continue;
            };
            let version = connection
                .query_row("PRAGMA data_version", [], |row| row.get::<_, i64>(0))
                .ok();
            if unseen || version != seen || version.is_none() {
                seen = version;
                let read = Read { connection, path };
                for session in waiting {
                    self.note(session, read.posted(session).unwrap_or(0));
                }
            }
        }
    }

    /// Waits until it is time to look again, and says for whom; nothing at the end.
    fn next(&self) -> Option<(Vec<SessionId>, bool)> {
        let mut state = self.state();
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
            state = match state.sessions.is_empty() {
                true => self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
                false => {
                    let (state, waited) = self
                        .changed
                        .wait_timeout(state, POLL)
                        .unwrap_or_else(PoisonError::into_inner);
                    if waited.timed_out() && !state.closed {
                        return Some((state.sessions.keys().copied().collect(), false));
                    }
                    state
                }
            };
        }
        state.unseen = false;
        Some((state.sessions.keys().copied().collect(), true))
    }
}
