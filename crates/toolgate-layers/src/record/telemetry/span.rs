//! The span of one call for tracing systems, with a child per layer and per attempt.

use std::{borrow::Cow, fmt};

use serde::{Serialize, Serializer, ser::SerializeMap};
use toolgate_core::{Call, CallId, Digest, Timestamp, TurnId};

/// The generation in the span id of a call that ended outside the stack; no call is suspended that
/// often.
const CLOSING_GENERATION: u32 = u32::MAX;

/// The passage of one call through the stack, in the terms of OpenTelemetry.
///
/// Ids are derived from those of the call. Every process that handles the call derives the same
/// ones, so the spans before and after a suspension are connected although no id was stored.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ToolSpan {
    /// The span's name, such as `execute_tool read_file`.
    pub name: Cow<'static, str>,
    /// The trace, which is the turn.
    pub trace_id: TraceId,
    /// The span's id.
    pub span_id: SpanId,
    /// The parent span.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_span_id: Option<SpanId>,
    /// The start time.
    pub started_at: Timestamp,
    /// The end time.
    pub ended_at: Timestamp,
    /// The error in one word, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Cow<'static, str>>,
    /// The attributes of the span.
    pub attributes: SpanAttributes,
    /// The events during the span.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<SpanEvent>,
    /// Other spans of the same call, from before it was suspended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<SpanLink>,
    /// The child spans.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<ToolSpan>,
}

impl ToolSpan {
    /// Creates the root span of a call.
    pub(crate) fn for_call(call: &Call, started_at: Timestamp, ended_at: Timestamp) -> Self {
        let trace_id = TraceId::for_turn(call.turn().turn, call.id);
        // A call that ended outside the stack gets another span id: its last pass may already have
        // sent a span.
        let (own, before) = match call.closing_outcome() {
            Some(_) => (CLOSING_GENERATION, Some(call.generation)),
            None => (call.generation, call.generation.checked_sub(1)),
        };
        // A link, not a parent: the span before has ended, perhaps days ago in another process.
        let links = before.map(|generation| SpanLink {
            trace_id,
            span_id: SpanId::for_generation(call.id, generation),
        });
        Self {
            name: format!("execute_tool {}", call.tool).into(),
            trace_id,
            span_id: SpanId::for_generation(call.id, own),
            parent_span_id: None,
            started_at,
            ended_at,
            error: None,
            attributes: SpanAttributes::default(),
            events: Vec::new(),
            links: links.into_iter().collect(),
            children: Vec::new(),
        }
    }

    /// Adds a child span.
    pub(crate) fn add_child(
        &mut self,
        name: String,
        started_at: Timestamp,
        ended_at: Timestamp,
    ) -> &mut Self {
        let number = self.children.len() as u64;
        self.children.push(Self {
            name: name.into(),
            trace_id: self.trace_id,
            span_id: self.span_id.for_child(number),
            parent_span_id: Some(self.span_id),
            started_at,
            ended_at,
            error: None,
            attributes: SpanAttributes::default(),
            events: Vec::new(),
            links: Vec::new(),
            children: Vec::new(),
        });
        self.children.last_mut().expect("it was just added")
    }

    /// Adds an event and returns its attributes.
    pub(crate) fn add_event(&mut self, name: &'static str, at: Timestamp) -> &mut SpanAttributes {
        self.events.push(SpanEvent {
            name,
            at,
            attributes: SpanAttributes::default(),
        });
        &mut self
            .events
            .last_mut()
            .expect("it was just added")
            .attributes
    }

    /// Returns the span and all its descendants, outermost first.
    pub fn flatten(&self) -> Vec<&Self> {
        let inside = self.children.iter().flat_map(Self::flatten);
        std::iter::once(self).chain(inside).collect()
    }
}

/// An event during a span.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SpanEvent {
    /// The event's name.
    pub name: &'static str,
    /// The time of the event.
    pub at: Timestamp,
    /// The attributes of the event.
    #[serde(skip_serializing_if = "SpanAttributes::is_empty")]
    pub attributes: SpanAttributes,
}

/// A link to a related span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SpanLink {
    /// The trace of the linked span.
    pub trace_id: TraceId,
    /// The id of the linked span.
    pub span_id: SpanId,
}

/// Names and values, in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SpanAttributes(Vec<(Cow<'static, str>, AttributeValue)>);

impl SpanAttributes {
    /// Returns the value with this name.
    pub fn get(&self, name: &str) -> Option<&AttributeValue> {
        self.0
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }

    /// Returns the text with this name.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            AttributeValue::Text(text) => Some(text),
            AttributeValue::Number(_) | AttributeValue::Flag(_) | AttributeValue::Digest(_) => None,
        }
    }

    /// Returns all names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&Cow<'static, str>, &AttributeValue)> {
        self.0.iter().map(|(name, value)| (name, value))
    }

    /// Checks whether there are no attributes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a value.
    pub(crate) fn put(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl Into<AttributeValue>,
    ) -> &mut Self {
        self.0.push((name.into(), value.into()));
        self
    }

    /// Adds a value if there is one.
    pub(crate) fn put_some(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        value: Option<impl Into<AttributeValue>>,
    ) -> &mut Self {
        self.0
            .extend(value.map(|value| (name.into(), value.into())));
        self
    }
}

impl Serialize for SpanAttributes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum AttributeValue {
    /// Text.
    Text(Cow<'static, str>),
    /// A whole number.
    Number(i64),
    /// A boolean.
    Flag(bool),
    /// A digest. The sink formats it, because that takes longer than building the rest of the span.
    Digest(Digest),
}

impl From<Digest> for AttributeValue {
    fn from(digest: Digest) -> Self {
        Self::Digest(digest)
    }
}

impl From<&'static str> for AttributeValue {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for AttributeValue {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<u32> for AttributeValue {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<usize> for AttributeValue {
    fn from(number: usize) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<bool> for AttributeValue {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

/// The id of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

impl TraceId {
    /// Derives the trace id from the turn, or from the call if it is outside any turn.
    fn for_turn(turn: TurnId, call: CallId) -> Self {
        // A trace id of zeros is invalid, and all calls outside a turn would share it.
        if !turn.is_nil() {
            return Self(turn.uuid().into_bytes());
        }
        let digest = Digest::of_bytes(call.uuid().as_bytes());
        Self(
            digest.as_bytes()[..16]
                .try_into()
                .expect("a digest has 32 bytes"),
        )
    }

    /// Returns the bytes.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

/// The id of a span.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId([u8; 8]);

impl SpanId {
    /// Derives the span id from a call and its generation.
    pub(crate) fn for_generation(call: CallId, generation: u32) -> Self {
        let mut bytes = [0; 20];
        bytes[..16].copy_from_slice(call.uuid().as_bytes());
        bytes[16..].copy_from_slice(&generation.to_be_bytes());
        let digest = Digest::of_bytes(&bytes);
        Self(
            digest.as_bytes()[..8]
                .try_into()
                .expect("a digest has 32 bytes"),
        )
        .nonzero()
    }

    /// Derives the id of the `number`th child.
    ///
    /// It uses the finaliser of SplitMix64, which is a bijection: no two numbers have the same id.
    fn for_child(self, number: u64) -> Self {
        let mut id = u64::from_be_bytes(self.0)
            .wrapping_add((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        id = (id ^ (id >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        id = (id ^ (id >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self((id ^ (id >> 31)).to_be_bytes()).nonzero()
    }

    /// Replaces zero, which means "no span" to collectors.
    fn nonzero(self) -> Self {
        if self.0 == [0; 8] {
            Self([0xff; 8])
        } else {
            self
        }
    }

    /// Returns the bytes.
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0
    }
}

macro_rules! as_hex {
    ($($name:ident)*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}

as_hex!(TraceId SpanId);

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use toolgate_core::CallSeed;
    use toolgate_testkit::seed;

    #[test]
    fn ids_depend_on_the_call_and_its_generation_alone() {
        let call = |generation| {
            Call::new(CallSeed {
                generation,
                ..seed("t", serde_json::json!({}))
            })
        };
        let root =
            |generation| ToolSpan::for_call(&call(generation), Timestamp::EPOCH, Timestamp::EPOCH);
        assert_eq!(root(0), root(0));
        assert_eq!(
            root(0).trace_id.to_bytes(),
            *call(0).turn().turn.uuid().as_bytes()
        );
        assert_ne!(root(0).span_id, root(1).span_id);
        assert_eq!(
            root(1).links,
            [SpanLink {
                trace_id: root(0).trace_id,
                span_id: root(0).span_id
            }]
        );
        assert!(root(0).links.is_empty());
    }

    #[test]
    fn no_two_spans_of_a_call_share_an_id() {
        let call = Call::new(seed("t", serde_json::json!({})));
        let mut root = ToolSpan::for_call(&call, Timestamp::EPOCH, Timestamp::EPOCH);
        for n in 0..1_000 {
            root.add_child(format!("layer {n}"), Timestamp::EPOCH, Timestamp::EPOCH);
        }
        let spans = root.flatten();
        assert_eq!(
            spans
                .iter()
                .map(|span| span.span_id.to_string())
                .collect::<BTreeSet<_>>()
                .len(),
            1_001
        );
        assert!(
            spans[1..]
                .iter()
                .all(|span| span.parent_span_id == Some(root.span_id))
        );
    }
}
