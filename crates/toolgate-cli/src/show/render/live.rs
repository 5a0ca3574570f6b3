//! The part of the terminal that is redrawn, below the text that has scrolled up for good.
//!
//! Between two frames the cursor stands at the first column of the open part. When its size changes, a
//! terminal moves the cursor along with the text, so the open part is found again, whether or not the
//! terminal wraps lines anew. Rows are erased one by one: some terminals move a screen that is cleared
//! at once into the scrollback, with every frame.

use std::io::{self, Write};

use super::StyledLine;

// Synchronized output, so that no half-drawn frame is shown; terminals that do not know it ignore
// it. The cursor is hidden, or it would be seen jumping.
const FRAME_BEGIN: &str = "\u{1b}[?2026h\u{1b}[?25l";
const FRAME_END: &str = "\u{1b}[?2026l";

// A terminal that has become narrower meanwhile cuts the rows of the open part, which are redrawn soon.
const WRAP_OFF: &str = "\u{1b}[?7l";
const WRAP_ON: &str = "\u{1b}[?7h";

const SAVE_CURSOR: &str = "\u{1b}7";
const RESTORE_CURSOR: &str = "\u{1b}8";
const ERASE_ROW: &str = "\u{1b}[2K";
/// Moves the cursor down; at the last row it does nothing, and nothing scrolls.
const NEXT_ROW: &str = "\u{1b}[1B";

/// A redrawn area below settled text. Every line is truncated to the width, so that it takes
/// exactly one row.
#[derive(Debug)]
pub struct LiveArea<W> {
    to: W,
    width: usize,
    height: usize,
    /// The number of rows of the open part on the screen.
    drawn: usize,
    /// The open part on the screen, if nothing has changed it since.
    shown: Option<Vec<StyledLine>>,
    colored: bool,
}

impl<W: Write> LiveArea<W> {
    /// Creates a display for a terminal of this size, with or without colours.
    pub fn new(to: W, (width, height): (u16, u16), colored: bool) -> Self {
        let width = usize::from(width.max(20));
        let height = usize::from(height.max(5));
        Self {
            to,
            width,
            height,
            drawn: 0,
            shown: None,
            colored,
        }
    }

    /// Returns the number of columns.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the number of rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Prints `settled` for good and draws `open` below it. If nothing has changed, nothing is written:
    /// a terminal that is resized in the middle of a frame moves the cursor away from the open part,
    /// and a user who selects text would lose the selection.
    pub fn draw(&mut self, settled: Vec<StyledLine>, open: &[StyledLine]) -> io::Result<()> {
        if settled.is_empty() && self.shown.as_deref() == Some(open) {
            return Ok(());
        }
        let mut screen = String::from(FRAME_BEGIN);
        self.erase_open(&mut screen);
        for row in settled
            .iter()
            .flat_map(|line| wrap_settled(line, self.width))
        {
            self.push_row(&row, &mut screen);
        }
        self.draw_open(open, &mut screen);
        self.write_frame(screen + FRAME_END)?;
        self.shown = Some(open.to_vec());
        Ok(())
    }

    /// Erases the open part and shows the cursor, so that another program can use the terminal.
    pub fn release(&mut self) -> io::Result<()> {
        self.shown = None;
        let mut screen = String::new();
        self.erase_open(&mut screen);
        self.write_frame(screen + "\u{1b}[?25h")
    }

    /// Sets the size for the next frame, and returns true if it is another one. What was printed for
    /// good stays as the terminal shows it.
    pub fn resize(&mut self, (width, height): (u16, u16)) -> bool {
        let width = usize::from(width.max(20));
        let height = usize::from(height.max(5));
        if width == self.width && height == self.height {
            return false;
        }
        self.width = width;
        self.height = height;
        self.shown = None;
        // The open part may take more rows now, so everything below the cursor is erased.
        self.drawn = self.height;
        true
    }

    fn max_open_rows(&self) -> usize {
        // An open part that fills the screen would scroll, and the cursor could not get back to its
        // first row.
        self.height - 2
    }

    /// Erases the open part and leaves the cursor where it was: at its first column.
    fn erase_open(&mut self, screen: &mut String) {
        screen.push_str(&erase_rows(self.drawn));
        self.drawn = 0;
    }

    fn draw_open(&mut self, open: &[StyledLine], screen: &mut String) {
        let shown = open
            .iter()
            .skip(open.len().saturating_sub(self.max_open_rows()));
        screen.push_str(WRAP_OFF);
        for line in shown {
            // The last column stays free: writing to it makes some terminals wrap.
            self.push_row(&line.clip(self.width - 1), screen);
            self.drawn += 1;
        }
        screen.push_str(WRAP_ON);
        if self.drawn > 0 {
            screen.push_str(&format!("\u{1b}[{}A", self.drawn));
        }
    }

    fn push_row(&self, row: &StyledLine, screen: &mut String) {
        if self.colored {
            screen.push_str(&row.to_string())
        } else {
            screen.push_str(&row.text())
        }
        screen.push_str("\r\n");
    }

    fn write_frame(&mut self, screen: String) -> io::Result<()> {
        // In one write: a terminal that receives a frame in parts flickers.
        self.to.write_all(screen.as_bytes())?;
        self.to.flush()
    }
}

/// Returns the codes that erase this many rows, from that of the cursor on. The cursor ends at the first
/// column of its row.
pub(crate) fn erase_rows(count: usize) -> String {
    let rows = vec![ERASE_ROW; count].join(NEXT_ROW);
    format!("\r{SAVE_CURSOR}{rows}{RESTORE_CURSOR}")
}

/// Wraps a settled line; continuation rows get the indentation of the first.
fn wrap_settled(line: &StyledLine, width: usize) -> Vec<StyledLine> {
    let text = line.text();
    let indent = text.len() - text.trim_start_matches(' ').len();
    line.wrap(
        width - 1,
        &StyledLine::plain(&" ".repeat(indent.min(width / 2))),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(texts: &[&str]) -> Vec<StyledLine> {
        texts.iter().map(|text| StyledLine::plain(text)).collect()
    }

    fn drawn(acts: impl FnOnce(&mut LiveArea<&mut Vec<u8>>)) -> String {
        let mut written = Vec::new();
        acts(&mut LiveArea::new(&mut written, (20, 6), true));
        String::from_utf8(written)
            .expect("text")
            .replace(FRAME_BEGIN, "")
            .replace(FRAME_END, "")
            .replace(WRAP_OFF, "")
            .replace(WRAP_ON, "")
    }

    #[test]
    fn the_open_part_is_erased_row_by_row_before_anything_is_printed() {
        let text = drawn(|live| {
            live.draw(vec![], &lines(&["one", "two"])).expect("draws");
            live.draw(lines(&["done"]), &lines(&["one"]))
                .expect("draws");
        });
        let first = "\r\u{1b}7\u{1b}8one\r\ntwo\r\n\u{1b}[2A";
        let erased = "\r\u{1b}7\u{1b}[2K\u{1b}[1B\u{1b}[2K\u{1b}8";
        assert_eq!(text, format!("{first}{erased}done\r\none\r\n\u{1b}[1A"));
    }

    #[test]
    fn the_open_part_never_fills_the_screen_and_its_lines_never_wrap() {
        let many: Vec<String> = (0..30)
            .map(|n| format!("{n} 日本語日本語日本語日本語"))
            .collect();
        let many: Vec<StyledLine> = many.iter().map(|text| StyledLine::plain(text)).collect();
        let text = drawn(|live| live.draw(vec![], &many).expect("draws"));
        let rows: Vec<&str> = text.split("\r\n").collect();
        assert_eq!(rows.len(), 5);
        assert!(rows[3].starts_with("29 "), "the last ones are shown");
    }

    #[test]
    fn a_frame_that_changes_nothing_is_not_written() {
        let text = drawn(|live| {
            for _ in 0..3 {
                live.draw(vec![], &lines(&["open"])).expect("draws");
            }
        });
        assert_eq!(text.matches("open").count(), 1, "{text:?}");
        let text = drawn(|live| {
            live.draw(vec![], &lines(&["open"])).expect("draws");
            live.draw(lines(&["done"]), &lines(&["open"]))
                .expect("draws");
            live.resize((30, 6));
            live.draw(vec![], &lines(&["open"])).expect("draws");
            live.release().expect("draws");
            live.draw(vec![], &lines(&["open"])).expect("draws");
        });
        assert_eq!(text.matches("open").count(), 4, "{text:?}");
    }

    #[test]
    fn no_frame_clears_the_screen_because_that_would_fill_the_scrollback() {
        let text = drawn(|live| {
            live.draw(lines(&["a b c d e f g h i j k l m n o"]), &lines(&["open"]))
                .expect("draws");
            live.resize((30, 6));
            live.draw(vec![], &lines(&["open"])).expect("draws");
            live.release().expect("draws");
        });
        for clearing in ["\u{1b}[J", "\u{1b}[0J", "\u{1b}[2J", "\u{1b}[H"] {
            assert!(!text.contains(clearing), "{text:?}");
        }
        assert_eq!(text.matches("a b c").count(), 1, "{text:?}");
        assert_eq!(text.matches("open").count(), 2, "{text:?}");
    }
}
