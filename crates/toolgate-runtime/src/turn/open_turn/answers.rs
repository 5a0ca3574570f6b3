//! Approval requests of a turn, their answers, and external results: requested, applied, expired.

use std::sync::Arc;

use toolgate_core::{
    ApprovalAnswer, ApprovalChange, ApprovalRequest, ApprovalRequestRef, Arguments, CallId,
    Decision, InputKind, Invocation, InvocationSlot, Phase, RecordKey, Refusal, RejectCode,
    SettledOutcome, StoreRecord, Suspension, Timestamp, ToolEvent, TurnId, Verdict,
};

use super::{
    DriverInput, InvocationState, OpenTurn, OpenTurnState,
    settle::{FallbackOutcome, contract_violation, settled_refusal},
};
use crate::{
    DispatchError, JournalError,
    approvals::voting::{self, AdmittedAnswer},
    journal::{BatchExtras, PendingEvent, WriteAck, WriteTiming},
    turn::queue::Urgency,
};

impl OpenTurn {
    /// Records that an invocation waits.
    pub(super) fn suspend_call(
        &self,
        at: usize,
        suspension: Suspension,
    ) -> Result<WriteAck, FallbackOutcome> {
        let mut state = self.lock_state();
        // No approval is requested for a turn that is ending; its calls are settled by the code
        // that ends it.
        if state.retired || state.turn.is_stopped() {
            return Ok(WriteAck::Now(Ok(())));
        }
        let Suspension::Decision(request) = suspension else {
            // An external start was recorded when the call started. Without it, no external result
            // will arrive.
            let waits = state.turn.slots()[at].phase() == Some(Phase::AwaitingResult);
            let contract = || Box::new(contract_violation(&"no external execution was started"));
            return waits.then_some(WriteAck::Now(Ok(()))).ok_or_else(contract);
        };
        if state.work[at].has_asked_enough(&request) {
            return Err(Box::new(asked_too_often()));
        }
        let mut request = request;
        if state.turn.slots()[at].phase() == Some(Phase::AwaitingApproval) {
            if !std::mem::take(&mut state.work[at].has_unsealed_request) {
                // The request expired and the call descended again, but a layer asked for approval
                // once more.
                return Err(Box::new(expired_outcome()));
            }
            request.changed.push(ApprovalChange::Unsealed);
        }
        let invocation = state.turn.slots()[at].invocation().clone();
        // Events show a redacted copy. The record below keeps the original, because the decision is
        // bound to it.
        let mut shown = request.clone();
        shown.signed = false;
        shown.workspace = None;
        let visible = self.shared.visible_arguments(&request.arguments);
        shown.withheld = visible.is_none();
        shown.arguments = visible.unwrap_or_else(Arguments::empty);
        shown.shown = request
            .shown
            .as_ref()
            .and_then(|value| self.shared.visible_value(value));
        shown.reason = request
            .reason
            .as_deref()
            .map(|reason| self.shared.visible_text(reason));
        shown.stated_reason = request
            .stated_reason
            .as_deref()
            .map(|reason| self.shared.visible_text(reason));
        request.seal(&shown, self.shared.keyring.as_ref());
        let event = ToolEvent::ToolApprovalRequested(Box::new(shown));
        match state.turn.apply(invocation.id, &event) {
            Ok(_) => {
                let key = RecordKey::Question(invocation.id, request.generation);
                let question = StoreRecord::Question(Arc::new(request.clone()));
                state.expires_next = state
                    .expires_next
                    .into_iter()
                    .chain(request.expires_at)
                    .min();
                state.work[at].pending = Some(Box::new(request));
                let along = BatchExtras::with_records(vec![(key, question)]);
                // Held: the driver writes it before anyone is asked, or with the end of the run.
                Ok(self.shared.journal.append_at(
                    WriteTiming::Held,
                    [PendingEvent::Tool(invocation, event)],
                    along,
                ))
            }
            // Settled meanwhile, by an interruption.
            Err(_) if state.turn.slots()[at].status().is_some() => Ok(WriteAck::Now(Ok(()))),
            Err(error) => Err(Box::new(contract_violation(&error))),
        }
    }

    /// Returns the time at which the first pending approval request expires.
    pub(crate) fn next_expiry(&self) -> Option<Timestamp> {
        self.lock_state().expires_next
    }

    /// Sends calls whose approval request has expired down the stack again, where the approval
    /// layer settles them.
    pub(crate) fn expire_requests(&self, now: Timestamp) {
        let state = &mut *self.lock_state();
        state.expires_next = None;
        for (at, work) in state.work.iter_mut().enumerate() {
            let Some(until) = work.pending.as_ref().and_then(|request| request.expires_at) else {
                continue;
            };
            if now < until {
                state.expires_next = state.expires_next.into_iter().chain([until]).min();
                continue;
            }
            work.pending = None;
            // Not settled here: the layer that asked decides what an expired request means, and
            // recorders see it.
            let call = state.turn.slots()[at].invocation().id;
            state.turn.mark_answered(call, RejectCode::Expired);
        }
    }

    /// Accepts the decision of the approver who was asked in this process. The answer is stored in
    /// the write of its event. Returns false if another process has answered before.
    ///
    /// The caller holds the lock on inputs.
    pub(crate) async fn accept_decision(
        &self,
        question: ApprovalRequestRef,
        decision: Decision,
    ) -> Result<bool, DispatchError> {
        let shared = &self.shared;
        let call = question.approval_id.call_id();
        // Without the name of an approver it is no decision, and the call stays pending.
        let named = !decision.by.as_str().trim().is_empty();
        let Some(pending) = self.pending_request(&question).filter(|_| named) else {
            return Ok(true);
        };
        let admitted = match pending {
            Ok((_, request)) => {
                let now = shared.clock.now();
                let keyring = shared.keyring.as_ref();
                voting::admit_answer(&shared.store, &request, decision, now, keyring).await?
            }
            Err(code) => Err(code),
        };
        match admitted {
            Ok(AdmittedAnswer::Complete(answer)) => {
                Ok(self.store_answer(question, *answer).await?)
            }
            Ok(AdmittedAnswer::Counted { .. }) => Ok(true),
            Err(code) => {
                self.write_rejection(call, InputKind::Decision, code)
                    .await?;
                Ok(true)
            }
        }
    }

    /// Stores an answer in the write of its event and applies it. Returns false if another process
    /// has answered before: then that answer is in the mailbox.
    async fn store_answer(
        &self,
        question: ApprovalRequestRef,
        answer: ApprovalAnswer,
    ) -> Result<bool, JournalError> {
        let call = question.approval_id.call_id();
        let key = RecordKey::Answer(call, answer.generation);
        let record = StoreRecord::Answer(Arc::new(answer.clone()));
        let duplicate = self.rejection_event(call, InputKind::Decision, RejectCode::Duplicate);
        let (at, first) = {
            let state = self.lock_state();
            // It may have ended, or be driven by another copy, since the decision was checked.
            let pending = state.pending_request(self.info.turn, &question);
            let Some((at, _)) = pending.ok().filter(|_| !state.retired) else {
                return Ok(true);
            };
            let event = self.approval_event(state.turn.slots()[at].invocation(), &answer);
            let journal = &self.shared.journal;
            (at, journal.append_first(event, (key, record), duplicate))
        };
        let stands = first.await?;
        if stands {
            let mut state = self.lock_state();
            // An interruption may have settled it meanwhile.
            if state.turn.slots()[at].phase() == Some(Phase::AwaitingApproval) {
                state.advance_answered(at, answer);
            }
            drop(state);
            self.inbox.push(Urgency::Settlement, DriverInput::Applied);
        }
        Ok(stands)
    }

    /// Returns the pending approval request that `question` names; nothing if another copy of the
    /// turn is driven, which asks by itself.
    fn pending_request(
        &self,
        question: &ApprovalRequestRef,
    ) -> Option<Result<(usize, ApprovalRequest), RejectCode>> {
        let state = self.lock_state();
        (!state.retired).then(|| state.pending_request(self.info.turn, question))
    }

    /// Applies an answer that is in the store and that a mailbox item is about. `along` consumes the
    /// item.
    pub(crate) fn apply_answer(
        &self,
        call: CallId,
        answer: &ApprovalAnswer,
        along: BatchExtras,
    ) -> WriteAck {
        let mut state = self.lock_state();
        let found = state.turn.slot(call);
        let known = found.is_some_and(|slot| {
            let work = &state.work[slot.invocation().emit_order as usize];
            work.resumed.answers.contains(answer)
        });
        let welcome = state
            .turn
            .check_input(self.info.turn, call, InputKind::Decision)
            .and_then(|slot| {
                let at = slot.invocation().emit_order as usize;
                let open = state.work[at].pending.as_ref();
                open.filter(|request| request.generation == answer.generation)
                    .map(|_| at)
                    .ok_or(RejectCode::NoWaiter)
            });
        let event = match welcome {
            // It was loaded from the store when the turn was resumed.
            _ if known => None,
            Ok(at) => {
                let event = self.approval_event(state.turn.slots()[at].invocation(), answer);
                state.advance_answered(at, answer.clone());
                self.inbox.push(Urgency::Settlement, DriverInput::Applied);
                event
            }
            Err(code) => Some(self.rejection_event(call, InputKind::Decision, code)),
        };
        self.shared.journal.append_with(event, along)
    }

    /// Applies the external result of an attempt that is in the store and that a mailbox item is
    /// about. `along` consumes the item.
    pub(crate) fn apply_result(
        &self,
        call: CallId,
        (attempt, outcome): (u32, Arc<SettledOutcome>),
        along: BatchExtras,
    ) -> WriteAck {
        let state = &mut *self.lock_state();
        let known = state.turn.slot(call).is_some_and(|slot| {
            let work = &state.work[slot.invocation().emit_order as usize];
            work.resumed.result_of_attempt(attempt).is_some()
        });
        let welcome = state
            .turn
            .check_input(self.info.turn, call, InputKind::Result)
            .map(|slot| slot.invocation().emit_order as usize);
        let event = match welcome {
            // It was loaded from the store when the turn was resumed.
            _ if known => None,
            Ok(at) => {
                // The call descends the stack again with this result; a second one is a duplicate.
                state.turn.mark_answered(call, RejectCode::Duplicate);
                state.work[at].resumed.results.push((attempt, outcome));
                self.inbox.push(Urgency::Settlement, DriverInput::Applied);
                None
            }
            Err(code) => Some(self.rejection_event(call, InputKind::Result, code)),
        };
        self.shared.journal.append_with(event, along)
    }

    /// Returns the number of the newest attempt of a call; 0 if there is none.
    pub(crate) fn newest_attempt(&self, call: CallId) -> u32 {
        let state = self.lock_state();
        state.turn.slot(call).map_or(0, InvocationSlot::attempts)
    }

    /// Applies approvals that were in the store when the turn was loaded. Denials descend the stack
    /// unchanged. The events are held: they repeat what is stored.
    pub(crate) fn apply_stored_approvals(&self) {
        let mut state = self.lock_state();
        let waiting = |(slot, work): (&InvocationSlot, &InvocationState)| {
            // Only an answer to the pending generation counts; earlier ones were applied before.
            let newest = work
                .resumed
                .answers
                .last()
                .filter(|answer| answer.generation + 1 == slot.generation())?;
            let open = slot.phase() == Some(Phase::AwaitingApproval);
            (open && !newest.is_denial()).then(|| slot.invocation().emit_order as usize)
        };
        let found: Vec<usize> = state
            .turn
            .slots()
            .iter()
            .zip(&state.work)
            .filter_map(waiting)
            .collect();
        for at in found {
            let answer = state.work[at]
                .resumed
                .answers
                .pop()
                .expect("the newest answer was just seen");
            let event = self.approval_event(state.turn.slots()[at].invocation(), &answer);
            state.advance_answered(at, answer);
            drop(
                self.shared
                    .journal
                    .append_at(WriteTiming::Held, event, BatchExtras::default()),
            );
        }
    }
}

impl InvocationState {
    /// Limit on how often one layer asks about one call.
    const MAX_REQUESTS: usize = 5;

    /// Checks whether the layer has asked about this call as often as it may: answers that never
    /// count, for example because they cannot be verified, must not lead to requests without end.
    fn has_asked_enough(&self, request: &ApprovalRequest) -> bool {
        let answers = self.resumed.answers.iter();
        let asked = answers.filter(|answer| request.asked_by.as_ref() == Some(&answer.asked_by));
        asked.count() >= Self::MAX_REQUESTS
    }
}

impl OpenTurnState {
    /// Moves a call forward whose approval request is answered.
    fn advance_answered(&mut self, at: usize, answer: ApprovalAnswer) {
        let call = self.turn.slots()[at].invocation().id;
        if answer.is_denial() {
            // A denial descends the stack like every other outcome, so that every layer sees it.
            self.turn.mark_answered(call, RejectCode::AlreadyDenied);
        } else {
            self.turn
                .apply(call, &approved_event(&answer))
                .expect("a call that waits for approval can be approved");
        }
        self.work[at].pending = None;
        self.work[at].resumed.answers.push(answer);
    }

    /// Returns the pending approval request, if `question` names it.
    fn pending_request(
        &self,
        turn: TurnId,
        question: &ApprovalRequestRef,
    ) -> Result<(usize, ApprovalRequest), RejectCode> {
        let slot =
            self.turn
                .check_input(turn, question.approval_id.call_id(), InputKind::Decision)?;
        let at = slot.invocation().emit_order as usize;
        let open = self.work[at]
            .pending
            .as_ref()
            .filter(|request| ApprovalRequestRef::from(&***request) == *question);
        // A decision on a request that was decided or has changed since is not a decision on this
        // one.
        Ok((
            at,
            open.map(|request| ApprovalRequest::clone(request))
                .ok_or(RejectCode::NoWaiter)?,
        ))
    }
}

/// Checks whether the newest of the approval requests is answered. One that was replaced has no
/// answer, so the number of answers says nothing.
pub(crate) fn is_newest_answered(answers: &[ApprovalAnswer], requested: u32) -> bool {
    answers
        .last()
        .map_or(requested == 0, |answer| answer.generation + 1 == requested)
}

impl OpenTurn {
    /// Builds the event of an answer. A denial has none: the end of the call shows it.
    fn approval_event(
        &self,
        invocation: &Arc<Invocation>,
        answer: &ApprovalAnswer,
    ) -> Option<PendingEvent> {
        if answer.is_denial() {
            return None;
        }
        let approved = self.shared.redact_event(approved_event(answer));
        Some(PendingEvent::Tool(invocation.clone(), approved))
    }
}

fn approved_event(answer: &ApprovalAnswer) -> ToolEvent {
    ToolEvent::ToolApproved {
        approver: answer.decision.by.name.clone(),
        established: answer.decision.by.established.clone(),
        claimed_as: answer.decision.by.claimed_as.clone(),
        reason: answer.decision.approval_reason.clone(),
        edited: matches!(answer.decision.verdict, Verdict::ApproveWithEdits { .. }),
        unseen: answer.decision.unseen,
        with: answer.with.clone(),
    }
}

/// Builds the outcome of a call whose approval request expired.
fn expired_outcome() -> SettledOutcome {
    settled_refusal(
        Refusal::Expired,
        "the call was not run: no decision was made in time",
    )
}

/// Builds the outcome of a call about which a layer would ask once more than it may.
fn asked_too_often() -> SettledOutcome {
    settled_refusal(
        Refusal::Blocked,
        format!(
            "the call was not run: approval was requested {} times, and no answer could be used",
            InvocationState::MAX_REQUESTS
        ),
    )
}
