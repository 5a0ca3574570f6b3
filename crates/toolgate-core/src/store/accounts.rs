//! Accounts, and the charges that are open in them.

use std::future::Future;

use crate::{AccountKey, AccountMovement, AccountRow, Charge, ChargeFilter, StoreError};

/// The accounts of budgets: amounts are reserved before they are spent, and booked afterwards.
pub trait AccountStore: Send + Sync + 'static {
    /// Reserves the amounts of a charge in all its accounts, or in none.
    ///
    /// Concurrent charges of any processes never exceed a limit together. If there is an open
    /// charge with the same id, nothing more is reserved and that one is returned: it is the one to
    /// settle or release.
    ///
    /// # Errors
    ///
    /// [`StoreError::AccountShort`] with the account that has not enough left.
    fn reserve(&self, charge: Charge) -> impl Future<Output = Result<Charge, StoreError>> + Send;

    /// Books the actual amounts, line by line, instead of the reserved ones, and returns the amount
    /// spent from each account. A line without an actual amount is booked as reserved.
    ///
    /// If this exact charge is no longer open, nothing is booked or returned. So each movement of
    /// an account is returned once.
    fn settle_charge(
        &self,
        charge: Charge,
        actual: Vec<u64>,
    ) -> impl Future<Output = Result<Vec<AccountMovement>, StoreError>> + Send;

    /// Releases the reserved amounts. If this exact charge is no longer open, nothing happens.
    fn release_charge(&self, charge: Charge)
    -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Lists open charges, in the order of their names.
    fn charges(
        &self,
        filter: ChargeFilter,
    ) -> impl Future<Output = Result<Vec<Charge>, StoreError>> + Send;

    /// Returns an account; `None` if nothing was ever charged to it.
    fn account(
        &self,
        account: &AccountKey,
    ) -> impl Future<Output = Result<Option<AccountRow>, StoreError>> + Send;

    /// Lists accounts whose name starts with `prefix`, in the order of their names, starting after
    /// `after`.
    fn accounts(
        &self,
        prefix: &str,
        after: Option<&AccountKey>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<AccountRow>, StoreError>> + Send;
}
