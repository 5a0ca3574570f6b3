//! Applies the hunks of a patch to a text.

use toolgate_core::patch::{HunkLine, HunkTag, PatchHunk};

use crate::files::text::{LineEnding, lines_with_endings, strip_line_ending};

/// A text after a patch, with notes about it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PatchedText {
    pub(crate) text: String,
    /// Notes about hunks that were found at other lines than their headers name.
    pub(crate) notes: Vec<String>,
}

/// The most line comparisons for an error message; more would take too long.
const MAX_COMPARISONS: usize = 5_000_000;

/// Applies all hunks in order. Every line that a hunk expects must match; only its number may be
/// off.
pub(crate) fn apply_hunks(text: &str, hunks: &[PatchHunk]) -> Result<PatchedText, String> {
    let old: Vec<&str> = lines_with_endings(text).collect();
    let mut work = HunkApplier {
        old: &old,
        new: String::with_capacity(text.len()),
        from: 0,
        newline: LineEnding::detect(text),
    };
    let mut drift = 0_isize;
    let mut notes = Vec::new();
    for (number, hunk) in hunks.iter().enumerate() {
        let number = number + 1;
        let said = first_line(hunk).saturating_add_signed(drift);
        let at = work
            .find_position(hunk, said)
            .map_err(|why| format!("hunk {number} does not apply: {why}"))?;
        if at != said {
            notes.push(format!(
                "hunk {number} was found at line {} instead of {}",
                at + 1,
                said + 1
            ));
        }
        // Later hunks are usually off by the same number of lines.
        drift += at as isize - said as isize;
        work.apply_hunk(hunk, at);
    }
    work.keep_until(old.len());
    Ok(PatchedText {
        text: work.new,
        notes,
    })
}

/// Returns the line at which a hunk begins according to its header, counted from 0.
fn first_line(hunk: &PatchHunk) -> usize {
    match hunk.expected_lines().next() {
        Some(_) => hunk.old_start.saturating_sub(1),
        // A hunk that only adds names the line before.
        None => hunk.old_start,
    }
}

struct HunkApplier<'a> {
    old: &'a [&'a str],
    new: String,
    /// The first old line that is not copied or removed yet.
    from: usize,
    newline: LineEnding,
}

impl HunkApplier<'_> {
    fn find_position(&self, hunk: &PatchHunk, said: usize) -> Result<usize, String> {
        let expected: Vec<&HunkLine> = hunk.expected_lines().collect();
        if expected.is_empty() {
            return if said >= self.from && said <= self.old.len() {
                Ok(said)
            } else {
                Err(format!(
                    "the file has {} lines; add lines of context",
                    self.old.len()
                ))
            };
        }
        // The line of the header wins, even if the hunk also matches elsewhere.
        if said >= self.from && self.fits_at(&expected, said) {
            return Ok(said);
        }
        let last = (self.old.len() + 1).saturating_sub(expected.len());
        // Not before the end of the previous hunk: hunks are in order and do not overlap.
        let found: Vec<usize> = (self.from..last)
            .filter(|at| self.fits_at(&expected, *at))
            .collect();
        match found.as_slice() {
            [at] => Ok(*at),
            [] => Err(self.explain_misfit(&expected, said)),
            several => {
                let lines: Vec<String> = several
                    .iter()
                    .take(5)
                    .map(|at| (at + 1).to_string())
                    .collect();
                let lines = lines.join(", ");
                Err(format!(
                    "it matches at lines {lines} but not at line {}; add lines of context",
                    said + 1
                ))
            }
        }
    }

    fn fits_at(&self, expected: &[&HunkLine], at: usize) -> bool {
        let there = self.old.get(at..at + expected.len());
        there.is_some_and(|there| {
            there
                .iter()
                .zip(expected)
                .all(|(line, wanted)| matches_line(line, wanted))
        })
    }

    /// Explains which line differs, at the position where most lines match.
    fn explain_misfit(&self, expected: &[&HunkLine], said: usize) -> String {
        let agree = |at: &usize| {
            let there = self.old.iter().skip(*at);
            there
                .zip(expected)
                .filter(|(line, wanted)| matches_line(line, wanted))
                .count()
        };
        let places = self.from..self.old.len();
        let best = if self.old.len().saturating_mul(expected.len()) <= MAX_COMPARISONS {
            places
                .max_by_key(|at| (agree(at), usize::MAX - at.abs_diff(said)))
                .unwrap_or(said)
        } else {
            said
        };
        for (offset, wanted) in expected.iter().enumerate() {
            match self.old.get(best + offset) {
                Some(line) if matches_line(line, wanted) => {}
                Some(line) => {
                    let found = shorten(strip_line_ending(line));
                    let wanted = shorten(&wanted.text);
                    let end = if found == wanted {
                        ", and they differ in the line ending"
                    } else {
                        ""
                    };
                    return format!(
                        "line {} is {found:?}, the patch has {wanted:?}{end}",
                        best + offset + 1
                    );
                }
                None => {
                    let wanted = shorten(&wanted.text);
                    return format!(
                        "the file ends at line {}, the patch continues with {wanted:?}",
                        self.old.len()
                    );
                }
            }
        }
        "it overlaps the hunk before it".to_owned()
    }

    fn apply_hunk(&mut self, hunk: &PatchHunk, at: usize) {
        self.keep_until(at);
        // If the hunk contains `\r`, its line endings are used as they are.
        let own_ends = hunk.lines.iter().any(|line| line.text.ends_with('\r'));
        for line in &hunk.lines {
            match line.tag {
                HunkTag::Keep => self.keep_until(self.from + 1),
                HunkTag::Remove => self.from += 1,
                HunkTag::Add => {
                    let end = match (line.ends, own_ends) {
                        (false, _) => "",
                        (true, true) => "\n",
                        (true, false) => self.line_ending_here(),
                    };
                    self.push_line(&line.text);
                    self.new.push_str(end);
                }
            }
        }
    }

    /// Returns the line ending of the lines around the next one.
    fn line_ending_here(&self) -> &'static str {
        let around = self
            .from
            .checked_sub(1)
            .and_then(|before| self.old.get(before))
            .or_else(|| self.old.get(self.from));
        let crlf = around.map_or(self.newline == LineEnding::Crlf, |line| {
            line.ends_with("\r\n")
        });
        if crlf { "\r\n" } else { "\n" }
    }

    fn keep_until(&mut self, end: usize) {
        while self.from < end {
            if let Some(line) = self.old.get(self.from) {
                self.push_line(line);
            }
            self.from += 1;
        }
    }

    /// Adds a line. A line without a line ending gets one first, because it is no longer the last.
    fn push_line(&mut self, line: &str) {
        if !self.new.is_empty() && !self.new.ends_with('\n') {
            self.new.push('\n');
        }
        self.new.push_str(line);
    }
}

/// Checks whether a line of a file matches a line of a hunk. The patch may use `\n` where the file
/// uses `\r\n`, and it may omit that the last line of a file has no line ending.
fn matches_line(line: &str, wanted: &HunkLine) -> bool {
    let (text, ends) = match line.strip_suffix('\n') {
        Some(text) => (text, true),
        None => (line, false),
    };
    let same = text == wanted.text || text.strip_suffix('\r') == Some(&wanted.text);
    same && (wanted.ends || !ends)
}

fn shorten(line: &str) -> String {
    line.chars().take(120).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use similar::TextDiff;
    use toolgate_core::patch::{InvalidPatch, Patch};

    fn parse_hunks(hunks: &str) -> Result<Vec<PatchHunk>, InvalidPatch> {
        let patch = Patch::parse(&format!("--- a/x\n+++ b/x\n{hunks}"))?;
        Ok(patch.into_unified()?.remove(0).hunks)
    }

    fn apply_to(text: &str, hunks: &str) -> Result<PatchedText, String> {
        apply_hunks(text, &parse_hunks(hunks).expect("a patch"))
    }

    #[test]
    fn a_hunk_is_found_at_its_line_or_at_the_only_position_where_it_matches() {
        let hunk = "@@ -2,2 +2,2 @@\n two\n-three\n+3\n";
        assert_eq!(
            apply_to("one\ntwo\nthree\n", hunk).expect("applies").text,
            "one\ntwo\n3\n"
        );
        let moved = apply_to("zero\nzero\none\ntwo\nthree\n", hunk).expect("applies");
        assert_eq!(
            (moved.text.as_str(), moved.notes.len()),
            ("zero\nzero\none\ntwo\n3\n", 1)
        );
        let twice = apply_to("x\nx\nx\ntwo\nthree\nx\ntwo\nthree\n", hunk).expect_err("ambiguous");
        assert!(twice.contains("lines 4, 7"), "{twice}");
        let far = "@@ -1 +1 @@\n-a\n+A\n@@ -3 +3 @@\n-c\n+C\n";
        assert_eq!(
            apply_to("0\n0\na\nb\nc\n", far).expect("applies").text,
            "0\n0\nA\nb\nC\n",
            "later hunks are shifted too"
        );
    }

    #[test]
    fn a_hunk_that_does_not_match_names_the_line_that_differs() {
        let why = apply_to(
            "one\ntwo\nfour\n",
            "@@ -1,3 +1,3 @@\n one\n two\n-three\n+3\n",
        )
        .expect_err("differs");
        assert_eq!(
            why,
            "hunk 1 does not apply: line 3 is \"four\", the patch has \"three\""
        );
        let why = apply_to("one\n", "@@ -1,2 +1,1 @@\n one\n-two\n").expect_err("too short");
        assert!(
            why.contains("ends at line 1") && why.contains("\"two\""),
            "{why}"
        );
        let why = apply_to("", "@@ -5,0 +6 @@\n+x\n").expect_err("nowhere");
        assert!(why.contains("0 lines"), "{why}");
        let why = apply_to(
            "a\nb\n",
            "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+c\n",
        )
        .expect_err("differs");
        assert!(why.contains("differ in the line ending"), "{why}");
    }

    #[test]
    fn new_lines_get_the_line_ending_of_those_around_them() {
        let hunk = "@@ -1,2 +1,3 @@\n one\n-two\n+2\n+2b\n";
        assert_eq!(
            apply_to("one\r\ntwo\r\n", hunk).expect("applies").text,
            "one\r\n2\r\n2b\r\n"
        );
        let raw = "@@ -1,2 +1,2 @@\n one\r\n-two\r\n+2\n";
        assert_eq!(
            apply_to("one\r\ntwo\r\n", raw).expect("applies").text,
            "one\r\n2\n",
            "line endings in the patch are used"
        );
    }

    #[test]
    fn a_last_line_without_line_ending_is_supported() {
        assert_eq!(
            apply_to("one", "@@ -1 +1,2 @@\n one\n+two\n")
                .expect("applies")
                .text,
            "one\ntwo\n"
        );
        let bare =
            "@@ -1 +1 @@\n-one\n\\ No newline at end of file\n+1\n\\ No newline at end of file\n";
        assert_eq!(apply_to("one", bare).expect("applies").text, "1");
    }

    proptest! {
        #[test]
        fn the_diff_of_two_texts_makes_one_from_the_other(
            a in "(x|y|z|xy|\n|\r\n|é|--- |@@ -1){0,40}",
            b in "(x|y|z|xy|\n|\r\n|é|--- |@@ -1){0,40}",
        ) {
            prop_assume!(a != b);
            let diff = TextDiff::from_lines(&a, &b);
            let patch = diff.unified_diff().context_radius(3).to_string();
            let hunks = parse_hunks(&patch).map_err(|why| TestCaseError::fail(format!("{why}\n{patch:?}")))?;
            let patched = apply_hunks(&a, &hunks).map_err(|why| TestCaseError::fail(format!("{why}\n{patch:?}")))?;
            prop_assert_eq!(patched.text, b);
        }
    }
}
