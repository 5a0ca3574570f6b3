//! What a call reports while it runs: its start, progress, log lines and ledger entries.

use std::sync::{Arc, Weak};

use toolgate_core::{
    Arguments, BudgetAlert, Call, CallId, FileChange, Invocation, Json, LedgerDraft, LogLevel,
    LongRunningLabel, Probe, Progress, RecordKey, StartPermit, StopReason, StoreRecord,
    ToastNotice, ToolEvent,
};

use super::{OpenTurn, StackEntry};
use crate::journal::{BatchExtras, JournalError, PendingEvent, WriteAck, WriteTiming};

/// Records what calls report while they run.
pub(super) struct TurnProbe(pub(super) Weak<OpenTurn>);

impl Probe for TurnProbe {
    fn before_start(&self, call: &Call, outside: bool) -> StartPermit {
        let Some(active) = self.0.upgrade() else {
            return StartPermit::Now(Err(StopReason::NotRecorded("the turn is gone".into())));
        };
        let not_recorded = |error: JournalError| StopReason::NotRecorded(error.to_string());
        match active.record_start(call, outside) {
            Err(stop) => StartPermit::Now(Err(stop)),
            Ok((WriteAck::Now(written), _)) => StartPermit::Now(written.map_err(not_recorded)),
            // A call that may write starts only after its start is durable: after a crash it must
            // be known that it may have run. A read is logged too, but need not wait.
            Ok((durable, true)) => {
                StartPermit::Later(Box::pin(async move { durable.await.map_err(not_recorded) }))
            }
            Ok((_, false)) => StartPermit::Now(Ok(())),
        }
    }

    fn when_recorded(&self, _: &Call) -> StartPermit {
        let Some(active) = self.0.upgrade() else {
            return StartPermit::Now(Err(StopReason::NotRecorded("the turn is gone".into())));
        };
        let not_recorded = |error: JournalError| StopReason::NotRecorded(error.to_string());
        match active.when_opened() {
            WriteAck::Now(written) => StartPermit::Now(written.map_err(not_recorded)),
            opening => {
                StartPermit::Later(Box::pin(async move { opening.await.map_err(not_recorded) }))
            }
        }
    }

    fn report_progress(&self, call: &Call, mut progress: Progress) {
        let Some(active) = self.0.upgrade() else {
            return;
        };
        let redact = |text: String| active.shared.visible_text(&text);
        progress.message = progress.message.map(redact);
        progress.label = progress.label.map(redact);
        active.record_event(call, ToolEvent::ToolExecutionProgress { progress });
    }

    fn write_log(&self, call: &Call, level: LogLevel, text: &str) {
        let Some(active) = self.0.upgrade() else {
            return;
        };
        let message = active.shared.visible_text(text);
        active.record_event(call, ToolEvent::ToolLog { level, message });
    }

    fn report_files(&self, call: &Call, changes: Vec<FileChange>, omitted: u64) {
        if let Some(active) = self.0.upgrade() {
            active.record_event(call, active.shared.files_event(changes, omitted));
        }
    }

    fn show_toast(&self, call: &Call, toast: ToastNotice) {
        if let Some(active) = self.0.upgrade() {
            let event = active.shared.redact_event(ToolEvent::ToolToast(toast));
            active.record_event(call, event);
        }
    }

    fn report_budget_alerts(&self, _: &Call, alerts: Vec<BudgetAlert>) {
        let Some(active) = self.0.upgrade() else {
            return;
        };
        // Also for a call that has ended by now: the amount is booked, and no other booking passes
        // the same threshold.
        let events = alerts
            .into_iter()
            .map(|alert| PendingEvent::Loop(active.info.clone(), alert.into()));
        drop(active.shared.journal.append(events, []));
    }

    fn can_seal_with_outcome(&self, _: &Call) -> Result<bool, StopReason> {
        let gone = || StopReason::NotRecorded("the turn is gone".into());
        let active = self.0.upgrade().ok_or_else(gone)?;
        // A failed journal will not write the outcome, so the entry could not be sealed with it.
        match active.shared.journal.failure() {
            Some(error) => Err(StopReason::NotRecorded(error.to_string())),
            None => Ok(true),
        }
    }

    fn seal_with_outcome(&self, call: &Call, entry: LedgerDraft) -> Result<(), LedgerDraft> {
        // Also accepted if the turn is gone: its outcome is not written here, and an entry without
        // an outcome would become a duplicate when another process settles the call.
        if let Some(active) = self.0.upgrade() {
            active.store_entry(call, entry);
        }
        Ok(())
    }

    fn write_with_call(&self, call: &Call, records: Vec<(RecordKey, Json)>) -> bool {
        if let Some(active) = self.0.upgrade() {
            let mut state = active.lock_state();
            let unwritten = &mut state.work[call.emit_order() as usize].unwritten;
            for (key, record) in records {
                // A call that was suspended hands the same record over again.
                unwritten.retain(|(known, _)| *known != key);
                unwritten.push((key, StoreRecord::Json(record)));
            }
        }
        true
    }

    fn write_with_outcome(&self, call: &Call, records: Vec<(RecordKey, Json)>) -> bool {
        if let Some(active) = self.0.upgrade() {
            active.store_records(call, records);
        }
        true
    }
}

impl OpenTurn {
    /// Records that an attempt starts. Returns the write, and true if the call must wait for it.
    fn record_start(&self, call: &Call, outside: bool) -> Result<(WriteAck, bool), StopReason> {
        let mut state = self.lock_state();
        let at = call.emit_order() as usize;
        // Checked under the lock that also writes the start: after a stop no call may start.
        if state.retired || state.turn.is_stopped() {
            return Err(StopReason::Interrupted);
        }
        let event = ToolEvent::ToolExecutionStarted {
            attempt: call.attempt,
            executor: state.work[at].executor(),
            external: outside,
            arguments_digest: call.arguments.digest(),
            arguments: self.changed_arguments(&state.work[at].admission.arguments, call),
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
        // The external executor may be asked by another process later, and layers may have changed
        // the arguments the model wrote.
        let record = outside.then(|| {
            work.outside = Some(call.arguments.clone());
            (
                external_arguments_key(call.id, call.attempt),
                StoreRecord::Json(call.arguments.as_json().clone()),
            )
        });
        let unwritten = std::mem::take(&mut work.unwritten);
        let records = unwritten.into_iter().chain(record);
        let label = long_running_progress(call, |label| self.shared.visible_text(label));
        let events = [event].into_iter().chain(label);
        let events = events.map(|event| PendingEvent::Tool(invocation.clone(), event));
        let along = BatchExtras::with_records(records.collect());
        // A read runs while its opening is written; its start need not be in that write.
        let journal = &self.shared.journal;
        let is_opening_held = state.opening.is_some_and(|number| journal.holds(number));
        let timing = if writes || is_opening_held {
            WriteTiming::Now
        } else {
            WriteTiming::Held
        };
        let written = journal.append_at(timing, events, along);
        Ok((written, writes))
    }

    /// Returns what events may show of the arguments that run, if they are not the requested ones.
    fn changed_arguments(&self, requested: &Arguments, call: &Call) -> Option<Json> {
        if requested.digest() == call.arguments.digest() {
            return None;
        }
        self.shared.visible_json(call.arguments.as_json())
    }

    /// Records a progress or log event of a running call.
    fn record_event(&self, call: &Call, event: ToolEvent) {
        let mut state = self.lock_state();
        // Late progress of a settled call is dropped: no event may follow the end.
        if !state.retired && state.turn.apply(call.id, &event).is_ok() {
            let invocation = state.turn.slots()[call.emit_order() as usize]
                .invocation()
                .clone();
            drop(
                self.shared
                    .journal
                    .append([PendingEvent::Tool(invocation, event)], []),
            );
        }
    }

    /// Stores an entry for the write that settles the call.
    fn store_entry(&self, call: &Call, entry: LedgerDraft) {
        let mut state = self.lock_state();
        // The copy that is driven now settles the call and seals its own entry.
        if state.retired {
            return;
        }
        let pass = StackEntry::for_call(call);
        let entries = &mut state.work[call.emit_order() as usize].entries;
        entries.retain(|kept| kept.0 != pass || kept.1.ledger != entry.ledger);
        entries.push((pass, entry));
    }

    /// Stores records of a layer for the write that settles the call. Those of an earlier attempt
    /// with the same key are replaced.
    fn store_records(&self, call: &Call, records: Vec<(RecordKey, Json)>) {
        let mut state = self.lock_state();
        if state.retired {
            return;
        }
        let pass = StackEntry::for_call(call);
        let kept = &mut state.work[call.emit_order() as usize].records;
        for (key, record) in records {
            kept.retain(|(of, known, _)| *of != pass || *known != key);
            kept.push((pass, key, record));
        }
    }
}

impl StackEntry {
    fn for_call(call: &Call) -> Self {
        if call.closing_outcome().is_some() {
            Self::Closing
        } else {
            Self::Down
        }
    }
}

/// Returns the first progress of a call that a layer has labelled as long-running.
fn long_running_progress(call: &Call, redact: impl Fn(&str) -> String) -> Option<ToolEvent> {
    let LongRunningLabel(label) = call.extension()?;
    let progress = Progress::busy().with_label(redact(label));
    Some(ToolEvent::ToolExecutionProgress { progress })
}

/// Returns the key of the record with the arguments of an external attempt.
pub(crate) fn external_arguments_key(call: CallId, attempt: u32) -> RecordKey {
    RecordKey::Layer(call, format!("outside/{attempt}").into())
}
