//! One call as a screen shows it.

use std::{iter, sync::Arc};

use serde_json::Value;
use toolgate::{
    Status,
    approval::{ApprovalRequest, ShownRequest},
    event::{Invocation, Phase, ToolEvent},
    layers::FileChange,
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
    /// The arguments, as far as they may be shown: those that run, once it has started.
    pub arguments: Option<Json>,
    /// The arguments that the model requested, if others run.
    pub requested_arguments: Option<Json>,
    /// The newest approval request for it, redacted.
    pub question: Option<Arc<ApprovalRequest>>,
    /// What an approver sees of that request, or why it cannot be shown; `None` until it is loaded.
    pub shown: Option<Result<Arc<ShownRequest>, String>>,
    /// The approvers who approved or denied it, the one who decided last first.
    pub decided_by: Vec<Principal>,
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
    /// True if the call delegates to an agent.
    pub(super) is_agent: bool,
    /// Notes of the layers and the tool: the path through the layers, who changed what.
    pub notes: Notes,
    /// The last line that the tool logged.
    pub log: Option<String>,
    /// The files that it changed, as far as the event lists them.
    pub files: Vec<FileChange>,
    /// The number of further changed files.
    pub more_files: u64,
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
    /// Returns the phase of the invocation that it shows.
    pub fn phase(self) -> Phase {
        match self {
            Self::Requested => Phase::Requested,
            Self::Pending => Phase::AwaitingApproval,
            Self::Approved => Phase::Approved,
            Self::Running => Phase::Running,
            Self::External => Phase::AwaitingResult,
            Self::Settled(status) => Phase::Settled(status),
        }
    }

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
    pub(super) fn new(invocation: Arc<Invocation>, at: Timestamp, arguments: Option<Json>) -> Self {
        Self {
            invocation,
            state: CallState::Requested,
            arguments,
            requested_arguments: None,
            question: None,
            shown: None,
            decided_by: Vec::new(),
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
            is_agent: false,
            notes: Notes::default(),
            log: None,
            files: Vec::new(),
            more_files: 0,
        }
    }

    /// Returns the arguments in one short line. While approval is pending they are those of the stored
    /// request, as the approver sees them: the copies in events are redacted.
    pub fn arguments_line(&self) -> Option<String> {
        match (&self.shown, self.state) {
            (Some(Ok(shown)), CallState::Pending) => Some(arguments::format_shown(shown)),
            (Some(Err(problem)), CallState::Pending) => Some(format!("not shown: {problem}")),
            (None, CallState::Pending) => None,
            _ => {
                let given = self.arguments.as_ref()?.as_value();
                Some(match self.purpose() {
                    // The stated reason is a parameter of the call and shown beside the arguments.
                    Some(purpose) => arguments::format_short(&without_text(given, purpose)),
                    None => arguments::format_short(given),
                })
            }
        }
    }

    /// Returns the line that says what the call is for: the summary that a layer or tool wrote, or
    /// else the reason that the model stated.
    pub fn purpose(&self) -> Option<&str> {
        let notes = self.note_fields();
        // A summary that only repeats tool, status and duration says nothing about the purpose.
        let written = notes.filter(|notes| !notes.has_plain_summary());
        let summary = written.and_then(|notes| notes.summary.as_deref());
        let stated = || self.question.as_ref()?.stated_reason.as_deref();
        let purpose = summary.or_else(stated)?.trim();
        (!purpose.is_empty()).then_some(purpose)
    }

    /// Returns how long the settled call took, in milliseconds: for an agent, all of its work.
    pub fn took_ms(&self) -> Option<u64> {
        // The last pass through the stack only hands over what the agent has returned.
        let whole = self.started_at.zip(self.settled_at);
        let whole = whole.map(|(started, settled)| settled.since(started).as_millis() as u64);
        whole.filter(|_| self.is_agent).or(self.duration_ms)
    }

    /// Returns the names of all approvers who decided, if there are any.
    pub fn deciders(&self) -> Option<String> {
        let names: Vec<&str> = self.decided_by.iter().map(Principal::as_str).collect();
        (!names.is_empty()).then(|| crate::env::style::escape_controls(&names.join(", ")))
    }

    /// Returns the notes on it, if there are any.
    pub fn note_fields(&self) -> Option<&NoteFields> {
        self.notes.fields()
    }

    /// Applies an event, unless it cannot happen in this state: nothing follows the end of a call.
    pub(super) fn apply(&mut self, event: &ToolEvent, at: Timestamp) {
        if self.state.phase().apply(event).is_err() {
            return;
        }
        match event {
            // It is where a call begins.
            ToolEvent::ToolRequested { .. } => {}
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
                with,
                ..
            } => {
                self.state = CallState::Approved;
                let others = with.iter().map(|by| by.name.clone());
                self.decided_by = iter::once(approver.clone()).chain(others).collect();
                self.edited = *edited;
                self.unseen = *unseen;
                self.reason.clone_from(reason);
            }
            ToolEvent::ToolExecutionStarted {
                attempt,
                external,
                arguments,
                ..
            } => {
                if let Some(running) = arguments {
                    let before = self.arguments.replace(running.clone());
                    // A further attempt has no other request.
                    self.requested_arguments = self.requested_arguments.take().or(before);
                }
                self.state = if *external {
                    CallState::External
                } else {
                    CallState::Running
                };
                self.attempts = *attempt;
                self.started_at = Some(at);
            }
            ToolEvent::ToolExecutionProgress { progress } => self.apply_progress(progress),
            ToolEvent::ToolFilesChanged { changes, omitted } => {
                self.files.extend(changes.iter().cloned());
                self.more_files += omitted;
            }
            // Toasts are shown by the list of toasts.
            ToolEvent::ToolToast(_) => {}
            ToolEvent::ToolCallAudit { audit } => self.notes.merge_inner(audit),
            ToolEvent::ToolLog { message, .. } => self.log = Some(message.clone()),
            ToolEvent::ToolDenied { .. }
            | ToolEvent::ToolExecutionSucceeded { .. }
            | ToolEvent::ToolExecutionFailed { .. }
            | ToolEvent::ToolExecutionInterrupted { .. }
            | ToolEvent::ToolSkipped { .. } => self.apply_settled(event, at),
        }
    }

    /// Applies a report of progress, which keeps the label of an earlier one.
    fn apply_progress(&mut self, progress: &Progress) {
        let earlier = self.progress.take().and_then(|progress| progress.label);
        let mut progress = progress.clone();
        progress.label = progress.label.or(earlier);
        self.progress = Some(progress);
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
                if let Some(approver) = approver {
                    self.decided_by = vec![approver.clone()];
                }
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

/// Returns the arguments without those that consist of `text`.
fn without_text(arguments: &Value, text: &str) -> Value {
    let Some(map) = arguments.as_object() else {
        return arguments.clone();
    };
    let is_text = |value: &Value| value.as_str().is_some_and(|value| value.trim() == text);
    let others = map.iter().filter(|(_, value)| !is_text(value));
    Value::Object(
        others
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
    )
}
