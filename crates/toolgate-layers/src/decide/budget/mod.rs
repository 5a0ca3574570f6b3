//! Rejects calls that cost more than the budget has left.

pub(crate) mod accounts;
pub(crate) mod store_accounts;

use std::{collections::BTreeMap, fmt};

use futures::FutureExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::{
    Band, Call, CallError, ErrorCategory, Layer, LayerCapabilities, LogLevel, Next, Outcome,
    Status, Suspension, Trail, note_keys, run_contained, run_contained_sync,
};

use crate::{
    AccountsUnavailable, BadOption, BudgetAccount, BudgetRejection, CallReservation, Configurable,
    MemoryAccounts, Resources, SharedAccounts,
};

/// A layer that reserves the cost of a call before it runs and books it afterwards.
///
/// The model reads the cost of the call and what is left. A call that did not run, because it was
/// rejected, was a dry run or was cached, costs nothing; one that ran costs its price once, however
/// many attempts it took. If the accounts cannot be reached, the call does not run. A tool without
/// a price is rejected unless `default_cost` or `on_unknown` allows it: an unknown cost is not
/// free.
///
/// Budgets of the file (`[[budget]]`) are persisted in the store and shared by all its users: see
/// [`StoreAccounts`](crate::StoreAccounts).
///
/// While a call runs outside, its price stays reserved until its external result arrives. If none
/// arrives, because its turn was cancelled or its process was lost, the call passes once more after
/// it has ended elsewhere ([`Call::closing_outcome`]): its reservation is booked if the call may have run,
/// and released if it had not started. A call without a reservation is not charged then.
///
/// ```
/// # use toolgate_core::{Stack, Status};
/// # use toolgate_layers::{Budget, BudgetOptions, MemoryAccounts, SharedAccounts};
/// # use toolgate_testkit::{call, echo};
/// # futures::executor::block_on(async {
/// let accounts = MemoryAccounts::with_limit(1.0)?;
/// let options = BudgetOptions { default_cost: Some(0.75), ..BudgetOptions::default() };
/// let stack = Stack::over(echo()).layer(Budget::new(options, SharedAccounts::new(accounts.clone()))?).build()?;
/// assert!(stack.run(call("echo")).await.is_ok());
/// assert_eq!(accounts.left(), 0.25);
/// assert_eq!(stack.run(call("echo")).await.status(), Some(Status::BudgetExceeded));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub struct Budget {
    options: BudgetOptions,
    accounts: SharedAccounts,
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
    /// Creates a layer that charges `accounts`.
    pub fn new(options: BudgetOptions, accounts: SharedAccounts) -> Result<Self, BadOption> {
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
        Ok(Self { options, accounts })
    }

    /// Returns the cost of the call, if it is known. A price that is not an amount does not count.
    fn cost_of(&self, call: &Call) -> Option<f64> {
        let set = self.options.costs.get(call.tool.as_str()).copied();
        let known = set.or_else(|| call.annotations().cost.filter(|cost| is_amount(*cost)));
        match self.options.on_unknown {
            OnUnknownCost::Refuse if self.accounts.0.counts_money() => {
                known.or(self.options.default_cost)
            }
            OnUnknownCost::Refuse | OnUnknownCost::Free => {
                known.or(self.options.default_cost).or(Some(0.0))
            }
        }
    }

    /// Books the end of a call that ended outside the stack. Without a reservation nothing happens.
    async fn close_call(&self, call: Call, next: Next) -> Outcome {
        let Some(cost) = self.cost_of(&call) else {
            return next.run(call).await;
        };
        let reservation = CallReservation {
            call: call.id,
            amount: cost,
        };
        let trail = next.trail();
        let outcome = next.run(call.clone()).await;
        let may_have_run = trail.attempts() > 0 || outcome.status() == Some(Status::OutcomeUnknown);
        let actual = may_have_run.then_some(cost);
        let booked = run_contained(settle_or_release(&self.accounts, reservation, actual)).await;
        log_failed_booking(
            &call,
            booked.unwrap_or_else(|report| Err(AccountsUnavailable(report))),
        );
        note_cost(outcome, actual)
    }

    /// Reserves the amount, or checks in a rehearsal whether that would be possible.
    async fn reserve_amount(
        &self,
        call: &Call,
        amount: f64,
    ) -> Result<Option<CallReservation>, BudgetRejection> {
        let account = BudgetAccount::for_call(call);
        let accounts = &self.accounts.0;
        let answer = if call.is_rehearsal() {
            run_contained(async { accounts.check(&account, amount).await.map(|()| None) }).await
        } else {
            run_contained(async { accounts.reserve(call.id, &account, amount).await.map(Some) })
                .await
        };
        answer.unwrap_or_else(|report| Err(AccountsUnavailable(report).into()))
    }
}

fn is_amount(cost: f64) -> bool {
    cost.is_finite() && cost >= 0.0
}

fn rejected_outcome(cost: f64, refusal: BudgetRejection) -> Outcome {
    let (text, operator) = match refusal {
        BudgetRejection::Exceeded {
            budget,
            left: Some(left),
        } => (
            format!("the call would cost {cost}, but only {left} is left of the budget {budget}"),
            None,
        ),
        BudgetRejection::Exceeded { budget, left: None } => (
            format!(
                "the call would cost {cost}, which is more than is left of the budget {budget}"
            ),
            None,
        ),
        BudgetRejection::Rejected(reason) => (format!("the call was not run: {reason}"), None),
        BudgetRejection::Unavailable(AccountsUnavailable(detail)) => (
            "the call was not run because its cost could not be reserved".to_owned(),
            Some(detail),
        ),
    };
    let error = CallError::new(ErrorCategory::Refused, text);
    Outcome::error(Status::BudgetExceeded, CallError { operator, ..error })
}

/// Guard of a reservation until it is settled or released, also if the call is dropped.
struct ReservationGuard<'a> {
    accounts: &'a SharedAccounts,
    reservation: Option<CallReservation>,
    cost: f64,
    trail: Trail,
    attempts_before: u32,
}

impl ReservationGuard<'_> {
    /// Returns the cost of an ended call: its price if the executor was started.
    fn actual_cost(&self) -> Option<f64> {
        (self.trail.attempts() > self.attempts_before).then_some(self.cost)
    }

    /// Books the end of the call.
    async fn settle_outcome(&mut self, outcome: &Outcome) -> Result<(), AccountsUnavailable> {
        let Some(reservation) = self.reservation else {
            return Ok(());
        };
        let actual = match outcome.suspension() {
            // It runs outside now; the amount stays reserved until the external result arrives.
            Some(Suspension::Result) => {
                self.reservation = None;
                return Ok(());
            }
            Some(Suspension::Decision(_)) => None,
            None => self.actual_cost(),
        };
        let booked = run_contained(settle_or_release(self.accounts, reservation, actual)).await;
        // Cleared only now: if the future is dropped while booking, `drop` books again, which is
        // idempotent.
        self.reservation = None;
        booked.unwrap_or_else(|report| Err(AccountsUnavailable(report)))
    }
}

async fn settle_or_release(
    accounts: &SharedAccounts,
    reservation: CallReservation,
    actual: Option<f64>,
) -> Result<(), AccountsUnavailable> {
    match actual {
        Some(actual) => accounts.0.settle(reservation, actual).await,
        None => accounts.0.release(reservation).await,
    }
}

impl Drop for ReservationGuard<'_> {
    fn drop(&mut self) {
        let Some(reservation) = self.reservation else {
            return;
        };
        let accounts = self.accounts.clone();
        let actual = self.actual_cost();
        let mut booking =
            Box::pin(async move { settle_or_release(&accounts, reservation, actual).await });
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
fn log_failed_booking(call: &Call, booked: Result<(), AccountsUnavailable>) {
    if let Err(AccountsUnavailable(detail)) = booked {
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
        // A call that has already run outside is not rejected afterwards.
        let has_run = !call.resume_state().results.is_empty();
        let Some(cost) = self.cost_of(&call) else {
            if has_run {
                next.note_reason("ran before its price became unknown");
                return next.run(call).await;
            }
            next.note_reason("the price of the tool is unknown");
            let text = format!(
                "the tool {} has no known price, and calls of unknown cost do not run",
                call.tool
            );
            return Outcome::refused(Status::BudgetExceeded, text);
        };
        let reservation = match self.reserve_amount(&call, cost).await {
            Ok(reservation) => reservation,
            Err(_) if has_run => {
                next.note_reason("ran before its cost could be reserved");
                return next.run(call).await;
            }
            Err(refused) => {
                if let BudgetRejection::Unavailable(_) = &refused
                    && !call.is_rehearsal()
                {
                    // The reservation may have succeeded, and only the answer was lost.
                    let reservation = CallReservation {
                        call: call.id,
                        amount: cost,
                    };
                    drop(run_contained(settle_or_release(&self.accounts, reservation, None)).await);
                }
                next.note_reason(match &refused {
                    BudgetRejection::Exceeded { .. } => "more than is left of the budget",
                    BudgetRejection::Rejected(_) => "no budget for the call",
                    BudgetRejection::Unavailable(_) => "the accounts are unavailable",
                });
                return rejected_outcome(cost, refused);
            }
        };
        let trail = next.trail();
        let attempts_before = call.attempt - 1;
        let mut held = ReservationGuard {
            accounts: &self.accounts,
            reservation,
            cost,
            trail,
            attempts_before,
        };
        let outcome = next.run(call.clone()).await;
        log_failed_booking(&call, held.settle_outcome(&outcome).await);
        note_cost(outcome, held.actual_cost())
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
        match (parts.get::<SharedAccounts>(), options.limit) {
            (Some(accounts), _) => Self::new(options, accounts),
            (None, Some(limit)) => {
                let accounts = SharedAccounts::new(MemoryAccounts::with_limit(limit)?);
                Self::new(
                    BudgetOptions {
                        limit: None,
                        ..options
                    },
                    accounts,
                )
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
