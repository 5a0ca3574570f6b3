//! Delivers external inputs to a turn: results, decisions, messages, interruptions. Every input
//! gets an answer.

use std::sync::Arc;

use toolgate_core::{
    AdmittedDecision, ApprovalAnswer, ApprovalRequestRef, CallId, Decision, InputKind, MailboxItem,
    Outcome, RecordKey, RejectCode, StoreError, StoreRecord, TurnEvent, TurnId, View,
};

use crate::{
    DispatchError, Dispatcher, JournalError,
    approvals::voting,
    journal::{PendingEvent, WriteAck},
    turn::{
        open_turn::{DriverInput, IdleTurn, OpenTurn, RejectedInput},
        queue::Urgency,
        settled_outcome,
    },
};

/// A handle to a turn that is being driven. Clones share it.
#[derive(Clone)]
pub struct TurnHandle(Arc<OpenTurn>);

/// Reason why an input was rejected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeliverError {
    /// It changed nothing; the code is the reason.
    #[error(transparent)]
    Rejected(#[from] RejectCode),
    /// The decision does not name the approver.
    #[error("a decision needs the name of the approver")]
    NoApprover,
    /// The input could not be recorded.
    #[error("the input could not be recorded")]
    Journal(#[from] JournalError),
    /// The turn could not be loaded.
    #[error("the turn could not be loaded")]
    Turn(#[from] Box<DispatchError>),
}

impl DeliverError {
    /// Returns the code, if the input was rejected.
    pub fn code(&self) -> Option<RejectCode> {
        match self {
            Self::Rejected(code) => Some(*code),
            Self::NoApprover | Self::Journal(_) | Self::Turn(_) => None,
        }
    }
}

impl From<RejectedInput> for DeliverError {
    fn from(not_taken: RejectedInput) -> Self {
        match not_taken {
            RejectedInput::Rejected(code) => code.into(),
            RejectedInput::NoApprover => Self::NoApprover,
            RejectedInput::Retired => RejectCode::TurnClosed.into(),
        }
    }
}

impl TurnHandle {
    pub(crate) fn new(active: Arc<OpenTurn>) -> Self {
        Self(active)
    }

    /// Returns the turn's id.
    pub fn turn(&self) -> TurnId {
        self.0.info.turn
    }

    /// Decides on an approval request. When this returns, the decision is durable.
    ///
    /// # Errors
    ///
    /// Fails as [`Dispatcher::decide`] does.
    pub async fn decide(
        &self,
        question: impl Into<ApprovalRequestRef>,
        decision: Decision,
    ) -> Result<(), DeliverError> {
        self.dispatcher()
            .decide(self.turn(), question, decision)
            .await
    }

    /// Delivers the result of a call that runs externally. When this returns, the result is
    /// durable.
    ///
    /// # Errors
    ///
    /// Fails as [`Dispatcher::deliver`] does.
    pub async fn deliver(&self, call: CallId, outcome: Outcome) -> Result<(), DeliverError> {
        self.dispatcher().deliver(self.turn(), call, outcome).await
    }

    /// Stops the turn. Returns true if there was something to stop.
    ///
    /// Finished results are kept; the other calls settle as `cancelled` or `outcome_unknown`. A
    /// turn without a driver is not stopped: resume it and interrupt it then.
    ///
    /// # Errors
    ///
    /// Fails if the interruption could not be recorded.
    pub async fn interrupt(&self, reason: &str) -> Result<bool, JournalError> {
        match self.0.interrupt_turn(reason) {
            Some(durable) => durable.await.map(|()| true),
            None => Ok(false),
        }
    }

    /// Adds a message that is reported with the turn.
    pub fn send_message(&self, text: impl Into<String>) {
        self.0
            .inbox
            .push(Urgency::Message, DriverInput::Message(text.into()));
    }

    fn dispatcher(&self) -> Dispatcher {
        Dispatcher(self.0.shared.clone())
    }
}

impl std::fmt::Debug for TurnHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TurnHandle").field(&self.turn()).finish()
    }
}

impl Dispatcher {
    /// Decides on an approval request of any turn of this session, driven or not.
    ///
    /// When this returns, the decision is durable. A turn without a driver acts on it when it is
    /// resumed. Where several approvers are required, each decision is counted when this returns,
    /// and the call resumes when there are enough.
    ///
    /// # Errors
    ///
    /// Fails if the decision is about a request that is not the pending one (it was made about
    /// something else), if the call was decided already, if it names no approver, or if the store
    /// or journal failed.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the decision may have been stored. It then counts, and a second
    /// decision is rejected as a duplicate.
    pub async fn decide(
        &self,
        turn: TurnId,
        question: impl Into<ApprovalRequestRef>,
        decision: Decision,
    ) -> Result<(), DeliverError> {
        let question = question.into();
        let call = question.approval_id.call_id();
        let with = match self.count_vote(turn, &question, &decision).await? {
            Ok(AdmittedDecision::Decided { with }) => with,
            Ok(AdmittedDecision::Counted { .. }) => return Ok(()),
            Err(code) => {
                self.record_rejection(turn, call, InputKind::Decision, code)
                    .await;
                return Err(code.into());
            }
        };
        // One decision at a time, and none while a turn is being resumed: each must see the ones
        // before it in the store.
        let mut last = self.0.posting.lock().await;
        let (active, parks) = match self.0.driven_turn(turn) {
            Some(active) => (active, false),
            None => (
                self.load_or_reject(turn, call, InputKind::Decision, &mut last)
                    .await?,
                true,
            ),
        };
        let answer = active.check_decision(question, decision, &with)?;
        let taken = if parks && answer.is_denial() {
            // A denial writes no event here, so the index of pending requests has to learn of it
            // from the mailbox.
            self.store_denial(&active, call, answer).await
        } else {
            self.store_first_answer(&active, call, answer).await
        };
        if parks && taken.is_ok() {
            *last = active.into_idle();
        }
        taken
    }

    /// Stores an answer and applies it, unless another process has answered first.
    async fn store_first_answer(
        &self,
        active: &OpenTurn,
        call: CallId,
        answer: ApprovalAnswer,
    ) -> Result<(), DeliverError> {
        // The write is atomic across processes: the first decision stands.
        let kept = self
            .0
            .store
            .put_answer_once(call, Arc::new(answer.clone()))
            .await
            .map_err(|error| Box::new(DispatchError::from(error)))?;
        if let Some(earlier) = kept {
            let code = if earlier.is_denial() {
                RejectCode::AlreadyDenied
            } else {
                RejectCode::Duplicate
            };
            // The process that stored it may have been lost before it was applied.
            active.apply_answer(call, &earlier, None).0.await?;
            self.record_rejection(active.info.turn, call, InputKind::Decision, code)
                .await;
            return Err(code.into());
        }
        let (durable, refused) = active.apply_answer(call, &answer, None);
        match (durable.await, refused) {
            (Ok(()), None) => Ok(()),
            (Ok(()), Some(code)) => Err(code.into()),
            (Err(error), _) => {
                self.forward_answer(active.info.turn, call, answer.generation, error)
                    .await
            }
        }
    }

    /// Stores the denial of a call without a driver, for the process that resumes it.
    async fn store_denial(
        &self,
        active: &OpenTurn,
        call: CallId,
        answer: ApprovalAnswer,
    ) -> Result<(), DeliverError> {
        let turn = active.info.turn;
        let generation = answer.generation;
        let record = (
            RecordKey::Answer(call, generation),
            StoreRecord::Answer(Arc::new(answer.clone())),
        );
        let post = MailboxItem::Answer {
            turn,
            call,
            generation,
        };
        match self
            .0
            .store
            .post_item(self.0.session, post, vec![record])
            .await
        {
            Ok(()) => {
                active.apply_answer(call, &answer, None).0.await?;
                Ok(())
            }
            Err(StoreError::RecordExists { .. }) => {
                self.store_first_answer(active, call, answer).await
            }
            Err(error) => Err(Box::new(DispatchError::from(error)).into()),
        }
    }

    /// Leaves a stored answer in the mailbox of the current lease holder. The answer stands, but
    /// this journal cannot apply it.
    async fn forward_answer(
        &self,
        turn: TurnId,
        call: CallId,
        generation: u32,
        error: JournalError,
    ) -> Result<(), DeliverError> {
        let post = MailboxItem::Answer {
            turn,
            call,
            generation,
        };
        self.0
            .store
            .post_item(self.0.session, post, Vec::new())
            .await
            .map_err(|_| DeliverError::Journal(error))
    }

    /// Counts the decision where several approvers are required.
    async fn count_vote(
        &self,
        turn: TurnId,
        question: &ApprovalRequestRef,
        decision: &Decision,
    ) -> Result<Result<AdmittedDecision, RejectCode>, DeliverError> {
        let store = &self.0.store;
        let broken = |error| DeliverError::from(Box::new(DispatchError::from(error)));
        let request = match self.0.driven_turn(turn) {
            Some(active) => active.pending_request(question),
            None => {
                let call = question.approval_id.call_id();
                let stored = store.load_approval_request(call, question.generation).await;
                stored.map_err(broken)?.map(Arc::unwrap_or_clone)
            }
        };
        let request = request.filter(|request| {
            request.quorum.is_some() && ApprovalRequestRef::from(request) == *question
        });
        // Everything else is checked when the decision is accepted.
        let Some(request) = request.filter(|_| !decision.by.as_str().trim().is_empty()) else {
            return Ok(Ok(AdmittedDecision::Decided { with: Vec::new() }));
        };
        let answered = store.load_answer(request.approval_id.call_id(), request.generation);
        if answered.await.map_err(broken)?.is_some() {
            return Ok(Ok(AdmittedDecision::Decided { with: Vec::new() }));
        }
        let keyring = self.0.keyring.as_ref();
        voting::count_vote(store, &request, decision, self.0.clock.now(), keyring)
            .await
            .map_err(broken)
    }

    /// Delivers the result of a call of any turn of this session, driven or not. When this returns,
    /// the result is durable.
    ///
    /// # Errors
    ///
    /// Fails if the call does not wait for a result, if `outcome` is suspended and therefore not a
    /// result, or if the store or journal failed.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the result may have been stored. A second delivery is then
    /// rejected as a duplicate.
    pub async fn deliver(
        &self,
        turn: TurnId,
        call: CallId,
        outcome: Outcome,
    ) -> Result<(), DeliverError> {
        let settled = settled_outcome(outcome).ok_or(RejectCode::NoWaiter)?;
        self.deliver_input(turn, call, InputKind::Result, |active| {
            active.accept_result(call, settled.clone())
        })
        .await
    }

    async fn deliver_input(
        &self,
        turn: TurnId,
        call: CallId,
        kind: InputKind,
        take: impl Fn(&OpenTurn) -> Result<WriteAck, RejectedInput>,
    ) -> Result<(), DeliverError> {
        // The usual case needs no lock: the driven copy orders its inputs itself.
        if let Some(taken) = self.deliver_to_driver(turn, &take) {
            return taken?.await.map_err(DeliverError::from);
        }
        // Held until the input is durable, so that the next one sees it in the store.
        let mut last = self.0.posting.lock().await;
        // While this waited for the lock, the turn may have been resumed.
        if let Some(taken) = self.deliver_to_driver(turn, &take) {
            return taken?.await.map_err(DeliverError::from);
        }
        let active = self.load_or_reject(turn, call, kind, &mut last).await?;
        let taken = take(&active);
        *last = active.into_idle();
        Ok(taken?.await?)
    }

    /// Loads a turn without a driver; records the rejection if there is one.
    async fn load_or_reject(
        &self,
        turn: TurnId,
        call: CallId,
        kind: InputKind,
        last: &mut Option<IdleTurn>,
    ) -> Result<Arc<OpenTurn>, DeliverError> {
        let found = self.load_undriven(turn, call, last).await;
        if let Err(DeliverError::Rejected(code)) = &found {
            self.record_rejection(turn, call, kind, *code).await;
        }
        found
    }

    /// Delivers to the copy of the turn that is driven, if there is one.
    fn deliver_to_driver(
        &self,
        turn: TurnId,
        take: impl Fn(&OpenTurn) -> Result<WriteAck, RejectedInput>,
    ) -> Option<Result<WriteAck, DeliverError>> {
        match take(&*self.0.driven_turn(turn)?) {
            Ok(durable) => Some(Ok(durable)),
            Err(RejectedInput::Retired) => None,
            Err(not_taken) => Some(Err(not_taken.into())),
        }
    }

    /// Records that an input came too late, if there ever was such a turn.
    async fn record_rejection(
        &self,
        turn: TurnId,
        invocation_id: CallId,
        what: InputKind,
        code: RejectCode,
    ) {
        if let Ok(Some(requests)) = self.0.store.load_turn_requests(turn).await {
            let event = TurnEvent::InputRejected {
                invocation_id,
                what,
                code,
            };
            // The sender has its answer either way; a failed journal is reported to the driver.
            drop(
                self.0
                    .journal
                    .append([PendingEvent::Turn(requests.info.clone(), event)], []),
            );
        }
    }

    /// Loads a turn without a driver. A turn that has ended is never opened again, however late the
    /// input comes.
    async fn load_undriven(
        &self,
        turn: TurnId,
        call: CallId,
        last: &mut Option<IdleTurn>,
    ) -> Result<Arc<OpenTurn>, DeliverError> {
        let settled = self
            .0
            .late
            .settled_status(call)
            .await
            .map_err(|error| Box::new(DispatchError::from(error)))?;
        if let Some(status) = settled {
            return Err(RejectCode::after_settled(status).into());
        }
        if let Some(same) = last.take().filter(|parked| parked.turn() == turn) {
            return Ok(same.into_open(self.0.clone()));
        }
        // Without tools: a delivery changes the state of the turn and runs nothing.
        match self
            .rebuild_turn(turn, &View::without_tools(), self.0.stack.clone())
            .await
        {
            Ok(active) if active.lock_state().turn.is_settled() => {
                Err(RejectCode::TurnClosed.into())
            }
            Ok(active) => Ok(active),
            Err(DispatchError::UnknownTurn { .. }) => Err(RejectCode::UnknownInvocation.into()),
            Err(error) => Err(Box::new(error).into()),
        }
    }
}
