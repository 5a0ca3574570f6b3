//! The directory of the user's state: keys, the list of trusted configurations, the default
//! database.

use std::{
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use etcetera::{BaseStrategy, choose_base_strategy};
use toolgate_runtime::KeyFile;

use crate::{Error, Result};

/// The variable that names the directory.
const VARIABLE: &str = "TOOLGATE_HOME";

/// The directory of the user's state, outside every workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateDir(PathBuf);

impl StateDir {
    /// Uses this directory. It is created when something is stored in it.
    ///
    /// # Errors
    ///
    /// Fails if the path is relative and there is no current directory.
    pub fn new(path: impl AsRef<Path>) -> Result<Self> {
        // A relative path would name another directory after the program has changed its own.
        Ok(Self(std::path::absolute(path)?))
    }

    /// Finds the directory of the user: the one that `TOOLGATE_HOME` names, or `toolgate` in the
    /// user's data directory.
    ///
    /// # Errors
    ///
    /// Fails if the variable is not set and the user has no home directory.
    pub fn find() -> Result<Self> {
        let named = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
        let found = named.map(PathBuf::from).or_else(|| {
            let base = choose_base_strategy().ok()?;
            Some(base.data_dir().join("toolgate"))
        });
        let found = found.ok_or_else(|| {
            Error::configuration("there is no home directory to store keys in")
                .with_hint("set TOOLGATE_HOME to a directory")
        })?;
        Self::new(found)
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the address of the database that is used unless another one is named.
    pub fn default_database(&self) -> String {
        format!("sqlite:{}", self.0.join("toolgate.db").display())
    }

    /// Creates the directory, readable by its owner only.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be created.
    pub fn create(&self) -> Result<()> {
        // Keys and conversations are stored in it: no other user may read them.
        let made = std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.0);
        made.map_err(|error| {
            Error::from(error)
                .while_doing(format!("{} cannot be created", self.0.display()))
                .with_hint("set TOOLGATE_HOME to a directory that you can write to")
        })
    }

    /// Loads the keys that sign approvals and checkpoints, if there are any.
    ///
    /// # Errors
    ///
    /// Fails if they cannot be read, or if other users can read them.
    pub fn find_keys(&self) -> Result<Option<KeyFile>> {
        let path = self.0.join("keys");
        if path.symlink_metadata().is_err() {
            return Ok(None);
        }
        Ok(Some(KeyFile::load(path)?))
    }

    /// Loads the keys that sign approvals and checkpoints, and creates them if there are none.
    ///
    /// # Errors
    ///
    /// Fails if they cannot be read or created, or if other users can read them.
    pub fn load_keys(&self) -> Result<KeyFile> {
        self.create()?;
        Ok(KeyFile::load_or_create(self.0.join("keys"))?)
    }
}
