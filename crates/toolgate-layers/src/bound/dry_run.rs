//! Settles calls as a dry run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::{Band, Call, Layer, LayerCapabilities, Next, Outcome, Refusal, note_keys};

use crate::{BadOption, Configurable, Resources, config::tool_globs::ToolCoverage};

/// Answers covered calls without running them, after every layer above has handled them.
///
/// The model reads that the call was not run. The status is `dry_run`: never a success, so the
/// answer is not cached, and the receipt says what it was. The layer is in the innermost band, so a
/// dry run requests approval, counts and blocks exactly like a real call; it also blocks a call for
/// which a required approval is missing.
///
/// ```
/// # use {toolgate_core::{Stack, Status}, toolgate_layers::DryRun, toolgate_testkit::{call, echo}};
/// # futures::executor::block_on(async {
/// let stack = Stack::over(echo()).layer(DryRun::only(["pay_*"])?).build()?;
/// assert_eq!(stack.run(call("pay_rent")).await.status(), Some(Status::DryRun));
/// assert!(stack.run(call("echo")).await.is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct DryRun(ToolCoverage);

/// The tools that are covered; by default all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DryRunOptions {
    /// Names and globs of the only tools that are not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only: Option<Vec<String>>,
    /// Names and globs of tools that run. Not together with `only`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub except: Option<Vec<String>>,
}

impl DryRun {
    /// Covers all calls.
    pub fn all() -> Self {
        Self(ToolCoverage::All)
    }

    /// Covers calls of these tools.
    pub fn only<'a>(tools: impl IntoIterator<Item = &'a str>) -> Result<Self, BadOption> {
        let only = Some(tools.into_iter().map(str::to_owned).collect());
        Self::new(&DryRunOptions { only, except: None })
    }

    /// Covers calls of all tools except these.
    pub fn except<'a>(tools: impl IntoIterator<Item = &'a str>) -> Result<Self, BadOption> {
        let except = Some(tools.into_iter().map(str::to_owned).collect());
        Self::new(&DryRunOptions { only: None, except })
    }

    /// Creates the layer from its options.
    ///
    /// # Errors
    ///
    /// Rejects empty lists, invalid globs, and `only` together with `except`.
    pub fn new(options: &DryRunOptions) -> Result<Self, BadOption> {
        ToolCoverage::from_options(options.only.as_deref(), options.except.as_deref()).map(Self)
    }
}

impl Layer for DryRun {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        if !self.0.includes(&call.tool) {
            return next.run(call).await;
        }
        // A real call would be blocked here, so it must not look as if it would run.
        if let Some(refusal) = call.refuse_unapproved() {
            return refusal;
        }
        next.note_reason("dry run");
        let text = format!("dry run: {} was not run", call.tool);
        // Marked in the notes as well, because a rehearsal has the same status.
        Outcome::refused(Refusal::DryRun, text)
            .with_notes(|notes| notes.insert(note_keys::DRY_RUN, &true))
    }

    fn band(&self) -> Band {
        Band::Bound
    }

    fn capabilities(&self) -> LayerCapabilities {
        LayerCapabilities::for_kind(Self::NAME)
            .answering()
            .dry_running()
    }
}

impl Configurable for DryRun {
    const NAME: &'static str = "dry_run";
    const SUMMARY: &'static str = "Answers calls without running them.";
    type Options = DryRunOptions;

    fn configure(options: DryRunOptions, _: &Resources) -> Result<Self, BadOption> {
        Self::new(&options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate_core::Stack;
    use toolgate_core::Status;
    use toolgate_testkit::{FakeExecutor, call, run_twice, seed};

    async fn runs(layer: DryRun, tool: &str) -> bool {
        let executor = FakeExecutor::new();
        let stack = Stack::over(executor.clone())
            .layer(layer)
            .build()
            .expect("in order");
        let outcome = stack.run(call(tool)).await;
        assert_eq!(outcome.is_ok(), executor.seen().len() == 1);
        outcome.is_ok()
    }

    #[tokio::test]
    async fn a_covered_call_never_runs_and_is_marked() {
        let executor = FakeExecutor::new();
        let stack = Stack::over(executor.clone())
            .layer(DryRun::all())
            .build()
            .expect("in order");
        let outcome = stack.run(call("pay")).await;
        let settled = outcome.settled().expect("settled");
        assert_eq!(
            (settled.status, &*settled.model_text()),
            (Status::DryRun, "dry run: pay was not run")
        );
        assert!(settled.value.is_null() && settled.attempts == 0 && executor.seen().is_empty());
        assert_eq!(
            settled.notes.fields().expect("noted").metadata["dry_run"],
            true
        );
    }

    #[tokio::test]
    async fn only_and_except_select_what_is_covered() {
        let only = || DryRun::only(["pay", "send_*"]).expect("readable");
        let except = || DryRun::except(["look"]).expect("readable");
        for (tool, by_only, by_except) in [
            ("pay", false, false),
            ("send_mail", false, false),
            ("look", true, true),
        ] {
            assert_eq!(
                (runs(only(), tool).await, runs(except(), tool).await),
                (by_only, by_except),
                "{tool}"
            );
        }
    }

    #[test]
    fn both_lists_empty_lists_and_invalid_globs_are_rejected() {
        let list = || Some(vec!["a".to_owned()]);
        assert!(
            DryRun::new(&DryRunOptions {
                only: list(),
                except: list()
            })
            .is_err()
        );
        assert!(DryRun::only([]).is_err());
        assert!(DryRun::only(["["]).is_err());
        assert!(serde_json::from_str::<DryRunOptions>(r#"{ "onyl": ["a"] }"#).is_err());
    }

    #[tokio::test]
    async fn a_resumed_call_is_a_dry_run_again() {
        run_twice(DryRun::all(), seed("pay", serde_json::json!({})))
            .await
            .assert_replays();
    }
}
