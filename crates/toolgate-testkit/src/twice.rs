//! Sends a call through a layer twice, as happens after every suspension.

use toolgate_core::{
    ApprovalAnswer, Arguments, Call, CallSeed, Decision, Layer, Outcome, Stack, Suspension,
};

use crate::fakes::FakeExecutor;

/// The behaviour of a layer on the first and the second pass of the same call.
#[derive(Debug)]
pub struct TwoPasses {
    /// The outcome of the first pass.
    pub first: Outcome,
    /// The outcome of the second pass.
    pub second: Outcome,
    /// The arguments that reached the executor, pass by pass.
    pub handed_down: Vec<Arguments>,
}

/// Runs a call through `layer`, lets the executor below suspend it, and runs it again with an
/// approval.
///
/// If the layer itself asks for approval, its own request is approved. Both passes share the call's
/// id and store, so a layer that stores under the call's id that it acted acts once. Count in the
/// test what the layer does and compare after this.
///
/// ```
/// use toolgate_core::{before, Call};
/// use toolgate_testkit::{run_twice, seed};
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let twice = run_twice(before(async |_call: Call| {}), seed("echo", serde_json::json!({ "n": 1 }))).await;
/// twice.assert_replays();
/// # });
/// ```
pub async fn run_twice(layer: impl Layer, seed: CallSeed) -> TwoPasses {
    let executor = FakeExecutor::new().then_ask();
    let stack = Stack::over(executor.clone())
        .layer(layer)
        .build()
        .expect("a single layer is always in band order");
    let first = stack.run(Call::new(seed.clone())).await;
    let mut again = CallSeed {
        generation: seed.generation + 1,
        ..seed
    };
    if let Some(Suspension::Decision(request)) = first.suspension() {
        again.resumed.answers.push(ApprovalAnswer::for_request(
            request,
            Decision::approve("testkit"),
        ));
    }
    // As in the runtime, attempts are counted across passes.
    again.attempts_before = u32::try_from(executor.seen().len()).unwrap_or(u32::MAX);
    let second = stack.run(Call::new(again)).await;
    let handed_down = executor
        .seen()
        .into_iter()
        .map(|call| call.arguments.clone())
        .collect();
    TwoPasses {
        first,
        second,
        handed_down,
    }
}

impl TwoPasses {
    /// Checks that the second pass did what the first one did: the same arguments went down, or the
    /// layer gave the same kind of answer without them.
    ///
    /// # Panics
    ///
    /// If the passes differ.
    pub fn assert_replays(&self) {
        match self.handed_down.as_slice() {
            [] if self.first.suspension().is_some() => {
                panic!("the layer asked, was approved, and still did not pass the call on")
            }
            [] => assert_eq!(
                self.first.status(),
                self.second.status(),
                "the layer gave another answer the second time"
            ),
            [_] if self.first.settled().is_some() => {
                panic!("the layer passed the call on only once")
            }
            [_] => {}
            [first, .., last] => assert_eq!(
                first, last,
                "the layer passed other arguments on the second time"
            ),
        }
    }
}
