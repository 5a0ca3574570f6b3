//! The front door: a [`Gate`] owns what belongs together, and every session comes from it.

mod agents;
mod approve;
mod assembly;
mod builder;
#[cfg(feature = "tools")]
mod builtin_tools;
mod config_file;
mod instructions;
mod isolation;
mod local_account;
mod memory;
mod models;
mod named_files;
mod sections;
mod state_dir;
mod tool_names;
mod trust;

use std::path::Path;

use serde_json::Value;
use toolgate_archive::{Exporter, Importer};
use toolgate_core::{
    Approver, CallEnv, CallSeed, Checkpoint, Keyring, LedgerKey, ModelSource, Principal, Redactor,
    RegisterError, Registry, SearchService, SessionId, Stack, StoreHandle, Tool, ToolName,
    ToolRequest, ToolSpec, View,
};
use toolgate_layers::{Config, Explanation, Ledger, LedgerError, Resources, RuleBook};
use toolgate_runtime::{
    ApprovalService, Dispatcher, DispatcherBuilder, Gated, Session, SessionBuilder,
    index_after_runs,
};

#[cfg(feature = "tools")]
pub use self::sections::ToolsSection;
use self::{
    approve::SharedApprover,
    assembly::GateAssembly,
    builder::{ConfigSource, GateOptions},
    instructions::compose_instructions,
    models::{ModelAddresses, ModelSetup},
};
pub use self::{
    approve::{ApproveMode, UnknownApproveMode},
    builder::{GateBuilder, display_address},
    config_file::{CONFIG_NAME, ConfigFile, ConfigOwner, ConfigTrust},
    instructions::{INSTRUCTION_NAMES, InstructionsFile, ProjectInstructions},
    local_account::local_account,
    memory::MemorySection,
    models::{
        ModelOptions, is_provider, key_variables, load_prices, open_configured_model, open_model,
        parse_model_name,
    },
    sections::{
        AgentSection, AgentsSection, HooksSection, RoutingSection, RunSection, RunStrategy,
        StandingRulesSection, gate_catalog,
    },
    state_dir::StateDir,
    trust::TrustedConfigs,
};
use crate::{Error, EvidenceService, Result};

/// The front door: opens a store, loads the keys, and wires what belongs together.
///
/// A gate owns the store, the keys, the configuration, the stack of layers, the redactor, the
/// approver, the tools, the prices and the ledger of receipts. Every session that it opens uses
/// exactly these, so nothing can be forgotten: each call is validated, judged by policy, asked
/// about where that is needed, limited, redacted in events and recorded.
///
/// ```no_run
/// use toolgate::prelude::*;
///
/// /// Sends money back.
/// #[tool(side_effect = "network")]
/// async fn refund(amount: u32) -> String { format!("sent {amount}") }
///
/// #[tokio::main]
/// async fn main() -> toolgate::Result<()> {
///     let gate = Gate::open("sqlite:agent.db").await?.tool(refund)?.approver(Prompt::terminal("ann"));
///     let session = gate.session("anthropic:claude-sonnet-4-5").await?;
///     println!("{}", session.run("Send Ann her 20 back.").await?.text);
///     Ok(())
/// }
/// ```
///
/// [`Gate::builder`] has an option for everything. Share a gate between tasks in an
/// [`Arc`](std::sync::Arc).
///
/// What a gate owns cannot be replaced further on: a session of a gate has no other stack, store or
/// redactor.
///
/// ```compile_fail,E0599
/// # use toolgate::{Gate, Registry, Stack, model::ScriptedModel};
/// # fn session() -> Result<(), Box<dyn std::error::Error>> {
/// let stack = Stack::over(Registry::new()).build()?;
/// let session = Gate::in_memory()?.session_builder(ScriptedModel::new(["Hi."]))?.stack(stack);
/// # Ok(())
/// # }
/// ```
///
/// ```compile_fail,E0599
/// # use toolgate::{Gate, model::ScriptedModel, store::MemoryStore};
/// # fn session() -> toolgate::Result<()> {
/// let session = Gate::in_memory()?.session_builder(ScriptedModel::new(["Hi."]))?.store(MemoryStore::new());
/// # Ok(())
/// # }
/// ```
///
/// ```compile_fail,E0599
/// # use toolgate::{Gate, model::ScriptedModel};
/// # fn session() -> toolgate::Result<()> {
/// let session = Gate::in_memory()?.session_builder(ScriptedModel::new(["Hi."]))?.dispatcher(|dispatcher| dispatcher);
/// # Ok(())
/// # }
/// ```
///
/// And it hands out no registry, which would run tools without layers:
///
/// ```compile_fail,E0599
/// # use toolgate::Gate;
/// let registry = Gate::in_memory().unwrap().registry();
/// ```
pub struct Gate {
    options: GateOptions,
    store: StoreHandle,
    keyring: Keyring,
    registry: Registry,
    assembly: GateAssembly,
    problem: Option<&'static str>,
}

impl Gate {
    /// Opens a gate over the store that `address` names: `sqlite:PATH`, a plain path,
    /// `postgres://…` or `memory:`.
    ///
    /// Besides the store it reads the keys in the user's state directory (`TOOLGATE_HOME`), which
    /// are created the first time, and no other file.
    ///
    /// # Errors
    ///
    /// Fails if the store or the keys cannot be opened.
    pub async fn open(address: &str) -> Result<Self> {
        Self::builder().address(address).open().await
    }

    /// Opens a gate that keeps everything in memory, with keys of its own. Nothing is read and
    /// nothing is left behind.
    ///
    /// # Errors
    ///
    /// Fails if the system has no randomness for the keys.
    pub fn in_memory() -> Result<Self> {
        Self::builder().in_memory()?.build()
    }

    /// Creates a builder, which has an option for everything.
    pub fn builder() -> GateBuilder {
        GateBuilder::new()
    }

    fn from_parts(
        options: GateOptions,
        store: StoreHandle,
        keyring: Keyring,
        registry: Registry,
        assembly: GateAssembly,
    ) -> Self {
        Self {
            options,
            store,
            keyring,
            registry,
            assembly,
            problem: None,
        }
    }

    /// Adds a tool.
    ///
    /// # Errors
    ///
    /// Fails if the name is taken or not valid, or if the schema cannot be used.
    pub fn tool(self, tool: impl Tool) -> Result<Self> {
        self.registry.register(tool)?;
        Ok(self)
    }

    /// Adds a tool that the host runs: its calls wait for the host's result.
    ///
    /// # Errors
    ///
    /// Fails as [`Gate::tool`] does.
    pub fn host_tool(self, spec: ToolSpec) -> Result<Self> {
        self.registry.register_host(spec)?;
        Ok(self)
    }

    /// Adds the tools that `install` registers, such as those of skills and strategies.
    ///
    /// # Errors
    ///
    /// Fails if `install` does, or if the name of a tool is taken.
    ///
    /// ```
    /// use toolgate::{Gate, session::Skills};
    /// let skills = Skills::discover(["skills"]).skills;
    /// let gate = Gate::in_memory()?.install(|registry| skills.install(registry))?;
    /// # Ok::<(), toolgate::Error>(())
    /// ```
    pub fn install(
        self,
        install: impl FnOnce(&Registry) -> Result<(), RegisterError>,
    ) -> Result<Self> {
        // A registry of its own: that of the gate stays inside, because it runs tools without
        // layers.
        let own = Registry::new();
        install(&own)?;
        self.registry.register_all(&own)?;
        Ok(self)
    }

    /// Sets the approver, who is asked at once when a call needs a decision. Without one, the run
    /// suspends, and [`Gate::approvals`] decides. A second approver is an error when a session is
    /// opened.
    pub fn approver(mut self, approver: impl Approver) -> Self {
        if self.options.approver.is_some() {
            self.problem = Some("the approver of the gate is given twice");
            return self;
        }
        let approver = SharedApprover::new(approver);
        self.options.approver = Some(approver.clone());
        // A mode that answers by itself (`yes`, `never`) stays in force.
        self.assembly.approver.get_or_insert(approver);
        self
    }

    /// Loads a configuration file and builds the stack anew. Naming the file is trusting it, unless
    /// it lies in the workspace: then the user has to trust it.
    ///
    /// # Errors
    ///
    /// Fails if the gate has a configuration already, or if the file is invalid.
    pub fn config(mut self, path: impl AsRef<Path>) -> Result<Self> {
        if !matches!(self.options.config, ConfigSource::Defaults) {
            return Err(Error::configuration(
                "the configuration of the gate is given twice",
            ));
        }
        let file = ConfigFile::read(ConfigOwner::Named, path.as_ref().to_owned())?;
        self.options.config = ConfigSource::File(file);
        let config = self.options.load_config(StateDir::find)?;
        self.assembly = GateAssembly::build(
            &self.options,
            config,
            &self.store,
            &self.keyring,
            &self.registry,
        )?;
        Ok(self)
    }

    /// Opens a new session with a model: an open one, or the name of one, such as
    /// `"anthropic:claude-sonnet-4-5"`. Keys of providers come from the environment.
    ///
    /// # Errors
    ///
    /// Fails if the model or the session cannot be opened.
    pub async fn session(&self, model: impl Into<ModelSource>) -> Result<Session> {
        Ok(self.session_builder(model)?.build().await?)
    }

    /// Opens a session that exists, to continue it with [`Session::resume`].
    ///
    /// # Errors
    ///
    /// Fails as [`Gate::session`] does, and if another process holds the session
    /// ([`Error::is_lease_lost`]).
    pub async fn open_session(
        &self,
        session: SessionId,
        model: impl Into<ModelSource>,
    ) -> Result<Session> {
        let builder = self.session_builder(model)?.session(session);
        Ok(builder.build().await?)
    }

    /// Creates a builder of a session with this model: instructions, limits, agents, strategies.
    /// It has no method that replaces what the gate owns.
    ///
    /// # Errors
    ///
    /// Fails if the model cannot be opened.
    pub fn session_builder(&self, model: impl Into<ModelSource>) -> Result<SessionBuilder<Gated>> {
        self.session_builder_with(model, ModelOptions::default())
    }

    /// Creates a builder like [`Gate::session_builder`] whose models are asked with these options.
    ///
    /// # Errors
    ///
    /// Fails if the model cannot be opened.
    pub fn session_builder_with(
        &self,
        model: impl Into<ModelSource>,
        options: ModelOptions,
    ) -> Result<SessionBuilder<Gated>> {
        self.build_session(model.into(), &options)
    }

    fn build_session(
        &self,
        model: ModelSource,
        options: &ModelOptions,
    ) -> Result<SessionBuilder<Gated>> {
        self.check()?;
        let run = &self.assembly.run;
        let routing = &self.assembly.routing;
        let chosen = options.base_url.as_deref();
        let setup = ModelSetup {
            routing,
            hooks: &self.options.routing_hooks,
            retry: options.retry.unwrap_or(run.retry),
            addresses: ModelAddresses::new(run, routing, &model, chosen)?,
            clock: self.options.dispatch.clock().clone(),
        };
        let prepared = setup.prepare_model(model)?;
        let session = Session::ungated(prepared.model.clone(), self.registry.clone());
        let builder = self.wire(session).may_use(prepared.may_use.clone());
        let mut builder = self.wire_memory(builder, self.memory_model(&setup)?);
        for agent in &self.assembly.agents.0 {
            let agent = agents::build_agent(agent, &setup, &prepared, &self.registry)?;
            builder = builder.agent(agent);
        }
        Ok(builder)
    }

    /// Returns the model of the configuration: `[run] model`, or else `[routing] default`.
    pub fn default_model(&self) -> Option<&str> {
        let routed = self.assembly.routing.0.default.as_deref();
        self.assembly.run.model.as_deref().or(routed)
    }

    /// Creates a builder of a session for a host that asks a model by itself; see
    /// [`Session::begin_hosted`] and [`Session::arm_tools`].
    ///
    /// # Errors
    ///
    /// Fails if something that the gate owns was given twice.
    pub fn host_session_builder(&self) -> Result<SessionBuilder<Gated>> {
        self.check()?;
        let session = self.wire(Session::ungated_host(self.registry.clone()));
        Ok(self.wire_memory(session, None))
    }

    fn check(&self) -> Result<()> {
        match self.problem {
            Some(problem) => Err(Error::configuration(problem)),
            None => Ok(()),
        }
    }

    /// Wires a session: stack, store, keys, redactor, approver, budgets and prices.
    fn wire(&self, builder: SessionBuilder) -> SessionBuilder<Gated> {
        let assembly = &self.assembly;
        let run = &assembly.run;
        let mut builder = builder
            .stack(assembly.stack.clone())
            .budgets(assembly.config.budgets().clone())
            .payer(assembly.payer.clone())
            .prices(assembly.prices.clone())
            .dispatcher(self.dispatcher_setup())
            .seal();
        if let Some(user) = &self.options.user {
            builder = builder.principal(user.clone());
        }
        let now = self.options.dispatch.clock().now();
        let project = &assembly.project;
        if let Some(text) = compose_instructions(&self.options, run, project, now) {
            builder = builder.instructions(text);
        }
        if let Some(rounds) = run.max_iterations {
            builder = builder.max_iterations(rounds);
        }
        if let Some(tokens) = run.max_tokens {
            builder = builder.max_tokens(tokens);
        }
        if let Some(effort) = run.effort {
            builder = builder.effort(effort);
        }
        if let Some(limit) = run.deadline {
            builder = builder.deadline(limit.get());
        }
        if let Some(limit) = assembly.config.stack().turn_deadline {
            builder = builder.turn_deadline(limit.get());
        }
        if self.options.dispatch.on_failure.is_none() {
            builder = builder.on_failure(run.on_failure);
        }
        if let Some(calls) = run.max_concurrent_tools
            && self.options.dispatch.max_concurrent.is_none()
        {
            builder = builder.max_concurrent(calls.get());
        }
        builder = builder.on_cap(run.on_cap).choice(run.tool_choice.clone());
        if let Some(weight) = run.weight {
            builder = builder.weight(weight);
        }
        match &assembly.skills {
            Some(skills) => builder.strategy(skills.clone()),
            None => builder,
        }
    }

    fn dispatcher_setup(&self) -> impl FnOnce(DispatcherBuilder) -> DispatcherBuilder + use<> {
        let store = index_after_runs(self.store.clone(), self.search());
        let keyring = self.keyring.clone();
        let redactor = self.assembly.redactor.clone();
        let approver = self.assembly.approver.clone();
        let dispatch = self.options.dispatch.clone();
        let workspace = self.options.workspace.clone();
        move |builder| {
            let mut builder = dispatch
                .apply_to(builder)
                .store(store)
                .keyring(keyring)
                .redactor(redactor);
            if let Some(workspace) = &workspace {
                builder = builder.directory(workspace);
            }
            match approver {
                Some(approver) => builder.approver(approver),
                None => builder,
            }
        }
    }

    /// Opens a dispatcher, which runs turns without a model: calls that a program makes itself.
    /// They pass the same stack. Without an id, the session is a new one.
    ///
    /// # Errors
    ///
    /// Fails if another process holds the session, or if the store fails.
    pub async fn dispatcher(&self, session: Option<SessionId>) -> Result<Dispatcher> {
        self.check()?;
        let builder = self.dispatcher_setup()(Dispatcher::builder(self.assembly.stack.clone()));
        let session = session.unwrap_or_else(|| self.options.dispatch.new_session());
        Ok(builder.session(session).build().await?)
    }

    /// Returns the tools as a model is shown them.
    ///
    /// # Errors
    ///
    /// Fails if a layer makes a schema that cannot be used.
    pub fn view(&self) -> Result<View> {
        Ok(View::for_stack(&self.registry, &self.assembly.stack)?)
    }

    /// Removes a tool; returns true if there was one of this name.
    pub fn remove_tool(&self, name: &str) -> bool {
        self.registry.remove(name).is_some()
    }

    /// Explains what would happen to a call: the verdict, and the reason of each layer. Nothing
    /// runs and nothing is stored.
    ///
    /// # Errors
    ///
    /// Fails if the tools cannot be shown.
    pub async fn explain(&self, tool: &str, arguments: Value) -> Result<Explanation> {
        let view = self.view()?;
        let request = ToolRequest::from_json("", tool, arguments);
        // A dispatcher takes a lease in its store, so this one gets a store of its own. Layers
        // still read the real store, where the rules and the budgets are.
        let dispatcher = Dispatcher::builder(self.assembly.stack.clone())
            .keyring(self.keyring.clone())
            .build()
            .await?;
        let env = CallEnv::new(
            self.options.dispatch.clock().clone(),
            self.store.clone(),
            std::sync::Arc::new(toolgate_core::NoProbe),
        );
        let seed = CallSeed {
            env,
            ..dispatcher.rehearse_call(&view, &request)
        };
        Ok(toolgate_layers::explain(&self.assembly.stack, seed).await)
    }

    /// Returns the service that lists and decides approval requests, of this and other processes.
    pub fn approvals(&self) -> ApprovalService {
        ApprovalService::new(self.store.clone())
            .keyring(self.keyring.clone())
            .redactor(self.assembly.redactor.clone())
            .notify_layers(&self.assembly.stack)
    }

    /// Returns the search over all sessions of the store.
    pub fn search(&self) -> SearchService {
        self.assembly.search.clone()
    }

    /// Returns an exporter of the sessions in the store, with the redactor of the gate.
    ///
    /// ```
    /// use std::io::Cursor;
    /// use toolgate::{Gate, archive::{ExportFormat, ExportOptions, ExportRedaction}, model::ScriptedModel};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let here = Gate::in_memory()?;
    /// let session = here.session(ScriptedModel::new(["Hello."])).await?;
    /// session.run("Hi.").await?;
    /// let mut page = Vec::new();
    /// let done = here.exporter().export(&[session.id()], &ExportOptions::default(), &mut page).await?;
    /// assert!(done.redacted && String::from_utf8(page)?.contains("Hello."));
    ///
    /// let raw = ExportOptions { format: ExportFormat::Json, redaction: ExportRedaction::Raw, ..ExportOptions::default() };
    /// let mut file = Vec::new();
    /// here.exporter().export(&[session.id()], &raw, &mut file).await?;
    /// let there = Gate::in_memory()?;
    /// let results = there.importer().import_archive(Cursor::new(&file)).await?;
    /// assert_eq!((results[0].session, results[0].message_count), (session.id(), 2));
    /// let resumed = there.open_session(session.id(), ScriptedModel::new(["No."])).await;
    /// assert!(resumed.is_err_and(|error| error.to_string().contains("cannot be resumed")));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub fn exporter(&self) -> Exporter {
        let redactor = std::sync::Arc::new(self.assembly.redactor.clone());
        Exporter::new(self.store.clone()).redactor(redactor)
    }

    /// Returns an importer into the store. The text of other programs passes the redactor of the gate
    /// before it is stored.
    pub fn importer(&self) -> Importer {
        let redactor = std::sync::Arc::new(self.assembly.redactor.clone());
        let now = self.options.dispatch.clock().now();
        Importer::new(self.store.clone(), now).redactor(redactor)
    }

    /// Returns the standing rules, which decide on requests beforehand.
    pub fn standing_rules(&self) -> RuleBook {
        let rules = self.assembly.resources.get();
        rules.unwrap_or_else(|| RuleBook::new(self.store.clone(), self.keyring.clone()))
    }

    /// Returns the ledger of receipts.
    pub fn ledger(&self) -> Ledger {
        Ledger::main(self.store.clone())
    }

    /// Returns the key that signs checkpoints of the ledger.
    pub fn ledger_key(&self) -> LedgerKey {
        self.keyring.ledger_key()
    }

    /// Verifies the receipts since the last checkpoint and signs the head of the chain, so that a
    /// truncated chain is detected. Returns `None` if there is no receipt yet.
    ///
    /// # Errors
    ///
    /// Fails as [`EvidenceService::sign_checkpoint`] does: a changed chain is never signed.
    pub async fn sign_checkpoint(&self) -> Result<Option<Checkpoint>, LedgerError> {
        self.evidence().sign_checkpoint().await
    }

    /// Returns the service that signs and verifies the receipts, and remembers what was signed.
    pub fn evidence(&self) -> EvidenceService {
        let clock = self.options.dispatch.clock().clone();
        let mut evidence =
            EvidenceService::new(self.store.clone(), self.keyring.clone()).clock(clock);
        if let Some(state) = &self.options.evidence_dir {
            evidence = evidence.state_dir(state);
        }
        match &self.options.address {
            Some(address) => evidence.address(address),
            None => evidence,
        }
    }

    /// Returns the store of sessions, approvals and receipts.
    pub fn store(&self) -> &StoreHandle {
        &self.store
    }

    /// Returns the stack that every call passes.
    pub fn stack(&self) -> &Stack {
        &self.assembly.stack
    }

    /// Returns the configuration in effect, with all changes applied.
    pub fn configuration(&self) -> &Config {
        &self.assembly.config
    }

    /// Returns the `[run]` section of the configuration.
    pub fn run_section(&self) -> &RunSection {
        &self.assembly.run
    }

    /// Returns the `AGENTS.md` or `CLAUDE.md` of the project, and whether models read it; only with
    /// [`GateBuilder::project_context`].
    pub fn project_instructions(&self) -> &ProjectInstructions {
        &self.assembly.project
    }

    /// Returns the services that layers share with displays: toasts, progress, changed files.
    pub fn resources(&self) -> &Resources {
        &self.assembly.resources
    }

    /// Returns a text as events show it: without secrets. Text of a model is shown only like this.
    pub fn redact_text(&self, text: &str) -> String {
        let redacted = self.assembly.redactor.redact_text(text);
        // If the redactor fails, nothing may be shown.
        redacted.unwrap_or_else(|_| "[redacted]".to_owned())
    }

    /// Returns the user on whose behalf sessions work, if one is set.
    pub fn user(&self) -> Option<&Principal> {
        self.options.user.as_ref()
    }

    /// Returns what happens to calls that need an approval.
    pub fn approve_mode(&self) -> ApproveMode {
        self.assembly.approve
    }

    /// Returns the names of the configured agents.
    pub fn agent_names(&self) -> impl Iterator<Item = ToolName> + '_ {
        let agents = self.assembly.agents.0.iter();
        agents.map(|agent| ToolName::from(agent.name.as_str()))
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate")
            .field("stack", &self.assembly.stack)
            .field("workspace", &self.options.workspace)
            .finish_non_exhaustive()
    }
}
