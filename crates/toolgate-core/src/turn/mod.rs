//! The state of a turn: settles each invocation once and says what to do next. Performs nothing.

pub(crate) mod event;
pub(crate) mod lifecycle;
pub(crate) mod session_event;

use std::sync::Arc;

use hashbrown::HashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::{
    CallId, Event, IllegalEvent, InputKind, Invocation, Phase, Status, ToolEvent, TurnEvent,
    TurnId, TurnInfo, turn::event::EventBody,
};

/// One model message and its invocations, in the order the model asked.
///
/// It is the fold of its events: applying the stored events to an empty turn gives the same state
/// in another process. [`Turn::next`] returns what to do, [`Turn::check_input`] checks whether an input is
/// expected.
#[derive(Debug, Clone)]
pub struct Turn {
    info: Arc<TurnInfo>,
    slots: Vec<InvocationSlot>,
    /// Slot numbers by call id; only filled for turns with many slots.
    index: HashMap<CallId, usize>,
    /// Slots that may have become runnable or askable since the last `next`, which decides by
    /// phase.
    fresh: SmallVec<[usize; 4]>,
    unsettled: usize,
    stopped: bool,
    continued: bool,
}

/// The number of invocations up to which a linear search is faster than an index.
const MAX_UNINDEXED: usize = 8;

/// One invocation of a turn.
#[derive(Debug, Clone)]
pub struct InvocationSlot {
    invocation: Arc<Invocation>,
    phase: Option<Phase>,
    generation: u32,
    attempts: u32,
    /// Set when an input arrived that the stack has not seen yet: the code that rejects a second
    /// one.
    answered: Option<RejectCode>,
    /// True if the slot is in `fresh`, so that it is not handed out twice for one reason.
    fresh: bool,
}

impl InvocationSlot {
    fn mark_fresh(&mut self, at: usize, fresh: &mut SmallVec<[usize; 4]>) {
        if !std::mem::replace(&mut self.fresh, true) {
            fresh.push(at);
        }
    }

    /// Returns the part that never changes.
    pub fn invocation(&self) -> &Arc<Invocation> {
        &self.invocation
    }

    /// Returns its phase; `None` before it was requested.
    pub fn phase(&self) -> Option<Phase> {
        self.phase
    }

    /// Returns the number of times approval was requested for it.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns the number of times its executor was started.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Returns the status it settled with, if it is settled.
    pub fn status(&self) -> Option<Status> {
        match self.phase {
            Some(Phase::Settled(status)) => Some(status),
            _ => None,
        }
    }
}

/// The next step for the driver of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnStep {
    /// Send these calls down the stack.
    Run(Vec<CallId>),
    /// Ask for these approvals.
    Ask(Vec<CallId>),
    /// Wait for an outcome, a decision or a result.
    Wait,
    /// Call the model: everything is settled. Returned once.
    Continue,
    /// Do nothing: the turn is over.
    Done,
}

/// The reason an input was rejected and changed nothing.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, thiserror::Error,
)]
#[serde(rename_all = "snake_case")]
pub enum RejectCode {
    /// The invocation has an outcome; the first one stands.
    #[error("the invocation is already settled")]
    Duplicate,
    /// The invocation was denied; a late result does not change that.
    #[error("the invocation was denied")]
    AlreadyDenied,
    /// There is no such invocation.
    #[error("there is no such invocation")]
    UnknownInvocation,
    /// The invocation belongs to another turn.
    #[error("the invocation belongs to another turn")]
    TurnMismatch,
    /// The turn is over.
    #[error("the turn is closed")]
    TurnClosed,
    /// The invocation does not wait for this kind of input.
    #[error("the invocation does not wait for this input")]
    NoWaiter,
    /// The token was not signed with our keys, or was changed.
    #[error("the token is not valid")]
    Forged,
    /// The key that signed the token is no longer in the key ring.
    #[error("the token was signed with a key that is no longer valid")]
    KeyGone,
    /// The token belongs to another approval request.
    #[error("the token belongs to another approval request")]
    TokenMismatch,
    /// The token was already used.
    #[error("the token was already used")]
    Replayed,
    /// The approval request expired before the decision.
    #[error("the approval request has expired")]
    Expired,
    /// The input is none of the three decisions.
    #[error("this is not a decision")]
    NotADecision,
    /// The requester of a call cannot approve it.
    #[error("the requester of a call cannot approve it")]
    SelfApproval,
    /// The approver is not entitled to decide on this request.
    #[error("this approver is not entitled to decide on this request")]
    NotEntitled,
    /// The request needs an approver whose identity is established, and this one is only claimed.
    #[error("the name of this approver is only claimed, and this request needs an established one")]
    UnverifiedApprover,
}

impl RejectCode {
    /// Every code.
    pub const ALL: [Self; 15] = [
        Self::Duplicate,
        Self::AlreadyDenied,
        Self::UnknownInvocation,
        Self::TurnMismatch,
        Self::TurnClosed,
        Self::NoWaiter,
        Self::Forged,
        Self::KeyGone,
        Self::TokenMismatch,
        Self::Replayed,
        Self::Expired,
        Self::NotADecision,
        Self::SelfApproval,
        Self::NotEntitled,
        Self::UnverifiedApprover,
    ];

    /// Returns the code for an input that arrives after the invocation settled with `status`.
    pub const fn after_settled(status: Status) -> Self {
        if status.is_refusal() {
            Self::AlreadyDenied
        } else {
            Self::Duplicate
        }
    }
}

/// The reason an event cannot be applied to a turn.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TurnError {
    /// The event belongs to no invocation of this turn.
    #[error("invocation {0} is not part of this turn")]
    UnknownInvocation(CallId),
    /// The event cannot happen in this phase.
    #[error(transparent)]
    Illegal(#[from] IllegalEvent),
    /// An invocation is requested once, before anything else happens to it.
    #[error("{event} came {problem}")]
    OutOfOrder {
        /// The event's wire name.
        event: &'static str,
        /// The problem with it.
        problem: &'static str,
    },
}

impl Turn {
    /// Creates a turn of these invocations, none of which has been requested yet.
    pub fn new(
        info: Arc<TurnInfo>,
        invocations: impl IntoIterator<Item = Arc<Invocation>>,
    ) -> Self {
        let slot = |invocation| InvocationSlot {
            invocation,
            phase: None,
            generation: 0,
            attempts: 0,
            answered: None,
            fresh: false,
        };
        let slots: Vec<InvocationSlot> = invocations.into_iter().map(slot).collect();
        let indexed: &[InvocationSlot] = if slots.len() > MAX_UNINDEXED {
            &slots
        } else {
            &[]
        };
        let index = indexed
            .iter()
            .enumerate()
            .map(|(at, slot)| (slot.invocation.id, at))
            .collect();
        let unsettled = slots.len();
        Self {
            info,
            slots,
            index,
            fresh: SmallVec::new(),
            unsettled,
            stopped: false,
            continued: false,
        }
    }

    /// Returns the ids and origin of the turn.
    pub fn info(&self) -> &Arc<TurnInfo> {
        &self.info
    }

    /// Returns the invocations in the order the model asked.
    pub fn slots(&self) -> &[InvocationSlot] {
        &self.slots
    }

    /// Returns one invocation.
    pub fn slot(&self, call: CallId) -> Option<&InvocationSlot> {
        self.slot_index(call).map(|at| &self.slots[at])
    }

    fn slot_index(&self, call: CallId) -> Option<usize> {
        if self.slots.len() > MAX_UNINDEXED {
            return self.index.get(&call).copied();
        }
        self.slots
            .iter()
            .position(|slot| slot.invocation.id == call)
    }

    /// Checks whether every invocation is settled.
    pub fn is_settled(&self) -> bool {
        self.unsettled == 0
    }

    /// Checks whether [`TurnStep::Continue`] was returned.
    pub fn is_continued(&self) -> bool {
        self.continued
    }

    /// Checks whether it was stopped.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Applies an event to one invocation, if the event is legal in its phase.
    ///
    /// # Errors
    ///
    /// [`TurnError`] if the event is illegal here; the turn is unchanged.
    pub fn apply(&mut self, call: CallId, event: &ToolEvent) -> Result<Phase, TurnError> {
        let at = self
            .slot_index(call)
            .ok_or(TurnError::UnknownInvocation(call))?;
        let slot = &mut self.slots[at];
        let out_of_order = |problem| TurnError::OutOfOrder {
            event: event.name(),
            problem,
        };
        let phase = match (slot.phase, event) {
            (None, ToolEvent::ToolRequested { .. }) => Phase::Requested,
            (None, _) => return Err(out_of_order("before the invocation was requested")),
            (Some(phase), event) => phase.apply(event)?,
        };
        // The arms that reject come before those that count: an error leaves the turn unchanged.
        match event {
            ToolEvent::ToolExecutionStarted { attempt, .. } if *attempt != slot.attempts + 1 => {
                return Err(out_of_order("for an attempt that is not the next one"));
            }
            ToolEvent::ToolApprovalRequested(request) if request.generation != slot.generation => {
                return Err(out_of_order("for another generation of the call"));
            }
            // A running tool may ask for approval itself. It has started, so "denied" would be
            // false.
            ToolEvent::ToolDenied { .. } if slot.attempts > 0 => {
                return Err(out_of_order("for an invocation that has started"));
            }
            ToolEvent::ToolExecutionStarted { .. } => slot.attempts += 1,
            ToolEvent::ToolApprovalRequested(_) => slot.generation += 1,
            _ => {}
        }
        // A request in place of a pending one is new, although the phase stays.
        let is_new =
            Some(phase) != slot.phase || matches!(event, ToolEvent::ToolApprovalRequested(_));
        // A new phase is new work: run what was requested or approved, ask for what is pending.
        if is_new
            && matches!(
                phase,
                Phase::Requested | Phase::Approved | Phase::AwaitingApproval
            )
        {
            slot.mark_fresh(at, &mut self.fresh);
        }
        if is_new || matches!(event, ToolEvent::ToolExecutionStarted { .. }) {
            // The stack has seen the input, so another one may arrive for the new phase or attempt.
            slot.answered = None;
        }
        if phase.is_settled() {
            self.unsettled -= 1;
        }
        slot.phase = Some(phase);
        Ok(phase)
    }

    /// Applies an event loaded from a store.
    ///
    /// # Errors
    ///
    /// [`TurnError`] if the log is not one that a turn could have written.
    pub fn replay(&mut self, event: &Event) -> Result<(), TurnError> {
        match event.body() {
            EventBody::Tool(invocation, event) => self.apply(invocation.id, event).map(drop),
            EventBody::Turn(_, TurnEvent::TurnInterrupted { .. }) => {
                self.stop();
                Ok(())
            }
            // The lost process may have asked the model already, so `Continue` is not returned
            // again.
            EventBody::Turn(_, TurnEvent::TurnSettled) => {
                self.continued = true;
                Ok(())
            }
            // Facts for readers of the log; they move no invocation.
            EventBody::Turn(_, TurnEvent::TurnOpened { .. } | TurnEvent::InputRejected { .. })
            | EventBody::Loop(..) => Ok(()),
        }
    }

    /// Stops the turn: nothing more is run or asked. Unsettled invocations still have to be
    /// settled.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// Makes an invocation runnable because its input has arrived. A second input gets `code`.
    ///
    /// A denial and an external result also run through the stack, so that every layer sees them.
    /// So does a call whose process was lost and that may run once more.
    pub fn mark_answered(&mut self, call: CallId, code: RejectCode) {
        if let Some(at) = self.slot_index(call) {
            self.slots[at].answered = Some(code);
            self.slots[at].mark_fresh(at, &mut self.fresh);
        }
    }

    /// Returns what to do next. Each piece of work is handed out once.
    #[expect(
        clippy::should_implement_trait,
        reason = "a turn is asked, not iterated: it may return `Wait` forever"
    )]
    pub fn next(&mut self) -> TurnStep {
        // Taken even if the turn is stopped: then nothing of it is handed out any more.
        let fresh = std::mem::take(&mut self.fresh);
        if !self.stopped && !fresh.is_empty() {
            let mut run = Vec::new();
            let mut ask = SmallVec::<[usize; 4]>::new();
            for at in fresh {
                let slot = &mut self.slots[at];
                slot.fresh = false;
                match slot.phase {
                    Some(Phase::Requested | Phase::Approved) => run.push(slot.invocation.id),
                    Some(Phase::AwaitingApproval | Phase::AwaitingResult | Phase::Running)
                        if slot.answered.is_some() =>
                    {
                        run.push(slot.invocation.id);
                    }
                    Some(Phase::AwaitingApproval) => ask.push(at),
                    Some(Phase::AwaitingResult | Phase::Running | Phase::Settled(_)) | None => {}
                }
            }
            if !run.is_empty() {
                // Running comes first: it needs no person. The requests are handed out by the next
                // call.
                ask.iter().for_each(|at| self.slots[*at].fresh = true);
                self.fresh = ask;
                return TurnStep::Run(run);
            }
            if !ask.is_empty() {
                return TurnStep::Ask(
                    ask.into_iter()
                        .map(|at| self.slots[at].invocation.id)
                        .collect(),
                );
            }
        }
        match (self.unsettled, self.continued) {
            (1.., _) => TurnStep::Wait,
            (0, false) => {
                self.continued = true;
                TurnStep::Continue
            }
            (0, true) => TurnStep::Done,
        }
    }

    /// Checks whether a result or decision for `call` of `turn` is expected.
    ///
    /// # Errors
    ///
    /// The [`RejectCode`] that says why it is rejected.
    pub fn check_input(
        &self,
        turn: TurnId,
        call: CallId,
        kind: InputKind,
    ) -> Result<&InvocationSlot, RejectCode> {
        if turn != self.info.turn {
            return Err(RejectCode::TurnMismatch);
        }
        let slot = self.slot(call).ok_or(RejectCode::UnknownInvocation)?;
        match (slot.phase, kind) {
            (Some(Phase::Settled(status)), _) => Err(RejectCode::after_settled(status)),
            // After the settled case: a late duplicate gets the more precise code.
            _ if self.continued || self.stopped => Err(RejectCode::TurnClosed),
            (Some(Phase::AwaitingApproval), InputKind::Decision)
            | (Some(Phase::AwaitingResult), InputKind::Result) => {
                // The first input may still descend the stack, where no event shows it: the phase
                // alone would accept a second one.
                slot.answered.map_or(Ok(slot), Err)
            }
            // Another approver was faster.
            (Some(Phase::Approved), InputKind::Decision) => Err(RejectCode::Duplicate),
            (_, InputKind::Decision | InputKind::Result) => Err(RejectCode::NoWaiter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ApprovalRequest, Arguments, Call, Digest, SessionId, SettledOutcome};
    use uuid::Uuid;

    fn id(n: u128) -> CallId {
        CallId::new(Uuid::from_u128(n))
    }

    fn turn_id() -> TurnId {
        TurnId::new(Uuid::from_u128(100))
    }

    fn turn(size: u128) -> Turn {
        let info = Arc::new(TurnInfo::new(
            SessionId::new(Uuid::from_u128(99)),
            turn_id(),
        ));
        let invocation = |n| {
            let call_id = format!("c{n}").into();
            let tool = "t".into();
            Arc::new(Invocation {
                id: id(n),
                call_id,
                tool,
                emit_order: n as u32,
                turn: info.clone(),
            })
        };
        let mut turn = Turn::new(info.clone(), (1..=size).map(invocation));
        let digest = Digest::of_bytes(b"");
        for n in 1..=size {
            let requested = ToolEvent::ToolRequested {
                arguments: None,
                arguments_digest: digest,
                arguments_bytes: 0,
                executor: None,
            };
            turn.apply(id(n), &requested).expect("legal");
        }
        turn
    }

    fn started(attempt: u32, external: bool) -> ToolEvent {
        ToolEvent::ToolExecutionStarted {
            attempt,
            executor: None,
            external,
            arguments_digest: Digest::of_bytes(b""),
            arguments: None,
        }
    }

    fn settled(status: Status, ran: bool) -> ToolEvent {
        ToolEvent::from_settled(&SettledOutcome::new(status), ran, None, None)
    }

    fn asked(generation: u32) -> ToolEvent {
        let mut request = ApprovalRequest::for_call(&Call::detached("t", Arguments::empty()));
        request.generation = generation;
        ToolEvent::ToolApprovalRequested(Box::new(request))
    }

    fn approved() -> ToolEvent {
        ToolEvent::ToolApproved {
            approver: "ann".into(),
            established: Default::default(),
            claimed_as: None,
            reason: None,
            edited: false,
            unseen: false,
            with: Vec::new(),
        }
    }

    #[test]
    fn continues_exactly_once_when_all_are_settled() {
        let mut turn = turn(2);
        assert_eq!(turn.next(), TurnStep::Run(vec![id(1), id(2)]));
        assert_eq!(turn.next(), TurnStep::Wait);
        turn.apply(id(2), &started(1, false)).expect("legal");
        turn.apply(id(2), &settled(Status::Ok, true))
            .expect("legal");
        assert_eq!(turn.next(), TurnStep::Wait);
        turn.apply(id(1), &settled(Status::Blocked, false))
            .expect("legal");
        assert_eq!(turn.next(), TurnStep::Continue);
        assert_eq!(turn.next(), TurnStep::Done);
    }

    #[test]
    fn an_empty_turn_continues_at_once() {
        let mut turn = turn(0);
        assert_eq!(
            (turn.next(), turn.next()),
            (TurnStep::Continue, TurnStep::Done)
        );
    }

    #[test]
    fn a_pending_approval_does_not_delay_sibling_calls() {
        let mut turn = turn(3);
        turn.next();
        turn.apply(id(2), &asked(0)).expect("legal");
        assert_eq!(turn.next(), TurnStep::Ask(vec![id(2)]));
        for n in [1, 3] {
            turn.apply(id(n), &settled(Status::Ok, false))
                .expect("legal");
        }
        assert_eq!(turn.next(), TurnStep::Wait);
        turn.apply(id(2), &approved()).expect("legal");
        assert_eq!(turn.next(), TurnStep::Run(vec![id(2)]));
    }

    #[test]
    fn a_call_that_is_answered_before_the_next_step_runs_once() {
        let mut turn = turn(1);
        turn.apply(id(1), &asked(0)).expect("legal");
        turn.mark_answered(id(1), RejectCode::AlreadyDenied);
        assert_eq!(turn.next(), TurnStep::Run(vec![id(1)]));
        assert_eq!(turn.next(), TurnStep::Wait);
    }

    #[test]
    fn a_rejected_input_gets_the_code_that_says_why() {
        use InputKind::{Decision, Result};
        let mut turn = turn(4);
        let post = |turn: &Turn, n, kind| turn.check_input(turn_id(), id(n), kind).map(drop);
        turn.next();
        assert_eq!(
            turn.check_input(TurnId::new(Uuid::nil()), id(1), Result)
                .map(drop),
            Err(RejectCode::TurnMismatch)
        );
        assert_eq!(post(&turn, 9, Result), Err(RejectCode::UnknownInvocation));
        assert_eq!(post(&turn, 1, Result), Err(RejectCode::NoWaiter));
        assert_eq!(post(&turn, 1, Decision), Err(RejectCode::NoWaiter));
        turn.apply(id(1), &started(1, true)).expect("legal");
        assert_eq!(post(&turn, 1, Result), Ok(()));
        turn.mark_answered(id(1), RejectCode::Duplicate);
        assert_eq!(post(&turn, 1, Result), Err(RejectCode::Duplicate));
        turn.apply(id(2), &asked(0)).expect("legal");
        assert_eq!(post(&turn, 2, Decision), Ok(()));
        turn.mark_answered(id(2), RejectCode::AlreadyDenied);
        assert_eq!(post(&turn, 2, Decision), Err(RejectCode::AlreadyDenied));
        turn.apply(id(2), &settled(Status::Denied, false))
            .expect("legal");
        assert_eq!(post(&turn, 2, Result), Err(RejectCode::AlreadyDenied));
        turn.apply(id(3), &settled(Status::Ok, false))
            .expect("legal");
        assert_eq!(post(&turn, 3, Result), Err(RejectCode::Duplicate));
        turn.apply(id(4), &started(1, true)).expect("legal");
        turn.stop();
        assert_eq!(post(&turn, 4, Result), Err(RejectCode::TurnClosed));
    }

    #[test]
    fn attempts_and_generations_count_up_one_by_one() {
        let mut turn = turn(1);
        assert!(turn.apply(id(1), &started(2, false)).is_err());
        turn.apply(id(1), &started(1, false)).expect("legal");
        assert!(turn.apply(id(1), &started(1, false)).is_err());
        turn.apply(id(1), &asked(0))
            .expect("a running tool may ask");
        assert!(
            turn.apply(id(1), &settled(Status::Denied, false)).is_err(),
            "what has started is not denied"
        );
        turn.apply(id(1), &approved()).expect("legal");
        assert!(
            turn.apply(id(1), &asked(0)).is_err(),
            "the same generation is not asked again"
        );
        turn.apply(id(1), &asked(1)).expect("legal");
        assert_eq!(
            turn.slot(id(1))
                .map(|slot| (slot.generation(), slot.attempts())),
            Some((2, 1))
        );
    }

    #[test]
    fn an_invocation_is_requested_once_and_first() {
        let mut turn = turn(1);
        let digest = Digest::of_bytes(b"");
        let again = ToolEvent::ToolRequested {
            arguments: None,
            arguments_digest: digest,
            arguments_bytes: 0,
            executor: None,
        };
        assert!(turn.apply(id(1), &again).is_err());
        assert_eq!(
            turn.apply(id(5), &again),
            Err(TurnError::UnknownInvocation(id(5)))
        );
        let mut fresh = Turn::new(turn.info.clone(), [turn.slots[0].invocation.clone()]);
        assert!(fresh.apply(id(1), &started(1, false)).is_err());
    }

    #[test]
    fn a_stopped_turn_hands_out_nothing_and_still_settles() {
        let mut turn = turn(2);
        turn.stop();
        assert_eq!(turn.next(), TurnStep::Wait);
        for n in [1, 2] {
            turn.apply(id(n), &settled(Status::Cancelled, false))
                .expect("legal");
        }
        assert_eq!(turn.next(), TurnStep::Continue);
    }
}
