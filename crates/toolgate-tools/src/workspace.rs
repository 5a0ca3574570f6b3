//! The directory that the file tools work in, and cannot leave.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use cap_std::{ambient_authority, fs::Dir};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, OwnedMutexGuard};
use toolgate_core::{StoreHandle, ToolError};

use crate::place::Place;

/// A directory and everything below it. Cloning shares it.
///
/// Every file is opened relative to a handle on the root, so neither `..`, nor an absolute path, nor a link that is
/// swapped in at the last moment leads outside. A link that stays inside is followed. Device files, pipes and sockets
/// are refused without waiting for them. Whoever may write below the root can still make a hard link to a file
/// elsewhere on the same disk: that is another name of it, which nobody can tell from a file of its own.
///
/// With a store ([`Workspace::keeping`]) the tools keep what was there before they change anything: a call can then be
/// taken back, and after a crash its tool knows whether it took effect.
///
/// ```
/// use toolgate_core::{MemoryStore, StoreHandle};
/// use toolgate_tools::Workspace;
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path();
/// let workspace = Workspace::open(path)?.keeping(StoreHandle::new(MemoryStore::new()));
/// assert!(workspace.root().is_absolute());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Workspace(Arc<Inner>);

struct Inner {
    dir: Arc<Dir>,
    /// Without links.
    root: PathBuf,
    /// As it was named, which is how a model may have learnt it.
    named: PathBuf,
    limits: FileLimits,
    store: Option<StoreHandle>,
    /// Held from looking at files until they are changed, so that two tools never mix.
    writing: Arc<Mutex<()>>,
}

/// How large a file the tools take on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FileLimits {
    /// The largest file that is read or changed, in bytes.
    pub read_bytes: u64,
    /// The largest file that is written, in bytes.
    pub write_bytes: u64,
    /// The largest picture that is shown to the model, in bytes.
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

/// Why a workspace cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkspaceError {
    /// There is no such directory, or it may not be read.
    #[error("the workspace {} cannot be opened", path.display())]
    Open {
        /// Which directory.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The path names something else.
    #[error("the workspace {} is not a directory", path.display())]
    NotADirectory {
        /// Which path.
        path: PathBuf,
    },
}

impl Workspace {
    /// Opens a directory. From then on its handle counts, whatever becomes of its name.
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
        let dir = Dir::open_ambient_dir(&root, ambient_authority()).map_err(failed)?;
        let (limits, store, writing) = (FileLimits::default(), None, Arc::default());
        Ok(Self(Arc::new(Inner {
            dir: Arc::new(dir),
            root,
            named,
            limits,
            store,
            writing,
        })))
    }

    /// Keeps what was there before a change in `store`, for taking it back and for finding out what a crash left.
    pub fn keeping(self, store: StoreHandle) -> Self {
        self.changed(|inner| inner.store = Some(store))
    }

    /// Takes on files of another size.
    pub fn with_limits(self, limits: FileLimits) -> Self {
        self.changed(|inner| inner.limits = limits)
    }

    /// The directory, without links in its path.
    pub fn root(&self) -> &Path {
        &self.0.root
    }

    /// How large a file the tools take on.
    pub fn limits(&self) -> FileLimits {
        self.0.limits
    }

    /// Where changes are kept, if they are.
    pub fn store(&self) -> Option<&StoreHandle> {
        self.0.store.as_ref()
    }

    pub(crate) fn dir(&self) -> &Arc<Dir> {
        &self.0.dir
    }

    /// Where a path of a model leads, by its spelling.
    pub(crate) fn place(&self, text: &str) -> Result<Place, ToolError> {
        Place::read(text, &[&self.0.root, &self.0.named])
    }

    /// Waits until nobody else is changing files.
    pub(crate) async fn writing(&self) -> OwnedMutexGuard<()> {
        self.0.writing.clone().lock_owned().await
    }

    fn changed(self, change: impl FnOnce(&mut Inner)) -> Self {
        let Inner {
            dir,
            root,
            named,
            limits,
            store,
            writing,
        } = &*self.0;
        let mut inner = Inner {
            dir: dir.clone(),
            root: root.clone(),
            named: named.clone(),
            limits: *limits,
            store: store.clone(),
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
    fn what_is_no_directory_is_no_workspace() {
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
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        std::fs::create_dir(&real).expect("made");
        std::os::unix::fs::symlink(&real, &link).expect("linked");
        let workspace = Workspace::open(&link).expect("a workspace");
        for root in [workspace.root().to_owned(), link] {
            let place = workspace
                .place(root.join("a.txt").to_str().expect("text"))
                .expect("inside");
            assert_eq!(place.to_string(), "a.txt");
        }
    }
}
