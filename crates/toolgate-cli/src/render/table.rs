//! Tables in a terminal: columns side by side if they fit, otherwise row by row.

use anstyle::Style;

use super::Line;

const EDGE: &str = " │ ";

/// The cells of a table; the first row names the columns.
#[derive(Debug, Default)]
pub(super) struct Table {
    rows: Vec<Vec<Line>>,
}

impl Table {
    pub(super) fn begin_row(&mut self) {
        self.rows.push(Vec::new());
    }

    pub(super) fn cell(&mut self, cell: Line) {
        if let Some(row) = self.rows.last_mut() {
            row.push(cell);
        }
    }

    /// The table in at most `width` columns.
    pub(super) fn lines(self, width: usize) -> Vec<Line> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widest = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(Line::width)
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(widest).collect();
        let total: usize =
            widths.iter().sum::<usize>() + EDGE.len().saturating_sub(2) * columns.saturating_sub(1);
        if total > width {
            return self.stacked(width);
        }
        let mut lines = Vec::new();
        for (number, row) in self.rows.iter().enumerate() {
            lines.push(side_by_side(row, &widths, number == 0));
            if number == 0 {
                let rules: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
                lines.push(Line::styled(&rules.join("─┼─"), Style::new().dimmed()));
            }
        }
        lines
    }

    /// Row by row, each cell with the name of its column.
    fn stacked(self, width: usize) -> Vec<Line> {
        let mut rows = self.rows.into_iter();
        let names = rows.next().unwrap_or_default();
        let mut lines = Vec::new();
        for (number, row) in rows.enumerate() {
            if number > 0 {
                lines.push(Line::styled("─", Style::new().dimmed()));
            }
            for (column, cell) in row.into_iter().enumerate() {
                let mut line = Line::new();
                if let Some(name) = names.get(column).filter(|name| !name.is_blank()) {
                    line.push(&format!("{}: ", name.text()), Style::new().bold());
                }
                line.extend(cell);
                lines.extend(line.wrap(width, &Line::plain("  ")));
            }
        }
        lines
    }
}

fn side_by_side(row: &[Line], widths: &[usize], is_head: bool) -> Line {
    let mut line = Line::new();
    for (column, width) in widths.iter().enumerate() {
        if column > 0 {
            line.push(EDGE, Style::new().dimmed());
        }
        let cell = row.get(column).cloned().unwrap_or_default();
        let blank = width.saturating_sub(cell.width());
        match is_head {
            true => line.push(&cell.text(), Style::new().bold()),
            false => line.extend(cell),
        }
        line.push(&" ".repeat(blank), Style::new());
    }
    line
}

#[cfg(test)]
mod tests {
    use crate::render::{Line, markdown};

    fn shown(width: usize) -> Vec<String> {
        let text = "| name | 意味 |\n|---|---|\n| a | 世界 |\n| bcdef | x |";
        markdown(text, width)
            .iter()
            .map(Line::text)
            .map(|line| line.trim_end().to_owned())
            .collect()
    }

    #[test]
    fn columns_stand_under_each_other_whatever_is_in_them() {
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
