//! Delivers the results of calls that run externally, to the mailbox of their session.

use std::sync::Arc;

use toolgate_core::{
    CallId, InputKind, MailboxItem, Outcome, RecordKey, RejectCode, SessionId, SettledOutcome,
    StoreError, StoreRecord, TurnFilter, TurnId, TurnRequests,
};

use crate::{
    ApprovalService, DeliverError,
    turn::{open_turn::probe::external_arguments_key, settled_outcome},
};

impl ApprovalService {
    /// Delivers the result of a call that runs externally, for the attempt that waits for one. When
    /// this returns, the result is durable.
    ///
    /// A sender that may send twice names the attempt with
    /// [`ApprovalService::deliver_attempt_result`]: without it, a repeated result would count for the
    /// next attempt of a call that is retried.
    ///
    /// # Errors
    ///
    /// Fails if the result was rejected (the code is the reason): the call does not wait for one,
    /// or `outcome` is suspended and therefore not a result. Fails if the store failed.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the result may have been stored. A second delivery is then
    /// rejected as a duplicate.
    pub async fn deliver_result(
        &self,
        turn: TurnId,
        call: CallId,
        outcome: Outcome,
    ) -> Result<(), DeliverError> {
        self.deliver(turn, call, None, outcome).await
    }

    /// Delivers the result of one attempt of a call that runs externally, counted from 1
    /// ([`CallResult::attempt`](crate::CallResult::attempt)). Delivered again, it is rejected as a
    /// duplicate, also if another attempt waits meanwhile.
    ///
    /// # Errors
    ///
    /// Fails as [`ApprovalService::deliver_result`] does.
    ///
    /// # Cancel safety
    ///
    /// As [`ApprovalService::deliver_result`].
    pub async fn deliver_attempt_result(
        &self,
        turn: TurnId,
        call: CallId,
        attempt: u32,
        outcome: Outcome,
    ) -> Result<(), DeliverError> {
        self.deliver(turn, call, Some(attempt), outcome).await
    }

    async fn deliver(
        &self,
        turn: TurnId,
        call: CallId,
        attempt: Option<u32>,
        outcome: Outcome,
    ) -> Result<(), DeliverError> {
        let outcome = Arc::new(settled_outcome(outcome).ok_or(RejectCode::NoWaiter)?);
        // Without the turn it is unknown which session is to record the rejection.
        let Some(requests) = self.store.load_turn_requests(turn).await? else {
            return Err(RejectCode::UnknownInvocation.into());
        };
        match self.store_result(&requests, call, attempt, outcome).await? {
            Ok(()) => Ok(()),
            Err(code) => {
                let session = requests.info.session;
                self.record_rejection(session, turn, call, InputKind::Result, code)
                    .await?;
                Err(code.into())
            }
        }
    }

    /// Stores a result for the attempt that waits for one, or returns why none does.
    async fn store_result(
        &self,
        requests: &TurnRequests,
        call: CallId,
        attempt: Option<u32>,
        outcome: Arc<SettledOutcome>,
    ) -> Result<Result<(), RejectCode>, StoreError> {
        let turn = requests.info.turn;
        let session = requests.info.session;
        if !has_call(requests, call) {
            return Ok(Err(self.foreign_code(session, call).await?));
        }
        if let Some(status) = self.settled_status(call).await? {
            return Ok(Err(RejectCode::after_settled(status)));
        }
        let attempt = match self.waiting_attempt(call, attempt).await? {
            Ok(attempt) => attempt,
            Err(code) => return Ok(Err(code)),
        };
        let key = RecordKey::Result(call, attempt);
        let record = StoreRecord::Outcome(outcome.clone());
        let post = MailboxItem::Result {
            turn,
            call,
            attempt,
            outcome,
        };
        match self
            .store
            .post_item(session, post, vec![(key, record)])
            .await
        {
            Ok(()) => Ok(Ok(())),
            Err(StoreError::RecordExists { .. }) => Ok(Err(RejectCode::Duplicate)),
            Err(error) => Err(error),
        }
    }

    /// Returns the attempt that waits for a result, or why the named one does not.
    async fn waiting_attempt(
        &self,
        call: CallId,
        named: Option<u32>,
    ) -> Result<Result<u32, RejectCode>, StoreError> {
        let mut attempt = 1;
        while self.has_record(RecordKey::Result(call, attempt)).await? {
            attempt += 1;
        }
        if named.is_some_and(|named| named > 0 && named < attempt) {
            return Ok(Err(RejectCode::Duplicate));
        }
        // Written when an external attempt starts.
        let started = external_arguments_key(call, attempt);
        let waits = self.has_record(started).await?;
        Ok(match named {
            None if waits => Ok(attempt),
            Some(named) if waits && named == attempt => Ok(attempt),
            None if attempt > 1 => Err(RejectCode::Duplicate),
            _ => Err(RejectCode::NoWaiter),
        })
    }

    /// Returns the code for a call that does not belong to the turn it was named with.
    async fn foreign_code(
        &self,
        session: SessionId,
        call: CallId,
    ) -> Result<RejectCode, StoreError> {
        for row in self.store.turns(TurnFilter::open_in(session)).await? {
            let requests = self.store.load_turn_requests(row.turn).await?;
            if requests.is_some_and(|requests| has_call(&requests, call)) {
                return Ok(RejectCode::TurnMismatch);
            }
        }
        Ok(RejectCode::UnknownInvocation)
    }

    async fn has_record(&self, key: RecordKey) -> Result<bool, StoreError> {
        Ok(self.store.load_record(&key).await?.is_some())
    }
}

fn has_call(requests: &TurnRequests, call: CallId) -> bool {
    requests.calls.iter().any(|taken| taken.id == call)
}
