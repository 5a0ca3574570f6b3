//! What is said in a conversation: messages and their parts, the same for every provider.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Cost, Json, SessionId, ToolRequest, TurnId, Usage};

/// One entry of a conversation. It is never changed once it was said.
///
/// ```
/// use toolgate_core::{Message, Role};
/// let message = Message::user("Which files are here?");
/// assert_eq!((message.role, message.text().as_str()), (Role::User, "Which files are here?"));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who says it.
    pub role: Role,
    /// What is said, in order.
    pub parts: Vec<Part>,
    /// The message as a provider was last sent it.
    #[serde(skip)]
    fragment: Fragment,
}

/// Who says something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A person, or the program on their behalf.
    User,
    /// The model.
    Assistant,
    /// The tools: one message answers all calls of a turn, in the order the model asked.
    Tool,
}

/// A piece of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// What it is, in words that no provider owns.
    #[serde(flatten)]
    pub content: Content,
    /// The item as the provider sent it. The same provider is given it back verbatim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<Native>,
}

/// What a piece of a message is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "content", rename_all = "snake_case")]
pub enum Content {
    /// Words.
    Text(String),
    /// What the model thought, as far as the provider tells.
    Reasoning(String),
    /// The model asks for a call.
    Call(ToolRequest),
    /// What came of a call.
    Result(ToolAnswer),
    /// A picture or a file.
    Media(Media),
    /// A call that the provider made by itself.
    Ran(ProviderCall),
    /// Something only the provider understands.
    Opaque,
}

/// An item of a provider, kept as it came: reasoning has to be given back to the byte, and saved sessions outlive any
/// version of a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Native {
    /// Which wire format the item belongs to.
    pub wire: Arc<str>,
    /// The item.
    pub item: Arc<Value>,
}

/// What came of a call, as the model is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolAnswer {
    /// The label of the call.
    pub call_id: String,
    /// Which tool.
    pub tool: String,
    /// What the model reads.
    pub text: String,
    /// Whether the call did not do what was asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// Pictures and files that came with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub media: Vec<Media>,
}

/// A picture or a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Media {
    /// What it is, as in `image/png`.
    pub media_type: String,
    /// What it is called, if that matters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Where it is.
    #[serde(flatten)]
    pub source: MediaSource,
}

/// Where a picture or file is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MediaSource {
    /// Here, in base64.
    Data(String),
    /// At an address that the provider can read.
    Url(String),
}

/// A call that the provider made by itself, such as a search on the web. It is recorded, not run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProviderCall {
    /// The provider's id.
    pub id: String,
    /// Which tool.
    pub tool: String,
    /// With what.
    pub arguments: Value,
    /// What came of it, as far as the provider tells.
    pub result: Value,
    /// Whether it failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
}

/// A message in its place: where a conversation can be taken up again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Said {
    /// The turn it belongs to: the one that it asks for, is, or answers.
    pub turn: TurnId,
    /// The round of the loop.
    pub iteration: u32,
    /// The rounds that were not counted so far.
    #[serde(default)]
    pub refunds: u32,
    /// The number of the message that began the run.
    pub run: u64,
    /// What a reply used, if the provider told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// What a reply cost.
    #[serde(default)]
    pub cost: Cost,
    /// Whether a reply is not finished: the model has to be asked again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// What is said.
    pub message: Arc<Message>,
}

impl Said {
    /// A message of a turn.
    pub fn new(turn: TurnId, iteration: u32, run: u64, message: Arc<Message>) -> Self {
        Self {
            turn,
            iteration,
            refunds: 0,
            run,
            usage: None,
            cost: Cost::Unknown,
            paused: false,
            message,
        }
    }
}

impl Message {
    /// A message of several parts.
    pub fn new(role: Role, parts: Vec<Part>) -> Self {
        Self {
            role,
            parts,
            fragment: Fragment::default(),
        }
    }

    /// What a person says.
    pub fn user(text: impl Into<String>) -> Self {
        Self::new(Role::User, vec![Part::text(text)])
    }

    /// What the model says.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::new(Role::Assistant, vec![Part::text(text)])
    }

    /// Everything that is said in words.
    pub fn text(&self) -> String {
        let words = self.parts.iter().filter_map(|part| match &part.content {
            Content::Text(text) => Some(text.as_str()),
            _ => None,
        });
        words.collect::<Vec<_>>().concat()
    }

    /// The calls that the model asks for, in order.
    pub fn calls(&self) -> impl Iterator<Item = &ToolRequest> {
        self.parts.iter().filter_map(|part| match &part.content {
            Content::Call(request) => Some(request),
            _ => None,
        })
    }

    /// The message as it goes over `wire`, made once and kept: a long conversation is not written out anew each turn.
    pub fn fragment(&self, wire: &'static str, make: impl FnOnce(&Self) -> Bytes) -> Bytes {
        match self.fragment.0.get() {
            Some((kept, bytes)) if *kept == wire => bytes.clone(),
            Some(_) => make(self),
            None => self.fragment.0.get_or_init(|| (wire, make(self))).1.clone(),
        }
    }

    /// About how many bytes the message has, media included.
    pub fn size(&self) -> usize {
        self.parts.iter().map(Part::size).sum()
    }
}

impl Part {
    /// Words.
    pub fn text(text: impl Into<String>) -> Self {
        Content::Text(text.into()).into()
    }

    /// The same with the item as the provider sent it.
    pub fn with_native(mut self, wire: &'static str, item: Value) -> Self {
        self.native = Some(Native {
            wire: wire.into(),
            item: Arc::new(item),
        });
        self
    }

    /// The item as `wire` sent it, if it came from there.
    pub fn native(&self, wire: &str) -> Option<&Value> {
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
            Content::Text(text) | Content::Reasoning(text) => text.len(),
            Content::Call(request) => request.size(),
            Content::Result(answer) => {
                answer.text.len() + answer.media.iter().map(media).sum::<usize>()
            }
            Content::Media(one) => media(one),
            Content::Ran(_) | Content::Opaque => 256,
        }
    }
}

impl From<Content> for Part {
    fn from(content: Content) -> Self {
        Self {
            content,
            native: None,
        }
    }
}

impl Media {
    /// Something that is here, in base64.
    pub fn data(media_type: impl Into<String>, base64: impl Into<String>) -> Self {
        Self {
            media_type: media_type.into(),
            name: None,
            source: MediaSource::Data(base64.into()),
        }
    }

    /// The pictures and files in what a tool returned: blocks under `content`, as MCP has them.
    pub fn of(value: &Json) -> Vec<Self> {
        let blocks = value.get("content").and_then(Value::as_array);
        let text =
            |block: &Value, key: &str| block.get(key).and_then(Value::as_str).map(str::to_owned);
        let media = |block: &Value| {
            let (media_type, data) = (text(block, "mimeType")?, text(block, "data")?);
            Some(Self {
                media_type,
                name: text(block, "name"),
                source: MediaSource::Data(data),
            })
        };
        blocks.into_iter().flatten().filter_map(media).collect()
    }

    /// Whether it is a picture.
    pub fn is_image(&self) -> bool {
        self.media_type.starts_with("image/")
    }
}

/// Bytes that were made for one wire format. Two messages are the same whatever was made of them.
#[derive(Clone, Default)]
struct Fragment(OnceLock<(&'static str, Bytes)>);

impl PartialEq for Fragment {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for Fragment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fragment")
    }
}

/// The name of a record that keeps a message. Names sort like numbers.
pub(crate) fn message_key(session: SessionId, number: u64) -> String {
    format!("message/{session}/{number:012}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_message_round_trips_with_its_native_items() {
        let call = Part::from(Content::Call(ToolRequest::text("c1", "read", "{}")));
        let parts = vec![
            Part::from(Content::Reasoning("hm".into()))
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
            message.parts[0].native("anthropic"),
            Some(&json!({"signature": "s"}))
        );
        assert_eq!(
            message.parts[0].native("gemini"),
            None,
            "another provider is not given it"
        );
    }

    #[test]
    fn a_fragment_is_made_once_per_wire() {
        let message = Message::user("hello");
        assert_eq!(message.fragment("a", |_| "1".into()), "1");
        assert_eq!(message.fragment("a", |_| unreachable!("it is kept")), "1");
        assert_eq!(message.fragment("b", |_| "2".into()), "2");
    }
}
