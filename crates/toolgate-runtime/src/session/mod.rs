//! A conversation with a model that runs tools: stored as it happens, stopped half-way, resumed.

pub(crate) mod billing;
pub(crate) mod builder;
mod conversation;
mod history;
pub(crate) mod options;
mod output;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod stream;
mod tools;

use std::{
    collections::HashSet,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use toolgate_core::{
    AdmittedDecision, Decision, Labels, Message, Model, PartContent, Registry, SessionId,
    Timestamp, ToolName, TurnId, TurnInfo,
};

use crate::{
    Agent, Bus, DecisionTarget, DeliverError, Dispatcher, Journal, ModelBilling, RunError,
    RunInput, RunOptions, RunReport, SessionBuilder, SessionError, Strategy,
    session::{
        builder::{RequestSettings, RunLimits},
        conversation::{Conversation, ConversationState},
        run::{host_model::HostModel, steps::SessionRun},
        stream::RunStream,
        tools::RunTools,
    },
};

/// A conversation with a model that runs tools. Clones share it.
///
/// [`Session::run`] asks the model, runs the calls it asks for, sends it the results, and repeats
/// that until the model answers. Everything is in the store before it counts, so that
/// [`Session::resume`] continues where another process stopped.
///
/// ```
/// use toolgate_core::{Delta, Message, Model, ModelError, ModelName, ModelRequest, Registry, Reply, RunEnd};
/// use toolgate_runtime::Session;
///
/// struct Parrot(ModelName);
/// impl Model for Parrot {
///     fn name(&self) -> &ModelName { &self.0 }
///     fn reply<'a>(&'a self, request: &'a ModelRequest) -> futures::stream::BoxStream<'a, Result<Delta, ModelError>> {
///         let words = request.messages.last().map(|message| message.text()).unwrap_or_default();
///         let reply = Reply::new(Message::assistant(words));
///         Box::pin(futures::stream::iter([Ok(Delta::Done(Box::new(reply)))]))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let session = Session::builder(Parrot(ModelName::new("zoo", "parrot")), Registry::new()).build().await?;
/// let report = session.run("hello").await?;
/// assert_eq!((report.end, report.text.as_str()), (RunEnd::Completed, "hello"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Session(pub(crate) Arc<SessionShared>);

/// State that all clones of a session share.
pub(crate) struct SessionShared {
    pub(crate) dispatcher: Dispatcher,
    pub(crate) model: Arc<dyn Model>,
    pub(crate) registry: Registry,
    pub(crate) allowed: Option<Vec<String>>,
    pub(crate) ask: RequestSettings,
    pub(crate) limits: RunLimits,
    pub(crate) strategies: Vec<Arc<dyn Strategy>>,
    pub(crate) agents: Vec<Agent>,
    pub(crate) spending: ModelBilling,
    /// The part of the turn's identity that is the same for all turns.
    pub(crate) who: TurnInfo,
    pub(crate) conversation: Arc<tokio::sync::Mutex<Conversation>>,
    pub(crate) control: Mutex<Option<RunControl>>,
}

/// Access to the run that is under way.
pub(crate) struct RunControl {
    cancel: CancellationToken,
    steer: mpsc::UnboundedSender<SteeringMessage>,
}

/// A message that arrives while a run is under way.
pub(crate) struct SteeringMessage {
    pub(crate) message: Message,
    pub(crate) heard: oneshot::Sender<u64>,
}

impl Session {
    /// Creates a builder of a session with `model`, which may call the tools of `registry`.
    pub fn builder(model: impl Model, registry: Registry) -> SessionBuilder {
        SessionBuilder::new(Arc::new(model), registry)
    }

    /// Creates a builder of a session for a host that asks a model by itself. The host drives runs
    /// with [`Session::begin_hosted`], or gets tools with [`Session::arm_tools`]. [`Session::run`] fails in such
    /// a session.
    pub fn for_host(registry: Registry) -> SessionBuilder {
        SessionBuilder::new(Arc::new(HostModel::new()), registry)
    }

    /// Returns the session's id.
    pub fn id(&self) -> SessionId {
        self.0.dispatcher.session()
    }

    /// Returns the dispatcher that runs its turns.
    pub fn dispatcher(&self) -> &Dispatcher {
        &self.0.dispatcher
    }

    /// Returns the bus on which its events are published.
    pub fn bus(&self) -> &Bus {
        self.0.dispatcher.bus()
    }

    /// Sends a message to the model and runs until it has answered or has to wait.
    ///
    /// If calls of the last run still wait for a decision, they are cancelled: a user who writes
    /// something else instead of deciding does not want them.
    ///
    /// # Errors
    ///
    /// Fails if another run is under way, if another process took the session over, or if the store
    /// failed. A model that does not reply is not an error: the report has it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the run where it is. It can be resumed.
    pub async fn run(&self, input: impl Into<RunInput>) -> Result<RunReport, SessionError> {
        self.run_with(input, RunOptions::default()).await
    }

    /// Runs like [`Session::run`], with tools, layers and limits for this run only.
    ///
    /// # Errors
    ///
    /// Fails as [`Session::run`] does, and if the tools or layers do not fit together.
    pub async fn run_with(
        &self,
        input: impl Into<RunInput>,
        options: RunOptions,
    ) -> Result<RunReport, SessionError> {
        let input = input.into();
        self.0.clone().begin_run(Some(input), options).await
    }

    /// Continues where the session stopped: after a decision, an error, a limit, an interruption,
    /// or the loss of the process.
    ///
    /// Settled calls are not run again, and a reply that was received is not requested again. If
    /// there is nothing left to do, the report has the end of the last run.
    ///
    /// # Errors
    ///
    /// Fails as [`Session::run`] does.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the run where it is. It can be resumed again.
    pub async fn resume(&self) -> Result<RunReport, SessionError> {
        self.resume_with(RunOptions::default()).await
    }

    /// Resumes like [`Session::resume`], with tools, layers and limits for this run only. They are
    /// not stored: name those again that the run began with.
    ///
    /// # Errors
    ///
    /// Fails as [`Session::run_with`] does.
    pub async fn resume_with(&self, options: RunOptions) -> Result<RunReport, SessionError> {
        self.0.clone().begin_run(None, options).await
    }

    /// Runs like [`Session::run`] and returns everything that happens, as it happens: pieces of the
    /// reply, events, and finally the report. Dropping the stream stops the run.
    pub fn stream(&self, input: impl Into<RunInput>) -> RunStream {
        self.stream_with(input, RunOptions::default())
    }

    /// Streams like [`Session::stream`], with tools, layers and limits for this run only.
    pub fn stream_with(&self, input: impl Into<RunInput>, options: RunOptions) -> RunStream {
        let shared = self.0.clone();
        let input = input.into();
        RunStream::new(self, Box::pin(shared.begin_run(Some(input), options)))
    }

    /// Resumes like [`Session::resume`] and returns everything that happens as a stream.
    pub fn resume_stream(&self, options: RunOptions) -> RunStream {
        RunStream::new(self, Box::pin(self.0.clone().begin_run(None, options)))
    }

    /// Sends a message while a run is under way. The model reads it at its next request.
    ///
    /// Returns the number of the message once it is durable.
    ///
    /// # Errors
    ///
    /// Fails if no run is under way, or if it ended before the message was stored.
    pub async fn send_message(&self, text: impl Into<RunInput>) -> Result<u64, SessionError> {
        let idle = || SessionError::Idle { session: self.id() };
        let (heard, hearing) = oneshot::channel();
        let steer = SteeringMessage {
            message: text.into().0,
            heard,
        };
        let sent = self
            .0
            .lock_control()
            .as_ref()
            .is_some_and(|control| control.steer.send(steer).is_ok());
        if !sent {
            return Err(idle());
        }
        hearing.await.map_err(|_| idle())
    }

    /// Stops the run that is under way. It ends as `cancelled`; finished results are kept. Returns
    /// true if there was one.
    pub fn interrupt(&self) -> bool {
        let control = self.0.lock_control();
        control
            .as_ref()
            .inspect(|control| control.cancel.cancel())
            .is_some()
    }

    /// Decides on a pending call of this session or of an agent's session. The session continues
    /// when it is resumed, or by itself if a run waits for the decision.
    ///
    /// # Errors
    ///
    /// Fails as [`ApprovalService::decide`](crate::ApprovalService::decide) does.
    pub async fn decide(
        &self,
        on: impl Into<DecisionTarget>,
        decision: Decision,
    ) -> Result<AdmittedDecision, DeliverError> {
        self.0
            .dispatcher
            .approval_service()
            .decide(on, decision)
            .await
    }

    pub(crate) fn shared(&self) -> &Arc<SessionShared> {
        &self.0
    }
}

impl SessionShared {
    /// Begins a run, or resumes the last one, and drives it to its end.
    async fn begin_run(
        self: Arc<Self>,
        input: Option<RunInput>,
        options: RunOptions,
    ) -> Result<RunReport, SessionError> {
        let mut run = self.enter_run(options).await?;
        match input {
            Some(RunInput(message)) => {
                run.cancel_open_turn().await?;
                run.add_user_message(message, false).1.await?;
            }
            None => run.restore_labels().await?,
        }
        run.drive_run().await
    }

    /// Locks the conversation for one run.
    pub(crate) async fn enter_run(
        self: &Arc<Self>,
        options: RunOptions,
    ) -> Result<SessionRun, SessionError> {
        let busy = SessionError::Busy {
            session: self.dispatcher.session(),
        };
        // Not awaited: a second run at the same time is a mistake of the caller.
        let mut conversation = self
            .conversation
            .clone()
            .try_lock_owned()
            .map_err(|_| busy)?;
        // A dropped run may have added messages here that were never written.
        if conversation.torn {
            // After the flush the store has everything that was written before the last run was
            // dropped.
            self.journal().when_flushed().await?;
            let store = self.dispatcher.store();
            let session = self.dispatcher.session();
            *conversation = Conversation::load(store, session, self.limits.window_bytes).await?;
        }
        self.recover_reservations().await?;
        let tools = RunTools::new(self, &options).map_err(SessionError::Options)?;
        let labels = self.run_labels(&self.who.labels, &options)?;
        let cancel = CancellationToken::new();
        let steering = self.open_control(cancel.clone());
        Ok(SessionRun::new(
            self.clone(),
            conversation,
            options,
            tools,
            labels,
            cancel,
            steering,
        ))
    }

    /// Returns `labels` with those of the options.
    pub(crate) fn run_labels(
        &self,
        labels: &Labels,
        options: &RunOptions,
    ) -> Result<Labels, SessionError> {
        let added = self.dispatcher.0.add_labels(labels, &options.labels);
        added.map_err(|error| SessionError::Options(RunError::Label(error)))
    }

    /// Makes the run reachable for messages and interruption, also again after the channel was
    /// closed.
    pub(crate) fn open_control(
        &self,
        cancel: CancellationToken,
    ) -> mpsc::UnboundedReceiver<SteeringMessage> {
        let (steer, steering) = mpsc::unbounded_channel();
        *self.lock_control() = Some(RunControl { cancel, steer });
        steering
    }

    pub(crate) fn lock_control(&self) -> MutexGuard<'_, Option<RunControl>> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn journal(&self) -> &Journal {
        &self.dispatcher.0.journal
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.dispatcher.0.clock.now()
    }

    /// Returns what events may show of a text.
    pub(crate) fn visible_text(&self, text: &str) -> String {
        self.dispatcher.0.visible_text(text)
    }

    /// Returns the identity of a new turn.
    pub(crate) fn new_turn_info(&self, iteration: u32) -> TurnInfo {
        let mut info = self.who.clone();
        info.turn = TurnId::from_source(&*self.dispatcher.0.ids);
        info.iteration = iteration;
        info
    }

    /// Gives every call of a message a label of its own, under which its result is sent.
    pub(crate) fn label_calls(&self, message: &mut Message) {
        let mut used = HashSet::new();
        // A single call cannot collide with another one.
        let alone = message.calls().nth(1).is_none();
        for part in &mut message.parts {
            let PartContent::Call(request) = &mut part.content else {
                continue;
            };
            let given = &request.provider_call_id;
            if given.is_empty() || !(alone || used.insert(given.clone())) {
                let id = toolgate_core::CallId::from_source(&*self.dispatcher.0.ids).to_string();
                used.insert(id.clone());
                request.provider_call_id = id;
                // The provider's native item contains the label that cannot be used.
                part.native = None;
            }
        }
    }

    pub(crate) fn find_agent(&self, tool: &ToolName) -> Option<&Agent> {
        self.agents.iter().find(|agent| agent.name == *tool)
    }

    /// Checks whether the session has no messages yet.
    pub(crate) fn is_new(&self) -> bool {
        self.conversation
            .try_lock()
            .is_ok_and(|conversation| conversation.state() == ConversationState::Empty)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.id())
            .field("model", self.0.model.name())
            .finish_non_exhaustive()
    }
}
