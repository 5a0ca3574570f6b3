//! Pretends to run calls.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::{Band, Call, Layer, LayerTraits, Next, Outcome, Status};

use crate::{BadOption, Configurable, Parts, tool_globs::Covered};

/// Answers covered calls without running them, after everything above has had its say.
///
/// The model reads that the call was not run. The status is `dry_run`: never a success, so nothing remembers the
/// answer as one, and the receipt says what it was. It stands in the innermost band, so a dry run asks, counts and
/// refuses exactly like the real thing.
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
pub struct DryRun(Covered);

/// Which tools are only pretended; all of them if nothing is given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DryRunOptions {
    /// Names and globs of the only tools that are pretended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only: Option<Vec<String>>,
    /// Names and globs of tools that really run. Not together with `only`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub except: Option<Vec<String>>,
}

impl DryRun {
    /// Pretends all calls.
    pub fn all() -> Self {
        Self(Covered::All)
    }

    /// Pretends calls of these tools.
    pub fn only<'a>(tools: impl IntoIterator<Item = &'a str>) -> Result<Self, BadOption> {
        let only = Some(tools.into_iter().map(str::to_owned).collect());
        Self::new(&DryRunOptions { only, except: None })
    }

    /// Pretends calls of all tools but these.
    pub fn except<'a>(tools: impl IntoIterator<Item = &'a str>) -> Result<Self, BadOption> {
        let except = Some(tools.into_iter().map(str::to_owned).collect());
        Self::new(&DryRunOptions { only: None, except })
    }

    /// Pretends the calls that `options` cover.
    pub fn new(options: &DryRunOptions) -> Result<Self, BadOption> {
        Covered::read(options.only.as_deref(), options.except.as_deref()).map(Self)
    }
}

impl Layer for DryRun {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        if !self.0.includes(&call.tool) {
            return next.run(call).await;
        }
        next.because("dry run");
        let text = format!("dry run: {} was not run", call.tool);
        Outcome::refused(Status::DryRun, text).noting(|notes| {
            notes.metadata.insert("dry_run".into(), true.into());
        })
    }

    fn band(&self) -> Band {
        Band::Bound
    }

    fn traits(&self) -> LayerTraits {
        LayerTraits::of(Self::NAME).answering()
    }
}

impl Configurable for DryRun {
    const NAME: &'static str = "dry_run";
    const SUMMARY: &'static str = "Answers calls without running them.";
    type Options = DryRunOptions;

    fn configure(options: DryRunOptions, _: &Parts) -> Result<Self, BadOption> {
        Self::new(&options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate_core::Stack;
    use toolgate_testkit::{Scripted, call, run_twice, seed};

    async fn runs(layer: DryRun, tool: &str) -> bool {
        let executor = Scripted::new();
        let stack = Stack::over(executor.clone())
            .layer(layer)
            .build()
            .expect("in order");
        let outcome = stack.run(call(tool)).await;
        assert_eq!(outcome.is_ok(), executor.seen().len() == 1);
        outcome.is_ok()
    }

    #[tokio::test]
    async fn a_covered_call_never_runs_and_says_so() {
        let executor = Scripted::new();
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
    async fn only_and_except_say_what_is_covered() {
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
    fn both_lists_empty_lists_and_unreadable_globs_are_refused() {
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
    async fn a_call_that_comes_back_is_pretended_again() {
        run_twice(DryRun::all(), seed("pay", serde_json::json!({})))
            .await
            .assert_replays();
    }
}
