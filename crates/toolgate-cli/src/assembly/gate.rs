//! The assembly of a session: tools, layers, store, keys and approver, built once per command.

use std::sync::Arc;

use toolgate::{
    Approver, Config, Decision, Model, Registry, Resources, Session, Stack,
    approval::{ApprovalRequest, ApprovalService, Keyring},
    budget::Payer,
    layers::{FilePreview, Ledger, LedgerError, PathBase, RuleBook, SharedRedactor},
    ledger::{Checkpoint, LedgerKey},
    model::ModelName,
    session::{DispatcherBuilder, SessionBuilder},
    store::StoreHandle,
    value::{Clock, Principal, SessionId, SystemClock},
};

use crate::{
    CliError, CommandContext,
    assembly::{isolation, rules, tools},
    env::settings::{AgentsSection, ApproveMode, RunSection},
};

/// The options of the gate, which override the configuration.
#[derive(Debug, Clone, Default, PartialEq, clap::Args)]
#[command(next_help_heading = "The gate")]
pub struct GateArgs {
    /// Set what happens to calls that need an approval
    #[arg(long, value_name = "MODE")]
    pub approve: Option<ApproveMode>,
    /// Allow these calls: a tool, or tool(pattern) for a command, path or host
    #[arg(long, value_name = "CALL")]
    pub allow: Vec<String>,
    /// Block these calls, whatever else allows them
    #[arg(long, value_name = "CALL")]
    pub deny: Vec<String>,
}

/// The assembly of tools, layers, store and keys.
#[derive(Debug)]
pub struct CliGate {
    /// The configuration, with the options of the command line applied.
    pub config: Config,
    /// The services that layers share with displays: toasts, progress, changed files.
    pub parts: Resources,
    /// The tools.
    pub registry: Registry,
    /// The layers over the tools.
    pub stack: Stack,
    /// The store of sessions, approvals and receipts.
    pub store: StoreHandle,
    /// The keys that sign approvals.
    pub keyring: Keyring,
    /// The key that signs checkpoints of the receipts.
    pub ledger_key: LedgerKey,
    /// The user at the terminal.
    pub me: Principal,
    /// The handling of calls that need an approval.
    pub approve: ApproveMode,
    /// The decision on every approval request; `None` if the user is asked.
    pub answer: Option<Decision>,
    run: RunSection,
    agents: AgentsSection,
}

impl CliGate {
    /// Builds the gate from the configuration and the command line, and opens the store.
    ///
    /// # Errors
    ///
    /// Fails if the configuration is invalid or not trusted, if the store or the keys cannot be
    /// opened, or if either lies inside the workspace.
    pub async fn open(cx: &CommandContext, args: &GateArgs) -> Result<Self, CliError> {
        // The configuration first: if it is invalid or not trusted, no database is created.
        let config = cx.load_config()?;
        let store = cx.open_store().await?;
        Self::with_store(cx, config, store, args)
    }

    /// Builds the gate over a store that is open already.
    ///
    /// # Errors
    ///
    /// Fails like [`CliGate::open`].
    pub fn with_store(
        cx: &CommandContext,
        config: Config,
        store: StoreHandle,
        args: &GateArgs,
    ) -> Result<Self, CliError> {
        // Before `load_keys`, which would create the keys where the agent can reach them.
        isolation::reject_exposed_secrets(&cx.paths)?;
        let run: RunSection = config.section()?;
        let approve = args.approve.unwrap_or(run.approve);
        let config = rules::apply_gate_args(config, approve, args)?;
        let keys = cx.load_keys()?;
        let keyring = keys.keyring();
        let ledger_key = keys.ledger_key();
        let me = cx.current_user();
        let parts = shared_resources(cx, &store, &me).keyring(keyring.clone());
        let registry = tools::build_registry(&cx.paths.workspace, &store, &config)?;
        let stack = config.build(registry.clone(), &parts)?;
        let agents = config.section()?;
        let answer = fixed_decision(approve, &me);
        Ok(Self {
            config,
            parts,
            registry,
            stack,
            store,
            keyring,
            ledger_key,
            me,
            approve,
            answer,
            run,
            agents,
        })
    }

    /// Returns the `[run]` section of the configuration.
    pub fn run_section(&self) -> &RunSection {
        &self.run
    }

    /// Returns the names of the agents that the model can delegate to.
    pub fn agent_names(&self) -> impl Iterator<Item = String> + '_ {
        self.agents.0.iter().map(|agent| agent.name.clone())
    }

    /// Returns the service that lists and decides approvals.
    pub fn approval_service(&self) -> ApprovalService {
        ApprovalService::new(self.store.clone()).keyring(self.keyring.clone())
    }

    /// Returns the ledger of receipts.
    pub fn ledger(&self) -> Ledger {
        Ledger::main(self.store.clone())
    }

    /// Verifies the receipts since the last checkpoint and signs the head of the chain, so that a
    /// truncated chain is detected. Returns `None` if there is no receipt yet.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot answer, or if the verification fails: a changed chain is never
    /// signed.
    pub async fn sign_checkpoint(&self) -> Result<Option<Checkpoint>, LedgerError> {
        let ledger = self.ledger();
        let heads = self.store.ledgers().await?;
        if !heads
            .iter()
            .any(|head| head.ledger == *ledger.name() && head.counter > 0)
        {
            return Ok(None);
        }
        ledger
            .sign_checkpoint(&self.ledger_key, SystemClock::new().now())
            .await
            .map(Some)
    }

    /// Returns the set-up of a dispatcher: store, keys, session, redactor and approver.
    pub fn dispatcher_setup(
        &self,
        session: Option<SessionId>,
    ) -> impl FnOnce(DispatcherBuilder) -> DispatcherBuilder + use<> {
        let store = self.store.clone();
        let keyring = self.keyring.clone();
        let redactor = self.parts.get::<SharedRedactor>();
        let answer = self.answer.clone().map(StandingApprover);
        move |builder| {
            let mut builder = builder.store_handle(store).keyring(keyring);
            if let Some(session) = session {
                builder = builder.session(session);
            }
            // Without it, events would show the secrets that the stack redacts for the model.
            if let Some(redactor) = redactor {
                builder = builder.redactor(redactor);
            }
            match answer {
                Some(answer) => builder.approver(answer),
                None => builder,
            }
        }
    }

    /// Returns the builder of a session with this model: a new session, or the one that is named.
    pub fn session_builder(
        &self,
        model: Arc<dyn Model>,
        session: Option<SessionId>,
    ) -> Result<SessionBuilder, CliError> {
        let mut builder = Session::builder(model.clone(), self.registry.clone())
            .stack(self.stack.clone())
            .instructions(self.run.instructions.as_deref().unwrap_or(INSTRUCTIONS))
            .principal(self.me.clone())
            .budgets(self.config.budgets().clone())
            .payer(self.parts.get::<Payer>().unwrap_or_default())
            .prices(crate::assembly::model::load_prices(&self.run)?)
            .dispatcher(self.dispatcher_setup(session));
        if let Some(rounds) = self.run.max_iterations {
            builder = builder.max_iterations(rounds);
        }
        if let Some(tokens) = self.run.max_tokens {
            builder = builder.max_tokens(tokens);
        }
        if let Some(effort) = self.run.effort {
            builder = builder.effort(effort);
        }
        for agent in &self.agents.0 {
            builder = builder.agent(crate::assembly::agents::build_agent(
                agent,
                &model,
                &self.registry,
            )?);
        }
        crate::assembly::agents::install_skills(builder, &self.run, &self.registry)
    }

    /// Opens the model that the command line or the configuration names.
    pub fn open_model(&self, named: Option<&ModelName>) -> Result<Arc<dyn Model>, CliError> {
        crate::assembly::model::open_model(named, &self.run)
    }
}

/// Returns the services that layers need and no file can describe.
pub(crate) fn shared_resources(
    cx: &CommandContext,
    store: &StoreHandle,
    me: &Principal,
) -> Resources {
    let workspace = PathBase::new(&cx.paths.workspace);
    let project = cx.paths.workspace.display().to_string();
    let payer = Payer {
        user: Some(me.as_str().into()),
        project: Some(project.as_str().into()),
        ..Payer::default()
    };
    Resources::new()
        .store(store.clone())
        .payer(payer)
        .rule_book(RuleBook::new(store.clone()).in_project(&project))
        .preview(FilePreview::new(&workspace))
        .path_base(workspace.root())
}

/// The system instructions, unless the configuration has others.
pub const INSTRUCTIONS: &str = "\
You work in a project directory with the tools you are given. Paths are relative to that directory. Look before you \
change anything, make the smallest change that does what was asked, and check it. Independent calls can be made at \
once. A call may be blocked or need an approval; its result says so and what to do next. When you are done, say in a \
few sentences what you did and what you found.";

/// Returns the decision on every approval request that `--approve yes` or `--approve never` stands
/// for.
fn fixed_decision(mode: ApproveMode, me: &Principal) -> Option<Decision> {
    // The name in the record carries the option: no person has looked at the call itself.
    match mode {
        ApproveMode::Yes => Some(Decision::approve(format!("{me} (--approve yes)").as_str())),
        ApproveMode::Never => {
            let by = format!("{me} (--approve never)");
            let reason = "approvals are switched off for this run";
            Some(Decision::deny(by.as_str(), Some(reason)))
        }
        ApproveMode::Ask | ApproveMode::AutoRead | ApproveMode::AutoEdit => None,
    }
}

/// An approver that gives the same decision on every request.
#[derive(Debug, Clone)]
struct StandingApprover(Decision);

impl Approver for StandingApprover {
    async fn decide(&self, _request: ApprovalRequest) -> Option<Decision> {
        Some(self.0.clone())
    }
}
