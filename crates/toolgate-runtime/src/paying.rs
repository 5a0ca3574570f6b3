//! How a run pays for the models it asks: before each request and after it, and for what a lost process left.

use std::sync::Arc;

use toolgate_core::{Cost, LoopEvent, ModelErrorKind, ModelName, Payer, StoreError, TurnId, Usage};

use crate::{RunError, Spending, kernel::Run, session::Shared};

impl Run {
    /// Sets aside what a request may cost, or says why the model must not be asked.
    pub(crate) async fn reserve(&mut self, turn: TurnId, model: &ModelName) -> Result<(), RunError> {
        let request = &self.conversation.request;
        let hold = self.spending().reserve(turn, request, model).await;
        self.hold = Some(hold.map_err(|error| RunError::Budget(Arc::new(error)))?);
        Ok(())
    }

    fn spending(&self) -> Spending {
        let (base, run) = (&self.shared.spending, Some(self.conversation.run));
        base.paid_by(Payer { run, ..base.payer().clone() })
    }

    /// Books what a reply took; returns what it cost and the alerts that this set off.
    pub(crate) async fn pay(&mut self, usage: Option<Usage>) -> (Cost, Vec<LoopEvent>) {
        let Some(hold) = self.hold.take() else { return (Cost::Unknown, Vec::new()) };
        // What cannot be booked stays set aside, which allows less and never more.
        let paid = self.shared.spending.settle(hold, usage).await;
        (paid.cost, paid.alerts.into_iter().map(LoopEvent::from).collect())
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
const fn may_be_charged(kind: ModelErrorKind) -> bool {
    match kind {
        ModelErrorKind::Timeout | ModelErrorKind::Connection | ModelErrorKind::Malformed | ModelErrorKind::Refused => {
            true
        }
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
        const LAST: u64 = 256;
        let session = self.dispatcher.session();
        let open = self.spending.left_open(session).await?;
        if open.is_empty() {
            return Ok(());
        }
        let store = self.dispatcher.store();
        let from = store.revision(session).await?.saturating_sub(LAST);
        let events = store.events(session, from, LAST as usize).await?;
        for turn in open {
            let started = |event: &&Arc<toolgate_core::Event>| {
                matches!(event.as_loop(), Some(LoopEvent::InferenceStarted { .. })) && event.turn_info().turn == turn
            };
            let sent = events.iter().any(|event| started(&event));
            // The alerts were for a run that nobody follows any more; the thresholds stay passed.
            drop(self.spending.recover(turn, sent).await?);
        }
        Ok(())
    }
}
