//! Applies the hunks of a patch to a text.

use crate::{
    patch::{Hunk, HunkLine, Tag},
    text::{Newline, bare, lines},
};

/// A text after a patch, and what there is to say about it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Patched {
    pub(crate) text: String,
    /// Hunks that were found on other lines than they said.
    pub(crate) notes: Vec<String>,
}

/// Comparing more lines than this for an error text takes too long.
const MOST_COMPARED: usize = 5_000_000;

/// Applies all hunks in order. Every line that a hunk expects has to be there; only its number may be off.
pub(crate) fn apply(text: &str, hunks: &[Hunk]) -> Result<Patched, String> {
    let old: Vec<&str> = lines(text).collect();
    let mut work = Work {
        old: &old,
        new: String::with_capacity(text.len()),
        from: 0,
        newline: Newline::of(text),
    };
    let (mut drift, mut notes) = (0_isize, Vec::new());
    for (number, hunk) in hunks.iter().enumerate() {
        let number = number + 1;
        let said = first_line(hunk).saturating_add_signed(drift);
        let at = work
            .find(hunk, said)
            .map_err(|why| format!("hunk {number} does not apply: {why}"))?;
        if at != said {
            notes.push(format!(
                "hunk {number} was found at line {} instead of {}",
                at + 1,
                said + 1
            ));
        }
        drift += at as isize - said as isize;
        work.apply(hunk, at);
    }
    work.keep_until(old.len());
    Ok(Patched {
        text: work.new,
        notes,
    })
}

/// Where a hunk says it begins, counted from 0.
fn first_line(hunk: &Hunk) -> usize {
    match hunk.expected().next() {
        Some(_) => hunk.old_start.saturating_sub(1),
        // A hunk that only adds names the line before.
        None => hunk.old_start,
    }
}

struct Work<'a> {
    old: &'a [&'a str],
    new: String,
    /// The first old line that is not taken over yet.
    from: usize,
    newline: Newline,
}

impl Work<'_> {
    fn find(&self, hunk: &Hunk, said: usize) -> Result<usize, String> {
        let expected: Vec<&HunkLine> = hunk.expected().collect();
        if expected.is_empty() {
            return match said >= self.from && said <= self.old.len() {
                true => Ok(said),
                false => Err(format!(
                    "the file has {} lines; add lines of context",
                    self.old.len()
                )),
            };
        }
        if said >= self.from && self.fits(&expected, said) {
            return Ok(said);
        }
        let last = (self.old.len() + 1).saturating_sub(expected.len());
        let found: Vec<usize> = (self.from..last)
            .filter(|at| self.fits(&expected, *at))
            .collect();
        match found.as_slice() {
            [at] => Ok(*at),
            [] => Err(self.misfit(&expected, said)),
            several => {
                let lines: Vec<String> = several
                    .iter()
                    .take(5)
                    .map(|at| (at + 1).to_string())
                    .collect();
                let lines = lines.join(", ");
                Err(format!(
                    "it fits at lines {lines} but not at line {}; add lines of context",
                    said + 1
                ))
            }
        }
    }

    fn fits(&self, expected: &[&HunkLine], at: usize) -> bool {
        let there = self.old.get(at..at + expected.len());
        there.is_some_and(|there| {
            there
                .iter()
                .zip(expected)
                .all(|(line, wanted)| is(line, wanted))
        })
    }

    /// Says which line differs, at the place where most lines agree.
    fn misfit(&self, expected: &[&HunkLine], said: usize) -> String {
        let agree = |at: &usize| {
            let there = self.old.iter().skip(*at);
            there
                .zip(expected)
                .filter(|(line, wanted)| is(line, wanted))
                .count()
        };
        let places = self.from..self.old.len();
        let best = match self.old.len().saturating_mul(expected.len()) <= MOST_COMPARED {
            true => places
                .max_by_key(|at| (agree(at), usize::MAX - at.abs_diff(said)))
                .unwrap_or(said),
            false => said,
        };
        for (offset, wanted) in expected.iter().enumerate() {
            match self.old.get(best + offset) {
                Some(line) if is(line, wanted) => {}
                Some(line) => {
                    let (found, wanted) = (cut(bare(line)), cut(&wanted.text));
                    let end = if found == wanted {
                        ", and they differ in how the line ends"
                    } else {
                        ""
                    };
                    return format!(
                        "line {} is {found:?}, the patch has {wanted:?}{end}",
                        best + offset + 1
                    );
                }
                None => {
                    let wanted = cut(&wanted.text);
                    return format!(
                        "the file ends at line {}, the patch goes on with {wanted:?}",
                        self.old.len()
                    );
                }
            }
        }
        "it overlaps the hunk before it".to_owned()
    }

    fn apply(&mut self, hunk: &Hunk, at: usize) {
        self.keep_until(at);
        // A patch that writes line ends itself is taken by its word.
        let own_ends = hunk.lines.iter().any(|line| line.text.ends_with('\r'));
        for line in &hunk.lines {
            match line.tag {
                Tag::Keep => self.keep_until(self.from + 1),
                Tag::Remove => self.from += 1,
                Tag::Add => {
                    let end = match (line.ends, own_ends) {
                        (false, _) => "",
                        (true, true) => "\n",
                        (true, false) => self.end_here(),
                    };
                    self.push(&line.text);
                    self.new.push_str(end);
                }
            }
        }
    }

    /// How the lines around the next one end.
    fn end_here(&self) -> &'static str {
        let around = self
            .from
            .checked_sub(1)
            .and_then(|before| self.old.get(before))
            .or_else(|| self.old.get(self.from));
        let crlf = around.map_or(self.newline == Newline::Crlf, |line| line.ends_with("\r\n"));
        if crlf { "\r\n" } else { "\n" }
    }

    fn keep_until(&mut self, end: usize) {
        while self.from < end {
            if let Some(line) = self.old.get(self.from) {
                self.push(line);
            }
            self.from += 1;
        }
    }

    /// Adds a line. One that did not end does now, because it is not the last any more.
    fn push(&mut self, line: &str) {
        if !self.new.is_empty() && !self.new.ends_with('\n') {
            self.new.push('\n');
        }
        self.new.push_str(line);
    }
}

/// Whether a line of a file is the one that a hunk means. Lines of a patch may end in `\n` where those of the file end in
/// `\r\n`, and it may not say that the last line of a file does not end.
fn is(line: &str, wanted: &HunkLine) -> bool {
    let (text, ends) = match line.strip_suffix('\n') {
        Some(text) => (text, true),
        None => (line, false),
    };
    let same = text == wanted.text || text.strip_suffix('\r') == Some(&wanted.text);
    same && (wanted.ends || !ends)
}

fn cut(line: &str) -> String {
    line.chars().take(120).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patch::parse;
    use proptest::prelude::*;
    use similar::TextDiff;

    fn patched(text: &str, hunks: &str) -> Result<Patched, String> {
        let files = parse(&format!("--- a/x\n+++ b/x\n{hunks}")).expect("a patch");
        apply(text, &files[0].hunks)
    }

    #[test]
    fn a_hunk_is_found_where_it_says_or_at_the_one_place_where_it_fits() {
        let hunk = "@@ -2,2 +2,2 @@\n two\n-three\n+3\n";
        assert_eq!(
            patched("one\ntwo\nthree\n", hunk).expect("applies").text,
            "one\ntwo\n3\n"
        );
        let moved = patched("zero\nzero\none\ntwo\nthree\n", hunk).expect("applies");
        assert_eq!(
            (moved.text.as_str(), moved.notes.len()),
            ("zero\nzero\none\ntwo\n3\n", 1)
        );
        let twice = patched("x\nx\nx\ntwo\nthree\nx\ntwo\nthree\n", hunk).expect_err("ambiguous");
        assert!(twice.contains("lines 4, 7"), "{twice}");
        let far = "@@ -1 +1 @@\n-a\n+A\n@@ -3 +3 @@\n-c\n+C\n";
        assert_eq!(
            patched("0\n0\na\nb\nc\n", far).expect("applies").text,
            "0\n0\nA\nb\nC\n",
            "the rest moves along"
        );
    }

    #[test]
    fn a_hunk_that_does_not_fit_names_the_line_that_differs() {
        let why = patched(
            "one\ntwo\nfour\n",
            "@@ -1,3 +1,3 @@\n one\n two\n-three\n+3\n",
        )
        .expect_err("differs");
        assert_eq!(
            why,
            "hunk 1 does not apply: line 3 is \"four\", the patch has \"three\""
        );
        let why = patched("one\n", "@@ -1,2 +1,1 @@\n one\n-two\n").expect_err("too short");
        assert!(
            why.contains("ends at line 1") && why.contains("\"two\""),
            "{why}"
        );
        let why = patched("", "@@ -5,0 +6 @@\n+x\n").expect_err("nowhere");
        assert!(why.contains("0 lines"), "{why}");
        let why = patched(
            "a\nb\n",
            "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+c\n",
        )
        .expect_err("differs");
        assert!(why.contains("how the line ends"), "{why}");
    }

    #[test]
    fn new_lines_end_like_those_around_them() {
        let hunk = "@@ -1,2 +1,3 @@\n one\n-two\n+2\n+2b\n";
        assert_eq!(
            patched("one\r\ntwo\r\n", hunk).expect("applies").text,
            "one\r\n2\r\n2b\r\n"
        );
        let raw = "@@ -1,2 +1,2 @@\n one\r\n-two\r\n+2\n";
        assert_eq!(
            patched("one\r\ntwo\r\n", raw).expect("applies").text,
            "one\r\n2\n",
            "ends that are given are taken"
        );
    }

    #[test]
    fn a_last_line_that_does_not_end_is_understood() {
        assert_eq!(
            patched("one", "@@ -1 +1,2 @@\n one\n+two\n")
                .expect("applies")
                .text,
            "one\ntwo\n"
        );
        let bare =
            "@@ -1 +1 @@\n-one\n\\ No newline at end of file\n+1\n\\ No newline at end of file\n";
        assert_eq!(patched("one", bare).expect("applies").text, "1");
    }

    proptest! {
        #[test]
        fn the_diff_of_two_texts_makes_one_from_the_other(
            a in "(x|y|z|xy|\n|\r\n|é|--- |@@ -1){0,40}",
            b in "(x|y|z|xy|\n|\r\n|é|--- |@@ -1){0,40}",
        ) {
            prop_assume!(a != b);
            let diff = TextDiff::from_lines(&a, &b);
            let patch = format!("--- a/x\n+++ b/x\n{}", diff.unified_diff().context_radius(3));
            let files = parse(&patch).map_err(|why| TestCaseError::fail(format!("{why}\n{patch:?}")))?;
            let patched = apply(&a, &files[0].hunks).map_err(|why| TestCaseError::fail(format!("{why}\n{patch:?}")))?;
            prop_assert_eq!(patched.text, b);
        }
    }
}
