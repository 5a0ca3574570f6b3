//! The store rules for logs and leases.

use std::sync::Arc;

use futures::future::join_all;
use toolgate_core::{
    CallId, IdSource, Lease, LeaseRequest, LedgerDraft, LogPosition, RecordKey, SessionId,
    SettledOutcome, Status, StoreError, StoreHandle, StoreRecord, WriteBatch,
};

use super::{
    ENDED_TERM, LONG_TERM, StoreRule, ensure, error_text, event_batch, json_record, lease_request,
    leased_position, ledgers::suite_ledger, sample_events,
};

pub(super) const RULES: [(&str, StoreRule); 12] = [
    ("an_unknown_session_is_empty", |s, i| {
        Box::pin(unknown_session(s, i))
    }),
    ("events_are_read_back_in_order_and_in_pages", |s, i| {
        Box::pin(reads_events_back(s, i))
    }),
    ("an_append_at_another_revision_writes_nothing", |s, i| {
        Box::pin(compare_and_set(s, i))
    }),
    ("a_gap_is_rejected", |s, i| Box::pin(rejects_a_gap(s, i))),
    ("a_batch_is_written_whole_or_not_at_all", |s, i| {
        Box::pin(writes_all_or_nothing(s, i))
    }),
    ("of_many_writers_at_one_revision_one_wins", |s, i| {
        Box::pin(one_writer_wins(s, i))
    }),
    ("a_session_has_one_lease_holder_at_a_time", |s, i| {
        Box::pin(has_one_holder(s, i))
    }),
    ("of_many_lease_requests_one_wins", |s, i| {
        Box::pin(one_request_wins(s, i))
    }),
    (
        "an_expired_lease_is_reported_and_not_replaced_by_itself",
        |s, i| Box::pin(reports_an_expired_lease(s, i)),
    ),
    ("the_lease_of_a_lost_holder_can_be_replaced", |s, i| {
        Box::pin(replaces_a_lost_holder(s, i))
    }),
    ("an_append_behind_the_fence_writes_nothing", |s, i| {
        Box::pin(fences_stale_appends(s, i))
    }),
    ("an_append_renews_the_lease", |s, i| {
        Box::pin(renews_by_append(s, i))
    }),
];

async fn unknown_session(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let session = SessionId::from_source(ids);
    ensure(
        store.revision(session).await.map_err(error_text)? == 0,
        "its revision is not 0",
    )?;
    ensure(
        store
            .events(session, 0, 10)
            .await
            .map_err(error_text)?
            .is_empty(),
        "it has events",
    )
}

async fn reads_events_back(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let session = SessionId::from_source(ids);
    let written = sample_events(session, ids, 1, 5);
    let revision = store
        .append(
            session,
            LogPosition::unleased(0),
            event_batch(written[..2].to_vec()),
        )
        .await
        .map_err(error_text)?;
    ensure(
        revision == 2,
        format!("the revision after two events is {revision}"),
    )?;
    store
        .append(
            session,
            LogPosition::unleased(2),
            event_batch(written[2..].to_vec()),
        )
        .await
        .map_err(error_text)?;
    for (after, limit) in [(0, 10), (0, 2), (2, 2), (4, 10), (5, 10), (99, 1)] {
        let read = store
            .events(session, after, limit)
            .await
            .map_err(error_text)?;
        let expected: Vec<_> = written
            .iter()
            .skip(after as usize)
            .take(limit)
            .cloned()
            .collect();
        ensure(
            read == expected,
            format!("after {after}, limit {limit}: {} events", read.len()),
        )?;
    }
    Ok(())
}

async fn compare_and_set(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let session = SessionId::from_source(ids);
    store
        .append(
            session,
            LogPosition::unleased(0),
            event_batch(sample_events(session, ids, 1, 2)),
        )
        .await
        .map_err(error_text)?;
    for expected in [0, 1, 3] {
        match store
            .append(
                session,
                LogPosition::unleased(expected),
                event_batch(sample_events(session, ids, expected + 1, 1)),
            )
            .await
        {
            Err(StoreError::Conflict { found: 2, .. }) => {}
            other => return Err(format!("expected {expected}: {other:?}")),
        }
    }
    ensure(
        store.revision(session).await.map_err(error_text)? == 2,
        "the log has changed",
    )
}

async fn rejects_a_gap(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let session = SessionId::from_source(ids);
    let refused = store
        .append(
            session,
            LogPosition::unleased(0),
            event_batch(sample_events(session, ids, 2, 1)),
        )
        .await;
    ensure(
        matches!(refused, Err(StoreError::SequenceGap { .. })),
        format!("{refused:?}"),
    )?;
    ensure(
        store.revision(session).await.map_err(error_text)? == 0,
        "the log has changed",
    )
}

async fn writes_all_or_nothing(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let session = SessionId::from_source(ids);
    let call = CallId::from_source(ids);
    let taken = RecordKey::Outcome(call);
    let fresh = RecordKey::Layer(call, "fresh".into());
    let outcome = StoreRecord::Outcome(Arc::new(SettledOutcome::new(Status::Ok)));
    store
        .put_record_once(taken.clone(), outcome.clone())
        .await
        .map_err(error_text)?;
    let records = vec![
        (fresh.clone(), json_record("x")),
        (taken.clone(), json_record("y")),
    ];
    let refused = store
        .append(
            session,
            LogPosition::unleased(0),
            WriteBatch {
                events: sample_events(session, ids, 1, 3),
                records,
                ..WriteBatch::default()
            },
        )
        .await;
    ensure(
        matches!(&refused, Err(StoreError::RecordExists { key }) if *key == taken),
        format!("{refused:?}"),
    )?;
    ensure(
        store.revision(session).await.map_err(error_text)? == 0,
        "events were written",
    )?;
    ensure(
        store
            .load_record(&fresh)
            .await
            .map_err(error_text)?
            .is_none(),
        "a record was written",
    )?;
    ensure(
        store.load_record(&taken).await.map_err(error_text)? == Some(outcome),
        "the old record has changed",
    )
}

async fn one_writer_wins(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let session = SessionId::from_source(ids);
    let write = |_| {
        store.append(
            session,
            LogPosition::unleased(0),
            event_batch(sample_events(session, ids, 1, 1)),
        )
    };
    let won = join_all((0..16).map(write))
        .await
        .into_iter()
        .filter(Result::is_ok)
        .count();
    ensure(won == 1, format!("{won} writers won"))?;
    ensure(
        store.revision(session).await.map_err(error_text)? == 1,
        "more than one event was written",
    )
}

async fn has_one_holder(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let session = SessionId::from_source(ids);
    let first = store
        .acquire_lease(lease_request(session, "a", LONG_TERM))
        .await
        .map_err(error_text)?;
    ensure(
        first.fence == 1 && first.revision == 0,
        format!("{first:?}"),
    )?;
    match store
        .acquire_lease(lease_request(session, "b", LONG_TERM))
        .await
    {
        Err(StoreError::LeaseHeld {
            holder,
            is_expired: false,
            fence: 1,
            ..
        }) if *holder == *"a" => {}
        other => return Err(format!("a second holder got {other:?}")),
    }
    let same = store
        .acquire_lease(lease_request(session, "a", LONG_TERM))
        .await
        .map_err(error_text)?;
    ensure(same.fence == 2, format!("the same holder got {same:?}"))?;
    store.release_lease(&first).await.map_err(error_text)?;
    let early = store
        .acquire_lease(lease_request(session, "b", LONG_TERM))
        .await;
    ensure(
        matches!(early, Err(StoreError::LeaseHeld { .. })),
        "releasing an old lease released the newer one",
    )?;
    store.release_lease(&same).await.map_err(error_text)?;
    let next = store
        .acquire_lease(lease_request(session, "b", LONG_TERM))
        .await
        .map_err(error_text)?;
    ensure(next.fence == 3, format!("after the release: {next:?}"))
}

async fn one_request_wins(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let session = SessionId::from_source(ids);
    let asked = (0..16)
        .map(|n| store.acquire_lease(lease_request(session, &format!("driver {n}"), LONG_TERM)));
    let won = join_all(asked)
        .await
        .into_iter()
        .filter(Result::is_ok)
        .count();
    ensure(won == 1, format!("{won} holders got the lease"))
}

async fn reports_an_expired_lease(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let session = SessionId::from_source(ids);
    let first = store
        .acquire_lease(lease_request(session, "a", ENDED_TERM))
        .await
        .map_err(error_text)?;
    let request = || lease_request(session, "b", LONG_TERM);
    // Only the caller can check whether the holder is alive.
    ensure_held(store.acquire_lease(request()).await, true)?;
    store
        .renew_lease(&first, LONG_TERM)
        .await
        .map_err(error_text)?;
    ensure_held(store.acquire_lease(request()).await, false)?;
    let second = store
        .acquire_lease(LeaseRequest {
            instead_of: Some(first.fence),
            ..request()
        })
        .await
        .map_err(error_text)?;
    let late = store.renew_lease(&first, LONG_TERM).await;
    let fenced = matches!(late, Err(StoreError::Fenced { found, .. }) if found == second.fence);
    ensure(fenced, format!("an old lease was renewed: {late:?}"))?;
    store.release_lease(&second).await.map_err(error_text)?;
    let gone = store.renew_lease(&second, LONG_TERM).await;
    ensure(
        matches!(gone, Err(StoreError::Fenced { .. })),
        format!("a released lease was renewed: {gone:?}"),
    )
}

fn ensure_held(answer: Result<Lease, StoreError>, expired: bool) -> Result<(), String> {
    ensure(
        matches!(&answer, Err(StoreError::LeaseHeld { is_expired, .. }) if *is_expired == expired),
        format!("expired: {expired}, but it is {answer:?}"),
    )
}

async fn replaces_a_lost_holder(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let session = SessionId::from_source(ids);
    let first = store
        .acquire_lease(lease_request(session, "a", LONG_TERM))
        .await
        .map_err(error_text)?;
    let replacing = |fence| LeaseRequest {
        instead_of: Some(fence),
        ..lease_request(session, "b", LONG_TERM)
    };
    let wrong = store.acquire_lease(replacing(first.fence + 1)).await;
    ensure(
        matches!(wrong, Err(StoreError::LeaseHeld { .. })),
        format!("another fence was taken: {wrong:?}"),
    )?;
    let second = store
        .acquire_lease(replacing(first.fence))
        .await
        .map_err(error_text)?;
    ensure(second.fence == first.fence + 1, format!("{second:?}"))
}

async fn fences_stale_appends(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let session = SessionId::from_source(ids);
    let call = CallId::from_source(ids);
    let first = store
        .acquire_lease(lease_request(session, "a", LONG_TERM))
        .await
        .map_err(error_text)?;
    store
        .append(
            session,
            leased_position(&first, 0),
            event_batch(sample_events(session, ids, 1, 2)),
        )
        .await
        .map_err(error_text)?;
    let second = store
        .acquire_lease(LeaseRequest {
            instead_of: Some(first.fence),
            ..lease_request(session, "b", LONG_TERM)
        })
        .await
        .map_err(error_text)?;
    ensure(
        second.revision == 2,
        format!("the new lease starts at {}", second.revision),
    )?;
    let key = RecordKey::Layer(call, "k".into());
    let ledger = suite_ledger(ids);
    let batch = WriteBatch {
        events: sample_events(session, ids, 3, 1),
        records: vec![(key.clone(), json_record("x"))],
        entries: vec![LedgerDraft {
            ledger: ledger.clone(),
            body: "{}".into(),
        }],
        taken_posts: None,
    };
    for stale in [leased_position(&first, 2), LogPosition::unleased(2)] {
        let refused = store.append(session, stale, batch.clone()).await;
        let right =
            matches!(refused, Err(StoreError::Fenced { found, .. }) if found == second.fence);
        ensure(right, format!("{refused:?}"))?;
    }
    ensure(
        store.revision(session).await.map_err(error_text)? == 2,
        "an event was written",
    )?;
    ensure(
        store.load_record(&key).await.map_err(error_text)?.is_none(),
        "a record was written",
    )?;
    ensure(
        store
            .entries(&ledger, 0, 1)
            .await
            .map_err(error_text)?
            .is_empty(),
        "an entry was sealed",
    )?;
    let written = store
        .append(session, leased_position(&second, 2), batch)
        .await
        .map_err(error_text)?;
    ensure(written == 3, "the new driver could not write")
}

async fn renews_by_append(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let session = SessionId::from_source(ids);
    let lease = store
        .acquire_lease(lease_request(session, "a", ENDED_TERM))
        .await
        .map_err(error_text)?;
    let renewing = LogPosition {
        lease_term: Some(LONG_TERM),
        ..leased_position(&lease, 0)
    };
    // The second append has no term and changes nothing about the lease.
    for (revision, at) in [(0, renewing), (1, leased_position(&lease, 1))] {
        let batch = event_batch(sample_events(session, ids, revision + 1, 1));
        store.append(session, at, batch).await.map_err(error_text)?;
        let taken = store.acquire_lease(lease_request(session, "b", LONG_TERM));
        ensure_held(taken.await, false)?;
    }
    Ok(())
}
