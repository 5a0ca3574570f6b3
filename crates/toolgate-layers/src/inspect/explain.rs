//! Says what a stack would do with a call, and why, without doing it.

use std::{fmt, time::Duration};

use serde::Serialize;
use toolgate_core::{
    ApprovalAnswer, Band, Call, CallSeed, Decision, LayerName, LayerNote, LayerStatus, Outcome,
    Stack, Status, Suspension, Trail, UnsettledReason, note_keys,
};

/// The result of [`explain`]: what a stack would do with a call.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// The outcome that the call would have.
    pub verdict: CallVerdict,
    /// The text for the model, if the call would not run.
    pub text: Option<String>,
    /// The verdict of each layer, in order of entering.
    pub layers: Vec<ExplainedLayer>,
}

/// The verdict of a stack, or of one layer, on a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallVerdict {
    /// The call would run.
    Runs,
    /// The call would run if it is approved.
    Asks,
    /// The call would settle without running.
    Settles(Status),
}

/// The verdict of one layer on a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ExplainedLayer {
    /// The layer's name.
    pub name: LayerName,
    /// The layer's band.
    pub band: Band,
    /// The layer's verdict.
    pub verdict: CallVerdict,
    /// True if the layer changes the call.
    pub changed: bool,
    /// The layer's own reason, the same text that a receipt has.
    pub reason: Option<String>,
    /// The time spent in the layer and everything below it.
    pub took: Duration,
}

/// The most approval requests that are answered before the walk ends.
///
/// A bound on the loop: a layer that asks again after every approval must not hang [`explain`].
const MAX_APPROVAL_REQUESTS: usize = 16;

/// Runs a call through `stack` without executing it.
///
/// If a layer would ask for approval, the explanation says so and continues as if the call had been
/// approved, so that the layers below are explained as well. Nothing is counted, stored or sent,
/// and no approval is requested.
///
/// ```
/// # use {toolgate_core::{Outcome, Refusal, Stack, Status, from_fn}, toolgate_testkit::{echo, seed}};
/// use toolgate_layers::{CallVerdict, explain};
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let closed = from_fn(async |_, _| Outcome::refused(Refusal::Blocked, "closed"));
/// let stack = Stack::over(echo()).layer(closed).build()?;
/// let explanation = explain(&stack, seed("echo", serde_json::json!({}))).await;
/// assert_eq!(explanation.verdict, CallVerdict::Settles(Status::Blocked));
/// println!("{explanation}");
/// # Ok::<(), toolgate_core::StackError>(())
/// # }).unwrap();
/// ```
pub async fn explain(stack: &Stack, seed: CallSeed) -> Explanation {
    let mut seed = CallSeed {
        rehearsal: true,
        ..seed
    };
    let mut asked = Vec::new();
    loop {
        let (outcome, trail) = stack.run_with_trail(Call::new(seed.clone())).await;
        match outcome {
            Outcome::Suspended(suspension) if asked.len() < MAX_APPROVAL_REQUESTS => {
                match *suspension {
                    Suspension::Decision(request) => {
                        asked.extend(find_asking_layer(&trail));
                        seed.resumed.answers.push(ApprovalAnswer::for_request(
                            &request,
                            Decision::approve("explain"),
                        ));
                        // As for a call that was really suspended and resumed: each suspension starts a
                        // new generation.
                        seed.generation += 1;
                    }
                    // The host executes it: as far as the stack can tell, it runs.
                    Suspension::Result => return Explanation::new(None, &trail, asked),
                }
            }
            Outcome::Suspended(_) => return Explanation::new(None, &trail, asked),
            Outcome::Settled(settled) => return Explanation::new(Some(&settled), &trail, asked),
        }
    }
}

/// Returns the innermost layer that suspended the call: the one that asks for approval.
fn find_asking_layer(trail: &Trail) -> Option<ExplainedLayer> {
    let suspended = |note: &LayerNote| note.status == LayerStatus::Open(UnsettledReason::Suspended);
    let note = trail.layer_notes().into_iter().rev().find(suspended)?;
    Some(ExplainedLayer {
        verdict: CallVerdict::Asks,
        ..ExplainedLayer::from_note(&note)
    })
}

impl Explanation {
    /// Builds the explanation from the final trail and the layers that asked on the way.
    fn new(
        settled: Option<&toolgate_core::SettledOutcome>,
        trail: &Trail,
        asked: Vec<ExplainedLayer>,
    ) -> Self {
        let refused = settled.filter(|settled| !reached_executor(settled));
        let verdict = match refused {
            Some(settled) => CallVerdict::Settles(settled.status),
            None if asked.is_empty() => CallVerdict::Runs,
            None => CallVerdict::Asks,
        };
        // After the assumed approval, the layer that asked lets the call through; show its request
        // instead.
        let layer = |note: &LayerNote| {
            let layer = ExplainedLayer::from_note(note);
            match asked.iter().find(|asker| asker.name == layer.name) {
                Some(asker) if layer.verdict == CallVerdict::Runs => asker.clone(),
                _ => layer,
            }
        };
        let layers = trail.layer_notes().iter().map(layer).collect();
        Self {
            verdict,
            text: refused.map(|settled| settled.model_text().into_owned()),
            layers,
        }
    }
}

/// Checks whether a rehearsed call reached the executor.
///
/// The status alone is not enough: the layer `dry_run` settles calls with it as well.
fn reached_executor(settled: &toolgate_core::SettledOutcome) -> bool {
    let rehearsed = settled
        .notes
        .fields()
        .is_some_and(|notes| matches!(notes.get(note_keys::REHEARSAL), Ok(Some(true))));
    settled.status == Status::DryRun && rehearsed
}

impl ExplainedLayer {
    /// Reads the verdict of a layer from its note in the trail.
    fn from_note(note: &LayerNote) -> Self {
        let verdict = match note.status {
            LayerStatus::Settled(status) if note.answered => CallVerdict::Settles(status),
            LayerStatus::Open(UnsettledReason::Suspended) if note.answered => CallVerdict::Asks,
            LayerStatus::Settled(_) | LayerStatus::Open(_) => CallVerdict::Runs,
        };
        Self {
            name: note.name.clone(),
            band: note.band,
            verdict,
            changed: note.changed,
            reason: note.reason.as_deref().map(str::to_owned),
            took: note.ended_at.since(note.started_at),
        }
    }
}

impl fmt::Display for CallVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Runs => f.pad("lets it through"),
            Self::Asks => f.pad("asks"),
            Self::Settles(status) => f.pad(&format!("answers: {}", status.text())),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for layer in &self.layers {
            let change = if layer.changed && layer.verdict == CallVerdict::Runs {
                "changes it"
            } else {
                ""
            };
            let verdict = if change.is_empty() {
                layer.verdict.to_string()
            } else {
                change.to_owned()
            };
            let reason = layer.reason.as_deref().unwrap_or_default();
            writeln!(
                f,
                "{:<7} {:<18} {verdict:<26} {reason}",
                layer.band, layer.name
            )?;
        }
        match self.verdict {
            CallVerdict::Runs => write!(f, "the call would run"),
            CallVerdict::Asks => write!(f, "the call would run if approved"),
            CallVerdict::Settles(status) => {
                write!(
                    f,
                    "the call would not run: {}: {}",
                    status.text(),
                    self.text.as_deref().unwrap_or_default()
                )
            }
        }
    }
}
