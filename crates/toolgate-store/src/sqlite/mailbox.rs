//! Mailboxes in an SQLite file, and what wakes the waiters when an item comes from this process or
//! another one.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use rusqlite::{Connection, params};
use tokio::sync::watch;
use toolgate_core::{
    ApprovalState, MailboxItem, MailboxStore, RecordKey, SessionId, StoreError, StoreRecord,
};

use super::{
    SqliteOptions, SqliteStore, connect,
    read::SqliteReader,
    transaction::{SqliteWriteTx, session_bytes},
};
use crate::{
    checksum::RowChecksum,
    encoded::{
        EncodedRecord, decode_post, encode_json, encode_records, from_db, limit_to_db, to_db,
    },
};

/// The interval at which the file is checked for writes of other processes, while there are
/// waiters.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The most sessions with inputs that nothing waited for. Without them, their next waiter learns of the
/// input from the file.
const MOST_UNWAITED: usize = 1_024;

impl MailboxStore for SqliteStore {
    async fn post_item(
        &self,
        session: SessionId,
        post: MailboxItem,
        records: Vec<(RecordKey, StoreRecord)>,
    ) -> Result<(), StoreError> {
        let body = encode_json(&post)?;
        let records = encode_records(records)?;
        let number = self
            .queue_write(move |tx| tx.add_post(session, &post, &body, &records))
            .await?;
        // After the commit: a waiter that wakes has to find the input.
        self.0.posted.note_post(session, number);
        Ok(())
    }

    async fn posts(
        &self,
        session: SessionId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, MailboxItem)>, StoreError> {
        self.run_short_read(move |read| {
            let sql = "SELECT number, body, checksum FROM posts
                       WHERE session = ?1 AND number > ?2 ORDER BY number LIMIT ?3";
            read.query_rows(
                sql,
                params![session_bytes(session), to_db(after), limit_to_db(limit)],
                |row| {
                    let number = row.get(0)?;
                    let body = row.get_ref(1)?.as_bytes()?;
                    let post = decode_post(session, number, body, row.get(2)?);
                    Ok(Ok((from_db(number), post)))
                },
            )
        })
        .await
    }

    fn wait_for_post(&self, session: SessionId, after: u64) -> impl Future<Output = ()> + Send {
        self.0.posted.wait_for_post(session, after)
    }
}

impl SqliteWriteTx<'_> {
    /// Stores an input in the mailbox and returns its number.
    fn add_post(
        &self,
        session: SessionId,
        post: &MailboxItem,
        body: &str,
        records: &[EncodedRecord],
    ) -> Result<u64, StoreError> {
        let standing = self.session_state(session)?;
        self.check_session(session)?;
        self.insert_records(records)?;
        if let MailboxItem::Answer { call, .. } = post {
            // Lists show the decision at once, not only after the driver has consumed the item.
            self.mark_approval(*call, ApprovalState::Answered)?;
        }
        self.ensure_session(session, &standing)?;
        // Counted in the row of the session: consumed inputs are deleted, and numbers must not be
        // reused.
        let number = standing.posted + 1;
        self.execute(
            "UPDATE sessions SET posted = ?2 WHERE id = ?1",
            params![session_bytes(session), to_db(number)],
        )?;
        self.update_session_checksum(session)?;
        let checksum = RowChecksum::of_post(session, to_db(number), body.as_bytes());
        let sql = "INSERT INTO posts (session, number, body, checksum) VALUES (?1, ?2, ?3, ?4)";
        let row = params![
            session_bytes(session),
            to_db(number),
            body,
            checksum.to_db()
        ];
        self.execute(sql, row)?;
        Ok(number)
    }
}

impl SqliteReader<'_> {
    /// Returns the number of the newest input in a session's mailbox.
    fn newest_post(&self, session: SessionId) -> Result<u64, StoreError> {
        let sql = "SELECT coalesce(max(number), 0) FROM posts WHERE session = ?1";
        Ok(self
            .query_row(sql, [session_bytes(session)], |row| row.get(0))?
            .map_or(0, from_db))
    }
}

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
    /// The newest inputs that this process has stored while nothing waited for them.
    unwaited: HashMap<SessionId, u64>,
    /// True if a waiter has registered whose mailbox was not checked yet.
    unseen: bool,
    /// True while the thread sleeps until there is a waiter.
    asleep: bool,
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
        let mut state = self.shared.lock_state();
        let newest = state.sessions.get(&session);
        if let Some(newest) = newest.filter(|newest| newest.receiver_count() > 0) {
            return raise_number(newest, number);
        }
        // A driver that is handling the input before this one waits again only afterwards.
        if state.unwaited.len() == MOST_UNWAITED {
            state.unwaited.clear();
        }
        let newest = state.unwaited.entry(session).or_default();
        *newest = number.max(*newest);
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
        // Only once: the input may have been consumed since.
        let unwaited = state.unwaited.remove(&session).unwrap_or(0);
        let sender = state.sessions.entry(session).or_default();
        if sender.receiver_count() == 0 {
            // The number that earlier waiters saw may belong to an input that was consumed since.
            sender.send_replace(unwaited);
        }
        let mut newest = sender.subscribe();
        // The input may already be in the file. Unless the thread sleeps until there is a waiter, its next
        // check is near: most runs are over before.
        state.unseen = true;
        let is_asleep = std::mem::take(&mut state.asleep);
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
        if is_asleep {
            self.shared.changed.notify_one();
        }
        async move {
            if newest.wait_for(|newest| *newest > after).await.is_err() {
                // The store is closed, so nothing will ever arrive.
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Wakes waiters if the number is newer. The writer and the watcher race: an old number must not replace
/// a newer one.
fn raise_number(newest: &watch::Sender<u64>, number: u64) {
    newest.send_if_modified(|newest| {
        let more = number > *newest;
        *newest = number.max(*newest);
        more
    });
}

impl SqliteMailboxWatcher {
    fn lock_state(&self) -> MutexGuard<'_, SqliteMailboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify_waiters(&self, session: SessionId, number: u64) {
        if let Some(newest) = self.lock_state().sessions.get(&session) {
            raise_number(newest, number);
        }
    }

    /// Wakes the waiters whose mailboxes have a new item. Returns false if one could not be read.
    fn read_mailboxes(&self, read: &SqliteReader<'_>, waiting: &[SessionId]) -> bool {
        let mut all = true;
        for session in waiting {
            match read.newest_post(*session) {
                Ok(number) => self.notify_waiters(*session, number),
                Err(_) => all = false,
            }
        }
        all
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
                // Only if all were read: otherwise the next check has to read them again.
                let read = SqliteReader { connection, path };
                seen = version.filter(|_| self.read_mailboxes(&read, &waiting));
            }
        }
    }

    /// Waits until the next check is due, and returns the sessions to check and whether there are
    /// new waiters; `None` at the end.
    fn next_check(&self) -> Option<(Vec<SessionId>, bool)> {
        let mut state = self.lock_state();
        loop {
            let (next, waited) = self
                .changed
                .wait_timeout(state, POLL_INTERVAL)
                .unwrap_or_else(PoisonError::into_inner);
            state = next;
            if state.closed {
                return None;
            }
            if !waited.timed_out() {
                continue;
            }
            state
                .sessions
                .retain(|_, newest| newest.receiver_count() > 0);
            if !state.sessions.is_empty() {
                let unseen = std::mem::take(&mut state.unseen);
                return Some((state.sessions.keys().copied().collect(), unseen));
            }
            state.asleep = true;
            while state.asleep && !state.closed {
                state = self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{path::Path, pin::pin, task};
    use uuid::Uuid;

    #[test]
    fn an_item_of_this_process_wakes_the_next_waiter_once() {
        // There is no file, so nothing is learned from it.
        let mailbox = SqliteMailbox::new("missing/t".into(), SqliteOptions::default());
        let session = SessionId::new(Uuid::from_u128(1));
        let is_woken = |after| {
            let mut cx = task::Context::from_waker(task::Waker::noop());
            let waiting = pin!(mailbox.wait_for_post(session, after));
            waiting.poll(&mut cx).is_ready()
        };
        assert!(!is_woken(0));
        mailbox.note_post(session, 3);
        assert!(is_woken(2));
        assert!(!is_woken(2), "it may have been consumed");
        mailbox.note_post(session, 4);
        assert!(!is_woken(4), "it was seen");
        mailbox.close();
    }

    #[test]
    fn a_mailbox_that_could_not_be_read_is_read_again() {
        let connection = Connection::open_in_memory().expect("opens");
        let read = SqliteReader {
            connection: &connection,
            path: Path::new("t"),
        };
        let session = SessionId::new(Uuid::from_u128(1));
        let watcher = SqliteMailboxWatcher::default();
        let newest = watcher
            .lock_state()
            .sessions
            .entry(session)
            .or_default()
            .subscribe();
        assert!(
            !watcher.read_mailboxes(&read, &[session]),
            "there is no table"
        );
        connection
            .execute_batch("CREATE TABLE posts (session, number)")
            .expect("is made");
        connection
            .execute("INSERT INTO posts VALUES (?1, 3)", [session_bytes(session)])
            .expect("is written");
        assert!(watcher.read_mailboxes(&read, &[session]));
        assert_eq!(*newest.borrow(), 3);
    }
}
