//! The accounts of the store in memory.

use std::collections::BTreeMap;

use crate::{
    AccountKey, AccountRow, AccountRows, Charge, ChargeFilter, ChargeId, Movement, StoreError,
};

/// Accounts, and the charges that are open.
#[derive(Default)]
pub(crate) struct Till {
    accounts: AccountRows,
    open: BTreeMap<ChargeId, Charge>,
}

impl Till {
    pub(crate) fn reserve(&mut self, charge: Charge) -> Result<Charge, StoreError> {
        if let Some(open) = self.open.get(&charge.id) {
            return Ok(open.clone());
        }
        let mut rows = self.rows(&charge);
        charge.reserve_in(&mut rows)?;
        self.accounts.extend(rows);
        self.open.insert(charge.id, charge.clone());
        Ok(charge)
    }

    pub(crate) fn settle(&mut self, charge: &Charge, actual: &[u64]) -> Vec<Movement> {
        if !self.close(charge) {
            return Vec::new();
        }
        charge.settle_in(&mut self.accounts, actual)
    }

    pub(crate) fn release(&mut self, charge: &Charge) {
        if self.close(charge) {
            charge.release_in(&mut self.accounts);
        }
    }

    pub(crate) fn charges(&self, filter: &ChargeFilter) -> Vec<Charge> {
        self.open
            .values()
            .filter(|charge| filter.wants(charge))
            .take(filter.limit)
            .cloned()
            .collect()
    }

    pub(crate) fn account(&self, account: &AccountKey) -> Option<AccountRow> {
        self.accounts.get(account).cloned()
    }

    pub(crate) fn accounts(
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

    /// Whether this very charge was open. It is not any more.
    fn close(&mut self, charge: &Charge) -> bool {
        let is_open = self.open.get(&charge.id) == Some(charge);
        if is_open {
            self.open.remove(&charge.id);
        }
        is_open
    }

    fn rows(&self, charge: &Charge) -> AccountRows {
        let known = charge
            .accounts()
            .filter_map(|account| self.accounts.get(account));
        known
            .map(|row| (row.account.clone(), row.clone()))
            .collect()
    }
}
