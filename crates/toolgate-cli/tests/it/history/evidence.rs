//! Evidence cannot be switched off: what is removed from the database is noticed.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, params};
use serde_json::Value;
use toolgate::ledger::{Checkpoint, LedgerHead, LedgerKey, LedgerName};

use super::HistoryPlace;
use crate::account_name;

/// Creates a place with the signed receipts of three calls.
fn three_calls() -> HistoryPlace {
    let place = HistoryPlace::new();
    for name in ["a.txt", "b.txt", "c.txt"] {
        place.write(name, "x");
    }
    place.ends(0, &["receipts", "verify"]);
    place
}

/// Changes the database as an attacker with write access can.
fn change_database(place: &HistoryPlace, sql: &str) {
    let database = Connection::open(place.database()).expect("opens");
    database.execute_batch(sql).expect("changes");
}

fn verify_json(place: &HistoryPlace, code: i32) -> Value {
    let said = place.ends(code, &["--json", "receipts", "verify"]).out;
    serde_json::from_str(said.trim()).expect("JSON")
}

/// Stores a checkpoint by a key that is not ours.
fn store_foreign_checkpoint(place: &HistoryPlace, head: LedgerHead, name: &str) {
    let key = LedgerKey::from_bytes(&[9; 32]);
    let checkpoint = Checkpoint::sign(&head, toolgate::value::Timestamp::EPOCH, &key);
    let database = Connection::open(place.database()).expect("opens");
    let stored: String = database
        .query_row(
            "SELECT body FROM keyed_records WHERE key LIKE '%checkpoint/main/%' LIMIT 1",
            [],
            |row| row.get(0),
        )
        .expect("there is one");
    // The form of a record, with the foreign checkpoint in the place of ours.
    let ours = stored.find(r#"{"at""#).expect("a checkpoint");
    let end = stored[ours..].find('}').expect("its end") + ours + 1;
    let body = [&stored[..ours], &checkpoint.to_text(), &stored[end..]].concat();
    let key: String = database
        .query_row(
            "SELECT key FROM keyed_records WHERE key LIKE '%checkpoint/main/%' LIMIT 1",
            [],
            |row| row.get(0),
        )
        .expect("there is one");
    let prefix = &key[..key.rfind('/').expect("a number") + 1];
    let place = format!("{prefix}{name}");
    database
        .execute(
            "INSERT OR REPLACE INTO keyed_records (key, body) VALUES (?1, ?2)",
            params![place, body],
        )
        .expect("stored");
}

#[test]
fn a_foreign_checkpoint_never_keeps_our_own_from_being_verified() {
    let start = LedgerHead::start_of(LedgerName::main());
    let some = start.seal_entry("{}".into()).head();
    for (head, number) in [
        (start.clone(), 0),
        (some.clone(), 1),
        (
            LedgerHead {
                counter: 2,
                ..some.clone()
            },
            2,
        ),
        (
            LedgerHead {
                counter: 4,
                ..some.clone()
            },
            4,
        ),
        (
            LedgerHead {
                counter: 9_999,
                ..some
            },
            9_999,
        ),
    ] {
        let place = three_calls();
        let name = format!("{number:020}");
        // Record 1 and 2 have a checkpoint of ours, which stays: the foreign one is beside it.
        let name = match number {
            1 | 2 => format!("{name}/{}", LedgerKey::from_bytes(&[9; 32]).id()),
            _ => name,
        };
        store_foreign_checkpoint(&place, head, &name);
        let said = verify_json(&place, 0);
        assert_eq!(said["signed"], 3, "{said}");
        let listed = said["not_checked"].to_string();
        assert!(
            listed.contains(&format!("record {number} has the unknown key")),
            "{said}"
        );
        // Our checkpoints confirm it by themselves, also where no head is remembered.
        fs::remove_file(place.dir.path().join("home/ledger-heads.json")).expect("there was one");
        let said = verify_json(&place, 0);
        assert_eq!(said["signed"], 3, "{said}");
        // Without the foreign one this was noticed, so it is with it.
        change_database(
            &place,
            "DELETE FROM entries WHERE counter = 3; UPDATE ledgers SET counter = 2, \
             hash = (SELECT hash FROM entries WHERE counter = 2)",
        );
        place.ends(7, &["receipts", "verify"]);
    }
}

#[test]
fn an_emptied_or_truncated_ledger_is_not_intact() {
    let rewind =
        "UPDATE ledgers SET counter = 2, hash = (SELECT hash FROM entries WHERE counter = 2)";
    let no_checkpoints = "DELETE FROM keyed_records WHERE key LIKE '%checkpoint/%'";
    let no_id = "DELETE FROM keyed_records WHERE key LIKE '%ledger-id/%'";
    for sql in [
        "DELETE FROM entries".to_owned(),
        "DELETE FROM entries; DELETE FROM ledgers".to_owned(),
        format!("DELETE FROM entries; DELETE FROM ledgers; {no_checkpoints}"),
        format!("DELETE FROM entries; DELETE FROM ledgers; {no_checkpoints}; {no_id}"),
        "DELETE FROM entries; DELETE FROM ledgers; DELETE FROM keyed_records".to_owned(),
        "DELETE FROM entries WHERE counter = 3".to_owned(),
        format!("DELETE FROM entries WHERE counter = 3; {rewind}"),
        format!("DELETE FROM entries WHERE counter = 3; {rewind}; {no_checkpoints}"),
        format!("DELETE FROM entries WHERE counter = 3; {rewind}; {no_checkpoints}; {no_id}"),
    ] {
        let place = three_calls();
        change_database(&place, &sql);
        place.ends(7, &["receipts", "verify"]);
        // Later calls do not hide it, and `run` and `tools call` say so.
        let call = place.run(&["tools", "call", "read_file", "path=a.txt"]);
        let gap = sql == "DELETE FROM entries" || sql.ends_with("counter = 3");
        if !gap {
            assert!(
                call.err.contains("verification of receipts failed"),
                "{sql}: {call:?}"
            );
        }
        place.ends(7, &["receipts", "verify"]);
        // Even without what this machine remembers, the outcomes tell.
        let _ = fs::remove_file(place.dir.path().join("home/ledger-heads.json"));
        place.ends(7, &["receipts", "verify"]);
    }
}

#[test]
fn missing_and_excess_receipts_are_named() {
    let place = three_calls();
    let receipts = place.json(&["receipts", "list"]);
    let call = |at: usize| {
        let id = &receipts[at]["receipt"]["invocation_id"];
        id.as_str().expect("an id").to_owned()
    };
    let forget = || fs::remove_file(place.dir.path().join("home/ledger-heads.json"));
    forget().expect("there was one");
    change_database(
        &place,
        "DELETE FROM entries WHERE counter > 1; DELETE FROM keyed_records WHERE key LIKE '%checkpoint/%'; \
         UPDATE ledgers SET counter = 1, hash = (SELECT hash FROM entries WHERE counter = 1)",
    );
    let said = verify_json(&place, 7);
    let mut missing: Vec<&str> = said["missing"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|missing| missing["call"].as_str())
        .collect();
    missing.sort_unstable();
    let mut expected = [call(1), call(2)];
    expected.sort_unstable();
    assert_eq!(missing, expected);
    assert_eq!(
        (&said["intact"], &said["matched"]),
        (&false.into(), &1.into())
    );
    let told = place.ends(7, &["receipts", "verify"]);
    for id in expected {
        assert!(told.out.contains(&id), "{told:?}");
    }
    // A receipt whose session has no such call is in excess; one without a session was erased.
    let place = three_calls();
    change_database(
        &place,
        "DELETE FROM events WHERE session = (SELECT min(all_events.session) FROM events AS all_events) \
         AND sequence > 1",
    );
    let said = verify_json(&place, 0);
    assert_eq!(said["matched"], 3, "the outcome is still there: {said}");
    change_database(
        &place,
        "DELETE FROM keyed_records WHERE substr(key, 17, 1) = x'01'",
    );
    let said = verify_json(&place, 7);
    assert_eq!(
        said["excess"].as_array().expect("a list").len(),
        1,
        "{said}"
    );
}

#[test]
fn a_restored_backup_exits_with_7_until_it_is_accepted() {
    let place = HistoryPlace::new();
    place.write("a.txt", "x");
    let backup = place.dir.path().join("backup.db");
    fs::copy(place.database(), &backup).expect("copied");
    place.write("b.txt", "x");
    place.write("c.txt", "x");
    let nothing = place.ends(0, &["receipts", "accept-restore"]);
    assert!(nothing.err.contains("nothing is lost"), "{nothing:?}");
    fs::copy(&backup, place.database()).expect("restored");
    let said = place.ends(7, &["receipts", "verify"]);
    assert!(
        said.err.contains("accept-restore") && said.err.contains("record 3"),
        "{said:?}"
    );
    place.ends(7, &["receipts", "verify"]);
    let asked = place.ends(2, &["receipts", "accept-restore"]);
    assert!(
        asked.out.contains("2 calls at least") && asked.err.contains("--yes"),
        "{asked:?}"
    );
    place.ends(7, &["receipts", "verify"]);
    let accepted = place.json(&["receipts", "accept-restore", "--yes"]);
    assert_eq!(accepted[0]["accepted"], true);
    assert_eq!(
        accepted[0]["restore"]["accepted"]["by"],
        account_name().as_str()
    );
    let said = place.ends(0, &["receipts", "verify"]);
    assert!(said.err.contains("a loss was accepted by"), "{said:?}");
    assert_eq!(verify_json(&place, 0)["restores"][0]["lost"]["counter"], 3);
}

/// Puts the database `other` in the place of the signed one; nothing of the signed one remains.
fn replace_database(place: &HistoryPlace, other: Option<&Path>) {
    for suffix in ["", "-wal", "-shm"] {
        let file = |path: &Path| PathBuf::from(format!("{}{suffix}", path.display()));
        let _ = fs::remove_file(file(&place.database()));
        if let Some(from) = other.map(file).filter(|from| from.exists()) {
            fs::copy(from, file(&place.database())).expect("copied");
        }
    }
}

#[test]
fn another_database_in_the_place_of_the_signed_one_exits_with_7_until_it_is_accepted() {
    let write = |place: &HistoryPlace, db: &str, name: &str| {
        let path = format!("path={name}");
        let call = [
            "--db",
            db,
            "tools",
            "call",
            "write_file",
            &path,
            "content=x",
        ];
        place.ends(0, &[&call[..], &["--approve", "yes"]].concat());
    };
    // How many calls the other database has: none, fewer than the signed one, as many, more.
    for calls in [0, 1, 3, 5] {
        let place = three_calls();
        replace_database(&place, None);
        for call in 0..calls {
            let name = format!("new{call}.txt");
            // The call is made: what it lacks is only the evidence of those before.
            let said = place.run(&[
                "tools",
                "call",
                "write_file",
                &format!("path={name}"),
                "content=x",
                "--approve",
                "yes",
            ]);
            assert!(
                said.err.contains("verification of receipts failed"),
                "{said:?}"
            );
            assert_eq!(place.read(&name).as_deref(), Some("x"), "{said:?}");
        }
        accepts_the_replaced_database(&place, calls);
    }
    // One that the same keys have signed in another place, with more calls than the lost one.
    let place = three_calls();
    let other = place.dir.path().join("home/other.db");
    for name in ["d.txt", "e.txt", "f.txt", "g.txt"] {
        write(&place, other.to_str().expect("text"), name);
    }
    replace_database(&place, Some(&other));
    let db = other.to_str().expect("text");
    place.ends(0, &["--db", db, "receipts", "verify"]);
    accepts_the_replaced_database(&place, 4);
    // One of another user, with other keys: its own checkpoints do not count here.
    let place = three_calls();
    let stranger = three_calls();
    replace_database(&place, Some(&stranger.database()));
    accepts_the_replaced_database(&place, 3);
    stranger.ends(0, &["receipts", "verify"]);
}

/// Checks that the signed database with three calls counts as lost, until a person accepts that.
fn accepts_the_replaced_database(place: &HistoryPlace, calls: usize) {
    let said = place.ends(7, &["receipts", "verify"]);
    assert!(
        said.err.contains("record 3") && said.err.contains("accept-restore"),
        "{calls}: {said:?}"
    );
    let asked = place.ends(2, &["receipts", "accept-restore"]);
    assert!(asked.err.contains("--yes"), "{calls}: {asked:?}");
    place.ends(7, &["receipts", "verify"]);
    let accepted = place.json(&["receipts", "accept-restore", "--yes"]);
    assert_eq!(accepted[0]["accepted"], true, "{calls}");
    assert_eq!(accepted[0]["restore"]["lost"]["counter"], 3, "{calls}");
    assert_eq!(accepted[0]["restore"]["kept"]["counter"], calls, "{calls}");
    let said = place.run(&["receipts", "verify"]);
    assert!(said.code != 7, "{calls}: {said:?}");
    // The next call is signed, and everything verifies.
    place.write("after.txt", "x");
    let said = verify_json(place, 0);
    assert_eq!(said["signed"], calls + 1, "{said}");
    assert_eq!(said["restores"][0]["lost"]["counter"], 3, "{said}");
}

#[test]
fn an_unsigned_chain_has_an_exit_code_of_its_own() {
    let place = three_calls();
    fs::remove_file(place.dir.path().join("home/ledger-heads.json")).expect("there was one");
    change_database(&place, "DELETE FROM keyed_records WHERE key LIKE '%checkpoint/%'");
    let said = place.ends(8, &["receipts", "verify"]);
    assert!(
        said.out.starts_with("consistent, but unsigned: 3 receipts"),
        "{said:?}"
    );
    assert!(
        said.err.contains("not checked: records from 1 on"),
        "{said:?}"
    );
    place.ends(0, &["receipts", "export", "all.jsonl"]);
    place.ends(8, &["receipts", "verify", "all.jsonl"]);
    // The next command that makes a call signs.
    place.ends(0, &["tools", "call", "read_file", "path=a.txt"]);
    place.ends(0, &["receipts", "verify"]);
}

#[test]
fn the_remembered_heads_are_private_and_a_damaged_file_fails_closed() {
    use std::os::unix::fs::PermissionsExt;
    let place = three_calls();
    let heads = place.dir.path().join("home/ledger-heads.json");
    let mode = fs::metadata(&heads).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let good = fs::read(&heads).expect("reads");
    for damaged in [
        &b""[..],
        b"{}",
        b"[]",
        &good[..good.len() / 2],
        b"{\"ledgers\":[{}]}",
    ] {
        fs::write(&heads, damaged).expect("writes");
        let said = place.run(&["receipts", "verify"]);
        assert_ne!(said.code, 0, "{said:?}");
        assert!(said.err.contains("ledger-heads.json"), "{said:?}");
    }
    fs::write(&heads, &good).expect("writes");
    place.ends(0, &["receipts", "verify"]);
}

#[test]
fn a_run_whose_receipts_cannot_be_signed_is_done_and_says_so() {
    use std::os::unix::fs::PermissionsExt;
    let place = three_calls();
    let heads = place.dir.path().join("home/ledger-heads.json");
    fs::set_permissions(&heads, fs::Permissions::from_mode(0o644)).expect("changed");
    let script = "[[reply]]\ntext = \"Hello.\"\n";
    fs::write(place.work().join("model.toml"), script).expect("writes");
    let run = ["run", "say hello", "--model", "script:model.toml"];
    let said = place.ends(8, &run);
    assert!(said.out.contains("Hello."), "{said:?}");
    assert!(
        said.err.contains("NOT SIGNED") && said.err.contains("ledger-heads.json"),
        "{said:?}"
    );
    let said = place.ends(8, &[&["--json"], &run[..]].concat());
    assert!(said.out.contains("\"completed\""), "{said:?}");
    assert!(said.err.contains("ledger-heads.json"), "{said:?}");
    fs::set_permissions(&heads, fs::Permissions::from_mode(0o600)).expect("changed");
    place.ends(0, &run);
}
