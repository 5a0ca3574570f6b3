//! The closed list of ways in which an invocation can end.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The status an invocation settled with. A word that is not on this list is an error, never `ok`.
///
/// ```
/// use toolgate_core::Status;
/// assert_eq!("consent_denied".parse(), Ok(Status::Denied));
/// assert!("OK".parse::<Status>().is_err());
/// ```
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The tool succeeded.
    Ok,
    /// No tool of that name is shown to this model.
    ToolNotFound,
    /// The arguments are not JSON, not an object, or break the schema.
    SchemaViolation,
    /// A person or rule denied the call.
    #[serde(rename = "consent_denied")]
    Denied,
    /// The approval request expired without a decision.
    Expired,
    /// Policy forbids the call.
    #[serde(rename = "policy_blocked")]
    Blocked,
    /// The call is outside the stage's scope.
    #[serde(rename = "scope_violation")]
    OutOfScope,
    /// Too many calls.
    RateLimited,
    /// The call would cost more than is left.
    BudgetExceeded,
    /// The model repeats itself.
    LoopGuard,
    /// The tool or its executor reported an error.
    ExecutorError,
    /// The call took too long and its work is known to have stopped.
    Timeout,
    /// The call was stopped before it had an effect.
    Cancelled,
    /// The call may or may not have had its effect.
    OutcomeUnknown,
    /// Redaction failed, so the result is withheld.
    Redacted,
    /// The call was a dry run.
    DryRun,
    /// The tool panicked.
    Exception,
    /// A layer panicked or broke its contract.
    #[serde(rename = "tool_middleware_exception")]
    LayerException,
}

impl Status {
    /// Every status, in the order of the specification.
    pub const ALL: [Self; 18] = [
        Self::Ok,
        Self::ToolNotFound,
        Self::SchemaViolation,
        Self::Denied,
        Self::Expired,
        Self::Blocked,
        Self::OutOfScope,
        Self::RateLimited,
        Self::BudgetExceeded,
        Self::LoopGuard,
        Self::ExecutorError,
        Self::Timeout,
        Self::Cancelled,
        Self::OutcomeUnknown,
        Self::Redacted,
        Self::DryRun,
        Self::Exception,
        Self::LayerException,
    ];

    /// Returns the text that people read: on every screen, in summaries and in the docs.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Ok => "done",
            Self::ToolNotFound => "no such tool",
            Self::SchemaViolation => "invalid arguments",
            Self::Denied => "denied",
            Self::Expired => "approval expired",
            Self::Blocked => "blocked by policy",
            Self::OutOfScope => "out of scope",
            Self::RateLimited => "rate limited",
            Self::BudgetExceeded => "budget exceeded",
            Self::LoopGuard => "loop detected",
            Self::ExecutorError => "failed",
            Self::Timeout => "timed out",
            Self::Cancelled => "cancelled",
            Self::OutcomeUnknown => "outcome unknown",
            Self::Redacted => "result withheld",
            Self::DryRun => "dry run",
            Self::Exception => "the tool panicked",
            Self::LayerException => "a layer failed",
        }
    }

    /// Returns the wire word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ToolNotFound => "tool_not_found",
            Self::SchemaViolation => "schema_violation",
            Self::Denied => "consent_denied",
            Self::Expired => "expired",
            Self::Blocked => "policy_blocked",
            Self::OutOfScope => "scope_violation",
            Self::RateLimited => "rate_limited",
            Self::BudgetExceeded => "budget_exceeded",
            Self::LoopGuard => "loop_guard",
            Self::ExecutorError => "executor_error",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::Redacted => "redacted",
            Self::DryRun => "dry_run",
            Self::Exception => "exception",
            Self::LayerException => "tool_middleware_exception",
        }
    }

    /// Checks whether a person, rule or limit decided that the call must not run.
    pub const fn is_refusal(self) -> bool {
        // Without `_`: a new status has to be classified here, because this decides whether the log
        // says that nothing ran.
        match self {
            Self::Denied
            | Self::Expired
            | Self::Blocked
            | Self::OutOfScope
            | Self::RateLimited
            | Self::BudgetExceeded
            | Self::LoopGuard => true,
            Self::Ok
            | Self::ToolNotFound
            | Self::SchemaViolation
            | Self::ExecutorError
            | Self::Timeout
            | Self::Cancelled
            | Self::OutcomeUnknown
            | Self::Redacted
            | Self::DryRun
            | Self::Exception
            | Self::LayerException => false,
        }
    }
}

/// The ways in which a layer or the runtime refuses a call: it does not run, or its result is
/// withheld. See [`Outcome::refused`](crate::Outcome::refused).
///
/// `ok` is not among them, so a refusal cannot look like a success:
///
/// ```compile_fail
/// use toolgate_core::{Outcome, Status};
/// let outcome = Outcome::refused(Status::Ok, "no");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// No tool of that name is shown to this model.
    ToolNotFound,
    /// The arguments are not JSON, not an object, or break the schema.
    SchemaViolation,
    /// A person or rule denied the call.
    Denied,
    /// The approval request expired without a decision.
    Expired,
    /// Policy forbids the call.
    Blocked,
    /// The call is outside the stage's scope.
    OutOfScope,
    /// Too many calls.
    RateLimited,
    /// The call would cost more than is left.
    BudgetExceeded,
    /// The model repeats itself.
    LoopGuard,
    /// The call was stopped before it had an effect.
    Cancelled,
    /// Redaction failed, so the result is withheld.
    Redacted,
    /// The call was a dry run.
    DryRun,
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::ToolNotFound => Self::ToolNotFound,
            Refusal::SchemaViolation => Self::SchemaViolation,
            Refusal::Denied => Self::Denied,
            Refusal::Expired => Self::Expired,
            Refusal::Blocked => Self::Blocked,
            Refusal::OutOfScope => Self::OutOfScope,
            Refusal::RateLimited => Self::RateLimited,
            Refusal::BudgetExceeded => Self::BudgetExceeded,
            Refusal::LoopGuard => Self::LoopGuard,
            Refusal::Cancelled => Self::Cancelled,
            Refusal::Redacted => Self::Redacted,
            Refusal::DryRun => Self::DryRun,
        }
    }
}

/// The ways in which a call fails that was let through. See
/// [`Outcome::failed_with`](crate::Outcome::failed_with).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Failure {
    /// The tool or its executor reported an error.
    ExecutorError,
    /// The call took too long and its work is known to have stopped.
    Timeout,
    /// The call was stopped before it had an effect.
    Cancelled,
    /// The call may or may not have had its effect.
    OutcomeUnknown,
    /// The tool panicked.
    Exception,
    /// A layer panicked or broke its contract.
    LayerException,
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::ExecutorError => Self::ExecutorError,
            Failure::Timeout => Self::Timeout,
            Failure::Cancelled => Self::Cancelled,
            Failure::OutcomeUnknown => Self::OutcomeUnknown,
            Failure::Exception => Self::Exception,
            Failure::LayerException => Self::LayerException,
        }
    }
}

/// The status of an outcome that has an error: a refusal or a failure, never `ok`.
///
/// ```compile_fail
/// use toolgate_core::{CallError, ErrorCategory, Outcome, Status};
/// let error = CallError::new(ErrorCategory::Internal, "failed");
/// let outcome = Outcome::error(Status::Ok, error);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorStatus(Status);

impl ErrorStatus {
    /// Returns the status of a word on the wire, unless it is `ok`.
    pub fn from_status(status: Status) -> Option<Self> {
        (status != Status::Ok).then_some(Self(status))
    }

    /// Returns the status.
    pub const fn get(self) -> Status {
        self.0
    }
}

impl From<Refusal> for ErrorStatus {
    fn from(refusal: Refusal) -> Self {
        Self(refusal.into())
    }
}

impl From<Failure> for ErrorStatus {
    fn from(failure: Failure) -> Self {
        Self(failure.into())
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A status word that is not on the list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a status")]
pub struct UnknownStatus(String);

impl FromStr for Status {
    type Err = UnknownStatus;
    fn from_str(word: &str) -> Result<Self, UnknownStatus> {
        let found = Self::ALL.into_iter().find(|status| status.as_str() == word);
        found.ok_or_else(|| UnknownStatus(word.chars().take(64).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_serde_agree_for_every_status() {
        for status in Status::ALL {
            assert_eq!(
                serde_json::to_value(status).expect("writes"),
                status.as_str()
            );
            assert_eq!(status.as_str().parse(), Ok(status));
        }
    }

    #[test]
    fn an_unknown_word_is_an_error_never_ok() {
        for word in ["", "OK", "Ok", "success", "allow", "ok ", "null"] {
            assert!(word.parse::<Status>().is_err(), "{word:?}");
            assert!(
                serde_json::from_value::<Status>(word.into()).is_err(),
                "{word:?}"
            );
        }
        assert!(serde_json::from_str::<Status>("null").is_err());
    }
}
