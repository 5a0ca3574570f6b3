//! Builds a gate: what it owns is given here, once, and by nothing else.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use toolgate_core::{
    Approver, BudgetRule, Clock, Embedder, IdSource, Keyring, Layer, MemoryStore, Payer, Prices,
    Principal, Redactor, RegisterError, Registration, Registry, RulePublicKey, SessionId,
    StoreHandle, Tool, ToolSpec,
};
use toolgate_layers::{Catalog, Config, Configurable, PolicyRule, Resources, SharedRedactor};
use toolgate_runtime::{DispatcherBuilder, OnFailure, RoutingHook, SystemClock, TimeOrderedIds};

use crate::{
    Error, Result,
    gate::{
        ApproveMode, ConfigFile, ConfigOwner, Gate, StateDir,
        approve::SharedApprover,
        assembly::GateAssembly,
        isolation::{self, AgentReach},
        sections,
    },
};

/// Registers a tool when the gate is opened.
type ToolInstaller = Box<dyn FnOnce(&Registry) -> Result<Registration, RegisterError> + Send>;

/// Changes the configuration, whichever file it comes from.
pub(super) type ConfigChange = Arc<dyn Fn(Config) -> Result<Config> + Send + Sync>;

/// Adds a service that layers share.
pub(super) type ResourceSetup = Arc<dyn Fn(Resources) -> Resources + Send + Sync>;

/// Builder of a [`Gate`]; see [`Gate::builder`].
///
/// Everything has a safe default. Nothing that a gate owns can be given twice: the second one is an
/// error when the gate is opened.
#[must_use = "a gate is opened by `open`"]
pub struct GateBuilder {
    pub(super) options: GateOptions,
    tools: Vec<ToolInstaller>,
    store: Option<StoreHandle>,
    address: Option<String>,
    store_patience: Option<Duration>,
    state: Option<StateDir>,
    keyring: Option<Keyring>,
    builtin_tools: bool,
    /// The configuration, once it is loaded.
    loaded: Option<Config>,
    problem: Option<Error>,
}

/// The options that a gate keeps after it is opened.
pub(super) struct GateOptions {
    pub(super) config: ConfigSource,
    pub(super) changes: Vec<ConfigChange>,
    pub(super) resources: Vec<ResourceSetup>,
    pub(super) redactor: Option<SharedRedactor>,
    pub(super) workspace: Option<PathBuf>,
    pub(super) user: Option<Principal>,
    pub(super) payer: Option<Payer>,
    pub(super) prices: Option<Prices>,
    pub(super) embedder: Option<Arc<dyn Embedder>>,
    pub(super) approver: Option<SharedApprover>,
    pub(super) approve: Option<ApproveMode>,
    pub(super) rule_keys: Vec<RulePublicKey>,
    pub(super) routing_hooks: Vec<Arc<dyn RoutingHook>>,
    pub(super) environment: bool,
    /// The instructions of models, unless `[run]` has others.
    pub(super) instructions: Option<String>,
    /// True if models are told about the workspace, and read the instructions of the project.
    pub(super) project_context: bool,
    /// The directory that remembers signed heads; none with keys from elsewhere.
    pub(super) evidence_dir: Option<StateDir>,
    /// The address of the opened database.
    pub(super) address: Option<String>,
    pub(super) dispatch: DispatchOptions,
}

/// The origin of the configuration.
#[derive(Debug, Clone, Default)]
pub(super) enum ConfigSource {
    #[default]
    Defaults,
    Given(Box<Config>),
    File(ConfigFile),
}

/// The settings of every dispatcher of the gate.
#[derive(Clone)]
pub(super) struct DispatchOptions {
    clock: Arc<dyn Clock>,
    ids: SharedIds,
    pub(super) max_concurrent: Option<usize>,
    max_calls: Option<usize>,
    pub(super) on_failure: Option<OnFailure>,
    grace: Option<Duration>,
}

/// The source of ids, shared by the sessions of a gate.
#[derive(Clone)]
struct SharedIds(Arc<dyn IdSource>);

impl IdSource for SharedIds {
    fn next_uuid(&self) -> uuid::Uuid {
        self.0.next_uuid()
    }
}

impl DispatchOptions {
    pub(super) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Returns an id for a new session.
    pub(super) fn new_session(&self) -> SessionId {
        SessionId::from_source(&self.ids)
    }

    pub(super) fn apply_to(&self, builder: DispatcherBuilder) -> DispatcherBuilder {
        let mut builder = builder
            .clock(self.clock.clone())
            .ids(self.ids.clone())
            .on_failure(self.on_failure.unwrap_or_default());
        if let Some(calls) = self.max_concurrent {
            builder = builder.max_concurrent(calls);
        }
        if let Some(calls) = self.max_calls {
            builder = builder.max_calls(calls);
        }
        match self.grace {
            Some(grace) => builder.grace(grace),
            None => builder,
        }
    }
}

impl GateBuilder {
    pub(super) fn new() -> Self {
        let dispatch = DispatchOptions {
            clock: Arc::new(SystemClock::new()),
            ids: SharedIds(Arc::new(TimeOrderedIds)),
            max_concurrent: None,
            max_calls: None,
            on_failure: None,
            grace: None,
        };
        Self {
            options: GateOptions {
                config: ConfigSource::Defaults,
                changes: Vec::new(),
                resources: Vec::new(),
                redactor: None,
                workspace: None,
                user: None,
                payer: None,
                prices: None,
                embedder: None,
                approver: None,
                approve: None,
                rule_keys: Vec::new(),
                routing_hooks: Vec::new(),
                environment: false,
                instructions: None,
                project_context: false,
                evidence_dir: None,
                address: None,
                dispatch,
            },
            tools: Vec::new(),
            store: None,
            address: None,
            store_patience: None,
            state: None,
            keyring: None,
            builtin_tools: false,
            loaded: None,
            problem: None,
        }
    }

    /// Names the store: `sqlite:PATH`, a plain path, `postgres://…` or `memory:`. By default, the
    /// database in the user's state directory.
    pub fn address(mut self, address: impl Into<String>) -> Self {
        let given = self.address.is_some() || self.store.is_some();
        self.reject_second(given, "store");
        self.address = Some(address.into());
        self
    }

    /// Sets how long requests wait while the database is away or locked, by default 30 s. A store that
    /// is open already keeps its own patience.
    pub fn store_patience(mut self, patience: Duration) -> Self {
        self.reject_second(self.store_patience.is_some(), "patience of the store");
        self.store_patience = Some(patience);
        self
    }

    /// Uses a store that is open already, in place of an address.
    pub fn store(mut self, store: impl Into<StoreHandle>) -> Self {
        let given = self.address.is_some() || self.store.is_some();
        self.reject_second(given, "store");
        self.store = Some(store.into());
        self
    }

    /// Sets the directory of keys and trusted configurations. By default, `TOOLGATE_HOME` or the
    /// user's data directory.
    pub fn state_dir(mut self, state: StateDir) -> Self {
        let given = self.state.is_some();
        self.reject_second(given, "state directory");
        self.state = Some(state);
        self
    }

    /// Uses these keys, in place of those in the state directory.
    pub fn keyring(mut self, keyring: Keyring) -> Self {
        let given = self.keyring.is_some();
        self.reject_second(given, "keyring");
        self.keyring = Some(keyring);
        self
    }

    /// Loads a configuration file. Naming it is trusting it, unless it lies in the workspace or
    /// where commands can write: then the user has to trust it.
    pub fn config_file(self, path: impl AsRef<Path>) -> Self {
        match ConfigFile::read(ConfigOwner::Named, path.as_ref().to_owned()) {
            Ok(file) => self.config_source(ConfigSource::File(file)),
            Err(error) => self.fail(error),
        }
    }

    /// Uses a configuration file that was found. One that comes with a project has to be trusted
    /// by the user.
    pub fn found_config(self, file: ConfigFile) -> Self {
        self.config_source(ConfigSource::File(file))
    }

    /// Uses a configuration that was loaded already.
    pub fn config(self, config: Config) -> Self {
        self.config_source(ConfigSource::Given(Box::new(config)))
    }

    fn config_source(mut self, source: ConfigSource) -> Self {
        let given = !matches!(self.options.config, ConfigSource::Defaults);
        self.reject_second(given, "configuration");
        self.options.config = source;
        self
    }

    /// Lets variables such as `TOOLGATE_LAYERS__TIMEOUT__MAX_MS` override the configuration, as the
    /// command line does.
    pub fn environment_overrides(mut self) -> Self {
        self.options.environment = true;
        self
    }

    /// Changes the configuration in Rust, after it is loaded: rules, layers, options.
    pub fn configure(
        mut self,
        change: impl Fn(Config) -> Result<Config> + Send + Sync + 'static,
    ) -> Self {
        self.options.changes.push(Arc::new(change));
        self
    }

    /// Adds a rule of the policy. Rules add up: deny beats ask, which beats allow.
    pub fn rule(self, rule: PolicyRule) -> Self {
        self.configure(move |config| Ok(config.add_policy_rules([rule.clone()])?))
    }

    /// Adds a layer, which takes its place in its band; `approval` stays the last to decide.
    pub fn layer(self, layer: impl Layer) -> Self {
        let layer = toolgate_core::AnyLayer::new(layer);
        self.configure(move |config| Ok(config.with_any_layer(layer.clone())))
    }

    /// Replaces a layer of the stack, at its place.
    pub fn replace_layer(self, name: &str, layer: impl Layer) -> Self {
        let name = name.to_owned();
        let layer = toolgate_core::AnyLayer::new(layer);
        self.configure(move |config| Ok(config.replace_layer(&name, layer.clone())?))
    }

    /// Removes a layer from the stack.
    pub fn without_layer(self, name: &str) -> Self {
        let name = name.to_owned();
        self.configure(move |config| Ok(config.without_layer(&name)?))
    }

    /// Changes the options of a layer. A layer that the default stack does not have is added by it.
    pub fn edit_layer<L: Configurable>(
        self,
        edit: impl Fn(&mut L::Options) + Send + Sync + 'static,
    ) -> Self {
        let edit = Arc::new(edit);
        self.configure(move |config| {
            let edit = edit.clone();
            Ok(config.edit_layer::<L>(move |options| edit(options))?)
        })
    }

    /// Adds a budget for tool calls and model requests.
    pub fn budget(self, rule: BudgetRule) -> Self {
        self.configure(move |config| {
            // The layer enforces budgets of tools; without it the budget would limit models only.
            let config = config.edit_layer::<toolgate_layers::Budget>(|_| {})?;
            Ok(config.add_budgets([rule.clone()])?)
        })
    }

    /// Sets the prices of models. By default, the bundled ones.
    pub fn prices(mut self, prices: Prices) -> Self {
        let given = self.options.prices.is_some();
        self.reject_second(given, "price table");
        self.options.prices = Some(prices);
        self
    }

    /// Sets what turns texts into vectors for search and memories, in place of `[search] embedder`.
    pub fn embedder(mut self, embedder: impl Embedder) -> Self {
        let given = self.options.embedder.is_some();
        self.reject_second(given, "embedder");
        self.options.embedder = Some(Arc::new(embedder));
        self
    }

    /// Adds a redactor to the bundled one. It covers what the model reads, events, receipts, spans
    /// and everything else that is stored or shown.
    pub fn redactor(mut self, redactor: impl Redactor) -> Self {
        let redactor = SharedRedactor::new(redactor);
        self.options.redactor = Some(match self.options.redactor.take() {
            Some(earlier) => earlier.and(redactor),
            None => redactor,
        });
        self
    }

    /// Adds a service that layers share, such as a sink of spans or receipts.
    pub fn resource<T: Clone + Send + Sync + 'static>(mut self, resource: T) -> Self {
        let setup = move |resources: Resources| resources.with(resource.clone());
        self.options.resources.push(Arc::new(setup));
        self
    }

    /// Sets the instructions that models read before everything else, unless `[run] instructions` has
    /// others.
    pub fn default_instructions(mut self, text: impl Into<String>) -> Self {
        let given = self.options.instructions.is_some();
        self.reject_second(given, "default instructions");
        self.options.instructions = Some(text.into());
        self
    }

    /// Tells models the workspace, the date and the operating system, and lets them read the
    /// `AGENTS.md` or `CLAUDE.md` of the project if the user trusts it; see
    /// [`Gate::project_instructions`]. `[run] project_instructions = false` leaves the file out.
    pub fn project_context(mut self) -> Self {
        self.options.project_context = true;
        self
    }

    /// Sets the directory that the agent works in. Keys and database have to lie outside of it.
    pub fn workspace(mut self, directory: impl Into<PathBuf>) -> Self {
        let given = self.options.workspace.is_some();
        self.reject_second(given, "workspace");
        self.options.workspace = Some(directory.into());
        self
    }

    /// Adds the built-in tools for files, search, commands and pages, rooted in the workspace.
    #[cfg(feature = "tools")]
    pub fn builtin_tools(mut self) -> Self {
        self.builtin_tools = true;
        self
    }

    /// Adds a tool.
    pub fn tool(self, tool: impl Tool) -> Self {
        self.install_tool(|registry| registry.register(tool))
    }

    /// Adds a tool in place of one of the same name.
    pub fn replace_tool(self, tool: impl Tool) -> Self {
        self.install_tool(|registry| registry.replace(tool))
    }

    /// Adds a tool that the host runs: its calls wait for the host's result.
    pub fn host_tool(self, spec: ToolSpec) -> Self {
        self.install_tool(|registry| registry.register_host(spec))
    }

    fn install_tool(
        mut self,
        install: impl FnOnce(&Registry) -> Result<Registration, RegisterError> + Send + 'static,
    ) -> Self {
        self.tools.push(Box::new(install));
        self
    }

    /// Sets the approver, who is asked at once when a call needs a decision. Without one, the run
    /// suspends, and [`Gate::approvals`] decides.
    pub fn approver(mut self, approver: impl Approver) -> Self {
        let given = self.options.approver.is_some();
        self.reject_second(given, "approver");
        self.options.approver = Some(SharedApprover::new(approver));
        self
    }

    /// Sets what happens to calls that need an approval. By default, as configured.
    pub fn approve(mut self, mode: ApproveMode) -> Self {
        let given = self.options.approve.is_some();
        self.reject_second(given, "approval mode");
        self.options.approve = Some(mode);
        self
    }

    /// Sets the user on whose behalf sessions work, unless a session names another one.
    pub fn user(mut self, user: impl Into<Principal>) -> Self {
        let given = self.options.user.is_some();
        self.reject_second(given, "user");
        self.options.user = Some(user.into());
        self
    }

    /// Sets who pays. By default, the user, and the workspace as the project.
    pub fn payer(mut self, payer: Payer) -> Self {
        let given = self.options.payer.is_some();
        self.reject_second(given, "payer");
        self.options.payer = Some(payer);
        self
    }

    /// Lets standing rules count that are signed with these keys of others. The keys must come from
    /// the user or the operator, and not from the project or the store.
    pub fn trust_rule_keys(mut self, keys: impl IntoIterator<Item = RulePublicKey>) -> Self {
        self.options.rule_keys.extend(keys);
        self
    }

    /// Sets the clock, for tests.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.options.dispatch.clock = Arc::new(clock);
        self
    }

    /// Sets the source of ids, for tests.
    pub fn ids(mut self, ids: impl IdSource) -> Self {
        self.options.dispatch.ids = SharedIds(Arc::new(ids));
        self
    }

    /// Adds a hook that chooses the model of a request, after those added before and after the
    /// section `[routing]`. It can choose among the models that this section names.
    pub fn routing_hook(mut self, hook: impl RoutingHook) -> Self {
        self.options.routing_hooks.push(Arc::new(hook));
        self
    }

    /// Sets how many calls of a turn run at the same time, in place of `[run]
    /// max_concurrent_tools`; by default 8.
    pub fn max_concurrent(mut self, calls: usize) -> Self {
        self.options.dispatch.max_concurrent = Some(calls);
        self
    }

    /// Sets how many calls of one reply are made; by default 1,000.
    pub fn max_calls(mut self, calls: usize) -> Self {
        self.options.dispatch.max_calls = Some(calls);
        self
    }

    /// Sets what happens to the other calls of a turn when one call fails, in place of
    /// `[run] on_failure`.
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.options.dispatch.on_failure = Some(on_failure);
        self
    }

    /// Sets how long running calls may take to stop after an interruption.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.options.dispatch.grace = Some(grace);
        self
    }

    fn reject_second(&mut self, given: bool, what: &str) {
        if given {
            let problem = Error::configuration(format!("the {what} of the gate is given twice"));
            self.problem.get_or_insert(problem);
        }
    }

    fn fail(mut self, error: Error) -> Self {
        self.problem.get_or_insert(error);
        self
    }

    /// Opens the store, loads the keys and builds the stack.
    ///
    /// # Errors
    ///
    /// Fails if an option is given twice, if the configuration is invalid or not trusted, if the
    /// store or the keys cannot be opened, if either lies in the workspace or where commands can
    /// read, or if a tool cannot be registered.
    pub async fn open(mut self) -> Result<Gate> {
        self.prepare()?;
        if self.store.is_none() {
            let address = self.create_database_directory()?;
            let opened = match self.store_patience {
                Some(patience) => {
                    toolgate_store::open_store_with_patience(&address, patience).await
                }
                None => toolgate_store::open_store(&address).await,
            };
            self.store = Some(opened.map_err(|error| {
                let shown = display_address(&address);
                Error::from(error).while_doing(format!("the database {shown} cannot be opened"))
            })?);
            self.options.address = Some(address);
        }
        self.build()
    }

    /// Builds the gate over the store that was given.
    ///
    /// # Errors
    ///
    /// Fails as [`GateBuilder::open`] does, and if no store was given.
    pub fn build(mut self) -> Result<Gate> {
        self.prepare()?;
        let store = self.store.take().ok_or_else(|| {
            Error::configuration("the gate has no store")
                .with_hint("`open` opens one by its address")
        })?;
        let config = match self.loaded.take() {
            Some(config) => config,
            None => self.options.load_config(|| self.find_state_dir())?,
        };
        let keyring = match self.keyring.take() {
            Some(keyring) => {
                self.options.evidence_dir = self.state.clone();
                keyring
            }
            None => {
                let state = self.find_state_dir()?;
                let keys = state.load_keys()?;
                self.options.evidence_dir = Some(state);
                keys.keyring()
            }
        };
        let registry = self.build_registry(&store, &config)?;
        let assembly = GateAssembly::build(&self.options, config, &store, &keyring, &registry)?;
        Ok(Gate::from_parts(
            self.options,
            store,
            keyring,
            registry,
            assembly,
        ))
    }

    /// Checks the options and loads the configuration: what is wrong is said before anything is
    /// created.
    fn prepare(&mut self) -> Result<()> {
        if let Some(problem) = self.problem.take() {
            return Err(problem);
        }
        if self.loaded.is_some() {
            return Ok(());
        }
        self.resolve_workspace()?;
        let config = self.options.load_config(|| self.find_state_dir())?;
        let workspace = self.options.workspace.as_deref();
        let reach = AgentReach::new(workspace, &config, self.builtin_tools)?;
        self.loaded = Some(config);
        let keys = match self.keyring {
            Some(_) => None,
            None => Some(self.find_state_dir()?),
        };
        let database = match (&self.store, &self.address) {
            (Some(_), _) => None,
            (None, Some(address)) => Some(address.clone()),
            (None, None) => Some(self.find_state_dir()?.default_database()),
        };
        isolation::reject_exposed_secrets(&reach, keys.as_ref(), database.as_deref())
    }

    /// Keeps everything in memory, with keys of its own: for tests, and for looking at a
    /// configuration without leaving anything behind.
    ///
    /// # Errors
    ///
    /// Fails if the system has no randomness for the keys.
    pub fn in_memory(self) -> Result<Self> {
        let keys = toolgate_runtime::random_keyring()?;
        Ok(self.store(MemoryStore::new()).keyring(keys))
    }

    /// Returns the address of the database, and creates the state directory if it lies there.
    fn create_database_directory(&self) -> Result<String> {
        let state = match (self.find_state_dir(), &self.address) {
            (Ok(state), _) => state,
            // Without a state directory only a database elsewhere can be opened.
            (Err(_), Some(address)) => return Ok(address.clone()),
            (Err(error), None) => return Err(error),
        };
        let default = state.default_database();
        let address = self.address.clone().unwrap_or_else(|| default.clone());
        if address == default {
            state.create()?;
        }
        Ok(address)
    }

    fn find_state_dir(&self) -> Result<StateDir> {
        self.state.clone().map_or_else(StateDir::find, Ok)
    }

    fn resolve_workspace(&mut self) -> Result<()> {
        let Some(workspace) = &self.options.workspace else {
            return Ok(());
        };
        let found = workspace.canonicalize().map_err(|error| {
            Error::from(error).while_doing(format!(
                "the workspace {} cannot be opened",
                workspace.display()
            ))
        })?;
        if !found.is_dir() {
            let problem = format!("the workspace {} is not a directory", workspace.display());
            return Err(Error::configuration(problem));
        }
        self.options.workspace = Some(found);
        Ok(())
    }

    fn build_registry(&mut self, store: &StoreHandle, config: &Config) -> Result<Registry> {
        let registry = Registry::new();
        #[cfg(feature = "tools")]
        if self.builtin_tools {
            let workspace = self.options.workspace.as_deref().ok_or_else(|| {
                Error::configuration("the built-in tools need a workspace")
                    .with_hint("name the directory with `workspace`")
            })?;
            super::builtin_tools::register_builtin_tools(&registry, workspace, store, config)?;
        }
        #[cfg(not(feature = "tools"))]
        let _ = (store, config, self.builtin_tools);
        // The default stack stores long results; this tool reads them.
        registry.register(toolgate_layers::ReadOutput::default())?;
        for install in std::mem::take(&mut self.tools) {
            install(&registry)?;
        }
        Ok(registry)
    }
}

impl GateOptions {
    /// Loads the configuration, checks its trust and applies the changes.
    pub(super) fn load_config(&self, state: impl FnOnce() -> Result<StateDir>) -> Result<Config> {
        let config = match &self.config {
            ConfigSource::Defaults => empty_config(sections::gate_catalog())?,
            ConfigSource::Given(config) => Config::clone(config),
            ConfigSource::File(file) => {
                let file = match &self.workspace {
                    Some(workspace) => file.clone().in_reach_of(workspace),
                    None => file.clone(),
                };
                // Before it is used: nothing in an untrusted file may have an effect.
                let state = state()?;
                file.require_trust(&state)?;
                let config = file.parse_own_config()?;
                let written = written_paths(&config)?;
                let file = written
                    .iter()
                    .fold(file, |file, path| file.in_reach_of(path));
                file.require_trust(&state)?;
                config
            }
        };
        let config = if self.environment {
            config.with_process_environment()?
        } else {
            config
        };
        self.changes
            .iter()
            .try_fold(config, |config, change| change(config))
    }
}

/// Returns the paths that commands may write in addition to the workspace, with links resolved.
#[cfg(feature = "tools")]
fn written_paths(config: &Config) -> Result<Vec<PathBuf>> {
    let shell = sections::ToolsSection::of(config)?.shell;
    let home = std::env::home_dir().unwrap_or_default();
    let absolute = shell.write.iter().map(|path| match path.strip_prefix("~") {
        Ok(rest) => home.join(rest),
        Err(_) => path.clone(),
    });
    // One that does not exist is an error of the sandbox.
    Ok(absolute
        .filter_map(|path| path.canonicalize().ok())
        .collect())
}

#[cfg(not(feature = "tools"))]
fn written_paths(_: &Config) -> Result<Vec<PathBuf>> {
    Ok(Vec::new())
}

/// Returns the address of a database without its user name and password; other text stays as it is.
pub fn display_address(address: &str) -> String {
    match address
        .split_once("://")
        // The last `@`, because a password may contain one.
        .and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?.1)))
    {
        Some((scheme, place)) => format!("{scheme}://{place}"),
        None => address.to_owned(),
    }
}

fn empty_config(catalog: Catalog) -> Result<Config> {
    Ok(Config::parse_with_catalog(super::CONFIG_NAME, "", catalog)?)
}

impl std::fmt::Debug for GateBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GateBuilder")
            .field("config", &self.options.config)
            .field("workspace", &self.options.workspace)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_database_is_shown_without_its_password() {
        for (address, shown) in [
            ("postgres://ann:hunter2@db/x", "postgres://db/x"),
            ("postgres://ann:hun@ter2@db/x", "postgres://db/x"),
            ("sqlite:/a/b.db", "sqlite:/a/b.db"),
        ] {
            assert_eq!(display_address(address), shown);
        }
    }
}
