//! The context of a command: global options, paths, and access to configuration, store and keys.

use toolgate::{
    Config, EvidenceService, Gate, GateBuilder,
    approval::{ApproverIdentity, KeyFile, RulePublicKey},
    gate::{
        CONFIG_NAME, ConfigFile, ConfigOwner, StandingRulesSection, display_address, gate_catalog,
        local_account,
    },
    layers::{PathBase, RuleBook},
    store::{StoreHandle, open_store, open_store_with_patience},
    value::Principal,
};

use crate::{
    CliError, CommandOutput, INSTRUCTIONS,
    args::GlobalArgs,
    env::paths::{self, CliPaths},
};

/// The context that every command receives.
#[derive(Debug, Clone)]
pub struct CommandContext {
    /// The output of the command.
    pub out: CommandOutput,
    /// The paths in use.
    pub paths: CliPaths,
}

impl CommandContext {
    /// Creates the context from the global options.
    pub fn new(global: &GlobalArgs) -> Result<Self, CliError> {
        Ok(Self {
            out: CommandOutput::new(global.json, global.quiet, global.color),
            paths: CliPaths::resolve(global)?,
        })
    }

    /// Loads the configuration in effect: the one that was named, that of the project if it is
    /// trusted, that of the user, or none; environment variables override it.
    pub fn load_config(&self) -> Result<Config, CliError> {
        let config = match self.paths.read_config()? {
            Some(file) => {
                // Before it is parsed: nothing in an untrusted file may have an effect.
                file.require_trust(&self.paths.home)?;
                file.parse_own_config()?
            }
            None => Config::parse_with_catalog(CONFIG_NAME, "", gate_catalog())?,
        };
        Ok(config.with_process_environment()?)
    }

    /// Returns the builder of a gate for the workspace and the user, with the built-in tools.
    pub fn gate_builder(&self) -> GateBuilder {
        Gate::builder()
            .state_dir(self.paths.home.clone())
            .workspace(&self.paths.workspace)
            .builtin_tools()
            .default_instructions(INSTRUCTIONS)
            .project_context()
            .user(self.current_user())
    }

    /// Opens the store, and creates it if there is none.
    pub async fn open_store(&self) -> Result<StoreHandle, CliError> {
        // The default database is in the home directory, which may not exist yet.
        if self.paths.db.starts_with("sqlite:") {
            self.paths.home.create()?;
        }
        let opened = match self.paths.db_patience {
            Some(patience) => open_store_with_patience(&self.paths.db, patience).await,
            None => open_store(&self.paths.db).await,
        };
        opened.map_err(|error| {
            CliError::from(error).while_doing(format!(
                "the database {} cannot be opened",
                self.paths.display_db()
            ))
        })
    }

    /// Returns a command of this program that works when it is pasted in any directory.
    pub(crate) fn command_line(&self, words: &str) -> String {
        let option = self.paths.db_option.as_deref().map(display_address);
        let option = option.map(|db| format!(" --db {}", paths::quote_word(&db)));
        format!("toolgate {words}{}", option.unwrap_or_default())
    }

    /// Loads the keys that sign approvals, and creates them if there are none.
    pub fn load_keys(&self) -> Result<KeyFile, CliError> {
        Ok(self.paths.home.load_keys()?)
    }

    /// Returns the keys of others whose standing rules count, from the user's own configuration and
    /// from no other, whichever configuration is in effect.
    pub fn trusted_rule_keys(&self) -> Result<Vec<RulePublicKey>, CliError> {
        let Some(path) = self.paths.user.clone() else {
            return Ok(Vec::new());
        };
        let config = ConfigFile::read(ConfigOwner::User, path)?.parse_config()?;
        Ok(config.section::<StandingRulesSection>()?.parse_keys()?)
    }

    /// Returns the standing rules, as a gate for the workspace has them.
    pub fn open_rule_book(&self, store: StoreHandle) -> Result<RuleBook, CliError> {
        let workspace = &self.paths.workspace;
        let book = RuleBook::new(store, self.load_keys()?.keyring());
        Ok(book
            .trusting(self.trusted_rule_keys()?)
            .in_workspace(&PathBase::new(workspace))
            .in_project(&workspace.display().to_string()))
    }

    /// Opens the evidence of the database: its receipts, our keys, and the heads stored beside
    /// them.
    pub async fn open_evidence(&self) -> Result<EvidenceService, CliError> {
        let store = self.open_store().await?;
        let keyring = self.load_keys()?.keyring();
        Ok(EvidenceService::new(store, keyring)
            .state_dir(&self.paths.home)
            .address(&self.paths.db))
    }

    /// Returns the user's identity for decisions: the account that runs the command. `by`, or the
    /// variable `TOOLGATE_USER`, is recorded beside it as a claim.
    pub fn current_approver(&self, by: Option<&str>) -> ApproverIdentity {
        let variable = std::env::var("TOOLGATE_USER").ok();
        let claimed = by.or(variable.as_deref()).map(str::trim);
        let claimed = claimed.filter(|name| !name.is_empty()).map(Principal::from);
        local_account().claiming(claimed)
    }

    /// Returns the name of the user for the record: that of the account that runs the command.
    pub fn current_user(&self) -> Principal {
        local_account().name
    }
}
