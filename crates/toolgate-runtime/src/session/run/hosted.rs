//! Host-driven mode: the host asks the model and runs the tools; Toolgate decides, records and
//! resumes.

use std::{fmt, sync::Arc};

use tokio_util::sync::CancellationToken;
use toolgate_core::{
    ApprovalRequest, ApprovalRequestRef, Arguments, CallId, Decision, IdempotencyKey, Message,
    ModelError, ModelName, ModelRequest, Outcome, ReconciledAttempt, Reply, RunEnd, Suspension,
    ToolName,
};

use crate::{
    CallResult, PendingCall, RunError, RunInput, RunOptions, RunReport, Session, SessionError,
    TurnEnd, TurnReport, TurnRun,
    session::run::{
        drive::STOPPED,
        steps::{RunStep, SessionRun},
    },
};

/// A run that a host drives.
///
/// The steps are those of [`Session::run`], in the same order, with the same events and receipts.
/// The host asks the model between [`HostedRun::begin_iteration`] and [`HostedRun::submit_reply`], and runs the tools between
/// that and [`HostedRun::deliver_result`]. Tools that the host runs are registered with
/// `Registry::register_host`; others are run by Toolgate as usual.
///
/// Dropping it leaves the run where it is, to be resumed with [`Session::resume_hosted`].
#[must_use = "nothing happens until the host takes a step"]
pub struct HostedRun {
    run: SessionRun,
    turn: Option<TurnRun>,
    last: Option<TurnReport>,
    /// The pending calls of agents.
    waiting: Vec<PendingCall>,
    /// The attempts that were handed out before the run was resumed. No result was delivered, and
    /// only the host that had them knows whether it ran the tool.
    unreported: Vec<(CallId, u32)>,
}

/// The next step of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostStep {
    /// Ask the model.
    Ask,
    /// Handle the open calls.
    Settle,
    /// Nothing; the run can be finished.
    Finish,
    /// Nothing: the run was interrupted, and is to be cancelled.
    Cancel,
}

/// The host's action for one call that the model asked for.
#[derive(Debug, Clone)]
pub enum HostAction {
    /// The host may run it now, and delivers the result.
    Run(HostCall),
    /// The host was handed the call before the run was resumed, and delivered no result. It may
    /// have run the tool, and a repeat is not harmless. The host delivers the result if it knows
    /// it; otherwise [`HostedRun::reconcile`] says what is known.
    Reconcile(HostCall),
    /// An agent works on it and is suspended itself. The report of a suspended run lists what it
    /// waits for.
    Delegated(CallId),
    /// An approver has to decide first.
    Ask {
        /// The label under which the provider gets the result.
        call_id: Arc<str>,
        /// The approval request.
        request: Box<ApprovalRequest>,
    },
    /// It is settled: rejected, or run by Toolgate.
    Settled(Box<CallResult>),
}

/// A call that the host runs.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HostCall {
    /// The call's id.
    pub call: CallId,
    /// The label under which the provider gets the result.
    pub call_id: Arc<str>,
    /// The tool's name.
    pub tool: ToolName,
    /// The arguments; they may not be what the model wrote.
    pub arguments: Arguments,
    /// The key by which an external system can recognise a repeat of this call.
    pub idempotency_key: IdempotencyKey,
    /// True if the call was handed out before the run was resumed: the tool may have run.
    pub may_have_run: bool,
}

impl Session {
    /// Begins a run that the host drives.
    ///
    /// # Errors
    ///
    /// Fails as [`Session::run_with`] does.
    pub async fn begin_hosted(
        &self,
        input: impl Into<RunInput>,
        options: RunOptions,
    ) -> Result<HostedRun, SessionError> {
        let RunInput(message) = input.into();
        let mut run = self.0.enter_run(options).await?;
        run.cancel_open_turn().await?;
        run.look_back().await?;
        run.add_user_message(message, false).1.await?;
        Ok(HostedRun::new(run))
    }

    /// Resumes a run that a host left open, in this process or another.
    ///
    /// A call that the host was handed and delivered no result for comes back as
    /// [`HostAction::Reconcile`], or as [`HostAction::Run`] if a repeat is harmless.
    ///
    /// # Errors
    ///
    /// Fails as [`Session::resume_with`] does.
    pub async fn resume_hosted(&self, options: RunOptions) -> Result<HostedRun, SessionError> {
        let cancel = CancellationToken::new();
        let mut hosted = HostedRun::new(self.0.resume_run(options, cancel).await?);
        if let RunStep::Settle(turn) = hosted.run.next_step() {
            let view = match hosted.run.rebuild_view().await {
                Ok(view) => view,
                Err(error) => return Err(hosted.end_with_error(error).await),
            };
            let stack = hosted.run.stack();
            let turn = hosted
                .run
                .shared
                .dispatcher
                .resume_with_stack(turn, view, stack)
                .await?;
            hosted.run.last = Some(turn.info().clone());
            hosted.unreported = turn.external_attempts();
            hosted.turn = Some(turn);
            hosted.advance_turn().await?;
        }
        Ok(hosted)
    }
}

impl HostedRun {
    fn new(run: SessionRun) -> Self {
        Self {
            run,
            turn: None,
            last: None,
            waiting: Vec::new(),
            unreported: Vec::new(),
        }
    }

    /// Returns the next step of the host.
    pub fn next_step(&self) -> HostStep {
        match self.run.next_step() {
            _ if self.run.cancel.is_cancelled() => HostStep::Cancel,
            RunStep::Ask | RunStep::Close => HostStep::Ask,
            RunStep::Settle(_) => HostStep::Settle,
            RunStep::End(_) | RunStep::Stop | RunStep::Fail => HostStep::Finish,
        }
    }

    /// Completes when [`Session::interrupt`] is called. The host need not wait for anything else
    /// then.
    pub fn interrupted(&self) -> impl Future<Output = ()> + Send + 'static {
        self.run.cancel.clone().cancelled_owned()
    }

    /// Returns the action for each call of the open turn; nothing if there is none.
    pub fn call_actions(&self) -> Vec<HostAction> {
        let results = self.last.iter().flat_map(|report| &report.results);
        results.map(|result| self.action_for(result)).collect()
    }

    /// Begins an iteration: the model is about to be asked. Returns the request that Toolgate would
    /// send.
    ///
    /// # Errors
    ///
    /// Fails if it is not the model's turn, if the budget does not allow the request, if a strategy
    /// failed, or if the journal could not be written.
    pub async fn begin_iteration(
        &mut self,
        model: &ModelName,
    ) -> Result<&ModelRequest, SessionError> {
        self.run.add_steering().await?;
        let closing = match self.run.next_step() {
            RunStep::Ask => false,
            RunStep::Close => true,
            RunStep::Settle(_) => {
                return Err(SessionError::OutOfOrder(
                    "calls of the last turn are still open",
                ));
            }
            RunStep::End(_) | RunStep::Stop | RunStep::Fail => {
                return Err(SessionError::OutOfOrder("the run has ended"));
            }
        };
        match self.run.prepare_request(closing, model).await {
            Ok(Some(_)) => {}
            Ok(None) => return Err(SessionError::OutOfOrder("the run was stopped")),
            Err(error) => return Err(self.end_with_error(error).await),
        }
        self.run.check_journal().await?;
        // The host asks the model now, which takes its time.
        self.run.shared.journal().flush();
        Ok(&self.run.conversation.request)
    }

    /// Adds the model's reply and returns the action for each call that it asks for, in order.
    ///
    /// # Errors
    ///
    /// Fails if no model was asked, or if the calls could not be recorded.
    pub async fn submit_reply(&mut self, reply: Reply) -> Result<Vec<HostAction>, SessionError> {
        self.turn = self.run.accept_reply(reply).await?;
        // The requests are durable before the host runs anything.
        self.run.shared.journal().when_flushed().await?;
        self.advance_turn().await
    }

    /// Ends the run because the model did not reply. It can be resumed.
    ///
    /// # Errors
    ///
    /// Fails if no model was asked, or if the end could not be recorded.
    pub async fn model_failed(mut self, error: ModelError) -> Result<RunReport, SessionError> {
        self.run.end_without_reply(error).await
    }

    /// Delivers the result of a call that the host has run, and returns the actions for all calls.
    /// A call that is to be retried is to be run once more.
    ///
    /// # Errors
    ///
    /// Fails if no calls are open, or if the result was rejected.
    pub async fn deliver_result(
        &mut self,
        call: CallId,
        outcome: Outcome,
    ) -> Result<Vec<HostAction>, SessionError> {
        let turn = self.open_turn()?.turn();
        let service = self.run.shared.dispatcher.approval_service();
        service.deliver_result(turn, call, outcome).await?;
        self.advance_turn().await
    }

    /// Says what is known about a call of [`HostAction::Reconcile`], and returns the actions for all
    /// calls. A call that did not happen is to be run; a call of which nothing is known settles as
    /// `outcome_unknown`.
    ///
    /// # Errors
    ///
    /// Fails if the call is not to be reconciled, or if the answer could not be recorded.
    pub async fn reconcile(
        &mut self,
        call: CallId,
        found: ReconciledAttempt,
    ) -> Result<Vec<HostAction>, SessionError> {
        let actions = self.call_actions();
        let is_asked = actions
            .iter()
            .any(|action| matches!(action, HostAction::Reconcile(asked) if asked.call == call));
        if !is_asked {
            return Err(SessionError::OutOfOrder("the call is not to be reconciled"));
        }
        match found {
            ReconciledAttempt::Happened(output) => {
                return self.deliver_result(call, Outcome::ok(output)).await;
            }
            ReconciledAttempt::DidNotHappen => self.unreported.retain(|(left, _)| *left != call),
            ReconciledAttempt::Unknown => self.open_turn()?.settle_unknown(call).await?,
        }
        self.advance_turn().await
    }

    /// Delivers a decision, and returns the actions for all calls.
    ///
    /// # Errors
    ///
    /// Fails if no calls are open, or if the decision was rejected.
    pub async fn decide(
        &mut self,
        question: impl Into<ApprovalRequestRef>,
        decision: Decision,
    ) -> Result<Vec<HostAction>, SessionError> {
        self.open_turn()?;
        let service = self.run.shared.dispatcher.approval_service();
        service.decide(question.into(), decision).await?;
        self.advance_turn().await
    }

    /// Stops the open calls; finished results are kept. The run ends with the iteration.
    ///
    /// # Errors
    ///
    /// Fails if no calls are open, or if the interruption could not be recorded.
    pub async fn interrupt(&mut self, reason: &str) -> Result<Vec<HostAction>, SessionError> {
        self.open_turn()?.handle().interrupt(reason).await?;
        self.advance_turn().await
    }

    /// Ends the iteration once every call is settled, and returns the message for the model;
    /// nothing if the provider has executed all calls.
    ///
    /// # Errors
    ///
    /// Fails if some calls are not settled, or if a strategy failed.
    pub async fn end_iteration(&mut self) -> Result<Option<Arc<Message>>, SessionError> {
        let report = self.last.take_if(|report| report.end != TurnEnd::Suspended);
        let report = report.ok_or(SessionError::OutOfOrder("some calls are not settled"))?;
        self.turn = None;
        self.run.cancel_delegated(&report).await?;
        if let Err(error) = self.run.accept_results(&report).await? {
            return Err(self.end_with_error(error).await);
        }
        // The host may take its time until the next step.
        self.run.write_results();
        Ok(self.run.conversation.last_results())
    }

    /// Ends the run as suspended; decisions and results can be delivered to another process.
    ///
    /// # Errors
    ///
    /// Fails if the end could not be recorded.
    pub async fn suspend(mut self) -> Result<RunReport, SessionError> {
        let mut pending = self
            .last
            .as_ref()
            .map(|report| self.run.pending_calls(report))
            .unwrap_or_default();
        pending.append(&mut self.waiting);
        let turn = self.last.take();
        let mut report = self.run.end_run(RunEnd::Suspended, None).await?;
        report.pending = pending;
        report.settled = turn.map(|turn| turn.settled_calls()).unwrap_or_default();
        Ok(report)
    }

    /// Cancels the run. Open calls are stopped; finished results are kept.
    ///
    /// # Errors
    ///
    /// Fails if the end could not be recorded.
    pub async fn cancel(mut self) -> Result<RunReport, SessionError> {
        if self.turn.is_some() {
            self.interrupt(STOPPED).await?;
            self.end_iteration().await?;
        }
        self.run.end_run(RunEnd::Cancelled, None).await
    }

    /// Ends the run when nothing is left to do. Returns the run itself if the model has to be asked
    /// again: a message arrived at the last moment, or the answer does not have the required
    /// format.
    ///
    /// # Errors
    ///
    /// Fails if calls are open or the model has to be asked, if the limit of iterations is an
    /// error, or if the end could not be recorded.
    pub async fn finish(mut self) -> Result<Result<RunReport, Self>, SessionError> {
        let report = match self.run.next_step() {
            RunStep::Stop => Some(self.run.end_stopped().await?),
            RunStep::Fail => Some(self.run.end_at_cap().await?),
            RunStep::End(_) if self.run.take_late_messages().await? => None,
            RunStep::End(end) => self.run.check_output(end).await?,
            RunStep::Ask | RunStep::Close | RunStep::Settle(_) => {
                return Err(SessionError::OutOfOrder("the run has not ended"));
            }
        };
        Ok(report.ok_or(self))
    }

    fn open_turn(&mut self) -> Result<&mut TurnRun, SessionError> {
        self.turn
            .as_mut()
            .ok_or(SessionError::OutOfOrder("no calls are open"))
    }

    /// Does everything that needs no host: calls that Toolgate runs itself, and agents.
    async fn advance_turn(&mut self) -> Result<Vec<HostAction>, SessionError> {
        self.run.add_steering().await?;
        while let Some(turn) = &mut self.turn {
            let report = turn.advance().await?;
            let delegated = self.run.delegate_calls(&report).await?;
            self.last = Some(report);
            self.waiting = delegated.waiting;
            if !delegated.delivered {
                break;
            }
        }
        Ok(self.call_actions())
    }

    /// Ends a run that cannot continue, and returns the reason.
    async fn end_with_error(&mut self, error: RunError) -> SessionError {
        match self.run.end_run(error.run_end(), Some(error.clone())).await {
            Ok(_) => SessionError::Options(error),
            Err(error) => error,
        }
    }

    fn action_for(&self, result: &CallResult) -> HostAction {
        match (&result.waits_for, &result.arguments) {
            (Some(Suspension::Decision(request)), _) => HostAction::Ask {
                call_id: result.call_id.clone(),
                request: Box::new(request.clone()),
            },
            (Some(Suspension::Result), _) if self.run.shared.find_agent(&result.tool).is_some() => {
                HostAction::Delegated(result.id)
            }
            (Some(Suspension::Result), Some(arguments)) => self.run_action(result, arguments),
            _ => HostAction::Settled(Box::new(result.clone())),
        }
    }

    fn run_action(&self, result: &CallResult, arguments: &Arguments) -> HostAction {
        let may_have_run = self.unreported.contains(&(result.id, result.attempts));
        let host_call = HostCall {
            call: result.id,
            call_id: result.call_id.clone(),
            tool: result.tool.clone(),
            arguments: arguments.clone(),
            idempotency_key: IdempotencyKey::for_call(result.id),
            may_have_run,
        };
        if may_have_run && !self.may_repeat(&result.tool) {
            HostAction::Reconcile(host_call)
        } else {
            HostAction::Run(host_call)
        }
    }

    /// Checks whether running a tool again is harmless. A tool that is gone may have done anything.
    fn may_repeat(&self, tool: &ToolName) -> bool {
        let shown = self.run.tools.all_tools().get(tool.as_str());
        shown.is_some_and(|shown| shown.entry.spec.annotations.may_repeat())
    }
}

impl fmt::Debug for HostedRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostedRun")
            .field("next", &self.next_step())
            .finish_non_exhaustive()
    }
}
