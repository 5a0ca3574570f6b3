//! The colours of text can be read on a dark and on a light background.

use std::collections::BTreeSet;

use toolgate_testkit::terminal::Key;

use crate::run::world::{RunWorld, to_text};

/// A model that speaks, shows code, and makes calls that succeed, fail, and need an approval.
const COLOURFUL: &str = r#"
[[reply]]
text = "I **look** at `a.txt`.\n\n```rust\nfn main() { let a = \"x\"; } // end\n```"
calls = [
    { tool = "read_file", arguments = { path = "a.txt" } },
    { tool = "read_file", arguments = { path = "missing.txt" } },
    { tool = "write_file", arguments = { path = "a.rs", content = "fn main() {} // two\n" } },
]
[[reply]]
text = "Done."
"#;

/// The six colours that every theme makes readable on its own background. Black, white and the bright
/// ones are not among them: themes leave them as they are.
const THEMED: [u16; 6] = [1, 2, 3, 4, 5, 6];

/// Returns the colours of text that an output uses without a background of its own, by their number among
/// the 256; `None` is a colour that is not among them.
fn text_colours(log: &str) -> BTreeSet<Option<u16>> {
    let mut found = BTreeSet::new();
    let mut has_background = false;
    for rest in log.split("\u{1b}[").skip(1) {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != ';');
        let Some(end) = end.filter(|end| rest[*end..].starts_with('m')) else {
            continue;
        };
        let codes: Vec<u16> = { rest[..end].split(';') }
            .map(|code| code.parse().unwrap_or(0))
            .collect();
        let mut colour = None;
        let mut left = codes.as_slice();
        while let [code, after @ ..] = left {
            left = after;
            match code {
                0 | 49 => has_background = false,
                30..=37 => colour = Some(Some(code - 30)),
                90..=97 => colour = Some(Some(code - 90 + 8)),
                40..=47 | 100..=107 => has_background = true,
                38 | 48 => {
                    let number = match after {
                        [5, number, ..] => Some(*number),
                        _ => None,
                    };
                    left = after
                        .get(if number.is_some() { 2 } else { 4 }..)
                        .unwrap_or(&[]);
                    if *code == 38 {
                        colour = Some(number);
                    } else {
                        has_background = true;
                    }
                }
                _ => {}
            }
        }
        found.extend(colour.filter(|_| !has_background));
    }
    found
}

#[track_caller]
fn assert_readable(log: &[u8]) {
    let colours = text_colours(&to_text(log));
    assert!(colours.len() >= 3, "there are colours: {colours:?}");
    let is_themed = |colour: &Option<u16>| colour.is_some_and(|colour| THEMED.contains(&colour));
    assert!(colours.iter().all(is_themed), "{colours:?}");
}

#[test]
fn a_run_uses_only_colours_that_a_theme_makes_readable() {
    let world = RunWorld::new(COLOURFUL);
    let mut terminal = world.terminal(&["look"]).size(100, 40).spawn();
    terminal.wait_for("s later");
    terminal.press_key(Key::Char('y'));
    assert_eq!(terminal.wait_exit(), 0);
    assert_readable(&terminal.log());
}

#[test]
fn a_chat_uses_only_colours_that_a_theme_makes_readable() {
    let world = RunWorld::new(COLOURFUL);
    let mut terminal = world.chat(&[]).size(100, 40).spawn();
    terminal.wait_for("Describe a task");
    terminal.send("look");
    terminal.press_key(Key::Enter);
    terminal.wait_for("1 approval pending");
    terminal.press_key(Key::Ctrl('f'));
    terminal.wait_for("search:");
    terminal.send("main");
    terminal.press_key(Key::Enter);
    terminal.wait_for("of 2");
    assert_readable(&terminal.log());
}
