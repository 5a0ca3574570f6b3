//! Toolgate's tools for an agent of rig: each call passes the gate, whatever loop makes it.
//!
//! The agent keeps its own loop, its own model and its own history. What it is given are tools that decide, bound and
//! record by themselves: a refusal comes back as a result that the model reads, and the receipt is in the store.

use rig_core::{
    message::{EmptyToolName, ToolName},
    tool::{DynamicTool, ToolErrorKind, ToolExecutionError, ToolOutput},
};
use toolgate::{ArmedError, ArmedOutcome, ArmedTool, Status};

/// The tools of a session as tools of rig.
pub fn for_rig(tools: Vec<ArmedTool>) -> Result<Vec<DynamicTool>, EmptyToolName> {
    tools.into_iter().map(tool_for_rig).collect()
}

/// One tool of a session as a tool of rig.
pub fn tool_for_rig(tool: ArmedTool) -> Result<DynamicTool, EmptyToolName> {
    let spec = tool.spec().clone();
    let (name, schema) = (
        ToolName::new(spec.name.as_str())?,
        spec.input.as_json().as_value().clone(),
    );
    Ok(DynamicTool::new(
        name,
        spec.description,
        schema,
        move |arguments| {
            let tool = tool.clone();
            // Rig keeps the provider's label of the call to itself, so it gets one of ours.
            Box::pin(async move { for_the_model(tool.call("", &arguments.to_string()).await) })
        },
    ))
}

/// What rig tells its model. The words are Toolgate's; the kind is what rig's hooks and traces go by.
fn for_the_model(
    called: Result<ArmedOutcome, ArmedError>,
) -> Result<ToolOutput, ToolExecutionError> {
    let outcome = match called {
        Ok(outcome) => outcome,
        Err(waits @ ArmedError::Suspended(_)) => {
            let text = format!("{waits}; do not call it again");
            return Err(ToolExecutionError::refused(text.as_str()).with_model_feedback(text));
        }
        // Toolgate could not do its work. The reason is for the operator.
        Err(error) => return Err(ToolExecutionError::from_error(error)),
    };
    match outcome.status {
        Status::Ok | Status::DryRun => Ok(ToolOutput::text(outcome.text)),
        status if status.is_refusal() => {
            Err(ToolExecutionError::refused(outcome.text.as_str())
                .with_model_feedback(outcome.text))
        }
        status => {
            let error = ToolExecutionError::new(kind(status), outcome.text.as_str());
            // What may be tried again, Toolgate has tried again.
            Err(error
                .with_retryable(false)
                .with_model_feedback(outcome.text))
        }
    }
}

fn kind(status: Status) -> ToolErrorKind {
    match status {
        Status::SchemaViolation => ToolErrorKind::InvalidArgs,
        Status::ToolNotFound => ToolErrorKind::NotFound,
        Status::Timeout => ToolErrorKind::Timeout,
        Status::Cancelled => ToolErrorKind::Cancelled,
        _ => ToolErrorKind::Other,
    }
}
