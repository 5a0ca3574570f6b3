//! Chains of the in-memory store.

use crate::{
    LedgerDraft, LedgerHead, LedgerName, LedgerStore, SealedEntry, StoreError,
    store::memory::{MemoryState, MemoryStore},
};

impl LedgerStore for MemoryStore {
    async fn seal_entries(&self, drafts: Vec<LedgerDraft>) -> Result<Vec<LedgerHead>, StoreError> {
        let mut shelf = self.lock_state();
        Ok(drafts
            .into_iter()
            .map(|draft| shelf.append_entry(draft))
            .collect())
    }

    async fn entries(
        &self,
        ledger: &LedgerName,
        after: u64,
        limit: usize,
    ) -> Result<Vec<SealedEntry>, StoreError> {
        let shelf = self.lock_state();
        let chain = shelf.ledgers.get(ledger).map_or(&[][..], Vec::as_slice);
        let from = usize::try_from(after)
            .unwrap_or(usize::MAX)
            .min(chain.len());
        Ok(chain[from..].iter().take(limit).cloned().collect())
    }

    async fn ledgers(&self) -> Result<Vec<LedgerHead>, StoreError> {
        Ok(self
            .lock_state()
            .ledgers
            .values()
            .filter_map(|chain| chain.last())
            .map(SealedEntry::head)
            .collect())
    }
}

impl MemoryState {
    pub(super) fn append_entry(&mut self, draft: LedgerDraft) -> LedgerHead {
        let chain = self.ledgers.entry(draft.ledger.clone()).or_default();
        let head = chain
            .last()
            .map_or_else(|| LedgerHead::start_of(draft.ledger), SealedEntry::head);
        let entry = head.seal_entry(draft.body);
        let head = entry.head();
        chain.push(entry);
        head
    }
}
