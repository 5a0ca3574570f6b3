//! Runs a turn's calls concurrently and reports them in call order.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, atomic::AtomicU64},
    time::Duration,
};

use futures::FutureExt;
use hashbrown::{HashMap, HashSet};
use serde_json::Value;
use tokio::{sync::Notify, task::JoinHandle};
use toolgate_core::{
    AgentId, Approver, Arguments, CallId, Clock, DynApprover, IdSource, Invocation, Json, Keyring, MemoryStore, Notes,
    Outcome, Principal, Record, RecordKey, Redactor, SessionId, Settled, Stack, Status, Store, StoreError, StoreHandle,
    Suspension, TakenCall, Timestamp, ToolEvent, ToolName, ToolRequest, Turn, TurnEvent, TurnId, TurnInfo,
    TurnRequests, View, contained_sync,
};

use crate::{
    Bus, Journal, JournalError, SystemClock, TimeOrderedIds, TurnFound,
    active::{Active, Parked, Work},
    drive::TurnRun,
    journal::Durable,
    late::LateGuard,
    lease::Driving,
};

/// Runs the turns of one session. Cloning shares it.
///
/// ```
/// use toolgate_core::{Registry, Stack, ToolError, ToolRequest, View, tool_fn};
/// use toolgate_runtime::{Dispatcher, TurnRequest};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Double { n: i64 }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let registry = Registry::new();
/// registry.register(tool_fn("double", "Doubles a number.", async |input: Double, _cx| {
///     Ok::<_, ToolError>(input.n * 2)
/// }))?;
/// let view = View::of(&registry);
/// let dispatcher = Dispatcher::builder(Stack::over(registry).build()?).build().await?;
/// let calls = vec![ToolRequest::text("a", "double", r#"{"n":1}"#), ToolRequest::text("b", "double", r#"{"n":2}"#)];
/// let report = dispatcher.open(TurnRequest::new(view, calls)).await?.run().await?;
/// let texts: Vec<_> = report.results.iter().map(|r| r.outcome.as_ref().unwrap().model_text().into_owned()).collect();
/// assert_eq!(texts, ["2", "4"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Dispatcher(pub(crate) Arc<Shared>);

/// What all turns of a session share.
pub(crate) struct Shared {
    pub(crate) stack: Stack,
    pub(crate) session: SessionId,
    pub(crate) store: StoreHandle,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn IdSource>,
    pub(crate) journal: Journal,
    pub(crate) bus: Bus,
    pub(crate) approver: Option<Arc<dyn DynApprover>>,
    pub(crate) max_concurrent: usize,
    pub(crate) on_failure: OnFailure,
    pub(crate) grace: Duration,
    pub(crate) late: LateGuard,
    pub(crate) keyring: Option<Keyring>,
    redactor: Option<Arc<dyn Redactor>>,
    open: Mutex<HashMap<TurnId, Weak<Active>>>,
    /// Tasks of turns that nobody drives any more and that have not stopped yet.
    ending: Mutex<HashMap<TurnId, Vec<JoinHandle<()>>>>,
    /// Held while a turn that nobody drives is read and written, so that two posts see each other. It keeps the copy
    /// that was last posted to, so that answering a large batch does not read it again for every answer.
    pub(crate) posting: tokio::sync::Mutex<Option<Parked>>,
    /// The number of the last post that was taken up.
    pub(crate) posts_seen: AtomicU64,
    /// Held while posts are taken up, one after the other.
    pub(crate) taking: tokio::sync::Mutex<()>,
    /// Wakes whoever keeps the lease when there is a turn to drive.
    pub(crate) keeper: Arc<Notify>,
}

/// What happens to the other calls of a turn when one of them fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFailure {
    /// Nothing.
    #[default]
    Continue,
    /// What runs is finished, what has not started is cancelled, and the loop stops.
    Abort,
}

/// Puts a dispatcher together.
#[must_use = "a dispatcher is made by `build`"]
pub struct DispatcherBuilder {
    stack: Stack,
    session: Option<SessionId>,
    store: StoreHandle,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    bus: Bus,
    approver: Option<Arc<dyn DynApprover>>,
    redactor: Option<Arc<dyn Redactor>>,
    keyring: Option<Keyring>,
    max_concurrent: usize,
    on_failure: OnFailure,
    grace: Duration,
    late: (usize, Duration),
    lease: Duration,
    by_force: bool,
}

impl Dispatcher {
    /// How many calls of a turn run at the same time unless told otherwise.
    pub const DEFAULT_CONCURRENCY: usize = 8;

    /// Starts a dispatcher that sends calls through `stack`.
    pub fn builder(stack: Stack) -> DispatcherBuilder {
        DispatcherBuilder {
            stack,
            session: None,
            store: StoreHandle::new(MemoryStore::new()),
            clock: Arc::new(SystemClock::new()),
            ids: Arc::new(TimeOrderedIds),
            bus: Bus::default(),
            approver: None,
            redactor: None,
            keyring: None,
            max_concurrent: Self::DEFAULT_CONCURRENCY,
            on_failure: OnFailure::Continue,
            grace: Duration::from_secs(2),
            late: (LateGuard::CAPACITY, LateGuard::KEEP),
            lease: Driving::SPAN,
            by_force: false,
        }
    }

    /// The session.
    pub fn session(&self) -> SessionId {
        self.0.session
    }

    /// The bus on which events are published.
    pub fn bus(&self) -> &Bus {
        &self.0.bus
    }

    /// The store.
    pub fn store(&self) -> &StoreHandle {
        &self.0.store
    }

    /// The stack.
    pub fn stack(&self) -> &Stack {
        &self.0.stack
    }

    /// Takes in what a model asked for. When this returns, the requests are durable and nothing has run.
    pub async fn open(&self, request: TurnRequest) -> Result<TurnRun, DispatchError> {
        let TurnRequest { view, calls, after, mut info } = request;
        // Held until the turn is durable: of two that would continue the same turn, the second one sees the first.
        let _one_at_a_time = self.0.posting.lock().await;
        if let Some(after) = after {
            self.may_continue(after).await?;
        }
        (info.session, info.turn) = (self.0.session, TurnId::from_source(&*self.0.ids));
        let taken = self.take_in(calls);
        let active = self.activate(&view, Arc::new(info), &taken);
        let size = u32::try_from(taken.len()).map_err(|_| DispatchError::TooManyCalls)?;
        let turn = active.info.turn;
        let requests = TurnRequests {
            info: TurnInfo::clone(&active.info),
            after_sequence: self.0.journal.sequence(),
            calls: taken,
        };
        let mut records = vec![(RecordKey::Requests(turn), Record::Requests(Arc::new(requests)))];
        records.extend(after.map(|after| (RecordKey::Successor(after), Record::Turn(turn))));
        active.request_all(TurnEvent::TurnOpened { size, after }, records).await?;
        self.0.opened(&active);
        Ok(TurnRun::new(active, TurnFound::nothing(turn)))
    }

    /// A turn is continued once, and only when it is settled.
    async fn may_continue(&self, turn: TurnId) -> Result<(), DispatchError> {
        self.0.journal.flushed().await?;
        if self.0.store.record(&RecordKey::Successor(turn)).await?.is_some() {
            return Err(DispatchError::AlreadyContinued { turn });
        }
        match self.0.store.record(&RecordKey::Ended(turn)).await? {
            Some(_) => Ok(()),
            None => Err(DispatchError::NotSettled { turn }),
        }
    }

    /// Gives each request an id of ours and a label that is not empty and not used twice.
    fn take_in(&self, calls: Vec<ToolRequest>) -> Vec<TakenCall> {
        let mut used: HashSet<Arc<str>> = HashSet::with_capacity(calls.len());
        let take = |request: ToolRequest| {
            let id = CallId::from_source(&*self.0.ids);
            let given: Arc<str> = request.provider_call_id.as_str().into();
            let fresh = !given.is_empty() && used.insert(given.clone());
            let call_id = if fresh { given } else { id.to_string().into() };
            TakenCall { id, call_id, request }
        };
        calls.into_iter().map(take).collect()
    }

    /// Puts the state of a turn together from what was taken in.
    pub(crate) fn activate(&self, view: &View, info: Arc<TurnInfo>, taken: &[TakenCall]) -> Arc<Active> {
        let mut invocations = Vec::with_capacity(taken.len());
        let mut work = Vec::with_capacity(taken.len());
        for (emit_order, taken) in (0..).zip(taken) {
            let admission = view.admit(&taken.request);
            let (id, call_id, tool, turn) = (taken.id, taken.call_id.clone(), admission.tool.clone(), info.clone());
            invocations.push(Arc::new(Invocation { id, call_id, tool, emit_order, turn }));
            // Mostly the label is the provider's own id, and then it is kept once.
            let same = *taken.call_id == *taken.request.provider_call_id;
            let given = if same { taken.call_id.clone() } else { taken.request.provider_call_id.as_str().into() };
            work.push(Work::new(given, admission));
        }
        Active::new(self.0.clone(), Turn::new(info, invocations), work)
    }
}

impl DispatcherBuilder {
    /// Which session; a new one unless given.
    pub fn session(mut self, session: SessionId) -> Self {
        self.session = Some(session);
        self
    }

    /// Where events are kept; in memory unless given.
    pub fn store(self, store: impl Store) -> Self {
        self.store_handle(StoreHandle::new(store))
    }

    /// Where events are kept, for a store that is shared already.
    pub fn store_handle(mut self, store: StoreHandle) -> Self {
        self.store = store;
        self
    }

    /// Who tells the time.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Where ids come from.
    pub fn ids(mut self, ids: impl IdSource) -> Self {
        self.ids = Arc::new(ids);
        self
    }

    /// Where events are published.
    pub fn bus(mut self, bus: Bus) -> Self {
        self.bus = bus;
        self
    }

    /// Who is asked at once when a call needs a decision. Without one, the turn suspends.
    pub fn approver(mut self, approver: impl Approver) -> Self {
        self.approver = Some(Arc::new(approver));
        self
    }

    /// Who takes secrets out of what is stored and shown.
    pub fn redactor(mut self, redactor: impl Redactor) -> Self {
        self.redactor = Some(Arc::new(redactor));
        self
    }

    /// Signs every decision that is taken in, so that the layer that asked can tell it from one that was made up.
    pub fn keyring(mut self, keyring: Keyring) -> Self {
        self.keyring = Some(keyring);
        self
    }

    /// How many calls of a turn run at the same time; 1 runs them one after the other.
    pub fn max_concurrent(mut self, calls: usize) -> Self {
        self.max_concurrent = calls;
        self
    }

    /// What happens to the others when one call fails.
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// How long running calls may take to stop after an interruption.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// How many settled invocations are remembered for how long, before the store has to be asked.
    pub fn remember_settled(mut self, number: usize, keep: Duration) -> Self {
        self.late = (number, keep);
        self
    }

    /// How long the session stays ours after the last sign of life. It is renewed while a turn is driven.
    pub fn lease(mut self, span: Duration) -> Self {
        self.lease = span;
        self
    }

    /// Takes the session from whoever drives it. The other one stops at its next write; what it runs at that moment
    /// may end as `outcome_unknown`.
    pub fn take_over(mut self) -> Self {
        self.by_force = true;
        self
    }

    /// Takes up the session where the store has it, and the right to drive it.
    ///
    /// If somebody else drives it, that is an error that names them, unless it was a process of this machine that is
    /// gone. To decide on approvals of a session that another process drives, no dispatcher is needed.
    pub async fn build(self) -> Result<Dispatcher, DispatchError> {
        let session = self.session.unwrap_or_else(|| SessionId::from_source(&*self.ids));
        let (store, clock) = (self.store.clone(), self.clock.clone());
        let driving = Driving::take(session, store.clone(), clock.clone(), self.lease, self.by_force).await?;
        let journal = Journal::under(driving, store, self.bus.clone(), clock);
        let late = LateGuard::new(self.late.0, self.late.1, self.clock.clone(), self.store.clone());
        let shared = Arc::new(Shared {
            stack: self.stack,
            session,
            store: self.store,
            clock: self.clock,
            ids: self.ids,
            journal,
            bus: self.bus,
            approver: self.approver,
            max_concurrent: self.max_concurrent,
            on_failure: self.on_failure,
            grace: self.grace,
            late,
            redactor: self.redactor,
            keyring: self.keyring,
            open: Mutex::new(HashMap::new()),
            ending: Mutex::new(HashMap::new()),
            posting: tokio::sync::Mutex::new(None),
            posts_seen: AtomicU64::new(0),
            taking: tokio::sync::Mutex::new(()),
            keeper: Arc::default(),
        });
        tokio::spawn(crate::keeper::keep(Arc::downgrade(&shared)));
        Ok(Dispatcher(shared))
    }
}

impl std::fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dispatcher")
            .field("session", &self.0.session)
            .field("stack", &self.0.stack)
            .finish_non_exhaustive()
    }
}

/// What a model asked for in one message.
#[derive(Debug, Clone)]
pub struct TurnRequest {
    view: View,
    calls: Vec<ToolRequest>,
    after: Option<TurnId>,
    info: TurnInfo,
}

impl TurnRequest {
    /// Calls, checked against what the model was shown.
    pub fn new(view: View, calls: Vec<ToolRequest>) -> Self {
        let nil = uuid::Uuid::nil();
        Self { view, calls, after: None, info: TurnInfo::new(SessionId::new(nil), TurnId::new(nil)) }
    }

    /// Says which turn this one continues. A turn is continued once, also across processes.
    pub fn after(mut self, turn: TurnId) -> Self {
        self.after = Some(turn);
        self
    }

    /// Says which agent asked.
    pub fn agent(mut self, id: impl Into<AgentId>, name: &str) -> Self {
        (self.info.agent_id, self.info.agent_name) = (Some(id.into()), Some(name.into()));
        self
    }

    /// Says which model asked.
    pub fn model(mut self, provider: &str, model: &str) -> Self {
        (self.info.provider, self.info.model) = (Some(provider.into()), Some(model.into()));
        self
    }

    /// Says on whose behalf.
    pub fn principal(mut self, principal: impl Into<Principal>) -> Self {
        self.info.principal = Some(principal.into());
        self
    }

    /// Says which round of the loop this is.
    pub fn iteration(mut self, iteration: u32) -> Self {
        self.info.iteration = iteration;
        self
    }
}

/// What came of a turn, in the order the model asked.
#[derive(Debug, Clone)]
pub struct TurnReport {
    /// Which turn.
    pub turn: TurnId,
    /// How far it came.
    pub end: TurnEnd,
    /// What came of each call.
    pub results: Vec<CallResult>,
    /// What the user said meanwhile.
    pub messages: Vec<String>,
}

/// How far a turn came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnEnd {
    /// Every call is settled: the model can be asked to go on. Reported once.
    Settled,
    /// Some calls wait for a decision or a result from outside.
    Suspended,
    /// Somebody stopped it; everything is settled.
    Interrupted,
    /// A call failed and the others were not wanted any more; everything is settled.
    Aborted,
}

/// What came of one call.
#[derive(Debug, Clone)]
pub struct CallResult {
    /// The runtime's own id.
    pub id: CallId,
    /// The label under which the provider is answered.
    pub call_id: Arc<str>,
    /// The provider's id as it was, perhaps empty or used twice.
    pub provider_call_id: Arc<str>,
    /// Which tool.
    pub tool: ToolName,
    /// The outcome, once it is settled.
    pub outcome: Option<Arc<Settled>>,
    /// What it waits for, if it is suspended.
    pub waits_for: Option<Suspension>,
}

impl CallResult {
    /// Exactly what the model is told; nothing while the call is suspended.
    pub fn model_text(&self) -> Option<std::borrow::Cow<'_, str>> {
        self.outcome.as_ref().map(|settled| settled.model_text())
    }

    /// How the call settled, if it did.
    pub fn status(&self) -> Option<Status> {
        self.outcome.as_ref().map(|settled| settled.status)
    }
}

/// Why a turn could not be driven.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DispatchError {
    /// The journal cannot be written. What ran is in the store as far as it got; nothing more is run.
    #[error("the turn stopped because its journal failed")]
    Journal(#[source] JournalError),
    /// The store could not answer.
    #[error("the store could not answer")]
    Store(#[source] StoreError),
    /// Somebody else drives the session.
    #[error("session {session} is driven by {holder} until {until}")]
    Held {
        /// Which session.
        session: SessionId,
        /// Who drives it.
        holder: Arc<str>,
        /// Until when, unless it goes on.
        until: Timestamp,
    },
    /// Somebody else has taken the session over. Nothing was written since.
    #[error("session {session} was taken over by somebody else")]
    Fenced {
        /// Which session.
        session: SessionId,
    },
    /// There is no such turn.
    #[error("there is no turn {turn} in the store")]
    UnknownTurn {
        /// Which turn.
        turn: TurnId,
    },
    /// The turn has been continued by another one.
    #[error("turn {turn} was continued already")]
    AlreadyContinued {
        /// Which turn.
        turn: TurnId,
    },
    /// The turn has unsettled calls, so it cannot be continued.
    #[error("turn {turn} is not settled")]
    NotSettled {
        /// Which turn.
        turn: TurnId,
    },
    /// The turn was taken up again elsewhere in this process, and is driven there.
    #[error("turn {turn} is driven by somebody else now")]
    Superseded {
        /// Which turn.
        turn: TurnId,
    },
    /// The stored events of the turn do not fit together.
    #[error("the log of turn {turn} is damaged")]
    Damaged {
        /// Which turn.
        turn: TurnId,
        /// What does not fit.
        #[source]
        source: toolgate_core::TurnError,
    },
    /// A turn cannot have this many calls.
    #[error("the model asked for too many calls in one turn")]
    TooManyCalls,
}

impl From<StoreError> for DispatchError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Held { session, holder, until, .. } => Self::Held { session, holder, until },
            StoreError::Fenced { session, .. } => Self::Fenced { session },
            other => Self::Store(other),
        }
    }
}

impl From<JournalError> for DispatchError {
    fn from(error: JournalError) -> Self {
        match &error {
            JournalError::Store { session, .. } if error.is_fenced() => Self::Fenced { session: *session },
            _ => Self::Journal(error),
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Asked for and not waited for: if it is not heard, the lease runs out by itself.
        self.keeper.notify_one();
        let release = self.journal.driving().clone().release();
        let _ = contained_sync(|| release.now_or_never());
    }
}

impl Shared {
    /// The largest value that is put into an event; larger ones are named by digest and size only.
    const SHOWN_BYTES: usize = 64 * 1024;

    /// The longest text that is put into an event.
    const SAID_BYTES: usize = 16 * 1024;

    /// What an event may show of a value: a redacted copy, or nothing.
    pub(crate) fn shown(&self, value: &Json) -> Option<Json> {
        if value.size() > Self::SHOWN_BYTES {
            return None;
        }
        match &self.redactor {
            // A redactor that panics has redacted nothing.
            Some(redactor) => contained_sync(|| redactor.redact(value).ok()).ok().flatten(),
            None => Some(value.clone()),
        }
    }

    pub(crate) fn shown_value(&self, value: &Value) -> Option<Value> {
        let json = Json::new(value.clone()).ok()?;
        self.shown(&json).map(|json| json.as_value().clone())
    }

    pub(crate) fn shown_arguments(&self, arguments: &Arguments) -> Option<Arguments> {
        self.shown(arguments.as_json()).and_then(|json| Arguments::try_from(json).ok())
    }

    /// What an event may say in words.
    pub(crate) fn said_text(&self, text: &str) -> String {
        let said = match &self.redactor {
            Some(redactor) => contained_sync(|| redactor.redact_text(text).ok()).ok().flatten(),
            None => Some(text.to_owned()),
        };
        let mut said = said.filter(|said| !said.trim().is_empty()).unwrap_or_else(|| "(withheld)".to_owned());
        said.truncate(said.floor_char_boundary(Self::SAID_BYTES));
        said
    }

    /// The same event with its words redacted.
    pub(crate) fn said(&self, mut event: ToolEvent) -> ToolEvent {
        let words = match &mut event {
            ToolEvent::ToolDenied { reason, error, .. } => [reason.as_mut(), error.as_mut()],
            ToolEvent::ToolExecutionFailed { error, .. } => [Some(error), None],
            ToolEvent::ToolExecutionInterrupted { reason, .. } => [Some(reason), None],
            ToolEvent::ToolSkipped { reason } => [reason.as_mut(), None],
            _ => [None, None],
        };
        words.into_iter().flatten().for_each(|text| *text = self.said_text(text));
        event
    }

    /// The notes of a call as an event, redacted; none if that cannot be made sure.
    pub(crate) fn audit(&self, notes: &Notes) -> Option<ToolEvent> {
        if self.redactor.is_none() {
            return Some(ToolEvent::ToolCallAudit { audit: notes.clone() });
        }
        let value = serde_json::to_value(notes).ok()?;
        let audit = serde_json::from_value(self.shown_value(&value)?).ok()?;
        Some(ToolEvent::ToolCallAudit { audit })
    }

    /// Makes `active` the copy of its turn that is driven. An earlier copy stops.
    pub(crate) fn opened(&self, active: &Arc<Active>) {
        let earlier = self.open().insert(active.info.turn, Arc::downgrade(active));
        self.keeper.notify_one();
        if let Some(earlier) = earlier.and_then(|weak| weak.upgrade()) {
            drop(earlier.retire());
        }
    }

    /// Nobody drives `active` any more.
    pub(crate) fn closed(&self, active: &Arc<Active>) {
        let tasks = active.retire();
        let mut ending = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        ending.retain(|_, tasks| tasks.iter().any(|task| !task.is_finished()));
        if !tasks.is_empty() {
            ending.entry(active.info.turn).or_default().extend(tasks);
        }
        drop(ending);
        let mut open = self.open();
        if open.get(&active.info.turn).is_some_and(|weak| std::ptr::eq(weak.as_ptr(), Arc::as_ptr(active))) {
            open.remove(&active.info.turn);
        }
    }

    /// Waits until what an earlier copy of the turn was doing has stopped, but not longer than `grace`.
    pub(crate) async fn ended(&self, turn: TurnId) {
        let tasks = self.ending.lock().unwrap_or_else(PoisonError::into_inner).remove(&turn).unwrap_or_default();
        tokio::select! {
            _ = futures::future::join_all(tasks) => {}
            () = self.clock.sleep(self.grace) => {}
        }
    }

    pub(crate) fn active(&self, turn: TurnId) -> Option<Arc<Active>> {
        self.open().get(&turn).and_then(Weak::upgrade)
    }

    /// Whether `call` belongs to an open turn other than `turn`.
    pub(crate) fn belongs_elsewhere(&self, turn: TurnId, call: CallId) -> bool {
        let others: Vec<_> =
            self.open().iter().filter(|(id, _)| **id != turn).filter_map(|(_, weak)| weak.upgrade()).collect();
        others.iter().any(|active| active.state().turn.slot(call).is_some())
    }

    /// Completes when a turn is opened, or this is gone.
    pub(crate) fn opened_soon(&self) -> impl Future<Output = ()> + Send + 'static {
        let keeper = self.keeper.clone();
        async move { keeper.notified().await }
    }

    /// The turns that are driven here.
    pub(crate) fn driven(&self) -> Vec<Arc<Active>> {
        self.open().values().filter_map(Weak::upgrade).collect()
    }

    fn open(&self) -> MutexGuard<'_, HashMap<TurnId, Weak<Active>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until several writes are durable.
    pub(crate) async fn all_durable(&self, writes: Vec<Durable>) -> Result<(), JournalError> {
        for write in writes {
            write.await?;
        }
        Ok(())
    }
}

/// The outcome of an outside result: any settled outcome is welcome.
pub(crate) fn settled(outcome: Outcome) -> Option<Settled> {
    match outcome {
        Outcome::Settled(settled) => Some(*settled),
        Outcome::Suspended(_) => None,
    }
}
