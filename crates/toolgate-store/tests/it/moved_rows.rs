//! The rows of a file of version 12 are moved to the tables of version 13, and a program that has the
//! file open in one version does not write to the other's tables.

use std::fs;

use toolgate_core::{EventStore, LedgerName, LedgerStore, RecordKey, RecordStore, StoreRecord};
use toolgate_store::SqliteStore;

use crate::{
    migrations::fixture,
    short_texts::turn_of_one_call,
    support::{call_id, key, note, session, turn_id},
};

/// Returns records of every kind, with names that are hard to move: those of the fixture, beside a turn
/// of one call in session 1. They never change, because the fixture never does.
fn records_of_every_kind() -> Vec<(RecordKey, StoreRecord)> {
    let layer = |name: &str| RecordKey::Layer(call_id(2), name.into());
    let keys = [
        RecordKey::Outcome(call_id(2)),
        RecordKey::Requests(turn_id(2)),
        RecordKey::Ended(turn_id(2)),
        RecordKey::Successor(turn_id(2)),
        RecordKey::Question(call_id(2), 0),
        RecordKey::Question(call_id(2), 10),
        RecordKey::Answer(call_id(2), 2),
        RecordKey::Result(call_id(2), 1),
        layer(""),
        layer("a/b"),
        layer("ä\u{10ffff}"),
        layer("a\0b"),
        layer("a\0c"),
        RecordKey::Message(session(2), 12),
        RecordKey::Run(session(2), 12),
        key("outcome/x"),
        key("a\0b"),
    ];
    let record = |key: RecordKey| {
        let text = note(&format!("the record {key:?}"));
        (key, text)
    };
    keys.map(record).into()
}

#[tokio::test]
async fn every_row_of_version_12_is_moved_whole() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("old.sqlite");
    fs::copy(fixture("v12_rows.sqlite"), &path).expect("copies");
    let store = SqliteStore::open(&path).expect("opens");
    assert_eq!(store.check().expect("checks"), []);
    let batch = turn_of_one_call(session(1));
    let events = store.events(session(1), 0, 10).await.expect("reads");
    assert_eq!(events, batch.events);
    for (key, record) in batch.records.iter().chain(&records_of_every_kind()) {
        let found = store.load_record(key).await.expect("reads");
        assert_eq!(found.as_ref(), Some(record), "{key:?}");
    }
    let listed = store.list_records("", None, 100).await.expect("lists");
    let names: Vec<&str> = listed.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["a\0b", "outcome/x", "rule/1"]);
    let entries = store.entries(&LedgerName::main(), 0, 10).await;
    assert!(entries.expect("reads")[0].is_intact());
}

#[tokio::test]
async fn a_program_of_version_12_that_has_the_file_open_finds_no_table_of_records() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("old.sqlite");
    fs::copy(fixture("v12_rows.sqlite"), &path).expect("copies");
    let old = rusqlite::Connection::open(&path).expect("opens");
    let name = RecordKey::Outcome(call_id(1)).to_string();
    let sql = "SELECT count(*) FROM records WHERE key = ?1";
    let count = || old.query_row(sql, [&name], |row| row.get::<_, i64>(0));
    assert_eq!(count().expect("reads"), 1);
    drop(SqliteStore::open(&path).expect("migrates"));
    // An answer of 0 would let it write the outcome again.
    let error = count().expect_err("fails").to_string();
    assert!(error.contains("no such table: records"), "{error}");
}

#[tokio::test]
async fn nothing_is_written_to_a_file_that_a_newer_program_has_migrated() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("new.sqlite");
    let store = SqliteStore::open(&path).expect("opens");
    let written = store.put_record_once(key("before"), note("text")).await;
    assert_eq!(written.expect("writes"), None);
    let newer = rusqlite::Connection::open(&path).expect("opens");
    newer
        .pragma_update(None, "user_version", 99)
        .expect("changes");
    let rejected = store.put_record_once(key("after"), note("text")).await;
    let error = toolgate_core::error_chain(&rejected.expect_err("is newer"));
    assert!(error.contains("99"), "{error}");
    let rows = newer.query_row("SELECT count(*) FROM keyed_records", [], |row| {
        row.get::<_, i64>(0)
    });
    assert_eq!(rows.expect("reads"), 1);
    // The lock is free again.
    newer
        .pragma_update(None, "user_version", 13)
        .expect("changes");
    let written = store.put_record_once(key("after"), note("text")).await;
    assert_eq!(written.expect("writes"), None);
}

#[tokio::test]
async fn a_record_under_the_key_of_an_earlier_version_is_reported() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("mixed.sqlite");
    let store = SqliteStore::open(&path).expect("opens");
    let outcome = RecordKey::Outcome(call_id(1));
    let written = store.put_record_once(outcome.clone(), note("text")).await;
    assert_eq!(written.expect("writes"), None);
    assert_eq!(store.check().expect("checks"), []);
    let connection = rusqlite::Connection::open(&path).expect("opens");
    let changed = connection.execute("UPDATE keyed_records SET key = ?1", [outcome.to_string()]);
    assert_eq!(changed.expect("changes"), 1);
    let problems = store.check().expect("checks");
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].to_string().contains(&outcome.to_string()));
}

#[test]
fn open_turns_are_found_without_reading_settled_ones() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("turns.sqlite");
    drop(SqliteStore::open(&path).expect("opens"));
    let connection = rusqlite::Connection::open(&path).expect("opens");
    let queries = [
        "SELECT 1 FROM turns WHERE session = ?1 AND settled_at IS NULL",
        "SELECT turn, session, opened_at, settled_at FROM turns
         WHERE session = ?1 AND turn > ?2 AND settled_at IS NULL ORDER BY turn LIMIT ?3",
    ];
    for query in queries {
        let mut plan = connection
            .prepare(&format!("EXPLAIN QUERY PLAN {query}"))
            .expect("is valid");
        let count = plan.parameter_count();
        let none = vec![rusqlite::types::Null; count];
        let step = plan.query_row(rusqlite::params_from_iter(none), |row| {
            row.get::<_, String>(3)
        });
        let step = step.expect("a plan");
        assert!(step.contains("turns_open"), "{step}");
    }
}
