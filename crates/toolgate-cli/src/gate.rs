//! Everything that a session of the command line is made of, put together once: tools, layers, store, keys.

use std::sync::Arc;

use toolgate::{
    ApprovalRequest, Approvals, Approver, Config, Decision, DispatcherBuilder, Keyring, Model, ModelName, Parts, Payer,
    Principal, Registry, Session, SessionBuilder, SessionId, SharedRedactor, Stack, StoreHandle,
    layers::{FilePreview, Ledger, RuleBook, SharedPreview, Workspace},
};

use crate::{
    CliError, Cx, rules,
    settings::{AgentsSection, ApproveMode, RunSection, ToolsSection},
    tools,
};

/// What the command line says about the gate, over the configuration.
#[derive(Debug, Clone, Default, PartialEq, clap::Args)]
#[command(next_help_heading = "The gate")]
pub struct GateArgs {
    /// What happens to calls that need an approval
    #[arg(long, value_name = "MODE")]
    pub approve: Option<ApproveMode>,
    /// Let these calls go ahead: a tool, or tool(pattern) for a command, path or host
    #[arg(long, value_name = "CALL")]
    pub allow: Vec<String>,
    /// Refuse these calls, whatever else is said
    #[arg(long, value_name = "CALL")]
    pub deny: Vec<String>,
}

/// Tools, layers, store and keys, put together.
#[derive(Debug)]
pub struct Gate {
    /// The configuration, with what the command line says over it.
    pub config: Config,
    /// What layers share with screens: toasts, progress, changed files.
    pub parts: Parts,
    /// The tools.
    pub registry: Registry,
    /// The layers over the tools.
    pub stack: Stack,
    /// Where everything is kept.
    pub store: StoreHandle,
    /// What approvals are signed with.
    pub keyring: Keyring,
    /// Who sits at the keyboard.
    pub me: Principal,
    /// What happens to calls that need an approval.
    pub approve: ApproveMode,
    run: RunSection,
    agents: AgentsSection,
}

impl Gate {
    /// Opens the gate as the configuration and the command line say.
    pub async fn open(cx: &Cx, args: &GateArgs) -> Result<Self, CliError> {
        let config = cx.config()?;
        let store = cx.store().await?;
        Self::over(cx, config, store, args)
    }

    /// The same over a store that is open already.
    pub fn over(cx: &Cx, config: Config, store: StoreHandle, args: &GateArgs) -> Result<Self, CliError> {
        let run: RunSection = config.section()?;
        let approve = args.approve.unwrap_or(run.approve);
        let config = rules::overlay(config, approve, args)?;
        let (keyring, me) = (cx.keys()?.keyring(), cx.me());
        let parts = parts(cx, &store, &me).with(keyring.clone());
        let registry = Registry::new();
        tools::register(&registry, &cx.paths.workspace, &store, &config.section::<ToolsSection>()?)?;
        let stack = config.build(registry.clone(), &parts)?;
        let agents = config.section()?;
        Ok(Self { config, parts, registry, stack, store, keyring, me, approve, run, agents })
    }

    /// What the configuration says about runs.
    pub fn run_section(&self) -> &RunSection {
        &self.run
    }

    /// The names of the agents that can be delegated to.
    pub fn agent_names(&self) -> impl Iterator<Item = String> + '_ {
        self.agents.0.iter().map(|agent| agent.name.clone())
    }

    /// The desk where approvals are decided.
    pub fn desk(&self) -> Approvals {
        Approvals::new(self.store.clone()).keyring(self.keyring.clone())
    }

    /// The chain of receipts.
    pub fn ledger(&self) -> Ledger {
        Ledger::main(self.store.clone())
    }

    /// Sets up what runs turns: where they are kept, with which keys, who is asked, what is redacted.
    pub fn dispatcher(
        &self,
        session: Option<SessionId>,
    ) -> impl FnOnce(DispatcherBuilder) -> DispatcherBuilder + use<> {
        let (store, keyring) = (self.store.clone(), self.keyring.clone());
        let redactor = self.parts.get::<SharedRedactor>();
        let answer = Answering::of(self.approve, &self.me);
        move |builder| {
            let mut builder = builder.store_handle(store).keyring(keyring);
            if let Some(session) = session {
                builder = builder.session(session);
            }
            if let Some(redactor) = redactor {
                builder = builder.redactor(redactor);
            }
            match answer {
                Some(answer) => builder.approver(answer),
                None => builder,
            }
        }
    }

    /// A session with this model: a new one, or the one that is named. The caller adds limits and builds it.
    pub fn session(&self, model: Arc<dyn Model>, session: Option<SessionId>) -> Result<SessionBuilder, CliError> {
        let mut builder = Session::builder(model.clone(), self.registry.clone())
            .stack(self.stack.clone())
            .instructions(self.run.instructions.as_deref().unwrap_or(INSTRUCTIONS))
            .principal(self.me.clone())
            .budgets(self.config.budgets().clone())
            .payer(self.parts.get::<Payer>().unwrap_or_default())
            .prices(crate::model::prices(&self.run)?)
            .dispatcher(self.dispatcher(session));
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
            builder = builder.agent(crate::agents::agent(agent, &model, &self.registry)?);
        }
        crate::agents::with_skills(builder, &self.run, &self.registry)
    }

    /// The model that the command line or the configuration names.
    pub fn model(&self, named: Option<&ModelName>) -> Result<Arc<dyn Model>, CliError> {
        crate::model::open(named, &self.run)
    }
}

/// What layers need that no file can hold.
pub(crate) fn parts(cx: &Cx, store: &StoreHandle, me: &Principal) -> Parts {
    let (workspace, project) = (Workspace::new(&cx.paths.workspace), cx.paths.workspace.display().to_string());
    let payer = Payer { user: Some(me.as_str().into()), project: Some(project.as_str().into()), ..Payer::default() };
    Parts::new()
        .with(store.clone())
        .with(payer)
        .with(RuleBook::new(store.clone()).in_project(&project))
        .with(SharedPreview::new(FilePreview::new(&workspace)))
        .with(workspace)
}

/// What the model is told before everything else, unless the configuration says something else.
pub const INSTRUCTIONS: &str = "\
You work in a project directory with the tools you are given. Paths are relative to that directory. Look before you \
change anything, make the smallest change that does what was asked, and check it. Independent calls can be made at \
once. A call may be refused or wait for a person; its result says so and what to do next. When you are done, say in a \
few sentences what you did and what you found.";

/// Somebody who answers every question the same way, because the command line said so.
#[derive(Debug, Clone)]
struct Answering(Decision);

impl Answering {
    fn of(mode: ApproveMode, me: &Principal) -> Option<Self> {
        match mode {
            ApproveMode::Yes => Some(Self(Decision::approve(me.clone()))),
            ApproveMode::Never => {
                let reason = "nobody is asked in this run (--approve never)";
                Some(Self(Decision::deny(me.clone(), Some(reason))))
            }
            ApproveMode::Ask | ApproveMode::AutoRead | ApproveMode::AutoEdit => None,
        }
    }
}

impl Approver for Answering {
    async fn decide(&self, _request: ApprovalRequest) -> Option<Decision> {
        Some(self.0.clone())
    }
}
