//! The approval prompt: which request is shown, and how far its answer is. Pure; the display carries
//! out the result.

mod lines;
mod steps;
#[cfg(test)]
pub(super) mod tests;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use toolgate::{
    Arguments,
    approval::{ApprovalRequest, ApprovalRequestRef, ApproverIdentity},
    value::CallId,
};

use crate::show::{rule_proposal::RuleProposal, screen::SessionScreen};

pub(super) use lines::key_lines;

/// The pending approval requests, and the state of answering one.
#[derive(Debug)]
pub(crate) struct ApprovalPrompt {
    /// The user, who decides.
    me: ApproverIdentity,
    /// The requests in the order in which they came up, so that a new one is the last.
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
    /// The user has to confirm the approval of exactly these requests, which were printed just now.
    All(Vec<Arc<ApprovalRequest>>),
}

/// An action for the display to carry out.
#[derive(Debug, PartialEq)]
pub(crate) enum PromptAction {
    /// Show a request in full.
    Show(Arc<ApprovalRequest>),
    /// Show the next page of a request.
    More(Arc<ApprovalRequest>),
    /// Show all of these requests, to approve them together.
    ShowAll(Vec<Arc<ApprovalRequest>>),
    /// Approve.
    Approve(Arc<ApprovalRequest>),
    /// Approve each of these.
    ApproveAll(Vec<Arc<ApprovalRequest>>),
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
        self.load_questions(screen);
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

    fn load_questions(&mut self, screen: &SessionScreen) {
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
        let mut open: Vec<Arc<ApprovalRequest>> = waiting.filter(open).collect();
        // In the order in which they came up: an earlier call may ask later, and the numbers of the
        // others must not change while the user reaches for a key.
        let known = |request: &Arc<ApprovalRequest>| {
            let key = request_key(request);
            let known = self.questions.iter().map(|known| request_key(known));
            known.into_iter().position(|known| known == key)
        };
        open.sort_by_cached_key(|request| known(request).unwrap_or(usize::MAX));
        self.questions = open;
    }

    /// Checks whether the user postponed this request.
    pub(crate) fn is_skipped(&self, request: &ApprovalRequest) -> bool {
        self.skipped.contains(&request_key(request))
    }

    /// Checks whether the user is asked about this call.
    pub(crate) fn is_asked(&self, call: CallId) -> bool {
        let mut asked = self.questions.iter();
        asked.any(|request| request.approval_id.call_id() == call)
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

    /// Asks whether exactly these requests are approved. Each of them was printed in full.
    pub(crate) fn confirm_all(&mut self, requests: Vec<Arc<ApprovalRequest>>) {
        self.mode = PromptStep::All(requests);
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

    /// Checks whether a request was printed in full.
    pub(crate) fn is_complete(&self, request: &ApprovalRequest) -> bool {
        self.complete.contains(&request_key(request))
    }

    /// Reopens a request whose answer was rejected.
    pub(crate) fn reopen(&mut self, request: &ApprovalRequest) {
        self.answered.remove(&request_key(request));
    }

    /// Discards a half-written answer; the request stays open.
    pub(crate) fn back_to_choosing(&mut self) -> PromptAction {
        self.mode = PromptStep::Choosing;
        PromptAction::Nothing
    }
}

fn request_key(request: &ApprovalRequest) -> (CallId, u32) {
    (request.approval_id.call_id(), request.generation)
}
