//! Where messages are written: several lines, with what was said before at hand.

use crossterm::event::KeyEvent;
use ratatui::style::{Modifier, Style};
use ratatui_textarea::{CursorMove, TextArea, WrapMode};
use unicode_width::UnicodeWidthStr;

/// The message that is being written.
#[derive(Debug, Clone)]
pub(crate) struct Input {
    area: TextArea<'static>,
    said: Vec<String>,
    /// Which earlier message is shown, and what was being written before.
    recalled: Option<(usize, String)>,
}

impl Input {
    /// The most lines that it grows to.
    pub(crate) const MOST_LINES: usize = 6;

    /// Nothing yet.
    pub(crate) fn new(placeholder: &str) -> Self {
        Self {
            area: area("", placeholder),
            said: Vec::new(),
            recalled: None,
        }
    }

    /// What is written.
    pub(crate) fn text(&self) -> String {
        self.area.lines().join("\n")
    }

    /// Whether nothing is written.
    pub(crate) fn is_blank(&self) -> bool {
        self.area.lines().iter().all(|line| line.trim().is_empty())
    }

    /// Takes what is written, and remembers it.
    pub(crate) fn take(&mut self) -> String {
        let text = self.text().trim().to_owned();
        if !text.is_empty() && self.said.last() != Some(&text) {
            self.said.push(text.clone());
        }
        self.set("");
        self.recalled = None;
        text
    }

    /// Remembers something that was said in an earlier process.
    pub(crate) fn remember(&mut self, text: &str) {
        if self.said.last().map(String::as_str) != Some(text) {
            self.said.push(text.to_owned());
        }
    }

    /// Takes in a key that means nothing else here.
    pub(crate) fn key(&mut self, key: KeyEvent) {
        self.area.input(key);
    }

    /// Takes in text that was pasted.
    pub(crate) fn paste(&mut self, text: &str) {
        self.area.insert_str(crate::style::plain(text));
    }

    /// Begins a new line.
    pub(crate) fn new_line(&mut self) {
        self.area.insert_newline();
    }

    /// A line up; in the first line, what was said before.
    pub(crate) fn earlier(&mut self) {
        if self.area.cursor().0 > 0 {
            return self.area.move_cursor(CursorMove::Up);
        }
        let place = self
            .recalled
            .as_ref()
            .map_or(self.said.len(), |(place, _)| *place);
        let Some(place) = place.checked_sub(1) else {
            return;
        };
        let written = self
            .recalled
            .take()
            .map_or_else(|| self.text(), |(_, written)| written);
        self.set(&self.said[place].clone());
        self.recalled = Some((place, written));
    }

    /// A line down; in the last line, what was said after that.
    pub(crate) fn later(&mut self) {
        if self.area.cursor().0 + 1 < self.area.lines().len() {
            return self.area.move_cursor(CursorMove::Down);
        }
        let Some((place, written)) = self.recalled.take() else {
            return;
        };
        match self.said.get(place + 1).cloned() {
            Some(said) => {
                self.set(&said);
                self.recalled = Some((place + 1, written));
            }
            None => self.set(&written),
        }
    }

    /// Writes something else in its place.
    pub(crate) fn set(&mut self, text: &str) {
        self.area = area(text, self.area.placeholder_text());
        self.area.move_cursor(CursorMove::Bottom);
        self.area.move_cursor(CursorMove::End);
    }

    /// Shows the cursor or not.
    pub(super) fn set_focused(&mut self, focused: bool) {
        let style = if focused {
            Style::new().add_modifier(Modifier::REVERSED)
        } else {
            Style::new()
        };
        self.area.set_cursor_style(style);
    }

    /// How many lines it takes at this width.
    pub(super) fn height(&self, width: u16) -> usize {
        let width = usize::from(width.max(1));
        let rows: usize = self
            .area
            .lines()
            .iter()
            .map(|line| line.width() / width + 1)
            .sum();
        rows.clamp(1, Self::MOST_LINES)
    }

    /// What is drawn.
    pub(super) fn area(&self) -> &TextArea<'static> {
        &self.area
    }
}

fn area(text: &str, placeholder: &str) -> TextArea<'static> {
    let mut area = TextArea::from(text.split('\n'));
    area.set_cursor_line_style(Style::new());
    area.set_placeholder_text(placeholder);
    area.set_placeholder_style(Style::new().add_modifier(Modifier::DIM));
    area.set_wrap_mode(WrapMode::WordOrGlyph);
    area
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(texts: &[&str]) -> Input {
        let mut input = Input::new("");
        for text in texts {
            input.set(text);
            input.take();
        }
        input
    }

    #[test]
    fn what_was_said_comes_back_and_what_was_being_written_is_not_lost() {
        let mut input = said(&["one", "two"]);
        input.set("three, half");
        input.earlier();
        assert_eq!(input.text(), "two");
        input.earlier();
        input.earlier();
        assert_eq!(input.text(), "one");
        input.later();
        input.later();
        assert_eq!(input.text(), "three, half");
    }

    #[test]
    fn in_several_lines_the_cursor_moves_before_history_does() {
        let mut input = said(&["before"]);
        input.set("a\nb");
        input.earlier();
        assert_eq!(input.text(), "a\nb");
        input.earlier();
        assert_eq!(input.text(), "before");
    }

    #[test]
    fn what_is_pasted_cannot_steer_the_terminal() {
        let mut input = Input::new("");
        input.paste("a\u{1b}[2Jb\nc");
        assert_eq!(input.text(), "a\\u{1b}[2Jb\nc");
    }
}
