//! Unified diffs in colours.

use anstyle::{AnsiColor, Style};

use super::{StyledLine, highlight::CodeHighlighter, margin::wrap_behind_margin};

const ADDED: Style = AnsiColor::Green.on_default();
const REMOVED: Style = AnsiColor::Red.on_default();
const HUNK_HEADER: Style = AnsiColor::Cyan.on_default();
const FILE_HEADER: Style = Style::new().bold();

/// Colours the lines of a unified diff. Text that is not a diff stays plain.
pub fn render_diff(text: &str) -> Vec<StyledLine> {
    render_diff_lines(text.lines()).collect()
}

/// Draws a unified diff in rows of at most `width` columns, behind a margin and marked where a line
/// wraps, as an approver sees it.
pub fn render_diff_rows(text: &str, width: usize) -> Vec<StyledLine> {
    let lines = render_diff_lines(text.lines());
    lines
        .flat_map(|line| wrap_behind_margin(line, width))
        .collect()
}

/// Colours each line of a unified diff. The colour of a changed line says what changes; its
/// keywords are bold and its comments dim.
pub(super) fn render_diff_lines<'a>(
    lines: impl Iterator<Item = &'a str>,
) -> impl Iterator<Item = StyledLine> {
    let mut hunk = DiffHunk::default();
    let mut code = CodeHighlighter::default();
    lines.map(move |line| {
        let is_code = hunk.old + hunk.new > 0;
        let base = hunk.line_style(line);
        if !is_code || !code.is_known() || line.starts_with('\\') {
            if base == FILE_HEADER {
                code =
                    CodeHighlighter::for_path(line.split('\t').next().unwrap_or(line).trim_end());
            }
            return StyledLine::styled(line, base);
        }
        let (sign, text) = line.split_at_checked(1).unwrap_or((line, ""));
        // A copy for each line: old and new lines are mixed, so a block has no end that holds for
        // both.
        let pieces = code.clone().split_line(text).into_iter();
        pieces.fold(StyledLine::styled(sign, base), |row, (token, text)| {
            let style = if base == Style::new() {
                token.style()
            } else {
                token.style_over(base)
            };
            row.with(text, style)
        })
    })
}

/// The number of lines of a hunk that are still to come. Only this count tells a removed line that
/// begins with two dashes from the name of the next file.
#[derive(Default)]
struct DiffHunk {
    old: usize,
    new: usize,
}

impl DiffHunk {
    fn line_style(&mut self, line: &str) -> Style {
        if self.old + self.new == 0 {
            return self.header_style(line);
        }
        let (old, new, style) = match line.as_bytes().first() {
            Some(b'+') => (0, 1, ADDED),
            Some(b'-') => (1, 0, REMOVED),
            Some(b'\\') => (0, 0, Style::new().dimmed()),
            _ => (1, 1, Style::new()),
        };
        self.old = self.old.saturating_sub(old);
        self.new = self.new.saturating_sub(new);
        style
    }

    fn header_style(&mut self, line: &str) -> Style {
        if let Some((old, new)) = parse_hunk_lengths(line) {
            self.old = old;
            self.new = new;
            return HUNK_HEADER;
        }
        match line.split(' ').next() {
            Some("---" | "+++" | "diff") => FILE_HEADER,
            Some("\\") => Style::new().dimmed(),
            _ => Style::new(),
        }
    }
}

/// Parses the number of lines of a hunk from `@@ -3,7 +3,8 @@`; an omitted length is 1.
fn parse_hunk_lengths(line: &str) -> Option<(usize, usize)> {
    let (old, rest) = line.strip_prefix("@@ -")?.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    let length = |range: &str| match range.split_once(',') {
        Some((_, length)) => length.parse().ok(),
        None => range.parse::<usize>().ok().map(|_| 1),
    };
    Some((length(old)?, length(new)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_coloured_by_what_it_says() {
        let text = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n same\n--- a comment\n+++ another\n\\ No newline\n--- y\n+++ y\n@@ -0,0 +1 @@\n+one";
        let styles: Vec<Style> = render_diff(text)
            .iter()
            .map(|line| line.spans[0].style)
            .collect();
        let plain = Style::new();
        let first = [
            FILE_HEADER,
            FILE_HEADER,
            HUNK_HEADER,
            plain,
            REMOVED,
            ADDED,
            plain.dimmed(),
        ];
        assert_eq!(
            styles,
            [&first[..], &[FILE_HEADER, FILE_HEADER, HUNK_HEADER, ADDED]].concat()
        );
    }

    #[test]
    fn code_in_a_diff_keeps_the_colour_of_its_change() {
        let text =
            "--- a/x.rs\n+++ b/x.rs\n@@ -1,2 +1,2 @@\n let a = 1;\n-fn old() // x\n+fn new()";
        let rows = render_diff(text);
        let pieces = |row: &StyledLine| -> Vec<(String, Style)> {
            let spans = row.spans.iter();
            spans.map(|span| (span.text.clone(), span.style)).collect()
        };
        let piece = |text: &str, style: Style| (text.to_owned(), style);
        assert!(pieces(&rows[3]).contains(&piece("let", AnsiColor::Magenta.on_default())));
        assert_eq!(
            pieces(&rows[4]),
            [
                piece("-", REMOVED),
                piece("fn", REMOVED.bold()),
                piece(" old() ", REMOVED),
                piece("// x", REMOVED.dimmed()),
            ]
        );
        assert_eq!(pieces(&rows[5])[1], piece("fn", ADDED.bold()));
    }

    #[test]
    fn a_text_that_is_no_diff_stays_plain() {
        let lines = render_diff("no diff: the file is not text\n- a list");
        assert!(lines.iter().all(|line| line.spans[0].style == Style::new()));
    }
}
