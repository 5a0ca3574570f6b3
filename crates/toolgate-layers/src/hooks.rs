//! Lets a configuration file say where a program's hooks stand.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::{Band, Call, Hooks, Layer, LayerName, LayerTraits, Next, Outcome};

use crate::{BadOption, Configurable, Parts};

/// Runs the hooks that the program put into its parts as an `Arc<Hooks>`; without any, calls pass unchanged.
///
/// A file cannot hold functions, so it only names the place.
///
/// ```
/// use std::sync::Arc;
/// use toolgate_core::{HookAction, Hooks};
/// use toolgate_layers::{Configurable, ConfiguredHooks, HooksOptions, Parts};
///
/// let parts = Parts::new().with(Arc::new(Hooks::new().before("*", async |_call| HookAction::Continue)));
/// let layer = ConfiguredHooks::configure(HooksOptions::default(), &parts)?;
/// # Ok::<(), toolgate_layers::BadOption>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct ConfiguredHooks(Option<Arc<Hooks>>);

/// What can be set for [`ConfiguredHooks`]: nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HooksOptions {}

impl ConfiguredHooks {
    /// Runs `hooks`.
    pub fn new(hooks: Arc<Hooks>) -> Self {
        Self(Some(hooks))
    }
}

impl Configurable for ConfiguredHooks {
    const NAME: &'static str = "hooks";
    const SUMMARY: &'static str = "Runs the program's own functions before and after calls.";
    type Options = HooksOptions;

    fn configure(HooksOptions {}: HooksOptions, parts: &Parts) -> Result<Self, BadOption> {
        Ok(Self(parts.get()))
    }
}

impl Layer for ConfiguredHooks {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        match &self.0 {
            Some(hooks) => hooks.handle(call, next).await,
            None => next.run(call).await,
        }
    }

    fn concerns(&self, _: &Call) -> bool {
        self.0.is_some()
    }

    fn name(&self) -> LayerName {
        Self::NAME.into()
    }

    fn band(&self) -> Band {
        Band::Shape
    }

    fn traits(&self) -> LayerTraits {
        LayerTraits::of(Self::NAME).rewriting().answering()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use toolgate_core::{CallSeed, HookAction, Status};
    use toolgate_testkit::{call, echo_under, run_twice, seed};

    fn counting() -> (Parts, Arc<AtomicUsize>) {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        let hooks = Hooks::new().before("rm", move |_call| {
            counted.fetch_add(1, Ordering::Relaxed);
            async {
                HookAction::Abort {
                    reason: "not on my watch".into(),
                    result: None,
                }
            }
        });
        (Parts::new().with(Arc::new(hooks)), count)
    }

    fn configured(parts: &Parts) -> ConfiguredHooks {
        ConfiguredHooks::configure(HooksOptions::default(), parts).expect("nothing can be wrong")
    }

    #[tokio::test]
    async fn the_hooks_of_the_program_run_once_under_the_name_of_the_configuration() {
        let (parts, count) = counting();
        assert_eq!(configured(&parts).name().as_str(), "hooks");
        let twice = run_twice(configured(&parts), seed("rm", json!({}))).await;
        twice.assert_replays();
        assert_eq!(twice.second.status(), Some(Status::Blocked));
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn without_hooks_calls_pass_unchanged() {
        assert!(
            echo_under(configured(&Parts::new()))
                .run(call("rm"))
                .await
                .is_ok()
        );
    }

    #[tokio::test]
    async fn a_rehearsal_runs_no_hook_and_says_so() {
        let (parts, count) = counting();
        let seed = CallSeed {
            rehearsal: true,
            ..seed("rm", json!({}))
        };
        let outcome = echo_under(configured(&parts)).run(Call::new(seed)).await;
        let notes = outcome
            .settled()
            .and_then(|settled| settled.notes.fields())
            .expect("noted");
        assert_eq!(
            notes.layers[0].reason.as_deref(),
            Some("hooks do not run in a rehearsal")
        );
        assert_eq!(count.load(Ordering::Relaxed), 0);
    }
}
