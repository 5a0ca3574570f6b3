//! Brings a turn back from the store: events are folded again, answers and outcomes are read again.

use std::sync::Arc;

use toolgate_core::{
    Answer, ApprovalRequest, Arguments, CallId, Outcome, Phase, PostCode, Reconciled, Record,
    RecordKey, Settled, Stack, Status, TurnId, TurnRequests, View, contained,
};

use crate::{
    CallFound, DispatchError, Dispatcher, TurnFound,
    active::{Active, Item, outside_arguments, refusal},
    drive::TurnRun,
    inbox::Urgency,
};

impl Dispatcher {
    /// Takes up a turn that another process, or an earlier part of this one, left behind.
    ///
    /// Settled calls keep their outcome and are not run again. A call that had started and has no outcome is
    /// run again only if that does no harm or its tool knows that nothing happened; otherwise it settles as
    /// `outcome_unknown`.
    pub async fn resume(&self, turn: TurnId, view: View) -> Result<TurnRun, DispatchError> {
        self.resume_under(turn, view, self.0.stack.clone()).await
    }

    /// The same for a turn whose calls go through another stack than the dispatcher's.
    pub async fn resume_under(
        &self,
        turn: TurnId,
        view: View,
        stack: Stack,
    ) -> Result<TurnRun, DispatchError> {
        self.take_posts().await?;
        // Nobody posts meanwhile, and nobody posts to an old copy afterwards.
        let mut last_posted_to = self.0.posting.lock().await;
        *last_posted_to = None;
        if self
            .0
            .store
            .record(&RecordKey::Successor(turn))
            .await?
            .is_some()
        {
            return Err(DispatchError::AlreadyContinued { turn });
        }
        // A copy that is still being driven here stops first, so that the store has its last word.
        if let Some(earlier) = self.0.active(turn) {
            self.0.closed(&earlier);
        }
        self.0.ended(turn).await;
        let active = self.rebuild(turn, &view, stack).await?;
        let mut found = TurnFound::of(&active);
        self.0.all_durable(active.take_stored_approvals()).await?;
        active.expire(self.0.clock.now());
        active.settle_ran().await?;
        self.recover_started(&active, &mut found).await?;
        if active.state().turn.is_stopped() {
            // It was interrupted and lost before everything was settled.
            active.inbox.push(Urgency::Settlement, Item::Interrupted);
        }
        self.0.opened(&active);
        Ok(TurnRun::new(active, found))
    }

    /// Folds the stored events of a turn.
    pub(crate) async fn rebuild(
        &self,
        turn: TurnId,
        view: &View,
        stack: Stack,
    ) -> Result<Arc<Active>, DispatchError> {
        self.0.journal.flushed().await?;
        let requests = match self.0.store.record(&RecordKey::Requests(turn)).await? {
            Some(Record::Requests(requests)) if requests.info.session == self.0.session => requests,
            _ => return Err(DispatchError::UnknownTurn { turn }),
        };
        let active = self.activate(view, requests.info.clone(), &requests.calls, stack);
        self.replay(&active, &requests).await?;
        self.reread_answers(&active).await?;
        Ok(active)
    }

    async fn replay(&self, active: &Active, requests: &TurnRequests) -> Result<(), DispatchError> {
        const PAGE: usize = 512;
        let turn = active.info.turn;
        let mut seen = requests.after_sequence;
        loop {
            let page = self.0.store.events(self.0.session, seen, PAGE).await?;
            let state = &mut *active.state();
            for event in page.iter().filter(|event| event.turn_info().turn == turn) {
                state
                    .turn
                    .replay(event)
                    .map_err(|source| DispatchError::Damaged { turn, source })?;
            }
            match page.last() {
                Some(last) if page.len() == PAGE && !state.turn.is_continued() => {
                    seen = last.sequence()
                }
                _ => return Ok(()),
            }
        }
    }

    /// Reads what was answered and what came of settled calls.
    async fn reread_answers(&self, active: &Active) -> Result<(), DispatchError> {
        let size = active.state().work.len();
        for at in 0..size {
            let (call, phase, generation, attempts) = {
                let state = active.state();
                let slot = &state.turn.slots()[at];
                (
                    slot.invocation().id,
                    slot.phase(),
                    slot.generation(),
                    slot.attempts(),
                )
            };
            if matches!(phase, Some(Phase::Settled(_))) {
                active.state().work[at].outcome = self.outcome(call).await?;
                continue;
            }
            let question = match (phase, generation.checked_sub(1)) {
                (Some(Phase::AwaitingApproval), Some(asked)) => self.question(call, asked).await?,
                _ => None,
            };
            let mut answers = Vec::new();
            for generation in 0..generation {
                answers.extend(self.answer(call, generation).await?);
            }
            let results = if phase == Some(Phase::AwaitingResult) {
                self.results(call, attempts).await?
            } else {
                Vec::new()
            };
            let outside = match phase {
                Some(Phase::AwaitingResult) => self.outside_arguments(call, attempts).await?,
                _ => None,
            };
            let state = &mut *active.state();
            state.work[at].outside = outside;
            state.work[at].pending = question.map(Box::new);
            // An answer that came but was not acted on, before the process was lost or because nobody drove the turn.
            if phase == Some(Phase::AwaitingApproval) && answers.len() == generation as usize {
                let denied = answers.last().is_some_and(Answer::is_denial);
                state.turn.answer(
                    call,
                    if denied {
                        PostCode::AlreadyDenied
                    } else {
                        PostCode::Duplicate
                    },
                );
                state.work[at].pending = None;
            }
            if phase == Some(Phase::AwaitingResult) && results.len() == attempts as usize {
                state.turn.answer(call, PostCode::Duplicate);
            }
            state.work[at].resumed.answers = answers;
            state.work[at].resumed.results = results;
        }
        Ok(())
    }

    async fn outcome(&self, call: CallId) -> Result<Option<Arc<Settled>>, DispatchError> {
        Ok(
            match self.0.store.record(&RecordKey::Outcome(call)).await? {
                Some(Record::Outcome(settled)) => Some(settled),
                _ => None,
            },
        )
    }

    /// The question as it was put, not as events show it.
    async fn question(
        &self,
        call: CallId,
        generation: u32,
    ) -> Result<Option<ApprovalRequest>, DispatchError> {
        Ok(
            match self
                .0
                .store
                .record(&RecordKey::Question(call, generation))
                .await?
            {
                Some(Record::Question(question)) => Some(ApprovalRequest::clone(&question)),
                _ => None,
            },
        )
    }

    async fn answer(&self, call: CallId, generation: u32) -> Result<Option<Answer>, DispatchError> {
        Ok(
            match self
                .0
                .store
                .record(&RecordKey::Answer(call, generation))
                .await?
            {
                Some(Record::Answer(answer)) => Some(Answer::clone(&answer)),
                _ => None,
            },
        )
    }

    /// With what something outside is to run the tool.
    async fn outside_arguments(
        &self,
        call: CallId,
        attempt: u32,
    ) -> Result<Option<Arguments>, DispatchError> {
        Ok(
            match self
                .0
                .store
                .record(&outside_arguments(call, attempt))
                .await?
            {
                Some(Record::Json(json)) => Arguments::try_from(json).ok(),
                _ => None,
            },
        )
    }

    async fn results(
        &self,
        call: CallId,
        attempts: u32,
    ) -> Result<Vec<(u32, Arc<Settled>)>, DispatchError> {
        let mut results = Vec::new();
        for attempt in 1..=attempts {
            match self
                .0
                .store
                .record(&RecordKey::Result(call, attempt))
                .await?
            {
                Some(Record::Outcome(settled)) => results.push((attempt, settled)),
                _ => break,
            }
        }
        Ok(results)
    }

    /// Decides on calls that had started when their process was lost.
    async fn recover_started(
        &self,
        active: &Arc<Active>,
        found: &mut TurnFound,
    ) -> Result<(), DispatchError> {
        let started: Vec<usize> = {
            let state = active.state();
            let running = state.turn.slots().iter().enumerate();
            running
                .filter(|(_, slot)| slot.phase() == Some(Phase::Running))
                .map(|(at, _)| at)
                .collect()
        };
        for at in started {
            let call = active.call(at, None);
            let annotations = call.annotations().clone();
            let asked = match annotations.reconcile {
                true => {
                    let asked =
                        contained(active.stack.reconcile(&call, call.idempotency_key())).await;
                    asked.unwrap_or(Reconciled::Unknown)
                }
                false => Reconciled::Unknown,
            };
            match asked {
                // It goes down the stack as the result of that attempt, so that every layer sees it.
                Reconciled::Happened(output) => {
                    let state = &mut *active.state();
                    let attempt = state.turn.slots()[at].attempts();
                    let settled = crate::dispatch::settled(Outcome::ok(output))
                        .map(|settled| (attempt, Arc::new(settled)));
                    state.work[at].resumed.results.extend(settled);
                    state.turn.answer(call.id, PostCode::Duplicate);
                    found.calls[at].found = CallFound::Reconciled;
                }
                Reconciled::Unknown if !annotations.may_repeat() => {
                    let text = "the process was lost while the call ran; it may have taken effect";
                    active
                        .close(at, refusal(Status::OutcomeUnknown, text))
                        .await?;
                    found.calls[at].found = CallFound::Unknown;
                }
                Reconciled::DidNotHappen | Reconciled::Unknown => {
                    active.state().turn.answer(call.id, PostCode::Duplicate);
                    found.calls[at].found = CallFound::RunAgain;
                }
            }
        }
        Ok(())
    }
}
