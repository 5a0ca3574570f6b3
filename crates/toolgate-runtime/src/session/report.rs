//! The result of a run, and the errors of a session.

use std::sync::Arc;

use toolgate_core::{
    ApprovalRequest, BudgetError, CallId, Cost, FinishReason, InvalidLabel, Json, Message,
    ModelError, ModelErrorKind, RejectCode, RunEnd, SchemaProblem, SessionId, StackError,
    StoreError, Suspension, ToolName, TurnId, Usage, ViewError,
};

use crate::{CallResult, DeliverError, DispatchError, JournalError, StrategyError, TurnReport};

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
    /// The settled calls of the suspended turn. Their results are not in `messages` yet, and they
    /// are not run again.
    pub settled: Vec<CallResult>,
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
    /// The label under which the provider gets the result.
    pub call_id: Arc<str>,
    /// The tool's name.
    pub tool: ToolName,
    /// The approval request, if the call waits for a decision; otherwise it waits for a result.
    pub question: Option<Box<ApprovalRequest>>,
    /// The agents on the way to it, outermost first.
    pub agents: Vec<ToolName>,
}

impl PendingCall {
    /// Returns the calls of a suspended turn that wait for a decision or a result.
    pub(crate) fn list_in_turn(report: &TurnReport, session: SessionId) -> Vec<Self> {
        let waiting = report
            .results
            .iter()
            .filter(|result| result.waits_for.is_some());
        waiting
            .map(|result| Self::from_result(result, session, report.turn))
            .collect()
    }

    fn from_result(result: &CallResult, session: SessionId, turn: TurnId) -> Self {
        let question = match &result.waits_for {
            Some(Suspension::Decision(request)) => Some(Box::new(request.clone())),
            Some(Suspension::Result) | None => None,
        };
        Self {
            session,
            turn,
            call: result.id,
            call_id: result.call_id.clone(),
            tool: result.tool.clone(),
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
    /// A label cannot be used.
    #[error("a label of this run is not valid")]
    Label(#[source] InvalidLabel),
    /// The tools cannot be shown.
    #[error("the tools of this run cannot be shown")]
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
