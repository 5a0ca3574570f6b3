//! Rehearsals: what a tool would answer, from the code that the tool itself runs first.

use serde_json::json;
use toolgate_core::Status;

use crate::files::common::TestSpace;

/// A patch of `a.txt`, which has the lines "one" and "two".
fn patch_removing(line: &str) -> String {
    format!("--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-{line}\n+2\n")
}

#[tokio::test]
async fn a_rehearsal_fails_with_the_words_of_the_tool_and_changes_nothing() {
    let space = TestSpace::new();
    space.write_file("a.txt", "one\ntwo\n");
    let unknown = "00000000-0000-7000-8000-00000000ffff";
    for (tool, arguments) in [
        ("read_file", json!({ "path": "/etc/passwd" })),
        ("read_file", json!({ "path": "../secret" })),
        ("read_file", json!({ "path": "missing.txt" })),
        ("read_file", json!({ "path": "a.txt", "offset": 9 })),
        ("list_dir", json!({ "path": "missing" })),
        ("list_dir", json!({ "path": "a.txt" })),
        ("find_files", json!({ "glob": "*", "path": "../" })),
        ("find_files", json!({ "glob": "a{" })),
        ("search_text", json!({ "pattern": "(" })),
        ("search_text", json!({ "pattern": "x", "path": "missing" })),
        ("write_file", json!({ "path": "../b.txt", "content": "x" })),
        (
            "write_file",
            json!({ "path": "a.txt", "content": "x", "must_not_exist": true }),
        ),
        (
            "edit_file",
            json!({ "path": "a.txt", "edits": [{ "old": "three", "new": "3" }] }),
        ),
        ("apply_patch", json!({ "patch": patch_removing("three") })),
        ("apply_patch", json!({ "patch": "no patch" })),
        ("undo_changes", json!({ "call": unknown })),
    ] {
        let rehearsed = space.rehearse(tool, arguments.clone()).await;
        let real = space.run(tool, arguments.clone()).await;
        assert_eq!(real.status, Status::ExecutorError, "{tool} {arguments}");
        assert_eq!(rehearsed.status, real.status, "{tool} {arguments}");
        assert_eq!(rehearsed.error, real.error, "{tool} {arguments}");
        assert_eq!(rehearsed.attempts, 0, "{tool} {arguments}");
    }
    assert_eq!(space.list_names(), ["a.txt"]);
}

#[tokio::test]
async fn a_call_that_would_run_is_rehearsed_without_a_change() {
    let space = TestSpace::new();
    space.write_file("a.txt", "one\ntwo\n");
    let before = space
        .run_ok("write_file", json!({ "path": "b.txt", "content": "x" }))
        .await;
    let change = before.value.as_value()["call"].clone();
    for (tool, arguments) in [
        ("read_file", json!({ "path": "a.txt" })),
        ("list_dir", json!({})),
        ("find_files", json!({ "glob": "*.txt" })),
        ("search_text", json!({ "pattern": "one", "path": "a.txt" })),
        ("write_file", json!({ "path": "new/c.txt", "content": "x" })),
        (
            "edit_file",
            json!({ "path": "a.txt", "edits": [{ "old": "two", "new": "2" }] }),
        ),
        ("apply_patch", json!({ "patch": patch_removing("two") })),
        ("undo_changes", json!({ "call": change })),
    ] {
        let rehearsed = space.rehearse(tool, arguments.clone()).await;
        assert_eq!(rehearsed.status, Status::DryRun, "{tool}: {rehearsed:?}");
    }
    assert_eq!(space.list_names(), ["a.txt", "b.txt"]);
    assert_eq!(space.read_text("a.txt"), "one\ntwo\n");
}
