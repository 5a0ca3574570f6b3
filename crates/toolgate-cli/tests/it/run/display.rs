//! The display: sizes, colours, wide characters.

use toolgate_testkit::terminal::Key;

use crate::run::world::{RunWorld, has_escape_codes, to_text};

const WIDE: &str = r#"
    [[reply]]
    text = "日本語のテキストはとても長いので、端末の幅で折り返されます。 And 👩‍👩‍👧 goes on **in English** for a while."
    calls = [{ tool = "write_file", arguments = { path = "a_file_with_quite_a_long_name_for_a_narrow_terminal.txt", content = "界\n" } }]
    [[reply]]
    text = "Done."
"#;

#[test]
fn a_narrow_terminal_shows_everything_that_matters() {
    let world = RunWorld::new(WIDE);
    let mut terminal = world.terminal(&["write"]).size(60, 24).spawn();
    let screen = terminal.wait_for("s later");
    for part in [
        "日本語のテキスト",
        "in English",
        "+界",
        "y approve",
        "? explain",
    ] {
        assert!(screen.contains(part), "{part} in\n{screen}");
    }
    // The question names the tool, and nothing else repeats the request.
    let named = |row: &&String| row.contains("write_file");
    assert_eq!(screen.rows().iter().filter(named).count(), 2, "{screen}");
    terminal.press_key(Key::Ctrl('c'));
    let screen = terminal.wait_for("Stop the run?");
    for part in [
        "Enter leave the request pending",
        "c cancel it",
        "Esc return",
    ] {
        assert!(screen.contains(part), "{part} in\n{screen}");
    }
    terminal.press_key(Key::Escape);
    terminal.wait_for("y approve");
    terminal.press_key(Key::Char('y'));
    assert_eq!(terminal.wait_exit(), 0);
}

#[test]
fn resizing_changes_only_the_display() {
    let world = RunWorld::new(WIDE);
    let mut terminal = world.terminal(&["write"]).size(100, 30).spawn();
    terminal.wait_for("Run write_file?");
    for (columns, rows) in [(60, 20), (40, 12), (120, 40)] {
        terminal.resize(columns, rows);
        terminal.wait_until("the approval request at the new size", |screen| {
            let rows = screen.rows();
            // The last question counts: this emulator ignores the code that switches wrapping off, so a
            // frame for the size before leaves a row here. `run::tmux` is strict, in a real terminal.
            let question = rows.iter().rposition(|row| row.contains("Run write_file?"));
            let keys = question.and_then(|at| rows.get(at + 1));
            screen.size() == (columns, rows.len() as u16)
                && keys.is_some_and(|row| row.starts_with("y approve"))
                // The last key, which is drawn last: the frame is whole.
                && screen.contains("s later")
        });
    }
    terminal.press_key(Key::Char('y'));
    assert_eq!(terminal.wait_exit(), 0);
}

#[test]
fn a_request_that_no_longer_fits_is_printed_again_in_full() {
    let world = RunWorld::new(WIDE);
    let mut terminal = world.terminal(&["write"]).size(100, 30).spawn();
    terminal.wait_for("Run write_file?");
    terminal.resize(40, 30);
    // The rows of the first print are cut by a terminal that does not wrap lines anew.
    let whole = "a_file_with_quite_a_long_name_for_a_narrow_terminal.txt";
    terminal.wait_until("the request in narrow rows", |screen| {
        let rows = screen.rows();
        let begins = rows.iter().rposition(|row| row.starts_with("path: "));
        let shown = begins.map(|at| {
            let next = rows[at + 1].trim_start_matches("  ┆ ");
            format!("{}{next}", rows[at].trim_start_matches("path: "))
        });
        shown.as_deref() == Some(whole) && screen.contains("y approve")
    });
    terminal.press_key(Key::Char('y'));
    assert_eq!(terminal.wait_exit(), 0);
}

#[test]
fn keys_that_arrive_during_a_resize_count() {
    let world = RunWorld::new(WIDE);
    let mut terminal = world.terminal(&["write"]).size(100, 30).spawn();
    terminal.wait_for("Run write_file?");
    for columns in 61..=110 {
        terminal.resize(columns, 30);
        terminal.press_key(Key::Char('n'));
        terminal.wait_for("Why not?");
        terminal.press_key(Key::Escape);
        terminal.wait_for("Run write_file?");
    }
    terminal.press_key(Key::Char('y'));
    assert_eq!(terminal.wait_exit(), 0);
}

#[test]
fn an_explanation_keeps_its_columns_on_a_narrow_terminal() {
    let world = RunWorld::new(WIDE);
    let mut terminal = world.terminal(&["write"]).size(60, 40).spawn();
    terminal.wait_for("s later");
    terminal.press_key(Key::Char('?'));
    terminal.wait_for("the call would run if approved");
    let shown = terminal.transcript();
    let mut rows = shown
        .lines()
        .skip_while(|row| !row.starts_with("decide  policy"));
    assert!(
        rows.next().is_some_and(|row| row.ends_with("asks")),
        "{shown}"
    );
    let reason = rows.take_while(|row| row.starts_with("        "));
    let reason: Vec<&str> = reason.map(str::trim).collect();
    assert_eq!(
        reason.join(" "),
        "no rule allows this and the tool may change something",
        "{shown}"
    );
}

/// Returns true if a log changes colours: a sequence that begins with a bracket and ends with `m`.
fn is_colored(log: &str) -> bool {
    log.split("\u{1b}[").skip(1).any(|rest| {
        let end = rest.find(|c: char| c.is_ascii_alphabetic());
        end.is_some_and(|end| rest[end..].starts_with('m'))
    })
}

#[test]
fn colours_can_be_switched_off() {
    let world = RunWorld::new("[[reply]]\ntext = 'Some **bold** words.'");
    let mut terminal = world.terminal(&["speak"]).spawn();
    assert_eq!(terminal.wait_exit(), 0);
    assert!(is_colored(&to_text(&terminal.log())));
    for (name, value, arguments) in [
        ("NO_COLOR", "1", &["speak"][..]),
        ("UNSET", "", &["speak", "--color", "never"]),
    ] {
        let mut terminal = world.terminal(arguments).env(name, value).spawn();
        assert_eq!(terminal.wait_exit(), 0);
        assert!(!is_colored(&to_text(&terminal.log())), "{name}");
        assert!(terminal.transcript().contains("Some bold words."));
    }
}

#[test]
fn a_reply_is_shown_while_it_arrives() {
    let world = RunWorld::new(
        "chunk = 3\ndelay = '60ms'\n[[reply]]\ntext = '''First comes this.\n\nThen comes that, at the end.'''",
    );
    let mut terminal = world.terminal(&["speak"]).spawn();
    let screen = terminal.wait_for("First comes");
    assert!(!screen.contains("at the end."), "{screen}");
    terminal.wait_for_printed("at the end.");
    assert_eq!(terminal.wait_exit(), 0);
    let transcript = terminal.transcript();
    assert_eq!(
        transcript.matches("First comes this.").count(),
        1,
        "{transcript}"
    );
}

#[test]
fn a_model_cannot_control_the_terminal() {
    let world = RunWorld::new(
        r#"
        [[reply]]
        text = "before \u001b[2J\u001b]0;title\u0007 after"
        calls = [{ tool = "read_file", arguments = { path = "\u001b[31mx" } }]
        [[reply]]
        text = "Done."
        "#,
    );
    let mut terminal = world.terminal(&["speak"]).env("NO_COLOR", "1").spawn();
    assert_eq!(terminal.wait_exit(), 0);
    let log = to_text(&terminal.log());
    assert!(
        !log.contains("\u{1b}]0;") && !log.contains("\u{1b}[2J") && !log.contains("\u{1b}[31m"),
        "{log:?}"
    );
    let output = world.run_plain(&["speak"]);
    assert!(
        !has_escape_codes(&to_text(&output.stdout)) && !has_escape_codes(&to_text(&output.stderr))
    );
}
