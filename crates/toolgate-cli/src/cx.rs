//! What every command is handed: the options that hold for all, where things are, and ways to open them.

use toolgate::{Config, KeyFile, Principal, StoreHandle};

use crate::{
    CliError, Out,
    args::Global,
    paths::{CONFIG_NAME, Paths},
    settings,
    trust::Trusted,
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
        Ok(Self { out: Out::new(global.json, global.quiet, global.color), paths: Paths::find(global)? })
    }

    /// The configuration that counts here: the one that was named, that of the project if it is trusted, that of the
    /// user, or none; with the variables of the environment over it.
    pub fn config(&self) -> Result<Config, CliError> {
        let named = self.paths.named.clone();
        let (path, text) = match named.or_else(|| self.paths.project()) {
            Some(path) => {
                let text = read(&path)?;
                if self.paths.named.is_none() {
                    self.check_trust(&path, &text)?;
                }
                (path, text)
            }
            None => match &self.paths.user {
                Some(path) => (path.clone(), read(path)?),
                None => (CONFIG_NAME.into(), String::new()),
            },
        };
        let config = Config::read(&path.display().to_string(), &text, settings::catalog())?;
        Ok(config.with_process_environment()?)
    }

    fn check_trust(&self, path: &std::path::Path, text: &str) -> Result<(), CliError> {
        let trusted = Trusted::load(&self.paths.home)?;
        if trusted.covers(path, text) {
            return Ok(());
        }
        let problem = match trusted.knows(path) {
            true => format!("{} has changed since it was trusted", path.display()),
            false => format!("{} is not trusted yet, and it could loosen the gate", path.display()),
        };
        Err(CliError::usage(problem).hint("read it, and if you agree: `toolgate config trust`"))
    }

    /// The store, made if there is none.
    pub async fn store(&self) -> Result<StoreHandle, CliError> {
        if self.paths.db.starts_with("sqlite:") {
            self.paths.make_home()?;
        }
        let opened = toolgate::store::open(&self.paths.db).await;
        opened.map_err(|error| {
            CliError::from(error).while_doing(format!("the database {} cannot be opened", self.paths.shown_db()))
        })
    }

    /// The keys that approvals are signed with, made if there are none.
    pub fn keys(&self) -> Result<KeyFile, CliError> {
        self.paths.make_home()?;
        Ok(KeyFile::load_or_create(self.paths.home.join("keys"))?)
    }

    /// Who sits at the keyboard, for the record.
    pub fn me(&self) -> Principal {
        let name = ["TOOLGATE_USER", "USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
        let name = name.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
        Principal::from(name.as_deref().unwrap_or("somebody"))
    }
}

fn read(path: &std::path::Path) -> Result<String, CliError> {
    std::fs::read_to_string(path).map_err(|error| {
        CliError::usage(format!("{}: {error}", path.display())).hint("`toolgate config init` writes one to begin with")
    })
}
