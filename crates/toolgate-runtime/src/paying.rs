//! How a run pays for the models it asks: before each request and after it, and for what a lost process left.

use std::sync::Arc;

use toolgate_core::{Cost, LoopEvent, ModelErrorKind, ModelName, Payer, StoreError, TurnId, Usage};

use crate::{
    RunError, SessionError, Spending, kernel::Run, recursive_bill::is_question, session::Shared,
};

impl Run {
    /// Sets aside what a request may cost, or says why the model must not be asked.
    pub(crate) async fn reserve(
        &mut self,
        turn: TurnId,
        model: &ModelName,
    ) -> Result<(), RunError> {
        let request = &self.conversation.request;
        let hold = self.spending().reserve(turn, request, model).await;
        self.hold = Some(hold.map_err(|error| RunError::Budget(Arc::new(error)))?);
        Ok(())
    }

    /// Asks nobody if it cannot be written down: the reply would be lost, and whoever recovers would not know of it.
    pub(crate) async fn may_ask(&mut self) -> Result<(), SessionError> {
        let Some(error) = self.shared.journal().failure() else {
            return Ok(());
        };
        if let Some(hold) = self.hold.take() {
            // What cannot be given back now is found when the session is taken up again.
            let _ = self.shared.spending.release(hold).await;
        }
        Err(error.into())
    }

    pub(crate) fn spending(&self) -> Spending {
        let base = &self.shared.spending;
        // An agent's requests are part of the run that delegated.
        let run = base.payer().run.or(Some(self.conversation.run));
        base.paid_by(Payer {
            run,
            ..base.payer().clone()
        })
    }

    /// Books what a reply took; returns what it cost and the alerts that this set off.
    pub(crate) async fn pay(&mut self, usage: Option<Usage>) -> (Cost, Vec<LoopEvent>) {
        let Some(hold) = self.hold.take() else {
            return (Cost::Unknown, Vec::new());
        };
        // What cannot be booked stays set aside, which allows less and never more.
        let paid = self.shared.spending.settle(hold, usage).await;
        (
            paid.cost,
            paid.alerts.into_iter().map(LoopEvent::from).collect(),
        )
    }

    /// Gives back what was set aside for a request that came to nothing, unless the provider may ask money for it.
    pub(crate) async fn not_paid(&mut self, kind: ModelErrorKind) -> Vec<LoopEvent> {
        if may_be_charged(kind) {
            return self.pay(None).await.1;
        }
        if let Some(hold) = self.hold.take() {
            // What cannot be given back now is found when the session is taken up again.
            let _ = self.shared.spending.release(hold).await;
        }
        Vec::new()
    }
}

/// Whether a provider may ask money for a request that ended like this: it may have replied, and nobody heard it.
pub(crate) const fn may_be_charged(kind: ModelErrorKind) -> bool {
    match kind {
        ModelErrorKind::Timeout
        | ModelErrorKind::Connection
        | ModelErrorKind::Malformed
        | ModelErrorKind::Refused => true,
        ModelErrorKind::RateLimited
        | ModelErrorKind::Overloaded
        | ModelErrorKind::Auth
        | ModelErrorKind::Quota
        | ModelErrorKind::BadRequest
        | ModelErrorKind::TooLong
        | ModelErrorKind::NotFound
        | ModelErrorKind::Server
        | ModelErrorKind::Budget
        | ModelErrorKind::Setup => false,
    }
}

impl Shared {
    /// Puts right what a lost process left set aside: booked if the request was sent, given back if it was not.
    pub(crate) async fn recover_spending(&self) -> Result<(), StoreError> {
        for turn in self.spending.left_open(self.dispatcher.session()).await? {
            let sent = is_question(turn) || self.was_asked(turn).await?;
            // The alerts were for a run that nobody follows any more; the thresholds stay passed.
            drop(self.spending.recover(turn, sent).await?);
        }
        self.spending
            .recover_calls(self.dispatcher.session())
            .await?;
        Ok(())
    }
}
