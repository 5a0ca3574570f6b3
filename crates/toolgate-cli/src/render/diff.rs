//! Unified diffs in colours.

use anstyle::{AnsiColor, Style};

use super::Line;

const ADDED: Style = AnsiColor::Green.on_default();
const REMOVED: Style = AnsiColor::Red.on_default();
const PLACE: Style = AnsiColor::Cyan.on_default();
const FILE: Style = Style::new().bold();

/// The lines of a unified diff, coloured by what they say. Text that is no diff stays plain.
pub fn diff(text: &str) -> Vec<Line> {
    let mut hunk = Hunk::default();
    text.lines()
        .map(|line| Line::styled(line, hunk.style(line)))
        .collect()
}

/// How many lines of a hunk are still to come. Only that tells a removed line which begins with two dashes from the
/// name of the next file.
#[derive(Default)]
struct Hunk {
    old: usize,
    new: usize,
}

impl Hunk {
    fn style(&mut self, line: &str) -> Style {
        if self.old + self.new == 0 {
            return self.outside(line);
        }
        let (old, new, style) = match line.as_bytes().first() {
            Some(b'+') => (0, 1, ADDED),
            Some(b'-') => (1, 0, REMOVED),
            Some(b'\\') => (0, 0, Style::new().dimmed()),
            _ => (1, 1, Style::new()),
        };
        (self.old, self.new) = (self.old.saturating_sub(old), self.new.saturating_sub(new));
        style
    }

    fn outside(&mut self, line: &str) -> Style {
        if let Some((old, new)) = lengths(line) {
            (self.old, self.new) = (old, new);
            return PLACE;
        }
        match line.split(' ').next() {
            Some("---" | "+++" | "diff") => FILE,
            Some("\\") => Style::new().dimmed(),
            _ => Style::new(),
        }
    }
}

/// How many lines a hunk has, from `@@ -3,7 +3,8 @@`; a length that is left out is 1.
fn lengths(line: &str) -> Option<(usize, usize)> {
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
        let styles: Vec<Style> = diff(text).iter().map(|line| line.spans[0].style).collect();
        let plain = Style::new();
        let first = [FILE, FILE, PLACE, plain, REMOVED, ADDED, plain.dimmed()];
        assert_eq!(styles, [&first[..], &[FILE, FILE, PLACE, ADDED]].concat());
    }

    #[test]
    fn a_text_that_is_no_diff_stays_plain() {
        let lines = diff("no diff: the file is not text\n- a list");
        assert!(lines.iter().all(|line| line.spans[0].style == Style::new()));
    }
}
