//! Billing of a run: before and after each model request, and for what a lost process left.

use std::sync::Arc;

use toolgate_core::{Cost, ModelErrorKind, ModelName, Payer, SessionEvent, TurnId, Usage};

use crate::{
    ModelBilling, RunError, SessionError,
    agent::recursive::billing::is_question,
    journal::PendingEvent,
    session::{SessionShared, run::steps::SessionRun},
};

impl SessionRun {
    /// Reserves what a request may cost, or returns why the model must not be asked.
    pub(crate) async fn reserve_budget(
        &mut self,
        turn: TurnId,
        model: &ModelName,
    ) -> Result<(), RunError> {
        let request = &self.conversation.request;
        let hold = self.run_billing().reserve(turn, request, model).await;
        self.hold = Some(hold.map_err(|error| RunError::Budget(Arc::new(error)))?);
        Ok(())
    }

    /// Checks that the journal works. If it does not, the model must not be asked: the reply would
    /// be lost, and recovery would not know of the request.
    pub(crate) async fn check_journal(&mut self) -> Result<(), SessionError> {
        let Some(error) = self.shared.journal().failure() else {
            return Ok(());
        };
        if let Some(hold) = self.hold.take() {
            // A reservation that cannot be released now is found when the session is resumed.
            let _ = self.shared.spending.release(hold).await;
        }
        Err(error.into())
    }

    pub(crate) fn run_billing(&self) -> ModelBilling {
        let base = &self.shared.spending;
        // An agent's requests are part of the run that delegated.
        let run = base.payer().run.or(Some(self.conversation.run));
        base.for_payer(Payer {
            run,
            ..base.payer().clone()
        })
    }

    /// Charges a reply; returns its cost and the alerts that it caused.
    pub(crate) async fn charge_reply(&mut self, usage: Option<Usage>) -> (Cost, Vec<SessionEvent>) {
        let Some(hold) = self.hold.take() else {
            return (Cost::Unknown, Vec::new());
        };
        // What cannot be charged stays reserved, which allows less and never more.
        let paid = self.shared.spending.settle(hold, usage).await;
        (
            paid.cost,
            paid.alerts.into_iter().map(SessionEvent::from).collect(),
        )
    }

    /// Ends the reservation of a failed request; returns the alerts that it caused.
    pub(crate) async fn settle_failed(&mut self, kind: ModelErrorKind) -> Vec<SessionEvent> {
        let Some(hold) = self.hold.take() else {
            return Vec::new();
        };
        // A reservation that cannot be ended now is found when the session is resumed.
        let ended = self.shared.spending.settle_failed(hold, kind).await;
        ended.alerts.into_iter().map(SessionEvent::from).collect()
    }
}

impl SessionShared {
    /// Ends the reservations that a lost process left: charged if the request was sent or the call
    /// ran, released if not. The thresholds that this passes are events of the last turn.
    pub(crate) async fn recover_reservations(&self) -> Result<(), SessionError> {
        let was_sent = |turn| async move { Ok(is_question(turn) || self.was_asked(turn).await?) };
        let service = self.spending.service();
        let session = self.dispatcher.session();
        let alerts = service.recover_session(session, was_sent).await?;
        if alerts.is_empty() {
            return Ok(());
        }
        let last = self.find_last_event(|_| true).await?;
        let info = last.map_or_else(
            || Arc::new(self.new_turn_info(0)),
            |last| last.turn_info().clone(),
        );
        let events = alerts
            .into_iter()
            .map(|alert| PendingEvent::Loop(info.clone(), alert.into()));
        Ok(self.journal().append(events, []).await?)
    }
}
