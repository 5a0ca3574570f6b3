//! The loop: model, calls, settle all, model, until there is nothing left to call.

use std::{pin::pin, sync::Arc};

use futures::{StreamExt, future::join_all};
use toolgate_core::{
    Delta, LoopEvent, Model, ModelError, ModelErrorKind, ModelName, Outcome, Reply, Routed, RunEnd,
    Status, Suspension, TurnId, TurnInfo, contained, contained_sync,
};

use crate::{
    Pending, RunReport, SessionError, TurnEnd, TurnReport, TurnRun,
    agent::Delegated,
    conversation::Place,
    journal::Draft,
    kernel::{Next, Run},
};

/// What a person is told of calls that wait while something else is said.
const SOMETHING_ELSE: &str = "something else was said before anybody decided";

/// What a person is told of calls that were under way when the run was stopped.
pub(crate) const STOPPED: &str = "the run was stopped";

/// After how many pieces of a reply others get a turn.
const AT_ONCE: u64 = 64;

impl Run {
    /// Drives the run to its end.
    pub(crate) async fn drive(mut self) -> Result<RunReport, SessionError> {
        loop {
            self.take_steering().await?;
            let ended = match self.next() {
                Next::Settle(turn) => self.take_up(turn).await?,
                _ if self.cancel.is_cancelled() => Some(self.end(RunEnd::Cancelled, None).await?),
                Next::Ask => self.ask(false).await?,
                Next::Stop => Some(self.stop().await?),
                Next::Fail => Some(self.fail_at_cap().await?),
                Next::Close => self.ask(true).await?,
                Next::End(_) if self.heard_more().await? => None,
                Next::End(end) => self.check_output(end).await?,
            };
            if let Some(report) = ended {
                return Ok(report);
            }
        }
    }

    /// Whether something was said in the last moment. From then on nobody is told that it was heard when it was not.
    pub(crate) async fn heard_more(&mut self) -> Result<bool, SessionError> {
        self.steering.close();
        let mut heard = false;
        while let Ok(steer) = self.steering.try_recv() {
            self.steered(steer).await?;
            heard = true;
        }
        if heard {
            self.steering = self.shared.listen(self.cancel.clone());
        }
        Ok(heard)
    }

    /// Cancels what an earlier run left waiting, and tells the model.
    pub(crate) async fn give_up_open_turn(&mut self) -> Result<(), SessionError> {
        let Place::Open(turn) = self.conversation.place() else {
            return Ok(());
        };
        // Nothing is run; but what the tools are decides what may have come of calls that had started.
        let view = self.tools.all().clone();
        let run = self
            .shared
            .dispatcher
            .resume_under(turn, view, self.stack())
            .await?;
        run.handle().interrupt(SOMETHING_ELSE).await?;
        let report = run.run().await?;
        self.call_off(&report).await?;
        // Strategies have no say: the run that they worked for is over.
        self.answer_calls(&report, false, Vec::new());
        Ok(())
    }

    /// Gives up what agents have left waiting for calls that are not wanted any more.
    pub(crate) async fn call_off(&self, report: &TurnReport) -> Result<(), SessionError> {
        let cancelled = report
            .results
            .iter()
            .filter(|result| result.status() == Some(Status::Cancelled));
        for result in cancelled {
            if let Some(agent) = self.shared.agent(&result.tool) {
                Box::pin(agent.call_off(&self.shared, result, self.conversation.run)).await?;
            }
        }
        Ok(())
    }

    /// Asks the model and does what it asks for.
    async fn ask(&mut self, closing: bool) -> Result<Option<RunReport>, SessionError> {
        let model = self.shared.model.clone();
        let info = match self.prepare(closing, model.name()).await {
            Ok(Some(info)) => info,
            Ok(None) => return self.end(RunEnd::Cancelled, None).await.map(Some),
            Err(error) => return self.end(error.end(), Some(error)).await.map(Some),
        };
        self.may_ask().await?;
        let cancel = self.cancel.clone();
        let replied = tokio::select! {
            biased;
            () = cancel.cancelled() => None,
            reply = self.infer(&*model, &info) => Some(reply),
        };
        match replied {
            None => {
                // It was sent, and what the provider makes of that is not known.
                let alerts = self.pay(None).await.1;
                let drafts = alerts
                    .into_iter()
                    .map(|alert| Draft::Loop(info.clone(), alert));
                drop(self.shared.journal().write(drafts, []));
                self.end(RunEnd::Cancelled, None).await.map(Some)
            }
            Some(Err(error)) => self.not_replied(error).await.map(Some),
            Some(Ok((reply, routed))) => {
                self.routed(routed);
                match self.replied(reply).await? {
                    Some(turn) => self.work(turn).await,
                    None => Ok(None),
                }
            }
        }
    }

    /// Asks the model and shows the reply while it comes.
    async fn infer(
        &self,
        model: &dyn Model,
        info: &Arc<TurnInfo>,
    ) -> Result<(Reply, Option<Routed>), ModelError> {
        let failed = |kind, text: &str| ModelError::new(kind, model.name().clone(), text);
        let panicked = |_| failed(ModelErrorKind::Malformed, "the model's adapter panicked");
        let request = &self.conversation.request;
        let mut pieces = contained_sync(|| model.reply(request)).map_err(panicked)?;
        let mut chosen = None;
        for number in 1_u64.. {
            if number % AT_ONCE == 0 {
                // A stream that always has something would never let anybody stop the run.
                tokio::task::yield_now().await;
            }
            match contained(pieces.next()).await.map_err(panicked)? {
                None => {
                    return Err(failed(
                        ModelErrorKind::Connection,
                        "the reply ended before it was whole",
                    ));
                }
                Some(Err(error)) => return Err(error),
                Some(Ok(Delta::Done(reply))) => return Ok((*reply, chosen)),
                Some(Ok(delta)) => {
                    if let Delta::Routed(routed) = &delta {
                        let event = LoopEvent::ModelRouted(routed.clone());
                        drop(
                            self.shared
                                .journal()
                                .write([Draft::Loop(info.clone(), event)], []),
                        );
                        chosen = Some(routed.clone());
                    }
                    self.shared.dispatcher.bus().show(info, &delta);
                }
            }
        }
        Err(failed(ModelErrorKind::Malformed, "the reply has no end"))
    }

    /// Takes note that another model was chosen: it is the one that asks for calls, and that is paid.
    fn routed(&mut self, routed: Option<Routed>) {
        let Some(routed) = routed else { return };
        if let Some(hold) = &mut self.hold {
            hold.routed(&routed);
        }
        if let (Some(info), Ok(model)) = (&mut self.asked, routed.selected.parse::<ModelName>()) {
            let info = Arc::make_mut(info);
            (info.provider, info.model) = (Some(model.provider), Some(model.model));
        }
    }

    /// Takes up a turn that was left behind.
    async fn take_up(&mut self, turn: TurnId) -> Result<Option<RunReport>, SessionError> {
        match self.view_again().await {
            Ok(view) => {
                let run = self
                    .shared
                    .dispatcher
                    .resume_under(turn, view, self.stack())
                    .await?;
                self.last = Some(run.info().clone());
                self.work(run).await
            }
            Err(error) => self.end(RunEnd::Failed, Some(error)).await.map(Some),
        }
    }

    /// Drives a turn, and the agents that it delegates to, as far as they come.
    async fn work(&mut self, run: TurnRun) -> Result<Option<RunReport>, SessionError> {
        // What agents have to do is found out first, and then waited for with the rest.
        let waits = self.shared.limits.waits;
        let mut report = self
            .drive_turn(run, waits && self.shared.agents.is_empty())
            .await?;
        let mut waiting = Vec::new();
        while report.end == TurnEnd::Suspended {
            let delegated = self.delegate(&report).await?;
            waiting = delegated.waiting;
            // Somebody may have stopped the run in the last moment, or while agents were at work.
            if !delegated.delivered && !waits && !self.cancel.is_cancelled() {
                break;
            }
            let view = self.conversation.request.view.clone();
            let again = self
                .shared
                .dispatcher
                .resume_under(report.turn, view, self.stack())
                .await?;
            report = self
                .drive_turn(again, waits && !delegated.delivered)
                .await?;
        }
        self.turned(report, waiting).await
    }

    /// What a turn that came to a halt means for the run.
    async fn turned(
        &mut self,
        report: TurnReport,
        waiting: Vec<Pending>,
    ) -> Result<Option<RunReport>, SessionError> {
        if report.end == TurnEnd::Suspended {
            let mut ended = self.end(RunEnd::Suspended, None).await?;
            ended.pending = self.pending(&report).into_iter().chain(waiting).collect();
            return Ok(Some(ended));
        }
        self.call_off(&report).await?;
        match self.settled(&report).await? {
            Err(error) => self.end(RunEnd::Failed, Some(error)).await.map(Some),
            Ok(()) => Ok(None),
        }
    }

    /// Drives a turn and listens meanwhile.
    async fn drive_turn(&mut self, run: TurnRun, waits: bool) -> Result<TurnReport, SessionError> {
        let (handle, cancel) = (run.handle(), self.cancel.clone());
        if cancel.is_cancelled() {
            handle.interrupt(STOPPED).await?;
        }
        let driving = async move {
            if waits {
                run.run_to_end().await
            } else {
                run.run().await
            }
        };
        let (mut driving, mut told) = (pin!(driving), false);
        loop {
            tokio::select! {
                biased;
                report = &mut driving => return Ok(report?),
                () = cancel.cancelled(), if !told => {
                    told = true;
                    handle.interrupt(STOPPED).await?;
                }
                Some(steer) = self.steering.recv() => self.steered(steer).await?,
            }
        }
    }

    /// Lets agents work on the calls that are theirs, all at once.
    pub(crate) async fn delegate(&mut self, report: &TurnReport) -> Result<Delivery, SessionError> {
        let theirs = report
            .results
            .iter()
            .filter(|result| result.waits_for == Some(Suspension::Result));
        let (shared, run) = (self.shared.clone(), self.conversation.run);
        let work = theirs.filter_map(|result| {
            let (agent, shared, cancel) =
                (shared.agent(&result.tool)?, &shared, self.cancel.clone());
            Some(async move { (result.id, agent.work(shared, result, run, cancel).await) })
        });
        let mut work = pin!(join_all(work));
        let worked = loop {
            tokio::select! {
                biased;
                worked = &mut work => break worked,
                Some(steer) = self.steering.recv() => self.steered(steer).await?,
            }
        };
        let mut delivery = Delivery::default();
        for (call, worked) in worked {
            match worked? {
                Delegated::Waits(pending) => delivery.waiting.extend(pending),
                Delegated::Done(outcome) => {
                    self.deliver(report.turn, call, outcome).await?;
                    delivery.delivered = true;
                }
            }
        }
        Ok(delivery)
    }

    async fn deliver(
        &self,
        turn: TurnId,
        call: toolgate_core::CallId,
        outcome: Outcome,
    ) -> Result<(), SessionError> {
        match self.shared.dispatcher.deliver(turn, call, outcome).await {
            // One that was delivered before stands.
            Ok(()) | Err(crate::PostError::Refused(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// What came of delegating.
#[derive(Default)]
pub(crate) struct Delivery {
    /// What agents wait for.
    pub(crate) waiting: Vec<Pending>,
    /// Whether an agent has come to an end.
    pub(crate) delivered: bool,
}

impl Drop for Run {
    fn drop(&mut self) {
        self.write_answers();
        *self.shared.control() = None;
    }
}
