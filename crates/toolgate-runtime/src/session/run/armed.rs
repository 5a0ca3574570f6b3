//! Tools that a host can call directly: each call passes the gate by itself.

use std::sync::Arc;

use toolgate_core::{Stack, Status, ToolRequest, ToolSpec, View};

use crate::{
    CallResult, PendingCall, RunOptions, Session, SessionError, TurnRequest, session::SessionShared,
};

/// A tool that a host can call like any function. The call is decided on, run, bounded, recorded
/// and shown like any other call of the session.
///
/// A host that calls armed tools keeps the conversation itself; the session has the calls, each in
/// a turn of its own.
#[derive(Clone)]
pub struct ArmedTool {
    shared: Arc<SessionShared>,
    view: View,
    stack: Stack,
    spec: ToolSpec,
}

/// Reason why an armed tool did not return a result for the model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArmedError {
    /// The call waits for a decision or a result. It continues when the session's turn is resumed.
    #[error("the call of {} waits for a decision or a result", .0.tool)]
    Suspended(Box<PendingCall>),
    /// Toolgate could not do its work.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// The result of an armed tool.
#[derive(Debug, Clone)]
pub struct ArmedOutcome {
    /// The text for the model.
    pub text: String,
    /// The status of the settled call.
    pub status: Status,
    /// All details of the call.
    pub result: CallResult,
}

impl Session {
    /// Returns the session's tools, ready to be called by a host that has a loop of its own.
    pub fn arm_tools(&self, options: &RunOptions) -> Result<Vec<ArmedTool>, SessionError> {
        let tools = crate::session::tools::RunTools::new(&self.0, options)
            .map_err(SessionError::Options)?;
        let view = tools.view().clone();
        let stack = tools.stack();
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
    /// Returns the spec of the tool, for the model.
    pub fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// Calls the tool with the arguments the model wrote. A denied or blocked call is not an error:
    /// the model reads the outcome.
    ///
    /// If the session waits for answers, so does this.
    ///
    /// # Errors
    ///
    /// Fails with [`ArmedError::Suspended`] if the call waits for a decision or a result and the
    /// session does not wait for answers; otherwise if the turn could not be driven.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the call without settling it. Its turn can be resumed from the
    /// store.
    pub async fn call(&self, call_id: &str, arguments: &str) -> Result<ArmedOutcome, ArmedError> {
        let info = Arc::new(self.shared.new_turn_info(0));
        let request = ToolRequest::from_text(call_id, self.spec.name.as_str(), arguments);
        let request =
            TurnRequest::for_turn(info, self.view.clone(), vec![request]).stack(self.stack.clone());
        let run = self
            .shared
            .dispatcher
            .open_turn(request)
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
            _ => Err(ArmedError::Suspended(Box::new(PendingCall::from_result(
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
