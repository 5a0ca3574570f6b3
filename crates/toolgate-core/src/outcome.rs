//! What came of a call: settled with a status, or suspended until somebody answers.

use std::{borrow::Cow, fmt, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ApprovalRequest, ExecutorTag, Json, Notes, Status, Timestamp, ToolError, ToolOutput};

/// What a layer, an executor or a stack answers.
///
/// Refusals, failures and time-outs are outcomes like any other: the model reads them and can go on.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The call is over.
    Settled(Box<Settled>),
    /// The call waits for something from outside and will enter the stack again.
    Suspended(Box<Suspension>),
}

impl Outcome {
    /// The tool did its work.
    pub fn ok(output: impl Into<ToolOutput>) -> Self {
        let output = output.into();
        match Json::new(output.value) {
            Ok(value) => {
                let mut settled = Settled::new(Status::Ok);
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

    /// The call was not carried out; `text` tells the model why.
    pub fn refused(status: Status, text: impl Into<String>) -> Self {
        Self::error(status, CallError::new(ErrorCategory::of(status), text))
    }

    /// A person or rule said no. The words are fixed, so that every surface says the same.
    pub fn denied(reason: Option<&str>) -> Self {
        Self::refused(Status::Denied, denied_text(reason))
    }

    /// The tool reported an error.
    pub fn failed(error: ToolError) -> Self {
        let status = match error.category {
            ErrorCategory::Cancelled => Status::Cancelled,
            ErrorCategory::Timeout => Status::Timeout,
            _ => Status::ExecutorError,
        };
        Self::error(status, error.into())
    }

    /// Settles with any status and error.
    pub fn error(status: Status, error: CallError) -> Self {
        let mut settled = Settled::new(status);
        settled.error = Some(error);
        Self::Settled(Box::new(settled))
    }

    /// The call waits for a decision.
    pub fn ask(request: ApprovalRequest) -> Self {
        Self::Suspended(Box::new(Suspension::Decision(request)))
    }

    /// The call waits for a result that something outside will deliver.
    pub fn await_result() -> Self {
        Self::Suspended(Box::new(Suspension::Result))
    }

    /// How the call settled, if it did.
    pub fn status(&self) -> Option<Status> {
        self.settled().map(|settled| settled.status)
    }

    /// Whether the call settled well.
    pub fn is_ok(&self) -> bool {
        self.status() == Some(Status::Ok)
    }

    /// The settled part, if the call is over.
    pub fn settled(&self) -> Option<&Settled> {
        match self {
            Self::Settled(settled) => Some(settled),
            Self::Suspended(_) => None,
        }
    }

    /// The settled part for changing, if the call is over.
    pub fn settled_mut(&mut self) -> Option<&mut Settled> {
        match self {
            Self::Settled(settled) => Some(settled),
            Self::Suspended(_) => None,
        }
    }

    /// What the call waits for, if it is not over.
    pub fn suspension(&self) -> Option<&Suspension> {
        match self {
            Self::Settled(_) => None,
            Self::Suspended(suspension) => Some(suspension),
        }
    }

    /// Attaches notes to a settled outcome; a suspended one is left as it is.
    pub fn noting(mut self, write: impl FnOnce(&mut crate::NoteFields)) -> Self {
        if let Self::Settled(settled) = &mut self {
            write(settled.notes.edit());
        }
        self
    }
}

impl From<Settled> for Outcome {
    fn from(settled: Settled) -> Self {
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

/// The fixed words for a denial.
pub fn denied_text(reason: Option<&str>) -> String {
    match reason.map(str::trim).filter(|reason| !reason.is_empty()) {
        Some(reason) => format!("Tool execution denied: {reason}"),
        None => "Tool execution denied.".to_owned(),
    }
}

/// A call that is over. The raw value and what the model reads are kept apart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Settled {
    /// How it ended.
    pub status: Status,
    /// The raw value the tool returned; `null` when it returned none.
    pub value: Json,
    /// What the model reads instead of the plain value, if a tool or layer chose other words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Arc<str>>,
    /// What went wrong, in two voices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<CallError>,
    /// Who ran the call; nobody, if it never ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executor: Option<ExecutorTag>,
    /// How often the executor was started.
    #[serde(default)]
    pub attempts: u32,
    /// Whether the value was remembered from an earlier call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cached: bool,
    /// When the call entered the stack.
    #[serde(default)]
    pub started_at: Timestamp,
    /// When it left.
    #[serde(default)]
    pub ended_at: Timestamp,
    /// What else is remembered.
    #[serde(default, skip_serializing_if = "Notes::is_empty")]
    pub notes: Notes,
}

impl Settled {
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

    /// Exactly what the model is told.
    pub fn model_text(&self) -> Cow<'_, str> {
        match (&self.text, &self.error, self.value.as_value()) {
            (Some(text), _, _) => Cow::Borrowed(text),
            (None, Some(error), _) => Cow::Borrowed(&error.model),
            (None, None, serde_json::Value::String(text)) => Cow::Borrowed(text),
            (None, None, value) => Cow::Owned(value.to_string()),
        }
    }

    /// The size of the raw value in bytes.
    pub fn value_size(&self) -> usize {
        self.value.size()
    }

    /// The size of what the model is told in bytes.
    pub fn model_size(&self) -> usize {
        self.model_text().len()
    }
}

/// What went wrong: a sentence for the model, and detail that only the operator may see.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CallError {
    /// What kind of failure it is.
    pub category: ErrorCategory,
    /// What the model is told.
    pub model: String,
    /// What the operator is told; never shown to the model or on the user's screen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<String>,
}

impl CallError {
    /// An error with words for the model.
    pub fn new(category: ErrorCategory, model: impl Into<String>) -> Self {
        Self {
            category,
            model: model.into(),
            operator: None,
        }
    }

    /// Adds detail for the operator.
    pub fn with_operator(mut self, detail: impl Into<String>) -> Self {
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

/// Why a call went wrong, for programs: retry and circuit breakers decide by this, never by text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorCategory {
    /// The arguments do not fit.
    InvalidInput,
    /// What the call names does not exist.
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
    /// Somebody stopped it.
    Cancelled,
    /// A rule or person refused it.
    Refused,
    /// It may or may not have happened.
    Unknown,
    /// A tool or layer panicked or broke its contract.
    Panic,
    /// Anything else.
    Internal,
}

impl ErrorCategory {
    /// Whether the same call may succeed a little later.
    pub const fn is_transient(self) -> bool {
        matches!(self, Self::Transient | Self::RateLimit)
    }

    /// The category that goes with `status` when nothing more is known.
    pub const fn of(status: Status) -> Self {
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

/// What a suspended call waits for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "waits_for", rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "an outcome holds it in a box")]
pub enum Suspension {
    /// A person or program has to decide.
    Decision(ApprovalRequest),
    /// Something outside runs the tool and will deliver the result.
    Result,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn denied_text_is_fixed() {
        assert_eq!(denied_text(None), "Tool execution denied.");
        assert_eq!(denied_text(Some("  ")), "Tool execution denied.");
        assert_eq!(
            denied_text(Some("too risky")),
            "Tool execution denied: too risky"
        );
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
        assert_eq!(text(Outcome::refused(Status::Blocked, "no")), "no");
    }

    #[test]
    fn a_result_nested_too_deeply_is_an_error_not_a_crash() {
        let deep = (0..10_000).fold(json!(1), |inner, _| serde_json::Value::Array(vec![inner]));
        assert_eq!(Outcome::ok(deep).status(), Some(Status::ExecutorError));
    }

    #[test]
    fn operator_detail_does_not_show_in_debug_output() {
        let error = CallError::new(ErrorCategory::Internal, "failed")
            .with_operator("postgres://u:hunter2@db");
        assert!(!format!("{error:?}").contains("hunter2"));
    }
}
