//! The confirmation of "always allow": the same keys and words in `run` and `chat`.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use toolgate::{
    View,
    approval::{ApprovalRequest, ApprovalRequestRef},
    layers::{MatchedCall, RuleCoverage, RuleDraft, RuleScope, StandingRule},
    value::{Principal, SessionId, Timestamp},
};

use crate::{CliError, env::ids};

/// The most calls that are listed as covered by a rule.
const MAX_PREVIEWED: usize = 5;

/// A drafted rule that the user has to confirm.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RuleProposal {
    /// The request that it is drafted for.
    pub(crate) question: ApprovalRequestRef,
    draft: RuleDraft,
    project: String,
}

/// The user's answer to a proposed rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuleAnswer {
    /// Store the rule and approve the call.
    Save,
    /// The rule has changed and has to be shown again.
    Changed,
    /// Decide nothing.
    Back,
}

impl RuleProposal {
    /// Drafts a rule for a request of `session`, as it is shown to the user. `tools` says which
    /// arguments name the target of a call.
    pub(crate) fn new(
        request: &ApprovalRequest,
        session: SessionId,
        owner: &Principal,
        project: &str,
        tools: &View,
        now: Timestamp,
    ) -> Result<Self, CliError> {
        let mut draft = RuleDraft::for_request(request, session, owner.clone(), now)?;
        if let Some(tool) = tools.get(request.tool.as_str()) {
            draft = draft.with_targets(&tool.spec.annotations);
        }
        Ok(Self {
            question: request.into(),
            draft,
            project: project.to_owned(),
        })
    }

    /// Returns the rule as it would be stored.
    pub(crate) fn rule(&self) -> &StandingRule {
        self.draft.rule()
    }

    /// Handles a key; `None` if it means nothing here.
    pub(crate) fn handle_key(&mut self, key: KeyEvent) -> Option<RuleAnswer> {
        // A shortcut that is meant for the terminal must not count as an answer: Alt-Y is not `y`.
        if key
            .modifiers
            .intersects(KeyModifiers::CONTROL | KeyModifiers::ALT)
        {
            return None;
        }
        let session = self.draft.session();
        match key.code {
            KeyCode::Char('y') => return Some(RuleAnswer::Save),
            KeyCode::Char('n') | KeyCode::Esc => return Some(RuleAnswer::Back),
            KeyCode::Char('s') => self.draft.set_scope(RuleScope::Session { session }),
            KeyCode::Char('p') => self.draft.set_scope(RuleScope::Project {
                project: self.project.clone(),
            }),
            KeyCode::Char('g') => self.draft.set_scope(RuleScope::Global),
            KeyCode::Char('x') => self.draft.switch_coverage(),
            _ => return None,
        }
        Some(RuleAnswer::Changed)
    }

    /// Returns the keys and what they do.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let other = match self.draft.coverage() {
            RuleCoverage::SameCall => ("x", "same target"),
            RuleCoverage::SameTarget => ("x", "this call"),
        };
        [("s", "session"), ("p", "project"), ("g", "everywhere")]
            .into_iter()
            .chain(self.draft.has_coverage_choice().then_some(other))
            .chain([("y", "save and run"), ("n", "back")])
    }

    /// Returns the question to the user.
    pub(crate) fn title(&self) -> String {
        let rule = self.rule();
        let what = match self.draft.coverage() {
            RuleCoverage::SameCall => "with these arguments",
            RuleCoverage::SameTarget => "on the same target",
        };
        let place = match rule.scope {
            RuleScope::Session { .. } => "in this session",
            RuleScope::Project { .. } => "in this project",
            RuleScope::Global => "everywhere",
        };
        format!("Always allow {} {what}, {place}?", rule.tool)
    }
}

/// Describes the past approval requests that a rule would have answered, newest first.
pub(crate) fn describe_matches(matched: &[MatchedCall]) -> Vec<String> {
    let head = match matched.len() {
        0 => "it would have answered no approval request so far".to_owned(),
        1 => "it would have answered one approval request so far:".to_owned(),
        count => format!("it would have answered {count} approval requests so far:"),
    };
    let line = |call: &MatchedCall| {
        format!(
            "  {} {} in session {}, {}",
            call.asked_at,
            call.tool,
            ids::short_id(call.session),
            call.state.text()
        )
    };
    let newest = matched.iter().rev().take(MAX_PREVIEWED);
    std::iter::once(head).chain(newest.map(line)).collect()
}
