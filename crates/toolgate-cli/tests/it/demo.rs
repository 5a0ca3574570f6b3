//! `toolgate demo` as a user runs it: the real program, its real tools, its own store.
#![allow(missing_docs, reason = "a test has no public items")]

use std::{
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;
use toolgate::{Event, Status, event::ToolEvent};
use toolgate_testkit::{LifecycleChecker, terminal::Terminal};

fn run_toolgate(home: &Path, arguments: &[&str]) -> Output {
    let mut command = toolgate_command(home, arguments);
    command.output().expect("the program starts")
}

fn toolgate_command(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolgate"));
    command
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
        .env("TOOLGATE_HOME", home)
        .env("HOME", home)
        .env("USER", "ann");
    command
}

/// Returns the address of the demo's database.
fn database(home: &tempfile::TempDir) -> String {
    format!("sqlite:{}", home.path().join("demo.db").display())
}

fn to_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Parses the events of a stream, and its last line.
fn parse_events(stream: &str) -> (Vec<Event>, Value) {
    let mut lines: Vec<&str> = stream.lines().collect();
    let last = lines.pop().expect("there is a last line");
    let event =
        |line: &&str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    (
        lines.iter().map(event).collect(),
        serde_json::from_str(last).expect("JSON"),
    )
}

/// Returns the status of each call of a tool.
fn statuses_of(events: &[Event], tool: &str) -> Vec<Status> {
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

fn count_starts(events: &[Event], tool: &str) -> usize {
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
    let demo = run_toolgate(home.path(), &["demo", "--yes", "--json"]);
    assert_eq!(demo.status.code(), Some(0), "{}", to_text(&demo.stderr));
    let (events, report) = parse_events(&to_text(&demo.stdout));
    let summary =
        LifecycleChecker::check_all(&events).unwrap_or_else(|violation| panic!("{violation:?}"));
    assert_eq!(report["end"], "completed", "{report} {summary:?}");
    assert_eq!(statuses_of(&events, "edit_file"), [Status::Ok]);
    assert_eq!(statuses_of(&events, "run_shell"), [Status::Ok, Status::Ok]);
    assert_eq!(
        statuses_of(&events, "read_file")
            .iter()
            .filter(|status| **status == Status::Blocked)
            .count(),
        1
    );
    let verified = run_toolgate(
        home.path(),
        &["receipts", "verify", "--db", &database(&home)],
    );
    assert_eq!(
        verified.status.code(),
        Some(0),
        "{}",
        to_text(&verified.stderr)
    );
    assert!(
        to_text(&verified.stdout).contains("intact"),
        "{}",
        to_text(&verified.stdout)
    );
}

#[test]
fn an_edit_happens_once_even_if_the_process_is_killed_in_the_middle() {
    let home = tempfile::tempdir().expect("a directory");
    let demo = run_toolgate(home.path(), &["demo", "--yes", "--crash", "--json"]);
    assert_eq!(demo.status.code(), Some(0), "{}", to_text(&demo.stderr));
    let (events, report) = parse_events(&to_text(&demo.stdout));
    LifecycleChecker::check_all(&events).unwrap_or_else(|violation| panic!("{violation:?}"));
    assert_eq!(report["end"], "completed");
    assert_eq!(
        (
            count_starts(&events, "edit_file"),
            statuses_of(&events, "edit_file")
        ),
        (1, vec![Status::Ok])
    );
    let passed = to_text(&demo.stdout).contains("ok    several: 5450");
    assert!(
        passed,
        "the tests pass afterwards: {}",
        to_text(&demo.stdout)
    );
    let verified = run_toolgate(
        home.path(),
        &["receipts", "verify", "--db", &database(&home)],
    );
    assert_eq!(verified.status.code(), Some(0));
}

#[test]
fn without_a_terminal_the_demo_is_suspended_at_the_edit_and_prints_how_to_resume() {
    let home = tempfile::tempdir().expect("a directory");
    let demo = run_toolgate(home.path(), &["demo"]);
    let said = to_text(&demo.stderr);
    assert_eq!(demo.status.code(), Some(3), "{said}");
    let kept = said
        .split("the project is kept in ")
        .nth(1)
        .and_then(|rest| rest.lines().next());
    let kept = kept.unwrap_or_else(|| panic!("it says where: {said}"));
    assert!(said.contains("--yes"), "{said}");
    let db = database(&home);
    let listed = run_toolgate(home.path(), &["approvals", "list", "--json", "--db", &db]);
    let pending: Value = serde_json::from_str(
        to_text(&listed.stdout)
            .lines()
            .next()
            .expect("one is pending"),
    )
    .expect("JSON");
    let id = pending["approval_id"].as_str().expect("it has an id");
    let decided = run_toolgate(home.path(), &["approvals", "approve", id, "--db", &db]);
    assert_eq!(
        decided.status.code(),
        Some(0),
        "{}",
        to_text(&decided.stderr)
    );
    let session = pending["session"].as_str().expect("it has a session");
    let rest = run_toolgate(home.path(), &["run", "--resume", session, "--db", &db]);
    assert_eq!(rest.status.code(), Some(0), "{}", to_text(&rest.stderr));
    assert!(
        to_text(&rest.stdout).contains("The test passes now."),
        "{}",
        to_text(&rest.stdout)
    );
    std::fs::remove_dir_all(kept).expect("removed");
}

#[test]
fn the_database_is_searched_for_the_secret_and_the_project_is_deleted() {
    let home = tempfile::tempdir().expect("a directory");
    let demo = run_toolgate(home.path(), &["demo", "--yes"]);
    let said = to_text(&demo.stderr);
    assert_eq!(demo.status.code(), Some(0), "{said}");
    assert!(said.contains("nowhere in the database"), "{said}");
    let project = said
        .lines()
        .find_map(|line| line.strip_prefix("project "))
        .expect("it says where")
        .trim();
    assert!(!Path::new(project).exists());
}

#[test]
fn after_a_crash_the_demo_says_that_nothing_was_repeated() {
    let home = tempfile::tempdir().expect("a directory");
    let demo = run_toolgate(home.path(), &["demo", "--yes", "--crash"]);
    let said = to_text(&demo.stderr);
    assert_eq!(demo.status.code(), Some(0), "{said}");
    let line = said.lines().find(|line| line.starts_with("✓ edit_file"));
    let line = line.unwrap_or_else(|| panic!("the edit: {said}"));
    assert!(line.contains("already applied, not run again"), "{line}");
    let punch_line = "already applied, not run again; 1 recovered, 0 repeated";
    assert!(said.contains(punch_line), "{said}");
}

#[test]
fn the_demo_never_uses_the_database_of_the_user() {
    let home = tempfile::tempdir().expect("a directory");
    let users = home.path().join("users.db");
    let mut command = toolgate_command(home.path(), &["demo", "--yes", "--crash"]);
    command.env("TOOLGATE_DB", &users);
    let demo = command.output().expect("the program starts");
    assert_eq!(demo.status.code(), Some(0), "{}", to_text(&demo.stderr));
    assert!(home.path().join("demo.db").exists());
    assert!(!users.exists() && !home.path().join("toolgate.db").exists());
}

#[test]
fn after_a_crash_words_stay_whole_and_the_crash_is_not_suggested_again() {
    let home = tempfile::tempdir().expect("a directory");
    let mut terminal = Terminal::builder(env!("CARGO_BIN_EXE_toolgate"))
        .args(["demo", "--yes", "--crash"])
        .env("TOOLGATE_HOME", home.path())
        .env("HOME", home.path())
        .size(60, 40)
        .spawn();
    assert_eq!(terminal.wait_exit(), 0);
    let shown = terminal.transcript();
    let mut rows = shown
        .lines()
        .skip_while(|row| !row.starts_with("crash The process"));
    let said: String = rows
        .by_ref()
        .take_while(|row| !row.trim().is_empty())
        .map(|row| format!("{} ", row.trim()))
        .collect();
    assert!(
        said.contains("after the edit and before it was recorded. Another process resumes:"),
        "{shown}"
    );
    let summary: String = rows.collect::<Vec<_>>().join("\n");
    assert!(summary.contains("receipts verify"), "{shown}");
    assert!(!summary.contains("toolgate demo --yes --crash"), "{shown}");
}
