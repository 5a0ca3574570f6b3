//! The paths in use: database, keys, trusted configurations and the project's configuration.

use std::path::{Path, PathBuf};

use etcetera::{BaseStrategy, choose_base_strategy};

use crate::{CliError, args::GlobalArgs};

/// The file name of a configuration.
pub const CONFIG_NAME: &str = "toolgate.toml";

/// The paths in use by a command.
#[derive(Debug, Clone)]
pub struct CliPaths {
    /// The directory that the agent works in: absolute, with symbolic links resolved.
    pub workspace: PathBuf,
    /// The directory of the database, the keys and the list of trusted configurations.
    pub home: PathBuf,
    /// The configuration that the command line names.
    pub named: Option<PathBuf>,
    /// The configuration of the user, for projects that have none; `None` if there is no such file.
    pub user: Option<PathBuf>,
    /// The path of the user's configuration, whether or not the file exists.
    pub user_config: Option<PathBuf>,
    /// The address of the database.
    pub db: String,
}

impl CliPaths {
    /// Resolves all paths from the options and the environment. Creates nothing.
    pub fn resolve(global: &GlobalArgs) -> Result<Self, CliError> {
        let workspace = resolve_workspace(global.dir.as_deref())?;
        let base = choose_base_strategy().ok();
        let from_env = |name| {
            std::env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let home = from_env("TOOLGATE_HOME")
            .or_else(|| base.as_ref().map(|base| base.data_dir().join("toolgate")));
        let home = home.ok_or_else(|| {
            CliError::new("there is no home directory to store data in")
                .with_hint("set TOOLGATE_HOME to a directory")
        })?;
        // A relative path would name another directory after the next `cd`.
        let home = std::path::absolute(home)?;
        let user_config = base.map(|base| base.config_dir().join("toolgate").join(CONFIG_NAME));
        let user = user_config.clone().filter(|path| path.is_file());
        let db = global
            .db
            .clone()
            .unwrap_or_else(|| format!("sqlite:{}", home.join("toolgate.db").display()));
        Ok(Self {
            workspace,
            home,
            named: global.config.clone(),
            user,
            user_config,
            db,
        })
    }

    /// Returns the configuration of the project: the nearest one, from the workspace upward.
    pub fn project_config(&self) -> Option<PathBuf> {
        self.workspace
            .ancestors()
            .map(|dir| dir.join(CONFIG_NAME))
            .find(|path| path.is_file())
    }

    /// Creates the home directory, readable by its owner only.
    pub fn create_home(&self) -> Result<(), CliError> {
        use std::os::unix::fs::DirBuilderExt;
        // Keys and conversations are stored in it: no other user may read them.
        let made = std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.home);
        made.map_err(|error| {
            CliError::from(error)
                .while_doing(format!("{} cannot be created", self.home.display()))
                .with_hint("set TOOLGATE_HOME to a directory that you can write to")
        })
    }

    /// Returns the address of the database without its password.
    pub fn display_db(&self) -> String {
        strip_password(&self.db)
    }
}

/// Removes the user name and password from an address; other text stays as it is.
pub(crate) fn strip_password(address: &str) -> String {
    match address
        .split_once("://")
        // The last `@`, because a password may contain one.
        .and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?.1)))
    {
        Some((scheme, place)) => format!("{scheme}://{place}"),
        None => address.to_owned(),
    }
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
    fn the_address_of_a_database_is_shown_without_its_password() {
        let paths = |db: &str| CliPaths {
            workspace: PathBuf::new(),
            home: PathBuf::new(),
            named: None,
            user: None,
            user_config: None,
            db: db.into(),
        };
        assert_eq!(
            paths("postgres://ann:hunter2@db/x").display_db(),
            "postgres://db/x"
        );
        assert_eq!(
            paths("postgres://ann:hun@ter2@db/x").display_db(),
            "postgres://db/x"
        );
        assert_eq!(paths("sqlite:/a/b.db").display_db(), "sqlite:/a/b.db");
    }
}
