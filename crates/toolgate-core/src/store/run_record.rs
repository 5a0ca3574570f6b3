//! The settings that a run began with, stored beside the message that begins it.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{HumanDuration, Labels, LayerName, OutputFormat, TaskComplexity, ToolChoice, ToolName};

/// The settings that a run began with, so that resuming it needs no argument and widens nothing.
///
/// Layers and tools are code and cannot be stored. Their names are: a run is resumed only with
/// layers and tools of these names.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The model of the session, written `provider:model`.
    pub model: String,
    /// The tools that the run is limited to, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<Vec<String>>,
    /// The tools that the model may or must call.
    #[serde(default)]
    pub choice: ToolChoice,
    /// The format of the final answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputFormat>,
    /// The limit of iterations, if the run has one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iterations: Option<u32>,
    /// What happens at that limit, if the run has a rule of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_cap: Option<OnCap>,
    /// The time that the run may take, if it has a limit of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<HumanDuration>,
    /// The time that each of its turns may take, if it has a limit of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_deadline: Option<HumanDuration>,
    /// The complexity of the work, for the routing among models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<TaskComplexity>,
    /// The names of the layers that were given to the run, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<LayerName>,
    /// The names of the tools that were given to the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolName>,
    /// The labels of the run, redacted.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// The instructions of the session, if it has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<RunInstructions>,
}

/// The instructions that a run began with, as the program gave them: without what strategies add,
/// such as skills and recalled memories. Like messages, they are not redacted.
///
/// They may be long and are the same in most runs of a session, so a run can name the one that has
/// the text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunInstructions {
    /// The text.
    Text(Arc<str>),
    /// The number of an earlier run of the session whose record has the text.
    SameAs(u64),
}

/// Behaviour of a run that has reached its limit of iterations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnCap {
    /// The model is asked once more, without tools, to answer with what it has.
    #[default]
    Close,
    /// The run is an error.
    Fail,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Schema;
    use serde_json::json;

    #[test]
    fn a_stored_run_reads_back_as_it_was() {
        let schema = Schema::new(json!({ "type": "object" })).expect("valid");
        let record = RunRecord {
            model: "a:b".into(),
            allowed: Some(Vec::new()),
            choice: ToolChoice::Named("look".into()),
            output: Some(OutputFormat {
                name: "person".into(),
                schema,
            }),
            max_iterations: Some(3),
            on_cap: Some(OnCap::Fail),
            deadline: Some(HumanDuration::from_secs(300)),
            turn_deadline: Some(HumanDuration::from_secs(5)),
            weight: Some(TaskComplexity::Heavy),
            layers: vec!["scope".into()],
            tools: vec!["look".into()],
            labels: Labels::new([("tenant", "acme")]).expect("valid"),
            instructions: Some(RunInstructions::Text("Answer in German.".into())),
        };
        let stored = serde_json::to_string(&record).expect("is JSON");
        let read: RunRecord = serde_json::from_str(&stored).expect("reads");
        assert_eq!(read, record);
    }
    #[test]
    fn a_run_that_was_stored_without_instructions_reads_as_one_that_has_none() {
        let read: RunRecord = serde_json::from_str(r#"{"model":"a:b"}"#).expect("reads");
        assert_eq!(read.instructions, None);
        let stored = serde_json::to_string(&read).expect("is JSON");
        assert!(!stored.contains("instructions"), "{stored}");
    }
}
