//! Sends a call through a layer twice, as happens after every suspension.

use toolgate_core::{
    Answer, Arguments, Call, CallSeed, Decision, Layer, Outcome, Stack, Suspension,
};

use crate::fakes::Scripted;

/// What a layer did with the same call on its first and on its second way through.
#[derive(Debug)]
pub struct Twice {
    /// What came of the first pass.
    pub first: Outcome,
    /// What came of the second.
    pub second: Outcome,
    /// The arguments that reached the executor, pass by pass.
    pub handed_down: Vec<Arguments>,
}

/// Runs a call through `layer`, lets the executor below suspend it, and runs it again with an approval.
///
/// If the layer itself asks, its own question is approved. Both passes share the call's id and store, so a
/// layer that keeps what it did once under the call's id does it once. Count in the test what the layer does
/// and compare after this.
///
/// ```
/// use toolgate_core::{before, Call};
/// use toolgate_testkit::{run_twice, seed};
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let twice = run_twice(before(async |_call: Call| {}), seed("echo", serde_json::json!({ "n": 1 }))).await;
/// twice.assert_replays();
/// # });
/// ```
pub async fn run_twice(layer: impl Layer, seed: CallSeed) -> Twice {
    let executor = Scripted::new().then_ask();
    let stack = Stack::over(executor.clone())
        .layer(layer)
        .build()
        .expect("one layer is always in order");
    let first = stack.run(Call::new(seed.clone())).await;
    let mut again = CallSeed {
        generation: seed.generation + 1,
        ..seed
    };
    if let Some(Suspension::Decision(request)) = first.suspension() {
        again
            .resumed
            .answers
            .push(Answer::to(request, Decision::approve("testkit")));
    }
    again.attempts_before = u32::try_from(executor.seen().len()).unwrap_or(u32::MAX);
    let second = stack.run(Call::new(again)).await;
    let handed_down = executor
        .seen()
        .into_iter()
        .map(|call| call.arguments.clone())
        .collect();
    Twice {
        first,
        second,
        handed_down,
    }
}

impl Twice {
    /// Checks that the second pass did what the first one did: the same arguments went down, or the layer gave
    /// the same kind of answer without them.
    ///
    /// # Panics
    ///
    /// If the passes differ.
    pub fn assert_replays(&self) {
        match self.handed_down.as_slice() {
            [] if self.first.suspension().is_some() => {
                panic!("the layer asked, was approved, and still did not let the call through")
            }
            [] => assert_eq!(
                self.first.status(),
                self.second.status(),
                "the layer answered otherwise the second time"
            ),
            [_] if self.first.settled().is_some() => {
                panic!("the layer let the call through only once")
            }
            [_] => {}
            [first, .., last] => assert_eq!(
                first, last,
                "the layer handed down other arguments the second time"
            ),
        }
    }
}
