//! One call as a screen shows it.

use std::sync::Arc;

use toolgate::{
    ApprovalRequest, Invocation, Json, NoteFields, Notes, Principal, Progress, Status, Timestamp,
    ToolEvent,
};

/// One call as a screen shows it.
#[derive(Debug, Clone)]
pub struct CallView {
    /// Which call.
    pub invocation: Arc<Invocation>,
    /// How far it has come.
    pub state: CallState,
    /// What it is called with, as far as that may be shown.
    pub arguments: Option<Json>,
    /// The newest question about it.
    pub question: Option<Arc<ApprovalRequest>>,
    /// Who approved or denied, if somebody did.
    pub decided_by: Option<Principal>,
    /// Whether they changed the arguments.
    pub edited: bool,
    /// Why it was refused, failed or stopped, or what the decider said.
    pub reason: Option<String>,
    /// How far the work has come, as the tool last said.
    pub progress: Option<Progress>,
    /// What came of it, as far as that may be shown.
    pub result: Option<Json>,
    /// How often it was started.
    pub attempts: u32,
    /// Whether the result was remembered from an earlier call.
    pub cached: bool,
    /// When it was asked for.
    pub requested_at: Timestamp,
    /// When it was last started.
    pub started_at: Option<Timestamp>,
    /// When it settled.
    pub settled_at: Option<Timestamp>,
    /// How long it was in the stack, in milliseconds.
    pub duration_ms: Option<u64>,
    /// What layers and the tool noted: the way through the layers, who changed what.
    pub notes: Notes,
    /// The last line that the tool logged.
    pub log: Option<String>,
}

/// How far a call has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallState {
    /// The model asked for it.
    Requested,
    /// Somebody has to decide.
    Asked,
    /// Somebody said yes.
    Approved,
    /// It runs.
    Running,
    /// Something outside runs it.
    Outside,
    /// It is settled.
    Settled(Status),
}

impl CallState {
    /// Whether nothing more can happen to it.
    pub fn is_settled(self) -> bool {
        matches!(self, Self::Settled(_))
    }
}

impl CallView {
    pub(super) fn new(invocation: Arc<Invocation>, at: Timestamp) -> Self {
        Self {
            invocation,
            state: CallState::Requested,
            arguments: None,
            question: None,
            decided_by: None,
            edited: false,
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

    /// The notes on it, if there are any.
    pub fn note_fields(&self) -> Option<&NoteFields> {
        self.notes.fields()
    }

    pub(super) fn apply(&mut self, event: &ToolEvent, at: Timestamp) {
        match event {
            ToolEvent::ToolRequested { arguments, .. } => self.arguments.clone_from(arguments),
            ToolEvent::ToolApprovalRequested(request) => {
                self.state = CallState::Asked;
                self.question = Some(Arc::new((**request).clone()));
            }
            ToolEvent::ToolApproved {
                approver,
                reason,
                edited,
            } => {
                self.state = CallState::Approved;
                (self.decided_by, self.edited) = (Some(approver.clone()), *edited);
                self.reason.clone_from(reason);
            }
            ToolEvent::ToolExecutionStarted {
                attempt, external, ..
            } => {
                self.state = if *external {
                    CallState::Outside
                } else {
                    CallState::Running
                };
                (self.attempts, self.started_at) = (*attempt, Some(at));
            }
            ToolEvent::ToolExecutionProgress { progress } => self.progress = Some(progress.clone()),
            ToolEvent::ToolCallAudit { audit } => self.notes.absorb(audit),
            ToolEvent::ToolLog { message, .. } => self.log = Some(message.clone()),
            ToolEvent::ToolDenied { .. }
            | ToolEvent::ToolExecutionSucceeded { .. }
            | ToolEvent::ToolExecutionFailed { .. }
            | ToolEvent::ToolExecutionInterrupted { .. }
            | ToolEvent::ToolSkipped { .. } => self.settle(event, at),
        }
    }

    fn settle(&mut self, event: &ToolEvent, at: Timestamp) {
        let status = match event {
            ToolEvent::ToolDenied {
                status,
                approver,
                reason,
                error,
            } => {
                self.decided_by = approver.clone().or(self.decided_by.take());
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
                (self.attempts, self.cached, self.duration_ms) =
                    (*attempts, *cached, Some(*duration_ms));
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
                (self.attempts, self.duration_ms) = (*attempts, Some(*duration_ms));
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
        (self.state, self.settled_at) = (CallState::Settled(status), Some(at));
    }
}
