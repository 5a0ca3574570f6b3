//! Reduces a request to digests, so that a recorded one can be found again and differences can be
//! named.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toolgate_core::{
    Digest, Json, Media, MediaSource, Message, ModelRequest, PartContent, RawArguments,
    RedactionError, Role, ToolChoice, ToolRequest, ToolSpec, View,
};

use crate::cassette::redact::CassetteRedactor;

/// A request as digests and beginnings of texts. It contains neither ids that change from run to
/// run nor data that only a provider understands.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RequestOutline {
    /// The digest of everything below.
    pub(crate) digest: Digest,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) instructions: Option<OutlinedText>,
    /// The tools that the model was shown.
    pub(crate) tools: BTreeMap<String, Digest>,
    /// All other settings of the request.
    pub(crate) settings: BTreeMap<String, Value>,
    /// The number of messages shared with the exchange before; a file stores only what is new.
    #[serde(default)]
    pub(crate) same: usize,
    pub(crate) messages: Vec<OutlinedMessage>,
}

/// A text by its digest and its beginning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OutlinedText {
    pub(crate) digest: Digest,
    pub(crate) text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OutlinedMessage {
    pub(crate) role: Role,
    #[serde(flatten)]
    pub(crate) passage: OutlinedText,
}

/// Builds outlines. Messages and tools that did not change since the last request are not hashed
/// again.
#[derive(Default)]
pub(crate) struct Outliner {
    pub(crate) scrub: CassetteRedactor,
    last: Mutex<OutlineCache>,
}

#[derive(Default)]
struct OutlineCache {
    messages: Vec<(Arc<Message>, OutlinedMessage)>,
    tools: Option<(View, BTreeMap<String, Digest>)>,
}

impl Outliner {
    pub(crate) fn new(scrub: CassetteRedactor) -> Self {
        Self {
            scrub,
            last: Mutex::default(),
        }
    }

    pub(crate) fn outline_request(
        &self,
        request: &ModelRequest,
    ) -> Result<RequestOutline, RedactionError> {
        let mut made = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        self.outline_messages(&mut made.messages, &request.messages)?;
        let messages: Vec<_> = made
            .messages
            .iter()
            .map(|(_, message)| message.clone())
            .collect();
        let tools = self.outline_tools(&mut made.tools, &request.view)?;
        let instructions = request
            .instructions
            .as_ref()
            .map(|text| self.outline_text(text))
            .transpose()?;
        let settings = self.outline_settings(request)?;
        let digests: Vec<_> = messages
            .iter()
            .map(|message| &message.passage.digest)
            .collect();
        let whole = json!({
            "instructions": instructions.as_ref().map(|passage| passage.digest),
            "tools": tools, "settings": settings, "messages": digests,
        });
        Ok(RequestOutline {
            digest: digest_json(whole)?,
            instructions,
            tools,
            settings,
            same: 0,
            messages,
        })
    }

    fn outline_messages(
        &self,
        made: &mut Vec<(Arc<Message>, OutlinedMessage)>,
        window: &[Arc<Message>],
    ) -> Result<(), RedactionError> {
        // Messages are shared and never change, so the same pointer means the same content.
        let kept = made
            .iter()
            .zip(window)
            .take_while(|((known, _), message)| Arc::ptr_eq(known, message))
            .count();
        made.truncate(kept);
        let mut calls = CallNumbers::default();
        for (at, message) in window.iter().enumerate() {
            // The number of a call depends on all calls before it, so cached messages are counted,
            // too.
            if at < kept {
                calls.count_calls(message);
                continue;
            }
            let plain = self.scrub.redact_value(&calls.plain_message(message))?;
            let passage = OutlinedText {
                text: text_beginning(&self.scrub.redact_text(&message_text(message))?),
                digest: digest_json(plain)?,
            };
            made.push((
                message.clone(),
                OutlinedMessage {
                    role: message.role,
                    passage,
                },
            ));
        }
        Ok(())
    }

    fn outline_tools(
        &self,
        made: &mut Option<(View, BTreeMap<String, Digest>)>,
        view: &View,
    ) -> Result<BTreeMap<String, Digest>, RedactionError> {
        if let Some((known, tools)) = made
            && known.is_same(view)
        {
            return Ok(tools.clone());
        }
        let one = |spec: &ToolSpec| {
            let told = json!({ "description": spec.description, "input": spec.input });
            Ok((
                self.scrub.redact_text(spec.name.as_str())?,
                digest_json(self.scrub.redact_value(&told)?)?,
            ))
        };
        let tools: BTreeMap<_, _> = view.specs().map(one).collect::<Result<_, _>>()?;
        *made = Some((view.clone(), tools.clone()));
        Ok(tools)
    }

    fn outline_text(&self, text: &str) -> Result<OutlinedText, RedactionError> {
        let text = self.scrub.redact_text(text)?;
        Ok(OutlinedText {
            digest: Digest::of_bytes(text.as_bytes()),
            text: text_beginning(&text),
        })
    }

    fn outline_settings(
        &self,
        request: &ModelRequest,
    ) -> Result<BTreeMap<String, Value>, RedactionError> {
        let choice = match &request.choice {
            ToolChoice::Auto => Value::Null,
            ToolChoice::None => "none".into(),
            ToolChoice::Required => "required".into(),
            ToolChoice::Named(tool) => json!({ "tool": tool }),
        };
        let output = request
            .output
            .as_ref()
            .map(|output| json!({ "name": output.name, "schema": output.schema }));
        let settings = json!({
            "choice": choice,
            "parallel_calls": request.parallel_calls,
            "output": output,
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "effort": request.effort,
            "extra": (!request.extra.is_empty()).then_some(&request.extra),
        });
        let Value::Object(settings) = self.scrub.redact_value(&settings)? else {
            return Err(RedactionError);
        };
        Ok(settings
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .collect())
    }
}

/// Numbers calls in the order in which they were requested, in place of their ids.
#[derive(Default)]
struct CallNumbers {
    asked: usize,
    numbers: HashMap<String, usize>,
}

impl CallNumbers {
    fn count_calls(&mut self, message: &Message) {
        for request in message.calls() {
            self.assign_number(request);
        }
    }

    fn assign_number(&mut self, request: &ToolRequest) -> usize {
        self.asked += 1;
        // An id may be used twice; a result then belongs to the latest call before it.
        self.numbers
            .insert(request.provider_call_id.clone(), self.asked);
        self.asked
    }

    /// Returns a message without ids and without native data.
    fn plain_message(&mut self, message: &Message) -> Value {
        let parts: Vec<Value> = message
            .parts
            .iter()
            .map(|part| self.plain_part(&part.content))
            .collect();
        json!({ "role": message.role, "parts": parts })
    }

    fn plain_part(&mut self, content: &PartContent) -> Value {
        match content {
            PartContent::Text(text) => json!({ "text": text }),
            PartContent::Reasoning(text) => json!({ "reasoning": text }),
            PartContent::Call(request) => {
                json!({ "call": self.assign_number(request), "tool": request.tool, "arguments": plain_arguments(request) })
            }
            PartContent::Result(answer) => json!({
                "result": self.numbers.get(&answer.call_id),
                "tool": answer.tool,
                "text": answer.text,
                "is_error": answer.is_error,
                "media": answer.media.iter().map(plain_media).collect::<Vec<_>>(),
            }),
            PartContent::Media(media) => plain_media(media),
            PartContent::Ran(call) => {
                json!({ "ran": call.tool, "arguments": call.arguments, "result": call.result, "failed": call.failed })
            }
            PartContent::Opaque => json!("opaque"),
        }
    }
}

/// Returns arguments as JSON if they parse: white space does not matter.
fn plain_arguments(request: &ToolRequest) -> Value {
    match &request.arguments {
        RawArguments::Json(json) => json.as_value().clone(),
        RawArguments::Text(text) => {
            serde_json::from_str(text).unwrap_or_else(|_| text.as_str().into())
        }
    }
}

fn plain_media(media: &Media) -> Value {
    let source = match &media.source {
        MediaSource::Data(data) => json!({ "data": Digest::of_bytes(data.as_bytes()) }),
        MediaSource::Url(url) => json!({ "url": url }),
    };
    json!({ "media": media.media_type, "name": media.name, "source": source })
}

/// Returns the content of a message as text for people.
fn message_text(message: &Message) -> String {
    let words = message.parts.iter().map(|part| match &part.content {
        PartContent::Text(text) | PartContent::Reasoning(text) => text.clone(),
        PartContent::Call(request) => format!("{}({})", request.tool, plain_arguments(request)),
        PartContent::Result(answer) => format!("{}: {}", answer.tool, answer.text),
        PartContent::Media(media) => format!("[{}]", media.media_type),
        PartContent::Ran(call) => format!("[{}]", call.tool),
        PartContent::Opaque => String::new(),
    });
    words
        .filter(|words| !words.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

fn text_beginning(text: &str) -> String {
    const MAX_CHARS: usize = 80;
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn digest_json(value: Value) -> Result<Digest, RedactionError> {
    // A value nested too deeply cannot be scanned for secrets either.
    Json::new(value)
        .map(|json| json.digest())
        .map_err(|_| RedactionError)
}

impl RequestOutline {
    /// Counts the messages that both have in common at the beginning.
    pub(crate) fn common_messages(&self, other: &Self) -> usize {
        self.messages
            .iter()
            .zip(&other.messages)
            .take_while(|(a, b)| a == b)
            .count()
    }

    /// Describes the first difference between a request and this recorded one. Texts of the request
    /// are included only if `show` allows it.
    pub(crate) fn describe_difference(&self, asked: &Self, show: bool) -> String {
        let at = self.common_messages(asked);
        let number = at + 1;
        match (self.messages.get(at), asked.messages.get(at)) {
            (Some(then), Some(now)) if show => format!(
                "message {number} differs: recorded was {} {:?}, requested is {} {:?}",
                role_name(then),
                then.passage.text,
                role_name(now),
                now.passage.text
            ),
            (Some(then), Some(now)) => {
                format!(
                    "message {number} differs: recorded was {} {:?}, requested is another message of {}",
                    role_name(then),
                    then.passage.text,
                    role_name(now)
                )
            }
            (Some(then), None) => {
                format!(
                    "message {number} is missing: recorded was {} {:?}",
                    role_name(then),
                    then.passage.text
                )
            }
            (None, Some(now)) => format!(
                "message {number}, of {}, is not in the recording",
                role_name(now)
            ),
            (None, None) => self.describe_other_difference(asked),
        }
    }

    fn describe_other_difference(&self, asked: &Self) -> String {
        if self.instructions != asked.instructions {
            return "the instructions differ".to_owned();
        }
        if let Some(tool) = first_difference(&self.tools, &asked.tools) {
            return format!("the tool {tool} differs or is shown in only one of them");
        }
        match first_difference(&self.settings, &asked.settings) {
            Some(setting) => format!("the setting {setting} differs"),
            None => "the redaction differs".to_owned(),
        }
    }
}

fn first_difference<'a, T: PartialEq>(
    a: &'a BTreeMap<String, T>,
    b: &'a BTreeMap<String, T>,
) -> Option<&'a str> {
    a.keys()
        .chain(b.keys())
        .find(|key| a.get(*key) != b.get(*key))
        .map(String::as_str)
}

fn role_name(message: &OutlinedMessage) -> &'static str {
    match message.role {
        Role::User => "the user",
        Role::Assistant => "the model",
        Role::Tool => "the tools",
    }
}
