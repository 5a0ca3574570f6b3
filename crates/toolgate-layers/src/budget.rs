//! Refuses calls that cost more than is left.

use std::{collections::BTreeMap, fmt};

use futures::FutureExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::{
    Band, Call, CallError, ErrorCategory, Layer, LayerTraits, LogLevel, Next, Outcome, Status,
    Suspension, Trail, contained, contained_sync,
};

use crate::{
    AccountsDown, BadOption, BudgetAccount, BudgetRefusal, Configurable, MemoryAccounts, Parts,
    Reservation, SharedAccounts,
};

/// Sets aside what a call costs before it runs and books it afterwards.
///
/// The model reads what the call would cost and what is left. A call that did not run, because something refused it,
/// it was pretended or it was answered from memory, costs nothing; one that did costs its price once, however many
/// attempts it took. If the accounts cannot be asked, the call does not run. A tool without a price is refused unless
/// `default_cost` or `on_unknown` says otherwise: not knowing is not free.
///
/// Budgets of the file (`[[budget]]`) are kept in the store and shared by everybody who uses it: see [`StoreAccounts`](crate::StoreAccounts).
///
/// While a call runs outside, its price stays reserved until it comes back with its result. One that never does, because
/// its turn was cancelled or its process was lost, comes by once more when it has ended elsewhere ([`Call::closing`]):
/// what it had reserved is booked if it may have run, and given back if it had not started. A call that had reserved
/// nothing is not charged then.
///
/// ```
/// # use toolgate_core::{Stack, Status};
/// # use toolgate_layers::{Budget, BudgetOptions, MemoryAccounts, SharedAccounts};
/// # use toolgate_testkit::{call, echo};
/// # futures::executor::block_on(async {
/// let accounts = MemoryAccounts::limit(1.0)?;
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

/// What calls cost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BudgetOptions {
    /// How much may be spent in total by this process. Left out where the program brings accounts of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
    /// What one call of a tool costs, by its exact name, whatever the tool itself says.
    pub costs: BTreeMap<String, f64>,
    /// What one call of a tool without a price costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_cost: Option<f64>,
    /// What happens to calls of a tool without a price where there is no default.
    pub on_unknown: OnUnknownCost,
}

/// What happens to a call whose price nobody knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnUnknownCost {
    /// It is refused.
    #[default]
    Refuse,
    /// It costs nothing.
    Free,
}

impl Budget {
    /// Charges `accounts` as `options` say.
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
                "cannot be given where the program brings its own accounts",
            ));
        }
        if let Some((tool, _)) = costs.iter().find(|(_, cost)| !is_amount(**cost)) {
            return Err(BadOption::new(
                "costs",
                format!("the cost of {tool} has to be an amount of 0 or more"),
            ));
        }
        if default_cost.is_some_and(|cost| !is_amount(cost)) {
            return Err(BadOption::new(
                "default_cost",
                "has to be an amount of 0 or more",
            ));
        }
        Ok(Self { options, accounts })
    }

    /// What the call costs, if that is known. A price that is no amount is no price.
    fn cost(&self, call: &Call) -> Option<f64> {
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

    /// Books the end of a call that ended outside the stack. Where nothing is reserved, nothing happens.
    async fn close(&self, call: Call, next: Next) -> Outcome {
        let Some(cost) = self.cost(&call) else {
            return next.run(call).await;
        };
        let reservation = Reservation {
            call: call.id,
            amount: cost,
        };
        let (trail, outcome) = (next.trail(), next.run(call.clone()).await);
        let may_have_run = trail.attempts() > 0 || outcome.status() == Some(Status::OutcomeUnknown);
        let actual = may_have_run.then_some(cost);
        let booked = contained(book(&self.accounts, reservation, actual)).await;
        told(
            &call,
            booked.unwrap_or_else(|report| Err(AccountsDown(report))),
        );
        noting_cost(outcome, actual)
    }

    /// Sets the amount aside, or looks whether that would be possible.
    async fn reserve(
        &self,
        call: &Call,
        amount: f64,
    ) -> Result<Option<Reservation>, BudgetRefusal> {
        let account = BudgetAccount::of(call);
        let accounts = &self.accounts.0;
        let answer = if call.is_rehearsal() {
            contained(async { accounts.check(&account, amount).await.map(|()| None) }).await
        } else {
            contained(async { accounts.reserve(call.id, &account, amount).await.map(Some) }).await
        };
        answer.unwrap_or_else(|report| Err(AccountsDown(report).into()))
    }
}

fn is_amount(cost: f64) -> bool {
    cost.is_finite() && cost >= 0.0
}

fn refusal(cost: f64, refusal: BudgetRefusal) -> Outcome {
    let (text, operator) = match refusal {
        BudgetRefusal::Exceeded {
            budget,
            left: Some(left),
        } => (
            format!("the call would cost {cost}, but only {left} is left of the budget {budget}"),
            None,
        ),
        BudgetRefusal::Exceeded { budget, left: None } => (
            format!(
                "the call would cost {cost}, which is more than is left of the budget {budget}"
            ),
            None,
        ),
        BudgetRefusal::Refused(reason) => (format!("the call was not run: {reason}"), None),
        BudgetRefusal::Unavailable(AccountsDown(detail)) => (
            "the call was not run because its cost could not be set aside".to_owned(),
            Some(detail),
        ),
    };
    let error = CallError::new(ErrorCategory::Refused, text);
    Outcome::error(Status::BudgetExceeded, CallError { operator, ..error })
}

/// What is set aside for a call, until it is settled or released; also if the call is dropped.
struct Held<'a> {
    accounts: &'a SharedAccounts,
    reservation: Option<Reservation>,
    cost: f64,
    trail: Trail,
    attempts_before: u32,
}

impl Held<'_> {
    /// What a call that is over has cost: its price if the executor was started.
    fn actual(&self) -> Option<f64> {
        (self.trail.attempts() > self.attempts_before).then_some(self.cost)
    }

    /// Books the end of the call.
    async fn end(&mut self, outcome: &Outcome) -> Result<(), AccountsDown> {
        let Some(reservation) = self.reservation else {
            return Ok(());
        };
        let actual = match outcome.suspension() {
            // It runs outside now; the amount stays reserved until the result is here.
            Some(Suspension::Result) => {
                self.reservation = None;
                return Ok(());
            }
            Some(Suspension::Decision(_)) => None,
            None => self.actual(),
        };
        let booked = contained(book(self.accounts, reservation, actual)).await;
        // Only now: if this is dropped while it books, it is booked again, which changes nothing.
        self.reservation = None;
        booked.unwrap_or_else(|report| Err(AccountsDown(report)))
    }
}

async fn book(
    accounts: &SharedAccounts,
    reservation: Reservation,
    actual: Option<f64>,
) -> Result<(), AccountsDown> {
    match actual {
        Some(actual) => accounts.0.settle(reservation, actual).await,
        None => accounts.0.release(reservation).await,
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let Some(reservation) = self.reservation else {
            return;
        };
        let (accounts, actual) = (self.accounts.clone(), self.actual());
        let mut booking = Box::pin(async move { book(&accounts, reservation, actual).await });
        let done = contained_sync(|| booking.as_mut().now_or_never().is_some()).unwrap_or(true);
        // Without a runtime the amount stays reserved, which allows less and never more.
        if !done && let Ok(runtime) = tokio::runtime::Handle::try_current() {
            drop(runtime.spawn(async move {
                let _ = contained(booking).await;
            }));
        }
    }
}

/// The call is over and its outcome stands, also if it could not be booked. What was set aside stays so.
fn told(call: &Call, booked: Result<(), AccountsDown>) {
    if let Err(AccountsDown(detail)) = booked {
        let text = format!("the cost of the call could not be booked: {detail}");
        call.env().probe().log(call, LogLevel::Error, &text);
    }
}

fn noting_cost(outcome: Outcome, actual: Option<f64>) -> Outcome {
    match actual.filter(|cost| *cost > 0.0) {
        Some(cost) => {
            outcome.noting(|notes| drop(notes.metadata.insert("cost".into(), cost.into())))
        }
        None => outcome,
    }
}

impl Layer for Budget {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        if call.closing().is_some() {
            return self.close(call, next).await;
        }
        // What has already run outside is not refused afterwards.
        let has_run = !call.resumed().results.is_empty();
        let Some(cost) = self.cost(&call) else {
            if has_run {
                next.because("ran before its price was forgotten");
                return next.run(call).await;
            }
            next.because("the price of the tool is not known");
            let text = format!(
                "the tool {} has no known price, and calls of unknown cost are not made",
                call.tool
            );
            return Outcome::refused(Status::BudgetExceeded, text);
        };
        let reservation = match self.reserve(&call, cost).await {
            Ok(reservation) => reservation,
            Err(_) if has_run => {
                next.because("ran before its cost could be set aside");
                return next.run(call).await;
            }
            Err(refused) => {
                if let BudgetRefusal::Unavailable(_) = &refused
                    && !call.is_rehearsal()
                {
                    // It may have been set aside, and only the answer was lost.
                    let reservation = Reservation {
                        call: call.id,
                        amount: cost,
                    };
                    drop(contained(book(&self.accounts, reservation, None)).await);
                }
                next.because(match &refused {
                    BudgetRefusal::Exceeded { .. } => "more than is left of the budget",
                    BudgetRefusal::Refused(_) => "no budget for it",
                    BudgetRefusal::Unavailable(_) => "the accounts are unavailable",
                });
                return refusal(cost, refused);
            }
        };
        let (trail, attempts_before) = (next.trail(), call.attempt - 1);
        let mut held = Held {
            accounts: &self.accounts,
            reservation,
            cost,
            trail,
            attempts_before,
        };
        let outcome = next.run(call.clone()).await;
        told(&call, held.end(&outcome).await);
        noting_cost(outcome, held.actual())
    }

    fn band(&self) -> Band {
        Band::Decide
    }

    fn traits(&self) -> LayerTraits {
        LayerTraits::of(Self::NAME).answering().closing()
    }
}

impl Configurable for Budget {
    const NAME: &'static str = "budget";
    const SUMMARY: &'static str = "Refuses calls that cost more than is left.";
    type Options = BudgetOptions;

    fn configure(options: BudgetOptions, parts: &Parts) -> Result<Self, BadOption> {
        match (parts.get::<SharedAccounts>(), options.limit) {
            (Some(accounts), _) => Self::new(options, accounts),
            (None, Some(limit)) => {
                let accounts = SharedAccounts::new(MemoryAccounts::limit(limit)?);
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
                "has to be given, or budgets in the file, or accounts by the program",
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
#[path = "budget_tests.rs"]
mod tests;
