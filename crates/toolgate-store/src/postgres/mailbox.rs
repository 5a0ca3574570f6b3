//! Mailboxes in a PostgreSQL database, and what wakes the waiters when an item comes from this
//! process or another one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use sqlx::{
    Row,
    postgres::{PgListener, PgNotification},
};
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
    time::{Instant, sleep_until, timeout_at},
};
use toolgate_core::{
    ApprovalState, MailboxItem, MailboxStore, RecordKey, SessionId, StoreError, StoreRecord,
};

use super::{
    PostgresStore,
    id::PgUuid,
    locked_rows::RowSelection,
    plan::PostgresWritePlan,
    read::{PostgresReader, uuid_column},
};
use crate::encoded::{
    EncodedRecord, decode_post, encode_json, encode_records, from_db, limit_to_db, to_db,
};

/// The query for the newest input per session. Consumed inputs are deleted, so they are not
/// counted.
const NEWEST_POSTS_SQL: &str =
    "SELECT session, max(number) FROM posts WHERE session = ANY($1) GROUP BY session";

/// The interval at which the database is queried while there are waiters, in case a notification
/// was lost.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// The delay before listening is retried.
const RETRY_DELAY: Duration = Duration::from_millis(200);

impl MailboxStore for PostgresStore {
    async fn post_item(
        &self,
        session: SessionId,
        post: MailboxItem,
        records: Vec<(RecordKey, StoreRecord)>,
    ) -> Result<(), StoreError> {
        let body = encode_json(&post)?;
        let records = Arc::new(encode_records(records)?);
        let about = {
            let records = records.clone();
            move |wants: &mut RowSelection| {
                wants.add_session(session);
                wants.add_records(&records);
            }
        };
        self.queue_write(about, move |plan| {
            plan.add_post(session, &post, &body, &records)
        })
        .await
    }

    async fn posts(
        &self,
        session: SessionId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, MailboxItem)>, StoreError> {
        let sql = "SELECT number, body, checksum FROM posts
                   WHERE session = $1 AND number > $2 ORDER BY number LIMIT $3";
        let ask = || {
            sqlx::query(sql)
                .bind(PgUuid(session.uuid()))
                .bind(to_db(after))
                .bind(limit_to_db(limit))
        };
        self.reads
            .query_rows(ask, |row| {
                let number = row.try_get(0)?;
                let body: &str = row.try_get(1)?;
                let post = decode_post(session, number, body.as_bytes(), row.try_get(2)?);
                Ok((from_db(number), post))
            })
            .await
    }

    async fn wait_for_post(&self, session: SessionId, after: u64) {
        self.posted.wait_for_post(&self.reads, session, after).await;
    }
}

impl PostgresWritePlan {
    fn add_post(
        &mut self,
        session: SessionId,
        post: &MailboxItem,
        body: &str,
        records: &[EncodedRecord],
    ) -> Result<(), StoreError> {
        self.session_state(session).check(session)?;
        self.insert_records(records)?;
        if let MailboxItem::Answer { call, .. } = post {
            // Lists show the decision at once, not only after the driver has consumed the item.
            self.mark_approval(*call, ApprovalState::Answered);
        }
        let known = self.change_session(session);
        // Counted in the row of the session: consumed inputs are deleted, and numbers must not be
        // reused.
        known.posted += 1;
        let number = known.posted;
        self.posts.insert((session, number), body.to_owned());
        Ok(())
    }
}

impl PostgresReader {
    /// Returns the number of the newest input in the mailbox of each session that has any.
    async fn newest_posts(
        &self,
        sessions: &[SessionId],
    ) -> Result<Vec<(SessionId, u64)>, StoreError> {
        let ids: Vec<PgUuid> = sessions
            .iter()
            .map(|session| PgUuid(session.uuid()))
            .collect();
        let ask = || sqlx::query(NEWEST_POSTS_SQL).bind(ids.clone());
        self.query_rows(ask, |row| {
            Ok((
                SessionId::new(uuid_column(row, 0)?),
                from_db(row.try_get(1)?),
            ))
        })
        .await
    }
}

/// The waiters, by session.
#[derive(Default)]
pub(super) struct PostgresMailbox {
    shared: Arc<PostgresMailboxWatcher>,
    task: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct PostgresMailboxWatcher {
    sessions: Mutex<HashMap<SessionId, watch::Sender<u64>>>,
    /// Signals that a waiter has registered.
    began: Notify,
}

impl PostgresMailbox {
    /// Waits for an input with a number greater than `after`.
    pub(super) async fn wait_for_post(
        &self,
        reads: &Arc<PostgresReader>,
        session: SessionId,
        after: u64,
    ) {
        let mut newest = self.shared.subscribe_session(session);
        self.ensure_listening(reads);
        self.shared.began.notify_one();
        if newest.wait_for(|newest| *newest > after).await.is_err() {
            // The store is closed, so nothing will ever arrive.
            std::future::pending::<()>().await;
        }
    }

    /// Starts the listening task, if it does not run.
    fn ensure_listening(&self, reads: &Arc<PostgresReader>) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        // A task ends with its runtime or by a panic. Without a new one, nothing would wake a later
        // waiter.
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            let shared = self.shared.clone();
            let reads = reads.clone();
            *task = Some(tokio::spawn(
                async move { shared.run_watcher(&reads).await },
            ));
        }
    }
}

impl Drop for PostgresMailbox {
    fn drop(&mut self) {
        if let Some(task) = self
            .task
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        {
            task.abort();
        }
    }
}

impl PostgresMailboxWatcher {
    fn lock_sessions(&self) -> MutexGuard<'_, HashMap<SessionId, watch::Sender<u64>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn subscribe_session(&self, session: SessionId) -> watch::Receiver<u64> {
        let mut sessions = self.lock_sessions();
        let sender = sessions.entry(session).or_default();
        if sender.receiver_count() == 0 {
            // The number that earlier waiters saw may belong to an input that was consumed since.
            sender.send_replace(0);
        }
        sender.subscribe()
    }

    fn notify_waiters(&self, session: SessionId, number: u64) {
        if let Some(newest) = self.lock_sessions().get(&session) {
            // Notifications and polls overtake each other: an old number must not replace a newer
            // one.
            newest.send_if_modified(|newest| {
                let more = number > *newest;
                *newest = number.max(*newest);
                more
            });
        }
    }

    async fn run_watcher(&self, reads: &PostgresReader) {
        loop {
            let listening = async {
                let mut listener = PgListener::connect_with(&reads.pool).await?;
                listener.listen("toolgate_posts").await?;
                Ok::<_, sqlx::Error>(listener)
            };
            match listening.await {
                Ok(listener) => self.forward_notifications(reads, listener).await,
                // Without notifications the database is polled.
                Err(_) => {
                    sleep_until(Instant::now() + RETRY_DELAY).await;
                    self.poll_database(reads).await;
                }
            }
        }
    }

    /// Passes notifications on until the connection is lost.
    async fn forward_notifications(&self, reads: &PostgresReader, mut listener: PgListener) {
        // Notifications sent before we listened were missed.
        self.poll_database(reads).await;
        // A deadline that notifications do not move: on a busy channel, a lost one is still
        // noticed.
        let mut next_look = Instant::now() + POLL_INTERVAL;
        loop {
            let heard = tokio::select! {
                heard = timeout_at(next_look, listener.try_recv()) => heard,
                // The input may have arrived before its waiter registered.
                () = self.began.notified() => {
                    self.poll_database(reads).await;
                    continue;
                }
            };
            match heard {
                Ok(Ok(Some(notice))) => self.forward_notification(&notice),
                Ok(Ok(None) | Err(_)) => return,
                Err(_) => {
                    self.poll_database(reads).await;
                    next_look = Instant::now() + POLL_INTERVAL;
                }
            }
        }
    }

    fn forward_notification(&self, notice: &PgNotification) {
        let read = notice.payload().split_once('/');
        let read =
            read.and_then(|(session, number)| Some((session.parse().ok()?, number.parse().ok()?)));
        if let Some((session, number)) = read {
            self.notify_waiters(session, number);
        }
    }

    /// Queries the newest inputs of all sessions with waiters.
    async fn poll_database(&self, reads: &PostgresReader) {
        let waiting: Vec<SessionId> = {
            let mut sessions = self.lock_sessions();
            sessions.retain(|_, newest| newest.receiver_count() > 0);
            sessions.keys().copied().collect()
        };
        if waiting.is_empty() {
            return;
        }
        // If the query fails, the next one will report the input.
        let newest = reads.newest_posts(&waiting).await.unwrap_or_default();
        newest
            .into_iter()
            .for_each(|(session, number)| self.notify_waiters(session, number));
    }
}
