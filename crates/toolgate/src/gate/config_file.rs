//! The configuration file of a command: its path, its owner, its text and its trust.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use serde::Serialize;
use toolgate_core::Digest;
use toolgate_layers::{Config, ConfigError};

use crate::{
    Error, Result,
    gate::{
        StandingRulesSection, StateDir, TrustedConfigs,
        isolation::resolve_links,
        named_files::{digest_named_files, list_named_files},
        sections, trust,
    },
};

/// The file name of a configuration.
pub const CONFIG_NAME: &str = "toolgate.toml";

/// The size limit of a configuration: people write it by hand, so a larger file is something else.
const MAX_CONFIG_BYTES: u64 = 1024 * 1024;

/// The origin of a configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfigOwner {
    /// Named by the program or on the command line: naming it is trusting it, unless the agent can
    /// change it.
    Named,
    /// Found in the project: used only if the user trusts it.
    Project,
    /// The user's own, for projects that have none.
    User,
}

/// A configuration file and its text.
///
/// A file that comes with a project could loosen the gate, so it is used only if the user trusts
/// exactly these bytes, and those of the files that it names. The same holds for any file that the
/// agent can change; see [`ConfigFile::in_reach_of`].
#[derive(Debug, Clone)]
pub struct ConfigFile {
    /// The origin of the file.
    pub owner: ConfigOwner,
    /// The path of the file.
    pub path: PathBuf,
    /// The text of the file.
    pub text: String,
    /// True if the agent can change the file, or one that it names.
    in_reach: bool,
}

/// The trust in the configuration of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigTrust {
    /// The user trusts this text.
    Trusted,
    /// The user trusted it, and it has changed since.
    Changed,
    /// The user has never trusted it.
    Unknown,
}

impl ConfigFile {
    /// Finds the configuration of a project: the nearest one, from `workspace` upward.
    pub fn of_project(workspace: &Path) -> Option<PathBuf> {
        workspace
            .ancestors()
            .map(|dir| dir.join(CONFIG_NAME))
            .find(|path| path.is_file())
    }

    /// Reads a file, trusted or not.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, is larger than a megabyte or is not UTF-8.
    pub fn read(owner: ConfigOwner, path: PathBuf) -> Result<Self> {
        let text = read_config_text(&path)?;
        Ok(Self {
            owner,
            path,
            text,
            in_reach: false,
        })
    }

    /// Requires the user's trust, regardless of the owner, if an agent that works in `workspace` can
    /// change the file or one that it names.
    pub fn in_reach_of(mut self, workspace: &Path) -> Self {
        let inside = |path: &Path| {
            let real = resolve_links(path);
            real.is_ok_and(|path| path.starts_with(workspace))
        };
        // A link in the workspace counts, wherever it leads: the agent can change the link.
        self.in_reach |= inside(&self.path) || self.trusted_path().starts_with(workspace);
        let named = self.named_files().unwrap_or_default();
        self.in_reach |= named
            .iter()
            .any(|path| inside(path) || path.starts_with(workspace));
        self
    }

    /// Returns the files and directories that the file names: prices, skills, scripts of models.
    ///
    /// # Errors
    ///
    /// Fails if the file is invalid.
    pub fn named_files(&self) -> Result<Vec<PathBuf>> {
        list_named_files(&self.parse_config()?)
    }

    /// Returns the digest of the files that the file names; `None` if it names none.
    pub(super) fn named_digest(&self) -> Result<Option<Digest>> {
        digest_named_files(&self.named_files()?)
    }

    /// Returns the path under which the file is trusted: that of its directory is resolved.
    pub fn trusted_path(&self) -> PathBuf {
        trust::resolve_directory(&self.path)
    }

    /// Returns the directory of the file, with links resolved.
    fn directory(&self) -> Option<PathBuf> {
        trust::canonical_parent(&self.path)
    }

    /// Parses the file, without environment variables.
    ///
    /// # Errors
    ///
    /// Returns the first problem, with its line.
    pub fn parse_config(&self) -> Result<Config, ConfigError> {
        let name = self.path.display().to_string();
        let config = Config::parse_with_catalog(&name, &self.text, sections::gate_catalog())?;
        Ok(match self.directory() {
            Some(directory) => config.in_directory(&directory),
            None => config,
        })
    }

    /// Parses the file, and rejects settings that only the user's own configuration may have: with
    /// keys of its own, a project could allow its calls.
    ///
    /// # Errors
    ///
    /// Returns the first problem.
    pub fn parse_own_config(&self) -> Result<Config> {
        let config = self.parse_config()?;
        let keys = config.section::<StandingRulesSection>()?;
        if self.owner != ConfigOwner::User && keys != StandingRulesSection::default() {
            return Err(Error::configuration(format!(
                "{}: only the user's own configuration may name the keys of standing rules",
                self.path.display()
            ))
            .with_hint("move [standing_rules] to the file that `toolgate config path` names"));
        }
        Ok(config)
    }

    /// Checks whether the user trusts the file with its current text.
    ///
    /// # Errors
    ///
    /// Fails if the list of trusted configurations cannot be read.
    pub fn check_trust(&self, state: &StateDir) -> Result<ConfigTrust> {
        // The user named or wrote the other files; one of the project may come with a cloned
        // repository.
        if self.owner != ConfigOwner::Project && !self.in_reach {
            return Ok(ConfigTrust::Trusted);
        }
        let trusted = TrustedConfigs::load(state)?;
        if trusted.covers(self)? {
            Ok(ConfigTrust::Trusted)
        } else if trusted.knows(&self.trusted_path()) {
            Ok(ConfigTrust::Changed)
        } else {
            Ok(ConfigTrust::Unknown)
        }
    }

    /// Rejects a file that the user does not trust.
    ///
    /// # Errors
    ///
    /// Fails if the file is not trusted, or has changed since.
    pub fn require_trust(&self, state: &StateDir) -> Result<()> {
        let problem = match self.check_trust(state)? {
            ConfigTrust::Trusted => return Ok(()),
            ConfigTrust::Changed => "or a file that it names has changed since it was trusted",
            ConfigTrust::Unknown => "is not trusted yet, and it could loosen the gate",
        };
        let hint = match self.owner {
            ConfigOwner::Project => "read it, and if you agree: `toolgate config trust`".to_owned(),
            // Found by its name only.
            ConfigOwner::Named | ConfigOwner::User => format!(
                "it, or a file that it names, is in the agent's reach; read it, and if you agree: `toolgate config trust {}`",
                self.path.display()
            ),
        };
        let problem = format!("{} {problem}", self.path.display());
        Err(Error::configuration(problem).with_hint(hint))
    }
}

/// Reads a UTF-8 text up to the size limit of a configuration.
fn read_config_text(path: &Path) -> Result<String> {
    let shown = path.display();
    let mut bytes = Vec::new();
    // One byte more than the limit tells a larger file without loading it.
    let read =
        File::open(path).and_then(|file| file.take(MAX_CONFIG_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(|error| read_error(path, &error))?;
    if bytes.len() as u64 > MAX_CONFIG_BYTES {
        return Err(Error::configuration(format!(
            "{shown} is larger than a megabyte, the limit for a configuration"
        ))
        .with_hint("--config names the file; `toolgate init` writes one to start from"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let line = 1 + error.as_bytes()[..error.utf8_error().valid_up_to()]
            .iter()
            .filter(|b| **b == b'\n')
            .count();
        Error::configuration(format!("{shown}:{line}: the file is not UTF-8"))
            .with_hint("save it as UTF-8; `iconv -f latin1 -t utf-8` converts an older encoding")
    })
}

fn read_error(path: &Path, error: &io::Error) -> Error {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => "`toolgate init` writes one to start from",
        io::ErrorKind::IsADirectory => "name the file in it, such as DIR/toolgate.toml",
        io::ErrorKind::PermissionDenied => {
            "make it readable for you, or name another one with --config"
        }
        _ => "name another file with --config",
    };
    Error::configuration(format!("{}: {error}", path.display())).with_hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_text_or_too_large_is_rejected_with_its_line() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("toolgate.toml");
        std::fs::write(&path, b"a\nb\xff").expect("written");
        let said = read_config_text(&path).expect_err("not UTF-8").to_string();
        assert!(
            said.ends_with("toolgate.toml:2: the file is not UTF-8"),
            "{said}"
        );
        std::fs::write(&path, vec![b'#'; MAX_CONFIG_BYTES as usize + 1]).expect("written");
        assert!(
            read_config_text(&path)
                .expect_err("too large")
                .to_string()
                .contains("megabyte")
        );
        std::fs::write(&path, vec![b'#'; MAX_CONFIG_BYTES as usize]).expect("written");
        assert!(read_config_text(&path).is_ok());
    }
}
