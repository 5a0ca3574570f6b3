//! What every store keeps: who drives a session, and what others leave for them.

use std::sync::Arc;

use futures::{FutureExt, future::join_all};
use toolgate_core::{
    Batch, CallId, IdSource, Lease, LeaseRequest, LedgerDraft, LedgerName, Position, Post,
    PostCode, PostKind, RecordKey, SessionId, StoreError, StoreHandle, Timestamp, TurnId,
};

use super::{
    ensure,
    store::{StoreRule, events, log, note, text},
};

pub(super) const RULES: [(&str, StoreRule); 9] = [
    ("a_session_is_driven_by_one_at_a_time", |s, i| {
        Box::pin(held(s, i))
    }),
    ("of_many_who_want_to_drive_one_does", |s, i| {
        Box::pin(one_drives(s, i))
    }),
    ("a_lease_ends_at_its_time", |s, i| Box::pin(runs_out(s, i))),
    ("a_lease_of_one_who_is_gone_can_be_replaced", |s, i| {
        Box::pin(instead_of(s, i))
    }),
    ("an_append_behind_the_fence_writes_nothing", |s, i| {
        Box::pin(fenced(s, i))
    }),
    ("an_append_keeps_the_lease_alive", |s, i| {
        Box::pin(kept_alive(s, i))
    }),
    ("posts_come_in_order_and_are_taken_once", |s, i| {
        Box::pin(posts(s, i))
    }),
    ("a_post_wakes_whoever_waits", |s, i| Box::pin(wakes(s, i))),
    ("a_post_that_was_taken_wakes_nobody", |s, i| {
        Box::pin(taken_wakes_nobody(s, i))
    }),
];

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn ask(session: SessionId, holder: &str, now: i64, until: i64) -> LeaseRequest {
    LeaseRequest {
        session,
        holder: holder.into(),
        now: at(now),
        until: at(until),
        instead_of: None,
    }
}

fn position(lease: &Lease, revision: u64) -> Position {
    Position {
        revision,
        fence: lease.fence,
        lease_until: None,
    }
}

async fn held(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let session = SessionId::from_source(ids);
    let first = store.lease(ask(session, "a", 0, 10)).await.map_err(text)?;
    ensure(
        first.fence == 1 && first.revision == 0,
        format!("{first:?}"),
    )?;
    match store.lease(ask(session, "b", 9, 20)).await {
        Err(StoreError::Held {
            holder,
            until,
            fence: 1,
            ..
        }) if *holder == *"a" && until == at(10) => {}
        other => return Err(format!("a second one got {other:?}")),
    }
    let same = store.lease(ask(session, "a", 5, 15)).await.map_err(text)?;
    ensure(same.fence == 2, format!("the same holder got {same:?}"))?;
    store.release(&first).await.map_err(text)?;
    let early = store.lease(ask(session, "b", 9, 20)).await;
    ensure(
        matches!(early, Err(StoreError::Held { .. })),
        "an old lease was given back for a newer one",
    )?;
    store.release(&same).await.map_err(text)?;
    let next = store.lease(ask(session, "b", 9, 20)).await.map_err(text)?;
    ensure(
        next.fence == 3,
        format!("after it was given back: {next:?}"),
    )
}

async fn one_drives(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let session = SessionId::from_source(ids);
    let asked = (0..16).map(|n| store.lease(ask(session, &format!("driver {n}"), 0, 10)));
    let won = join_all(asked)
        .await
        .into_iter()
        .filter(Result::is_ok)
        .count();
    ensure(won == 1, format!("{won} drive it"))
}

async fn runs_out(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let session = SessionId::from_source(ids);
    let first = store.lease(ask(session, "a", 0, 10)).await.map_err(text)?;
    store.renew(&first, at(20)).await.map_err(text)?;
    let early = store.lease(ask(session, "b", 19, 30)).await;
    ensure(
        matches!(early, Err(StoreError::Held { .. })),
        format!("a renewed lease was taken: {early:?}"),
    )?;
    // A clock that went back makes nobody's lease longer or shorter.
    let back = store.lease(ask(session, "b", -1_000, 30)).await;
    ensure(
        matches!(back, Err(StoreError::Held { .. })),
        format!("a clock that went back took it: {back:?}"),
    )?;
    let second = store.lease(ask(session, "b", 20, 30)).await.map_err(text)?;
    let late = store.renew(&first, at(40)).await;
    let fenced = matches!(late, Err(StoreError::Fenced { found, .. }) if found == second.fence);
    ensure(fenced, format!("an old lease was renewed: {late:?}"))?;
    store.release(&second).await.map_err(text)?;
    let gone = store.renew(&second, at(40)).await;
    ensure(
        matches!(gone, Err(StoreError::Fenced { .. })),
        format!("one that was given back was renewed: {gone:?}"),
    )
}

async fn instead_of(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let session = SessionId::from_source(ids);
    let first = store.lease(ask(session, "a", 0, 10)).await.map_err(text)?;
    let replacing = |fence| LeaseRequest {
        instead_of: Some(fence),
        ..ask(session, "b", 1, 20)
    };
    let wrong = store.lease(replacing(first.fence + 1)).await;
    ensure(
        matches!(wrong, Err(StoreError::Held { .. })),
        format!("another fence was taken: {wrong:?}"),
    )?;
    let second = store.lease(replacing(first.fence)).await.map_err(text)?;
    ensure(second.fence == first.fence + 1, format!("{second:?}"))
}

async fn fenced(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let (session, call) = (SessionId::from_source(ids), CallId::from_source(ids));
    let first = store.lease(ask(session, "a", 0, 10)).await.map_err(text)?;
    store
        .append(
            session,
            position(&first, 0),
            events(log(session, ids, 1, 2)),
        )
        .await
        .map_err(text)?;
    let second = store.lease(ask(session, "b", 10, 20)).await.map_err(text)?;
    ensure(
        second.revision == 2,
        format!("the new lease starts at {}", second.revision),
    )?;
    let (key, ledger) = (RecordKey::Layer(call, "k".into()), name(call));
    let batch = Batch {
        events: log(session, ids, 3, 1),
        records: vec![(key.clone(), note("x"))],
        entries: vec![LedgerDraft {
            ledger: ledger.clone(),
            body: "{}".into(),
        }],
        taken_posts: None,
    };
    for stale in [position(&first, 2), Position::unleased(2)] {
        let refused = store.append(session, stale, batch.clone()).await;
        let right =
            matches!(refused, Err(StoreError::Fenced { found, .. }) if found == second.fence);
        ensure(right, format!("{refused:?}"))?;
    }
    ensure(
        store.revision(session).await.map_err(text)? == 2,
        "an event was written",
    )?;
    ensure(
        store.record(&key).await.map_err(text)?.is_none(),
        "a record was written",
    )?;
    ensure(
        store.entries(&ledger, 0, 1).await.map_err(text)?.is_empty(),
        "an entry was sealed",
    )?;
    let written = store
        .append(session, position(&second, 2), batch)
        .await
        .map_err(text)?;
    ensure(written == 3, "the new driver could not write")
}

async fn kept_alive(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let session = SessionId::from_source(ids);
    let lease = store.lease(ask(session, "a", 0, 10)).await.map_err(text)?;
    let longer = Position {
        lease_until: Some(at(30)),
        ..position(&lease, 0)
    };
    store
        .append(session, longer, events(log(session, ids, 1, 1)))
        .await
        .map_err(text)?;
    let taken = store.lease(ask(session, "b", 29, 40)).await;
    let right = matches!(&taken, Err(StoreError::Held { until, .. }) if *until == at(30));
    ensure(right, format!("the lease was taken: {taken:?}"))?;
    store
        .append(
            session,
            position(&lease, 1),
            events(log(session, ids, 2, 1)),
        )
        .await
        .map_err(text)?;
    let taken = store.lease(ask(session, "b", 29, 40)).await;
    ensure(
        matches!(taken, Err(StoreError::Held { .. })),
        "an append without a time ended the lease",
    )
}

fn name(call: CallId) -> LedgerName {
    format!("suite/{call}").parse().expect("a plain name")
}

fn refused(ids: &dyn IdSource) -> Post {
    let (turn, call) = (TurnId::from_source(ids), CallId::from_source(ids));
    Post::Refused {
        turn,
        call,
        what: PostKind::Result,
        code: PostCode::Duplicate,
    }
}

async fn posts(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let session = SessionId::from_source(ids);
    let left: Vec<Post> = (0..4).map(|_| refused(ids)).collect();
    let key = RecordKey::Layer(CallId::from_source(ids), "post".into());
    store
        .post(session, left[0].clone(), vec![(key.clone(), note("first"))])
        .await
        .map_err(text)?;
    let fresh = RecordKey::Layer(CallId::from_source(ids), "fresh".into());
    let twice = vec![(fresh.clone(), note("x")), (key.clone(), note("second"))];
    let again = store.post(session, left[1].clone(), twice).await;
    ensure(
        matches!(&again, Err(StoreError::Exists { key: found }) if *found == key),
        format!("{again:?}"),
    )?;
    ensure(
        store.record(&fresh).await.map_err(text)?.is_none(),
        "a record of a refused post was written",
    )?;
    for post in &left[1..3] {
        store
            .post(session, post.clone(), Vec::new())
            .await
            .map_err(text)?;
    }
    let expected: Vec<(u64, Post)> = (1..).zip(left[..3].to_vec()).collect();
    ensure(
        store.posts(session, 0, 10).await.map_err(text)? == expected,
        "they are not in order",
    )?;
    ensure(
        store.posts(session, 1, 1).await.map_err(text)? == expected[1..2],
        "a page is wrong",
    )?;
    let taken = Batch {
        taken_posts: Some(2),
        ..events(log(session, ids, 1, 1))
    };
    store
        .append(session, Position::unleased(0), taken)
        .await
        .map_err(text)?;
    ensure(
        store.posts(session, 0, 10).await.map_err(text)? == expected[2..],
        "others were taken",
    )?;
    let rest = Batch {
        taken_posts: Some(3),
        ..Batch::default()
    };
    store
        .append(session, Position::unleased(1), rest)
        .await
        .map_err(text)?;
    store
        .post(session, left[3].clone(), Vec::new())
        .await
        .map_err(text)?;
    let last = store.posts(session, 0, 10).await.map_err(text)?;
    ensure(
        last == [(4, left[3].clone())],
        format!("a number was given twice: {last:?}"),
    )
}

async fn wakes(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let session = SessionId::from_source(ids);
    let mut waiting = store.posted(session, 0);
    ensure(
        (&mut waiting).now_or_never().is_none(),
        "it woke up without a post",
    )?;
    let other = store.post(SessionId::from_source(ids), refused(ids), Vec::new());
    other.await.map_err(text)?;
    ensure(
        (&mut waiting).now_or_never().is_none(),
        "it woke up for another session",
    )?;
    store
        .post(session, refused(ids), Vec::new())
        .await
        .map_err(text)?;
    waiting.await;
    // Whoever comes later is told at once of what is there, and of nothing that is not.
    store.posted(session, 0).await;
    let later = store.posted(session, 1);
    ensure(
        later.now_or_never().is_none(),
        "it woke up for a post that was known",
    )?;
    let left = store.posts(session, 0, 10).await.map_err(text)?;
    let refused = matches!(left.as_slice(), [(1, Post::Refused { .. })]);
    ensure(refused, format!("there are {:?}", Arc::new(left)))
}

async fn taken_wakes_nobody(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let session = SessionId::from_source(ids);
    store
        .post(session, refused(ids), Vec::new())
        .await
        .map_err(text)?;
    store.posted(session, 0).await;
    let taken = Batch {
        taken_posts: Some(1),
        ..events(log(session, ids, 1, 1))
    };
    store
        .append(session, Position::unleased(0), taken)
        .await
        .map_err(text)?;
    // Whoever takes the session up later knows no number. If the old one woke them, they would never rest.
    let mut waiting = store.posted(session, 0);
    for _ in 0..50 {
        ensure(
            (&mut waiting).now_or_never().is_none(),
            "a post that was taken woke somebody",
        )?;
        store.revision(session).await.map_err(text)?;
    }
    store
        .post(session, refused(ids), Vec::new())
        .await
        .map_err(text)?;
    waiting.await;
    Ok(())
}
