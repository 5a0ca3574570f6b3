//! Full disks, foreign files, damage, and unusual amounts of data: a clear error or normal service.

use std::{fs, path::Path};

use crate::support::{approval_request, call_id, draft, key, note, opened, session, turn_id};
use bytes::Bytes;
use toolgate_core::{
    ApprovalFilter, CatalogueStore, Digest, EventStore, LogPosition, RecordStore, SessionFilter,
    StoreError, StoreHandle, StoreRecord, Timestamp, WriteBatch,
};
use toolgate_store::{DatabaseError, IntegrityProblem, SqliteOptions, SqliteStore};

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

fn cause(error: &StoreError) -> Option<&DatabaseError> {
    std::error::Error::source(error).and_then(|source| source.downcast_ref())
}

#[test]
fn a_missing_directory_is_named() {
    let path = directory().path().join("gone/toolgate.db");
    let error = SqliteStore::open(&path).expect_err("there is no directory");
    assert!(
        matches!(&error, DatabaseError::NoDirectory { directory } if Some(directory.as_path()) == path.parent())
    );
    assert!(error.hint().is_some());
}

#[cfg(target_os = "linux")]
#[test]
fn a_directory_that_cannot_be_written_is_named() {
    // Not even the superuser may create files there.
    let error = SqliteStore::open("/proc/toolgate.db").expect_err("cannot be written");
    assert!(matches!(error, DatabaseError::ReadOnly { .. }), "{error:?}");
    assert!(error.to_string().contains("/proc/toolgate.db"));
}

#[test]
fn a_foreign_file_is_rejected_and_not_changed() {
    let directory = directory();
    let text = directory.path().join("notes.txt");
    fs::write(&text, "Dear diary, ".repeat(200)).expect("writes");
    let error = SqliteStore::open(&text).expect_err("no database");
    assert!(
        matches!(error, DatabaseError::NotADatabase { .. }),
        "{error:?}"
    );
    assert!(
        fs::read_to_string(&text)
            .expect("reads")
            .starts_with("Dear diary")
    );

    let other = directory.path().join("other.db");
    let connection = rusqlite::Connection::open(&other).expect("opens");
    connection
        .execute_batch("CREATE TABLE contacts (name TEXT); PRAGMA user_version = 7")
        .expect("runs");
    drop(connection);
    let before = fs::read(&other).expect("reads");
    let error = SqliteStore::open(&other).expect_err("not ours");
    assert!(matches!(error, DatabaseError::NotOurs { .. }), "{error:?}");
    assert!(error.to_string().contains("other.db") && error.hint().is_some());
    assert_eq!(fs::read(&other).expect("reads"), before);
}

#[cfg(unix)]
#[test]
fn a_new_file_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let directory = directory();
    let path = directory.path().join("private.db");
    let _store = SqliteStore::open(&path).expect("opens");
    for file in fs::read_dir(directory.path()).expect("lists") {
        let file = file.expect("lists").path();
        let mode = fs::metadata(&file).expect("is there").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", file.display());
    }
}

#[tokio::test]
async fn a_store_that_is_closed_leaves_one_file() {
    let directory = directory();
    let store = SqliteStore::open(directory.path().join("one.db")).expect("opens");
    store
        .put_record_once(key("k"), note("x"))
        .await
        .expect("writes");
    store.load_record(&key("k")).await.expect("reads");
    drop(store);
    assert_eq!(fs::read_dir(directory.path()).expect("lists").count(), 1);
}

#[tokio::test]
async fn a_full_disk_is_reported_and_loses_nothing() {
    let directory = directory();
    let path = directory.path().join("full.db");
    let options = SqliteOptions {
        max_pages: Some(80),
        ..SqliteOptions::default()
    };
    let store = SqliteStore::open_with(&path, options).expect("opens");
    let mut written = 0;
    let error = loop {
        match store
            .put_record_once(key(&format!("n/{written:06}")), note(&"x".repeat(4_000)))
            .await
        {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
    };
    assert!(
        matches!(cause(&error), Some(DatabaseError::Full { .. })),
        "{error:?}"
    );
    assert!(written > 10);
    assert!(
        store
            .load_record(&key("n/000000"))
            .await
            .expect("can still read")
            .is_some()
    );
    drop(store);
    let store = SqliteStore::open(&path).expect("opens");
    assert_eq!(
        store
            .list_records("n/", None, usize::MAX)
            .await
            .expect("lists")
            .len(),
        written
    );
    store
        .put_record_once(key("after"), note("x"))
        .await
        .expect("there is space again");
    assert_eq!(store.check().expect("checks"), []);
}

/// Flips a bit in one column of every row of a table, one after the other, and checks that each
/// flip is found and that none remains afterwards.
fn flip_each_row(store: &SqliteStore, path: &Path, table: &str, columns: &[&str]) -> usize {
    let connection = rusqlite::Connection::open(path).expect("opens");
    let mut flips = 0;
    let count = format!("SELECT count(*) FROM {table}");
    let rows: i64 = connection
        .query_row(&count, [], |row| row.get(0))
        .expect("counts");
    for (row, column) in (0..rows).flat_map(|row| columns.iter().map(move |c| (row, *c))) {
        // The last byte of a text, of an id, or of a number.
        let flipped = format!(
            "CASE typeof({column})
                 WHEN 'integer' THEN {column} + 1
                 WHEN 'text' THEN substr({column}, 1, length({column}) - 2) || '~' || substr({column}, -1)
                 ELSE CAST(substr({column}, 1, 15) || x'7f' AS BLOB) END"
        );
        let transaction = connection.unchecked_transaction().expect("begins");
        let which = format!("SELECT {column}, {flipped} FROM {table} LIMIT 1 OFFSET {row}");
        let (old, new): (rusqlite::types::Value, rusqlite::types::Value) = transaction
            .query_row(&which, [], |row| Ok((row.get(0)?, row.get(1)?)))
            .expect("reads");
        assert_ne!(old, new);
        let key = format!("SELECT {} FROM {table} LIMIT 1 OFFSET {row}", columns[0]);
        let key: rusqlite::types::Value = transaction
            .query_row(&key, [], |row| row.get(0))
            .expect("reads");
        let change = format!(
            "UPDATE {table} SET {column} = ?1 WHERE {} = ?2 AND {column} = ?3",
            columns[0]
        );
        let changed = transaction
            .execute(&change, rusqlite::params![new, key, old])
            .expect("changes");
        assert!(changed >= 1, "{table}.{column}");
        transaction.commit().expect("commits");
        let problems = store.check().expect("checks");
        assert!(!problems.is_empty(), "{table}.{column} of row {row}");
        let back = format!("UPDATE {table} SET {column} = ?1 WHERE {column} = ?2");
        connection
            .execute(&back, rusqlite::params![old, new])
            .expect("changes back");
        flips += 1;
    }
    flips
}

#[tokio::test]
async fn a_flipped_bit_in_an_event_or_a_record_is_found() {
    let directory = directory();
    let path = directory.path().join("flipped.db");
    let store = SqliteStore::open(&path).expect("opens");
    for n in 1..=2 {
        let batch = WriteBatch {
            events: vec![opened(session(n), 1, turn_id(n))],
            records: vec![(key(&format!("r/{n}")), note("some text"))],
            ..WriteBatch::default()
        };
        let written = store
            .append(session(n), LogPosition::unleased(0), batch)
            .await;
        written.expect("appends");
    }
    let events = ["session", "sequence", "body", "checksum"];
    assert_eq!(flip_each_row(&store, &path, "events", &events), 8);
    let records = ["key", "body", "checksum"];
    assert_eq!(flip_each_row(&store, &path, "keyed_records", &records), 6);
    assert_eq!(store.check().expect("checks"), []);
}

#[tokio::test]
async fn a_damaged_event_or_record_is_not_loaded_and_other_sessions_are() {
    let directory = directory();
    let path = directory.path().join("damaged.db");
    let store = SqliteStore::open(&path).expect("opens");
    for n in 1..=2 {
        let batch = WriteBatch {
            events: vec![opened(session(n), 1, turn_id(n))],
            records: vec![(key(&format!("r/{n}")), note("some text"))],
            ..WriteBatch::default()
        };
        let written = store
            .append(session(n), LogPosition::unleased(0), batch)
            .await;
        written.expect("appends");
    }
    let connection = rusqlite::Connection::open(&path).expect("opens");
    // Still JSON, and still an event and a record.
    connection
        .execute_batch(
            "UPDATE keyed_records SET body = replace(body, 'some', 'sole') WHERE key = 'other/r/1';
             UPDATE events SET body = replace(body, '\"size\":1', '\"size\":3')
             WHERE session = (SELECT min(session) FROM events);",
        )
        .expect("changes");
    let event = store.events(session(1), 0, 10).await.expect_err("damaged");
    let text = event.to_string();
    assert!(
        matches!(event, StoreError::Damaged { .. })
            && text.contains(&session(1).to_string())
            && text.contains("checksum"),
        "{text}"
    );
    let record = store.load_record(&key("r/1")).await.expect_err("damaged");
    assert!(record.to_string().contains("other/r/1"), "{record}");
    assert_eq!(
        store.events(session(2), 0, 10).await.expect("reads").len(),
        1
    );
    let other = store.load_record(&key("r/2")).await.expect("reads");
    assert_eq!(other, Some(note("some text")));
    assert_eq!(store.check().expect("checks").len(), 2);
}

#[tokio::test]
async fn one_failed_write_does_not_affect_the_others_in_its_group() {
    let directory = directory();
    let options = SqliteOptions {
        max_pages: Some(200),
        ..SqliteOptions::default()
    };
    let store = StoreHandle::new(
        SqliteStore::open_with(directory.path().join("a.db"), options).expect("opens"),
    );
    let large = "x".repeat(2_000_000);
    let write = |n: usize| {
        store.put_record_once(
            key(&n.to_string()),
            note(if n == 7 { &large } else { "small" }),
        )
    };
    let answers = futures::future::join_all((0..16).map(write)).await;
    let failed: Vec<usize> = (0..16).filter(|n| answers[*n].is_err()).collect();
    assert_eq!(failed, [7]);
}

/// Copies a database with its log as it is on the disk while it is open.
async fn torn_copy(from: &Path, to: &Path, keep: f64) {
    fs::copy(from, to).expect("copies");
    let log = |path: &Path| path.with_extension("db-wal");
    let bytes = fs::read(log(from)).expect("there is a log");
    fs::write(log(to), &bytes[..(bytes.len() as f64 * keep) as usize]).expect("writes");
}

#[tokio::test]
async fn a_truncated_log_opens_with_its_complete_transactions() {
    let directory = directory();
    let path = directory.path().join("a.db");
    let store = SqliteStore::open(&path).expect("opens");
    for n in 0..40 {
        let batch = WriteBatch {
            events: vec![opened(session(1), n + 1, turn_id(1))],
            entries: vec![draft("main", n)],
            ..WriteBatch::default()
        };
        store
            .append(session(1), LogPosition::unleased(n), batch)
            .await
            .expect("appends");
    }
    let mut last = 0;
    for (n, keep) in [0.55, 0.7, 0.9, 1.0].into_iter().enumerate() {
        let torn = directory.path().join(format!("torn{n}.db"));
        torn_copy(&path, &torn, keep).await;
        let store = SqliteStore::open(&torn).expect("opens");
        let revision = store.revision(session(1)).await.expect("reads");
        assert!(revision >= last && revision <= 40);
        assert_eq!(store.check().expect("checks"), []);
        let batch = WriteBatch {
            events: vec![opened(session(1), revision + 1, turn_id(1))],
            ..WriteBatch::default()
        };
        store
            .append(session(1), LogPosition::unleased(revision), batch)
            .await
            .expect("continues");
        last = revision;
    }
    assert_eq!(last, 40);
}

#[tokio::test]
async fn damage_is_an_error_or_a_problem_but_never_an_answer() {
    let directory = directory();
    let path = directory.path().join("a.db");
    {
        let store = SqliteStore::open(&path).expect("opens");
        for n in 0..300 {
            store
                .put_record_once(key(&format!("{n:04}")), note(&"x".repeat(500)))
                .await
                .expect("writes");
        }
    }
    let mut bytes = fs::read(&path).expect("reads");
    // A page of records, and not one of another table.
    let is_full = |page: &&mut [u8]| page.iter().filter(|byte| **byte == b'x').count() > 2_000;
    let page = bytes.chunks_exact_mut(4096).filter(is_full).nth(10);
    page.expect("there are many records").fill(0xa5);
    fs::write(&path, &bytes).expect("writes");
    let found = match SqliteStore::open(&path) {
        Err(error) => Err(error),
        Ok(store) => {
            let read = store.list_records("", None, usize::MAX).await;
            assert!(
                matches!(
                    read,
                    Err(StoreError::Damaged { .. } | StoreError::Backend(_))
                ),
                "{read:?}"
            );
            store.check()
        }
    };
    match found {
        Ok(problems) => assert!(
            matches!(problems[0], IntegrityProblem::Database { .. }),
            "{problems:?}"
        ),
        Err(error) => assert!(matches!(error, DatabaseError::Damaged { .. }), "{error:?}"),
    }
}

#[tokio::test]
async fn a_check_names_the_problems() {
    let directory = directory();
    let path = directory.path().join("a.db");
    let store = SqliteStore::open(&path).expect("opens");
    let entries = || (0..5).map(|n| draft("main", n)).collect();
    let events = (1..=3).map(|n| opened(session(1), n, turn_id(1))).collect();
    let batch = WriteBatch {
        events,
        entries: entries(),
        ..WriteBatch::default()
    };
    store
        .append(session(1), LogPosition::unleased(0), batch)
        .await
        .expect("appends");
    store
        .append(
            session(1),
            LogPosition::unleased(3),
            approval_request(session(1), 4, call_id(1)),
        )
        .await
        .expect("appends");
    store
        .put_record_once(key("r"), note("x"))
        .await
        .expect("writes");
    assert_eq!(store.check().expect("checks"), []);
    let connection = rusqlite::Connection::open(&path).expect("opens");
    connection
        .execute_batch(
            "DELETE FROM events WHERE sequence = 2;
             UPDATE entries SET body = '{\"n\":9}' WHERE counter = 3;
             DELETE FROM keyed_records WHERE substr(key, 17, 1) = x'05';
             UPDATE keyed_records SET body = '{' WHERE key = 'other/r';",
        )
        .expect("damages");
    let ledger = toolgate_core::LedgerName::main();
    let expected = [
        IntegrityProblem::Log {
            session: session(1),
            revision: 4,
            events: 3,
            last: 4,
        },
        // It repeats a part of the event that is gone.
        IntegrityProblem::Unreadable {
            what: format!("event 3 of session {}", session(1)),
        },
        IntegrityProblem::Unreadable {
            what: "other/r".into(),
        },
        IntegrityProblem::Chain { ledger, counter: 3 },
        IntegrityProblem::MissingRequest {
            call: call_id(1),
            generation: 0,
        },
    ];
    assert_eq!(store.check().expect("checks"), expected);
    let copied = store.backup_to(directory.path().join("copy.db"));
    assert!(
        matches!(copied, Err(DatabaseError::BadCopy { .. })),
        "{copied:?}"
    );
    assert!(!directory.path().join("copy.db").exists());
}

#[tokio::test]
async fn a_copy_is_made_while_others_write_and_overwrites_nothing() {
    let directory = directory();
    let store = SqliteStore::open(directory.path().join("a.db")).expect("opens");
    let writing = {
        let store = store.clone();
        async move {
            for n in 0..200 {
                store
                    .put_record_once(key(&format!("{n:04}")), note("x"))
                    .await
                    .expect("writes");
            }
        }
    };
    let copy = directory.path().join("copy.db");
    let copying = {
        let store = store.clone();
        let copy = copy.clone();
        tokio::task::spawn_blocking(move || store.backup_to(copy))
    };
    let ((), copied) = tokio::join!(writing, copying);
    copied.expect("runs").expect("copies");
    let found = SqliteStore::open(&copy)
        .expect("opens")
        .list_records("", None, usize::MAX)
        .await
        .expect("lists");
    let original = store
        .list_records("", None, usize::MAX)
        .await
        .expect("lists");
    assert_eq!(found[..], original[..found.len()]);
    let again = store.backup_to(&copy);
    assert!(
        matches!(again, Err(DatabaseError::Exists { .. })),
        "{again:?}"
    );
}

#[tokio::test]
async fn a_clock_that_jumps_back_changes_no_order() {
    let directory = directory();
    let store = SqliteStore::open(directory.path().join("a.db")).expect("opens");
    let event = |n: u64, at: i64| {
        let info = std::sync::Arc::new(toolgate_core::TurnInfo::new(session(1), turn_id(1)));
        let event = toolgate_core::TurnEvent::TurnSettled;
        std::sync::Arc::new(
            toolgate_core::Event::for_turn(n, Timestamp::from_micros(at), info, event)
                .expect("valid"),
        )
    };
    let events = vec![event(1, 5_000), event(2, 1_000), event(3, -7)];
    let batch = WriteBatch {
        events: events.clone(),
        ..WriteBatch::default()
    };
    store
        .append(session(1), LogPosition::unleased(0), batch)
        .await
        .expect("appends");
    assert_eq!(
        store.events(session(1), 0, 10).await.expect("reads"),
        events
    );
    let row = store
        .sessions(SessionFilter::default())
        .await
        .expect("lists")
        .remove(0);
    assert_eq!(
        (row.created_at.as_micros(), row.updated_at.as_micros()),
        (5_000, -7)
    );
}

async fn store_fifty_megabytes(store: StoreHandle) {
    const SIZE: usize = 50 << 20;
    let bytes = Bytes::from((0..=250_u8).collect::<Vec<u8>>().repeat(SIZE / 251 + 1)).slice(..SIZE);
    let digest = store.put_blob(bytes.clone()).await.expect("keeps");
    assert_eq!(digest, Digest::of_bytes(&bytes));
    let middle = 30_000_000..30_000_100_u64;
    let part = store.blob(digest, middle.clone()).await.expect("reads");
    assert_eq!(
        part,
        Some(bytes.slice(middle.start as usize..middle.end as usize))
    );
    assert!(store.blob(digest, 0..u64::MAX).await.expect("reads") == Some(bytes));
    let result = note(&"y".repeat(SIZE));
    store
        .put_record_once(key("large"), result.clone())
        .await
        .expect("keeps");
    assert!(store.load_record(&key("large")).await.expect("reads") == Some(result));
}

async fn store_ten_thousand_approvals(store: StoreHandle) {
    for first in (0..10_000_u64).step_by(500) {
        let questions =
            (first..first + 500).map(|n| approval_request(session(1), n + 1, call_id(n.into())));
        let batch = questions.fold(WriteBatch::default(), |mut all, one| {
            all.events.extend(one.events);
            all.records.extend(one.records);
            all
        });
        store
            .append(session(1), LogPosition::unleased(first), batch)
            .await
            .expect("appends");
    }
    let mut filter = ApprovalFilter {
        limit: 3_000,
        ..ApprovalFilter::default()
    };
    let mut found = 0;
    loop {
        let rows = store.approvals(filter.clone()).await.expect("lists");
        found += rows.len();
        let Some(last) = rows.last() else { break };
        filter.after = Some(last.request.approval_id);
    }
    assert_eq!(found, 10_000);
    let one = store
        .approvals(ApprovalFilter::for_call(call_id(9_999)))
        .await
        .expect("finds");
    assert!(matches!(
        store
            .load_record(&toolgate_core::RecordKey::Question(call_id(9_999), 0))
            .await,
        Ok(Some(StoreRecord::Question(_)))
    ));
    assert_eq!(one.len(), 1);
}

#[tokio::test]
async fn sqlite_handles_fifty_megabytes() {
    let directory = directory();
    store_fifty_megabytes(StoreHandle::new(
        SqliteStore::open(directory.path().join("a.db")).expect("opens"),
    ))
    .await;
}

#[tokio::test]
async fn sqlite_handles_ten_thousand_approvals() {
    let directory = directory();
    let store = StoreHandle::new(SqliteStore::open(directory.path().join("a.db")).expect("opens"));
    store_ten_thousand_approvals(store).await;
}

#[cfg(feature = "postgres")]
mod on_postgres {
    use super::*;
    use crate::support::TestDatabase;
    use toolgate_store::PostgresStore;

    #[tokio::test]
    async fn postgres_handles_fifty_megabytes() {
        let Some(database) = TestDatabase::create().await else {
            return;
        };
        store_fifty_megabytes(
            toolgate_store::open_store(&database.url())
                .await
                .expect("opens"),
        )
        .await;
        database.drop().await;
    }

    #[tokio::test]
    async fn postgres_handles_ten_thousand_approvals() {
        let Some(database) = TestDatabase::create().await else {
            return;
        };
        store_ten_thousand_approvals(
            toolgate_store::open_store(&database.url())
                .await
                .expect("opens"),
        )
        .await;
        database.drop().await;
    }

    #[tokio::test]
    async fn a_check_names_the_problems_on_postgres() {
        let Some(database) = TestDatabase::create().await else {
            return;
        };
        let store = PostgresStore::connect(&database.url())
            .await
            .expect("connects");
        let entries = (0..5).map(|n| draft("main", n)).collect();
        let events = (1..=3).map(|n| opened(session(1), n, turn_id(1))).collect();
        let batch = WriteBatch {
            events,
            entries,
            ..WriteBatch::default()
        };
        store
            .append(session(1), LogPosition::unleased(0), batch)
            .await
            .expect("appends");
        store
            .append(
                session(1),
                LogPosition::unleased(3),
                approval_request(session(1), 4, call_id(1)),
            )
            .await
            .expect("appends");
        assert_eq!(store.check().await.expect("checks"), []);
        let damage = "DELETE FROM events WHERE sequence = 2;
                      UPDATE entries SET body = '{\"n\":9}' WHERE counter = 3;
                      DELETE FROM records";
        database.run(damage).await;
        let expected = [
            IntegrityProblem::Log {
                session: session(1),
                revision: 4,
                events: 3,
                last: 4,
            },
            IntegrityProblem::Chain {
                ledger: toolgate_core::LedgerName::main(),
                counter: 3,
            },
            IntegrityProblem::MissingRequest {
                call: call_id(1),
                generation: 0,
            },
        ];
        assert_eq!(store.check().await.expect("checks"), expected);
        database.drop().await;
    }

    #[tokio::test]
    async fn no_error_and_no_debug_text_repeats_the_password() {
        let url = "postgres://ann:hunter2@127.0.0.1:1/agents";
        let error = PostgresStore::connect(url)
            .await
            .expect_err("no server listens there");
        assert!(
            matches!(error, DatabaseError::Unreachable { .. }),
            "{error:?}"
        );
        let source = std::error::Error::source(&error)
            .map(ToString::to_string)
            .unwrap_or_default();
        assert!(!format!("{error} {error:?} {source}").contains("hunter2"));
        let Some(database) = TestDatabase::create().await else {
            return;
        };
        let store = PostgresStore::connect(&database.url())
            .await
            .expect("connects");
        assert!(!format!("{store:?}").contains("toolgate@"));
        let copy = store.backup_to("copy.db").expect_err("cannot be copied");
        assert_eq!(copy.hint(), Some("use pg_dump"));
        database.drop().await;
    }
}
