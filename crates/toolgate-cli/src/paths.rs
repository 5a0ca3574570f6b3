//! Where things are: the database, keys, trusted configurations, the project's own configuration.

use std::path::{Path, PathBuf};

use etcetera::{BaseStrategy, choose_base_strategy};

use crate::{CliError, args::Global};

/// What the configuration of a project is called.
pub const CONFIG_NAME: &str = "toolgate.toml";

/// Where things are for this command.
#[derive(Debug, Clone)]
pub struct Paths {
    /// The directory that the agent works in: absolute, without links.
    pub workspace: PathBuf,
    /// Where the database, keys and the list of trusted configurations are kept.
    pub home: PathBuf,
    /// The configuration that the command line names.
    pub named: Option<PathBuf>,
    /// The configuration of the user, for projects that have none; if it is there.
    pub user: Option<PathBuf>,
    /// Where the configuration of the user is, or would be.
    pub user_config: Option<PathBuf>,
    /// The address of the database.
    pub db: String,
}

impl Paths {
    /// Finds out where things are. Nothing is made yet.
    pub fn find(global: &Global) -> Result<Self, CliError> {
        let workspace = workspace(global.dir.as_deref())?;
        let base = choose_base_strategy().ok();
        let from_env = |name| {
            std::env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let home = from_env("TOOLGATE_HOME")
            .or_else(|| base.as_ref().map(|base| base.data_dir().join("toolgate")));
        let home = home.ok_or_else(|| {
            CliError::new("there is no home directory to keep anything in")
                .hint("set TOOLGATE_HOME to a directory")
        })?;
        // A relative one would mean another place after the next `cd`.
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

    /// The configuration of the project: the nearest one, from the workspace upward.
    pub fn project(&self) -> Option<PathBuf> {
        self.workspace
            .ancestors()
            .map(|dir| dir.join(CONFIG_NAME))
            .find(|path| path.is_file())
    }

    /// Makes the directory that things are kept in, readable by its owner only.
    pub fn make_home(&self) -> Result<(), CliError> {
        use std::os::unix::fs::DirBuilderExt;
        let made = std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.home);
        made.map_err(|error| {
            CliError::from(error)
                .while_doing(format!("{} cannot be made", self.home.display()))
                .hint("set TOOLGATE_HOME to a directory that you can write to")
        })
    }

    /// The database without anything secret in its address.
    pub fn shown_db(&self) -> String {
        without_password(&self.db)
    }
}

/// An address without the name and password in front of its host; other text as it is.
pub(crate) fn without_password(address: &str) -> String {
    match address
        .split_once("://")
        .and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?.1)))
    {
        Some((scheme, place)) => format!("{scheme}://{place}"),
        None => address.to_owned(),
    }
}

fn workspace(dir: Option<&Path>) -> Result<PathBuf, CliError> {
    let dir = dir.unwrap_or(Path::new("."));
    let found = dir.canonicalize().map_err(|error| {
        CliError::usage(format!("{}: {error}", dir.display()))
            .hint("-C names the directory to work in")
    })?;
    if !found.is_dir() {
        return Err(
            CliError::usage(format!("{} is not a directory", dir.display()))
                .hint("-C names the directory to work in"),
        );
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_database_is_shown_without_its_password() {
        let paths = |db: &str| Paths {
            workspace: PathBuf::new(),
            home: PathBuf::new(),
            named: None,
            user: None,
            user_config: None,
            db: db.into(),
        };
        assert_eq!(
            paths("postgres://ann:hunter2@db/x").shown_db(),
            "postgres://db/x"
        );
        assert_eq!(
            paths("postgres://ann:hun@ter2@db/x").shown_db(),
            "postgres://db/x"
        );
        assert_eq!(paths("sqlite:/a/b.db").shown_db(), "sqlite:/a/b.db");
    }
}
