//! Tests of patches over several files.

use std::fmt::Write;

use proptest::prelude::*;
use serde_json::json;
use similar::TextDiff;

use crate::files::common::TestSpace;

#[tokio::test]
async fn one_patch_creates_changes_renames_and_deletes() {
    let space = TestSpace::new();
    space.write_file("a.txt", "one\ntwo\nthree\n");
    space.write_file("old.txt", "left\nright\n");
    space.write_file("gone.txt", "bye\n");
    let patch = "\
--- a/a.txt
+++ b/a.txt
@@ -1,3 +1,3 @@
 one
-two
+2
 three
diff --git a/new/n.sh b/new/n.sh
new file mode 100755
--- /dev/null
+++ b/new/n.sh
@@ -0,0 +1,2 @@
+#!/bin/sh
+true
diff --git a/old.txt b/moved/new.txt
similarity index 50%
rename from old.txt
rename to moved/new.txt
--- a/old.txt
+++ b/moved/new.txt
@@ -1,2 +1,2 @@
 left
-right
+RIGHT
diff --git a/gone.txt b/gone.txt
deleted file mode 100644
--- a/gone.txt
+++ /dev/null
@@ -1 +0,0 @@
-bye
";
    let settled = space.run_ok("apply_patch", json!({ "patch": patch })).await;
    assert_eq!(
        space.list_names(),
        ["a.txt", "moved", "moved/new.txt", "new", "new/n.sh"]
    );
    assert_eq!(space.read_text("a.txt"), "one\n2\nthree\n");
    assert_eq!(space.read_text("new/n.sh"), "#!/bin/sh\ntrue\n");
    assert_eq!(space.read_text("moved/new.txt"), "left\nRIGHT\n");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(space.path("new/n.sh"))
            .expect("it exists")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o755);
    }
    let changes: Vec<String> = settled.value["files_changed"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|file| {
            format!(
                "{} {} {}",
                file["change"].as_str().unwrap_or_default(),
                file["path"].as_str().unwrap_or_default(),
                file["old_path"]
            )
        })
        .collect();
    assert_eq!(
        changes,
        [
            "modified a.txt null",
            "created new/n.sh null",
            "renamed moved/new.txt \"old.txt\"",
            "deleted gone.txt null"
        ]
    );
    let diff = settled.value["diff"].as_str().expect("a diff");
    assert!(
        diff.contains(
            "rename from old.txt\nrename to moved/new.txt\n--- a/old.txt\n+++ b/moved/new.txt\n"
        ),
        "{diff}"
    );
}

#[tokio::test]
async fn a_patch_whose_second_file_does_not_apply_changes_nothing() {
    let space = TestSpace::new();
    space.write_file("a.txt", "one\n");
    space.write_file("b.txt", "other\n");
    let patch = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+1\n--- /dev/null\n+++ b/c/new.txt\n@@ -0,0 +1 @@\n+x\n\
         --- a/b.txt\n+++ b/b.txt\n@@ -1 +1 @@\n-two\n+2\n";
    let error = space
        .run_error("apply_patch", json!({ "patch": patch }))
        .await;
    assert!(
        error.contains("b.txt: hunk 1 does not apply: line 1 is \"other\", the patch has \"two\""),
        "{error}"
    );
    assert_eq!(
        (space.list_names(), space.read_text("a.txt")),
        (
            vec!["a.txt".to_owned(), "b.txt".to_owned()],
            "one\n".to_owned()
        )
    );
}

#[tokio::test]
async fn an_invalid_patch_is_rejected_with_the_reason() {
    let space = TestSpace::new();
    space.write_file("a.txt", "one\ntwo\n");
    space.write_file("bin", b"a\0b\n");
    let modify = |path: &str| format!("--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-one\n+1\n");
    let rename = "diff --git a/a.txt b/bin\nrename from a.txt\nrename to bin\n";
    for (patch, why) in [
        (modify("b.txt"), "no such file: b.txt; did you mean a.txt?"),
        (modify("bin"), "not text"),
        (modify("../secret"), "outside the workspace"),
        (
            format!("{}{}", modify("a.txt"), modify("./a.txt")),
            "a.txt occurs twice in the patch",
        ),
        (
            "--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1 @@\n+x\n".to_owned(),
            "already exists",
        ),
        (
            "--- a/a.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-one\n".to_owned(),
            "does not list all of its lines",
        ),
        (
            "diff --git a/a.txt b/a.txt\ndeleted file mode 100644\n".to_owned(),
            "does not list all of its lines",
        ),
        (rename.to_owned(), "bin already exists"),
        (
            "--- /dev/null\n+++ b/../x\n@@ -0,0 +1 @@\n+x\n".to_owned(),
            "outside the workspace",
        ),
        (
            "--- a/a.txt\n+++ b/a.txt\n@@ -1,9 +1 @@\n-one\n+1\n".to_owned(),
            "count again",
        ),
        ("just words".to_owned(), "the patch names no file"),
    ] {
        let error = space
            .run_error("apply_patch", json!({ "patch": patch }))
            .await;
        assert!(error.contains(why), "{patch}: {error}");
    }
    assert_eq!(
        (space.list_names(), space.read_text("a.txt")),
        (
            vec!["a.txt".to_owned(), "bin".to_owned()],
            "one\ntwo\n".to_owned()
        )
    );
}

#[tokio::test]
async fn headers_alone_change_permissions_and_create_and_delete_empty_files() {
    let space = TestSpace::new();
    space.write_file("a.sh", "x\n");
    space.write_file("empty", "");
    let patch = "diff --git a/a.sh b/a.sh\nold mode 100644\nnew mode 100755\ndiff --git a/e2 b/e2\nnew file mode 100644\n\
         index 0000000..e69de29\ndiff --git a/empty b/empty\ndeleted file mode 100644\nindex e69de29..0000000\n";
    space.run_ok("apply_patch", json!({ "patch": patch })).await;
    assert_eq!(space.list_names(), ["a.sh", "e2"]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(space.path("a.sh"))
            .expect("it exists")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o755);
    }
}

/// The contents of a few files, by name.
type FileContents = std::collections::BTreeMap<&'static str, String>;

fn some_files() -> impl Strategy<Value = FileContents> {
    let names = proptest::sample::subsequence(vec!["a", "b/c", "b/d", "e"], 0..=4);
    let text = "(one|two|three|é|\n|\n|\r\n){1,12}";
    names.prop_flat_map(move |names| {
        let count = names.len();
        (Just(names), proptest::collection::vec(text, count))
            .prop_map(|(names, texts)| names.into_iter().zip(texts).collect())
    })
}

/// Builds a diff as other programs write it.
fn unified_diff(old: &FileContents, new: &FileContents) -> String {
    let mut patch = String::new();
    let names: std::collections::BTreeSet<&str> = old.keys().chain(new.keys()).copied().collect();
    for name in names {
        let before = old.get(name);
        let after = new.get(name);
        if before == after {
            continue;
        }
        let side = |text: Option<&String>, side: &str| {
            text.map_or("/dev/null".to_owned(), |_| format!("{side}/{name}"))
        };
        let before = before.cloned();
        let after = after.cloned();
        let from = side(before.as_ref(), "a");
        let to = side(after.as_ref(), "b");
        let before = before.unwrap_or_default();
        let after = after.unwrap_or_default();
        let diff = TextDiff::from_lines(&before, &after);
        write!(patch, "{}", diff.unified_diff().header(&from, &to)).expect("text");
    }
    patch
}

fn files_on_disk(space: &TestSpace) -> std::collections::BTreeMap<String, String> {
    let files = space
        .list_names()
        .into_iter()
        .filter(|name| space.path(name).is_file());
    files
        .map(|name| (name.clone(), space.read_text(&name)))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn the_diff_of_two_states_leads_from_one_to_the_other_and_undo_back(old in some_files(), new in some_files()) {
        prop_assume!(old != new);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let space = TestSpace::new();
            old.iter().for_each(|(name, text)| space.write_file(name, text));
            let (names, before) = (space.list_names(), files_on_disk(&space));
            let settled = space.run_ok("apply_patch", json!({ "patch": unified_diff(&old, &new) })).await;
            let expected: std::collections::BTreeMap<String, String> =
                new.iter().map(|(name, text)| ((*name).to_owned(), text.clone())).collect();
            assert_eq!(files_on_disk(&space), expected);
            let undone = space.run_ok("undo_changes", json!({ "call": settled.value["call"] })).await;
            assert_eq!((files_on_disk(&space), space.list_names()), (before, names), "directories too");
            space.run_ok("undo_changes", json!({ "call": undone.value["call"] })).await;
            assert_eq!(files_on_disk(&space), expected, "an undo can be undone");
        });
    }
}
