//! Toolgate's tools for an agent of rig: each call passes the gate, although rig runs the loop.
//!
//! The agent keeps its own loop, its own model and its own history. Its tools decide, limit and
//! record by themselves: a denial comes back as a result that the model reads, and the receipt is in
//! the store.

pub mod shop;

use rig_core::{
    message::{EmptyToolName, ToolName},
    tool::{DynamicTool, ToolErrorKind, ToolExecutionError, ToolOutput},
};
use toolgate::{
    Status,
    session::{ArmedError, ArmedOutcome, ArmedTool},
};

/// Converts the tools of a session into tools of rig.
pub fn for_rig(tools: Vec<ArmedTool>) -> Result<Vec<DynamicTool>, EmptyToolName> {
    tools.into_iter().map(tool_for_rig).collect()
}

/// Converts one tool of a session into a tool of rig.
pub fn tool_for_rig(tool: ArmedTool) -> Result<DynamicTool, EmptyToolName> {
    let spec = tool.spec().clone();
    let name = ToolName::new(spec.name.as_str())?;
    let schema = spec.input.as_json().as_value().clone();
    Ok(DynamicTool::new(
        name,
        spec.description,
        schema,
        move |arguments| {
            let tool = tool.clone();
            // Rig does not pass on the provider's call id, so Toolgate assigns one.
            Box::pin(async move { to_rig_result(tool.call("", &arguments.to_string()).await) })
        },
    ))
}

/// Converts the outcome for rig. The text is Toolgate's; rig's hooks and traces use the kind.
fn to_rig_result(
    called: Result<ArmedOutcome, ArmedError>,
) -> Result<ToolOutput, ToolExecutionError> {
    let outcome = match called {
        Ok(outcome) => outcome,
        Err(waits @ ArmedError::Suspended(_)) => {
            let text = format!("{waits}; do not call it again");
            return Err(ToolExecutionError::refused(text.as_str()).with_model_feedback(text));
        }
        // Toolgate itself failed. The reason is for the operator.
        Err(error) => return Err(ToolExecutionError::from_error(error)),
    };
    match outcome.status {
        Status::Ok | Status::DryRun => Ok(ToolOutput::text(outcome.text)),
        status if status.is_refusal() => {
            Err(ToolExecutionError::refused(outcome.text.as_str())
                .with_model_feedback(outcome.text))
        }
        status => {
            let error = ToolExecutionError::new(to_rig_error_kind(status), outcome.text.as_str());
            // Toolgate has already retried what may be retried.
            Err(error
                .with_retryable(false)
                .with_model_feedback(outcome.text))
        }
    }
}

fn to_rig_error_kind(status: Status) -> ToolErrorKind {
    match status {
        Status::SchemaViolation => ToolErrorKind::InvalidArgs,
        Status::ToolNotFound => ToolErrorKind::NotFound,
        Status::Timeout => ToolErrorKind::Timeout,
        Status::Cancelled => ToolErrorKind::Cancelled,
        _ => ToolErrorKind::Other,
    }
}
