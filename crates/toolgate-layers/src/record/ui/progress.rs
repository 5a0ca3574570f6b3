//! Labels calls of long-running tools for screens.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolgate_core::{
    Band, Call, Layer, LayerCapabilities, LayerName, LongRunningLabel, Next, Outcome,
};

use crate::{BadOption, Configurable, Resources};

/// Labels calls of long-running tools, so that screens show them as work in progress.
///
/// A tool is long-running if its annotations have a `long_running` label or if `long_running_tools`
/// names it. The runtime reports the label as the first `tool_execution_progress` of each attempt;
/// reports of the tool itself follow it. Screens show these events, and a
/// [`ProgressManager`](crate::ProgressManager) that is given the events of a session lists the work.
/// The model notices nothing.
///
/// ```
/// use toolgate_core::Stack;
/// use toolgate_layers::ProgressLayer;
/// use toolgate_testkit::echo;
///
/// let progress = ProgressLayer::new().long_running("cargo_build", "Building");
/// let stack = Stack::over(echo()).layer(progress).build()?;
/// # Ok::<(), toolgate_core::StackError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct ProgressLayer {
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
    /// Creates a layer with the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Labels calls of `tool` with `label`.
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
    const SUMMARY: &'static str = "Labels calls of long-running tools for screens.";
    type Options = ProgressOptions;

    fn configure(options: ProgressOptions, _: &Resources) -> Result<Self, BadOption> {
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
        Ok(Self { options })
    }
}

impl Layer for ProgressLayer {
    // Receipts and configuration know the layer by this name, not by the name of its type.
    fn name(&self) -> LayerName {
        LayerName::from(Self::NAME)
    }

    async fn handle(&self, call: Call, next: Next) -> Outcome {
        let label = self
            .label_for(&call)
            .map(|label| LongRunningLabel(label.into()));
        match label {
            Some(label) => next.run(call.with_extension(label)).await,
            None => next.run(call).await,
        }
    }

    fn applies_to(&self, call: &Call) -> bool {
        self.label_for(call).is_some()
    }

    fn band(&self) -> Band {
        Band::Record
    }

    fn capabilities(&self) -> LayerCapabilities {
        LayerCapabilities::for_kind(Self::NAME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::{Arc, Mutex};
    use toolgate_core::{Annotations, Registry, Schema, Stack, ToolSpec, from_fn};
    use toolgate_testkit::{FakeExecutor, call, run_twice, seed, seed_for};

    fn building() -> ProgressLayer {
        ProgressLayer::new().long_running("build", "Building")
    }

    #[tokio::test]
    async fn a_tool_can_declare_itself_long_running_but_the_operators_label_wins() {
        let labels = Arc::new(Mutex::new(Vec::new()));
        let kept = labels.clone();
        let look = from_fn(move |call: Call, next: Next| {
            let label = call.extension::<LongRunningLabel>();
            let label = label.map(|LongRunningLabel(label)| label.to_string());
            kept.lock().expect("whole").push(label);
            next.run(call)
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
            .layer(building())
            .layer(look)
            .build()
            .expect("in order");
        for tool in ["build", "test"] {
            stack.run(Call::new(seed_for(&view, tool, json!({})))).await;
        }
        stack.run(call("quick")).await;
        let expected = [Some("Building"), Some("its own words"), None];
        assert_eq!(
            *labels.lock().expect("whole"),
            expected.map(|label| label.map(str::to_owned))
        );
    }

    #[tokio::test]
    async fn a_second_pass_does_the_same() {
        let twice = run_twice(building(), seed("build", json!({}))).await;
        twice.assert_replays();
    }

    #[test]
    fn an_empty_label_is_rejected() {
        let long_running_tools = BTreeMap::from([("build".to_owned(), " ".to_owned())]);
        let error =
            ProgressLayer::configure(ProgressOptions { long_running_tools }, &Resources::new())
                .expect_err("empty");
        assert_eq!(error.key, "long_running_tools");
    }
}
