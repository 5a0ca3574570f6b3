//! Shows that a tool which takes long is at work.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::{Band, Call, Layer, LayerTraits, Next, Outcome};

use crate::{BadOption, Configurable, Parts, ProgressItem, ProgressManager};

/// Lists calls of tools that take long for as long as they are in the stack.
///
/// A tool takes long if its annotations carry a `long_running` label or if it is named in `long_running_tools`. The
/// model notices nothing. There is one item per call, however many attempts it takes; it leaves the list when the call
/// settles, suspends, is dropped or has ended elsewhere. What the tool itself reports reaches the same item if a screen hands the events of
/// the session to [`ProgressManager::apply`].
///
/// ```
/// use toolgate_core::Stack;
/// use toolgate_layers::{Progress, ProgressManager};
/// use toolgate_testkit::echo;
///
/// let manager = ProgressManager::new();
/// let progress = Progress::new(manager.clone()).long_running("cargo_build", "Building");
/// let stack = Stack::over(echo()).layer(progress).build()?;
/// # Ok::<(), toolgate_core::StackError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Progress {
    manager: ProgressManager,
    options: ProgressOptions,
}

/// What can be set for [`Progress`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProgressOptions {
    /// Labels by tool name, for tools whose annotations do not say that they take long.
    pub long_running_tools: BTreeMap<String, String>,
}

impl Progress {
    /// Lists calls in `manager`.
    pub fn new(manager: ProgressManager) -> Self {
        Self {
            manager,
            options: ProgressOptions::default(),
        }
    }

    /// Shows calls of `tool` under `label`.
    pub fn long_running(mut self, tool: &str, label: &str) -> Self {
        self.options
            .long_running_tools
            .insert(tool.to_owned(), label.to_owned());
        self
    }

    /// The operator's word comes before the tool's own.
    fn label<'a>(&'a self, call: &'a Call) -> Option<&'a str> {
        let named = self.options.long_running_tools.get(call.tool.as_str());
        named
            .or(call.annotations().long_running.as_ref())
            .map(String::as_str)
    }
}

impl Configurable for Progress {
    const NAME: &'static str = "progress";
    const SUMMARY: &'static str = "Shows that a tool which takes long is at work.";
    type Options = ProgressOptions;

    fn configure(options: ProgressOptions, parts: &Parts) -> Result<Self, BadOption> {
        if let Some((tool, _)) = options
            .long_running_tools
            .iter()
            .find(|(_, label)| label.trim().is_empty())
        {
            return Err(BadOption::new(
                "long_running_tools",
                format!("the label of {tool} is empty"),
            ));
        }
        Ok(Self {
            options,
            ..Self::new(parts.get_or_default())
        })
    }
}

impl Layer for Progress {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        let Some(label) = self.label(&call).filter(|_| !call.is_rehearsal()) else {
            return next.run(call).await;
        };
        if call.closing().is_some() {
            // It is over, whatever a screen still shows.
            self.manager.done(&call.id.to_string());
            return next.run(call).await;
        }
        let now = call.env().clock().now();
        let item = ProgressItem::new(call.id.to_string(), label, now).cancellable();
        let _shown = Shown::new(&self.manager, item);
        next.run(call).await
    }

    fn concerns(&self, call: &Call) -> bool {
        self.label(call).is_some()
    }

    fn band(&self) -> Band {
        Band::Record
    }

    fn traits(&self) -> LayerTraits {
        LayerTraits::of(Self::NAME).recording()
    }
}

/// An item that leaves the list when this is dropped, however the call ends.
struct Shown<'a> {
    manager: &'a ProgressManager,
    id: std::sync::Arc<str>,
}

impl<'a> Shown<'a> {
    fn new(manager: &'a ProgressManager, item: ProgressItem) -> Self {
        let id = item.id.clone();
        manager.begin(item);
        Self { manager, id }
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        self.manager.done(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use serde_json::json;
    use std::sync::{Arc, Mutex};
    use toolgate_core::{Annotations, CallSeed, Registry, Schema, Stack, ToolSpec, View, from_fn};
    use toolgate_testkit::{Scripted, call, run_twice, seed, seed_for};

    /// How many items each snapshot had.
    fn counted(manager: &ProgressManager) -> Arc<Mutex<Vec<usize>>> {
        let counts = Arc::new(Mutex::new(Vec::new()));
        let kept = counts.clone();
        manager.on_change(move |items| kept.lock().expect("whole").push(items.len()));
        counts
    }

    fn building(manager: &ProgressManager) -> Progress {
        Progress::new(manager.clone()).long_running("build", "Building")
    }

    #[tokio::test]
    async fn a_call_is_listed_while_it_runs_and_only_then() {
        let manager = ProgressManager::new();
        let inside = manager.clone();
        let look = from_fn(move |call: Call, next: Next| {
            let labels: Vec<_> = inside.active().into_iter().map(|item| item.label).collect();
            assert_eq!(labels, ["Building"]);
            next.run(call)
        });
        let stack = Stack::over(Scripted::new())
            .layer(building(&manager))
            .layer(look)
            .build()
            .expect("in order");
        assert!(stack.run(call("build")).await.is_ok());
        assert!(manager.active().is_empty());
    }

    #[tokio::test]
    async fn several_attempts_are_one_item() {
        let manager = ProgressManager::new();
        let counts = counted(&manager);
        let thrice = from_fn(async |call: Call, next: Next| {
            for _ in 0..2 {
                next.clone().run(call.clone()).await;
            }
            next.run(call).await
        });
        let executor = Scripted::new();
        let stack = Stack::over(executor.clone())
            .layer(building(&manager))
            .layer(thrice)
            .build()
            .expect("in order");
        stack.run(call("build")).await;
        assert_eq!(executor.seen().len(), 3);
        assert_eq!(*counts.lock().expect("whole"), [1, 0]);
    }

    #[tokio::test]
    async fn a_call_that_suspends_leaves_the_list_and_comes_back() {
        let manager = ProgressManager::new();
        let counts = counted(&manager);
        let twice = run_twice(building(&manager), seed("build", json!({}))).await;
        twice.assert_replays();
        assert_eq!(*counts.lock().expect("whole"), [1, 0, 1, 0]);
    }

    #[tokio::test]
    async fn a_call_that_is_dropped_or_panics_leaves_the_list() {
        let manager = ProgressManager::new();
        let executor = Scripted::new().then_hang().then_panic("boom");
        let stack = Stack::over(executor)
            .layer(building(&manager))
            .build()
            .expect("in order");
        let mut hanging = Box::pin(stack.run(call("build")));
        assert!((&mut hanging).now_or_never().is_none());
        assert_eq!(manager.active().len(), 1);
        drop(hanging);
        assert!(manager.active().is_empty());
        stack.run(call("build")).await;
        assert!(manager.active().is_empty());
    }

    #[tokio::test]
    async fn a_tool_can_say_itself_that_it_takes_long_but_the_operator_names_it() {
        let manager = ProgressManager::new();
        let labels = Arc::new(Mutex::new(Vec::new()));
        let kept = labels.clone();
        manager.on_change(move |items| {
            kept.lock()
                .expect("whole")
                .extend(items.iter().map(|item| item.label.clone()))
        });
        let registry = Registry::new();
        let mut annotations = Annotations::default();
        annotations.long_running = Some("its own words".into());
        for name in ["build", "test"] {
            let spec = ToolSpec::new(name, "Works.", Schema::any_object())
                .with_annotations(annotations.clone());
            registry.register_host(spec).expect("a new name");
        }
        let view = View::of(&registry);
        let stack = Stack::over(Scripted::new())
            .layer(building(&manager))
            .build()
            .expect("in order");
        for tool in ["build", "test"] {
            stack.run(Call::new(seed_for(&view, tool, json!({})))).await;
        }
        stack.run(call("quick")).await;
        assert_eq!(
            *labels.lock().expect("whole"),
            ["Building", "its own words"]
        );
    }

    #[tokio::test]
    async fn a_rehearsal_shows_nothing() {
        let manager = ProgressManager::new();
        let counts = counted(&manager);
        let stack = Stack::over(Scripted::new())
            .layer(building(&manager))
            .build()
            .expect("in order");
        stack
            .run(Call::new(CallSeed {
                rehearsal: true,
                ..seed("build", json!({}))
            }))
            .await;
        assert!(counts.lock().expect("whole").is_empty());
    }

    #[test]
    fn a_label_that_is_empty_is_refused() {
        let long_running_tools = BTreeMap::from([("build".to_owned(), " ".to_owned())]);
        let error = Progress::configure(ProgressOptions { long_running_tools }, &Parts::new())
            .expect_err("empty");
        assert_eq!(error.key, "long_running_tools");
    }

    #[test]
    fn the_manager_is_the_one_that_the_program_watches() {
        let parts = Parts::new();
        let layer = Progress::configure(ProgressOptions::default(), &parts).expect("fine");
        layer
            .manager
            .begin(ProgressItem::new("a", "A", toolgate_core::Timestamp::EPOCH));
        assert_eq!(
            parts.get::<ProgressManager>().expect("kept").active().len(),
            1
        );
    }
}
