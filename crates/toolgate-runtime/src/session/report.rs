//! The result of a run, and the errors of a session.

use std::{fmt, sync::Arc};

use toolgate_core::{
    ApprovalRequest, BudgetError, CallId, ChangedRequest, Cost, FinishReason, InvalidLabel, Json,
    LayerName, Message, ModelError, ModelErrorKind, RejectCode, RunEnd, SchemaProblem, SessionId,
    StackError, StoreError, Suspension, ToolName, TurnId, Usage, ViewError, serialized_word,
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
    /// The settled calls of the suspended turn. Their results are not in `messages` yet, and they
    /// are not run again.
    pub settled: Vec<CallResult>,
    /// The error, if the run failed.
    pub error: Option<RunError>,
    /// The model that the run began with, if it was resumed with another one.
    pub began_with: Option<String>,
}

impl RunReport {
    /// Returns the report if the run completed, and otherwise an error that says how it ended.
    ///
    /// # Errors
    ///
    /// Fails if the run is suspended, was stopped, reached a limit or failed.
    pub fn completed(self) -> Result<Self, IncompleteRun> {
        match self.end {
            RunEnd::Completed => Ok(self),
            _ => Err(IncompleteRun(Box::new(self))),
        }
    }
}

/// A run that did not complete; its report says where it stands, and it can be resumed.
#[derive(Debug)]
pub struct IncompleteRun(pub Box<RunReport>);

impl IncompleteRun {
    /// Checks whether a call of the run waits for a decision.
    pub fn waits_for_approval(&self) -> bool {
        self.0.pending.iter().any(|call| call.question.is_some())
    }
}

impl fmt::Display for IncompleteRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let run = &self.0;
        match run.end {
            RunEnd::Suspended if self.waits_for_approval() => {
                write!(f, "the run waits for the approval of ")?;
            }
            RunEnd::Suspended => f.write_str("the run waits for the result of ")?,
            end => return write!(f, "the run did not complete: {}", serialized_word(&end)),
        }
        for (number, call) in run.pending.iter().enumerate() {
            let separator = if number == 0 { "" } else { ", " };
            write!(f, "{separator}{}", call.tool)?;
        }
        Ok(())
    }
}

impl std::error::Error for IncompleteRun {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let error = self.0.error.as_ref();
        error.map(|error| error as &(dyn std::error::Error + 'static))
    }
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
    #[error("the model did not reply: {0}")]
    Model(#[source] ModelError),
    /// The provider ended the last reply for an unknown reason. The reply is stored; it may be
    /// incomplete.
    #[error("the provider ended the reply for an unknown reason, so it may be incomplete")]
    UnknownFinish,
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
    /// The receipt of a call could not be written. The call is recorded, and the model is not asked
    /// again.
    #[error("the receipt of a call of {tool} was lost")]
    ReceiptLost {
        /// The tool.
        tool: ToolName,
        /// The call.
        call: CallId,
    },
    /// The layers of strategies or options cannot be built into a stack.
    #[error("the layers of this run do not fit together: {0}")]
    Stack(#[source] StackError),
    /// A label cannot be used.
    #[error("a label of this run is not valid")]
    Label(#[source] InvalidLabel),
    /// The tools cannot be shown.
    #[error("the tools of this run cannot be shown: {0}")]
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
    /// The stored approval request was changed, so it is not decided.
    #[error(transparent)]
    Changed(ChangedRequest),
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
            DeliverError::Changed(changed) => Self::Changed(changed),
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
