//! The messages of a conversation and their parts, the same for every provider.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Cost, Json, ToolRequest, TurnId, Usage};

/// One entry of a conversation. It never changes once it is part of one.
///
/// ```
/// use toolgate_core::{Message, Role};
/// let message = Message::user("Which files are here?");
/// assert_eq!((message.role, message.text().as_str()), (Role::User, "Which files are here?"));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The author's role.
    pub role: Role,
    /// The content, in order.
    pub parts: Vec<MessagePart>,
    /// The message as it was sent to a provider.
    #[serde(skip)]
    fragment: EncodedFragment,
}

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The user, or a program on the user's behalf.
    User,
    /// The model.
    Assistant,
    /// The tools: one message answers all calls of a turn, in the order the model asked.
    Tool,
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MessagePart {
    /// The content, independent of any provider.
    #[serde(flatten)]
    pub content: PartContent,
    /// The item as the provider sent it. It is sent back to the same provider verbatim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<NativeItem>,
}

/// The content of a part of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "content", rename_all = "snake_case")]
pub enum PartContent {
    /// Text.
    Text(String),
    /// The model's reasoning, as far as the provider reports it.
    Reasoning(String),
    /// The model asks for a call.
    Call(ToolRequest),
    /// The result of a call.
    Result(ToolAnswer),
    /// An image or a file.
    Media(Media),
    /// A provider-executed call.
    Ran(ProviderCall),
    /// Something only the provider understands.
    Opaque,
}

/// An item of a provider, stored verbatim: reasoning has to be sent back byte for byte, and stored
/// sessions outlive any version of a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NativeItem {
    /// The wire format of the item.
    pub wire: Arc<str>,
    /// The item.
    pub item: Arc<Value>,
}

/// The result of a call, as the model reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolAnswer {
    /// The label of the call.
    pub call_id: String,
    /// The tool's name.
    pub tool: String,
    /// The text for the model.
    pub text: String,
    /// True if the call did not succeed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// The images and files of the result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub media: Vec<Media>,
}

/// An image or a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Media {
    /// The media type, such as `image/png`.
    pub media_type: String,
    /// The name, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The source of the content.
    #[serde(flatten)]
    pub source: MediaSource,
}

/// The source of an image or file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MediaSource {
    /// The content itself, in base64.
    Data(String),
    /// A URL that the provider can read.
    Url(String),
}

/// A provider-executed call, such as a web search. It is recorded, not run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProviderCall {
    /// The provider's id.
    pub id: String,
    /// The tool's name.
    pub tool: String,
    /// The arguments.
    pub arguments: Value,
    /// The result, as far as the provider reports it.
    pub result: Value,
    /// True if it failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
}

/// A stored message with its position in the session, from which a conversation can be resumed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MessageRecord {
    /// The turn it belongs to: the one it asks for, is, or answers.
    pub turn: TurnId,
    /// The iteration of the run.
    pub iteration: u32,
    /// The number of iterations so far that do not count.
    #[serde(default)]
    pub refunds: u32,
    /// The number of the message that began the run.
    pub run: u64,
    /// The tokens a reply used, if the provider reported them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// The cost of a reply.
    #[serde(default)]
    pub cost: Cost,
    /// True if a reply is not finished: the model has to be asked again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// True if the provider ended a reply for a reason that is unknown, so it may be incomplete.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unfinished: bool,
    /// The message.
    pub message: Arc<Message>,
}

impl MessageRecord {
    /// Creates the record of a message of a turn.
    pub fn new(turn: TurnId, iteration: u32, run: u64, message: Arc<Message>) -> Self {
        Self {
            turn,
            iteration,
            refunds: 0,
            run,
            usage: None,
            cost: Cost::Unknown,
            paused: false,
            unfinished: false,
            message,
        }
    }
}

impl Message {
    /// Creates a message of several parts.
    pub fn new(role: Role, parts: Vec<MessagePart>) -> Self {
        Self {
            role,
            parts,
            fragment: EncodedFragment::default(),
        }
    }

    /// Creates a message of the user.
    pub fn user(text: impl Into<String>) -> Self {
        Self::new(Role::User, vec![MessagePart::from_text(text)])
    }

    /// Creates a message of the model.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::new(Role::Assistant, vec![MessagePart::from_text(text)])
    }

    /// Returns the text of all text parts.
    pub fn text(&self) -> String {
        let words = self.parts.iter().filter_map(|part| match &part.content {
            PartContent::Text(text) => Some(text.as_str()),
            _ => None,
        });
        words.collect::<Vec<_>>().concat()
    }

    /// Returns the calls that the model asks for, in order.
    pub fn calls(&self) -> impl Iterator<Item = &ToolRequest> {
        self.parts.iter().filter_map(|part| match &part.content {
            PartContent::Call(request) => Some(request),
            _ => None,
        })
    }

    /// Returns the message encoded for `wire`. The first encoding is cached, so that a long
    /// conversation is not encoded again in each turn.
    pub fn encoded_for(&self, wire: &'static str, make: impl FnOnce(&Self) -> Bytes) -> Bytes {
        match self.fragment.0.get() {
            Some((kept, bytes)) if *kept == wire => bytes.clone(),
            // Only the first wire format is cached: a message is rarely sent in a second one.
            Some(_) => make(self),
            None => self.fragment.0.get_or_init(|| (wire, make(self))).1.clone(),
        }
    }

    /// Returns the approximate size of the message in bytes, media included.
    pub fn size(&self) -> usize {
        self.parts.iter().map(MessagePart::size).sum()
    }
}

impl MessagePart {
    /// Creates a text part.
    pub fn from_text(text: impl Into<String>) -> Self {
        PartContent::Text(text.into()).into()
    }

    /// Adds the item as the provider sent it.
    pub fn with_native(mut self, wire: &'static str, item: Value) -> Self {
        self.native = Some(NativeItem {
            wire: wire.into(),
            item: Arc::new(item),
        });
        self
    }

    /// Returns the item as `wire` sent it, if it came from there.
    pub fn native_for(&self, wire: &str) -> Option<&Value> {
        self.native
            .as_ref()
            .filter(|native| *native.wire == *wire)
            .map(|native| &*native.item)
    }

    fn size(&self) -> usize {
        let media = |media: &Media| match &media.source {
            MediaSource::Data(text) | MediaSource::Url(text) => text.len(),
        };
        match &self.content {
            PartContent::Text(text) | PartContent::Reasoning(text) => text.len(),
            PartContent::Call(request) => request.size(),
            PartContent::Result(answer) => {
                answer.text.len() + answer.media.iter().map(media).sum::<usize>()
            }
            PartContent::Media(one) => media(one),
            // An estimate: measuring these would mean to encode them.
            PartContent::Ran(_) | PartContent::Opaque => 256,
        }
    }
}

impl From<PartContent> for MessagePart {
    fn from(content: PartContent) -> Self {
        Self {
            content,
            native: None,
        }
    }
}

impl Media {
    /// Creates media from base64 data.
    pub fn from_base64(media_type: impl Into<String>, base64: impl Into<String>) -> Self {
        Self {
            media_type: media_type.into(),
            name: None,
            source: MediaSource::Data(base64.into()),
        }
    }

    /// Returns the images and files in a tool's result: the blocks under `content`, as in MCP.
    pub fn in_result(value: &Json) -> Vec<Self> {
        let blocks = value.get("content").and_then(Value::as_array);
        let text =
            |block: &Value, key: &str| block.get(key).and_then(Value::as_str).map(str::to_owned);
        let media = |block: &Value| {
            let media_type = text(block, "mimeType")?;
            let data = text(block, "data")?;
            Some(Self {
                media_type,
                name: text(block, "name"),
                source: MediaSource::Data(data),
            })
        };
        blocks.into_iter().flatten().filter_map(media).collect()
    }

    /// Checks whether it is an image.
    pub fn is_image(&self) -> bool {
        self.media_type.starts_with("image/")
    }
}

/// The cached encoding for one wire format. It does not take part in comparing messages.
#[derive(Clone, Default)]
struct EncodedFragment(OnceLock<(&'static str, Bytes)>);

impl PartialEq for EncodedFragment {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for EncodedFragment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fragment")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_message_round_trips_with_its_native_items() {
        let call = MessagePart::from(PartContent::Call(ToolRequest::from_text(
            "c1", "read", "{}",
        )));
        let parts = vec![
            MessagePart::from(PartContent::Reasoning("hm".into()))
                .with_native("anthropic", json!({"signature": "s"})),
            call.with_native("anthropic", json!({"type": "tool_use"})),
        ];
        let message = Message::new(Role::Assistant, parts);
        let text = serde_json::to_string(&message).expect("writes");
        assert_eq!(
            serde_json::from_str::<Message>(&text).expect("reads"),
            message
        );
        assert_eq!(
            message.parts[0].native_for("anthropic"),
            Some(&json!({"signature": "s"}))
        );
        assert_eq!(
            message.parts[0].native_for("gemini"),
            None,
            "another provider does not get it"
        );
    }

    #[test]
    fn a_message_is_encoded_once_per_wire() {
        let message = Message::user("hello");
        assert_eq!(message.encoded_for("a", |_| "1".into()), "1");
        assert_eq!(
            message.encoded_for("a", |_| unreachable!("it is cached")),
            "1"
        );
        assert_eq!(message.encoded_for("b", |_| "2".into()), "2");
    }
}
