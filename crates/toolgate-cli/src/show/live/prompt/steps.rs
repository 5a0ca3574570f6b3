//! What each key means in each step of answering.

use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use toolgate::approval::ApprovalRequest;

use super::{ApprovalPrompt, PromptAction, PromptStep, request_key};
use crate::show::{
    entitlement::Entitlement,
    keys::{KeyAction, KeyBinding, KeyContext, find_action, offered_answers},
    rule_proposal::RuleAnswer,
};

impl ApprovalPrompt {
    /// Returns the action of a key in the current step.
    pub(crate) fn handle_key(&mut self, pressed: KeyEvent) -> PromptAction {
        let Some(request) = self.current().cloned() else {
            return PromptAction::Nothing;
        };
        // A shortcut that is meant for the terminal must not count as an answer: Alt-Y is not `y`.
        if pressed
            .modifiers
            .intersects(KeyModifiers::CONTROL | KeyModifiers::ALT)
        {
            return PromptAction::Nothing;
        }
        match &mut self.mode {
            PromptStep::Choosing => self.choose_answer(pressed.code, request),
            PromptStep::Reason(_) => self.write_reason(pressed.code, request),
            PromptStep::Edited(arguments) => match pressed.code {
                KeyCode::Char('y') => {
                    let arguments = arguments.clone();
                    let act = PromptAction::ApproveEdited(request.clone(), arguments);
                    self.mark_answered(act, &[request])
                }
                KeyCode::Char('e') => PromptAction::Edit(request),
                KeyCode::Char('n') | KeyCode::Esc => self.back_to_choosing(),
                _ => PromptAction::Nothing,
            },
            PromptStep::Rule(proposal) => match proposal.handle_key(pressed) {
                Some(RuleAnswer::Save) => {
                    let act = PromptAction::Always(request.clone(), proposal.clone());
                    self.mark_answered(act, &[request])
                }
                Some(RuleAnswer::Changed) => PromptAction::Preview(proposal.clone()),
                Some(RuleAnswer::Back) => self.back_to_choosing(),
                None => PromptAction::Nothing,
            },
            PromptStep::All(requests) => match pressed.code {
                KeyCode::Char('y') => {
                    let requests = std::mem::take(requests);
                    let requests = self.still_open(requests);
                    self.mark_answered(PromptAction::ApproveAll(requests.clone()), &requests)
                }
                KeyCode::Char('n') | KeyCode::Esc => self.back_to_choosing(),
                _ => PromptAction::Nothing,
            },
        }
    }

    fn write_reason(&mut self, code: KeyCode, request: Arc<ApprovalRequest>) -> PromptAction {
        let PromptStep::Reason(reason) = &mut self.mode else {
            return PromptAction::Nothing;
        };
        match code {
            KeyCode::Enter => {
                let reason = Some(reason.trim().to_owned()).filter(|reason| !reason.is_empty());
                let act = PromptAction::Deny(request.clone(), reason);
                return self.mark_answered(act, &[request]);
            }
            KeyCode::Esc => return self.back_to_choosing(),
            KeyCode::Backspace => {
                reason.pop();
            }
            KeyCode::Char(c) => reason.push(c),
            _ => {}
        }
        PromptAction::Nothing
    }

    fn choose_answer(&mut self, code: KeyCode, request: Arc<ApprovalRequest>) -> PromptAction {
        let pressed = KeyEvent::new(code, KeyModifiers::NONE);
        let Some(action) = find_action(KeyContext::Approvals, pressed) else {
            return PromptAction::Nothing;
        };
        // Not offered, so it does nothing: the lines above the keys say why.
        let is_move = matches!(action, KeyAction::Up | KeyAction::Down);
        let mut offered = self.offered_keys(&request);
        if !is_move && !offered.any(|binding| binding.action == action) {
            return PromptAction::Nothing;
        }
        let count = self.questions.len();
        match (action, code) {
            (KeyAction::Approve, _) => {
                self.mark_answered(PromptAction::Approve(request.clone()), &[request])
            }
            (KeyAction::ApproveUnseen, _) => {
                self.mark_answered(PromptAction::ApproveUnseen(request.clone()), &[request])
            }
            (KeyAction::Open, _) => PromptAction::More(request),
            (KeyAction::Deny, _) => {
                self.mode = PromptStep::Reason(String::new());
                PromptAction::Nothing
            }
            (KeyAction::Edit, _) => PromptAction::Edit(request),
            (KeyAction::Always, _) => PromptAction::Propose(request),
            (KeyAction::ApproveAll, _) => PromptAction::ShowAll(self.approvable()),
            (KeyAction::Explain, _) => PromptAction::Explain(request),
            (KeyAction::Postpone, _) => {
                self.skipped.insert(request_key(&request));
                self.drop_current();
                self.show_current()
            }
            (KeyAction::Choose, KeyCode::Char(digit @ '1'..='9')) => {
                self.go_to(digit as usize - '1' as usize)
            }
            (KeyAction::Down, _) => self.go_to((self.at + 1) % count),
            (KeyAction::Up, _) => self.go_to((self.at + count - 1) % count),
            _ => PromptAction::Nothing,
        }
    }

    /// Returns the keys that answer a request, without those that would be rejected.
    pub(super) fn offered_keys(
        &self,
        request: &ApprovalRequest,
    ) -> impl Iterator<Item = &'static KeyBinding> + use<> {
        let is_complete = self.is_complete(request);
        offered_answers(request, &self.me, is_complete, self.questions.len())
    }

    /// Returns the requests that the user may approve, in the order of the list.
    fn approvable(&self) -> Vec<Arc<ApprovalRequest>> {
        let may =
            |request: &&Arc<ApprovalRequest>| Entitlement::of(request, &self.me).can_approve();
        self.questions.iter().filter(may).cloned().collect()
    }

    /// Returns those of the requests that are still pending.
    fn still_open(&self, mut requests: Vec<Arc<ApprovalRequest>>) -> Vec<Arc<ApprovalRequest>> {
        let open: Vec<_> = self
            .questions
            .iter()
            .map(|open| request_key(open))
            .collect();
        requests.retain(|request| open.contains(&request_key(request)));
        requests
    }

    fn go_to(&mut self, at: usize) -> PromptAction {
        if at >= self.questions.len() || at == self.at {
            return PromptAction::Nothing;
        }
        self.at = at;
        self.show_current()
    }

    /// Marks requests as answered and returns the action.
    fn mark_answered(
        &mut self,
        act: PromptAction,
        requests: &[Arc<ApprovalRequest>],
    ) -> PromptAction {
        // The log shows the calls as pending until the decisions are recorded; without this the next
        // sync would ask for them again.
        self.answered
            .extend(requests.iter().map(|request| request_key(request)));
        self.mode = PromptStep::Choosing;
        act
    }

    fn drop_current(&mut self) {
        self.questions.remove(self.at);
        self.at = self.at.min(self.questions.len().saturating_sub(1));
        self.mode = PromptStep::Choosing;
    }

    fn show_current(&self) -> PromptAction {
        self.current()
            .cloned()
            .map_or(PromptAction::Nothing, PromptAction::Show)
    }
}
