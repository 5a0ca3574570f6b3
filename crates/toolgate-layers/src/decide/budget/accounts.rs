//! Accounts: the trait behind [`Budget`](crate::Budget), and accounts in memory.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::future::BoxFuture;
use toolgate_core::{Call, CallId, Principal, SessionId, Timestamp, ToolName};

use crate::BadOption;

/// Accounts that decide whether a call can be paid for.
///
/// An amount is reserved before a call and either settled or released after it. All three
/// operations are keyed by the call and idempotent: reserving again for a call with an open
/// reservation returns that reservation, and settling or releasing without one changes nothing. A
/// reserved amount counts as spent until it is released, so that concurrent calls cannot exceed the
/// budget.
///
/// A call that runs outside and never returns leaves its reservation open. Accounts that outlive
/// such calls should let reservations expire after a time longer than any call takes.
pub trait Accounts: Send + Sync + 'static {
    /// Checks whether `amount` could be reserved, without reserving it.
    fn check<'a>(
        &'a self,
        account: &'a BudgetAccount,
        amount: f64,
    ) -> BoxFuture<'a, Result<(), BudgetRejection>>;

    /// Reserves `amount` for a call.
    fn reserve<'a>(
        &'a self,
        call: CallId,
        account: &'a BudgetAccount,
        amount: f64,
    ) -> BoxFuture<'a, Result<CallReservation, BudgetRejection>>;

    /// Books the actual cost of the call in place of the reserved amount.
    fn settle(
        &self,
        reservation: CallReservation,
        actual: f64,
    ) -> BoxFuture<'_, Result<(), AccountsUnavailable>>;

    /// Releases the reserved amount: the call did not run.
    fn release(
        &self,
        reservation: CallReservation,
    ) -> BoxFuture<'_, Result<(), AccountsUnavailable>>;

    /// Returns true if money is counted. If it is not, a call needs no known price.
    fn counts_money(&self) -> bool {
        true
    }
}

/// The payer of a call, and what is paid for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BudgetAccount {
    /// The principal of the call, if known.
    pub principal: Option<Principal>,
    /// The session of the call.
    pub session: SessionId,
    /// The run in the session, by the number of the message that began it, if known.
    pub run: Option<u64>,
    /// The tool's name.
    pub tool: ToolName,
    /// Time of the call.
    pub at: Timestamp,
}

impl BudgetAccount {
    /// Returns the account of `call`.
    pub fn for_call(call: &Call) -> Self {
        let turn = call.turn();
        let principal = turn.principal.clone();
        let at = call.env().clock().now();
        Self {
            principal,
            session: turn.session,
            run: turn.run,
            tool: call.tool.clone(),
            at,
        }
    }
}

/// An amount that is reserved for a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CallReservation {
    /// The call.
    pub call: CallId,
    /// The reserved amount.
    pub amount: f64,
}

/// The reason why nothing was reserved.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BudgetRejection {
    /// The amount is more than the budget has left.
    #[error("the budget {budget} is too small")]
    Exceeded {
        /// The name of the budget.
        budget: String,
        /// The amount left, if it may be shown.
        left: Option<f64>,
    },
    /// The call is rejected for another reason, which the model reads.
    #[error("{0}")]
    Rejected(String),
    /// The accounts could not be reached.
    #[error(transparent)]
    Unavailable(#[from] AccountsUnavailable),
}

/// The error of accounts that failed; the text is for the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the accounts are unavailable: {0}")]
pub struct AccountsUnavailable(pub String);

/// The accounts that all budgets of a program share.
#[derive(Clone)]
pub struct SharedAccounts(pub Arc<dyn Accounts>);

impl SharedAccounts {
    /// Wraps accounts to share them.
    pub fn new(accounts: impl Accounts) -> Self {
        Self(Arc::new(accounts))
    }
}

impl fmt::Debug for SharedAccounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedAccounts")
    }
}

/// One budget for all calls, in memory. Clones share it.
///
/// It counts in billionths of a unit, so that ten times 0.1 is 1.
///
/// ```
/// use toolgate_layers::MemoryAccounts;
/// let accounts = MemoryAccounts::with_limit(2.5)?;
/// assert_eq!((accounts.spent(), accounts.left()), (0.0, 2.5));
/// # Ok::<(), toolgate_layers::BadOption>(())
/// ```
#[derive(Debug, Clone)]
pub struct MemoryAccounts {
    limit: u64,
    books: Arc<Mutex<AccountBooks>>,
}

#[derive(Debug, Default)]
struct AccountBooks {
    spent: u64,
    held: HashMap<CallId, u64>,
    /// The sum of all held amounts.
    reserved: u64,
}

impl MemoryAccounts {
    /// Creates a budget of `total`.
    pub fn with_limit(total: f64) -> Result<Self, BadOption> {
        let limit = to_units(total)
            .ok_or_else(|| BadOption::new("limit", "must be an amount of 0 or more"))?;
        Ok(Self {
            limit,
            books: Arc::default(),
        })
    }

    /// Returns the amount spent.
    pub fn spent(&self) -> f64 {
        from_units(self.lock_books().spent)
    }

    /// Returns the amount that is neither spent nor reserved.
    pub fn left(&self) -> f64 {
        from_units(self.free_units(&self.lock_books()))
    }

    fn free_units(&self, books: &AccountBooks) -> u64 {
        self.limit
            .saturating_sub(books.spent)
            .saturating_sub(books.reserved)
    }

    // A poisoned lock is harmless: amounts are changed together under the lock.
    fn lock_books(&self) -> MutexGuard<'_, AccountBooks> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_affordable(&self, books: &AccountBooks, amount: f64) -> Result<u64, BudgetRejection> {
        let wanted = to_units(amount)
            .ok_or_else(|| AccountsUnavailable(format!("{amount} is not an amount")))?;
        let free = self.free_units(books);
        if wanted > free {
            return Err(BudgetRejection::Exceeded {
                budget: "total".into(),
                left: Some(self::from_units(free)),
            });
        }
        Ok(wanted)
    }

    fn reserve_units(&self, call: CallId, amount: f64) -> Result<CallReservation, BudgetRejection> {
        let mut books = self.lock_books();
        // A call that resumes finds its open reservation and does not reserve twice.
        if let Some(held) = books.held.get(&call) {
            return Ok(CallReservation {
                call,
                amount: self::from_units(*held),
            });
        }
        let wanted = self.check_affordable(&books, amount)?;
        books.held.insert(call, wanted);
        books.reserved = books.reserved.saturating_add(wanted);
        Ok(CallReservation { call, amount })
    }

    /// Ends a reservation and books `actual` for it. If it has already ended, nothing changes.
    fn end_reservation(&self, call: CallId, actual: f64) -> Result<(), AccountsUnavailable> {
        let actual = to_units(actual)
            .ok_or_else(|| AccountsUnavailable(format!("{actual} is not an amount")))?;
        let mut books = self.lock_books();
        // Only the first end of a reservation is booked.
        if let Some(held) = books.held.remove(&call) {
            books.reserved = books.reserved.saturating_sub(held);
            books.spent = books.spent.saturating_add(actual);
        }
        Ok(())
    }
}

impl Accounts for MemoryAccounts {
    fn check<'a>(
        &'a self,
        _: &'a BudgetAccount,
        amount: f64,
    ) -> BoxFuture<'a, Result<(), BudgetRejection>> {
        Box::pin(async move { self.check_affordable(&self.lock_books(), amount).map(drop) })
    }
    fn reserve<'a>(
        &'a self,
        call: CallId,
        _: &'a BudgetAccount,
        amount: f64,
    ) -> BoxFuture<'a, Result<CallReservation, BudgetRejection>> {
        Box::pin(async move { self.reserve_units(call, amount) })
    }
    fn settle(
        &self,
        reservation: CallReservation,
        actual: f64,
    ) -> BoxFuture<'_, Result<(), AccountsUnavailable>> {
        Box::pin(async move { self.end_reservation(reservation.call, actual) })
    }
    fn release(
        &self,
        reservation: CallReservation,
    ) -> BoxFuture<'_, Result<(), AccountsUnavailable>> {
        Box::pin(async move { self.end_reservation(reservation.call, 0.0) })
    }
}

const UNITS_PER_ONE: f64 = 1e9;

/// Converts an amount to billionths. Returns `None` if it is not an amount of 0 or more. A positive
/// amount never becomes 0, because a small price is not free.
pub(crate) fn to_units(amount: f64) -> Option<u64> {
    let units = (amount * UNITS_PER_ONE).round();
    let fits = amount.is_finite() && amount >= 0.0 && units < u64::MAX as f64;
    fits.then(|| {
        if amount > 0.0 {
            (units as u64).max(1)
        } else {
            0
        }
    })
}

fn from_units(units: u64) -> f64 {
    units as f64 / UNITS_PER_ONE
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate_testkit::call;

    #[tokio::test]
    async fn reserving_settling_and_releasing_are_idempotent() {
        let accounts = MemoryAccounts::with_limit(1.0).expect("an amount");
        let call = call("t");
        let account = BudgetAccount::for_call(&call);
        let reservation = accounts
            .reserve(call.id, &account, 0.6)
            .await
            .expect("enough");
        assert_eq!(
            accounts.reserve(call.id, &account, 0.6).await,
            Ok(reservation)
        );
        assert_eq!(accounts.left(), 0.4);
        assert!(accounts.check(&account, 0.5).await.is_err());
        for _ in 0..2 {
            accounts.settle(reservation, 0.5).await.expect("booked");
        }
        accounts
            .release(reservation)
            .await
            .expect("nothing to release");
        assert_eq!((accounts.spent(), accounts.left()), (0.5, 0.5));
    }

    #[test]
    fn amounts_are_exact_and_invalid_numbers_are_rejected() {
        let accounts = MemoryAccounts::with_limit(0.3).expect("an amount");
        for n in 0..3_u128 {
            let id = format!("{n:032x}").parse().expect("an id");
            accounts
                .reserve_units(id, 0.1)
                .expect("three times 0.1 is 0.3");
        }
        assert_eq!(accounts.left(), 0.0);
        for bad in [-1.0, f64::NAN, f64::INFINITY, 1e30] {
            assert!(MemoryAccounts::with_limit(bad).is_err(), "{bad}");
        }
        assert_eq!(to_units(1e-12), Some(1), "a small price is not free");
    }
}
