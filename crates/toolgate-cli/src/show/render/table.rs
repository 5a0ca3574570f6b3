//! Tables in a terminal: columns as wide as their contents.

use std::{fmt, io::IsTerminal};

use anstyle::Style;

use super::StyledLine;

/// The cells of a table, which may be styled.
///
/// Its `Display` is for the output of commands: the columns side by side, the last one wrapped at
/// the width of the terminal.
#[derive(Debug, Default)]
pub(crate) struct TextTable {
    head: Option<Vec<StyledLine>>,
    rows: Vec<Vec<StyledLine>>,
    /// The width at which the last column is wrapped.
    width: Option<usize>,
}

impl TextTable {
    /// Creates a table for the standard output; lines are wrapped only on a terminal.
    pub(crate) fn for_output() -> Self {
        let terminal = std::io::stdout().is_terminal();
        let width =
            terminal.then(|| super::terminal_size().map_or(80, |(width, _)| usize::from(width)));
        Self {
            width,
            ..Self::default()
        }
    }

    /// Sets the names of the columns.
    pub(crate) fn with_head<const N: usize>(mut self, head: [&str; N]) -> Self {
        let name = |name| StyledLine::styled(name, Style::new().dimmed());
        self.head = Some(head.map(name).into());
        self
    }

    /// Adds a row.
    pub(crate) fn add_row<const N: usize>(&mut self, cells: [StyledLine; N]) {
        self.rows.push(cells.into());
    }

    /// Begins a row, whose cells follow one by one. The first one holds the names of the columns.
    pub(super) fn begin_row(&mut self) {
        if self.head.is_none() {
            self.head = Some(Vec::new());
        } else {
            self.rows.push(Vec::new());
        }
    }

    /// Adds a cell to the row that was begun last.
    pub(super) fn push_cell(&mut self, cell: StyledLine) {
        if let Some(row) = self.rows.last_mut().or(self.head.as_mut()) {
            row.push(cell);
        }
    }

    /// Returns true if the table has no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Renders the table with rules between its cells in at most `width` columns; row by row if it
    /// is wider.
    pub(super) fn render_grid(self, width: usize) -> Vec<StyledLine> {
        let widths = self.column_widths();
        let gap = StyledLine::styled(" │ ", Style::new().dimmed());
        let gaps = gap.width() * widths.len().saturating_sub(1);
        if widths.iter().sum::<usize>() + gaps > width {
            return self.render_stacked(width);
        }
        let bold = |name: &StyledLine| StyledLine::styled(&name.text(), Style::new().bold());
        let head: Vec<StyledLine> = self.head.iter().flatten().map(bold).collect();
        let rules: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
        let mut lines = vec![
            align_cells(&head, &widths, &gap),
            StyledLine::styled(&rules.join("─┼─"), Style::new().dimmed()),
        ];
        lines.extend(self.rows.iter().map(|row| align_cells(row, &widths, &gap)));
        lines
    }

    /// Renders the table row by row, each cell with the name of its column.
    fn render_stacked(self, width: usize) -> Vec<StyledLine> {
        let names = self.head.unwrap_or_default();
        let mut lines = Vec::new();
        for (number, row) in self.rows.into_iter().enumerate() {
            if number > 0 {
                lines.push(StyledLine::styled("─", Style::new().dimmed()));
            }
            for (column, cell) in row.into_iter().enumerate() {
                let mut line = StyledLine::new();
                if let Some(name) = names.get(column).filter(|name| !name.is_blank()) {
                    line.push(&format!("{}: ", name.text()), Style::new().bold());
                }
                line.extend(cell);
                lines.extend(line.wrap(width, &StyledLine::plain("  ")));
            }
        }
        lines
    }

    /// Writes each row in two parts: the columns that fit beside each other, and below them the others,
    /// so that a narrow terminal breaks no cell.
    fn write_folded(
        &self,
        f: &mut fmt::Formatter<'_>,
        widths: &[usize],
        width: usize,
    ) -> fmt::Result {
        let gap = StyledLine::plain(COLUMN_GAP);
        let mut used = 0;
        let fits = |columns: &&usize| {
            used += **columns + gap.width();
            used <= width + gap.width()
        };
        let beside = widths.iter().take_while(fits).count().max(1);
        let mut line_break = "";
        for row in self.lines() {
            let first = align_cells(row, &widths[..beside], &gap);
            let mut second = StyledLine::new();
            for cell in row.iter().skip(beside).filter(|cell| !cell.is_blank()) {
                second.extend(gap.clone());
                second.extend(cell.clone());
            }
            let second = second.wrap(width, &gap);
            for line in [first]
                .into_iter()
                .chain(second)
                .filter(|line| !line.is_blank())
            {
                write!(f, "{line_break}{}", line.to_string().trim_end())?;
                line_break = "\n";
            }
        }
        Ok(())
    }

    fn lines(&self) -> impl Iterator<Item = &Vec<StyledLine>> {
        self.head.iter().chain(&self.rows)
    }

    /// Returns the width of each column.
    fn column_widths(&self) -> Vec<usize> {
        let columns = self.lines().map(Vec::len).max().unwrap_or_default();
        let widest = |column: usize| {
            self.lines()
                .filter_map(|row| row.get(column))
                .map(StyledLine::width)
                .max()
        };
        (0..columns)
            .map(|column| widest(column).unwrap_or_default())
            .collect()
    }
}

/// The space between two columns.
const COLUMN_GAP: &str = "  ";
/// The minimum width of a wrapped last column; a narrower one is put below the others.
const MIN_WRAP_WIDTH: usize = 24;

impl fmt::Display for TextTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gap = StyledLine::plain(COLUMN_GAP);
        let mut widths = self.column_widths();
        widths.pop();
        let indent: usize = widths.iter().map(|width| width + gap.width()).sum();
        let room = self.width.unwrap_or(usize::MAX).saturating_sub(indent);
        let last = self.lines().filter_map(|row| row.get(widths.len()));
        let last = last.map(StyledLine::width).max().unwrap_or_default();
        if let Some(width) = self.width
            && room < MIN_WRAP_WIDTH.min(last)
        {
            widths.push(last);
            return self.write_folded(f, &widths, width);
        }
        let mut line_break = "";
        for row in self.lines() {
            let mut line = align_cells(row, &widths, &gap);
            if !widths.is_empty() {
                line.extend(gap.clone());
            }
            let last = row.get(widths.len()).cloned().unwrap_or_default();
            for part in last.wrap(room, &StyledLine::new()) {
                line.extend(part);
                write!(f, "{line_break}{}", line.to_string().trim_end())?;
                line_break = "\n";
                line = StyledLine::plain(&" ".repeat(indent));
            }
        }
        Ok(())
    }
}

/// Puts cells side by side, each as wide as its column.
fn align_cells(cells: &[StyledLine], widths: &[usize], gap: &StyledLine) -> StyledLine {
    let mut line = StyledLine::new();
    for (column, width) in widths.iter().enumerate() {
        if column > 0 {
            line.extend(gap.clone());
        }
        let cell = cells.get(column).cloned().unwrap_or_default();
        let blank = width - cell.width();
        line.extend(cell);
        line.push(&" ".repeat(blank), Style::new());
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{env::style, show::render::render_markdown};

    fn shown(width: usize) -> Vec<String> {
        let text = "| name | 意味 |\n|---|---|\n| a | 世界 |\n| bcdef | x |";
        render_markdown(text, width)
            .iter()
            .map(StyledLine::text)
            .map(|line| line.trim_end().to_owned())
            .collect()
    }

    fn printed(width: usize, last: &str) -> String {
        let mut table = TextTable {
            width: Some(width),
            ..TextTable::default()
        };
        table.add_row(["a".into(), style::good("日本"), last.into()]);
        table.add_row(["bcd".into(), "x".into(), "short".into()]);
        anstream::adapter::strip_str(&table.to_string()).to_string()
    }

    const WORDS: &str = "one two three four five six seven";

    #[test]
    fn columns_are_aligned_whatever_they_contain() {
        assert_eq!(
            shown(40),
            ["name  │ 意味", "──────┼─────", "a     │ 世界", "bcdef │ x"]
        );
        assert_eq!(
            printed(80, WORDS),
            "a    日本  one two three four five six seven\nbcd  x     short"
        );
    }

    #[test]
    fn a_table_that_does_not_fit_is_shown_row_by_row() {
        assert_eq!(
            shown(11),
            ["name: a", "意味: 世界", "─", "name: bcdef", "意味: x"]
        );
    }

    #[test]
    fn the_last_column_is_wrapped_at_the_terminal_width_or_put_below_the_others() {
        let expected = "a    日本  one two three four five\n           six seven\nbcd  x     short";
        assert_eq!(printed(36, WORDS), expected);
        assert_eq!(
            printed(30, WORDS),
            "a    日本\n  one two three four five six\n  seven\nbcd  x\n  short",
            "below the others, where it has room"
        );
        assert_eq!(printed(30, "fits"), "a    日本  fits\nbcd  x     short");
        let wide = printed(36, "日本語には言葉の間に空白がありません。");
        assert!(
            wide.lines()
                .all(|line| StyledLine::plain(line).width() <= 36),
            "{wide}"
        );
    }
}
