//! Chains of sealed entries.

use std::future::Future;

use crate::{LedgerDraft, LedgerHead, LedgerName, SealedEntry, StoreError};

/// Chains of sealed entries. Nothing is ever changed in them or deleted from them.
pub trait LedgerStore: Send + Sync + 'static {
    /// Adds entries to the ends of their chains, all or none, and returns the new ends.
    fn seal_entries(
        &self,
        drafts: Vec<LedgerDraft>,
    ) -> impl Future<Output = Result<Vec<LedgerHead>, StoreError>> + Send;

    /// Reads entries of a chain after number `after`, in order.
    fn entries(
        &self,
        ledger: &LedgerName,
        after: u64,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<SealedEntry>, StoreError>> + Send;

    /// Returns the end of every chain, by name.
    fn ledgers(&self) -> impl Future<Output = Result<Vec<LedgerHead>, StoreError>> + Send;
}
