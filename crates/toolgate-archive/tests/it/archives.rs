//! Archives: every change is noticed, nothing is written, and interrupted imports are completed.

use std::{
    io::Cursor,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use proptest::prelude::*;
use toolgate_archive::{ExportFormat, ExportRedaction, ImportError, ImportState};
use toolgate_core::{ErasureNames, MemoryStore, SessionId, StoreError, StoreHandle};
use toolgate_testkit::{
    CountingIds, FaultyStore, StoreCall, StoreFault,
    conformance::{SampleSessions, check_archive, export_raw},
};

use crate::support::{SECRET, empty_store, export, import, importer};

fn block_on<T>(work: impl Future<Output = T>) -> T {
    futures::executor::block_on(work)
}

/// Returns a session with agents and its archive.
async fn sample(seed: u64, turns: u32) -> (SessionId, Vec<u8>) {
    let store = empty_store();
    let ids = CountingIds::new();
    let mut sample = SampleSessions::new(&store, &ids, seed);
    let session = sample.add_session(turns).await.expect("stores");
    sample.sign_ledger().await.expect("signs");
    let file = export_raw(&store, &[session]).await.expect("exports");
    (session, file)
}

/// Returns a session with calls and without agents, and its archive.
async fn sample_without_agents() -> (SessionId, Vec<u8>) {
    for seed in 0..100 {
        let (session, file) = sample(seed, 2).await;
        let text = String::from_utf8_lossy(&file);
        if text.matches("\"session\":{").count() == 1 && text.contains("\"layer/") {
            return (session, file);
        }
    }
    panic!("every sample has an agent");
}

async fn is_empty(store: &StoreHandle, session: SessionId) -> bool {
    let mut names = ErasureNames::default();
    names.add_session(session);
    let records = store.records_named(&names, None, 1).await.expect("reads");
    records.is_empty() && store.revision(session).await.expect("reads") == 0
}

#[test]
fn the_memory_store_satisfies_the_contract_of_archives() {
    block_on(check_archive(MemoryStore::new(), &CountingIds::new())).assert_all();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn random_sessions_round_trip(seed: u64, turns in 1_u32..8) {
        block_on(async {
            let (session, file) = sample(seed, turns).await;
            let store = empty_store();
            import(&store, &file).await.expect("imports");
            let again = export_raw(&store, &[session]).await.expect("exports");
            assert!(again == file);
        });
    }

    #[test]
    fn every_change_of_one_byte_is_refused(seed in 0_u64..4, at: prop::sample::Index, bit in 0_u8..8) {
        block_on(async {
            let (session, mut file) = sample(seed, 1).await;
            let at = at.index(file.len());
            file[at] ^= 1 << bit;
            let store = empty_store();
            let found = import(&store, &file).await;
            assert!(found.is_err(), "byte {at}");
            assert!(is_empty(&store, session).await);
        });
    }
}

#[test]
fn every_byte_of_a_small_archive_counts() {
    block_on(async {
        let (_, file) = sample(1, 1).await;
        let store = empty_store();
        let step = (file.len() / 400).max(1);
        for at in (0..file.len()).step_by(step) {
            let mut changed = file.clone();
            changed[at] = changed[at].wrapping_add(1);
            assert!(import(&store, &changed).await.is_err(), "byte {at}");
        }
    });
}

#[test]
fn truncation_at_every_line_is_refused() {
    block_on(async {
        let (session, file) = sample(3, 2).await;
        let store = empty_store();
        let ends = file.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        let ends: Vec<_> = ends.map(|(at, _)| at + 1).collect();
        for (line, end) in ends.iter().take(ends.len() - 1).enumerate() {
            let found = import(&store, &file[..*end]).await;
            let expected = line as u64 + 1;
            assert!(
                matches!(found, Err(ImportError::Truncated { line }) if line == expected),
                "line {expected}: {found:?}"
            );
            assert!(import(&store, &file[..end - 1]).await.is_err());
        }
        assert!(is_empty(&store, session).await);
    });
}

#[test]
fn a_file_of_another_version_is_refused_by_its_version() {
    block_on(async {
        let (_, file) = sample(3, 1).await;
        let text = String::from_utf8(file).expect("text");
        let newer = text.replacen("\"version\":1", "\"version\":2", 1);
        let found = import(&empty_store(), newer.as_bytes()).await;
        assert!(
            matches!(found, Err(ImportError::Version { found: 2, known: 1 })),
            "{found:?}"
        );
        let other = import(&empty_store(), b"{\"type\":\"user\"}\n").await;
        assert!(
            matches!(other, Err(ImportError::Line { line: 1, .. })),
            "{other:?}"
        );
    });
}

#[test]
fn a_redacted_archive_has_no_secret_and_is_not_imported() {
    block_on(async {
        let store = empty_store();
        let ids = CountingIds::new();
        let session = SampleSessions::new(&store, &ids, 5)
            .add_session(8)
            .await
            .expect("stores");
        let raw = export(&store, &[session], ExportFormat::Json, ExportRedaction::Raw).await;
        assert!(raw.contains(SECRET), "there is something to redact");
        let text = export(
            &store,
            &[session],
            ExportFormat::Json,
            ExportRedaction::Redact,
        )
        .await;
        assert!(!text.contains(SECRET));
        assert!(text.contains("\"redacted\":true"), "the file says so");
        let found = import(&empty_store(), text.as_bytes()).await;
        assert!(matches!(found, Err(ImportError::Redacted)), "{found:?}");
    });
}

#[test]
fn an_interrupted_import_is_completed_by_repeating_it() {
    block_on(async {
        let (session, file) = sample(9, 4).await;
        // Fails at each write in turn, once before it is made and once after.
        for (fail_at, is_done) in (1..60).flat_map(|at| [(at, false), (at, true)]) {
            let inner = MemoryStore::new();
            let count = Arc::new(AtomicU64::new(0));
            let plan = move |call: StoreCall, _: u64| {
                let number = if call.is_write() {
                    count.fetch_add(1, Ordering::Relaxed) + 1
                } else {
                    0
                };
                let error = || StoreError::Backend("the disk is full".into());
                match number == fail_at {
                    true if is_done => StoreFault::DoneButFail(error()),
                    true => StoreFault::Fail(error()),
                    false => StoreFault::Pass,
                }
            };
            let faulty = StoreHandle::new(FaultyStore::new(inner.clone(), plan));
            let first = importer(&faulty).import_archive(Cursor::new(&file)).await;
            let store = StoreHandle::new(inner);
            let again = import(&store, &file)
                .await
                .expect("the second import completes it");
            if first.is_ok() {
                assert!(again.iter().all(|one| one.state == ImportState::Unchanged));
                return;
            }
            let out = export_raw(&store, &[session]).await.expect("exports");
            assert!(out == file, "after a fault at write {fail_at}");
        }
        panic!("an import has more writes than were tried");
    });
}

#[test]
fn a_record_that_does_not_belong_to_the_session_is_refused() {
    block_on(async {
        // A standing rule, and an answer for a call of another session.
        let foreign = [
            "other/rule/x",
            "answer/00000000-0000-0000-0000-00000000ffff/0",
        ];
        for name in foreign {
            let (session, file) = sample(3, 1).await;
            let forged = reseal(&file, |line| {
                if let Some(record) = line.get_mut("record").filter(|record| {
                    record["name"]
                        .as_str()
                        .is_some_and(|name| name.starts_with("layer/"))
                }) {
                    record["name"] = name.into();
                }
            });
            let store = empty_store();
            let found = import(&store, &forged).await;
            let Err(ImportError::Line { what, .. }) = found else {
                // Without a call there is nothing to forge.
                assert!(
                    !String::from_utf8_lossy(&file).contains("layer/"),
                    "{found:?}"
                );
                continue;
            };
            assert!(what.contains("does not belong"), "{what}");
            assert!(is_empty(&store, session).await);
        }
    });
}

#[test]
fn a_call_that_another_session_has_is_refused() {
    block_on(async {
        let (session, file) = sample_without_agents().await;
        let store = empty_store();
        import(&store, &file).await.expect("imports");
        // The same turns and calls under another session id, with nothing but a new record of each
        // call: none of the records exists already.
        let text = String::from_utf8(file).expect("text");
        let other = SessionId::new(uuid_of(0xabc));
        let renamed = text.replace(&session.to_string(), &other.to_string());
        let forged = reseal(renamed.as_bytes(), |line| {
            let name = line["record"]["name"].as_str().map(str::to_owned);
            match name {
                Some(name) if name.starts_with("layer/") => {
                    line["record"]["name"] = format!("{name}/planted").into();
                }
                Some(_) => *line = serde_json::Value::Null,
                None if line.get("event").is_some()
                    || line.get("session").is_some()
                    || line.get("archive").is_some()
                    || line.get("end").is_some() => {}
                None => *line = serde_json::Value::Null,
            }
        });
        assert!(String::from_utf8_lossy(&forged).contains("/planted"));
        let found = import(&store, &forged).await;
        assert!(
            matches!(&found, Err(ImportError::Line { what, .. }) if what.contains("another session")),
            "{found:?}"
        );
        assert!(is_empty(&store, other).await);
    });
}

#[test]
fn a_changed_receipt_is_named() {
    block_on(async {
        let (_, file) = sample(3, 3).await;
        let forged = reseal(&file, |line| {
            if let Some(entry) = line.get_mut("entry") {
                let body = entry["body"]
                    .as_str()
                    .expect("text")
                    .replace("invocation_id", "invocation_xx");
                entry["body"] = body.into();
            }
        });
        let found = import(&empty_store(), &forged).await;
        assert!(
            matches!(found, Err(ImportError::Receipts { .. })),
            "{found:?}"
        );
    });
}

fn uuid_of(number: u128) -> uuid::Uuid {
    uuid::Uuid::from_u128(number)
}

/// Changes lines, leaves out those that become null, and computes the chain again, as a forger who
/// knows the format would.
fn reseal(file: &[u8], change: impl Fn(&mut serde_json::Value)) -> Vec<u8> {
    use toolgate_core::Digest;
    let mut link = Digest::of_bytes(b"toolgate archive\0");
    let mut out = Vec::new();
    let mut count = 0;
    for line in file
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        let content = [
            b"{",
            &line[line.iter().position(|byte| *byte == b',').expect("a link") + 1..],
        ]
        .concat();
        let mut value: serde_json::Value = serde_json::from_slice(&content).expect("JSON");
        let before = value.clone();
        change(&mut value);
        if value.is_null() {
            continue;
        }
        if let Some(end) = value.get_mut("end") {
            end["lines"] = count.into();
        }
        count += 1;
        let content = if value == before {
            content
        } else {
            serde_json::to_vec(&value).expect("writes")
        };
        let digest = Digest::of_bytes(&content[1..]);
        link = Digest::of_bytes(&[&link.as_bytes()[..], digest.as_bytes()].concat());
        out.extend_from_slice(format!("{{\"link\":\"{link}\",").as_bytes());
        out.extend_from_slice(&content[1..]);
        out.push(b'\n');
    }
    out
}
