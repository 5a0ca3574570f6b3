//! The store rules for leases and the mailbox.

use std::sync::Arc;

use futures::{FutureExt, future::join_all};
use toolgate_core::{
    CallId, IdSource, InputKind, Lease, LeaseRequest, LedgerDraft, LedgerName, LogPosition,
    MailboxItem, RecordKey, RejectCode, SessionId, StoreError, StoreHandle, Timestamp, TurnId,
    WriteBatch,
};

use super::{
    ensure,
    store::{StoreRule, error_text, event_batch, json_record, sample_events},
};

pub(super) const RULES: [(&str, StoreRule); 9] = [
    ("a_session_has_one_lease_holder_at_a_time", |s, i| {
        Box::pin(has_one_holder(s, i))
    }),
    ("of_many_lease_requests_one_wins", |s, i| {
        Box::pin(one_request_wins(s, i))
    }),
    ("a_lease_expires_at_its_time", |s, i| {
        Box::pin(expires_in_time(s, i))
    }),
    ("the_lease_of_a_lost_holder_can_be_replaced", |s, i| {
        Box::pin(replaces_a_lost_holder(s, i))
    }),
    ("an_append_behind_the_fence_writes_nothing", |s, i| {
        Box::pin(fences_stale_appends(s, i))
    }),
    ("an_append_renews_the_lease", |s, i| {
        Box::pin(renews_by_append(s, i))
    }),
    ("posts_arrive_in_order_and_are_taken_once", |s, i| {
        Box::pin(orders_posts(s, i))
    }),
    ("a_post_wakes_its_waiter", |s, i| {
        Box::pin(wakes_a_waiter(s, i))
    }),
    ("a_taken_post_wakes_no_waiter", |s, i| {
        Box::pin(taken_posts_wake_no_waiter(s, i))
    }),
];

fn at_second(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn lease_request(session: SessionId, holder: &str, now: i64, until: i64) -> LeaseRequest {
    LeaseRequest {
        session,
        holder: holder.into(),
        now: at_second(now),
        until: at_second(until),
        instead_of: None,
    }
}

fn leased_position(lease: &Lease, revision: u64) -> LogPosition {
    LogPosition {
        revision,
        fence: lease.fence,
        lease_until: None,
    }
}

async fn has_one_holder(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let session = SessionId::from_source(ids);
    let first = store
        .acquire_lease(lease_request(session, "a", 0, 10))
        .await
        .map_err(error_text)?;
    ensure(
        first.fence == 1 && first.revision == 0,
        format!("{first:?}"),
    )?;
    match store
        .acquire_lease(lease_request(session, "b", 9, 20))
        .await
    {
        Err(StoreError::LeaseHeld {
            holder,
            until,
            fence: 1,
            ..
        }) if *holder == *"a" && until == at_second(10) => {}
        other => return Err(format!("a second holder got {other:?}")),
    }
    let same = store
        .acquire_lease(lease_request(session, "a", 5, 15))
        .await
        .map_err(error_text)?;
    ensure(same.fence == 2, format!("the same holder got {same:?}"))?;
    store.release_lease(&first).await.map_err(error_text)?;
    let early = store
        .acquire_lease(lease_request(session, "b", 9, 20))
        .await;
    ensure(
        matches!(early, Err(StoreError::LeaseHeld { .. })),
        "releasing an old lease released the newer one",
    )?;
    store.release_lease(&same).await.map_err(error_text)?;
    let next = store
        .acquire_lease(lease_request(session, "b", 9, 20))
        .await
        .map_err(error_text)?;
    ensure(next.fence == 3, format!("after the release: {next:?}"))
}

async fn one_request_wins(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let session = SessionId::from_source(ids);
    let asked =
        (0..16).map(|n| store.acquire_lease(lease_request(session, &format!("driver {n}"), 0, 10)));
    let won = join_all(asked)
        .await
        .into_iter()
        .filter(Result::is_ok)
        .count();
    ensure(won == 1, format!("{won} holders got the lease"))
}

async fn expires_in_time(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let session = SessionId::from_source(ids);
    let first = store
        .acquire_lease(lease_request(session, "a", 0, 10))
        .await
        .map_err(error_text)?;
    store
        .renew_lease(&first, at_second(20))
        .await
        .map_err(error_text)?;
    let early = store
        .acquire_lease(lease_request(session, "b", 19, 30))
        .await;
    ensure(
        matches!(early, Err(StoreError::LeaseHeld { .. })),
        format!("a renewed lease was taken: {early:?}"),
    )?;
    // A clock that went back makes no lease longer or shorter.
    let back = store
        .acquire_lease(lease_request(session, "b", -1_000, 30))
        .await;
    ensure(
        matches!(back, Err(StoreError::LeaseHeld { .. })),
        format!("a holder whose clock went back got it: {back:?}"),
    )?;
    let second = store
        .acquire_lease(lease_request(session, "b", 20, 30))
        .await
        .map_err(error_text)?;
    let late = store.renew_lease(&first, at_second(40)).await;
    let fenced = matches!(late, Err(StoreError::Fenced { found, .. }) if found == second.fence);
    ensure(fenced, format!("an old lease was renewed: {late:?}"))?;
    store.release_lease(&second).await.map_err(error_text)?;
    let gone = store.renew_lease(&second, at_second(40)).await;
    ensure(
        matches!(gone, Err(StoreError::Fenced { .. })),
        format!("a released lease was renewed: {gone:?}"),
    )
}

async fn replaces_a_lost_holder(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let session = SessionId::from_source(ids);
    let first = store
        .acquire_lease(lease_request(session, "a", 0, 10))
        .await
        .map_err(error_text)?;
    let replacing = |fence| LeaseRequest {
        instead_of: Some(fence),
        ..lease_request(session, "b", 1, 20)
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
        .acquire_lease(lease_request(session, "a", 0, 10))
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
        .acquire_lease(lease_request(session, "b", 10, 20))
        .await
        .map_err(error_text)?;
    ensure(
        second.revision == 2,
        format!("the new lease starts at {}", second.revision),
    )?;
    let key = RecordKey::Layer(call, "k".into());
    let ledger = suite_ledger(call);
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
        .acquire_lease(lease_request(session, "a", 0, 10))
        .await
        .map_err(error_text)?;
    let longer = LogPosition {
        lease_until: Some(at_second(30)),
        ..leased_position(&lease, 0)
    };
    store
        .append(
            session,
            longer,
            event_batch(sample_events(session, ids, 1, 1)),
        )
        .await
        .map_err(error_text)?;
    let taken = store
        .acquire_lease(lease_request(session, "b", 29, 40))
        .await;
    let right =
        matches!(&taken, Err(StoreError::LeaseHeld { until, .. }) if *until == at_second(30));
    ensure(right, format!("the lease was taken: {taken:?}"))?;
    store
        .append(
            session,
            leased_position(&lease, 1),
            event_batch(sample_events(session, ids, 2, 1)),
        )
        .await
        .map_err(error_text)?;
    let taken = store
        .acquire_lease(lease_request(session, "b", 29, 40))
        .await;
    ensure(
        matches!(taken, Err(StoreError::LeaseHeld { .. })),
        "an append without a time ended the lease",
    )
}

fn suite_ledger(call: CallId) -> LedgerName {
    format!("suite/{call}").parse().expect("a plain name")
}

fn refused_post(ids: &dyn IdSource) -> MailboxItem {
    let turn = TurnId::from_source(ids);
    let call = CallId::from_source(ids);
    MailboxItem::Refused {
        turn,
        call,
        what: InputKind::Result,
        code: RejectCode::Duplicate,
    }
}

async fn orders_posts(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let session = SessionId::from_source(ids);
    let left: Vec<MailboxItem> = (0..4).map(|_| refused_post(ids)).collect();
    let key = RecordKey::Layer(CallId::from_source(ids), "post".into());
    store
        .post_item(
            session,
            left[0].clone(),
            vec![(key.clone(), json_record("first"))],
        )
        .await
        .map_err(error_text)?;
    let fresh = RecordKey::Layer(CallId::from_source(ids), "fresh".into());
    let twice = vec![
        (fresh.clone(), json_record("x")),
        (key.clone(), json_record("second")),
    ];
    let again = store.post_item(session, left[1].clone(), twice).await;
    ensure(
        matches!(&again, Err(StoreError::RecordExists { key: found }) if *found == key),
        format!("{again:?}"),
    )?;
    ensure(
        store
            .load_record(&fresh)
            .await
            .map_err(error_text)?
            .is_none(),
        "a record of a rejected post was written",
    )?;
    for post in &left[1..3] {
        store
            .post_item(session, post.clone(), Vec::new())
            .await
            .map_err(error_text)?;
    }
    let expected: Vec<(u64, MailboxItem)> = (1..).zip(left[..3].to_vec()).collect();
    ensure(
        store.posts(session, 0, 10).await.map_err(error_text)? == expected,
        "they are not in order",
    )?;
    ensure(
        store.posts(session, 1, 1).await.map_err(error_text)? == expected[1..2],
        "a page is wrong",
    )?;
    let taken = WriteBatch {
        taken_posts: Some(2),
        ..event_batch(sample_events(session, ids, 1, 1))
    };
    store
        .append(session, LogPosition::unleased(0), taken)
        .await
        .map_err(error_text)?;
    ensure(
        store.posts(session, 0, 10).await.map_err(error_text)? == expected[2..],
        "other posts were taken",
    )?;
    let rest = WriteBatch {
        taken_posts: Some(3),
        ..WriteBatch::default()
    };
    store
        .append(session, LogPosition::unleased(1), rest)
        .await
        .map_err(error_text)?;
    store
        .post_item(session, left[3].clone(), Vec::new())
        .await
        .map_err(error_text)?;
    let last = store.posts(session, 0, 10).await.map_err(error_text)?;
    ensure(
        last == [(4, left[3].clone())],
        format!("a number was given twice: {last:?}"),
    )
}

async fn wakes_a_waiter(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let session = SessionId::from_source(ids);
    let mut waiting = store.wait_for_post(session, 0);
    ensure(
        (&mut waiting).now_or_never().is_none(),
        "it woke up without a post",
    )?;
    let other = store.post_item(SessionId::from_source(ids), refused_post(ids), Vec::new());
    other.await.map_err(error_text)?;
    ensure(
        (&mut waiting).now_or_never().is_none(),
        "it woke up for another session",
    )?;
    store
        .post_item(session, refused_post(ids), Vec::new())
        .await
        .map_err(error_text)?;
    waiting.await;
    // A later waiter is notified at once of stored posts, and only of those.
    store.wait_for_post(session, 0).await;
    let later = store.wait_for_post(session, 1);
    ensure(
        later.now_or_never().is_none(),
        "it woke up for a post that was known",
    )?;
    let left = store.posts(session, 0, 10).await.map_err(error_text)?;
    let refused = matches!(left.as_slice(), [(1, MailboxItem::Refused { .. })]);
    ensure(refused, format!("there are {:?}", Arc::new(left)))
}

async fn taken_posts_wake_no_waiter(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let session = SessionId::from_source(ids);
    store
        .post_item(session, refused_post(ids), Vec::new())
        .await
        .map_err(error_text)?;
    store.wait_for_post(session, 0).await;
    let taken = WriteBatch {
        taken_posts: Some(1),
        ..event_batch(sample_events(session, ids, 1, 1))
    };
    store
        .append(session, LogPosition::unleased(0), taken)
        .await
        .map_err(error_text)?;
    // A later driver knows no post number. If the taken post woke it, its wait would never block.
    let mut waiting = store.wait_for_post(session, 0);
    for _ in 0..50 {
        ensure(
            (&mut waiting).now_or_never().is_none(),
            "a taken post woke a waiter",
        )?;
        store.revision(session).await.map_err(error_text)?;
    }
    store
        .post_item(session, refused_post(ids), Vec::new())
        .await
        .map_err(error_text)?;
    waiting.await;
    Ok(())
}
