//! The few styles that text for people has. Where colours cannot be shown, `Out` takes them out again.

use std::fmt::{self, Display};

use anstyle::{AnsiColor, Style};

/// Text in a style.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Styled<T>(Style, T);

impl<T: Display> Display for Styled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(style, text) = self;
        write!(f, "{style}")?;
        // The width is for the text, not for the codes around it.
        text.fmt(f)?;
        write!(f, "{style:#}")
    }
}

/// Something went well.
pub(crate) fn good<T>(text: T) -> Styled<T> {
    Styled(AnsiColor::Green.on_default(), text)
}

/// Something went wrong.
pub(crate) fn bad<T>(text: T) -> Styled<T> {
    Styled(AnsiColor::Red.on_default().bold(), text)
}

/// Something waits, or needs a look.
pub(crate) fn warn<T>(text: T) -> Styled<T> {
    Styled(AnsiColor::Yellow.on_default(), text)
}

/// Something to know.
pub(crate) fn note<T>(text: T) -> Styled<T> {
    Styled(AnsiColor::Cyan.on_default(), text)
}

/// Something less important.
pub(crate) fn dim<T>(text: T) -> Styled<T> {
    Styled(Style::new().dimmed(), text)
}

/// A heading or a name.
pub(crate) fn bold<T>(text: T) -> Styled<T> {
    Styled(Style::new().bold(), text)
}

/// Text that cannot move the cursor, change colours or turn its direction, whoever wrote it. Line ends and tabs stay.
pub(crate) fn plain(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => out.push(c),
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
    fn what_a_model_writes_cannot_steer_the_terminal() {
        let shown = plain("a\u{1b}[2Jb\u{202e}c\r\nd\u{7}");
        assert_eq!(shown, "a\\u{1b}[2Jb\\u{202e}c\nd\\u{7}");
    }
}
