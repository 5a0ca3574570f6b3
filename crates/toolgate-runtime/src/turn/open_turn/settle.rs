//! Settles calls, each exactly once: the first outcome stands, and a later one gets a code.

use std::sync::Arc;

use toolgate_core::{
    ApproverIdentity, CallError, ErrorCategory, ErrorStatus, Failure, InputKind, Invocation,
    Outcome, Phase, RecordKey, RejectCode, ResumeState, SettledOutcome, Status, StoreRecord,
    Timestamp, ToolEvent, TurnEvent,
};

use super::{InvocationState, OpenTurn, OpenTurnState, StackEntry, is_pending};
use crate::{
    journal::{BatchExtras, JournalError, PendingEvent, WriteAck, WriteTiming},
    turn::settled_outcome,
};

/// The outcome to settle with when a layer's outcome is illegal in the state of the call.
pub(super) type FallbackOutcome = Box<SettledOutcome>;

/// The text for the model about a call whose process was lost while it ran.
pub(crate) const LOST_WHILE_RUNNING: &str =
    "the process was lost while the call ran; it may have taken effect";

impl OpenTurn {
    /// Settles an invocation as `pass` has seen it, unless it is settled already: the first outcome
    /// stands.
    pub(super) fn settle_call(
        &self,
        at: usize,
        mut settled: SettledOutcome,
        pass: StackEntry,
    ) -> Result<WriteAck, FallbackOutcome> {
        let mut state = self.lock_state();
        // Another copy of the turn may be driven by now; a write from here would be a second
        // outcome.
        if state.retired {
            return Ok(WriteAck::Now(Ok(())));
        }
        let OpenTurnState { turn, work, .. } = &mut *state;
        let slot = &turn.slots()[at];
        let invocation = slot.invocation().clone();
        let started = slot.attempts() > 0;
        // An interruption may have settled it while it ran.
        if let Some(status) = slot.status() {
            return Ok(self.write_rejection(
                invocation.id,
                InputKind::Result,
                RejectCode::after_settled(status),
            ));
        }
        // What may have changed something is durable at once. The result of a read can be had
        // again, so it may wait until something else is written or anything waits.
        let timing = if started && work[at].may_write() {
            WriteTiming::Now
        } else {
            WriteTiming::Held
        };
        settled.attempts = settled.attempts.max(slot.attempts());
        self.redact_operator_detail(&mut settled);
        let shown = self.shared.visible_json(&settled.value);
        let end = self.shared.redact_event(ToolEvent::from_settled(
            &settled,
            started,
            denied_by(&work[at].resumed),
            shown,
        ));
        let audit = settled.notes.fields().filter(|notes| notes.has_remarks());
        let audit = audit.and_then(|_| self.shared.audit_event(&settled.notes));
        // A call that waits for an approver cannot have succeeded, whatever a layer returned.
        turn.apply(invocation.id, &end)
            .map_err(|error| Box::new(contract_violation(&error)))?;
        log_operator_detail(&invocation, &settled);
        let settled = Arc::new(settled);
        work[at].outcome = Some(settled.clone());
        work[at].pending = None;
        // Entries of the other pass describe an outcome that is not the one settled here.
        let entries = std::mem::take(&mut work[at].entries).into_iter();
        let entries = entries
            .filter_map(|(of, entry)| (of == pass).then_some(entry))
            .collect();
        let added = std::mem::take(&mut work[at].records).into_iter();
        let added = added.filter_map(|(of, key, record)| {
            (of == pass).then_some((key, StoreRecord::Json(record)))
        });
        let unwritten = std::mem::take(&mut work[at].unwritten);
        // The audit comes first: no event of the call is legal after its end.
        let drafts = audit
            .into_iter()
            .chain([end])
            .map(|event| PendingEvent::Tool(invocation.clone(), event));
        // The last call settles the turn in the same write, which saves one wait.
        let last = turn.is_settled();
        let whole = last.then(|| self.turn_settled_entry());
        state.said_settled |= last;
        let (whole, ended) = whole.unzip();
        let outcome = (
            RecordKey::Outcome(invocation.id),
            StoreRecord::Outcome(settled),
        );
        let records = [outcome].into_iter().chain(ended).chain(added);
        let records = records.chain(unwritten).collect();
        Ok(self.shared.journal.append_at(
            timing,
            drafts.chain(whole),
            BatchExtras {
                records,
                entries,
                ..BatchExtras::default()
            },
        ))
    }

    /// Redacts what only the operator reads. A layer outside redaction may have written it, and the
    /// stored outcome, the log and the command line show it.
    fn redact_operator_detail(&self, settled: &mut SettledOutcome) {
        let error = settled.error.as_mut();
        if let Some(detail) = error.and_then(|error| error.operator.as_mut()) {
            *detail = self.shared.visible_text(detail);
        }
    }

    /// Settles an invocation that ended outside the stack, after recording and cleaning layers have
    /// seen the end.
    pub(crate) async fn close_call(
        &self,
        at: usize,
        mut end: SettledOutcome,
    ) -> Result<(), JournalError> {
        // Built without a clock: the time of closing is the best approximation.
        if end.ended_at == Timestamp::EPOCH {
            let now = self.shared.clock.now();
            end.started_at = now;
            end.ended_at = now;
        }
        {
            // An outcome that did not come out of the stack does not know its attempts and its
            // executor.
            let state = self.lock_state();
            let attempts = state.turn.slots()[at].attempts();
            end.attempts = end.attempts.max(attempts);
            end.executor = end
                .executor
                .or_else(|| state.work[at].executor().filter(|_| attempts > 0));
        }
        let end = Arc::new(end);
        let call = self.build_call(at, Some(end.clone()));
        let seen = tokio::select! {
            outcome = self.stack.run(call) => settled_outcome(outcome),
            // A recorder that hangs must not keep the turn from ending.
            () = self.shared.clock.sleep(self.shared.grace) => None,
        };
        let durable = self.settle_call(
            at,
            seen.unwrap_or_else(|| SettledOutcome::clone(&end)),
            StackEntry::Closing,
        );
        let durable = durable.or_else(|_| {
            // Entries and records describe the outcome that was just rejected.
            self.lock_state().work[at].forget_pass(StackEntry::Closing);
            self.settle_call(at, SettledOutcome::clone(&end), StackEntry::Closing)
        });
        durable.expect("every open invocation can fail").await
    }

    /// Settles a call whose task ended without an outcome.
    pub(crate) async fn settle_lost_call(&self, at: usize) -> Result<(), JournalError> {
        self.settle_where("the call was lost", |place, _| place == at)
            .await
    }

    /// Aborts the task of a call that was told to stop, if it has not ended, and settles the call.
    pub(crate) async fn settle_cancelled_call(&self, at: usize) -> Result<(), JournalError> {
        if let Some(task) = self.lock_state().work[at].task.take() {
            task.abort();
        }
        self.settle_where("the call was cancelled", |place, _| place == at)
            .await
    }

    /// Settles the calls that no task is working on, because the turn stops.
    pub(crate) async fn settle_idle(&self, reason: &str) -> Result<(), JournalError> {
        self.settle_where(reason, |_, work| work.task.is_none())
            .await
    }

    /// Aborts the tasks that did not stop by themselves and settles their calls.
    pub(crate) async fn settle_running(&self, reason: &str) -> Result<(), JournalError> {
        let pending = self.pending_places();
        let mut stopped = Vec::new();
        for (at, work) in self.lock_state().work.iter_mut().enumerate() {
            if let Some(task) = work.task.take() {
                task.abort();
                stopped.push(at);
            }
        }
        self.settle_where(reason, |at, _| {
            stopped.contains(&at) && !pending.contains(&at)
        })
        .await
    }

    fn pending_places(&self) -> Vec<usize> {
        let state = self.lock_state();
        let slots = state.turn.slots().iter().enumerate();
        let pending = slots.filter(|(_, slot)| is_pending(slot.phase()));
        pending.map(|(at, _)| at).collect()
    }

    /// Aborts the tasks that did not stop by themselves and settles the remaining calls.
    pub(crate) async fn settle_remaining(&self, reason: &str) -> Result<(), JournalError> {
        for task in self
            .lock_state()
            .work
            .iter_mut()
            .filter_map(|work| work.task.take())
        {
            task.abort();
        }
        self.settle_where(reason, |_, _| true).await
    }

    /// Settles the unsettled calls that `wanted` selects.
    async fn settle_where(
        &self,
        reason: &str,
        wanted: impl Fn(usize, &InvocationState) -> bool,
    ) -> Result<(), JournalError> {
        // Collected first: closing awaits the stack, and the lock must not be held meanwhile.
        let unsettled: Vec<(usize, Failure)> = {
            let state = self.lock_state();
            let open = state.turn.slots().iter().zip(&state.work).enumerate();
            let open =
                open.filter(|(at, (slot, work))| slot.status().is_none() && wanted(*at, work));
            // A call that has started and may write could have done so.
            let uncertain = |phase, work: &InvocationState| {
                matches!(phase, Some(Phase::Running | Phase::AwaitingResult)) && work.may_write()
            };
            open.map(|(at, (slot, work))| {
                let failure = if uncertain(slot.phase(), work) {
                    Failure::OutcomeUnknown
                } else {
                    Failure::Cancelled
                };
                (at, failure)
            })
            .collect()
        };
        let close = async |(at, failure): (usize, Failure)| {
            let text = match failure {
                Failure::OutcomeUnknown => {
                    format!("{reason}; the call had started and may have taken effect")
                }
                _ => reason.to_owned(),
            };
            // A result that was accepted and waits to be processed is not lost.
            let end = match self.delivered_result(at).await {
                Some(delivered) => SettledOutcome::clone(&delivered),
                None => settled_refusal(failure, text),
            };
            self.close_call(at, end).await
        };
        futures::future::try_join_all(unsettled.into_iter().map(close))
            .await
            .map(drop)
    }

    /// Settles a call of which only the lost process knew whether it took effect.
    pub(crate) async fn settle_unknown(&self, at: usize) -> Result<(), JournalError> {
        let end = match self.delivered_result(at).await {
            Some(delivered) => SettledOutcome::clone(&delivered),
            None => settled_refusal(Failure::OutcomeUnknown, LOST_WHILE_RUNNING),
        };
        self.close_call(at, end).await
    }

    /// Returns the external result that a call waits for, if it has been delivered: applied, or still
    /// in the mailbox.
    async fn delivered_result(&self, at: usize) -> Option<Arc<SettledOutcome>> {
        let (call, attempt) = {
            let state = self.lock_state();
            let slot = &state.turn.slots()[at];
            if slot.phase() != Some(Phase::AwaitingResult) {
                return None;
            }
            let attempt = slot.attempts();
            if let Some(applied) = state.work[at].resumed.result_of_attempt(attempt) {
                return Some(applied.clone());
            }
            (slot.invocation().id, attempt)
        };
        match self.shared.store.load_result(call, attempt).await {
            Ok(Some(stored)) => {
                let results = &mut self.lock_state().work[at].resumed.results;
                results.push((attempt, stored.clone()));
                Some(stored)
            }
            // A store that cannot answer must not keep the turn from ending.
            _ => None,
        }
    }

    /// Makes sure the turn is recorded as settled, also if it has no calls or its process was lost.
    pub(crate) fn record_settled(&self) -> WriteAck {
        let mut state = self.lock_state();
        if std::mem::replace(&mut state.said_settled, true) {
            return self.shared.journal.when_flushed();
        }
        let (event, ended) = self.turn_settled_entry();
        let along = BatchExtras::with_records(vec![ended]);
        self.shared
            .journal
            .append_at(WriteTiming::Held, [event], along)
    }

    /// Builds the event and the record that settle the turn.
    fn turn_settled_entry(&self) -> (PendingEvent, (RecordKey, StoreRecord)) {
        let turn = self.info.turn;
        (
            PendingEvent::Turn(self.info.clone(), TurnEvent::TurnSettled),
            (RecordKey::Ended(turn), StoreRecord::Turn(turn)),
        )
    }
}

/// Writes the text for the operator to the program's log. It is redacted by now.
fn log_operator_detail(invocation: &Invocation, settled: &SettledOutcome) {
    let error = settled.error.as_ref();
    if let Some(detail) = error.and_then(|error| error.operator.as_deref()) {
        tracing::error!(
            session = %invocation.turn.session,
            call = %invocation.id,
            tool = %invocation.tool,
            status = settled.status.as_str(),
            detail,
            "a call failed"
        );
    }
}

/// Builds a settled outcome of a call that did not run or whose effect is unknown.
pub(crate) fn settled_refusal(
    status: impl Into<ErrorStatus>,
    text: impl Into<String>,
) -> SettledOutcome {
    let status = status.into();
    let category = ErrorCategory::for_status(status.get());
    settled_outcome(Outcome::error(status, CallError::new(category, text)))
        .expect("refusals are settled")
}

/// Builds the outcome of a call that a layer left in an illegal state.
pub(super) fn contract_violation(problem: &dyn std::fmt::Display) -> SettledOutcome {
    let mut settled = SettledOutcome::new(Status::LayerException);
    let error = CallError::new(ErrorCategory::Panic, "an internal error stopped the call");
    settled.error =
        Some(error.with_operator_detail(format!("a layer violated its contract: {problem}")));
    settled
}

/// Returns the approver who denied the call, if the newest answer is a denial.
fn denied_by(resumed: &ResumeState) -> Option<ApproverIdentity> {
    resumed
        .answers
        .last()
        .filter(|answer| answer.is_denial())
        .map(|answer| answer.decision.by.clone())
}
