//! The runtime's own checks of a call, at the edges between bands.
//!
//! Where `record` ends, a call that the view rejected is answered. Where `decide` begins, arguments
//! that were reshaped are checked against the tool's own schema. In front of the executor, the
//! arguments have to be the ones that were decided on, and approved if a layer required it.

use crate::{
    Arguments, Call, ChangeSubject, Outcome, Provenance, Status, Verdict, note_keys,
    stack::descend::{CallDescent, layer_failure},
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

    /// Replaces the model's arguments by the approver's edits and fills in the program's values
    /// where deciding begins. Returns the outcome for a call that lacks such a value.
    pub(super) fn begin_deciding(&self, call: &mut Call) -> Option<Outcome> {
        let edited = self.apply_edits(call.clone());
        // After the edits: an approver cannot change these values either, and a call in which one
        // did is blocked before it runs.
        match self.fill_host_values(edited) {
            Ok(filled) => *call = filled,
            Err(blocked) => return Some(blocked),
        }
        if self.plan.decides {
            // Recorded even if every deciding layer is skipped for this call: that is a decision
            // too.
            self.lock_state().decided = vec![call.arguments.clone()];
        }
        None
    }

    fn fill_host_values(&self, call: Call) -> Result<Call, Outcome> {
        let ended = call.closing_outcome().is_some() || call.view_rejection().is_some();
        let Some(shown) = call.shown_tool().filter(|_| !ended) else {
            return Ok(call);
        };
        // The common case: no copy of the call.
        if shown.entry.host_values.is_empty() {
            return Ok(call);
        }
        let filled = shown.entry.host_values.fill_call(&call)?;
        self.note_change(HOST_SOURCE, &call, &filled.arguments);
        Ok(filled)
    }

    fn apply_edits(&self, call: Call) -> Call {
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
        if let Some(refusal) = self.check_decided_arguments(call) {
            return Some(refusal);
        }
        if call
            .resume_state()
            .edited_arguments()
            // The approver saw exactly these arguments; a layer below must not add to them.
            .is_some_and(|edited| edited.digest() != call.arguments.digest())
        {
            let text = "the arguments are not the ones that were approved";
            return Some(Outcome::refused(Status::Blocked, text));
        }
        if let Some(refusal) = check_requirements(call) {
            return Some(refusal);
        }
        if let Some(refusal) = self.check_tool_schema(call) {
            return Some(refusal);
        }
        call.cancel.is_cancelled().then(|| {
            Outcome::refused(
                Status::Cancelled,
                "the call was cancelled before it started",
            )
        })
    }

    /// Checks the final-argument guarantee: what runs is what every deciding layer saw.
    fn check_decided_arguments(&self, call: &Call) -> Option<Outcome> {
        let state = self.lock_state();
        // An equal copy is fine: digests are compared where the pointers differ.
        let differs = |seen: &&Arguments| {
            !seen.is_same(&call.arguments) && seen.digest() != call.arguments.digest()
        };
        let seen = state.decided.iter().find(differs)?;
        let text = "the arguments were changed after they had been decided on";
        Some(Outcome::refused(Status::Blocked, text).with_notes(|notes| {
            notes.insert(note_keys::DECIDED_DIGEST, &seen.digest());
            notes.insert(note_keys::FINAL_DIGEST, &call.arguments.digest());
        }))
    }
}

/// Checks that every requirement to ask for approval is met for these arguments.
fn check_requirements(call: &Call) -> Option<Outcome> {
    let reasons: Vec<&str> = call
        .unmet_requirements()
        .map(|required| &*required.reason)
        .collect();
    (!reasons.is_empty()).then(|| {
        let text = format!(
            "approval is required, and no approval layer asked for it: {}",
            reasons.join("; ")
        );
        Outcome::refused(Status::Blocked, text)
    })
}
