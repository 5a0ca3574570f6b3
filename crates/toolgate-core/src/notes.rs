//! What is remembered about a call beside its result: notes that layers attach, and the trail the runtime keeps.

use std::{fmt, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Band, Change, Hints, Kind, LayerName, Principal, Status, Timestamp};

/// Notes on one outcome; empty notes cost nothing.
///
/// Notes merge from the inside out. A layer that replaces the outcome cannot lose what was noted below it,
/// because the runtime puts it back; where both wrote the same field the outer one stands and the inner
/// one moves to [`NoteFields::superseded`].
#[derive(Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Notes(Option<Arc<NoteFields>>);

impl Notes {
    /// Whether nothing was noted.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Reads the notes.
    pub fn fields(&self) -> Option<&NoteFields> {
        self.0.as_deref()
    }

    /// Writes to the notes.
    pub fn edit(&mut self) -> &mut NoteFields {
        Arc::make_mut(self.0.get_or_insert_default())
    }

    /// Takes over everything from `inner` that is not noted here yet.
    pub fn absorb(&mut self, inner: &Self) {
        let Some(theirs) = &inner.0 else { return };
        match &mut self.0 {
            None => self.0 = Some(theirs.clone()),
            Some(ours) if Arc::ptr_eq(ours, theirs) => {}
            Some(ours) => Arc::make_mut(ours).absorb(theirs),
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
    /// What kind of work this was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// What the tool is known to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hints: Option<Hints>,
    /// Who agreed or refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consent: Option<Consent>,
    /// The narrowed surface under which the call ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<Value>,
    /// Anything else.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// Inner notes whose field an outer layer wrote as well.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub superseded: Vec<Superseded>,
    /// One entry per layer entered, in order of entering; written by the runtime.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<LayerNote>,
    /// Who changed what; written by the runtime.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub provenance: Vec<Provenance>,
}

impl NoteFields {
    /// Whether a tool or layer noted anything, beside the trail that the runtime keeps.
    pub fn has_remarks(&self) -> bool {
        let said = self.summary.is_some()
            || self.description.is_some()
            || self.kind.is_some()
            || self.hints.is_some();
        said || self.consent.is_some()
            || self.scope.is_some()
            || !self.metadata.is_empty()
            || !self.superseded.is_empty()
    }

    /// The layers that changed the field at `pointer` of the arguments, or something above or below it.
    pub fn who_changed(&self, subject: Subject, pointer: &str) -> Vec<&LayerName> {
        let touches = |change: &Change| {
            let under = |a: &str, b: &str| {
                a.strip_prefix(b)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            under(&change.pointer, pointer) || under(pointer, &change.pointer)
        };
        let relevant = |p: &&Provenance| {
            p.subject == subject && (p.truncated || p.changes.iter().any(touches))
        };
        self.provenance
            .iter()
            .filter(relevant)
            .map(|p| &p.layer)
            .collect()
    }

    fn absorb(&mut self, inner: &Self) {
        let mut lost = Vec::new();
        keep(&mut self.summary, &inner.summary, "summary", &mut lost);
        keep(
            &mut self.description,
            &inner.description,
            "description",
            &mut lost,
        );
        keep(&mut self.kind, &inner.kind, "kind", &mut lost);
        keep(&mut self.hints, &inner.hints, "hints", &mut lost);
        keep(&mut self.consent, &inner.consent, "consent", &mut lost);
        keep(&mut self.scope, &inner.scope, "scope", &mut lost);
        for (key, value) in &inner.metadata {
            match self.metadata.get(key) {
                None => drop(self.metadata.insert(key.clone(), value.clone())),
                Some(ours) if ours == value => {}
                Some(_) => lost.push(Superseded {
                    field: format!("metadata/{key}"),
                    value: value.clone(),
                }),
            }
        }
        for entry in inner.superseded.iter().cloned().chain(lost) {
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

fn keep<T: Clone + PartialEq + Serialize>(
    ours: &mut Option<T>,
    inner: &Option<T>,
    field: &str,
    lost: &mut Vec<Superseded>,
) {
    let Some(theirs) = inner else { return };
    match ours {
        None => *ours = Some(theirs.clone()),
        Some(ours) if ours == theirs => {}
        Some(_) => {
            let value = serde_json::to_value(theirs).unwrap_or(Value::Null);
            lost.push(Superseded {
                field: field.to_owned(),
                value,
            });
        }
    }
}

/// An inner note that an outer one stands in front of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Superseded {
    /// The field both wrote.
    pub field: String,
    /// What the inner layer wrote.
    pub value: Value,
}

/// Who agreed or refused, for the record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Consent {
    /// The decision as one word: `approved`, `denied`, `expired`.
    pub decision: String,
    /// Who decided.
    pub decided_by: Principal,
    /// When.
    pub decided_at: Timestamp,
}

/// One pass of a call through one layer, as the runtime saw it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct LayerNote {
    /// The layer.
    pub name: LayerName,
    /// The band it stands in.
    pub band: Band,
    /// How the call left the layer.
    pub status: LayerStatus,
    /// When the call entered.
    pub started_at: Timestamp,
    /// When the call left.
    pub ended_at: Timestamp,
    /// Whether the layer changed the arguments or the outcome.
    pub changed: bool,
    /// Whether the layer answered by itself, without running what is below it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub answered: bool,
    /// Which attempt this was, counted from 1.
    pub attempt: u32,
    /// Why the layer let the call through, changed or refused it, in its own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Arc<str>>,
    /// What went wrong, for the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How a call left a layer: with a status, suspended, or because something above stopped waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", untagged)]
pub enum LayerStatus {
    /// The call settled.
    Settled(Status),
    /// The call did not settle.
    Open(Unsettled),
}

/// Ways to leave a layer without having settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unsettled {
    /// The call waits for a decision or a result.
    Suspended,
    /// A layer above dropped the call, for example because its time was up.
    Dropped,
}

/// What one layer changed. Values are left out: pointers say enough and leak nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Provenance {
    /// The layer that made the change.
    pub layer: LayerName,
    /// What was changed.
    pub subject: Subject,
    /// The places that differ.
    pub changes: Vec<Change>,
    /// Whether there were more places than are listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// What a layer can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// What the tool is given.
    Arguments,
    /// What came back.
    Result,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes(f: impl FnOnce(&mut NoteFields)) -> Notes {
        let mut notes = Notes::default();
        f(notes.edit());
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
        outer.absorb(&inner);
        let once = outer.clone();
        outer.absorb(&inner);
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
