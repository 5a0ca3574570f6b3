//! Approval requests of a turn and their answers: requested, checked, applied, expired.

use std::sync::Arc;

use toolgate_core::{
    AdmittedDecision, ApprovalAnswer, ApprovalRequest, ApprovalRequestRef, Arguments, CallId,
    Decision, InputKind, Phase, Principal, RecordKey, RejectCode, SettledOutcome, Status,
    StoreRecord, Suspension, Timestamp, ToolEvent, TurnId, Verdict,
};

use super::{
    DriverInput, InvocationState, OpenTurn, OpenTurnState, RejectedInput,
    settle::{FallbackOutcome, contract_violation, settled_refusal},
};
use crate::{
    approvals::voting,
    journal::{BatchExtras, PendingEvent, WriteAck},
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
        let invocation = state.turn.slots()[at].invocation().clone();
        // Events show a redacted copy. The record below keeps the original, because the decision is
        // bound to it.
        let mut shown = request.clone();
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
                Ok(self
                    .shared
                    .journal
                    .append([PendingEvent::Tool(invocation, event)], [(key, question)]))
            }
            // Settled meanwhile, by an interruption.
            Err(_) if state.turn.slots()[at].status().is_some() => Ok(WriteAck::Now(Ok(()))),
            // The request expired and the call descended again, but a layer asked for approval once
            // more.
            Err(_) if state.turn.slots()[at].phase() == Some(Phase::AwaitingApproval) => {
                Err(Box::new(expired_outcome()))
            }
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

    /// Returns the pending approval request, if `question` names it.
    pub(crate) fn pending_request(&self, question: &ApprovalRequestRef) -> Option<ApprovalRequest> {
        self.lock_state()
            .pending_request(self.info.turn, question)
            .ok()
            .map(|(_, request)| request)
    }

    /// Accepts a decision, together with the approvers who agreed before, or returns why not.
    pub(crate) fn check_decision(
        &self,
        question: ApprovalRequestRef,
        decision: Decision,
        with: &[Principal],
    ) -> Result<ApprovalAnswer, RejectedInput> {
        let call = question.approval_id.call_id();
        if decision.by.as_str().trim().is_empty() {
            return Err(RejectedInput::NoApprover);
        }
        let state = self.lock_state();
        if state.retired {
            return Err(RejectedInput::Retired);
        }
        let request = match state.pending_request(self.info.turn, &question) {
            Ok((_, request)) => request,
            Err(code) => {
                drop(state);
                return Err(self.record_rejection(call, InputKind::Decision, code));
            }
        };
        drop(state);
        let now = self.shared.clock.now();
        match voting::check_quorum(&request, &decision, with, now) {
            Ok(AdmittedDecision::Decided { .. }) => Ok(voting::build_answer(
                &request,
                decision,
                with.to_vec(),
                now,
                self.shared.keyring.as_ref(),
            )),
            // Not enough votes yet; the caller that counts them comes back when there are.
            Ok(AdmittedDecision::Counted { .. }) => {
                Err(self.record_rejection(call, InputKind::Decision, RejectCode::NoWaiter))
            }
            Err(code) => Err(self.record_rejection(call, InputKind::Decision, code)),
        }
    }

    /// Applies an answer that is in the store, perhaps as the mailbox message `number`, or returns
    /// why it changes nothing.
    pub(crate) fn apply_answer(
        &self,
        call: CallId,
        answer: &ApprovalAnswer,
        number: Option<u64>,
    ) -> (WriteAck, Option<RejectCode>) {
        let mut state = self.lock_state();
        let along = BatchExtras {
            taken_posts: number,
            ..BatchExtras::default()
        };
        let welcome = state
            .turn
            .check_input(self.info.turn, call, InputKind::Decision);
        let at = state
            .turn
            .slot(call)
            .map(|slot| slot.invocation().emit_order as usize);
        let known = at.is_some_and(|at| state.work[at].resumed.answers.contains(answer));
        let open = at
            .and_then(|at| state.work[at].pending.as_ref())
            .map(|request| request.generation);
        let code = match welcome {
            // It was loaded from the store when the turn was resumed.
            _ if known => None,
            Ok(_) if open == Some(answer.generation) => {
                let durable = self.advance_answered(
                    &mut state,
                    at.expect("a call that was found has a slot"),
                    answer.clone(),
                    along,
                );
                drop(state);
                self.inbox.push(Urgency::Settlement, DriverInput::Delivered);
                return (durable, None);
            }
            Ok(_) => Some(RejectCode::NoWaiter),
            Err(code) => Some(code),
        };
        let refused = code.map(|code| self.rejection_event(call, InputKind::Decision, code));
        (self.shared.journal.append_with(refused, along), code)
    }

    /// Applies approvals that were in the store when the turn was loaded. Denials descend the stack
    /// unchanged.
    pub(crate) fn apply_stored_approvals(&self) -> Vec<WriteAck> {
        let mut state = self.lock_state();
        let waiting = |(slot, work): (&toolgate_core::InvocationSlot, &InvocationState)| {
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
        let take = |at: usize| {
            let state: &mut OpenTurnState = &mut state;
            let answer = state.work[at]
                .resumed
                .answers
                .pop()
                .expect("the newest answer was just seen");
            self.advance_answered(state, at, answer, BatchExtras::default())
        };
        found.into_iter().map(take).collect()
    }

    /// Moves a call forward whose approval request is answered.
    fn advance_answered(
        &self,
        state: &mut OpenTurnState,
        at: usize,
        answer: ApprovalAnswer,
        along: BatchExtras,
    ) -> WriteAck {
        let OpenTurnState { turn, work, .. } = state;
        let call = turn.slots()[at].invocation().id;
        let approved = ToolEvent::ToolApproved {
            approver: answer.decision.by.clone(),
            reason: None,
            edited: matches!(answer.decision.verdict, Verdict::ApproveWithEdits { .. }),
        };
        let drafts = match &answer.decision.verdict {
            // A denial descends the stack like every other outcome, so that every layer sees it.
            Verdict::Deny { .. } => {
                turn.mark_answered(call, RejectCode::AlreadyDenied);
                None
            }
            Verdict::Approve | Verdict::ApproveWithEdits { .. } => {
                turn.apply(call, &approved)
                    .expect("a call that waits for approval can be approved");
                Some(PendingEvent::Tool(
                    turn.slots()[at].invocation().clone(),
                    approved,
                ))
            }
        };
        work[at].pending = None;
        work[at].resumed.answers.push(answer);
        self.shared.journal.append_with(drafts, along)
    }
}

impl OpenTurnState {
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

/// Builds the outcome of a call whose approval request expired.
fn expired_outcome() -> SettledOutcome {
    settled_refusal(
        Status::Expired,
        "the call was not run: no decision was made in time",
    )
}
