//! Rejects calls that cost more than the budget has left.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, LazyLock},
};

use futures::FutureExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::{
    Band, BillingService, BudgetAlert, BudgetError, BudgetPeriod, BudgetRule, BudgetScope,
    BudgetUnit, Budgets, Call, CallError, CallId, Charge, ChargeId, Cost, ErrorCategory, Expense,
    ExpenseState, Json, Layer, LayerCapabilities, LogLevel, MemoryStore, Next, Outcome, Payer,
    RecordKey, Refusal, Status, StoreError, StoreHandle, StoreRecord, Suspension, Trail,
    UnknownPrice, convert_dollars, error_chain, note_keys, run_contained, run_contained_sync,
};

use crate::{BadOption, Configurable, Resources, config::budgets::FileBilling};

/// A layer that reserves the cost of a call before it runs and books it afterwards.
///
/// The model reads the cost of the call and what is left. A call that did not run, because it was
/// rejected, was a dry run or was cached, costs nothing; one that ran costs its price once, however
/// many attempts it took. If the accounts cannot be reached, the call does not run. A tool without
/// a price is rejected by a budget in money unless `default_cost` or `on_unknown` allows it: an
/// unknown cost is not free.
///
/// Prices are in dollars. The amounts are in the accounts of a [`BillingService`], which model
/// requests use too. Budgets of the file (`[[budget]]`) are persisted in the store and shared by all
/// its users; with `limit`, the accounts last as long as the process.
///
/// While a call runs outside, its price stays reserved until its external result arrives. If none
/// arrives, because its turn was cancelled or its process was lost, the call passes once more after
/// it has ended elsewhere ([`Call::closing_outcome`]): its reservation is booked if the call may have run,
/// and released if it had not started. A call without a reservation is not charged then.
///
/// ```
/// # use toolgate_core::*;
/// # use toolgate_layers::{Budget, BudgetOptions};
/// # use toolgate_testkit::{echo, seed};
/// # let call = |n| {
/// #     let mut seed = seed("echo", serde_json::json!({}));
/// #     seed.id = CallId::new(uuid::Uuid::from_u128(n));
/// #     Call::new(seed)
/// # };
/// # futures::executor::block_on(async {
/// let one = BudgetRule::new("trial", BudgetScope::Tool, BudgetPeriod::Day, BudgetUnit::Calls, 1);
/// let billing = BillingService::new(StoreHandle::new(MemoryStore::new()), Budgets::new([one]));
/// let budget = Budget::new(BudgetOptions::default(), billing)?;
/// let stack = Stack::over(echo()).layer(budget).build()?;
/// assert!(stack.run(call(1)).await.is_ok());
/// assert_eq!(stack.run(call(2)).await.status(), Some(Status::BudgetExceeded));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub struct Budget {
    options: BudgetOptions,
    billing: BillingService,
}

/// Costs of calls.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BudgetOptions {
    /// Maximum amount that this process may spend. Omitted if the program provides its own
    /// accounts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
    /// Cost of one call by exact tool name. It overrides the price that the tool declares.
    pub costs: BTreeMap<String, f64>,
    /// Cost of one call of a tool without a price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_cost: Option<f64>,
    /// Handling of calls of a tool without a price if there is no default.
    pub on_unknown: OnUnknownCost,
}

/// Handling of a call of unknown cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnUnknownCost {
    /// It is rejected.
    #[default]
    Refuse,
    /// It costs nothing.
    Free,
}

impl Budget {
    /// Creates a layer that charges calls to the accounts of `billing`.
    pub fn new(options: BudgetOptions, billing: BillingService) -> Result<Self, BadOption> {
        let BudgetOptions {
            limit,
            costs,
            default_cost,
            on_unknown: _,
        } = &options;
        if limit.is_some() {
            return Err(BadOption::new(
                "limit",
                "cannot be set if the program provides its own accounts",
            ));
        }
        if let Some((tool, _)) = costs.iter().find(|(_, cost)| !is_amount(**cost)) {
            return Err(BadOption::new(
                "costs",
                format!("the cost of {tool} must be an amount of 0 or more"),
            ));
        }
        if default_cost.is_some_and(|cost| !is_amount(cost)) {
            return Err(BadOption::new(
                "default_cost",
                "must be an amount of 0 or more",
            ));
        }
        Ok(Self { options, billing })
    }

    /// Returns the price of the call, if it is known. A price that is not an amount does not count.
    fn price_of(&self, call: &Call) -> Option<f64> {
        let set = self.options.costs.get(call.tool.as_str()).copied();
        let known = set.or_else(|| call.annotations().cost.filter(|cost| is_amount(*cost)));
        known.or(self.options.default_cost)
    }

    /// Books the end of a call that ended outside the stack. Without a reservation nothing happens.
    async fn close_call(&self, call: Call, next: Next) -> Outcome {
        let price = self.price_of(&call);
        let trail = next.trail();
        let outcome = next.run(call.clone()).await;
        let may_have_run = trail.attempts() > 0 || outcome.status() == Some(Status::OutcomeUnknown);
        let state = if may_have_run {
            ExpenseState::Spent
        } else {
            ExpenseState::Unspent
        };
        let ended = contain_panic(self.billing.recover(ChargeId::Call(call.id), state)).await;
        log_failed_booking(&call, ended.map(|alerts| report_alerts(&call, alerts)));
        note_cost(outcome, price.filter(|_| may_have_run))
    }

    /// Reserves the expense, or checks in a rehearsal whether that would be possible. Returns the
    /// charge to settle or release, if there is one.
    async fn reserve_expense(
        &self,
        call: &Call,
        expense: &Expense,
    ) -> Result<Option<Charge>, BudgetError> {
        let id = ChargeId::Call(call.id);
        let payer = Payer {
            tool: Some(call.tool.as_str().into()),
            ..self.billing.payer().for_turn(call.turn())
        };
        let unknown = match self.options.on_unknown {
            OnUnknownCost::Refuse => UnknownPrice::Refuse,
            OnUnknownCost::Free => UnknownPrice::Allow,
        };
        let now = call.env().clock().now();
        let budgets = self.billing.budgets();
        let Some(charge) = budgets.build_charge(id, &payer, now, expense, unknown)? else {
            return Ok(None);
        };
        if call.is_rehearsal() {
            return self.billing.check(&charge).await.map(|()| None);
        }
        let booked_key = booked_record_key(call.id);
        if call.env().store().load_record(&booked_key).await?.is_some() {
            // The call was paid for, and its process was lost before its outcome was written. If
            // it was lost even before the charge was settled, the charge is still open.
            let alerts = self.billing.recover(id, ExpenseState::Spent).await?;
            report_alerts(call, alerts);
            return Ok(None);
        }
        // A reservation belongs to a call that is on record; one without is found and released.
        let recorded = call.wait_until_recorded().await;
        recorded.map_err(|stop| StoreError::Backend(stop.to_string().into()))?;
        self.billing.reserve(charge).await.map(Some)
    }
}

fn is_amount(cost: f64) -> bool {
    convert_dollars(cost).is_some()
}

/// Returns a service with one budget in dollars that lasts as long as the process.
fn bill_process(limit: f64) -> Result<BillingService, BadOption> {
    let limit = convert_dollars(limit)
        .ok_or_else(|| BadOption::new("limit", "must be an amount of 0 or more"))?;
    let rule = BudgetRule::new(
        "limit",
        BudgetScope::Global,
        BudgetPeriod::Total,
        BudgetUnit::Usd,
        limit,
    );
    let store = StoreHandle::new(MemoryStore::new());
    Ok(BillingService::new(store, Budgets::new([rule])))
}

/// Returns the key of the record that a call was paid for: it is paid for once, however often it
/// resumes.
fn booked_record_key(call: CallId) -> RecordKey {
    // Shared, because every call needs the key twice.
    static NAME: LazyLock<Arc<str>> = LazyLock::new(|| "budget_booked".into());
    RecordKey::Layer(call, NAME.clone())
}

/// Runs work on the accounts. A panic of the store counts as its failure.
async fn contain_panic<T, E: From<StoreError>>(
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    run_contained(work)
        .await
        .unwrap_or_else(|report| Err(StoreError::Backend(report.into()).into()))
}

fn rejected_outcome(error: &BudgetError) -> Outcome {
    let (text, operator) = match error {
        BudgetError::Store(error) => (
            "the call was not run because its cost could not be reserved".to_owned(),
            Some(error_chain(error)),
        ),
        refused => (format!("the call was not run: {refused}"), None),
    };
    let error = CallError::new(ErrorCategory::Refused, text);
    Outcome::error(Refusal::BudgetExceeded, CallError { operator, ..error })
}

/// Guard of a reservation until it is settled or released, also if the call is dropped.
struct ReservationGuard<'a> {
    billing: &'a BillingService,
    call: Call,
    charge: Option<Charge>,
    expense: Expense,
    trail: Trail,
    attempts_before: u32,
}

impl ReservationGuard<'_> {
    /// Checks whether the executor was started, so that the call costs its price.
    fn has_started(&self) -> bool {
        self.trail.attempts() > self.attempts_before
    }

    /// Books the end of the call.
    async fn settle_outcome(&mut self, outcome: &Outcome) -> Result<(), StoreError> {
        let spent = match outcome.suspension() {
            // It runs outside now; the amount stays reserved until the external result arrives.
            Some(Suspension::Result) => {
                self.charge = None;
                return Ok(());
            }
            Some(Suspension::Decision(_)) => false,
            None => self.has_started(),
        };
        let Some(charge) = self.charge.clone() else {
            return Ok(());
        };
        let expense = spent.then_some(self.expense);
        let ended = contain_panic(end_charge(self.billing, &self.call, charge, expense)).await;
        // Cleared only now: if the future is dropped while booking, `drop` books again, which is
        // idempotent.
        self.charge = None;
        ended
    }
}

/// Books the expense of a call, or releases its reservation if there was none.
async fn end_charge(
    billing: &BillingService,
    call: &Call,
    charge: Charge,
    expense: Option<Expense>,
) -> Result<(), StoreError> {
    let Some(expense) = expense else {
        return billing.release(charge).await;
    };
    // Recorded before the charge is settled: after a crash in between, the call is not paid for
    // twice, and its open charge is settled when it resumes.
    let paid = StoreRecord::Json(Json::null());
    let store = call.env().store();
    store
        .put_record_once(booked_record_key(call.id), paid)
        .await?;
    let alerts = billing.settle(charge, Some(&expense)).await?;
    report_alerts(call, alerts);
    Ok(())
}

/// Records the thresholds that the booking of a call has passed as events of its session.
fn report_alerts(call: &Call, alerts: Vec<BudgetAlert>) {
    if !alerts.is_empty() {
        call.env().probe().report_budget_alerts(call, alerts);
    }
}

impl Drop for ReservationGuard<'_> {
    fn drop(&mut self) {
        let Some(charge) = self.charge.take() else {
            return;
        };
        let billing = self.billing.clone();
        let call = self.call.clone();
        let expense = self.has_started().then_some(self.expense);
        let mut booking =
            Box::pin(async move { end_charge(&billing, &call, charge, expense).await });
        let done = run_contained_sync(|| booking.as_mut().now_or_never().is_some()).unwrap_or(true);
        // Without a runtime the amount stays reserved, which allows less and never more.
        if !done && let Ok(runtime) = tokio::runtime::Handle::try_current() {
            drop(runtime.spawn(async move {
                let _ = run_contained(booking).await;
            }));
        }
    }
}

/// Logs a failed booking. The outcome of the call stands, and the amount stays reserved.
fn log_failed_booking(call: &Call, booked: Result<(), StoreError>) {
    if let Err(error) = booked {
        let detail = error_chain(&error);
        let text = format!("the cost of the call could not be booked: {detail}");
        call.env().probe().write_log(call, LogLevel::Error, &text);
    }
}

fn note_cost(outcome: Outcome, actual: Option<f64>) -> Outcome {
    match actual.filter(|cost| *cost > 0.0) {
        Some(cost) => outcome.with_notes(|notes| notes.insert(note_keys::COST, &cost)),
        None => outcome,
    }
}

impl Layer for Budget {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        if call.closing_outcome().is_some() {
            return self.close_call(call, next).await;
        }
        let price = self.price_of(&call);
        let cost = price.and_then(convert_dollars).map(Cost::NanoUsd);
        let expense = Expense::for_call(cost.unwrap_or_default());
        let charge = match contain_panic(self.reserve_expense(&call, &expense)).await {
            Ok(charge) => charge,
            // A call that has already run outside is not rejected afterwards.
            Err(_) if !call.resume_state().results.is_empty() => {
                next.note_reason("ran before its cost could be reserved");
                return next.run(call).await;
            }
            Err(error) => {
                if let BudgetError::Store(_) = error
                    && !call.is_rehearsal()
                    && call.attempt == 1
                {
                    // The reservation may have succeeded, and only the answer was lost. That of an
                    // earlier attempt is kept, because it has run.
                    let id = ChargeId::Call(call.id);
                    drop(contain_panic(self.billing.recover(id, ExpenseState::Unspent)).await);
                }
                next.note_reason(match &error {
                    BudgetError::Exceeded { .. } => "more than is left of the budget",
                    BudgetError::UnknownPrice { .. } => "the price of the tool is unknown",
                    BudgetError::Store(_) => "the accounts are unavailable",
                    _ => "no budget for the call",
                });
                return rejected_outcome(&error);
            }
        };
        let mut held = ReservationGuard {
            billing: &self.billing,
            call: call.clone(),
            charge,
            expense,
            trail: next.trail(),
            attempts_before: call.attempt - 1,
        };
        let outcome = next.run(call.clone()).await;
        log_failed_booking(&call, held.settle_outcome(&outcome).await);
        note_cost(outcome, price.filter(|_| held.has_started()))
    }

    fn band(&self) -> Band {
        Band::Decide
    }

    fn capabilities(&self) -> LayerCapabilities {
        LayerCapabilities::for_kind(Self::NAME)
            .answering()
            .counting()
            .closing()
    }
}

impl Configurable for Budget {
    const NAME: &'static str = "budget";
    const SUMMARY: &'static str = "Rejects calls that cost more than the budget has left.";
    type Options = BudgetOptions;

    fn configure(options: BudgetOptions, parts: &Resources) -> Result<Self, BadOption> {
        let of_file = || {
            parts
                .get::<FileBilling>()
                .map(|FileBilling(billing)| billing)
        };
        // Accounts of the program take precedence over those of the file.
        match (
            parts.get::<BillingService>().or_else(of_file),
            options.limit,
        ) {
            (Some(billing), _) => Self::new(options, billing),
            (None, Some(limit)) => {
                let options = BudgetOptions {
                    limit: None,
                    ..options
                };
                Self::new(options, bill_process(limit)?)
            }
            (None, None) => Err(BadOption::new(
                "limit",
                "is required, unless the file has budgets or the program provides accounts",
            )),
        }
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
