//! One call as a screen shows it.

use std::sync::Arc;

use toolgate::{
    Status,
    approval::{ApprovalRequest, ShownRequest},
    event::{Invocation, ToolEvent},
    stack::{NoteFields, Notes, Progress},
    value::{Json, Principal, Timestamp},
};

use crate::show::render::arguments;

/// One call as a screen shows it.
#[derive(Debug, Clone)]
pub struct CallView {
    /// The invocation's identity.
    pub invocation: Arc<Invocation>,
    /// The current state.
    pub state: CallState,
    /// The arguments, as far as they may be shown.
    pub arguments: Option<Json>,
    /// The newest approval request for it, redacted.
    pub question: Option<Arc<ApprovalRequest>>,
    /// What an approver sees of that request, or why it cannot be shown; `None` until it is loaded.
    pub shown: Option<Result<Arc<ShownRequest>, String>>,
    /// The approver who approved or denied it, if there was one.
    pub decided_by: Option<Principal>,
    /// True if the approver changed the arguments.
    pub edited: bool,
    /// True if the approver acknowledged that the request was not shown in full.
    pub unseen: bool,
    /// The reason of a rejection, failure or interruption, or the approver's comment.
    pub reason: Option<String>,
    /// The progress that the tool last reported.
    pub progress: Option<Progress>,
    /// The result, as far as it may be shown.
    pub result: Option<Json>,
    /// The number of attempts.
    pub attempts: u32,
    /// True if the result was cached from an earlier call.
    pub cached: bool,
    /// The time of the request.
    pub requested_at: Timestamp,
    /// The start of the last attempt.
    pub started_at: Option<Timestamp>,
    /// The time when it settled.
    pub settled_at: Option<Timestamp>,
    /// The time in the stack, in milliseconds.
    pub duration_ms: Option<u64>,
    /// Notes of the layers and the tool: the path through the layers, who changed what.
    pub notes: Notes,
    /// The last line that the tool logged.
    pub log: Option<String>,
}

/// The state of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallState {
    /// The model requested it.
    Requested,
    /// An approval request is pending.
    Pending,
    /// An approver approved it.
    Approved,
    /// It is running.
    Running,
    /// An external executor runs it.
    External,
    /// It is settled.
    Settled(Status),
}

impl CallState {
    /// Checks whether the state is final.
    pub fn is_settled(self) -> bool {
        matches!(self, Self::Settled(_))
    }

    /// Returns the text that people read.
    pub fn text(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Pending => "approval pending",
            Self::Approved => "approved",
            Self::Running => "running",
            Self::External => "running externally",
            Self::Settled(status) => status.text(),
        }
    }
}

impl CallView {
    pub(super) fn new(invocation: Arc<Invocation>, at: Timestamp) -> Self {
        Self {
            invocation,
            state: CallState::Requested,
            arguments: None,
            question: None,
            shown: None,
            decided_by: None,
            edited: false,
            unseen: false,
            reason: None,
            progress: None,
            result: None,
            attempts: 0,
            cached: false,
            requested_at: at,
            started_at: None,
            settled_at: None,
            duration_ms: None,
            notes: Notes::default(),
            log: None,
        }
    }

    /// Returns the arguments in one short line: while approval is pending, as the approver sees them.
    pub fn arguments_line(&self) -> Option<String> {
        match &self.shown {
            Some(Ok(shown)) if self.state == CallState::Pending => {
                Some(arguments::format_shown(shown))
            }
            _ => self
                .arguments
                .as_ref()
                .map(|given| arguments::format_short(given.as_value())),
        }
    }

    /// Returns the notes on it, if there are any.
    pub fn note_fields(&self) -> Option<&NoteFields> {
        self.notes.fields()
    }

    pub(super) fn apply(&mut self, event: &ToolEvent, at: Timestamp) {
        match event {
            ToolEvent::ToolRequested { arguments, .. } => self.arguments.clone_from(arguments),
            ToolEvent::ToolApprovalRequested(request) => {
                self.state = CallState::Pending;
                self.question = Some(Arc::new((**request).clone()));
                self.shown = None;
            }
            ToolEvent::ToolApproved {
                approver,
                reason,
                edited,
                unseen,
                ..
            } => {
                self.state = CallState::Approved;
                self.decided_by = Some(approver.clone());
                self.edited = *edited;
                self.unseen = *unseen;
                self.reason.clone_from(reason);
            }
            ToolEvent::ToolExecutionStarted {
                attempt, external, ..
            } => {
                self.state = if *external {
                    CallState::External
                } else {
                    CallState::Running
                };
                self.attempts = *attempt;
                self.started_at = Some(at);
            }
            ToolEvent::ToolExecutionProgress { progress } => self.progress = Some(progress.clone()),
            ToolEvent::ToolCallAudit { audit } => self.notes.merge_inner(audit),
            ToolEvent::ToolLog { message, .. } => self.log = Some(message.clone()),
            ToolEvent::ToolDenied { .. }
            | ToolEvent::ToolExecutionSucceeded { .. }
            | ToolEvent::ToolExecutionFailed { .. }
            | ToolEvent::ToolExecutionInterrupted { .. }
            | ToolEvent::ToolSkipped { .. } => self.apply_settled(event, at),
        }
    }

    fn apply_settled(&mut self, event: &ToolEvent, at: Timestamp) {
        let status = match event {
            ToolEvent::ToolDenied {
                status,
                approver,
                reason,
                error,
                ..
            } => {
                // A denial without an approver, such as one by a layer, keeps the name of who
                // approved before.
                self.decided_by = approver.clone().or(self.decided_by.take());
                // Without a reason, as in a block or an older event, the text for the model is shown.
                self.reason = reason.clone().or_else(|| error.clone());
                *status
            }
            ToolEvent::ToolExecutionSucceeded {
                result,
                attempts,
                cached,
                duration_ms,
                ..
            } => {
                self.result.clone_from(result);
                self.attempts = *attempts;
                self.cached = *cached;
                self.duration_ms = Some(*duration_ms);
                Status::Ok
            }
            ToolEvent::ToolExecutionFailed {
                status,
                error,
                attempts,
                duration_ms,
                ..
            } => {
                self.reason = Some(error.clone());
                self.attempts = *attempts;
                self.duration_ms = Some(*duration_ms);
                *status
            }
            ToolEvent::ToolExecutionInterrupted { status, reason } => {
                self.reason = Some(reason.clone());
                *status
            }
            ToolEvent::ToolSkipped { reason } => {
                self.reason.clone_from(reason);
                Status::DryRun
            }
            _ => return,
        };
        self.state = CallState::Settled(status);
        self.settled_at = Some(at);
    }
}
