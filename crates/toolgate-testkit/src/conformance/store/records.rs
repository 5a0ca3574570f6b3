//! The store rules for records, messages and blobs.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use toolgate_core::{
    CallId, Digest, ErasureNames, IdSource, LogPosition, MailboxItem, Message, MessageRecord,
    RecordKey, SessionId, StoreError, StoreHandle, StoreRecord, TurnId, WriteBatch,
};

use super::{StoreRule, ensure, error_text, event_batch, json_record, sample_events};

pub(super) const RULES: [(&str, StoreRule); 10] = [
    ("a_record_is_written_once", |s, i| {
        Box::pin(writes_a_record_once(s, i))
    }),
    (
        "records_are_read_together_in_the_order_of_the_keys",
        |s, i| Box::pin(reads_records_together(s, i)),
    ),
    ("a_record_named_twice_in_one_write_is_rejected", |s, i| {
        Box::pin(rejects_a_key_named_twice(s, i))
    }),
    ("of_many_writers_of_one_record_one_wins", |s, i| {
        Box::pin(one_record_wins(s, i))
    }),
    ("blobs_are_read_in_parts", |s, i| {
        Box::pin(reads_blob_parts(s, i))
    }),
    ("large_blobs_are_read_in_parts", |s, i| {
        Box::pin(reads_large_blob_parts(s, i))
    }),
    ("records_are_listed_by_key_prefix", |s, i| {
        Box::pin(lists_by_prefix(s, i))
    }),
    ("records_are_found_by_their_names_in_order", |s, i| {
        Box::pin(finds_by_names(s, i))
    }),
    ("messages_are_read_from_the_end", |s, i| {
        Box::pin(reads_messages(s, i))
    }),
    ("a_message_of_another_kind_is_an_error", |s, i| {
        Box::pin(rejects_other_kinds(s, i))
    }),
];

async fn reads_records_together(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let call = CallId::from_source(ids);
    let there = |name: &str| RecordKey::Layer(call, name.into());
    for name in ["a", "b"] {
        let put = store.put_record_once(there(name), json_record(name));
        put.await.map_err(error_text)?;
    }
    let keys = [
        there("b"),
        RecordKey::Answer(call, 0),
        there("a"),
        there("b"),
        RecordKey::Other("nothing".into()),
    ];
    let found = store.load_records(&keys).await.map_err(error_text)?;
    let b = || Some(json_record("b"));
    let expected = [b(), None, Some(json_record("a")), b(), None];
    ensure(found == expected, format!("{found:?}"))?;
    let none = store.load_records(&[]).await.map_err(error_text)?;
    ensure(none.is_empty(), format!("{none:?} for no keys"))
}

async fn finds_by_names(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let call = CallId::from_source(ids);
    let second = CallId::from_source(ids);
    let stranger = CallId::from_source(ids);
    let turn = TurnId::from_source(ids);
    let session = SessionId::from_source(ids);
    let mut keys = [
        RecordKey::Layer(call, "a".into()),
        RecordKey::Layer(call, "b/c".into()),
        RecordKey::Other(format!("output/{session}/x").into()),
        RecordKey::Other(format!("undo/{call}").into()),
        RecordKey::Other(format!("undo/{call}/002").into()),
        // Of another call and kind: a store may have them in another order than their names.
        RecordKey::Result(call, 1),
        RecordKey::Layer(second, "a".into()),
        RecordKey::Result(second, 1),
    ];
    keys.sort_by_key(ToString::to_string);
    let others = [
        RecordKey::Layer(stranger, "a".into()),
        RecordKey::Other(format!("undo/{call}0").into()),
        RecordKey::Other(format!("undo/{stranger}").into()),
    ];
    for key in keys.iter().chain(&others) {
        let put = store.put_record_once(key.clone(), json_record("x"));
        put.await.map_err(error_text)?;
    }
    let mut names = ErasureNames::default();
    names.add_call(call);
    names.add_call(second);
    names.add_turn(turn);
    names.add_session(session);
    for limit in [1, 2, 3, 100] {
        let mut found: Vec<String> = Vec::new();
        loop {
            let after = found.last().map(String::as_str);
            let page = store.records_named(&names, after, limit);
            let page = page.await.map_err(error_text)?;
            ensure(page.len() <= limit, "a page is too long")?;
            if page.is_empty() {
                break;
            }
            found.extend(page.iter().map(|(name, _)| name.to_string()));
        }
        let expected: Vec<_> = keys.iter().map(ToString::to_string).collect();
        ensure(found == expected, format!("{found:?} in pages of {limit}"))?;
    }
    Ok(())
}

async fn writes_a_record_once(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let key = RecordKey::Layer(CallId::from_source(ids), "k".into());
    ensure(
        store.load_record(&key).await.map_err(error_text)?.is_none(),
        "there was a record already",
    )?;
    ensure(
        store
            .put_record_once(key.clone(), json_record("first"))
            .await
            .map_err(error_text)?
            .is_none(),
        "the first write was rejected",
    )?;
    let kept = store
        .put_record_once(key.clone(), json_record("second"))
        .await
        .map_err(error_text)?;
    ensure(
        kept == Some(json_record("first")),
        format!("the second write was answered with {kept:?}"),
    )?;
    ensure(
        store.load_record(&key).await.map_err(error_text)? == Some(json_record("first")),
        "the record has changed",
    )
}

async fn rejects_a_key_named_twice(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let session = SessionId::from_source(ids);
    let call = CallId::from_source(ids);
    let turn = TurnId::from_source(ids);
    let key = RecordKey::Layer(call, "twice".into());
    let records = || {
        vec![
            (key.clone(), json_record("x")),
            (key.clone(), json_record("y")),
        ]
    };
    let batch = WriteBatch {
        records: records(),
        ..event_batch(sample_events(session, ids, 1, 1))
    };
    let post = MailboxItem::Interrupt {
        turn,
        reason: "enough".into(),
    };
    let appended = store
        .append(session, LogPosition::unleased(0), batch)
        .await
        .map(drop);
    for refused in [appended, store.post_item(session, post, records()).await] {
        ensure(
            matches!(&refused, Err(StoreError::RecordExists { key: found }) if *found == key),
            format!("{refused:?}"),
        )?;
    }
    ensure(
        store.revision(session).await.map_err(error_text)? == 0,
        "events were written",
    )?;
    ensure(
        store
            .posts(session, 0, 1)
            .await
            .map_err(error_text)?
            .is_empty(),
        "a post was written",
    )?;
    ensure(
        store.load_record(&key).await.map_err(error_text)?.is_none(),
        "a record was written",
    )
}

async fn one_record_wins(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let key = RecordKey::Layer(CallId::from_source(ids), "race".into());
    let write = |n: u32| store.put_record_once(key.clone(), json_record(&n.to_string()));
    let answers = join_all((0..16).map(write)).await;
    let won = answers
        .iter()
        .filter(|answer| matches!(answer, Ok(None)))
        .count();
    ensure(won == 1, format!("{won} writers won"))?;
    let kept = store.load_record(&key).await.map_err(error_text)?;
    let agree = answers
        .into_iter()
        .filter_map(|answer| answer.ok().flatten())
        .all(|seen| Some(seen) == kept);
    ensure(agree, "the losing writers got different answers")
}

async fn reads_blob_parts(store: &StoreHandle, _: &dyn IdSource) -> Result<(), String> {
    let bytes = Bytes::from((0..=255_u8).cycle().take(10_000).collect::<Vec<u8>>());
    let digest = store.put_blob(bytes.clone()).await.map_err(error_text)?;
    ensure(
        digest == Digest::of_bytes(&bytes),
        "the digest is not the SHA-256 of the bytes",
    )?;
    ensure(
        store.put_blob(bytes.clone()).await.map_err(error_text)? == digest,
        "the same bytes have another digest",
    )?;
    for (range, expected) in [
        (0..10_000, bytes.clone()),
        (0..u64::MAX, bytes.clone()),
        (100..110, bytes.slice(100..110)),
        (9_999..20_000, bytes.slice(9_999..)),
        (20_000..30_000, Bytes::new()),
    ] {
        let read = store
            .blob(digest, range.clone())
            .await
            .map_err(error_text)?;
        ensure(
            read.as_ref() == Some(&expected),
            format!("{range:?} is not read correctly"),
        )?;
    }
    let unknown = store
        .blob(Digest::of_bytes(b"never stored"), 0..1)
        .await
        .map_err(error_text)?;
    ensure(unknown.is_none(), "an unknown blob was read")
}

async fn reads_large_blob_parts(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    const SIZE: usize = 1_300_000;
    let salt = CallId::from_source(ids).uuid().into_bytes();
    let bytes: Vec<u8> = (0..SIZE)
        .map(|n| (n * 31 / 7) as u8 ^ salt[n % 16])
        .collect();
    let bytes = Bytes::from(bytes);
    let digest = store.put_blob(bytes.clone()).await.map_err(error_text)?;
    let middle = 262_144;
    for range in [
        0..SIZE,
        middle - 1..middle + 1,
        middle..2 * middle,
        3 * middle - 5..SIZE,
        SIZE - 1..SIZE,
    ] {
        let read = store
            .blob(digest, range.start as u64..range.end as u64)
            .await
            .map_err(error_text)?;
        ensure(
            read == Some(bytes.slice(range.clone())),
            format!("{range:?} is not read correctly"),
        )?;
    }
    let past = store
        .blob(digest, SIZE as u64 - 2..u64::MAX)
        .await
        .map_err(error_text)?;
    ensure(
        past == Some(bytes.slice(SIZE - 2..)),
        "a range past the end is not truncated",
    )
}

async fn lists_by_prefix(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let start = format!("list/{}/", CallId::from_source(ids));
    // Not in order, and with neighbours on both sides that have another prefix.
    let mut names: Vec<String> = ["b", "a", "", "ä", "a/1", "\u{10ffff}z", "%", "_"]
        .iter()
        .map(|end| format!("{start}{end}"))
        .collect();
    for name in names.iter().chain(&[
        start[..start.len() - 1].to_owned(),
        format!("{start}x").replace("/x", "0x"),
    ]) {
        store
            .put_record_once(RecordKey::Other(name.as_str().into()), json_record(name))
            .await
            .map_err(error_text)?;
    }
    names.sort();
    for (after, limit) in [(None, 100), (None, 3), (Some(2), 3), (Some(7), 3)] {
        let behind = after.map(|index: usize| names[index].as_str());
        let found = store
            .list_records(&start, behind, limit)
            .await
            .map_err(error_text)?;
        let expected: Vec<(Arc<str>, StoreRecord)> = names
            .iter()
            .skip(after.map_or(0, |index| index + 1))
            .take(limit)
            .map(|n| (n.as_str().into(), json_record(n)))
            .collect();
        ensure(
            found == expected,
            format!("behind {behind:?}, limit {limit}: {found:?}"),
        )?;
    }
    let before = store
        .list_records(&start, Some(""), 100)
        .await
        .map_err(error_text)?;
    ensure(
        before.len() == names.len(),
        "a key before all of them hides some",
    )
}

async fn reads_messages(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let session = SessionId::from_source(ids);
    let other = SessionId::from_source(ids);
    let turn = TurnId::from_source(ids);
    let said = |n: u64| {
        Arc::new(MessageRecord::new(
            turn,
            0,
            0,
            Arc::new(Message::user(format!("message {n}"))),
        ))
    };
    for n in 0..12 {
        store
            .put_record_once(
                RecordKey::Message(session, n),
                StoreRecord::Message(said(n)),
            )
            .await
            .map_err(error_text)?;
    }
    store
        .put_record_once(RecordKey::Message(other, 0), StoreRecord::Message(said(99)))
        .await
        .map_err(error_text)?;
    for (before, limit, want) in [
        (u64::MAX, 3, 9..12),
        (10, 4, 6..10),
        (2, 5, 0..2),
        (0, 5, 0..0),
        (12, 100, 0..12),
    ] {
        let found = store
            .messages(session, before, limit)
            .await
            .map_err(error_text)?;
        let want: Vec<_> = want.map(|n| (n, said(n))).collect();
        ensure(
            found == want,
            format!("before {before}, at most {limit}: {found:?}"),
        )?;
    }
    Ok(())
}

async fn rejects_other_kinds(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let session = SessionId::from_source(ids);
    let key = RecordKey::Message(session, 0);
    store
        .put_record_once(key.clone(), json_record("not a message"))
        .await
        .map_err(error_text)?;
    let found = store.messages(session, u64::MAX, 10).await;
    let right =
        matches!(&found, Err(StoreError::WrongRecordKind { key: named, .. }) if *named == key);
    ensure(right, format!("{found:?}"))
}
