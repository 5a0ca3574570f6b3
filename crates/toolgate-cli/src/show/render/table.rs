//! Tables in a terminal: columns side by side if they fit, otherwise row by row.

use anstyle::Style;

use super::StyledLine;

const COLUMN_GAP: &str = " │ ";

/// The cells of a table; the first row holds the column names.
#[derive(Debug, Default)]
pub(super) struct MarkdownTable {
    rows: Vec<Vec<StyledLine>>,
}

impl MarkdownTable {
    pub(super) fn begin_row(&mut self) {
        self.rows.push(Vec::new());
    }

    pub(super) fn push_cell(&mut self, cell: StyledLine) {
        if let Some(row) = self.rows.last_mut() {
            row.push(cell);
        }
    }

    /// Renders the table in at most `width` columns.
    pub(super) fn render_lines(self, width: usize) -> Vec<StyledLine> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widest = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(StyledLine::width)
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(widest).collect();
        // `│` has three bytes and takes one column.
        let total: usize = widths.iter().sum::<usize>()
            + COLUMN_GAP.len().saturating_sub(2) * columns.saturating_sub(1);
        if total > width {
            return self.render_stacked(width);
        }
        let mut lines = Vec::new();
        for (number, row) in self.rows.iter().enumerate() {
            lines.push(render_row(row, &widths, number == 0));
            if number == 0 {
                let rules: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
                lines.push(StyledLine::styled(
                    &rules.join("─┼─"),
                    Style::new().dimmed(),
                ));
            }
        }
        lines
    }

    /// Renders the table row by row, each cell with the name of its column.
    fn render_stacked(self, width: usize) -> Vec<StyledLine> {
        let mut rows = self.rows.into_iter();
        let names = rows.next().unwrap_or_default();
        let mut lines = Vec::new();
        for (number, row) in rows.enumerate() {
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
}

fn render_row(row: &[StyledLine], widths: &[usize], is_head: bool) -> StyledLine {
    let mut line = StyledLine::new();
    for (column, width) in widths.iter().enumerate() {
        if column > 0 {
            line.push(COLUMN_GAP, Style::new().dimmed());
        }
        let cell = row.get(column).cloned().unwrap_or_default();
        let blank = width.saturating_sub(cell.width());
        if is_head {
            line.push(&cell.text(), Style::new().bold())
        } else {
            line.extend(cell)
        }
        line.push(&" ".repeat(blank), Style::new());
    }
    line
}

#[cfg(test)]
mod tests {
    use crate::show::render::{StyledLine, render_markdown};

    fn shown(width: usize) -> Vec<String> {
        let text = "| name | 意味 |\n|---|---|\n| a | 世界 |\n| bcdef | x |";
        render_markdown(text, width)
            .iter()
            .map(StyledLine::text)
            .map(|line| line.trim_end().to_owned())
            .collect()
    }

    #[test]
    fn columns_are_aligned_whatever_they_contain() {
        assert_eq!(
            shown(40),
            ["name  │ 意味", "──────┼─────", "a     │ 世界", "bcdef │ x"]
        );
    }

    #[test]
    fn a_table_that_does_not_fit_is_shown_row_by_row() {
        assert_eq!(
            shown(11),
            ["name: a", "意味: 世界", "─", "name: bcdef", "意味: x"]
        );
    }
}
