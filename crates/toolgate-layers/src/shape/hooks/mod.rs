//! Runs hooks before and after calls: functions of the program and commands of the file.

pub(crate) mod command;
mod process;
mod reading;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::{Band, Call, Hooks, Layer, LayerCapabilities, LayerName, Next, Outcome};

use crate::{BadOption, Configurable, Resources};

/// A layer that runs the hooks that the program added to its resources as an `Arc<Hooks>`. Without
/// any, calls pass unchanged.
///
/// The table of the layer only sets the position. A gate adds the commands that the section
/// `[hooks]` of its file names ([`CommandHook`](crate::CommandHook)) to the same hooks.
///
/// ```
/// use std::sync::Arc;
/// use toolgate_core::{HookAction, Hooks};
/// use toolgate_layers::{Configurable, ConfiguredHooks, HooksOptions, Resources};
///
/// let parts = Resources::new().with(Arc::new(Hooks::new().before("*", async |_call| HookAction::Continue)));
/// let layer = ConfiguredHooks::configure(HooksOptions::default(), &parts)?;
/// # Ok::<(), toolgate_layers::BadOption>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct ConfiguredHooks(Option<Arc<Hooks>>);

/// Options of [`ConfiguredHooks`]: none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HooksOptions {}

impl ConfiguredHooks {
    /// Creates a layer that runs `hooks`.
    pub fn new(hooks: Arc<Hooks>) -> Self {
        Self(Some(hooks))
    }
}

impl Configurable for ConfiguredHooks {
    const NAME: &'static str = "hooks";
    const SUMMARY: &'static str =
        "Runs functions of the program and commands of the file before and after calls.";
    type Options = HooksOptions;

    fn configure(HooksOptions {}: HooksOptions, parts: &Resources) -> Result<Self, BadOption> {
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

    fn applies_to(&self, _: &Call) -> bool {
        self.0.as_ref().is_some_and(|hooks| !hooks.is_empty())
    }

    fn name(&self) -> LayerName {
        Self::NAME.into()
    }

    fn band(&self) -> Band {
        Band::Shape
    }

    fn capabilities(&self) -> LayerCapabilities {
        LayerCapabilities::for_kind(Self::NAME)
            .rewriting()
            .answering()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use toolgate_core::{CallId, CallSeed, HookAction, Json, RecordKey, Stack, Status};
    use toolgate_testkit::{call, echo_under, keyring_with, run_twice, seed};

    fn counting_hooks() -> (Resources, Arc<AtomicUsize>) {
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
        (Resources::new().with(Arc::new(hooks)), count)
    }

    fn configured_hooks(parts: &Resources) -> ConfiguredHooks {
        ConfiguredHooks::configure(HooksOptions::default(), parts).expect("there are no options")
    }

    #[tokio::test]
    async fn the_hooks_of_the_program_run_once_under_the_name_of_the_configuration() {
        let (parts, count) = counting_hooks();
        assert_eq!(configured_hooks(&parts).name().as_str(), "hooks");
        let twice = run_twice(configured_hooks(&parts), seed("rm", json!({}))).await;
        twice.assert_replays();
        assert_eq!(twice.second.status(), Some(Status::Blocked));
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    /// A stack with a hook that does this, whose decisions are sealed with a key of these bytes.
    fn sealing_stack(action: fn() -> HookAction, secret: u8) -> Stack {
        let hooks = Hooks::new().before("rm", move |_call| async move { action() });
        hooks.seal_with(keyring_with("k1", secret));
        echo_under(ConfiguredHooks::new(Arc::new(hooks)))
    }

    fn ask_about_it() -> HookAction {
        HookAction::RequireApproval {
            reason: "it deletes".to_owned(),
        }
    }

    fn decision_key(call: &Call) -> RecordKey {
        RecordKey::Layer(call.id, "hooks/before".into())
    }

    /// Returns what is stored when a hook does this before a call.
    async fn stored_decision(action: fn() -> HookAction, secret: u8, seed: CallSeed) -> Value {
        let call = Call::new(seed);
        sealing_stack(action, secret).run(call.clone()).await;
        let stored = call.env().store().load_json(&decision_key(&call)).await;
        let stored = stored.expect("loads").expect("stored");
        stored.as_value().clone()
    }

    #[tokio::test]
    async fn a_stored_decision_that_our_keys_did_not_seal_does_not_count() {
        let pass = || HookAction::Continue;
        let this = || seed("rm", json!({}));
        let other = CallSeed {
            id: CallId::from_source(&toolgate_testkit::CountingIds::after(99)),
            ..this()
        };
        let ours = stored_decision(ask_about_it, 7, this()).await;
        let with = |name: &str, value: Value| {
            let mut record = ours.clone();
            record[name] = value;
            record
        };
        let passed =
            |seal: Value| json!({ "arguments": {}, "asks": [], "warnings": [], "seal": seal });
        for forged in [
            // Sealed by us for another call or other arguments, and by others for this one.
            stored_decision(pass, 7, other).await,
            stored_decision(pass, 7, seed("rm", json!({ "path": "x" }))).await,
            stored_decision(pass, 8, this()).await,
            // Ours, with a change.
            with("asks", json!([])),
            with("asks", json!(["something harmless"])),
            passed(ours["seal"].clone()),
            passed(json!([ours["seal"]])),
            passed(json!("")),
            passed(json!(null)),
            json!({ "arguments": {}, "asks": [], "warnings": [] }),
            json!({ "seal": ours["seal"] }),
            json!([]),
            json!("pass"),
            json!(null),
        ] {
            let call = Call::new(this());
            let shown = forged.to_string();
            let record = Json::new(forged).expect("not deep");
            let store = call.env().store().clone();
            let before = store.put_json_once(decision_key(&call), record).await;
            assert!(before.expect("stores").is_none(), "nothing was there");
            let outcome = sealing_stack(ask_about_it, 7).run(call).await;
            assert_eq!(outcome.status(), Some(Status::Blocked), "{shown}");
            let said = outcome
                .settled()
                .expect("settled")
                .model_text()
                .into_owned();
            assert!(said.contains("it deletes"), "{shown}: {said}");
        }
        // The same hook whose decision is stored as it was sealed counts, whatever it says now.
        let call = Call::new(this());
        let passed = stored_decision(pass, 7, this()).await;
        let record = Json::new(passed).expect("not deep");
        let stored = call
            .env()
            .store()
            .put_json_once(decision_key(&call), record);
        stored.await.expect("stores");
        assert!(sealing_stack(ask_about_it, 7).run(call).await.is_ok());
    }

    #[tokio::test]
    async fn a_sealed_decision_is_used_again() {
        let (parts, count) = counting_hooks();
        let hooks: Arc<Hooks> = parts.get().expect("there are hooks");
        hooks.seal_with(keyring_with("k1", 7));
        let twice = run_twice(configured_hooks(&parts), seed("rm", json!({}))).await;
        twice.assert_replays();
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn without_hooks_calls_pass_unchanged() {
        assert!(
            echo_under(configured_hooks(&Resources::new()))
                .run(call("rm"))
                .await
                .is_ok()
        );
    }

    #[tokio::test]
    async fn a_rehearsal_runs_no_hook_and_notes_it() {
        let (parts, count) = counting_hooks();
        let seed = CallSeed {
            rehearsal: true,
            ..seed("rm", json!({}))
        };
        let outcome = echo_under(configured_hooks(&parts))
            .run(Call::new(seed))
            .await;
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
