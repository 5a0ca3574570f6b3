//! Runs without a terminal: pipes, files, JSON.

use std::{io::Write, process::Stdio};

use serde_json::Value;
use toolgate::Event;
use toolgate_testkit::LifecycleChecker;

use crate::run::world::{RunWorld, has_escape_codes, to_text};

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
fn without_a_terminal_a_run_is_suspended_at_an_approval_request() {
    let world = RunWorld::new(WORK);
    let output = world.run_plain(&["change it"]);
    let stdout = to_text(&output.stdout);
    let stderr = to_text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert_eq!(stdout, "I look first.\nThen I change it.\n");
    assert!(!has_escape_codes(&stderr), "{stderr:?}");
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
fn json_output_is_the_stored_log_and_a_report() {
    let world = RunWorld::new(WORK);
    let output = world.run_plain(&["change it", "--json", "--approve", "yes"]);
    assert_eq!(output.status.code(), Some(0), "{}", to_text(&output.stderr));
    let stdout = to_text(&output.stdout);
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
fn json_output_has_pieces_only_with_the_option() {
    let world = RunWorld::new("chunk = 2\n[[reply]]\ntext = 'Hello to you.'");
    let pieces = |arguments: &[&str]| {
        to_text(&world.run_plain(arguments).stdout)
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
    assert_eq!(world.run_plain(&["hi", "--pieces"]).status.code(), Some(2));
}

#[test]
fn a_quiet_run_prints_only_the_result() {
    let world = RunWorld::new(WORK);
    let output = world.run_plain(&["change it", "--quiet", "--approve", "auto-edit"]);
    assert_eq!(
        (
            to_text(&output.stdout).as_str(),
            to_text(&output.stderr).as_str()
        ),
        ("It is changed.\n", "")
    );
    assert_eq!(world.read("a.txt"), "two\n");
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let world = RunWorld::new(WORK);
    for line in [
        "RUN x --approve yes | head -1",
        "RUN x --approve yes --json | head -1",
        "RUN x -q | head -0",
    ] {
        let output = world.run_in_shell(line);
        let stderr = to_text(&output.stderr);
        assert!(
            !stderr.contains("panicked") && !stderr.contains("error"),
            "{line}: {stderr}"
        );
        assert!(
            matches!(output.status.code(), Some(0 | 3 | 141)),
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
fn piped_input_and_files_are_sent_to_the_model() {
    let world = RunWorld::new(LISTENING);
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
        to_text(&child.wait_with_output().expect("ends").stdout)
    };
    assert_eq!(piped("xyzzy\n", &["read", "this", "-q"]), "I read it.\n");
    assert_eq!(piped("only this", &["-", "-q"]), "I heard only this.\n");
    assert_eq!(piped("", &["read", "-q"]), "I read nothing.\n");
    world.write("notes.md", "```\nplugh\n```\n");
    assert_eq!(
        piped("", &["read", "-f", "notes.md", "-q"]),
        "I read the file.\n"
    );
    let output = world.run_plain(&["read", "-f", "missing.md"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        to_text(&output.stderr).contains("missing.md: No such file"),
        "{}",
        to_text(&output.stderr)
    );
}

#[test]
fn a_question_about_a_huge_file_is_answered_from_its_pieces() {
    let script = r#"
        [[reply]]
        calls = [{ tool = "search", arguments = { query = "needle" } }]
        [[reply]]
        when = { tool_result = { contains = "needle 4711" } }
        calls = [{ tool = "set_answer", arguments = { answer = "It is 4711." } }]
    "#;
    let world = RunWorld::new(script);
    // Far more than a message may have.
    let hay = "hay\n".repeat(600_000);
    world.write("huge.log", &format!("{hay}needle 4711\n{hay}"));
    let question = "what is the needle?";
    let ask = |more: &[&str]| {
        let mut arguments = vec![question, "-f", "huge.log"];
        arguments.extend(more);
        world.run_plain(&arguments)
    };
    let output = ask(&["--strategy", "recursive"]);
    let stderr = to_text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(to_text(&output.stdout).contains("It is 4711."), "{stderr}");
    let events = world.events();
    let names: Vec<_> = events.iter().map(|event| event.name()).collect();
    assert!(names.contains(&"recursive_iteration"), "{names:?}");

    // Without documents there is nothing to read, and the file of the project can choose it, too.
    world.write("toolgate.toml", "[run]\nstrategy = 'recursive'\n");
    assert_eq!(world.toolgate_status(&["config", "trust", "--yes"]), 0);
    let output = ask(&[]);
    assert_eq!(output.status.code(), Some(0), "{}", to_text(&output.stderr));
    let output = world.run_plain(&[question]);
    assert_eq!(output.status.code(), Some(2));
    assert!(to_text(&output.stderr).contains("has no documents"));
}
