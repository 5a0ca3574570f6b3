//! One turn while it is being driven: its state, and the only place that writes its events.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use toolgate_core::{
    Admission, ApprovalRequest, Arguments, Call, CallError, CallId, CallSeed, ConflictKey, Env,
    ErrorCategory, ExecutorTag, Invocation, LedgerDraft, LogLevel, LoopEvent, Outcome, Phase,
    PostCode, PostKind, Principal, Probe, Progress, ProviderCall, Question, Record, RecordKey,
    Resumed, Settled, Stack, Starting, Status, StopReason, Suspension, Timestamp, ToolEvent, Turn,
    TurnEvent, TurnId, TurnInfo,
};

use crate::{
    dispatch::{Shared, settled},
    inbox::{Inbox, Urgency},
    journal::{Along, Draft, Durable, JournalError},
    lanes::Ticket,
};

#[path = "active_answers.rs"]
mod answers;
#[path = "active_ran.rs"]
mod ran;

/// A turn that is open in this process.
pub(crate) struct Active {
    pub(crate) shared: Arc<Shared>,
    pub(crate) info: Arc<TurnInfo>,
    pub(crate) inbox: Inbox<Item>,
    pub(crate) cancel: CancellationToken,
    pub(crate) stack: Stack,
    env: Env,
    state: Mutex<State>,
}

/// What the driver of a turn attends to.
#[derive(Debug)]
pub(crate) enum Item {
    /// A call left the stack: settled or suspended.
    Left(usize),
    /// A call is to be started.
    Start(CallId),
    /// Somebody was asked and has answered or not.
    Asked,
    /// Something was posted; the turn knows what to do next.
    Posted,
    /// The turn was interrupted.
    Interrupted,
    /// Another copy of the turn is driven now.
    Retired,
    /// The user said something meanwhile.
    Message(String),
}

pub(crate) struct State {
    pub(crate) turn: Turn,
    pub(crate) work: Vec<Work>,
    /// Nobody drives this copy of the turn any more, so it must not write: another copy may.
    pub(crate) retired: bool,
    /// Somebody stopped it, which ends more than a failed sibling does.
    interrupted: bool,
    /// That everything is settled has been written.
    said_settled: bool,
    /// When the first of the open questions lapses.
    expires_next: Option<Timestamp>,
}

/// A turn that nobody drives, as it was last read. It holds on to nothing that holds on to it.
pub(crate) struct Parked {
    turn: Turn,
    work: Vec<Work>,
}

impl Parked {
    /// Which turn it is.
    pub(crate) fn turn(&self) -> TurnId {
        self.turn.info().turn
    }

    /// Makes it a turn that can be posted to.
    pub(crate) fn unpark(self, shared: Arc<Shared>) -> Arc<Active> {
        let stack = shared.stack.clone();
        Active::new(shared, stack, self.turn, self.work)
    }
}

/// Why a post was not taken by this copy of the turn.
pub(crate) enum NotTaken {
    /// It changes nothing.
    Refused(PostCode),
    /// Nobody drives this copy; the store has to be asked.
    Retired,
    /// It does not say who decided.
    Nameless,
}

/// What a call has to settle as instead, because it cannot end as a layer would have it.
pub(crate) type Instead = Box<Settled>;

impl State {
    /// The question that is open, if `question` names it.
    fn open_question(
        &self,
        turn: TurnId,
        question: &Question,
    ) -> Result<(usize, ApprovalRequest), PostCode> {
        let slot = self
            .turn
            .post(turn, question.approval_id.call(), PostKind::Decision)?;
        let at = slot.invocation().emit_order as usize;
        let open = self.work[at]
            .pending
            .as_ref()
            .filter(|request| Question::from(&***request) == *question);
        // An answer to a question that was answered or has changed since is not an answer to this one.
        Ok((
            at,
            open.map(|request| ApprovalRequest::clone(request))
                .ok_or(PostCode::NoWaiter)?,
        ))
    }
}

/// What is known about one invocation beside its phase.
pub(crate) struct Work {
    pub(crate) provider_call_id: Arc<str>,
    pub(crate) admission: Admission,
    pub(crate) resumed: Resumed,
    /// Boxed: most calls wait for nobody, and a turn may have a thousand.
    pub(crate) pending: Option<Box<ApprovalRequest>>,
    pub(crate) outcome: Option<Arc<Settled>>,
    pub(crate) task: Option<JoinHandle<()>>,
    /// The call was made by the provider: there is nothing to run.
    pub(crate) ran: Option<Arc<ProviderCall>>,
    /// With what something outside is to run the tool.
    pub(crate) outside: Option<Arguments>,
    /// What is to be sealed with the outcome, by the pass that has seen it.
    entries: Vec<(Pass, LedgerDraft)>,
}

/// Why a call is on its way through the stack. A call that is being closed can still come back from where it ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pass {
    /// To be run.
    Down,
    /// To let those who record see how it ended.
    Closing,
}

impl Work {
    pub(crate) fn new(
        provider_call_id: Arc<str>,
        admission: Admission,
        ran: Option<Arc<ProviderCall>>,
    ) -> Self {
        Self {
            provider_call_id,
            admission,
            resumed: Resumed::default(),
            pending: None,
            outcome: None,
            task: None,
            ran,
            outside: None,
            entries: Vec::new(),
        }
    }

    /// Whether a call of this tool can change anything. An unknown tool cannot: it never runs.
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
        let arguments = self.resumed.edits().unwrap_or(&self.admission.arguments);
        self.admission.shown.as_ref().map_or_else(Vec::new, |s| {
            s.entry.spec.annotations.conflict_keys(arguments)
        })
    }
}

impl Active {
    pub(crate) fn new(shared: Arc<Shared>, stack: Stack, turn: Turn, work: Vec<Work>) -> Arc<Self> {
        Arc::new_cyclic(|me| {
            let probe = Arc::new(Watch(me.clone()));
            let env = Env::new(shared.clock.clone(), shared.store.clone(), probe);
            let (info, state) = (
                turn.info().clone(),
                Mutex::new(State {
                    turn,
                    work,
                    retired: false,
                    interrupted: false,
                    said_settled: false,
                    expires_next: None,
                }),
            );
            Self {
                shared,
                info,
                inbox: Inbox::new(),
                cancel: CancellationToken::new(),
                stack,
                env,
                state,
            }
        })
    }

    /// Puts the turn aside, if nobody else has it.
    pub(crate) fn park(self: Arc<Self>) -> Option<Parked> {
        let state = Arc::into_inner(self)?
            .state
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        Some(Parked {
            turn: state.turn,
            work: state.work,
        })
    }

    // The state is changed only together with an event that was found legal, so it is never half-changed.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests every invocation and makes the turn durable. `records` are written along.
    pub(crate) fn request_all(
        &self,
        before: Vec<LoopEvent>,
        opened: TurnEvent,
        records: Vec<(RecordKey, Record)>,
    ) -> Durable {
        let mut state = self.state();
        let mut drafts = Vec::with_capacity(before.len() + 1 + state.work.len());
        drafts.extend(
            before
                .into_iter()
                .map(|event| Draft::Loop(self.info.clone(), event)),
        );
        drafts.push(Draft::Turn(self.info.clone(), opened));
        let State { turn, work, .. } = &mut *state;
        for (at, work) in work.iter().enumerate() {
            let invocation = turn.slots()[at].invocation().clone();
            let arguments = work.admission.arguments.as_json();
            let event = ToolEvent::ToolRequested {
                arguments: self.shared.shown(arguments),
                arguments_digest: arguments.digest(),
                arguments_bytes: arguments.size() as u64,
                executor: work.executor(),
            };
            turn.apply(invocation.id, &event)
                .expect("a fresh invocation can be requested");
            drafts.push(Draft::Tool(invocation, event));
        }
        self.shared.journal.write(drafts, records)
    }

    /// What the scheduler has to know about a call.
    pub(crate) fn ticket(&self, call: CallId) -> Option<Ticket> {
        let state = self.state();
        let at = state.turn.slot(call)?.invocation().emit_order as usize;
        let work = &state.work[at];
        Some(Ticket {
            at,
            keys: work.conflict_keys(),
            writes: work.may_write(),
        })
    }

    /// The calls that something outside runs.
    pub(crate) fn outside(&self) -> Vec<Ticket> {
        let ids: Vec<CallId> = {
            let state = self.state();
            let waits = |slot: &&toolgate_core::Slot| slot.phase() == Some(Phase::AwaitingResult);
            state
                .turn
                .slots()
                .iter()
                .filter(waits)
                .map(|slot| slot.invocation().id)
                .collect()
        };
        ids.into_iter().filter_map(|id| self.ticket(id)).collect()
    }

    /// Makes the call that enters the stack; if it has ended elsewhere, `closing` says how.
    pub(crate) fn call(&self, at: usize, closing: Option<Arc<Settled>>) -> Call {
        let mut state = self.state();
        let pass = if closing.is_some() {
            Pass::Closing
        } else {
            Pass::Down
        };
        state.work[at].entries.retain(|(of, _)| *of != pass);
        let (slot, work) = (&state.turn.slots()[at], &state.work[at]);
        // Attempts whose results are known are walked through again, unless it has come to its end.
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
            cancel: self.cancel.child_token(),
            env: self.env.clone(),
        })
    }

    /// Sends one call through the stack and writes down what came of it.
    pub(crate) async fn run(self: Arc<Self>, at: usize) {
        // Tells the driver even if this task is aborted.
        let _left = Left { active: &self, at };
        let outcome = self.stack.run(self.call(at, None)).await;
        let durable = match outcome {
            Outcome::Settled(settled) => self.settle(at, *settled, Pass::Down),
            Outcome::Suspended(suspension) => self.suspend(at, *suspension),
        };
        // A failed journal is reported by the driver, which asks it.
        let _ = match durable {
            Ok(durable) => durable.await,
            // Boxed: it is rare, and what every call keeps is small without it.
            Err(instead) => Box::pin(self.close(at, *instead)).await,
        };
    }

    /// Settles an invocation that ended outside the stack, once those who record and clear up have seen the end.
    pub(crate) async fn close(&self, at: usize, mut end: Settled) -> Result<(), JournalError> {
        if end.ended_at == Timestamp::EPOCH {
            let now = self.shared.clock.now();
            (end.started_at, end.ended_at) = (now, now);
        }
        {
            // What did not come out of the stack does not know how often it was tried, and by whom.
            let state = self.state();
            let attempts = state.turn.slots()[at].attempts();
            end.attempts = end.attempts.max(attempts);
            end.executor = end
                .executor
                .or_else(|| state.work[at].executor().filter(|_| attempts > 0));
        }
        let end = Arc::new(end);
        let call = self.call(at, Some(end.clone()));
        let seen = tokio::select! {
            outcome = self.stack.run(call) => settled(outcome),
            // A recorder that hangs does not keep the turn from ending.
            () = self.shared.clock.sleep(self.shared.grace) => None,
        };
        let durable = self.settle(
            at,
            seen.unwrap_or_else(|| Settled::clone(&end)),
            Pass::Closing,
        );
        let durable = durable.or_else(|_| {
            // What was to be sealed speaks of the outcome that was refused.
            self.state().work[at]
                .entries
                .retain(|(of, _)| *of != Pass::Closing);
            self.settle(at, Settled::clone(&end), Pass::Closing)
        });
        durable.expect("every open invocation can fail").await
    }

    /// Settles an invocation as `pass` has seen it, unless it is settled already: the first outcome stands.
    pub(crate) fn settle(
        &self,
        at: usize,
        mut settled: Settled,
        pass: Pass,
    ) -> Result<Durable, Instead> {
        let mut state = self.state();
        if state.retired {
            return Ok(Durable::Now(Ok(())));
        }
        let State { turn, work, .. } = &mut *state;
        let slot = &turn.slots()[at];
        let (invocation, started) = (slot.invocation().clone(), slot.attempts() > 0);
        if let Some(status) = slot.status() {
            return Ok(self.refuse(invocation.id, PostKind::Result, PostCode::after(status)));
        }
        settled.attempts = settled.attempts.max(slot.attempts());
        let shown = self.shared.shown(&settled.value);
        let end = self.shared.said(ToolEvent::settling(
            &settled,
            started,
            denier(&work[at].resumed),
            shown,
        ));
        let audit = settled.notes.fields().filter(|notes| notes.has_remarks());
        let audit = audit.and_then(|_| self.shared.audit(&settled.notes));
        // A call that waits for a person cannot have succeeded, whatever a layer made of it.
        turn.apply(invocation.id, &end)
            .map_err(|error| Box::new(broken_contract(&error)))?;
        let settled = Arc::new(settled);
        work[at].outcome = Some(settled.clone());
        work[at].pending = None;
        // What the other pass has seen is not what is settled here.
        let entries = std::mem::take(&mut work[at].entries).into_iter();
        let entries = entries
            .filter_map(|(of, entry)| (of == pass).then_some(entry))
            .collect();
        let drafts = audit
            .into_iter()
            .chain([end])
            .map(|event| Draft::Tool(invocation.clone(), event));
        // The last one settles the turn in the same write: one less to wait for.
        let last = turn.is_settled();
        let whole = last.then(|| self.turn_settled());
        state.said_settled |= last;
        let (whole, ended) = whole.unzip();
        let outcome = (RecordKey::Outcome(invocation.id), Record::Outcome(settled));
        let records = [outcome].into_iter().chain(ended).collect();
        Ok(self.shared.journal.write_along(
            drafts.chain(whole),
            Along {
                records,
                entries,
                ..Along::default()
            },
        ))
    }

    /// What is written when everything is settled.
    fn turn_settled(&self) -> (Draft, (RecordKey, Record)) {
        let turn = self.info.turn;
        (
            Draft::Turn(self.info.clone(), TurnEvent::TurnSettled),
            (RecordKey::Ended(turn), Record::Turn(turn)),
        )
    }

    /// Makes sure it is written that everything is settled, also for a turn without calls or one whose process was lost.
    pub(crate) fn say_settled(&self) -> Durable {
        let mut state = self.state();
        if std::mem::replace(&mut state.said_settled, true) {
            return self.shared.journal.flushed();
        }
        let (event, ended) = self.turn_settled();
        self.shared.journal.write([event], [ended])
    }

    /// Records that an invocation waits.
    fn suspend(&self, at: usize, suspension: Suspension) -> Result<Durable, Instead> {
        let mut state = self.state();
        // Nobody is asked for a turn that is being ended; its calls are settled by whoever ends it.
        if state.retired || state.turn.is_stopped() {
            return Ok(Durable::Now(Ok(())));
        }
        let Suspension::Decision(request) = suspension else {
            // That the result comes from outside was recorded when it started; otherwise nobody will deliver one.
            let waits = state.turn.slots()[at].phase() == Some(Phase::AwaitingResult);
            let contract = || Box::new(broken_contract(&"nothing runs outside"));
            return waits.then_some(Durable::Now(Ok(()))).ok_or_else(contract);
        };
        let invocation = state.turn.slots()[at].invocation().clone();
        let mut shown = request.clone();
        let visible = self.shared.shown_arguments(&request.arguments);
        (shown.withheld, shown.arguments) =
            (visible.is_none(), visible.unwrap_or_else(Arguments::empty));
        shown.shown = request
            .shown
            .as_ref()
            .and_then(|value| self.shared.shown_value(value));
        shown.reason = request
            .reason
            .as_deref()
            .map(|reason| self.shared.said_text(reason));
        let event = ToolEvent::ToolApprovalRequested(Box::new(shown));
        match state.turn.apply(invocation.id, &event) {
            Ok(_) => {
                let key = RecordKey::Question(invocation.id, request.generation);
                let question = Record::Question(Arc::new(request.clone()));
                state.expires_next = state
                    .expires_next
                    .into_iter()
                    .chain(request.expires_at)
                    .min();
                state.work[at].pending = Some(Box::new(request));
                Ok(self
                    .shared
                    .journal
                    .write([Draft::Tool(invocation, event)], [(key, question)]))
            }
            // Settled meanwhile, by an interruption.
            Err(_) if state.turn.slots()[at].status().is_some() => Ok(Durable::Now(Ok(()))),
            // It came back because its time was over, and nobody has decided since.
            Err(_) if state.turn.slots()[at].phase() == Some(Phase::AwaitingApproval) => {
                Err(Box::new(lapsed()))
            }
            Err(error) => Err(Box::new(broken_contract(&error))),
        }
    }

    /// Takes a result from outside, or says why not.
    pub(crate) fn deliver(&self, call: CallId, settled: Settled) -> Result<Durable, NotTaken> {
        let mut state = self.state();
        if state.retired {
            return Err(NotTaken::Retired);
        }
        let posted = state.turn.post(self.info.turn, call, PostKind::Result);
        let (at, attempt) =
            match posted.map(|slot| (slot.invocation().emit_order as usize, slot.attempts())) {
                Ok(found) => found,
                Err(code) => {
                    drop(state);
                    return Err(self.recorded(call, PostKind::Result, code));
                }
            };
        state.turn.answer(call, PostCode::Duplicate);
        let settled = Arc::new(settled);
        state.work[at]
            .resumed
            .results
            .push((attempt, settled.clone()));
        let record = (RecordKey::Result(call, attempt), Record::Outcome(settled));
        let durable = self.shared.journal.write([], [record]);
        drop(state);
        self.inbox.push(Urgency::Settlement, Item::Posted);
        Ok(durable)
    }

    /// Stops the turn: nothing more is started, and what runs is told to stop.
    pub(crate) fn interrupt(&self, reason: &str) -> Option<Durable> {
        let mut state = self.state();
        if state.retired || state.interrupted || state.turn.is_settled() {
            return None;
        }
        state.interrupted = true;
        state.turn.stop();
        let reason = self.shared.said_text(reason);
        let durable = self.shared.journal.write(
            [Draft::Turn(
                self.info.clone(),
                TurnEvent::TurnInterrupted { reason },
            )],
            [],
        );
        drop(state);
        self.cancel.cancel();
        self.inbox.push(Urgency::Settlement, Item::Interrupted);
        Some(durable)
    }

    /// Starts nothing more because a call failed and the others are not wanted.
    pub(crate) fn abort(&self, reason: &str) -> Durable {
        let mut state = self.state();
        state.turn.stop();
        let reason = reason.to_owned();
        self.shared.journal.write(
            [Draft::Turn(
                self.info.clone(),
                TurnEvent::TurnInterrupted { reason },
            )],
            [],
        )
    }

    /// Stops the tasks of this copy of the turn and keeps it from writing. What they did is in the journal.
    ///
    /// Returns the tasks: they stop where they next wait, which may take a moment.
    pub(crate) fn retire(&self) -> Vec<JoinHandle<()>> {
        let mut state = self.state();
        state.retired = true;
        // For whoever still waits on behalf of this copy: prompts, child work, another driver.
        self.cancel.cancel();
        self.inbox.push(Urgency::Settlement, Item::Retired);
        let tasks: Vec<_> = state
            .work
            .iter_mut()
            .filter_map(|work| work.task.take())
            .collect();
        tasks.iter().for_each(JoinHandle::abort);
        tasks
    }

    /// Settles a call whose task ended without saying how.
    pub(crate) async fn settle_lost(&self, at: usize) -> Result<(), JournalError> {
        self.settle_where("the call was lost", |place, _| place == at)
            .await
    }

    /// Settles what no task is working on, because the turn stops.
    pub(crate) async fn settle_idle(&self, reason: &str) -> Result<(), JournalError> {
        self.settle_where(reason, |_, work| work.task.is_none())
            .await
    }

    /// Settles what is left, stopping the tasks that did not stop by themselves.
    pub(crate) async fn settle_rest(&self, reason: &str) -> Result<(), JournalError> {
        for task in self
            .state()
            .work
            .iter_mut()
            .filter_map(|work| work.task.take())
        {
            task.abort();
        }
        self.settle_where(reason, |_, _| true).await
    }

    async fn settle_where(
        &self,
        reason: &str,
        wanted: impl Fn(usize, &Work) -> bool,
    ) -> Result<(), JournalError> {
        let unsettled: Vec<(usize, Status, Option<Arc<Settled>>)> = {
            let state = self.state();
            let open = state.turn.slots().iter().zip(&state.work).enumerate();
            let open =
                open.filter(|(at, (slot, work))| slot.status().is_none() && wanted(*at, work));
            // What has started and may write could have done so.
            let uncertain = |phase, work: &Work| {
                matches!(phase, Some(Phase::Running | Phase::AwaitingResult)) && work.may_write()
            };
            open.map(|(at, (slot, work))| {
                let status = if uncertain(slot.phase(), work) {
                    Status::OutcomeUnknown
                } else {
                    Status::Cancelled
                };
                // A result that was taken and waits for its turn is not thrown away.
                let waits = slot.phase() == Some(Phase::AwaitingResult);
                (
                    at,
                    status,
                    work.resumed
                        .result(slot.attempts())
                        .filter(|_| waits)
                        .cloned(),
                )
            })
            .collect()
        };
        let end = |status, delivered: Option<Arc<Settled>>| {
            if let Some(delivered) = delivered {
                return Settled::clone(&delivered);
            }
            let text = match status {
                Status::OutcomeUnknown => {
                    format!("{reason}; the call had started and may have taken effect")
                }
                _ => reason.to_owned(),
            };
            refusal(status, text)
        };
        let close = |(at, status, delivered)| self.close(at, end(status, delivered));
        futures::future::try_join_all(unsettled.into_iter().map(close))
            .await
            .map(drop)
    }

    /// Writes down that something posted changed nothing, and passes the code on.
    fn recorded(&self, call: CallId, what: PostKind, mut code: PostCode) -> NotTaken {
        if code == PostCode::UnknownInvocation
            && self.shared.belongs_elsewhere(self.info.turn, call)
        {
            code = PostCode::TurnMismatch;
        }
        // The answer to the poster does not wait for this record.
        drop(self.refuse(call, what, code));
        NotTaken::Refused(code)
    }

    fn refuse(&self, invocation_id: CallId, what: PostKind, code: PostCode) -> Durable {
        self.shared
            .journal
            .write([self.refusal(invocation_id, what, code)], [])
    }

    fn refusal(&self, invocation_id: CallId, what: PostKind, code: PostCode) -> Draft {
        Draft::Turn(
            self.info.clone(),
            TurnEvent::PostRefused {
                invocation_id,
                what,
                code,
            },
        )
    }

    /// Keeps an entry for the write that settles the call.
    fn keep_entry(&self, call: &Call, entry: LedgerDraft) {
        let mut state = self.state();
        // Whoever drives the turn now settles the call and seals that.
        if state.retired {
            return;
        }
        let pass = if call.closing().is_some() {
            Pass::Closing
        } else {
            Pass::Down
        };
        let entries = &mut state.work[call.emit_order() as usize].entries;
        entries.retain(|(of, kept)| *of != pass || kept.ledger != entry.ledger);
        entries.push((pass, entry));
    }

    fn start(&self, call: &Call, outside: bool) -> Result<(Durable, bool), StopReason> {
        let mut state = self.state();
        let at = call.emit_order() as usize;
        if state.retired || state.turn.is_stopped() {
            return Err(StopReason::Interrupted);
        }
        let event = ToolEvent::ToolExecutionStarted {
            attempt: call.attempt,
            executor: state.work[at].executor(),
            external: outside,
            arguments_digest: call.arguments.digest(),
        };
        let not_recorded =
            |error: &dyn std::fmt::Display| StopReason::NotRecorded(error.to_string());
        state
            .turn
            .apply(call.id, &event)
            .map_err(|error| not_recorded(&error))?;
        let invocation: Arc<Invocation> = state.turn.slots()[at].invocation().clone();
        let writes = state.work[at].may_write() || outside;
        let work = &mut state.work[at];
        // Whoever runs it may be in another process by then, and what it is run with is not what the model wrote.
        let record = outside.then(|| {
            work.outside = Some(call.arguments.clone());
            (
                outside_arguments(call.id, call.attempt),
                Record::Json(call.arguments.as_json().clone()),
            )
        });
        Ok((
            self.shared
                .journal
                .write([Draft::Tool(invocation, event)], record),
            writes,
        ))
    }

    fn remark(&self, call: &Call, event: ToolEvent) {
        let mut state = self.state();
        // Late progress of a call that is over is dropped: nothing follows the end.
        if !state.retired && state.turn.apply(call.id, &event).is_ok() {
            let invocation = state.turn.slots()[call.emit_order() as usize]
                .invocation()
                .clone();
            drop(
                self.shared
                    .journal
                    .write([Draft::Tool(invocation, event)], []),
            );
        }
    }
}

/// Names the record of what an attempt is run with outside.
pub(crate) fn outside_arguments(call: CallId, attempt: u32) -> RecordKey {
    RecordKey::Layer(call, format!("outside/{attempt}").into())
}

/// A refusal that is settled.
pub(crate) fn refusal(status: Status, text: impl Into<String>) -> Settled {
    settled(Outcome::refused(status, text.into())).expect("refusals are settled")
}

/// The outcome of a call that nobody decided on in time.
fn lapsed() -> Settled {
    refusal(
        Status::Expired,
        "the call was not run: nobody decided on it in time",
    )
}

/// The outcome of a call that a layer left in a state it cannot be in.
fn broken_contract(problem: &dyn std::fmt::Display) -> Settled {
    let mut settled = Settled::new(Status::LayerException);
    let error = CallError::new(ErrorCategory::Panic, "an internal error stopped the call");
    settled.error = Some(error.with_operator(format!("a layer broke its contract: {problem}")));
    settled
}

/// Who denied the call, if the newest answer is a denial.
fn denier(resumed: &Resumed) -> Option<Principal> {
    resumed
        .answers
        .last()
        .filter(|answer| answer.is_denial())
        .map(|answer| answer.decision.by.clone())
}

/// Tells the driver that a call left the stack, however that came about.
struct Left<'a> {
    active: &'a Active,
    at: usize,
}

impl Drop for Left<'_> {
    fn drop(&mut self) {
        self.active
            .inbox
            .push(Urgency::Settlement, Item::Left(self.at));
    }
}

/// Writes down what calls report while they run.
struct Watch(Weak<Active>);

impl Probe for Watch {
    fn starting(&self, call: &Call, outside: bool) -> Starting {
        let Some(active) = self.0.upgrade() else {
            return Starting::Now(Err(StopReason::NotRecorded("the turn is gone".into())));
        };
        let not_recorded = |error: JournalError| StopReason::NotRecorded(error.to_string());
        match active.start(call, outside) {
            Err(stop) => Starting::Now(Err(stop)),
            Ok((Durable::Now(written), _)) => Starting::Now(written.map_err(not_recorded)),
            // What may write is durable first. What only reads is in the log too, but need not wait for it.
            Ok((durable, true)) => {
                Starting::Later(Box::pin(async move { durable.await.map_err(not_recorded) }))
            }
            Ok((_, false)) => Starting::Now(Ok(())),
        }
    }

    fn progress(&self, call: &Call, mut progress: Progress) {
        let Some(active) = self.0.upgrade() else {
            return;
        };
        progress.message = progress.message.map(|text| active.shared.said_text(&text));
        active.remark(call, ToolEvent::ToolExecutionProgress { progress });
    }

    fn log(&self, call: &Call, level: LogLevel, text: &str) {
        let Some(active) = self.0.upgrade() else {
            return;
        };
        let message = active.shared.said_text(text);
        active.remark(call, ToolEvent::ToolLog { level, message });
    }

    fn seals_with_outcome(&self, _: &Call) -> Result<bool, StopReason> {
        let gone = || StopReason::NotRecorded("the turn is gone".into());
        let active = self.0.upgrade().ok_or_else(gone)?;
        match active.shared.journal.failure() {
            Some(error) => Err(StopReason::NotRecorded(error.to_string())),
            None => Ok(true),
        }
    }

    fn seal_with_outcome(&self, call: &Call, entry: LedgerDraft) -> Result<(), LedgerDraft> {
        // Also taken if the turn is gone: its outcome is not written here, and an entry without one would be a second one
        // when somebody else settles the call.
        if let Some(active) = self.0.upgrade() {
            active.keep_entry(call, entry);
        }
        Ok(())
    }
}
