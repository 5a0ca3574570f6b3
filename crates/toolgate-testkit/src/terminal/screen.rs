//! What is on the screen at one moment.

use std::fmt;

/// What is on the screen at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TerminalScreen {
    cells: Vec<Vec<Cell>>,
    text: String,
    /// Row and column of the cursor, from 0.
    pub cursor: (u16, u16),
    /// Whether the cursor is hidden.
    pub cursor_hidden: bool,
    /// Whether the program has switched to the screen that leaves no trace.
    pub alternate: bool,
}

/// One place of the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// What stands there; empty if nothing was printed, or if a wide character beside it reaches over.
    pub text: String,
    /// How many columns it takes: 2 for a wide character, 0 for the place that it reaches over.
    pub width: u8,
    /// The colour of the text.
    pub fg: Color,
    /// The colour behind it.
    pub bg: Color,
    /// Whether it is bold.
    pub bold: bool,
    /// Whether it is dim.
    pub dim: bool,
    /// Whether it is slanted.
    pub italic: bool,
    /// Whether it is underlined.
    pub underline: bool,
    /// Whether the colours are swapped.
    pub inverse: bool,
}

/// A colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Color {
    /// That of the terminal.
    Default,
    /// One of 256, of which the first 16 are those of the terminal.
    Indexed(u8),
    /// Red, green, blue.
    Rgb(u8, u8, u8),
}

impl TerminalScreen {
    pub(super) fn of(screen: &vt100::Screen) -> Self {
        let (rows, columns) = screen.size();
        let row = |row| {
            (0..columns.get())
                .map(|column| Cell::of(screen.cell(row, column)))
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

    /// Columns and rows.
    pub fn size(&self) -> (u16, u16) {
        let columns = self.cells.first().map_or(0, Vec::len);
        (columns as u16, self.cells.len() as u16)
    }

    /// Each row as text, without blanks at its end.
    pub fn rows(&self) -> Vec<String> {
        self.cells.iter().map(|row| text_of(row)).collect()
    }

    /// The rows as one text, without blank lines at its end. A line that was wrapped is whole again.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether a text is on the screen.
    pub fn contains(&self, text: &str) -> bool {
        self.text.contains(text)
    }

    /// What stands at a row and a column, from 0.
    pub fn cell(&self, row: u16, column: u16) -> Option<&Cell> {
        self.cells.get(usize::from(row))?.get(usize::from(column))
    }

    /// All cells, row by row.
    pub fn cells(&self) -> &[Vec<Cell>] {
        &self.cells
    }
}

/// The screen in a frame, for messages.
impl fmt::Display for TerminalScreen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (columns, _) = self.size();
        let edge = "─".repeat(columns.into());
        writeln!(f, "┌{edge}┐")?;
        for row in &self.cells {
            let text = text_of(row);
            // Everything from the last character on is blank, and each blank cell is one column wide.
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

fn text_of(row: &[Cell]) -> String {
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

impl Cell {
    fn of(cell: Option<&vt100::Cell>) -> Self {
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
            fg: Color::of(cell.fgcolor()),
            bg: Color::of(cell.bgcolor()),
            bold: cell.bold(),
            dim: cell.dim(),
            italic: cell.italic(),
            underline: cell.underline(),
            inverse: cell.inverse(),
        }
    }

    fn blank() -> Self {
        let (fg, bg) = (Color::Default, Color::Default);
        let (bold, dim, italic, underline, inverse) = (false, false, false, false, false);
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

impl Color {
    fn of(color: vt100::Color) -> Self {
        match color {
            vt100::Color::Default => Self::Default,
            vt100::Color::Idx(number) => Self::Indexed(number),
            vt100::Color::Rgb(red, green, blue) => Self::Rgb(red, green, blue),
        }
    }
}
