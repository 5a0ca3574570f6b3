//! What came of a run, and why a session could not do its work.

use std::sync::Arc;

use toolgate_core::{
    ApprovalRequest, BudgetError, CallId, Cost, Finish, Json, Message, ModelError, ModelErrorKind,
    PostCode, Problem, RunEnd, SessionId, StackError, StoreError, Suspension, ToolName, TurnId,
    Usage, ViewError,
};

use crate::{CallResult, DispatchError, JournalError, PostError, StrategyError};

/// What came of a run: why it ended, what was said, what it waits for.
///
/// It is complete also if something went wrong: everything up to then is here and in the store, and the session can be
/// resumed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RunReport {
    /// In which session.
    pub session: SessionId,
    /// The number of the message that began the run.
    pub run: u64,
    /// Why it ended.
    pub end: RunEnd,
    /// What the model said last.
    pub text: String,
    /// The final answer in the form that was asked for.
    pub output: Option<Json>,
    /// Everything that was said in the run, as far as the model still reads it.
    pub messages: Vec<Arc<Message>>,
    /// How many rounds were made.
    pub iterations: u32,
    /// What the model used.
    pub usage: Usage,
    /// What that cost.
    pub cost: Cost,
    /// Why the model stopped the last time.
    pub finish: Option<Finish>,
    /// What the run waits for, here and in the sessions of agents that were delegated to.
    pub pending: Vec<Pending>,
    /// What went wrong, if something did.
    pub error: Option<RunError>,
}

/// A call that waits for somebody.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Pending {
    /// In which session: this one, or that of an agent.
    pub session: SessionId,
    /// In which turn.
    pub turn: TurnId,
    /// Which call.
    pub call: CallId,
    /// Which tool.
    pub tool: ToolName,
    /// The question, if a decision is waited for; otherwise it is the result.
    pub question: Option<Box<ApprovalRequest>>,
    /// The agents on the way to it, outermost first.
    pub agents: Vec<ToolName>,
}

impl Pending {
    /// What a call waits for.
    pub(crate) fn of(result: &CallResult, session: SessionId, turn: TurnId) -> Self {
        let question = match &result.waits_for {
            Some(Suspension::Decision(request)) => Some(Box::new(request.clone())),
            Some(Suspension::Result) | None => None,
        };
        let (call, tool) = (result.id, result.tool.clone());
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

/// What made a run fail.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The model did not reply.
    #[error("the model did not reply")]
    Model(#[source] ModelError),
    /// Asking the model cannot be paid for.
    #[error("the model was not asked")]
    Budget(#[source] Arc<BudgetError>),
    /// A strategy could not do its work.
    #[error("a strategy failed")]
    Strategy(#[source] StrategyError),
    /// The final answer does not have the form that was asked for.
    #[error("the answer does not have the form that was asked for: {}", crate::output::list(.0))]
    Output(Vec<Problem>),
    /// A call failed, and the session stops when that happens.
    #[error("a call failed, and the others were not wanted any more")]
    Aborted,
    /// What strategies or options brought cannot be made into a stack.
    #[error("the layers of this run do not fit together")]
    Stack(#[source] StackError),
    /// The tools cannot be shown.
    #[error("the tools of this run cannot be shown")]
    View(#[source] ViewError),
}

impl RunError {
    /// How a run ends that it happens to.
    pub(crate) fn end(&self) -> RunEnd {
        match self {
            Self::Budget(_) => RunEnd::BudgetExceeded,
            Self::Model(error) if error.kind == ModelErrorKind::Budget => RunEnd::BudgetExceeded,
            _ => RunEnd::Failed,
        }
    }
}

/// Why a session could not do its work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// A run is under way; a session has one at a time. To say something meanwhile, there is `say`.
    #[error("a run is under way in session {session}")]
    Busy {
        /// Which session.
        session: SessionId,
    },
    /// No run is under way.
    #[error("no run is under way in session {session}")]
    Idle {
        /// Which session.
        session: SessionId,
    },
    /// The rounds are used up, and the session treats that as an error.
    #[error("the run has used up its {} rounds", .0.iterations)]
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
    /// Somebody posted something that was not taken.
    #[error("a result or decision was not taken")]
    Post(#[source] PostCode),
    /// A host asked for something out of turn.
    #[error("{0}")]
    OutOfTurn(&'static str),
}

impl From<DispatchError> for SessionError {
    fn from(error: DispatchError) -> Self {
        Self::Dispatch(error)
    }
}

impl From<PostError> for SessionError {
    fn from(error: PostError) -> Self {
        match error {
            PostError::Refused(code) => Self::Post(code),
            PostError::Nameless => Self::OutOfTurn("a decision needs the name of whoever decided"),
            PostError::Journal(error) => error.into(),
            PostError::Turn(error) => Self::Dispatch(*error),
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
            held @ (StoreError::Held { .. } | StoreError::Fenced { .. }) => {
                Self::Dispatch(held.into())
            }
            other => Self::Store(other),
        }
    }
}
