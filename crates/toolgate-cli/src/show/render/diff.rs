//! Unified diffs in colours.

use anstyle::{AnsiColor, Style};

use super::StyledLine;

const ADDED: Style = AnsiColor::Green.on_default();
const REMOVED: Style = AnsiColor::Red.on_default();
const HUNK_HEADER: Style = AnsiColor::Cyan.on_default();
const FILE_HEADER: Style = Style::new().bold();

/// Colours the lines of a unified diff. Text that is not a diff stays plain.
pub fn render_diff(text: &str) -> Vec<StyledLine> {
    let mut hunk = DiffHunk::default();
    text.lines()
        .map(|line| StyledLine::styled(line, hunk.line_style(line)))
        .collect()
}

/// Returns the style of each line of a unified diff.
pub(super) fn diff_styles<'a>(lines: impl Iterator<Item = &'a str>) -> impl Iterator<Item = Style> {
    let mut hunk = DiffHunk::default();
    lines.map(move |line| hunk.line_style(line))
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
    fn a_text_that_is_no_diff_stays_plain() {
        let lines = render_diff("no diff: the file is not text\n- a list");
        assert!(lines.iter().all(|line| line.spans[0].style == Style::new()));
    }
}
