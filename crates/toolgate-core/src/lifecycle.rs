//! The life of one invocation: the phases, the events that move it along, and the one function that says which may follow.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ApprovalRequest, Digest, ErrorCategory, ExecutorTag, Json, LogLevel, Notes, Principal,
    Progress, Settled, Status,
};

/// Where one invocation stands; `Settled` is the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The model asked for it.
    Requested,
    /// A person or program has to decide.
    AwaitingApproval,
    /// It may run.
    Approved,
    /// It runs in this process or a server we talk to.
    Running,
    /// Something outside runs it and will deliver the result.
    AwaitingResult,
    /// It is over.
    Settled(Status),
}

impl Phase {
    /// Returns the phase after `event`, or why the event cannot happen here.
    ///
    /// An invocation is born with `tool_requested`, so that event is never legal in a phase.
    pub fn apply(self, event: &ToolEvent) -> Result<Self, IllegalEvent> {
        use ToolEvent as E;
        let illegal = || IllegalEvent {
            from: self,
            event: event.name(),
        };
        match (self, event) {
            (Self::Settled(_), _) => Err(illegal()),
            // Remarks change nothing.
            (open, E::ToolCallAudit { .. } | E::ToolLog { .. }) => Ok(open),
            // Asked for the first time; asked again because something changed; or a tool that runs an agent
            // of its own and has to ask for it.
            (Self::Requested | Self::Approved | Self::Running, E::ToolApprovalRequested(_)) => {
                Ok(Self::AwaitingApproval)
            }
            // A standing rule approves without a question.
            (Self::Requested | Self::AwaitingApproval, E::ToolApproved { .. }) => {
                Ok(Self::Approved)
            }
            // The next attempt of a running call starts again.
            (
                Self::Requested | Self::Approved | Self::Running | Self::AwaitingResult,
                E::ToolExecutionStarted { external, .. },
            ) => Ok(if *external {
                Self::AwaitingResult
            } else {
                Self::Running
            }),
            (Self::Running | Self::AwaitingResult, E::ToolExecutionProgress { .. }) => Ok(self),
            // Nothing that has started is ever called denied or skipped.
            (
                Self::Requested | Self::AwaitingApproval | Self::Approved,
                E::ToolDenied { status, .. },
            ) => Ok(Self::Settled(*status)),
            (Self::Requested | Self::Approved, E::ToolSkipped { .. }) => {
                Ok(Self::Settled(Status::DryRun))
            }
            // Without having started: remembered from an earlier call.
            (
                Self::Requested | Self::Approved | Self::Running | Self::AwaitingResult,
                E::ToolExecutionSucceeded { .. },
            ) => Ok(Self::Settled(Status::Ok)),
            // Without having started: unknown tool, bad arguments, a layer that failed.
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

    /// Whether the invocation is over.
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
    /// Where the invocation stood.
    pub from: Phase,
    /// The word of the event.
    pub event: &'static str,
}

/// What happens to one invocation. These events are stored, streamed and shown; nothing else has authority.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToolEvent {
    /// The model asked for the call.
    ToolRequested {
        /// The arguments, redacted for display; left out if they could not be or are too large.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<Json>,
        /// The digest of the arguments as the model wrote them.
        arguments_digest: Digest,
        /// Their size in bytes.
        arguments_bytes: u64,
        /// Who will run it, if the tool is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        executor: Option<ExecutorTag>,
    },
    /// Somebody has to decide.
    ToolApprovalRequested(Box<ApprovalRequest>),
    /// Somebody said yes.
    ToolApproved {
        /// Who.
        approver: Principal,
        /// Why, if they said so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Whether they changed the arguments.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        edited: bool,
    },
    /// The call was refused before it started.
    ToolDenied {
        /// In which way.
        status: Status,
        /// Who refused, if a person did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approver: Option<Principal>,
        /// Why, as the decider put it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Why, as the model is told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// The executor is being started.
    ToolExecutionStarted {
        /// Which attempt, counted from 1.
        attempt: u32,
        /// Who runs it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        executor: Option<ExecutorTag>,
        /// Whether something outside runs it and will deliver the result.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        external: bool,
        /// The digest of the arguments that reach the executor.
        arguments_digest: Digest,
    },
    /// The tool has come further.
    ToolExecutionProgress {
        /// How far.
        progress: Progress,
    },
    /// The tool did its work.
    ToolExecutionSucceeded {
        /// The result, redacted for display; left out if it could not be or is too large.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<Json>,
        /// The digest of the raw result.
        result_digest: Digest,
        /// The size of the raw result in bytes.
        result_bytes: u64,
        /// The size of what the model is told in bytes.
        model_bytes: u64,
        /// How often the executor was started; 0 if the result was remembered.
        attempts: u32,
        /// Whether the result was remembered from an earlier call.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        cached: bool,
        /// How long the call was in the stack, in milliseconds.
        duration_ms: u64,
    },
    /// The call could not be carried out.
    ToolExecutionFailed {
        /// In which way.
        status: Status,
        /// What the model is told.
        error: String,
        /// What kind of failure it is.
        category: ErrorCategory,
        /// How often the executor was started.
        attempts: u32,
        /// How long the call was in the stack, in milliseconds.
        duration_ms: u64,
    },
    /// The call was stopped.
    ToolExecutionInterrupted {
        /// `cancelled`, or `outcome_unknown` where the effect may have happened.
        status: Status,
        /// Why.
        reason: String,
    },
    /// The call was only pretended.
    ToolSkipped {
        /// What would have happened.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Layers or the tool attached notes.
    ToolCallAudit {
        /// The notes.
        audit: Notes,
    },
    /// A diagnostic line. It never says anything about the life of the invocation.
    ToolLog {
        /// How important.
        level: LogLevel,
        /// The line.
        message: String,
    },
}

impl ToolEvent {
    /// The word on the wire.
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
            Self::ToolLog { .. } => "tool_log",
        }
    }

    /// The status the invocation settles with, if this event ends it.
    pub const fn terminal(&self) -> Option<Status> {
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
            | Self::ToolLog { .. } => None,
        }
    }

    /// The event that ends an invocation with this outcome. `started` says whether its executor ever was.
    pub fn settling(
        settled: &Settled,
        started: bool,
        approver: Option<Principal>,
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
                attempts: settled.attempts,
                cached: settled.cached,
                duration_ms,
            },
            Status::DryRun if !started => Self::ToolSkipped {
                reason: settled.error.as_ref().map(|e| e.model.clone()),
            },
            Status::Cancelled | Status::OutcomeUnknown => Self::ToolExecutionInterrupted {
                status: settled.status,
                reason: said("interrupted"),
            },
            status if status.is_refusal() && !started => Self::ToolDenied {
                status,
                approver,
                reason: None,
                error: Some(said("refused")),
            },
            status => Self::ToolExecutionFailed {
                status,
                error: said(status.as_str()),
                category: settled
                    .error
                    .as_ref()
                    .map_or(ErrorCategory::of(status), |e| e.category),
                attempts: settled.attempts,
                duration_ms,
            },
        }
    }

    /// Checks what the types alone do not say; the error names the field.
    pub(crate) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let blank = |text: &Option<String>| text.as_ref().is_none_or(|text| text.trim().is_empty());
        match self {
            Self::ToolDenied { status, .. } if !status.is_refusal() => {
                Err(("status", "is not a refusal"))
            }
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
        };
        let mut all = vec![
            ToolEvent::ToolRequested {
                arguments: None,
                arguments_digest: digest,
                arguments_bytes: 0,
                executor: None,
            },
            ToolEvent::ToolApprovalRequested(Box::new(ApprovalRequest::about(&call))),
            ToolEvent::ToolApproved {
                approver: "ann".into(),
                reason: None,
                edited: false,
            },
            started(false),
            started(true),
            ToolEvent::ToolExecutionProgress {
                progress: Progress::busy(),
            },
            ToolEvent::ToolCallAudit {
                audit: Notes::default(),
            },
            ToolEvent::ToolLog {
                level: LogLevel::Info,
                message: "hi".into(),
            },
        ];
        for status in Status::ALL {
            for ran in [false, true] {
                all.push(ToolEvent::settling(
                    &crate::Settled::new(status),
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

    /// The rules once more, as a table of (from, event word, to).
    fn expected(from: Phase, event: &ToolEvent) -> Option<Phase> {
        let external = matches!(
            event,
            ToolEvent::ToolExecutionStarted { external: true, .. }
        );
        let running = if external { AwaitingResult } else { Running };
        let end = event.terminal().map(Settled);
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
                    ("tool_log", Some(Requested)),
                ],
            ),
            (
                AwaitingApproval,
                &[
                    ("tool_approved", Some(Approved)),
                    ("tool_denied", end),
                    ("tool_execution_failed", end),
                    ("tool_execution_interrupted", end),
                    ("tool_call_audit", Some(AwaitingApproval)),
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
                let event = ToolEvent::settling(&crate::Settled::new(status), started, None, None);
                assert_eq!(event.check(), Ok(()), "{status} {started}");
                assert_eq!(event.terminal(), Some(status));
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
