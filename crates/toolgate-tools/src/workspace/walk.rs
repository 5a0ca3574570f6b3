//! Walks the files of a workspace in order and skips those that git ignores.

use std::{
    ffi::OsString,
    io::Read,
    path::{Path, PathBuf},
};

use cap_std::fs::FileType;
use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};
use toolgate_core::{AccessVerdict, ErrorCategory, ToolError};
use toolgate_rooted::{RootedDir, RootedPath};

use crate::{
    Workspace,
    workspace::{access::FileUse, blocking::HaltFlag},
};

/// The settings of a walk.
///
/// Every directory is opened through the handle of its parent and never through a link, so the walk
/// cannot leave the root, even if directories are swapped meanwhile. Every entry is judged before it
/// is visited ([`Workspace::for_call`]); below a directory that may not be shown nothing is visited.
pub(crate) struct TreeWalk<'a> {
    workspace: &'a Workspace,
    files: FileUse,
    hidden: bool,
    ignored: bool,
    depth: usize,
}

/// An entry that a walk visits.
pub(crate) struct WalkEntry<'a> {
    /// The path relative to the root.
    pub(crate) path: &'a Path,
    pub(crate) kind: FileType,
    /// The directory of the entry.
    pub(crate) dir: &'a RootedDir,
}

/// The number of entries that a walk has skipped.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SkippedEntries {
    /// Entries that git ignores or that are hidden.
    pub(crate) ignored: u64,
    /// Directories that could not be read.
    pub(crate) unreadable: u64,
    /// Entries that may not be shown.
    pub(crate) denied: u64,
    /// Entries that need an approval to be shown.
    pub(crate) needs_approval: u64,
}

impl SkippedEntries {
    /// Returns notes about the entries that were judged and not shown.
    pub(crate) fn access_notes(&self) -> Vec<String> {
        let note = |count: u64, why: &str| {
            let entries = if count == 1 { "entry" } else { "entries" };
            (count > 0).then(|| format!("[{count} {entries} not shown: {why}]"))
        };
        let notes = [
            note(self.denied, "not allowed by the policy"),
            note(self.needs_approval, "need approval"),
        ];
        notes.into_iter().flatten().collect()
    }
}

/// The most bytes of an ignore file that are read.
const MAX_IGNORE_FILE_BYTES: u64 = 1 << 20;

/// The deepest level of a walk. Every level holds an open handle, and no real project is deeper.
const MAX_DEPTH: usize = 128;

/// The prefix of the names of temporary files.
pub(crate) const TEMP_PREFIX: &str = ".toolgate-";

impl<'a> TreeWalk<'a> {
    /// Creates a walk that skips hidden entries and those that git ignores.
    pub(crate) fn new(workspace: &'a Workspace) -> Self {
        Self {
            workspace,
            files: FileUse::List,
            hidden: false,
            ignored: false,
            depth: MAX_DEPTH,
        }
    }

    /// Includes hidden and ignored entries if `yes`.
    pub(crate) fn include_ignored(mut self, yes: bool) -> Self {
        self.hidden = yes;
        self.ignored = yes;
        self
    }

    /// Judges files as ones whose content is shown, not only their names.
    pub(crate) fn reading_files(mut self) -> Self {
        self.files = FileUse::Read;
        self
    }

    /// Sets the number of levels to descend.
    pub(crate) fn max_depth(mut self, depth: usize) -> Self {
        self.depth = depth.min(MAX_DEPTH);
        self
    }

    /// Visits everything below `start` in the order of paths, until `see` returns false.
    pub(crate) fn run(
        &self,
        start: &RootedPath,
        halt: &HaltFlag,
        see: &mut dyn FnMut(&WalkEntry<'_>) -> bool,
    ) -> Result<SkippedEntries, ToolError> {
        let (dir, at, rules) = self.open_start(start)?;
        let mut going = WalkCursor {
            walk: self,
            halt,
            see,
            rules,
            left_out: SkippedEntries::default(),
        };
        going.visit_directory(&dir, &at, 1)?;
        Ok(going.left_out)
    }

    /// Fails if a walk cannot begin at `start`.
    pub(crate) fn check_start(&self, start: &RootedPath) -> Result<(), ToolError> {
        self.open_start(start).map(drop)
    }

    /// Opens the directory where the walk begins. Returns it with its path and the ignore rules of
    /// the directories above.
    fn open_start(
        &self,
        start: &RootedPath,
    ) -> Result<(RootedDir, PathBuf, Vec<IgnoreRules>), ToolError> {
        let root = self.workspace.dir();
        let mut rules = Vec::new();
        let refused = |error| self.workspace.explain_io_error(start, &error);
        // The ignore rules of the directories above the start apply below it too.
        let mut dir = root.try_clone().map_err(refused)?;
        let mut at = PathBuf::new();
        let start_dir = if start.is_root() {
            PathBuf::new()
        } else {
            root.as_dir()
                .canonicalize(start.as_path())
                .map_err(refused)?
        };
        for step in start_dir.components() {
            rules.push(load_ignore_rules(&dir, &at));
            dir = dir
                .open_dir(step.as_os_str())
                .map_err(|error| self.not_a_directory_error(start, &error))?;
            at.push(step);
        }
        Ok((dir, at, rules))
    }

    fn not_a_directory_error(&self, start: &RootedPath, error: &std::io::Error) -> ToolError {
        match error.kind() {
            std::io::ErrorKind::NotADirectory => {
                let text = format!("{start} is not a directory; give its parent directory");
                ToolError::new(text).with_category(ErrorCategory::InvalidInput)
            }
            _ => self.workspace.explain_io_error(start, error),
        }
    }
}

impl Workspace {
    /// Lists files by their paths relative to the root, in order, for a person to choose from.
    /// Hidden files and those that git ignores are omitted. At most `most_visited` entries are
    /// looked at. No policy is asked: what is done with a file is judged when a call does it.
    ///
    /// # Errors
    ///
    /// Fails if the root cannot be read.
    pub fn list_files(&self, most_visited: usize) -> Result<Vec<String>, ToolError> {
        let mut files = Vec::new();
        let mut visited = 0;
        let root = RootedPath::from_normalized("");
        TreeWalk::new(self).run(&root, &HaltFlag::default(), &mut |entry| {
            visited += 1;
            if entry.kind.is_file() {
                files.extend(entry.path.to_str().map(str::to_owned));
            }
            visited < most_visited
        })?;
        Ok(files)
    }
}

/// The state of a walk in progress.
struct WalkCursor<'a, 'b> {
    walk: &'a TreeWalk<'a>,
    halt: &'a HaltFlag,
    see: &'b mut dyn FnMut(&WalkEntry<'_>) -> bool,
    /// The ignore rules of the directories above, innermost last.
    rules: Vec<IgnoreRules>,
    left_out: SkippedEntries,
}

/// The ignore rules of one directory.
struct IgnoreRules {
    at: PathBuf,
    /// The rules of each file, highest precedence first.
    sets: Vec<Gitignore>,
}

impl WalkCursor<'_, '_> {
    /// Visits one directory; returns true if the walk continues.
    fn visit_directory(
        &mut self,
        dir: &RootedDir,
        at: &Path,
        depth: usize,
    ) -> Result<bool, ToolError> {
        self.halt.check_running()?;
        let Ok(entries) = dir.sorted_entries(usize::MAX) else {
            self.left_out.unreadable += 1;
            return Ok(true);
        };
        self.rules.push(load_ignore_rules(dir, at));
        for (name, kind) in entries {
            let path = at.join(&name);
            // Temporary files of a change in progress are never a result, not even with `ignored`.
            if name.as_encoded_bytes().starts_with(TEMP_PREFIX.as_bytes()) {
                continue;
            }
            if self.is_skipped(&path, &name, kind.is_dir()) {
                self.left_out.ignored += 1;
                continue;
            }
            // After the check for ignored entries: most of a tree may be ignored, and this costs more.
            if !self.may_visit(&path, kind) {
                continue;
            }
            let go_on = (self.see)(&WalkEntry {
                path: &path,
                kind,
                dir,
            }) && self.descend_into(dir, &path, &name, kind, depth)?;
            if !go_on {
                return Ok(false);
            }
        }
        self.rules.pop();
        Ok(true)
    }

    fn descend_into(
        &mut self,
        dir: &RootedDir,
        path: &Path,
        name: &OsString,
        kind: FileType,
        depth: usize,
    ) -> Result<bool, ToolError> {
        if !kind.is_dir() || depth >= self.walk.depth {
            return Ok(true);
        }
        match dir.open_dir(name) {
            Ok(inner) => self.visit_directory(&inner, path, depth + 1),
            Err(_) => {
                self.left_out.unreadable += 1;
                Ok(true)
            }
        }
    }

    /// Judges an entry, and counts one that may not be shown.
    fn may_visit(&mut self, path: &Path, kind: FileType) -> bool {
        let how = if kind.is_dir() {
            FileUse::List
        } else {
            self.walk.files
        };
        match self.walk.workspace.judge_file(path, how) {
            AccessVerdict::Allowed => return true,
            AccessVerdict::NeedsApproval(_) => self.left_out.needs_approval += 1,
            AccessVerdict::Denied(_) => self.left_out.denied += 1,
        }
        false
    }

    fn is_skipped(&self, path: &Path, name: &OsString, is_dir: bool) -> bool {
        // Git's own files are never a result.
        if is_dir && name == ".git" {
            return true;
        }
        if !self.walk.hidden && name.as_encoded_bytes().starts_with(b".") {
            return true;
        }
        !self.walk.ignored && self.is_ignored(path, is_dir)
    }

    fn is_ignored(&self, path: &Path, is_dir: bool) -> bool {
        // Inner directories override outer ones, so the first match decides.
        for rules in self.rules.iter().rev() {
            let Ok(below) = path.strip_prefix(&rules.at) else {
                continue;
            };
            for set in &rules.sets {
                match set.matched(below, is_dir) {
                    Match::Ignore(_) => return true,
                    Match::Whitelist(_) => return false,
                    Match::None => {}
                }
            }
        }
        false
    }
}

fn load_ignore_rules(dir: &RootedDir, at: &Path) -> IgnoreRules {
    let mut files = vec![".ignore", ".gitignore"];
    if at.as_os_str().is_empty() {
        files.push(".git/info/exclude");
    }
    let sets = files
        .into_iter()
        .filter_map(|name| parse_ignore_file(dir, &RootedPath::from_normalized(name)))
        .collect();
    IgnoreRules {
        at: at.to_owned(),
        sets,
    }
}

/// Reads an ignore file. A line that is not a valid pattern is skipped, as git does.
fn parse_ignore_file(dir: &RootedDir, name: &RootedPath) -> Option<Gitignore> {
    let opened = dir.open_file(name).ok()?;
    if !opened.meta.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    opened
        .file
        .take(MAX_IGNORE_FILE_BYTES)
        .read_to_end(&mut bytes)
        .ok()?;
    let mut builder = GitignoreBuilder::new("");
    for line in String::from_utf8_lossy(&bytes).lines() {
        drop(builder.add_line(None, line));
    }
    builder.build().ok()
}
