//! Accounts of the in-memory store.

use std::collections::BTreeMap;

use crate::{
    AccountKey, AccountMovement, AccountRow, AccountRows, AccountStore, Charge, ChargeFilter,
    ChargeId, StoreError, store::memory::MemoryStore,
};

/// The accounts and the open charges.
#[derive(Default)]
pub(super) struct MemoryAccountBook {
    accounts: AccountRows,
    open: BTreeMap<ChargeId, Charge>,
}

impl AccountStore for MemoryStore {
    async fn reserve(&self, charge: Charge) -> Result<Charge, StoreError> {
        let book = &mut self.lock_state().till;
        // A resumed call reserves again with the same id; the amount must not be reserved twice.
        if let Some(open) = book.open.get(&charge.id) {
            return Ok(open.clone());
        }
        charge.reserve_in(&mut book.accounts)?;
        book.open.insert(charge.id, charge.clone());
        Ok(charge)
    }

    async fn settle_charge(
        &self,
        charge: Charge,
        actual: Vec<u64>,
    ) -> Result<Vec<AccountMovement>, StoreError> {
        Ok(self.lock_state().till.settle_charge(&charge, &actual))
    }

    async fn release_charge(&self, charge: Charge) -> Result<(), StoreError> {
        let book = &mut self.lock_state().till;
        if book.close_charge(&charge) {
            charge.release_in(&mut book.accounts);
        }
        Ok(())
    }

    async fn charges(&self, filter: ChargeFilter) -> Result<Vec<Charge>, StoreError> {
        Ok(self.lock_state().till.list_charges(&filter))
    }

    async fn account(&self, account: &AccountKey) -> Result<Option<AccountRow>, StoreError> {
        Ok(self.lock_state().till.accounts.get(account).cloned())
    }

    async fn accounts(
        &self,
        prefix: &str,
        after: Option<&AccountKey>,
        limit: usize,
    ) -> Result<Vec<AccountRow>, StoreError> {
        let shelf = self.lock_state();
        let found = shelf
            .till
            .accounts
            .values()
            .filter(|row| row.account.to_string().starts_with(prefix));
        let found = found.filter(|row| after.is_none_or(|after| *after < row.account));
        Ok(found.take(limit).cloned().collect())
    }
}

impl MemoryAccountBook {
    pub(super) fn settle_charge(
        &mut self,
        charge: &Charge,
        actual: &[u64],
    ) -> Vec<AccountMovement> {
        if !self.close_charge(charge) {
            return Vec::new();
        }
        charge.settle_in(&mut self.accounts, actual)
    }

    pub(super) fn list_charges(&self, filter: &ChargeFilter) -> Vec<Charge> {
        self.open
            .values()
            .filter(|charge| filter.matches(charge))
            .take(filter.limit)
            .cloned()
            .collect()
    }

    /// Closes this exact charge. Returns true if it was open.
    fn close_charge(&mut self, charge: &Charge) -> bool {
        // The whole charge is compared: one with the same id may have been reserved anew since.
        let is_open = self.open.get(&charge.id) == Some(charge);
        if is_open {
            self.open.remove(&charge.id);
        }
        is_open
    }
}
