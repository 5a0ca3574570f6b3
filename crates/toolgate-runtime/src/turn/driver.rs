//! The loop that drives one turn: performs the turn's next step until nothing is left to do.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use toolgate_core::{
    ApprovalRequest, ApprovalRequestRef, CallId, DynApprover, InputKind, Phase, Status, Suspension,
    Timestamp, TurnId, TurnInfo, TurnStep, run_contained,
};

use crate::{
    CallResult, DispatchError, Dispatcher, OnFailure, RecoveredTurn, TurnEnd, TurnHandle,
    TurnReport,
    turn::{
        open_turn::{DriverInput, OpenTurn},
        queue::Urgency,
        scheduler::CallScheduler,
    },
};

/// An open turn, ready to be driven.
///
/// Dropping it stops its calls without settling them; the turn can be resumed from the store.
#[must_use = "nothing runs until the turn is driven"]
pub struct TurnRun {
    active: Arc<OpenTurn>,
    lanes: CallScheduler,
    /// Asked for decisions; without one, calls stay pending.
    approver: Option<Arc<dyn DynApprover>>,
    asking: usize,
    /// Calls that may run again before the task of their last run has ended.
    parked: Vec<(usize, CallId)>,
    end: Option<TurnEnd>,
    /// Set if only pending calls are left alone: nothing more is started, and the turn suspends.
    leaving: Option<Arc<str>>,
    messages: Vec<String>,
    /// The end of the grace period for calls that do not stop by themselves.
    grace: Option<BoxFuture<'static, ()>>,
    /// The time at which the first pending approval request expires, and the sleep until then.
    expiry: Option<(Timestamp, BoxFuture<'static, ()>)>,
    found: RecoveredTurn,
    /// True if the end of the turn is written with what its owner writes next.
    holds_end: bool,
}

/// Pause after the mailbox could not be read.
const AFTER_A_FAILED_READ: Duration = Duration::from_millis(500);

/// Behaviour when every unsettled call waits for an approver or an external result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WhenSuspended {
    Return,
    Wait,
}

impl TurnRun {
    pub(crate) fn new(active: Arc<OpenTurn>, found: RecoveredTurn) -> Self {
        let mut lanes = CallScheduler::new(active.shared.max_concurrent);
        active
            .external_calls()
            .into_iter()
            .for_each(|ticket| lanes.add_external(ticket));
        let parked = Vec::new();
        let messages = Vec::new();
        let approver = active.shared.approver.clone();
        Self {
            active,
            lanes,
            approver,
            asking: 0,
            parked,
            end: None,
            leaving: None,
            messages,
            grace: None,
            expiry: None,
            found,
            holds_end: false,
        }
    }

    /// Lets the owner write the end of the turn together with what follows: with the end of the run,
    /// or with the next request to the model.
    pub(crate) fn holding_end(mut self) -> Self {
        self.holds_end = true;
        self
    }

    /// Returns the turn's id.
    pub fn turn(&self) -> TurnId {
        self.active.info.turn
    }

    /// Returns the agent, model and iteration of the turn.
    pub(crate) fn info(&self) -> &Arc<TurnInfo> {
        &self.active.info
    }

    /// Returns what was found of the turn when it was resumed; nothing for a new one.
    pub fn found(&self) -> &RecoveredTurn {
        &self.found
    }

    /// Returns a handle for messages and interruptions while the turn is driven.
    pub fn handle(&self) -> TurnHandle {
        TurnHandle::new(self.active.clone())
    }

    /// Leaves calls that need a decision pending, even if there is an approver to ask.
    pub(crate) fn without_approver(mut self) -> Self {
        self.approver = None;
        self
    }

    /// Drives the turn until every call is settled, or waits for a decision or an external result.
    ///
    /// # Errors
    ///
    /// Fails if the journal could not be written or the turn was resumed elsewhere.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, running calls are stopped without being settled. The turn can be
    /// resumed from the store.
    pub async fn run(mut self) -> Result<TurnReport, DispatchError> {
        self.drive_turn(WhenSuspended::Return).await
    }

    /// Drives the turn until every call is settled, waiting for decisions and results as long as it
    /// takes.
    ///
    /// # Errors
    ///
    /// Fails as [`TurnRun::run`] does.
    ///
    /// # Cancel safety
    ///
    /// As [`TurnRun::run`].
    pub async fn run_to_end(mut self) -> Result<TurnReport, DispatchError> {
        self.drive_turn(WhenSuspended::Wait).await
    }

    /// Applies the decisions and results that have arrived, and drives the turn until it can do
    /// nothing more by itself. It can be called again.
    ///
    /// # Errors
    ///
    /// Fails as [`TurnRun::run`] does.
    pub async fn advance(&mut self) -> Result<TurnReport, DispatchError> {
        self.dispatcher().process_mailbox().await?;
        self.drive_turn(WhenSuspended::Return).await
    }

    /// Returns the external attempts that have no result yet.
    pub(crate) fn external_attempts(&self) -> Vec<(CallId, u32)> {
        let state = self.active.lock_state();
        let open = state.turn.slots().iter().filter(|slot| {
            let call = slot.invocation().id;
            let input = state.turn.check_input(self.turn(), call, InputKind::Result);
            input.is_ok()
        });
        open.map(|slot| (slot.invocation().id, slot.attempts()))
            .collect()
    }

    /// Settles a call that waits for an external result as `outcome_unknown`, unless the result has
    /// been delivered by now.
    pub(crate) async fn settle_unknown(&mut self, call: CallId) -> Result<(), DispatchError> {
        let at = {
            let state = self.active.lock_state();
            let slot = state.turn.slot(call).filter(|slot| slot.status().is_none());
            slot.map(|slot| slot.invocation().emit_order as usize)
        };
        if let Some(at) = at {
            self.active.settle_unknown(at).await?;
            // Handled like a call that left the stack: its resources are free for other calls.
            self.active
                .inbox
                .push(Urgency::Settlement, DriverInput::CallLeft(at));
        }
        Ok(())
    }

    async fn drive_turn(
        &mut self,
        when_suspended: WhenSuspended,
    ) -> Result<TurnReport, DispatchError> {
        let journal = self.active.shared.journal.clone();
        let report = journal
            .flush_while_waiting(self.drive_steps(when_suspended))
            .await?;
        if !self.holds_end {
            journal.when_flushed().await?;
        }
        Ok(report)
    }

    async fn drive_steps(
        &mut self,
        when_suspended: WhenSuspended,
    ) -> Result<TurnReport, DispatchError> {
        loop {
            // Checked first: what cannot be recorded must not run.
            if let Some(error) = self.active.shared.journal.failure() {
                return Err(error.into());
            }
            let step = self.active.lock_state().turn.next();
            match step {
                // Handed out again when the turn is resumed.
                TurnStep::Run(_) | TurnStep::Ask(_) if self.leaving.is_some() => {}
                TurnStep::Run(calls) => self.active.inbox.extend(
                    Urgency::Request,
                    calls.into_iter().map(DriverInput::StartCall),
                ),
                TurnStep::Ask(calls) => {
                    if self.approver.is_some() {
                        // A request is durable before an approver sees it.
                        self.active.shared.journal.when_flushed().await?;
                    }
                    self.ask_approver(calls);
                }
                TurnStep::Continue => return self.finish_turn().await,
                TurnStep::Done => {
                    let end = self.turn_end();
                    return Ok(self.build_report(end));
                }
                TurnStep::Wait => {
                    // Queued inputs first: the turn is idle only if there are none.
                    if let Some(item) = self.active.inbox.take() {
                        self.handle_input(item).await?;
                    } else if self.is_idle()
                        && (when_suspended == WhenSuspended::Return || self.leaving.is_some())
                    {
                        return Ok(self.build_report(TurnEnd::Suspended));
                    } else {
                        self.wait_for_input().await?;
                    }
                }
            }
        }
    }

    /// Waits for an input, the end of the grace period or the expiry of an approval request.
    async fn wait_for_input(&mut self) -> Result<(), DispatchError> {
        self.watch_expiry();
        let expiry = self.expiry.as_mut().map(|(_, lapses)| lapses);
        tokio::select! {
            // Biased: an input that has been applied is handled before anything else expires.
            biased;
            item = self.active.inbox.next() => self.handle_input(item).await,
            () = wait_or_never(self.grace.as_mut()) => {
                self.grace = None;
                match self.leaving.clone().filter(|_| self.end.is_none()) {
                    Some(reason) => Ok(self.active.settle_running(&reason).await?),
                    None => Ok(self.active.settle_remaining("the turn was interrupted").await?),
                }
            }
            () = wait_or_never(expiry) => {
                self.expiry = None;
                self.expire_requests().await
            }
        }
    }

    /// Lets approval requests expire, after the decisions that were made in time have been applied.
    async fn expire_requests(&mut self) -> Result<(), DispatchError> {
        let dispatcher = self.dispatcher();
        let inputs = dispatcher.0.inputs.lock().await;
        match dispatcher.apply_mailbox(&inputs).await {
            Ok(()) => self.active.expire_requests(dispatcher.0.clock.now()),
            // A decision that was made in time may be in the mailbox, so nothing expires until the
            // store can be read again.
            Err(DispatchError::Store(_)) => self.retry_expiry(),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Lets the requests that are due expire a little later.
    fn retry_expiry(&mut self) {
        let clock = &self.active.shared.clock;
        let next = self.active.next_expiry();
        self.expiry = next.map(|until| (until, clock.sleep(AFTER_A_FAILED_READ)));
    }

    fn dispatcher(&self) -> Dispatcher {
        Dispatcher(self.active.shared.clone())
    }

    /// Makes the wait end when an approval request expires.
    fn watch_expiry(&mut self) {
        let next = self.active.next_expiry();
        if next == self.expiry.as_ref().map(|(until, _)| *until) {
            return;
        }
        let clock = &self.active.shared.clock;
        self.expiry = next.map(|until| (until, clock.sleep(until.since(clock.now()))));
    }

    async fn handle_input(&mut self, item: DriverInput) -> Result<(), DispatchError> {
        match item {
            // Approved at the last moment: it starts when the turn is resumed.
            DriverInput::StartCall(_) if self.leaving.is_some() => {}
            DriverInput::StartCall(call) => self.queue_call(call),
            DriverInput::CallLeft(at) => {
                let phase = {
                    let mut state = self.active.lock_state();
                    state.work[at].task = None;
                    // The last run of the call has left the stack; it may be started again.
                    state.turn.slots()[at].phase()
                };
                match phase {
                    // An external call keeps its slot and its resources until its result has been
                    // processed.
                    Some(Phase::AwaitingResult) => self.lanes.mark_external(at),
                    _ => self.lanes.finish_call(at),
                }
                self.handle_left_call(at).await?;
            }
            DriverInput::CancelCall(at) => self.cancel_call(at).await?,
            DriverInput::AbortCall(at) => self.active.settle_cancelled_call(at).await?,
            DriverInput::ApproverDone => self.asking -= 1,
            DriverInput::Applied => {}
            DriverInput::Interrupted => {
                self.stop_calls(TurnEnd::Interrupted, "the turn was interrupted")
                    .await?
            }
            DriverInput::RunningStopped(reason) => self.leave_pending(reason),
            DriverInput::Retired => return Err(DispatchError::Superseded { turn: self.turn() }),
            DriverInput::Message(text) => self.messages.push(text),
        }
        self.start_calls();
        Ok(())
    }

    /// Settles a call that has not started, or gives it time to stop.
    async fn cancel_call(&mut self, at: usize) -> Result<(), DispatchError> {
        if self.active.lock_state().work[at].task.is_none() {
            return Ok(self.active.settle_cancelled_call(at).await?);
        }
        let active = self.active.clone();
        tokio::spawn(async move {
            active.shared.clock.sleep(active.shared.grace).await;
            active
                .inbox
                .push(Urgency::Settlement, DriverInput::AbortCall(at));
        });
        Ok(())
    }

    /// Queues a call to start, unless the task of its last run has not ended yet.
    fn queue_call(&mut self, call: CallId) {
        let Some(ticket) = self.active.scheduled_call(call) else {
            return;
        };
        // Two descents of one call must not overlap.
        if self.active.lock_state().work[ticket.at].task.is_some() {
            self.parked.push((ticket.at, call));
        } else if !self.lanes.return_external(ticket.at) {
            self.lanes.add_call(ticket);
        }
    }

    /// Handles a call that left the stack: settled, suspended, or lost with its task.
    async fn handle_left_call(&mut self, at: usize) -> Result<(), DispatchError> {
        let (status, phase) = {
            let state = self.active.lock_state();
            let slot = &state.turn.slots()[at];
            (slot.status(), slot.phase())
        };
        if let Some(place) = self.parked.iter().position(|(parked, _)| *parked == at) {
            let (_, call) = self.parked.swap_remove(place);
            if self.end.is_none() {
                self.queue_call(call);
                return Ok(());
            }
        }
        match (status, phase) {
            (None, _) if self.end.is_some() => {
                self.active.settle_idle("the turn was interrupted").await?
            }
            (None, Some(Phase::Requested | Phase::Running)) => {
                self.active.settle_lost_call(at).await?
            }
            _ => {}
        }
        let failed = status.is_some_and(|status| !matches!(status, Status::Ok | Status::DryRun));
        if failed && self.leaving.is_none() && self.active.shared.on_failure == OnFailure::Abort {
            if self.end.is_none() {
                self.active
                    .abort_turn("another call of the turn failed")
                    .await?;
            }
            self.stop_calls(TurnEnd::Aborted, "another call of the turn failed")
                .await?;
        }
        Ok(())
    }

    /// Settles calls that have not started and gives running calls time to stop or finish.
    async fn stop_calls(&mut self, end: TurnEnd, reason: &str) -> Result<(), DispatchError> {
        // An interruption also stops the calls that a failed sibling had left running.
        if self
            .end
            .is_some_and(|before| before == end || before == TurnEnd::Interrupted)
        {
            return Ok(());
        }
        self.end = Some(end);
        self.lanes.clear_waiting();
        for item in self.active.inbox.drain(Urgency::Request) {
            debug_assert!(
                matches!(item, DriverInput::StartCall(_)),
                "this lane has only calls to start"
            );
        }
        self.active.settle_idle(reason).await?;
        if end == TurnEnd::Interrupted && self.lanes.running_here() > 0 {
            self.grace = Some(self.active.shared.clock.sleep(self.active.shared.grace));
        }
        Ok(())
    }

    /// Starts nothing more and gives running calls time to stop. Pending calls stay pending, and calls
    /// that have not started stay as they are.
    fn leave_pending(&mut self, reason: Arc<str>) {
        if self.end.is_some() || self.leaving.is_some() {
            return;
        }
        self.leaving = Some(reason);
        self.lanes.clear_waiting();
        drop(self.active.inbox.drain(Urgency::Request));
        if self.lanes.running_here() > 0 {
            self.grace = Some(self.active.shared.clock.sleep(self.active.shared.grace));
        }
    }

    fn start_calls(&mut self) {
        if self.end.is_some() || self.leaving.is_some() {
            return;
        }
        while let Some(at) = self.lanes.next_to_start() {
            // It was cancelled while it waited.
            if self.active.lock_state().turn.slots()[at].status().is_some() {
                self.lanes.finish_call(at);
                continue;
            }
            let runnable = self.active.shared.journal.note_runnable();
            let task = tokio::spawn(self.active.clone().run_call(at, runnable));
            let mut state = self.active.lock_state();
            // A task that has ended by now has queued its `LeaveGuard` item, which clears this again.
            state.work[at].task = Some(task);
        }
    }

    /// Asks the approver, in one task per request so that none delays another.
    fn ask_approver(&mut self, calls: Vec<CallId>) {
        // Without an approver the call stays pending and the turn suspends.
        let Some(approver) = self.approver.clone() else {
            return;
        };
        for call in calls {
            let at = self
                .active
                .lock_state()
                .turn
                .slot(call)
                .map(|slot| slot.invocation().emit_order as usize);
            let request = at.and_then(|at| {
                self.active.lock_state().work[at]
                    .pending
                    .as_deref()
                    .cloned()
            });
            let Some(request) = request else { continue };
            self.asking += 1;
            tokio::spawn(ask_for_decision(
                self.active.clone(),
                approver.clone(),
                request,
            ));
        }
    }

    fn is_idle(&self) -> bool {
        // An approver that is being asked may still answer, so the turn is not suspended yet.
        self.lanes.is_idle() && self.asking == 0 && self.end.is_none()
    }

    /// Records that everything is settled, caches it for late duplicates, and reports.
    async fn finish_turn(&mut self) -> Result<TurnReport, DispatchError> {
        let shared = self.active.shared.clone();
        // Messages are reported; other inputs have nothing left to act on.
        while let Some(item) = self.active.inbox.take() {
            if let DriverInput::Message(text) = item {
                self.messages.push(text);
            }
        }
        let settled: Vec<_> = {
            let state = self.active.lock_state();
            let status =
                |slot: &toolgate_core::InvocationSlot| Some((slot.invocation().id, slot.status()?));
            state.turn.slots().iter().filter_map(status).collect()
        };
        shared.late.remember(settled);
        let settled = self.active.record_settled();
        if self.holds_end {
            // The owner writes the rest. The opening is awaited, so that a run with a fast model is
            // never ahead of its log by more than the results of one turn.
            self.active.when_opened().await?;
        } else {
            settled.await?;
        }
        let end = self.turn_end();
        Ok(self.build_report(end))
    }

    /// Returns how the turn ended, also if that was in another process.
    fn turn_end(&self) -> TurnEnd {
        let stopped = self.active.lock_state().turn.is_stopped();
        self.end.unwrap_or(if stopped {
            TurnEnd::Interrupted
        } else {
            TurnEnd::Settled
        })
    }

    fn build_report(&mut self, end: TurnEnd) -> TurnReport {
        let state = self.active.lock_state();
        let result = |(slot, work): (
            &toolgate_core::InvocationSlot,
            &crate::turn::open_turn::InvocationState,
        )| CallResult {
            id: slot.invocation().id,
            call_id: slot.invocation().call_id.clone(),
            provider_call_id: work.provider_call_id.clone(),
            tool: slot.invocation().tool.clone(),
            attempts: slot.attempts(),
            outcome: work.outcome.clone(),
            waits_for: match slot.phase() {
                Some(Phase::AwaitingApproval) => {
                    work.pending.as_deref().cloned().map(Suspension::Decision)
                }
                Some(Phase::AwaitingResult) => Some(Suspension::Result),
                _ => None,
            },
            arguments: work
                .outside
                .clone()
                .filter(|_| slot.phase() == Some(Phase::AwaitingResult)),
            attempt: slot.attempts(),
        };
        let results = state
            .turn
            .slots()
            .iter()
            .zip(&state.work)
            .map(result)
            .collect();
        TurnReport {
            turn: self.active.info.turn,
            end,
            results,
            messages: std::mem::take(&mut self.messages),
        }
    }
}

/// Waits for `wait`, or for ever without one.
async fn wait_or_never(wait: Option<&mut BoxFuture<'static, ()>>) {
    match wait {
        Some(wait) => wait.await,
        None => std::future::pending().await,
    }
}

/// Asks the approver for one decision and applies it, if there is one.
async fn ask_for_decision(
    active: Arc<OpenTurn>,
    approver: Arc<dyn DynApprover>,
    request: ApprovalRequest,
) {
    let _asked = ApproverGuard(&active);
    let question = ApprovalRequestRef::from(&request);
    let decision = tokio::select! {
        // An approver that panics has not answered: the call stays suspended.
        answer = run_contained(async { approver.decide(request).await }) => answer.unwrap_or(None),
        () = active.cancel.cancelled() => return,
    };
    let dispatcher = Dispatcher(active.shared.clone());
    // The driver checks the journal by itself, and what the store could not do is not decided.
    let _ = match decision {
        Some(decision) => {
            let inputs = dispatcher.0.inputs.lock().await;
            match active.accept_decision(question, decision).await {
                // The answer of another process stands, and it is in the mailbox.
                Ok(false) => dispatcher.apply_mailbox(&inputs).await,
                accepted => accepted.map(drop),
            }
        }
        // It may have waited for an answer that is in the mailbox by now.
        None => dispatcher.process_mailbox().await,
    };
}

/// Notifies the driver that an approver is no longer being asked, also if the task panicked.
struct ApproverGuard<'a>(&'a OpenTurn);

impl Drop for ApproverGuard<'_> {
    fn drop(&mut self) {
        self.0
            .inbox
            .push(Urgency::Settlement, DriverInput::ApproverDone);
    }
}

impl Drop for TurnRun {
    fn drop(&mut self) {
        // The owner is gone, so the calls must not continue unobserved.
        self.active.shared.unregister_turn(&self.active);
        // What a turn that is dropped half-way has settled is found when it is resumed.
        if !self.holds_end {
            self.active.shared.journal.flush();
        }
    }
}

impl std::fmt::Debug for TurnRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TurnRun")
            .field("turn", &self.turn())
            .finish_non_exhaustive()
    }
}
