//! Parses unified diffs strictly: an ambiguous patch is rejected.
//!
//! The policy layer parses a patch on its own to find the files it changes. A patch that can be
//! parsed in two ways could show the policy one file and change another, so counts, names and
//! headers must agree with each other here.

pub(crate) mod hunks;

use std::{iter::Peekable, ops::ControlFlow};

/// The changes of a patch to one file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct FilePatch {
    /// The old path; `None` for a new file.
    pub(crate) old: Option<String>,
    /// The new path; `None` for a deleted file.
    pub(crate) new: Option<String>,
    /// The permissions, if the patch sets them.
    pub(crate) mode: Option<u32>,
    pub(crate) hunks: Vec<PatchHunk>,
}

/// One contiguous group of changed lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PatchHunk {
    /// The first old line, counted from 1; for a hunk that only adds, the line before.
    pub(crate) old_start: usize,
    pub(crate) lines: Vec<HunkLine>,
}

/// A line of a hunk, without its line ending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HunkLine {
    pub(crate) tag: HunkTag,
    pub(crate) text: String,
    /// True if the line has a line ending; the last line of a file may have none.
    pub(crate) ends: bool,
}

/// The effect of a hunk on a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HunkTag {
    Keep,
    Remove,
    Add,
}

impl PatchHunk {
    /// Returns the lines that must be in the old file.
    pub(crate) fn expected_lines(&self) -> impl Iterator<Item = &HunkLine> {
        self.lines.iter().filter(|line| line.tag != HunkTag::Add)
    }
}

/// Parses a patch of one or more files.
pub(crate) fn parse_patch(patch: &str) -> Result<Vec<FilePatch>, String> {
    let lines = patch
        .split_inclusive('\n')
        .map(|line| line.strip_suffix('\n').unwrap_or(line))
        .enumerate();
    let mut reader = PatchParser {
        lines: lines.peekable(),
        files: Vec::new(),
        section: None,
    };
    while let ControlFlow::Continue(()) = reader.parse_line()? {}
    reader.finish_section()?;
    if reader.files.is_empty() {
        Err("the patch names no file; write a unified diff with ---, +++ and @@ lines".to_owned())
    } else {
        Ok(reader.files)
    }
}

/// The prefixes of git's extended headers.
const GIT_HEADERS: [&str; 11] = [
    "rename ",
    "copy ",
    "new file ",
    "deleted file ",
    "new mode ",
    "old mode ",
    "index ",
    "similarity ",
    "dissimilarity ",
    "Binary files ",
    "GIT binary ",
];

struct PatchParser<'a, I: Iterator<Item = (usize, &'a str)>> {
    lines: Peekable<I>,
    files: Vec<FilePatch>,
    section: Option<FileSection>,
}

/// The headers and hunks of one file, as parsed so far.
#[derive(Default)]
struct FileSection {
    /// The first line, for messages.
    line: usize,
    git: Option<String>,
    names: Option<(String, String)>,
    rename_from: Option<String>,
    rename_to: Option<String>,
    is_new: bool,
    is_deleted: bool,
    mode: Option<u32>,
    hunks: Vec<PatchHunk>,
}

impl<'a, I: Iterator<Item = (usize, &'a str)>> PatchParser<'a, I> {
    fn parse_line(&mut self) -> Result<ControlFlow<()>, String> {
        let Some((at, raw)) = self.lines.next() else {
            return Ok(ControlFlow::Break(()));
        };
        let number = at + 1;
        let line = raw.strip_suffix('\r').unwrap_or(raw);
        if let Some(rest) = line.strip_prefix("diff --git ") {
            self.finish_section()?;
            self.section = Some(FileSection {
                line: number,
                git: Some(rest.to_owned()),
                ..FileSection::default()
            });
        } else if let Some(rest) = line.strip_prefix("--- ") {
            self.parse_names(number, rest)?;
        } else if line.starts_with("@@ ") {
            let hunk = self.parse_hunk(number, line)?;
            let section = self
                .section
                .as_mut()
                .filter(|section| section.names.is_some());
            section
                .ok_or_else(|| {
                    format!("line {number}: a hunk without --- and +++ lines before it")
                })?
                .hunks
                .push(hunk);
        } else if line.starts_with("*** ") || line.starts_with("+++ ") {
            // `*** Begin Patch` is another patch format; it must not pass as a comment.
            return Err(format!(
                "line {number}: {:?} is out of place; write a unified diff",
                shorten(line)
            ));
        } else {
            self.parse_header(number, line)?;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Parses the `---` line and the `+++` line after it.
    fn parse_names(&mut self, number: usize, old: &str) -> Result<(), String> {
        let next = self
            .lines
            .next()
            .map(|(_, line)| line.strip_suffix('\r').unwrap_or(line));
        let Some(new) = next.and_then(|line| line.strip_prefix("+++ ")) else {
            return Err(format!(
                "line {number}: there is no +++ line after the --- line"
            ));
        };
        // A plain diff has no `diff --git` lines: the next `---` line starts the next file.
        if self
            .section
            .as_ref()
            .is_none_or(|section| section.names.is_some())
        {
            self.finish_section()?;
            self.section = Some(FileSection {
                line: number,
                ..FileSection::default()
            });
        }
        let names = (parse_name(old, number)?, parse_name(new, number + 1)?);
        self.section.get_or_insert_default().names = Some(names);
        Ok(())
    }

    fn parse_header(&mut self, number: usize, line: &str) -> Result<(), String> {
        let Some(section) = self.section.as_mut() else {
            // Text above the first file is a comment, unless another parser could take it for a
            // header of that file.
            return if GIT_HEADERS.iter().any(|word| line.starts_with(word)) {
                Err(format!(
                    "line {number}: {:?} comes before diff --git",
                    shorten(line)
                ))
            } else {
                Ok(())
            };
        };
        let modes = [
            "new file mode ",
            "deleted file mode ",
            "new mode ",
            "old mode ",
        ];
        let mode = modes
            .iter()
            .find_map(|word| line.strip_prefix(word))
            .map(|mode| parse_mode(mode, number))
            .transpose()?;
        if let Some(rest) = line.strip_prefix("rename from ") {
            section.rename_from = Some(unquote(rest, number)?);
        } else if let Some(rest) = line.strip_prefix("rename to ") {
            section.rename_to = Some(unquote(rest, number)?);
        } else if line.starts_with("new file mode ") {
            section.is_new = true;
            section.mode = mode;
        } else if line.starts_with("deleted file mode ") {
            section.is_deleted = true;
        } else if line.starts_with("new mode ") {
            section.mode = mode;
        } else if line.starts_with("copy ") {
            return Err(format!(
                "line {number}: copies are not supported; write the new file in full"
            ));
        } else if line.starts_with("Binary files ") || line.starts_with("GIT binary patch") {
            return Err(format!("line {number}: binary files cannot be patched"));
        } else if !is_ignored_header(line) {
            return Err(format!(
                "line {number}: {:?} is out of place; check the line counts of the hunk above",
                shorten(line)
            ));
        }
        Ok(())
    }

    fn parse_hunk(&mut self, number: usize, line: &str) -> Result<PatchHunk, String> {
        let misread = || {
            format!(
                "line {number}: {:?} is not a valid hunk header; write @@ -12,3 +12,4 @@",
                shorten(line)
            )
        };
        let (old_start, counts) = parse_hunk_header(line).ok_or_else(misread)?;
        if counts == HunkCounts::ZERO {
            return Err(format!("line {number}: the hunk has no lines"));
        }
        let mut left = counts;
        let mut hunk = PatchHunk {
            old_start,
            lines: Vec::new(),
        };
        // The counts decide where the hunk ends, so that content that looks like a header stays
        // content.
        while left != HunkCounts::ZERO {
            let Some((at, line)) = self.lines.next() else {
                return Err(miscount_message(number, counts, left));
            };
            let (tag, text) = match line.as_bytes().first() {
                Some(b' ') => (HunkTag::Keep, &line[1..]),
                // Some programs strip the space from an empty context line.
                None => (HunkTag::Keep, line),
                Some(b'\r') if line.len() == 1 => (HunkTag::Keep, line),
                Some(b'-') => (HunkTag::Remove, &line[1..]),
                Some(b'+') => (HunkTag::Add, &line[1..]),
                Some(b'\\') => {
                    mark_without_line_ending(&mut hunk, at + 1)?;
                    continue;
                }
                Some(_) => return Err(miscount_message(number, counts, left)),
            };
            left = left
                .without(tag)
                .ok_or_else(|| miscount_message(number, counts, left))?;
            hunk.lines.push(HunkLine {
                tag,
                text: text.to_owned(),
                ends: true,
            });
        }
        if let Some((at, _)) = self.lines.next_if(|(_, line)| line.starts_with('\\')) {
            mark_without_line_ending(&mut hunk, at + 1)?;
        }
        Ok(hunk)
    }

    fn finish_section(&mut self) -> Result<(), String> {
        if let Some(section) = self.section.take() {
            self.files.push(section.into_patch()?);
        }
        Ok(())
    }
}

impl FileSection {
    fn into_patch(self) -> Result<FilePatch, String> {
        let line = self.line;
        let (old, new) = self.resolve_paths()?;
        let is_new = old.is_none();
        if self.is_new != is_new && (self.is_new || self.git.is_some() && self.names.is_some()) {
            return Err(format!(
                "line {line}: the headers do not agree on whether the file is new"
            ));
        }
        if self.is_deleted && new.is_some()
            || new.is_none() && self.git.is_some() && !self.is_deleted
        {
            return Err(format!(
                "line {line}: the headers do not agree on whether the file is deleted"
            ));
        }
        if self.hunks.is_empty() && self.git.is_none() {
            return Err(format!("line {line}: there is no hunk for this file"));
        }
        Ok(FilePatch {
            old,
            new,
            mode: self.mode,
            hunks: self.hunks,
        })
    }

    /// Returns the old and new path, as the policy layer parses them.
    fn resolve_paths(&self) -> Result<(Option<String>, Option<String>), String> {
        let line = self.line;
        let named = match (&self.names, &self.git) {
            (Some((old, new)), git) => Some(strip_prefixes(old, new, git.is_some())),
            (None, Some(git)) if self.rename_from.is_none() => {
                let path = parse_git_name(git)
                    .ok_or_else(|| format!("line {line}: the two names cannot be separated"))?;
                Some((
                    Some(path.clone()).filter(|_| !self.is_new),
                    Some(path).filter(|_| !self.is_deleted),
                ))
            }
            (None, _) => None,
        };
        match (&self.rename_from, &self.rename_to, named) {
            (None, None, Some((None, None))) => {
                Err(format!("line {line}: both names are /dev/null"))
            }
            (None, None, Some((Some(old), Some(new)))) if old != new => Err(format!(
                "line {line}: {old} and {new} are two files; a rename needs rename from and rename to lines"
            )),
            (None, None, Some(named)) => Ok(named),
            (Some(from), Some(to), named) => {
                let same = (Some(from.clone()), Some(to.clone()));
                if named.is_none_or(|named| named == same) && from != to {
                    Ok(same)
                } else {
                    Err(format!(
                        "line {line}: the headers do not agree on how the file is renamed"
                    ))
                }
            }
            (Some(_), None, _) | (None, Some(_), _) | (None, None, None) => Err(format!(
                "line {line}: the headers of the file are incomplete"
            )),
        }
    }
}

/// Strips git's `a/` and `b/` from the names; returns `None` for `/dev/null`.
fn strip_prefixes(old: &str, new: &str, git: bool) -> (Option<String>, Option<String>) {
    let created = old == "/dev/null";
    let deleted = new == "/dev/null";
    // Only git adds the prefixes; in other diffs these may be real directories.
    let prefixed = git || (created || old.starts_with("a/")) && (deleted || new.starts_with("b/"));
    let bare = |name: &str, prefix: &str| match name.strip_prefix(prefix) {
        Some(rest) if prefixed => rest.to_owned(),
        _ => name.to_owned(),
    };
    (
        (!created).then(|| bare(old, "a/")),
        (!deleted).then(|| bare(new, "b/")),
    )
}

/// Returns the name after `diff --git`, which occurs there twice.
fn parse_git_name(rest: &str) -> Option<String> {
    // A name may contain spaces, so only the middle separates the two for certain.
    let half = rest.len().checked_sub(1)? / 2;
    let old = rest.get(..half)?;
    let new = rest.get(half..)?.strip_prefix(' ')?;
    let (old, new) = if rest.starts_with('"') {
        (unquote(old, 0).ok()?, unquote(new, 0).ok()?)
    } else {
        (old.to_owned(), new.to_owned())
    };
    let name = old.strip_prefix("a/")?;
    (new.strip_prefix("b/")? == name && !name.is_empty()).then(|| name.to_owned())
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
        let Self { old, new } = self;
        Some(match tag {
            HunkTag::Keep => Self {
                old: old.checked_sub(1)?,
                new: new.checked_sub(1)?,
            },
            HunkTag::Remove => Self {
                old: old.checked_sub(1)?,
                new,
            },
            HunkTag::Add => Self {
                old,
                new: new.checked_sub(1)?,
            },
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
            // `parse` also accepts a leading `+`, which another parser of the patch may reject.
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

/// Parses the name in a `---` or `+++` line, without the timestamp that may follow it.
fn parse_name(rest: &str, number: usize) -> Result<String, String> {
    let name = if rest.starts_with('"') {
        unquote(rest, number)?
    } else {
        rest.split('\t')
            .next()
            .unwrap_or(rest)
            .trim_end()
            .to_owned()
    };
    if name.is_empty() {
        Err(format!("line {number}: the file has no name"))
    } else {
        Ok(name)
    }
}

/// Unquotes a name; git quotes names with unusual bytes: `"caf\303\251"`.
fn unquote(text: &str, number: usize) -> Result<String, String> {
    let text = text.trim();
    let Some(inner) = text.strip_prefix('"') else {
        return Ok(text.to_owned());
    };
    let bad = || format!("line {number}: the quoted name is not valid");
    let inner = inner.strip_suffix('"').ok_or_else(bad)?;
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'"' => return Err(bad()),
            b'\\' => match rest.next().ok_or_else(bad)? {
                // A higher first digit would not fit into a byte.
                first @ b'0'..=b'3' => {
                    let mut digit = || {
                        rest.next()
                            .filter(|byte| matches!(byte, b'0'..=b'7'))
                            .ok_or_else(bad)
                    };
                    (first - b'0') * 64 + (digit()? - b'0') * 8 + (digit()? - b'0')
                }
                b'n' => b'\n',
                b't' => b'\t',
                other @ (b'"' | b'\\') => other,
                _ => return Err(bad()),
            },
            other => other,
        });
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

fn parse_mode(mode: &str, number: usize) -> Result<u32, String> {
    // Other modes are links and submodules, which the tools do not create.
    match mode.split_whitespace().next() {
        Some("100644") => Ok(0o644),
        Some("100755") => Ok(0o755),
        _ => Err(format!(
            "line {number}: mode {:?} is not one of 100644 and 100755",
            shorten(mode)
        )),
    }
}

/// Checks whether a header can be ignored.
fn is_ignored_header(line: &str) -> bool {
    let words = [
        "index ",
        "similarity index ",
        "dissimilarity index ",
        "old mode ",
    ];
    line.trim().is_empty() || words.iter().any(|word| line.starts_with(word))
}

fn mark_without_line_ending(hunk: &mut PatchHunk, number: usize) -> Result<(), String> {
    let last = hunk
        .lines
        .last_mut()
        .ok_or_else(|| format!("line {number}: the hunk has no line before this one"))?;
    last.ends = false;
    Ok(())
}

fn miscount_message(number: usize, counts: HunkCounts, left: HunkCounts) -> String {
    let HunkCounts { old, new } = counts;
    format!(
        "line {number}: the hunk header counts {old} old and {new} new lines, but {} old and {} new ones follow; \
         count again: old lines begin with a space or -, new ones with a space or +",
        old - left.old,
        new - left.new
    )
}

fn shorten(line: &str) -> String {
    line.chars().take(60).collect()
}

#[cfg(test)]
mod tests;
