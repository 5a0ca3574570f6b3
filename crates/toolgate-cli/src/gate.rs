//! Everything that a session of the command line is made of, put together once: tools, layers, store, keys.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use toolgate::{
    ApprovalRequest, Approvals, Approver, Checkpoint, Clock, Config, Decision, DispatcherBuilder,
    Keyring, LedgerKey, Model, ModelName, Parts, Payer, Principal, Registry, Session,
    SessionBuilder, SessionId, SharedRedactor, Stack, StoreHandle, SystemClock,
    layers::{FilePreview, Ledger, LedgerError, RuleBook, SharedPreview, Workspace},
};

use crate::{
    CliError, Cx,
    paths::Paths,
    rules,
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
    /// What checkpoints of the receipts are signed with.
    pub ledger_key: LedgerKey,
    /// Who sits at the keyboard.
    pub me: Principal,
    /// What happens to calls that need an approval.
    pub approve: ApproveMode,
    /// What every question is answered with; nothing if somebody is asked.
    pub answer: Option<Decision>,
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
    pub fn over(
        cx: &Cx,
        config: Config,
        store: StoreHandle,
        args: &GateArgs,
    ) -> Result<Self, CliError> {
        out_of_reach(&cx.paths)?;
        let run: RunSection = config.section()?;
        let approve = args.approve.unwrap_or(run.approve);
        let config = rules::overlay(config, approve, args)?;
        let keys = cx.keys()?;
        let (keyring, ledger_key, me) = (keys.keyring(), keys.ledger_key(), cx.me());
        let parts = parts(cx, &store, &me).with(keyring.clone());
        let registry = Registry::new();
        tools::register(
            &registry,
            &cx.paths.workspace,
            &store,
            &config.section::<ToolsSection>()?,
        )?;
        let stack = config.build(registry.clone(), &parts)?;
        let agents = config.section()?;
        let answer = standing_answer(approve, &me);
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

    /// Verifies what came since the last checkpoint and signs where the chain stands, so that a cut-off end shows. Nothing
    /// if there is no receipt yet.
    pub async fn vouch(&self) -> Result<Option<Checkpoint>, LedgerError> {
        let ledger = self.ledger();
        let heads = self.store.ledgers().await?;
        if !heads
            .iter()
            .any(|head| head.ledger == *ledger.name() && head.counter > 0)
        {
            return Ok(None);
        }
        ledger
            .checkpoint(&self.ledger_key, SystemClock::new().now())
            .await
            .map(Some)
    }

    /// Sets up what runs turns: where they are kept, with which keys, who is asked, what is redacted.
    pub fn dispatcher(
        &self,
        session: Option<SessionId>,
    ) -> impl FnOnce(DispatcherBuilder) -> DispatcherBuilder + use<> {
        let (store, keyring) = (self.store.clone(), self.keyring.clone());
        let redactor = self.parts.get::<SharedRedactor>();
        let answer = self.answer.clone().map(Answering);
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
    pub fn session(
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
    let (workspace, project) = (
        Workspace::new(&cx.paths.workspace),
        cx.paths.workspace.display().to_string(),
    );
    let payer = Payer {
        user: Some(me.as_str().into()),
        project: Some(project.as_str().into()),
        ..Payer::default()
    };
    Parts::new()
        .with(store.clone())
        .with(payer)
        .with(RuleBook::new(store.clone()).in_project(&project))
        .with(SharedPreview::new(FilePreview::new(&workspace)))
        .with(workspace)
}

/// Makes sure that what the gate itself stands on cannot be reached through it: keys, trusted configurations, the
/// database.
fn out_of_reach(paths: &Paths) -> Result<(), CliError> {
    let database = paths
        .db
        .strip_prefix("sqlite:")
        .map(|path| PathBuf::from(path.trim_start_matches("//")));
    let kept = [
        ("the keys of the gate are in", Some(paths.home.clone())),
        ("the database is", database),
    ];
    for (what, path) in kept
        .into_iter()
        .filter_map(|(what, path)| Some((what, path?)))
    {
        let path = std::path::absolute(&path)
            .and_then(|path| resolved(&path))
            .unwrap_or(path);
        if path.starts_with(&paths.workspace) {
            let problem = format!(
                "{what} {}, which lies in the workspace: the agent could reach it",
                path.display()
            );
            let hint = "work in the directory of a project (-C), or name another place with TOOLGATE_HOME or --db";
            return Err(CliError::usage(problem).hint(hint));
        }
    }
    Ok(())
}

/// Where a path really is, also if it is not there yet.
fn resolved(path: &Path) -> std::io::Result<PathBuf> {
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Ok(path), ..) => Ok(path),
        (Err(_), Some(parent), Some(name)) => Ok(resolved(parent)?.join(name)),
        (Err(error), ..) => Err(error),
    }
}

/// What the model is told before everything else, unless the configuration says something else.
pub const INSTRUCTIONS: &str = "\
You work in a project directory with the tools you are given. Paths are relative to that directory. Look before you \
change anything, make the smallest change that does what was asked, and check it. Independent calls can be made at \
once. A call may be refused or wait for a person; its result says so and what to do next. When you are done, say in a \
few sentences what you did and what you found.";

/// What every question is answered with, because the command line said so. The record says that nobody looked at the
/// call itself.
fn standing_answer(mode: ApproveMode, me: &Principal) -> Option<Decision> {
    match mode {
        ApproveMode::Yes => Some(Decision::approve(format!("{me} (--approve yes)").as_str())),
        ApproveMode::Never => {
            let (by, reason) = (
                format!("{me} (--approve never)"),
                "nobody is asked in this run",
            );
            Some(Decision::deny(by.as_str(), Some(reason)))
        }
        ApproveMode::Ask | ApproveMode::AutoRead | ApproveMode::AutoEdit => None,
    }
}

/// Somebody who answers every question the same way.
#[derive(Debug, Clone)]
struct Answering(Decision);

impl Approver for Answering {
    async fn decide(&self, _request: ApprovalRequest) -> Option<Decision> {
        Some(self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_never_works_where_keys_or_the_database_are() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().canonicalize().expect("it is there");
        std::os::unix::fs::symlink(&root, root.join("link")).expect("made");
        let reached = |workspace: &str, home: &str, db: &str| {
            let (workspace, home, db) = (
                root.join(workspace),
                root.join(home),
                format!("sqlite:{}", root.join(db).display()),
            );
            out_of_reach(&Paths {
                workspace,
                home,
                named: None,
                user: None,
                user_config: None,
                db,
            })
            .is_err()
        };
        assert!(!reached("work", "home", "home/t.db"));
        assert!(
            reached("", "home", "/elsewhere/t.db"),
            "keys below the workspace"
        );
        assert!(
            reached("work", "link/work/home", "home/t.db"),
            "through a link"
        );
        assert!(reached("work", "home", "work/t.db"), "the database");
    }
}
