//! What a call reports while it runs: its start, progress, log lines and ledger entries.

use std::sync::{Arc, Weak};

use toolgate_core::{
    Call, CallId, Invocation, LedgerDraft, LogLevel, Probe, Progress, RecordKey, StartPermit,
    StopReason, StoreRecord, ToolEvent,
};

use super::{OpenTurn, StackEntry};
use crate::journal::{JournalError, PendingEvent, WriteAck};

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

    fn report_progress(&self, call: &Call, mut progress: Progress) {
        let Some(active) = self.0.upgrade() else {
            return;
        };
        progress.message = progress
            .message
            .map(|text| active.shared.visible_text(&text));
        active.record_event(call, ToolEvent::ToolExecutionProgress { progress });
    }

    fn write_log(&self, call: &Call, level: LogLevel, text: &str) {
        let Some(active) = self.0.upgrade() else {
            return;
        };
        let message = active.shared.visible_text(text);
        active.record_event(call, ToolEvent::ToolLog { level, message });
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
        Ok((
            self.shared
                .journal
                .append([PendingEvent::Tool(invocation, event)], record),
            writes,
        ))
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
        let pass = if call.closing_outcome().is_some() {
            StackEntry::Closing
        } else {
            StackEntry::Down
        };
        let entries = &mut state.work[call.emit_order() as usize].entries;
        entries.retain(|(of, kept)| *of != pass || kept.ledger != entry.ledger);
        entries.push((pass, entry));
    }
}

/// Returns the key of the record with the arguments of an external attempt.
pub(crate) fn external_arguments_key(call: CallId, attempt: u32) -> RecordKey {
    RecordKey::Layer(call, format!("outside/{attempt}").into())
}
