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
    /// The text for the model, if the call would not run or the tool would fail.
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
    /// The call would reach its tool, which would fail before it changes anything.
    Fails(Status),
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
/// approved, so that the layers below are explained as well. The tool takes part: what it checks
/// before it changes anything ([`Tool::rehearse`](toolgate_core::Tool::rehearse)) is checked. Nothing
/// is counted, stored or sent, and no approval is requested.
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
        let ended = settled.filter(|settled| !would_run(settled));
        let verdict = match ended {
            Some(settled) if reached_executor(settled) => CallVerdict::Fails(settled.status),
            Some(settled) => CallVerdict::Settles(settled.status),
            None if asked.is_empty() => CallVerdict::Runs,
            None => CallVerdict::Asks,
        };
        let requiring = trail.requiring_layers();
        // After the assumed approval, the layer that asked lets the call through; show its request
        // instead. A layer that requires approval asks through the one that requests it.
        let layer = |note: &LayerNote| {
            let mut layer = ExplainedLayer::from_note(note);
            if layer.verdict != CallVerdict::Runs {
                return layer;
            }
            if let Some(asker) = asked.iter().find(|asker| asker.name == layer.name) {
                return asker.clone();
            }
            if requiring.contains(&layer.name) {
                layer.verdict = CallVerdict::Asks;
            }
            layer
        };
        let layers = trail.layer_notes().iter().map(layer).collect();
        Self {
            verdict,
            text: ended.map(|settled| settled.model_text().into_owned()),
            layers,
        }
    }
}

/// Checks whether a rehearsed call reached the executor.
fn reached_executor(settled: &toolgate_core::SettledOutcome) -> bool {
    settled
        .notes
        .fields()
        .is_some_and(|notes| matches!(notes.get(note_keys::REHEARSAL), Ok(Some(true))))
}

/// Checks whether a rehearsed call would run, as far as its tool can tell.
///
/// The status alone is not enough: the layer `dry_run` settles calls with it as well.
fn would_run(settled: &toolgate_core::SettledOutcome) -> bool {
    settled.status == Status::DryRun && reached_executor(settled)
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
            Self::Settles(status) | Self::Fails(status) => {
                f.pad(&format!("answers: {}", status.text()))
            }
        }
    }
}

/// What stands before the reason of a layer.
const REASON_INDENT: &str = "        ";

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
            writeln!(f, "{:<7} {:<18} {verdict}", layer.band, layer.name)?;
            // Below the layer: beside it, a narrow screen would break the line in the middle.
            let reason = layer.reason.as_deref().unwrap_or_default();
            for line in reason.lines() {
                writeln!(f, "{REASON_INDENT}{line}")?;
            }
        }
        match self.verdict {
            CallVerdict::Runs => write!(f, "the call would run"),
            CallVerdict::Asks => write!(f, "the call would run if approved"),
            CallVerdict::Settles(status) => {
                let text = self.text.as_deref().unwrap_or_default();
                write!(f, "the call would not run: {}: {text}", status.text())
            }
            CallVerdict::Fails(_) => {
                let text = self.text.as_deref().unwrap_or_default();
                write!(f, "the tool would fail: {text}")
            }
        }
    }
}
