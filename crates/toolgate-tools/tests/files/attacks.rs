//! Paths and files that are meant to lead the tools astray.

use std::{fs, time::Duration};

use serde_json::{Value, json};
use toolgate_core::{Settled, Status};
use toolgate_tools::FileLimits;

use crate::common::Space;

/// Every tool, with arguments for one path.
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

/// A tool that waits for a pipe would wait for ever.
async fn in_time(space: &Space, tool: &str, arguments: Value) -> Settled {
    match tokio::time::timeout(Duration::from_secs(60), space.run(tool, arguments)).await {
        Ok(settled) => settled,
        Err(_) => {
            // Whoever waits for the other end of the pipe is let go, so that the test can end.
            drop(
                fs::OpenOptions::new()
                    .read(true)
                    .write(true)
                    .open(space.path("pipe")),
            );
            panic!("{tool} waited for something");
        }
    }
}

async fn refused_by_all(space: &Space, path: &str) {
    for (tool, arguments) in every_tool(path) {
        let settled = in_time(space, tool, arguments).await;
        let text = settled.model_text().into_owned();
        assert!(
            settled.status != Status::Ok && !text.contains("hunter2\n"),
            "{tool} {path}: {text}"
        );
    }
    assert_eq!(
        fs::read_to_string(space.outside("secret")).expect("there"),
        "hunter2\n",
        "{path}"
    );
}

#[tokio::test]
async fn a_path_that_is_spelled_to_lead_outside_is_refused_by_every_tool() {
    let space = Space::new();
    space.put("dir/x", "x");
    let absolute = space.outside("secret");
    let absolute = absolute.to_str().expect("text");
    for path in [
        "../secret",
        "dir/../../secret",
        "./../secret",
        absolute,
        "/etc/passwd",
        "/proc/self/root/etc/passwd",
    ] {
        refused_by_all(&space, path).await;
    }
    assert_eq!(space.names(), ["dir", "dir/x"]);
}

#[cfg(unix)]
#[tokio::test]
async fn a_link_that_leads_outside_is_followed_by_no_tool() {
    use std::os::unix::fs::symlink;
    let space = Space::new();
    symlink(space.outside("secret"), space.path("absolute")).expect("linked");
    symlink("../secret", space.path("relative")).expect("linked");
    symlink("..", space.path("up")).expect("linked");
    symlink(space.outside("missing"), space.path("dangling")).expect("linked");
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
        refused_by_all(&space, path).await;
    }
    assert!(!space.outside("missing").exists() && !space.outside("new").exists());
    let found = space
        .ok("search_text", json!({ "pattern": "hunter2" }))
        .await;
    assert_eq!(found.value["count"], 0);
    let listed = space.ok("list_dir", json!({ "depth": 9 })).await;
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
    let space = Space::new();
    space.put("real/a.txt", "one\n");
    symlink("real", space.path("dir")).expect("linked");
    symlink("../real/a.txt", space.path("real/link")).expect("linked");
    symlink("real/a.txt", space.path("link")).expect("linked");
    for (path, old, new) in [
        ("dir/a.txt", "one", "two"),
        ("link", "two", "three"),
        ("real/link", "three", "four"),
    ] {
        let settled = space
            .ok(
                "edit_file",
                json!({ "path": path, "edits": [{ "old": old, "new": new }] }),
            )
            .await;
        assert_eq!(
            settled.value["files_changed"][0]["path"], "real/a.txt",
            "the file itself is named"
        );
        assert_eq!(space.text("real/a.txt"), format!("{new}\n"));
    }
    assert!(
        space.path("dir").is_symlink()
            && space.path("link").is_symlink()
            && space.path("real/link").is_symlink()
    );
    space
        .ok(
            "write_file",
            json!({ "path": "dir/new/b.txt", "content": "b" }),
        )
        .await;
    assert_eq!(space.text("real/new/b.txt"), "b");
}

#[cfg(unix)]
#[tokio::test]
async fn pipes_sockets_devices_and_directories_are_refused_without_waiting() {
    use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
    let space = Space::new();
    mknodat(CWD, space.path("pipe"), FileType::Fifo, Mode::RWXU, 0).expect("made");
    let _socket = std::os::unix::net::UnixListener::bind(space.path("socket")).expect("bound");
    fs::create_dir(space.path("dir")).expect("made");
    let mut odd = vec!["pipe", "socket"];
    // Only root can make a device; nobody else meets one in a workspace.
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
        refused_by_all(&space, path).await;
        let told = in_time(&space, "read_file", json!({ "path": path })).await;
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
                .error(tool, arguments)
                .await
                .contains("is a directory; use list_dir"),
            "{tool}"
        );
    }
    let searched = in_time(&space, "search_text", json!({ "pattern": "x" })).await;
    assert_eq!(searched.value["files_searched"], 0);
}

#[tokio::test]
async fn a_file_of_four_gigabytes_costs_nothing() {
    let space = Space::new();
    let file = fs::File::create(space.path("huge")).expect("made");
    file.set_len(4 << 30).expect("sparse");
    for (tool, arguments) in every_tool("huge").into_iter().take(4) {
        let settled = in_time(&space, tool, arguments).await;
        assert!(
            settled.model_text().contains("huge has 4.3 GB"),
            "{tool}: {}",
            settled.model_text()
        );
    }
    let searched = in_time(&space, "search_text", json!({ "pattern": "x" })).await;
    assert_eq!(searched.value["files_too_large"], 1);
    assert_eq!(
        space.ok("list_dir", json!({})).await.model_text(),
        "huge (4294967296)"
    );
}

#[tokio::test]
async fn a_file_that_would_be_too_large_is_not_written() {
    let space = Space::small(FileLimits {
        write_bytes: 10,
        ..FileLimits::default()
    });
    space.put("a.txt", "0123456789");
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
        let error = space.error(tool, arguments).await;
        assert!(error.contains("would have 11 bytes"), "{tool}: {error}");
    }
    assert_eq!(
        (space.names(), space.text("a.txt")),
        (vec!["a.txt".to_owned()], "0123456789".to_owned())
    );
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn names_that_are_no_text_are_shown_and_do_no_harm() {
    use std::os::unix::ffi::OsStrExt;
    let space = Space::new();
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9.txt");
    fs::write(space.path("").join(name), "needle\n").expect("written");
    assert_eq!(
        space.ok("list_dir", json!({})).await.model_text(),
        "caf\\xe9.txt (7)"
    );
    assert_eq!(
        space
            .ok("find_files", json!({ "glob": "*.txt" }))
            .await
            .model_text(),
        "caf\\xe9.txt"
    );
    let found = space
        .ok("search_text", json!({ "pattern": "needle" }))
        .await;
    assert_eq!(found.model_text(), "caf\\xe9.txt\n     1:needle");
}

#[cfg(unix)]
#[tokio::test]
async fn a_read_only_file_is_not_replaced() {
    use std::os::unix::fs::PermissionsExt;
    let space = Space::new();
    space.put("a.txt", "hunter2\n");
    fs::set_permissions(space.path("a.txt"), PermissionsExt::from_mode(0o444)).expect("set");
    for (tool, arguments) in every_tool("a.txt").into_iter().skip(1).take(3) {
        let error = space.error(tool, arguments).await;
        assert!(error.contains("a.txt is read-only"), "{tool}: {error}");
    }
    assert_eq!(space.text("a.txt"), "hunter2\n");
}

#[cfg(unix)]
#[tokio::test]
async fn a_directory_that_may_not_be_written_or_read_is_told_so() {
    use std::os::unix::fs::PermissionsExt;
    if rustix::process::geteuid().is_root() {
        return; // Permissions mean nothing to root.
    }
    let space = Space::new();
    space.put("dir/a.txt", "one\n");
    fs::set_permissions(space.path("dir"), PermissionsExt::from_mode(0o555)).expect("set");
    let error = space
        .error("write_file", json!({ "path": "dir/a.txt", "content": "x" }))
        .await;
    fs::set_permissions(space.path("dir"), PermissionsExt::from_mode(0o755)).expect("set");
    assert!(error.contains("permissions"), "{error}");
    assert_eq!(space.text("dir/a.txt"), "one\n");
}

#[cfg(unix)]
#[tokio::test]
async fn a_pattern_or_a_tree_that_is_meant_to_take_for_ever_does_not() {
    let space = Space::new();
    space.put("a.txt", "a".repeat(100_000));
    in_time(&space, "search_text", json!({ "pattern": "(a*)*b" })).await;
    assert!(
        in_time(
            &space,
            "search_text",
            json!({ "pattern": "((a{1000}){1000}){1000}" })
        )
        .await
        .model_text()
        .contains("cannot be used")
    );
    let deep = "d/".repeat(300);
    fs::create_dir_all(space.path(&deep)).expect("made");
    assert_eq!(
        in_time(&space, "list_dir", json!({ "depth": 1000 }))
            .await
            .status,
        Status::Ok
    );
}
