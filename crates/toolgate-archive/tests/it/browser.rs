//! Pages in a real Chromium: hostile sessions run nothing and load nothing.
//!
//! `TOOLGATE_TEST_BROWSER` names the folder with `playwright-core`; without it, the test says so and
//! passes. `TOOLGATE_TEST_PICTURES` names a folder for pictures of the page.

use std::{path::Path, process::Command};

use serde_json::Value;

use crate::pages::{HOSTILE, page_of};

/// Opens a page and returns what the browser saw.
fn open_page(page: &str) -> Option<Value> {
    let Some(folder) = std::env::var_os("TOOLGATE_TEST_BROWSER").filter(|it| !it.is_empty()) else {
        println!("TOOLGATE_TEST_BROWSER is not set: nothing is tested in a browser");
        return None;
    };
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("page.html");
    std::fs::write(&file, page).expect("writes");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser/check.cjs");
    let mut command = Command::new("node");
    command
        .arg(script)
        .arg(&file)
        .env("TOOLGATE_TEST_BROWSER", folder);
    if let Some(pictures) = std::env::var_os("TOOLGATE_TEST_PICTURES") {
        command.arg(pictures);
    }
    let done = command.output().expect("node runs");
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{error}");
    Some(serde_json::from_slice(&done.stdout).expect("JSON"))
}

#[test]
fn a_hostile_session_runs_nothing_and_loads_nothing_in_a_browser() {
    let hostile = HOSTILE.join("\n\n")
        + "\n\n<script>window.pwned = 1</script><img src=x onerror='window.pwned=1'>";
    let page = futures::executor::block_on(page_of(&hostile));
    let Some(found) = open_page(&page) else {
        return;
    };
    for view in ["light", "dark", "phone"] {
        let seen = &found[view];
        assert_eq!(
            seen["requests"].as_array().expect("a list").len(),
            1,
            "only the page: {seen}"
        );
        assert_eq!(seen["dialogs"], 0, "{seen}");
        assert_eq!(seen["pwned"], "undefined", "{seen}");
        assert_eq!(seen["scripts"], 0, "{seen}");
        assert_eq!(seen["handlers"], 0, "{seen}");
        assert_eq!(
            seen["messages"],
            Value::Array(Vec::new()),
            "the policy had nothing to stop"
        );
        assert_eq!(seen["wider"], false, "{view} does not scroll sideways");
    }
    assert_ne!(found["light"]["background"], found["dark"]["background"]);
}
