//! `toolgate demo` as a person runs it: the real program, its real tools, a store of its own.
#![allow(missing_docs, reason = "a test has no public items")]

use std::{
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;
use toolgate::{Event, Status, ToolEvent};
use toolgate_testkit::LifecycleChecker;

fn toolgate(home: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolgate"));
    command
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
        .env("TOOLGATE_HOME", home)
        .env("HOME", home)
        .env("USER", "ann");
    command.output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The events of a stream, and its last line.
fn events(stream: &str) -> (Vec<Event>, Value) {
    let mut lines: Vec<&str> = stream.lines().collect();
    let last = lines.pop().expect("there is a last line");
    let event =
        |line: &&str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    (
        lines.iter().map(event).collect(),
        serde_json::from_str(last).expect("JSON"),
    )
}

/// How each call of a tool ended.
fn ends(events: &[Event], tool: &str) -> Vec<Status> {
    let of_tool = |event: &&Event| {
        event
            .as_tool()
            .is_some_and(|(invocation, _)| invocation.tool.as_str() == tool)
    };
    let end = |event: &Event| match event.as_tool()?.1 {
        ToolEvent::ToolExecutionSucceeded { .. } => Some(Status::Ok),
        ToolEvent::ToolExecutionFailed { status, .. }
        | ToolEvent::ToolDenied { status, .. }
        | ToolEvent::ToolExecutionInterrupted { status, .. } => Some(*status),
        _ => None,
    };
    events.iter().filter(of_tool).filter_map(end).collect()
}

fn starts(events: &[Event], tool: &str) -> usize {
    let starts = |event: &&Event| {
        event.as_tool().is_some_and(|(invocation, event)| {
            invocation.tool.as_str() == tool
                && matches!(event, ToolEvent::ToolExecutionStarted { .. })
        })
    };
    events.iter().filter(starts).count()
}

#[test]
fn the_demo_is_a_stream_of_events_that_the_checker_accepts_and_its_receipts_are_intact() {
    let home = tempfile::tempdir().expect("a directory");
    let demo = toolgate(home.path(), &["demo", "--yes", "--json"]);
    assert_eq!(demo.status.code(), Some(0), "{}", text(&demo.stderr));
    let (events, report) = events(&text(&demo.stdout));
    let summary =
        LifecycleChecker::check_all(&events).unwrap_or_else(|violation| panic!("{violation:?}"));
    assert_eq!(report["end"], "completed", "{report} {summary:?}");
    assert_eq!(ends(&events, "edit_file"), [Status::Ok]);
    assert_eq!(ends(&events, "run_shell"), [Status::Ok, Status::Ok]);
    assert_eq!(
        ends(&events, "read_file")
            .iter()
            .filter(|status| **status == Status::Blocked)
            .count(),
        1
    );
    let verified = toolgate(home.path(), &["receipts", "verify"]);
    assert_eq!(
        verified.status.code(),
        Some(0),
        "{}",
        text(&verified.stderr)
    );
    assert!(
        text(&verified.stdout).contains("intact"),
        "{}",
        text(&verified.stdout)
    );
}

#[test]
fn a_process_that_is_killed_in_the_middle_of_the_edit_has_made_it_once() {
    let home = tempfile::tempdir().expect("a directory");
    let demo = toolgate(home.path(), &["demo", "--yes", "--crash", "--json"]);
    assert_eq!(demo.status.code(), Some(0), "{}", text(&demo.stderr));
    let (events, report) = events(&text(&demo.stdout));
    LifecycleChecker::check_all(&events).unwrap_or_else(|violation| panic!("{violation:?}"));
    assert_eq!(report["end"], "completed");
    assert_eq!(
        (starts(&events, "edit_file"), ends(&events, "edit_file")),
        (1, vec![Status::Ok])
    );
    let passed = text(&demo.stdout).contains("ok    several: 5450");
    assert!(passed, "the tests pass afterwards: {}", text(&demo.stdout));
    assert_eq!(
        toolgate(home.path(), &["receipts", "verify"]).status.code(),
        Some(0)
    );
}

#[test]
fn without_a_terminal_the_demo_stops_at_the_edit_and_says_how_to_go_on() {
    let home = tempfile::tempdir().expect("a directory");
    let demo = toolgate(home.path(), &["demo"]);
    let said = text(&demo.stderr);
    assert_eq!(demo.status.code(), Some(3), "{said}");
    let kept = said
        .split("the project is kept in ")
        .nth(1)
        .and_then(|rest| rest.split(';').next());
    let kept = kept.unwrap_or_else(|| panic!("it says where: {said}"));
    assert!(said.contains("--yes"), "{said}");
    let config = format!("{kept}/toolgate.toml");
    let listed = toolgate(home.path(), &["approvals", "list", "--json"]);
    let pending: Value =
        serde_json::from_str(text(&listed.stdout).lines().next().expect("one waits"))
            .expect("JSON");
    let id = pending["approval_id"].as_str().expect("it has an id");
    let decided = toolgate(home.path(), &["approvals", "approve", id]);
    assert_eq!(decided.status.code(), Some(0), "{}", text(&decided.stderr));
    let rest = toolgate(
        home.path(),
        &["-C", kept, "--config", &config, "run", "--resume"],
    );
    assert_eq!(rest.status.code(), Some(0), "{}", text(&rest.stderr));
    assert!(
        text(&rest.stdout).contains("The test passes now."),
        "{}",
        text(&rest.stdout)
    );
    std::fs::remove_dir_all(kept).expect("removed");
}

#[test]
fn the_secret_of_the_project_is_looked_for_and_the_project_is_removed() {
    let home = tempfile::tempdir().expect("a directory");
    let demo = toolgate(home.path(), &["demo", "--yes"]);
    let said = text(&demo.stderr);
    assert_eq!(demo.status.code(), Some(0), "{said}");
    assert!(said.contains("nowhere in the database"), "{said}");
    let project = said
        .lines()
        .find_map(|line| line.strip_prefix("project "))
        .expect("it says where")
        .trim();
    assert!(!Path::new(project).exists());
}
