//! The result of verifying the evidence, with what was not checked.

use toolgate_core::{AcceptedRestore, LedgerHead, LedgerName, VerifiedLedger};
use toolgate_layers::OutcomeComparison;

use super::RememberedHead;

/// The result of verifying a ledger whose chain is intact.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct EvidenceReport {
    /// The chain, and the last record that a checkpoint confirms.
    pub chain: VerifiedLedger,
    /// The comparison with the calls that settled.
    pub outcomes: OutcomeComparison,
    /// The head that is remembered here; it is in the chain.
    pub remembered: Option<LedgerHead>,
    /// The ledgers that were at the address of this one before.
    pub replaced: Vec<RememberedHead>,
    /// The losses that people accepted.
    pub restores: Vec<AcceptedRestore>,
    /// The other ledgers of the store, which were not verified.
    pub other_ledgers: Vec<LedgerName>,
    /// True if heads are remembered here at all.
    pub(super) remembers: bool,
}

impl EvidenceReport {
    /// Checks whether the receipts and the calls that settled agree.
    pub fn is_intact(&self) -> bool {
        self.outcomes.agrees()
    }

    /// Returns the last record that a signature or the remembered head confirms.
    pub fn confirmed(&self) -> Option<u64> {
        let remembered = self.remembered.as_ref().map(|head| head.counter);
        self.chain
            .signed
            .max(remembered)
            .filter(|&record| record > 0)
    }

    /// Checks whether there are receipts and no signature confirms any of them.
    pub fn is_unsigned(&self) -> bool {
        self.chain.counter > 0 && self.confirmed().is_none()
    }

    /// Returns what was not checked, a sentence each.
    pub fn not_checked(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let confirmed = self.confirmed().unwrap_or(0);
        if self.chain.counter > confirmed {
            let after = confirmed + 1;
            notes.push(format!(
                "records from {after} on are not signed yet, so their removal would not be noticed"
            ));
        }
        for foreign in &self.chain.not_checked {
            notes.push(format!(
                "the checkpoint of record {} has the unknown key {}",
                foreign.counter, foreign.key
            ));
        }
        if self.remembers && self.remembered.is_none() {
            notes.push("no signed head of this ledger is remembered on this machine".to_owned());
        }
        for replaced in &self.replaced {
            notes.push(format!(
                "another ledger was in this place, with {} records; it is not the one verified here",
                replaced.checkpoint.counter
            ));
        }
        if self.outcomes.elsewhere > 0 {
            notes.push(format!(
                "calls that settled without a receipt in this ledger: {}",
                self.outcomes.elsewhere
            ));
        }
        if self.outcomes.erased > 0 {
            notes.push(format!(
                "receipts of sessions that are not in the database any more: {}",
                self.outcomes.erased
            ));
        }
        for other in &self.other_ledgers {
            notes.push(format!("the ledger {other} of this database"));
        }
        notes
    }
}
