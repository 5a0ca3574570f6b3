//! Verifies the receipts that came with an imported session.

use toolgate_core::{
    CheckpointError, LedgerName, LedgerVerification, LedgerVerifier, SessionId, StoreError,
    TamperKind, TamperedLedger,
};

use super::Importer;
use crate::{ImportError, export::receipts::imported_receipts_prefix, line::ArchiveLine};

/// The number of receipts that are in memory at a time.
const PAGE_ENTRIES: usize = 500;

/// The receipts of an imported session: a verified part of the ledger of another store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImportedLedger {
    /// The name of the ledger in that store.
    pub ledger: LedgerName,
    /// The number of receipts of the session and its agents.
    pub receipts: u64,
    /// The number of the last entry of the part.
    pub last: u64,
    /// The last entry that a checkpoint of a trusted key confirms.
    pub signed: Option<u64>,
    /// The number of checkpoints whose keys are not trusted. They prove nothing here.
    pub not_checked: u64,
}

impl Importer {
    /// Verifies the receipts that came with a session: each part of a ledger is unbroken, and the
    /// signatures of trusted keys are valid.
    ///
    /// # Errors
    ///
    /// Fails with the first receipt that was changed, or if the store fails.
    pub async fn verify_receipts(
        &self,
        session: SessionId,
        verifier: Option<&LedgerVerifier>,
    ) -> Result<Vec<ImportedLedger>, ImportError> {
        let prefix = imported_receipts_prefix(session);
        let mut parts: Vec<(LedgerVerification, ImportedLedger)> = Vec::new();
        let mut after: Option<String> = None;
        let mut number = 0;
        loop {
            let page = self
                .store
                .list_json(&prefix, after.as_deref(), PAGE_ENTRIES)
                .await?;
            let Some((last, _)) = page.last() else {
                return Ok(parts.into_iter().map(|(_, part)| part).collect());
            };
            after = Some(last.to_string());
            for (name, json) in &page {
                number += 1;
                let line = serde_json::from_value(json.as_value().clone());
                let line = line.map_err(|error| StoreError::Damaged {
                    what: format!("the record {name}"),
                    source: Box::new(error),
                })?;
                let checked = verify_line(&mut parts, line, verifier);
                checked.map_err(|source| ImportError::Receipts {
                    line: number,
                    source,
                })?;
            }
        }
    }
}

fn verify_line(
    parts: &mut Vec<(LedgerVerification, ImportedLedger)>,
    line: ArchiveLine,
    verifier: Option<&LedgerVerifier>,
) -> Result<(), Box<TamperedLedger>> {
    if let ArchiveLine::Ledger(head) = line {
        let part = ImportedLedger {
            ledger: head.ledger.clone(),
            receipts: 0,
            last: head.counter,
            signed: None,
            not_checked: 0,
        };
        parts.push((LedgerVerification::after_head(head), part));
        return Ok(());
    }
    let Some((check, part)) = parts.last_mut() else {
        return Ok(());
    };
    match line {
        ArchiveLine::Entry(entry) => {
            check.verify_entry(&entry)?;
            part.receipts += 1;
        }
        ArchiveLine::Outline(outline) => check.verify_outline(&outline)?,
        ArchiveLine::Checkpoint(checkpoint) => {
            let fail = |what| {
                Err(Box::new(TamperedLedger {
                    ledger: checkpoint.ledger.clone(),
                    counter: checkpoint.counter,
                    what,
                }))
            };
            if checkpoint.head() != *check.head() {
                let since = part.signed.unwrap_or(0);
                return fail(TamperKind::SignatureMismatch { since });
            }
            match verifier.map(|verifier| verifier.verify(&checkpoint)) {
                Some(Ok(())) => part.signed = Some(checkpoint.counter),
                Some(Err(doubt @ CheckpointError::Forged)) => {
                    return fail(TamperKind::Checkpoint(doubt));
                }
                Some(Err(CheckpointError::UnknownKey(_))) | None => part.not_checked += 1,
            }
        }
        _ => {}
    }
    part.last = check.head().counter;
    Ok(())
}
