//! The regime in which a host drives: it asks the model and runs the tools, and Toolgate decides, records and goes on.

use std::{fmt, sync::Arc};

use toolgate_core::{
    Arguments, CallId, Decision, Message, ModelError, ModelName, ModelRequest, Outcome, Question, Reply, RunEnd,
    Suspension, ToolName,
};

use crate::{
    CallResult, Input, RunOptions, RunReport, Session, SessionError, TurnEnd, TurnReport, TurnRun,
    kernel::{Next, Run},
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
    /// Somebody has to decide first.
    Ask(Box<toolgate_core::ApprovalRequest>),
    /// It is settled: refused, or run by Toolgate.
    Settled(Box<CallResult>),
}

impl Session {
    /// Begins a run that the host drives.
    pub async fn host(&self, input: impl Into<Input>, options: RunOptions) -> Result<Hosted, SessionError> {
        let Input(message) = input.into();
        let mut run = self.0.enter(options).await?;
        run.give_up_open_turn().await?;
        run.hear(message, false).1.await?;
        Ok(Hosted { run, turn: None, last: None })
    }

    /// Takes up a run that a host left behind, in this process or another.
    pub async fn host_again(&self, options: RunOptions) -> Result<Hosted, SessionError> {
        let mut hosted = Hosted { run: self.0.enter(options).await?, turn: None, last: None };
        if let Next::Settle(turn) = hosted.run.next() {
            let view = hosted.run.view_again().await.map_err(SessionError::Options)?;
            let stack = hosted.run.stack();
            hosted.turn = Some(hosted.run.shared.dispatcher.resume_under(turn, view, stack).await?);
            hosted.advance().await?;
        }
        Ok(hosted)
    }
}

impl Hosted {
    /// What the host does next.
    pub fn next(&self) -> HostStep {
        match self.run.next() {
            Next::Ask | Next::Close => HostStep::Ask,
            Next::Settle(_) => HostStep::Settle,
            Next::End(_) => HostStep::Finish,
        }
    }

    /// Begins a round: the model is about to be asked. Returns what Toolgate would ask it with.
    pub async fn ask(&mut self, model: &ModelName) -> Result<&ModelRequest, SessionError> {
        self.run.take_steering().await?;
        let closing = match self.run.next() {
            Next::Ask => false,
            Next::Close => true,
            Next::Settle(_) => return Err(SessionError::OutOfTurn("calls of the last turn are still open")),
            Next::End(_) => return Err(SessionError::OutOfTurn("the run is over")),
        };
        self.run.prepare(closing, model).await.map_err(SessionError::Options)?;
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
    pub async fn settle(&mut self, call: CallId, outcome: Outcome) -> Result<Vec<Gate>, SessionError> {
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

    /// Stops the calls that are open; what is finished is kept.
    pub async fn interrupt(&mut self, reason: &str) -> Result<Vec<Gate>, SessionError> {
        self.turn()?.handle().interrupt(reason).await?;
        self.advance().await
    }

    /// Ends the round once every call is settled, and returns what the model is to be told.
    pub async fn settled(&mut self) -> Result<Arc<Message>, SessionError> {
        let report = self.last.take_if(|report| report.end != TurnEnd::Suspended);
        let report = report.ok_or(SessionError::OutOfTurn("some calls are not settled"))?;
        self.turn = None;
        self.run.settled(&report).await?.map_err(SessionError::Options)?;
        let told = self.run.conversation.request.messages.iter().rev();
        let mut told = told.filter(|message| message.role == toolgate_core::Role::Tool);
        told.next().cloned().ok_or(SessionError::OutOfTurn("no call was to be answered"))
    }

    /// Leaves the run where it is; decisions and results can come to another process.
    pub async fn suspend(mut self) -> Result<RunReport, SessionError> {
        let pending = self.last.as_ref().map(|report| self.run.pending(report)).unwrap_or_default();
        let mut report = self.run.end(RunEnd::Suspended, None).await?;
        report.pending = pending;
        Ok(report)
    }

    /// Stops the run for good.
    pub async fn cancel(mut self) -> Result<RunReport, SessionError> {
        self.run.end(RunEnd::Cancelled, None).await
    }

    /// Ends the run when nothing is left to do. If the answer has to have a form and has not, the model has to be asked
    /// again, and the run comes back.
    pub async fn finish(mut self) -> Result<Result<RunReport, Self>, SessionError> {
        let Next::End(end) = self.run.next() else {
            return Err(SessionError::OutOfTurn("the run is not over"));
        };
        match self.run.check_output(end).await? {
            Some(report) => Ok(Ok(report)),
            None => Ok(Err(self)),
        }
    }

    fn turn(&mut self) -> Result<&mut TurnRun, SessionError> {
        self.turn.as_mut().ok_or(SessionError::OutOfTurn("no calls are open"))
    }

    async fn advance(&mut self) -> Result<Vec<Gate>, SessionError> {
        let Some(turn) = &mut self.turn else { return Ok(Vec::new()) };
        let report = turn.advance().await?;
        let gates = report.results.iter().cloned().map(gate).collect();
        self.last = Some(report);
        Ok(gates)
    }
}

fn gate(result: CallResult) -> Gate {
    match (&result.waits_for, &result.arguments) {
        (Some(Suspension::Decision(request)), _) => Gate::Ask(Box::new(request.clone())),
        (Some(Suspension::Result), Some(arguments)) => {
            let (call, call_id, tool) = (result.id, result.call_id.clone(), result.tool.clone());
            Gate::Run { call, call_id, tool, arguments: arguments.clone() }
        }
        _ => Gate::Settled(Box::new(result)),
    }
}

impl fmt::Debug for Hosted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hosted").field("next", &self.next()).finish_non_exhaustive()
    }
}
