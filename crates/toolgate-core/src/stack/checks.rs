//! The runtime's own checks of a call, at the edges between bands.
//!
//! Where `record` ends, a call that the view rejected is answered. Where `decide` begins, arguments
//! that were reshaped are checked against the tool's own schema. From there on, the arguments have to
//! be the ones that are decided on, and in front of the executor approved if a layer required it.

use crate::{
    Arguments, Call, CallError, ChangeSubject, Digest, ErrorCategory, Outcome, Provenance, Refusal,
    Verdict, note_keys,
    stack::descend::{CallDescent, DecidingPass, layer_failure},
    value::diff::list_changes,
};

/// The source named on the trail for arguments that an approver edited.
const EDIT_SOURCE: &str = "approval edit";
/// The source named on the trail for parameters that the program fills.
const HOST_SOURCE: &str = "host values";

impl CallDescent {
    /// Returns the runtime's own rejection at the edge between two bands, if there is one.
    pub(super) fn check_band_edge(&self, at: usize, call: &Call) -> Option<Outcome> {
        // Nothing is decided or run for such a call, so there is nothing to check.
        if call.closing_outcome().is_some() {
            return None;
        }
        // Not before the first layer: a call that the view rejected is recorded like any other.
        if at == self.plan.admit_at
            && let Some(refusal) = call.view_rejection()
        {
            return Some(refusal.clone());
        }
        if at == self.plan.seal_at {
            self.check_tool_schema(call)
        } else {
            None
        }
    }

    /// Fills in the program's own values, after the edits: an approver cannot change these values
    /// either, and a call in which one did is blocked before it runs. Returns no call if there is
    /// nothing to fill in, and the outcome for a call that lacks such a value.
    pub(super) fn fill_host_values(&self, call: &Call) -> Result<Option<Call>, Outcome> {
        let ended = call.closing_outcome().is_some() || call.view_rejection().is_some();
        let Some(shown) = call.shown_tool().filter(|_| !ended) else {
            return Ok(None);
        };
        // The common case: no copy of the call.
        if shown.entry.host_values.is_empty() {
            return Ok(None);
        }
        let filled = shown.entry.host_values.fill_call(call)?;
        self.note_change(HOST_SOURCE, call, &filled.arguments);
        Ok(Some(filled))
    }

    /// Begins a pass through the deciding layers, and returns its number if there are any.
    pub(super) fn begin_pass(&self, call: &Call) -> Option<usize> {
        // Recorded even if every deciding layer is skipped for this call: that is a decision too.
        self.plan.decides.then(|| {
            let passes = &mut self.lock_state().passes;
            passes.push(DecidingPass {
                arguments: call.arguments.clone(),
                ended: false,
            });
            passes.len() - 1
        })
    }

    /// Returns the outcome of a call that the layer of visit `entry` must not pass on in this pass.
    // Outlined: almost no call comes here.
    #[cold]
    pub(super) fn refuse_in_pass(
        &self,
        violation: PassViolation,
        entry: usize,
        call: &Call,
    ) -> Outcome {
        let layer = self.layer_of_visit(entry);
        let (model, reason) = match &violation {
            PassViolation::Ended => (
                "the decision on the call no longer holds",
                "it passed on the call after the decision on it had ended",
            ),
            PassViolation::Changed { .. } => (
                "the arguments were changed after they had been decided on",
                "it changed the arguments after they had been decided on",
            ),
        };
        self.set_reason(entry, reason.into());
        let error = CallError::new(ErrorCategory::Refused, model)
            .with_operator_detail(format!("{layer}: {reason}"));
        Outcome::error(Refusal::Blocked, error).with_notes(|notes| {
            if let PassViolation::Changed { decided } = violation {
                notes.insert(note_keys::DECIDED_DIGEST, &decided);
                notes.insert(note_keys::FINAL_DIGEST, &call.arguments.digest());
            }
        })
    }

    /// Replaces the model's arguments by the approver's edits where deciding begins.
    pub(super) fn apply_edits(&self, call: Call) -> Call {
        let Some(edited) = call
            .resume_state()
            .edited_arguments()
            .filter(|edited| **edited != call.arguments)
            .cloned()
        else {
            return call;
        };
        self.note_change(EDIT_SOURCE, &call, &edited);
        call.with_arguments(edited)
    }

    /// Notes on the trail what is different in `arguments`, if anything is.
    fn note_change(&self, source: &str, call: &Call, arguments: &Arguments) {
        if *arguments == call.arguments {
            return;
        }
        let (places, truncated) = list_changes(call.arguments.as_json(), arguments.as_json());
        let change = Provenance {
            layer: source.into(),
            subject: ChangeSubject::Arguments,
            changes: places,
            truncated,
        };
        self.lock_state().changes.push(change);
    }

    /// Checks reshaped arguments against the tool's own schema.
    fn check_tool_schema(&self, call: &Call) -> Option<Outcome> {
        // Without a view there is no spec to check against; the registry checks such a call itself.
        let shown = call.shown_tool()?;
        if self
            .lock_state()
            .valid
            .as_ref()
            .is_some_and(|valid| valid.is_same(&call.arguments))
        {
            return None;
        }
        match shown.entry.spec.input.check_value(call.arguments.as_json()) {
            Ok(()) => {
                self.lock_state().valid = Some(call.arguments.clone());
                None
            }
            Err(problems) => Some(Outcome::schema_violation(&problems)),
        }
    }

    /// Checks what must be true of a call immediately before it runs, whatever the layers did.
    pub(super) fn check_before_execution(&self, call: &Call) -> Option<Outcome> {
        // Also catches a call that a layer stored from an earlier entry: its answers are out of
        // date.
        if call.id != self.id || call.tool != self.tool || !call.has_origin(&self.origin) {
            return Some(layer_failure(
                &"a layer".into(),
                "it passed on another call",
                None,
            ));
        }
        // A denial holds even if the layer that asked for it ignored or never saw it.
        for answer in &call.resume_state().answers {
            if let Verdict::Deny { reason } = &answer.decision.verdict {
                return Some(Outcome::denied(reason.as_deref()));
            }
        }
        if call
            .resume_state()
            .edited_arguments()
            // The approver saw exactly these arguments; a layer below must not add to them.
            .is_some_and(|edited| edited.digest() != call.arguments.digest())
        {
            let text = "the arguments are not the ones that were approved";
            return Some(Outcome::refused(Refusal::Blocked, text));
        }
        if let Some(refusal) = call.refuse_unapproved() {
            return Some(refusal);
        }
        if let Some(refusal) = self.check_tool_schema(call) {
            return Some(refusal);
        }
        call.cancel.is_cancelled().then(|| {
            Outcome::refused(
                Refusal::Cancelled,
                "the call was cancelled before it started",
            )
        })
    }
}

/// The reason that a layer must not pass on a call in a pass.
pub(super) enum PassViolation {
    /// The pass has ended: what was required or denied since does not show in it.
    Ended,
    /// The arguments are not the ones that are decided on.
    Changed {
        /// The digest of those.
        decided: Digest,
    },
}

impl DecidingPass {
    /// Checks the final-argument guarantee: below the point where deciding begins, every layer and
    /// the executor get the same arguments.
    pub(super) fn check_call(&self, call: &Call) -> Result<(), PassViolation> {
        if self.ended {
            return Err(PassViolation::Ended);
        }
        // An equal copy is fine: digests are compared where the pointers differ.
        if self.arguments.is_same(&call.arguments) {
            return Ok(());
        }
        let decided = self.arguments.digest();
        if decided == call.arguments.digest() {
            Ok(())
        } else {
            Err(PassViolation::Changed { decided })
        }
    }
}
