//! Runs a turn's calls concurrently and reports them in call order.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, atomic::AtomicU64},
    time::Duration,
};

use futures::FutureExt;
use hashbrown::{HashMap, HashSet};
use tokio::{
    sync::{Notify, oneshot},
    task::JoinHandle,
};
use toolgate_core::{
    Admission, Approver, CallId, Clock, DynApprover, IdSource, Invocation, Keyring, MemoryStore,
    Outcome, ProviderCall, Record, RecordKey, Redactor, SessionId, Settled, Stack, Status, Store,
    StoreHandle, TakenCall, ToolRequest, Turn, TurnEvent, TurnId, TurnInfo, TurnRequests, View,
    contained_sync,
};

use crate::{
    Bus, DispatchError, Journal, JournalError, SystemClock, TimeOrderedIds, TurnFound, TurnRequest,
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
    pub(crate) max_calls: usize,
    pub(crate) on_failure: OnFailure,
    pub(crate) grace: Duration,
    pub(crate) late: LateGuard,
    pub(crate) keyring: Option<Keyring>,
    pub(crate) redactor: Option<Arc<dyn Redactor>>,
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
    /// Goes with this, and the keeper with it.
    _kept: oneshot::Sender<Infallible>,
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
    max_calls: usize,
    on_failure: OnFailure,
    grace: Duration,
    late: (usize, Duration),
    lease: Duration,
    by_force: bool,
}

impl Dispatcher {
    /// How many calls of a turn run at the same time unless told otherwise.
    pub const DEFAULT_CONCURRENCY: usize = 8;

    /// How many calls of a turn are made unless told otherwise.
    pub const MAX_CALLS: usize = 1_000;

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
            max_calls: Self::MAX_CALLS,
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
    pub async fn open(&self, mut request: TurnRequest) -> Result<TurnRun, DispatchError> {
        // Held until the turn is durable: of two that would continue the same turn, the second one sees the first.
        let _one_at_a_time = self.0.posting.lock().await;
        if let Some(after) = request.after.filter(|_| !request.trusted) {
            self.may_continue(after).await?;
        }
        if request.info.session != self.0.session || request.info.turn.is_nil() {
            let info = Arc::make_mut(&mut request.info);
            info.session = self.0.session;
            info.turn = if info.turn.is_nil() {
                TurnId::from_source(&*self.0.ids)
            } else {
                info.turn
            };
        }
        let active = self.write_opening(request).await?;
        self.0.opened(&active);
        active.settle_ran().await?;
        let turn = active.info.turn;
        Ok(TurnRun::new(active, TurnFound::nothing(turn)))
    }

    /// Writes down what was asked for, with whatever else belongs to it.
    async fn write_opening(&self, request: TurnRequest) -> Result<Arc<Active>, DispatchError> {
        let TurnRequest {
            view,
            calls,
            ran,
            after,
            info,
            stack,
            events,
            mut records,
            ..
        } = request;
        let taken = self.take_in(calls, ran);
        let stack = stack.unwrap_or_else(|| self.0.stack.clone());
        let active = self.activate(&view, info, &taken, stack);
        let size = u32::try_from(taken.len()).map_err(|_| DispatchError::TooManyCalls)?;
        let turn = active.info.turn;
        let requests = TurnRequests {
            info: active.info.clone(),
            after_sequence: self.0.journal.sequence(),
            calls: taken,
        };
        records.push((
            RecordKey::Requests(turn),
            Record::Requests(Arc::new(requests)),
        ));
        records.extend(after.map(|after| (RecordKey::Successor(after), Record::Turn(turn))));
        active
            .request_all(events, TurnEvent::TurnOpened { size, after }, records)
            .await?;
        Ok(active)
    }

    /// A turn is continued once, and only when it is settled.
    async fn may_continue(&self, turn: TurnId) -> Result<(), DispatchError> {
        self.0.journal.flushed().await?;
        if self
            .0
            .store
            .record(&RecordKey::Successor(turn))
            .await?
            .is_some()
        {
            return Err(DispatchError::AlreadyContinued { turn });
        }
        match self.0.store.record(&RecordKey::Ended(turn)).await? {
            Some(_) => Ok(()),
            None => Err(DispatchError::NotSettled { turn }),
        }
    }

    /// Gives each request an id of ours and a label that is not empty and not used twice.
    fn take_in(&self, calls: Vec<ToolRequest>, ran: Vec<ProviderCall>) -> Vec<TakenCall> {
        // One call has nothing to be told apart from.
        let alone = calls.len() + ran.len() == 1;
        let mut used: HashSet<Arc<str>> =
            HashSet::with_capacity(if alone { 0 } else { calls.len() });
        let mut take = |request: ToolRequest, ran: Option<Arc<ProviderCall>>| {
            let id = CallId::from_source(&*self.0.ids);
            let given: Arc<str> = request.provider_call_id.as_str().into();
            let fresh = !given.is_empty() && (alone || used.insert(given.clone()));
            let call_id = if fresh { given } else { id.to_string().into() };
            TakenCall {
                id,
                call_id,
                request,
                ran,
            }
        };
        let mut taken = Vec::with_capacity(calls.len() + ran.len());
        taken.extend(calls.into_iter().map(|request| take(request, None)));
        taken.extend(ran.into_iter().map(|ran| {
            let request = ToolRequest::json(&ran.id, &ran.tool, ran.arguments.clone());
            take(request, Some(Arc::new(ran)))
        }));
        taken
    }

    /// Puts the state of a turn together from what was taken in.
    pub(crate) fn activate(
        &self,
        view: &View,
        info: Arc<TurnInfo>,
        taken: &[TakenCall],
        stack: Stack,
    ) -> Arc<Active> {
        let mut invocations = Vec::with_capacity(taken.len());
        let mut work = Vec::with_capacity(taken.len());
        for (emit_order, taken) in (0..).zip(taken) {
            let admission = match &taken.ran {
                Some(_) => Admission::of_provider(&taken.request),
                None => self.admit(view, &taken.request, emit_order as usize),
            };
            let (id, call_id, tool, turn) = (
                taken.id,
                taken.call_id.clone(),
                admission.tool.clone(),
                info.clone(),
            );
            invocations.push(Arc::new(Invocation {
                id,
                call_id,
                tool,
                emit_order,
                turn,
            }));
            // Mostly the label is the provider's own id, and then it is kept once.
            let same = *taken.call_id == *taken.request.provider_call_id;
            let given = if same {
                taken.call_id.clone()
            } else {
                taken.request.provider_call_id.as_str().into()
            };
            work.push(Work::new(given, admission, taken.ran.clone()));
        }
        Active::new(self.0.clone(), stack, Turn::new(info, invocations), work)
    }
}

impl Dispatcher {
    /// Checks a request against what the model was shown, and against how many calls a turn may have.
    ///
    /// What is too much is refused like anything else: every call of a reply has an outcome, or providers take no more.
    fn admit(&self, view: &View, request: &ToolRequest, emit_order: usize) -> Admission {
        let (mut admission, most) = (view.admit(request), self.0.max_calls);
        if emit_order >= most {
            let text = format!(
                "The call was not made: of one reply, only the first {most} calls are. Ask for it again if you still need it."
            );
            admission.refusal = Some(Outcome::refused(Status::RateLimited, text));
        }
        admission
    }
}

impl DispatcherBuilder {
    /// The same store, clock, bus, approver and keys as another dispatcher has.
    pub(crate) fn beside(mut self, other: &Dispatcher) -> Self {
        let Shared {
            store,
            clock,
            ids,
            bus,
            approver,
            redactor,
            keyring,
            max_concurrent,
            max_calls,
            ..
        } = &*other.0;
        let Shared {
            on_failure, grace, ..
        } = &*other.0;
        (self.store, self.clock, self.ids, self.bus) =
            (store.clone(), clock.clone(), ids.clone(), bus.clone());
        (self.approver, self.redactor, self.keyring) =
            (approver.clone(), redactor.clone(), keyring.clone());
        (self.max_concurrent, self.max_calls) = (*max_concurrent, *max_calls);
        (self.on_failure, self.grace) = (*on_failure, *grace);
        self
    }

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

    /// How many calls of a turn are made: 1,000 unless said. Those behind them are refused, and the model is told.
    pub fn max_calls(mut self, calls: usize) -> Self {
        self.max_calls = calls;
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
        let session = self
            .session
            .unwrap_or_else(|| SessionId::from_source(&*self.ids));
        let (store, clock) = (self.store.clone(), self.clock.clone());
        let driving = Driving::take(
            session,
            store.clone(),
            clock.clone(),
            self.lease,
            self.by_force,
        )
        .await?;
        let journal = Journal::under(driving, store, self.bus.clone(), clock);
        let late = LateGuard::new(
            self.late.0,
            self.late.1,
            self.clock.clone(),
            self.store.clone(),
        );
        let (kept, gone) = oneshot::channel();
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
            max_calls: self.max_calls,
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
            _kept: kept,
        });
        tokio::spawn(crate::keeper::keep(Arc::downgrade(&shared), gone));
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

impl Drop for Shared {
    fn drop(&mut self) {
        // Asked for and not waited for: if it is not heard, the lease runs out by itself.
        let release = self.journal.driving().clone().release();
        let _ = contained_sync(|| release.now_or_never());
    }
}

impl Shared {
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
        if open
            .get(&active.info.turn)
            .is_some_and(|weak| std::ptr::eq(weak.as_ptr(), Arc::as_ptr(active)))
        {
            open.remove(&active.info.turn);
        }
    }

    /// Waits until what an earlier copy of the turn was doing has stopped, but not longer than `grace`.
    pub(crate) async fn ended(&self, turn: TurnId) {
        let tasks = self
            .ending
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&turn)
            .unwrap_or_default();
        if tasks.is_empty() {
            return;
        }
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
        let others: Vec<_> = self
            .open()
            .iter()
            .filter(|(id, _)| **id != turn)
            .filter_map(|(_, weak)| weak.upgrade())
            .collect();
        others
            .iter()
            .any(|active| active.state().turn.slot(call).is_some())
    }

    /// Completes when a turn is opened.
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
