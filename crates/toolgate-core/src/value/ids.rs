//! Types for names and ids, so that two kinds of them cannot be mixed up.

use std::{borrow::Cow, fmt, str::FromStr, sync::Arc};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use uuid::Uuid;

/// A source of new ids; the core never creates one by itself.
pub trait IdSource: Send + Sync + 'static {
    /// Returns an id that this source has not returned before.
    fn next_uuid(&self) -> Uuid;
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// Wraps an id that came from an [`IdSource`] or a store.
            pub const fn new(id: Uuid) -> Self {
                Self(id)
            }

            /// Creates an id from the next one of `ids`.
            pub fn from_source(ids: &dyn IdSource) -> Self {
                Self(ids.next_uuid())
            }

            /// Returns the plain UUID.
            pub const fn uuid(self) -> Uuid {
                self.0
            }

            /// Checks whether this is the all-zero id, which names nothing.
            pub const fn is_nil(self) -> bool {
                self.0.is_nil()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }
    };
}

uuid_id! {
    /// The runtime's own id of one call and of the invocation that records it.
    ///
    /// On the wire it is `invocation_id`. The provider's id is only a label and never used as a
    /// key.
    CallId
}

impl CallId {
    /// Returns the id of the session of the agent that this call starts.
    ///
    /// A resumed call finds the session it began, because the id is that of the call.
    pub const fn agent_session(self) -> SessionId {
        SessionId(self.0)
    }
}

uuid_id! {
    /// The id of a turn: one model message and its invocations.
    TurnId
}
uuid_id! {
    /// The id of a session: a conversation and its log.
    SessionId
}
uuid_id! {
    /// The id of a memory: a short text that outlives its session.
    MemoryId
}

/// The id of the approval of one invocation: `approval_<invocation id>`.
///
/// ```
/// use toolgate_core::{ApprovalId, CallId};
/// let call: CallId = "01890a5d-ac96-774b-bcce-b302099a8057".parse()?;
/// assert_eq!(ApprovalId::for_call(call).to_string(), "approval_01890a5d-ac96-774b-bcce-b302099a8057");
/// # Ok::<(), uuid::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ApprovalId(CallId);

impl ApprovalId {
    const PREFIX: &'static str = "approval_";

    /// Returns the approval id of `call`; the same call always has the same one.
    pub const fn for_call(call: CallId) -> Self {
        Self(call)
    }

    /// Returns the call of this approval.
    pub const fn call_id(self) -> CallId {
        self.0
    }
}

impl fmt::Display for ApprovalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Self::PREFIX, self.0)
    }
}

/// An error for text that is not `approval_` followed by an invocation id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an approval id has the form approval_<invocation id>")]
pub struct InvalidApprovalId;

impl FromStr for ApprovalId {
    type Err = InvalidApprovalId;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let id = text.strip_prefix(Self::PREFIX).ok_or(InvalidApprovalId)?;
        id.parse().map(Self).map_err(|_| InvalidApprovalId)
    }
}

crate::value::text::serde_as_text!(ApprovalId);

impl JsonSchema for ApprovalId {
    fn schema_name() -> Cow<'static, str> {
        "ApprovalId".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^approval_[0-9a-f-]{36}$" })
    }
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Returns the text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }
    };
}

text_id! {
    /// The id of an agent; hosts choose it.
    AgentId
}
text_id! {
    /// A person or program that decides or on whose behalf a call runs.
    Principal
}
text_id! {
    /// The name of a layer within one stack; unique there.
    LayerName
}

/// The name of a tool.
///
/// A name that a model wrote is kept as a label even if no tool could have it, so that the error
/// can show it: control characters are replaced and the length is limited. [`ToolName::check_characters`]
/// checks whether a tool may be registered under it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct ToolName(Arc<str>);

impl ToolName {
    /// The longest name a tool may have.
    pub const MAX_CHARS: usize = 128;

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Checks the name against `[A-Za-z0-9_.-]{1,128}`.
    ///
    /// # Errors
    ///
    /// [`InvalidToolName`] if it does not match.
    pub fn check_characters(&self) -> Result<(), InvalidToolName> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
        match self.0.len() {
            1..=Self::MAX_CHARS if self.0.bytes().all(plain) => Ok(()),
            _ => Err(InvalidToolName(self.clone())),
        }
    }
}

/// An error for a name that no tool can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is no tool name: use 1 to 128 of A-Z a-z 0-9 _ . -", name = .0.as_str())]
pub struct InvalidToolName(pub ToolName);

impl From<&str> for ToolName {
    fn from(raw: &str) -> Self {
        if raw.is_empty() {
            return Self("(unnamed)".into());
        }
        let short = raw.char_indices().nth(Self::MAX_CHARS).is_none();
        if short && !raw.contains(char::is_control) {
            return Self(raw.into());
        }
        // Names end up on terminals and in prompts: no escape sequences, no megabytes.
        let safe = |c: char| if c.is_control() { '\u{fffd}' } else { c };
        let mut label: String = raw.chars().take(Self::MAX_CHARS).map(safe).collect();
        if !short {
            label.push('…');
        }
        Self(label.into())
    }
}

impl From<String> for ToolName {
    fn from(raw: String) -> Self {
        Self::from(raw.as_str())
    }
}

impl<'de> Deserialize<'de> for ToolName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        if text.is_empty() {
            return Err(serde::de::Error::custom("a tool name cannot be empty"));
        }
        Ok(Self::from(text.as_ref()))
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl std::borrow::Borrow<str> for ToolName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl PartialEq<str> for ToolName {
    fn eq(&self, other: &str) -> bool {
        &*self.0 == other
    }
}

impl PartialEq<&str> for ToolName {
    fn eq(&self, other: &&str) -> bool {
        &*self.0 == *other
    }
}

/// A key for tools, so that an external system can recognise a repeated call.
///
/// It is derived from the call id, so it stays the same across attempts, resumption and restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct IdempotencyKey(CallId);

impl IdempotencyKey {
    /// Returns the key of `call`.
    pub const fn for_call(call: CallId) -> Self {
        Self(call)
    }
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_name_is_checked_against_the_allowed_characters() {
        for good in ["a", "read_file", "fs.read-2", &"x".repeat(128)] {
            assert!(ToolName::from(good).check_characters().is_ok(), "{good}");
        }
        for bad in [
            "",
            "a b",
            "naïve",
            "rm;ls",
            "a/b",
            "\u{1b}[2J",
            &"x".repeat(129),
        ] {
            assert!(ToolName::from(bad).check_characters().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_hostile_name_becomes_a_short_label_without_control_characters() {
        let name = ToolName::from("\u{1b}[31mboo\0".repeat(1_000_000).as_str());
        assert!(name.as_str().chars().count() <= ToolName::MAX_CHARS + 1);
        assert!(!name.as_str().contains(char::is_control));
    }

    #[test]
    fn approval_ids_round_trip_and_reject_other_text() {
        let id = ApprovalId::for_call(CallId::new(Uuid::from_u128(7)));
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in [
            "",
            "approval_",
            "approval_x",
            "7",
            "APPROVAL_00000000-0000-0000-0000-000000000007",
        ] {
            assert!(bad.parse::<ApprovalId>().is_err(), "{bad}");
        }
    }
}
