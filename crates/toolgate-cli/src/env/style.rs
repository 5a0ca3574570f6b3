//! The few styles of text for people. Where colours are off, [`CommandOutput`](crate::CommandOutput) strips them.

use std::fmt::{self, Display};

use anstyle::{AnsiColor, Style};

/// Text in a style.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StyledText<T>(Style, T);

impl<T: Display> Display for StyledText<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(style, text) = self;
        write!(f, "{style}")?;
        // A width in the format applies to the text, not to the escape codes around it.
        text.fmt(f)?;
        write!(f, "{style:#}")
    }
}

/// Styles a success.
pub(crate) fn good<T>(text: T) -> StyledText<T> {
    StyledText(AnsiColor::Green.on_default(), text)
}

/// Styles a failure.
pub(crate) fn bad<T>(text: T) -> StyledText<T> {
    StyledText(AnsiColor::Red.on_default().bold(), text)
}

/// Styles something pending or unusual.
pub(crate) fn warn<T>(text: T) -> StyledText<T> {
    StyledText(AnsiColor::Yellow.on_default(), text)
}

/// Styles an information.
pub(crate) fn note<T>(text: T) -> StyledText<T> {
    StyledText(AnsiColor::Cyan.on_default(), text)
}

/// Styles something less important.
pub(crate) fn dim<T>(text: T) -> StyledText<T> {
    StyledText(Style::new().dimmed(), text)
}

/// Styles a heading or a name.
pub(crate) fn bold<T>(text: T) -> StyledText<T> {
    StyledText(Style::new().bold(), text)
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
