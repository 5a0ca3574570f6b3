//! Rows in columns: as wide as what is in them, the last one folded where the terminal ends.

use std::{fmt, io::IsTerminal};

use unicode_width::UnicodeWidthStr;

use crate::style;

/// Rows of cells, which may be styled.
#[derive(Debug, Default)]
pub(crate) struct Table {
    head: Option<Vec<String>>,
    rows: Vec<Vec<String>>,
    width: Option<usize>,
}

impl Table {
    /// A table without a head, for the terminal at the standard output; elsewhere its lines are never folded.
    pub(crate) fn new() -> Self {
        let terminal = std::io::stdout().is_terminal();
        let width = terminal
            .then(|| crossterm::terminal::size().map_or(80, |(width, _)| usize::from(width)));
        Self {
            width,
            ..Self::default()
        }
    }

    /// Says what the columns are.
    pub(crate) fn head<const N: usize>(mut self, head: [&str; N]) -> Self {
        self.head = Some(
            head.iter()
                .map(|name| style::dim(name).to_string())
                .collect(),
        );
        self
    }

    /// Adds a row.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows
            .push(cells.map(|cell| cell.replace(['\n', '\t'], " ")).into());
    }

    /// Whether there is nothing in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn lines(&self) -> impl Iterator<Item = &Vec<String>> {
        self.head.iter().chain(&self.rows)
    }

    /// How wide each column but the last is.
    fn widths(&self) -> Vec<usize> {
        let columns = self.lines().map(Vec::len).max().unwrap_or_default();
        let widest = |column: usize| {
            self.lines()
                .filter_map(|row| row.get(column))
                .map(|cell| width(cell))
                .max()
        };
        (0..columns.saturating_sub(1))
            .map(|column| widest(column).unwrap_or_default())
            .collect()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        let indent: usize = widths.iter().map(|width| width + GAP).sum();
        let mut first = true;
        for row in self.lines() {
            if !std::mem::take(&mut first) {
                writeln!(f)?;
            }
            let mut line = String::new();
            for (at, cell) in row.iter().enumerate() {
                match widths.get(at) {
                    Some(wide) => {
                        line += &format!("{cell}{}", " ".repeat(wide - width(cell) + GAP))
                    }
                    None => line += &folded(cell, indent, self.width),
                }
            }
            f.write_str(line.trim_end())?;
        }
        Ok(())
    }
}

/// The space between two columns.
const GAP: usize = 2;
/// A last column that is narrower than this is better not folded at all.
const NARROWEST: usize = 24;

/// How many cells of a terminal a text takes, whatever its style.
pub(crate) fn width(text: &str) -> usize {
    anstream::adapter::strip_str(text)
        .map(UnicodeWidthStr::width)
        .sum()
}

/// Text in several lines, all but the first of them indented.
fn folded(text: &str, indent: usize, within: Option<usize>) -> String {
    let room = within.unwrap_or(usize::MAX).saturating_sub(indent);
    if room < NARROWEST || width(text) <= room {
        return text.to_owned();
    }
    let (mut out, mut used) = (String::new(), 0);
    for word in text.split(' ') {
        let wide = width(word);
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

    fn table(width: usize) -> String {
        let mut table = Table {
            width: Some(width),
            ..Table::default()
        };
        table.row([
            "a".to_owned(),
            style::good("日本").to_string(),
            "one two three four five six seven".to_owned(),
        ]);
        table.row(["bcd".to_owned(), "x".to_owned(), "short".to_owned()]);
        anstream::adapter::strip_str(&table.to_string()).to_string()
    }

    #[test]
    fn columns_line_up_whatever_their_style_and_script() {
        assert_eq!(
            table(80),
            "a    日本  one two three four five six seven\nbcd  x     short"
        );
    }

    #[test]
    fn the_last_column_is_folded_where_the_terminal_ends_unless_that_is_too_narrow() {
        let expected = "a    日本  one two three four five\n           six seven\nbcd  x     short";
        assert_eq!(table(36), expected);
        assert_eq!(table(30), table(80));
    }
}
