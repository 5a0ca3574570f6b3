//! Reads unified diffs, strictly: what cannot be understood for certain is refused.
//!
//! Rules that judge a patch by the files it names read it on their own. A patch that could be read in two ways could
//! show them one file and change another, so counts, names and headers have to agree with each other here.

use std::{iter::Peekable, ops::ControlFlow};

/// What a patch does to one file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct FilePatch {
    /// The file before; nothing for a new one.
    pub(crate) old: Option<String>,
    /// The file afterwards; nothing for one that is taken away.
    pub(crate) new: Option<String>,
    /// The permissions, if the patch sets them.
    pub(crate) mode: Option<u32>,
    pub(crate) hunks: Vec<Hunk>,
}

/// One place of a file where lines change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hunk {
    /// The first line it is about, counted from 1; for a hunk that only adds, the line before.
    pub(crate) old_start: usize,
    pub(crate) lines: Vec<HunkLine>,
}

/// A line of a hunk, without its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HunkLine {
    pub(crate) tag: Tag,
    pub(crate) text: String,
    /// Whether the line ends; the last one of a file may not.
    pub(crate) ends: bool,
}

/// What becomes of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tag {
    Keep,
    Remove,
    Add,
}

impl Hunk {
    /// The lines that have to be there.
    pub(crate) fn expected(&self) -> impl Iterator<Item = &HunkLine> {
        self.lines.iter().filter(|line| line.tag != Tag::Add)
    }
}

/// Reads a patch of one or more files.
pub(crate) fn parse(patch: &str) -> Result<Vec<FilePatch>, String> {
    let lines = patch
        .split_inclusive('\n')
        .map(|line| line.strip_suffix('\n').unwrap_or(line))
        .enumerate();
    let mut reader = Reader {
        lines: lines.peekable(),
        files: Vec::new(),
        section: None,
    };
    while let ControlFlow::Continue(()) = reader.line()? {}
    reader.finish()?;
    match reader.files.is_empty() {
        true => Err(
            "there is no file in the patch; write a unified diff with ---, +++ and @@ lines"
                .to_owned(),
        ),
        false => Ok(reader.files),
    }
}

/// What the headers of git begin with.
const HEADERS: [&str; 11] = [
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

struct Reader<'a, I: Iterator<Item = (usize, &'a str)>> {
    lines: Peekable<I>,
    files: Vec<FilePatch>,
    section: Option<Section>,
}

/// What the headers of one file have said so far.
#[derive(Default)]
struct Section {
    /// The line it begins at, for telling.
    line: usize,
    git: Option<String>,
    names: Option<(String, String)>,
    rename_from: Option<String>,
    rename_to: Option<String>,
    is_new: bool,
    is_deleted: bool,
    mode: Option<u32>,
    hunks: Vec<Hunk>,
}

impl<'a, I: Iterator<Item = (usize, &'a str)>> Reader<'a, I> {
    fn line(&mut self) -> Result<ControlFlow<()>, String> {
        let Some((at, raw)) = self.lines.next() else {
            return Ok(ControlFlow::Break(()));
        };
        let (number, line) = (at + 1, raw.strip_suffix('\r').unwrap_or(raw));
        if let Some(rest) = line.strip_prefix("diff --git ") {
            self.finish()?;
            self.section = Some(Section {
                line: number,
                git: Some(rest.to_owned()),
                ..Section::default()
            });
        } else if let Some(rest) = line.strip_prefix("--- ") {
            self.names(number, rest)?;
        } else if line.starts_with("@@ ") {
            let hunk = self.hunk(number, line)?;
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
            return Err(format!(
                "line {number}: {:?} is out of place; write a unified diff",
                cut(line)
            ));
        } else {
            self.header(number, line)?;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The `---` line and the `+++` line behind it.
    fn names(&mut self, number: usize, old: &str) -> Result<(), String> {
        let next = self
            .lines
            .next()
            .map(|(_, line)| line.strip_suffix('\r').unwrap_or(line));
        let Some(new) = next.and_then(|line| line.strip_prefix("+++ ")) else {
            return Err(format!(
                "line {number}: there is no +++ line behind the --- line"
            ));
        };
        if self
            .section
            .as_ref()
            .is_none_or(|section| section.names.is_some())
        {
            self.finish()?;
            self.section = Some(Section {
                line: number,
                ..Section::default()
            });
        }
        let names = (name(old, number)?, name(new, number + 1)?);
        self.section.get_or_insert_default().names = Some(names);
        Ok(())
    }

    fn header(&mut self, number: usize, line: &str) -> Result<(), String> {
        let Some(section) = self.section.as_mut() else {
            // What is written above the first file is for people, unless it could be taken for a header of it.
            return match HEADERS.iter().any(|word| line.starts_with(word)) {
                true => Err(format!(
                    "line {number}: {:?} stands before diff --git",
                    cut(line)
                )),
                false => Ok(()),
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
            .map(|mode| read_mode(mode, number))
            .transpose()?;
        if let Some(rest) = line.strip_prefix("rename from ") {
            section.rename_from = Some(unquoted(rest, number)?);
        } else if let Some(rest) = line.strip_prefix("rename to ") {
            section.rename_to = Some(unquoted(rest, number)?);
        } else if line.starts_with("new file mode ") {
            (section.is_new, section.mode) = (true, mode);
        } else if line.starts_with("deleted file mode ") {
            section.is_deleted = true;
        } else if line.starts_with("new mode ") {
            section.mode = mode;
        } else if line.starts_with("copy ") {
            return Err(format!(
                "line {number}: copies are not made by patches; write the new file whole"
            ));
        } else if line.starts_with("Binary files ") || line.starts_with("GIT binary patch") {
            return Err(format!(
                "line {number}: files that are no text cannot be patched"
            ));
        } else if !is_empty_header(line) {
            return Err(format!(
                "line {number}: {:?} does not belong there; count the lines of the hunk above",
                cut(line)
            ));
        }
        Ok(())
    }

    fn hunk(&mut self, number: usize, line: &str) -> Result<Hunk, String> {
        let misread = || {
            format!(
                "line {number}: {:?} is no hunk header; write @@ -12,3 +12,4 @@",
                cut(line)
            )
        };
        let (old_start, mut old, mut new) = hunk_header(line).ok_or_else(misread)?;
        if (old, new) == (0, 0) {
            return Err(format!("line {number}: the hunk has no lines"));
        }
        let counts = (old, new);
        let mut hunk = Hunk {
            old_start,
            lines: Vec::new(),
        };
        while (old, new) != (0, 0) {
            let Some((at, line)) = self.lines.next() else {
                return Err(miscounted(number, counts, (old, new)));
            };
            let (tag, text) = match line.as_bytes().first() {
                Some(b' ') => (Tag::Keep, &line[1..]),
                // Some programs strip the blank from an empty line.
                None => (Tag::Keep, line),
                Some(b'\r') if line.len() == 1 => (Tag::Keep, line),
                Some(b'-') => (Tag::Remove, &line[1..]),
                Some(b'+') => (Tag::Add, &line[1..]),
                Some(b'\\') => {
                    unended(&mut hunk, at + 1)?;
                    continue;
                }
                Some(_) => return Err(miscounted(number, counts, (old, new))),
            };
            let room = match tag {
                Tag::Keep => old.checked_sub(1).zip(new.checked_sub(1)),
                Tag::Remove => old.checked_sub(1).zip(Some(new)),
                Tag::Add => Some(old).zip(new.checked_sub(1)),
            };
            (old, new) = room.ok_or_else(|| miscounted(number, counts, (old, new)))?;
            hunk.lines.push(HunkLine {
                tag,
                text: text.to_owned(),
                ends: true,
            });
        }
        if let Some((at, _)) = self.lines.next_if(|(_, line)| line.starts_with('\\')) {
            unended(&mut hunk, at + 1)?;
        }
        Ok(hunk)
    }

    fn finish(&mut self) -> Result<(), String> {
        if let Some(section) = self.section.take() {
            self.files.push(section.patch()?);
        }
        Ok(())
    }
}

impl Section {
    fn patch(self) -> Result<FilePatch, String> {
        let line = self.line;
        let (old, new) = self.paths()?;
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

    /// The file before and after, as the reader of the rules sees them.
    fn paths(&self) -> Result<(Option<String>, Option<String>), String> {
        let line = self.line;
        let named = match (&self.names, &self.git) {
            (Some((old, new)), git) => Some(bare_names(old, new, git.is_some())),
            (None, Some(git)) if self.rename_from.is_none() => {
                let path = git_name(git)
                    .ok_or_else(|| format!("line {line}: the names cannot be told apart"))?;
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
                "line {line}: {old} and {new} are two files; a rename needs lines with rename from and rename to"
            )),
            (None, None, Some(named)) => Ok(named),
            (Some(from), Some(to), named) => {
                let same = (Some(from.clone()), Some(to.clone()));
                match named.is_none_or(|named| named == same) && from != to {
                    true => Ok(same),
                    false => Err(format!(
                        "line {line}: the headers do not agree on how the file is renamed"
                    )),
                }
            }
            (Some(_), None, _) | (None, Some(_), _) | (None, None, None) => Err(format!(
                "line {line}: the headers of the file are not complete"
            )),
        }
    }
}

/// The names without git's `a/` and `b/`; nothing for `/dev/null`.
fn bare_names(old: &str, new: &str, git: bool) -> (Option<String>, Option<String>) {
    let (created, deleted) = (old == "/dev/null", new == "/dev/null");
    // Only git puts them in front; elsewhere these may be real directories.
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

/// The one name behind `diff --git`, which stands there twice.
fn git_name(rest: &str) -> Option<String> {
    let half = rest.len().checked_sub(1)? / 2;
    let (old, new) = (rest.get(..half)?, rest.get(half..)?.strip_prefix(' ')?);
    let (old, new) = match rest.starts_with('"') {
        true => (unquoted(old, 0).ok()?, unquoted(new, 0).ok()?),
        false => (old.to_owned(), new.to_owned()),
    };
    let name = old.strip_prefix("a/")?;
    (new.strip_prefix("b/")? == name && !name.is_empty()).then(|| name.to_owned())
}

/// `@@ -a,b +c,d @@` is about `b` old and `d` new lines; a missing count is 1.
fn hunk_header(line: &str) -> Option<(usize, usize, usize)> {
    let (ranges, _) = line.strip_prefix("@@ -")?.split_once(" @@")?;
    let (old, new) = ranges.split_once(" +")?;
    let digits = |text: &str| {
        text.parse()
            .ok()
            .filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let range = |range: &str| match range.split_once(',') {
        Some((start, count)) => Some((digits(start)?, digits(count)?)),
        None => Some((digits(range)?, 1)),
    };
    let ((start, old), (_, new)) = (range(old)?, range(new)?);
    Some((start, old, new))
}

/// The name in a `---` or `+++` line, without the time that may follow it.
fn name(rest: &str, number: usize) -> Result<String, String> {
    let name = match rest.starts_with('"') {
        true => unquoted(rest, number)?,
        false => rest
            .split('\t')
            .next()
            .unwrap_or(rest)
            .trim_end()
            .to_owned(),
    };
    match name.is_empty() {
        true => Err(format!("line {number}: the file has no name")),
        false => Ok(name),
    }
}

/// Git quotes names with unusual bytes: `"caf\303\251"`.
fn unquoted(text: &str, number: usize) -> Result<String, String> {
    let text = text.trim();
    let Some(inner) = text.strip_prefix('"') else {
        return Ok(text.to_owned());
    };
    let bad = || format!("line {number}: the quoted name cannot be read");
    let inner = inner.strip_suffix('"').ok_or_else(bad)?;
    let (mut bytes, mut rest) = (Vec::with_capacity(inner.len()), inner.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'"' => return Err(bad()),
            b'\\' => match rest.next().ok_or_else(bad)? {
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

fn read_mode(mode: &str, number: usize) -> Result<u32, String> {
    match mode.split_whitespace().next() {
        Some("100644") => Ok(0o644),
        Some("100755") => Ok(0o755),
        _ => Err(format!(
            "line {number}: mode {:?} is not one of 100644 and 100755",
            cut(mode)
        )),
    }
}

/// Headers that say nothing which has to be done.
fn is_empty_header(line: &str) -> bool {
    let words = [
        "index ",
        "similarity index ",
        "dissimilarity index ",
        "old mode ",
    ];
    line.trim().is_empty() || words.iter().any(|word| line.starts_with(word))
}

fn unended(hunk: &mut Hunk, number: usize) -> Result<(), String> {
    let last = hunk
        .lines
        .last_mut()
        .ok_or_else(|| format!("line {number}: no line stands before this one"))?;
    last.ends = false;
    Ok(())
}

fn miscounted(
    number: usize,
    (old, new): (usize, usize),
    (more_old, more_new): (usize, usize),
) -> String {
    format!(
        "line {number}: the hunk header counts {old} old and {new} new lines, but {} old and {} new ones follow; \
         count again: old lines begin with a blank or -, new ones with a blank or +",
        old - more_old,
        new - more_new
    )
}

fn cut(line: &str) -> String {
    line.chars().take(60).collect()
}

#[cfg(test)]
#[path = "patch_tests.rs"]
mod tests;
