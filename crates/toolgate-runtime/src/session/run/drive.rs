//! The loop of a run: ask the model, run its calls until all are settled, repeat until it calls
//! nothing.

use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering},
};

use futures::future::join_all;
use toolgate_core::{
    AnyLayer, ModelName, Outcome, RoutedModel, RunEnd, Status, Suspension, TurnId,
};

use crate::{
    PendingCall, RunError, RunReport, SessionError, TurnEnd, TurnHandle, TurnReport, TurnRun,
    agent::{DelegatingRun, DelegationState, handoff_limits::store_handoffs},
    journal::{JournalError, PendingEvent},
    session::{
        conversation::ConversationState,
        run::{
            exchange::ModelExchange,
            steps::{RunStep, SessionRun},
            time_limit::DEADLINE,
        },
    },
};

/// The reason shown for pending calls that are cancelled because the user wrote something else.
const CANCELLED_BY_MESSAGE: &str = "another message arrived before a decision was made";

/// The reason shown for calls that were under way when the run was stopped.
pub(crate) const STOPPED: &str = "the run was stopped";

impl SessionRun {
    /// Drives the run to its end.
    pub(crate) async fn drive_run(mut self) -> Result<RunReport, SessionError> {
        loop {
            self.add_steering().await?;
            let ended = match self.next_step() {
                // Before the check for cancellation: open calls have to be settled even then, or
                // the conversation would have calls without results.
                RunStep::Settle(turn) => self.resume_turn(turn).await?,
                _ if self.cancel.is_cancelled() => {
                    Some(self.end_run(RunEnd::Cancelled, None).await?)
                }
                RunStep::Ask | RunStep::Close if self.time.is_over(&self.shared) => {
                    Some(self.end_run(RunEnd::Deadline, None).await?)
                }
                RunStep::Ask => self.ask_model(false).await?,
                RunStep::Stop => Some(self.end_stopped().await?),
                RunStep::Fail => Some(self.end_at_cap().await?),
                RunStep::Close => self.ask_model(true).await?,
                RunStep::End(_) if self.take_late_messages().await? => None,
                RunStep::End(end) => self.check_output(end).await?,
            };
            if let Some(report) = ended {
                return Ok(report);
            }
        }
    }

    /// Checks whether a message arrived at the last moment. The channel is closed first, so that no
    /// sender gets a confirmation for a message that is not stored.
    pub(crate) async fn take_late_messages(&mut self) -> Result<bool, SessionError> {
        self.steering.close();
        let mut heard = false;
        while let Ok(steer) = self.steering.try_recv() {
            self.accept_steering(steer).await?;
            heard = true;
        }
        if heard {
            self.steering = self.shared.open_control(self.cancel.clone());
        }
        Ok(heard)
    }

    /// Cancels the calls that an earlier run left open, and adds their outcomes to the
    /// conversation. Nothing runs.
    pub(crate) async fn cancel_open_turn(&mut self) -> Result<(), SessionError> {
        let ConversationState::Open(turn) = self.conversation.state() else {
            return Ok(());
        };
        // Nothing is run, but the annotations of the tools decide whether a call that had started
        // may have taken effect.
        let view = self.tools.all_tools().clone();
        let run = self
            .shared
            .dispatcher
            .resume_with_stack(turn, view, self.stack())
            .await?;
        run.handle().interrupt(CANCELLED_BY_MESSAGE).await?;
        let report = run.run().await?;
        self.cancel_delegated(&report).await?;
        // Strategies are not asked: the run that they worked for has ended.
        self.add_results(&report, false, Vec::new());
        Ok(())
    }

    /// Runs what the last run left open as far as it gets, and adds the results to the conversation.
    /// Returns a report if calls are still pending.
    pub(crate) async fn settle_open_turn(&mut self) -> Result<Option<RunReport>, SessionError> {
        let ConversationState::Open(turn) = self.conversation.state() else {
            return Ok(None);
        };
        let run = match self.load_turn(turn).await? {
            Ok(run) => run,
            Err(error) => return self.end_run(RunEnd::Failed, Some(error)).await.map(Some),
        };
        let (report, waiting) = self.drive_with_agents(run).await?;
        if report.end == TurnEnd::Suspended {
            return self.end_suspended(&report, waiting).await.map(Some);
        }
        self.cancel_delegated(&report).await?;
        // Strategies are not asked: the run that they worked for ends here.
        self.add_results(&report, false, Vec::new());
        Ok(None)
    }

    /// Runs what is approved or has its result, asks for nothing, and cancels what is still pending.
    pub(crate) async fn abandon_open_turn(&mut self) -> Result<(), SessionError> {
        let ConversationState::Open(turn) = self.conversation.state() else {
            return Ok(());
        };
        if let Ok(run) = self.load_turn(turn).await? {
            let report = self.drive_turn(run.without_approver(), false).await?;
            if report.end == TurnEnd::Suspended {
                self.abandon_delegated(&report).await?;
            }
        }
        self.cancel_open_turn().await
    }

    /// Lets agents that work on pending calls run what is approved, and cancels the rest.
    async fn abandon_delegated(&self, report: &TurnReport) -> Result<(), SessionError> {
        let waiting = report
            .results
            .iter()
            .filter(|result| result.waits_for == Some(Suspension::Result));
        let layers = self.tools.added_layers();
        let by = self.delegating_run(&layers);
        for result in waiting {
            if let Some(agent) = self.shared.find_agent(&result.tool) {
                Box::pin(agent.abandon_call(by, result)).await?;
            }
        }
        Ok(())
    }

    /// Returns this run as the one that delegates to agents, with the layers that cover them.
    fn delegating_run<'a>(&'a self, layers: &'a [AnyLayer]) -> DelegatingRun<'a> {
        DelegatingRun {
            session: &self.shared,
            run: self.conversation.run,
            labels: &self.labels,
            layers,
            time_left: self.time.time_left(&self.shared),
        }
    }

    /// Cancels the sessions of agents whose calls were cancelled.
    pub(crate) async fn cancel_delegated(&self, report: &TurnReport) -> Result<(), SessionError> {
        let cancelled = report
            .results
            .iter()
            .filter(|result| result.status() == Some(Status::Cancelled));
        let layers = self.tools.added_layers();
        let by = self.delegating_run(&layers);
        for result in cancelled {
            if let Some(agent) = self.shared.find_agent(&result.tool) {
                Box::pin(agent.cancel_call(by, result)).await?;
            }
        }
        Ok(())
    }

    /// Asks the model and runs the calls it asks for.
    async fn ask_model(&mut self, closing: bool) -> Result<Option<RunReport>, SessionError> {
        let model = self.shared.model.clone();
        let info = match self.prepare_request(closing, model.name()).await {
            Ok(Some(info)) => info,
            Ok(None) => return self.end_run(RunEnd::Cancelled, None).await.map(Some),
            Err(error) => return self.end_run(error.run_end(), Some(error)).await.map(Some),
        };
        self.check_journal().await?;
        let mut exchange = ModelExchange {
            billing: self.run_billing(),
            shared: &self.shared,
            info: &info,
            request: &self.conversation.request,
            hold: &mut self.hold,
        };
        let replied = tokio::select! {
            biased;
            // Checked first: a run that was stopped before the request sends nothing.
            () = self.cancel.cancelled() => Err(RunEnd::Cancelled),
            () = self.time.until_over(&self.shared) => Err(RunEnd::Deadline),
            // A reply could not be recorded. What it may cost is charged by the process that drives
            // the session now, or when it is resumed.
            () = self.shared.journal().wait_for_failure() => return self.fail_with_journal(),
            reply = exchange.request_reply(&*model) => Ok(reply),
        };
        match replied {
            Err(end) => {
                // The request was sent, and it is unknown whether the provider charges for it.
                let alerts = self.charge_reply(None).await.1;
                let drafts = alerts
                    .into_iter()
                    .map(|alert| PendingEvent::Loop(info.clone(), alert));
                drop(self.shared.journal().append(drafts, []));
                self.end_run(end, None).await.map(Some)
            }
            Ok(Err(RunError::Model(error))) => self.end_without_reply(error).await.map(Some),
            Ok(Err(error)) => self.end_run(error.run_end(), Some(error)).await.map(Some),
            Ok(Ok((reply, routed))) => {
                self.note_routed_model(routed);
                match self.accept_reply(reply).await? {
                    Some(turn) => self.work_on_turn(turn).await,
                    None => Ok(None),
                }
            }
        }
    }

    /// Ends the run without a record, because the journal has failed.
    fn fail_with_journal(&self) -> Result<Option<RunReport>, SessionError> {
        let failure = self.shared.journal().failure();
        Err(failure.unwrap_or(JournalError::Stopped).into())
    }

    /// Notes that another model was chosen: it asks for the calls.
    fn note_routed_model(&mut self, routed: Option<RoutedModel>) {
        let Some(routed) = routed else { return };
        if let (Some(info), Ok(model)) = (&mut self.asked, routed.selected.parse::<ModelName>()) {
            let info = Arc::make_mut(info);
            info.provider = Some(model.provider);
            info.model = Some(model.model);
        }
    }

    /// Resumes a turn that was left open.
    async fn resume_turn(&mut self, turn: TurnId) -> Result<Option<RunReport>, SessionError> {
        match self.load_turn(turn).await? {
            Ok(run) => self.work_on_turn(run).await,
            Err(error) => self.end_run(RunEnd::Failed, Some(error)).await.map(Some),
        }
    }

    /// Loads a turn that was left open, with the view and the stack of its iteration.
    async fn load_turn(&mut self, turn: TurnId) -> Result<Result<TurnRun, RunError>, SessionError> {
        let view = match self.rebuild_view().await {
            Ok(view) => view,
            Err(error) => return Ok(Err(error)),
        };
        let run = self
            .shared
            .dispatcher
            .resume_with_stack(turn, view, self.stack())
            .await?;
        self.last = Some(run.info().clone());
        Ok(Ok(run))
    }

    /// Drives a turn, and the agents that it delegates to, and adds its results.
    async fn work_on_turn(&mut self, run: TurnRun) -> Result<Option<RunReport>, SessionError> {
        let (report, waiting) = self.drive_with_agents(run).await?;
        self.handle_turn_report(report, waiting).await
    }

    /// Drives a turn, and the agents that it delegates to, as far as they get. Also returns the
    /// pending calls of agents.
    async fn drive_with_agents(
        &mut self,
        run: TurnRun,
    ) -> Result<(TurnReport, Vec<PendingCall>), SessionError> {
        // The turn first runs until it suspends, so that agents learn of their calls; then
        // everything is awaited together.
        self.time.start_turn(&self.shared, &self.options);
        let waits = self.shared.limits.waits;
        let mut report = self
            .drive_turn(run, waits && self.shared.agents.is_empty())
            .await?;
        let mut waiting = Vec::new();
        while report.end == TurnEnd::Suspended && !self.time.stopped {
            if self.leaves_pending() {
                break;
            }
            let delegated = self.delegate_calls(&report).await?;
            waiting = delegated.waiting;
            if self.time.is_over(&self.shared) {
                self.time.stopped = true;
                break;
            }
            // The run may have been stopped at the last moment, or while agents were working.
            let idle = !delegated.delivered && !waits && !self.cancel.is_cancelled();
            if idle || self.leaves_pending() {
                break;
            }
            let view = self.conversation.request.view.clone();
            let again = self
                .shared
                .dispatcher
                .resume_with_stack(report.turn, view, self.stack())
                .await?;
            report = self
                .drive_turn(again, waits && !delegated.delivered)
                .await?;
        }
        self.time.end_turn();
        Ok((report, waiting))
    }

    /// Ends the run if the turn is suspended; otherwise adds its results.
    async fn handle_turn_report(
        &mut self,
        report: TurnReport,
        waiting: Vec<PendingCall>,
    ) -> Result<Option<RunReport>, SessionError> {
        if report.end == TurnEnd::Suspended {
            let mut ended = self.end_suspended(&report, waiting).await?;
            ended.settled = report.settled_calls();
            return Ok(Some(ended));
        }
        self.cancel_delegated(&report).await?;
        match self.accept_results(&report).await? {
            Err(error) => self.end_run(RunEnd::Failed, Some(error)).await.map(Some),
            Ok(()) => Ok(None),
        }
    }

    /// Ends the run as suspended, with its pending calls and those of agents.
    async fn end_suspended(
        &mut self,
        report: &TurnReport,
        waiting: Vec<PendingCall>,
    ) -> Result<RunReport, SessionError> {
        let end = if self.time.stopped {
            RunEnd::Deadline
        } else {
            RunEnd::Suspended
        };
        let mut ended = self.end_run(end, None).await?;
        ended.pending = self
            .pending_calls(report)
            .into_iter()
            .chain(waiting)
            .collect();
        Ok(ended)
    }

    /// Drives a turn and accepts messages meanwhile.
    async fn drive_turn(&mut self, run: TurnRun, waits: bool) -> Result<TurnReport, SessionError> {
        let handle = run.handle();
        let cancel = self.cancel.clone();
        if cancel.is_cancelled() {
            self.stop_turn(&handle).await?;
        }
        // The end of the turn is written with the end of the run, or before the model is awaited.
        let run = run.holding_end();
        let driving = async move {
            if waits {
                run.run_to_end().await
            } else {
                run.run().await
            }
        };
        let mut driving = pin!(driving);
        let mut told = false;
        let mut deadline = self.time.until_over(&self.shared);
        loop {
            tokio::select! {
                biased;
                report = &mut driving => return Ok(report?),
                // Interrupted once; the turn is driven until its calls have settled.
                () = cancel.cancelled(), if !told => {
                    told = true;
                    self.stop_turn(&handle).await?;
                }
                () = &mut deadline, if !told && !self.time.stopped => {
                    self.time.stopped = true;
                    handle.stop_running(DEADLINE).await?;
                }
                Some(steer) = self.steering.recv() => self.accept_steering(steer).await?,
            }
        }
    }

    /// Checks whether the run was stopped and leaves pending calls pending.
    fn leaves_pending(&self) -> bool {
        self.cancel.is_cancelled() && self.shared.keep_pending.load(Ordering::SeqCst)
    }

    /// Stops a turn because the run was stopped.
    async fn stop_turn(&self, handle: &TurnHandle) -> Result<(), SessionError> {
        if self.leaves_pending() {
            handle.stop_running(STOPPED).await?;
        } else {
            handle.interrupt(STOPPED).await?;
        }
        Ok(())
    }

    /// Lets agents work on the calls that are theirs, all at the same time.
    pub(crate) async fn delegate_calls(
        &mut self,
        report: &TurnReport,
    ) -> Result<DelegationResult, SessionError> {
        store_handoffs(&self.shared, self.conversation.run, report).await?;
        let theirs = report
            .results
            .iter()
            .filter(|result| result.waits_for == Some(Suspension::Result));
        let shared = self.shared.clone();
        let layers = self.tools.added_layers();
        let labels = self.labels.clone();
        let by = DelegatingRun {
            session: &shared,
            run: self.conversation.run,
            labels: &labels,
            layers: &layers,
            time_left: self.time.time_left(&shared),
        };
        let work = theirs.filter_map(|result| {
            let agent = shared.find_agent(&result.tool)?;
            let cancel = self.cancel.clone();
            Some(async move { (result.id, agent.work_on(by, result, cancel).await) })
        });
        let mut work = pin!(join_all(work));
        let worked = loop {
            tokio::select! {
                biased;
                worked = &mut work => break worked,
                Some(steer) = self.steering.recv() => self.accept_steering(steer).await?,
            }
        };
        let mut delivery = DelegationResult::default();
        for (call, worked) in worked {
            match worked? {
                DelegationState::Pending(pending) => delivery.waiting.extend(pending),
                DelegationState::Done(outcome) => {
                    self.deliver_outcome(report.turn, call, outcome).await?;
                    delivery.delivered = true;
                }
            }
        }
        Ok(delivery)
    }

    async fn deliver_outcome(
        &self,
        turn: TurnId,
        call: toolgate_core::CallId,
        outcome: Outcome,
    ) -> Result<(), SessionError> {
        let service = self.shared.dispatcher.approval_service();
        match service.deliver_result(turn, call, outcome).await {
            // A result that was delivered before stands.
            Ok(()) | Err(crate::DeliverError::Rejected(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// The result of delegating.
#[derive(Default)]
pub(crate) struct DelegationResult {
    /// The pending calls of agents.
    pub(crate) waiting: Vec<PendingCall>,
    /// True if an agent has finished.
    pub(crate) delivered: bool,
}

impl Drop for SessionRun {
    fn drop(&mut self) {
        self.write_results();
        self.shared.journal().flush();
        // From now on `say` and `interrupt` report that no run is under way.
        *self.shared.lock_control() = None;
    }
}
