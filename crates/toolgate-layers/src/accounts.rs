//! Who keeps the money: the trait behind [`Budget`](crate::Budget) and accounts in memory.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::future::BoxFuture;
use toolgate_core::{Call, CallId, Principal, SessionId, Timestamp, ToolName};

use crate::BadOption;

/// Keeps accounts and says whether a call can be paid for.
///
/// An amount is reserved before a call and either settled or released after it. All three are keyed by the call and
/// safe to repeat: reserving again for a call whose reservation is open gives that reservation, and settling or
/// releasing where none is open changes nothing. What is reserved counts as spent until it is released, so that calls
/// made at the same time cannot overshoot.
///
/// A call that runs outside and never comes back leaves its reservation open. Accounts that outlive such calls should
/// let reservations lapse after a time that no call takes.
pub trait Accounts: Send + Sync + 'static {
    /// Says whether `amount` could be reserved, without doing so.
    fn check<'a>(
        &'a self,
        account: &'a BudgetAccount,
        amount: f64,
    ) -> BoxFuture<'a, Result<(), BudgetRefusal>>;

    /// Sets `amount` aside for a call.
    fn reserve<'a>(
        &'a self,
        call: CallId,
        account: &'a BudgetAccount,
        amount: f64,
    ) -> BoxFuture<'a, Result<Reservation, BudgetRefusal>>;

    /// Books what the call has cost in place of what was reserved.
    fn settle(
        &self,
        reservation: Reservation,
        actual: f64,
    ) -> BoxFuture<'_, Result<(), AccountsDown>>;

    /// Gives back what was reserved: the call did not run.
    fn release(&self, reservation: Reservation) -> BoxFuture<'_, Result<(), AccountsDown>>;

    /// Whether money is counted at all. Where it is not, nobody needs to know what a call costs.
    fn counts_money(&self) -> bool {
        true
    }
}

/// Who pays for a call, and what for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BudgetAccount {
    /// On whose behalf the call is made, if that is known.
    pub principal: Option<Principal>,
    /// In which session.
    pub session: SessionId,
    /// In which run of the session, by the number of the message that began it, if that is known.
    pub run: Option<u64>,
    /// Of which tool.
    pub tool: ToolName,
    /// When.
    pub at: Timestamp,
}

impl BudgetAccount {
    /// The account of `call`.
    pub fn of(call: &Call) -> Self {
        let turn = call.turn();
        let (principal, at) = (turn.principal.clone(), call.env().clock().now());
        Self {
            principal,
            session: turn.session,
            run: turn.run,
            tool: call.tool.clone(),
            at,
        }
    }
}

/// An amount that is set aside for a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reservation {
    /// For which call.
    pub call: CallId,
    /// How much.
    pub amount: f64,
}

/// Why nothing was set aside.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BudgetRefusal {
    /// It would be more than is left.
    #[error("the budget {budget} does not suffice")]
    Exceeded {
        /// Which budget, as people call it.
        budget: String,
        /// How much is left of it, if that may be told.
        left: Option<f64>,
    },
    /// It may not be made for another reason, which the model is told.
    #[error("{0}")]
    Refused(String),
    /// The accounts could not be asked.
    #[error(transparent)]
    Unavailable(#[from] AccountsDown),
}

/// The accounts could not do their work; the text is for the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the accounts are unavailable: {0}")]
pub struct AccountsDown(pub String);

/// The accounts that all budgets of a program share.
#[derive(Clone)]
pub struct SharedAccounts(pub Arc<dyn Accounts>);

impl SharedAccounts {
    /// Shares accounts.
    pub fn new(accounts: impl Accounts) -> Self {
        Self(Arc::new(accounts))
    }
}

impl fmt::Debug for SharedAccounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedAccounts")
    }
}

/// One budget for everything, kept in memory. Cloning shares it.
///
/// It counts in billionths of a unit, so that ten times 0.1 is 1.
///
/// ```
/// use toolgate_layers::MemoryAccounts;
/// let accounts = MemoryAccounts::limit(2.5)?;
/// assert_eq!((accounts.spent(), accounts.left()), (0.0, 2.5));
/// # Ok::<(), toolgate_layers::BadOption>(())
/// ```
#[derive(Debug, Clone)]
pub struct MemoryAccounts {
    limit: u64,
    books: Arc<Mutex<Books>>,
}

#[derive(Debug, Default)]
struct Books {
    spent: u64,
    held: HashMap<CallId, u64>,
    /// The sum of what is held.
    reserved: u64,
}

impl MemoryAccounts {
    /// A budget of `total`.
    pub fn limit(total: f64) -> Result<Self, BadOption> {
        let limit = units(total)
            .ok_or_else(|| BadOption::new("limit", "has to be an amount of 0 or more"))?;
        Ok(Self {
            limit,
            books: Arc::default(),
        })
    }

    /// How much was spent.
    pub fn spent(&self) -> f64 {
        amount(self.books().spent)
    }

    /// How much is neither spent nor reserved.
    pub fn left(&self) -> f64 {
        amount(self.free(&self.books()))
    }

    fn free(&self, books: &Books) -> u64 {
        self.limit
            .saturating_sub(books.spent)
            .saturating_sub(books.reserved)
    }

    // Amounts are changed whole under the lock.
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn affordable(&self, books: &Books, amount: f64) -> Result<u64, BudgetRefusal> {
        let wanted =
            units(amount).ok_or_else(|| AccountsDown(format!("{amount} is not an amount")))?;
        let free = self.free(books);
        if wanted > free {
            return Err(BudgetRefusal::Exceeded {
                budget: "total".into(),
                left: Some(self::amount(free)),
            });
        }
        Ok(wanted)
    }

    fn take(&self, call: CallId, amount: f64) -> Result<Reservation, BudgetRefusal> {
        let mut books = self.books();
        if let Some(held) = books.held.get(&call) {
            return Ok(Reservation {
                call,
                amount: self::amount(*held),
            });
        }
        let wanted = self.affordable(&books, amount)?;
        books.held.insert(call, wanted);
        books.reserved = books.reserved.saturating_add(wanted);
        Ok(Reservation { call, amount })
    }

    /// Ends a reservation and books `actual` for it; one that is over already changes nothing.
    fn end(&self, call: CallId, actual: f64) -> Result<(), AccountsDown> {
        let actual =
            units(actual).ok_or_else(|| AccountsDown(format!("{actual} is not an amount")))?;
        let mut books = self.books();
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
    ) -> BoxFuture<'a, Result<(), BudgetRefusal>> {
        Box::pin(async move { self.affordable(&self.books(), amount).map(drop) })
    }
    fn reserve<'a>(
        &'a self,
        call: CallId,
        _: &'a BudgetAccount,
        amount: f64,
    ) -> BoxFuture<'a, Result<Reservation, BudgetRefusal>> {
        Box::pin(async move { self.take(call, amount) })
    }
    fn settle(
        &self,
        reservation: Reservation,
        actual: f64,
    ) -> BoxFuture<'_, Result<(), AccountsDown>> {
        Box::pin(async move { self.end(reservation.call, actual) })
    }
    fn release(&self, reservation: Reservation) -> BoxFuture<'_, Result<(), AccountsDown>> {
        Box::pin(async move { self.end(reservation.call, 0.0) })
    }
}

const UNITS: f64 = 1e9;

/// Billionths; nothing but an amount of 0 or more is one, and nothing but 0 is nothing.
pub(crate) fn units(amount: f64) -> Option<u64> {
    let units = (amount * UNITS).round();
    let fits = amount.is_finite() && amount >= 0.0 && units < u64::MAX as f64;
    fits.then(|| {
        if amount > 0.0 {
            (units as u64).max(1)
        } else {
            0
        }
    })
}

fn amount(units: u64) -> f64 {
    units as f64 / UNITS
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate_testkit::call;

    #[tokio::test]
    async fn reserving_settling_and_releasing_twice_is_doing_it_once() {
        let (accounts, call) = (MemoryAccounts::limit(1.0).expect("an amount"), call("t"));
        let account = BudgetAccount::of(&call);
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
    fn amounts_are_exact_and_nothing_else_is_an_amount() {
        let accounts = MemoryAccounts::limit(0.3).expect("an amount");
        for n in 0..3_u128 {
            let id = format!("{n:032x}").parse().expect("an id");
            accounts.take(id, 0.1).expect("three times 0.1 is 0.3");
        }
        assert_eq!(accounts.left(), 0.0);
        for bad in [-1.0, f64::NAN, f64::INFINITY, 1e30] {
            assert!(MemoryAccounts::limit(bad).is_err(), "{bad}");
        }
        assert_eq!(units(1e-12), Some(1), "a small price is not free");
    }
}
