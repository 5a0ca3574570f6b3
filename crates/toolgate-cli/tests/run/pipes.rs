//! Runs that nobody looks at: pipes, files, machines.

use std::{io::Write, process::Stdio};

use serde_json::Value;
use toolgate::Event;
use toolgate_testkit::LifecycleChecker;

use crate::world::{World, is_steering, text};

const WORK: &str = r#"
    [[reply]]
    text = "I look first."
    calls = [{ tool = "read_file", arguments = { path = "a.txt" } }, { tool = "list_dir", arguments = { path = "." } }]
    [[reply]]
    text = "Then I change it."
    calls = [{ tool = "write_file", arguments = { path = "a.txt", content = "two\n" } }]
    [[reply]]
    text = "It is changed."
"#;

#[test]
fn without_a_terminal_a_run_stops_where_somebody_has_to_decide() {
    let world = World::new(WORK);
    let output = world.plain(&["change it"]);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert_eq!(stdout, "I look first.\nThen I change it.\n");
    assert!(!is_steering(&stderr), "{stderr:?}");
    for part in [
        "✓ read_file a.txt",
        "? write_file a.txt",
        "toolgate approvals approve ",
        "toolgate run --resume ",
    ] {
        assert!(stderr.contains(part), "{part} in:\n{stderr}");
    }
    assert_eq!(world.read("a.txt"), "one\n");
}

#[test]
fn what_machines_read_is_the_log_as_it_is_stored_and_a_report() {
    let world = World::new(WORK);
    let output = world.plain(&["change it", "--json", "--approve", "yes"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let stdout = text(&output.stdout);
    let (lines, last) = stdout.trim_end().rsplit_once('\n').expect("several lines");
    let events: Vec<Event> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("an event"))
        .collect();
    let summary = LifecycleChecker::check_all(&events).expect("a valid stream");
    assert_eq!((summary.ended.len(), summary.open.len()), (3, 0));
    assert!(
        events
            .iter()
            .eq(world.events().iter().map(|event| &**event)),
        "nothing is left out or changed"
    );
    let report: Value = serde_json::from_str(last).expect("JSON");
    assert_eq!(
        (&report["type"], &report["end"], &report["exit"]),
        (&"report".into(), &"completed".into(), &0.into())
    );
    assert_eq!(report["text"], "It is changed.");
}

#[test]
fn machines_get_pieces_only_if_they_ask_for_them() {
    let world = World::new("chunk = 2\n[[reply]]\ntext = 'Hello.'");
    let pieces = |arguments: &[&str]| {
        text(&world.plain(arguments).stdout)
            .matches(r#""type":"piece""#)
            .count()
    };
    assert_eq!(
        (
            pieces(&["hi", "--json"]),
            pieces(&["hi", "--json", "--pieces"])
        ),
        (0, 3)
    );
    assert_eq!(world.plain(&["hi", "--pieces"]).status.code(), Some(2));
}

#[test]
fn a_quiet_run_says_only_how_it_came_out() {
    let world = World::new(WORK);
    let output = world.plain(&["change it", "--quiet", "--approve", "auto-edit"]);
    assert_eq!(
        (text(&output.stdout).as_str(), text(&output.stderr).as_str()),
        ("It is changed.\n", "")
    );
    assert_eq!(world.read("a.txt"), "two\n");
}

#[test]
fn whoever_stops_reading_is_no_error() {
    let world = World::new(WORK);
    for line in [
        "RUN x --approve yes | head -1",
        "RUN x --approve yes --json | head -1",
        "RUN x -q | head -0",
    ] {
        let output = world.shell(line);
        let stderr = text(&output.stderr);
        assert!(
            !stderr.contains("panicked") && !stderr.contains("error"),
            "{line}: {stderr}"
        );
        assert!(
            matches!(output.status.code(), Some(0 | 3)),
            "{line}: {:?} {stderr}",
            output.status
        );
    }
}

const LISTENING: &str = r#"
    [[reply]]
    when = { user_contains = "From the standard input:\n```\nxyzzy\n```" }
    text = "I read it."
    [[reply]]
    when = { user_contains = "The file notes.md:\n````\n```\nplugh\n```\n````" }
    text = "I read the file."
    [[reply]]
    when = { last_contains = "only this" }
    text = "I heard only this."
    [[reply]]
    text = "I read nothing."
"#;

#[test]
fn what_comes_through_a_pipe_and_files_are_passed_on() {
    let world = World::new(LISTENING);
    let piped = |input: &str, arguments: &[&str]| {
        let mut child = world
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        child
            .stdin
            .take()
            .expect("a pipe")
            .write_all(input.as_bytes())
            .expect("written");
        text(&child.wait_with_output().expect("ends").stdout)
    };
    assert_eq!(piped("xyzzy\n", &["read", "this", "-q"]), "I read it.\n");
    assert_eq!(piped("only this", &["-", "-q"]), "I heard only this.\n");
    assert_eq!(piped("", &["read", "-q"]), "I read nothing.\n");
    world.write("notes.md", "```\nplugh\n```\n");
    assert_eq!(
        piped("", &["read", "-f", "notes.md", "-q"]),
        "I read the file.\n"
    );
    let output = world.plain(&["read", "-f", "missing.md"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("missing.md: No such file"),
        "{}",
        text(&output.stderr)
    );
}
