//! Lists calls of long-running tools for screens.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::{Band, Call, Layer, LayerCapabilities, LayerName, Next, Outcome};

use crate::{BadOption, Configurable, ProgressItem, ProgressManager, Resources};

/// Lists calls of long-running tools while they are in the stack.
///
/// A tool is long-running if its annotations have a `long_running` label or if `long_running_tools`
/// names it. The model notices nothing. There is one item per call, whatever the number of
/// attempts. It leaves the list when the call settles, suspends, is dropped or has ended outside
/// the stack. Progress reports of the tool update the same item if a screen passes the events of
/// the session to [`ProgressManager::apply_event`].
///
/// ```
/// use toolgate_core::Stack;
/// use toolgate_layers::{ProgressLayer, ProgressManager};
/// use toolgate_testkit::echo;
///
/// let manager = ProgressManager::new();
/// let progress = ProgressLayer::new(manager.clone()).long_running("cargo_build", "Building");
/// let stack = Stack::over(echo()).layer(progress).build()?;
/// # Ok::<(), toolgate_core::StackError>(())
/// ```
#[derive(Debug, Clone)]
pub struct ProgressLayer {
    manager: ProgressManager,
    options: ProgressOptions,
}

/// The options of [`ProgressLayer`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProgressOptions {
    /// Labels by tool name, for tools whose annotations have no `long_running` label.
    pub long_running_tools: BTreeMap<String, String>,
}

impl ProgressLayer {
    /// Creates a layer that lists calls in `manager`.
    pub fn new(manager: ProgressManager) -> Self {
        Self {
            manager,
            options: ProgressOptions::default(),
        }
    }

    /// Lists calls of `tool` under `label`.
    pub fn long_running(mut self, tool: &str, label: &str) -> Self {
        self.options
            .long_running_tools
            .insert(tool.to_owned(), label.to_owned());
        self
    }

    /// Returns the label of a long-running tool. The operator's label overrides the tool's own.
    fn label_for<'a>(&'a self, call: &'a Call) -> Option<&'a str> {
        let named = self.options.long_running_tools.get(call.tool.as_str());
        named
            .or(call.annotations().long_running.as_ref())
            .map(String::as_str)
    }
}

impl Configurable for ProgressLayer {
    const NAME: &'static str = "progress";
    const SUMMARY: &'static str = "Lists calls of long-running tools for screens.";
    type Options = ProgressOptions;

    fn configure(options: ProgressOptions, parts: &Resources) -> Result<Self, BadOption> {
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

impl Layer for ProgressLayer {
    // Receipts and configuration know the layer by this name, not by the name of its type.
    fn name(&self) -> LayerName {
        LayerName::from(Self::NAME)
    }

    async fn handle(&self, call: Call, next: Next) -> Outcome {
        let Some(label) = self.label_for(&call).filter(|_| !call.is_rehearsal()) else {
            return next.run(call).await;
        };
        if call.closing_outcome().is_some() {
            // The call has ended, even if a screen still lists it from before a crash or an
            // interruption.
            self.manager.finish(&call.id.to_string());
            return next.run(call).await;
        }
        let now = call.env().clock().now();
        let item = ProgressItem::new(call.id.to_string(), label, now).cancellable();
        // A guard, because the call may also end by a panic or a drop.
        let _shown = ListedItem::new(&self.manager, item);
        next.run(call).await
    }

    fn applies_to(&self, call: &Call) -> bool {
        self.label_for(call).is_some()
    }

    fn band(&self) -> Band {
        Band::Record
    }

    fn capabilities(&self) -> LayerCapabilities {
        LayerCapabilities::for_kind(Self::NAME).recording()
    }
}

/// A guard that removes an item when it is dropped, however the call ends.
struct ListedItem<'a> {
    manager: &'a ProgressManager,
    id: std::sync::Arc<str>,
}

impl<'a> ListedItem<'a> {
    /// Lists the item.
    fn new(manager: &'a ProgressManager, item: ProgressItem) -> Self {
        let id = item.id.clone();
        manager.add_item(item);
        Self { manager, id }
    }
}

impl Drop for ListedItem<'_> {
    fn drop(&mut self) {
        self.manager.finish(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use serde_json::json;
    use std::sync::{Arc, Mutex};
    use toolgate_core::{Annotations, CallSeed, Registry, Schema, Stack, ToolSpec, from_fn};
    use toolgate_testkit::{FakeExecutor, call, run_twice, seed, seed_for};

    /// Records the number of items in each snapshot.
    fn counted(manager: &ProgressManager) -> Arc<Mutex<Vec<usize>>> {
        let counts = Arc::new(Mutex::new(Vec::new()));
        let kept = counts.clone();
        manager.on_change(move |items| kept.lock().expect("whole").push(items.len()));
        counts
    }

    fn building(manager: &ProgressManager) -> ProgressLayer {
        ProgressLayer::new(manager.clone()).long_running("build", "Building")
    }

    #[tokio::test]
    async fn a_call_is_listed_while_it_runs_and_only_then() {
        let manager = ProgressManager::new();
        let inside = manager.clone();
        let look = from_fn(move |call: Call, next: Next| {
            let labels: Vec<_> = inside
                .active_items()
                .into_iter()
                .map(|item| item.label)
                .collect();
            assert_eq!(labels, ["Building"]);
            next.run(call)
        });
        let stack = Stack::over(FakeExecutor::new())
            .layer(building(&manager))
            .layer(look)
            .build()
            .expect("in order");
        assert!(stack.run(call("build")).await.is_ok());
        assert!(manager.active_items().is_empty());
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
        let executor = FakeExecutor::new();
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
    async fn a_suspended_call_leaves_the_list_and_returns_when_resumed() {
        let manager = ProgressManager::new();
        let counts = counted(&manager);
        let twice = run_twice(building(&manager), seed("build", json!({}))).await;
        twice.assert_replays();
        assert_eq!(*counts.lock().expect("whole"), [1, 0, 1, 0]);
    }

    #[tokio::test]
    async fn a_call_that_is_dropped_or_panics_leaves_the_list() {
        let manager = ProgressManager::new();
        let executor = FakeExecutor::new().then_hang().then_panic("boom");
        let stack = Stack::over(executor)
            .layer(building(&manager))
            .build()
            .expect("in order");
        let mut hanging = Box::pin(stack.run(call("build")));
        assert!((&mut hanging).now_or_never().is_none());
        assert_eq!(manager.active_items().len(), 1);
        drop(hanging);
        assert!(manager.active_items().is_empty());
        stack.run(call("build")).await;
        assert!(manager.active_items().is_empty());
    }

    #[tokio::test]
    async fn a_tool_can_declare_itself_long_running_but_the_operators_label_wins() {
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
        let view = toolgate_testkit::plain_view(&registry);
        let stack = Stack::over(FakeExecutor::new())
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
        let stack = Stack::over(FakeExecutor::new())
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
    fn an_empty_label_is_rejected() {
        let long_running_tools = BTreeMap::from([("build".to_owned(), " ".to_owned())]);
        let error =
            ProgressLayer::configure(ProgressOptions { long_running_tools }, &Resources::new())
                .expect_err("empty");
        assert_eq!(error.key, "long_running_tools");
    }

    #[test]
    fn the_manager_comes_from_the_resources_of_the_program() {
        let parts = Resources::new();
        let layer = ProgressLayer::configure(ProgressOptions::default(), &parts).expect("fine");
        layer
            .manager
            .add_item(ProgressItem::new("a", "A", toolgate_core::Timestamp::EPOCH));
        assert_eq!(
            parts
                .get::<ProgressManager>()
                .expect("kept")
                .active_items()
                .len(),
            1
        );
    }
}
