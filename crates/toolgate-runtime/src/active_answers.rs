//! Questions of a turn and their answers: judged, taken up, lapsed.

use toolgate_core::{
    Admitted, Answer, ApprovalRequest, CallId, Decision, Phase, PostCode, PostKind, Principal,
    Question, Timestamp, ToolEvent, Verdict,
};

use super::{Active, Item, NotTaken, State, Work};
use crate::{
    answering,
    inbox::Urgency,
    journal::{Along, Draft, Durable},
};

impl Active {
    /// When the first of the open questions lapses.
    pub(crate) fn expires_next(&self) -> Option<Timestamp> {
        self.state().expires_next
    }

    /// Sends calls whose question has lapsed down the stack again, where that is said.
    pub(crate) fn expire(&self, now: Timestamp) {
        let state = &mut *self.state();
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
            let call = state.turn.slots()[at].invocation().id;
            state.turn.answer(call, PostCode::Expired);
        }
    }

    /// The question that is open, if `question` names it.
    pub(crate) fn open_question(&self, question: &Question) -> Option<ApprovalRequest> {
        self.state()
            .open_question(self.info.turn, question)
            .ok()
            .map(|(_, request)| request)
    }

    /// Takes a decision that others agree with, or says why not.
    pub(crate) fn judge(
        &self,
        question: Question,
        decision: Decision,
        with: &[Principal],
    ) -> Result<Answer, NotTaken> {
        let call = question.approval_id.call();
        if decision.by.as_str().trim().is_empty() {
            return Err(NotTaken::Nameless);
        }
        let state = self.state();
        if state.retired {
            return Err(NotTaken::Retired);
        }
        let request = match state.open_question(self.info.turn, &question) {
            Ok((_, request)) => request,
            Err(code) => {
                drop(state);
                return Err(self.recorded(call, PostKind::Decision, code));
            }
        };
        drop(state);
        let now = self.shared.clock.now();
        match answering::agreed(&request, &decision, with, now) {
            Ok(Admitted::Decided { .. }) => Ok(answering::answer(
                &request,
                decision,
                with.to_vec(),
                now,
                self.shared.keyring.as_ref(),
            )),
            // Whoever counts the votes comes back when there are enough.
            Ok(Admitted::Counted { .. }) => {
                Err(self.recorded(call, PostKind::Decision, PostCode::NoWaiter))
            }
            Err(code) => Err(self.recorded(call, PostKind::Decision, code)),
        }
    }

    /// Takes up an answer that is in the store, perhaps as a post with this number, or says why it changes nothing.
    pub(crate) fn take_answer(
        &self,
        call: CallId,
        answer: &Answer,
        number: Option<u64>,
    ) -> (Durable, Option<PostCode>) {
        let mut state = self.state();
        let along = Along {
            taken_posts: number,
            ..Along::default()
        };
        let welcome = state.turn.post(self.info.turn, call, PostKind::Decision);
        let at = state
            .turn
            .slot(call)
            .map(|slot| slot.invocation().emit_order as usize);
        let known = at.is_some_and(|at| state.work[at].resumed.answers.contains(answer));
        let open = at
            .and_then(|at| state.work[at].pending.as_ref())
            .map(|request| request.generation);
        let code = match welcome {
            // It was in the store when the turn was taken up.
            _ if known => None,
            Ok(_) if open == Some(answer.generation) => {
                let durable = self.answered(
                    &mut state,
                    at.expect("it has a place"),
                    answer.clone(),
                    along,
                );
                drop(state);
                self.inbox.push(Urgency::Settlement, Item::Posted);
                return (durable, None);
            }
            Ok(_) => Some(PostCode::NoWaiter),
            Err(code) => Some(code),
        };
        let refused = code.map(|code| self.refusal(call, PostKind::Decision, code));
        (self.shared.journal.write_along(refused, along), code)
    }

    /// Takes up approvals that were in the store when the turn was read. Denials go down the stack as they are.
    pub(crate) fn take_stored_approvals(&self) -> Vec<Durable> {
        let mut state = self.state();
        let waiting = |(slot, work): (&toolgate_core::Slot, &Work)| {
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
            let state: &mut State = &mut state;
            let answer = state.work[at]
                .resumed
                .answers
                .pop()
                .expect("it was just seen");
            self.answered(state, at, answer, Along::default())
        };
        found.into_iter().map(take).collect()
    }

    /// Moves a call on whose question is answered.
    fn answered(&self, state: &mut State, at: usize, answer: Answer, along: Along) -> Durable {
        let State { turn, work, .. } = state;
        let call = turn.slots()[at].invocation().id;
        let approved = ToolEvent::ToolApproved {
            approver: answer.decision.by.clone(),
            reason: None,
            edited: matches!(answer.decision.verdict, Verdict::ApproveWithEdits { .. }),
        };
        let drafts = match &answer.decision.verdict {
            // Goes down the stack like everything else, so that every layer sees the denial.
            Verdict::Deny { .. } => {
                turn.answer(call, PostCode::AlreadyDenied);
                None
            }
            Verdict::Approve | Verdict::ApproveWithEdits { .. } => {
                turn.apply(call, &approved)
                    .expect("what waits for approval can be approved");
                Some(Draft::Tool(turn.slots()[at].invocation().clone(), approved))
            }
        };
        work[at].pending = None;
        work[at].resumed.answers.push(answer);
        self.shared.journal.write_along(drafts, along)
    }
}
