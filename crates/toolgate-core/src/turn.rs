//! Settles each invocation of a turn once and says what to do next. Performs nothing.

use std::sync::Arc;

use hashbrown::HashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    CallId, Event, IllegalEvent, Invocation, Phase, PostKind, Status, ToolEvent, TurnEvent, TurnId,
    TurnInfo, event::EventBody,
};

/// One model message and its invocations, in the order the model asked.
///
/// It is the fold of its events: applying the stored events to an empty turn gives the same state in
/// another process. [`Turn::next`] answers what to do, [`Turn::post`] whether something from outside is
/// welcome.
#[derive(Debug, Clone)]
pub struct Turn {
    info: Arc<TurnInfo>,
    slots: Vec<Slot>,
    /// Where invocations are; only kept for more than [`FEW`].
    index: HashMap<CallId, usize>,
    /// Slots that became runnable or askable since `next` last looked; the phase decides when it does.
    fresh: Vec<usize>,
    unsettled: usize,
    stopped: bool,
    continued: bool,
}

/// Up to so many invocations, looking at each is quicker than an index.
const FEW: usize = 8;

/// One invocation of a turn.
#[derive(Debug, Clone)]
pub struct Slot {
    invocation: Arc<Invocation>,
    phase: Option<Phase>,
    generation: u32,
    attempts: u32,
    /// Something came for it that the stack has not seen yet, and what a second one is told.
    answered: Option<PostCode>,
    /// It is in `fresh`: nothing is handed out twice for one reason.
    fresh: bool,
}

impl Slot {
    fn mark_fresh(&mut self, at: usize, fresh: &mut Vec<usize>) {
        if !std::mem::replace(&mut self.fresh, true) {
            fresh.push(at);
        }
    }

    /// The part that never changes.
    pub fn invocation(&self) -> &Arc<Invocation> {
        &self.invocation
    }

    /// Where it stands; nowhere before it was requested.
    pub fn phase(&self) -> Option<Phase> {
        self.phase
    }

    /// How often it has been suspended.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// How often its executor was started.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// How it ended, if it did.
    pub fn status(&self) -> Option<Status> {
        match self.phase {
            Some(Phase::Settled(status)) => Some(status),
            _ => None,
        }
    }
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Send these calls down the stack.
    Run(Vec<CallId>),
    /// Put these questions to somebody.
    Ask(Vec<CallId>),
    /// Nothing, until something comes back.
    Wait,
    /// Call the model: everything is settled. Said once.
    Continue,
    /// Nothing ever again.
    Done,
}

/// Why something posted from outside changed nothing.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, thiserror::Error,
)]
#[serde(rename_all = "snake_case")]
pub enum PostCode {
    /// The invocation has an outcome; the first one stands.
    #[error("the invocation is settled already")]
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
    /// The invocation does not wait for this.
    #[error("nobody waits for this")]
    NoWaiter,
    /// The token was not signed by us, or was changed.
    #[error("the token is not valid")]
    Forged,
    /// The key that the token was signed with does not count any more.
    #[error("the token was signed with a key that is not used any more")]
    KeyGone,
    /// The token is about another question.
    #[error("the token is about another question")]
    TokenMismatch,
    /// The token was used before.
    #[error("the token was used before")]
    Replayed,
    /// The question lapsed before it was answered.
    #[error("the question has expired")]
    Expired,
    /// The answer is none of the three decisions.
    #[error("this is not a decision")]
    NotADecision,
    /// Whoever asked for the call cannot approve it.
    #[error("whoever asked for the call cannot approve it")]
    SelfApproval,
    /// Somebody decided who may not decide on this.
    #[error("whoever decided may not decide on this")]
    NotEntitled,
}

impl PostCode {
    /// Every code.
    pub const ALL: [Self; 14] = [
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
    ];

    /// The code for something that comes after the invocation settled with `status`.
    pub const fn after(status: Status) -> Self {
        if status.is_refusal() {
            Self::AlreadyDenied
        } else {
            Self::Duplicate
        }
    }
}

/// Why an event cannot be applied to a turn.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TurnError {
    /// The event is about no invocation of this turn.
    #[error("invocation {0} is not part of this turn")]
    Foreign(CallId),
    /// The event cannot happen in this phase.
    #[error(transparent)]
    Illegal(#[from] IllegalEvent),
    /// An invocation is requested once, before anything else happens to it.
    #[error("{event} came {problem}")]
    OutOfOrder {
        /// The word of the event.
        event: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
}

impl Turn {
    /// A turn of these invocations, none of which has been requested yet.
    pub fn new(
        info: Arc<TurnInfo>,
        invocations: impl IntoIterator<Item = Arc<Invocation>>,
    ) -> Self {
        let slot = |invocation| Slot {
            invocation,
            phase: None,
            generation: 0,
            attempts: 0,
            answered: None,
            fresh: false,
        };
        let slots: Vec<Slot> = invocations.into_iter().map(slot).collect();
        let indexed: &[Slot] = if slots.len() > FEW { &slots } else { &[] };
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
            fresh: Vec::new(),
            unsettled,
            stopped: false,
            continued: false,
        }
    }

    /// Which turn it is.
    pub fn info(&self) -> &Arc<TurnInfo> {
        &self.info
    }

    /// The invocations in the order the model asked.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// One invocation.
    pub fn slot(&self, call: CallId) -> Option<&Slot> {
        self.place(call).map(|at| &self.slots[at])
    }

    fn place(&self, call: CallId) -> Option<usize> {
        if self.slots.len() > FEW {
            return self.index.get(&call).copied();
        }
        self.slots
            .iter()
            .position(|slot| slot.invocation.id == call)
    }

    /// Whether every invocation is settled.
    pub fn is_settled(&self) -> bool {
        self.unsettled == 0
    }

    /// Whether it was said that everything is settled.
    pub fn is_continued(&self) -> bool {
        self.continued
    }

    /// Whether somebody stopped it.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Moves one invocation along, if the event may happen to it now.
    pub fn apply(&mut self, call: CallId, event: &ToolEvent) -> Result<Phase, TurnError> {
        let at = self.place(call).ok_or(TurnError::Foreign(call))?;
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
        match event {
            ToolEvent::ToolExecutionStarted { attempt, .. } if *attempt != slot.attempts + 1 => {
                return Err(out_of_order("for an attempt that is not the next one"));
            }
            ToolEvent::ToolApprovalRequested(request) if request.generation != slot.generation => {
                return Err(out_of_order("for another generation of the call"));
            }
            ToolEvent::ToolDenied { .. } if slot.attempts > 0 => {
                return Err(out_of_order("for an invocation that has started"));
            }
            ToolEvent::ToolExecutionStarted { .. } => slot.attempts += 1,
            ToolEvent::ToolApprovalRequested(_) => slot.generation += 1,
            _ => {}
        }
        // A new phase is a new thing to do: run what was requested or approved, ask what waits.
        if Some(phase) != slot.phase
            && matches!(
                phase,
                Phase::Requested | Phase::Approved | Phase::AwaitingApproval
            )
        {
            slot.mark_fresh(at, &mut self.fresh);
        }
        if Some(phase) != slot.phase || matches!(event, ToolEvent::ToolExecutionStarted { .. }) {
            slot.answered = None;
        }
        if phase.is_settled() {
            self.unsettled -= 1;
        }
        slot.phase = Some(phase);
        Ok(phase)
    }

    /// Applies an event read from a store.
    pub fn replay(&mut self, event: &Event) -> Result<(), TurnError> {
        match event.body() {
            EventBody::Tool(invocation, event) => self.apply(invocation.id, event).map(drop),
            EventBody::Turn(_, TurnEvent::TurnInterrupted { .. }) => {
                self.stop();
                Ok(())
            }
            EventBody::Turn(_, TurnEvent::TurnSettled) => {
                self.continued = true;
                Ok(())
            }
            EventBody::Turn(_, TurnEvent::TurnOpened { .. } | TurnEvent::PostRefused { .. })
            | EventBody::Loop(..) => Ok(()),
        }
    }

    /// Hands out nothing more to run or ask. What is unsettled still has to be settled.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// Makes an invocation runnable because what it waits for has come. A second post gets `code`.
    ///
    /// A denial and a result from outside go down the stack too, so that every layer sees them, and so does a
    /// call that was lost with its process and may be run once more.
    pub fn answer(&mut self, call: CallId, code: PostCode) {
        if let Some(at) = self.place(call) {
            self.slots[at].answered = Some(code);
            self.slots[at].mark_fresh(at, &mut self.fresh);
        }
    }

    /// Says what to do next. Each thing is said once.
    #[expect(
        clippy::should_implement_trait,
        reason = "a turn is asked, not iterated: it may say `Wait` for ever"
    )]
    pub fn next(&mut self) -> Step {
        let fresh = std::mem::take(&mut self.fresh);
        if !self.stopped && !fresh.is_empty() {
            let (mut run, mut ask) = (Vec::new(), Vec::new());
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
                ask.iter().for_each(|at| self.slots[*at].fresh = true);
                self.fresh = ask;
                return Step::Run(run);
            }
            if !ask.is_empty() {
                return Step::Ask(
                    ask.into_iter()
                        .map(|at| self.slots[at].invocation.id)
                        .collect(),
                );
            }
        }
        match (self.unsettled, self.continued) {
            (1.., _) => Step::Wait,
            (0, false) => {
                self.continued = true;
                Step::Continue
            }
            (0, true) => Step::Done,
        }
    }

    /// Whether a result or decision for `call` of `turn` is welcome.
    pub fn post(&self, turn: TurnId, call: CallId, kind: PostKind) -> Result<&Slot, PostCode> {
        if turn != self.info.turn {
            return Err(PostCode::TurnMismatch);
        }
        let slot = self.slot(call).ok_or(PostCode::UnknownInvocation)?;
        match (slot.phase, kind) {
            (Some(Phase::Settled(status)), _) => Err(PostCode::after(status)),
            _ if self.continued || self.stopped => Err(PostCode::TurnClosed),
            (Some(Phase::AwaitingApproval), PostKind::Decision)
            | (Some(Phase::AwaitingResult), PostKind::Result) => {
                slot.answered.map_or(Ok(slot), Err)
            }
            (Some(Phase::Approved), PostKind::Decision) => Err(PostCode::Duplicate),
            (_, PostKind::Decision | PostKind::Result) => Err(PostCode::NoWaiter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ApprovalRequest, Arguments, Call, Digest, SessionId, Settled};
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
            let (call_id, tool) = (format!("c{n}").into(), "t".into());
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
        }
    }

    fn settled(status: Status, ran: bool) -> ToolEvent {
        ToolEvent::settling(&Settled::new(status), ran, None, None)
    }

    fn asked(generation: u32) -> ToolEvent {
        let mut request = ApprovalRequest::about(&Call::detached("t", Arguments::empty()));
        request.generation = generation;
        ToolEvent::ToolApprovalRequested(Box::new(request))
    }

    fn approved() -> ToolEvent {
        ToolEvent::ToolApproved {
            approver: "ann".into(),
            reason: None,
            edited: false,
        }
    }

    #[test]
    fn continues_exactly_once_when_all_are_settled() {
        let mut turn = turn(2);
        assert_eq!(turn.next(), Step::Run(vec![id(1), id(2)]));
        assert_eq!(turn.next(), Step::Wait);
        turn.apply(id(2), &started(1, false)).expect("legal");
        turn.apply(id(2), &settled(Status::Ok, true))
            .expect("legal");
        assert_eq!(turn.next(), Step::Wait);
        turn.apply(id(1), &settled(Status::Blocked, false))
            .expect("legal");
        assert_eq!(turn.next(), Step::Continue);
        assert_eq!(turn.next(), Step::Done);
    }

    #[test]
    fn an_empty_turn_continues_at_once() {
        let mut turn = turn(0);
        assert_eq!((turn.next(), turn.next()), (Step::Continue, Step::Done));
    }

    #[test]
    fn one_gated_call_does_not_hold_up_its_siblings() {
        let mut turn = turn(3);
        turn.next();
        turn.apply(id(2), &asked(0)).expect("legal");
        assert_eq!(turn.next(), Step::Ask(vec![id(2)]));
        for n in [1, 3] {
            turn.apply(id(n), &settled(Status::Ok, false))
                .expect("legal");
        }
        assert_eq!(turn.next(), Step::Wait);
        turn.apply(id(2), &approved()).expect("legal");
        assert_eq!(turn.next(), Step::Run(vec![id(2)]));
    }

    #[test]
    fn a_call_that_is_asked_about_and_answered_before_anybody_looks_runs_once() {
        let mut turn = turn(1);
        turn.apply(id(1), &asked(0)).expect("legal");
        turn.answer(id(1), PostCode::AlreadyDenied);
        assert_eq!(turn.next(), Step::Run(vec![id(1)]));
        assert_eq!(turn.next(), Step::Wait);
    }

    #[test]
    fn posts_get_the_code_that_says_why_they_changed_nothing() {
        use PostKind::{Decision, Result};
        let mut turn = turn(4);
        let post = |turn: &Turn, n, kind| turn.post(turn_id(), id(n), kind).map(drop);
        turn.next();
        assert_eq!(
            turn.post(TurnId::new(Uuid::nil()), id(1), Result).map(drop),
            Err(PostCode::TurnMismatch)
        );
        assert_eq!(post(&turn, 9, Result), Err(PostCode::UnknownInvocation));
        assert_eq!(post(&turn, 1, Result), Err(PostCode::NoWaiter));
        assert_eq!(post(&turn, 1, Decision), Err(PostCode::NoWaiter));
        turn.apply(id(1), &started(1, true)).expect("legal");
        assert_eq!(post(&turn, 1, Result), Ok(()));
        turn.answer(id(1), PostCode::Duplicate);
        assert_eq!(post(&turn, 1, Result), Err(PostCode::Duplicate));
        turn.apply(id(2), &asked(0)).expect("legal");
        assert_eq!(post(&turn, 2, Decision), Ok(()));
        turn.answer(id(2), PostCode::AlreadyDenied);
        assert_eq!(post(&turn, 2, Decision), Err(PostCode::AlreadyDenied));
        turn.apply(id(2), &settled(Status::Denied, false))
            .expect("legal");
        assert_eq!(post(&turn, 2, Result), Err(PostCode::AlreadyDenied));
        turn.apply(id(3), &settled(Status::Ok, false))
            .expect("legal");
        assert_eq!(post(&turn, 3, Result), Err(PostCode::Duplicate));
        turn.apply(id(4), &started(1, true)).expect("legal");
        turn.stop();
        assert_eq!(post(&turn, 4, Result), Err(PostCode::TurnClosed));
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
        assert_eq!(turn.apply(id(5), &again), Err(TurnError::Foreign(id(5))));
        let mut fresh = Turn::new(turn.info.clone(), [turn.slots[0].invocation.clone()]);
        assert!(fresh.apply(id(1), &started(1, false)).is_err());
    }

    #[test]
    fn a_stopped_turn_hands_out_nothing_and_still_settles() {
        let mut turn = turn(2);
        turn.stop();
        assert_eq!(turn.next(), Step::Wait);
        for n in [1, 2] {
            turn.apply(id(n), &settled(Status::Cancelled, false))
                .expect("legal");
        }
        assert_eq!(turn.next(), Step::Continue);
    }
}
