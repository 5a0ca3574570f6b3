//! The shape in which one agent hands its work over to another.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toolgate_core::CallId;

use crate::PolicyOverride;

/// Somebody hands work over to somebody else.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct HandoffRecord {
    /// The version of this shape.
    #[serde(default = "current_version")]
    pub schema_version: u32,
    /// Who hands over.
    #[serde(default, alias = "source", skip_serializing_if = "Option::is_none")]
    pub source_persona: Option<String>,
    /// Who takes over: a persona, an agent or a person.
    #[serde(
        alias = "target_persona",
        alias = "target_persona_or_human",
        alias = "to"
    )]
    pub target: String,
    /// What is to be done.
    #[serde(alias = "reason")]
    pub task: String,
    /// What is handed over along with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Value>,
    /// What else the taker should know.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub context: Map<String, Value>,
    /// Narrower limits for the taker. They never widen what holds anyway; see [`PolicyOverride::tighten`].
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
    /// The version of the shape that is written and the newest that is read.
    pub const VERSION: u32 = 1;

    /// Reads what a tool wrote. The detail is for the operator: it may repeat a value.
    pub(crate) fn read(payload: &Value, call: CallId) -> Result<Self, Unreadable> {
        let mut record = Self::deserialize(payload)
            .map_err(|error| Unreadable::because("is malformed", error))?;
        match &record {
            r if r.target.trim().is_empty() => {
                return Err(Unreadable::plain("does not say who takes over"));
            }
            r if r.task.trim().is_empty() => {
                return Err(Unreadable::plain("does not say what is to be done"));
            }
            r if !(1..=Self::VERSION).contains(&r.schema_version) => {
                return Err(Unreadable::plain("has an unknown schema_version"));
            }
            _ => {}
        }
        record.call_id = Some(call);
        Ok(record)
    }

    /// The same, handed over by `source` if the tool did not say by whom.
    pub(crate) fn handed_over_by(mut self, source: Option<&str>) -> Self {
        self.source_persona = self.source_persona.or_else(|| source.map(str::to_owned));
        self
    }
}

/// Why a handoff could not be read, in two voices.
pub(crate) struct Unreadable {
    pub(crate) model: &'static str,
    pub(crate) operator: Option<String>,
}

impl Unreadable {
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

    fn read(payload: Value) -> Result<HandoffRecord, &'static str> {
        HandoffRecord::read(&payload, seed("t", json!({})).id).map_err(|problem| problem.model)
    }

    #[test]
    fn the_words_of_other_systems_are_understood() {
        let plain =
            read(json!({ "target": "a", "task": "b", "source_persona": "c" })).expect("reads");
        for target in ["to", "target_persona", "target_persona_or_human"] {
            assert_eq!(
                read(json!({ target: "a", "reason": "b", "source": "c" })).as_ref(),
                Ok(&plain),
                "{target}"
            );
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let payload = json!({ "target": "a", "task": "b", "artifacts": [1], "context": { "x": null },
            "policy_override": { "max_calls": 3, "side_effect_level": "read_only" } });
        let record = read(payload).expect("reads");
        assert_eq!(
            read(serde_json::to_value(&record).expect("writes")),
            Ok(record)
        );
    }

    #[test]
    fn the_call_is_the_one_that_was_made_whatever_the_tool_says() {
        let other = toolgate_core::CallId::new(seed("t", json!({})).turn.turn.uuid());
        let record = read(json!({ "target": "a", "task": "b", "call_id": other })).expect("reads");
        assert_eq!(record.call_id, Some(seed("t", json!({})).id));
    }

    #[test]
    fn who_and_what_have_to_be_said() {
        assert_eq!(
            read(json!({ "target": " ", "task": "b" })),
            Err("does not say who takes over")
        );
        assert_eq!(
            read(json!({ "target": "a", "task": "" })),
            Err("does not say what is to be done")
        );
        assert_eq!(read(json!({ "target": "a" })), Err("is malformed"));
        assert_eq!(
            read(json!({ "target": "a", "task": "b", "schema_version": 0 })),
            Err("has an unknown schema_version")
        );
    }
}
