//! Tests of recovery after a crash, and of calls that are stopped.

use std::time::Duration;

use serde_json::json;
use toolgate_core::{
    CallId, Executor, IdempotencyKey, Outcome, ReconciledAttempt, Status, StoreError,
};
use toolgate_testkit::{FaultyStore, StoreCall, StoreFault};

use crate::files::common::TestSpace;

async fn reconcile_call(space: &TestSpace, tool: &str, call: CallId) -> ReconciledAttempt {
    let asked = space.new_call(
        tool,
        json!({ "path": "x", "content": "", "patch": "", "edits": [], "call": "" }),
    );
    let entry = space.registry.get(tool).expect("registered");
    assert!(entry.spec.annotations.reconcile);
    Executor::reconcile(&space.registry, &asked, IdempotencyKey::for_call(call)).await
}

const PATCH: &str = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+1\n--- a/b.txt\n+++ b/b.txt\n@@ -1 +1 @@\n-one\n+1\n";

#[tokio::test]
async fn the_files_show_whether_a_lost_call_took_effect() {
    let space = TestSpace::new();
    let put = |a: &str, b: &str| {
        space.write_file("a.txt", a);
        space.write_file("b.txt", b);
    };
    put("one\n", "one\n");
    let call = space.new_call("apply_patch", json!({ "patch": PATCH }));
    let id = call.id;
    assert!(
        matches!(
            reconcile_call(&space, "apply_patch", id).await,
            ReconciledAttempt::DidNotHappen
        ),
        "nothing was stored"
    );
    let settled = space.run_call(call).await;
    assert_eq!(settled.status, Status::Ok);
    let ReconciledAttempt::Happened(output) = reconcile_call(&space, "apply_patch", id).await
    else {
        panic!("it happened")
    };
    let again = Outcome::ok(output);
    assert_eq!(
        again.settled().expect("settled").value,
        settled.value,
        "the same result as the call itself returned"
    );
    put("one\n", "one\n");
    assert!(matches!(
        reconcile_call(&space, "apply_patch", id).await,
        ReconciledAttempt::DidNotHappen
    ));
    for (a, b) in [("1\n", "one\n"), ("1\n", "theirs\n")] {
        put(a, b);
        assert!(
            matches!(
                reconcile_call(&space, "apply_patch", id).await,
                ReconciledAttempt::Unknown
            ),
            "{a}{b}"
        );
    }
}

#[tokio::test]
async fn temporary_files_of_a_killed_write_are_deleted_and_never_listed() {
    let space = TestSpace::new();
    space.write_file("a.txt", "one\n");
    let call = space.new_call("write_file", json!({ "path": "a.txt", "content": "two\n" }));
    let id = call.id;
    space.run_call(call).await;
    let stray = format!(".toolgate-{id}-4711-0.tmp");
    space.write_file(&stray, "tw");
    let listed = space.run_ok("list_dir", json!({ "hidden": true })).await;
    assert_eq!(listed.model_text(), "a.txt (4)");
    assert!(matches!(
        reconcile_call(&space, "write_file", id).await,
        ReconciledAttempt::Happened(_)
    ));
    assert_eq!(space.list_names(), ["a.txt"]);
}

#[tokio::test]
async fn nothing_is_changed_if_the_old_contents_cannot_be_stored() {
    for broken in [StoreCall::PutBlob, StoreCall::PutRecordOnce] {
        let space = TestSpace::new();
        space.write_file("a.txt", "one\n");
        let fail = || StoreFault::Fail(StoreError::Backend("the disk is full".into()));
        let plan = move |call, _| {
            if call == broken {
                fail()
            } else {
                StoreFault::Pass
            }
        };
        let store = FaultyStore::new(toolgate_core::MemoryStore::new(), plan);
        let workspace = space
            .workspace
            .clone()
            .with_undo_store(toolgate_core::StoreHandle::new(store));
        let registry = toolgate_core::Registry::new();
        registry
            .register(toolgate_tools::WriteFile::new(workspace))
            .expect("a new name");
        let stack = toolgate_core::Stack::over(registry)
            .build()
            .expect("no layers");
        let outcome = stack
            .run(toolgate_testkit::call_with(
                "write_file",
                json!({ "path": "a.txt", "content": "x" }),
            ))
            .await;
        assert!(
            outcome
                .settled()
                .expect("settled")
                .model_text()
                .contains("could not be stored")
        );
        assert_eq!(space.read_text("a.txt"), "one\n");
    }
}

#[tokio::test]
async fn a_call_that_is_cancelled_before_it_writes_changes_nothing() {
    let space = TestSpace::new();
    space.write_file("a.txt", "one\n");
    let call = space.new_call("write_file", json!({ "path": "a.txt", "content": "two\n" }));
    call.cancel.cancel();
    let settled = space.run_call(call).await;
    assert_eq!(
        settled.status,
        Status::Cancelled,
        "{}",
        settled.model_text()
    );
    assert_eq!(
        (space.read_text("a.txt"), space.list_names()),
        ("one\n".to_owned(), vec!["a.txt".to_owned()])
    );
    // The cancelled call does not block the next one.
    let next = space.run_ok(
        "write_file",
        json!({ "path": "a.txt", "content": "three\n" }),
    );
    tokio::time::timeout(Duration::from_secs(60), next)
        .await
        .expect("not blocked");
}

/// The variable with the directory for the child process of the next test; unset in a normal run.
#[cfg(unix)]
const KILLED_IN: &str = "TOOLGATE_TEST_KILLED_IN";

#[cfg(unix)]
#[tokio::test]
async fn writes_until_it_is_killed() {
    let Some(dir) = std::env::var_os(KILLED_IN) else {
        return;
    };
    let workspace = toolgate_tools::Workspace::open(dir).expect("a workspace");
    let registry = toolgate_core::Registry::new();
    registry
        .register(toolgate_tools::WriteFile::new(workspace))
        .expect("a new name");
    let stack = toolgate_core::Stack::over(registry)
        .build()
        .expect("no layers");
    for letter in ["a", "b"].iter().cycle() {
        println!("{letter} is next");
        let arguments = json!({ "path": "big.txt", "content": letter.repeat(2_000_000) });
        assert!(
            stack
                .run(toolgate_testkit::call_with("write_file", arguments))
                .await
                .is_ok()
        );
    }
}

#[cfg(unix)]
#[test]
fn a_killed_write_leaves_the_old_file_or_the_new_one() {
    use std::{
        io::{BufRead, BufReader},
        process::{Command, Stdio},
    };
    let dir = tempfile::tempdir().expect("a directory");
    for round in 1..=6 {
        let mut child = Command::new(std::env::current_exe().expect("known"))
            .args([
                "--exact",
                "files::crashes::writes_until_it_is_killed",
                "--nocapture",
            ])
            .env(KILLED_IN, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let lines = BufReader::new(child.stdout.take().expect("piped"))
            .lines()
            .map_while(Result::ok);
        // Not during the first write of the first child: there would be no file yet.
        let told = lines
            .filter(|line| line.ends_with("is next"))
            .nth(1 + round % 3);
        child.kill().expect("killed");
        child.wait().expect("gone");
        assert!(told.is_some(), "it was killed while it wrote");
        let text = std::fs::read_to_string(dir.path().join("big.txt")).expect("it exists");
        let first = &text[..1];
        assert!(
            text.len() == 2_000_000 && text == first.repeat(text.len()),
            "round {round}: {} bytes",
            text.len()
        );
    }
}
