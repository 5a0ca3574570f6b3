//! The loop that drives one turn: does what the turn says next until nothing is left to do.

use std::sync::Arc;

use futures::future::BoxFuture;
use toolgate_core::{
    ApprovalRequest, CallId, DynApprover, Phase, Question, Status, Step, Suspension, Timestamp,
    TurnId, TurnInfo, contained,
};

use crate::{
    CallResult, DispatchError, Dispatcher, OnFailure, TurnEnd, TurnFound, TurnHandle, TurnReport,
    active::{Active, Item},
    inbox::Urgency,
    lanes::Lanes,
};

/// An open turn, ready to be driven.
///
/// Dropping it stops its calls without settling them; the turn can be resumed from the store.
#[must_use = "nothing runs until the turn is driven"]
pub struct TurnRun {
    active: Arc<Active>,
    lanes: Lanes,
    asking: usize,
    /// Calls that may run again before the task of their last run has ended.
    parked: Vec<(usize, CallId)>,
    end: Option<TurnEnd>,
    messages: Vec<String>,
    /// What stops the wait for calls that do not stop by themselves.
    grace: Option<BoxFuture<'static, ()>>,
    /// When the first of the open questions lapses, and what waits for that.
    expiry: Option<(Timestamp, BoxFuture<'static, ()>)>,
    found: TurnFound,
}

/// What to do when every unsettled call waits for somebody outside.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WhenSuspended {
    Return,
    Wait,
}

impl TurnRun {
    pub(crate) fn new(active: Arc<Active>, found: TurnFound) -> Self {
        let mut lanes = Lanes::new(active.shared.max_concurrent);
        active
            .outside()
            .into_iter()
            .for_each(|ticket| lanes.hold_outside(ticket));
        let (parked, messages) = (Vec::new(), Vec::new());
        Self {
            active,
            lanes,
            asking: 0,
            parked,
            end: None,
            messages,
            grace: None,
            expiry: None,
            found,
        }
    }

    /// Which turn it is.
    pub fn turn(&self) -> TurnId {
        self.active.info.turn
    }

    /// Who asked in it, and when in the run.
    pub(crate) fn info(&self) -> &Arc<TurnInfo> {
        &self.active.info
    }

    /// What was found of the turn when it was taken up again; nothing for a new one.
    pub fn found(&self) -> &TurnFound {
        &self.found
    }

    /// A handle for posting results, decisions, messages and interruptions while the turn is driven.
    pub fn handle(&self) -> TurnHandle {
        TurnHandle::new(self.active.clone())
    }

    /// Drives the turn until every call is settled or waits for somebody outside.
    pub async fn run(mut self) -> Result<TurnReport, DispatchError> {
        self.drive(WhenSuspended::Return).await
    }

    /// Drives the turn until every call is settled, waiting for decisions and results as long as it takes.
    pub async fn run_to_end(mut self) -> Result<TurnReport, DispatchError> {
        self.drive(WhenSuspended::Wait).await
    }

    /// Drives the turn as far as it goes by itself. When something was posted since, it can be driven further.
    pub async fn advance(&mut self) -> Result<TurnReport, DispatchError> {
        self.drive(WhenSuspended::Return).await
    }

    async fn drive(&mut self, when_suspended: WhenSuspended) -> Result<TurnReport, DispatchError> {
        loop {
            if let Some(error) = self.active.shared.journal.failure() {
                return Err(error.into());
            }
            let step = self.active.state().turn.next();
            match step {
                Step::Run(calls) => self
                    .active
                    .inbox
                    .extend(Urgency::Request, calls.into_iter().map(Item::Start)),
                Step::Ask(calls) => self.ask(calls),
                Step::Continue => return self.finish().await,
                Step::Done => {
                    let end = self.ended();
                    return Ok(self.report(end));
                }
                Step::Wait => {
                    if let Some(item) = self.active.inbox.take() {
                        self.attend(item).await?;
                    } else if self.is_idle() && when_suspended == WhenSuspended::Return {
                        return Ok(self.report(TurnEnd::Suspended));
                    } else {
                        self.wait().await?;
                    }
                }
            }
        }
    }

    /// Waits for something to attend to, or for the patience with running calls to end.
    async fn wait(&mut self) -> Result<(), DispatchError> {
        self.watch_expiry();
        let expiry = self.expiry.as_mut().map(|(_, lapses)| lapses);
        tokio::select! {
            biased;
            item = self.active.inbox.next() => self.attend(item).await,
            () = or_never(self.grace.as_mut()) => {
                self.grace = None;
                Ok(self.active.settle_rest("the turn was interrupted").await?)
            }
            () = or_never(expiry) => {
                self.expiry = None;
                self.active.expire(self.active.shared.clock.now());
                Ok(())
            }
        }
    }

    /// Sees to it that the wait ends when a question lapses.
    fn watch_expiry(&mut self) {
        let next = self.active.expires_next();
        if next == self.expiry.as_ref().map(|(until, _)| *until) {
            return;
        }
        let clock = &self.active.shared.clock;
        self.expiry = next.map(|until| (until, clock.sleep(until.since(clock.now()))));
    }

    async fn attend(&mut self, item: Item) -> Result<(), DispatchError> {
        match item {
            Item::Start(call) => self.line_up(call),
            Item::Left(at) => {
                let phase = {
                    let mut state = self.active.state();
                    state.work[at].task = None;
                    state.turn.slots()[at].phase()
                };
                match phase {
                    Some(Phase::AwaitingResult) => self.lanes.leave_outside(at),
                    _ => self.lanes.finish(at),
                }
                self.left(at).await?;
            }
            Item::Asked => self.asking -= 1,
            Item::Posted => {}
            Item::Interrupted => {
                self.stop(TurnEnd::Interrupted, "the turn was interrupted")
                    .await?
            }
            Item::Retired => return Err(DispatchError::Superseded { turn: self.turn() }),
            Item::Message(text) => self.messages.push(text),
        }
        self.start_calls();
        Ok(())
    }

    /// Lets a call start when there is room, unless its last run has not ended yet.
    fn line_up(&mut self, call: CallId) {
        let Some(ticket) = self.active.ticket(call) else {
            return;
        };
        if self.active.state().work[ticket.at].task.is_some() {
            self.parked.push((ticket.at, call));
        } else if !self.lanes.take_back(ticket.at) {
            self.lanes.add(ticket);
        }
    }

    /// A call left the stack: settled, suspended, or lost with its task.
    async fn left(&mut self, at: usize) -> Result<(), DispatchError> {
        let (status, phase) = {
            let state = self.active.state();
            let slot = &state.turn.slots()[at];
            (slot.status(), slot.phase())
        };
        if let Some(place) = self.parked.iter().position(|(parked, _)| *parked == at) {
            let (_, call) = self.parked.swap_remove(place);
            if self.end.is_none() {
                self.line_up(call);
                return Ok(());
            }
        }
        match (status, phase) {
            (None, _) if self.end.is_some() => {
                self.active.settle_idle("the turn was interrupted").await?
            }
            (None, Some(Phase::Requested | Phase::Running)) => self.active.settle_lost(at).await?,
            _ => {}
        }
        let failed = status.is_some_and(|status| !matches!(status, Status::Ok | Status::DryRun));
        if failed && self.active.shared.on_failure == OnFailure::Abort {
            if self.end.is_none() {
                self.active.abort("another call of the turn failed").await?;
            }
            self.stop(TurnEnd::Aborted, "another call of the turn failed")
                .await?;
        }
        Ok(())
    }

    /// Settles what has not started and gives what runs some time to stop or finish.
    async fn stop(&mut self, end: TurnEnd, reason: &str) -> Result<(), DispatchError> {
        // An interruption also stops what a failed sibling let run on.
        if self
            .end
            .is_some_and(|before| before == end || before == TurnEnd::Interrupted)
        {
            return Ok(());
        }
        self.end = Some(end);
        self.lanes.clear();
        for item in self.active.inbox.drain(Urgency::Request) {
            debug_assert!(
                matches!(item, Item::Start(_)),
                "only calls to start wait in this lane"
            );
        }
        self.active.settle_idle(reason).await?;
        if end == TurnEnd::Interrupted && self.lanes.running_here() > 0 {
            self.grace = Some(self.active.shared.clock.sleep(self.active.shared.grace));
        }
        Ok(())
    }

    fn start_calls(&mut self) {
        if self.end.is_some() {
            return;
        }
        while let Some(at) = self.lanes.start() {
            let task = tokio::spawn(self.active.clone().run(at));
            let mut state = self.active.state();
            // A task that is over by now has told so, and is not remembered as running.
            state.work[at].task = Some(task);
        }
    }

    /// Puts questions to the approver, each in a task of its own so that none holds up another.
    fn ask(&mut self, calls: Vec<CallId>) {
        let Some(approver) = self.active.shared.approver.clone() else {
            return;
        };
        for call in calls {
            let at = self
                .active
                .state()
                .turn
                .slot(call)
                .map(|slot| slot.invocation().emit_order as usize);
            let request =
                at.and_then(|at| self.active.state().work[at].pending.as_deref().cloned());
            let Some(request) = request else { continue };
            self.asking += 1;
            tokio::spawn(ask(self.active.clone(), approver.clone(), request));
        }
    }

    fn is_idle(&self) -> bool {
        self.lanes.is_idle() && self.asking == 0 && self.end.is_none()
    }

    /// Everything is settled: says so durably, remembers it for late duplicates, and reports.
    async fn finish(&mut self) -> Result<TurnReport, DispatchError> {
        let shared = self.active.shared.clone();
        while let Some(item) = self.active.inbox.take() {
            if let Item::Message(text) = item {
                self.messages.push(text);
            }
        }
        let settled: Vec<_> = {
            let state = self.active.state();
            let status = |slot: &toolgate_core::Slot| Some((slot.invocation().id, slot.status()?));
            state.turn.slots().iter().filter_map(status).collect()
        };
        shared.late.remember(settled);
        self.active.say_settled().await?;
        let end = self.ended();
        Ok(self.report(end))
    }

    /// How the turn ended, also if that was in another process.
    fn ended(&self) -> TurnEnd {
        let stopped = self.active.state().turn.is_stopped();
        self.end.unwrap_or(if stopped {
            TurnEnd::Interrupted
        } else {
            TurnEnd::Settled
        })
    }

    fn report(&mut self, end: TurnEnd) -> TurnReport {
        let state = self.active.state();
        let result = |(slot, work): (&toolgate_core::Slot, &crate::active::Work)| CallResult {
            id: slot.invocation().id,
            call_id: slot.invocation().call_id.clone(),
            provider_call_id: work.provider_call_id.clone(),
            tool: slot.invocation().tool.clone(),
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

/// Waits for what there is to wait for, else for ever.
async fn or_never(wait: Option<&mut BoxFuture<'static, ()>>) {
    match wait {
        Some(wait) => wait.await,
        None => std::future::pending().await,
    }
}

/// Puts one question to the approver and posts the answer, if there is one.
async fn ask(active: Arc<Active>, approver: Arc<dyn DynApprover>, request: ApprovalRequest) {
    let _asked = Asked(&active);
    let question = Question::from(&request);
    let decision = tokio::select! {
        // An approver that panics or is not waited for has not answered: the call stays suspended.
        answer = contained(async { approver.decide(request).await }) => answer.unwrap_or(None),
        () = active.cancel.cancelled() => None,
    };
    if let Some(decision) = decision {
        // A decision that is refused changed nothing, and the driver sees a failed journal by itself.
        let _ = Dispatcher(active.shared.clone())
            .decide(active.info.turn, question, decision)
            .await;
    }
}

/// Tells the driver that a question is no longer open, however that came about.
struct Asked<'a>(&'a Active);

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.0.inbox.push(Urgency::Settlement, Item::Asked);
    }
}

impl Drop for TurnRun {
    fn drop(&mut self) {
        // Whoever drops the run does not want the calls to go on unseen.
        self.active.shared.closed(&self.active);
    }
}

impl std::fmt::Debug for TurnRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TurnRun")
            .field("turn", &self.turn())
            .finish_non_exhaustive()
    }
}
