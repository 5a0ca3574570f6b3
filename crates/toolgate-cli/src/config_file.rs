//! The file that configures a command: which one it is, whose it is, and what it says.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use serde::Serialize;
use toolgate::{Config, ConfigError};

use crate::{CliError, paths::Paths, settings, trust::Trusted};

/// A configuration is written by people; what is larger is something else.
const MOST_BYTES: u64 = 1024 * 1024;

/// Whose file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Owner {
    /// Named with `--config`: whoever names it trusts it.
    Named,
    /// Found in the project: counts only if somebody trusts it.
    Project,
    /// The user's own, for projects that have none.
    User,
}

/// A configuration file and what it says.
#[derive(Debug, Clone)]
pub(crate) struct ConfigFile {
    pub(crate) owner: Owner,
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

/// Whether a file of a project counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// It does.
    Trusted,
    /// It did, and has been changed since.
    Changed,
    /// Nobody has looked at it.
    Unknown,
}

impl ConfigFile {
    /// The file that counts here, if there is one: the one that is named, that of the project, or that of the user.
    pub(crate) fn find(paths: &Paths) -> Option<(Owner, PathBuf)> {
        let named = paths.named.clone().map(|path| (Owner::Named, path));
        let project = || paths.project().map(|path| (Owner::Project, path));
        named
            .or_else(project)
            .or_else(|| paths.user.clone().map(|path| (Owner::User, path)))
    }

    /// Reads a file, trusted or not.
    pub(crate) fn read(owner: Owner, path: PathBuf) -> Result<Self, CliError> {
        let text = text_of(&path)?;
        Ok(Self { owner, path, text })
    }

    /// What the file says, without the variables of the environment.
    pub(crate) fn config(&self) -> Result<Config, ConfigError> {
        Config::read(
            &self.path.display().to_string(),
            &self.text,
            settings::catalog(),
        )
    }

    /// Whether it counts.
    pub(crate) fn trust(&self, home: &Path) -> Result<Trust, CliError> {
        if self.owner != Owner::Project {
            return Ok(Trust::Trusted);
        }
        let trusted = Trusted::load(home)?;
        Ok(match trusted.covers(&self.path, &self.text) {
            true => Trust::Trusted,
            false if trusted.knows(&self.path) => Trust::Changed,
            false => Trust::Unknown,
        })
    }

    /// Refuses a file that does not count.
    pub(crate) fn require_trust(&self, home: &Path) -> Result<(), CliError> {
        let problem = match self.trust(home)? {
            Trust::Trusted => return Ok(()),
            Trust::Changed => "has changed since it was trusted",
            Trust::Unknown => "is not trusted yet, and it could loosen the gate",
        };
        Err(
            CliError::usage(format!("{} {problem}", self.path.display()))
                .hint("read it, and if you agree: `toolgate config trust`"),
        )
    }
}

/// Reads a text that is no larger than a configuration can be.
fn text_of(path: &Path) -> Result<String, CliError> {
    let shown = path.display();
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(|error| unreadable(path, &error))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(CliError::usage(format!(
            "{shown} is larger than a megabyte, which no configuration is"
        ))
        .hint("--config names the file; `toolgate config init` writes one to begin with"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let line = 1 + error.as_bytes()[..error.utf8_error().valid_up_to()]
            .iter()
            .filter(|b| **b == b'\n')
            .count();
        CliError::usage(format!("{shown}:{line}: the file is not UTF-8"))
            .hint("save it as UTF-8; `iconv -f latin1 -t utf-8` converts an older encoding")
    })
}

fn unreadable(path: &Path, error: &io::Error) -> CliError {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => "`toolgate config init` writes one to begin with",
        io::ErrorKind::IsADirectory => "name the file in it, such as DIR/toolgate.toml",
        io::ErrorKind::PermissionDenied => {
            "make it readable for you, or name another one with --config"
        }
        _ => "name another file with --config",
    };
    CliError::usage(format!("{}: {error}", path.display())).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_of_a_sane_size_is_refused_with_its_place() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("toolgate.toml");
        std::fs::write(&path, b"a\nb\xff").expect("written");
        let said = text_of(&path).expect_err("not UTF-8").to_string();
        assert!(
            said.ends_with("toolgate.toml:2: the file is not UTF-8"),
            "{said}"
        );
        std::fs::write(&path, vec![b'#'; MOST_BYTES as usize + 1]).expect("written");
        assert!(
            text_of(&path)
                .expect_err("too large")
                .to_string()
                .contains("megabyte")
        );
        std::fs::write(&path, vec![b'#'; MOST_BYTES as usize]).expect("written");
        assert!(text_of(&path).is_ok());
    }
}
