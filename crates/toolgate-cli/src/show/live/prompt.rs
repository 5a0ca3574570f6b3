//! The approval prompt: which request is shown, what each key means. Pure; the display carries out
//! the result.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use anstyle::{AnsiColor, Style};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use toolgate::{
    Arguments,
    approval::{ApprovalRequest, ApprovalRequestRef, ApproverIdentity},
    layers::RuleDraft,
    value::CallId,
};

use crate::{
    env::style::{DIM, WARN},
    show::{
        entitlement::Entitlement,
        render::StyledLine,
        rule_proposal::{RuleAnswer, RuleProposal},
        screen::SessionScreen,
    },
};

const KEY: Style = AnsiColor::Yellow.on_default().bold();

/// The pending approval requests, and the state of answering one.
#[derive(Debug)]
pub(crate) struct ApprovalPrompt {
    /// The user, who decides.
    me: ApproverIdentity,
    questions: Vec<Arc<ApprovalRequest>>,
    /// Each of them in one short line.
    summaries: HashMap<(CallId, u32), String>,
    at: usize,
    mode: PromptStep,
    /// Requests that the user postponed, with their generation.
    skipped: HashSet<(CallId, u32)>,
    /// Requests that were answered, until the log shows the decision.
    answered: HashSet<(CallId, u32)>,
    /// The number of rows that were printed of each request.
    printed: HashMap<(CallId, u32), usize>,
    /// Requests that were printed in full.
    complete: HashSet<(CallId, u32)>,
}

/// The step of answering.
#[derive(Debug, Default)]
enum PromptStep {
    #[default]
    Choosing,
    /// The user writes the reason of a denial.
    Reason(String),
    /// The user edited the arguments and has to confirm them.
    Edited(Arguments),
    /// The user has to confirm a rule.
    Rule(Box<RuleProposal>),
}

/// An action for the display to carry out.
#[derive(Debug, PartialEq)]
pub(crate) enum PromptAction {
    /// Show a request in full.
    Show(Arc<ApprovalRequest>),
    /// Show the next page of a request.
    More(Arc<ApprovalRequest>),
    /// Approve.
    Approve(Arc<ApprovalRequest>),
    /// Approve, although the request was not shown in full.
    ApproveUnseen(Arc<ApprovalRequest>),
    /// Approve with other arguments.
    ApproveEdited(Arc<ApprovalRequest>, Arguments),
    /// Deny, with an optional reason.
    Deny(Arc<ApprovalRequest>, Option<String>),
    /// Open the arguments in an editor.
    Edit(Arc<ApprovalRequest>),
    /// Explain what each layer decides about the call.
    Explain(Arc<ApprovalRequest>),
    /// Draft a rule for the call.
    Propose(Arc<ApprovalRequest>),
    /// Show what a rule would have covered.
    Preview(Box<RuleProposal>),
    /// Store a rule and approve.
    Always(Arc<ApprovalRequest>, Box<RuleProposal>),
    /// Do nothing.
    Nothing,
}

impl ApprovalPrompt {
    /// Creates a prompt for the user at the terminal.
    pub(crate) fn new(me: ApproverIdentity) -> Self {
        Self {
            me,
            questions: Vec::new(),
            at: 0,
            mode: PromptStep::Choosing,
            skipped: HashSet::new(),
            answered: HashSet::new(),
            summaries: HashMap::new(),
            printed: HashMap::new(),
            complete: HashSet::new(),
        }
    }

    /// Loads the pending requests of `screen`. Returns the request to show, if another one is
    /// current now.
    pub(crate) fn sync_requests(&mut self, screen: &SessionScreen) -> Option<Arc<ApprovalRequest>> {
        let before = self.current().map(|request| request_key(request));
        // Only what is loaded: an event has a redacted copy, which is not decided on.
        let waiting = screen
            .pending_calls()
            .filter(|call| call.shown.is_some())
            .filter_map(|call| call.question.clone());
        // By call and generation: a new request for the same call is shown again.
        let open = |request: &Arc<ApprovalRequest>| {
            !self.skipped.contains(&request_key(request))
                && !self.answered.contains(&request_key(request))
        };
        self.questions = waiting.filter(open).collect();
        let line = |request: &Arc<ApprovalRequest>| {
            let call = screen.call(request.approval_id.call_id())?;
            Some((request_key(request), call.arguments_line()?))
        };
        self.summaries = self.questions.iter().filter_map(line).collect();
        let same = self
            .questions
            .iter()
            .position(|request| Some(request_key(request)) == before);
        self.at = same.unwrap_or(self.at.min(self.questions.len().saturating_sub(1)));
        // The step is kept: a new request must not discard a half-written answer.
        if same.is_some() {
            return None;
        }
        self.mode = PromptStep::Choosing;
        self.current().cloned()
    }

    /// Checks whether the user postponed this request.
    pub(crate) fn is_skipped(&self, request: &ApprovalRequest) -> bool {
        self.skipped.contains(&request_key(request))
    }

    /// Returns the current request.
    pub(crate) fn current(&self) -> Option<&Arc<ApprovalRequest>> {
        self.questions.get(self.at)
    }

    /// Stores edited arguments, which the user has to confirm.
    pub(crate) fn confirm_edited(&mut self, request: &ApprovalRequest, arguments: Arguments) {
        // Another process may have decided while the editor was open; the edit must not become the
        // answer to the next request.
        if self
            .current()
            .is_some_and(|current| request_key(current) == request_key(request))
        {
            self.mode = PromptStep::Edited(arguments);
        }
    }

    /// Stores a drafted rule, which the user has to confirm.
    pub(crate) fn confirm_rule(&mut self, proposal: RuleProposal) {
        if self
            .current()
            .is_some_and(|current| ApprovalRequestRef::from(&**current) == proposal.question)
        {
            self.mode = PromptStep::Rule(Box::new(proposal));
        }
    }

    /// Returns the number of rows that were printed of a request.
    pub(crate) fn printed_rows(&self, request: &ApprovalRequest) -> usize {
        let rows = self.printed.get(&request_key(request));
        rows.copied().unwrap_or_default()
    }

    /// Stores how many rows were printed of a request, and whether these are all.
    pub(crate) fn mark_printed(&mut self, request: &ApprovalRequest, rows: usize, all: bool) {
        self.printed.insert(request_key(request), rows);
        if all {
            self.complete.insert(request_key(request));
        }
    }

    fn is_complete(&self, request: &ApprovalRequest) -> bool {
        self.complete.contains(&request_key(request))
    }

    /// Reopens a request whose answer was rejected.
    pub(crate) fn reopen(&mut self, request: &ApprovalRequest) {
        self.answered.remove(&request_key(request));
    }

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
            PromptStep::Reason(reason) => match pressed.code {
                KeyCode::Enter => {
                    let reason = Some(reason.trim().to_owned()).filter(|reason| !reason.is_empty());
                    self.mark_answered(PromptAction::Deny(request.clone(), reason), &request)
                }
                KeyCode::Esc => self.back_to_choosing(),
                KeyCode::Backspace => {
                    reason.pop();
                    PromptAction::Nothing
                }
                KeyCode::Char(c) => {
                    reason.push(c);
                    PromptAction::Nothing
                }
                _ => PromptAction::Nothing,
            },
            PromptStep::Edited(arguments) => match pressed.code {
                KeyCode::Char('y') => {
                    let arguments = arguments.clone();
                    self.mark_answered(
                        PromptAction::ApproveEdited(request.clone(), arguments),
                        &request,
                    )
                }
                KeyCode::Char('e') => PromptAction::Edit(request),
                KeyCode::Char('n') | KeyCode::Esc => self.back_to_choosing(),
                _ => PromptAction::Nothing,
            },
            PromptStep::Rule(proposal) => match proposal.handle_key(pressed) {
                Some(RuleAnswer::Save) => {
                    let proposal = proposal.clone();
                    self.mark_answered(PromptAction::Always(request.clone(), proposal), &request)
                }
                Some(RuleAnswer::Changed) => PromptAction::Preview(proposal.clone()),
                Some(RuleAnswer::Back) => self.back_to_choosing(),
                None => PromptAction::Nothing,
            },
        }
    }

    fn choose_answer(&mut self, code: KeyCode, request: Arc<ApprovalRequest>) -> PromptAction {
        let may = Entitlement::of(&request, &self.me);
        match code {
            // Not offered, so it does nothing: the lines above the keys say why.
            KeyCode::Char('y' | 'u' | 'e' | 'a') if !may.can_approve() => PromptAction::Nothing,
            KeyCode::Char('n') if !may.can_deny => PromptAction::Nothing,
            KeyCode::Char('y') if self.is_complete(&request) => {
                self.mark_answered(PromptAction::Approve(request.clone()), &request)
            }
            KeyCode::Char('u') if !self.is_complete(&request) => {
                self.mark_answered(PromptAction::ApproveUnseen(request.clone()), &request)
            }
            KeyCode::Char('v') if !self.is_complete(&request) => PromptAction::More(request),
            KeyCode::Char('n') => {
                self.mode = PromptStep::Reason(String::new());
                PromptAction::Nothing
            }
            KeyCode::Char('e') => PromptAction::Edit(request),
            KeyCode::Char('a') if self.is_complete(&request) => PromptAction::Propose(request),
            KeyCode::Char('?') => PromptAction::Explain(request),
            KeyCode::Char('s') => {
                self.skipped.insert(request_key(&request));
                self.drop_current();
                self.show_current()
            }
            KeyCode::Char(digit @ '1'..='9') => self.go_to(digit as usize - '1' as usize),
            KeyCode::Down | KeyCode::Right | KeyCode::Tab => {
                self.go_to((self.at + 1) % self.questions.len())
            }
            KeyCode::Up | KeyCode::Left | KeyCode::BackTab => {
                self.go_to((self.at + self.questions.len() - 1) % self.questions.len())
            }
            _ => PromptAction::Nothing,
        }
    }

    fn go_to(&mut self, at: usize) -> PromptAction {
        if at >= self.questions.len() || at == self.at {
            return PromptAction::Nothing;
        }
        self.at = at;
        self.show_current()
    }

    /// Marks a request as answered and returns the action.
    fn mark_answered(&mut self, act: PromptAction, request: &ApprovalRequest) -> PromptAction {
        // The log shows the call as pending until the decision is recorded; without this the next
        // sync would ask for it again.
        self.answered.insert(request_key(request));
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

    /// Discards a half-written answer; the request stays open.
    pub(crate) fn back_to_choosing(&mut self) -> PromptAction {
        self.mode = PromptStep::Choosing;
        PromptAction::Nothing
    }

    /// Returns the lines at the bottom of the screen.
    pub(crate) fn render_lines(&self) -> Vec<StyledLine> {
        let Some(request) = self.current() else {
            return Vec::new();
        };
        let mut lines = Vec::new();
        if self.questions.len() > 1 {
            lines.extend(
                self.questions
                    .iter()
                    .enumerate()
                    .map(|(at, request)| self.render_listed(at, request)),
            );
        }
        lines.extend(match &self.mode {
            PromptStep::Choosing => {
                let asked =
                    StyledLine::styled(&format!("Run {}?", request.tool), Style::new().bold());
                let may = Entitlement::of(request, &self.me);
                let notice = may.notice().map(|text| StyledLine::styled(&text, WARN));
                let keys = keys_line(self.offered_keys(request, may));
                [asked].into_iter().chain(notice).chain([keys]).collect()
            }
            PromptStep::Reason(reason) => {
                let line = StyledLine::styled("Why not? ", KEY)
                    .with(reason, Style::new())
                    .with("▏", DIM);
                vec![
                    line,
                    StyledLine::styled("Enter denies (the reason is optional); Esc goes back", DIM),
                ]
            }
            PromptStep::Edited(_) => vec![
                StyledLine::styled("Run it with these arguments?", Style::new().bold()),
                keys_line([("y", "yes"), ("e", "edit again"), ("n", "back")]),
            ],
            PromptStep::Rule(proposal) => vec![
                StyledLine::styled(&proposal.title(), Style::new().bold()),
                keys_line(proposal.keys()),
            ],
        });
        lines
    }

    /// Returns the keys that answer a request, without those that would be rejected.
    fn offered_keys(
        &self,
        request: &ApprovalRequest,
        may: Entitlement,
    ) -> impl Iterator<Item = (&'static str, &'static str)> {
        let approve = may.can_approve();
        let complete = self.is_complete(request);
        let always = approve && complete && RuleDraft::check_request(request).is_ok();
        let keys = [
            (approve && complete).then_some(("y", "yes")),
            (!complete).then_some(("v", "show the rest")),
            (approve && !complete).then_some(("u", "yes, without reading the rest")),
            may.can_deny.then_some(("n", "no")),
            approve.then_some(("e", "edit")),
            always.then_some(("a", "always")),
            Some(("?", "why")),
            Some(("s", "later")),
            (self.questions.len() > 1).then_some(("1-9", "another")),
        ];
        keys.into_iter().flatten()
    }

    fn render_listed(&self, at: usize, request: &ApprovalRequest) -> StyledLine {
        let here = at == self.at;
        let style = if here { Style::new().bold() } else { DIM };
        let given = self.summaries.get(&request_key(request));
        let given = given.map(String::as_str).unwrap_or_default();
        StyledLine::styled(if here { "▸ " } else { "  " }, KEY)
            .with(&format!("{} ", at + 1), KEY)
            .with(&format!("{} {given}", request.tool), style)
    }
}

fn keys_line<'a>(keys: impl IntoIterator<Item = (&'a str, &'a str)>) -> StyledLine {
    let mut line = StyledLine::new();
    for (key, means) in keys {
        line.push(key, KEY);
        line.push(&format!(" {means}  "), Style::new());
    }
    line
}

fn request_key(request: &ApprovalRequest) -> (CallId, u32) {
    (request.approval_id.call_id(), request.generation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolgate::{
        Annotations, Call, Event, Registry,
        event::{Invocation, ToolEvent},
        layers::RuleScope,
        stack::CallSeed,
        tool::{Resource, ToolSpec},
        value::{Schema, SessionId, Timestamp},
    };
    use toolgate_testkit::seed;

    /// Returns a screen with a pending `write_file` call for each path.
    fn pending_screen(paths: &[&str]) -> SessionScreen {
        let mut screen = unloaded_screen(paths);
        for (call, generation) in screen.unloaded_requests() {
            let question = screen.call(call).and_then(|call| call.question.clone());
            let shown = question.expect("asked").show(None);
            screen.set_shown(call, generation, Ok(Arc::new(shown)));
        }
        screen
    }

    /// Returns the same screen before the stored requests are loaded.
    fn unloaded_screen(paths: &[&str]) -> SessionScreen {
        let mut screen = SessionScreen::new();
        let mut sequence = 0;
        for (number, path) in paths.iter().enumerate() {
            let id = CallId::new(uuid::Uuid::from_u128(10 + number as u128));
            let call = Call::new(CallSeed {
                id,
                ..seed("write_file", json!({ "path": path, "content": "x" }))
            });
            let invocation = Arc::new(Invocation {
                id: call.id,
                call_id: (*path).into(),
                tool: call.tool.clone(),
                emit_order: 0,
                turn: call.turn().clone(),
            });
            let arguments = Some(call.arguments.as_json().clone());
            let arguments_digest = call.arguments.digest();
            let arguments_bytes = 1;
            let requested = ToolEvent::ToolRequested {
                arguments,
                arguments_digest,
                arguments_bytes,
                executor: None,
            };
            let asked =
                ToolEvent::ToolApprovalRequested(Box::new(ApprovalRequest::for_call(&call)));
            for event in [requested, asked] {
                sequence += 1;
                let event =
                    Event::for_invocation(sequence, Timestamp::EPOCH, invocation.clone(), event)
                        .expect("valid");
                screen.apply(&event);
            }
        }
        screen
    }

    /// Loads the requests, as if all of them had been printed.
    fn sync_printed(
        prompt: &mut ApprovalPrompt,
        screen: &SessionScreen,
    ) -> Option<Arc<ApprovalRequest>> {
        let current = prompt.sync_requests(screen);
        for request in prompt.questions.clone() {
            prompt.mark_printed(&request, 1, true);
        }
        current
    }

    const SESSION: SessionId = SessionId::new(uuid::Uuid::from_u128(7));

    /// Drafts a rule for a tool whose `path` names its target.
    fn propose_rule(request: &ApprovalRequest) -> RuleProposal {
        let mut spec = ToolSpec::new("write_file", "Writes.", Schema::any_object());
        spec.annotations = Annotations::default().with_resource(Resource::path("path"));
        let registry = Registry::new();
        registry.register_host(spec).expect("registers");
        let view = toolgate_testkit::plain_view(&registry);
        RuleProposal::new(
            request,
            SESSION,
            &"ann".into(),
            "p",
            &view,
            Timestamp::EPOCH,
        )
        .expect("drafts")
    }

    fn press_keys(prompt: &mut ApprovalPrompt, keys: &str) -> Vec<PromptAction> {
        let code = |c| match c {
            '\n' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            c => KeyCode::Char(c),
        };
        keys.chars()
            .map(|c| prompt.handle_key(KeyEvent::new(code(c), KeyModifiers::NONE)))
            .collect()
    }

    #[test]
    fn yes_is_not_offered_to_a_user_whose_approval_would_not_count() {
        use toolgate::approval::{IdentitySource, Quorum};
        let established =
            |name: &str| ApproverIdentity::new(name, IdentitySource::AuthenticatedToken);
        let with_quorum = |among: &[&str]| {
            let call = toolgate_testkit::call_with("write_file", json!({ "path": "a" }));
            let mut request = ApprovalRequest::for_call(&call);
            request.requester = Some("eve".into());
            let among = among.iter().map(|name| (*name).into()).collect();
            request.quorum = Some(Quorum { needed: 2, among });
            Arc::new(request)
        };
        for (me, among, answers) in [
            (established("ann"), &[][..], "yne"),
            (established("ann"), &["ann", "bob"], "yne"),
            ("ann".into(), &[], "n"),
            (established("eve"), &[], "n"),
            (established("mallory"), &["ann", "bob"], ""),
            ("ann".into(), &["ann", "bob"], ""),
        ] {
            let mut prompt = ApprovalPrompt::new(me);
            let request = with_quorum(among);
            prompt.mark_printed(&request, 1, true);
            prompt.questions = vec![request];
            let lines: Vec<String> = prompt.render_lines().iter().map(StyledLine::text).collect();
            let notice = lines
                .iter()
                .any(|line| line.contains("you cannot approve this"));
            assert_eq!(notice, !answers.contains('y'), "{lines:?}");
            let keys = lines.last().expect("keys");
            for (key, shown) in [('y', "y yes"), ('n', "n no"), ('e', "e edit")] {
                assert_eq!(keys.contains(shown), answers.contains(key), "{keys}");
            }
            if !answers.contains('y') {
                assert_eq!(
                    press_keys(&mut prompt, "yea"),
                    [
                        PromptAction::Nothing,
                        PromptAction::Nothing,
                        PromptAction::Nothing
                    ]
                );
                assert!(matches!(prompt.mode, PromptStep::Choosing));
            }
        }
    }

    fn current_path(prompt: &ApprovalPrompt) -> String {
        prompt
            .current()
            .map(|request| request.arguments.as_map()["path"].to_string())
            .unwrap_or_default()
    }

    #[test]
    fn only_the_approve_key_approves() {
        for keys in ["q", "Y", "\n", " ", "yes"] {
            let mut prompt = ApprovalPrompt::new("ann".into());
            let screen = pending_screen(&["a"]);
            let request = sync_printed(&mut prompt, &screen).expect("asks");
            let acts = press_keys(&mut prompt, keys);
            let approved = acts.contains(&PromptAction::Approve(request));
            assert_eq!(approved, keys == "yes", "{keys:?}: {acts:?}");
        }
        let mut prompt = ApprovalPrompt::new("ann".into());
        let screen = pending_screen(&["a"]);
        sync_printed(&mut prompt, &screen);
        assert_eq!(
            prompt.handle_key(KeyEvent::new(KeyCode::Char('y'), KeyModifiers::ALT)),
            PromptAction::Nothing
        );
    }

    #[test]
    fn what_was_not_printed_in_full_is_approved_only_with_another_key() {
        let mut prompt = ApprovalPrompt::new("ann".into());
        let screen = pending_screen(&["a"]);
        let request = prompt.sync_requests(&screen).expect("asks");
        prompt.mark_printed(&request, 1_000, false);
        assert_eq!(
            press_keys(&mut prompt, "yav"),
            [
                PromptAction::Nothing,
                PromptAction::Nothing,
                PromptAction::More(request.clone())
            ]
        );
        let keys: String = prompt.render_lines().iter().map(StyledLine::text).collect();
        assert!(
            keys.contains("v show the rest") && !keys.contains("y yes "),
            "{keys}"
        );
        assert_eq!(
            press_keys(&mut prompt, "u"),
            [PromptAction::ApproveUnseen(request.clone())]
        );
        prompt.reopen(&request);
        prompt.sync_requests(&screen);
        prompt.mark_printed(&request, 1_500, true);
        assert_eq!(
            press_keys(&mut prompt, "uy"),
            [PromptAction::Nothing, PromptAction::Approve(request)]
        );
    }

    #[test]
    fn always_is_not_offered_for_a_request_that_is_made_each_time() {
        for each_time in [false, true] {
            let call = toolgate_testkit::call_with("write_file", json!({ "path": ".envrc" }));
            let mut request = ApprovalRequest::for_call(&call);
            request.each_time = each_time;
            let mut prompt = ApprovalPrompt::new("ann".into());
            prompt.mark_printed(&request, 1, true);
            prompt.questions = vec![Arc::new(request)];
            let keys: String = prompt.render_lines().iter().map(StyledLine::text).collect();
            assert_eq!(keys.contains("a always"), !each_time, "{keys}");
        }
    }

    #[test]
    fn a_request_that_is_not_loaded_is_not_asked_about() {
        let mut prompt = ApprovalPrompt::new("ann".into());
        let mut screen = unloaded_screen(&["a"]);
        assert_eq!(prompt.sync_requests(&screen), None);
        let call = screen.calls()[0].invocation.id;
        screen.set_shown(call, 7, Err("an earlier request".to_owned()));
        assert_eq!(screen.unloaded_requests(), [(call, 0)]);
        screen.set_shown(call, 0, Err("it was changed".to_owned()));
        let request = prompt.sync_requests(&screen).expect("it can be postponed");
        assert_eq!(
            press_keys(&mut prompt, "y"),
            [PromptAction::Nothing],
            "{request:?} cannot be shown"
        );
    }

    #[test]
    fn an_answered_request_is_not_shown_again_unless_the_answer_is_rejected() {
        let mut prompt = ApprovalPrompt::new("ann".into());
        let screen = pending_screen(&["a", "b"]);
        let first = sync_printed(&mut prompt, &screen).expect("asks");
        assert_eq!(
            press_keys(&mut prompt, "y"),
            [PromptAction::Approve(first.clone())]
        );
        assert!(
            sync_printed(&mut prompt, &screen)
                .is_some_and(|next| request_key(&next) != request_key(&first)),
            "the log does not say so yet"
        );
        prompt.reopen(&first);
        sync_printed(&mut prompt, &screen);
        assert_eq!(prompt.questions.len(), 2);
    }

    #[test]
    fn a_reason_may_hold_the_letters_that_are_keys_elsewhere() {
        let mut prompt = ApprovalPrompt::new("ann".into());
        let screen = pending_screen(&["a"]);
        let request = sync_printed(&mut prompt, &screen).expect("asks");
        let acts = press_keys(&mut prompt, "nany y\n");
        assert_eq!(
            acts.last(),
            Some(&PromptAction::Deny(
                request.clone(),
                Some("any y".to_owned())
            ))
        );
        assert!(
            acts[..acts.len() - 1]
                .iter()
                .all(|act| *act == PromptAction::Nothing)
        );
        let mut prompt = ApprovalPrompt::new("ann".into());
        let screen = pending_screen(&["a"]);
        let request = sync_printed(&mut prompt, &screen).expect("asks");
        assert_eq!(
            press_keys(&mut prompt, "n\n").last(),
            Some(&PromptAction::Deny(request, None))
        );
    }

    #[test]
    fn going_back_decides_nothing() {
        let mut prompt = ApprovalPrompt::new("ann".into());
        let screen = pending_screen(&["a"]);
        let request = sync_printed(&mut prompt, &screen).expect("asks");
        press_keys(&mut prompt, "nwhy\u{1b}");
        prompt.confirm_edited(&request, Arguments::empty());
        assert_eq!(press_keys(&mut prompt, "n"), [PromptAction::Nothing]);
        prompt.confirm_rule(propose_rule(&request));
        assert_eq!(press_keys(&mut prompt, "\u{1b}"), [PromptAction::Nothing]);
        assert_eq!(
            press_keys(&mut prompt, "y"),
            [PromptAction::Approve(request)]
        );
    }

    #[test]
    fn a_new_request_does_not_replace_the_one_that_is_being_answered() {
        let mut prompt = ApprovalPrompt::new("ann".into());
        let both = pending_screen(&["a", "b"]);
        sync_printed(&mut prompt, &both);
        press_keys(&mut prompt, "2");
        assert_eq!(current_path(&prompt), "\"b\"");
        press_keys(&mut prompt, "nno");
        sync_printed(&mut prompt, &both);
        assert!(matches!(&prompt.mode, PromptStep::Reason(reason) if reason == "no"));
        sync_printed(&mut prompt, &SessionScreen::new());
        assert!(
            prompt.render_lines().is_empty() && matches!(prompt.mode, PromptStep::Choosing),
            "it was decided elsewhere"
        );
    }

    #[test]
    fn a_rule_is_shown_again_whenever_it_changes() {
        let mut prompt = ApprovalPrompt::new("ann".into());
        let screen = pending_screen(&["a"]);
        let request = sync_printed(&mut prompt, &screen).expect("asks");
        prompt.confirm_rule(propose_rule(&request));
        let scopes: Vec<RuleScope> = press_keys(&mut prompt, "gsp")
            .into_iter()
            .filter_map(|act| match act {
                PromptAction::Preview(proposal) => Some(proposal.rule().scope.clone()),
                _ => None,
            })
            .collect();
        let project = "p".to_owned();
        assert_eq!(
            scopes,
            [
                RuleScope::Global,
                RuleScope::Session { session: SESSION },
                RuleScope::Project { project }
            ]
        );
        let [PromptAction::Preview(wider)] = &press_keys(&mut prompt, "x")[..] else {
            panic!("it is shown again")
        };
        assert_eq!(
            wider.rule().to_string(),
            r#"allow write_file where content is any value and path is "a""#
        );
        let [PromptAction::Preview(exact)] = &press_keys(&mut prompt, "x")[..] else {
            panic!("it is shown again")
        };
        let [PromptAction::Always(_, kept)] = &press_keys(&mut prompt, "y")[..] else {
            panic!("it is kept")
        };
        assert_eq!(kept, exact);
    }

    #[test]
    fn always_is_offered_only_where_a_rule_can_be_drafted() {
        let mut prompt = ApprovalPrompt::new("ann".into());
        sync_printed(&mut prompt, &pending_screen(&["a"]));
        let shown = |prompt: &ApprovalPrompt| {
            let lines = prompt.render_lines();
            lines.iter().any(|line| line.text().contains("a always"))
        };
        assert!(shown(&prompt));
        Arc::make_mut(&mut prompt.questions[0]).withheld = true;
        assert!(!shown(&prompt));
    }
}
