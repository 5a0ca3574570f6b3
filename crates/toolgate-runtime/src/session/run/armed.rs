//! Tools that a host with its own loop calls directly: each call passes the gate, and the calls of
//! one model message are one turn.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use tokio_util::sync::CancellationToken;
use toolgate_core::{
    Labels, ModelName, ModelRequest, SessionEvent, Stack, Status, ToolRequest, ToolSpec, TurnId,
    TurnInfo, Usage, View,
};

use crate::{
    CallResult, PendingCall, RunError, RunOptions, Session, SessionError, StrategyAction, TurnEnd,
    TurnReport, TurnRequest, TurnRun,
    session::{SessionShared, run::strategies::StrategyIteration, tools::RunTools},
};

/// The tools of a session for a host that has a loop of its own.
///
/// A host that calls armed tools keeps the conversation itself; the session has the calls. The
/// strategies of the session are asked like in a run: they decide which tools are shown, and they
/// see every settled turn. After a skill was loaded, [`ArmedTools::rearm`] shows the tools for the
/// next model request.
///
/// ```
/// # use toolgate_core::{Registry, ToolError, ToolRequest, tool_fn};
/// # use toolgate_runtime::{RunOptions, Session};
/// # #[derive(serde::Deserialize, schemars::JsonSchema)]
/// # struct Double { n: i64 }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let registry = Registry::new();
/// registry.register(tool_fn("double", "Doubles a number.", async |input: Double, _cx| {
///     Ok::<_, ToolError>(input.n * 2)
/// }))?;
/// let session = Session::ungated_host(registry).build().await?;
/// let armed = session.arm_tools(RunOptions::new()).await?;
/// let calls = ["a", "b"].map(|id| ToolRequest::from_text(id, "double", r#"{"n":2}"#));
/// let turn = armed.call_all(calls.into()).await?;
/// let texts: Vec<_> = turn.report.results.iter().filter_map(|result| result.model_text()).collect();
/// assert_eq!(texts, ["4", "4"]);
/// # Ok(())
/// # }
/// ```
pub struct ArmedTools {
    armed: Arc<ArmedShared>,
    view: View,
    instructions: Option<Arc<str>>,
}

/// A tool that a host can call like any function. The call is decided on, run, bounded, recorded
/// and shown like any other call of the session, in a turn of its own.
#[derive(Clone)]
pub struct ArmedTool {
    armed: Arc<ArmedShared>,
    spec: ToolSpec,
}

/// The calls of one model message, settled or suspended.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ArmedTurn {
    /// The results, in the order of the calls.
    pub report: TurnReport,
    /// The calls that wait for a decision or a result. The turn is continued with
    /// [`ArmedTools::resume_turn`].
    pub pending: Vec<PendingCall>,
    /// How the host continues, according to the strategies.
    pub action: StrategyAction,
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

/// State that all armed tools of one [`ArmedTools`] share.
struct ArmedShared {
    session: Arc<SessionShared>,
    tools: RunTools,
    labels: Labels,
    model: Option<ModelName>,
    /// The number of turns so far, which is the number of the next iteration.
    turns: AtomicU32,
}

/// The tools of one iteration, as strategies have changed them.
struct ArmedIteration {
    view: View,
    stack: Stack,
    instructions: Option<Arc<str>>,
    events: Vec<SessionEvent>,
}

impl Session {
    /// Returns the session's tools, ready to be called by a host that has a loop of its own.
    ///
    /// # Errors
    ///
    /// Fails if the tools or layers do not fit together, or if a strategy failed.
    pub async fn arm_tools(&self, options: RunOptions) -> Result<ArmedTools, SessionError> {
        let armed = ArmedShared {
            session: self.0.clone(),
            tools: RunTools::new(&self.0, &options).map_err(SessionError::Options)?,
            labels: self.0.run_labels(&self.0.who.labels, &options)?,
            model: None,
            turns: AtomicU32::new(0),
        };
        let shown = armed.prepare_iteration(0).await?;
        Ok(ArmedTools {
            armed: Arc::new(armed),
            view: shown.view,
            instructions: shown.instructions,
        })
    }
}

impl ArmedTools {
    /// Names the model that asks for the calls, for events and receipts.
    #[must_use]
    pub fn asked_by(self, model: ModelName) -> Self {
        let armed = ArmedShared {
            session: self.armed.session.clone(),
            tools: self.armed.tools.clone(),
            labels: self.armed.labels.clone(),
            model: Some(model),
            turns: AtomicU32::new(self.armed.turns.load(Ordering::Relaxed)),
        };
        Self {
            armed: Arc::new(armed),
            ..self
        }
    }

    /// Returns the tools that the model is shown.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Returns the instructions of the session, with what strategies add, such as the list of
    /// skills.
    pub fn instructions(&self) -> Option<&str> {
        self.instructions.as_deref()
    }

    /// Returns each tool by itself, for a host whose loop calls them one by one.
    pub fn tools(&self) -> Vec<ArmedTool> {
        let armed = |spec: &ToolSpec| ArmedTool {
            armed: self.armed.clone(),
            spec: spec.clone(),
        };
        self.view.specs().map(armed).collect()
    }

    /// Asks the strategies which tools the model is shown at its next request.
    ///
    /// # Errors
    ///
    /// Fails if a strategy failed, or if its layers do not fit into the stack.
    pub async fn rearm(&mut self) -> Result<(), SessionError> {
        let iteration = self.armed.turns.load(Ordering::Relaxed);
        let shown = self.armed.prepare_iteration(iteration).await?;
        self.view = shown.view;
        self.instructions = shown.instructions;
        Ok(())
    }

    /// Makes the calls of one model message, as one turn. A denied or blocked call is not an error:
    /// the model reads the outcome.
    ///
    /// If the session waits for answers, so does this; otherwise the pending calls are listed.
    ///
    /// # Errors
    ///
    /// Fails if a strategy failed, or if the turn could not be driven.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the calls without settling them. Their turn can be resumed.
    pub async fn call_all(&self, calls: Vec<ToolRequest>) -> Result<ArmedTurn, SessionError> {
        self.armed.make_calls(calls).await
    }

    /// Continues a turn that was suspended, or whose process was lost.
    ///
    /// # Errors
    ///
    /// Fails as [`ArmedTools::call_all`] does, and if there is no such open turn.
    pub async fn resume_turn(&self, turn: TurnId) -> Result<ArmedTurn, SessionError> {
        let last = self.armed.turns.load(Ordering::Relaxed).saturating_sub(1);
        let prepared = self.armed.prepare_iteration(last).await?;
        let dispatcher = &self.armed.session.dispatcher;
        let run = dispatcher
            .resume_with_stack(turn, prepared.view, prepared.stack)
            .await?;
        self.armed.drive_turn(run).await
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
    /// The strategies are asked first: a tool that they have hidden since is not found.
    /// If the session waits for answers, so does this.
    ///
    /// # Errors
    ///
    /// Fails with [`ArmedError::Suspended`] if the call waits for a decision or a result and the
    /// session does not wait for answers; otherwise as [`ArmedTools::call_all`] does.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the call without settling it. Its turn can be resumed from the
    /// store.
    pub async fn call(&self, call_id: &str, arguments: &str) -> Result<ArmedOutcome, ArmedError> {
        let request = ToolRequest::from_text(call_id, self.spec.name.as_str(), arguments);
        let turn = self.armed.make_calls(vec![request]).await?;
        if let Some(pending) = turn.pending.into_iter().next() {
            return Err(ArmedError::Suspended(Box::new(pending)));
        }
        let result = turn.report.results.into_iter().next();
        let result = result.expect("one call has one result");
        let outcome = result.outcome.clone();
        let settled = outcome.expect("a call that is not pending is settled");
        Ok(ArmedOutcome {
            text: settled.model_text().into_owned(),
            status: settled.status,
            result,
        })
    }
}

impl ArmedShared {
    /// Asks the strategies about an iteration.
    async fn prepare_iteration(&self, iteration: u32) -> Result<ArmedIteration, SessionError> {
        let mut tools = self.tools.clone();
        let mut request = ModelRequest {
            instructions: self.session.ask.instructions.clone(),
            view: tools.view().clone(),
            ..ModelRequest::default()
        };
        let mut events = Vec::new();
        let never = CancellationToken::new();
        let layers = self
            .strategy_iteration(iteration, &never)
            .prepare(&self.session.spending, &mut request, &mut events)
            .await
            .map_err(SessionError::Options)?;
        let layers = layers.expect("nothing stops the strategies");
        tools
            .set_layers(layers)
            .map_err(|error| SessionError::Options(RunError::Stack(error)))?;
        Ok(ArmedIteration {
            view: request.view,
            stack: tools.stack(),
            instructions: request.instructions,
            events,
        })
    }

    fn strategy_iteration<'a>(
        &'a self,
        iteration: u32,
        stop: &'a CancellationToken,
    ) -> StrategyIteration<'a> {
        StrategyIteration {
            shared: &self.session,
            // The host's conversation has no number here.
            run: 0,
            iteration,
            stop,
        }
    }

    /// Opens a turn with these calls and drives it.
    async fn make_calls(&self, calls: Vec<ToolRequest>) -> Result<ArmedTurn, SessionError> {
        let iteration = self.turns.fetch_add(1, Ordering::Relaxed);
        let prepared = self.prepare_iteration(iteration).await?;
        let info = Arc::new(self.turn_info(iteration));
        let mut request = TurnRequest::for_turn(info, prepared.view, calls).stack(prepared.stack);
        request.events = prepared.events;
        let run = self.session.dispatcher.open_turn(request).await?;
        self.drive_turn(run).await
    }

    fn turn_info(&self, iteration: u32) -> TurnInfo {
        let mut info = self.session.new_turn_info(iteration);
        info.labels = self.labels.clone();
        if let Some(model) = &self.model {
            info.provider = Some(model.provider.clone());
            info.model = Some(model.model.clone());
        }
        info
    }

    /// Drives a turn as far as it gets, and tells the strategies once it is settled.
    async fn drive_turn(&self, run: TurnRun) -> Result<ArmedTurn, SessionError> {
        let info = run.info().clone();
        let report = if self.session.limits.waits {
            run.run_to_end().await?
        } else {
            run.run().await?
        };
        if report.end == TurnEnd::Suspended {
            let session = self.session.dispatcher.session();
            return Ok(ArmedTurn {
                pending: PendingCall::list_in_turn(&report, session),
                report,
                action: StrategyAction::Continue,
            });
        }
        let action = self.settle_turn(&info, &report).await?;
        Ok(ArmedTurn {
            report,
            pending: Vec::new(),
            action,
        })
    }

    async fn settle_turn(
        &self,
        info: &Arc<TurnInfo>,
        report: &TurnReport,
    ) -> Result<StrategyAction, SessionError> {
        let mut events = Vec::new();
        let never = CancellationToken::new();
        let action = self
            .strategy_iteration(info.iteration, &never)
            // The host asks the model, so its tokens are not known here.
            .settled(report, Usage::default(), &mut events)
            .await
            .map_err(SessionError::Options)?;
        if !events.is_empty() {
            let drafts = self.session.strategy_drafts(info, events);
            self.session.journal().append(drafts, []).await?;
        }
        Ok(action)
    }
}

impl std::fmt::Debug for ArmedTools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArmedTools")
            .field("tools", &self.view.len())
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ArmedTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArmedTool")
            .field("name", &self.spec.name)
            .finish_non_exhaustive()
    }
}
