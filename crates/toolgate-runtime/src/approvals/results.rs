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
    /// Delivers the result of a call that runs externally. When this returns, the result is
    /// durable.
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
        let outcome = Arc::new(settled_outcome(outcome).ok_or(RejectCode::NoWaiter)?);
        // Without the turn it is unknown which session is to record the rejection.
        let Some(requests) = self.store.load_turn_requests(turn).await? else {
            return Err(RejectCode::UnknownInvocation.into());
        };
        match self.store_result(&requests, call, outcome).await? {
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
        let mut attempt = 1;
        while self.has_record(RecordKey::Result(call, attempt)).await? {
            attempt += 1;
        }
        // Written when an external attempt starts.
        if !self
            .has_record(external_arguments_key(call, attempt))
            .await?
        {
            let answered = attempt > 1;
            return Ok(Err(if answered {
                RejectCode::Duplicate
            } else {
                RejectCode::NoWaiter
            }));
        }
        let key = RecordKey::Result(call, attempt);
        let record = StoreRecord::Outcome(outcome.clone());
        let post = MailboxItem::Result {
            turn,
            call,
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
