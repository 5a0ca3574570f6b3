//! The format in which one agent hands its work over to another.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toolgate_core::CallId;

use crate::PolicyOverride;

/// A handoff of work from one agent to another agent or a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct HandoffRecord {
    /// The version of this format.
    #[serde(default = "current_version")]
    pub schema_version: u32,
    /// The agent that hands over.
    #[serde(default, alias = "source", skip_serializing_if = "Option::is_none")]
    pub source_persona: Option<String>,
    /// The target of the handoff: a persona, an agent or a person.
    #[serde(
        alias = "target_persona",
        alias = "target_persona_or_human",
        alias = "to"
    )]
    pub target: String,
    /// The task.
    #[serde(alias = "reason")]
    pub task: String,
    /// Artifacts that belong to the task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Value>,
    /// Further information for the target.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub context: Map<String, Value>,
    /// Narrower limits for the target. They never widen the current limits; see
    /// [`PolicyOverride::tighten`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_override: Option<PolicyOverride>,
    /// The call in which this happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
}

fn current_version() -> u32 {
    HandoffRecord::VERSION
}

impl HandoffRecord {
    /// The version of the format that is written, and the newest that is read.
    pub const VERSION: u32 = 1;

    /// Parses a handoff that a tool wrote. The error detail is for the operator, because it may
    /// repeat a value.
    pub(crate) fn from_payload(payload: &Value, call: CallId) -> Result<Self, InvalidHandoff> {
        let mut record = Self::deserialize(payload)
            .map_err(|error| InvalidHandoff::because("is malformed", error))?;
        match &record {
            r if r.target.trim().is_empty() => {
                return Err(InvalidHandoff::plain("does not name a target"));
            }
            r if r.task.trim().is_empty() => {
                return Err(InvalidHandoff::plain("does not name a task"));
            }
            r if !(1..=Self::VERSION).contains(&r.schema_version) => {
                return Err(InvalidHandoff::plain("has an unknown schema_version"));
            }
            _ => {}
        }
        // A tool must not attribute its handoff to another call.
        record.call_id = Some(call);
        Ok(record)
    }

    /// Sets the source if the tool did not name one.
    pub(crate) fn with_default_source(mut self, source: Option<&str>) -> Self {
        self.source_persona = self.source_persona.or_else(|| source.map(str::to_owned));
        self
    }
}

/// The problem with an invalid handoff, for the model and for the operator.
pub(crate) struct InvalidHandoff {
    pub(crate) model: &'static str,
    pub(crate) operator: Option<String>,
}

impl InvalidHandoff {
    pub(crate) fn plain(model: &'static str) -> Self {
        Self {
            model,
            operator: None,
        }
    }

    pub(crate) fn because(model: &'static str, error: impl fmt::Display) -> Self {
        Self {
            model,
            operator: Some(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolgate_testkit::seed;

    fn parse_record(payload: Value) -> Result<HandoffRecord, &'static str> {
        HandoffRecord::from_payload(&payload, seed("t", json!({})).id)
            .map_err(|problem| problem.model)
    }

    #[test]
    fn the_field_names_of_other_systems_are_accepted() {
        let plain = parse_record(json!({ "target": "a", "task": "b", "source_persona": "c" }))
            .expect("a handoff");
        for target in ["to", "target_persona", "target_persona_or_human"] {
            assert_eq!(
                parse_record(json!({ target: "a", "reason": "b", "source": "c" })).as_ref(),
                Ok(&plain),
                "{target}"
            );
        }
    }

    #[test]
    fn a_record_round_trips() {
        let payload = json!({ "target": "a", "task": "b", "artifacts": [1], "context": { "x": null },
            "policy_override": { "max_calls": 3, "side_effect_level": "read_only" } });
        let record = parse_record(payload).expect("a handoff");
        assert_eq!(
            parse_record(serde_json::to_value(&record).expect("serialized")),
            Ok(record)
        );
    }

    #[test]
    fn the_call_id_is_that_of_the_call_whatever_the_tool_writes() {
        let other = toolgate_core::CallId::new(seed("t", json!({})).turn.turn.uuid());
        let record = parse_record(json!({ "target": "a", "task": "b", "call_id": other }))
            .expect("a handoff");
        assert_eq!(record.call_id, Some(seed("t", json!({})).id));
    }

    #[test]
    fn target_and_task_are_required() {
        assert_eq!(
            parse_record(json!({ "target": " ", "task": "b" })),
            Err("does not name a target")
        );
        assert_eq!(
            parse_record(json!({ "target": "a", "task": "" })),
            Err("does not name a task")
        );
        assert_eq!(parse_record(json!({ "target": "a" })), Err("is malformed"));
        assert_eq!(
            parse_record(json!({ "target": "a", "task": "b", "schema_version": 0 })),
            Err("has an unknown schema_version")
        );
    }
}
