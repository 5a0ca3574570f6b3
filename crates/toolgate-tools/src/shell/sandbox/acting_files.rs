//! The files of a workspace that act later: found before a command, and compared after it.
//!
//! Where there are namespaces, the ones that exist are mounted read-only. The kernel has no way to
//! keep a new one from being created in a directory that is writable, and without namespaces no
//! way to exclude a file from a writable directory. What was created or changed is therefore
//! reported with the result.

use std::{
    collections::{BTreeMap, VecDeque},
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use toolgate_core::acting_file;

/// The most directory entries that a search reads. Directories near the root come first.
const MAX_ENTRIES: usize = 10_000;

/// The files of a git directory that act later. The others change with every commit.
const GIT_FILES: &[&str] = &[
    "commondir",
    "config",
    "config.worktree",
    "gitdir",
    "hooks",
    "info/attributes",
];

/// The files that act later below some directories.
#[derive(Debug, Default)]
pub(crate) struct ActingFiles {
    roots: Vec<PathBuf>,
    unlocked: Vec<PathBuf>,
    /// Files and directories with the state in which they were found.
    found: BTreeMap<PathBuf, u64>,
    /// Directories that hold some of them and stay writable.
    holders: Vec<PathBuf>,
}

impl ActingFiles {
    /// Finds the files below `roots`, except those that are `unlocked`: absolute paths.
    pub(crate) fn find_in(roots: &[PathBuf], unlocked: &[PathBuf]) -> Self {
        let mut files = Self {
            roots: roots.to_vec(),
            unlocked: unlocked.to_vec(),
            ..Self::default()
        };
        let mut left = MAX_ENTRIES;
        for root in roots {
            files.search_root(root, &mut left);
        }
        files
    }

    /// Returns the paths that a command may not change.
    pub(crate) fn read_only(&self) -> impl Iterator<Item = &Path> {
        self.found.keys().map(PathBuf::as_path)
    }

    /// Returns the directories that a command may write to but not move.
    pub(crate) fn holders(&self) -> impl Iterator<Item = &Path> {
        self.holders.iter().map(PathBuf::as_path)
    }

    /// Returns the files that were created or changed since these were found, relative to their
    /// root.
    pub(crate) fn list_changes(&self) -> Vec<String> {
        let now = Self::find_in(&self.roots, &self.unlocked);
        let differs = |(path, state): &(&PathBuf, &u64)| self.found.get(*path) != Some(*state);
        let gone = self
            .found
            .keys()
            .filter(|path| !now.found.contains_key(*path));
        let changed = now.found.iter().filter(differs).map(|(path, _)| path);
        changed
            .chain(gone)
            .map(|path| self.shown_path(path))
            .collect()
    }

    /// Returns the files that a text names, relative to their root.
    pub(crate) fn list_named(&self, text: &str) -> Vec<String> {
        let shown = self.found.keys().map(|path| self.shown_path(path));
        shown.filter(|path| text.contains(path.as_str())).collect()
    }

    fn shown_path(&self, path: &Path) -> String {
        let inside = self
            .roots
            .iter()
            .find_map(|root| path.strip_prefix(root).ok());
        inside.unwrap_or(path).display().to_string()
    }

    /// Searches level by level, so that the limit is reached in the depth first.
    fn search_root(&mut self, root: &Path, left: &mut usize) {
        let mut ahead = VecDeque::from([root.to_owned()]);
        while let Some(dir) = ahead.pop_front() {
            for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
                let Some(remaining) = left.checked_sub(1) else {
                    return;
                };
                *left = remaining;
                let path = entry.path();
                // Links are not followed: a mount would cover their target, and not the link.
                let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
                let below = path.strip_prefix(root).unwrap_or(&path);
                match acting_file(&below.to_string_lossy().to_lowercase()) {
                    Some(".git") if is_dir => self.add_git_directory(&path, 0),
                    Some(_) => self.add_file(path),
                    None if is_dir => ahead.push_back(path),
                    None => {}
                }
            }
        }
    }

    /// Adds the files of a git directory, and those of its submodules and worktrees.
    fn add_git_directory(&mut self, dir: &Path, depth: u32) {
        const MAX_DEPTH: u32 = 8;
        if depth > MAX_DEPTH || self.is_unlocked(dir) {
            return;
        }
        if dir.join("HEAD").exists() {
            // A directory of hooks that does not exist could be created.
            let _: std::io::Result<()> = fs::create_dir(dir.join("hooks"));
        }
        self.holders.push(dir.to_owned());
        let files = GIT_FILES.iter().map(|name| dir.join(name));
        for path in files.chain(configured_hooks(dir)) {
            if path.symlink_metadata().is_ok() {
                self.add_file(path);
            }
        }
        for below in ["modules", "worktrees"] {
            for entry in fs::read_dir(dir.join(below))
                .into_iter()
                .flatten()
                .flatten()
            {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    self.add_git_directory(&entry.path(), depth + 1);
                }
            }
        }
        // A submodule whose name has slashes lies deeper.
        let is_plain = !dir.join("HEAD").exists() && depth > 0;
        for entry in fs::read_dir(dir)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|_| is_plain)
        {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.add_git_directory(&entry.path(), depth + 1);
            }
        }
    }

    fn add_file(&mut self, path: PathBuf) {
        if self.is_unlocked(&path) {
            return;
        }
        // What a link leads to acts under its name. A link to everything must not lock everything.
        let holds_root = |target: &Path| self.roots.iter().any(|root| root.starts_with(target));
        let target = path
            .canonicalize()
            .ok()
            .filter(|target| path.is_symlink() && !holds_root(target));
        for path in [Some(path), target].into_iter().flatten() {
            if self.roots.iter().any(|root| path.starts_with(root)) {
                let mut state = DefaultHasher::new();
                hash_state(&path, 0, &mut state);
                self.found.insert(path, state.finish());
            }
        }
    }

    fn is_unlocked(&self, path: &Path) -> bool {
        self.unlocked.iter().any(|open| path.starts_with(open))
    }
}

/// Returns the directory of hooks that the configuration of a repository names.
fn configured_hooks(git_dir: &Path) -> Option<PathBuf> {
    let config = fs::read_to_string(git_dir.join("config")).ok()?;
    let value = config.lines().find_map(|line| {
        let (name, value) = line.split_once('=')?;
        let is_hooks = name.trim().eq_ignore_ascii_case("hookspath");
        is_hooks.then(|| value.trim().trim_matches('"').to_owned())
    })?;
    // A relative one starts at the root of the working tree.
    let path = git_dir.parent()?.join(value);
    path.canonicalize().ok()
}

/// Hashes what changes when a file or something in a directory does. The kernel sets the time of
/// the change, which no command can choose.
fn hash_state(path: &Path, depth: u32, state: &mut DefaultHasher) {
    const MAX_DEPTH: u32 = 4;
    let Ok(found) = path.symlink_metadata() else {
        return;
    };
    (found.ino(), found.size(), found.mode()).hash(state);
    (found.ctime(), found.ctime_nsec()).hash(state);
    if found.is_dir() && depth < MAX_DEPTH {
        let mut entries: Vec<PathBuf> = fs::read_dir(path)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        entries.sort();
        for entry in entries {
            entry.hash(state);
            hash_state(&entry, depth + 1, state);
        }
    }
}
