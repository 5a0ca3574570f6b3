//! Says what a stack would do with a call, and why, without doing it.

use std::{fmt, time::Duration};

use serde::Serialize;
use toolgate_core::{
    Answer, Band, Call, CallSeed, Decision, LayerName, LayerNote, LayerStatus, Outcome, Stack,
    Status, Suspension, Trail, Unsettled,
};

/// What a stack would do with a call.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// What would come of the call.
    pub verdict: Explained,
    /// What the model would be told, if the call would not run.
    pub text: Option<String>,
    /// What each layer says, in order of entering.
    pub layers: Vec<ExplainedLayer>,
}

/// What would come of a call, or what one layer would make of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Explained {
    /// It would run.
    Runs,
    /// It would run if somebody agrees.
    Asks,
    /// It would settle without running.
    Settles(Status),
}

/// What one layer says about a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ExplainedLayer {
    /// The layer.
    pub name: LayerName,
    /// Its band.
    pub band: Band,
    /// What it does with the call.
    pub verdict: Explained,
    /// Whether it changes the call.
    pub changed: bool,
    /// Why, in the layer's own words; the same that a receipt has.
    pub reason: Option<String>,
    /// How long it took, with what is below it.
    pub took: Duration,
}

/// More layers than this cannot all want to ask.
const MOST_QUESTIONS: usize = 16;

/// Walks a call through `stack` without running it.
///
/// Where a layer would ask, the explanation says so and goes on as if somebody had agreed, so that what lies below is
/// explained as well. Nothing is counted, kept, sent or asked.
///
/// ```
/// # use {toolgate_core::{Outcome, Stack, Status, from_fn}, toolgate_testkit::{echo, seed}};
/// use toolgate_layers::{Explained, explain};
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let closed = from_fn(async |_, _| Outcome::refused(Status::Blocked, "closed"));
/// let stack = Stack::over(echo()).layer(closed).build()?;
/// let explanation = explain(&stack, seed("echo", serde_json::json!({}))).await;
/// assert_eq!(explanation.verdict, Explained::Settles(Status::Blocked));
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
        let (outcome, trail) = stack.trace(Call::new(seed.clone())).await;
        match outcome {
            Outcome::Suspended(suspension) if asked.len() < MOST_QUESTIONS => match *suspension {
                Suspension::Decision(request) => {
                    asked.extend(asking_layer(&trail));
                    seed.resumed
                        .answers
                        .push(Answer::to(&request, Decision::approve("explain")));
                    seed.generation += 1;
                }
                // Something outside runs it: as far as the stack goes, it runs.
                Suspension::Result => return Explanation::new(None, &trail, asked),
            },
            Outcome::Suspended(_) => return Explanation::new(None, &trail, asked),
            Outcome::Settled(settled) => return Explanation::new(Some(&settled), &trail, asked),
        }
    }
}

/// The innermost layer that suspended the call: the one that asks.
fn asking_layer(trail: &Trail) -> Option<ExplainedLayer> {
    let suspended = |note: &LayerNote| note.status == LayerStatus::Open(Unsettled::Suspended);
    let note = trail.layers().into_iter().rev().find(suspended)?;
    Some(ExplainedLayer {
        verdict: Explained::Asks,
        ..ExplainedLayer::of(&note)
    })
}

impl Explanation {
    fn new(
        settled: Option<&toolgate_core::Settled>,
        trail: &Trail,
        asked: Vec<ExplainedLayer>,
    ) -> Self {
        let refused = settled.filter(|settled| !is_run(settled));
        let verdict = match refused {
            Some(settled) => Explained::Settles(settled.status),
            None if asked.is_empty() => Explained::Runs,
            None => Explained::Asks,
        };
        let layer = |note: &LayerNote| {
            let layer = ExplainedLayer::of(note);
            match asked.iter().find(|asker| asker.name == layer.name) {
                Some(asker) if layer.verdict == Explained::Runs => asker.clone(),
                _ => layer,
            }
        };
        let layers = trail.layers().iter().map(layer).collect();
        Self {
            verdict,
            text: refused.map(|settled| settled.model_text().into_owned()),
            layers,
        }
    }
}

/// Whether a rehearsed call got to the executor.
fn is_run(settled: &toolgate_core::Settled) -> bool {
    let rehearsed = settled
        .notes
        .fields()
        .is_some_and(|notes| notes.metadata.get("rehearsal") == Some(&true.into()));
    settled.status == Status::DryRun && rehearsed
}

impl ExplainedLayer {
    fn of(note: &LayerNote) -> Self {
        let verdict = match note.status {
            LayerStatus::Settled(status) if note.answered => Explained::Settles(status),
            LayerStatus::Open(Unsettled::Suspended) if note.answered => Explained::Asks,
            LayerStatus::Settled(_) | LayerStatus::Open(_) => Explained::Runs,
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

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Runs => f.pad("lets it through"),
            Self::Asks => f.pad("asks"),
            Self::Settles(status) => f.pad(&format!("answers {status}")),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for layer in &self.layers {
            let change = if layer.changed && layer.verdict == Explained::Runs {
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
            Explained::Runs => write!(f, "the call would run"),
            Explained::Asks => write!(f, "the call would run if somebody agrees"),
            Explained::Settles(status) => {
                write!(
                    f,
                    "the call would not run: {status}: {}",
                    self.text.as_deref().unwrap_or_default()
                )
            }
        }
    }
}
