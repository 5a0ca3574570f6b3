//! The list of trusted project configurations.
//!
//! A project brings its own `toolgate.toml`, and a model that works in it may change it. Both could
//! loosen the gate, so the file is used only if the user has trusted exactly these bytes.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use toolgate_core::Digest;

use crate::{Error, Result, gate::StateDir};

/// The configurations that the user trusts: their paths and the digests of their texts.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustedConfigs {
    files: BTreeMap<PathBuf, Digest>,
}

impl TrustedConfigs {
    /// Loads the list; an empty one if there is none.
    ///
    /// # Errors
    ///
    /// Fails if the list cannot be read.
    pub fn load(state: &StateDir) -> Result<Self> {
        let path = trust_list_path(state);
        match fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).map_err(|error| {
                Error::from_source(error)
                    .while_doing(format!("{} cannot be read", path.display()))
                    .with_hint("delete it, and trust your configurations again with `toolgate config trust`")
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(Error::from_source(error).while_doing(format!("{} cannot be read", path.display()))),
        }
    }

    /// Returns true if the file at `path` is trusted with exactly this text.
    pub fn covers(&self, path: &Path, text: &str) -> bool {
        self.files.get(path) == Some(&Digest::of_bytes(text.as_bytes()))
    }

    /// Returns true if the file at `path` was trusted with any text.
    pub fn knows(&self, path: &Path) -> bool {
        self.files.contains_key(path)
    }

    /// Trusts the file at `path` with this text, and stores that.
    ///
    /// # Errors
    ///
    /// Fails if the list cannot be written.
    pub fn add_trust(&mut self, state: &StateDir, path: &Path, text: &str) -> Result<()> {
        self.files
            .insert(path.to_owned(), Digest::of_bytes(text.as_bytes()));
        self.store_list(state)
    }

    /// Revokes trust in the file at `path`; returns true if it was trusted.
    ///
    /// # Errors
    ///
    /// Fails if the list cannot be written.
    pub fn revoke_trust(&mut self, state: &StateDir, path: &Path) -> Result<bool> {
        let known = self.files.remove(path).is_some();
        self.store_list(state)?;
        Ok(known)
    }

    fn store_list(&self, state: &StateDir) -> Result<()> {
        // Written beside the list and renamed: a crash must not leave half a list, which could not
        // be parsed.
        let mut new = tempfile::NamedTempFile::new_in(state.path())?;
        new.write_all(&serde_json::to_vec_pretty(self).map_err(Error::from_source)?)?;
        new.as_file().sync_all()?;
        new.persist(trust_list_path(state))
            .map_err(|error| Error::from(error.error))?;
        Ok(())
    }
}

fn trust_list_path(state: &StateDir) -> PathBuf {
    state.path().join("trusted.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_trusted_only_with_the_text_it_was_trusted_with() {
        let dir = tempfile::tempdir().expect("a directory");
        let home = StateDir::new(dir.path()).expect("absolute");
        let path = Path::new("/p/toolgate.toml");
        let mut trusted = TrustedConfigs::load(&home).expect("empty");
        assert!(!trusted.covers(path, "a = 1"));
        trusted.add_trust(&home, path, "a = 1").expect("kept");
        let mut again = TrustedConfigs::load(&home).expect("reads");
        assert!(
            again.covers(path, "a = 1")
                && !again.covers(path, "a = 2")
                && !again.covers(Path::new("/q"), "a = 1")
        );
        assert!(again.revoke_trust(&home, path).expect("kept"));
        assert!(!TrustedConfigs::load(&home).expect("reads").knows(path));
    }
}
