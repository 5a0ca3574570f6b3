//! The story as real processes, also with some of them killed.
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

/// What a command says when it succeeds.
fn said(dir: &Path, words: &[&str]) -> String {
    let output = run(dir, words);
    assert!(
        output.status.success(),
        "{words:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("text")
}

fn approval(dir: &Path) -> String {
    let pending = said(dir, &["pending"]);
    pending
        .split_whitespace()
        .find(|word| word.starts_with("approval_"))
        .expect("something waits")
        .to_owned()
}

fn sent(dir: &Path) -> Vec<String> {
    let outbox = std::fs::read_to_string(dir.join("outbox.txt")).unwrap_or_default();
    outbox.lines().map(str::to_owned).collect()
}

/// The statuses in the order in which they are printed.
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
    assert_eq!(statuses(&said(dir, &["create"])), ["ok", "waiting", "ok"]);
    let approval = approval(dir);
    assert!(said(dir, &["show", &approval]).contains("900"));
    assert!(sent(dir).is_empty());
    said(dir, &["decide", &approval, "edit", EDIT]);
    let resumed = said(dir, &["resume"]);
    assert_eq!(statuses(&resumed), ["ok", "ok", "ok"]);
    assert!(
        resumed
            .lines()
            .nth(1)
            .expect("three calls")
            .contains("90 euros to Ada")
    );
    assert_eq!(sent(dir), ["90 euros to Ada"]);
    assert!(said(dir, &["resume"]).contains("nothing is left"));
    assert!(said(dir, &["pending"]).contains("nothing waits"));
    assert_eq!(sent(dir).len(), 1);
    assert!(said(dir, &["verify"]).starts_with("3 receipts"));
    let receipts = said(dir, &["export"]);
    assert_eq!(
        receipts
            .lines()
            .filter(|line| line.contains("send_invoice"))
            .count(),
        1
    );
}

#[test]
fn what_is_denied_is_never_sent_and_cannot_be_approved_afterwards() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    said(dir, &["create"]);
    let approval = approval(dir);
    said(dir, &["decide", &approval, "deny", "too", "much"]);
    let again = run(dir, &["decide", &approval, "approve"]);
    assert!(!again.status.success());
    let resumed = said(dir, &["resume"]);
    assert_eq!(statuses(&resumed), ["ok", "consent_denied", "ok"]);
    assert!(resumed.contains("Tool execution denied: too much"));
    assert!(sent(dir).is_empty());
}

#[test]
fn arguments_that_the_tool_does_not_take_are_not_run_whoever_wrote_them() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    said(dir, &["create"]);
    said(
        dir,
        &[
            "decide",
            &approval(dir),
            "edit",
            r#"{"customer":"Ada","amount":"plenty"}"#,
        ],
    );
    assert_eq!(
        statuses(&said(dir, &["resume"])),
        ["ok", "schema_violation", "ok"]
    );
    assert!(sent(dir).is_empty());
}

#[test]
fn a_killed_step_can_be_taken_again_and_nothing_is_sent_twice() {
    for millis in [0, 2, 4, 8, 12, 16, 24, 32] {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path();
        said(dir, &["create"]);
        let approval = approval(dir);
        kill_after(command(dir, &["decide", &approval, "edit", EDIT]), millis);
        // Refused if the killed one got that far.
        run(dir, &["decide", &approval, "edit", EDIT]);
        kill_after(command(dir, &["resume"]), millis);
        let resumed = said(dir, &["resume"]);
        let sent = sent(dir);
        match statuses(&resumed).get(1).copied() {
            // The killed process had finished.
            None | Some("ok") => assert_eq!(sent, ["90 euros to Ada"]),
            Some(status) => {
                assert_eq!(status, "outcome_unknown", "after {millis} ms:\n{resumed}");
                assert!(sent.len() <= 1);
            }
        }
        assert!(
            said(dir, &["verify"]).starts_with("3 receipts"),
            "after {millis} ms"
        );
    }
}

/// Kills a process that runs for some time; the time only varies where it is hit.
fn kill_after(mut command: Command, millis: u64) {
    let mut child = command.spawn().expect("the example can be started");
    std::thread::sleep(Duration::from_millis(millis));
    let _ = child.kill();
    child.wait().expect("a child can be waited for");
}

#[test]
fn a_copy_of_the_database_is_whole_and_a_changed_receipt_in_it_is_named() {
    let (dir, other) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let (dir, copy) = (dir.path(), other.path().join("toolgate.db"));
    said(dir, &["create"]);
    said(dir, &["decide", &approval(dir), "approve"]);
    said(dir, &["resume"]);
    said(
        dir,
        &["backup", copy.to_str().expect("a path that is text")],
    );
    assert!(said(other.path(), &["check"]).contains("is whole"));
    assert!(said(other.path(), &["verify"]).starts_with("3 receipts"));
    assert!(
        !run(dir, &["backup", copy.to_str().expect("text")])
            .status
            .success(),
        "nothing is overwritten"
    );
    let (mut bytes, wanted) = (
        std::fs::read(&copy).expect("reads"),
        br#""tool_name":"send_invoice","turn_id""#,
    );
    let places: Vec<usize> = (0..bytes.len() - wanted.len())
        .filter(|at| bytes[*at..].starts_with(wanted))
        .collect();
    assert!(!places.is_empty(), "the receipt is in the file");
    places.iter().for_each(|at| bytes[at + 13] ^= 1);
    std::fs::write(&copy, bytes).expect("writes");
    let verified = run(other.path(), &["verify"]);
    let error = String::from_utf8_lossy(&verified.stderr).into_owned();
    assert!(
        !verified.status.success() && error.contains("record"),
        "{error}"
    );
}
