//! The directory that the file tools work in and cannot leave.

pub(crate) mod access;
pub(crate) mod blocking;
pub(crate) mod changes;
pub(crate) mod commit;
pub(crate) mod expected;
pub(crate) mod open;
pub(crate) mod plan;
pub(crate) mod walk;

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, OwnedMutexGuard};
use toolgate_core::{Call, ErrorCategory, StoreHandle, ToolError};
use toolgate_rooted::{InvalidPath, RootedDir, RootedPath};

/// A directory and everything below it. Cloning shares it.
///
/// Every file is opened relative to a handle on the root, so neither `..`, nor an absolute path,
/// nor a link that is swapped in at the last moment leads outside. A link that stays inside is
/// followed. Device files, pipes and sockets are rejected without waiting for them.
///
/// A process that may write below the root can still create a hard link to a file elsewhere on the
/// same disk. Such a link cannot be told from a regular file.
///
/// With a store ([`Workspace::with_undo_store`]) the tools store the old contents before they change
/// anything: a call can then be undone, and after a crash its tool can determine whether it took
/// effect.
///
/// ```
/// use toolgate_core::{MemoryStore, StoreHandle};
/// use toolgate_tools::Workspace;
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path();
/// let workspace = Workspace::open(path)?.with_undo_store(StoreHandle::new(MemoryStore::new()));
/// assert!(workspace.root().is_absolute());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Workspace(Arc<WorkspaceInner>);

struct WorkspaceInner {
    dir: Arc<RootedDir>,
    /// The canonical path, without links.
    root: PathBuf,
    /// The path as the caller gave it; the model may have seen this form.
    named: PathBuf,
    limits: FileLimits,
    store: Option<StoreHandle>,
    /// The call that uses this clone, if what it accesses is judged.
    judged: Option<Call>,
    /// Held from reading the files until they are changed, so that two tools never interleave.
    writing: Arc<Mutex<()>>,
}

/// The size limits of the file tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FileLimits {
    /// The largest file that is read or changed, in bytes.
    pub read_bytes: u64,
    /// The largest file that is written, in bytes.
    pub write_bytes: u64,
    /// The largest image that is shown to the model, in bytes.
    pub image_bytes: u64,
    /// The largest file that is searched, in bytes.
    pub search_bytes: u64,
}

impl Default for FileLimits {
    fn default() -> Self {
        const MIB: u64 = 1 << 20;
        Self {
            read_bytes: 16 * MIB,
            write_bytes: 16 * MIB,
            image_bytes: 4 * MIB,
            search_bytes: 64 * MIB,
        }
    }
}

/// The reason a directory cannot be used as a workspace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkspaceError {
    /// The directory does not exist or may not be read.
    #[error("the workspace {} cannot be opened", path.display())]
    Open {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The path does not name a directory.
    #[error("the workspace {} is not a directory", path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
}

impl Workspace {
    /// Opens a directory. All later access uses its handle, even if the directory is renamed.
    ///
    /// # Errors
    ///
    /// Fails if the directory does not exist, may not be read, or is not a directory.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, WorkspaceError> {
        let path = path.as_ref();
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::NotADirectory => WorkspaceError::NotADirectory {
                path: path.to_owned(),
            },
            _ => WorkspaceError::Open {
                path: path.to_owned(),
                source,
            },
        };
        let named = std::path::absolute(path).map_err(failed)?;
        let root = std::fs::canonicalize(path).map_err(failed)?;
        let dir = RootedDir::open(&root).map_err(failed)?;
        let limits = FileLimits::default();
        let store = None;
        let writing = Arc::default();
        Ok(Self(Arc::new(WorkspaceInner {
            dir: Arc::new(dir),
            root,
            named,
            limits,
            store,
            judged: None,
            writing,
        })))
    }

    /// Stores the old contents of changed files in `store`, for undo and for recovery after a crash.
    pub fn with_undo_store(self, store: StoreHandle) -> Self {
        self.with_changed_inner(|inner| inner.store = Some(store))
    }

    /// Sets the size limits of the file tools.
    pub fn with_limits(self, limits: FileLimits) -> Self {
        self.with_changed_inner(|inner| inner.limits = limits)
    }

    /// Returns the directory, without links in its path.
    pub fn root(&self) -> &Path {
        &self.0.root
    }

    /// Returns the size limits of the file tools.
    pub fn limits(&self) -> FileLimits {
        self.0.limits
    }

    /// Returns the store of the old contents, if there is one.
    pub fn store(&self) -> Option<&StoreHandle> {
        self.0.store.as_ref()
    }

    pub(crate) fn dir(&self) -> &RootedDir {
        &self.0.dir
    }

    /// Parses a path as the model wrote it, without looking at the disk.
    pub(crate) fn parse_path(&self, text: &str) -> Result<RootedPath, ToolError> {
        let parsed = RootedPath::parse(text, &[&self.0.root, &self.0.named]);
        parsed.map_err(|error| match error {
            InvalidPath::Outside => {
                let text = format!(
                    "{text} is outside the workspace; give a path relative to its root, such as src/main.rs"
                );
                ToolError::new(text).with_category(ErrorCategory::Permission)
            }
            InvalidPath::Nul | InvalidPath::TooLong { .. } => {
                ToolError::new(error.to_string()).with_category(ErrorCategory::InvalidInput)
            }
        })
    }

    /// Waits until no other call is changing files, and keeps others out until the guard is dropped.
    pub(crate) async fn lock_writes(&self) -> OwnedMutexGuard<()> {
        self.0.writing.clone().lock_owned().await
    }

    fn with_changed_inner(self, change: impl FnOnce(&mut WorkspaceInner)) -> Self {
        let WorkspaceInner {
            dir,
            root,
            named,
            limits,
            store,
            judged,
            writing,
        } = &*self.0;
        // Other clones keep their settings. They share `writing`, so they still exclude each other.
        let mut inner = WorkspaceInner {
            dir: dir.clone(),
            root: root.clone(),
            named: named.clone(),
            limits: *limits,
            store: store.clone(),
            judged: judged.clone(),
            writing: writing.clone(),
        };
        change(&mut inner);
        Self(Arc::new(inner))
    }
}

impl fmt::Debug for Workspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workspace")
            .field("root", &self.0.root)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_directory_can_be_a_workspace() {
        let dir = tempfile::tempdir().expect("a directory");
        let missing = Workspace::open(dir.path().join("missing"));
        assert!(matches!(missing, Err(WorkspaceError::Open { .. })));
        let file = dir.path().join("file");
        std::fs::write(&file, "x").expect("written");
        assert!(matches!(
            Workspace::open(&file),
            Err(WorkspaceError::NotADirectory { .. })
        ));
    }

    #[cfg(unix)]
    #[test]
    fn both_names_of_a_root_behind_a_link_are_understood() {
        let dir = tempfile::tempdir().expect("a directory");
        let real = dir.path().join("real");
        let link = dir.path().join("link");
        std::fs::create_dir(&real).expect("created");
        std::os::unix::fs::symlink(&real, &link).expect("linked");
        let workspace = Workspace::open(&link).expect("a workspace");
        for root in [workspace.root().to_owned(), link] {
            let place = workspace
                .parse_path(root.join("a.txt").to_str().expect("text"))
                .expect("inside");
            assert_eq!(place.to_string(), "a.txt");
        }
    }
}
