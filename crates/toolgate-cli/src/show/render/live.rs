//! The part of the terminal that is redrawn, below the text that has scrolled up for good.
//!
//! Between two frames the cursor stands at the first column of the open part. When its size changes, a
//! terminal moves the cursor along with the text, so the open part is found again, whether or not the
//! terminal wraps lines anew. It can also be resized in the middle of a frame. Settled text is safe
//! then, because every row follows the one before it; the open part is not, because the cursor returns to
//! its beginning by a number of rows. So the open part is a write of its own: one that a terminal
//! receives whole unless it is very long.

use std::io::{self, Write};

use super::StyledLine;

// Synchronized output, so that no half-drawn frame is shown; terminals that do not know it ignore
// it. The cursor is hidden, or it would be seen jumping.
const FRAME_BEGIN: &str = "\u{1b}[?2026h\u{1b}[?25l";
const FRAME_END: &str = "\u{1b}[?2026l";

// A terminal that has become narrower meanwhile cuts the rows of the open part, which are redrawn soon.
const WRAP_OFF: &str = "\u{1b}[?7l";
const WRAP_ON: &str = "\u{1b}[?7h";

/// Erases the row of the cursor and all rows below it; the cursor ends at the first column of its row.
///
/// The first row is erased by itself: a screen that is cleared from its first row on is moved into the
/// scrollback by some terminals, tmux among them, and every frame would leave a copy there. The line
/// feed makes sure that there is a row below; if there was none, the terminal scrolls, as it would for
/// the row that is drawn next.
pub(crate) const ERASE_BELOW: &str = "\r\u{1b}[2K\n\u{1b}[J\u{1b}[1A";

/// A redrawn area below settled text. Every line is truncated to the width, so that it takes
/// exactly one row.
#[derive(Debug)]
pub struct LiveArea<W> {
    to: W,
    width: usize,
    height: usize,
    /// True if rows of an open part may be on the screen.
    drawn: bool,
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
            drawn: false,
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
        if !settled.is_empty() {
            for row in settled
                .iter()
                .flat_map(|line| wrap_settled(line, self.width))
            {
                self.push_row(&row, &mut screen);
            }
            self.write_part(&screen)?;
            screen.clear();
        }
        self.draw_open(open, &mut screen);
        self.write_part(&(screen + FRAME_END))?;
        self.shown = Some(open.to_vec());
        Ok(())
    }

    /// Erases the open part and shows the cursor, so that another program can use the terminal.
    pub fn release(&mut self) -> io::Result<()> {
        self.shown = None;
        let mut screen = String::new();
        self.erase_open(&mut screen);
        self.write_part(&(screen + "\u{1b}[?25h"))
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
        true
    }

    fn max_open_rows(&self) -> usize {
        // An open part that fills the screen would scroll, and the cursor could not get back to its
        // first row.
        self.height - 2
    }

    /// Erases the open part and leaves the cursor where it was: at its first column.
    fn erase_open(&mut self, screen: &mut String) {
        // All rows below and not only those that were drawn: a terminal that has become narrower may
        // show them as more rows.
        if self.drawn {
            screen.push_str(ERASE_BELOW);
        }
        self.drawn = false;
    }

    fn draw_open(&mut self, open: &[StyledLine], screen: &mut String) {
        let rows = &open[open.len().saturating_sub(self.max_open_rows())..];
        if rows.is_empty() {
            return;
        }
        screen.push_str(WRAP_OFF);
        for line in rows {
            // The last column stays free: writing to it makes some terminals wrap.
            self.push_row(&line.clip(self.width - 1), screen);
        }
        screen.push_str(WRAP_ON);
        screen.push_str(&format!("\u{1b}[{}A", rows.len()));
        self.drawn = true;
    }

    fn push_row(&self, row: &StyledLine, screen: &mut String) {
        if self.colored {
            screen.push_str(&row.to_string())
        } else {
            screen.push_str(&row.text())
        }
        screen.push_str("\r\n");
    }

    fn write_part(&mut self, screen: &str) -> io::Result<()> {
        // In one write: what a terminal receives in pieces flickers, and it may be resized in between.
        self.to.write_all(screen.as_bytes())?;
        self.to.flush()
    }
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
    fn the_open_part_is_erased_before_anything_is_printed() {
        let text = drawn(|live| {
            live.draw(vec![], &lines(&["one", "two"])).expect("draws");
            live.draw(lines(&["done"]), &lines(&["one"]))
                .expect("draws");
        });
        let first = "one\r\ntwo\r\n\u{1b}[2A";
        assert_eq!(
            text,
            format!("{first}{ERASE_BELOW}done\r\none\r\n\u{1b}[1A")
        );
    }

    /// A terminal that keeps what it is sent in one write apart from the next.
    #[derive(Default)]
    struct WriteLog(Vec<String>);

    impl Write for WriteLog {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.push(String::from_utf8_lossy(bytes).into_owned());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_open_part_is_one_write_that_has_no_settled_text() {
        let mut live = LiveArea::new(WriteLog::default(), (40, 10), true);
        let settled = lines(&["a settled line that is long"; 300]);
        live.draw(settled, &lines(&["first", "last"]))
            .expect("draws");
        live.draw(lines(&["settled"]), &lines(&["first", "last"]))
            .expect("draws");
        let writes = live.to.0;
        assert_eq!(writes.len(), 4, "{writes:?}");
        for (settled, open) in [(&writes[0], &writes[1]), (&writes[2], &writes[3])] {
            assert!(settled.contains("settled") && !settled.contains("first"));
            assert!(open.contains("first") && open.contains("last"));
            assert!(!open.contains("settled") && open.contains("\u{1b}[2A"));
        }
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
        // From the second row on, rows may be erased together.
        let text = text.replace(ERASE_BELOW, "");
        for clearing in ["\u{1b}[J", "\u{1b}[0J", "\u{1b}[2J", "\u{1b}[H"] {
            assert!(!text.contains(clearing), "{text:?}");
        }
        assert_eq!(text.matches("a b c").count(), 1, "{text:?}");
        assert_eq!(text.matches("open").count(), 2, "{text:?}");
    }
}
