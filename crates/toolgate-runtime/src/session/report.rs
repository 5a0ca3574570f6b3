//! The result of a run, and the errors of a session.

use std::sync::Arc;

use toolgate_core::{
    ApprovalRequest, BudgetError, CallId, Cost, FinishReason, Json, Message, ModelError,
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
    /// The last text of the model.
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
    #[error("the model did not reply: {0}")]
    Model(#[source] ModelError),
    /// The budget does not allow the request.
    #[error("the budget does not allow to ask the model: {0}")]
    Budget(#[source] Arc<BudgetError>),
    /// A strategy could not do its work.
    #[error("a strategy failed: {0}")]
    Strategy(#[source] StrategyError),
    /// The final answer does not have the requested format.
    #[error("the answer does not have the requested format: {}", crate::session::output::list_problems(.0))]
    Output(Vec<SchemaProblem>),
    /// A call failed, and the session is configured to stop then.
    #[error("a call failed, and the other calls were cancelled")]
    Aborted,
    /// The layers of strategies or options cannot be built into a stack.
    #[error("the layers of this run do not fit together: {0}")]
    Stack(#[source] StackError),
    /// The tools cannot be shown.
    #[error("the tools of this run cannot be shown: {0}")]
    View(#[source] ViewError),
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
    #[error("a turn could not be driven: {0}")]
    Dispatch(#[source] DispatchError),
    /// The store could not answer.
    #[error("the store could not answer: {0}")]
    Store(#[source] StoreError),
    /// The tools or layers that a run was to have do not fit together.
    #[error("the run cannot be started: {0}")]
    Options(#[source] RunError),
    /// A result or decision was rejected.
    #[error("a result or decision was rejected: {0}")]
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
