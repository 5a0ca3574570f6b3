//! What a user sees of a command: some of its output below the call, and how it ended.

use crate::run::world::{RunWorld, to_text};

const COMMAND: &str = r#"
    [[reply]]
    calls = [{ tool = "run_shell", arguments = { command = "seq 1 50; exit 7" } }]
    [[reply]]
    text = "Done."
"#;

/// Returns the rows of the output of a command.
fn output_rows(text: &str) -> Vec<&str> {
    let rows = text.lines().map(str::trim_start);
    rows.filter_map(|row| row.strip_prefix("│ ")).collect()
}

#[test]
fn a_failed_command_says_so_and_shows_the_end_of_its_output() {
    let world = RunWorld::new(COMMAND);
    let ran = world.run_plain(&["count", "--approve", "yes"]);
    let said = to_text(&ran.stderr);
    assert_eq!(ran.status.code(), Some(0), "{said}");
    let line = said.lines().find(|line| line.starts_with("✗ run_shell"));
    let line = line.unwrap_or_else(|| panic!("the call: {said}"));
    assert!(line.contains("exit 7"), "{line}");
    assert_eq!(output_rows(&said), ["… 47 more lines", "48", "49", "50"]);
    assert!(said.contains("1 failed command"), "{said}");
    assert!(!said.contains("1 done"), "{said}");

    let more = world.run_plain(&["count", "--approve", "yes", "--verbose"]);
    let more = to_text(&more.stderr);
    assert_eq!(output_rows(&more).len(), 41, "{more}");

    let sessions = world.run_json(&["sessions", "list"]);
    let id = sessions[0]["session"].as_str().expect("an id");
    let shown = world.run_text(&["sessions", "show", id]);
    let all: Vec<String> = (1..=50).map(|number| number.to_string()).collect();
    assert_eq!(output_rows(&shown), all, "{shown}");
    assert!(shown.contains("✗ run_shell"), "{shown}");
}

#[test]
fn on_a_terminal_the_output_stands_below_the_call() {
    let world = RunWorld::new(COMMAND);
    let mut terminal = world.terminal(&["count", "--approve", "yes"]).spawn();
    assert_eq!(terminal.wait_exit(), 0);
    let transcript = terminal.transcript();
    let rows: Vec<&str> = transcript.lines().collect();
    let at = rows.iter().position(|row| row.starts_with("✗ run_shell"));
    let at = at.unwrap_or_else(|| panic!("the call: {transcript}"));
    assert!(rows[at].contains("exit 7"), "{transcript}");
    let below: Vec<&str> = rows[at + 1..at + 5]
        .iter()
        .map(|row| row.trim_end())
        .collect();
    assert_eq!(below, ["  │ … 47 more lines", "  │ 48", "  │ 49", "  │ 50"]);
}
