//! The accounts of the in-memory store.

use std::collections::BTreeMap;

use crate::{
    AccountKey, AccountMovement, AccountRow, AccountRows, Charge, ChargeFilter, ChargeId,
    StoreError,
};

/// The accounts and the open charges.
#[derive(Default)]
pub(crate) struct MemoryAccountBook {
    accounts: AccountRows,
    open: BTreeMap<ChargeId, Charge>,
}

impl MemoryAccountBook {
    pub(crate) fn reserve_charge(&mut self, charge: Charge) -> Result<Charge, StoreError> {
        // A resumed call reserves again with the same id; the amount must not be reserved twice.
        if let Some(open) = self.open.get(&charge.id) {
            return Ok(open.clone());
        }
        // On copies: a charge that is short in its last account must not touch the first.
        let mut rows = self.rows_for(&charge);
        charge.reserve_in(&mut rows)?;
        self.accounts.extend(rows);
        self.open.insert(charge.id, charge.clone());
        Ok(charge)
    }

    pub(crate) fn settle_charge(
        &mut self,
        charge: &Charge,
        actual: &[u64],
    ) -> Vec<AccountMovement> {
        if !self.close_charge(charge) {
            return Vec::new();
        }
        charge.settle_in(&mut self.accounts, actual)
    }

    pub(crate) fn release_charge(&mut self, charge: &Charge) {
        if self.close_charge(charge) {
            charge.release_in(&mut self.accounts);
        }
    }

    pub(crate) fn list_charges(&self, filter: &ChargeFilter) -> Vec<Charge> {
        self.open
            .values()
            .filter(|charge| filter.matches(charge))
            .take(filter.limit)
            .cloned()
            .collect()
    }

    pub(crate) fn find_account(&self, account: &AccountKey) -> Option<AccountRow> {
        self.accounts.get(account).cloned()
    }

    pub(crate) fn list_accounts(
        &self,
        prefix: &str,
        after: Option<&AccountKey>,
        limit: usize,
    ) -> Vec<AccountRow> {
        let found = self
            .accounts
            .values()
            .filter(|row| row.account.to_string().starts_with(prefix));
        let found = found.filter(|row| after.is_none_or(|after| *after < row.account));
        found.take(limit).cloned().collect()
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

    fn rows_for(&self, charge: &Charge) -> AccountRows {
        let known = charge
            .accounts()
            .filter_map(|account| self.accounts.get(account));
        known
            .map(|row| (row.account.clone(), row.clone()))
            .collect()
    }
}
