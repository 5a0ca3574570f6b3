//! Recognises a database file that was deleted or replaced while it is in use.

use std::path::{Path, PathBuf};

use super::connect::database_name;
use crate::DatabaseError;

/// The file that a store was opened with.
///
/// SQLite keeps a deleted file open and continues to write to it. Nothing of that is found again,
/// so it must not be reported as written.
#[derive(Debug, Clone)]
pub(super) struct FileIdentity {
    path: PathBuf,
    /// The device and the inode; nothing where the system has none.
    found: Option<(u64, u64)>,
}

impl FileIdentity {
    pub(super) fn of(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            found: identify(path),
        }
    }

    /// Checks that the path still names the same file.
    pub(super) fn check(&self) -> Result<(), DatabaseError> {
        if self.found.is_none() || identify(&self.path) == self.found {
            return Ok(());
        }
        Err(DatabaseError::Gone {
            database: database_name(&self.path),
        })
    }
}

#[cfg(unix)]
fn identify(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;

    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

#[cfg(not(unix))]
fn identify(_: &Path) -> Option<(u64, u64)> {
    None
}
