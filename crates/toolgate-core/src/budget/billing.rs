//! Billing of tool calls and model requests: reserves an expense in the store before it is made,
//! and books or releases it afterwards.

use std::{fmt, sync::Arc};

use crate::{
    AccountRows, BudgetAlert, BudgetError, Budgets, CallId, Charge, ChargeFilter, ChargeId,
    Expense, Payer, SessionId, StoreError, StoreHandle, Timestamp, TurnId, run_contained_sync,
};

/// The billing service: the only way to spend from the accounts in a store.
///
/// [`Budgets::build_charge`] finds the accounts that pay for an expense. [`reserve`](Self::reserve)
/// reserves the amounts in all of them or in none, and [`settle`](Self::settle) or
/// [`release`](Self::release) ends the reservation. If the process is lost in between,
/// [`recover`](Self::recover) or [`recover_session`](Self::recover_session) ends it, in any process.
/// Tool calls and model requests share the accounts, so they cannot exceed a budget together.
/// Without budgets the store is never asked.
///
/// ```
/// # use toolgate_core::*;
/// # futures::executor::block_on(async {
/// let rule = BudgetRule::new("trial", BudgetScope::Global, BudgetPeriod::Day, BudgetUnit::Calls, 1);
/// let billing = BillingService::new(StoreHandle::new(MemoryStore::new()), Budgets::new([rule]));
/// let expense = Expense::for_call(Cost::Unknown);
/// let charge = |n| {
///     let id = ChargeId::Call(CallId::new(uuid::Uuid::from_u128(n)));
///     let payer = billing.payer();
///     billing.budgets().build_charge(id, payer, Timestamp::EPOCH, &expense, UnknownPrice::Refuse)
/// };
/// let reserved = billing.reserve(charge(1)?.expect("a budget applies")).await?;
/// let second = billing.reserve(charge(2)?.expect("a budget applies")).await;
/// assert!(matches!(second, Err(BudgetError::Exceeded { .. })));
/// assert_eq!(billing.settle(reserved, Some(&expense)).await?.len(), 4);
/// # Ok::<(), BudgetError>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct BillingService {
    store: StoreHandle,
    budgets: Budgets,
    payer: Payer,
    listeners: Vec<AlertListener>,
}

/// A callback for budget alerts.
type AlertListener = Arc<dyn Fn(&BudgetAlert, Timestamp) + Send + Sync>;

/// What is known of an expense that was reserved by a process that is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpenseState {
    /// It was made, or may have been: the reserved amounts are booked.
    Spent,
    /// It was not made: the reserved amounts are released.
    Unspent,
    /// It may still be made: the amounts stay reserved.
    Open,
}

impl BillingService {
    /// Creates a service for `budgets` with accounts in `store`.
    pub fn new(store: StoreHandle, budgets: Budgets) -> Self {
        Self {
            store,
            budgets,
            payer: Payer::default(),
            listeners: Vec::new(),
        }
    }

    /// Sets the payer as far as calls and requests do not name one ([`Payer::for_turn`]).
    #[must_use]
    pub fn paid_by(self, payer: Payer) -> Self {
        Self { payer, ..self }
    }

    /// Calls `listener` for each threshold that a booking passes, with the time of the reservation.
    #[must_use]
    pub fn on_alert(
        mut self,
        listener: impl Fn(&BudgetAlert, Timestamp) + Send + Sync + 'static,
    ) -> Self {
        self.listeners.push(Arc::new(listener));
        self
    }

    /// Returns the budgets.
    pub fn budgets(&self) -> &Budgets {
        &self.budgets
    }

    /// Returns the payer.
    pub fn payer(&self) -> &Payer {
        &self.payer
    }

    /// Reserves the amounts of a charge and returns the charge to settle or release: an open one
    /// with the same id, if there is one.
    ///
    /// # Errors
    ///
    /// Fails if a budget has not enough left, or if the store failed. The expense must not be made
    /// then.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the amounts may stay reserved until they are recovered.
    pub async fn reserve(&self, charge: Charge) -> Result<Charge, BudgetError> {
        self.store
            .reserve(charge)
            .await
            .map_err(|error| self.budgets.explain_store_error(error))
    }

    /// Checks whether a charge could be reserved, without reserving it.
    ///
    /// # Errors
    ///
    /// As for [`BillingService::reserve`].
    pub async fn check(&self, charge: &Charge) -> Result<(), BudgetError> {
        let mut rows = AccountRows::new();
        for account in charge.accounts() {
            if let Some(row) = self.store.account(account).await? {
                rows.insert(account.clone(), row);
            }
        }
        charge
            .reserve_in(&mut rows)
            .map_err(|error| self.budgets.explain_store_error(error))
    }

    /// Books the actual expense in place of the reserved amounts; the reserved amounts, as far as
    /// the actual ones are unknown. Returns the thresholds that were passed. A charge that is no
    /// longer open is not booked again.
    ///
    /// # Errors
    ///
    /// Fails if the store failed. The amounts stay reserved then, which allows less and never more.
    pub async fn settle(
        &self,
        charge: Charge,
        actual: Option<&Expense>,
    ) -> Result<Vec<BudgetAlert>, StoreError> {
        let reserved_at = charge.at;
        let amounts = actual.map(|expense| charge.actual_amounts(expense));
        let moved = self
            .store
            .settle_charge(charge, amounts.unwrap_or_default())
            .await?;
        let alerts = self.budgets.alerts_for(&moved);
        for alert in &alerts {
            for listener in &self.listeners {
                // A listener that panics must not undo the booking.
                drop(run_contained_sync(|| listener(alert, reserved_at)));
            }
        }
        Ok(alerts)
    }

    /// Releases the reserved amounts: the expense was not made.
    ///
    /// # Errors
    ///
    /// Fails if the store failed. The amounts stay reserved then.
    pub async fn release(&self, charge: Charge) -> Result<(), StoreError> {
        self.store.release_charge(charge).await
    }

    /// Ends the reservation that a lost process left for an expense, if there is one. Returns the
    /// thresholds that were passed. Repeating it changes nothing.
    ///
    /// # Errors
    ///
    /// Fails if the store failed.
    pub async fn recover(
        &self,
        id: ChargeId,
        state: ExpenseState,
    ) -> Result<Vec<BudgetAlert>, StoreError> {
        if self.budgets.is_empty() {
            return Ok(Vec::new());
        }
        match self
            .store
            .charges(ChargeFilter::for_charge(id))
            .await?
            .pop()
        {
            Some(charge) => self.end_charge(charge, state).await,
            None => Ok(Vec::new()),
        }
    }

    /// Ends all reservations that lost processes left for a session: those of settled calls by
    /// their outcomes, those of model requests by the answer of `was_sent`. Returns the thresholds
    /// that were passed. Repeating it changes nothing.
    ///
    /// # Errors
    ///
    /// Fails if the store or `was_sent` failed.
    pub async fn recover_session<F, Fut>(
        &self,
        session: SessionId,
        was_sent: F,
    ) -> Result<Vec<BudgetAlert>, StoreError>
    where
        F: Fn(TurnId) -> Fut,
        Fut: Future<Output = Result<bool, StoreError>>,
    {
        let mut alerts = Vec::new();
        let mut filter = ChargeFilter {
            session: Some(session),
            ..ChargeFilter::default()
        };
        let mut has_more = !self.budgets.is_empty();
        while has_more {
            let page = self.store.charges(filter.clone()).await?;
            has_more = page.len() == filter.limit;
            filter.after = page.last().map(|charge| charge.id);
            for charge in page {
                let state = match charge.id {
                    ChargeId::Call(call) => self.call_state(call).await?,
                    ChargeId::Turn(turn) if was_sent(turn).await? => ExpenseState::Spent,
                    ChargeId::Turn(_) => ExpenseState::Unspent,
                };
                alerts.extend(self.end_charge(charge, state).await?);
            }
        }
        Ok(alerts)
    }

    async fn end_charge(
        &self,
        charge: Charge,
        state: ExpenseState,
    ) -> Result<Vec<BudgetAlert>, StoreError> {
        match state {
            ExpenseState::Spent => self.settle(charge, None).await,
            ExpenseState::Unspent => self.release(charge).await.map(|()| Vec::new()),
            ExpenseState::Open => Ok(Vec::new()),
        }
    }

    /// Returns what is known of the expense of a call: it is open until the call is settled.
    async fn call_state(&self, call: CallId) -> Result<ExpenseState, StoreError> {
        Ok(match self.store.load_outcome(call).await? {
            Some(settled) if settled.attempts == 0 => ExpenseState::Unspent,
            Some(_) => ExpenseState::Spent,
            None => ExpenseState::Open,
        })
    }
}

impl fmt::Debug for BillingService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BillingService")
            .field("budgets", &self.budgets)
            .field("payer", &self.payer)
            .finish_non_exhaustive()
    }
}
