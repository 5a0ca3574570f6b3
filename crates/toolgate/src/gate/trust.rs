//! The list of trusted configurations and instructions of projects.
//!
//! A project brings its own `toolgate.toml` and `AGENTS.md`, and a model that works in it may change
//! them. They could loosen the gate or steer the model, so a file is used only if the user has trusted
//! exactly these bytes, and those of the files that it names.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use toolgate_core::Digest;

use crate::{
    Error, Result,
    gate::{ConfigFile, InstructionsFile, StateDir},
};

/// The configurations and instructions that the user trusts: their paths and the digests of their
/// texts.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustedConfigs {
    files: BTreeMap<PathBuf, Digest>,
    /// The digests of the files that a configuration names, for those that name any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    named: BTreeMap<PathBuf, Digest>,
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

    /// Returns true if a file is trusted with exactly its text and the files that it names.
    ///
    /// # Errors
    ///
    /// Fails if a file that it names cannot be read.
    pub fn covers(&self, file: &ConfigFile) -> Result<bool> {
        let path = file.trusted_path();
        if self.files.get(&path) != Some(&Digest::of_bytes(file.text.as_bytes())) {
            return Ok(false);
        }
        // Only now: what an unknown text names is not even read.
        Ok(self.named.get(&path) == file.named_digest()?.as_ref())
    }

    /// Returns true if instructions are trusted with exactly their text.
    pub fn covers_instructions(&self, file: &InstructionsFile) -> bool {
        self.files.get(&file.trusted_path()) == Some(&Digest::of_bytes(file.text.as_bytes()))
    }

    /// Returns true if the file at `path` was trusted with any text.
    pub fn knows(&self, path: &Path) -> bool {
        self.files.contains_key(path)
    }

    /// Trusts a file with its text and the files that it names, and stores that.
    ///
    /// # Errors
    ///
    /// Fails if a file that it names cannot be read, or if the list cannot be written.
    pub fn add_trust(&mut self, state: &StateDir, file: &ConfigFile) -> Result<()> {
        let path = file.trusted_path();
        match file.named_digest()? {
            Some(digest) => self.named.insert(path.clone(), digest),
            None => self.named.remove(&path),
        };
        let text = Digest::of_bytes(file.text.as_bytes());
        self.files.insert(path, text);
        self.store_list(state)
    }

    /// Trusts instructions with their text, and stores that.
    ///
    /// # Errors
    ///
    /// Fails if the list cannot be written.
    pub fn trust_instructions(&mut self, state: &StateDir, file: &InstructionsFile) -> Result<()> {
        let digest = Digest::of_bytes(file.text.as_bytes());
        self.files.insert(file.trusted_path(), digest);
        self.store_list(state)
    }

    /// Revokes trust in the file at `path`; returns true if it was trusted.
    ///
    /// # Errors
    ///
    /// Fails if the list cannot be written.
    pub fn revoke_trust(&mut self, state: &StateDir, path: &Path) -> Result<bool> {
        self.named.remove(path);
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

/// Returns a path with the links of its directory resolved; files are trusted under this path.
pub(super) fn resolve_directory(path: &Path) -> PathBuf {
    match (canonical_parent(path), path.file_name()) {
        (Some(directory), Some(name)) => directory.join(name),
        _ => path.to_owned(),
    }
}

/// Returns the directory of a file, with links resolved.
pub(super) fn canonical_parent(path: &Path) -> Option<PathBuf> {
    let parent = path.parent()?;
    let current = parent.as_os_str().is_empty();
    let parent = if current { Path::new(".") } else { parent };
    parent.canonicalize().ok()
}

fn trust_list_path(state: &StateDir) -> PathBuf {
    state.path().join("trusted.json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::ConfigOwner;

    /// A project with a configuration, and the state directory of its user.
    struct TrustBench {
        dir: tempfile::TempDir,
        state: StateDir,
    }

    impl TrustBench {
        fn new(config: &str) -> Self {
            let dir = tempfile::tempdir().expect("a directory");
            fs::create_dir_all(dir.path().join("home")).expect("created");
            fs::create_dir_all(dir.path().join("work/skills/a")).expect("created");
            let state = StateDir::new(dir.path().join("home")).expect("absolute");
            let bench = Self { dir, state };
            bench.write("toolgate.toml", config);
            bench
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.dir.path().join("work").join(name), text).expect("written");
        }

        fn file(&self) -> ConfigFile {
            let path = self.dir.path().join("work/toolgate.toml");
            ConfigFile::read(ConfigOwner::Project, path).expect("readable")
        }

        fn trust(&self) {
            let mut trusted = TrustedConfigs::load(&self.state).expect("loads");
            trusted
                .add_trust(&self.state, &self.file())
                .expect("stored");
        }

        fn is_trusted(&self) -> bool {
            let trusted = TrustedConfigs::load(&self.state).expect("loads");
            trusted.covers(&self.file()).expect("readable")
        }
    }

    #[test]
    fn a_file_is_trusted_only_with_the_text_it_was_trusted_with() {
        let bench = TrustBench::new("[run]\nmax_iterations = 1");
        assert!(!bench.is_trusted());
        bench.trust();
        assert!(bench.is_trusted());
        bench.write("toolgate.toml", "[run]\nmax_iterations = 2");
        assert!(!bench.is_trusted());
        bench.trust();
        let path = bench.file().trusted_path();
        let mut list = TrustedConfigs::load(&bench.state).expect("loads");
        assert!(list.knows(&path) && list.revoke_trust(&bench.state, &path).expect("stored"));
        assert!(!bench.is_trusted());
    }

    #[test]
    fn the_files_that_a_configuration_names_are_part_of_its_trust() {
        let config =
            "[run]\nprices = 'prices.toml'\nskills = ['skills']\nmodel = 'script:model.toml'";
        for (name, text) in [
            ("prices.toml", "changed"),
            ("skills/a/SKILL.md", "changed"),
            ("skills/a/new.sh", "added"),
            ("skills/SKILL.md", "added"),
            ("model.toml", "created"),
        ] {
            let bench = TrustBench::new(config);
            bench.write("prices.toml", "as trusted");
            bench.write("skills/a/SKILL.md", "as trusted");
            bench.trust();
            assert!(bench.is_trusted());
            bench.write(name, text);
            assert!(!bench.is_trusted(), "{name}");
            bench.trust();
            assert!(bench.is_trusted(), "{name}");
        }
        let bench = TrustBench::new(config);
        bench.write("skills/a/SKILL.md", "as trusted");
        bench.trust();
        fs::remove_file(bench.dir.path().join("work/skills/a/SKILL.md")).expect("removed");
        assert!(!bench.is_trusted(), "a file is gone");
    }
}
