//! Layers that a call passes without entering them, and that are woken for an outcome.

use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;

use crate::{
    Call, Outcome,
    stack::{
        descend::{NO_PASS, StackPosition, layer_failure},
        panic::contain_panic_sync,
    },
};

/// The layers that a call has passed since the last one that it entered, as bits by their number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PassedLayers(u64);

impl PassedLayers {
    /// Adds a layer. Returns false if its number is too high; such a layer is entered.
    pub(super) fn add(&mut self, at: usize) -> bool {
        let bit = u32::try_from(at).ok().and_then(|at| 1_u64.checked_shl(at));
        self.0 |= bit.unwrap_or(0);
        bit.is_some()
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Removes and returns the innermost layer.
    fn pop_innermost(&mut self) -> Option<usize> {
        let innermost = self.0.checked_ilog2()?;
        self.0 &= !(1 << innermost);
        Some(innermost as usize)
    }
}

/// The outcome that a layer was woken for. Clones of a `next` share it: one run returns it.
#[derive(Clone)]
pub(crate) struct ReadyOutcome(Arc<Mutex<Option<Outcome>>>);

impl ReadyOutcome {
    pub(super) fn new(outcome: Outcome) -> Self {
        Self(Arc::new(Mutex::new(Some(outcome))))
    }

    pub(super) fn is_there(&self) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some()
    }

    /// Calls `f` with the outcome, if it is still there.
    pub(super) fn look(&self, f: impl FnOnce(&Outcome)) {
        let outcome = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(outcome) = &*outcome {
            f(outcome);
        }
    }

    pub(super) fn take(&self) -> Option<Outcome> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The outcome of a call behind layers that it has passed.
pub(super) enum PassedOutcome {
    /// No layer wants it, or none is left.
    Done(Outcome),
    /// A layer wants it and was entered; those above it have not been asked yet.
    Woken {
        layer: BoxFuture<'static, Outcome>,
        above: PassedLayers,
    },
}

/// Enters the layers that were passed above `below` and want the outcome, innermost first, each with
/// what the one before it has made of it.
pub(super) async fn wake_layers(
    below: &StackPosition,
    call: &Call,
    first: BoxFuture<'static, Outcome>,
    mut above: PassedLayers,
) -> Outcome {
    let mut outcome = first.await;
    loop {
        match wake_next_layer(below, call, above, outcome) {
            PassedOutcome::Done(outcome) => return outcome,
            PassedOutcome::Woken { layer, above: left } => {
                outcome = layer.await;
                above = left;
            }
        }
    }
}

/// Asks the passed layers whether they want the outcome, and enters the innermost one that does.
pub(super) fn wake_next_layer(
    below: &StackPosition,
    call: &Call,
    mut passed: PassedLayers,
    mut outcome: Outcome,
) -> PassedOutcome {
    let run = &below.run;
    while let Some(at) = passed.pop_innermost() {
        let frame = &run.plan.frames[at];
        let is_above_seal = at < run.plan.seal_at;
        let known = below.unsealed.as_ref().filter(|_| is_above_seal);
        let call = known.unwrap_or(call);
        // User code that may panic. Fail closed: what the layer would have done is not known.
        match contain_panic_sync(|| frame.layer.wants_outcome(call, &outcome)) {
            Ok(false) => {}
            Ok(true) => {
                let place = StackPosition {
                    run: run.clone(),
                    at,
                    parent: below.parent,
                    // A layer above the point where deciding begins starts a pass of its own with
                    // each further run.
                    pass: if is_above_seal { NO_PASS } else { below.pass },
                    opens_pass: false,
                    passed: PassedLayers::default(),
                    unsealed: None,
                    ready: Some(ReadyOutcome::new(outcome)),
                };
                return PassedOutcome::Woken {
                    layer: frame.layer.clone().enter_boxed(place, call.clone()),
                    above: passed,
                };
            }
            Err(report) => {
                let what = "it panicked while checking whether it wants the outcome";
                let failed = layer_failure(&frame.name, what, Some(report));
                outcome = run.hand_up(below.parent, failed);
            }
        }
    }
    PassedOutcome::Done(outcome)
}
