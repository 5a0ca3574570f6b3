//! The decisions that an approver can make at the terminal.

use crate::account_name;
use toolgate::{Status, event::ToolEvent};
use toolgate_testkit::terminal::{CellColor, Key, Terminal, TerminalScreen};

use crate::run::world::{RunWorld, path_text};

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

/// Returns the colour of a line of a diff on the screen, behind its margin.
fn color_of_line(screen: &TerminalScreen, line: &str) -> Option<CellColor> {
    let line = format!("  │ {line}");
    let row = screen.rows().iter().position(|row| *row == line)?;
    Some(screen.cell(row as u16, 4)?.fg)
}

#[test]
fn a_change_is_shown_in_colours_and_made_when_approved() {
    let world = RunWorld::new(WRITE);
    let mut terminal = world.terminal(&["change it"]).spawn();
    let screen = terminal.wait_for(ASKED);
    assert_eq!(
        (
            color_of_line(&screen, "-one"),
            color_of_line(&screen, "+two")
        ),
        (Some(CellColor::Indexed(1)), Some(CellColor::Indexed(2)))
    );
    assert!(screen.contains("risk: writes in the workspace"), "{screen}");
    assert_eq!(world.read("a.txt"), "one\n");
    terminal.press_key(Key::Char('y'));
    assert_eq!(terminal.wait_exit(), 0);
    let transcript = terminal.transcript();
    for part in [
        "✓ write_file a.txt",
        &format!("approved by {}", account_name()),
        "It is changed.",
        "1 done",
        "1 of this run, verified and signed; 1 in the chain",
    ] {
        assert!(transcript.contains(part), "{part} in:\n{transcript}");
    }
    assert!(!terminal.screen().cursor_hidden);
    assert_eq!(world.read("a.txt"), "two\n");
}

#[test]
fn a_denial_reaches_the_model_with_its_reason() {
    let world = RunWorld::new(WRITE);
    let mut terminal = world.terminal(&["change it"]).spawn();
    terminal.wait_for(ASKED);
    terminal.press_key(Key::Char('n'));
    terminal.wait_for("Why not?");
    terminal.send("not todax");
    terminal.press_key(Key::Backspace);
    terminal.send("y");
    terminal.wait_for("not today");
    terminal.press_key(Key::Enter);
    assert_eq!(terminal.wait_exit(), 0);
    let transcript = terminal.transcript();
    assert!(
        transcript.contains(&format!("denied by {}: not today", account_name()))
            && transcript.contains("Then I leave it."),
        "{transcript}"
    );
    assert_eq!(
        (
            world.read("a.txt").as_str(),
            world.statuses_of("write_file")
        ),
        ("one\n", vec![Status::Denied])
    );
    let events = world.events();
    let reason = events.iter().find_map(|event| match event.as_tool()? {
        (_, ToolEvent::ToolDenied { reason, .. }) => reason.clone(),
        _ => None,
    });
    assert_eq!(reason.as_deref(), Some("not today"));
}

#[test]
fn arguments_can_be_changed_in_an_editor_and_are_shown_again() {
    let world = RunWorld::new(WRITE);
    let editor = world.program("editor", r#"sed -i s/two/three/ "$1""#);
    let mut terminal = world
        .terminal(&["change it"])
        .env("EDITOR", &editor)
        .spawn();
    terminal.wait_for(ASKED);
    terminal.press_key(Key::Char('e'));
    let screen = terminal.wait_for("Run it with these arguments?");
    assert!(screen.contains("+three"), "{screen}");
    terminal.press_key(Key::Char('y'));
    assert_eq!(terminal.wait_exit(), 0);
    assert!(
        terminal
            .transcript()
            .contains(&format!("approved by {}, with changes", account_name())),
        "{}",
        terminal.transcript()
    );
    assert_eq!(world.read("a.txt"), "three\n");
}

#[test]
fn edited_arguments_are_used_only_if_the_tool_accepts_them() {
    let world = RunWorld::new(WRITE);
    let editor = world.program(
        "editor",
        r#"test "$1" = --wait && echo '{ "path": 7 }' > "$2""#,
    );
    let mut terminal = world
        .terminal(&["change it"])
        .env("VISUAL", path_text(&editor) + " --wait")
        .spawn();
    terminal.wait_for(ASKED);
    terminal.press_key(Key::Char('e'));
    terminal.wait_for("invalid arguments");
    terminal.wait_for(ASKED);
    terminal.press_key(Key::Char('y'));
    assert_eq!(terminal.wait_exit(), 0);
    assert_eq!(world.read("a.txt"), "two\n");
}

#[test]
fn a_rule_is_previewed_on_past_calls_before_it_is_stored_and_decides_from_then_on() {
    let world = RunWorld::new(
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
    terminal.press_key(Key::Char('a'));
    let screen =
        terminal.wait_for("Always allow write_file with these arguments, in this session?");
    assert!(
        screen.contains("it would have answered one approval request"),
        "{screen}"
    );
    terminal.press_key(Key::Char('x'));
    terminal.wait_for("on the same target, in this session?");
    terminal.press_key(Key::Char('p'));
    terminal.wait_for("on the same target, in this project?");
    terminal.press_key(Key::Char('y'));
    // The second change is covered; the third is about another file.
    terminal.wait_until("an approval request for b.txt", |screen| {
        screen.contains(ASKED) && screen.contains("b.txt") && screen.contains("+four")
    });
    assert_eq!(world.read("a.txt"), "three\n");
    terminal.press_key(Key::Char('n'));
    terminal.press_key(Key::Enter);
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

/// Waits until both requests are listed with the arrow on the first, and marks the one for `path`.
fn mark_request(terminal: &mut Terminal, path: &str) {
    let listed = format!("write_file {path}");
    let screen = terminal.wait_until("both requests", |screen| {
        screen.contains("2 requests are pending") && screen.contains("▸ 1 write_file")
    });
    let rows = screen.rows();
    let row = rows.iter().find(|row| row.contains(&listed));
    let number = row.and_then(|row| row.trim_start_matches(['▸', ' ']).chars().next());
    let number = number.unwrap_or_else(|| panic!("{path} in\n{screen}"));
    terminal.press_key(Key::Char(number));
    terminal.wait_for(&format!("▸ {number} {listed}"));
}

#[test]
fn all_requests_are_shown_and_then_approved_together() {
    let world = RunWorld::new(TWO);
    let mut terminal = world.terminal(&["change them"]).size(60, 40).spawn();
    terminal.wait_for("A approve all");
    terminal.press_key(Key::Char('A'));
    let screen = terminal.wait_for("Approve all 2 requests above?");
    let shown = screen.text().to_owned();
    let end = shown.find("Approve all 2").expect("the question");
    for part in ["path: a.txt", "path: b.txt"] {
        assert!(shown[..end].contains(part), "{part} in\n{screen}");
    }
    terminal.press_key(Key::Char('n'));
    terminal.wait_for("2 requests are pending");
    assert!(world.approved_paths().is_empty());
    terminal.press_key(Key::Char('A'));
    terminal.wait_for("Approve all 2 requests above?");
    terminal.press_key(Key::Char('y'));
    assert_eq!(terminal.wait_exit(), 0);
    let mut approved = world.approved_paths();
    approved.sort();
    assert_eq!(approved, ["a.txt", "b.txt"]);
}

#[test]
fn two_approval_requests_are_decided_in_any_order() {
    let world = RunWorld::new(TWO);
    let mut terminal = world.terminal(&["change them"]).spawn();
    mark_request(&mut terminal, "b.txt");
    terminal.press_key(Key::Char('y'));
    terminal.wait_until("one approval request left", |screen| {
        screen.contains(ASKED) && !screen.contains("▸")
    });
    terminal.press_key(Key::Char('y'));
    assert_eq!(terminal.wait_exit(), 0);
    assert_eq!(world.approved_paths(), ["b.txt", "a.txt"]);
}

#[test]
fn a_postponed_approval_stays_pending_until_the_session_is_resumed() {
    let mut world = RunWorld::new(TWO);
    let mut terminal = world.terminal(&["change them"]).spawn();
    mark_request(&mut terminal, "a.txt");
    terminal.press_key(Key::Char('s'));
    terminal.wait_until("one approval request left", |screen| {
        screen.contains(ASKED) && !screen.contains("▸")
    });
    terminal.press_key(Key::Char('y'));
    terminal.wait_for_printed("✓ write_file b.txt");
    assert_eq!(terminal.wait_exit(), 3);
    assert!(
        terminal.transcript().contains("toolgate approvals approve"),
        "{}",
        terminal.transcript()
    );
    world.set_script("[[reply]]\nrepeat = 'always'\ntext = 'Both are changed.'");
    let mut terminal = world.terminal(&["--resume"]).spawn();
    terminal.wait_for(ASKED);
    terminal.press_key(Key::Char('y'));
    assert_eq!(terminal.wait_exit(), 0);
    assert_eq!(
        (world.read("a.txt"), world.approved_paths()),
        ("two\n".to_owned(), vec!["b.txt".to_owned(), "a.txt".into()])
    );
}

#[test]
fn the_approver_can_ask_for_the_reason_of_a_request() {
    let world = RunWorld::new(WRITE);
    let mut terminal = world.terminal(&["change it"]).size(110, 50).spawn();
    terminal.wait_for(ASKED);
    terminal.press_key(Key::Char('?'));
    let screen = terminal.wait_for("the call would run if approved");
    // The policy requires the approval, and the layer `approval` requests it: both ask.
    let rows = screen.rows();
    for layer in ["policy", "approval"] {
        let row = rows.iter().find(|row| row.contains(&format!(" {layer} ")));
        let asks = row.is_some_and(|row| row.trim_end().ends_with(" asks"));
        assert!(asks, "{layer}: {screen}");
    }
    terminal.press_key(Key::Char('y'));
    assert_eq!(terminal.wait_exit(), 0);
}

/// Returns a script whose model writes `content` into a file.
fn write_script(content: &str) -> String {
    let content = serde_json::to_string(content).expect("text");
    format!(
        "[[reply]]\ncalls = [{{ tool = \"write_file\", arguments = {{ path = \"a.txt\", content = {content} }} }}]\n[[reply]]\ntext = \"Done.\"\n"
    )
}

/// Checks whether the approval was recorded as one of a request that was not shown in full.
fn is_recorded_unseen(world: &RunWorld) -> bool {
    let events = world.events();
    let unseen = |event: &std::sync::Arc<toolgate::Event>| match event.as_tool() {
        Some((_, ToolEvent::ToolApproved { unseen, .. })) => Some(*unseen),
        _ => None,
    };
    events.iter().find_map(unseen).expect("it was approved")
}

#[test]
fn every_line_of_a_request_is_printed_before_it_can_be_approved() {
    let lines: String = (0..1_500).map(|n| format!("line {n}\n")).collect();
    let world = RunWorld::new(&write_script(&lines));
    let mut terminal = world.terminal(&["write it"]).spawn();
    terminal.wait_for("v view all");
    // Without the rest on the screen `y` is not an answer.
    terminal.press_key(Key::Char('y'));
    for _ in 0..4 {
        terminal.press_key(Key::Char('v'));
    }
    terminal.wait_for("y approve");
    terminal.press_key(Key::Char('y'));
    assert_eq!(terminal.wait_exit(), 0);
    let transcript = terminal.transcript();
    for line in ["│ line 0\n", "│ line 749", "│ line 1499", "│ +line 1499"] {
        assert!(transcript.contains(line), "{line}");
    }
    assert_eq!(world.read("a.txt"), lines);
    assert!(!is_recorded_unseen(&world));
}

#[test]
fn an_approval_without_the_rest_on_the_screen_takes_another_key_and_is_recorded() {
    let lines: String = (0..1_500).map(|n| format!("line {n}\n")).collect();
    let world = RunWorld::new(&write_script(&lines));
    let mut terminal = world.terminal(&["write it"]).spawn();
    terminal.wait_for("u approve unread");
    terminal.press_key(Key::Char('u'));
    assert_eq!(terminal.wait_exit(), 0);
    assert_eq!(world.read("a.txt"), lines);
    assert!(is_recorded_unseen(&world));
}
