//! One turn while it is driven: its state, and the only place that writes its events.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use toolgate_core::{
    Admission, ApprovalRequest, Arguments, Call, CallEnv, CallId, CallSeed, ConflictKey,
    ExecutorTag, InputKind, Json, LedgerDraft, Outcome, Phase, ProviderCall, RecordKey, RejectCode,
    ResumeState, SessionEvent, SettledOutcome, Stack, StoreRecord, Timestamp, ToolEvent, Turn,
    TurnEvent, TurnInfo,
};

use crate::{
    journal::{BatchExtras, PendingEvent, RunnableCall, WriteAck, WriteTiming},
    turn::{
        DispatcherShared,
        open_turn::probe::TurnProbe,
        queue::{InputQueue, Urgency},
        scheduler::ScheduledCall,
    },
};

pub(super) mod answers;
pub(crate) mod probe;
mod provider_calls;
pub(super) mod settle;

/// A turn that is open in this process.
pub(crate) struct OpenTurn {
    pub(crate) shared: Arc<DispatcherShared>,
    pub(crate) info: Arc<TurnInfo>,
    pub(crate) inbox: InputQueue<DriverInput>,
    pub(crate) cancel: CancellationToken,
    pub(crate) stack: Stack,
    env: CallEnv,
    state: Mutex<OpenTurnState>,
}

/// An input that the driver of a turn handles.
#[derive(Debug)]
pub(crate) enum DriverInput {
    /// A call left the stack, settled or suspended.
    CallLeft(usize),
    /// A call is to be started.
    StartCall(CallId),
    /// An approver was asked and has either answered or not.
    ApproverDone,
    /// An input was applied; the turn knows what to do next.
    Applied,
    /// One call is to stop.
    CancelCall(usize),
    /// One call was told to stop and has had the time to do so.
    AbortCall(usize),
    /// The turn was interrupted.
    Interrupted,
    /// What runs is stopped for this reason; pending calls stay pending.
    RunningStopped(Arc<str>),
    /// Another copy of the turn is driven now.
    Retired,
    /// A message of the user.
    Message(String),
}

/// Mutable state of an open turn, behind one lock.
pub(crate) struct OpenTurnState {
    pub(crate) turn: Turn,
    pub(crate) work: Vec<InvocationState>,
    /// This copy of the turn is no longer driven, so it must not write: another copy may.
    pub(crate) retired: bool,
    /// The turn was interrupted, which ends more than a failed sibling does.
    interrupted: bool,
    /// The event that settles the turn has been written.
    said_settled: bool,
    /// The number of the write that opens the turn, if it was opened in this process.
    opening: Option<u64>,
    /// The time at which the first pending approval request expires.
    expires_next: Option<Timestamp>,
}

/// State of one invocation beside its phase.
pub(crate) struct InvocationState {
    pub(crate) provider_call_id: Arc<str>,
    pub(crate) admission: Admission,
    pub(crate) resumed: ResumeState,
    /// Boxed: most calls need no approval, and a turn may have a thousand of them.
    pub(crate) pending: Option<Box<ApprovalRequest>>,
    /// True if the stored request has no seal that can be checked: approval is requested again.
    pub(crate) has_unsealed_request: bool,
    pub(crate) outcome: Option<Arc<SettledOutcome>>,
    pub(crate) task: Option<JoinHandle<()>>,
    /// Cancelled if this call alone is to stop.
    cancel: CancellationToken,
    /// Set if the provider executed the call: there is nothing to run.
    pub(crate) ran: Option<Arc<ProviderCall>>,
    /// The arguments with which an external executor runs the tool.
    pub(crate) outside: Option<Arguments>,
    /// Ledger entries to seal with the outcome, each with the pass that produced it.
    entries: SmallVec<[(StackEntry, LedgerDraft); 1]>,
    /// Records of layers to write with the outcome, each with the pass that produced it.
    records: Vec<(StackEntry, RecordKey, Json)>,
    /// Records of layers to write with the start or the outcome, whichever comes first.
    unwritten: Vec<(RecordKey, StoreRecord)>,
}

/// The reason why a call descends the stack. A call that is being closed can still return from its
/// execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StackEntry {
    /// To be run.
    Down,
    /// To let recording layers see how it ended.
    Closing,
}

impl InvocationState {
    pub(crate) fn new(
        provider_call_id: Arc<str>,
        admission: Admission,
        ran: Option<Arc<ProviderCall>>,
        cancel: CancellationToken,
    ) -> Self {
        Self {
            provider_call_id,
            admission,
            resumed: ResumeState::default(),
            pending: None,
            has_unsealed_request: false,
            outcome: None,
            task: None,
            cancel,
            ran,
            outside: None,
            entries: SmallVec::new(),
            records: Vec::new(),
            unwritten: Vec::new(),
        }
    }

    /// Drops the entries and records of a pass whose outcome was not written.
    fn forget_pass(&mut self, pass: StackEntry) {
        self.entries.retain(|entry| entry.0 != pass);
        self.records.retain(|(of, ..)| *of != pass);
    }

    /// Checks whether a call of this tool can change anything. An unknown tool cannot: it never
    /// runs.
    pub(crate) fn may_write(&self) -> bool {
        self.admission
            .shown
            .as_ref()
            .is_some_and(|shown| shown.entry.spec.annotations.may_write())
    }

    fn executor(&self) -> Option<ExecutorTag> {
        if self.ran.is_some() {
            return Some(ExecutorTag::ProviderNative);
        }
        self.admission
            .shown
            .as_ref()
            .map(|shown| shown.entry.executor.clone())
    }

    fn conflict_keys(&self) -> Vec<ConflictKey> {
        // An approver may have edited the path, and the edited call is the one that runs.
        let arguments = self
            .resumed
            .edited_arguments()
            .unwrap_or(&self.admission.arguments);
        self.admission.shown.as_ref().map_or_else(Vec::new, |s| {
            s.entry.spec.annotations.conflict_keys(arguments)
        })
    }
}

impl OpenTurn {
    pub(crate) fn new(
        shared: Arc<DispatcherShared>,
        stack: Stack,
        turn: Turn,
        work: Vec<InvocationState>,
        cancel: CancellationToken,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| {
            let probe = Arc::new(TurnProbe(me.clone()));
            let env = CallEnv::new(shared.clock.clone(), shared.store.clone(), probe);
            let info = turn.info().clone();
            let state = Mutex::new(OpenTurnState {
                turn,
                work,
                retired: false,
                interrupted: false,
                said_settled: false,
                opening: None,
                expires_next: None,
            });
            Self {
                shared,
                info,
                inbox: InputQueue::new(),
                cancel,
                stack,
                env,
                state,
            }
        })
    }

    // A poisoned lock is used anyway: the state changes only together with an event that was found
    // legal, so it is never half-changed.
    pub(crate) fn lock_state(&self) -> MutexGuard<'_, OpenTurnState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests every invocation. `records` are part of the same write, which is held: a call that
    /// waits or starts, or the end of the run, is written together with it.
    pub(crate) fn request_calls(
        &self,
        before: Vec<SessionEvent>,
        opened: TurnEvent,
        records: Vec<(RecordKey, StoreRecord)>,
    ) {
        let mut state = self.lock_state();
        let mut drafts = Vec::with_capacity(before.len() + 1 + state.work.len());
        drafts.extend(
            before
                .into_iter()
                .map(|event| PendingEvent::Loop(self.info.clone(), event)),
        );
        drafts.push(PendingEvent::Turn(self.info.clone(), opened));
        let OpenTurnState { turn, work, .. } = &mut *state;
        for (at, work) in work.iter().enumerate() {
            let invocation = turn.slots()[at].invocation().clone();
            let arguments = work.admission.arguments.as_json();
            let event = ToolEvent::ToolRequested {
                arguments: self.shared.visible_json(arguments),
                arguments_digest: arguments.digest(),
                arguments_bytes: arguments.size() as u64,
                executor: work.executor(),
            };
            turn.apply(invocation.id, &event)
                .expect("a new invocation can be requested");
            drafts.push(PendingEvent::Tool(invocation, event));
        }
        let along = BatchExtras::with_records(records);
        let journal = &self.shared.journal;
        let opening = journal.append_at(WriteTiming::Held, drafts, along);
        state.opening = opening.held_number();
    }

    /// Completes when the write that opened the turn is durable.
    pub(crate) fn when_opened(&self) -> WriteAck {
        match self.lock_state().opening {
            Some(number) => self.shared.journal.when_written(number),
            // It was loaded from the store, or the journal has failed and reports that itself.
            None => WriteAck::Now(Ok(())),
        }
    }

    /// Returns what the scheduler has to know about a call.
    pub(crate) fn scheduled_call(&self, call: CallId) -> Option<ScheduledCall> {
        let state = self.lock_state();
        let at = state.turn.slot(call)?.invocation().emit_order as usize;
        let work = &state.work[at];
        Some(ScheduledCall {
            at,
            keys: work.conflict_keys(),
            writes: work.may_write(),
        })
    }

    /// Returns the calls that an external executor runs.
    pub(crate) fn external_calls(&self) -> Vec<ScheduledCall> {
        let ids: Vec<CallId> = {
            let state = self.lock_state();
            let waits =
                |slot: &&toolgate_core::InvocationSlot| slot.phase() == Some(Phase::AwaitingResult);
            state
                .turn
                .slots()
                .iter()
                .filter(waits)
                .map(|slot| slot.invocation().id)
                .collect()
        };
        ids.into_iter()
            .filter_map(|id| self.scheduled_call(id))
            .collect()
    }

    /// Builds the call that enters the stack. If it has ended elsewhere, `closing` is its outcome.
    pub(crate) fn build_call(&self, at: usize, closing: Option<Arc<SettledOutcome>>) -> Call {
        let mut state = self.lock_state();
        let pass = if closing.is_some() {
            StackEntry::Closing
        } else {
            StackEntry::Down
        };
        // Entries of an earlier descent describe an outcome that was not written.
        state.work[at].forget_pass(pass);
        let slot = &state.turn.slots()[at];
        let work = &state.work[at];
        // Attempts whose results are known are replayed, so counting starts before them. A closing
        // call replays nothing.
        let known = work
            .resumed
            .results
            .first()
            .map(|(attempt, _)| attempt - 1)
            .filter(|_| closing.is_none());
        Call::new(CallSeed {
            id: slot.invocation().id,
            generation: slot.generation(),
            provider_call_id: work.provider_call_id.clone(),
            emit_order: slot.invocation().emit_order,
            turn: self.info.clone(),
            admission: work.admission.clone(),
            resumed: work.resumed.clone(),
            attempts_before: known.unwrap_or(slot.attempts()),
            rehearsal: false,
            closing,
            cancel: work.cancel.child_token(),
            env: self.env.clone(),
        })
    }

    /// Sends one call through the stack and records its outcome.
    pub(crate) async fn run_call(self: Arc<Self>, at: usize, runnable: RunnableCall) {
        // Notifies the driver even if this task is aborted.
        let _left = LeaveGuard { active: &self, at };
        let descent = self.stack.run(self.build_call(at, None));
        let outcome = runnable.drive(descent).await;
        let durable = match outcome {
            Outcome::Settled(settled) => self.settle_call(at, *settled, StackEntry::Down),
            Outcome::Suspended(suspension) => self.suspend_call(at, *suspension),
        };
        // The driver checks the journal itself and reports its failure.
        let _ = match durable {
            // The driver continues now, and its next write has it.
            Ok(WriteAck::Held(_)) => Ok(()),
            Ok(durable) => durable.await,
            // Boxed because it is rare: the future of every call stays small without it.
            Err(instead) => Box::pin(self.close_call(at, *instead)).await,
        };
    }

    /// Stops the turn: nothing more is started, and running calls are cancelled.
    /// `along` belongs to the same write.
    pub(crate) fn interrupt_turn(&self, reason: &str, along: BatchExtras) -> Option<WriteAck> {
        let mut state = self.lock_state();
        if state.retired || state.interrupted || state.turn.is_settled() {
            return None;
        }
        state.interrupted = true;
        state.turn.stop();
        let reason = self.shared.visible_text(reason);
        let event = PendingEvent::Turn(self.info.clone(), TurnEvent::TurnInterrupted { reason });
        let durable = self.shared.journal.append_with([event], along);
        drop(state);
        self.cancel.cancel();
        self.inbox
            .push(Urgency::Settlement, DriverInput::Interrupted);
        Some(durable)
    }

    /// Tells one call to stop, if it runs here or waits to start here. The driver settles it if it
    /// does not stop by itself.
    pub(crate) fn cancel_call(&self, call: CallId) -> bool {
        let state = self.lock_state();
        let Some(slot) = state.turn.slot(call).filter(|_| !state.retired) else {
            return false;
        };
        let is_here = matches!(
            slot.phase(),
            Some(Phase::Requested | Phase::Approved | Phase::Running)
        );
        if !is_here {
            return false;
        }
        let at = slot.invocation().emit_order as usize;
        state.work[at].cancel.cancel();
        drop(state);
        self.inbox
            .push(Urgency::Settlement, DriverInput::CancelCall(at));
        true
    }

    /// Checks whether the turn continues and a call waits for a decision or an external result.
    pub(crate) fn has_pending_calls(&self) -> bool {
        let state = self.lock_state();
        let mut slots = state.turn.slots().iter();
        !state.retired && !state.interrupted && slots.any(|slot| is_pending(slot.phase()))
    }

    /// Stops what runs: nothing more is started, running calls are cancelled, and pending calls
    /// stay pending.
    pub(crate) fn stop_running(&self, reason: &str) {
        self.cancel.cancel();
        let stopped = DriverInput::RunningStopped(reason.into());
        self.inbox.push(Urgency::Settlement, stopped);
    }

    /// Stops the turn because a call failed: nothing more is started, running calls continue.
    pub(crate) fn abort_turn(&self, reason: &str) -> WriteAck {
        let mut state = self.lock_state();
        state.turn.stop();
        let reason = reason.to_owned();
        self.shared.journal.append(
            [PendingEvent::Turn(
                self.info.clone(),
                TurnEvent::TurnInterrupted { reason },
            )],
            [],
        )
    }

    /// Stops the tasks of this copy of the turn and keeps it from writing. What they did is in the
    /// journal.
    ///
    /// Returns the tasks: an aborted task stops at its next await point, which may take a moment.
    pub(crate) fn retire_copy(&self) -> Vec<JoinHandle<()>> {
        let mut state = self.lock_state();
        state.retired = true;
        // For everything that still waits on behalf of this copy: prompts, child work, another
        // driver.
        self.cancel.cancel();
        // A driver of this copy gets an error instead of waiting for ever.
        self.inbox.push(Urgency::Settlement, DriverInput::Retired);
        let tasks: Vec<_> = state
            .work
            .iter_mut()
            .filter_map(|work| work.task.take())
            .collect();
        tasks.iter().for_each(JoinHandle::abort);
        tasks
    }

    /// Records that an input changed nothing.
    fn write_rejection(
        &self,
        invocation_id: CallId,
        what: InputKind,
        code: RejectCode,
    ) -> WriteAck {
        self.shared
            .journal
            .append([self.rejection_event(invocation_id, what, code)], [])
    }

    fn rejection_event(
        &self,
        invocation_id: CallId,
        what: InputKind,
        code: RejectCode,
    ) -> PendingEvent {
        PendingEvent::Turn(
            self.info.clone(),
            TurnEvent::InputRejected {
                invocation_id,
                what,
                code,
            },
        )
    }
}

/// Checks whether a call in this phase waits for a decision or an external result.
pub(crate) fn is_pending(phase: Option<Phase>) -> bool {
    matches!(phase, Some(Phase::AwaitingApproval | Phase::AwaitingResult))
}

/// Notifies the driver that a call left the stack, also if its task was aborted or panicked.
struct LeaveGuard<'a> {
    active: &'a OpenTurn,
    at: usize,
}

impl Drop for LeaveGuard<'_> {
    fn drop(&mut self) {
        self.active
            .inbox
            .push(Urgency::Settlement, DriverInput::CallLeft(self.at));
    }
}
