//! The store rules for mailboxes.

use futures::FutureExt;
use toolgate_core::{
    CallId, IdSource, InputKind, LogPosition, MailboxItem, RecordKey, RejectCode, SessionId,
    StoreError, StoreHandle, TurnId, WriteBatch,
};

use super::{StoreRule, ensure, error_text, event_batch, json_record, sample_events};

pub(super) const RULES: [(&str, StoreRule); 3] = [
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
    ensure(refused, format!("there are {left:?}"))
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
