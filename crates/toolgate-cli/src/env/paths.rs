//! The paths in use: database, keys, trusted configurations and the project's configuration.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use etcetera::{BaseStrategy, choose_base_strategy};
use toolgate::{
    gate::{CONFIG_NAME, ConfigFile, ConfigOwner, StateDir, display_address},
    value::HumanDuration,
};

use crate::{CliError, args::GlobalArgs};

/// The paths in use by a command.
#[derive(Debug, Clone)]
pub struct CliPaths {
    /// The directory that the agent works in: absolute, with symbolic links resolved.
    pub workspace: PathBuf,
    /// True if the command line names the workspace.
    pub is_dir_named: bool,
    /// The directory of the database, the keys and the list of trusted configurations.
    pub home: StateDir,
    /// The configuration that the command line names.
    pub named: Option<PathBuf>,
    /// The configuration of the user, for projects that have none; `None` if there is no such file.
    pub user: Option<PathBuf>,
    /// The path of the user's configuration, whether or not the file exists.
    pub user_config: Option<PathBuf>,
    /// The address of the database.
    pub db: String,
    /// The address of the database if commands need `--db` to find it again.
    pub db_option: Option<String>,
    /// How long requests wait while the database is away or locked; `None` for the default.
    pub db_patience: Option<Duration>,
}

/// The variable that says how long requests wait for the database.
const PATIENCE_VARIABLE: &str = "TOOLGATE_DB_PATIENCE";

impl CliPaths {
    /// Resolves all paths from the options and the environment. Creates nothing.
    pub fn resolve(global: &GlobalArgs) -> Result<Self, CliError> {
        let workspace = resolve_workspace(global.dir.as_deref())?;
        let home = StateDir::find()?;
        let user_config = choose_base_strategy()
            .ok()
            .map(|base| base.config_dir().join("toolgate").join(CONFIG_NAME));
        let user = user_config.clone().filter(|path| path.is_file());
        let named_db = global.db.as_deref().map(absolute_address).transpose()?;
        // A variable stays set in the shell that a suggested command is pasted into.
        let variable = std::env::var("TOOLGATE_DB").ok();
        let db_option = named_db.clone().filter(|db| Some(db) != variable.as_ref());
        let db = named_db.unwrap_or_else(|| home.default_database());
        Ok(Self {
            workspace,
            is_dir_named: global.dir.is_some(),
            home,
            named: global.config.clone(),
            user,
            user_config,
            db,
            db_option,
            db_patience: read_patience()?,
        })
    }

    /// Returns the configuration in effect: the one that is named, that of the project, or that of
    /// the user.
    pub fn find_config(&self) -> Option<(ConfigOwner, PathBuf)> {
        // One file only: configurations are never merged, so a project cannot add to what was
        // named.
        let named = self.named.clone().map(|path| (ConfigOwner::Named, path));
        let project = || {
            let found = ConfigFile::of_project(&self.workspace);
            found.map(|path| (ConfigOwner::Project, path))
        };
        named
            .or_else(project)
            .or_else(|| self.user.clone().map(|path| (ConfigOwner::User, path)))
    }

    /// Reads the configuration in effect, trusted or not.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read.
    pub fn read_config(&self) -> Result<Option<ConfigFile>, CliError> {
        let found = self.find_config();
        let read = found.map(|(owner, path)| ConfigFile::read(owner, path));
        Ok(read
            .transpose()?
            .map(|file| file.in_reach_of(&self.workspace)))
    }

    /// Returns the address of the database without its password.
    pub fn display_db(&self) -> String {
        display_address(&self.db)
    }
}

/// Returns the address of a database that means the same in every directory.
fn absolute_address(address: &str) -> std::io::Result<String> {
    let path = address.strip_prefix("sqlite:");
    let path = path.map(|path| path.strip_prefix("//").unwrap_or(path));
    match path {
        Some(path) => Ok(format!("sqlite:{}", absolute_path(path)?)),
        // Without a scheme it is a path.
        None if !address.contains(':') && !address.is_empty() => absolute_path(address),
        None => Ok(address.to_owned()),
    }
}

/// Returns a path that means the same in every directory.
pub(crate) fn absolute_path(path: &str) -> std::io::Result<String> {
    let path = std::path::absolute(path)?;
    // The file may not exist yet.
    let parent = path.parent().and_then(|parent| parent.canonicalize().ok());
    let whole = parent
        .zip(path.file_name())
        .map(|(dir, name)| dir.join(name));
    Ok(whole.unwrap_or(path).display().to_string())
}

/// Quotes a word for a shell, if it needs quotes.
pub(crate) fn quote_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn read_patience() -> Result<Option<Duration>, CliError> {
    let Ok(text) = std::env::var(PATIENCE_VARIABLE) else {
        return Ok(None);
    };
    let patience: HumanDuration = text.parse().map_err(|error| {
        CliError::usage(format!("{PATIENCE_VARIABLE}: {error}"))
            .with_hint("write it with a unit, such as 500ms or 30s")
    })?;
    Ok(Some(patience.get()))
}

fn resolve_workspace(dir: Option<&Path>) -> Result<PathBuf, CliError> {
    let dir = dir.unwrap_or(Path::new("."));
    let found = dir.canonicalize().map_err(|error| {
        CliError::usage(format!("{}: {error}", dir.display()))
            .with_hint("-C names the directory to work in")
    })?;
    if !found.is_dir() {
        return Err(
            CliError::usage(format!("{} is not a directory", dir.display()))
                .with_hint("-C names the directory to work in"),
        );
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_file_is_made_absolute_and_every_other_one_stays() {
        let here = std::env::current_dir().expect("a directory");
        let here = here.display();
        for (given, expected) in [
            ("a.db", format!("{here}/a.db")),
            ("sqlite:a.db", format!("sqlite:{here}/a.db")),
            ("sqlite:///x/a.db", "sqlite:/x/a.db".to_owned()),
            ("/x/a.db", "/x/a.db".to_owned()),
            ("memory:", "memory:".to_owned()),
            ("postgres://h/d", "postgres://h/d".to_owned()),
        ] {
            assert_eq!(absolute_address(given).expect("absolute"), expected);
        }
    }

    #[test]
    fn a_word_that_a_shell_would_split_is_quoted() {
        assert_eq!(quote_word("/a/b.db"), "/a/b.db");
        assert_eq!(quote_word("it's here"), r"'it'\''s here'");
        assert_eq!(quote_word(""), "''");
    }
}
