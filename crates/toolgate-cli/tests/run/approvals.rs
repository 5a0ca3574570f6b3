//! What whoever is asked can answer.

use toolgate::Status;
use toolgate_testkit::terminal::{Color, Key, TerminalScreen};

use crate::world::{World, shown};

const WRITE: &str = r#"
    [[reply]]
    text = "I will change the file."
    calls = [{ tool = "write_file", arguments = { path = "a.txt", content = "two\n" } }]
    [[reply]]
    when = { tool_result = { contains = "not today" } }
    text = "Then I leave it."
    [[reply]]
    text = "It is changed."
"#;

const ASKED: &str = "Run write_file?";

/// The colour of a line of the screen.
fn color(screen: &TerminalScreen, line: &str) -> Option<Color> {
    let row = screen.rows().iter().position(|row| row == line)?;
    Some(screen.cell(row as u16, 0)?.fg)
}

#[test]
fn a_change_is_shown_in_colours_and_made_when_somebody_agrees() {
    let world = World::new(WRITE);
    let mut terminal = world.terminal(&["change it"]).spawn();
    let screen = terminal.wait_for(ASKED);
    assert_eq!(
        (color(&screen, "-one"), color(&screen, "+two")),
        (Some(Color::Indexed(1)), Some(Color::Indexed(2)))
    );
    assert!(screen.contains("risk: writes in the workspace"), "{screen}");
    assert_eq!(world.read("a.txt"), "one\n");
    terminal.key(Key::Char('y'));
    assert_eq!(terminal.wait_exit(), 0);
    let transcript = terminal.transcript();
    for part in [
        "✓ write_file a.txt",
        "approved by ann",
        "It is changed.",
        "1 done",
        "1 in the chain, intact and signed",
    ] {
        assert!(transcript.contains(part), "{part} in:\n{transcript}");
    }
    assert!(!terminal.screen().cursor_hidden);
    assert_eq!(world.read("a.txt"), "two\n");
}

#[test]
fn a_denial_reaches_the_model_with_its_reason() {
    let world = World::new(WRITE);
    let mut terminal = world.terminal(&["change it"]).spawn();
    terminal.wait_for(ASKED);
    terminal.key(Key::Char('n'));
    terminal.wait_for("Why not?");
    terminal.send("not todax");
    terminal.key(Key::Backspace);
    terminal.send("y");
    terminal.wait_for("not today");
    terminal.key(Key::Enter);
    assert_eq!(terminal.wait_exit(), 0);
    let transcript = terminal.transcript();
    assert!(
        transcript.contains("denied by ann: not today") && transcript.contains("Then I leave it."),
        "{transcript}"
    );
    assert_eq!(
        (world.read("a.txt").as_str(), world.ended("write_file")),
        ("one\n", vec![Status::Denied])
    );
}

#[test]
fn arguments_can_be_changed_in_an_editor_and_are_shown_again() {
    let world = World::new(WRITE);
    let editor = world.program("editor", r#"sed -i s/two/three/ "$1""#);
    let mut terminal = world
        .terminal(&["change it"])
        .env("EDITOR", &editor)
        .spawn();
    terminal.wait_for(ASKED);
    terminal.key(Key::Char('e'));
    let screen = terminal.wait_for("Run it with these arguments?");
    assert!(screen.contains("+three"), "{screen}");
    terminal.key(Key::Char('y'));
    assert_eq!(terminal.wait_exit(), 0);
    assert!(
        terminal
            .transcript()
            .contains("approved by ann, with changes"),
        "{}",
        terminal.transcript()
    );
    assert_eq!(world.read("a.txt"), "three\n");
}

#[test]
fn what_an_editor_makes_of_arguments_counts_only_if_the_tool_takes_it() {
    let world = World::new(WRITE);
    let editor = world.program(
        "editor",
        r#"test "$1" = --wait && echo '{ "path": 7 }' > "$2""#,
    );
    let mut terminal = world
        .terminal(&["change it"])
        .env("VISUAL", shown(&editor) + " --wait")
        .spawn();
    terminal.wait_for(ASKED);
    terminal.key(Key::Char('e'));
    terminal.wait_for("the tool does not take this");
    terminal.wait_for(ASKED);
    terminal.key(Key::Char('y'));
    assert_eq!(terminal.wait_exit(), 0);
    assert_eq!(world.read("a.txt"), "two\n");
}

#[test]
fn a_rule_is_tried_out_on_the_past_before_it_is_kept_and_answers_from_then_on() {
    let world = World::new(
        r#"
        [[reply]]
        calls = [{ tool = "write_file", arguments = { path = "a.txt", content = "two\n" } }]
        [[reply]]
        calls = [{ tool = "write_file", arguments = { path = "a.txt", content = "three\n" } }]
        [[reply]]
        calls = [{ tool = "write_file", arguments = { path = "b.txt", content = "four\n" } }]
        [[reply]]
        text = "Both are changed."
        "#,
    );
    let mut terminal = world.terminal(&["change it"]).size(100, 40).spawn();
    terminal.wait_for(ASKED);
    terminal.key(Key::Char('a'));
    let screen = terminal.wait_for("Always allow write_file on the same target, in this session?");
    assert!(
        screen.contains("it would have answered one question"),
        "{screen}"
    );
    terminal.key(Key::Char('p'));
    terminal.wait_for("on the same target, in this project?");
    terminal.key(Key::Char('y'));
    // The second change is covered; the third is about another file.
    terminal.wait_until("a question about b.txt", |screen| {
        screen.contains(ASKED) && screen.contains("b.txt") && screen.contains("+four")
    });
    assert_eq!(world.read("a.txt"), "three\n");
    terminal.key(Key::Char('n'));
    terminal.key(Key::Enter);
    assert_eq!(terminal.wait_exit(), 0);
    assert!(
        terminal
            .transcript()
            .contains("toolgate approvals rules revoke"),
        "{}",
        terminal.transcript()
    );
}

const TWO: &str = r#"
    [[reply]]
    calls = [
        { tool = "write_file", arguments = { path = "a.txt", content = "two\n" } },
        { tool = "write_file", arguments = { path = "b.txt", content = "two\n" } },
    ]
    [[reply]]
    text = "Both are changed."
"#;

#[test]
fn two_questions_are_answered_in_whatever_order() {
    let world = World::new(TWO);
    let mut terminal = world.terminal(&["change them"]).spawn();
    terminal.wait_for("2 write_file b.txt");
    terminal.key(Key::Char('2'));
    terminal.wait_for("▸ 2 write_file b.txt");
    terminal.key(Key::Char('y'));
    terminal.wait_until("one question left", |screen| {
        screen.contains(ASKED) && !screen.contains("▸")
    });
    terminal.key(Key::Char('y'));
    assert_eq!(terminal.wait_exit(), 0);
    assert_eq!(world.approved(), ["b.txt", "a.txt"]);
}

#[test]
fn what_is_put_off_waits_until_it_is_taken_up_again() {
    let mut world = World::new(TWO);
    let mut terminal = world.terminal(&["change them"]).spawn();
    terminal.wait_for("2 write_file b.txt");
    terminal.key(Key::Char('1'));
    terminal.wait_for("▸ 1 write_file a.txt");
    terminal.key(Key::Char('s'));
    terminal.wait_until("one question left", |screen| {
        screen.contains(ASKED) && !screen.contains("▸")
    });
    terminal.key(Key::Char('y'));
    terminal.wait_for_printed("✓ write_file b.txt");
    assert_eq!(terminal.wait_exit(), 3);
    assert!(
        terminal.transcript().contains("toolgate approvals approve"),
        "{}",
        terminal.transcript()
    );
    world.play("[[reply]]\nrepeat = 'always'\ntext = 'Both are changed.'");
    let mut terminal = world.terminal(&["--resume"]).spawn();
    terminal.wait_for(ASKED);
    terminal.key(Key::Char('y'));
    assert_eq!(terminal.wait_exit(), 0);
    assert_eq!(
        (world.read("a.txt"), world.approved()),
        ("two\n".to_owned(), vec!["b.txt".to_owned(), "a.txt".into()])
    );
}

#[test]
fn somebody_can_ask_why_they_are_asked() {
    let world = World::new(WRITE);
    let mut terminal = world.terminal(&["change it"]).size(110, 50).spawn();
    terminal.wait_for(ASKED);
    terminal.key(Key::Char('?'));
    let screen = terminal.wait_for("the call would run if somebody agrees");
    assert!(screen.contains("policy"), "{screen}");
    terminal.key(Key::Char('y'));
    assert_eq!(terminal.wait_exit(), 0);
}
