//! Tools that are handed to a host ready to be called: each call passes the gate by itself.

use std::sync::Arc;

use toolgate_core::{Stack, Status, ToolRequest, ToolSpec, View};

use crate::{CallResult, Pending, RunOptions, Session, SessionError, TurnRequest, session::Shared};

/// A tool that a host can call like any function. The call is decided on, run, bounded, recorded and shown like any other
/// call of the session.
///
/// A host that calls armed tools keeps the conversation itself; the session has the calls, each in a turn of its own.
#[derive(Clone)]
pub struct ArmedTool {
    shared: Arc<Shared>,
    view: View,
    stack: Stack,
    spec: ToolSpec,
}

/// Why an armed tool did not return something for the model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArmedError {
    /// The call waits for a decision or a result. It goes on when the session's turn is resumed.
    #[error("the call of {} waits for somebody", .0.tool)]
    Suspended(Box<Pending>),
    /// Toolgate could not do its work.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// What an armed tool returns.
#[derive(Debug, Clone)]
pub struct ArmedOutcome {
    /// What the model is to be told.
    pub text: String,
    /// How the call settled.
    pub status: Status,
    /// Everything else about it.
    pub result: CallResult,
}

impl Session {
    /// The session's tools, ready to be called by a host that has a loop of its own.
    pub fn arm(&self, options: &RunOptions) -> Result<Vec<ArmedTool>, SessionError> {
        let tools = crate::tools_of_run::ToolsOfRun::new(&self.0, options)
            .map_err(SessionError::Options)?;
        let (view, stack) = (tools.view().clone(), tools.stack());
        let armed = |spec: &ToolSpec| ArmedTool {
            shared: self.0.clone(),
            view: view.clone(),
            stack: stack.clone(),
            spec: spec.clone(),
        };
        Ok(view.specs().map(armed).collect())
    }
}

impl ArmedTool {
    /// What the model is to be told about the tool.
    pub fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// Calls the tool with what the model wrote. A refusal is not an error: the model reads it.
    ///
    /// If the session waits for answers, so does this; otherwise a call that has to be decided on is an error that says
    /// so.
    pub async fn call(&self, call_id: &str, arguments: &str) -> Result<ArmedOutcome, ArmedError> {
        let info = Arc::new(self.shared.turn_info(0));
        let request = ToolRequest::text(call_id, self.spec.name.as_str(), arguments);
        let request =
            TurnRequest::within(info, self.view.clone(), vec![request]).stack(self.stack.clone());
        let run = self
            .shared
            .dispatcher
            .open(request)
            .await
            .map_err(SessionError::from)?;
        let report = if self.shared.limits.waits {
            run.run_to_end().await
        } else {
            run.run().await
        };
        let report = report.map_err(SessionError::from)?;
        let turn = report.turn;
        let result = report
            .results
            .into_iter()
            .next()
            .expect("one call has one result");
        match (result.model_text(), result.status()) {
            (Some(text), Some(status)) => Ok(ArmedOutcome {
                text: text.into_owned(),
                status,
                result,
            }),
            _ => Err(ArmedError::Suspended(Box::new(Pending::of(
                &result,
                self.shared.dispatcher.session(),
                turn,
            )))),
        }
    }
}

impl std::fmt::Debug for ArmedTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArmedTool")
            .field("name", &self.spec.name)
            .finish_non_exhaustive()
    }
}
