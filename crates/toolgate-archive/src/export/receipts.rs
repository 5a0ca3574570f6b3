//! The receipts of a session in an archive: a part of their own ledger that can be verified alone.
//!
//! The part begins with the position before the first receipt of the session and its agents. Receipts
//! of other sessions in between are outlines: their hashes, without what they say. It ends with the
//! first signed checkpoint at or after the last receipt, if there is one.

use std::{
    collections::{BTreeMap, HashSet},
    io::Write,
};

use serde_json::Value;
use toolgate_core::{
    Checkpoint, ImportOrigin, LedgerHead, LedgerName, SealedEntry, SessionId, StoreError,
    StoreHandle,
};

use crate::{ExportError, line::ArchiveLine, writer::ArchiveWriter};

/// The number of receipts that are in memory at a time.
const PAGE_ENTRIES: usize = 500;

/// Returns the prefix of the receipts that came with an archive, as records of this store.
pub(crate) fn imported_receipts_prefix(root: SessionId) -> String {
    format!("archive/{root}/receipts/")
}

/// Writes the receipts of a family of sessions.
pub(super) async fn write_receipts<W: Write>(
    store: &StoreHandle,
    root: SessionId,
    family: &HashSet<SessionId>,
    writer: &mut ArchiveWriter<W>,
) -> Result<(), ExportError> {
    if store
        .load_json(&ImportOrigin::archive_key(root))
        .await?
        .is_some()
    {
        // Those of an imported session are in the ledger of another store, never in ours.
        return write_imported(store, root, writer).await;
    }
    for head in store.ledgers().await? {
        let Some(range) = find_range(store, &head, family).await? else {
            continue;
        };
        write_range(store, &head.ledger, range, family, writer).await?;
    }
    Ok(())
}

async fn write_imported<W: Write>(
    store: &StoreHandle,
    root: SessionId,
    writer: &mut ArchiveWriter<W>,
) -> Result<(), ExportError> {
    let prefix = imported_receipts_prefix(root);
    let mut after: Option<String> = None;
    loop {
        let page = store
            .list_json(&prefix, after.as_deref(), PAGE_ENTRIES)
            .await?;
        for (name, json) in &page {
            let line = serde_json::from_value(json.as_value().clone());
            let line: ArchiveLine = line.map_err(|error| StoreError::Damaged {
                what: format!("the record {name}"),
                source: Box::new(error),
            })?;
            writer.put(&line)?;
        }
        match page.last() {
            Some((name, _)) => after = Some(name.to_string()),
            None => return Ok(()),
        }
    }
}

/// Returns the session of a receipt.
fn session_of(entry: &SealedEntry) -> Option<SessionId> {
    let body: Value = serde_json::from_str(&entry.body).ok()?;
    body.get("session_id")?.as_str()?.parse().ok()
}

/// The numbers of the first and the last receipt, and the checkpoints between them and after.
struct ReceiptRange {
    first: u64,
    last: u64,
    checkpoints: BTreeMap<u64, Vec<Checkpoint>>,
}

async fn find_range(
    store: &StoreHandle,
    head: &LedgerHead,
    family: &HashSet<SessionId>,
) -> Result<Option<ReceiptRange>, ExportError> {
    let mut found: Option<(u64, u64)> = None;
    let mut after = 0;
    while after < head.counter {
        let page = store.entries(&head.ledger, after, PAGE_ENTRIES).await?;
        let Some(last) = page.last() else { break };
        after = last.counter;
        let ours = |entry: &&SealedEntry| session_of(entry).is_some_and(|id| family.contains(&id));
        for entry in page.iter().filter(ours) {
            let first = found.map_or(entry.counter, |(first, _)| first);
            found = Some((first, entry.counter));
        }
    }
    let Some((first, last)) = found else {
        return Ok(None);
    };
    let mut checkpoints = load_checkpoints(store, &head.ledger).await?;
    checkpoints.retain(|counter, _| *counter >= first && *counter <= head.counter);
    // Everything up to the first checkpoint that covers the last receipt, and no more.
    let end = checkpoints
        .range(last..)
        .next()
        .map(|(counter, _)| *counter);
    checkpoints.retain(|counter, _| *counter <= end.unwrap_or(last));
    let last = end.unwrap_or(last);
    Ok(Some(ReceiptRange {
        first,
        last,
        checkpoints,
    }))
}

/// Loads the checkpoints of a ledger, by the number of the receipt that they sign.
async fn load_checkpoints(
    store: &StoreHandle,
    ledger: &LedgerName,
) -> Result<BTreeMap<u64, Vec<Checkpoint>>, ExportError> {
    let prefix = format!("checkpoint/{ledger}/");
    let mut checkpoints: BTreeMap<u64, Vec<Checkpoint>> = BTreeMap::new();
    let mut after: Option<String> = None;
    loop {
        let page = store
            .list_json(&prefix, after.as_deref(), PAGE_ENTRIES)
            .await?;
        for (_, json) in &page {
            // The prefix of `main` also fits a ledger `main/x`; the checkpoint names its ledger.
            let parsed: Option<Checkpoint> = serde_json::from_value(json.as_value().clone()).ok();
            for checkpoint in parsed.into_iter().filter(|found| found.ledger == *ledger) {
                checkpoints
                    .entry(checkpoint.counter)
                    .or_default()
                    .push(checkpoint);
            }
        }
        match page.last() {
            Some((name, _)) => after = Some(name.to_string()),
            None => return Ok(checkpoints),
        }
    }
}

async fn write_range<W: Write>(
    store: &StoreHandle,
    ledger: &LedgerName,
    range: ReceiptRange,
    family: &HashSet<SessionId>,
    writer: &mut ArchiveWriter<W>,
) -> Result<(), ExportError> {
    let mut after = range.first - 1;
    let mut began = false;
    while after < range.last {
        let left = usize::try_from(range.last - after).unwrap_or(usize::MAX);
        let page = store.entries(ledger, after, left.min(PAGE_ENTRIES)).await?;
        let Some(last) = page.last() else { break };
        after = last.counter;
        for entry in page {
            if !began {
                began = true;
                writer.put(&ArchiveLine::Ledger(LedgerHead {
                    ledger: ledger.clone(),
                    counter: entry.counter - 1,
                    hash: entry.previous,
                }))?;
            }
            let counter = entry.counter;
            let line = match session_of(&entry) {
                Some(session) if family.contains(&session) => ArchiveLine::Entry(entry),
                _ => ArchiveLine::Outline(entry.outline()),
            };
            writer.put(&line)?;
            for checkpoint in range.checkpoints.get(&counter).into_iter().flatten() {
                writer.put(&ArchiveLine::Checkpoint(Box::new(checkpoint.clone())))?;
            }
        }
    }
    Ok(())
}
