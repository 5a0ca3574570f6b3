//! The message editor: several lines, with a history of earlier messages.

use crossterm::event::KeyEvent;
use ratatui::style::{Modifier, Style};
use ratatui_textarea::{CursorMove, TextArea, WrapMode};
use unicode_width::UnicodeWidthStr;

/// The message that is being written.
#[derive(Debug, Clone)]
pub(crate) struct MessageInput {
    area: TextArea<'static>,
    said: Vec<String>,
    /// The earlier message that is shown, and the draft from before.
    recalled: Option<(usize, String)>,
}

impl MessageInput {
    /// The most lines that it grows to.
    pub(crate) const MAX_LINES: usize = 6;

    /// Creates an empty editor.
    pub(crate) fn new(placeholder: &str) -> Self {
        Self {
            area: build_area("", placeholder),
            said: Vec::new(),
            recalled: None,
        }
    }

    /// Returns the draft.
    pub(crate) fn text(&self) -> String {
        self.area.lines().join("\n")
    }

    /// Checks whether the draft is blank.
    pub(crate) fn is_blank(&self) -> bool {
        self.area.lines().iter().all(|line| line.trim().is_empty())
    }

    /// Checks whether nothing is written.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self.area.lines(), [line] if line.is_empty())
    }

    /// Returns the word that ends at the cursor, if there is one.
    pub(crate) fn word_before_cursor(&self) -> Option<String> {
        let cursor = self.area.cursor();
        let line = self.area.lines().get(cursor.0)?;
        let before: String = line.chars().take(cursor.1).collect();
        let word = before.rsplit(char::is_whitespace).next()?;
        (!word.is_empty()).then(|| word.to_owned())
    }

    /// Replaces the word that ends at the cursor.
    pub(crate) fn replace_before_cursor(&mut self, word: &str, text: &str) {
        for _ in word.chars() {
            self.area.delete_char();
        }
        self.area.insert_str(text);
    }

    /// Takes the draft.
    pub(crate) fn take_draft(&mut self) -> String {
        let text = self.text();
        self.set_text("");
        self.recalled = None;
        text
    }

    /// Adds a text to the history.
    pub(crate) fn remember(&mut self, text: &str) {
        if self.said.last().map(String::as_str) != Some(text) {
            self.said.push(text.to_owned());
        }
    }

    /// Handles a key that has no other meaning here.
    pub(crate) fn handle_key(&mut self, key: KeyEvent) {
        self.area.input(key);
    }

    /// Inserts pasted text.
    pub(crate) fn paste(&mut self, text: &str) {
        // Control characters are made visible: once drawn, they could control the terminal.
        self.area
            .insert_str(crate::env::style::escape_controls(text));
    }

    /// Begins a new line.
    pub(crate) fn new_line(&mut self) {
        self.area.insert_newline();
    }

    /// Moves a line up; in the first line, shows an earlier message.
    pub(crate) fn show_earlier(&mut self) {
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
        self.set_text(&self.said[place].clone());
        self.recalled = Some((place, written));
    }

    /// Moves a line down; in the last line, shows a later message.
    pub(crate) fn show_later(&mut self) {
        if self.area.cursor().0 + 1 < self.area.lines().len() {
            return self.area.move_cursor(CursorMove::Down);
        }
        let Some((place, written)) = self.recalled.take() else {
            return;
        };
        match self.said.get(place + 1).cloned() {
            Some(said) => {
                self.set_text(&said);
                self.recalled = Some((place + 1, written));
            }
            None => self.set_text(&written),
        }
    }

    /// Replaces the draft.
    pub(crate) fn set_text(&mut self, text: &str) {
        self.area = build_area(text, self.area.placeholder_text());
        self.area.move_cursor(CursorMove::Bottom);
        self.area.move_cursor(CursorMove::End);
    }

    /// Shows or hides the cursor.
    pub(super) fn set_focused(&mut self, focused: bool) {
        let style = if focused {
            Style::new().add_modifier(Modifier::REVERSED)
        } else {
            Style::new()
        };
        self.area.set_cursor_style(style);
    }

    /// Returns the number of lines at this width.
    pub(super) fn row_count(&self, width: u16) -> usize {
        let width = usize::from(width.max(1));
        let rows: usize = self
            .area
            .lines()
            .iter()
            .map(|line| line.width() / width + 1)
            .sum();
        rows.clamp(1, Self::MAX_LINES)
    }

    /// Returns the widget to draw.
    pub(super) fn widget(&self) -> &TextArea<'static> {
        &self.area
    }
}

fn build_area(text: &str, placeholder: &str) -> TextArea<'static> {
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

    fn input_with_history(texts: &[&str]) -> MessageInput {
        let mut input = MessageInput::new("");
        for text in texts {
            input.remember(text);
        }
        input
    }

    #[test]
    fn earlier_messages_come_back_and_the_draft_is_not_lost() {
        let mut input = input_with_history(&["one", "two"]);
        input.set_text("three, half");
        input.show_earlier();
        assert_eq!(input.text(), "two");
        input.show_earlier();
        input.show_earlier();
        assert_eq!(input.text(), "one");
        input.show_later();
        input.show_later();
        assert_eq!(input.text(), "three, half");
    }

    #[test]
    fn in_several_lines_the_cursor_moves_before_history_does() {
        let mut input = input_with_history(&["before"]);
        input.set_text("a\nb");
        input.show_earlier();
        assert_eq!(input.text(), "a\nb");
        input.show_earlier();
        assert_eq!(input.text(), "before");
    }

    #[test]
    fn pasted_text_cannot_control_the_terminal() {
        let mut input = MessageInput::new("");
        input.paste("a\u{1b}[2Jb\nc");
        assert_eq!(input.text(), "a⟨U+001B⟩[2Jb\nc");
    }
}
