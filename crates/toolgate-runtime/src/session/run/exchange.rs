//! One model request of a run and its retries: pieces are published, each attempt is billed and
//! recorded.

use std::sync::Arc;

use futures::StreamExt;
use toolgate_core::{
    Delta, Model, ModelError, ModelErrorKind, ModelRequest, ModelRetry, Reply, RoutedModel,
    SessionEvent, TurnInfo, run_contained, run_contained_sync,
};

use crate::{
    BudgetReservation, ModelBilling, RunError,
    journal::PendingEvent,
    session::{SessionShared, run::live_pieces::LivePieces},
};

/// Number of reply pieces after which other tasks get a turn.
const PIECES_PER_YIELD: u64 = 64;

/// A request under way. The reservation stays with the run, which settles it if the request is
/// dropped.
pub(super) struct ModelExchange<'a> {
    pub(super) shared: &'a SessionShared,
    pub(super) info: &'a Arc<TurnInfo>,
    pub(super) request: &'a ModelRequest,
    pub(super) billing: ModelBilling,
    pub(super) hold: &'a mut Option<BudgetReservation>,
}

impl ModelExchange<'_> {
    /// Asks the model and publishes the reply while it arrives. Also returns the choice of a
    /// router.
    pub(super) async fn request_reply(
        &mut self,
        model: &dyn Model,
    ) -> Result<(Reply, Option<RoutedModel>), RunError> {
        let failed =
            |kind, text: &str| RunError::Model(ModelError::new(kind, model.name().clone(), text));
        let panicked = |_| failed(ModelErrorKind::Malformed, "the model's adapter panicked");
        let request = self.request;
        let mut pieces = run_contained_sync(|| model.reply(request)).map_err(panicked)?;
        let mut live = LivePieces::new(&self.shared.dispatcher, self.info);
        let mut chosen = None;
        let mut attempt = 1;
        for number in 1_u64.. {
            if number % PIECES_PER_YIELD == 0 {
                // A stream that is always ready would never let the run be stopped.
                tokio::task::yield_now().await;
            }
            let Some(piece) = run_contained(pieces.next()).await.map_err(panicked)? else {
                let text = "the reply ended before it was complete";
                return Err(failed(ModelErrorKind::Connection, text));
            };
            let delta = piece.map_err(RunError::Model)?;
            live.publish(&delta);
            match delta {
                Delta::Done(reply) => return Ok((*reply, chosen)),
                Delta::Routed(routed) => chosen = Some(self.note_choice(routed)),
                Delta::Retry(retry) => {
                    attempt += 1;
                    self.begin_retry(model, &retry, attempt).await?;
                    live.begin_attempt();
                }
                Delta::Text(_)
                | Delta::Reasoning(_)
                | Delta::Call { .. }
                | Delta::Arguments { .. } => {}
            }
        }
        Err(failed(ModelErrorKind::Malformed, "the reply has no end"))
    }

    /// Records the choice of a router; its price is charged.
    fn note_choice(&mut self, routed: RoutedModel) -> RoutedModel {
        if let Some(hold) = self.hold {
            hold.use_routed_model(&routed);
        }
        self.record([SessionEvent::ModelRouted(routed.clone())]);
        routed
    }

    /// Ends the bill of the attempt that failed and begins that of the next one. The next request
    /// is sent only when the budget allows it.
    async fn begin_retry(
        &mut self,
        model: &dyn Model,
        retry: &ModelRetry,
        attempt: u32,
    ) -> Result<(), RunError> {
        let ModelRetry { error, delay } = retry;
        let failed = SessionEvent::InferenceFailed {
            code: error.kind,
            error: self.shared.visible_text(&error.to_string()),
            retry_in_ms: Some(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)),
        };
        let mut events = vec![failed];
        if let Some(hold) = self.hold.take() {
            let ended = self.billing.settle_failed(hold, error.kind).await;
            events.extend(ended.alerts.into_iter().map(SessionEvent::from));
        }
        let again = self
            .billing
            .reserve(self.info.turn, self.request, model.name());
        let again = again.await;
        if again.is_ok() {
            events.push(SessionEvent::InferenceStarted {
                attempt,
                messages: self.request.messages.len() as u64,
                tools: u32::try_from(self.request.view.len()).unwrap_or(u32::MAX),
            });
        }
        self.record(events);
        *self.hold = Some(again.map_err(|error| RunError::Budget(Arc::new(error)))?);
        Ok(())
    }

    fn record(&self, events: impl IntoIterator<Item = SessionEvent>) {
        let drafts = events
            .into_iter()
            .map(|event| PendingEvent::Loop(self.info.clone(), event));
        // Not awaited: the reply is written after it, and a journal that failed reports it then.
        drop(self.shared.journal().append(drafts, []));
    }
}
