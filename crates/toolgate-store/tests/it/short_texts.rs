//! Texts that SQLite stores without what they repeat: every reader gets them whole.

use std::{path::Path, sync::Arc};

use serde_json::json;
use toolgate_core::{
    CatalogueStore, Event, EventStore, LedgerDraft, LedgerName, LedgerStore, LogPosition,
    RecordKey, RecordStore, SessionId, SettledOutcome, StoreError, StoreRecord, Timestamp,
    ToolEvent, TurnEvent, WriteBatch,
};
use toolgate_store::{IntegrityProblem, SqliteStore};

use crate::support::{call_id, key, session, tool_event, turn_event, turn_id};

/// Names with different beginnings, so that each is stored in one piece.
const LAYERS: [&str; 9] = [
    "heron", "stork", "crane", "egret", "plover", "finch", "wren", "owl", "gull",
];

/// A text in which no line is like another.
fn long_result() -> String {
    (0..120_u64)
        .map(|n| format!("{n:03} {:x}; ", n * n * 7_919))
        .collect()
}

fn settled_outcome() -> SettledOutcome {
    let layers: Vec<_> = LAYERS
        .iter()
        .enumerate()
        .map(|(n, name)| {
            json!({
                "name": name, "band": "decide", "status": "ok", "changed": false, "attempt": 1,
                "started_at": format!("2026-11-18T10:00:00.{n:06}Z"), "ended_at": format!("2026-11-18T10:00:01.{n:06}Z"),
            })
        })
        .collect();
    let outcome = json!({
        "status": "ok", "value": long_result(), "attempts": 1,
        "notes": { "summary": "read a file", "layers": layers },
    });
    serde_json::from_value(outcome).expect("an outcome")
}

fn message(session: SessionId, number: u64) -> (RecordKey, StoreRecord) {
    let record = json!({ "message": {
        "turn": turn_id(1), "iteration": 0, "refunds": 0, "run": 0, "cost": "unknown",
        "message": { "role": "tool", "parts": [
            { "type": "result", "content": { "call_id": "c", "tool": "write", "text": long_result() } },
        ] },
    } });
    let record = serde_json::from_value(record).expect("a record");
    (RecordKey::Message(session, number), record)
}

/// The write of a turn of one call: events, outcome, message and receipt.
pub(crate) fn turn_of_one_call(session: SessionId) -> WriteBatch {
    let settled = settled_outcome();
    let call = call_id(1);
    let audit = ToolEvent::ToolCallAudit {
        audit: settled.notes.clone(),
    };
    let end = ToolEvent::from_settled(&settled, true, None, Some(settled.value.clone()));
    let opening = TurnEvent::TurnOpened {
        size: 1,
        after: None,
    };
    let layers = &settled.notes.fields().expect("notes").layers;
    let layers = serde_json::to_string(layers).expect("is JSON");
    WriteBatch {
        events: vec![
            turn_event(session, 1, turn_id(1), opening),
            tool_event(session, 2, call, audit),
            tool_event(session, 3, call, end),
            turn_event(session, 4, turn_id(1), TurnEvent::TurnSettled),
        ],
        records: vec![
            (
                RecordKey::Outcome(call),
                StoreRecord::Outcome(Arc::new(settled)),
            ),
            message(session, 0),
            // Not erased with the session.
            (
                key("rule/1"),
                StoreRecord::Json(toolgate_core::Json::from(long_result().as_str())),
            ),
        ],
        entries: vec![LedgerDraft {
            ledger: LedgerName::main(),
            body: format!(r#"{{"invocation_id":"{call}","layers":{layers}}}"#).into(),
        }],
        ..WriteBatch::default()
    }
}

async fn written_file(path: &Path) -> (SqliteStore, WriteBatch) {
    let store = SqliteStore::open(path).expect("opens");
    let batch = turn_of_one_call(session(1));
    let at = LogPosition::unleased(0);
    store
        .append(session(1), at, batch.clone())
        .await
        .expect("appends");
    (store, batch)
}

fn run_sql(path: &Path, sql: &str) {
    let connection = rusqlite::Connection::open(path).expect("opens");
    connection.execute_batch(sql).expect("runs");
}

fn stored_text(path: &Path, sql: &str) -> String {
    let connection = rusqlite::Connection::open(path).expect("opens");
    connection
        .query_row(sql, [], |row| row.get(0))
        .expect("reads")
}

#[tokio::test]
async fn every_reader_gets_whole_texts() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a.db");
    let (store, batch) = written_file(&path).await;
    for after in 0..4 {
        for limit in 1..=4 {
            let page = store.events(session(1), after, limit).await.expect("reads");
            let expected: Vec<Arc<Event>> = batch.events[after as usize..].to_vec();
            assert_eq!(page, expected[..limit.min(expected.len())]);
        }
    }
    for (key, record) in &batch.records {
        assert_eq!(
            store.load_record(key).await.expect("reads").as_ref(),
            Some(record)
        );
    }
    let messages = store.messages(session(1), 9, 9).await.expect("reads");
    let text = serde_json::to_string(&*messages[0].1).expect("is JSON");
    assert!(text.contains(&long_result()));
    let entries = store
        .entries(&LedgerName::main(), 0, 9)
        .await
        .expect("reads");
    assert!(entries[0].body == batch.entries[0].body && entries[0].is_intact());
    assert_eq!(store.check().expect("checks"), []);
}

#[tokio::test]
async fn the_result_and_the_layers_of_a_call_are_stored_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a.db");
    let _written = written_file(&path).await;
    let count = |word: &str, of: &str| {
        let sql = format!("SELECT cast(count(*) AS TEXT) FROM {of} WHERE body LIKE '%{word}%'");
        stored_text(&path, &sql)
    };
    let line = long_result()[400..440].to_owned();
    // The others are the outcome and the record that stay when events are lost.
    assert_eq!(
        [count(&line, "events"), count(&line, "keyed_records")],
        ["1", "2"]
    );
    assert_eq!(
        [count("plover", "events"), count("plover", "keyed_records")],
        ["1", "1"]
    );
    assert_eq!(count("plover", "entries"), "1");
}

#[tokio::test]
async fn what_stays_when_a_session_is_erased_depends_on_nothing_of_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a.db");
    let (store, batch) = written_file(&path).await;
    store
        .erase_session(session(1), Timestamp::EPOCH)
        .await
        .expect("erases");
    let entries = store
        .entries(&LedgerName::main(), 0, 9)
        .await
        .expect("reads");
    assert!(entries[0].body == batch.entries[0].body && entries[0].is_intact());
    let (rule, record) = &batch.records[2];
    assert_eq!(
        store.load_record(rule).await.expect("reads").as_ref(),
        Some(record)
    );
    assert_eq!(store.check().expect("checks"), []);
}

#[tokio::test]
async fn a_record_whose_event_is_lost_is_damaged_and_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a.db");
    let (store, batch) = written_file(&path).await;
    run_sql(&path, "DELETE FROM events WHERE sequence = 3");
    let (outcome, _) = &batch.records[1];
    let error = store.load_record(outcome).await.expect_err("damaged");
    assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
    let problems = store.check().expect("checks");
    let names = |problem: &IntegrityProblem| problem.to_string().contains(&outcome.to_string());
    assert!(problems.iter().any(names), "{problems:?}");
}

#[tokio::test]
async fn a_changed_entry_is_found_even_if_it_cannot_be_completed() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a.db");
    let (store, _) = written_file(&path).await;
    let stored = stored_text(&path, "SELECT body FROM entries");
    assert!(stored.starts_with('~'), "{stored}");
    let broken = |body: &str| format!("UPDATE entries SET body = {body}");
    for body in [
        "replace(body, 'plover', 'clover')",
        "'~' || char(2) || 'PP'",
        "'~'",
    ] {
        run_sql(&path, &broken(body));
        let entries = store
            .entries(&LedgerName::main(), 0, 9)
            .await
            .expect("reads");
        assert!(!entries[0].is_intact(), "{body}");
        assert!(!store.check().expect("checks").is_empty(), "{body}");
    }
}

#[tokio::test]
async fn bodies_that_schema_version_10_shortened_are_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a.db");
    let (store, batch) = written_file(&path).await;
    let bodies: Vec<String> = batch
        .events
        .iter()
        .map(|event| serde_json::to_string(&**event).expect("is JSON"))
        .collect();
    let shared = |a: &str, b: &str| a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    let connection = rusqlite::Connection::open(&path).expect("opens");
    for (at, body) in bodies.iter().enumerate() {
        let stored = match at {
            0 => body.clone(),
            _ => {
                let like = &bodies[at - 1];
                let shared = shared(like, body);
                format!("^{at},{shared},{}", &body[shared..])
            }
        };
        let sql = "UPDATE events SET body = ?1, checksum = NULL WHERE sequence = ?2";
        connection
            .execute(sql, (stored, at as i64 + 1))
            .expect("runs");
    }
    for after in 0..4 {
        let page = store.events(session(1), after, 9).await.expect("reads");
        assert_eq!(page, batch.events[after as usize..]);
    }
}
