//! A snapshot of the screen.

use std::fmt;

/// A snapshot of the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TerminalScreen {
    cells: Vec<Vec<ScreenCell>>,
    text: String,
    /// Row and column of the cursor, from 0.
    pub cursor: (u16, u16),
    /// True if the cursor is hidden.
    pub cursor_hidden: bool,
    /// True if the program has switched to the alternate screen.
    pub alternate: bool,
}

/// One position of the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScreenCell {
    /// The character; empty if nothing was printed, or if a wide character beside it covers the
    /// cell.
    pub text: String,
    /// The number of columns: 2 for a wide character, 0 for the cell that it covers.
    pub width: u8,
    /// The colour of the text.
    pub fg: CellColor,
    /// The background colour.
    pub bg: CellColor,
    /// True if it is bold.
    pub bold: bool,
    /// True if it is dim.
    pub dim: bool,
    /// True if it is italic.
    pub italic: bool,
    /// True if it is underlined.
    pub underline: bool,
    /// True if the colours are swapped.
    pub inverse: bool,
}

/// A colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellColor {
    /// The terminal's default.
    Default,
    /// One of 256, of which the first 16 are the terminal's own.
    Indexed(u8),
    /// Red, green, blue.
    Rgb(u8, u8, u8),
}

impl TerminalScreen {
    pub(super) fn from_vt100(screen: &vt100::Screen) -> Self {
        let (rows, columns) = screen.size();
        let row = |row| {
            (0..columns.get())
                .map(|column| ScreenCell::from_vt100(screen.cell(row, column)))
                .collect()
        };
        Self {
            cells: (0..rows.get()).map(row).collect(),
            text: screen.contents(),
            cursor: screen.cursor_position(),
            cursor_hidden: screen.hide_cursor(),
            alternate: screen.alternate_screen(),
        }
    }

    /// Returns the columns and rows.
    pub fn size(&self) -> (u16, u16) {
        let columns = self.cells.first().map_or(0, Vec::len);
        (columns as u16, self.cells.len() as u16)
    }

    /// Returns each row as text, without spaces at its end.
    pub fn rows(&self) -> Vec<String> {
        self.cells.iter().map(|row| row_text(row)).collect()
    }

    /// Returns the rows as one text, without blank lines at its end. A line that was wrapped is
    /// whole again.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Checks whether a text is on the screen.
    pub fn contains(&self, text: &str) -> bool {
        self.text.contains(text)
    }

    /// Returns the cell at a row and a column, from 0.
    pub fn cell(&self, row: u16, column: u16) -> Option<&ScreenCell> {
        self.cells.get(usize::from(row))?.get(usize::from(column))
    }

    /// Returns all cells, row by row.
    pub fn cells(&self) -> &[Vec<ScreenCell>] {
        &self.cells
    }
}

/// Prints the screen in a frame, for messages.
impl fmt::Display for TerminalScreen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (columns, _) = self.size();
        let edge = "─".repeat(columns.into());
        writeln!(f, "┌{edge}┐")?;
        for row in &self.cells {
            let text = row_text(row);
            // Everything after the last character is blank, and each blank cell is one column wide.
            let blank = row
                .iter()
                .rev()
                .take_while(|cell| cell.width == 1 && cell.text.trim().is_empty())
                .count();
            writeln!(f, "│{text}{}│", " ".repeat(blank))?;
        }
        write!(f, "└{edge}┘")
    }
}

fn row_text(row: &[ScreenCell]) -> String {
    let mut text = String::new();
    for cell in row.iter().filter(|cell| cell.width > 0) {
        text.push_str(if cell.text.is_empty() {
            " "
        } else {
            &cell.text
        });
    }
    text.truncate(text.trim_end().len());
    text
}

impl ScreenCell {
    fn from_vt100(cell: Option<&vt100::Cell>) -> Self {
        let Some(cell) = cell else {
            return Self::blank();
        };
        Self {
            text: cell.contents().to_owned(),
            width: match (cell.is_wide(), cell.is_wide_continuation()) {
                (true, _) => 2,
                (_, true) => 0,
                (false, false) => 1,
            },
            fg: CellColor::from_vt100(cell.fgcolor()),
            bg: CellColor::from_vt100(cell.bgcolor()),
            bold: cell.bold(),
            dim: cell.dim(),
            italic: cell.italic(),
            underline: cell.underline(),
            inverse: cell.inverse(),
        }
    }

    fn blank() -> Self {
        let fg = CellColor::Default;
        let bg = CellColor::Default;
        let bold = false;
        let dim = false;
        let italic = false;
        let underline = false;
        let inverse = false;
        Self {
            text: String::new(),
            width: 1,
            fg,
            bg,
            bold,
            dim,
            italic,
            underline,
            inverse,
        }
    }
}

impl CellColor {
    fn from_vt100(color: vt100::Color) -> Self {
        match color {
            vt100::Color::Default => Self::Default,
            vt100::Color::Idx(number) => Self::Indexed(number),
            vt100::Color::Rgb(red, green, blue) => Self::Rgb(red, green, blue),
        }
    }
}
