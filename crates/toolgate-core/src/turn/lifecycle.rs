//! The lifecycle of one invocation: its phases, its events, and the one function that says which
//! event may follow.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ApprovalRequest, ApproverIdentity, Digest, ErrorCategory, ExecutorTag, FileChange,
    IdentitySource, Json, LogLevel, Notes, Principal, Progress, SettledOutcome, Status,
    ToastNotice,
};

/// The phase of one invocation; `SettledOutcome` is the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The model asked for it.
    Requested,
    /// A person or program has to decide.
    AwaitingApproval,
    /// It may run.
    Approved,
    /// It runs in this process or on a server we call.
    Running,
    /// An external party runs it and will deliver the result.
    AwaitingResult,
    /// It has ended.
    Settled(Status),
}

impl Phase {
    /// Returns the phase after `event`.
    ///
    /// An invocation begins with `tool_requested`, so that event is never legal in a phase.
    ///
    /// # Errors
    ///
    /// [`IllegalEvent`] if the event cannot happen in this phase.
    pub fn apply(self, event: &ToolEvent) -> Result<Self, IllegalEvent> {
        use ToolEvent as E;
        let illegal = || IllegalEvent {
            from: self,
            event: event.name(),
        };
        match (self, event) {
            // Before the arm for notes, which accepts every other phase: nothing follows the end.
            (Self::Settled(_), _) => Err(illegal()),
            // Notes, log lines and what is reported for people change nothing.
            (
                open,
                E::ToolCallAudit { .. }
                | E::ToolLog { .. }
                | E::ToolFilesChanged { .. }
                | E::ToolToast(_),
            ) => Ok(open),
            // The first request; another one because something changed since, or in place of one that
            // cannot be decided; or a running tool, such as an agent, that needs approval itself.
            (
                Self::Requested | Self::AwaitingApproval | Self::Approved | Self::Running,
                E::ToolApprovalRequested(_),
            ) => Ok(Self::AwaitingApproval),
            // A standing rule approves without an approval request.
            (Self::Requested | Self::AwaitingApproval, E::ToolApproved { .. }) => {
                Ok(Self::Approved)
            }
            // A retry starts the next attempt of a running call.
            (
                Self::Requested | Self::Approved | Self::Running | Self::AwaitingResult,
                E::ToolExecutionStarted { external, .. },
            ) => Ok(if *external {
                Self::AwaitingResult
            } else {
                Self::Running
            }),
            (Self::Running | Self::AwaitingResult, E::ToolExecutionProgress { .. }) => Ok(self),
            // Never after the start: "denied" and "skipped" promise that nothing happened.
            (
                Self::Requested | Self::AwaitingApproval | Self::Approved,
                E::ToolDenied { status, .. },
            ) => Ok(Self::Settled(*status)),
            (Self::Requested | Self::Approved, E::ToolSkipped { .. }) => {
                Ok(Self::Settled(Status::DryRun))
            }
            // Without a start: the result was cached from an earlier call.
            // Not while approval is pending: success would mean that it ran without the decision.
            (
                Self::Requested | Self::Approved | Self::Running | Self::AwaitingResult,
                E::ToolExecutionSucceeded { .. },
            ) => Ok(Self::Settled(Status::Ok)),
            // Without a start: unknown tool, invalid arguments, a layer that failed.
            (
                Self::Requested
                | Self::AwaitingApproval
                | Self::Approved
                | Self::Running
                | Self::AwaitingResult,
                E::ToolExecutionFailed { status, .. } | E::ToolExecutionInterrupted { status, .. },
            ) => Ok(Self::Settled(*status)),
            (from, _) => Err(IllegalEvent {
                from,
                event: event.name(),
            }),
        }
    }

    /// Checks whether the invocation has ended.
    pub const fn is_settled(self) -> bool {
        matches!(self, Self::Settled(_))
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requested => f.write_str("requested"),
            Self::AwaitingApproval => f.write_str("awaiting approval"),
            Self::Approved => f.write_str("approved"),
            Self::Running => f.write_str("running"),
            Self::AwaitingResult => f.write_str("awaiting result"),
            Self::Settled(status) => write!(f, "settled as {status}"),
        }
    }
}

/// An event that cannot happen in the phase the invocation is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{event} cannot happen to an invocation that is {from}")]
pub struct IllegalEvent {
    /// The phase of the invocation.
    pub from: Phase,
    /// The event's wire name.
    pub event: &'static str,
}

/// An event in the life of one invocation. These events are stored, streamed and shown; nothing
/// else is authoritative.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToolEvent {
    /// The model asked for the call.
    ToolRequested {
        /// The arguments, redacted for display; absent if redaction failed or they are too large.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<Json>,
        /// The digest of the arguments as the model wrote them.
        arguments_digest: Digest,
        /// Their size in bytes.
        arguments_bytes: u64,
        /// The executor that will run it, if the tool is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        executor: Option<ExecutorTag>,
    },
    /// Approval is requested.
    ToolApprovalRequested(Box<ApprovalRequest>),
    /// The call was approved.
    ToolApproved {
        /// The approver.
        approver: Principal,
        /// How the approver was established.
        #[serde(default, skip_serializing_if = "IdentitySource::is_claimed")]
        established: IdentitySource,
        /// Another name that the approver gave.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        claimed_as: Option<Principal>,
        /// The approver's reason, if given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// True if the approver changed the arguments.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        edited: bool,
        /// True if the approver has acknowledged that the request was not shown in full.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unseen: bool,
        /// The other approvers, if a quorum was needed. Events of earlier versions do not name them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        with: Vec<ApproverIdentity>,
    },
    /// The call was denied or blocked before it started.
    ToolDenied {
        /// The status that says how.
        status: Status,
        /// The approver, if a person denied it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approver: Option<Principal>,
        /// How that person was established.
        #[serde(default, skip_serializing_if = "IdentitySource::is_claimed")]
        established: IdentitySource,
        /// The reason of a denial, in the words of the approver or rule. Events of earlier versions
        /// have it only in `error`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// The text that the model is given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// The executor is being started.
    ToolExecutionStarted {
        /// The number of the attempt, counted from 1.
        attempt: u32,
        /// The executor that runs it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        executor: Option<ExecutorTag>,
        /// True if an external party runs it and will deliver the result.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        external: bool,
        /// The digest of the arguments that reach the executor.
        arguments_digest: Digest,
        /// These arguments, redacted, if they are not the requested ones: an approver or a layer
        /// changed them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<Json>,
    },
    /// The tool reports progress.
    ToolExecutionProgress {
        /// The progress.
        progress: Progress,
    },
    /// The tool succeeded.
    ToolExecutionSucceeded {
        /// The result, redacted for display; absent if redaction failed or it is too large.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<Json>,
        /// The digest of the raw result.
        result_digest: Digest,
        /// The size of the raw result in bytes.
        result_bytes: u64,
        /// The size of the text for the model in bytes.
        model_bytes: u64,
        /// The beginning of the text for the model, redacted; absent if it is the result itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model_text: Option<String>,
        /// The number of times the executor was started; 0 if the result was cached.
        attempts: u32,
        /// True if the result was cached from an earlier call.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        cached: bool,
        /// The time the call spent in the stack, in milliseconds.
        duration_ms: u64,
    },
    /// The call failed.
    ToolExecutionFailed {
        /// The status that says how.
        status: Status,
        /// The text for the model.
        error: String,
        /// The kind of failure.
        category: ErrorCategory,
        /// The number of times the executor was started.
        attempts: u32,
        /// The time the call spent in the stack, in milliseconds.
        duration_ms: u64,
    },
    /// The call was stopped.
    ToolExecutionInterrupted {
        /// `cancelled`, or `outcome_unknown` where the effect may have happened.
        status: Status,
        /// The reason.
        reason: String,
    },
    /// The call was a dry run.
    ToolSkipped {
        /// The effect the call would have had.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Layers or the tool attached notes.
    ToolCallAudit {
        /// The notes.
        audit: Notes,
    },
    /// The call has changed files.
    ToolFilesChanged {
        /// The changes, with redacted paths. The tool and the call are those of the event.
        changes: Vec<FileChange>,
        /// The number of further changes that are not listed.
        #[serde(default, skip_serializing_if = "is_zero")]
        omitted: u64,
    },
    /// A message for the people at the screen. It says nothing about the phase of the invocation.
    ToolToast(ToastNotice),
    /// A diagnostic line. It says nothing about the phase of the invocation.
    ToolLog {
        /// The importance.
        level: LogLevel,
        /// The line.
        message: String,
    },
}

/// Checks whether there is nothing to write.
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl ToolEvent {
    /// Returns the event's wire name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::ToolRequested { .. } => "tool_requested",
            Self::ToolApprovalRequested(_) => "tool_approval_requested",
            Self::ToolApproved { .. } => "tool_approved",
            Self::ToolDenied { .. } => "tool_denied",
            Self::ToolExecutionStarted { .. } => "tool_execution_started",
            Self::ToolExecutionProgress { .. } => "tool_execution_progress",
            Self::ToolExecutionSucceeded { .. } => "tool_execution_succeeded",
            Self::ToolExecutionFailed { .. } => "tool_execution_failed",
            Self::ToolExecutionInterrupted { .. } => "tool_execution_interrupted",
            Self::ToolSkipped { .. } => "tool_skipped",
            Self::ToolCallAudit { .. } => "tool_call_audit",
            Self::ToolFilesChanged { .. } => "tool_files_changed",
            Self::ToolToast(_) => "tool_toast",
            Self::ToolLog { .. } => "tool_log",
        }
    }

    /// Returns the status the invocation settles with, if this event ends it.
    pub const fn terminal_status(&self) -> Option<Status> {
        match self {
            Self::ToolDenied { status, .. }
            | Self::ToolExecutionFailed { status, .. }
            | Self::ToolExecutionInterrupted { status, .. } => Some(*status),
            Self::ToolExecutionSucceeded { .. } => Some(Status::Ok),
            Self::ToolSkipped { .. } => Some(Status::DryRun),
            Self::ToolRequested { .. }
            | Self::ToolApprovalRequested(_)
            | Self::ToolApproved { .. }
            | Self::ToolExecutionStarted { .. }
            | Self::ToolExecutionProgress { .. }
            | Self::ToolCallAudit { .. }
            | Self::ToolFilesChanged { .. }
            | Self::ToolToast(_)
            | Self::ToolLog { .. } => None,
        }
    }

    /// Creates the event that ends an invocation with this outcome. `started` is true if its
    /// executor ever was.
    pub fn from_settled(
        settled: &SettledOutcome,
        started: bool,
        approver: Option<ApproverIdentity>,
        shown: Option<Json>,
    ) -> Self {
        let said = |fallback: &str| match &settled.error {
            Some(error) if !error.model.trim().is_empty() => error.model.clone(),
            _ => fallback.to_owned(),
        };
        let duration_ms = u64::try_from(settled.ended_at.since(settled.started_at).as_millis())
            .unwrap_or(u64::MAX);
        match settled.status {
            Status::Ok => Self::ToolExecutionSucceeded {
                result: shown,
                result_digest: settled.value.digest(),
                result_bytes: settled.value_size() as u64,
                model_bytes: settled.model_size() as u64,
                model_text: settled.text.as_deref().map(str::to_owned),
                attempts: settled.attempts,
                cached: settled.cached,
                duration_ms,
            },
            // Only without a start: "skipped" promises that nothing ran.
            Status::DryRun if !started => Self::ToolSkipped {
                reason: settled.error.as_ref().map(|e| e.model.clone()),
            },
            Status::Cancelled | Status::OutcomeUnknown => Self::ToolExecutionInterrupted {
                status: settled.status,
                reason: said("interrupted"),
            },
            // After a start, a denial of what the running tool asked for is a failure: "denied"
            // promises that nothing ran.
            status if status.is_refusal() && !started => Self::ToolDenied {
                status,
                established: approver
                    .as_ref()
                    .map_or(IdentitySource::Claimed, |by| by.established.clone()),
                approver: approver.map(|by| by.name),
                reason: settled.error.as_ref().and_then(|e| e.reason.clone()),
                error: Some(said("refused")),
            },
            status => Self::ToolExecutionFailed {
                status,
                error: said(status.as_str()),
                category: settled
                    .error
                    .as_ref()
                    .map_or(ErrorCategory::for_status(status), |e| e.category),
                attempts: settled.attempts,
                duration_ms,
            },
        }
    }

    /// Checks what the types alone do not guarantee; the error names the field.
    pub(crate) fn check_fields(&self) -> Result<(), (&'static str, &'static str)> {
        let blank = |text: &Option<String>| text.as_ref().is_none_or(|text| text.trim().is_empty());
        match self {
            Self::ToolDenied { status, .. } if !status.is_refusal() => {
                Err(("status", "is not a refusal"))
            }
            // Without either, neither the model nor the user could act on the denial.
            Self::ToolDenied { reason, error, .. } if blank(reason) && blank(error) => {
                Err(("reason", "is missing, and so is error"))
            }
            Self::ToolExecutionFailed { error, .. } if error.trim().is_empty() => {
                Err(("error", "is empty"))
            }
            Self::ToolExecutionFailed {
                status: Status::Ok | Status::Cancelled | Status::OutcomeUnknown,
                ..
            } => Err(("status", "is not a failure")),
            Self::ToolExecutionInterrupted { status, .. }
                if !matches!(status, Status::Cancelled | Status::OutcomeUnknown) =>
            {
                Err(("status", "is not an interruption"))
            }
            Self::ToolExecutionStarted { attempt: 0, .. } => Err(("attempt", "counts from 1")),
            Self::ToolApproved { approver, .. } if approver.as_str().is_empty() => {
                Err(("approver", "is empty"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ApprovalRequest, Arguments, Call};
    use Phase::{Approved, AwaitingApproval, AwaitingResult, Requested, Running, Settled};

    fn events() -> Vec<ToolEvent> {
        let digest = Digest::of_bytes(b"");
        let call = Call::detached("t", Arguments::empty());
        let started = |external| ToolEvent::ToolExecutionStarted {
            attempt: 1,
            executor: None,
            external,
            arguments_digest: digest,
            arguments: None,
        };
        let mut all = vec![
            ToolEvent::ToolRequested {
                arguments: None,
                arguments_digest: digest,
                arguments_bytes: 0,
                executor: None,
            },
            ToolEvent::ToolApprovalRequested(Box::new(ApprovalRequest::for_call(&call))),
            ToolEvent::ToolApproved {
                approver: "ann".into(),
                established: Default::default(),
                claimed_as: None,
                reason: None,
                edited: false,
                unseen: false,
                with: Vec::new(),
            },
            started(false),
            started(true),
            ToolEvent::ToolExecutionProgress {
                progress: Progress::busy(),
            },
            ToolEvent::ToolCallAudit {
                audit: Notes::default(),
            },
            ToolEvent::ToolFilesChanged {
                changes: vec![FileChange::new("a", crate::FileChangeKind::Created)],
                omitted: 0,
            },
            ToolEvent::ToolToast(ToastNotice {
                level: crate::ToastLevel::Info,
                title: "t".into(),
                message: "hi".into(),
                duration_ms: None,
                action: None,
            }),
            ToolEvent::ToolLog {
                level: LogLevel::Info,
                message: "hi".into(),
            },
        ];
        for status in Status::ALL {
            for ran in [false, true] {
                all.push(ToolEvent::from_settled(
                    &crate::SettledOutcome::new(status),
                    ran,
                    None,
                    None,
                ));
            }
        }
        all
    }

    fn phases() -> Vec<Phase> {
        let open = [
            Requested,
            AwaitingApproval,
            Approved,
            Running,
            AwaitingResult,
        ];
        open.into_iter().chain(Status::ALL.map(Settled)).collect()
    }

    /// Returns the expected phase by a second copy of the rules: a table of (from, event name, to).
    fn expected(from: Phase, event: &ToolEvent) -> Option<Phase> {
        let external = matches!(
            event,
            ToolEvent::ToolExecutionStarted { external: true, .. }
        );
        let running = if external { AwaitingResult } else { Running };
        let end = event.terminal_status().map(Settled);
        type Row<'a> = (Phase, &'a [(&'a str, Option<Phase>)]);
        let rows: &[Row<'_>] = &[
            (
                Requested,
                &[
                    ("tool_approval_requested", Some(AwaitingApproval)),
                    ("tool_approved", Some(Approved)),
                    ("tool_denied", end),
                    ("tool_execution_started", Some(running)),
                    ("tool_execution_succeeded", end),
                    ("tool_execution_failed", end),
                    ("tool_execution_interrupted", end),
                    ("tool_skipped", end),
                    ("tool_call_audit", Some(Requested)),
                    ("tool_files_changed", Some(Requested)),
                    ("tool_toast", Some(Requested)),
                    ("tool_log", Some(Requested)),
                ],
            ),
            (
                AwaitingApproval,
                &[
                    ("tool_approval_requested", Some(AwaitingApproval)),
                    ("tool_approved", Some(Approved)),
                    ("tool_denied", end),
                    ("tool_execution_failed", end),
                    ("tool_execution_interrupted", end),
                    ("tool_call_audit", Some(AwaitingApproval)),
                    ("tool_files_changed", Some(AwaitingApproval)),
                    ("tool_toast", Some(AwaitingApproval)),
                    ("tool_log", Some(AwaitingApproval)),
                ],
            ),
            (
                Approved,
                &[
                    ("tool_approval_requested", Some(AwaitingApproval)),
                    ("tool_denied", end),
                    ("tool_execution_started", Some(running)),
                    ("tool_execution_succeeded", end),
                    ("tool_execution_failed", end),
                    ("tool_execution_interrupted", end),
                    ("tool_skipped", end),
                    ("tool_call_audit", Some(Approved)),
                    ("tool_files_changed", Some(Approved)),
                    ("tool_toast", Some(Approved)),
                    ("tool_log", Some(Approved)),
                ],
            ),
            (
                Running,
                &[
                    ("tool_approval_requested", Some(AwaitingApproval)),
                    ("tool_execution_started", Some(running)),
                    ("tool_execution_progress", Some(Running)),
                    ("tool_execution_succeeded", end),
                    ("tool_execution_failed", end),
                    ("tool_execution_interrupted", end),
                    ("tool_call_audit", Some(Running)),
                    ("tool_files_changed", Some(Running)),
                    ("tool_toast", Some(Running)),
                    ("tool_log", Some(Running)),
                ],
            ),
            (
                AwaitingResult,
                &[
                    ("tool_execution_started", Some(running)),
                    ("tool_execution_progress", Some(AwaitingResult)),
                    ("tool_execution_succeeded", end),
                    ("tool_execution_failed", end),
                    ("tool_execution_interrupted", end),
                    ("tool_call_audit", Some(AwaitingResult)),
                    ("tool_files_changed", Some(AwaitingResult)),
                    ("tool_toast", Some(AwaitingResult)),
                    ("tool_log", Some(AwaitingResult)),
                ],
            ),
        ];
        let row = rows.iter().find(|(phase, _)| *phase == from)?;
        row.1.iter().find(|(name, _)| *name == event.name())?.1
    }

    #[test]
    fn only_the_listed_events_are_legal() {
        for from in phases() {
            for event in events() {
                assert_eq!(
                    from.apply(&event).ok(),
                    expected(from, &event),
                    "{from:?}, {}",
                    event.name()
                );
            }
        }
    }

    #[test]
    fn every_way_to_settle_has_a_valid_event_whether_it_started_or_not() {
        for status in Status::ALL {
            for started in [false, true] {
                let event = ToolEvent::from_settled(
                    &crate::SettledOutcome::new(status),
                    started,
                    None,
                    None,
                );
                assert_eq!(event.check_fields(), Ok(()), "{status} {started}");
                assert_eq!(event.terminal_status(), Some(status));
                let from = if started { Running } else { Requested };
                assert_eq!(
                    from.apply(&event),
                    Ok(Settled(status)),
                    "{status} {started}"
                );
            }
        }
    }
}
