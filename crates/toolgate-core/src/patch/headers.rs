//! The headers of one file in a unified diff, which have to agree with each other.

use super::{
    FilePatch, InvalidPatch, PatchHunk, PatchedFile, invalid_line,
    names::{parse_git_name, strip_prefixes, unquote},
    shorten,
};

/// The headers of one file, as parsed so far.
#[derive(Default)]
pub(super) struct FileHeaders {
    /// The first line, for messages.
    line: usize,
    /// The text after `diff --git`.
    git: Option<String>,
    /// The names in the `---` and `+++` lines.
    pub(super) names: Option<(String, String)>,
    rename_from: Option<String>,
    rename_to: Option<String>,
    is_new: bool,
    is_deleted: bool,
    mode: Option<u32>,
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

/// The old and the new path; `None` where there is no file.
type PathPair = (Option<String>, Option<String>);

impl FileHeaders {
    /// Creates the headers that begin at `line`, with the text after `diff --git`.
    pub(super) fn new(line: usize, git: Option<&str>) -> Self {
        Self {
            line,
            git: git.map(str::to_owned),
            ..Self::default()
        }
    }

    /// Checks whether a line is an extended header of git.
    pub(super) fn is_git_header(line: &str) -> bool {
        GIT_HEADERS.iter().any(|word| line.starts_with(word))
    }

    /// Parses an extended header of git.
    pub(super) fn parse_line(&mut self, number: usize, line: &str) -> Result<(), InvalidPatch> {
        if let Some(rest) = line.strip_prefix("rename from ") {
            self.rename_from = Some(unquote(rest, number)?);
        } else if let Some(rest) = line.strip_prefix("rename to ") {
            self.rename_to = Some(unquote(rest, number)?);
        } else if let Some(rest) = line.strip_prefix("new file mode ") {
            self.is_new = true;
            self.mode = Some(parse_mode(rest, number)?);
        } else if let Some(rest) = line.strip_prefix("deleted file mode ") {
            self.is_deleted = true;
            parse_mode(rest, number)?;
        } else if let Some(rest) = line.strip_prefix("new mode ") {
            self.mode = Some(parse_mode(rest, number)?);
        } else if let Some(rest) = line.strip_prefix("old mode ") {
            parse_mode(rest, number)?;
        } else if line.starts_with("copy ") {
            let problem = "copies are not supported; write the new file in full";
            return Err(invalid_line(number, problem));
        } else if line.starts_with("Binary files ") || line.starts_with("GIT binary patch") {
            return Err(invalid_line(number, "binary files cannot be patched"));
        } else if !is_ignored_header(line) {
            let line = shorten(line);
            let problem =
                format!("{line:?} is out of place; check the line counts of the hunk above");
            return Err(invalid_line(number, problem));
        }
        Ok(())
    }

    /// Returns the patch of the file, if all headers agree.
    pub(super) fn into_patch(self, hunks: Vec<PatchHunk>) -> Result<FilePatch, InvalidPatch> {
        let invalid = |problem: &str| invalid_line(self.line, problem);
        let (old, new) = self.resolve_paths()?;
        let is_git = self.git.is_some();
        if self.is_new != old.is_none() && (self.is_new || is_git && self.names.is_some()) {
            return Err(invalid(
                "the headers do not agree on whether the file is new",
            ));
        }
        if self.is_deleted && new.is_some() || new.is_none() && is_git && !self.is_deleted {
            return Err(invalid(
                "the headers do not agree on whether the file is deleted",
            ));
        }
        if hunks.is_empty() && !is_git {
            return Err(invalid("there is no hunk for this file"));
        }
        let file = match (old, new) {
            (None, None) => return Err(invalid("both names are /dev/null")),
            (None, Some(path)) => PatchedFile::Created(path),
            (Some(path), None) => PatchedFile::Deleted(path),
            (Some(from), Some(to)) if from != to => PatchedFile::Renamed { from, to },
            (Some(path), Some(_)) => PatchedFile::Modified(path),
        };
        if file.paths().any(str::is_empty) {
            return Err(invalid("the file has no name"));
        }
        let mode = self.mode;
        Ok(FilePatch { file, mode, hunks })
    }

    fn resolve_paths(&self) -> Result<PathPair, InvalidPatch> {
        let invalid = |problem: String| invalid_line(self.line, problem);
        let named = match (&self.names, &self.git) {
            (Some((old, new)), git) => Some(strip_prefixes(old, new, git.is_some())),
            (None, Some(git)) if self.rename_from.is_none() => {
                let path = parse_git_name(git)
                    .ok_or_else(|| invalid("the two names cannot be separated".to_owned()))?;
                Some((
                    Some(path.clone()).filter(|_| !self.is_new),
                    Some(path).filter(|_| !self.is_deleted),
                ))
            }
            (None, _) => None,
        };
        match (&self.rename_from, &self.rename_to, named) {
            (None, None, Some((Some(old), Some(new)))) if old != new => Err(invalid(format!(
                "{old} and {new} are two files; a rename needs rename from and rename to lines"
            ))),
            (None, None, Some(named)) => {
                let git = self.git.as_deref().and_then(parse_git_name);
                if git.is_some() && git != named.0 && git != named.1 {
                    let problem = "the headers do not agree on the name of the file";
                    return Err(invalid(problem.to_owned()));
                }
                Ok(named)
            }
            (Some(from), Some(to), named) => {
                let same = (Some(from.clone()), Some(to.clone()));
                if named.is_none_or(|named| named == same) && from != to {
                    Ok(same)
                } else {
                    let problem = "the headers do not agree on how the file is renamed";
                    Err(invalid(problem.to_owned()))
                }
            }
            (Some(_), None, _) | (None, Some(_), _) | (None, None, None) => {
                Err(invalid("the headers of the file are incomplete".to_owned()))
            }
        }
    }
}

fn parse_mode(mode: &str, number: usize) -> Result<u32, InvalidPatch> {
    // Other modes are links and submodules, which the tools do not create.
    match mode.split_whitespace().next() {
        Some("100644") => Ok(0o644),
        Some("100755") => Ok(0o755),
        _ => {
            let problem = format!("mode {:?} is not one of 100644 and 100755", shorten(mode));
            Err(invalid_line(number, problem))
        }
    }
}

/// Checks whether a header can be ignored.
fn is_ignored_header(line: &str) -> bool {
    let words = ["index ", "similarity index ", "dissimilarity index "];
    line.trim().is_empty() || words.iter().any(|word| line.starts_with(word))
}
