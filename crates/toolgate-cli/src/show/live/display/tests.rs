//! What stands where on the screen while the user is asked.

use super::*;
use crate::show::live::prompt::tests::{pending_screen, settled_event};

fn display_of(paths: &[&str]) -> LiveDisplay {
    let mut display = LiveDisplay::new(pending_screen(paths), "ann".into(), (60, 40), false);
    display.update_prompt();
    display
}

fn texts(lines: &[StyledLine]) -> Vec<String> {
    lines.iter().map(StyledLine::text).collect()
}

#[test]
fn nothing_stands_between_a_request_and_its_question() {
    let mut display = display_of(&["a"]);
    let printed = display.settled.len();
    let toast = Toast::new(
        ToastLevel::Warning,
        "other",
        "was blocked",
        Timestamp::EPOCH,
    );
    display.set_toasts(vec![toast]);
    for event in settled_event(3) {
        display.apply_item(&FeedItem::Event(event));
    }
    assert_eq!(
        display.settled.len(),
        printed,
        "the request is the last text"
    );
    let open = texts(&display.open_lines());
    assert_eq!(open[0], "Run write_file?");
    let place = |part: &str| open.iter().position(|row| row.contains(part));
    let keys = place("y approve").expect("the keys");
    for other in ["✓ other_tool", "was blocked"] {
        let at = place(other).unwrap_or_else(|| panic!("{other} in {open:#?}"));
        assert!(at > keys, "{open:#?}");
    }
    // They are printed for good once the request is answered.
    display.screen = SessionScreen::new();
    display.update_prompt();
    let printed = texts(&display.settled);
    assert!(
        printed.last().expect("lines").starts_with("✓ other_tool"),
        "{printed:#?}"
    );
    assert!(display.held.is_empty());
}

#[test]
fn a_request_is_named_once_above_its_question_and_once_in_it() {
    let display = display_of(&["a"]);
    let shown = display.visible_text();
    assert_eq!(shown.matches("write_file").count(), 2, "{shown}");
    assert!(!shown.contains("approval pending"), "{shown}");
}

#[test]
fn a_request_that_is_too_long_is_not_approved_with_the_others() {
    let long = "x".repeat(70 * PAGE_ROWS);
    let mut display = display_of(&["a", "b", &long]);
    let requests: Vec<_> = display
        .screen
        .calls()
        .iter()
        .filter_map(|call| call.question.clone())
        .collect();
    display.show_all(requests.clone());
    let shown = display.visible_text();
    assert!(
        shown.contains("Approve all 2 requests above?"),
        "{}",
        shown.len()
    );
    assert!(shown.contains("write_file is not shown in full: decide on it by itself"));
}

#[test]
fn the_question_whether_to_stop_fits_a_narrow_terminal() {
    let mut display = display_of(&["a"]);
    display.ask_to_leave(true);
    let open = texts(&display.open_lines());
    for row in &open {
        assert!(StyledLine::plain(row).width() < 60, "{row}");
    }
    let open = open.join("  ");
    for key in [
        "Enter leave the request pending",
        "c cancel it",
        "Esc return",
    ] {
        assert!(open.contains(key), "{key} in {open}");
    }
}
