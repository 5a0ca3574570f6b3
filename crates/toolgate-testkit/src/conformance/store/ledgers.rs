//! The store rules for ledgers: chains have no gaps.

use std::collections::BTreeSet;

use futures::future::join_all;
use toolgate_core::{
    CallId, IdSource, LedgerDraft, LedgerHead, LedgerName, LogPosition, RecordKey, SessionId,
    StoreError, StoreHandle, WriteBatch,
};

use super::{StoreRule, ensure, error_text, event_batch, json_record, sample_events};

pub(super) const RULES: [(&str, StoreRule); 2] = [
    ("chains_have_no_gaps_and_no_forks", |s, i| {
        Box::pin(has_no_forks(s, i))
    }),
    (
        "entries_are_sealed_with_their_append_or_not_at_all",
        |s, i| Box::pin(seals_with_the_append(s, i)),
    ),
];

pub(super) fn suite_ledger(ids: &dyn IdSource) -> LedgerName {
    format!("suite/{}", CallId::from_source(ids))
        .parse()
        .expect("a plain name")
}

fn ledger_draft(ledger: &LedgerName, n: u32) -> LedgerDraft {
    LedgerDraft {
        ledger: ledger.clone(),
        body: format!("{{\"n\":{n}}}").into(),
    }
}

async fn check_chain(store: &StoreHandle, ledger: &LedgerName, count: u64) -> Result<(), String> {
    let entries = store
        .entries(ledger, 0, usize::MAX)
        .await
        .map_err(error_text)?;
    ensure(
        entries.len() as u64 == count,
        format!("{} entries, not {count}", entries.len()),
    )?;
    let mut head = LedgerHead::start_of(ledger.clone());
    for entry in &entries {
        ensure(
            entry.follows(&head),
            format!(
                "entry {} does not follow entry {}",
                entry.counter, head.counter
            ),
        )?;
        head = entry.head();
    }
    let page = store.entries(ledger, 1, 2).await.map_err(error_text)?;
    ensure(
        page == entries[1.min(entries.len())..3.min(entries.len())],
        "a page is wrong",
    )?;
    let heads = store.ledgers().await.map_err(error_text)?;
    ensure(
        heads.is_sorted_by(|a, b| a.ledger < b.ledger),
        "the ledgers are not sorted by name",
    )?;
    let listed = heads.iter().find(|listed| listed.ledger == *ledger);
    ensure(
        listed.cloned() == (count > 0).then_some(head),
        format!("it is listed as {listed:?}"),
    )
}

async fn has_no_forks(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let one = suite_ledger(ids);
    let two = suite_ledger(ids);
    check_chain(store, &one, 0).await?;
    let seal = |n: u32| {
        store.seal_entries(vec![
            ledger_draft(&one, n),
            ledger_draft(&two, n),
            ledger_draft(&one, n),
        ])
    };
    let sealed = join_all((0..20).map(seal))
        .await
        .into_iter()
        .collect::<Result<Vec<_>, _>>()
        .map_err(error_text)?;
    let places: BTreeSet<_> = sealed
        .iter()
        .flatten()
        .map(|head| (head.ledger.clone(), head.counter))
        .collect();
    ensure(places.len() == 60, "two entries got the same position")?;
    ensure(
        sealed
            .iter()
            .all(|heads| heads[0].counter < heads[2].counter),
        "entries are not in the order given",
    )?;
    check_chain(store, &one, 40).await?;
    check_chain(store, &two, 20).await
}

async fn seals_with_the_append(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let session = SessionId::from_source(ids);
    let ledger = suite_ledger(ids);
    let key = RecordKey::Layer(CallId::from_source(ids), "k".into());
    let batch = |first, n| WriteBatch {
        entries: vec![ledger_draft(&ledger, n), ledger_draft(&ledger, n + 1)],
        records: vec![(key.clone(), json_record("x"))],
        ..event_batch(sample_events(session, ids, first, 1))
    };
    store
        .append(session, LogPosition::unleased(0), batch(1, 1))
        .await
        .map_err(error_text)?;
    check_chain(store, &ledger, 2).await?;
    let moved = store
        .append(session, LogPosition::unleased(0), batch(1, 3))
        .await;
    ensure(
        matches!(moved, Err(StoreError::Conflict { .. })),
        format!("{moved:?}"),
    )?;
    let exists = store
        .append(session, LogPosition::unleased(1), batch(2, 3))
        .await;
    ensure(
        matches!(exists, Err(StoreError::RecordExists { .. })),
        format!("{exists:?}"),
    )?;
    check_chain(store, &ledger, 2).await
}
