//! Budgets of model requests: reserves what a request may cost before it is sent, and charges what
//! it did cost.

pub(crate) mod run;

use std::sync::Arc;

use toolgate_core::{
    BillingService, BudgetAlert, BudgetError, Budgets, Charge, ChargeId, Clock, Cost, Expense,
    Media, MediaSource, Message, ModelErrorKind, ModelName, ModelRequest, PartContent, Payer,
    Prices, RoutedModel, SessionId, StoreError, TurnId, UnknownPrice, Usage,
};

/// Keeps requests to models within the budgets of a [`BillingService`].
///
/// Around each request there are two steps: [`reserve`](Self::reserve) before it, which may reject
/// it, and [`settle`](Self::settle) or [`release`](Self::release) after it.
/// [`BillingService::recover`] ends what a lost process left in between. Without a budget the store
/// is never asked, and only the cost is calculated.
///
/// The reservation is an upper estimate: one token for every three bytes of input, at the highest
/// input price, and as many output tokens as the request allows. A limit on the output
/// ([`ModelRequest::max_tokens`]) therefore allows more requests within a small budget.
///
/// ```
/// # use std::sync::Arc;
/// # use toolgate_core::*;
/// # use toolgate_runtime::{ModelBilling, SystemClock};
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let two = BudgetRule::new("trial", BudgetScope::Global, BudgetPeriod::Day, BudgetUnit::Requests, 2);
/// let service = BillingService::new(StoreHandle::new(MemoryStore::new()), Budgets::new([two]));
/// let spending = ModelBilling::new(service, Arc::new(SystemClock::new()));
/// let (turn, model, request) = (TurnId::new(uuid::Uuid::nil()), ModelName::new("acme", "m"), ModelRequest::default());
/// for alerts in [1, 3] {
///     let hold = spending.reserve(turn, &request, &model).await?;
///     assert_eq!(spending.settle(hold, None).await.alerts.len(), alerts);
/// }
/// assert!(matches!(spending.reserve(turn, &request, &model).await, Err(BudgetError::Exceeded { .. })));
/// # Ok::<(), BudgetError>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct ModelBilling {
    service: BillingService,
    clock: Arc<dyn Clock>,
    prices: Arc<Prices>,
    unknown: UnknownPrice,
    others: Arc<[ModelName]>,
    assumed_output: u32,
    /// The session under which reservations are found again, if it is not the session that pays.
    session: Option<SessionId>,
}

/// The budget reserved for one request. If it is dropped, it stays reserved until it is recovered.
#[derive(Debug)]
#[must_use = "it has to be settled or released"]
pub struct BudgetReservation {
    model: ModelName,
    charge: Option<Charge>,
}

/// The result of a request that was charged.
#[derive(Debug)]
#[must_use = "alerts are returned only once"]
pub struct SettledCharge {
    /// The cost, if it is known.
    pub cost: Cost,
    /// The thresholds that were passed with it. They are not reported anywhere else.
    pub alerts: Vec<BudgetAlert>,
    /// The error, if it could not be charged or released. It stays reserved then, which allows
    /// less and never more.
    pub unbooked: Option<StoreError>,
}

/// Lower estimate of the bytes in a token, over everything that models read.
const BYTES_PER_TOKEN: u64 = 3;

/// Upper limit on what an image counts, in bytes: providers scale large ones down.
const PICTURE: usize = 24 * 1024;

/// Assumed output limit of a request that sets none.
const ASSUMED_OUTPUT: u32 = 8 * 1024;

impl ModelBilling {
    /// Creates a billing of requests to models without prices: every cost is unknown.
    pub fn new(service: BillingService, clock: Arc<dyn Clock>) -> Self {
        Self {
            service,
            clock,
            prices: Arc::default(),
            unknown: UnknownPrice::default(),
            others: [].into(),
            assumed_output: ASSUMED_OUTPUT,
            session: None,
        }
    }

    /// Sets the prices.
    #[must_use]
    pub fn with_prices(self, prices: impl Into<Arc<Prices>>) -> Self {
        Self {
            prices: prices.into(),
            ..self
        }
    }

    /// Returns the same billing for another payer. It is cheap enough for each run.
    #[must_use]
    pub fn for_payer(&self, payer: Payer) -> Self {
        let mut billing = self.clone();
        billing.service = billing.service.paid_by(payer);
        billing
    }

    /// Sets what happens to requests with an unknown price where there is a budget in money.
    #[must_use]
    pub fn on_unknown_price(self, unknown: UnknownPrice) -> Self {
        Self { unknown, ..self }
    }

    /// Names models that may be used in place of the one that is asked. The highest price of all is
    /// reserved.
    #[must_use]
    pub fn may_use(self, others: impl IntoIterator<Item = ModelName>) -> Self {
        Self {
            others: others.into_iter().collect(),
            ..self
        }
    }

    /// Sets how many output tokens are assumed for a request without a limit; by default 8192.
    #[must_use]
    pub fn assuming_output(self, tokens: u32) -> Self {
        Self {
            assumed_output: tokens,
            ..self
        }
    }

    /// Returns the same billing for requests of this session, whichever session pays for them.
    pub(crate) fn for_session(self, session: SessionId) -> Self {
        Self {
            session: Some(session),
            ..self
        }
    }

    /// Returns what a session that works for the same payer inherits.
    pub(crate) fn inherited_terms(&self) -> (Budgets, Arc<Prices>, Payer) {
        (
            self.service.budgets().clone(),
            self.prices.clone(),
            self.payer().clone(),
        )
    }

    /// Returns the service, for example to recover reservations.
    pub fn service(&self) -> &BillingService {
        &self.service
    }

    /// Returns the payer.
    pub fn payer(&self) -> &Payer {
        self.service.payer()
    }

    /// Reserves what a request may cost.
    ///
    /// # Errors
    ///
    /// Fails if the budget does not allow the request, if its price is unknown where money counts,
    /// or if the accounts could not be asked. The request must not be sent then.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the amount may stay reserved until it is recovered.
    pub async fn reserve(
        &self,
        turn: TurnId,
        request: &ModelRequest,
        model: &ModelName,
    ) -> Result<BudgetReservation, BudgetError> {
        let mut hold = BudgetReservation {
            model: model.clone(),
            charge: None,
        };
        let budgets = self.service.budgets();
        if budgets.is_empty() {
            return Ok(hold);
        }
        let id = ChargeId::Turn(turn);
        let expense = self.max_expense(request, model);
        let now = self.clock.now();
        let charge = budgets.build_charge(id, self.payer(), now, &expense, self.unknown);
        let charge = charge.map_err(|error| match error {
            BudgetError::UnknownPrice { budget, .. } => BudgetError::UnknownPrice {
                budget,
                model: Some(self.unpriced_model(model).clone()),
            },
            error => error,
        });
        if let Some(mut charge) = charge? {
            // Recovery looks for it under the session that asks, even if another one pays.
            charge.session = self.session.or(charge.session);
            hold.charge = Some(self.service.reserve(charge).await?);
        }
        Ok(hold)
    }

    /// Charges what a request cost. Without usage from the provider, the whole reservation is
    /// charged and the cost is unknown.
    pub async fn settle(&self, hold: BudgetReservation, usage: Option<Usage>) -> SettledCharge {
        let cost = usage.map_or(Cost::Unknown, |usage| {
            self.prices.request_cost(&hold.model, usage)
        });
        let actual = usage.map(|usage| Expense::for_request(cost, usage.total_tokens()));
        let booked = match hold.charge {
            Some(charge) => self.service.settle(charge, actual.as_ref()).await,
            None => Ok(Vec::new()),
        };
        SettledCharge::new(cost, booked)
    }

    /// Ends the reservation of a request that failed: all of it is charged if the provider may
    /// charge for the request, otherwise it is released.
    pub async fn settle_failed(
        &self,
        hold: BudgetReservation,
        kind: ModelErrorKind,
    ) -> SettledCharge {
        if may_be_charged(kind) {
            return self.settle(hold, None).await;
        }
        let released = self.release(hold).await;
        SettledCharge::new(Cost::Unknown, released.map(|()| Vec::new()))
    }

    /// Releases a reservation: the request was not sent, or the provider rejected it and does not
    /// charge for it.
    ///
    /// # Errors
    ///
    /// Fails if the store failed. The amount stays reserved then.
    pub async fn release(&self, hold: BudgetReservation) -> Result<(), StoreError> {
        match hold.charge {
            Some(charge) => self.service.release(charge).await,
            None => Ok(()),
        }
    }

    /// Returns the model without a price: the one that is asked, or one that may be used in its place.
    fn unpriced_model<'a>(&'a self, model: &'a ModelName) -> &'a ModelName {
        let mut models = [model].into_iter().chain(self.others.iter());
        let unpriced = models.find(|model| self.prices.price_of(model).is_none());
        unpriced.unwrap_or(model)
    }

    /// Returns the upper estimate of a request's cost.
    fn max_expense(&self, request: &ModelRequest, model: &ModelName) -> Expense {
        let read = request_bytes(request).div_ceil(BYTES_PER_TOKEN);
        let written = u64::from(request.max_tokens.unwrap_or(self.assumed_output));
        let costs = self
            .others
            .iter()
            .chain([model])
            .map(|model| self.prices.max_request_cost(model, read, written));
        let dearest = costs.reduce(|a, b| match (a, b) {
            (Cost::NanoUsd(a), Cost::NanoUsd(b)) => Cost::NanoUsd(a.max(b)),
            // One unknown price makes the maximum unknown: a guess could exceed the budget.
            (Cost::Unknown, _) | (_, Cost::Unknown) => Cost::Unknown,
        });
        Expense::for_request(dearest.unwrap_or_default(), read.saturating_add(written))
    }
}

impl SettledCharge {
    fn new(cost: Cost, booked: Result<Vec<BudgetAlert>, StoreError>) -> Self {
        let (alerts, unbooked) = match booked {
            Ok(alerts) => (alerts, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        Self {
            cost,
            alerts,
            unbooked,
        }
    }
}

/// Checks whether a provider may charge for a request that failed like this: it may have replied
/// without the reply arriving here.
const fn may_be_charged(kind: ModelErrorKind) -> bool {
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

impl BudgetReservation {
    /// Notes that another model was chosen, so that its price is charged.
    pub fn use_routed_model(&mut self, routed: &RoutedModel) {
        if let Ok(model) = routed.selected.parse() {
            self.model = model;
        }
    }

    /// Checks whether nothing is reserved.
    pub fn is_empty(&self) -> bool {
        self.charge.is_none()
    }
}

impl std::fmt::Debug for ModelBilling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelBilling")
            .field("service", &self.service)
            .finish_non_exhaustive()
    }
}

/// Returns about how many bytes a model is to read.
fn request_bytes(request: &ModelRequest) -> u64 {
    let instructions = request.instructions.as_ref().map_or(0, |text| text.len());
    let messages: usize = request
        .messages
        .iter()
        .map(|message| message_bytes(message))
        .sum();
    let tool =
        |spec: &toolgate_core::ToolSpec| spec.description.len() + spec.input.as_json().size();
    let tools: usize = request.view.specs().map(tool).sum();
    let output = request
        .output
        .as_ref()
        .map_or(0, |output| output.schema.as_json().size());
    (instructions + messages + tools + output) as u64
}

fn message_bytes(message: &Message) -> usize {
    let spared = |media: &Media| match &media.source {
        MediaSource::Data(text) if media.is_image() => text.len().saturating_sub(PICTURE),
        MediaSource::Data(_) | MediaSource::Url(_) => 0,
    };
    let spared = message.parts.iter().map(|part| match &part.content {
        PartContent::Media(media) => spared(media),
        PartContent::Result(answer) => answer.media.iter().map(spared).sum(),
        _ => 0,
    });
    let spared: usize = spared.sum();
    message.size().saturating_sub(spared)
}

#[cfg(test)]
mod tests;
