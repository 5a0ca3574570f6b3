//! The options of a run as they are stored with it, and as they are restored when it is resumed.

use std::sync::Arc;

use toolgate_core::{
    AnyLayer, HumanDuration, Labels, LayerName, ModelName, Registry, RunRecord, StoreError,
    ToolChoice, ToolName,
};

use crate::{
    RunError, RunOptions, SessionError,
    session::{SessionShared, conversation::Conversation},
};

impl RunOptions {
    /// Returns what is stored of the options.
    pub(crate) fn to_record(&self, model: &ModelName, labels: &Labels) -> RunRecord {
        RunRecord {
            model: model.to_string(),
            allowed: self.allowed.clone(),
            choice: self.choice.clone(),
            output: self.output.clone(),
            max_iterations: self.max_iterations,
            on_cap: self.on_cap,
            deadline: self.deadline.map(HumanDuration::from),
            turn_deadline: self.turn_deadline.map(HumanDuration::from),
            weight: self.weight,
            layers: layer_names(&self.layers).collect(),
            tools: tool_names(self.tools.as_ref()),
            labels: labels.clone(),
            instructions: None,
        }
    }

    /// Returns the options of a run that is resumed: those that it began with, with the layers and
    /// tools given now. They may add layers and narrow the tools; they never widen anything.
    ///
    /// # Errors
    ///
    /// Fails if a layer or tool that the run began with is missing, or if there are further tools.
    pub(crate) fn resumed_from(self, begun: &RunRecord) -> Result<Self, RunError> {
        let tools = tool_names(self.tools.as_ref());
        let missing_layers = missing_names(&begun.layers, layer_names(&self.layers));
        let missing_tools = missing_names(&begun.tools, tools.iter().cloned());
        if !(missing_layers.is_empty() && missing_tools.is_empty()) {
            return Err(RunError::MissingParts {
                layers: missing_layers,
                tools: missing_tools,
            });
        }
        let added = missing_names(&tools, begun.tools.iter().cloned());
        if !added.is_empty() {
            return Err(RunError::AddedTools(added));
        }
        Ok(Self {
            allowed: narrower_list(begun.allowed.clone(), self.allowed),
            choice: narrower_choice(&begun.choice, self.choice),
            output: self.output.or_else(|| begun.output.clone()),
            max_iterations: self.max_iterations.or(begun.max_iterations),
            on_cap: self.on_cap.or(begun.on_cap),
            deadline: self.deadline.or(begun.deadline.map(HumanDuration::get)),
            turn_deadline: self
                .turn_deadline
                .or(begun.turn_deadline.map(HumanDuration::get)),
            weight: self.weight.or(begun.weight),
            begun_labels: begun.labels.clone(),
            ..self
        })
    }

    /// Returns the layers and tools of a new run that the last run began with, too, and nothing
    /// else of it.
    fn parts_of_last_run(&self, begun: &RunRecord) -> Self {
        let layers = self.layers.iter();
        Self {
            layers: layers
                .filter(|layer| begun.layers.contains(&layer.name()))
                .cloned()
                .collect(),
            tools: self.tools.clone().filter(|_| !begun.tools.is_empty()),
            ..Self::default()
        }
    }
}

impl SessionShared {
    /// Loads the options that the last run began with; nothing for a run that was stored before
    /// there were such records.
    pub(crate) async fn load_run(
        &self,
        conversation: &Conversation,
    ) -> Result<Option<Arc<RunRecord>>, StoreError> {
        let store = self.dispatcher.store();
        store
            .load_run(self.dispatcher.session(), conversation.run)
            .await
    }

    /// Returns the options under which the calls of the last run are settled before a new run with
    /// `options` begins.
    pub(crate) async fn options_of_last_run(
        &self,
        conversation: &Conversation,
        options: &RunOptions,
    ) -> Result<RunOptions, SessionError> {
        let begun = self.load_run(conversation).await?;
        match begun {
            Some(begun) => {
                let parts = options.parts_of_last_run(&begun);
                parts.resumed_from(&begun).map_err(SessionError::Options)
            }
            None => Ok(options.clone()),
        }
    }
}

fn layer_names(layers: &[AnyLayer]) -> impl Iterator<Item = LayerName> {
    layers.iter().map(AnyLayer::name)
}

fn tool_names(tools: Option<&Registry>) -> Vec<ToolName> {
    let entries = tools.map(Registry::entries).unwrap_or_default();
    entries
        .iter()
        .map(|entry| entry.spec.name.clone())
        .collect()
}

/// Returns the names in `needed` that are not given; a name that is needed twice has to be given
/// twice.
fn missing_names<T: PartialEq + Clone>(needed: &[T], given: impl Iterator<Item = T>) -> Vec<T> {
    let mut given: Vec<T> = given.collect();
    let mut missing = Vec::new();
    for name in needed {
        match given.iter().position(|given| given == name) {
            Some(at) => drop(given.swap_remove(at)),
            None => missing.push(name.clone()),
        }
    }
    missing
}

/// Returns the names that both lists have; no list means no limit.
fn narrower_list(begun: Option<Vec<String>>, now: Option<Vec<String>>) -> Option<Vec<String>> {
    match (begun, now) {
        (Some(begun), Some(now)) => Some(
            begun
                .into_iter()
                .filter(|name| now.contains(name))
                .collect(),
        ),
        (begun, now) => begun.or(now),
    }
}

/// Returns the choice given now, unless the run began without tools or none is given.
fn narrower_choice(begun: &ToolChoice, now: ToolChoice) -> ToolChoice {
    match (begun, now) {
        (ToolChoice::None, _) => ToolChoice::None,
        (begun, ToolChoice::Auto) => begun.clone(),
        (_, now) => now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate_core::{LayerExt, from_fn};

    fn named_layer(name: &str) -> impl toolgate_core::Layer {
        from_fn(async |call, next: toolgate_core::Next| next.run(call).await).named(name)
    }

    fn stored(options: &RunOptions) -> RunRecord {
        options.to_record(&ModelName::new("a", "b"), &Labels::default())
    }

    #[test]
    fn options_given_at_resume_narrow_and_never_widen() {
        let begun = stored(&RunOptions::new().allow(["a", "b"]).choice(ToolChoice::None));
        let wide = RunOptions::new()
            .allow(["b", "c"])
            .choice(ToolChoice::Required);
        let resumed = wide.resumed_from(&begun).expect("fits");
        assert_eq!(resumed.allowed, Some(vec!["b".to_owned()]));
        assert_eq!(resumed.choice, ToolChoice::None);
        let silent = RunOptions::new().resumed_from(&begun).expect("fits");
        assert_eq!(silent.allowed, begun.allowed);
    }

    #[test]
    fn a_layer_that_was_given_twice_is_needed_twice() {
        let twice = RunOptions::new()
            .layer(named_layer("a"))
            .layer(named_layer("a"));
        let begun = stored(&twice);
        let once = RunOptions::new()
            .layer(named_layer("a"))
            .layer(named_layer("b"));
        let error = once.resumed_from(&begun).expect_err("one is missing");
        assert_eq!(
            error.to_string(),
            "the run began with layer a, which is missing"
        );
        assert!(twice.layer(named_layer("b")).resumed_from(&begun).is_ok());
    }
}
