//! Runs a turn's calls concurrently and reports them in call order.

pub(crate) mod builder;
pub(crate) mod driver;
pub(crate) mod duplicates;
pub(crate) mod handle;
pub(crate) mod open_turn;
pub(crate) mod queue;
pub(crate) mod recovery;
mod redaction;
mod rehearse;
pub(crate) mod report;
pub(crate) mod request;
mod resume;
mod scheduler;

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use hashbrown::{HashMap, HashSet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{Notify, oneshot},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;
use toolgate_core::{
    AcceptedCall, Admission, CallId, Clock, DynApprover, IdSource, Invocation, Keyring, Outcome,
    ProviderCall, RecordKey, Redactor, Refusal, SessionId, SettledOutcome, Stack, StoreHandle,
    StoreRecord, ToolRequest, Turn, TurnEvent, TurnId, TurnInfo, TurnRequests, View,
    run_contained_sync,
};

use crate::{
    ApprovalService, Bus, DispatchError, Journal, JournalError, RecoveredTurn, TurnRequest,
    journal::WriteAck,
    turn::{
        driver::TurnRun,
        duplicates::SettledCache,
        open_turn::{InvocationState, OpenTurn},
    },
};

/// Runs the turns of one session. Clones share the same session.
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
/// let stack = Stack::over(registry.clone()).build()?;
/// let view = View::for_stack(&registry, &stack)?;
/// let dispatcher = Dispatcher::builder(stack).build().await?;
/// let calls = vec![ToolRequest::from_text("a", "double", r#"{"n":1}"#), ToolRequest::from_text("b", "double", r#"{"n":2}"#)];
/// let report = dispatcher.open_turn(TurnRequest::new(view, calls)).await?.run().await?;
/// let texts: Vec<_> = report.results.iter().map(|r| r.outcome.as_ref().unwrap().model_text().into_owned()).collect();
/// assert_eq!(texts, ["2", "4"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Dispatcher(pub(crate) Arc<DispatcherShared>);

/// State that all turns of a session share.
pub(crate) struct DispatcherShared {
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
    pub(crate) late: Arc<SettledCache>,
    pub(crate) keyring: Option<Keyring>,
    pub(crate) redactor: Option<Arc<dyn Redactor>>,
    open: Mutex<HashMap<TurnId, Weak<OpenTurn>>>,
    /// Tasks of turns that are no longer driven and that have not stopped yet.
    ending: Mutex<HashMap<TurnId, Vec<JoinHandle<()>>>>,
    /// Held while inputs are applied, one after the other, and while a turn is opened or resumed:
    /// whether an input reaches its turn must not depend on how far that has got.
    pub(crate) inputs: tokio::sync::Mutex<()>,
    /// The number of the last mailbox message that was processed.
    pub(crate) posts_seen: AtomicU64,
    /// The number of runs that are under way. Between the turns of a run the model thinks, which may
    /// take longer than a lease lasts.
    pub(crate) runs: AtomicUsize,
    /// Wakes the lease renewal task when there is a run or a turn to drive.
    pub(crate) keeper: Arc<Notify>,
    /// Dropped together with this state, which ends the lease renewal task.
    _kept: oneshot::Sender<Infallible>,
}

/// Keeps the lease of a session renewed while a run is under way.
pub(crate) struct DrivingGuard(Arc<DispatcherShared>);

impl Drop for DrivingGuard {
    fn drop(&mut self) {
        self.0.runs.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Policy for the other calls of a turn when one of them fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The other calls are not affected.
    #[default]
    Continue,
    /// Running calls finish, calls that have not started are cancelled, and the turn stops.
    Abort,
}

impl Dispatcher {
    /// Default limit on how many calls of a turn run at the same time.
    pub const DEFAULT_CONCURRENCY: usize = 8;

    /// Default limit on how many calls of a turn are made.
    pub const MAX_CALLS: usize = 1_000;

    /// Returns the session's id.
    pub fn session(&self) -> SessionId {
        self.0.session
    }

    /// Returns the bus on which events are published.
    pub fn bus(&self) -> &Bus {
        &self.0.bus
    }

    /// Returns the store.
    pub fn store(&self) -> &StoreHandle {
        &self.0.store
    }

    /// Returns the stack.
    pub fn stack(&self) -> &Stack {
        &self.0.stack
    }

    /// Returns the service that decides on approval requests and delivers external results, with the
    /// keys and the clock of this dispatcher. Its inputs reach the driver through the store.
    pub fn approval_service(&self) -> ApprovalService {
        let shared = &self.0;
        ApprovalService::for_dispatcher(
            shared.store.clone(),
            shared.keyring.clone(),
            shared.clock.clone(),
            shared.redactor.clone(),
            shared.late.clone(),
        )
        .notify_layers(&shared.stack)
    }

    /// Opens a turn with the calls a model asked for. When this returns, the requests are durable
    /// and nothing has run.
    ///
    /// # Errors
    ///
    /// Fails if the turn before it is not settled or was continued already, if the session was lost
    /// to another process, or if the requests could not be written.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the requests may have been written. The turn is then open in the
    /// store and can be resumed with [`Dispatcher::recover_turns`].
    pub async fn open_turn(&self, request: TurnRequest) -> Result<TurnRun, DispatchError> {
        let turn = self.open_held_turn(request).await?;
        self.0.journal.when_flushed().await?;
        Ok(turn)
    }

    /// Opens a turn like [`Dispatcher::open_turn`], but holds the write: it begins when the first
    /// call starts or anything waits. A call that may write waits for it.
    pub(crate) async fn open_held_turn(
        &self,
        mut request: TurnRequest,
    ) -> Result<TurnRun, DispatchError> {
        // Held until the turn is durable: of two requests that continue the same turn, the second
        // must see the record of the first.
        let _one_at_a_time = self.0.inputs.lock().await;
        // A session knows that its last turn is settled; it saves two reads of the store per
        // iteration.
        if let Some(after) = request.after.filter(|_| !request.trusted) {
            self.check_continuation(after).await?;
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
        let active = self.hold_opening(request)?;
        self.0.register_turn(&active);
        active.settle_provider_calls().await?;
        let turn = active.info.turn;
        Ok(TurnRun::new(active, RecoveredTurn::empty(turn)))
    }

    /// Hands over the requests, with the events and records that belong to the same write.
    fn hold_opening(&self, request: TurnRequest) -> Result<Arc<OpenTurn>, DispatchError> {
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
        let taken = self.assign_ids(calls, ran);
        let stack = stack.unwrap_or_else(|| self.0.stack.clone());
        let active = self.build_turn(&view, info, &taken, stack);
        let size = u32::try_from(taken.len()).map_err(|_| DispatchError::TooManyCalls)?;
        let turn = active.info.turn;
        let requests = TurnRequests {
            info: active.info.clone(),
            // A replay of this turn starts here and does not read the session from its beginning.
            after_sequence: self.0.journal.sequence(),
            calls: taken,
        };
        records.push((
            RecordKey::Requests(turn),
            StoreRecord::Requests(Arc::new(requests)),
        ));
        // Same write as the opening, so a turn cannot get a second successor after a crash.
        records.extend(after.map(|after| (RecordKey::Successor(after), StoreRecord::Turn(turn))));
        let opened = TurnEvent::TurnOpened { size, after };
        active.request_calls(events, opened, records);
        Ok(active)
    }

    /// Checks that `turn` is settled and was not continued before.
    async fn check_continuation(&self, turn: TurnId) -> Result<(), DispatchError> {
        // The successor's record may still be in the queue of this process.
        self.0.journal.when_flushed().await?;
        if self.0.store.load_successor(turn).await?.is_some() {
            return Err(DispatchError::AlreadyContinued { turn });
        }
        match self.0.store.load_turn_end(turn).await? {
            Some(_) => Ok(()),
            None => Err(DispatchError::NotSettled { turn }),
        }
    }

    /// Gives each request a runtime id, and a label that is neither empty nor used twice.
    fn assign_ids(&self, calls: Vec<ToolRequest>, ran: Vec<ProviderCall>) -> Vec<AcceptedCall> {
        // A single call cannot collide with another one, so nothing is tracked.
        let alone = calls.len() + ran.len() == 1;
        let mut used: HashSet<Arc<str>> =
            HashSet::with_capacity(if alone { 0 } else { calls.len() });
        let mut take = |request: ToolRequest, ran: Option<Arc<ProviderCall>>| {
            let id = CallId::from_source(&*self.0.ids);
            let given: Arc<str> = request.provider_call_id.as_str().into();
            let fresh = !given.is_empty() && (alone || used.insert(given.clone()));
            let call_id = if fresh { given } else { id.to_string().into() };
            AcceptedCall {
                id,
                call_id,
                request,
                ran,
            }
        };
        let mut taken = Vec::with_capacity(calls.len() + ran.len());
        taken.extend(calls.into_iter().map(|request| take(request, None)));
        taken.extend(ran.into_iter().map(|ran| {
            let request = ToolRequest::from_json(&ran.id, &ran.tool, ran.arguments.clone());
            take(request, Some(Arc::new(ran)))
        }));
        taken
    }

    /// Builds the state of a turn from its admitted calls.
    pub(crate) fn build_turn(
        &self,
        view: &View,
        info: Arc<TurnInfo>,
        taken: &[AcceptedCall],
        stack: Stack,
    ) -> Arc<OpenTurn> {
        let mut invocations = Vec::with_capacity(taken.len());
        let mut work = Vec::with_capacity(taken.len());
        let cancel = CancellationToken::new();
        for (emit_order, taken) in (0..).zip(taken) {
            let admission = match &taken.ran {
                Some(_) => Admission::for_provider_call(&taken.request),
                None => self.admit_call(view, &taken.request, emit_order as usize),
            };
            let id = taken.id;
            let call_id = taken.call_id.clone();
            let tool = admission.tool.clone();
            let turn = info.clone();
            invocations.push(Arc::new(Invocation {
                id,
                call_id,
                tool,
                emit_order,
                turn,
            }));
            // Usually the label is the provider's own id; then both share one allocation.
            let same = *taken.call_id == *taken.request.provider_call_id;
            let given = if same {
                taken.call_id.clone()
            } else {
                taken.request.provider_call_id.as_str().into()
            };
            // Stopping the turn stops each of its calls.
            let stop = cancel.child_token();
            work.push(InvocationState::new(
                given,
                admission,
                taken.ran.clone(),
                stop,
            ));
        }
        let turn = Turn::new(info, invocations);
        OpenTurn::new(self.0.clone(), stack, turn, work, cancel)
    }
}

impl Dispatcher {
    /// Checks a request against the view the model saw, and against the number of calls a turn may
    /// have.
    fn admit_call(&self, view: &View, request: &ToolRequest, emit_order: usize) -> Admission {
        let mut admission = view.admit_request(request);
        let most = self.0.max_calls;
        if emit_order >= most {
            let text = format!(
                "The call was not made: only the first {most} calls of one reply are made. Request it again if you still need it."
            );
            // Rejected like any other call, not dropped: providers reject a conversation in which a
            // call of a reply has no result.
            admission.refusal = Some(Outcome::refused(Refusal::RateLimited, text));
        }
        admission
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

impl Drop for DispatcherShared {
    fn drop(&mut self) {
        // Requested but not awaited, because `drop` cannot wait. If the store does not complete it
        // at once, the lease expires by itself.
        let release = self.journal.lease().clone().release();
        let _ = run_contained_sync(|| release.now_or_never());
    }
}

impl DispatcherShared {
    /// Makes `active` the copy of its turn that is driven. An earlier copy stops.
    pub(crate) fn register_turn(&self, active: &Arc<OpenTurn>) {
        let earlier = self
            .lock_open_turns()
            .insert(active.info.turn, Arc::downgrade(active));
        // A session without open turns does not renew its lease; this turn needs it again.
        self.keeper.notify_one();
        if let Some(earlier) = earlier.and_then(|weak| weak.upgrade()) {
            drop(earlier.retire_copy());
        }
    }

    /// Unregisters a copy of a turn that is no longer driven, and stops its tasks.
    pub(crate) fn unregister_turn(&self, active: &Arc<OpenTurn>) {
        let tasks = active.retire_copy();
        let mut ending = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        // Other turns whose tasks have stopped meanwhile are forgotten, so that the map stays
        // small.
        ending.retain(|_, tasks| tasks.iter().any(|task| !task.is_finished()));
        if !tasks.is_empty() {
            ending.entry(active.info.turn).or_default().extend(tasks);
        }
        drop(ending);
        let mut open = self.lock_open_turns();
        // A newer copy may have taken its place; only the entry of this copy is removed.
        if open
            .get(&active.info.turn)
            .is_some_and(|weak| std::ptr::eq(weak.as_ptr(), Arc::as_ptr(active)))
        {
            open.remove(&active.info.turn);
        }
    }

    /// Waits until the tasks of earlier copies of the turn have stopped, at most for the grace
    /// period.
    pub(crate) async fn wait_for_earlier_tasks(&self, turn: TurnId) {
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

    /// Returns the copy of the turn that is driven here, if there is one.
    pub(crate) fn driven_turn(&self, turn: TurnId) -> Option<Arc<OpenTurn>> {
        self.lock_open_turns().get(&turn).and_then(Weak::upgrade)
    }

    /// Returns true while the lease has to be renewed: a run is under way or a turn is open.
    pub(crate) fn is_driving(&self) -> bool {
        self.runs.load(Ordering::SeqCst) > 0 || !self.driven_turns().is_empty()
    }

    /// Keeps the lease renewed for a run, until the guard is dropped.
    pub(crate) fn begin_driving(self: &Arc<Self>) -> DrivingGuard {
        self.runs.fetch_add(1, Ordering::SeqCst);
        self.keeper.notify_one();
        DrivingGuard(self.clone())
    }

    /// Completes when a run begins or a turn is opened.
    pub(crate) fn wait_for_open(&self) -> impl Future<Output = ()> + Send + 'static {
        let keeper = self.keeper.clone();
        async move { keeper.notified().await }
    }

    /// Returns the turns that are driven here.
    pub(crate) fn driven_turns(&self) -> Vec<Arc<OpenTurn>> {
        self.lock_open_turns()
            .values()
            .filter_map(Weak::upgrade)
            .collect()
    }

    fn lock_open_turns(&self) -> MutexGuard<'_, HashMap<TurnId, Weak<OpenTurn>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until several writes are durable.
    pub(crate) async fn await_all(&self, writes: Vec<WriteAck>) -> Result<(), JournalError> {
        for write in writes {
            write.await?;
        }
        Ok(())
    }
}

/// Returns the settled outcome; nothing for a suspended one, which is not a result.
pub(crate) fn settled_outcome(outcome: Outcome) -> Option<SettledOutcome> {
    match outcome {
        Outcome::Settled(settled) => Some(*settled),
        Outcome::Suspended(_) => None,
    }
}
