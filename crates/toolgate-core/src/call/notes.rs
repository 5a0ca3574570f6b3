//! Notes on a call beside its result: those that layers attach, and the trail the runtime records.

pub mod keys;

use std::{fmt, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Band, JsonChange, LayerName, Principal, Status, Timestamp, ToolHints, ToolKind};

/// Notes on one outcome; empty notes cost nothing.
///
/// Notes merge from the inside out. A layer that replaces the outcome cannot lose notes made below
/// it, because the runtime restores them; where both wrote the same field, the outer note stands
/// and the inner one moves to [`NoteFields::superseded`].
#[derive(Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Notes(Option<Arc<NoteFields>>);

impl Notes {
    /// Checks whether there are no notes.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the notes, if there are any.
    pub fn fields(&self) -> Option<&NoteFields> {
        self.0.as_deref()
    }

    /// Returns the notes for writing.
    pub fn fields_mut(&mut self) -> &mut NoteFields {
        Arc::make_mut(self.0.get_or_insert_default())
    }

    /// Adds every note of `inner` that is missing here.
    pub fn merge_inner(&mut self, inner: &Self) {
        let Some(theirs) = &inner.0 else { return };
        match &mut self.0 {
            None => self.0 = Some(theirs.clone()),
            // The layer passed the outcome on with its notes unchanged.
            Some(ours) if Arc::ptr_eq(ours, theirs) => {}
            Some(ours) => Arc::make_mut(ours).merge_inner(theirs),
        }
    }
}

impl fmt::Debug for Notes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The fields of [`Notes`]; the names follow the conventions of the agent protocols.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[non_exhaustive]
pub struct NoteFields {
    /// One line for people: "Searched the code for the rate limiter".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// A longer reason in free text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The kind of work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<ToolKind>,
    /// The known effects of the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hints: Option<ToolHints>,
    /// The decision and the approver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consent: Option<ConsentNote>,
    /// The scope under which the call ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<Value>,
    /// The version of the policy that judged the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_version: Option<Arc<str>>,
    /// The location of the receipt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt_uri: Option<String>,
    /// True if the summary only repeats the tool, its status and its duration.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub plain_summary: bool,
    /// Anything else, by key.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// Inner notes whose field an outer layer wrote as well.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub superseded: Vec<SupersededNote>,
    /// One entry per layer entered, in order of entering; written by the runtime.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<LayerNote>,
    /// The changes that layers made; written by the runtime.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub provenance: Vec<Provenance>,
}

impl NoteFields {
    /// Checks whether a tool or layer noted anything, beside the runtime's trail.
    pub fn has_remarks(&self) -> bool {
        let said = self.summary.is_some()
            || self.plain_summary
            || self.description.is_some()
            || self.kind.is_some()
            || self.hints.is_some();
        let judged = self.policy_version.is_some() || self.receipt_uri.is_some();
        said || judged
            || self.consent.is_some()
            || self.scope.is_some()
            || !self.metadata.is_empty()
            || !self.superseded.is_empty()
    }

    /// Returns the location of the receipt. Earlier versions noted it in the metadata.
    pub fn receipt_location(&self) -> Option<&str> {
        let earlier = || self.metadata.get(keys::RECEIPT_URI.name())?.as_str();
        self.receipt_uri.as_deref().or_else(earlier)
    }

    /// Checks whether the summary only repeats the tool, its status and its duration. Earlier versions
    /// noted that in the metadata.
    pub fn has_plain_summary(&self) -> bool {
        let earlier = self.metadata.get(keys::PLAIN_SUMMARY.name());
        self.plain_summary || earlier == Some(&Value::Bool(true))
    }

    /// Returns the layers that changed the field at `pointer`, or something above or below it.
    pub fn layers_that_changed(&self, subject: ChangeSubject, pointer: &str) -> Vec<&LayerName> {
        let touches = |change: &JsonChange| {
            let under = |a: &str, b: &str| {
                // With the slash: `/ab` is not below `/a`.
                a.strip_prefix(b)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            under(&change.pointer, pointer) || under(pointer, &change.pointer)
        };
        let relevant = |p: &&Provenance| {
            // A truncated list may lack this pointer, so its layer is included.
            p.subject == subject && (p.truncated || p.changes.iter().any(touches))
        };
        self.provenance
            .iter()
            .filter(relevant)
            .map(|p| &p.layer)
            .collect()
    }

    fn merge_inner(&mut self, inner: &Self) {
        let mut lost = Vec::new();
        merge_field(&mut self.summary, &inner.summary, "summary", &mut lost);
        merge_field(
            &mut self.description,
            &inner.description,
            "description",
            &mut lost,
        );
        merge_field(&mut self.kind, &inner.kind, "kind", &mut lost);
        merge_field(&mut self.hints, &inner.hints, "hints", &mut lost);
        merge_field(&mut self.consent, &inner.consent, "consent", &mut lost);
        merge_field(&mut self.scope, &inner.scope, "scope", &mut lost);
        merge_field(
            &mut self.policy_version,
            &inner.policy_version,
            "policy_version",
            &mut lost,
        );
        merge_field(
            &mut self.receipt_uri,
            &inner.receipt_uri,
            "receipt_uri",
            &mut lost,
        );
        self.plain_summary |= inner.plain_summary;
        for (key, value) in &inner.metadata {
            match self.metadata.get(key) {
                None => drop(self.metadata.insert(key.clone(), value.clone())),
                Some(ours) if ours == value => {}
                Some(_) => lost.push(SupersededNote {
                    field: format!("metadata/{key}"),
                    value: value.clone(),
                }),
            }
        }
        for entry in inner.superseded.iter().cloned().chain(lost) {
            // The same notes may be merged more than once, by each layer on the way up.
            if !self.superseded.contains(&entry) {
                self.superseded.push(entry);
            }
        }
        if self.layers.is_empty() {
            self.layers.clone_from(&inner.layers);
        }
        if self.provenance.is_empty() {
            self.provenance.clone_from(&inner.provenance);
        }
    }
}

fn merge_field<T: Clone + PartialEq + Serialize>(
    ours: &mut Option<T>,
    inner: &Option<T>,
    field: &str,
    lost: &mut Vec<SupersededNote>,
) {
    let Some(theirs) = inner else { return };
    match ours {
        None => *ours = Some(theirs.clone()),
        Some(ours) if ours == theirs => {}
        Some(_) => {
            let value = serde_json::to_value(theirs).unwrap_or(Value::Null);
            lost.push(SupersededNote {
                field: field.to_owned(),
                value,
            });
        }
    }
}

/// An inner note whose field an outer layer wrote too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SupersededNote {
    /// The field both wrote.
    pub field: String,
    /// The inner layer's value.
    pub value: Value,
}

/// The decision on a call and its approver, for the record.
// Fields are in the order of canonical JSON, so that a receipt is written in one pass.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConsentNote {
    /// The time of the decision.
    pub decided_at: Timestamp,
    /// The approver.
    pub decided_by: Principal,
    /// The decision as one word: `approved`, `denied`, `expired`.
    pub decision: String,
}

/// One visit of a call to one layer, as the runtime saw it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct LayerNote {
    /// The layer.
    pub name: LayerName,
    /// The band it stands in.
    pub band: Band,
    /// The status with which the call left the layer.
    pub status: LayerStatus,
    /// The time the call entered.
    pub started_at: Timestamp,
    /// The time the call left.
    pub ended_at: Timestamp,
    /// True if the layer changed the arguments or the outcome.
    pub changed: bool,
    /// True if the layer answered without running `next`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub answered: bool,
    /// True if the layer redacted something in the outcome, as it said itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub redacted: bool,
    /// The number of the attempt, counted from 1.
    pub attempt: u32,
    /// The layer's reason for passing on, changing or rejecting the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Arc<str>>,
    /// The error, for the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The way a call left a layer: with a status, suspended, or dropped from above.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", untagged)]
pub enum LayerStatus {
    /// The call settled.
    Settled(Status),
    /// The call did not settle.
    Open(UnsettledReason),
}

/// Ways to leave a layer without having settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnsettledReason {
    /// The call waits for a decision or a result.
    Suspended,
    /// A layer above dropped the call, for example because its time was up.
    Dropped,
}

/// A change that one layer made. It has JSON pointers and no values, so it leaks nothing.
// Fields are in the order of canonical JSON, so that a receipt is written in one pass.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Provenance {
    /// The JSON pointers that differ.
    pub changes: Vec<JsonChange>,
    /// The layer that made the change.
    pub layer: LayerName,
    /// The changed part of the call.
    pub subject: ChangeSubject,
    /// True if there were more differences than are listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// The part of a call that a layer can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeSubject {
    /// The arguments of the tool.
    Arguments,
    /// The result of the call.
    Result,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes(f: impl FnOnce(&mut NoteFields)) -> Notes {
        let mut notes = Notes::default();
        f(notes.fields_mut());
        notes
    }

    #[test]
    fn absorbing_never_loses_an_inner_note() {
        let inner = notes(|n| {
            n.summary = Some("inner".into());
            n.description = Some("why".into());
            n.metadata.insert("k".into(), 1.into());
        });
        let mut outer = notes(|n| {
            n.summary = Some("outer".into());
            n.metadata.insert("k".into(), 2.into());
        });
        outer.merge_inner(&inner);
        let once = outer.clone();
        outer.merge_inner(&inner);
        assert_eq!(outer, once, "absorbing twice changes nothing");
        let fields = outer.fields().expect("written");
        assert_eq!(fields.summary.as_deref(), Some("outer"));
        assert_eq!(fields.description.as_deref(), Some("why"));
        let lost: Vec<_> = fields
            .superseded
            .iter()
            .map(|s| (s.field.as_str(), s.value.clone()))
            .collect();
        assert_eq!(
            lost,
            [("summary", "inner".into()), ("metadata/k", 1.into())]
        );
    }
}
