//! A conversation with a model that runs tools: saved as it goes, stopped half-way, taken up again.

use std::{
    collections::HashSet,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use toolgate_core::{
    Admitted, Content, Decision, Message, Model, Registry, SessionId, Timestamp, ToolName, TurnId,
    TurnInfo,
};

use crate::{
    Agent, Approvals, Bus, DecideOn, Dispatcher, Input, Journal, PostError, RunOptions, RunReport,
    SessionBuilder, SessionError, Spending, Strategy,
    conversation::{Conversation, Place},
    host_model::HostModel,
    kernel::Run,
    run_stream::RunStream,
    session_builder::{Asking, Limits},
    tools_of_run::ToolsOfRun,
};

/// A conversation with a model that runs tools. Cloning shares it.
///
/// [`Session::run`] asks the model, runs what it asks for, tells it what came of that, and goes on until it has an answer.
/// Everything is in the store before it counts, so that [`Session::resume`] goes on where another process stopped.
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
pub struct Session(pub(crate) Arc<Shared>);

/// What a session is made of.
pub(crate) struct Shared {
    pub(crate) dispatcher: Dispatcher,
    pub(crate) model: Arc<dyn Model>,
    pub(crate) registry: Registry,
    pub(crate) allowed: Option<Vec<String>>,
    pub(crate) ask: Asking,
    pub(crate) limits: Limits,
    pub(crate) strategies: Vec<Arc<dyn Strategy>>,
    pub(crate) agents: Vec<Agent>,
    pub(crate) spending: Spending,
    /// What is the same for all turns.
    pub(crate) who: TurnInfo,
    pub(crate) conversation: Arc<tokio::sync::Mutex<Conversation>>,
    pub(crate) control: Mutex<Option<Control>>,
}

/// How a run that is under way is reached.
pub(crate) struct Control {
    cancel: CancellationToken,
    steer: mpsc::UnboundedSender<Steer>,
}

/// Something that is said while a run is under way.
pub(crate) struct Steer {
    pub(crate) message: Message,
    pub(crate) heard: oneshot::Sender<u64>,
}

impl Session {
    /// Starts a session with `model`, which may call the tools of `registry`.
    pub fn builder(model: impl Model, registry: Registry) -> SessionBuilder {
        SessionBuilder::new(Arc::new(model), registry)
    }

    /// Starts a session for a host that asks a model by itself: it drives runs with [`Session::host`], or is given tools
    /// with [`Session::arm`]. [`Session::run`] fails in it.
    pub fn for_host(registry: Registry) -> SessionBuilder {
        SessionBuilder::new(Arc::new(HostModel::new()), registry)
    }

    /// Which session.
    pub fn id(&self) -> SessionId {
        self.0.dispatcher.session()
    }

    /// What runs its turns.
    pub fn dispatcher(&self) -> &Dispatcher {
        &self.0.dispatcher
    }

    /// Where its events are published.
    pub fn bus(&self) -> &Bus {
        self.0.dispatcher.bus()
    }

    /// Says something to the model and lets it work until it has an answer or has to wait.
    ///
    /// If calls of the last run still wait for a decision, they are cancelled: whoever says something else instead of
    /// deciding does not want them. Dropping the future stops the run where it is; it can be resumed.
    pub async fn run(&self, input: impl Into<Input>) -> Result<RunReport, SessionError> {
        self.run_with(input, RunOptions::default()).await
    }

    /// The same, with tools, layers and limits for this run only.
    pub async fn run_with(
        &self,
        input: impl Into<Input>,
        options: RunOptions,
    ) -> Result<RunReport, SessionError> {
        let input = input.into();
        self.0.clone().begin(Some(input), options).await
    }

    /// Goes on where the session stopped: after a decision, an error, a cap, an interruption, or the loss of the process.
    ///
    /// What has settled is not run again, and what was replied is not asked again. If there is nothing left to do, the
    /// report says how the last run ended.
    pub async fn resume(&self) -> Result<RunReport, SessionError> {
        self.resume_with(RunOptions::default()).await
    }

    /// The same, with tools, layers and limits for this run only. They are not kept: name those again that the run began
    /// with.
    pub async fn resume_with(&self, options: RunOptions) -> Result<RunReport, SessionError> {
        self.0.clone().begin(None, options).await
    }

    /// Runs like [`Session::run`] and gives everything that happens, as it happens: pieces of the reply, events, and at
    /// last the report. Dropping the stream stops the run.
    pub fn stream(&self, input: impl Into<Input>) -> RunStream {
        self.stream_with(input, RunOptions::default())
    }

    /// The same, with tools, layers and limits for this run only.
    pub fn stream_with(&self, input: impl Into<Input>, options: RunOptions) -> RunStream {
        let (shared, input) = (self.0.clone(), input.into());
        RunStream::new(self, Box::pin(shared.begin(Some(input), options)))
    }

    /// Resumes like [`Session::resume`] and gives everything that happens.
    pub fn resume_stream(&self, options: RunOptions) -> RunStream {
        RunStream::new(self, Box::pin(self.0.clone().begin(None, options)))
    }

    /// Says something while a run is under way. The model reads it the next time it is asked.
    ///
    /// Returns the number of the message once it is durable.
    pub async fn say(&self, text: impl Into<Input>) -> Result<u64, SessionError> {
        let idle = || SessionError::Idle { session: self.id() };
        let (heard, hearing) = oneshot::channel();
        let steer = Steer {
            message: text.into().0,
            heard,
        };
        let sent = self
            .0
            .control()
            .as_ref()
            .is_some_and(|control| control.steer.send(steer).is_ok());
        if !sent {
            return Err(idle());
        }
        hearing.await.map_err(|_| idle())
    }

    /// Stops the run that is under way. It ends as `cancelled`; finished results are kept. Says whether there was one.
    pub fn interrupt(&self) -> bool {
        let control = self.0.control();
        control
            .as_ref()
            .inspect(|control| control.cancel.cancel())
            .is_some()
    }

    /// Decides on a call that waits, of this session or of an agent's. The session goes on when it is resumed, or by
    /// itself if a run waits for the answer.
    pub async fn decide(
        &self,
        on: impl Into<DecideOn>,
        decision: Decision,
    ) -> Result<Admitted, PostError> {
        self.0.desk().decide(on, decision).await
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0
    }
}

impl Shared {
    /// Begins a run, or takes up the last one, and drives it to its end.
    async fn begin(
        self: Arc<Self>,
        input: Option<Input>,
        options: RunOptions,
    ) -> Result<RunReport, SessionError> {
        let mut run = self.enter(options).await?;
        if let Some(Input(message)) = input {
            run.give_up_open_turn().await?;
            run.hear(message, false).1.await?;
        }
        run.drive().await
    }

    /// Takes the conversation, alone.
    pub(crate) async fn enter(self: &Arc<Self>, options: RunOptions) -> Result<Run, SessionError> {
        let busy = SessionError::Busy {
            session: self.dispatcher.session(),
        };
        let mut conversation = self
            .conversation
            .clone()
            .try_lock_owned()
            .map_err(|_| busy)?;
        if conversation.torn {
            // The store knows what was written before the last run was dropped.
            self.journal().flushed().await?;
            let (store, session) = (self.dispatcher.store(), self.dispatcher.session());
            *conversation = Conversation::load(store, session, self.limits.window_bytes).await?;
        }
        self.recover_spending().await?;
        let tools = ToolsOfRun::new(self, &options).map_err(SessionError::Options)?;
        let cancel = CancellationToken::new();
        let steering = self.listen(cancel.clone());
        Ok(Run::new(
            self.clone(),
            conversation,
            (options, tools),
            (cancel, steering),
        ))
    }

    /// Makes the run reachable, anew if there is one.
    pub(crate) fn listen(&self, cancel: CancellationToken) -> mpsc::UnboundedReceiver<Steer> {
        let (steer, steering) = mpsc::unbounded_channel();
        *self.control() = Some(Control { cancel, steer });
        steering
    }

    pub(crate) fn control(&self) -> MutexGuard<'_, Option<Control>> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn journal(&self) -> &Journal {
        &self.dispatcher.0.journal
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.dispatcher.0.clock.now()
    }

    /// What events may say of what was said.
    pub(crate) fn said(&self, text: &str) -> String {
        self.dispatcher.0.said_text(text)
    }

    /// A turn of its own.
    pub(crate) fn turn_info(&self, iteration: u32) -> TurnInfo {
        let mut info = self.who.clone();
        (info.turn, info.iteration) = (TurnId::from_source(&*self.dispatcher.0.ids), iteration);
        info
    }

    pub(crate) fn desk(&self) -> Approvals {
        let desk =
            Approvals::new(self.dispatcher.store().clone()).clock(self.dispatcher.0.clock.clone());
        match self.dispatcher.0.keyring.clone() {
            Some(keyring) => desk.keyring(keyring),
            None => desk,
        }
    }

    /// Sees to it that every call of a message has a label of its own, under which it is answered.
    pub(crate) fn label_calls(&self, message: &mut Message) {
        let mut used = HashSet::new();
        // One call has nothing to be told apart from.
        let alone = message.calls().nth(1).is_none();
        for part in &mut message.parts {
            let Content::Call(request) = &mut part.content else {
                continue;
            };
            let given = &request.provider_call_id;
            if given.is_empty() || !(alone || used.insert(given.clone())) {
                let id = toolgate_core::CallId::from_source(&*self.dispatcher.0.ids).to_string();
                used.insert(id.clone());
                request.provider_call_id = id;
                // The provider's own item has the label that cannot be used.
                part.native = None;
            }
        }
    }

    pub(crate) fn agent(&self, tool: &ToolName) -> Option<&Agent> {
        self.agents.iter().find(|agent| agent.name == *tool)
    }

    /// What the conversation waits for.
    pub(crate) fn is_new(&self) -> bool {
        self.conversation
            .try_lock()
            .is_ok_and(|conversation| conversation.place() == Place::Empty)
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
