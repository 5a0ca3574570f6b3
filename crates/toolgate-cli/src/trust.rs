//! Which configurations of projects count: those that somebody has looked at.
//!
//! A project brings its `toolgate.toml` along, and a model that works in it may change it. Both could loosen the gate, so
//! the file counts only as somebody has trusted it, to the byte.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use toolgate::Digest;

use crate::CliError;

/// The trusted configurations: where they are, and the digest of what they say.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Trusted {
    files: BTreeMap<PathBuf, Digest>,
}

impl Trusted {
    /// Reads the list; an empty one if there is none.
    pub(crate) fn load(home: &Path) -> Result<Self, CliError> {
        let path = file(home);
        match fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).map_err(|error| {
                CliError::from(error)
                    .while_doing(format!("{} cannot be read", path.display()))
                    .hint("delete it, and trust your configurations again with `toolgate config trust`")
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(CliError::from(error).while_doing(format!("{} cannot be read", path.display()))),
        }
    }

    /// Whether the file at `path` was trusted with just this text.
    pub(crate) fn covers(&self, path: &Path, text: &str) -> bool {
        self.files.get(path) == Some(&Digest::of_bytes(text.as_bytes()))
    }

    /// Whether it was trusted once, with whatever text.
    pub(crate) fn knows(&self, path: &Path) -> bool {
        self.files.contains_key(path)
    }

    /// Trusts the file at `path` with this text, and keeps that.
    pub(crate) fn trust(&mut self, home: &Path, path: &Path, text: &str) -> Result<(), CliError> {
        self.files
            .insert(path.to_owned(), Digest::of_bytes(text.as_bytes()));
        self.save(home)
    }

    /// Trusts the file at `path` no more, and says whether it was.
    pub(crate) fn forget(&mut self, home: &Path, path: &Path) -> Result<bool, CliError> {
        let known = self.files.remove(path).is_some();
        self.save(home)?;
        Ok(known)
    }

    fn save(&self, home: &Path) -> Result<(), CliError> {
        let mut new = tempfile::NamedTempFile::new_in(home)?;
        new.write_all(&serde_json::to_vec_pretty(self)?)?;
        new.as_file().sync_all()?;
        new.persist(file(home))
            .map_err(|error| CliError::from(error.error))?;
        Ok(())
    }
}

fn file(home: &Path) -> PathBuf {
    home.join("trusted.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_counts_only_as_it_was_when_it_was_trusted() {
        let home = tempfile::tempdir().expect("a directory");
        let (path, mut trusted) = (
            Path::new("/p/toolgate.toml"),
            Trusted::load(home.path()).expect("empty"),
        );
        assert!(!trusted.covers(path, "a = 1"));
        trusted.trust(home.path(), path, "a = 1").expect("kept");
        let mut again = Trusted::load(home.path()).expect("reads");
        assert!(
            again.covers(path, "a = 1")
                && !again.covers(path, "a = 2")
                && !again.covers(Path::new("/q"), "a = 1")
        );
        assert!(again.forget(home.path(), path).expect("kept"));
        assert!(!Trusted::load(home.path()).expect("reads").knows(path));
    }
}
