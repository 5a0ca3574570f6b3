//! Catches a panic right at the tool.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::{
    Band, Call, CallError, ErrorCategory, Failure, Layer, LayerCapabilities, Next, Outcome, Status,
    note_keys, run_contained,
};

use crate::{BadOption, Configurable, Resources};

/// Turns a panic into an outcome and marks it, so that sinks and screens need not parse text to
/// find it.
///
/// The model reads that the tool failed unexpectedly; the panic message goes to the operator,
/// truncated. The runtime catches panics of tools and layers with or without this layer: it exists
/// for stacks that are configured with the names of older systems, and it adds `panic: true` to the
/// notes.
///
/// ```
/// # use {toolgate_core::Stack, toolgate_layers::CatchPanic, toolgate_testkit::echo};
/// let stack = Stack::over(echo()).layer(CatchPanic).build()?;
/// # Ok::<(), toolgate_core::StackError>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct CatchPanic;

/// The options: none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CatchPanicOptions {}

impl Layer for CatchPanic {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        let why = next.clone();
        let outcome = run_contained(next.run(call))
            .await
            .unwrap_or_else(|report| {
                let error = CallError::new(ErrorCategory::Panic, "the tool failed unexpectedly")
                    .with_operator_detail(report);
                Outcome::error(Failure::Exception, error)
            });
        // A panic that the runtime has caught further in arrives as an outcome and is marked as
        // well.
        if outcome.status() != Some(Status::Exception) {
            return outcome;
        }
        why.note_reason("the tool panicked");
        outcome.with_notes(|notes| notes.insert(note_keys::PANIC, &true))
    }

    // The runtime contains the panic; what is left is the mark.
    fn waits_for_outcome(&self, _: &Call) -> bool {
        true
    }

    fn wants_outcome(&self, _: &Call, outcome: &Outcome) -> bool {
        outcome.status() == Some(Status::Exception)
    }

    fn band(&self) -> Band {
        Band::Bound
    }

    fn capabilities(&self) -> LayerCapabilities {
        LayerCapabilities::for_kind(Self::NAME)
    }
}

impl Configurable for CatchPanic {
    const NAME: &'static str = "catch_panic";
    const SUMMARY: &'static str = "Turns a panic of the tool into an outcome and marks it.";
    type Options = CatchPanicOptions;

    fn configure(_: CatchPanicOptions, _: &Resources) -> Result<Self, BadOption> {
        Ok(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate_core::Stack;
    use toolgate_testkit::{FakeExecutor, call, run_twice, seed};

    #[tokio::test]
    async fn a_panic_is_marked_and_its_text_is_for_the_operator_only() {
        let tool = FakeExecutor::new().then_panic("hunter2");
        let stack = Stack::over(tool)
            .layer(CatchPanic)
            .build()
            .expect("in order");
        let outcome = stack.run(call("t")).await;
        let settled = outcome.settled().expect("settled");
        assert_eq!(settled.status, Status::Exception);
        assert!(!settled.model_text().contains("hunter2"));
        let detail = settled
            .error
            .as_ref()
            .and_then(|error| error.operator.as_deref())
            .expect("for the operator");
        assert!(detail.contains("hunter2") && detail.len() < 20_000);
        assert_eq!(
            settled.notes.fields().expect("noted").metadata["panic"],
            true
        );
    }

    #[tokio::test]
    async fn other_outcomes_pass_unmarked() {
        let stack = Stack::over(FakeExecutor::new())
            .layer(CatchPanic)
            .build()
            .expect("in order");
        let outcome = stack.run(call("t")).await;
        assert!(outcome.settled().expect("settled").notes.is_empty());
        run_twice(CatchPanic, seed("t", serde_json::json!({})))
            .await
            .assert_replays();
    }
}
