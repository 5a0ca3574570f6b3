//! The rules of [`Ledger`].

use serde_json::json;
use toolgate_core::{Call, CallSeed, LedgerDraft, MemoryStore, Outcome, Stack};
use toolgate_testkit::{FakeExecutor, env_at, seed};

use super::*;
use crate::{LedgerMirror, Receipts, verify_export};

fn key() -> LedgerKey {
    LedgerKey::from_bytes(&[7; 32])
}

fn id(n: u128) -> CallId {
    format!("{n:032x}").parse().expect("an id")
}

/// Returns a ledger of `count` receipts: call `n` is of the tool `t<n % 3>`, every fourth is denied
/// by Ann, at second `n`.
async fn ledger_of(count: u128) -> Ledger {
    let clock = toolgate_testkit::TestClock::new();
    let store = StoreHandle::new(MemoryStore::new());
    for n in 1..=count {
        clock.advance(std::time::Duration::from_secs(1));
        let env = toolgate_core::CallEnv::new(
            std::sync::Arc::new(clock.clone()),
            store.clone(),
            env_at(&clock).probe().clone(),
        );
        let mut seed = CallSeed {
            id: id(n),
            env,
            ..seed(&format!("t{}", n % 3), json!({ "n": n as u64 }))
        };
        let mut script = FakeExecutor::new();
        if n % 4 == 0 {
            let request = toolgate_core::ApprovalRequest::for_call(&Call::new(seed.clone()));
            let decision = toolgate_core::Decision::deny("ann", None);
            seed.resumed
                .answers
                .push(toolgate_core::ApprovalAnswer::for_request(
                    &request, decision,
                ));
            script = script.then(Outcome::denied(None));
        }
        let stack = Stack::over(script)
            .layer(Receipts::to_store())
            .build()
            .expect("in order");
        stack.run(Call::new(seed)).await;
    }
    Ledger::main(store)
}

fn counters(page: &ReceiptPage) -> Vec<u64> {
    page.receipts.iter().map(|sealed| sealed.counter).collect()
}

#[tokio::test]
async fn receipts_are_listed_by_filter() {
    let ledger = ledger_of(12).await;
    let all = ledger
        .list_receipts(&ReceiptFilter::default())
        .await
        .expect("reads");
    assert_eq!((all.receipts.len(), all.next), (12, None));
    let listed = async |filter: ReceiptFilter| {
        counters(&ledger.list_receipts(&filter).await.expect("reads"))
    };
    let none = ReceiptFilter::default;
    assert_eq!(
        listed(ReceiptFilter {
            tool: Some("t1".into()),
            ..none()
        })
        .await,
        [1, 4, 7, 10]
    );
    assert_eq!(
        listed(ReceiptFilter {
            status: Some(Status::Denied),
            ..none()
        })
        .await,
        [4, 8, 12]
    );
    assert_eq!(
        listed(ReceiptFilter {
            approver: Some("ann".into()),
            ..none()
        })
        .await,
        [4, 8, 12]
    );
    assert_eq!(
        listed(ReceiptFilter {
            approver: Some("ben".into()),
            ..none()
        })
        .await,
        [0_u64; 0]
    );
    let at = |n: usize| Some(all.receipts[n - 1].receipt.ended_at);
    assert_eq!(
        listed(ReceiptFilter {
            from: at(3),
            until: at(6),
            ..none()
        })
        .await,
        [3, 4, 5]
    );
    let session = all.receipts[0].receipt.session_id;
    assert_eq!(
        listed(ReceiptFilter {
            session: Some(session),
            ..none()
        })
        .await
        .len(),
        12
    );
    let other = format!("{:032x}", 99).parse().expect("an id");
    assert!(
        listed(ReceiptFilter {
            session: Some(other),
            ..none()
        })
        .await
        .is_empty()
    );
}

#[tokio::test]
async fn a_list_continues_after_the_previous_page() {
    let ledger = ledger_of(10).await;
    let mut filter = ReceiptFilter {
        tool: Some("t1".into()),
        limit: 2,
        ..ReceiptFilter::default()
    };
    let mut seen = Vec::new();
    let mut pages = 0;
    loop {
        let page = ledger.list_receipts(&filter).await.expect("reads");
        seen = [seen, counters(&page)].concat();
        pages += 1;
        match page.next {
            Some(next) => filter.after = next,
            None => break,
        }
    }
    assert_eq!((seen, pages), (vec![1, 4, 7, 10], 3));
    let nothing = ReceiptFilter {
        limit: 0,
        ..ReceiptFilter::default()
    };
    assert!(
        ledger
            .list_receipts(&nothing)
            .await
            .expect("reads")
            .receipts
            .is_empty()
    );
}

#[tokio::test]
async fn the_receipt_of_an_invocation_is_found_at_any_position() {
    let ledger = ledger_of(3 + PAGE_SIZE as u128).await;
    for n in [1, 3, PAGE_SIZE as u128, 3 + PAGE_SIZE as u128] {
        let sealed = ledger
            .find_receipt(id(n))
            .await
            .expect("reads")
            .expect("there");
        assert_eq!(
            (u128::from(sealed.counter), sealed.receipt.invocation_id),
            (n, id(n))
        );
        assert_eq!(sealed.uri, format!("toolgate:receipt/main/{}", id(n)));
    }
    assert_eq!(ledger.find_receipt(id(9_999)).await.expect("reads"), None);
}

#[tokio::test]
async fn a_checkpoint_is_signed_once_per_head_and_found_again() {
    let ledger = ledger_of(3).await;
    let first = ledger
        .sign_checkpoint(&key(), Timestamp::from_micros(1))
        .await
        .expect("signed");
    assert_eq!(
        (first.counter, key().to_verifier().verify(&first)),
        (3, Ok(()))
    );
    let again = ledger
        .sign_checkpoint(&key(), Timestamp::from_micros(2))
        .await
        .expect("signed");
    assert_eq!(again, first, "there was no new entry");
    ledger
        .store
        .seal_entries(vec![draft("{}")])
        .await
        .expect("sealed");
    let second = ledger
        .sign_checkpoint(&key(), Timestamp::from_micros(3))
        .await
        .expect("signed");
    assert_eq!(ledger.checkpoints().await.expect("reads"), [first, second]);
    let verified = ledger
        .verify(&[], Some(&key().to_verifier()))
        .await
        .expect("as written");
    assert_eq!((verified.counter, verified.signed), (4, Some(4)));
}

fn draft(body: &str) -> LedgerDraft {
    LedgerDraft {
        ledger: LedgerName::main(),
        body: body.into(),
    }
}

#[tokio::test]
async fn a_ledger_with_a_longer_name_has_its_own_checkpoints() {
    let store = StoreHandle::new(MemoryStore::new());
    for name in ["a", "a/b"] {
        let name: LedgerName = name.parse().expect("a name");
        store
            .seal_entries(vec![LedgerDraft {
                ledger: name.clone(),
                body: "{}".into(),
            }])
            .await
            .expect("sealed");
        let ledger = Ledger::new(store.clone(), name);
        ledger
            .sign_checkpoint(&key(), Timestamp::EPOCH)
            .await
            .expect("signed");
    }
    let ledger = Ledger::new(store, "a".parse().expect("a name"));
    assert_eq!(ledger.checkpoints().await.expect("reads").len(), 1);
    assert!(ledger.verify(&[], Some(&key().to_verifier())).await.is_ok());
}

#[tokio::test]
async fn a_truncated_ledger_is_detected_and_not_signed_again() {
    let whole = ledger_of(5).await;
    let checkpoint = whole
        .sign_checkpoint(&key(), Timestamp::EPOCH)
        .await
        .expect("signed");
    // Another store with the same beginning, as if the last two records and their checkpoint had
    // been deleted.
    let cut = ledger_of(3).await;
    let verifier = key().to_verifier();
    assert!(
        cut.verify(&[], Some(&verifier)).await.is_ok(),
        "nothing in the store shows that there was more"
    );
    let Err(LedgerError::Tampered(bad)) = cut
        .verify(std::slice::from_ref(&checkpoint), Some(&verifier))
        .await
    else {
        panic!("a checkpoint stored elsewhere shows the loss")
    };
    assert_eq!((bad.counter, bad.what), (4, TamperKind::Truncated(5)));
    let value = serde_json::to_value(&checkpoint).expect("writes");
    let place = RecordKey::Other("checkpoint/main/00000000000000000005".into());
    cut.store
        .put_record_once(place, StoreRecord::Json(Json::new(value).expect("shallow")))
        .await
        .expect("kept");
    assert!(matches!(
        cut.sign_checkpoint(&key(), Timestamp::EPOCH).await,
        Err(LedgerError::Tampered(_))
    ));
    assert!(
        cut.verify(&[], None).await.is_ok(),
        "without a verifier only the chain itself is checked"
    );
}

#[tokio::test]
async fn an_entry_that_is_not_a_receipt_is_named() {
    let ledger = ledger_of(2).await;
    ledger
        .store
        .seal_entries(vec![draft(r#"{"n":1}"#)])
        .await
        .expect("sealed");
    let Err(LedgerError::Tampered(bad)) = ledger.list_receipts(&ReceiptFilter::default()).await
    else {
        panic!("unreadable")
    };
    assert_eq!((bad.counter, bad.what), (3, TamperKind::Unreadable));
}

#[tokio::test]
async fn checkpoints_are_signed_when_due_even_after_a_restart() {
    let ledger = ledger_of(5).await;
    let add = async |n: usize| {
        drop(
            ledger
                .store
                .seal_entries(vec![draft("{}"); n])
                .await
                .expect("sealed"),
        )
    };
    let signed = async |checkpoints: &CheckpointSchedule| {
        checkpoints
            .sign_if_due(Timestamp::EPOCH)
            .await
            .expect("signs")
            .map(|checkpoint| checkpoint.counter)
    };
    let every = CheckpointSchedule::every(3, ledger.clone(), key());
    assert_eq!(
        (signed(&every).await, signed(&every).await),
        (Some(5), None)
    );
    add(2).await;
    assert_eq!(signed(&every).await, None);
    let restarted = CheckpointSchedule::every(3, ledger.clone(), key());
    assert_eq!(signed(&restarted).await, None);
    add(1).await;
    assert_eq!(
        (signed(&restarted).await, signed(&every).await),
        (Some(8), Some(8))
    );
}

async fn exported(ledger: &Ledger, filter: ReceiptFilter) -> Vec<u8> {
    let mut bytes = Vec::new();
    ledger.export(&mut bytes, &filter).await.expect("exports");
    bytes
}

#[tokio::test]
async fn an_export_is_verified_without_a_store_and_an_excerpt_too() {
    let ledger = ledger_of(9).await;
    ledger
        .sign_checkpoint(&key(), Timestamp::EPOCH)
        .await
        .expect("signed");
    let verifier = key().to_verifier();
    let all = verify_export(
        &*exported(&ledger, ReceiptFilter::default()).await,
        &[],
        Some(&verifier),
    )
    .expect("whole");
    assert_eq!(
        (all.chain.counter, all.chain.signed, all.outlines),
        (9, Some(9), 0)
    );
    let denied = ReceiptFilter {
        status: Some(Status::Denied),
        ..ReceiptFilter::default()
    };
    let some = exported(&ledger, denied).await;
    let excerpt = verify_export(&*some, &[], Some(&verifier)).expect("whole");
    assert_eq!((excerpt.chain, excerpt.outlines), (all.chain, 7));
    let text = String::from_utf8(some).expect("text");
    assert!(text.contains(&id(4).to_string()) && !text.contains(&id(5).to_string()));
}

#[tokio::test]
async fn a_truncated_export_is_detected_even_without_a_checkpoint() {
    let ledger = ledger_of(3).await;
    let bytes = exported(&ledger, ReceiptFilter::default()).await;
    for cut in 0..bytes.len() {
        assert!(
            verify_export(&bytes[..cut], &[], None).is_err(),
            "after {cut} bytes"
        );
    }
    assert!(verify_export(&*bytes, &[], None).is_ok());
}

#[tokio::test]
async fn a_mirror_catches_up_and_writes_nothing_twice() {
    let dir = tempfile::tempdir().expect("a directory");
    let ledger = ledger_of(4).await;
    let path = dir.path().join("main.jsonl");
    let mut mirror = LedgerMirror::open(ledger.clone(), &path)
        .await
        .expect("opens");
    assert_eq!(
        (
            mirror.catch_up().await.expect("writes"),
            mirror.catch_up().await.expect("writes")
        ),
        (4, 0)
    );
    assert!(
        LedgerMirror::open(ledger.clone(), &path).await.is_err(),
        "only one process at a time"
    );
    drop(mirror);
    ledger
        .store
        .seal_entries(vec![draft("{}")])
        .await
        .expect("sealed");
    let mut mirror = LedgerMirror::open(ledger.clone(), &path)
        .await
        .expect("opens");
    assert_eq!(mirror.catch_up().await.expect("writes"), 1);
    let file = std::fs::read(&path).expect("reads");
    assert_eq!(
        verify_export(&*file, &[], None)
            .expect("whole")
            .chain
            .counter,
        5
    );
    assert_eq!(mirror.head().map(|head| head.counter), Some(5));
}

#[tokio::test]
async fn a_mirror_survives_a_line_that_was_torn_anywhere() {
    let dir = tempfile::tempdir().expect("a directory");
    let ledger = ledger_of(3).await;
    let path = dir.path().join("main.jsonl");
    LedgerMirror::open(ledger.clone(), &path)
        .await
        .expect("opens")
        .catch_up()
        .await
        .expect("writes");
    let whole = std::fs::read(&path).expect("reads");
    let before_last = whole[..whole.len() - 1]
        .iter()
        .rposition(|byte| *byte == b'\n')
        .expect("lines")
        + 1;
    for cut in (0..20).chain(before_last..whole.len()) {
        std::fs::write(&path, &whole[..cut]).expect("written");
        LedgerMirror::open(ledger.clone(), &path)
            .await
            .expect("opens")
            .catch_up()
            .await
            .expect("writes");
        assert_eq!(
            std::fs::read(&path).expect("reads"),
            whole,
            "torn after {cut} bytes"
        );
    }
}

#[tokio::test]
async fn a_mirror_that_disagrees_is_detected_and_not_changed() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("main.jsonl");
    let longer = ledger_of(5).await;
    LedgerMirror::open(longer, &path)
        .await
        .expect("opens")
        .catch_up()
        .await
        .expect("writes");
    let whole = std::fs::read(&path).expect("reads");
    let shorter = ledger_of(3).await;
    let mut mirror = LedgerMirror::open(shorter.clone(), &path)
        .await
        .expect("opens");
    let Err(LedgerError::Tampered(bad)) = mirror.catch_up().await else {
        panic!("the ledger has lost records")
    };
    assert_eq!((bad.counter, bad.what), (5, TamperKind::Truncated(5)));
    drop(mirror);
    shorter
        .store
        .seal_entries(vec![draft("{}"), draft("{}")])
        .await
        .expect("sealed");
    let mut mirror = LedgerMirror::open(shorter, &path).await.expect("opens");
    assert!(
        matches!(mirror.catch_up().await, Err(LedgerError::Tampered(_))),
        "the ledger has other records"
    );
    drop(mirror);
    assert_eq!(std::fs::read(&path).expect("reads"), whole);
    std::fs::write(
        &path,
        String::from_utf8(whole)
            .expect("text")
            .replace(r#"\"ok\""#, r#"\"no\""#),
    )
    .expect("written");
    let opened = LedgerMirror::open(ledger_of(5).await, &path).await;
    assert!(matches!(opened, Err(LedgerError::Tampered(bad)) if bad.counter == 1));
    std::fs::write(&path, "something else\n").expect("written");
    assert!(matches!(
        LedgerMirror::open(ledger_of(5).await, &path).await,
        Err(LedgerError::Line { line: 1, .. })
    ));
}

#[tokio::test]
async fn nothing_is_signed_after_a_forged_checkpoint() {
    let ledger = ledger_of(3).await;
    let forged = async |checkpoint: Checkpoint| {
        let record = StoreRecord::Json(
            Json::new(serde_json::to_value(&checkpoint).expect("plain")).expect("small"),
        );
        let place = format!("{}{:020}", ledger.checkpoint_prefix(), checkpoint.counter);
        ledger
            .store
            .put_record_once(RecordKey::Other(place.into()), record)
            .await
            .expect("kept");
    };
    let entry = ledger.read_entries(2).await.expect("reads").remove(0);
    let real = Checkpoint::sign(&entry.head(), Timestamp::EPOCH, &key());
    forged(Checkpoint {
        at: Timestamp::from_micros(1),
        ..real
    })
    .await;
    let refused = ledger
        .sign_checkpoint(&key(), Timestamp::EPOCH)
        .await
        .expect_err("not signed");
    assert!(
        matches!(&refused, LedgerError::Tampered(bad) if matches!(bad.what, TamperKind::Checkpoint(_))),
        "{refused:?}"
    );

    // One by another key is not trusted either: everything is verified again, and our own
    // checkpoint is returned.
    let ledger = ledger_of(3).await;
    let entry = ledger.read_entries(2).await.expect("reads").remove(0);
    let stranger = LedgerKey::from_bytes(&[8; 32]);
    ledger
        .sign_checkpoint(&stranger, Timestamp::EPOCH)
        .await
        .expect("signs");
    let ours = ledger
        .sign_checkpoint(&key(), Timestamp::EPOCH)
        .await
        .expect("signs");
    assert_eq!((ours.head(), ours.key), (entry.head(), key().id()));
}
