//! Pays for models: sets aside what a request may cost before it is sent, and books what it did cost.

use std::sync::Arc;

use toolgate_core::{
    BudgetAlert, BudgetError, Budgets, CallId, Charge, ChargeFilter, ChargeId, Clock, Content,
    Cost, Expense, Media, MediaSource, Message, ModelName, ModelRequest, Payer, Prices, Record,
    RecordKey, Routed, SessionId, StoreError, StoreHandle, TurnId, UnknownPrice, Usage,
};

/// Keeps requests to models within budgets.
///
/// Around each request there are two lines: [`reserve`](Self::reserve) before it, which may refuse, and
/// [`settle`](Self::settle) or [`release`](Self::release) after it. What a lost process left in between is put right by
/// [`recover`](Self::recover). Where there is no budget, the store is never asked and only the cost is reckoned.
///
/// What a request may take is estimated from above: a token for every three bytes that the model is to read, at the
/// dearest price for reading, and as many tokens as it may write. Whoever limits what a model may write
/// ([`ModelRequest::max_tokens`]) gets more out of a small budget.
///
/// ```
/// # use std::sync::Arc;
/// # use toolgate_core::*;
/// # use toolgate_runtime::{Spending, SystemClock};
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let two = BudgetRule::new("trial", BudgetScope::Global, BudgetPeriod::Day, BudgetUnit::Requests, 2);
/// let store = StoreHandle::new(MemoryStore::new());
/// let spending = Spending::new(store, Arc::new(SystemClock::new())).with_budgets(Budgets::new([two]));
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
pub struct Spending {
    store: StoreHandle,
    clock: Arc<dyn Clock>,
    budgets: Budgets,
    prices: Arc<Prices>,
    payer: Payer,
    unknown: UnknownPrice,
    others: Arc<[ModelName]>,
    assumed_output: u32,
    /// Where what is set aside is found again, if that is not the session that pays.
    session: Option<SessionId>,
}

/// What is set aside for one request. If it is dropped, it stays set aside until it is recovered.
#[derive(Debug)]
#[must_use = "it has to be settled or released"]
pub struct Hold {
    model: ModelName,
    charge: Option<Charge>,
}

/// What came of a request that was paid for.
#[derive(Debug)]
#[must_use = "alerts are told once"]
pub struct Paid {
    /// What it cost, if that is known.
    pub cost: Cost,
    /// The thresholds that were passed with it. Nobody else is told of them.
    pub alerts: Vec<BudgetAlert>,
    /// Why it could not be booked, if so. It stays set aside then, which allows less and never more.
    pub unbooked: Option<StoreError>,
}

/// How many bytes a token has at least, over all that models read.
const BYTES_PER_TOKEN: u64 = 3;

/// What a picture counts at most, in bytes: providers scale large ones down.
const PICTURE: usize = 24 * 1024;

/// What a model writes at most in general, where nobody has said how much it may.
const ASSUMED_OUTPUT: u32 = 8 * 1024;

impl Spending {
    /// Without budgets and prices: everything is allowed, and every cost is unknown.
    pub fn new(store: StoreHandle, clock: Arc<dyn Clock>) -> Self {
        Self {
            store,
            clock,
            budgets: Budgets::default(),
            prices: Arc::default(),
            payer: Payer::default(),
            unknown: UnknownPrice::default(),
            others: [].into(),
            assumed_output: ASSUMED_OUTPUT,
            session: None,
        }
    }

    /// Keeps to these budgets.
    #[must_use]
    pub fn with_budgets(self, budgets: Budgets) -> Self {
        Self { budgets, ..self }
    }

    /// Reckons with these prices.
    #[must_use]
    pub fn with_prices(self, prices: impl Into<Arc<Prices>>) -> Self {
        Self {
            prices: prices.into(),
            ..self
        }
    }

    /// The same for somebody else: whoever it is that pays. Cheap enough to be done for each run.
    #[must_use]
    pub fn paid_by(&self, payer: Payer) -> Self {
        Self {
            payer,
            ..self.clone()
        }
    }

    /// What happens to requests whose price is not known where there is a budget in money.
    #[must_use]
    pub fn on_unknown_price(self, unknown: UnknownPrice) -> Self {
        Self { unknown, ..self }
    }

    /// Names models that may be used in place of the one that is asked. The dearest of all is set aside.
    #[must_use]
    pub fn may_use(self, others: impl IntoIterator<Item = ModelName>) -> Self {
        Self {
            others: others.into_iter().collect(),
            ..self
        }
    }

    /// How many tokens a model is taken to write where the request does not limit it; 8192 unless said otherwise.
    #[must_use]
    pub fn assuming_output(self, tokens: u32) -> Self {
        Self {
            assumed_output: tokens,
            ..self
        }
    }

    /// The same for requests of this session, whichever session pays for them.
    pub(crate) fn within(self, session: SessionId) -> Self {
        Self {
            session: Some(session),
            ..self
        }
    }

    /// What whoever works on behalf of the same payer keeps to.
    pub(crate) fn terms(&self) -> (Budgets, Arc<Prices>, Payer) {
        (
            self.budgets.clone(),
            self.prices.clone(),
            self.payer.clone(),
        )
    }

    /// Who pays.
    pub fn payer(&self) -> &Payer {
        &self.payer
    }

    /// Sets aside what a request may take, or says why it must not be sent.
    ///
    /// Where the accounts cannot be asked, it must not be sent either.
    pub async fn reserve(
        &self,
        turn: TurnId,
        request: &ModelRequest,
        model: &ModelName,
    ) -> Result<Hold, BudgetError> {
        let mut hold = Hold {
            model: model.clone(),
            charge: None,
        };
        if self.budgets.is_empty() {
            return Ok(hold);
        }
        let (id, expense) = (ChargeId::Turn(turn), self.at_most(request, model));
        let charge =
            self.budgets
                .charge(id, &self.payer, self.clock.now(), &expense, self.unknown)?;
        if let Some(mut charge) = charge {
            charge.session = self.session.or(charge.session);
            let open = self
                .store
                .reserve(charge)
                .await
                .map_err(|error| self.budgets.refused(error))?;
            hold.charge = Some(open);
        }
        Ok(hold)
    }

    /// Books what a request took. If the provider did not say, all that was set aside is booked and the cost is unknown.
    pub async fn settle(&self, hold: Hold, usage: Option<Usage>) -> Paid {
        let cost = usage.map_or(Cost::Unknown, |usage| self.prices.cost(&hold.model, usage));
        let Some(charge) = hold.charge else {
            return Paid {
                cost,
                alerts: Vec::new(),
                unbooked: None,
            };
        };
        let actual = usage
            .map(|usage| charge.actual(&Expense::request(cost, usage.total())))
            .unwrap_or_default();
        match self.store.settle_charge(charge, actual).await {
            Ok(moved) => Paid {
                cost,
                alerts: self.budgets.alerts(&moved),
                unbooked: None,
            },
            Err(error) => Paid {
                cost,
                alerts: Vec::new(),
                unbooked: Some(error),
            },
        }
    }

    /// Gives back what was set aside: the request was not sent, or the provider refused it and asks nothing for it.
    pub async fn release(&self, hold: Hold) -> Result<(), StoreError> {
        match hold.charge {
            Some(charge) => self.store.release_charge(charge).await,
            None => Ok(()),
        }
    }

    /// Puts right what a lost process has left for a turn: if the request may have been sent, all of it is booked, and
    /// otherwise given back. Returns the thresholds that were passed. Doing it again changes nothing.
    pub async fn recover(&self, turn: TurnId, sent: bool) -> Result<Vec<BudgetAlert>, StoreError> {
        if self.budgets.is_empty() {
            return Ok(Vec::new());
        }
        let mut moved = Vec::new();
        for charge in self
            .store
            .charges(ChargeFilter::of(ChargeId::Turn(turn)))
            .await?
        {
            match sent {
                true => moved.extend(self.store.settle_charge(charge, Vec::new()).await?),
                false => self.store.release_charge(charge).await?,
            }
        }
        Ok(self.budgets.alerts(&moved))
    }

    /// The turns of a session for which something is still set aside.
    pub async fn left_open(&self, session: SessionId) -> Result<Vec<TurnId>, StoreError> {
        if self.budgets.is_empty() {
            return Ok(Vec::new());
        }
        // Turns are listed behind calls, of which there may be many.
        let after = Some(ChargeId::Call(CallId::new(uuid::Uuid::max())));
        let open = self
            .store
            .charges(ChargeFilter {
                session: Some(session),
                after,
                ..ChargeFilter::default()
            })
            .await?;
        let turns = open.into_iter().filter_map(|charge| match charge.id {
            ChargeId::Turn(turn) => Some(turn),
            ChargeId::Call(_) => None,
        });
        Ok(turns.collect())
    }

    /// What is still set aside for calls of a session that are over, because it could not be booked then: it is booked if
    /// the call ran, and given back if it did not.
    pub(crate) async fn recover_calls(&self, session: SessionId) -> Result<(), StoreError> {
        if self.budgets.is_empty() {
            return Ok(());
        }
        let of_session = ChargeFilter {
            session: Some(session),
            ..ChargeFilter::default()
        };
        for charge in self.store.charges(of_session).await? {
            let ChargeId::Call(call) = charge.id else {
                continue;
            };
            match self.store.record(&RecordKey::Outcome(call)).await? {
                Some(Record::Outcome(settled)) if settled.attempts == 0 => {
                    self.store.release_charge(charge).await?
                }
                Some(Record::Outcome(_)) => {
                    drop(self.store.settle_charge(charge, Vec::new()).await?)
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The most that a request can take.
    fn at_most(&self, request: &ModelRequest, model: &ModelName) -> Expense {
        let read = bytes(request).div_ceil(BYTES_PER_TOKEN);
        let written = u64::from(request.max_tokens.unwrap_or(self.assumed_output));
        let costs = self
            .others
            .iter()
            .chain([model])
            .map(|model| self.prices.at_most(model, read, written));
        let dearest = costs.reduce(|a, b| match (a, b) {
            (Cost::NanoUsd(a), Cost::NanoUsd(b)) => Cost::NanoUsd(a.max(b)),
            (Cost::Unknown, _) | (_, Cost::Unknown) => Cost::Unknown,
        });
        Expense::request(dearest.unwrap_or_default(), read.saturating_add(written))
    }
}

impl Hold {
    /// Takes note that another model was chosen, so that its price is booked.
    pub fn routed(&mut self, routed: &Routed) {
        if let Ok(model) = routed.selected.parse() {
            self.model = model;
        }
    }

    /// Whether anything is set aside.
    pub fn is_empty(&self) -> bool {
        self.charge.is_none()
    }
}

impl std::fmt::Debug for Spending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spending")
            .field("budgets", &self.budgets)
            .field("payer", &self.payer)
            .finish_non_exhaustive()
    }
}

/// About how many bytes a model is to read.
fn bytes(request: &ModelRequest) -> u64 {
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
        Content::Media(media) => spared(media),
        Content::Result(answer) => answer.media.iter().map(spared).sum(),
        _ => 0,
    });
    let spared: usize = spared.sum();
    message.size().saturating_sub(spared)
}

#[cfg(test)]
#[path = "spending_tests.rs"]
mod tests;
