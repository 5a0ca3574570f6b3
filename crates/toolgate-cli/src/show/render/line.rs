//! Lines of styled text that know their width in columns: truncated, wrapped and printed exactly.

use std::{fmt, io::IsTerminal};

use anstyle::Style;
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// The replacement for a tab: terminals disagree about how wide one is.
const TAB_SPACES: &str = "    ";

/// A piece of text in one style.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StyledSpan {
    /// The text: nothing in it moves the cursor or ends the line.
    pub text: String,
    /// Its style.
    pub style: Style,
}

/// One line of text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StyledLine {
    /// Its pieces, from left to right.
    pub spans: Vec<StyledSpan>,
}

impl StyledSpan {
    /// Creates a span. Control characters are made visible, so that text cannot control the
    /// terminal.
    pub fn new(text: &str, style: Style) -> Self {
        let text = crate::env::style::escape_controls(text)
            .replace('\t', TAB_SPACES)
            .replace('\n', " ");
        Self { text, style }
    }

    /// Returns how many columns it takes.
    pub fn width(&self) -> usize {
        self.text.width()
    }
}

impl StyledLine {
    /// Creates an empty line.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a line in one style.
    pub fn styled(text: &str, style: Style) -> Self {
        Self::new().with(text, style)
    }

    /// Creates a line without a style.
    pub fn plain(text: &str) -> Self {
        Self::styled(text, Style::new())
    }

    /// Adds text in a style, and returns the line.
    pub fn with(mut self, text: &str, style: Style) -> Self {
        self.push(text, style);
        self
    }

    /// Adds text in a style.
    pub fn push(&mut self, text: &str, style: Style) {
        if !text.is_empty() {
            self.spans.push(StyledSpan::new(text, style));
        }
    }

    /// Appends another line.
    pub fn extend(&mut self, other: Self) {
        self.spans.extend(other.spans);
    }

    /// Returns how many columns it takes.
    pub fn width(&self) -> usize {
        self.spans.iter().map(StyledSpan::width).sum()
    }

    /// Returns the text without styles.
    pub fn text(&self) -> String {
        self.spans.iter().map(|span| span.text.as_str()).collect()
    }

    /// Checks whether there is nothing visible.
    pub fn is_blank(&self) -> bool {
        self.spans.iter().all(|span| span.text.trim().is_empty())
    }

    /// Clips the line like [`StyledLine::clip`] for a terminal; a pipe gets all of it.
    pub(crate) fn clip_on_terminal(self, width: usize) -> Self {
        if std::io::stdout().is_terminal() {
            self.clip(width)
        } else {
            self
        }
    }

    /// Truncates the line to `width` columns; a truncated line ends with `…`.
    pub fn clip(&self, width: usize) -> Self {
        if self.width() <= width {
            return self.clone();
        }
        let room = width.saturating_sub(1);
        let mut line = Self::new();
        let mut used = 0;
        // By grapheme, not by character: an emoji sequence must not be cut apart.
        'spans: for span in &self.spans {
            let mut text = String::new();
            for grapheme in span.text.graphemes(true) {
                used += grapheme.width();
                if used > room {
                    line.push(&text, span.style);
                    break 'spans;
                }
                text.push_str(grapheme);
            }
            line.push(&text, span.style);
        }
        if width > 0 {
            line.push("…", Style::new().dimmed());
        }
        line
    }

    /// Wraps the line at exactly `width` columns and leaves nothing out, not even blanks. Lines after
    /// the first begin with `indent`.
    pub fn wrap_exactly(&self, width: usize, indent: &StyledLine) -> Vec<Self> {
        let width = width.max(indent.width() + 2);
        let mut rows = vec![Self::new()];
        let mut used = 0;
        for span in &self.spans {
            let mut text = String::new();
            for grapheme in span.text.graphemes(true) {
                if used + grapheme.width() > width {
                    rows.last_mut()
                        .expect("there is one")
                        .push(&text, span.style);
                    text.clear();
                    rows.push(indent.clone());
                    used = indent.width();
                }
                used += grapheme.width();
                text.push_str(grapheme);
            }
            rows.last_mut()
                .expect("there is one")
                .push(&text, span.style);
        }
        rows
    }

    /// Wraps the line at `width` columns, between words where possible. Lines after the first begin
    /// with `indent`.
    pub fn wrap(&self, width: usize, indent: &StyledLine) -> Vec<Self> {
        // Some room beside the indent, or the width of the later rows would underflow.
        let width = width.max(indent.width() + 2);
        let mut wrapper = LineWrapper {
            width,
            indent,
            done: Vec::new(),
            row: Vec::new(),
            used: 0,
            breakable: None,
        };
        for span in &self.spans {
            for grapheme in span.text.graphemes(true) {
                wrapper.push_grapheme(grapheme, span.style);
            }
        }
        wrapper.finish()
    }
}

impl From<&str> for StyledLine {
    fn from(text: &str) -> Self {
        Self::plain(text)
    }
}

impl From<String> for StyledLine {
    fn from(text: String) -> Self {
        Self::plain(&text)
    }
}

/// Prints the line with its styles; `CommandOutput` strips them where they cannot be shown.
impl fmt::Display for StyledLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for StyledSpan { text, style } in &self.spans {
            if *style == Style::new() {
                f.write_str(text)?
            } else {
                write!(f, "{style}{text}{style:#}")?
            }
        }
        Ok(())
    }
}

/// Wraps a line grapheme by grapheme.
struct LineWrapper<'a> {
    width: usize,
    indent: &'a StyledLine,
    done: Vec<StyledLine>,
    row: Vec<(&'a str, Style)>,
    used: usize,
    /// The position after which the row can be broken.
    breakable: Option<usize>,
}

impl<'a> LineWrapper<'a> {
    fn push_grapheme(&mut self, grapheme: &'a str, style: Style) {
        let room = self.row_width();
        let wide = grapheme.width();
        if self.used + wide > room && !self.row.is_empty() {
            if grapheme == " " {
                // A space at the edge becomes the line break.
                self.break_at(self.row.len());
                return;
            }
            self.break_at(self.breakable.unwrap_or(self.row.len()));
        }
        self.row.push((grapheme, style));
        self.used += wide;
        // Scripts with wide characters have no spaces between words.
        if grapheme == " " || wide > 1 {
            self.breakable = Some(self.row.len());
        }
    }

    fn row_width(&self) -> usize {
        if self.done.is_empty() {
            self.width
        } else {
            self.width - self.indent.width()
        }
    }

    fn break_at(&mut self, at: usize) {
        let rest = self.row.split_off(at);
        while self
            .row
            .last()
            .is_some_and(|(grapheme, _)| *grapheme == " ")
        {
            self.row.pop();
        }
        self.end_row();
        self.used = rest.iter().map(|(grapheme, _)| grapheme.width()).sum();
        self.breakable = rest
            .iter()
            .rposition(|(grapheme, _)| *grapheme == " ")
            .map(|last| last + 1);
        self.row = rest;
    }

    fn end_row(&mut self) {
        let mut line = if self.done.is_empty() {
            StyledLine::new()
        } else {
            self.indent.clone()
        };
        for run in self.row.chunk_by(|a, b| a.1 == b.1) {
            line.spans.push(StyledSpan {
                text: run.iter().map(|(grapheme, _)| *grapheme).collect(),
                style: run[0].1,
            });
        }
        self.row.clear();
        self.done.push(line);
    }

    fn finish(mut self) -> Vec<StyledLine> {
        if !self.row.is_empty() || self.done.is_empty() {
            self.end_row();
        }
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(text: &str, width: usize, indent: &str) -> Vec<String> {
        StyledLine::plain(text)
            .wrap(width, &StyledLine::plain(indent))
            .iter()
            .map(StyledLine::text)
            .collect()
    }

    #[test]
    fn lines_break_between_words_and_inside_a_word_only_if_they_must() {
        assert_eq!(
            wrapped("the quick brown fox", 10, ""),
            ["the quick", "brown fox"]
        );
        assert_eq!(
            wrapped("the quick brown fox", 9, "  "),
            ["the quick", "  brown", "  fox"]
        );
        assert_eq!(wrapped("abcdefghij", 4, ""), ["abcd", "efgh", "ij"]);
        assert_eq!(wrapped("", 4, ""), [""]);
        assert_eq!(wrapped("  kept", 10, ""), ["  kept"]);
    }

    #[test]
    fn wide_characters_never_exceed_the_width() {
        for width in 2..12 {
            for line in wrapped("日本語のテキスト and 👩‍👩‍👧 e\u{301}mojis 界", width, "")
            {
                assert!(
                    UnicodeWidthStr::width(line.as_str()) <= width,
                    "{line:?} in {width}"
                );
            }
        }
        assert_eq!(wrapped("日本語です", 5, ""), ["日本", "語で", "す"]);
    }

    #[test]
    fn a_truncated_line_is_marked_and_keeps_its_styles() {
        let line = StyledLine::plain("ab").with("日本語", Style::new().bold());
        assert_eq!(line.clip(8), line);
        let cut = line.clip(6);
        assert_eq!((cut.text().as_str(), cut.width()), ("ab日…", 5));
        assert_eq!(cut.spans[1].style, Style::new().bold());
        assert_eq!(line.clip(0).text(), "");
    }

    #[test]
    fn exact_wrapping_leaves_nothing_out() {
        let line = StyledLine::plain("ls").with("      x日本  y", Style::new().bold());
        for width in 4..20 {
            let rows = line.wrap_exactly(width, &StyledLine::plain("┆ "));
            let texts = rows.iter().map(StyledLine::text);
            let joined: String = texts
                .map(|row| row.trim_start_matches("┆ ").to_owned())
                .collect();
            assert_eq!(joined, line.text(), "{width}");
            assert!(rows.iter().all(|row| row.width() <= width), "{width}");
        }
    }

    #[test]
    fn text_in_a_line_cannot_control_the_terminal() {
        assert_eq!(
            StyledLine::plain("a\u{1b}[2J\tb\nc").text(),
            "a⟨U+001B⟩[2J    b c"
        );
    }
}
