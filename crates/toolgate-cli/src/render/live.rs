//! The part of the terminal that is drawn again and again, below what has scrolled up for good.

use std::io::{self, Write};

use super::Line;

/// How many settled lines are kept to draw the screen anew when its size changes.
const KEPT: usize = 200;

const BEGIN: &str = "\u{1b}[?2026h\u{1b}[?25l";
const END: &str = "\u{1b}[?2026l";

/// What is drawn below settled text. Every line is cut to the width, so that it takes one row whatever is in it.
#[derive(Debug)]
pub struct Live<W> {
    to: W,
    width: usize,
    height: usize,
    /// How many rows of the open part stand on the screen.
    drawn: usize,
    colored: bool,
    /// The last settled lines, as they came: not wrapped.
    settled: Vec<Line>,
}

impl<W: Write> Live<W> {
    /// Draws to a terminal of this size, with colours or without.
    pub fn new(to: W, (width, height): (u16, u16), colored: bool) -> Self {
        let (width, height) = (usize::from(width.max(20)), usize::from(height.max(5)));
        Self {
            to,
            width,
            height,
            drawn: 0,
            colored,
            settled: Vec::new(),
        }
    }

    /// How many columns there are.
    pub fn width(&self) -> usize {
        self.width
    }

    /// How many rows there are.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Prints `settled` for good and draws `open` below it.
    pub fn draw(&mut self, settled: Vec<Line>, open: &[Line]) -> io::Result<()> {
        let mut screen = String::from(BEGIN);
        self.take_back(&mut screen);
        self.print(&settled, &mut screen);
        self.settled.extend(settled);
        let much = self.settled.len().saturating_sub(KEPT);
        self.settled.drain(..much);
        self.show(open, &mut screen);
        self.write(screen + END)
    }

    /// Takes the open part away and shows the cursor, so that something else can use the terminal.
    pub fn leave(&mut self) -> io::Result<()> {
        let mut screen = String::new();
        self.take_back(&mut screen);
        self.write(screen + "\u{1b}[?25h")
    }

    /// The terminal has another size now. Terminals disagree about what becomes of text that does not fit any more, so
    /// everything that can be seen is drawn anew.
    pub fn resize(&mut self, (width, height): (u16, u16), open: &[Line]) -> io::Result<()> {
        (self.width, self.height) = (usize::from(width.max(20)), usize::from(height.max(5)));
        self.drawn = 0;
        let mut rows: Vec<Line> = self
            .settled
            .iter()
            .flat_map(|line| wrap(line, self.width))
            .collect();
        let room = self
            .height
            .saturating_sub(open.len().min(self.most_open()) + 1);
        let hidden = rows.len().saturating_sub(room);
        let mut screen = format!("{BEGIN}\u{1b}[H\u{1b}[2J");
        rows.drain(..hidden);
        self.print(&rows, &mut screen);
        self.show(open, &mut screen);
        self.write(screen + END)
    }

    fn most_open(&self) -> usize {
        self.height - 2
    }

    fn take_back(&mut self, screen: &mut String) {
        if self.drawn > 0 {
            screen.push_str(&format!("\u{1b}[{}A", self.drawn));
        }
        screen.push_str("\r\u{1b}[J");
        self.drawn = 0;
    }

    fn print(&self, lines: &[Line], screen: &mut String) {
        for row in lines.iter().flat_map(|line| wrap(line, self.width)) {
            self.put(&row, screen);
        }
    }

    fn show(&mut self, open: &[Line], screen: &mut String) {
        let shown = open
            .iter()
            .skip(open.len().saturating_sub(self.most_open()));
        for line in shown {
            self.put(&line.clip(self.width - 1), screen);
            self.drawn += 1;
        }
    }

    fn put(&self, row: &Line, screen: &mut String) {
        match self.colored {
            true => screen.push_str(&row.to_string()),
            false => screen.push_str(&row.text()),
        }
        screen.push_str("\r\n");
    }

    fn write(&mut self, screen: String) -> io::Result<()> {
        // At once: a terminal that gets it in parts flickers.
        self.to.write_all(screen.as_bytes())?;
        self.to.flush()
    }
}

/// A settled line as rows; what goes on is set in a little, like the text of a call.
fn wrap(line: &Line, width: usize) -> Vec<Line> {
    let text = line.text();
    let indent = text.len() - text.trim_start_matches(' ').len();
    line.wrap(width - 1, &Line::plain(&" ".repeat(indent.min(width / 2))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(texts: &[&str]) -> Vec<Line> {
        texts.iter().map(|text| Line::plain(text)).collect()
    }

    fn drawn(acts: impl FnOnce(&mut Live<&mut Vec<u8>>)) -> String {
        let mut written = Vec::new();
        acts(&mut Live::new(&mut written, (20, 6), true));
        String::from_utf8(written)
            .expect("text")
            .replace(BEGIN, "")
            .replace(END, "")
    }

    #[test]
    fn the_open_part_is_taken_back_before_anything_is_printed() {
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
        let many: Vec<Line> = many.iter().map(|text| Line::plain(text)).collect();
        let text = drawn(|live| live.draw(vec![], &many).expect("draws"));
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows.len(), 4);
        assert!(rows[3].starts_with("29 "), "the last ones are shown");
    }

    #[test]
    fn after_a_change_of_size_everything_is_drawn_anew_at_the_new_width() {
        let text = drawn(|live| {
            live.draw(lines(&["a b c d e f g h i j k l m n o"]), &lines(&["open"]))
                .expect("draws");
            live.resize((30, 6), &lines(&["open"])).expect("draws");
        });
        let (_, again) = text.split_once("\u{1b}[2J").expect("cleared");
        assert_eq!(again, "a b c d e f g h i j k l m n o\r\nopen\r\n");
    }
}
