//! Where strategies are asked: before each model request and after each settled turn.

use tokio_util::sync::CancellationToken;
use toolgate_core::{AnyLayer, ModelRequest, SessionEvent, TurnInfo, Usage};

use std::sync::Arc;

use crate::{
    ModelBilling, RequestContext, RunError, StrategyAction, TurnContext, TurnReport,
    journal::PendingEvent,
    session::{SessionShared, run::steps::SessionRun},
};

/// The iteration that strategies are asked about.
pub(super) struct StrategyIteration<'a> {
    pub(super) shared: &'a SessionShared,
    pub(super) run: u64,
    pub(super) iteration: u32,
    /// Stops the strategies.
    pub(super) stop: &'a CancellationToken,
}

impl StrategyIteration<'_> {
    /// Lets strategies change the request, and returns the layers that they add. Returns nothing if
    /// the run was stopped before all of them had finished.
    pub(super) async fn prepare(
        &self,
        spending: &ModelBilling,
        request: &mut ModelRequest,
        events: &mut Vec<SessionEvent>,
    ) -> Result<Option<Vec<AnyLayer>>, RunError> {
        let mut layers = Vec::new();
        for strategy in &self.shared.strategies {
            let mut request_context = RequestContext {
                iteration: self.iteration,
                session: self.shared.dispatcher.session(),
                run: self.run,
                store: self.shared.dispatcher.store(),
                now: self.shared.now(),
                spending,
                request,
                events,
                layers: &mut layers,
            };
            match unless_stopped(self.stop, strategy.prepare_request(&mut request_context)).await {
                Some(prepared) => prepared.map_err(RunError::Strategy)?,
                None => return Ok(None),
            }
        }
        Ok(Some(layers))
    }

    /// Asks strategies how the run continues after a settled turn.
    pub(super) async fn settled(
        &self,
        report: &TurnReport,
        usage: Usage,
        events: &mut Vec<SessionEvent>,
    ) -> Result<StrategyAction, RunError> {
        let mut onward = StrategyAction::Continue;
        for strategy in &self.shared.strategies {
            let mut turned = TurnContext {
                iteration: self.iteration,
                session: self.shared.dispatcher.session(),
                run: self.run,
                store: self.shared.dispatcher.store(),
                now: self.shared.now(),
                report,
                usage,
                events,
            };
            // The results are kept, whatever a strategy that was stopped would have done with them.
            let Some(said) = unless_stopped(self.stop, strategy.turn_settled(&mut turned)).await
            else {
                break;
            };
            match said.map_err(RunError::Strategy)? {
                StrategyAction::Continue => {}
                finish @ StrategyAction::Finish(_) => return Ok(finish),
                StrategyAction::Refund => onward = StrategyAction::Refund,
            }
        }
        Ok(onward)
    }
}

impl SessionRun {
    /// Returns the layers that strategies add for an iteration. Returns nothing if the run was
    /// stopped before all of them had finished.
    pub(super) async fn prepare_strategies(
        &mut self,
        iteration: u32,
        events: &mut Vec<SessionEvent>,
    ) -> Result<Option<Vec<AnyLayer>>, RunError> {
        if self.shared.strategies.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let spending = self.run_billing();
        let asked = StrategyIteration {
            shared: &self.shared,
            run: self.conversation.run,
            iteration,
            stop: &self.cancel,
        };
        let request = &mut self.conversation.request;
        asked.prepare(&spending, request, events).await
    }

    pub(super) async fn strategies_settled(
        &mut self,
        report: &TurnReport,
        iteration: u32,
        events: &mut Vec<SessionEvent>,
    ) -> Result<StrategyAction, RunError> {
        let asked = StrategyIteration {
            shared: &self.shared,
            run: self.conversation.run,
            iteration,
            stop: &self.cancel,
        };
        asked.settled(report, self.conversation.usage, events).await
    }

    /// Records the events of strategies.
    pub(super) fn write_strategy_events(&mut self, events: Vec<SessionEvent>) {
        let info = self.next_turn_info();
        let drafts = self.shared.strategy_drafts(&info, events);
        drop(
            self.shared
                .journal()
                .append(drafts, std::mem::take(&mut self.unwritten)),
        );
    }
}

impl SessionShared {
    /// Returns the events of strategies as they may be shown.
    pub(super) fn strategy_drafts(
        &self,
        info: &Arc<TurnInfo>,
        events: Vec<SessionEvent>,
    ) -> Vec<PendingEvent> {
        let redacted = events
            .into_iter()
            .map(|event| self.dispatcher.0.redact_strategy_event(event));
        redacted
            .map(|event| PendingEvent::Loop(info.clone(), event))
            .collect()
    }
}

/// Returns the result of `work`, or nothing if the run is stopped first.
async fn unless_stopped<T>(stop: &CancellationToken, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        // Biased towards the work: a result that is ready is not thrown away.
        done = work => Some(done),
        () = stop.cancelled() => None,
    }
}
