//! The result of a run, and the errors of a session.

use std::sync::Arc;

use toolgate_core::{
    ApprovalRequest, BudgetError, CallId, Cost, FinishReason, Json, LayerName, Message, ModelError,
    ModelErrorKind, RejectCode, RunEnd, SchemaProblem, SessionId, StackError, StoreError,
    Suspension, ToolName, TurnId, Usage, ViewError,
};

use crate::{CallResult, DeliverError, DispatchError, JournalError, StrategyError};

/// The result of a run: how it ended, the last text, what it waits for.
///
/// It is complete also after an error: everything up to then is here and in the store, and the
/// session can be resumed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RunReport {
    /// The session's id.
    pub session: SessionId,
    /// The number of the message that began the run.
    pub run: u64,
    /// The end of the run.
    pub end: RunEnd,
    /// The last text of the model, as it wrote it: secrets in it are not redacted, unlike in events
    /// and pieces.
    pub text: String,
    /// The final answer in the requested format.
    pub output: Option<Json>,
    /// The messages of the run, as far as the model still reads them.
    pub messages: Vec<Arc<Message>>,
    /// The number of iterations.
    pub iterations: u32,
    /// The tokens the model used.
    pub usage: Usage,
    /// The cost of these tokens.
    pub cost: Cost,
    /// The reason why the model stopped the last time.
    pub finish: Option<FinishReason>,
    /// The pending calls of the run, here and in the sessions of agents that were delegated to.
    pub pending: Vec<PendingCall>,
    /// The error, if the run failed.
    pub error: Option<RunError>,
    /// The model that the run began with, if it was resumed with another one.
    pub began_with: Option<String>,
}

/// A call that waits for a decision or an external result.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PendingCall {
    /// The session of the call: this one, or that of an agent.
    pub session: SessionId,
    /// The turn of the call.
    pub turn: TurnId,
    /// The call's id.
    pub call: CallId,
    /// The tool's name.
    pub tool: ToolName,
    /// The approval request, if the call waits for a decision; otherwise it waits for a result.
    pub question: Option<Box<ApprovalRequest>>,
    /// The agents on the way to it, outermost first.
    pub agents: Vec<ToolName>,
}

impl PendingCall {
    /// Describes the call that `result` reports as suspended.
    pub(crate) fn from_result(result: &CallResult, session: SessionId, turn: TurnId) -> Self {
        let question = match &result.waits_for {
            Some(Suspension::Decision(request)) => Some(Box::new(request.clone())),
            Some(Suspension::Result) | None => None,
        };
        let call = result.id;
        let tool = result.tool.clone();
        Self {
            session,
            turn,
            call,
            tool,
            question,
            agents: Vec::new(),
        }
    }
}

/// Reason why a run failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The model did not reply.
    #[error("the model did not reply")]
    Model(#[source] ModelError),
    /// The budget does not allow the request.
    #[error("the budget does not allow to ask the model")]
    Budget(#[source] Arc<BudgetError>),
    /// A strategy could not do its work.
    #[error("a strategy failed")]
    Strategy(#[source] StrategyError),
    /// The final answer does not have the requested format.
    #[error("the answer does not have the requested format: {}", crate::session::output::list_problems(.0))]
    Output(Vec<SchemaProblem>),
    /// A call failed, and the session is configured to stop then.
    #[error("a call failed, and the other calls were cancelled")]
    Aborted,
    /// The layers of strategies or options cannot be built into a stack.
    #[error("the layers of this run do not fit together")]
    Stack(#[source] StackError),
    /// The tools cannot be shown.
    #[error("the tools of this run cannot be shown")]
    View(#[source] ViewError),
    /// A run is resumed without layers or tools that it began with. They are code and cannot be
    /// stored: give them again.
    #[error("the run began with {}, which is missing", name_parts(.layers, .tools))]
    MissingParts {
        /// The names of the missing layers.
        layers: Vec<LayerName>,
        /// The names of the missing tools.
        tools: Vec<ToolName>,
    },
    /// A run is resumed with tools that it did not begin with.
    #[error("the run began without {}", name_parts(&[], .0))]
    AddedTools(Vec<ToolName>),
}

impl RunError {
    /// Returns the end of a run that fails with this error.
    pub(crate) fn run_end(&self) -> RunEnd {
        match self {
            Self::Budget(_) => RunEnd::BudgetExceeded,
            Self::Model(error) if error.kind == ModelErrorKind::Budget => RunEnd::BudgetExceeded,
            _ => RunEnd::Failed,
        }
    }
}

/// Returns the names of layers and tools in one line.
fn name_parts(layers: &[LayerName], tools: &[ToolName]) -> String {
    let layers = layers.iter().map(|name| format!("layer {name}"));
    let tools = tools.iter().map(|name| format!("tool {name}"));
    layers.chain(tools).collect::<Vec<_>>().join(", ")
}

/// Reason why a session could not do its work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// A run is under way; a session has one at a time. To send a message meanwhile, use
    /// [`Session::send_message`](crate::Session::send_message).
    #[error("a run is under way in session {session}")]
    Busy {
        /// The session's id.
        session: SessionId,
    },
    /// No run is under way.
    #[error("no run is under way in session {session}")]
    Idle {
        /// The session's id.
        session: SessionId,
    },
    /// The limit of iterations is reached, and the session treats that as an error.
    #[error("the run reached its limit of {} iterations", .0.iterations)]
    MaxIterations(Box<RunReport>),
    /// A turn could not be driven.
    #[error("a turn could not be driven")]
    Dispatch(#[source] DispatchError),
    /// The store could not answer.
    #[error("the store could not answer")]
    Store(#[source] StoreError),
    /// The tools or layers that a run was to have do not fit together.
    #[error("the run cannot be started")]
    Options(#[source] RunError),
    /// A result or decision was rejected.
    #[error("a result or decision was rejected")]
    Rejected(#[source] RejectCode),
    /// A host called a step out of order.
    #[error("{0}")]
    OutOfOrder(&'static str),
}

impl From<DispatchError> for SessionError {
    fn from(error: DispatchError) -> Self {
        Self::Dispatch(error)
    }
}

impl From<DeliverError> for SessionError {
    fn from(error: DeliverError) -> Self {
        match error {
            DeliverError::Rejected(code) => Self::Rejected(code),
            DeliverError::NoApprover => {
                Self::OutOfOrder("a decision needs the name of the approver")
            }
            DeliverError::NoKeys => Self::OutOfOrder(
                "only a signed decision counts, and there are no keys to sign it with",
            ),
            DeliverError::Store(error) => error.into(),
        }
    }
}

impl From<JournalError> for SessionError {
    fn from(error: JournalError) -> Self {
        Self::Dispatch(error.into())
    }
}

impl From<StoreError> for SessionError {
    fn from(error: StoreError) -> Self {
        match error {
            held @ (StoreError::LeaseHeld { .. } | StoreError::Fenced { .. }) => {
                Self::Dispatch(held.into())
            }
            other => Self::Store(other),
        }
    }
}
