//! Tests of undoing changes and of loading stored changes.

use serde_json::json;
use toolgate_core::{Call, CallId, CallSeed, Digest, SessionId, Status, TurnId, TurnInfo};
use toolgate_testkit::seed_for;
use toolgate_tools::{ChangeSet, UndoChanges};

use crate::files::common::TestSpace;

fn change_id(settled: &toolgate_core::SettledOutcome) -> CallId {
    settled.value["call"]
        .as_str()
        .expect("a change id")
        .parse()
        .expect("an id")
}

#[tokio::test]
async fn every_kind_of_change_is_undone() {
    let space = TestSpace::new();
    space.write_file("a.txt", "one\n");
    let write = space
        .run_ok(
            "write_file",
            json!({ "path": "new/deep/b.txt", "content": "b" }),
        )
        .await;
    let edit = space
        .run_ok(
            "edit_file",
            json!({ "path": "a.txt", "edits": [{ "old": "one", "new": "1" }] }),
        )
        .await;
    let patch = "diff --git a/a.txt b/c.txt\nrename from a.txt\nrename to c.txt\n";
    let moved = space.run_ok("apply_patch", json!({ "patch": patch })).await;
    assert_eq!(
        space.list_names(),
        ["c.txt", "new", "new/deep", "new/deep/b.txt"]
    );
    for call in [&moved, &edit, &write] {
        let settled = space
            .run_ok("undo_changes", json!({ "call": change_id(call) }))
            .await;
        assert!(
            !settled.value["files_changed"]
                .as_array()
                .expect("a list")
                .is_empty()
        );
    }
    assert_eq!(
        (space.list_names(), space.read_text("a.txt")),
        (vec!["a.txt".to_owned()], "one\n".to_owned())
    );
    let again = space
        .run_ok("undo_changes", json!({ "call": change_id(&edit) }))
        .await;
    assert!(
        again.model_text().contains("as it was before"),
        "{}",
        again.model_text()
    );
}

#[tokio::test]
async fn a_file_that_was_changed_since_is_restored_only_by_force() {
    let space = TestSpace::new();
    space.write_file("a.txt", "one\n");
    space.write_file("b.txt", "one\n");
    let patch = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+1\n--- a/b.txt\n+++ b/b.txt\n@@ -1 +1 @@\n-one\n+1\n";
    let call = change_id(&space.run_ok("apply_patch", json!({ "patch": patch })).await);
    space.write_file("b.txt", "theirs\n");
    let error = space
        .run_error("undo_changes", json!({ "call": call }))
        .await;
    assert!(error.contains("b.txt was changed since"), "{error}");
    assert_eq!(space.read_text("a.txt"), "1\n", "all or none");
    let forced = space
        .run_ok("undo_changes", json!({ "call": call, "force": true }))
        .await;
    assert_eq!(
        (space.read_text("a.txt"), space.read_text("b.txt")),
        ("one\n".to_owned(), "one\n".to_owned())
    );
    space
        .run_ok("undo_changes", json!({ "call": change_id(&forced) }))
        .await;
    assert_eq!(
        (space.read_text("a.txt"), space.read_text("b.txt")),
        ("1\n".to_owned(), "theirs\n".to_owned()),
        "nothing is lost"
    );
}

#[tokio::test]
async fn a_half_applied_patch_can_be_undone() {
    let space = TestSpace::new();
    space.write_file("a.txt", "one\n");
    space.write_file("b.txt", "one\n");
    let patch = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+1\n--- a/b.txt\n+++ b/b.txt\n@@ -1 +1 @@\n-one\n+1\n";
    let call = change_id(&space.run_ok("apply_patch", json!({ "patch": patch })).await);
    // As a crash between two files would have left it.
    space.write_file("b.txt", "one\n");
    space.run_ok("undo_changes", json!({ "call": call })).await;
    assert_eq!(
        (space.read_text("a.txt"), space.read_text("b.txt")),
        ("one\n".to_owned(), "one\n".to_owned())
    );
}

#[tokio::test]
async fn a_model_can_undo_only_changes_of_its_own_session() {
    let space = TestSpace::new();
    let call = change_id(
        &space
            .run_ok("write_file", json!({ "path": "a.txt", "content": "x" }))
            .await,
    );
    let other = |registry: &toolgate_core::Registry| {
        let seed = seed_for(
            &toolgate_testkit::plain_view(registry),
            "undo_changes",
            json!({ "call": call }),
        );
        let session = SessionId::new(uuid::Uuid::from_u128(77));
        let turn = TurnId::new(uuid::Uuid::from_u128(78));
        Call::new(CallSeed {
            turn: std::sync::Arc::new(TurnInfo::new(session, turn)),
            ..seed
        })
    };
    let refused = space.run_call(other(&space.registry)).await;
    assert_eq!(refused.status, Status::ExecutorError);
    assert!(refused.model_text().contains("no change with this id"));
    for wrong in ["", "x", "00000000-0000-0000-0000-0000000000ff"] {
        assert!(
            space
                .run_error("undo_changes", json!({ "call": wrong }))
                .await
                .contains("no change with this id")
        );
    }
    let people = toolgate_core::Registry::new();
    people
        .register(UndoChanges::for_any_session(space.workspace.clone()))
        .expect("a new name");
    let stack = toolgate_core::Stack::over(people.clone())
        .build()
        .expect("no layers");
    assert!(stack.run(other(&people)).await.is_ok());
    assert!(!space.path("a.txt").exists());
}

#[tokio::test]
async fn only_people_undo_changes_of_files_that_act_later() {
    for path in [
        ".envrc.d/.vscode/tasks.json",
        "AGENTS.md",
        ".GitHub/workflows/ci.yml",
        "sub/.gitattributes",
        ".git/config",
    ] {
        let space = TestSpace::new();
        let made = space
            .run_ok("write_file", json!({ "path": path, "content": "x" }))
            .await;
        let undo = json!({ "call": change_id(&made) });
        let said = space.run_error("undo_changes", undo).await;
        assert!(said.contains("only a person can undo it"), "{said}");
        assert!(space.path(path).exists());
    }
}

#[tokio::test]
async fn the_changes_of_a_call_can_be_loaded_with_their_diff() {
    let space = TestSpace::new();
    space.write_file("a.txt", "one\ntwo\n");
    let edit = space
        .run_ok(
            "edit_file",
            json!({ "path": "a.txt", "edits": [{ "old": "two", "new": "2" }] }),
        )
        .await;
    let set = ChangeSet::load(&space.store, change_id(&edit))
        .await
        .expect("readable")
        .expect("stored");
    assert_eq!((set.tool.as_str(), set.files.len()), ("edit_file", 1));
    let file = &set.files[0];
    assert_eq!(
        file.before.expect("the old version").digest,
        Digest::of_bytes(b"one\ntwo\n")
    );
    let after = file.after.expect("the new version");
    assert_eq!(
        ChangeSet::load_text(&space.store, &after)
            .await
            .expect("stored")
            .as_deref(),
        Some("one\n2\n")
    );
    let diff = "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n";
    assert_eq!(set.diff(&space.store).await.expect("stored"), diff);
    assert_eq!(edit.value["diff"], diff);
    let nothing = ChangeSet::load(&space.store, CallId::new(uuid::Uuid::from_u128(999))).await;
    assert_eq!(nothing.expect("readable"), None);
}

#[tokio::test]
async fn tools_that_change_files_have_matching_annotations() {
    let space = TestSpace::new();
    for tool in ["write_file", "edit_file", "apply_patch", "undo_changes"] {
        let entry = space.registry.get(tool).expect("registered");
        let annotations = &entry.spec.annotations;
        assert!(
            annotations.undo
                && annotations.reconcile
                && annotations.may_write()
                && !annotations.may_repeat(),
            "{tool}"
        );
        assert!(!annotations.resources.is_empty(), "{tool}");
    }
    for tool in ["read_file", "list_dir", "find_files", "search_text"] {
        assert!(
            !space
                .registry
                .get(tool)
                .expect("registered")
                .spec
                .annotations
                .may_write(),
            "{tool}"
        );
    }
}
