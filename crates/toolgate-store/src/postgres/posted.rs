//! Tells those who wait for posts that there are some, left by this process or by another one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use sqlx::postgres::{PgListener, PgNotification};
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
    time::{Instant, sleep_until, timeout_at},
};
use toolgate_core::SessionId;

use super::read::Reads;

/// How often the database is asked while somebody waits, in case a notice was lost.
const POLL: Duration = Duration::from_secs(2);

/// How long to wait before trying again to listen.
const RETRY: Duration = Duration::from_millis(200);

/// Those who wait, by session.
#[derive(Default)]
pub(super) struct Posted {
    shared: Arc<Shared>,
    task: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    sessions: Mutex<HashMap<SessionId, watch::Sender<u64>>>,
    /// Somebody began to wait.
    began: Notify,
}

impl Posted {
    /// Waits for a post behind number `after`.
    pub(super) async fn wait(&self, reads: &Arc<Reads>, session: SessionId, after: u64) {
        let mut newest = self.shared.watch(session);
        self.listen(reads);
        self.shared.began.notify_one();
        if newest.wait_for(|newest| *newest > after).await.is_err() {
            // The store is gone, so nothing will ever come.
            std::future::pending::<()>().await;
        }
    }

    /// Starts the task that listens, if it does not run.
    fn listen(&self, reads: &Arc<Reads>) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            let (shared, reads) = (self.shared.clone(), reads.clone());
            *task = Some(tokio::spawn(async move { shared.run(&reads).await }));
        }
    }
}

impl Drop for Posted {
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

impl Shared {
    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionId, watch::Sender<u64>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self, session: SessionId) -> watch::Receiver<u64> {
        let mut sessions = self.sessions();
        let sender = sessions.entry(session).or_default();
        if sender.receiver_count() == 0 {
            // What was told to those who waited before may have been taken up since.
            sender.send_replace(0);
        }
        sender.subscribe()
    }

    fn note(&self, session: SessionId, number: u64) {
        if let Some(newest) = self.sessions().get(&session) {
            newest.send_if_modified(|newest| {
                let more = number > *newest;
                *newest = number.max(*newest);
                more
            });
        }
    }

    async fn run(&self, reads: &Reads) {
        loop {
            let listening = async {
                let mut listener = PgListener::connect_with(&reads.pool).await?;
                listener.listen("toolgate_posts").await?;
                Ok::<_, sqlx::Error>(listener)
            };
            match listening.await {
                Ok(listener) => self.hear(reads, listener).await,
                // Without notices the database is asked.
                Err(_) => {
                    sleep_until(Instant::now() + RETRY).await;
                    self.look(reads).await;
                }
            }
        }
    }

    /// Passes notices on until the connection is lost.
    async fn hear(&self, reads: &Reads, mut listener: PgListener) {
        // What came before we listened was not heard.
        self.look(reads).await;
        let mut next_look = Instant::now() + POLL;
        loop {
            let heard = tokio::select! {
                heard = timeout_at(next_look, listener.try_recv()) => heard,
                () = self.began.notified() => {
                    self.look(reads).await;
                    continue;
                }
            };
            match heard {
                Ok(Ok(Some(notice))) => self.pass_on(&notice),
                Ok(Ok(None) | Err(_)) => return,
                Err(_) => {
                    self.look(reads).await;
                    next_look = Instant::now() + POLL;
                }
            }
        }
    }

    fn pass_on(&self, notice: &PgNotification) {
        let read = notice.payload().split_once('/');
        let read =
            read.and_then(|(session, number)| Some((session.parse().ok()?, number.parse().ok()?)));
        if let Some((session, number)) = read {
            self.note(session, number);
        }
    }

    /// Asks the database about everybody who waits.
    async fn look(&self, reads: &Reads) {
        let waiting: Vec<SessionId> = {
            let mut sessions = self.sessions();
            sessions.retain(|_, newest| newest.receiver_count() > 0);
            sessions.keys().copied().collect()
        };
        if waiting.is_empty() {
            return;
        }
        // If it cannot be asked now, the next look will tell.
        let newest = reads.posted(&waiting).await.unwrap_or_default();
        newest
            .into_iter()
            .for_each(|(session, number)| self.note(session, number));
    }
}
