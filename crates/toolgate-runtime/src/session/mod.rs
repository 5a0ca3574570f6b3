//! A conversation with a model that runs tools: stored as it happens, stopped half-way, resumed.

pub(crate) mod billing;
pub(crate) mod builder;
mod conversation;
pub(crate) mod handle;
mod history;
pub(crate) mod options;
mod output;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod run_end;
mod stored_options;
pub(crate) mod stream;
pub(crate) mod tools;

use std::{
    collections::HashSet,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use tokio::sync::{OwnedMutexGuard, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use toolgate_core::{
    AdmittedDecision, CallId, Decision, Labels, Message, Model, OutputFormat, PartContent,
    Registry, SessionId, Timestamp, ToolName, TurnId, TurnInfo,
};

use crate::{
    Agent, Bus, DecisionTarget, DeliverError, Dispatcher, Journal, JournalError, ModelBilling,
    RunError, RunHandle, RunInput, RunOptions, RunReport, SessionBuilder, SessionError, Strategy,
    session::{
        builder::{RequestSettings, RunLimits},
        conversation::{Conversation, ConversationState},
        run::{host_model::HostModel, steps::SessionRun},
        run_end::RunEndHooks,
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
/// let session = Session::ungated(Parrot(ModelName::new("zoo", "parrot")), Registry::new()).build().await?;
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
    /// The agents of this session, as tools.
    pub(crate) agent_tools: Registry,
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
    /// True if a run that is stopped leaves pending calls pending.
    pub(crate) keep_pending: AtomicBool,
    /// The hooks at the end of runs.
    pub(crate) run_end: RunEndHooks,
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
    /// Creates a builder of a session with `model`, which may call the tools of `registry`, without
    /// a gate: by default calls pass no layer, no approval is requested and nothing is redacted. The caller
    /// wires stack, store, keys and redactor; a gate does that by itself.
    pub fn ungated(model: impl Model, registry: Registry) -> SessionBuilder {
        SessionBuilder::new(Arc::new(model), registry)
    }

    /// Creates a builder like [`Session::ungated`] for a host that asks a model by itself. The host drives runs
    /// with [`Session::begin_hosted`], or gets tools with [`Session::arm_tools`]. [`Session::run`] fails in such
    /// a session.
    pub fn ungated_host(registry: Registry) -> SessionBuilder {
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
    /// Calls that the last run left open come first: what is approved or has its result is run. If
    /// something is still undecided then, the report has the end `suspended` and the pending calls,
    /// and the message is not taken, unless [`RunOptions::abandon_pending`] is given.
    ///
    /// # Errors
    ///
    /// Fails if another run is under way, if another process took the session over, or if the store
    /// failed. A model that does not reply is not an error: the report has it.
    ///
    /// # Cancel safety
    ///
    /// The run works in a task of its own. Dropping the future leaves it running;
    /// [`Session::interrupt`] stops it.
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
        self.drive_in_task(Some(input.into()), options).await
    }

    /// Continues where the session stopped: after a decision, an error, a limit, an interruption,
    /// or the loss of the process.
    ///
    /// Settled calls are not run again, and a reply that was received is not requested again. If
    /// there is nothing left to do, the report has the end of the last run. The options that the
    /// run began with apply again.
    ///
    /// # Errors
    ///
    /// Fails as [`Session::run`] does, and if the run began with tools or layers of its own
    /// ([`RunError::MissingParts`](crate::RunError::MissingParts)): these are given to
    /// [`Session::resume_with`].
    ///
    /// # Cancel safety
    ///
    /// As [`Session::run`].
    pub async fn resume(&self) -> Result<RunReport, SessionError> {
        self.resume_with(RunOptions::default()).await
    }

    /// Resumes like [`Session::resume`], with the tools and layers that the run began with.
    ///
    /// Limits and formats that the run began with are restored. Options given here may add layers
    /// and narrow the tools, and they replace the number of iterations and the format of the
    /// answer. They never give the run more tools than it began with.
    ///
    /// # Errors
    ///
    /// Fails as [`Session::run_with`] does, and if a layer or tool that the run began with is
    /// missing.
    pub async fn resume_with(&self, options: RunOptions) -> Result<RunReport, SessionError> {
        self.drive_in_task(None, options).await
    }

    /// Starts a run like [`Session::run`] and returns a handle to it. The run works in a task of
    /// its own, whether or not the handle is kept.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    pub fn start(&self, input: impl Into<RunInput>) -> RunHandle {
        self.start_with(input, RunOptions::default())
    }

    /// Starts a run like [`Session::start`], with tools, layers and limits for this run only.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    pub fn start_with(&self, input: impl Into<RunInput>, options: RunOptions) -> RunHandle {
        RunHandle::spawn(self, Some(input.into()), options)
    }

    /// Resumes like [`Session::resume_with`], in a task of its own, and returns a handle to it.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    pub fn start_resumed(&self, options: RunOptions) -> RunHandle {
        RunHandle::spawn(self, None, options)
    }

    /// Starts a run like [`Session::start`] and returns everything that happens, as it happens:
    /// pieces of the reply, events, and finally the report. Dropping the stream leaves the run
    /// running; [`Session::interrupt`] stops it.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    pub fn stream(&self, input: impl Into<RunInput>) -> RunStream {
        self.start(input).updates()
    }

    /// Streams like [`Session::stream`], with tools, layers and limits for this run only.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    pub fn stream_with(&self, input: impl Into<RunInput>, options: RunOptions) -> RunStream {
        self.start_with(input, options).updates()
    }

    /// Resumes like [`Session::resume_with`] and returns everything that happens as a stream.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    pub fn resume_stream(&self, options: RunOptions) -> RunStream {
        self.start_resumed(options).updates()
    }

    /// Drives a run in a task of its own, so that it is never torn in two when the caller stops
    /// waiting.
    async fn drive_in_task(
        &self,
        input: Option<RunInput>,
        options: RunOptions,
    ) -> Result<RunReport, SessionError> {
        let cancel = CancellationToken::new();
        let run = self.0.clone().begin_run(input, options, cancel);
        match tokio::spawn(run).await {
            Ok(report) => report,
            Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
            // The runtime was shut down.
            Err(_) => Err(JournalError::Stopped.into()),
        }
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
        self.0.keep_pending.store(false, Ordering::SeqCst);
        self.cancel_run()
    }

    /// Stops what the run that is under way does, and leaves pending what waits for a decision or an
    /// external result. The run ends as `suspended` if a call waits, and as `cancelled` otherwise.
    /// Returns true if there was a run.
    pub fn suspend(&self) -> bool {
        self.0.keep_pending.store(true, Ordering::SeqCst);
        self.cancel_run()
    }

    fn cancel_run(&self) -> bool {
        let control = self.0.lock_control();
        control
            .as_ref()
            .inspect(|control| control.cancel.cancel())
            .is_some()
    }

    /// Stops one call of the run that is under way; the others continue. Returns true if there was
    /// one, as [`TurnHandle::cancel_call`](crate::TurnHandle::cancel_call) does.
    pub fn cancel_call(&self, call: CallId) -> bool {
        let turns = self.0.dispatcher.0.driven_turns();
        turns.iter().any(|turn| turn.cancel_call(call))
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

    /// Waits until the hooks of runs that have ended are finished, at most for `limit`. Returns true
    /// if none is running. A process that ends without it may stop a hook in the middle; the hook is
    /// not run again for that run.
    pub async fn wait_for_hooks(&self, limit: Duration) -> bool {
        self.0.run_end.wait(limit).await
    }

    pub(crate) fn shared(&self) -> &Arc<SessionShared> {
        &self.0
    }
}

impl SessionShared {
    /// Begins a run, or resumes the last one, and drives it to its end.
    // Boxed: a run that delegates drives the runs of agents, so its future contains itself.
    pub(crate) fn begin_run(
        self: Arc<Self>,
        input: Option<RunInput>,
        options: RunOptions,
        cancel: CancellationToken,
    ) -> BoxFuture<'static, Result<RunReport, SessionError>> {
        let journal = self.journal().clone();
        let run = async move {
            let Some(RunInput(message)) = input else {
                return self.resume_run(options, cancel).await?.drive_run().await;
            };
            // An invalid label is an error, also if the last run is still pending.
            self.run_labels(&self.who.labels, &options)?;
            let conversation = self.lock_conversation().await?;
            let mut run = match conversation.state() {
                ConversationState::Open(_) => {
                    match self.settle_last_run(conversation, options, cancel).await? {
                        Ok(run) => run,
                        Err(pending) => return Ok(*pending),
                    }
                }
                _ => self.open_run(conversation, options, cancel)?,
            };
            run.look_back().await?;
            let (_, taken) = run.add_user_message(message, false);
            // A session that was idle may have been taken over; then the model is not asked.
            if !run.shared.journal().is_lease_current() {
                taken.await?;
            }
            run.drive_run().await
        };
        Box::pin(async move { journal.flush_while_waiting(run).await })
    }

    /// Settles the calls that the last run left open, and returns the run with `options` that comes
    /// next; or the report, if calls are still pending.
    async fn settle_last_run(
        self: &Arc<Self>,
        conversation: OwnedMutexGuard<Conversation>,
        options: RunOptions,
        cancel: CancellationToken,
    ) -> Result<Result<SessionRun, Box<RunReport>>, SessionError> {
        let last = self.options_of_last_run(&conversation, &options).await;
        let mut run = match last {
            Ok(last) => {
                let mut run = self.open_run(conversation, last, cancel)?;
                if options.abandon_pending {
                    run.abandon_open_turn().await?;
                } else if let Some(pending) = run.settle_open_turn().await? {
                    return Ok(Err(Box::new(pending)));
                }
                run
            }
            // Without its layers nothing of the last run may run, but it can be given up.
            Err(SessionError::Options(_)) if options.abandon_pending => {
                let mut run = self.open_run(conversation, options.clone(), cancel)?;
                run.cancel_open_turn().await?;
                run
            }
            Err(error) => return Err(error),
        };
        run.use_options(options)?;
        Ok(Ok(run))
    }

    /// Locks the conversation for a run that begins.
    pub(crate) async fn enter_run(
        self: &Arc<Self>,
        options: RunOptions,
    ) -> Result<SessionRun, SessionError> {
        let conversation = self.lock_conversation().await?;
        self.open_run(conversation, options, CancellationToken::new())
    }

    /// Locks the conversation for the last run, which continues with the options that it began
    /// with.
    pub(crate) async fn resume_run(
        self: &Arc<Self>,
        options: RunOptions,
        cancel: CancellationToken,
    ) -> Result<SessionRun, SessionError> {
        let conversation = self.lock_conversation().await?;
        let Some(begun) = self.load_run(&conversation).await? else {
            return self.open_run(conversation, options, cancel);
        };
        let options = options
            .resumed_from(&begun)
            .map_err(SessionError::Options)?;
        let mut run = self.open_run(conversation, options, cancel)?;
        run.began_with = Some(begun.model.clone())
            .filter(|began_with| *began_with != self.model.name().to_string());
        Ok(run)
    }

    /// Locks the conversation: a session has one run at a time.
    async fn lock_conversation(&self) -> Result<OwnedMutexGuard<Conversation>, SessionError> {
        let busy = SessionError::Busy {
            session: self.dispatcher.session(),
        };
        // Not awaited: a second run at the same time is a mistake of the caller.
        let mut conversation = self
            .conversation
            .clone()
            .try_lock_owned()
            .map_err(|_| busy)?;
        // A dropped run may have added messages here that were never written. After a session was
        // opened, only the end of its conversation is loaded: most sessions that are opened are
        // looked at or decided on, and a run begins here.
        if conversation.torn || conversation.is_partial {
            // After the flush the store has everything that was written before the last run was
            // dropped.
            self.journal().when_flushed().await?;
            let store = self.dispatcher.store();
            let session = self.dispatcher.session();
            *conversation = Conversation::load(store, session, self.limits.window_bytes).await?;
        }
        self.recover_reservations().await?;
        Ok(conversation)
    }

    /// Opens a run on the locked conversation.
    fn open_run(
        self: &Arc<Self>,
        conversation: OwnedMutexGuard<Conversation>,
        options: RunOptions,
        cancel: CancellationToken,
    ) -> Result<SessionRun, SessionError> {
        let tools = RunTools::new(self, &options).map_err(SessionError::Options)?;
        let labels = self.run_labels(&self.who.labels, &options)?;
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
        // Those of a resumed run were part of the session's labels when it began.
        let begun = labels.with(options.begun_labels.iter());
        let added = begun.and_then(|begun| self.dispatcher.0.add_labels(&begun, &options.labels));
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

    /// Returns the format of the final answer of a run with these options.
    pub(crate) fn output_format(&self, options: &RunOptions) -> Option<OutputFormat> {
        let own = options.output.as_ref();
        own.or(self.ask.output.as_ref()).cloned()
    }

    /// Returns what events may show of a text.
    /// Returns what an event may show of a message, and its whole length if that is only the
    /// beginning.
    pub(crate) fn visible_message(&self, text: &str) -> (Option<String>, Option<u64>) {
        if text.is_empty() {
            return (None, None);
        }
        let (shown, cut) = self.dispatcher.0.visible_message(text);
        (Some(shown), cut)
    }

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
