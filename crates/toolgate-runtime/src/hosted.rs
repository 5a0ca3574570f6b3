//! The regime in which a host drives: it asks the model and runs the tools, and Toolgate decides, records and goes on.

use std::{fmt, sync::Arc};

use toolgate_core::{
    Arguments, CallId, Decision, Message, ModelError, ModelName, ModelRequest, Outcome, Question,
    Reply, RunEnd, Suspension, ToolName,
};

use crate::{
    CallResult, Input, Pending, RunError, RunOptions, RunReport, Session, SessionError, TurnEnd,
    TurnReport, TurnRun,
    kernel::{Next, Run},
    run_loop::STOPPED,
};

/// A run that a host drives.
///
/// The steps are those of [`Session::run`], in the same order, with the same events and receipts; the host asks the model
/// between [`Hosted::ask`] and [`Hosted::gate`], and runs the tools between that and [`Hosted::settle`]. Tools that the
/// host runs are registered with `Registry::register_host`; others are run by Toolgate as usual.
///
/// Dropping it leaves the run where it is, to be taken up with [`Session::host_again`].
#[must_use = "nothing happens until the host takes a step"]
pub struct Hosted {
    run: Run,
    turn: Option<TurnRun>,
    last: Option<TurnReport>,
    /// What agents wait for.
    waiting: Vec<Pending>,
}

/// What the host does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostStep {
    /// Ask the model.
    Ask,
    /// See to the calls that are open.
    Settle,
    /// Nothing; the run can be finished.
    Finish,
    /// Nothing: somebody has stopped the run, and it is to be cancelled.
    Cancel,
}

/// What is to become of a call that the model asked for.
#[derive(Debug, Clone)]
pub enum Gate {
    /// The host may run it now, with these arguments, and settles it with what came of it.
    Run {
        /// Which call.
        call: CallId,
        /// The label under which the provider is answered.
        call_id: Arc<str>,
        /// Which tool.
        tool: ToolName,
        /// With what; this may not be what the model wrote.
        arguments: Arguments,
    },
    /// An agent works on it, and waits for somebody itself. What for, the report of a suspended run lists.
    Delegated(CallId),
    /// Somebody has to decide first.
    Ask(Box<toolgate_core::ApprovalRequest>),
    /// It is settled: refused, or run by Toolgate.
    Settled(Box<CallResult>),
}

impl Session {
    /// Begins a run that the host drives.
    pub async fn host(
        &self,
        input: impl Into<Input>,
        options: RunOptions,
    ) -> Result<Hosted, SessionError> {
        let Input(message) = input.into();
        let mut run = self.0.enter(options).await?;
        run.give_up_open_turn().await?;
        run.hear(message, false).1.await?;
        Ok(Hosted::new(run))
    }

    /// Takes up a run that a host left behind, in this process or another.
    pub async fn host_again(&self, options: RunOptions) -> Result<Hosted, SessionError> {
        let mut hosted = Hosted::new(self.0.enter(options).await?);
        if let Next::Settle(turn) = hosted.run.next() {
            let view = match hosted.run.view_again().await {
                Ok(view) => view,
                Err(error) => return Err(hosted.broken(error).await),
            };
            let stack = hosted.run.stack();
            let turn = hosted
                .run
                .shared
                .dispatcher
                .resume_under(turn, view, stack)
                .await?;
            hosted.run.last = Some(turn.info().clone());
            hosted.turn = Some(turn);
            hosted.advance().await?;
        }
        Ok(hosted)
    }
}

impl Hosted {
    fn new(run: Run) -> Self {
        Self {
            run,
            turn: None,
            last: None,
            waiting: Vec::new(),
        }
    }

    /// What the host does next.
    pub fn next(&self) -> HostStep {
        match self.run.next() {
            _ if self.run.cancel.is_cancelled() => HostStep::Cancel,
            Next::Ask | Next::Close => HostStep::Ask,
            Next::Settle(_) => HostStep::Settle,
            Next::End(_) | Next::Stop | Next::Fail => HostStep::Finish,
        }
    }

    /// Completes when somebody has called [`Session::interrupt`]. Whatever the host waits for, it need not any more.
    pub fn interrupted(&self) -> impl Future<Output = ()> + Send + 'static {
        self.run.cancel.clone().cancelled_owned()
    }

    /// How the calls of the open turn stand; nothing if there is none.
    pub fn gates(&self) -> Vec<Gate> {
        let results = self.last.iter().flat_map(|report| &report.results);
        results.map(|result| self.gate_of(result)).collect()
    }

    /// Begins a round: the model is about to be asked. Returns what Toolgate would ask it with.
    pub async fn ask(&mut self, model: &ModelName) -> Result<&ModelRequest, SessionError> {
        self.run.take_steering().await?;
        let closing = match self.run.next() {
            Next::Ask => false,
            Next::Close => true,
            Next::Settle(_) => {
                return Err(SessionError::OutOfTurn(
                    "calls of the last turn are still open",
                ));
            }
            Next::End(_) | Next::Stop | Next::Fail => {
                return Err(SessionError::OutOfTurn("the run is over"));
            }
        };
        match self.run.prepare(closing, model).await {
            Ok(Some(_)) => {}
            Ok(None) => return Err(SessionError::OutOfTurn("the run was stopped")),
            Err(error) => return Err(self.broken(error).await),
        }
        self.run.may_ask().await?;
        Ok(&self.run.conversation.request)
    }

    /// Takes in what the model replied and says what is to become of each call that it asks for, in order.
    pub async fn gate(&mut self, reply: Reply) -> Result<Vec<Gate>, SessionError> {
        self.turn = self.run.replied(reply).await?;
        self.advance().await
    }

    /// The model did not reply; the run ends and can be taken up again.
    pub async fn failed(mut self, error: ModelError) -> Result<RunReport, SessionError> {
        self.run.not_replied(error).await
    }

    /// Takes in what came of a call that the host has run, and says how all calls stand. One that is to be tried again
    /// is to be run once more.
    pub async fn settle(
        &mut self,
        call: CallId,
        outcome: Outcome,
    ) -> Result<Vec<Gate>, SessionError> {
        self.turn()?.handle().deliver(call, outcome).await?;
        self.advance().await
    }

    /// Takes in a decision, and says how all calls stand.
    pub async fn decide(
        &mut self,
        question: impl Into<Question>,
        decision: Decision,
    ) -> Result<Vec<Gate>, SessionError> {
        self.turn()?.handle().decide(question, decision).await?;
        self.advance().await
    }

    /// Stops the calls that are open; what is finished is kept. The run ends with the round.
    pub async fn interrupt(&mut self, reason: &str) -> Result<Vec<Gate>, SessionError> {
        self.turn()?.handle().interrupt(reason).await?;
        self.advance().await
    }

    /// Ends the round once every call is settled, and returns what the model is to be told: nothing if the provider has
    /// run everything by itself.
    pub async fn settled(&mut self) -> Result<Option<Arc<Message>>, SessionError> {
        let report = self.last.take_if(|report| report.end != TurnEnd::Suspended);
        let report = report.ok_or(SessionError::OutOfTurn("some calls are not settled"))?;
        self.turn = None;
        self.run.call_off(&report).await?;
        if let Err(error) = self.run.settled(&report).await? {
            return Err(self.broken(error).await);
        }
        // The host may take its time.
        self.run.write_answers();
        Ok(self.run.conversation.answers())
    }

    /// Leaves the run where it is; decisions and results can come to another process.
    pub async fn suspend(mut self) -> Result<RunReport, SessionError> {
        let mut pending = self
            .last
            .as_ref()
            .map(|report| self.run.pending(report))
            .unwrap_or_default();
        pending.append(&mut self.waiting);
        let mut report = self.run.end(RunEnd::Suspended, None).await?;
        report.pending = pending;
        Ok(report)
    }

    /// Stops the run for good. Calls that are open are stopped with it; what is finished is kept.
    pub async fn cancel(mut self) -> Result<RunReport, SessionError> {
        if self.turn.is_some() {
            self.interrupt(STOPPED).await?;
            self.settled().await?;
        }
        self.run.end(RunEnd::Cancelled, None).await
    }

    /// Ends the run when nothing is left to do. If something was said in the last moment, or if the answer has to have a
    /// form and has not, the model has to be asked again, and the run comes back.
    pub async fn finish(mut self) -> Result<Result<RunReport, Self>, SessionError> {
        let report = match self.run.next() {
            Next::Stop => Some(self.run.stop().await?),
            Next::Fail => Some(self.run.fail_at_cap().await?),
            Next::End(_) if self.run.heard_more().await? => None,
            Next::End(end) => self.run.check_output(end).await?,
            Next::Ask | Next::Close | Next::Settle(_) => {
                return Err(SessionError::OutOfTurn("the run is not over"));
            }
        };
        Ok(report.ok_or(self))
    }

    fn turn(&mut self) -> Result<&mut TurnRun, SessionError> {
        self.turn
            .as_mut()
            .ok_or(SessionError::OutOfTurn("no calls are open"))
    }

    /// Lets everything happen that needs no host: what Toolgate runs by itself, and agents.
    async fn advance(&mut self) -> Result<Vec<Gate>, SessionError> {
        self.run.take_steering().await?;
        while let Some(turn) = &mut self.turn {
            let report = turn.advance().await?;
            let delegated = self.run.delegate(&report).await?;
            (self.last, self.waiting) = (Some(report), delegated.waiting);
            if !delegated.delivered {
                break;
            }
        }
        Ok(self.gates())
    }

    /// Ends a run that cannot go on, and passes the reason on.
    async fn broken(&mut self, error: RunError) -> SessionError {
        match self.run.end(error.end(), Some(error.clone())).await {
            Ok(_) => SessionError::Options(error),
            Err(error) => error,
        }
    }

    fn gate_of(&self, result: &CallResult) -> Gate {
        match (&result.waits_for, &result.arguments) {
            (Some(Suspension::Decision(request)), _) => Gate::Ask(Box::new(request.clone())),
            (Some(Suspension::Result), _) if self.run.shared.agent(&result.tool).is_some() => {
                Gate::Delegated(result.id)
            }
            (Some(Suspension::Result), Some(arguments)) => {
                let (call, call_id, tool) =
                    (result.id, result.call_id.clone(), result.tool.clone());
                Gate::Run {
                    call,
                    call_id,
                    tool,
                    arguments: arguments.clone(),
                }
            }
            _ => Gate::Settled(Box::new(result.clone())),
        }
    }
}

impl fmt::Debug for Hosted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hosted")
            .field("next", &self.next())
            .finish_non_exhaustive()
    }
}
