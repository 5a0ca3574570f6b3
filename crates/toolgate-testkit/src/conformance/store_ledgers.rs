//! What every store keeps: chains without gaps.

use std::collections::BTreeSet;

use futures::future::join_all;
use toolgate_core::{
    Batch, CallId, IdSource, LedgerDraft, LedgerHead, LedgerName, Position, RecordKey, SessionId,
    StoreError, StoreHandle,
};

use super::{
    ensure,
    store::{StoreRule, events, log, note, text},
};

pub(super) const RULES: [(&str, StoreRule); 2] = [
    ("chains_have_no_gaps_and_no_forks", |s, i| {
        Box::pin(no_forks(s, i))
    }),
    (
        "entries_are_sealed_with_their_append_or_not_at_all",
        |s, i| Box::pin(with_the_append(s, i)),
    ),
];

fn name(ids: &dyn IdSource) -> LedgerName {
    format!("suite/{}", CallId::from_source(ids))
        .parse()
        .expect("a plain name")
}

fn draft(ledger: &LedgerName, n: u32) -> LedgerDraft {
    LedgerDraft {
        ledger: ledger.clone(),
        body: format!("{{\"n\":{n}}}").into(),
    }
}

async fn whole(store: &StoreHandle, ledger: &LedgerName, count: u64) -> Result<(), String> {
    let entries = store.entries(ledger, 0, usize::MAX).await.map_err(text)?;
    ensure(
        entries.len() as u64 == count,
        format!("{} entries, not {count}", entries.len()),
    )?;
    let mut head = LedgerHead::start(ledger.clone());
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
    let page = store.entries(ledger, 1, 2).await.map_err(text)?;
    ensure(
        page == entries[1.min(entries.len())..3.min(entries.len())],
        "a page is wrong",
    )?;
    let heads = store.ledgers().await.map_err(text)?;
    ensure(
        heads.is_sorted_by(|a, b| a.ledger < b.ledger),
        "the chains are not in the order of their names",
    )?;
    let listed = heads.iter().find(|listed| listed.ledger == *ledger);
    ensure(
        listed.cloned() == (count > 0).then_some(head),
        format!("it is listed as {listed:?}"),
    )
}

async fn no_forks(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let (one, two) = (name(ids), name(ids));
    whole(store, &one, 0).await?;
    let seal = |n: u32| store.seal(vec![draft(&one, n), draft(&two, n), draft(&one, n)]);
    let sealed = join_all((0..20).map(seal))
        .await
        .into_iter()
        .collect::<Result<Vec<_>, _>>()
        .map_err(text)?;
    let places: BTreeSet<_> = sealed
        .iter()
        .flatten()
        .map(|head| (head.ledger.clone(), head.counter))
        .collect();
    ensure(places.len() == 60, "two entries were told the same place")?;
    ensure(
        sealed
            .iter()
            .all(|heads| heads[0].counter < heads[2].counter),
        "entries are not in the order given",
    )?;
    whole(store, &one, 40).await?;
    whole(store, &two, 20).await
}

async fn with_the_append(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let (session, ledger) = (SessionId::from_source(ids), name(ids));
    let key = RecordKey::Layer(CallId::from_source(ids), "k".into());
    let batch = |first, n| Batch {
        entries: vec![draft(&ledger, n), draft(&ledger, n + 1)],
        records: vec![(key.clone(), note("x"))],
        ..events(log(session, ids, first, 1))
    };
    store
        .append(session, Position::unleased(0), batch(1, 1))
        .await
        .map_err(text)?;
    whole(store, &ledger, 2).await?;
    let moved = store
        .append(session, Position::unleased(0), batch(1, 3))
        .await;
    ensure(
        matches!(moved, Err(StoreError::Conflict { .. })),
        format!("{moved:?}"),
    )?;
    let exists = store
        .append(session, Position::unleased(1), batch(2, 3))
        .await;
    ensure(
        matches!(exists, Err(StoreError::Exists { .. })),
        format!("{exists:?}"),
    )?;
    whole(store, &ledger, 2).await
}
