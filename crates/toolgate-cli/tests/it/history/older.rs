//! A database of the version before the names changed opens, resumes and verifies.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::history::HistoryPlace;

/// The session that was resumed after a late decision.
const RESUMED: &str = "10c4bbc9";
/// The session that waits for an approval.
const PENDING: &str = "bcd00dfe";

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("the fixture") {
        let entry = entry.expect("an entry");
        fs::copy(entry.path(), to.join(entry.file_name())).expect("a copy");
    }
}

/// A copy of the home and the workspace of the older version.
fn older_place() -> HistoryPlace {
    let place = HistoryPlace::new();
    let fixture = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/first-names");
    let home = place.dir.path().join("home");
    copy_folder(&fixture.join("home"), &home);
    copy_folder(&fixture.join("work"), &place.work());
    // Version control keeps no modes, and keys that others can read are rejected.
    fs::set_permissions(home.join("keys"), fs::Permissions::from_mode(0o600)).expect("a mode");
    move_workspace(&home.join("toolgate.db"), &place.work());
    place
}

/// Lets the sessions of a database work in another directory than the one they were started in.
fn move_workspace(database: &Path, workspace: &Path) {
    let connection = rusqlite::Connection::open(database).expect("a database");
    let workspace = fs::canonicalize(workspace).expect("a directory");
    let body = json!({ "json": { "workspace": workspace } }).to_string();
    let moved = connection.execute(
        "UPDATE records SET body = ?1 WHERE key LIKE 'other/workspace-of/%'",
        [body],
    );
    assert_eq!(moved.expect("an update"), 3);
}

#[test]
fn events_with_their_former_names_are_read_and_shown_with_the_new_ones() {
    let place = older_place();
    assert_eq!(place.json(&["sessions", "list"]).len(), 3);
    let events = place.json(&["sessions", "show", RESUMED]);
    let types: Vec<&str> = events
        .iter()
        .filter_map(|event| event["type"].as_str())
        .collect();
    assert!(types.contains(&"input_rejected"), "{types:?}");
    assert!(!types.contains(&"post_refused"), "{types:?}");
    let rejected = events
        .iter()
        .find(|event| event["type"] == "input_rejected")
        .expect("the late decision");
    assert_eq!(rejected["what"], "decision");
    assert_eq!(rejected["code"], "duplicate");
}

#[test]
fn a_call_that_was_pending_before_requests_were_sealed_is_asked_about_again() {
    let place = older_place();
    let pending = place.json(&["approvals", "list"]);
    let [approval] = &pending[..] else {
        panic!("one approval is pending: {pending:?}");
    };
    // Without a seal it cannot be known whether the request was changed in the store.
    let id = approval["approval_id"].as_str().expect("an id");
    let approved = place.ends(1, &["approvals", "approve", id]);
    assert!(approved.err.contains("has no seal"), "{approved:?}");
    assert!(
        approved.err.contains("toolgate run --resume"),
        "{approved:?}"
    );
    // Resumed, the call is asked about again, with a request that has a seal.
    let report = resume_the_session(&place, 3);
    assert_eq!(report["end"], "suspended");
    assert!(!place.work().join("second.txt").exists());
    let asked = place.json(&["approvals", "list"]);
    assert_eq!(asked[0]["request"]["generation"], 1, "{asked:?}");
    assert_eq!(asked[0]["request"]["changed"][0]["what"], "unsealed");
    place.ends(0, &["approvals", "approve", id]);
    let report = resume_the_session(&place, 0);
    assert_eq!(report["end"], "completed");
    assert!(place.work().join("second.txt").exists());
    assert!(place.json(&["approvals", "list"]).is_empty());
}

/// Resumes the session, which has to end with this exit code, and returns the report of the run.
fn resume_the_session(place: &HistoryPlace, code: i32) -> Value {
    let model = "script:model.toml";
    let resume = ["--json", "run", "--resume", PENDING, "--model", model];
    let said = place.ends(code, &resume);
    let report = said.out.lines().last().expect("a report");
    serde_json::from_str(report).expect("JSON")
}

#[test]
fn receipts_that_were_sealed_before_the_names_changed_verify_over_their_stored_text() {
    let place = older_place();
    let verified = place.json(&["receipts", "verify"]);
    assert_eq!(verified[0]["intact"], true);
    assert_eq!(verified[0]["receipts"], 5);
    assert_eq!(verified[0]["signed"], 5);
}
