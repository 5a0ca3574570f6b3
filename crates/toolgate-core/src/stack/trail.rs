//! The trail of a call: one note per layer visit, what each layer changed, and the outcome as the
//! runtime completes it.

use std::sync::Arc;

use crate::{
    Arguments, Call, ChangeSubject, Json, LayerName, LayerNote, LayerStatus, Notes, Outcome,
    Provenance, SettledOutcome, Status, Suspension, Timestamp, UnsettledReason,
    stack::{
        descend::{CallDescent, DescentState, layer_failure},
        waiting::ReadyOutcome,
    },
    value::diff::list_changes,
};

/// The parent index of the outermost layer: no layer.
pub(super) const NO_PARENT: usize = usize::MAX;

/// The record of what has happened to a call below a layer so far.
#[derive(Clone)]
pub struct Trail(pub(crate) Arc<CallDescent>);

impl Trail {
    /// Returns one note per layer entered, in order of entering; a layer that still runs counts as
    /// dropped.
    pub fn layer_notes(&self) -> Vec<LayerNote> {
        self.0.collect_notes().0
    }

    /// Returns the changes and the layers that made them.
    pub fn provenance(&self) -> Vec<Provenance> {
        self.0.collect_notes().1
    }

    /// Returns the layers that required an approval of the call, in order of entering.
    pub fn requiring_layers(&self) -> Vec<LayerName> {
        let state = self.0.lock_state();
        let requiring = state.entries.iter().filter(|visit| visit.requires_approval);
        let name = |visit: &LayerVisit| self.0.plan.frames[visit.frame].name.clone();
        requiring.map(name).collect()
    }

    /// Returns the number of times the executor was started.
    pub fn attempts(&self) -> u32 {
        self.0.lock_state().attempts
    }

    /// Returns the arguments that the executor was last given, if the call reached it.
    pub fn executed_arguments(&self) -> Option<Arguments> {
        self.0.lock_state().executed.clone()
    }
}

impl std::fmt::Debug for Trail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Trail").field(&self.layer_notes()).finish()
    }
}

/// One visit to one layer; a retry visits the layers below it again.
pub(super) struct LayerVisit {
    frame: usize,
    attempt: u32,
    started_at: Timestamp,
    pub(super) ended_at: Timestamp,
    status: LayerStatus,
    changed: bool,
    ran_next: bool,
    redacted: bool,
    requires_approval: bool,
    reason: Option<Arc<str>>,
    pub(super) error: Option<&'static str>,
    /// The last outcome the layer received from below.
    inner: Option<InnerOutcome>,
}

struct InnerOutcome {
    status: Option<Status>,
    value: Option<Json>,
    text: Option<Arc<str>>,
    notes: Notes,
}

impl CallDescent {
    pub(super) fn set_reason(&self, entry: usize, reason: Arc<str>) {
        self.lock_state().entries[entry].reason = Some(reason);
    }

    pub(super) fn set_redacted(&self, entry: usize) {
        self.lock_state().entries[entry].redacted = true;
    }

    pub(super) fn set_requires_approval(&self, entry: usize) {
        self.lock_state().entries[entry].requires_approval = true;
    }

    pub(super) fn begin_visit(&self, frame: usize, parent: usize, call: &Call) -> usize {
        let now = self.clock.now();
        let state = &mut *self.lock_state();
        // At the entry, too: if a timeout drops `next`, nothing returns, and the layer would seem
        // to have answered by itself.
        if let Some(parent) = state.entries.get_mut(parent) {
            parent.ran_next = true;
        }
        state.entries.push(LayerVisit {
            frame,
            attempt: call.attempt,
            started_at: now,
            ended_at: now,
            // Stays if the layer's future is dropped before it returns.
            status: LayerStatus::Open(UnsettledReason::Dropped),
            changed: false,
            ran_next: false,
            redacted: false,
            requires_approval: false,
            reason: None,
            error: None,
            inner: None,
        });
        state.entries.len() - 1
    }

    pub(super) fn leave_layer(&self, entry: usize, parent: usize, mut outcome: Outcome) -> Outcome {
        let now = self.clock.now();
        let mut state = self.lock_state();
        let this = &mut state.entries[entry];
        let frame = &self.plan.frames[this.frame];
        this.ended_at = now;
        let inner = this.inner.take();
        let mut change = None;
        match &mut outcome {
            Outcome::Settled(settled) if settled.contradicts_itself() => {
                outcome = layer_failure(&frame.name, "it returned `ok` with an error", None);
                this.status = LayerStatus::Settled(Status::LayerException);
            }
            Outcome::Settled(settled) => {
                this.status = LayerStatus::Settled(settled.status);
                settled.started_at = self.started_at;
                settled.ended_at = now;
                if let Some(inner) = &inner {
                    // What a redacting layer removed from the notes stays removed; no other layer
                    // can lose a note.
                    if !frame.redacts {
                        settled.notes.merge_inner(&inner.notes);
                    }
                    change = inner.diff_to(settled, &frame.name);
                    this.changed |= change.is_some()
                        || inner.status != Some(settled.status)
                        || inner.text != settled.text;
                }
            }
            // Resuming replays from the top, so the executor would run twice: a layer must ask
            // before it runs `next`.
            Outcome::Suspended(_) if inner.as_ref().is_some_and(|inner| inner.status.is_some()) => {
                outcome = layer_failure(
                    &frame.name,
                    "it suspended a call that had already run",
                    None,
                );
                this.status = LayerStatus::Settled(Status::LayerException);
            }
            Outcome::Suspended(suspension) => {
                this.status = LayerStatus::Open(UnsettledReason::Suspended);
                // Set here and not by the layer, so that no layer can ask in another one's name. A
                // suspension that came from below has its name already.
                if let (Suspension::Decision(request), None) = (&mut **suspension, &inner) {
                    request.asked_by = Some(frame.name.clone());
                }
            }
        }
        state.changes.extend(change);
        state.record_inner(parent, &outcome);
        outcome
    }

    /// Records the outcome that a layer was woken for as what it received from below.
    pub(super) fn record_ready(&self, entry: usize, ready: &ReadyOutcome) {
        ready.look(|outcome| self.lock_state().record_inner(entry, outcome));
    }

    /// Hands an outcome that no layer made to the `parent` layer, with its times.
    pub(super) fn hand_up(&self, parent: usize, mut outcome: Outcome) -> Outcome {
        if parent == NO_PARENT {
            return outcome;
        }
        if let Outcome::Settled(settled) = &mut outcome {
            settled.started_at = self.started_at;
            settled.ended_at = self.clock.now();
        }
        self.lock_state().record_inner(parent, &outcome);
        outcome
    }

    /// Returns the name of the layer that a visit belongs to.
    pub(super) fn layer_of_visit(&self, entry: usize) -> LayerName {
        let frame = self.lock_state().entries[entry].frame;
        self.plan.frames[frame].name.clone()
    }

    pub(super) fn record_arguments(&self, entry: usize, given: &Arguments, handed: &Arguments) {
        // Pointers first: most layers pass the arguments on unchanged.
        if given.is_same(handed) {
            return;
        }
        let (places, truncated) = list_changes(given.as_json(), handed.as_json());
        if places.is_empty() {
            return;
        }
        let state = &mut *self.lock_state();
        let entry = &mut state.entries[entry];
        entry.changed = true;
        let layer = self.plan.frames[entry.frame].name.clone();
        state.changes.push(Provenance {
            layer,
            subject: ChangeSubject::Arguments,
            changes: places,
            truncated,
        });
    }

    /// Completes a settled outcome with what only the runtime knows.
    pub(super) fn complete_outcome(&self, mut outcome: Outcome) -> Outcome {
        let now = self.clock.now();
        if let Outcome::Settled(settled) = &mut outcome {
            // Measured here, whatever an executor or layer wrote into these fields.
            settled.started_at = self.started_at;
            settled.ended_at = now;
            settled.attempts = self.lock_state().attempts;
            let (layers, provenance) = self.collect_notes();
            // Also without layers: a tool must not be able to write the runtime's trail itself.
            if !layers.is_empty() || !provenance.is_empty() || !settled.notes.is_empty() {
                let notes = settled.notes.fields_mut();
                notes.layers = layers;
                notes.provenance = provenance;
            }
        }
        outcome
    }

    fn collect_notes(&self) -> (Vec<LayerNote>, Vec<Provenance>) {
        let state = self.lock_state();
        let note = |entry: &LayerVisit| {
            let frame = &self.plan.frames[entry.frame];
            LayerNote {
                name: frame.name.clone(),
                band: frame.band,
                status: entry.status,
                started_at: entry.started_at,
                ended_at: entry.ended_at,
                changed: entry.changed,
                answered: !entry.ran_next
                    && entry.status != LayerStatus::Open(UnsettledReason::Dropped),
                redacted: entry.redacted,
                attempt: entry.attempt,
                reason: entry.reason.clone(),
                error: entry.error.map(str::to_owned),
            }
        };
        (
            state.entries.iter().map(note).collect(),
            state.changes.clone(),
        )
    }
}

impl DescentState {
    /// Records the outcome that a layer received from below.
    fn record_inner(&mut self, parent: usize, outcome: &Outcome) {
        let Some(parent) = self.entries.get_mut(parent) else {
            return;
        };
        parent.ran_next = true;
        let mut told = InnerOutcome::from_outcome(outcome);
        if let Some(before) = &parent.inner {
            // An earlier attempt's notes stay, also if the layer drops that attempt's outcome.
            told.notes.merge_inner(&before.notes);
        }
        parent.inner = Some(told);
    }
}

impl InnerOutcome {
    fn from_outcome(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Suspended(_) => Self {
                status: None,
                value: None,
                text: None,
                notes: Notes::default(),
            },
            Outcome::Settled(settled) => Self {
                status: Some(settled.status),
                value: Some(settled.value.clone()),
                text: settled.text.clone(),
                notes: settled.notes.clone(),
            },
        }
    }

    fn diff_to(&self, settled: &SettledOutcome, layer: &LayerName) -> Option<Provenance> {
        let value = self
            .value
            .as_ref()
            .filter(|value| !value.is_same(&settled.value))?;
        let (changes, truncated) = list_changes(value, &settled.value);
        let layer = layer.clone();
        (!changes.is_empty()).then_some(Provenance {
            layer,
            subject: ChangeSubject::Result,
            changes,
            truncated,
        })
    }
}
