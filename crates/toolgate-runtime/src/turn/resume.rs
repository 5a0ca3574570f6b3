//! Loads a turn from the store: replays its events and loads answers and outcomes.

use std::sync::Arc;

use toolgate_core::{
    ApprovalAnswer, ApprovalRequest, Arguments, CallId, ChangedRequest, Failure, Outcome, Phase,
    ReconciledAttempt, RecordKey, RejectCode, SettledOutcome, Stack, TurnId, TurnRequests, View,
    note_keys, run_contained,
};

use crate::{
    DispatchError, Dispatcher, RecoveredState, RecoveredTurn,
    turn::{
        driver::TurnRun,
        open_turn::{
            DriverInput, OpenTurn,
            answers::is_newest_answered,
            probe::external_arguments_key,
            settle::{LOST_WHILE_RUNNING, settled_refusal},
        },
        queue::Urgency,
    },
};

impl Dispatcher {
    /// Resumes a turn that another process, or an earlier part of this one, left open.
    ///
    /// Settled calls keep their outcome and are not run again. A call that had started and has no
    /// outcome is run again only if repeating it is harmless or its tool knows that nothing
    /// happened; otherwise it settles as `outcome_unknown`.
    ///
    /// # Errors
    ///
    /// Fails if there is no such turn, if it was continued already, if its log is damaged, or if
    /// the store or journal failed.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the turn stays open in the store and can be resumed again. A copy
    /// that was driven in this process has stopped.
    pub async fn resume(&self, turn: TurnId, view: View) -> Result<TurnRun, DispatchError> {
        self.resume_with_stack(turn, view, self.0.stack.clone())
            .await
    }

    /// Resumes a turn whose calls go through another stack than the dispatcher's.
    ///
    /// # Errors
    ///
    /// Fails as [`Dispatcher::resume`] does.
    pub async fn resume_with_stack(
        &self,
        turn: TurnId,
        view: View,
        stack: Stack,
    ) -> Result<TurnRun, DispatchError> {
        // No input is applied meanwhile: it would be unknown whether this turn has loaded it.
        let inputs = self.0.inputs.lock().await;
        self.apply_mailbox(&inputs).await?;
        let requests = self.load_continuable(turn).await?;
        // A copy that is still driven here stops first, so that its last writes are in the store.
        if let Some(earlier) = self.0.driven_turn(turn) {
            self.0.unregister_turn(&earlier);
        }
        self.0.wait_for_earlier_tasks(turn).await;
        let active = match requests {
            Some(requests) => self.rebuild_from(requests, &view, stack).await?,
            // Its opening may not have been written when it was looked for.
            None => self.rebuild_turn(turn, &view, stack).await?,
        };
        // Taken before anything is changed: it reports what the lost process left.
        let mut found = RecoveredTurn::from_open_turn(&active);
        active.apply_stored_approvals();
        active.expire_requests(self.0.clock.now());
        active.settle_provider_calls().await?;
        self.recover_started(&active, &mut found).await?;
        if active.lock_state().turn.is_stopped() {
            // It was interrupted, and its process was lost before everything was settled.
            active
                .inbox
                .push(Urgency::Settlement, DriverInput::Interrupted);
        }
        self.0.register_turn(&active);
        Ok(TurnRun::new(active, found))
    }

    /// Rebuilds the state of a turn from its stored events.
    pub(crate) async fn rebuild_turn(
        &self,
        turn: TurnId,
        view: &View,
        stack: Stack,
    ) -> Result<Arc<OpenTurn>, DispatchError> {
        self.0.journal.when_flushed().await?;
        let requests = self.0.store.load_turn_requests(turn).await?;
        let requests = requests.ok_or(DispatchError::UnknownTurn { turn })?;
        self.rebuild_from(requests, view, stack).await
    }

    /// Loads the requests of a turn that was not continued yet, as far as they are in the store.
    async fn load_continuable(
        &self,
        turn: TurnId,
    ) -> Result<Option<Arc<TurnRequests>>, DispatchError> {
        let keys = [RecordKey::Successor(turn), RecordKey::Requests(turn)];
        let mut found = self.0.store.load_records(&keys).await?.into_iter();
        let [successor, requests] = [found.next().flatten(), found.next().flatten()];
        if successor.is_some() {
            return Err(DispatchError::AlreadyContinued { turn });
        }
        let requests = requests.map(|requests| requests.into_content(&keys[1]));
        Ok(requests.transpose()?)
    }

    /// Rebuilds the state of a turn from its requests and its stored events.
    async fn rebuild_from(
        &self,
        requests: Arc<TurnRequests>,
        view: &View,
        stack: Stack,
    ) -> Result<Arc<OpenTurn>, DispatchError> {
        let turn = requests.info.turn;
        if requests.info.session != self.0.session {
            return Err(DispatchError::UnknownTurn { turn });
        }
        self.0.journal.when_flushed().await?;
        let active = self.build_turn(view, requests.info.clone(), &requests.calls, stack);
        self.replay_events(&active, &requests).await?;
        self.load_answers(&active).await?;
        Ok(active)
    }

    async fn replay_events(
        &self,
        active: &OpenTurn,
        requests: &TurnRequests,
    ) -> Result<(), DispatchError> {
        const PAGE: usize = 512;
        let turn = active.info.turn;
        let mut seen = requests.after_sequence;
        loop {
            let page = self.0.store.events(self.0.session, seen, PAGE).await?;
            let state = &mut *active.lock_state();
            for event in page.iter().filter(|event| event.turn_info().turn == turn) {
                state
                    .turn
                    .replay(event)
                    .map_err(|source| DispatchError::Damaged { turn, source })?;
            }
            match page.last() {
                // A turn that has settled has no further events.
                Some(last) if page.len() == PAGE && !state.turn.is_continued() => {
                    seen = last.sequence()
                }
                _ => return Ok(()),
            }
        }
    }

    /// Loads the answers, external results and outcomes of the calls.
    async fn load_answers(&self, active: &OpenTurn) -> Result<(), DispatchError> {
        let size = active.lock_state().work.len();
        for at in 0..size {
            let (call, phase, generation, attempts) = {
                let state = active.lock_state();
                let slot = &state.turn.slots()[at];
                (
                    slot.invocation().id,
                    slot.phase(),
                    slot.generation(),
                    slot.attempts(),
                )
            };
            if matches!(phase, Some(Phase::Settled(_))) {
                active.lock_state().work[at].outcome = self.0.store.load_outcome(call).await?;
                continue;
            }
            let asked = generation
                .checked_sub(1)
                .filter(|_| phase == Some(Phase::AwaitingApproval));
            let (question, answers) = self.load_decisions(call, asked, generation).await?;
            let results = if phase == Some(Phase::AwaitingResult) {
                self.load_results(call, attempts).await?
            } else {
                Vec::new()
            };
            let outside = match phase {
                Some(Phase::AwaitingResult) => self.load_external_arguments(call, attempts).await?,
                _ => None,
            };
            let state = &mut *active.lock_state();
            state.work[at].outside = outside;
            let is_answered = is_newest_answered(&answers, generation);
            let keyring = self.0.keyring.as_ref();
            let seal = question.as_ref().map(|request| request.check_seal(keyring));
            match seal {
                // No approver is asked about a request that was changed in the store. Without an
                // answer the call descends again: approval is requested anew if an earlier version
                // stored the request, and otherwise the call ends, so that the model can make it anew.
                Some(Err(problem)) if !is_answered => {
                    state.work[at].has_unsealed_request =
                        matches!(problem, ChangedRequest::Unsealed | ChangedRequest::KeyGone);
                    state.turn.mark_answered(call, RejectCode::Expired);
                }
                _ => state.work[at].pending = question.map(Arc::unwrap_or_clone).map(Box::new),
            }
            // An answer was stored but not applied: its process was lost first, or the turn had no
            // driver.
            if phase == Some(Phase::AwaitingApproval) && is_answered {
                let denied = answers.last().is_some_and(ApprovalAnswer::is_denial);
                state.turn.mark_answered(
                    call,
                    if denied {
                        RejectCode::AlreadyDenied
                    } else {
                        RejectCode::Duplicate
                    },
                );
                state.work[at].pending = None;
            }
            if phase == Some(Phase::AwaitingResult) && results.len() == attempts as usize {
                state.turn.mark_answered(call, RejectCode::Duplicate);
            }
            state.work[at].resumed.answers = answers;
            state.work[at].resumed.results = results;
        }
        Ok(())
    }

    /// Loads the approval request of generation `asked`, if there is one, and the answers of all
    /// generations so far, in one read.
    async fn load_decisions(
        &self,
        call: CallId,
        asked: Option<u32>,
        generations: u32,
    ) -> Result<(Option<Arc<ApprovalRequest>>, Vec<ApprovalAnswer>), DispatchError> {
        let mut keys: Vec<_> = (0..generations)
            .map(|generation| RecordKey::Answer(call, generation))
            .collect();
        keys.extend(asked.map(|asked| RecordKey::Question(call, asked)));
        let mut question = None;
        let mut answers = Vec::new();
        if keys.is_empty() {
            return Ok((question, answers));
        }
        for (key, record) in keys.iter().zip(self.0.store.load_records(&keys).await?) {
            match (key, record) {
                (RecordKey::Question(..), Some(record)) => {
                    question = Some(record.into_content(key)?);
                }
                (_, Some(record)) => {
                    let answer: Arc<ApprovalAnswer> = record.into_content(key)?;
                    answers.push(Arc::unwrap_or_clone(answer));
                }
                (_, None) => {}
            }
        }
        Ok((question, answers))
    }

    /// Loads the arguments with which an external executor runs the tool.
    async fn load_external_arguments(
        &self,
        call: CallId,
        attempt: u32,
    ) -> Result<Option<Arguments>, DispatchError> {
        let key = external_arguments_key(call, attempt);
        let stored = self.0.store.load_json(&key).await?;
        Ok(stored.and_then(|json| Arguments::try_from(json).ok()))
    }

    async fn load_results(
        &self,
        call: CallId,
        attempts: u32,
    ) -> Result<Vec<(u32, Arc<SettledOutcome>)>, DispatchError> {
        let mut results = Vec::new();
        for attempt in 1..=attempts {
            match self.0.store.load_result(call, attempt).await? {
                Some(settled) => results.push((attempt, settled)),
                // A gap ends the replay: attempts are replayed in order, and a later result without
                // the earlier ones means nothing.
                None => break,
            }
        }
        Ok(results)
    }

    /// Decides what happens to calls that had started when their process was lost.
    async fn recover_started(
        &self,
        active: &Arc<OpenTurn>,
        found: &mut RecoveredTurn,
    ) -> Result<(), DispatchError> {
        let started: Vec<usize> = {
            let state = active.lock_state();
            let running = state.turn.slots().iter().enumerate();
            running
                .filter(|(_, slot)| slot.phase() == Some(Phase::Running))
                .map(|(at, _)| at)
                .collect()
        };
        for at in started {
            let call = active.build_call(at, None);
            let annotations = call.annotations().clone();
            // Only the tool can know whether an interrupted call took effect; a panic while asking
            // it is no answer.
            let asked = if annotations.reconcile {
                let asked =
                    run_contained(active.stack.reconcile(&call, call.idempotency_key())).await;
                asked.unwrap_or(ReconciledAttempt::Unknown)
            } else {
                ReconciledAttempt::Unknown
            };
            match asked {
                // It descends the stack as the result of that attempt, so that every layer sees it.
                ReconciledAttempt::Happened(output) => {
                    let state = &mut *active.lock_state();
                    let attempt = state.turn.slots()[at].attempts();
                    let outcome = Outcome::ok(output)
                        .with_notes(|notes| notes.insert(note_keys::RECONCILED, &true));
                    let settled = crate::turn::settled_outcome(outcome)
                        .map(|settled| (attempt, Arc::new(settled)));
                    state.work[at].resumed.results.extend(settled);
                    state.turn.mark_answered(call.id, RejectCode::Duplicate);
                    found.calls[at].found = RecoveredState::Reconciled;
                }
                ReconciledAttempt::Unknown if !annotations.may_repeat() => {
                    let end = settled_refusal(Failure::OutcomeUnknown, LOST_WHILE_RUNNING);
                    active.close_call(at, end).await?;
                    found.calls[at].found = RecoveredState::Unknown;
                }
                // Safe to run again: it did not happen, or repeating it is harmless.
                ReconciledAttempt::DidNotHappen | ReconciledAttempt::Unknown => {
                    active
                        .lock_state()
                        .turn
                        .mark_answered(call.id, RejectCode::Duplicate);
                    found.calls[at].found = RecoveredState::RunAgain;
                }
            }
        }
        Ok(())
    }
}
