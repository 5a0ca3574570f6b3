//! Tests of all steps as real processes, also with some of them killed.
#![allow(missing_docs, reason = "a test has no public items")]

use std::{
    path::Path,
    process::{Command, Output},
    time::Duration,
};

fn command(dir: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_approve-and-resume"));
    command.arg("--dir").arg(dir).args(words).env("USER", "ann");
    command
}

fn run(dir: &Path, words: &[&str]) -> Output {
    command(dir, words)
        .output()
        .expect("the example can be started")
}

/// Runs a command that must succeed, and returns its output.
fn run_ok(dir: &Path, words: &[&str]) -> String {
    let output = run(dir, words);
    assert!(
        output.status.success(),
        "{words:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("text")
}

fn pending_approval(dir: &Path) -> String {
    let pending = run_ok(dir, &["pending"]);
    pending
        .split_whitespace()
        .find(|word| word.starts_with("approval_"))
        .expect("a pending approval request")
        .to_owned()
}

fn sent_lines(dir: &Path) -> Vec<String> {
    let outbox = std::fs::read_to_string(dir.join("outbox.txt")).unwrap_or_default();
    outbox.lines().map(str::to_owned).collect()
}

/// Returns the statuses in the order in which they are printed.
fn statuses(report: &str) -> Vec<&str> {
    report
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .collect()
}

const EDIT: &str = r#"{"customer":"Ada","amount":90}"#;

#[test]
fn the_second_of_three_calls_outlives_its_process_and_runs_once_as_it_was_edited() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    assert_eq!(statuses(&run_ok(dir, &["create"])), ["ok", "waiting", "ok"]);
    let approval = pending_approval(dir);
    assert!(run_ok(dir, &["show", &approval]).contains("900"));
    assert!(sent_lines(dir).is_empty());
    run_ok(dir, &["decide", &approval, "edit", EDIT]);
    let resumed = run_ok(dir, &["resume"]);
    assert_eq!(statuses(&resumed), ["ok", "ok", "ok"]);
    assert!(
        resumed
            .lines()
            .nth(1)
            .expect("three calls")
            .contains("90 euros to Ada")
    );
    assert_eq!(sent_lines(dir), ["90 euros to Ada"]);
    assert!(run_ok(dir, &["resume"]).contains("no turn is left"));
    assert!(run_ok(dir, &["pending"]).contains("no approval request is pending"));
    assert_eq!(sent_lines(dir).len(), 1);
    assert!(run_ok(dir, &["verify"]).starts_with("3 receipts"));
    let receipts = run_ok(dir, &["export"]);
    assert_eq!(
        receipts
            .lines()
            .filter(|line| line.contains("send_invoice"))
            .count(),
        1
    );
}

#[test]
fn a_denied_call_is_never_sent_and_cannot_be_approved_afterwards() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    run_ok(dir, &["create"]);
    let approval = pending_approval(dir);
    run_ok(dir, &["decide", &approval, "deny", "too", "much"]);
    let again = run(dir, &["decide", &approval, "approve"]);
    assert!(!again.status.success());
    let resumed = run_ok(dir, &["resume"]);
    assert_eq!(statuses(&resumed), ["ok", "consent_denied", "ok"]);
    assert!(resumed.contains("Tool execution denied: too much"));
    assert!(sent_lines(dir).is_empty());
}

#[test]
fn edited_arguments_that_violate_the_schema_are_not_run() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    run_ok(dir, &["create"]);
    run_ok(
        dir,
        &[
            "decide",
            &pending_approval(dir),
            "edit",
            r#"{"customer":"Ada","amount":"plenty"}"#,
        ],
    );
    assert_eq!(
        statuses(&run_ok(dir, &["resume"])),
        ["ok", "schema_violation", "ok"]
    );
    assert!(sent_lines(dir).is_empty());
}

#[test]
fn a_killed_step_can_be_repeated_and_nothing_is_sent_twice() {
    for millis in [0, 2, 4, 8, 12, 16, 24, 32] {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path();
        run_ok(dir, &["create"]);
        let approval = pending_approval(dir);
        kill_after(command(dir, &["decide", &approval, "edit", EDIT]), millis);
        // Rejected if the killed process had stored its decision.
        run(dir, &["decide", &approval, "edit", EDIT]);
        kill_after(command(dir, &["resume"]), millis);
        let resumed = run_ok(dir, &["resume"]);
        let sent = sent_lines(dir);
        match statuses(&resumed).get(1).copied() {
            // The killed process had finished.
            None | Some("ok") => assert_eq!(sent, ["90 euros to Ada"]),
            Some(status) => {
                assert_eq!(status, "outcome_unknown", "after {millis} ms:\n{resumed}");
                assert!(sent.len() <= 1);
            }
        }
        assert!(
            run_ok(dir, &["verify"]).starts_with("3 receipts"),
            "after {millis} ms"
        );
    }
}

/// Kills a process after some time; the time only varies the point at which it is killed.
fn kill_after(mut command: Command, millis: u64) {
    let mut child = command.spawn().expect("the example can be started");
    std::thread::sleep(Duration::from_millis(millis));
    let _ = child.kill();
    child.wait().expect("a child can be waited for");
}

#[test]
fn a_copy_of_the_database_is_intact_and_a_changed_receipt_in_it_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let other = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let copy = other.path().join("toolgate.db");
    run_ok(dir, &["create"]);
    run_ok(dir, &["decide", &pending_approval(dir), "approve"]);
    run_ok(dir, &["resume"]);
    run_ok(
        dir,
        &["backup", copy.to_str().expect("a path that is text")],
    );
    assert!(run_ok(other.path(), &["check"]).contains("is intact"));
    assert!(run_ok(other.path(), &["verify"]).starts_with("3 receipts"));
    assert!(
        !run(dir, &["backup", copy.to_str().expect("text")])
            .status
            .success(),
        "nothing is overwritten"
    );
    let mut bytes = std::fs::read(&copy).expect("reads");
    // A stored text refers to what it repeats, but the name of the tool is in each receipt.
    let wanted = b"send_invoice";
    let places: Vec<usize> = (0..bytes.len() - wanted.len())
        .filter(|at| bytes[*at..].starts_with(wanted))
        .collect();
    assert!(!places.is_empty(), "the receipt is in the file");
    places.iter().for_each(|at| bytes[*at] ^= 1);
    std::fs::write(&copy, bytes).expect("writes");
    let verified = run(other.path(), &["verify"]);
    let error = String::from_utf8_lossy(&verified.stderr).into_owned();
    assert!(
        !verified.status.success() && error.contains("record"),
        "{error}"
    );
}
