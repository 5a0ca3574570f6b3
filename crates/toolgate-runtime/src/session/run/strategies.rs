//! Where a run asks its strategies: before each model request and after each settled turn.

use tokio_util::sync::CancellationToken;
use toolgate_core::{AnyLayer, SessionEvent};

use crate::{
    RequestContext, RunError, StrategyAction, TurnContext, TurnReport, journal::PendingEvent,
    session::run::steps::SessionRun,
};

impl SessionRun {
    /// Returns the layers that strategies add for an iteration. Returns nothing if the run was
    /// stopped before all of them had finished.
    pub(super) async fn prepare_strategies(
        &mut self,
        iteration: u32,
        events: &mut Vec<SessionEvent>,
    ) -> Result<Option<Vec<AnyLayer>>, RunError> {
        let mut layers = Vec::new();
        if self.shared.strategies.is_empty() {
            return Ok(Some(layers));
        }
        let run = self.conversation.run;
        let spending = self.run_billing();
        for strategy in &self.shared.strategies {
            let mut request_context = RequestContext {
                iteration,
                session: self.shared.dispatcher.session(),
                run,
                store: self.shared.dispatcher.store(),
                now: self.shared.now(),
                spending: &spending,
                request: &mut self.conversation.request,
                events,
                layers: &mut layers,
            };
            match unless_stopped(&self.cancel, strategy.prepare_request(&mut request_context)).await
            {
                Some(prepared) => prepared.map_err(RunError::Strategy)?,
                None => return Ok(None),
            }
        }
        Ok(Some(layers))
    }

    pub(super) async fn strategies_settled(
        &mut self,
        report: &TurnReport,
        iteration: u32,
        events: &mut Vec<SessionEvent>,
    ) -> Result<StrategyAction, RunError> {
        let mut onward = StrategyAction::Continue;
        for strategy in &self.shared.strategies {
            let mut turned = TurnContext {
                iteration,
                session: self.shared.dispatcher.session(),
                run: self.conversation.run,
                store: self.shared.dispatcher.store(),
                now: self.shared.now(),
                report,
                usage: self.conversation.usage,
                events,
            };
            // The results are kept, whatever a strategy that was stopped would have done with them.
            let Some(said) = unless_stopped(&self.cancel, strategy.turn_settled(&mut turned)).await
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

    /// Records the events of strategies.
    pub(super) fn write_strategy_events(&mut self, events: Vec<SessionEvent>) {
        let info = self.next_turn_info();
        let events = events
            .into_iter()
            .map(|event| self.shared.dispatcher.0.redact_strategy_event(event));
        let drafts: Vec<_> = events
            .map(|event| PendingEvent::Loop(info.clone(), event))
            .collect();
        drop(
            self.shared
                .journal()
                .append(drafts, std::mem::take(&mut self.unwritten)),
        );
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
