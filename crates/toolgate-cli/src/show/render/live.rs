//! The part of the terminal that is redrawn, below the text that has scrolled up for good.

use std::io::{self, Write};

use super::StyledLine;

/// The number of settled lines kept for redrawing the screen when its size changes.
const MAX_SETTLED_LINES: usize = 200;

// Synchronized output, so that no half-drawn frame is shown; terminals that do not know it ignore
// it. The cursor is hidden, or it would be seen jumping.
const FRAME_BEGIN: &str = "\u{1b}[?2026h\u{1b}[?25l";
const FRAME_END: &str = "\u{1b}[?2026l";

/// A redrawn area below settled text. Every line is truncated to the width, so that it takes
/// exactly one row.
#[derive(Debug)]
pub struct LiveArea<W> {
    to: W,
    width: usize,
    height: usize,
    /// The number of rows of the open part on the screen.
    drawn: usize,
    colored: bool,
    /// The last settled lines, not wrapped.
    settled: Vec<StyledLine>,
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
            colored,
            settled: Vec::new(),
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

    /// Prints `settled` for good and draws `open` below it.
    pub fn draw(&mut self, settled: Vec<StyledLine>, open: &[StyledLine]) -> io::Result<()> {
        let mut screen = String::from(FRAME_BEGIN);
        self.erase_open(&mut screen);
        self.print_lines(&settled, &mut screen);
        self.settled.extend(settled);
        // Only what a resize may have to show again is stored.
        let much = self.settled.len().saturating_sub(MAX_SETTLED_LINES);
        self.settled.drain(..much);
        self.draw_open(open, &mut screen);
        self.write_frame(screen + FRAME_END)
    }

    /// Erases the open part and shows the cursor, so that another program can use the terminal.
    pub fn release(&mut self) -> io::Result<()> {
        let mut screen = String::new();
        self.erase_open(&mut screen);
        self.write_frame(screen + "\u{1b}[?25h")
    }

    /// Redraws everything visible at a new size.
    pub fn resize(&mut self, (width, height): (u16, u16), open: &[StyledLine]) -> io::Result<()> {
        self.width = usize::from(width.max(20));
        self.height = usize::from(height.max(5));
        self.drawn = 0;
        // Terminals disagree about what happens to text that no longer fits, so nothing is reused.
        let mut rows: Vec<StyledLine> = self
            .settled
            .iter()
            .flat_map(|line| wrap_settled(line, self.width))
            .collect();
        let room = self
            .height
            .saturating_sub(open.len().min(self.max_open_rows()) + 1);
        let hidden = rows.len().saturating_sub(room);
        let mut screen = format!("{FRAME_BEGIN}\u{1b}[H\u{1b}[2J");
        rows.drain(..hidden);
        self.print_lines(&rows, &mut screen);
        self.draw_open(open, &mut screen);
        self.write_frame(screen + FRAME_END)
    }

    fn max_open_rows(&self) -> usize {
        // An open part that fills the screen would scroll, and the cursor could not get back to its
        // first row.
        self.height - 2
    }

    fn erase_open(&mut self, screen: &mut String) {
        if self.drawn > 0 {
            // One row per line, since every open line is truncated to the width.
            screen.push_str(&format!("\u{1b}[{}A", self.drawn));
        }
        screen.push_str("\r\u{1b}[J");
        self.drawn = 0;
    }

    fn print_lines(&self, lines: &[StyledLine], screen: &mut String) {
        for row in lines.iter().flat_map(|line| wrap_settled(line, self.width)) {
            self.push_row(&row, screen);
        }
    }

    fn draw_open(&mut self, open: &[StyledLine], screen: &mut String) {
        let shown = open
            .iter()
            .skip(open.len().saturating_sub(self.max_open_rows()));
        for line in shown {
            // The last column stays free: writing to it makes some terminals wrap.
            self.push_row(&line.clip(self.width - 1), screen);
            self.drawn += 1;
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
    }

    #[test]
    fn the_open_part_is_erased_before_anything_is_printed() {
        let text = drawn(|live| {
            live.draw(vec![], &lines(&["one", "two"])).expect("draws");
            live.draw(lines(&["done"]), &lines(&["one"]))
                .expect("draws");
        });
        assert_eq!(
            text,
            "\r\u{1b}[Jone\r\ntwo\r\n\u{1b}[2A\r\u{1b}[Jdone\r\none\r\n"
        );
    }

    #[test]
    fn the_open_part_never_fills_the_screen_and_its_lines_never_wrap() {
        let many: Vec<String> = (0..30)
            .map(|n| format!("{n} 日本語日本語日本語日本語"))
            .collect();
        let many: Vec<StyledLine> = many.iter().map(|text| StyledLine::plain(text)).collect();
        let text = drawn(|live| live.draw(vec![], &many).expect("draws"));
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows.len(), 4);
        assert!(rows[3].starts_with("29 "), "the last ones are shown");
    }

    #[test]
    fn after_a_resize_everything_is_redrawn_at_the_new_width() {
        let text = drawn(|live| {
            live.draw(lines(&["a b c d e f g h i j k l m n o"]), &lines(&["open"]))
                .expect("draws");
            live.resize((30, 6), &lines(&["open"])).expect("draws");
        });
        let (_, again) = text.split_once("\u{1b}[2J").expect("cleared");
        assert_eq!(again, "a b c d e f g h i j k l m n o\r\nopen\r\n");
    }
}
