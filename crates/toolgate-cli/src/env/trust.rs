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
use toolgate::value::Digest;

use crate::CliError;

/// The trusted configurations: their paths and the digests of their texts.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TrustedConfigs {
    files: BTreeMap<PathBuf, Digest>,
}

impl TrustedConfigs {
    /// Loads the list; an empty one if there is none.
    pub(crate) fn load(home: &Path) -> Result<Self, CliError> {
        let path = trust_list_path(home);
        match fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).map_err(|error| {
                CliError::from(error)
                    .while_doing(format!("{} cannot be read", path.display()))
                    .with_hint("delete it, and trust your configurations again with `toolgate config trust`")
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(CliError::from(error).while_doing(format!("{} cannot be read", path.display()))),
        }
    }

    /// Returns true if the file at `path` is trusted with exactly this text.
    pub(crate) fn covers(&self, path: &Path, text: &str) -> bool {
        self.files.get(path) == Some(&Digest::of_bytes(text.as_bytes()))
    }

    /// Returns true if the file at `path` was trusted with any text.
    pub(crate) fn knows(&self, path: &Path) -> bool {
        self.files.contains_key(path)
    }

    /// Trusts the file at `path` with this text, and stores that.
    pub(crate) fn add_trust(
        &mut self,
        home: &Path,
        path: &Path,
        text: &str,
    ) -> Result<(), CliError> {
        self.files
            .insert(path.to_owned(), Digest::of_bytes(text.as_bytes()));
        self.store_list(home)
    }

    /// Revokes trust in the file at `path`; returns true if it was trusted.
    pub(crate) fn revoke_trust(&mut self, home: &Path, path: &Path) -> Result<bool, CliError> {
        let known = self.files.remove(path).is_some();
        self.store_list(home)?;
        Ok(known)
    }

    fn store_list(&self, home: &Path) -> Result<(), CliError> {
        // Written beside the list and renamed: a crash must not leave half a list, which could not
        // be parsed.
        let mut new = tempfile::NamedTempFile::new_in(home)?;
        new.write_all(&serde_json::to_vec_pretty(self)?)?;
        new.as_file().sync_all()?;
        new.persist(trust_list_path(home))
            .map_err(|error| CliError::from(error.error))?;
        Ok(())
    }
}

fn trust_list_path(home: &Path) -> PathBuf {
    home.join("trusted.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_trusted_only_with_the_text_it_was_trusted_with() {
        let home = tempfile::tempdir().expect("a directory");
        let path = Path::new("/p/toolgate.toml");
        let mut trusted = TrustedConfigs::load(home.path()).expect("empty");
        assert!(!trusted.covers(path, "a = 1"));
        trusted.add_trust(home.path(), path, "a = 1").expect("kept");
        let mut again = TrustedConfigs::load(home.path()).expect("reads");
        assert!(
            again.covers(path, "a = 1")
                && !again.covers(path, "a = 2")
                && !again.covers(Path::new("/q"), "a = 1")
        );
        assert!(again.revoke_trust(home.path(), path).expect("kept"));
        assert!(
            !TrustedConfigs::load(home.path())
                .expect("reads")
                .knows(path)
        );
    }
}
