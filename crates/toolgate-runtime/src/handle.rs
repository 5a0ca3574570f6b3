//! Posting to a turn from outside: results, decisions, messages, interruptions. Every post is answered.

use std::sync::Arc;

use toolgate_core::{
    Admitted, Answer, ApprovalRequest, CallId, Decision, Outcome, Post, PostCode, PostKind,
    Question, Record, RecordKey, StoreError, TurnEvent, TurnId, View,
};

use crate::{
    DispatchError, Dispatcher, JournalError,
    active::{Active, Item, NotTaken, Parked},
    answering,
    dispatch::settled,
    inbox::Urgency,
    journal::{Draft, Durable},
};

/// A way into a turn that is being driven. Cloning shares it.
#[derive(Clone)]
pub struct TurnHandle(Arc<Active>);

/// Why something posted was not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// It changed nothing; the code says why.
    #[error(transparent)]
    Refused(#[from] PostCode),
    /// A decision has to say who decided.
    #[error("a decision needs the name of whoever decided")]
    Nameless,
    /// It could not be recorded.
    #[error("the post could not be recorded")]
    Journal(#[from] JournalError),
    /// The turn could not be read.
    #[error("the turn could not be read")]
    Turn(#[from] Box<DispatchError>),
}

impl PostError {
    /// The code, if the post was refused.
    pub fn code(&self) -> Option<PostCode> {
        match self {
            Self::Refused(code) => Some(*code),
            Self::Nameless | Self::Journal(_) | Self::Turn(_) => None,
        }
    }
}

impl From<NotTaken> for PostError {
    fn from(not_taken: NotTaken) -> Self {
        match not_taken {
            NotTaken::Refused(code) => code.into(),
            NotTaken::Nameless => Self::Nameless,
            NotTaken::Retired => PostCode::TurnClosed.into(),
        }
    }
}

impl TurnHandle {
    pub(crate) fn new(active: Arc<Active>) -> Self {
        Self(active)
    }

    /// Which turn it is.
    pub fn turn(&self) -> TurnId {
        self.0.info.turn
    }

    /// Answers an approval request. When this returns, the decision is durable.
    pub async fn decide(
        &self,
        question: impl Into<Question>,
        decision: Decision,
    ) -> Result<(), PostError> {
        self.dispatcher()
            .decide(self.turn(), question, decision)
            .await
    }

    /// Delivers the result of a call that runs outside. When this returns, the result is durable.
    pub async fn deliver(&self, call: CallId, outcome: Outcome) -> Result<(), PostError> {
        self.dispatcher().deliver(self.turn(), call, outcome).await
    }

    /// Stops the turn and says whether there was something to stop.
    ///
    /// Finished results are kept; the rest settles as `cancelled` or `outcome_unknown`. A turn that nobody drives
    /// is not stopped: resume it and interrupt it then.
    pub async fn interrupt(&self, reason: &str) -> Result<bool, JournalError> {
        match self.0.interrupt(reason) {
            Some(durable) => durable.await.map(|()| true),
            None => Ok(false),
        }
    }

    /// Leaves a message that is reported with the turn.
    pub fn message(&self, text: impl Into<String>) {
        self.0
            .inbox
            .push(Urgency::Message, Item::Message(text.into()));
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
    /// Answers an approval request of any turn of this session, whether it is being driven or not.
    ///
    /// When this returns, the decision is durable. A turn that nobody drives acts on it when it is resumed. A decision
    /// about a question that is not the open one is refused: it was made about something else. Where it takes several
    /// to approve, each one is counted when this returns, and the call goes on when there are enough.
    pub async fn decide(
        &self,
        turn: TurnId,
        question: impl Into<Question>,
        decision: Decision,
    ) -> Result<(), PostError> {
        let question = question.into();
        let call = question.approval_id.call();
        let with = match self.agreed(turn, &question, &decision).await? {
            Ok(Admitted::Decided { with }) => with,
            Ok(Admitted::Counted { .. }) => return Ok(()),
            Err(code) => {
                self.record_refusal(turn, call, PostKind::Decision, code)
                    .await;
                return Err(code.into());
            }
        };
        // One decision at a time, and none while a turn is taken up: each sees the ones before it in the store.
        let mut last = self.0.posting.lock().await;
        let (active, parks) = match self.0.active(turn) {
            Some(active) => (active, false),
            None => (
                self.undriven_or_refused(turn, call, PostKind::Decision, &mut last)
                    .await?,
                true,
            ),
        };
        let answer = active.judge(question, decision, &with)?;
        let taken = match parks && answer.is_denial() {
            // Without an event to show for it, the list of what is pending has to learn of it.
            true => self.leave_denial(&active, call, answer).await,
            false => self.take_first_answer(&active, call, answer).await,
        };
        if parks && taken.is_ok() {
            *last = active.park();
        }
        taken
    }

    /// Keeps an answer and acts on it, unless another process has answered meanwhile.
    async fn take_first_answer(
        &self,
        active: &Active,
        call: CallId,
        answer: Answer,
    ) -> Result<(), PostError> {
        let key = RecordKey::Answer(call, answer.generation);
        let record = Record::Answer(Arc::new(answer.clone()));
        let kept = self
            .0
            .store
            .once(key, record)
            .await
            .map_err(|error| Box::new(DispatchError::from(error)))?;
        if let Some(earlier) = kept {
            let denied = matches!(&earlier, Record::Answer(earlier) if earlier.is_denial());
            let code = if denied {
                PostCode::AlreadyDenied
            } else {
                PostCode::Duplicate
            };
            if let Record::Answer(earlier) = &earlier {
                // Whoever kept it may have been lost before anybody acted on it.
                active.take_answer(call, earlier, None).0.await?;
            }
            self.record_refusal(active.info.turn, call, PostKind::Decision, code)
                .await;
            return Err(code.into());
        }
        let (durable, refused) = active.take_answer(call, &answer, None);
        match (durable.await, refused) {
            (Ok(()), None) => Ok(()),
            (Ok(()), Some(code)) => Err(code.into()),
            (Err(error), _) => {
                self.leave_answer(active.info.turn, call, answer.generation, error)
                    .await
            }
        }
    }

    /// Keeps the denial of a call that nobody drives, for whoever takes it up.
    async fn leave_denial(
        &self,
        active: &Active,
        call: CallId,
        answer: Answer,
    ) -> Result<(), PostError> {
        let (turn, generation) = (active.info.turn, answer.generation);
        let record = (
            RecordKey::Answer(call, generation),
            Record::Answer(Arc::new(answer.clone())),
        );
        let post = Post::Answer {
            turn,
            call,
            generation,
        };
        match self.0.store.post(self.0.session, post, vec![record]).await {
            Ok(()) => {
                active.take_answer(call, &answer, None).0.await?;
                Ok(())
            }
            Err(StoreError::Exists { .. }) => self.take_first_answer(active, call, answer).await,
            Err(error) => Err(Box::new(DispatchError::from(error)).into()),
        }
    }

    /// The answer is kept and stands, but this journal cannot act on it: it is left for whoever drives the session now.
    async fn leave_answer(
        &self,
        turn: TurnId,
        call: CallId,
        generation: u32,
        error: JournalError,
    ) -> Result<(), PostError> {
        let post = Post::Answer {
            turn,
            call,
            generation,
        };
        self.0
            .store
            .post(self.0.session, post, Vec::new())
            .await
            .map_err(|_| PostError::Journal(error))
    }

    /// Counts the decision where it takes more than one.
    async fn agreed(
        &self,
        turn: TurnId,
        question: &Question,
        decision: &Decision,
    ) -> Result<Result<Admitted, PostCode>, PostError> {
        let store = &self.0.store;
        let broken = |error| PostError::from(Box::new(DispatchError::from(error)));
        let request = match self.0.active(turn) {
            Some(active) => active.open_question(question),
            None => {
                let key = RecordKey::Question(question.approval_id.call(), question.generation);
                match store.record(&key).await.map_err(broken)? {
                    Some(Record::Question(request)) => Some(ApprovalRequest::clone(&request)),
                    _ => None,
                }
            }
        };
        let request = request
            .filter(|request| request.quorum.is_some() && Question::from(request) == *question);
        // Everything else is looked at when the decision is taken.
        let Some(request) = request.filter(|_| !decision.by.as_str().trim().is_empty()) else {
            return Ok(Ok(Admitted::Decided { with: Vec::new() }));
        };
        let answered = RecordKey::Answer(request.approval_id.call(), request.generation);
        if store.record(&answered).await.map_err(broken)?.is_some() {
            return Ok(Ok(Admitted::Decided { with: Vec::new() }));
        }
        let keyring = self.0.keyring.as_ref();
        answering::count(store, &request, decision, self.0.clock.now(), keyring)
            .await
            .map_err(broken)
    }

    /// Delivers the result of a call of any turn of this session, whether it is being driven or not.
    ///
    /// A suspended outcome is not a result and is refused.
    pub async fn deliver(
        &self,
        turn: TurnId,
        call: CallId,
        outcome: Outcome,
    ) -> Result<(), PostError> {
        let settled = settled(outcome).ok_or(PostCode::NoWaiter)?;
        self.post(turn, call, PostKind::Result, |active| {
            active.deliver(call, settled.clone())
        })
        .await
    }

    async fn post(
        &self,
        turn: TurnId,
        call: CallId,
        kind: PostKind,
        take: impl Fn(&Active) -> Result<Durable, NotTaken>,
    ) -> Result<(), PostError> {
        if let Some(taken) = self.take_driven(turn, &take) {
            return taken?.await.map_err(PostError::from);
        }
        // Held until the post is durable, so that the next one sees it in the store.
        let mut last = self.0.posting.lock().await;
        // While this waited, somebody may have taken the turn up again.
        if let Some(taken) = self.take_driven(turn, &take) {
            return taken?.await.map_err(PostError::from);
        }
        let active = self
            .undriven_or_refused(turn, call, kind, &mut last)
            .await?;
        let taken = take(&active);
        *last = active.park();
        Ok(taken?.await?)
    }

    /// Reads a turn that nobody drives; if that is refused, it is recorded.
    async fn undriven_or_refused(
        &self,
        turn: TurnId,
        call: CallId,
        kind: PostKind,
        last: &mut Option<Parked>,
    ) -> Result<Arc<Active>, PostError> {
        let found = self.undriven(turn, call, last).await;
        if let Err(PostError::Refused(code)) = &found {
            self.record_refusal(turn, call, kind, *code).await;
        }
        found
    }

    /// Posts to the copy of the turn that is driven, if there is one.
    fn take_driven(
        &self,
        turn: TurnId,
        take: impl Fn(&Active) -> Result<Durable, NotTaken>,
    ) -> Option<Result<Durable, PostError>> {
        match take(&*self.0.active(turn)?) {
            Ok(durable) => Some(Ok(durable)),
            Err(NotTaken::Retired) => None,
            Err(not_taken) => Some(Err(not_taken.into())),
        }
    }

    /// Writes down that something came too late, if there ever was such a turn.
    async fn record_refusal(
        &self,
        turn: TurnId,
        invocation_id: CallId,
        what: PostKind,
        code: PostCode,
    ) {
        if let Ok(Some(Record::Requests(requests))) =
            self.0.store.record(&RecordKey::Requests(turn)).await
        {
            let event = TurnEvent::PostRefused {
                invocation_id,
                what,
                code,
            };
            // The poster has its answer either way; a failed journal is told to whoever drives next.
            drop(
                self.0
                    .journal
                    .write([Draft::Turn(requests.info.clone(), event)], []),
            );
        }
    }

    /// Reads a turn that nobody drives. One that is over is never opened again, however late the post comes.
    async fn undriven(
        &self,
        turn: TurnId,
        call: CallId,
        last: &mut Option<Parked>,
    ) -> Result<Arc<Active>, PostError> {
        let settled = self
            .0
            .late
            .settled(call)
            .await
            .map_err(|error| Box::new(DispatchError::from(error)))?;
        if let Some(status) = settled {
            return Err(PostCode::after(status).into());
        }
        if let Some(same) = last.take().filter(|parked| parked.turn() == turn) {
            return Ok(same.unpark(self.0.clone()));
        }
        // Without tools: a post changes the state of the turn and runs nothing.
        match self
            .rebuild(turn, &View::without_tools(), self.0.stack.clone())
            .await
        {
            Ok(active) if active.state().turn.is_settled() => Err(PostCode::TurnClosed.into()),
            Ok(active) => Ok(active),
            Err(DispatchError::UnknownTurn { .. }) => Err(PostCode::UnknownInvocation.into()),
            Err(error) => Err(Box::new(error).into()),
        }
    }
}
