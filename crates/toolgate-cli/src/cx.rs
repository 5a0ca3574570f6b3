//! What every command is handed: the options that hold for all, where things are, and ways to open them.

use toolgate::{Config, KeyFile, Principal, StoreHandle};

use crate::{
    CliError, Out,
    args::Global,
    config_file::ConfigFile,
    paths::{CONFIG_NAME, Paths},
    settings,
};

/// What every command is handed.
#[derive(Debug, Clone)]
pub struct Cx {
    /// Where it prints to.
    pub out: Out,
    /// Where things are.
    pub paths: Paths,
}

impl Cx {
    /// As the global options say.
    pub fn new(global: &Global) -> Result<Self, CliError> {
        Ok(Self {
            out: Out::new(global.json, global.quiet, global.color),
            paths: Paths::find(global)?,
        })
    }

    /// The configuration that counts here: the one that was named, that of the project if it is trusted, that of the
    /// user, or none; with the variables of the environment over it.
    pub fn config(&self) -> Result<Config, CliError> {
        let config = match ConfigFile::find(&self.paths) {
            Some((owner, path)) => {
                let file = ConfigFile::read(owner, path)?;
                file.require_trust(&self.paths.home)?;
                file.config()?
            }
            None => Config::read(CONFIG_NAME, "", settings::catalog())?,
        };
        Ok(config.with_process_environment()?)
    }

    /// The store, made if there is none.
    pub async fn store(&self) -> Result<StoreHandle, CliError> {
        if self.paths.db.starts_with("sqlite:") {
            self.paths.make_home()?;
        }
        let opened = toolgate::store::open(&self.paths.db).await;
        opened.map_err(|error| {
            CliError::from(error).while_doing(format!(
                "the database {} cannot be opened",
                self.paths.shown_db()
            ))
        })
    }

    /// The keys that approvals are signed with, made if there are none.
    pub fn keys(&self) -> Result<KeyFile, CliError> {
        self.paths.make_home()?;
        Ok(KeyFile::load_or_create(self.paths.home.join("keys"))?)
    }

    /// Who sits at the keyboard, for the record.
    pub fn me(&self) -> Principal {
        let name = ["TOOLGATE_USER", "USER", "LOGNAME"]
            .iter()
            .find_map(|name| std::env::var(name).ok());
        let name = name
            .map(|name| name.trim().to_owned())
            .filter(|name| !name.is_empty());
        Principal::from(name.as_deref().unwrap_or("somebody"))
    }
}
