//! Agents that a model can delegate work to: sessions of their own, resumed with the call that
//! began them.

pub(crate) mod handoff_limits;
pub(crate) mod recursive;
pub(crate) mod skills;
pub(crate) mod strategy;

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use serde_json::json;
use tokio_util::sync::CancellationToken;
use toolgate_core::{
    Annotations, AnyLayer, BudgetError, CallError, ErrorCategory, Failure, Labels, Model, Outcome,
    Refusal, RegisterError, Registry, RunEnd, Schema, SideEffect, ToolName, ToolSpec, note_keys,
};

use crate::{
    CallResult, Dispatcher, Gated, PendingCall, RunError, RunOptions, RunReport, Session,
    SessionBuildError, SessionBuilder, SessionError,
    agent::handoff_limits::HandoffLimits,
    session::{SessionShared, run::steps::SessionRun, tools::place_layers},
};

type SessionSetup = Arc<dyn Fn(SessionBuilder<Gated>) -> SessionBuilder<Gated> + Send + Sync>;

/// An agent that a session can delegate work to, under the name of a tool.
///
/// Its calls pass the same layers as those of the session, with those that the delegating run and
/// its strategies added. A [handoff](toolgate_core::PolicyOverride) to the agent in the same run can
/// only tighten that. They are stored in the same store, in a session that is named after the
/// call. If one of them waits for a decision, so does the run that delegated, and the decision can
/// be made through that run.
#[derive(Clone)]
pub struct Agent {
    pub(crate) name: ToolName,
    description: String,
    model: Arc<dyn Model>,
    registry: Registry,
    adjust: SessionSetup,
}

/// The run that delegates a call to an agent.
#[derive(Clone, Copy)]
pub(crate) struct DelegatingRun<'a> {
    pub(crate) session: &'a Arc<SessionShared>,
    pub(crate) run: u64,
    pub(crate) labels: &'a Labels,
    /// The layers that the run and its strategies added. They cover the agent, too.
    pub(crate) layers: &'a [AnyLayer],
    /// The time that the run has left, if it has a deadline. The agent has no more.
    pub(crate) time_left: Option<Duration>,
}

/// The state of an agent's work on a call.
pub(crate) enum DelegationState {
    Done(Outcome),
    Pending(Vec<PendingCall>),
}

impl Agent {
    /// Creates an agent called `name`; `description` tells the model what to delegate to it.
    pub fn new(
        name: impl Into<ToolName>,
        description: impl Into<String>,
        model: impl Model,
        registry: Registry,
    ) -> Self {
        let name = name.into();
        let description = description.into();
        let model = Arc::new(model);
        Self {
            name,
            description,
            model,
            registry,
            adjust: Arc::new(|builder| builder),
        }
    }

    /// Configures its sessions: instructions, limits, agents of its own.
    pub fn session(
        mut self,
        with: impl Fn(SessionBuilder<Gated>) -> SessionBuilder<Gated> + Send + Sync + 'static,
    ) -> Self {
        self.adjust = Arc::new(with);
        self
    }

    /// Registers the agent as a tool that is executed outside the stack, by the session that
    /// delegates.
    pub(crate) fn register_tool(&self, registry: &Registry) -> Result<(), RegisterError> {
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
        registry.register_host(spec).map(drop)
    }

    /// Works on a call of a run, continuing where it was left.
    pub(crate) async fn work_on(
        &self,
        by: DelegatingRun<'_>,
        call: &CallResult,
        cancel: CancellationToken,
    ) -> Result<DelegationState, SessionError> {
        let session = match self.open_session(by, call).await {
            Ok(session) => session,
            Err(SessionBuildError::Open(error)) => return Err(error),
            Err(error) => return Ok(DelegationState::Done(start_failure(&error))),
        };
        let task = call
            .arguments
            .as_ref()
            .and_then(|arguments| arguments.get("task"))
            .and_then(|task| task.as_str());
        let task = task.unwrap_or_default().to_owned();
        let run = async {
            // A session with messages was begun earlier; its task is in the conversation.
            let options = RunOptions {
                deadline: by.time_left,
                ..RunOptions::default()
            };
            if session.shared().is_new() {
                session.run_with(task, options).await
            } else {
                session.resume_with(options).await
            }
        };
        let mut run = std::pin::pin!(run);
        let report = tokio::select! {
            // A report that is ready counts, even if the run is cancelled at the same moment.
            biased;
            report = &mut run => report?,
            // The delegating run was stopped. The agent settles what it has under way and ends,
            // too.
            () = cancel.cancelled() => {
                if by.session.keep_pending.load(Ordering::SeqCst) {
                    session.suspend();
                } else {
                    session.interrupt();
                }
                run.await?
            }
        };
        Ok(self.to_delegation(report))
    }

    /// Cancels the pending work of the agent for a call that was cancelled.
    pub(crate) async fn cancel_call(
        &self,
        by: DelegatingRun<'_>,
        call: &CallResult,
    ) -> Result<(), SessionError> {
        match self.enter_session(by, call).await? {
            Some(mut work) => work.cancel_open_turn().await,
            None => Ok(()),
        }
    }

    /// Runs what is approved of the agent's work, and cancels the rest.
    pub(crate) async fn abandon_call(
        &self,
        by: DelegatingRun<'_>,
        call: &CallResult,
    ) -> Result<(), SessionError> {
        match self.enter_session(by, call).await? {
            Some(mut work) => work.abandon_open_turn().await,
            None => Ok(()),
        }
    }

    /// Enters the session of a call, if the agent has begun to work on it.
    async fn enter_session(
        &self,
        by: DelegatingRun<'_>,
        call: &CallResult,
    ) -> Result<Option<SessionRun>, SessionError> {
        match self.open_session(by, call).await {
            Ok(session) if session.shared().is_new() => Ok(None),
            Ok(session) => session
                .shared()
                .enter_run(RunOptions::default())
                .await
                .map(Some),
            Err(SessionBuildError::Open(error)) => Err(error),
            // An agent that cannot be built has nothing under way.
            Err(
                SessionBuildError::Stack(_)
                | SessionBuildError::Agent(_)
                | SessionBuildError::Label(_),
            ) => Ok(None),
        }
    }

    /// Opens the session of a call: the same one whenever the call is resumed.
    async fn open_session(
        &self,
        by: DelegatingRun<'_>,
        call: &CallResult,
    ) -> Result<Session, SessionBuildError> {
        let parent = by.session;
        let stack = parent.dispatcher.stack();
        // With the layers of the run: a model whose call they block must not be able to delegate
        // it.
        let session = call.id.agent_session();
        let mut layers = by.layers.to_vec();
        let limits = HandoffLimits::load(by, &self.name, session).await;
        layers.extend(limits.map_err(SessionError::from)?.map(AnyLayer::new));
        let stack = place_layers(stack.extend_over(self.registry.clone()), layers)?;
        let above: Dispatcher = parent.dispatcher.clone();
        let builder = SessionBuilder::new(self.model.clone(), self.registry.clone())
            .named(self.name.as_str(), self.name.as_str())
            .inherit_from(by)
            .seal();
        Box::pin(
            (self.adjust)(builder)
                .wire_agent(stack, move |builder| {
                    let builder = builder.share_parts_of(&above).parent(above.session());
                    builder.session(session)
                })
                .build(),
        )
        .await
    }

    fn to_delegation(&self, report: RunReport) -> DelegationState {
        match report.end {
            // The deadline is that of the delegating run, which ends, too. Both can be resumed.
            RunEnd::Suspended | RunEnd::Deadline => {
                let mut pending = report.pending;
                pending
                    .iter_mut()
                    .for_each(|pending| pending.agents.insert(0, self.name.clone()));
                DelegationState::Pending(pending)
            }
            RunEnd::Completed => DelegationState::Done(Outcome::ok(report.text)),
            RunEnd::MaxIterations => {
                let text = format!(
                    "{}\n\n(The agent reached its limit of iterations; this is not complete.)",
                    report.text
                );
                DelegationState::Done(Outcome::ok(text))
            }
            RunEnd::Cancelled => DelegationState::Done(Outcome::refused(
                Refusal::Cancelled,
                "the agent was stopped",
            )),
            RunEnd::BudgetExceeded => {
                let why = match &report.error {
                    Some(RunError::Budget(error)) if !matches!(**error, BudgetError::Store(_)) => {
                        error.to_string()
                    }
                    // Errors of the store are for operators.
                    _ => "the budget limit was reached".to_owned(),
                };
                let text = format!("the agent was stopped: {why}");
                DelegationState::Done(Outcome::refused(Refusal::BudgetExceeded, text))
            }
            RunEnd::LoopGuard => DelegationState::Done(Outcome::refused(
                Refusal::LoopGuard,
                "the agent was stopped because a loop was detected",
            )),
            RunEnd::Failed => {
                let receipt_lost = matches!(report.error, Some(RunError::ReceiptLost { .. }));
                let detail = report.error.map(|error| toolgate_core::error_chain(&error));
                let error = CallError::new(
                    ErrorCategory::Unknown,
                    "the agent could not finish its work",
                );
                let outcome = Outcome::error(
                    Failure::ExecutorError,
                    CallError {
                        operator: detail,
                        ..error
                    },
                );
                DelegationState::Done(if receipt_lost {
                    // The run that delegated has to end, too.
                    outcome.with_notes(|notes| notes.insert(note_keys::RECEIPT_MISSING, &true))
                } else {
                    outcome
                })
            }
        }
    }
}

fn start_failure(error: &SessionBuildError) -> Outcome {
    let detail = Some(toolgate_core::error_chain(error));
    let error = CallError::new(ErrorCategory::Internal, "the agent could not be started");
    Outcome::error(
        Failure::ExecutorError,
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
