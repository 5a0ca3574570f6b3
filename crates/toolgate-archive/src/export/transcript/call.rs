//! A call in a transcript, and what the events say about it.

use toolgate_core::{FileChange, Json, Status, Timestamp, ToolEvent};

/// A call with its outcome, as far as there is one.
#[derive(Debug)]
pub(crate) struct TranscriptCall {
    pub(crate) label: String,
    pub(crate) tool: String,
    pub(crate) arguments: String,
    pub(crate) value: Option<Json>,
    pub(crate) result: Option<String>,
    pub(crate) facts: CallFacts,
    pub(crate) is_imported: bool,
}

/// What the events say about a call.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallFacts {
    pub(crate) requested_at: Option<Timestamp>,
    pub(crate) settled_at: Option<Timestamp>,
    pub(crate) status: Option<Status>,
    pub(crate) duration_ms: Option<u64>,
    pub(crate) attempts: u32,
    pub(crate) approver: Option<String>,
    pub(crate) asked: bool,
    pub(crate) is_error: bool,
    pub(crate) files: Vec<FileChange>,
    pub(super) label: String,
    /// The result as events show it.
    pub(super) shown: Option<String>,
}

impl CallFacts {
    pub(super) fn apply(&mut self, event: &ToolEvent, at: Timestamp) {
        match event {
            ToolEvent::ToolRequested { .. } => self.requested_at = Some(at),
            ToolEvent::ToolApprovalRequested(_) => self.asked = true,
            ToolEvent::ToolApproved { approver, .. } => self.approver = Some(approver.to_string()),
            ToolEvent::ToolDenied {
                approver, error, ..
            } => {
                self.approver = approver.as_ref().map(ToString::to_string);
                self.shown = error.clone();
            }
            ToolEvent::ToolExecutionSucceeded {
                duration_ms,
                attempts,
                result,
                model_text,
                ..
            } => {
                self.duration_ms = Some(*duration_ms);
                self.attempts = *attempts;
                self.shown = model_text
                    .clone()
                    .or_else(|| result.as_ref().map(shown_result));
            }
            ToolEvent::ToolExecutionFailed {
                duration_ms,
                attempts,
                error,
                ..
            } => {
                self.duration_ms = Some(*duration_ms);
                self.attempts = *attempts;
                self.shown = Some(error.clone());
            }
            ToolEvent::ToolFilesChanged { changes, .. } => self.files.extend_from_slice(changes),
            ToolEvent::ToolExecutionStarted { .. }
            | ToolEvent::ToolExecutionProgress { .. }
            | ToolEvent::ToolExecutionInterrupted { .. }
            | ToolEvent::ToolSkipped { .. }
            | ToolEvent::ToolCallAudit { .. }
            | ToolEvent::ToolToast(_)
            | ToolEvent::ToolLog { .. } => {}
        }
        if let Some(status) = event.terminal_status() {
            self.status = Some(status);
            self.settled_at = Some(at);
            self.is_error = status != Status::Ok && status != Status::DryRun;
        }
    }
}

impl TranscriptCall {
    /// Returns how the call ended, in words.
    pub(crate) fn state_text(&self) -> &'static str {
        match (self.facts.status, self.is_imported) {
            (Some(status), _) => status.text(),
            (None, true) if self.facts.is_error => "failed, says the program that made it",
            (None, true) if self.result.is_some() => "made by another program",
            (None, true) => "no result",
            (None, false) if self.facts.asked => "pending approval",
            (None, false) => "not settled",
        }
    }
}

/// Returns a result that is text as it is, and any other as JSON.
fn shown_result(json: &Json) -> String {
    json.as_value()
        .as_str()
        .map_or_else(|| pretty_json(json), str::to_owned)
}

pub(super) fn pretty_json(json: &Json) -> String {
    serde_json::to_string_pretty(json.as_value()).unwrap_or_default()
}
