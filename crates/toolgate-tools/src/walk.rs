//! Walks the files of a workspace in order, without those that git ignores.

use std::{
    ffi::OsString,
    io::Read,
    path::{Path, PathBuf},
};

use cap_fs_ext::{DirExt, FollowSymlinks};
use cap_std::fs::{Dir, FileType};
use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};
use toolgate_core::{ErrorCategory, ToolError};

use crate::{Workspace, blocking::Halt, files::open_plain, place::Place};

/// How a walk goes. Every directory is opened through the handle of the one around it and never through a link, so
/// nothing leads it out of the root, whatever is swapped while it goes.
pub(crate) struct Walk<'a> {
    workspace: &'a Workspace,
    hidden: bool,
    ignored: bool,
    depth: usize,
}

/// Something that a walk has come by.
pub(crate) struct Seen<'a> {
    /// Below the root.
    pub(crate) path: &'a Path,
    pub(crate) kind: FileType,
    /// The directory it is in.
    pub(crate) dir: &'a Dir,
}

/// How much a walk has left out.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeftOut {
    /// Entries that git ignores or that are hidden.
    pub(crate) ignored: u64,
    /// Directories that could not be read.
    pub(crate) unreadable: u64,
}

/// An ignore file above this size is not one.
const MOST_RULES: u64 = 1 << 20;

/// Deeper trees are cut: no project has them, and every step holds a handle.
const DEEPEST: usize = 128;

/// The beginning of the names of files that are being written.
pub(crate) const TEMP_PREFIX: &str = ".toolgate-";

impl<'a> Walk<'a> {
    /// Leaves out what is hidden and what git ignores.
    pub(crate) fn new(workspace: &'a Workspace) -> Self {
        Self {
            workspace,
            hidden: false,
            ignored: false,
            depth: DEEPEST,
        }
    }

    /// Takes in what is hidden and ignored as well.
    pub(crate) fn everything(mut self, yes: bool) -> Self {
        (self.hidden, self.ignored) = (yes, yes);
        self
    }

    /// Goes down so many directories.
    pub(crate) fn depth(mut self, depth: usize) -> Self {
        self.depth = depth.min(DEEPEST);
        self
    }

    /// Shows everything below `start` in the order of paths, until `see` says that it is enough.
    pub(crate) fn run(
        &self,
        start: &Place,
        halt: &Halt,
        see: &mut dyn FnMut(&Seen<'_>) -> bool,
    ) -> Result<LeftOut, ToolError> {
        let root = self.workspace.dir();
        let mut going = Going {
            walk: self,
            halt,
            see,
            rules: Vec::new(),
            left_out: LeftOut::default(),
        };
        let refused = |error| self.workspace.refusal(start, &error);
        // The rules of the directories above the start hold below it.
        let (mut dir, mut at) = (root.try_clone().map_err(refused)?, PathBuf::new());
        let start_dir = match start.is_root() {
            true => PathBuf::new(),
            false => root.canonicalize(start.as_path()).map_err(refused)?,
        };
        for step in start_dir.components() {
            going.rules.push(rules_of(&dir, &at));
            dir = dir
                .open_dir_nofollow(step.as_os_str())
                .map_err(|error| self.no_directory(start, &error))?;
            at.push(step);
        }
        going.directory(&dir, &at, 1)?;
        Ok(going.left_out)
    }

    fn no_directory(&self, start: &Place, error: &std::io::Error) -> ToolError {
        match error.kind() {
            std::io::ErrorKind::NotADirectory => {
                let text = format!("{start} is not a directory; give the directory it is in");
                ToolError::new(text).with_category(ErrorCategory::InvalidInput)
            }
            _ => self.workspace.refusal(start, error),
        }
    }
}

/// A walk on its way.
struct Going<'a, 'b> {
    walk: &'a Walk<'a>,
    halt: &'a Halt,
    see: &'b mut dyn FnMut(&Seen<'_>) -> bool,
    /// The ignore rules of the directories above, innermost last.
    rules: Vec<Rules>,
    left_out: LeftOut,
}

/// The ignore rules of one directory.
struct Rules {
    at: PathBuf,
    /// Strongest first.
    sets: Vec<Gitignore>,
}

impl Going<'_, '_> {
    /// Whether the walk goes on.
    fn directory(&mut self, dir: &Dir, at: &Path, depth: usize) -> Result<bool, ToolError> {
        self.halt.check()?;
        let Ok(entries) = sorted(dir) else {
            self.left_out.unreadable += 1;
            return Ok(true);
        };
        self.rules.push(rules_of(dir, at));
        for (name, kind) in entries {
            let path = at.join(&name);
            if name.as_encoded_bytes().starts_with(TEMP_PREFIX.as_bytes()) {
                continue;
            }
            if self.is_left_out(&path, &name, kind.is_dir()) {
                self.left_out.ignored += 1;
                continue;
            }
            let go_on = (self.see)(&Seen {
                path: &path,
                kind,
                dir,
            }) && self.below(dir, &path, &name, kind, depth)?;
            if !go_on {
                return Ok(false);
            }
        }
        self.rules.pop();
        Ok(true)
    }

    fn below(
        &mut self,
        dir: &Dir,
        path: &Path,
        name: &OsString,
        kind: FileType,
        depth: usize,
    ) -> Result<bool, ToolError> {
        if !kind.is_dir() || depth >= self.walk.depth {
            return Ok(true);
        }
        match dir.open_dir_nofollow(name) {
            Ok(inner) => self.directory(&inner, path, depth + 1),
            Err(_) => {
                self.left_out.unreadable += 1;
                Ok(true)
            }
        }
    }

    fn is_left_out(&self, path: &Path, name: &OsString, is_dir: bool) -> bool {
        // What git keeps for itself is never a result.
        if is_dir && name == ".git" {
            return true;
        }
        if !self.walk.hidden && name.as_encoded_bytes().starts_with(b".") {
            return true;
        }
        !self.walk.ignored && self.is_ignored(path, is_dir)
    }

    fn is_ignored(&self, path: &Path, is_dir: bool) -> bool {
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

/// The entries of a directory in the order of their names.
fn sorted(dir: &Dir) -> std::io::Result<Vec<(OsString, FileType)>> {
    let read = dir.entries()?.map(|entry| {
        let entry = entry?;
        Ok((entry.file_name(), entry.file_type()?))
    });
    // Something that is gone by now is not there.
    let mut entries: Vec<_> = read
        .filter_map(|entry: std::io::Result<_>| entry.ok())
        .collect();
    entries.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(entries)
}

fn rules_of(dir: &Dir, at: &Path) -> Rules {
    let mut files = vec![".ignore", ".gitignore"];
    if at.as_os_str().is_empty() {
        files.push(".git/info/exclude");
    }
    let sets = files
        .into_iter()
        .filter_map(|name| ignore_file(dir, Path::new(name)))
        .collect();
    Rules {
        at: at.to_owned(),
        sets,
    }
}

/// Reads an ignore file. A line that is no pattern is left out, as git does.
fn ignore_file(dir: &Dir, name: &Path) -> Option<Gitignore> {
    let (file, meta) = open_plain(dir, name, FollowSymlinks::Yes).ok()?;
    if !meta.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MOST_RULES).read_to_end(&mut bytes).ok()?;
    let mut builder = GitignoreBuilder::new("");
    for line in String::from_utf8_lossy(&bytes).lines() {
        drop(builder.add_line(None, line));
    }
    builder.build().ok()
}
