//! Parses hunks: the counts of the header decide where one ends.

use super::{InvalidPatch, document::PatchLines, invalid_line, shorten};

/// One contiguous group of changed lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchHunk {
    /// The first old line, counted from 1; for a hunk that only adds, the line before.
    pub old_start: usize,
    /// The lines, in order.
    pub lines: Vec<HunkLine>,
}

/// A line of a hunk, without its line ending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HunkLine {
    /// The effect on the line.
    pub tag: HunkTag,
    /// The text.
    pub text: String,
    /// True if the line has a line ending; the last line of a file may have none.
    pub ends: bool,
}

/// The effect of a hunk on a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HunkTag {
    /// The line stays.
    Keep,
    /// The line is in the old file only.
    Remove,
    /// The line is in the new file only.
    Add,
}

impl PatchHunk {
    /// Returns the lines that must be in the old file.
    pub fn expected_lines(&self) -> impl Iterator<Item = &HunkLine> {
        self.lines.iter().filter(|line| line.tag != HunkTag::Add)
    }

    /// Parses the hunk whose header is `line`, with the lines that follow it.
    pub(super) fn parse(
        number: usize,
        line: &str,
        lines: &mut PatchLines<'_>,
    ) -> Result<Self, InvalidPatch> {
        let (old_start, counts) = parse_hunk_header(line).ok_or_else(|| {
            let line = shorten(line);
            let problem = format!("{line:?} is not a valid hunk header; write @@ -12,3 +12,4 @@");
            invalid_line(number, problem)
        })?;
        if counts == HunkCounts::ZERO {
            return Err(invalid_line(number, "the hunk has no lines"));
        }
        let mut left = counts;
        let mut hunk = Self {
            old_start,
            lines: Vec::new(),
        };
        // The counts decide where the hunk ends, so that content that looks like a header stays
        // content.
        while left != HunkCounts::ZERO {
            let Some((number_here, line)) = lines.next() else {
                return Err(miscount_error(number, counts, left));
            };
            let (tag, text) = match line.as_bytes().first() {
                Some(b' ') => (HunkTag::Keep, &line[1..]),
                // Some programs strip the space from an empty context line.
                None => (HunkTag::Keep, line),
                Some(b'\r') if line.len() == 1 => (HunkTag::Keep, line),
                Some(b'-') => (HunkTag::Remove, &line[1..]),
                Some(b'+') => (HunkTag::Add, &line[1..]),
                Some(b'\\') => {
                    hunk.mark_without_line_ending(number_here)?;
                    continue;
                }
                Some(_) => return Err(miscount_error(number, counts, left)),
            };
            left = left
                .without(tag)
                .ok_or_else(|| miscount_error(number, counts, left))?;
            hunk.lines.push(HunkLine {
                tag,
                text: text.to_owned(),
                ends: true,
            });
        }
        if let Some((number_here, _)) = lines.next_if(|(_, line)| line.starts_with('\\')) {
            hunk.mark_without_line_ending(number_here)?;
        }
        Ok(hunk)
    }

    fn mark_without_line_ending(&mut self, number: usize) -> Result<(), InvalidPatch> {
        let last = self
            .lines
            .last_mut()
            .ok_or_else(|| invalid_line(number, "the hunk has no line before this one"))?;
        last.ends = false;
        Ok(())
    }
}

/// The numbers of lines of a hunk, in the old file and in the new one.
#[derive(Clone, Copy, PartialEq, Eq)]
struct HunkCounts {
    old: usize,
    new: usize,
}

impl HunkCounts {
    const ZERO: Self = Self { old: 0, new: 0 };

    /// Returns the counts without one line of this kind, or nothing if they have no such line.
    fn without(self, tag: HunkTag) -> Option<Self> {
        Some(Self {
            old: self.old.checked_sub(usize::from(tag != HunkTag::Add))?,
            new: self.new.checked_sub(usize::from(tag != HunkTag::Remove))?,
        })
    }
}

/// Parses `@@ -a,b +c,d @@` into `a`, `b` and `d`; a missing count is 1.
fn parse_hunk_header(line: &str) -> Option<(usize, HunkCounts)> {
    let (ranges, _) = line.strip_prefix("@@ -")?.split_once(" @@")?;
    let (old, new) = ranges.split_once(" +")?;
    let digits = |text: &str| {
        text.parse()
            .ok()
            // `parse` also accepts a leading `+`, which other programs reject.
            .filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let range = |range: &str| match range.split_once(',') {
        Some((start, count)) => Some((digits(start)?, digits(count)?)),
        None => Some((digits(range)?, 1)),
    };
    let (start, old) = range(old)?;
    let (_, new) = range(new)?;
    Some((start, HunkCounts { old, new }))
}

fn miscount_error(number: usize, counts: HunkCounts, left: HunkCounts) -> InvalidPatch {
    let HunkCounts { old, new } = counts;
    let problem = format!(
        "the hunk header counts {old} old and {new} new lines, but {} old and {} new ones follow; \
         count again: old lines begin with a space or -, new ones with a space or +",
        old - left.old,
        new - left.new
    );
    invalid_line(number, problem)
}
