//! Contains a panic right at the tool.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::{
    Band, Call, CallError, ErrorCategory, Layer, LayerTraits, Next, Outcome, Status, contained,
};

use crate::{BadOption, Configurable, Parts};

/// Turns a panic into an outcome and marks it, so that sinks and screens need not read text to find it.
///
/// The model reads that the tool failed unexpectedly; what it panicked with goes to the operator, bounded. The
/// runtime contains panics of tools and layers anyway, with or without this layer: it is here for stacks that are
/// described by the old names, and it adds `panic: true` to the notes.
///
/// ```
/// # use {toolgate_core::Stack, toolgate_layers::CatchPanic, toolgate_testkit::echo};
/// let stack = Stack::over(echo()).layer(CatchPanic).build()?;
/// # Ok::<(), toolgate_core::StackError>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct CatchPanic;

/// There is nothing to set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CatchPanicOptions {}

impl Layer for CatchPanic {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        let why = next.clone();
        let outcome = contained(next.run(call)).await.unwrap_or_else(|report| {
            let error = CallError::new(ErrorCategory::Panic, "the tool failed unexpectedly")
                .with_operator(report);
            Outcome::error(Status::Exception, error)
        });
        if outcome.status() != Some(Status::Exception) {
            return outcome;
        }
        why.because("the tool panicked");
        outcome.noting(|notes| {
            notes.metadata.insert("panic".into(), true.into());
        })
    }

    fn band(&self) -> Band {
        Band::Bound
    }

    fn traits(&self) -> LayerTraits {
        LayerTraits::of(Self::NAME)
    }
}

impl Configurable for CatchPanic {
    const NAME: &'static str = "catch_panic";
    const SUMMARY: &'static str = "Turns a panic of the tool into an outcome and marks it.";
    type Options = CatchPanicOptions;

    fn configure(_: CatchPanicOptions, _: &Parts) -> Result<Self, BadOption> {
        Ok(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate_core::Stack;
    use toolgate_testkit::{Scripted, call, run_twice, seed};

    #[tokio::test]
    async fn a_panic_is_marked_and_its_text_is_for_the_operator_only() {
        let tool = Scripted::new().then_panic("hunter2");
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
        let stack = Stack::over(Scripted::new())
            .layer(CatchPanic)
            .build()
            .expect("in order");
        let outcome = stack.run(call("t")).await;
        assert!(
            outcome
                .settled()
                .expect("settled")
                .notes
                .fields()
                .expect("trail")
                .metadata
                .is_empty()
        );
        run_twice(CatchPanic, seed("t", serde_json::json!({})))
            .await
            .assert_replays();
    }
}
