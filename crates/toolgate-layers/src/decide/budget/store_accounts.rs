//! Accounts in the store: budgets that persist and are shared by all users of the store.

use std::{error::Error, fmt, sync::Arc};

use futures::future::BoxFuture;
use toolgate_core::{
    AccountRow, BudgetAlert, BudgetError, BudgetUnit, Budgets, CallId, Charge, ChargeFilter,
    ChargeId, Cost, Expense, Json, MAX_AMOUNT, Payer, RecordKey, StoreError, StoreHandle,
    Timestamp, UnknownPrice, run_contained_sync,
};

use crate::{
    Accounts, AccountsUnavailable, BudgetAccount, BudgetRejection, CallReservation, Toast,
    ToastLevel, ToastManager, decide::budget::accounts::to_units,
};

/// Accounts in the store that pay for tool calls, by the budgets of a configuration file.
///
/// Prices are in dollars. A reservation is stored under the id of its call, so that another process
/// that resumes the call finds it, and it is booked or released once, by any process. When a
/// booking passes 50, 75, 90 or 100 % of a budget, the listeners are called, once per threshold and
/// period.
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
    listeners: Vec<AlertListener>,
}

/// A callback for budget alerts.
type AlertListener = Arc<dyn Fn(&BudgetAlert, Timestamp) + Send + Sync>;

impl StoreAccounts {
    /// Creates accounts for `budgets` in `store`.
    pub fn new(store: StoreHandle, budgets: Budgets) -> Self {
        Self {
            store,
            budgets,
            payer: Payer::default(),
            listeners: Vec::new(),
        }
    }

    /// Sets the payer as far as the calls do not name one: the organisation and the project.
    #[must_use]
    pub fn paid_by(self, payer: Payer) -> Self {
        Self { payer, ..self }
    }

    /// Calls `listener` for each threshold that is passed, with the time of the reservation.
    #[must_use]
    pub fn on_alert(
        mut self,
        listener: impl Fn(&BudgetAlert, Timestamp) + Send + Sync + 'static,
    ) -> Self {
        self.listeners.push(Arc::new(listener));
        self
    }

    /// Shows a toast for each threshold that is passed.
    #[must_use]
    pub fn with_toasts(self, toasts: ToastManager) -> Self {
        self.on_alert(move |alert, at| {
            toasts.show(Toast::for_budget(alert, at));
        })
    }

    /// Returns the payer of a call.
    fn payer_of(&self, account: &BudgetAccount) -> Payer {
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

    /// Checks whether an amount is available, without reserving it.
    async fn check_available(
        &self,
        account: &BudgetAccount,
        amount: f64,
    ) -> Result<(), BudgetRejection> {
        let expense = Expense::for_call(Cost::NanoUsd(to_nano_usd(amount)?));
        let lines = self.budgets.charge_lines(
            &self.payer_of(account),
            account.at,
            &expense,
            UnknownPrice::Refuse,
        );
        for line in lines.map_err(into_rejection)? {
            let row = self
                .store
                .account(&line.account)
                .await
                .map_err(into_unavailable)?;
            let left = row
                .unwrap_or_else(|| AccountRow::empty(line.account.clone()))
                .amount_left(line.limit.min(MAX_AMOUNT));
            if line.amount > left {
                let short = StoreError::AccountShort {
                    account: line.account,
                    wanted: line.amount,
                    left,
                };
                return Err(into_rejection(self.budgets.explain_store_error(short)));
            }
        }
        Ok(())
    }

    async fn reserve_charge(
        &self,
        call: CallId,
        account: &BudgetAccount,
        amount: f64,
    ) -> Result<(), BudgetRejection> {
        if self
            .store
            .load_json(&booked_record_key(call))
            .await
            .map_err(into_unavailable)?
            .is_some()
        {
            // The call was paid for, and its process was lost before its outcome was written. A
            // charge that is still open is booked when the call ends.
            return Ok(());
        }
        let expense = Expense::for_call(Cost::NanoUsd(to_nano_usd(amount)?));
        let id = ChargeId::Call(call);
        let payer = self.payer_of(account);
        let charge = self
            .budgets
            .build_charge(id, &payer, account.at, &expense, UnknownPrice::Refuse)
            .map_err(into_rejection)?;
        if let Some(charge) = charge {
            self.store
                .reserve(charge)
                .await
                .map_err(|error| into_rejection(self.budgets.explain_store_error(error)))?;
        }
        Ok(())
    }

    /// Returns the open charge of a call, if there is one.
    async fn find_open_charge(&self, call: CallId) -> Result<Option<Charge>, AccountsUnavailable> {
        let found = self
            .store
            .charges(ChargeFilter::for_charge(ChargeId::Call(call)))
            .await;
        Ok(found.map_err(into_unavailable)?.pop())
    }

    async fn book_charge(&self, call: CallId, actual: f64) -> Result<(), AccountsUnavailable> {
        let expense = Expense::for_call(Cost::NanoUsd(to_nano_usd(actual)?));
        let Some(charge) = self.find_open_charge(call).await? else {
            return Ok(());
        };
        let at = charge.at;
        let actual = charge.actual_amounts(&expense);
        // Recorded before the charge is settled: after a crash in between, the open charge is found
        // by the call id and settled.
        self.store
            .put_json_once(booked_record_key(call), Json::null())
            .await
            .map_err(into_unavailable)?;
        let moved = self
            .store
            .settle_charge(charge, actual)
            .await
            .map_err(into_unavailable)?;
        for alert in self.budgets.alerts_for(&moved) {
            // A listener that panics must not undo the booking.
            self.listeners
                .iter()
                .for_each(|listener| drop(run_contained_sync(|| listener(&alert, at))));
        }
        Ok(())
    }
}

/// Returns the key of the record that a call was paid for: it is paid for once, however often it
/// resumes.
fn booked_record_key(call: CallId) -> RecordKey {
    RecordKey::Layer(call, "budget_booked".into())
}

fn to_nano_usd(amount: f64) -> Result<u64, AccountsUnavailable> {
    to_units(amount).ok_or_else(|| AccountsUnavailable(format!("{amount} is not an amount")))
}

fn into_rejection(error: BudgetError) -> BudgetRejection {
    match error {
        BudgetError::Store(error) => into_unavailable(error).into(),
        refused => BudgetRejection::Rejected(refused.to_string()),
    }
}

fn into_unavailable(error: StoreError) -> AccountsUnavailable {
    let cause = error
        .source()
        .map_or_else(String::new, |cause| format!(": {cause}"));
    AccountsUnavailable(format!("{error}{cause}"))
}

impl Accounts for StoreAccounts {
    fn check<'a>(
        &'a self,
        account: &'a BudgetAccount,
        amount: f64,
    ) -> BoxFuture<'a, Result<(), BudgetRejection>> {
        Box::pin(self.check_available(account, amount))
    }

    fn reserve<'a>(
        &'a self,
        call: CallId,
        account: &'a BudgetAccount,
        amount: f64,
    ) -> BoxFuture<'a, Result<CallReservation, BudgetRejection>> {
        Box::pin(async move {
            self.reserve_charge(call, account, amount).await?;
            Ok(CallReservation { call, amount })
        })
    }

    fn settle(
        &self,
        reservation: CallReservation,
        actual: f64,
    ) -> BoxFuture<'_, Result<(), AccountsUnavailable>> {
        Box::pin(self.book_charge(reservation.call, actual))
    }

    fn release(
        &self,
        reservation: CallReservation,
    ) -> BoxFuture<'_, Result<(), AccountsUnavailable>> {
        Box::pin(async move {
            match self.find_open_charge(reservation.call).await? {
                Some(charge) => self
                    .store
                    .release_charge(charge)
                    .await
                    .map_err(into_unavailable),
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
    /// Creates a toast for a budget that has reached a threshold.
    pub fn for_budget(alert: &BudgetAlert, at: Timestamp) -> Self {
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
mod tests;
