//! Tables: columns as wide as their contents, the last one wrapped at the width of the terminal.

use std::{fmt, io::IsTerminal};

use unicode_width::UnicodeWidthStr;

use crate::env::style;

/// Rows of cells, which may be styled.
#[derive(Debug, Default)]
pub(crate) struct OutputTable {
    head: Option<Vec<String>>,
    rows: Vec<Vec<String>>,
    width: Option<usize>,
}

impl OutputTable {
    /// Creates a table without a head for the standard output; lines are wrapped only on a
    /// terminal.
    pub(crate) fn new() -> Self {
        let terminal = std::io::stdout().is_terminal();
        let width = terminal
            .then(|| crossterm::terminal::size().map_or(80, |(width, _)| usize::from(width)));
        Self {
            width,
            ..Self::default()
        }
    }

    /// Sets the names of the columns.
    pub(crate) fn with_head<const N: usize>(mut self, head: [&str; N]) -> Self {
        self.head = Some(
            head.iter()
                .map(|name| style::dim(name).to_string())
                .collect(),
        );
        self
    }

    /// Adds a row.
    pub(crate) fn add_row<const N: usize>(&mut self, cells: [String; N]) {
        // A line break or a tab in a cell would break the columns.
        self.rows
            .push(cells.map(|cell| cell.replace(['\n', '\t'], " ")).into());
    }

    /// Returns true if the table has no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn lines(&self) -> impl Iterator<Item = &Vec<String>> {
        self.head.iter().chain(&self.rows)
    }

    /// Returns the width of each column but the last.
    fn column_widths(&self) -> Vec<usize> {
        let columns = self.lines().map(Vec::len).max().unwrap_or_default();
        let widest = |column: usize| {
            self.lines()
                .filter_map(|row| row.get(column))
                .map(|cell| display_width(cell))
                .max()
        };
        (0..columns.saturating_sub(1))
            .map(|column| widest(column).unwrap_or_default())
            .collect()
    }
}

impl fmt::Display for OutputTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.column_widths();
        let indent: usize = widths.iter().map(|width| width + COLUMN_GAP).sum();
        let mut first = true;
        for row in self.lines() {
            if !std::mem::take(&mut first) {
                writeln!(f)?;
            }
            let mut line = String::new();
            for (at, cell) in row.iter().enumerate() {
                match widths.get(at) {
                    Some(wide) => {
                        line += &format!(
                            "{cell}{}",
                            " ".repeat(wide - display_width(cell) + COLUMN_GAP)
                        )
                    }
                    None => line += &wrap_cell(cell, indent, self.width),
                }
            }
            f.write_str(line.trim_end())?;
        }
        Ok(())
    }
}

/// The space between two columns.
const COLUMN_GAP: usize = 2;
/// The minimum width of a wrapped last column; a narrower one is not wrapped at all.
const MIN_WRAP_WIDTH: usize = 24;

/// Returns the number of terminal cells that a text takes, without its style.
pub(crate) fn display_width(text: &str) -> usize {
    anstream::adapter::strip_str(text)
        .map(UnicodeWidthStr::width)
        .sum()
}

/// Wraps a text, with all lines but the first indented.
fn wrap_cell(text: &str, indent: usize, within: Option<usize>) -> String {
    let room = within.unwrap_or(usize::MAX).saturating_sub(indent);
    if room < MIN_WRAP_WIDTH || display_width(text) <= room {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 0;
    for word in text.split(' ') {
        let wide = display_width(word);
        if used > 0 && used + 1 + wide > room {
            out += &format!("\n{}", " ".repeat(indent));
            used = 0;
        } else if used > 0 {
            out.push(' ');
            used += 1;
        }
        out += word;
        used += wide;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render_at(width: usize) -> String {
        let mut table = OutputTable {
            width: Some(width),
            ..OutputTable::default()
        };
        table.add_row([
            "a".to_owned(),
            style::good("日本").to_string(),
            "one two three four five six seven".to_owned(),
        ]);
        table.add_row(["bcd".to_owned(), "x".to_owned(), "short".to_owned()]);
        anstream::adapter::strip_str(&table.to_string()).to_string()
    }

    #[test]
    fn columns_line_up_whatever_their_style_and_script() {
        assert_eq!(
            render_at(80),
            "a    日本  one two three four five six seven\nbcd  x     short"
        );
    }

    #[test]
    fn the_last_column_is_wrapped_at_the_terminal_width_unless_that_is_too_narrow() {
        let expected = "a    日本  one two three four five\n           six seven\nbcd  x     short";
        assert_eq!(render_at(36), expected);
        assert_eq!(render_at(30), render_at(80));
    }
}
