//! Agents that a model can delegate work to: sessions of their own, taken up again with the call that began them.

use std::{fmt, sync::Arc};

use serde_json::json;
use tokio_util::sync::CancellationToken;
use toolgate_core::{
    Annotations, CallError, ErrorCategory, Model, Outcome, RegisterError, Registry, RunEnd, Schema,
    SessionId, SideEffect, Stack, Status, ToolName, ToolSpec,
};

use crate::{
    CallResult, Dispatcher, Pending, RunOptions, RunReport, Session, SessionBuildError,
    SessionBuilder, SessionError, session::Shared,
};

type Adjust = Arc<dyn Fn(SessionBuilder) -> SessionBuilder + Send + Sync>;

/// An agent that a session can delegate work to, under the name of a tool.
///
/// Its calls pass the same layers as those of the session unless it has a stack of its own, and are kept in the same
/// store, in a session that is named after the call. If one of them waits for a decision, so does the run that
/// delegated, and whoever drives that one can decide.
#[derive(Clone)]
pub struct Agent {
    pub(crate) name: ToolName,
    description: String,
    model: Arc<dyn Model>,
    registry: Registry,
    stack: Option<Stack>,
    adjust: Adjust,
}

/// How far an agent came with a call.
pub(crate) enum Delegated {
    Done(Outcome),
    Waits(Vec<Pending>),
}

impl Agent {
    /// An agent called `name`; `description` tells the model what to delegate to it.
    pub fn new(
        name: impl Into<ToolName>,
        description: impl Into<String>,
        model: impl Model,
        registry: Registry,
    ) -> Self {
        let (name, description, model) = (name.into(), description.into(), Arc::new(model));
        Self {
            name,
            description,
            model,
            registry,
            stack: None,
            adjust: Arc::new(|builder| builder),
        }
    }

    /// A stack of its own, over its registry.
    pub fn stack(mut self, stack: Stack) -> Self {
        self.stack = Some(stack);
        self
    }

    /// Sets up its sessions: instructions, limits, agents of its own.
    pub fn session(
        mut self,
        with: impl Fn(SessionBuilder) -> SessionBuilder + Send + Sync + 'static,
    ) -> Self {
        self.adjust = Arc::new(with);
        self
    }

    /// Offers the agent as a tool that something outside the stack runs: the session that delegates.
    pub(crate) fn register(&self, registry: &Registry) -> Result<(), RegisterError> {
        let schema = json!({
            "type": "object",
            "properties": { "task": { "type": "string", "description": "What the agent should do, in full: it sees nothing else." } },
            "required": ["task"],
            "additionalProperties": false,
        });
        let schema = Schema::new(schema).expect("the schema above is valid");
        let annotations = Annotations::default().with_side_effect(SideEffect::None);
        let spec = ToolSpec::new(self.name.clone(), self.description.clone(), schema)
            .with_annotations(annotations);
        // The same registry may serve several sessions.
        match registry.get(self.name.as_str()) {
            Some(known) if known.spec == spec => Ok(()),
            _ => registry.register_host(spec).map(drop),
        }
    }

    /// Works on a call of a run, from where it was left.
    pub(crate) async fn work(
        &self,
        parent: &Arc<Shared>,
        call: &CallResult,
        run: u64,
        cancel: CancellationToken,
    ) -> Result<Delegated, SessionError> {
        let session = match self.open(parent, call, run).await {
            Ok(session) => session,
            Err(SessionBuildError::Open(error)) => return Err(error),
            Err(error) => return Ok(Delegated::Done(broken(&error))),
        };
        let task = call
            .arguments
            .as_ref()
            .and_then(|arguments| arguments.get("task"))
            .and_then(|task| task.as_str());
        let task = task.unwrap_or_default().to_owned();
        let run = async {
            if session.shared().is_new() {
                session.run(task).await
            } else {
                session.resume().await
            }
        };
        let mut run = std::pin::pin!(run);
        let report = tokio::select! {
            biased;
            report = &mut run => report?,
            // Whoever delegated was stopped. The agent settles what it has under way and ends, too.
            () = cancel.cancelled() => {
                session.interrupt();
                run.await?
            }
        };
        Ok(self.delegated(report))
    }

    /// Gives up what the agent left waiting for a call that is not wanted any more.
    pub(crate) async fn call_off(
        &self,
        parent: &Arc<Shared>,
        call: &CallResult,
        run: u64,
    ) -> Result<(), SessionError> {
        match self.open(parent, call, run).await {
            Ok(session) if session.shared().is_new() => Ok(()),
            Ok(session) => {
                session
                    .shared()
                    .enter(RunOptions::default())
                    .await?
                    .give_up_open_turn()
                    .await
            }
            Err(SessionBuildError::Open(error)) => Err(error),
            // An agent that cannot be set up has nothing under way.
            Err(SessionBuildError::Stack(_) | SessionBuildError::Agent(_)) => Ok(()),
        }
    }

    /// The session of a call: the same one whenever the call is taken up.
    async fn open(
        &self,
        parent: &Arc<Shared>,
        call: &CallResult,
        run: u64,
    ) -> Result<Session, SessionBuildError> {
        let stack = match &self.stack {
            Some(stack) => stack.clone(),
            None => {
                let stack = parent.dispatcher.stack();
                stack
                    .with_layers(stack.any_layers(), Some(self.registry.clone()))
                    .build()?
            }
        };
        let above: Dispatcher = parent.dispatcher.clone();
        let builder = SessionBuilder::new(self.model.clone(), self.registry.clone())
            .named(self.name.as_str(), self.name.as_str())
            .inherit(parent, run);
        let builder = (self.adjust)(builder).stack(stack);
        let session = SessionId::new(call.id.uuid());
        Box::pin(
            builder
                .dispatcher(move |builder| builder.beside(&above).session(session))
                .build(),
        )
        .await
    }

    fn delegated(&self, report: RunReport) -> Delegated {
        match report.end {
            RunEnd::Suspended => {
                let mut pending = report.pending;
                pending
                    .iter_mut()
                    .for_each(|pending| pending.agents.insert(0, self.name.clone()));
                Delegated::Waits(pending)
            }
            RunEnd::Completed => Delegated::Done(Outcome::ok(report.text)),
            RunEnd::MaxIterations => {
                let text = format!(
                    "{}\n\n(The agent used up its rounds; this is not complete.)",
                    report.text
                );
                Delegated::Done(Outcome::ok(text))
            }
            RunEnd::Cancelled => {
                Delegated::Done(Outcome::refused(Status::Cancelled, "the agent was stopped"))
            }
            RunEnd::BudgetExceeded => Delegated::Done(Outcome::refused(
                Status::BudgetExceeded,
                "the agent has no budget left",
            )),
            RunEnd::LoopGuard => Delegated::Done(Outcome::refused(
                Status::LoopGuard,
                "the agent went round in circles",
            )),
            RunEnd::Failed => {
                let detail = report.error.map(|error| crate::kernel::chain(&error));
                let error = CallError::new(
                    ErrorCategory::Unknown,
                    "the agent could not finish its work",
                );
                Delegated::Done(Outcome::error(
                    Status::ExecutorError,
                    CallError {
                        operator: detail,
                        ..error
                    },
                ))
            }
        }
    }
}

fn broken(error: &SessionBuildError) -> Outcome {
    let detail = Some(crate::kernel::chain(error));
    let error = CallError::new(ErrorCategory::Internal, "the agent could not be started");
    Outcome::error(
        Status::ExecutorError,
        CallError {
            operator: detail,
            ..error
        },
    )
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent")
            .field("name", &self.name)
            .field("model", self.model.name())
            .finish_non_exhaustive()
    }
}
