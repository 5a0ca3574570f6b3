//! The outcome of a call: settled with a status, or suspended until an input arrives.

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ApprovalRequest, ErrorStatus, ExecutorTag, Failure, Json, Notes, Refusal, SchemaProblem,
    Status, Timestamp, ToolError, ToolOutput, note_keys,
};

/// The answer of a layer, an executor or a stack.
///
/// Rejections, failures and timeouts are outcomes like any other: the model reads them and can
/// continue.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The call has ended.
    Settled(Box<SettledOutcome>),
    /// The call waits for a decision or an external result and will enter the stack again.
    Suspended(Box<Suspension>),
}

impl Outcome {
    /// Creates the outcome of a tool that succeeded.
    pub fn ok(output: impl Into<ToolOutput>) -> Self {
        let output = output.into();
        // A tool may return any value; one nested too deeply could overflow the stack later.
        match Json::new(output.value) {
            Ok(value) => {
                let mut settled = SettledOutcome::new(Status::Ok);
                settled.value = value;
                settled.text = output.text.map(Into::into);
                settled.notes = output.notes;
                Self::Settled(Box::new(settled))
            }
            Err(error) => Self::failed(ToolError::new(format!(
                "the tool returned a result that is {error}"
            ))),
        }
    }

    /// Creates the outcome of a call that did not run; `text` tells the model why.
    pub fn refused(refusal: Refusal, text: impl Into<String>) -> Self {
        Self::error_with_text(refusal.into(), text)
    }

    /// Creates the outcome of a call that was let through and failed; `text` tells the model why.
    pub fn failed_with(failure: Failure, text: impl Into<String>) -> Self {
        Self::error_with_text(failure.into(), text)
    }

    fn error_with_text(status: ErrorStatus, text: impl Into<String>) -> Self {
        let category = ErrorCategory::for_status(status.get());
        Self::error(status, CallError::new(category, text))
    }

    /// Creates the outcome of a call that a person or rule denied. The text for the model is made
    /// from the reason, and the reason stays beside it in [`CallError::reason`].
    pub fn denied(reason: Option<&str>) -> Self {
        let reason = reason.map(str::trim).filter(|reason| !reason.is_empty());
        let error = CallError {
            reason: reason.map(str::to_owned),
            ..CallError::new(ErrorCategory::Refused, denied_text(reason))
        };
        Self::error(Refusal::Denied, error)
    }

    /// Creates the outcome of a call whose arguments break the schema; the model reads the list.
    pub fn schema_violation(problems: &[SchemaProblem]) -> Self {
        let list: Vec<String> = problems.iter().map(SchemaProblem::to_string).collect();
        let text = format!("The arguments do not fit the schema. {}", list.join("; "));
        Self::refused(Refusal::SchemaViolation, text)
            .with_notes(|notes| notes.insert(note_keys::PROBLEMS, problems))
    }

    /// Creates the outcome of a tool that reported an error.
    pub fn failed(error: ToolError) -> Self {
        let failure = match error.category {
            ErrorCategory::Cancelled => Failure::Cancelled,
            ErrorCategory::Timeout => Failure::Timeout,
            _ => Failure::ExecutorError,
        };
        Self::error(failure, error.into())
    }

    /// Creates an outcome with a refusal or failure and its error.
    pub fn error(status: impl Into<ErrorStatus>, error: CallError) -> Self {
        let mut settled = SettledOutcome::new(status.into().get());
        settled.error = Some(error);
        Self::Settled(Box::new(settled))
    }

    /// Suspends the call until a decision on `request`.
    pub fn await_decision(request: ApprovalRequest) -> Self {
        Self::Suspended(Box::new(Suspension::Decision(request)))
    }

    /// Suspends the call until an external party delivers its result.
    pub fn await_result() -> Self {
        Self::Suspended(Box::new(Suspension::Result))
    }

    /// Returns the status, if the call has settled.
    pub fn status(&self) -> Option<Status> {
        self.settled().map(|settled| settled.status)
    }

    /// Checks whether the call settled as `ok`.
    pub fn is_ok(&self) -> bool {
        self.status() == Some(Status::Ok)
    }

    /// Returns the settled part, if the call has ended.
    pub fn settled(&self) -> Option<&SettledOutcome> {
        match self {
            Self::Settled(settled) => Some(settled),
            Self::Suspended(_) => None,
        }
    }

    /// Returns the settled part for changing, if the call has ended.
    pub fn settled_mut(&mut self) -> Option<&mut SettledOutcome> {
        match self {
            Self::Settled(settled) => Some(settled),
            Self::Suspended(_) => None,
        }
    }

    /// Returns what the call waits for, if it is suspended.
    pub fn suspension(&self) -> Option<&Suspension> {
        match self {
            Self::Settled(_) => None,
            Self::Suspended(suspension) => Some(suspension),
        }
    }

    /// Attaches notes to a settled outcome; a suspended one is left as it is.
    pub fn with_notes(mut self, write: impl FnOnce(&mut crate::NoteFields)) -> Self {
        if let Self::Settled(settled) = &mut self {
            write(settled.notes.fields_mut());
        }
        self
    }
}

impl From<SettledOutcome> for Outcome {
    fn from(settled: SettledOutcome) -> Self {
        Self::Settled(Box::new(settled))
    }
}

impl<T: Into<ToolOutput>> From<Result<T, ToolError>> for Outcome {
    fn from(result: Result<T, ToolError>) -> Self {
        match result {
            Ok(output) => Self::ok(output),
            Err(error) => Self::failed(error),
        }
    }
}

/// Returns the fixed text for a denial.
fn denied_text(reason: Option<&str>) -> String {
    match reason.map(str::trim).filter(|reason| !reason.is_empty()) {
        Some(reason) => format!("Tool execution denied: {reason}"),
        None => "Tool execution denied.".to_owned(),
    }
}

/// The outcome of a call that has ended. The raw value and the text for the model are separate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct SettledOutcome {
    /// The status it ended with.
    pub status: Status,
    /// The raw value the tool returned; `null` when it returned none.
    pub value: Json,
    /// The text for the model instead of the plain value, if a tool or layer set one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Arc<str>>,
    /// The error, with separate texts for the model and the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<CallError>,
    /// The executor that ran the call; `None` if it never ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executor: Option<ExecutorTag>,
    /// The number of times the executor was started.
    #[serde(default)]
    pub attempts: u32,
    /// True if the value was cached from an earlier call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cached: bool,
    /// The time the call entered the stack.
    #[serde(default)]
    pub started_at: Timestamp,
    /// The time it left the stack; while it climbs the stack, the time it left the last layer.
    #[serde(default)]
    pub ended_at: Timestamp,
    /// The notes of tool, layers and runtime.
    #[serde(default, skip_serializing_if = "Notes::is_empty")]
    pub notes: Notes,
}

impl SettledOutcome {
    /// Starts an empty record of a call that ended with `status`.
    pub fn new(status: Status) -> Self {
        Self {
            status,
            value: Json::null(),
            text: None,
            error: None,
            executor: None,
            attempts: 0,
            cached: false,
            started_at: Timestamp::EPOCH,
            ended_at: Timestamp::EPOCH,
            notes: Notes::default(),
        }
    }

    /// Checks whether it is `ok` and has an error, which no constructor of [`Outcome`] makes.
    pub(crate) fn contradicts_itself(&self) -> bool {
        self.status == Status::Ok && self.error.is_some()
    }

    /// Returns exactly the text the model is given.
    pub fn model_text(&self) -> Cow<'_, str> {
        match (&self.text, &self.error, self.value.as_value()) {
            (Some(text), _, _) => Cow::Borrowed(text),
            (None, Some(error), _) => Cow::Borrowed(&error.model),
            (None, None, serde_json::Value::String(text)) => Cow::Borrowed(text),
            (None, None, value) => Cow::Owned(value.to_string()),
        }
    }

    /// Returns the time from entering the stack to the end; inside the stack, the end so far.
    pub fn duration(&self) -> Duration {
        self.ended_at.since(self.started_at)
    }

    /// Returns the size of the raw value in bytes.
    pub fn value_size(&self) -> usize {
        self.value.size()
    }

    /// Returns the size of the text for the model in bytes.
    pub fn model_size(&self) -> usize {
        self.model_text().len()
    }
}

/// An error of a call: a sentence for the model, and detail that only the operator may see.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CallError {
    /// The kind of failure.
    pub category: ErrorCategory,
    /// The text for the model.
    pub model: String,
    /// The reason of a denial in the words of the approver or rule, without the sentence that the
    /// model reads around it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The text for the operator; never shown to the model or on the user's screen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<String>,
}

impl CallError {
    /// Creates an error with a text for the model.
    pub fn new(category: ErrorCategory, model: impl Into<String>) -> Self {
        Self {
            category,
            model: model.into(),
            reason: None,
            operator: None,
        }
    }

    /// Adds detail for the operator.
    pub fn with_operator_detail(mut self, detail: impl Into<String>) -> Self {
        self.operator = Some(detail.into());
        self
    }
}

impl fmt::Debug for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The operator's detail may hold a connection string; `{:?}` ends up in too many places.
        let operator = self
            .operator
            .as_ref()
            .map(|text| format!("<{} bytes>", text.len()));
        let mut out = f.debug_struct("CallError");
        out.field("category", &self.category)
            .field("model", &self.model)
            .field("operator", &operator)
            .finish()
    }
}

/// The kind of an error, for programs: retry and circuit breakers decide by this, never by text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorCategory {
    /// The arguments do not fit.
    InvalidInput,
    /// A thing that the call names does not exist.
    NotFound,
    /// The other side does not permit it.
    Permission,
    /// The state changed underneath.
    Conflict,
    /// Worth another attempt: a lost connection, a busy server.
    Transient,
    /// The other side asks to slow down; worth another attempt later.
    RateLimit,
    /// It took too long.
    Timeout,
    /// It was cancelled.
    Cancelled,
    /// A rule or person rejected it.
    Refused,
    /// It may or may not have happened.
    Unknown,
    /// A tool or layer panicked or broke its contract.
    Panic,
    /// Anything else.
    Internal,
}

impl ErrorCategory {
    /// Checks whether the same call may succeed a little later.
    pub const fn is_transient(self) -> bool {
        matches!(self, Self::Transient | Self::RateLimit)
    }

    /// Returns the category that goes with `status` when nothing more is known.
    pub const fn for_status(status: Status) -> Self {
        match status {
            Status::ToolNotFound => Self::NotFound,
            Status::SchemaViolation => Self::InvalidInput,
            Status::RateLimited => Self::RateLimit,
            Status::Timeout => Self::Timeout,
            Status::Cancelled => Self::Cancelled,
            Status::OutcomeUnknown => Self::Unknown,
            Status::Exception | Status::LayerException => Self::Panic,
            Status::Denied
            | Status::Expired
            | Status::Blocked
            | Status::OutOfScope
            | Status::BudgetExceeded
            | Status::LoopGuard => Self::Refused,
            Status::Ok | Status::ExecutorError | Status::Redacted | Status::DryRun => {
                Self::Internal
            }
        }
    }
}

/// The input that a suspended call waits for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "waits_for", rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "an outcome holds it in a box")]
pub enum Suspension {
    /// A person or program has to decide.
    Decision(ApprovalRequest),
    /// An external party runs the tool and will deliver the result.
    Result,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_text_of_a_denial_is_made_from_its_reason_and_never_the_reason_from_a_text() {
        let error = |outcome: Outcome| {
            let settled = outcome.settled().expect("settled").clone();
            settled.error.expect("an error")
        };
        for (given, reason, text) in [
            (None, None, "Tool execution denied."),
            (Some("  "), None, "Tool execution denied."),
            (
                Some(" too risky "),
                Some("too risky"),
                "Tool execution denied: too risky",
            ),
        ] {
            let error = error(Outcome::denied(given));
            assert_eq!((error.reason.as_deref(), &*error.model), (reason, text));
        }
        let imitated = "Tool execution denied: too risky";
        for outcome in [
            Outcome::refused(Refusal::Denied, imitated),
            Outcome::failed(ToolError::new(imitated)),
        ] {
            let error = error(outcome);
            assert_eq!((error.reason.as_deref(), &*error.model), (None, imitated));
        }
    }

    #[test]
    fn an_error_of_an_earlier_version_has_no_reason_and_is_stored_in_the_same_form() {
        let stored = json!({ "category": "refused", "model": "Tool execution denied: no" });
        let error: CallError = serde_json::from_value(stored.clone()).expect("reads");
        assert_eq!(error.reason, None);
        assert_eq!(serde_json::to_value(error).expect("writes"), stored);
    }

    #[test]
    fn the_model_reads_text_then_error_then_the_value() {
        let text = |outcome: Outcome| {
            outcome
                .settled()
                .expect("settled")
                .model_text()
                .into_owned()
        };
        assert_eq!(text(Outcome::ok("plain")), "plain");
        assert_eq!(text(Outcome::ok(json!({ "a": 1 }))), r#"{"a":1}"#);
        assert_eq!(
            text(Outcome::ok(ToolOutput::from(json!([1])).with_text("one"))),
            "one"
        );
        assert_eq!(text(Outcome::refused(Refusal::Blocked, "no")), "no");
    }

    #[test]
    fn a_result_nested_too_deeply_is_an_error_not_a_crash() {
        let deep = (0..10_000).fold(json!(1), |inner, _| serde_json::Value::Array(vec![inner]));
        assert_eq!(Outcome::ok(deep).status(), Some(Status::ExecutorError));
    }

    #[test]
    fn operator_detail_does_not_show_in_debug_output() {
        let error = CallError::new(ErrorCategory::Internal, "failed")
            .with_operator_detail("postgres://u:hunter2@db");
        assert!(!format!("{error:?}").contains("hunter2"));
    }
}
