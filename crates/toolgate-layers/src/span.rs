//! A span: what one call looks like to tracing systems, with a child per layer and per attempt.

use std::{borrow::Cow, fmt};

use serde::{Serialize, Serializer, ser::SerializeMap};
use toolgate_core::{Call, CallId, Digest, Timestamp, TurnId};

/// Stands for the generation of a call that ended outside the stack; no call is asked about that often.
const CLOSING: u32 = u32::MAX;

/// What happened to one call on its way through the stack, in the words of OpenTelemetry.
///
/// Ids are derived from those of the call: every process that handles it finds the same ones, so what happened
/// before a suspension and after it belongs together without anything being handed on.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ToolSpan {
    /// What it is called: `execute_tool read_file`.
    pub name: Cow<'static, str>,
    /// Which trace: the turn.
    pub trace_id: TraceId,
    /// Which span.
    pub span_id: SpanId,
    /// The span around it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_span_id: Option<SpanId>,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// Whether it went wrong, and how, in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Cow<'static, str>>,
    /// What is known about it.
    pub attributes: Attributes,
    /// What happened in between.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<SpanEvent>,
    /// Other spans of the same call, from before it was suspended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<SpanLink>,
    /// The spans inside.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<ToolSpan>,
}

impl ToolSpan {
    /// Begins the span of a call.
    pub(crate) fn root(call: &Call, started_at: Timestamp, ended_at: Timestamp) -> Self {
        let trace_id = TraceId::of(call.turn().turn, call.id);
        // That a call ended outside the stack is a span of its own: the pass before may have had one.
        let (own, before) = match call.closing() {
            Some(_) => (CLOSING, Some(call.generation)),
            None => (call.generation, call.generation.checked_sub(1)),
        };
        let links = before.map(|generation| SpanLink {
            trace_id,
            span_id: SpanId::of(call.id, generation),
        });
        Self {
            name: format!("execute_tool {}", call.tool).into(),
            trace_id,
            span_id: SpanId::of(call.id, own),
            parent_span_id: None,
            started_at,
            ended_at,
            error: None,
            attributes: Attributes::default(),
            events: Vec::new(),
            links: links.into_iter().collect(),
            children: Vec::new(),
        }
    }

    /// Adds a span inside this one.
    pub(crate) fn child(
        &mut self,
        name: String,
        started_at: Timestamp,
        ended_at: Timestamp,
    ) -> &mut Self {
        let number = self.children.len() as u64;
        self.children.push(Self {
            name: name.into(),
            trace_id: self.trace_id,
            span_id: self.span_id.child(number),
            parent_span_id: Some(self.span_id),
            started_at,
            ended_at,
            error: None,
            attributes: Attributes::default(),
            events: Vec::new(),
            links: Vec::new(),
            children: Vec::new(),
        });
        self.children.last_mut().expect("it was just added")
    }

    /// Says that something happened.
    pub(crate) fn event(&mut self, name: &'static str, at: Timestamp) -> &mut Attributes {
        self.events.push(SpanEvent {
            name,
            at,
            attributes: Attributes::default(),
        });
        &mut self
            .events
            .last_mut()
            .expect("it was just added")
            .attributes
    }

    /// The span itself and all spans inside, outermost first.
    pub fn flatten(&self) -> Vec<&Self> {
        let inside = self.children.iter().flat_map(Self::flatten);
        std::iter::once(self).chain(inside).collect()
    }
}

/// Something that happened during a span.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SpanEvent {
    /// What happened.
    pub name: &'static str,
    /// When.
    pub at: Timestamp,
    /// What is known about it.
    #[serde(skip_serializing_if = "Attributes::is_empty")]
    pub attributes: Attributes,
}

/// Another span that belongs to this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SpanLink {
    /// Its trace.
    pub trace_id: TraceId,
    /// Its id.
    pub span_id: SpanId,
}

/// Names and values, in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Attributes(Vec<(&'static str, AttributeValue)>);

impl Attributes {
    /// The value under a name.
    pub fn get(&self, name: &str) -> Option<&AttributeValue> {
        self.0
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }

    /// The text under a name.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            AttributeValue::Text(text) => Some(text),
            AttributeValue::Number(_) | AttributeValue::Flag(_) | AttributeValue::Digest(_) => None,
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &AttributeValue)> {
        self.0.iter().map(|(name, value)| (*name, value))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn put(
        &mut self,
        name: &'static str,
        value: impl Into<AttributeValue>,
    ) -> &mut Self {
        self.0.push((name, value.into()));
        self
    }

    pub(crate) fn put_some(
        &mut self,
        name: &'static str,
        value: Option<impl Into<AttributeValue>>,
    ) -> &mut Self {
        self.0.extend(value.map(|value| (name, value.into())));
        self
    }
}

impl Serialize for Attributes {
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
    /// Yes or no.
    Flag(bool),
    /// A digest; it is written out by the sink, because that takes longer than all the rest.
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
    /// The trace of a turn; for a call outside any turn, one of its own.
    fn of(turn: TurnId, call: CallId) -> Self {
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

    /// The bytes.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

/// The id of a span.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId([u8; 8]);

impl SpanId {
    /// The span of a call in one of its generations.
    pub(crate) fn of(call: CallId, generation: u32) -> Self {
        let mut bytes = [0; 20];
        bytes[..16].copy_from_slice(call.uuid().as_bytes());
        bytes[16..].copy_from_slice(&generation.to_be_bytes());
        let digest = Digest::of_bytes(&bytes);
        Self(
            digest.as_bytes()[..8]
                .try_into()
                .expect("a digest has 32 bytes"),
        )
        .valid()
    }

    /// The `number`th span inside this one: the finaliser of SplitMix64, which gives no two numbers the same id.
    fn child(self, number: u64) -> Self {
        let mut id = u64::from_be_bytes(self.0)
            .wrapping_add((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        id = (id ^ (id >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        id = (id ^ (id >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self((id ^ (id >> 31)).to_be_bytes()).valid()
    }

    /// Zero means "no span" to collectors.
    fn valid(self) -> Self {
        if self.0 == [0; 8] {
            Self([0xff; 8])
        } else {
            self
        }
    }

    /// The bytes.
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
            |generation| ToolSpan::root(&call(generation), Timestamp::EPOCH, Timestamp::EPOCH);
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
        let mut root = ToolSpan::root(&call, Timestamp::EPOCH, Timestamp::EPOCH);
        for n in 0..1_000 {
            root.child(format!("layer {n}"), Timestamp::EPOCH, Timestamp::EPOCH);
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
