//! Tests of hostile paths and files.

use std::{fs, time::Duration};

use serde_json::{Value, json};
use toolgate_core::{SettledOutcome, Status};
use toolgate_tools::FileLimits;

use crate::files::common::TestSpace;

/// Returns every tool, with arguments for one path.
fn every_tool(path: &str) -> Vec<(&'static str, Value)> {
    let patch = format!("--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-hunter2\n+x\n");
    let create = format!("--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n");
    vec![
        ("read_file", json!({ "path": path })),
        ("write_file", json!({ "path": path, "content": "x" })),
        (
            "edit_file",
            json!({ "path": path, "edits": [{ "old": "hunter2", "new": "x" }] }),
        ),
        ("apply_patch", json!({ "patch": patch })),
        ("apply_patch", json!({ "patch": create })),
        ("list_dir", json!({ "path": path })),
        ("find_files", json!({ "path": path, "glob": "*" })),
        ("search_text", json!({ "path": path, "pattern": "hunter2" })),
    ]
}

/// Runs a tool with a time limit: one that opens a pipe in blocking mode would wait forever.
async fn run_in_time(space: &TestSpace, tool: &str, arguments: Value) -> SettledOutcome {
    match tokio::time::timeout(Duration::from_secs(60), space.run(tool, arguments)).await {
        Ok(settled) => settled,
        Err(_) => {
            // Opening the other end unblocks the waiting thread, so that the test can end.
            drop(
                fs::OpenOptions::new()
                    .read(true)
                    .write(true)
                    .open(space.path("pipe")),
            );
            panic!("{tool} blocked");
        }
    }
}

async fn assert_rejected_by_all(space: &TestSpace, path: &str) {
    for (tool, arguments) in every_tool(path) {
        let settled = run_in_time(space, tool, arguments).await;
        let text = settled.model_text().into_owned();
        assert!(
            settled.status != Status::Ok && !text.contains("hunter2\n"),
            "{tool} {path}: {text}"
        );
    }
    assert_eq!(
        fs::read_to_string(space.outside_path("secret")).expect("it exists"),
        "hunter2\n",
        "{path}"
    );
}

#[tokio::test]
async fn a_path_that_leads_outside_is_rejected_by_every_tool() {
    let space = TestSpace::new();
    space.write_file("dir/x", "x");
    let absolute = space.outside_path("secret");
    let absolute = absolute.to_str().expect("text");
    for path in [
        "../secret",
        "dir/../../secret",
        "./../secret",
        absolute,
        "/etc/passwd",
        "/proc/self/root/etc/passwd",
    ] {
        assert_rejected_by_all(&space, path).await;
    }
    assert_eq!(space.list_names(), ["dir", "dir/x"]);
}

#[cfg(unix)]
#[tokio::test]
async fn a_link_that_leads_outside_is_followed_by_no_tool() {
    use std::os::unix::fs::symlink;
    let space = TestSpace::new();
    symlink(space.outside_path("secret"), space.path("absolute")).expect("linked");
    symlink("../secret", space.path("relative")).expect("linked");
    symlink("..", space.path("up")).expect("linked");
    symlink(space.outside_path("missing"), space.path("dangling")).expect("linked");
    symlink("loop", space.path("loop")).expect("linked");
    for path in [
        "absolute",
        "relative",
        "up/secret",
        "up/new",
        "dangling",
        "loop",
        "dangling/x",
    ] {
        assert_rejected_by_all(&space, path).await;
    }
    assert!(!space.outside_path("missing").exists() && !space.outside_path("new").exists());
    let found = space
        .run_ok("search_text", json!({ "pattern": "hunter2" }))
        .await;
    assert_eq!(found.value["count"], 0);
    let listed = space.run_ok("list_dir", json!({ "depth": 9 })).await;
    assert!(
        !listed.model_text().contains("secret"),
        "{}",
        listed.model_text()
    );
}

#[cfg(unix)]
#[tokio::test]
async fn a_link_that_stays_inside_is_followed_and_stays_a_link() {
    use std::os::unix::fs::symlink;
    let space = TestSpace::new();
    space.write_file("real/a.txt", "one\n");
    symlink("real", space.path("dir")).expect("linked");
    symlink("../real/a.txt", space.path("real/link")).expect("linked");
    symlink("real/a.txt", space.path("link")).expect("linked");
    for (path, old, new) in [
        ("dir/a.txt", "one", "two"),
        ("link", "two", "three"),
        ("real/link", "three", "four"),
    ] {
        let settled = space
            .run_ok(
                "edit_file",
                json!({ "path": path, "edits": [{ "old": old, "new": new }] }),
            )
            .await;
        assert_eq!(
            settled.value["files_changed"][0]["path"], "real/a.txt",
            "the file itself is named"
        );
        assert_eq!(space.read_text("real/a.txt"), format!("{new}\n"));
    }
    assert!(
        space.path("dir").is_symlink()
            && space.path("link").is_symlink()
            && space.path("real/link").is_symlink()
    );
    space
        .run_ok(
            "write_file",
            json!({ "path": "dir/new/b.txt", "content": "b" }),
        )
        .await;
    assert_eq!(space.read_text("real/new/b.txt"), "b");
}

#[cfg(unix)]
#[tokio::test]
async fn pipes_sockets_devices_and_directories_are_rejected_without_blocking() {
    use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
    let space = TestSpace::new();
    mknodat(CWD, space.path("pipe"), FileType::Fifo, Mode::RWXU, 0).expect("created");
    let _socket = std::os::unix::net::UnixListener::bind(space.path("socket")).expect("bound");
    fs::create_dir(space.path("dir")).expect("created");
    let mut odd = vec!["pipe", "socket"];
    // Only root can create a device.
    if mknodat(
        CWD,
        space.path("zero"),
        FileType::CharacterDevice,
        Mode::RWXU,
        makedev(1, 5),
    )
    .is_ok()
    {
        odd.push("zero");
    }
    for path in odd {
        assert_rejected_by_all(&space, path).await;
        let told = run_in_time(&space, "read_file", json!({ "path": path })).await;
        assert!(
            told.model_text().contains(" not a file"),
            "{}",
            told.model_text()
        );
    }
    for tool in ["read_file", "write_file", "edit_file"] {
        let arguments = every_tool("dir")
            .into_iter()
            .find(|(name, _)| *name == tool)
            .expect("listed")
            .1;
        assert!(
            space
                .run_error(tool, arguments)
                .await
                .contains("is a directory; use list_dir"),
            "{tool}"
        );
    }
    let searched = run_in_time(&space, "search_text", json!({ "pattern": "x" })).await;
    assert_eq!(searched.value["files_searched"], 0);
}

#[tokio::test]
async fn a_file_of_four_gigabytes_is_rejected_without_reading_it() {
    let space = TestSpace::new();
    let file = fs::File::create(space.path("huge")).expect("created");
    file.set_len(4 << 30).expect("sparse");
    for (tool, arguments) in every_tool("huge").into_iter().take(4) {
        let settled = run_in_time(&space, tool, arguments).await;
        assert!(
            settled.model_text().contains("huge has 4.3 GB"),
            "{tool}: {}",
            settled.model_text()
        );
    }
    let searched = run_in_time(&space, "search_text", json!({ "pattern": "x" })).await;
    assert_eq!(searched.value["files_too_large"], 1);
    assert_eq!(
        space.run_ok("list_dir", json!({})).await.model_text(),
        "huge (4294967296)"
    );
}

#[tokio::test]
async fn a_file_that_would_be_too_large_is_not_written() {
    let space = TestSpace::with_limits(FileLimits {
        write_bytes: 10,
        ..FileLimits::default()
    });
    space.write_file("a.txt", "0123456789");
    for (tool, arguments) in [
        (
            "write_file",
            json!({ "path": "b.txt", "content": "01234567890" }),
        ),
        (
            "edit_file",
            json!({ "path": "a.txt", "edits": [{ "old": "9", "new": "99" }] }),
        ),
        (
            "apply_patch",
            json!({ "patch": "--- /dev/null\n+++ b/c\n@@ -0,0 +1 @@\n+0123456789\n" }),
        ),
    ] {
        let error = space.run_error(tool, arguments).await;
        assert!(error.contains("would have 11 bytes"), "{tool}: {error}");
    }
    assert_eq!(
        (space.list_names(), space.read_text("a.txt")),
        (vec!["a.txt".to_owned()], "0123456789".to_owned())
    );
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn names_that_are_not_utf8_are_displayed_and_do_no_harm() {
    use std::os::unix::ffi::OsStrExt;
    let space = TestSpace::new();
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9.txt");
    fs::write(space.path("").join(name), "needle\n").expect("written");
    assert_eq!(
        space.run_ok("list_dir", json!({})).await.model_text(),
        "caf\\xe9.txt (7)"
    );
    assert_eq!(
        space
            .run_ok("find_files", json!({ "glob": "*.txt" }))
            .await
            .model_text(),
        "caf\\xe9.txt"
    );
    let found = space
        .run_ok("search_text", json!({ "pattern": "needle" }))
        .await;
    assert_eq!(found.model_text(), "caf\\xe9.txt\n     1:needle");
}

#[cfg(unix)]
#[tokio::test]
async fn a_read_only_file_is_not_replaced() {
    use std::os::unix::fs::PermissionsExt;
    let space = TestSpace::new();
    space.write_file("a.txt", "hunter2\n");
    fs::set_permissions(space.path("a.txt"), PermissionsExt::from_mode(0o444)).expect("set");
    for (tool, arguments) in every_tool("a.txt").into_iter().skip(1).take(3) {
        let error = space.run_error(tool, arguments).await;
        assert!(error.contains("a.txt is read-only"), "{tool}: {error}");
    }
    assert_eq!(space.read_text("a.txt"), "hunter2\n");
}

#[cfg(unix)]
#[tokio::test]
async fn a_directory_without_permissions_is_reported() {
    use std::os::unix::fs::PermissionsExt;
    if rustix::process::geteuid().is_root() {
        return; // Permissions mean nothing to root.
    }
    let space = TestSpace::new();
    space.write_file("dir/a.txt", "one\n");
    fs::set_permissions(space.path("dir"), PermissionsExt::from_mode(0o555)).expect("set");
    let error = space
        .run_error("write_file", json!({ "path": "dir/a.txt", "content": "x" }))
        .await;
    fs::set_permissions(space.path("dir"), PermissionsExt::from_mode(0o755)).expect("set");
    assert!(error.contains("permissions"), "{error}");
    assert_eq!(space.read_text("dir/a.txt"), "one\n");
}

#[cfg(unix)]
#[tokio::test]
async fn a_hostile_pattern_or_tree_does_not_take_forever() {
    let space = TestSpace::new();
    space.write_file("a.txt", "a".repeat(100_000));
    run_in_time(&space, "search_text", json!({ "pattern": "(a*)*b" })).await;
    assert!(
        run_in_time(
            &space,
            "search_text",
            json!({ "pattern": "((a{1000}){1000}){1000}" })
        )
        .await
        .model_text()
        .contains("not valid")
    );
    let deep = "d/".repeat(300);
    fs::create_dir_all(space.path(&deep)).expect("created");
    assert_eq!(
        run_in_time(&space, "list_dir", json!({ "depth": 1000 }))
            .await
            .status,
        Status::Ok
    );
}
