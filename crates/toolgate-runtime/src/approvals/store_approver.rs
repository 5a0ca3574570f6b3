//! Waits some time for a decision that arrives through the store.

use std::{fmt, sync::Arc, time::Duration};

use toolgate_core::{
    ApprovalFilter, ApprovalRequest, Approver, Clock, Decision, SessionId, StoreHandle, Timestamp,
};

use crate::SystemClock;

/// Keeps a turn open for a while, so that an approver can decide through the store before the turn
/// is suspended.
///
/// It decides nothing: the driver of the turn applies the answer from the store. After the timeout,
/// the request stays pending and the turn is suspended as it would have been at once.
#[derive(Clone)]
pub struct StoreApprover {
    store: StoreHandle,
    clock: Arc<dyn Clock>,
    patience: Duration,
}

impl StoreApprover {
    /// Interval at which the store is asked even without a notification.
    const ASK_EVERY: Duration = Duration::from_secs(1);

    /// Creates an approver that waits for `patience`.
    pub fn new(store: StoreHandle, patience: Duration) -> Self {
        Self {
            store,
            clock: Arc::new(SystemClock::new()),
            patience,
        }
    }

    /// Sets the clock.
    pub fn clock(self, clock: impl Clock) -> Self {
        Self {
            clock: Arc::new(clock),
            ..self
        }
    }

    async fn is_answered(&self, request: &ApprovalRequest) -> bool {
        let call = request.approval_id.call_id();
        let answer = self.store.load_answer(call, request.generation).await;
        matches!(answer, Ok(Some(_)))
    }

    async fn find_session(&self, request: &ApprovalRequest) -> Option<SessionId> {
        let rows = self
            .store
            .approvals(ApprovalFilter::for_call(request.approval_id.call_id()))
            .await
            .ok()?;
        rows.first().map(|row| row.session)
    }

    /// Waits until a message may have arrived for the session, at most one interval.
    async fn wait_for_message(&self, session: Option<SessionId>, seen: &mut u64, until: Timestamp) {
        let rest = until.since(self.clock.now()).min(Self::ASK_EVERY);
        let Some(session) = session else {
            return self.clock.sleep(rest).await;
        };
        tokio::select! {
            () = self.store.wait_for_post(session, *seen) => {
                let posts = self.store.posts(session, *seen, 100).await.unwrap_or_default();
                // The message may have been processed already; then the next number is the one to
                // wait for.
                *seen = posts.last().map_or(*seen + 1, |(number, _)| *number);
            }
            () = self.clock.sleep(rest) => {}
        }
    }
}

impl Approver for StoreApprover {
    async fn decide(&self, request: ApprovalRequest) -> Option<Decision> {
        let until = self.clock.now().plus(self.patience);
        let until = request
            .expires_at
            .map_or(until, |expires| expires.min(until));
        let mut seen = 0;
        while self.clock.now() < until && !self.is_answered(&request).await {
            let session = self.find_session(&request).await;
            self.wait_for_message(session, &mut seen, until).await;
        }
        None
    }
}

impl fmt::Debug for StoreApprover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreApprover")
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate_core::{ApprovalAnswer, Arguments, Call, MemoryStore, RecordKey, StoreRecord};
    use toolgate_testkit::TestClock;

    fn request() -> ApprovalRequest {
        ApprovalRequest::for_call(&Call::detached("pay", Arguments::empty()))
    }

    async fn settle_in() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn the_request_stays_pending_after_the_timeout_and_nothing_is_denied() {
        let store = StoreHandle::new(MemoryStore::new());
        let clock = TestClock::new();
        let approver = StoreApprover::new(store, Duration::from_secs(2)).clock(clock.clone());
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
        let store = StoreHandle::new(MemoryStore::new());
        let clock = TestClock::new();
        let approver =
            StoreApprover::new(store.clone(), Duration::from_secs(3_600)).clock(clock.clone());
        let waiting = tokio::spawn(async move { Approver::decide(&approver, request()).await });
        settle_in().await;
        let answer = ApprovalAnswer::for_request(&request(), Decision::approve("ann"));
        let key = RecordKey::Answer(request().approval_id.call_id(), answer.generation);
        store
            .put_record_once(key, StoreRecord::Answer(Arc::new(answer)))
            .await
            .expect("stored");
        clock.advance(Duration::from_secs(1));
        assert_eq!(
            waiting.await.expect("no panic"),
            None,
            "the driver applies the answer from the store"
        );
    }
}
