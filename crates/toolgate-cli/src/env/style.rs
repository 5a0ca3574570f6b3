//! The few styles of text for people. Where colours are off, [`CommandOutput`](crate::CommandOutput) strips them.

use std::fmt::Display;

use anstyle::{AnsiColor, Style};

use crate::show::render::StyledLine;

/// The style of a success.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// The style of a failure.
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
/// The style of something pending or unusual.
pub(crate) const WARN: Style = AnsiColor::Yellow.on_default();
/// The style of an information or a name.
pub(crate) const NOTE: Style = AnsiColor::Cyan.on_default();
/// The style of something less important.
pub(crate) const DIM: Style = Style::new().dimmed();

/// Styles a success.
pub(crate) fn good(text: impl Display) -> StyledLine {
    StyledLine::styled(&text.to_string(), GOOD)
}

/// Styles a failure.
pub(crate) fn bad(text: impl Display) -> StyledLine {
    StyledLine::styled(&text.to_string(), BAD.bold())
}

/// Styles something pending or unusual.
pub(crate) fn warn(text: impl Display) -> StyledLine {
    StyledLine::styled(&text.to_string(), WARN)
}

/// Styles an information.
pub(crate) fn note(text: impl Display) -> StyledLine {
    StyledLine::styled(&text.to_string(), NOTE)
}

/// Styles something less important.
pub(crate) fn dim(text: impl Display) -> StyledLine {
    StyledLine::styled(&text.to_string(), DIM)
}

/// Styles a heading or a name.
pub(crate) fn bold(text: impl Display) -> StyledLine {
    StyledLine::styled(&text.to_string(), Style::new().bold())
}

/// Escapes control characters, so that foreign text cannot move the cursor, change colours or
/// reverse its direction. Line ends and tabs stay.
pub(crate) fn escape_controls(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => out.push(c),
            // Half of a Windows line ending. Printed alone it would let the text overwrite its own
            // line.
            '\r' => {}
            c if c.is_control() || turns(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_model_cannot_control_the_terminal() {
        let shown = escape_controls("a\u{1b}[2Jb\u{202e}c\r\nd\u{7}");
        assert_eq!(shown, "a\\u{1b}[2Jb\\u{202e}c\nd\\u{7}");
    }
}
