//! Patches: which files a text would change, and how.
//!
//! There is one parser, so that a policy judges exactly the files that the tool changes. A text
//! that could be parsed in two ways could show the policy one file and change another. So counts,
//! names and headers have to agree with each other, and every doubt is an [`InvalidPatch`].
//!
//! ```
//! use toolgate_core::patch::{Patch, PatchedFile};
//!
//! let patch = Patch::parse("--- a/x.txt\n+++ b/x.txt\n@@ -1 +1 @@\n-one\n+two\n")?;
//! let files: Vec<_> = patch.files().collect();
//! assert_eq!(files, [&PatchedFile::Modified("x.txt".to_owned())]);
//! assert!(Patch::parse("--- a/x.txt\n+++ b/y.txt\n@@ -1 +1 @@\n-one\n+two\n").is_err());
//! # Ok::<(), toolgate_core::patch::InvalidPatch>(())
//! ```

mod document;
mod headers;
mod hunks;
mod marked;
mod names;

pub use hunks::{HunkLine, HunkTag, PatchHunk};
pub use names::unquote_name;

/// A patch of one or more files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Patch {
    /// A unified diff, with or without the headers of git.
    Unified(Vec<FilePatch>),
    /// The format that begins with `*** Begin Patch`. Its hunks name no lines, so only the files
    /// are known.
    Marked(Vec<PatchedFile>),
}

/// The changes of a unified diff to one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePatch {
    /// The file.
    pub file: PatchedFile,
    /// The permissions, if the patch sets them.
    pub mode: Option<u32>,
    /// The changed lines; none for a patch that only renames or sets permissions.
    pub hunks: Vec<PatchHunk>,
}

/// A file that a patch names, and what happens to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PatchedFile {
    /// A new file.
    Created(String),
    /// A file that stays where it is.
    Modified(String),
    /// A file that is gone afterwards.
    Deleted(String),
    /// A file that gets another path.
    Renamed {
        /// The old path.
        from: String,
        /// The new path.
        to: String,
    },
}

/// The reason why a text is not a patch, for its author.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidPatch(String);

impl Patch {
    /// The largest text that is parsed, in bytes.
    pub const MAX_BYTES: usize = 32 << 20;
    /// The most lines of a patch.
    pub const MAX_LINES: usize = 1_000_000;
    /// The most files of a patch.
    pub const MAX_FILES: usize = 4096;

    /// Parses a patch.
    pub fn parse(text: &str) -> Result<Self, InvalidPatch> {
        check_limit(text.len(), Self::MAX_BYTES, "bytes")?;
        let lines = text.bytes().filter(|byte| *byte == b'\n').count();
        check_limit(lines, Self::MAX_LINES, "lines")?;
        if marked::is_marked(text) {
            marked::parse_marked(text).map(Self::Marked)
        } else {
            document::parse_unified(text).map(Self::Unified)
        }
    }

    /// Returns the files of the patch, in order. A file can occur more than once.
    pub fn files(&self) -> impl Iterator<Item = &PatchedFile> {
        let (unified, marked): (&[FilePatch], &[PatchedFile]) = match self {
            Self::Unified(files) => (files, &[]),
            Self::Marked(files) => (&[], files),
        };
        unified.iter().map(|patch| &patch.file).chain(marked)
    }

    /// Returns the changes of a unified diff; the other format is an error.
    pub fn into_unified(self) -> Result<Vec<FilePatch>, InvalidPatch> {
        match self {
            Self::Unified(files) => Ok(files),
            Self::Marked(_) => Err(InvalidPatch(
                "the format of *** Begin Patch is not supported; write a unified diff".to_owned(),
            )),
        }
    }
}

impl PatchedFile {
    /// Returns the path before the patch; `None` for a new file.
    pub fn old_path(&self) -> Option<&str> {
        match self {
            Self::Created(_) => None,
            Self::Modified(path) | Self::Deleted(path) | Self::Renamed { from: path, .. } => {
                Some(path)
            }
        }
    }

    /// Returns the path after the patch; `None` for a deleted file.
    pub fn new_path(&self) -> Option<&str> {
        match self {
            Self::Deleted(_) => None,
            Self::Created(path) | Self::Modified(path) | Self::Renamed { to: path, .. } => {
                Some(path)
            }
        }
    }

    /// Returns every path that the patch touches for this file.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        let old = self.old_path().filter(|old| self.new_path() != Some(old));
        old.into_iter().chain(self.new_path())
    }
}

/// Adds a file, unless there are too many.
fn push_file<T>(files: &mut Vec<T>, file: T) -> Result<(), InvalidPatch> {
    files.push(file);
    check_limit(files.len(), Patch::MAX_FILES, "files")
}

fn check_limit(found: usize, most: usize, unit: &str) -> Result<(), InvalidPatch> {
    if found > most {
        let problem = format!("it has {found} {unit} or more; the limit is {most}");
        Err(InvalidPatch(problem))
    } else {
        Ok(())
    }
}

/// Returns an error about a line.
fn invalid_line(number: usize, problem: impl std::fmt::Display) -> InvalidPatch {
    InvalidPatch(format!("line {number}: {problem}"))
}

/// Returns the beginning of a line, for a message.
fn shorten(line: &str) -> String {
    line.chars().take(60).collect()
}

#[cfg(test)]
mod tests;
