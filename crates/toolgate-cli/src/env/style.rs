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

/// Escapes what cannot be seen, so that foreign text cannot move the cursor, change colours, reverse
/// its direction or hide something. Line ends and tabs stay.
pub(crate) fn escape_controls(text: &str) -> String {
    toolgate::approval::escape_invisible(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_model_cannot_control_the_terminal() {
        let shown = escape_controls("a\u{1b}[2Jb\u{202e}c\r\nd\u{7}");
        assert_eq!(shown, "a⟨U+001B⟩[2Jb⟨U+202E⟩c\nd⟨U+0007⟩");
    }
}
