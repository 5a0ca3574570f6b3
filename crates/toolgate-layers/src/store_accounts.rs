//! Accounts in the store: budgets that outlast the process and are shared by everybody who uses the store.

use std::{error::Error, fmt, sync::Arc};

use futures::future::BoxFuture;
use toolgate_core::{
    AccountRow, BudgetAlert, BudgetError, BudgetUnit, Budgets, CallId, Charge, ChargeFilter,
    ChargeId, Cost, Expense, Json, MAX_AMOUNT, Payer, Record, RecordKey, StoreError, StoreHandle,
    Timestamp, UnknownPrice, contained_sync,
};

use crate::{
    Accounts, AccountsDown, BudgetAccount, BudgetRefusal, Reservation, Toast, ToastLevel,
    ToastManager, accounts::units,
};

/// Pays for calls of tools out of accounts in the store, by the budgets of a configuration file.
///
/// Prices are dollars here. What is reserved for a call is kept under its id, so that it is found when the call is taken
/// up by another process, and is booked or given back once, whoever does it. When a booking passes 50, 75, 90 or 100 %
/// of a budget, those who listen are told, once per threshold and period.
///
/// ```
/// # use toolgate_core::{BudgetPeriod, BudgetRule, BudgetScope, BudgetUnit, Budgets, MemoryStore, Stack, Status, StoreHandle};
/// # use toolgate_core::{Call, CallId};
/// # use toolgate_layers::{Budget, BudgetOptions, SharedAccounts, StoreAccounts};
/// # use toolgate_testkit::{echo, seed};
/// # let call = |n| {
/// #     let mut seed = seed("echo", serde_json::json!({}));
/// #     seed.id = CallId::new(uuid::Uuid::from_u128(n));
/// #     Call::new(seed)
/// # };
/// # futures::executor::block_on(async {
/// let one = BudgetRule::new("trial", BudgetScope::Tool, BudgetPeriod::Day, BudgetUnit::Calls, 1);
/// let accounts = StoreAccounts::new(StoreHandle::new(MemoryStore::new()), Budgets::new([one]));
/// let budget = Budget::new(BudgetOptions::default(), SharedAccounts::new(accounts))?;
/// let stack = Stack::over(echo()).layer(budget).build()?;
/// assert!(stack.run(call(1)).await.is_ok());
/// assert_eq!(stack.run(call(2)).await.status(), Some(Status::BudgetExceeded));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct StoreAccounts {
    store: StoreHandle,
    budgets: Budgets,
    payer: Payer,
    listeners: Vec<Listener>,
}

/// Is told of a threshold.
type Listener = Arc<dyn Fn(&BudgetAlert, Timestamp) + Send + Sync>;

impl StoreAccounts {
    /// Keeps `budgets` in `store`.
    pub fn new(store: StoreHandle, budgets: Budgets) -> Self {
        Self {
            store,
            budgets,
            payer: Payer::default(),
            listeners: Vec::new(),
        }
    }

    /// Says who pays as far as no call says it: the organisation and the project.
    #[must_use]
    pub fn paid_by(self, payer: Payer) -> Self {
        Self { payer, ..self }
    }

    /// Tells `listener` of each threshold that is passed, and when what passed it was set aside.
    #[must_use]
    pub fn on_alert(
        mut self,
        listener: impl Fn(&BudgetAlert, Timestamp) + Send + Sync + 'static,
    ) -> Self {
        self.listeners.push(Arc::new(listener));
        self
    }

    /// Shows each threshold that is passed on the screen.
    #[must_use]
    pub fn with_toasts(self, toasts: ToastManager) -> Self {
        self.on_alert(move |alert, at| {
            toasts.show(Toast::of_budget(alert, at));
        })
    }

    /// Who pays for a call.
    fn payer(&self, account: &BudgetAccount) -> Payer {
        let user = account
            .principal
            .as_ref()
            .map(|principal| principal.as_str().into());
        Payer {
            user: user.or_else(|| self.payer.user.clone()),
            session: Some(account.session),
            run: account.run,
            tool: Some(account.tool.as_str().into()),
            ..self.payer.clone()
        }
    }

    /// Looks whether an amount is there, without setting it aside.
    async fn look(&self, account: &BudgetAccount, amount: f64) -> Result<(), BudgetRefusal> {
        let expense = Expense::call(Cost::NanoUsd(nano(amount)?));
        let lines = self.budgets.lines(
            &self.payer(account),
            account.at,
            &expense,
            UnknownPrice::Refuse,
        );
        for line in lines.map_err(refusal)? {
            let row = self.store.account(&line.account).await.map_err(down)?;
            let left = row
                .unwrap_or_else(|| AccountRow::empty(line.account.clone()))
                .left(line.limit.min(MAX_AMOUNT));
            if line.amount > left {
                let short = StoreError::Short {
                    account: line.account,
                    wanted: line.amount,
                    left,
                };
                return Err(refusal(self.budgets.refused(short)));
            }
        }
        Ok(())
    }

    async fn set_aside(
        &self,
        call: CallId,
        account: &BudgetAccount,
        amount: f64,
    ) -> Result<(), BudgetRefusal> {
        if self
            .store
            .record(&booked(call))
            .await
            .map_err(down)?
            .is_some()
        {
            // It was paid for, and its process was lost before its outcome was written. What is still open is booked
            // when it ends.
            return Ok(());
        }
        let expense = Expense::call(Cost::NanoUsd(nano(amount)?));
        let (id, payer) = (ChargeId::Call(call), self.payer(account));
        let charge = self
            .budgets
            .charge(id, &payer, account.at, &expense, UnknownPrice::Refuse)
            .map_err(refusal)?;
        if let Some(charge) = charge {
            self.store
                .reserve(charge)
                .await
                .map_err(|error| refusal(self.budgets.refused(error)))?;
        }
        Ok(())
    }

    /// The charge that is open for a call, if there is one.
    async fn open(&self, call: CallId) -> Result<Option<Charge>, AccountsDown> {
        let found = self
            .store
            .charges(ChargeFilter::of(ChargeId::Call(call)))
            .await;
        Ok(found.map_err(down)?.pop())
    }

    async fn book(&self, call: CallId, actual: f64) -> Result<(), AccountsDown> {
        let expense = Expense::call(Cost::NanoUsd(nano(actual)?));
        let Some(charge) = self.open(call).await? else {
            return Ok(());
        };
        let (at, actual) = (charge.at, charge.actual(&expense));
        // Before it is booked: in between, the charge is open and is found by the call.
        self.store
            .once(booked(call), Record::Json(Json::null()))
            .await
            .map_err(down)?;
        let moved = self
            .store
            .settle_charge(charge, actual)
            .await
            .map_err(down)?;
        for alert in self.budgets.alerts(&moved) {
            // One who listens badly must not undo what is booked.
            self.listeners
                .iter()
                .for_each(|listener| drop(contained_sync(|| listener(&alert, at))));
        }
        Ok(())
    }
}

/// Where it is kept that a call was paid for: it is paid for once, however often it comes by.
fn booked(call: CallId) -> RecordKey {
    RecordKey::Layer(call, "budget_booked".into())
}

fn nano(amount: f64) -> Result<u64, AccountsDown> {
    units(amount).ok_or_else(|| AccountsDown(format!("{amount} is not an amount")))
}

fn refusal(error: BudgetError) -> BudgetRefusal {
    match error {
        BudgetError::Store(error) => down(error).into(),
        refused => BudgetRefusal::Refused(refused.to_string()),
    }
}

fn down(error: StoreError) -> AccountsDown {
    let cause = error
        .source()
        .map_or_else(String::new, |cause| format!(": {cause}"));
    AccountsDown(format!("{error}{cause}"))
}

impl Accounts for StoreAccounts {
    fn check<'a>(
        &'a self,
        account: &'a BudgetAccount,
        amount: f64,
    ) -> BoxFuture<'a, Result<(), BudgetRefusal>> {
        Box::pin(self.look(account, amount))
    }

    fn reserve<'a>(
        &'a self,
        call: CallId,
        account: &'a BudgetAccount,
        amount: f64,
    ) -> BoxFuture<'a, Result<Reservation, BudgetRefusal>> {
        Box::pin(async move {
            self.set_aside(call, account, amount).await?;
            Ok(Reservation { call, amount })
        })
    }

    fn settle(
        &self,
        reservation: Reservation,
        actual: f64,
    ) -> BoxFuture<'_, Result<(), AccountsDown>> {
        Box::pin(self.book(reservation.call, actual))
    }

    fn release(&self, reservation: Reservation) -> BoxFuture<'_, Result<(), AccountsDown>> {
        Box::pin(async move {
            match self.open(reservation.call).await? {
                Some(charge) => self.store.release_charge(charge).await.map_err(down),
                None => Ok(()),
            }
        })
    }

    fn counts_money(&self) -> bool {
        self.budgets
            .rules()
            .iter()
            .any(|rule| rule.unit == BudgetUnit::Usd)
    }
}

impl Toast {
    /// A budget has been used up to a threshold.
    pub fn of_budget(alert: &BudgetAlert, at: Timestamp) -> Self {
        let level = if alert.percent >= 100 {
            ToastLevel::Error
        } else {
            ToastLevel::Warning
        };
        Self::new(level, "budget", alert.to_string(), at)
    }
}

impl fmt::Debug for StoreAccounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreAccounts")
            .field("budgets", &self.budgets)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "store_accounts_tests.rs"]
mod tests;
