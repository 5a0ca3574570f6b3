//! Tests of writing and editing files.

use serde_json::json;
use toolgate_core::Digest;

use crate::files::common::TestSpace;

#[tokio::test]
async fn a_file_is_written_whole_and_its_change_is_reported() {
    let space = TestSpace::new();
    let settled = space
        .run_ok(
            "write_file",
            json!({ "path": "new/deep/a.txt", "content": "one\ntwo\n" }),
        )
        .await;
    assert_eq!(space.read_text("new/deep/a.txt"), "one\ntwo\n");
    let digest = Digest::of_bytes(b"one\ntwo\n").to_string();
    let file = json!({ "path": "new/deep/a.txt", "change": "created", "added": 2, "removed": 0, "digest": digest, "size": 8 });
    assert_eq!(settled.value["files_changed"], json!([file]));
    assert_eq!(
        settled.value["diff"],
        "--- /dev/null\n+++ b/new/deep/a.txt\n@@ -0,0 +1,2 @@\n+one\n+two\n"
    );
    let settled = space
        .run_ok(
            "write_file",
            json!({ "path": "new/deep/a.txt", "content": "one\n2\n3\n" }),
        )
        .await;
    assert_eq!(settled.value["files_changed"][0]["change"], "modified");
    assert!(
        settled
            .model_text()
            .starts_with("modified new/deep/a.txt (+2 -1 lines), now sha256:")
    );
    let settled = space
        .run_ok(
            "write_file",
            json!({ "path": "new/deep/a.txt", "content": "one\n2\n3\n" }),
        )
        .await;
    assert_eq!(settled.value["files_changed"], json!([]));
    assert_eq!(
        space.list_names(),
        ["new", "new/deep", "new/deep/a.txt"],
        "nothing is left behind"
    );
}

#[tokio::test]
async fn a_write_that_expects_another_file_changes_nothing() {
    let space = TestSpace::new();
    space.write_file("a.txt", "theirs\n");
    let seen = Digest::of_bytes(b"mine\n").to_string();
    let error = space
        .run_error(
            "write_file",
            json!({ "path": "a.txt", "content": "x", "expected_digest": seen }),
        )
        .await;
    assert!(error.contains("has changed since it was read"), "{error}");
    let error = space
        .run_error(
            "write_file",
            json!({ "path": "b.txt", "content": "x", "expected_digest": seen }),
        )
        .await;
    assert!(error.contains("does not exist any more"), "{error}");
    let error = space
        .run_error(
            "write_file",
            json!({ "path": "a.txt", "content": "x", "must_not_exist": true }),
        )
        .await;
    assert!(error.contains("already exists"), "{error}");
    assert_eq!(space.read_text("a.txt"), "theirs\n");
    let now = Digest::of_bytes(b"theirs\n").to_string();
    space
        .run_ok(
            "write_file",
            json!({ "path": "a.txt", "content": "ours\n", "expected_digest": now[..23] }),
        )
        .await;
    assert_eq!(space.read_text("a.txt"), "ours\n");
}

#[tokio::test]
async fn the_encoding_and_line_endings_of_an_existing_file_are_preserved_and_reported() {
    let space = TestSpace::new();
    let utf16 = |text: &str| {
        [0xff, 0xfe]
            .into_iter()
            .chain(text.encode_utf16().flat_map(u16::to_le_bytes))
            .collect::<Vec<u8>>()
    };
    space.write_file("crlf.txt", "a\r\nb\r\n");
    space.write_file("bom.txt", "\u{feff}a\n");
    space.write_file("wide.txt", utf16("a\r\n"));
    space.write_file("latin.txt", b"caf\xe9\n");
    let content = "é\nb\n";
    for (path, bytes, said) in [
        (
            "crlf.txt",
            "é\r\nb\r\n".as_bytes().to_vec(),
            "CRLF, as before",
        ),
        (
            "bom.txt",
            "\u{feff}é\nb\n".as_bytes().to_vec(),
            "UTF-8 with BOM, as before",
        ),
        ("wide.txt", utf16("é\r\nb\r\n"), "UTF-16LE, as before"),
        (
            "latin.txt",
            b"\xe9\nb\n".to_vec(),
            "Windows-1252, as before",
        ),
    ] {
        let settled = space
            .run_ok("write_file", json!({ "path": path, "content": content }))
            .await;
        assert_eq!(space.read_bytes(path), bytes, "{path}");
        assert!(
            settled.model_text().contains(said),
            "{path}: {}",
            settled.model_text()
        );
    }
    let settled = space
        .run_ok(
            "write_file",
            json!({ "path": "latin.txt", "content": "漢\n" }),
        )
        .await;
    assert_eq!(space.read_text("latin.txt"), "漢\n");
    assert!(settled.model_text().contains("UTF-8 now"));
    space
        .run_ok(
            "write_file",
            json!({ "path": "crlf.txt", "content": "a\r\nb\n" }),
        )
        .await;
    assert_eq!(
        space.read_text("crlf.txt"),
        "a\r\nb\n",
        "line endings in the content are written unchanged"
    );
}

#[tokio::test]
async fn edits_are_made_together_or_not_at_all() {
    let space = TestSpace::new();
    space.write_file("a.rs", "fn a() {}\nfn b() {}\n");
    let edits = json!([{ "old": "fn a", "new": "fn one" }, { "old": "fn c", "new": "fn two" }]);
    let error = space
        .run_error("edit_file", json!({ "path": "a.rs", "edits": edits }))
        .await;
    assert!(
        error.contains("a.rs was not changed: edit 2: old is not in the file"),
        "{error}"
    );
    assert_eq!(space.read_text("a.rs"), "fn a() {}\nfn b() {}\n");
    let edits =
        json!([{ "old": "fn a", "new": "fn one" }, { "old": "{}", "new": "{ }", "all": true }]);
    let settled = space
        .run_ok("edit_file", json!({ "path": "a.rs", "edits": edits }))
        .await;
    assert_eq!(space.read_text("a.rs"), "fn one() { }\nfn b() { }\n");
    let diff = "--- a/a.rs\n+++ b/a.rs\n@@ -1,2 +1,2 @@\n-fn a() {}\n-fn b() {}\n+fn one() { }\n+fn b() { }\n";
    assert_eq!(settled.value["diff"], diff);
    assert_eq!(
        settled.value["digest"],
        Digest::of_bytes(b"fn one() { }\nfn b() { }\n").to_string()
    );
}

#[tokio::test]
async fn a_file_that_changed_since_it_was_read_is_not_edited() {
    let space = TestSpace::new();
    space.write_file("a.txt", "one\n");
    let digest = space
        .run_ok("read_file", json!({ "path": "a.txt" }))
        .await
        .value["digest"]
        .clone();
    space.write_file("a.txt", "one\nmore\n");
    let edit = json!({ "path": "a.txt", "edits": [{ "old": "one", "new": "1" }], "expected_digest": digest });
    let error = space.run_error("edit_file", edit).await;
    assert!(
        error.contains("has changed since it was read") && error.contains("read it again"),
        "{error}"
    );
    assert_eq!(space.read_text("a.txt"), "one\nmore\n");
}

#[tokio::test]
async fn an_edit_preserves_encoding_line_endings_and_permissions() {
    let space = TestSpace::new();
    let utf16 = |text: &str| {
        [0xfe, 0xff]
            .into_iter()
            .chain(text.encode_utf16().flat_map(u16::to_be_bytes))
            .collect::<Vec<u8>>()
    };
    space.write_file("wide.txt", utf16("eins\r\nzwei"));
    let edit = json!({ "path": "wide.txt", "edits": [{ "old": "eins\nzwei", "new": "ä\nö" }] });
    space.run_ok("edit_file", edit).await;
    assert_eq!(space.read_bytes("wide.txt"), utf16("ä\r\nö"));
    space.write_file("latin.txt", b"caf\xe9\n");
    let edit = json!({ "path": "latin.txt", "edits": [{ "old": "café", "new": "漢" }] });
    assert!(
        space
            .run_error("edit_file", edit)
            .await
            .contains("Windows-1252, which lacks")
    );
    space.write_file("bin", b"a\0b");
    let edit = json!({ "path": "bin", "edits": [{ "old": "a", "new": "b" }] });
    assert!(
        space
            .run_error("edit_file", edit)
            .await
            .contains("not text")
    );
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        space.write_file("run.sh", "#!/bin/sh\n");
        std::fs::set_permissions(space.path("run.sh"), PermissionsExt::from_mode(0o751))
            .expect("set");
        space
            .run_ok(
                "edit_file",
                json!({ "path": "run.sh", "edits": [{ "old": "/bin/sh", "new": "/bin/bash" }] }),
            )
            .await;
        assert_eq!(
            std::fs::metadata(space.path("run.sh"))
                .expect("it exists")
                .permissions()
                .mode()
                & 0o777,
            0o751
        );
    }
}

#[tokio::test]
async fn invalid_calls_are_rejected_before_anything_is_touched() {
    let space = TestSpace::new();
    space.write_file("a.txt", "a");
    for (tool, arguments) in [
        ("edit_file", json!({ "path": "a.txt", "edits": [] })),
        (
            "edit_file",
            json!({ "path": "a.txt", "edits": [{ "old": "", "new": "x" }] }),
        ),
        (
            "edit_file",
            json!({ "path": "a.txt", "edits": [{ "old": "a", "new": "a" }] }),
        ),
        (
            "edit_file",
            json!({ "path": "a.txt", "edits": [{ "old": "a", "new": "b" }], "expected_digest": "abc" }),
        ),
        ("write_file", json!({ "path": "", "content": "x" })),
        ("write_file", json!({ "path": ".", "content": "x" })),
        ("write_file", json!({ "path": "a.txt" })),
        ("write_file", json!({ "path": "a.txt/b", "content": "x" })),
        ("write_file", json!({ "path": "a\u{0}b", "content": "x" })),
        (
            "write_file",
            json!({ "path": "x".repeat(300), "content": "x" }),
        ),
    ] {
        let error = space.run_error(tool, arguments.clone()).await;
        assert!(!error.is_empty(), "{arguments}");
    }
    assert_eq!(
        (space.list_names(), space.read_text("a.txt")),
        (vec!["a.txt".to_owned()], "a".to_owned())
    );
}
