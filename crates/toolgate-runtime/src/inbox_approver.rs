//! Waits some time for a decision that arrives through the store.

use std::{fmt, sync::Arc, time::Duration};

use toolgate_core::{
    ApprovalFilter, ApprovalRequest, Approver, Clock, Decision, RecordKey, SessionId, StoreHandle,
    Timestamp,
};

use crate::SystemClock;

/// Holds a turn open for a while, so that somebody at the desk can decide before it is suspended.
///
/// It decides nothing: the answer is taken up from the store by whoever drives the turn. When the time is over, the
/// question stays open and the turn is suspended as it would have been at once.
#[derive(Clone)]
pub struct InboxApprover {
    store: StoreHandle,
    clock: Arc<dyn Clock>,
    patience: Duration,
}

impl InboxApprover {
    /// How often the store is asked even if it says nothing by itself.
    const ASK_EVERY: Duration = Duration::from_secs(1);

    /// Waits for `patience`.
    pub fn new(store: StoreHandle, patience: Duration) -> Self {
        Self {
            store,
            clock: Arc::new(SystemClock::new()),
            patience,
        }
    }

    /// Tells the time by this clock.
    pub fn clock(self, clock: impl Clock) -> Self {
        Self {
            clock: Arc::new(clock),
            ..self
        }
    }

    async fn is_answered(&self, request: &ApprovalRequest) -> bool {
        let key = RecordKey::Answer(request.approval_id.call(), request.generation);
        matches!(self.store.record(&key).await, Ok(Some(_)))
    }

    async fn session(&self, request: &ApprovalRequest) -> Option<SessionId> {
        let rows = self
            .store
            .approvals(ApprovalFilter::of(request.approval_id.call()))
            .await
            .ok()?;
        rows.first().map(|row| row.session)
    }

    /// Waits until something may have been left for the session, but not for long.
    async fn pause(&self, session: Option<SessionId>, seen: &mut u64, until: Timestamp) {
        let rest = until.since(self.clock.now()).min(Self::ASK_EVERY);
        let Some(session) = session else {
            return self.clock.sleep(rest).await;
        };
        tokio::select! {
            () = self.store.posted(session, *seen) => {
                let posts = self.store.posts(session, *seen, 100).await.unwrap_or_default();
                // What was left may have been taken up already; then one step further is the next to wait for.
                *seen = posts.last().map_or(*seen + 1, |(number, _)| *number);
            }
            () = self.clock.sleep(rest) => {}
        }
    }
}

impl Approver for InboxApprover {
    async fn decide(&self, request: ApprovalRequest) -> Option<Decision> {
        let until = self.clock.now().plus(self.patience);
        let until = request
            .expires_at
            .map_or(until, |expires| expires.min(until));
        let mut seen = 0;
        while self.clock.now() < until && !self.is_answered(&request).await {
            let session = self.session(&request).await;
            self.pause(session, &mut seen, until).await;
        }
        None
    }
}

impl fmt::Debug for InboxApprover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboxApprover")
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate_core::{Answer, Arguments, Call, MemoryStore, Record};
    use toolgate_testkit::TestClock;

    fn request() -> ApprovalRequest {
        ApprovalRequest::about(&Call::detached("pay", Arguments::empty()))
    }

    async fn settle_in() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn stays_open_when_its_time_is_over_and_denies_nothing() {
        let (store, clock) = (StoreHandle::new(MemoryStore::new()), TestClock::new());
        let approver = InboxApprover::new(store, Duration::from_secs(2)).clock(clock.clone());
        let waiting = tokio::spawn(async move { Approver::decide(&approver, request()).await });
        for _ in 0..2 {
            settle_in().await;
            assert!(!waiting.is_finished());
            clock.advance(Duration::from_secs(1));
        }
        assert_eq!(waiting.await.expect("no panic"), None);
    }

    #[tokio::test]
    async fn stops_waiting_when_the_answer_is_in_the_store() {
        let (store, clock) = (StoreHandle::new(MemoryStore::new()), TestClock::new());
        let approver =
            InboxApprover::new(store.clone(), Duration::from_secs(3_600)).clock(clock.clone());
        let waiting = tokio::spawn(async move { Approver::decide(&approver, request()).await });
        settle_in().await;
        let answer = Record::Answer(Arc::new(Answer::to(&request(), Decision::approve("ann"))));
        let key = RecordKey::Answer(request().approval_id.call(), 0);
        store.once(key, answer).await.expect("kept");
        clock.advance(Duration::from_secs(1));
        assert_eq!(
            waiting.await.expect("no panic"),
            None,
            "the driver takes the answer from the store"
        );
    }
}
