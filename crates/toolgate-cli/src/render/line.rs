//! Lines of styled text that know how wide they are: cut, wrapped and printed without guessing.

use std::fmt;

use anstyle::Style;
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// What a tab is shown as: terminals disagree about how wide one is.
const TAB: &str = "    ";

/// A piece of text in one style.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The text: nothing in it moves the cursor or ends the line.
    pub text: String,
    /// Its style.
    pub style: Style,
}

/// One line of text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Line {
    /// Its pieces, from left to right.
    pub spans: Vec<Span>,
}

impl Span {
    /// Text in a style. Whatever could steer a terminal is made visible.
    pub fn new(text: &str, style: Style) -> Self {
        let text = crate::style::plain(text)
            .replace('\t', TAB)
            .replace('\n', " ");
        Self { text, style }
    }

    /// How many columns it takes.
    pub fn width(&self) -> usize {
        self.text.width()
    }
}

impl Line {
    /// An empty line.
    pub fn new() -> Self {
        Self::default()
    }

    /// A line in one style.
    pub fn styled(text: &str, style: Style) -> Self {
        Self::new().with(text, style)
    }

    /// A line without a style.
    pub fn plain(text: &str) -> Self {
        Self::styled(text, Style::new())
    }

    /// Adds text in a style.
    pub fn with(mut self, text: &str, style: Style) -> Self {
        self.push(text, style);
        self
    }

    /// Adds text in a style.
    pub fn push(&mut self, text: &str, style: Style) {
        if !text.is_empty() {
            self.spans.push(Span::new(text, style));
        }
    }

    /// Adds another line behind this one.
    pub fn extend(&mut self, other: Self) {
        self.spans.extend(other.spans);
    }

    /// How many columns it takes.
    pub fn width(&self) -> usize {
        self.spans.iter().map(Span::width).sum()
    }

    /// The text alone.
    pub fn text(&self) -> String {
        self.spans.iter().map(|span| span.text.as_str()).collect()
    }

    /// Whether there is nothing to see.
    pub fn is_blank(&self) -> bool {
        self.spans.iter().all(|span| span.text.trim().is_empty())
    }

    /// The line cut to `width` columns; what is cut off leaves a `…`.
    pub fn clip(&self, width: usize) -> Self {
        if self.width() <= width {
            return self.clone();
        }
        let room = width.saturating_sub(1);
        let (mut line, mut used) = (Self::new(), 0);
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

    /// The line as lines of at most `width` columns, broken between words where there are any. Lines behind the first
    /// begin with `indent`.
    pub fn wrap(&self, width: usize, indent: &Line) -> Vec<Self> {
        let width = width.max(indent.width() + 2);
        let mut wrapper = Wrapper {
            width,
            indent,
            done: Vec::new(),
            row: Vec::new(),
            used: 0,
            breakable: None,
        };
        for span in &self.spans {
            for grapheme in span.text.graphemes(true) {
                wrapper.put(grapheme, span.style);
            }
        }
        wrapper.finish()
    }
}

/// Printed with its styles; where they cannot be shown, `Out` takes them out.
impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Span { text, style } in &self.spans {
            match *style == Style::new() {
                true => f.write_str(text)?,
                false => write!(f, "{style}{text}{style:#}")?,
            }
        }
        Ok(())
    }
}

/// Breaks a line that comes character by character.
struct Wrapper<'a> {
    width: usize,
    indent: &'a Line,
    done: Vec<Line>,
    row: Vec<(&'a str, Style)>,
    used: usize,
    /// Where the row can be broken: behind so many characters.
    breakable: Option<usize>,
}

impl<'a> Wrapper<'a> {
    fn put(&mut self, grapheme: &'a str, style: Style) {
        let (room, wide) = (self.room(), grapheme.width());
        if self.used + wide > room && !self.row.is_empty() {
            if grapheme == " " {
                // A blank at the edge is what the line is broken at.
                self.break_at(self.row.len());
                return;
            }
            self.break_at(self.breakable.unwrap_or(self.row.len()));
        }
        self.row.push((grapheme, style));
        self.used += wide;
        // Scripts with wide characters have no blanks between words.
        if grapheme == " " || wide > 1 {
            self.breakable = Some(self.row.len());
        }
    }

    fn room(&self) -> usize {
        match self.done.is_empty() {
            true => self.width,
            false => self.width - self.indent.width(),
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
        let mut line = match self.done.is_empty() {
            true => Line::new(),
            false => self.indent.clone(),
        };
        for run in self.row.chunk_by(|a, b| a.1 == b.1) {
            line.spans.push(Span {
                text: run.iter().map(|(grapheme, _)| *grapheme).collect(),
                style: run[0].1,
            });
        }
        self.row.clear();
        self.done.push(line);
    }

    fn finish(mut self) -> Vec<Line> {
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
        Line::plain(text)
            .wrap(width, &Line::plain(indent))
            .iter()
            .map(Line::text)
            .collect()
    }

    #[test]
    fn lines_are_broken_between_words_and_words_only_if_they_must_be() {
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
    fn wide_characters_never_reach_over_the_edge() {
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
    fn a_cut_line_says_so_and_keeps_its_styles() {
        let line = Line::plain("ab").with("日本語", Style::new().bold());
        assert_eq!(line.clip(8), line);
        let cut = line.clip(6);
        assert_eq!((cut.text().as_str(), cut.width()), ("ab日…", 5));
        assert_eq!(cut.spans[1].style, Style::new().bold());
        assert_eq!(line.clip(0).text(), "");
    }

    #[test]
    fn what_a_line_shows_cannot_steer_the_terminal() {
        assert_eq!(Line::plain("a\u{1b}[2J\tb\nc").text(), "a\\u{1b}[2J    b c");
    }
}
