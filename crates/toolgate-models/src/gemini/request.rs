//! What Gemini is asked with.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use toolgate_core::{
    Content, Effort, Media, MediaSource, Message, ModelRequest, Part, Role, ToolAnswer, ToolChoice,
    ToolRequest, ToolSpec, View,
};

use super::{Age, Gemini, WIRE};
use crate::{
    body::{Chunks, JsonBody, fragment},
    foreign::object,
    names::NameRule,
};

const NAMES: NameRule = NameRule { longest: 63 };

/// How ids begin that we give because the provider gave none.
const OUR_IDS: &str = "gemini_";

/// What Google documents for calls that another model made: without it, the missing signature is an error.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

impl Gemini {
    pub(super) fn body(&self, request: &ModelRequest) -> Chunks {
        let mut body = JsonBody::new(&request.extra);
        let has_tools = !request.view.is_empty();
        let in_words = request
            .output
            .as_ref()
            .filter(|_| has_tools && self.age != Age::Level);
        let wish = in_words.map(|output| {
            format!(
                "When you are done, answer with nothing but JSON that fits this schema: {}",
                output.schema.as_json()
            )
        });
        let instructions = request
            .instructions
            .as_deref()
            .into_iter()
            .chain(wish.as_deref());
        let instructions: Vec<Value> = instructions
            .filter(|text| !text.is_empty())
            .map(|text| json!({ "text": text }))
            .collect();
        if !instructions.is_empty() {
            body.field("systemInstruction", &json!({ "parts": instructions }));
        }
        if has_tools {
            body.raw("tools", self.tools.get(&request.view, tools));
            body.optional("toolConfig", tool_config(&request.choice));
        }
        body.optional(
            "generationConfig",
            self.generation(request, in_words.is_none()),
        );
        let contents = request.messages.iter().map(|message| match self.age {
            Age::Level => message.fragment(WIRE, |message| content(message, true)),
            Age::Plain | Age::Budget { .. } => {
                message.fragment("gemini-2", |message| content(message, false))
            }
        });
        body.list("contents", contents);
        body.finish()
    }

    fn generation(&self, request: &ModelRequest, with_schema: bool) -> Option<Value> {
        let mut config = Map::new();
        let mut set = |name: &str, value: Value| drop(config.insert(name.to_owned(), value));
        if let Some(most) = request.max_tokens {
            set("maxOutputTokens", most.into());
        }
        if let Some(temperature) = request.temperature {
            set("temperature", temperature.into());
        }
        if let Some(output) = request.output.as_ref().filter(|_| with_schema) {
            set("responseMimeType", "application/json".into());
            set(
                "responseJsonSchema",
                output.schema.as_json().as_value().clone(),
            );
        }
        if let Some(thinking) = request.effort.and_then(|effort| self.age.thinking(effort)) {
            set("thinkingConfig", thinking);
        }
        (!config.is_empty()).then(|| config.into())
    }
}

impl Age {
    fn thinking(self, effort: Effort) -> Option<Value> {
        let level = |level: &str| json!({ "includeThoughts": true, "thinkingLevel": level });
        let budget = |tokens: u32| json!({ "includeThoughts": true, "thinkingBudget": tokens });
        Some(match (self, effort) {
            (Self::Plain, _) => return None,
            (Self::Budget { quick: true }, Effort::Minimal) => json!({ "thinkingBudget": 0 }),
            (Self::Budget { quick: false }, Effort::Minimal) => budget(128),
            (Self::Budget { .. }, Effort::Low) => budget(1024),
            (Self::Budget { .. }, Effort::Medium) => budget(8192),
            (Self::Budget { .. }, Effort::High) => budget(24_576),
            (Self::Level, Effort::Minimal) => level("MINIMAL"),
            (Self::Level, Effort::Low) => level("LOW"),
            (Self::Level, Effort::Medium) => level("MEDIUM"),
            (Self::Level, Effort::High) => level("HIGH"),
        })
    }
}

/// The name of a tool as Gemini takes it: it begins with a letter or an underscore.
pub(super) fn to_wire(name: &str) -> Cow<'_, str> {
    let wire = NAMES.to_wire(name);
    match wire.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        true => wire,
        false => Cow::Owned(format!("_{wire}")),
    }
}

/// The tool of the view that goes by this name, or else the name as it came.
pub(super) fn from_wire(view: &View, wire: &str) -> String {
    if view.get(wire).is_some() {
        return wire.to_owned();
    }
    let shown = view
        .specs()
        .map(|spec| spec.name.as_str())
        .find(|name| to_wire(name) == wire);
    shown.unwrap_or(wire).to_owned()
}

fn tools(view: &View) -> Bytes {
    let tool = |spec: &ToolSpec| {
        json!({
            "name": to_wire(spec.name.as_str()),
            "description": spec.description,
            "parametersJsonSchema": spec.input.as_json(),
        })
    };
    let declarations: Vec<Value> = view.specs().map(tool).collect();
    json!([{ "functionDeclarations": declarations }])
        .to_string()
        .into()
}

fn tool_config(choice: &ToolChoice) -> Option<Value> {
    let calling = match choice {
        ToolChoice::Auto => return None,
        ToolChoice::None => json!({ "mode": "NONE" }),
        ToolChoice::Required => json!({ "mode": "ANY" }),
        ToolChoice::Named(tool) => {
            json!({ "mode": "ANY", "allowedFunctionNames": [to_wire(tool.as_str())] })
        }
    };
    Some(json!({ "functionCallingConfig": calling }))
}

/// A message. `nested` says whether results may hold pictures and calls have to be signed.
fn content(message: &Message, nested: bool) -> Bytes {
    let role = if message.role == Role::Assistant {
        "model"
    } else {
        "user"
    };
    let mut parts: Vec<Value> = message
        .parts
        .iter()
        .filter_map(|one| part(one, nested))
        .collect();
    if nested {
        sign(message, &mut parts);
    } else {
        parts.extend(
            message
                .parts
                .iter()
                .filter_map(answer)
                .flat_map(|answer| &answer.media)
                .map(media_part),
        );
    }
    match parts.is_empty() {
        true => Bytes::new(),
        false => fragment([json!({ "role": role, "parts": parts })]),
    }
}

/// Says of the first call that another model made that it has no signature.
fn sign(message: &Message, parts: &mut [Value]) {
    let ours = message.parts.iter().any(|part| part.native(WIRE).is_some());
    let first = parts
        .iter_mut()
        .find(|part| part.get("functionCall").is_some())
        .filter(|_| !ours);
    if let Some(call) = first {
        call["thoughtSignature"] = NO_SIGNATURE.into();
    }
}

fn part(part: &Part, nested: bool) -> Option<Value> {
    if let Some(native) = part.native(WIRE) {
        return Some(native.clone());
    }
    match &part.content {
        Content::Text(text) if text.is_empty() => None,
        Content::Text(text) => Some(json!({ "text": text })),
        Content::Call(request) => Some(json!({ "functionCall": function_call(request) })),
        Content::Result(answer) => {
            Some(json!({ "functionResponse": function_response(answer, nested) }))
        }
        Content::Media(media) => Some(media_part(media)),
        // Only the provider that it came from can read it.
        Content::Reasoning(_) | Content::Ran(_) | Content::Opaque => None,
    }
}

fn answer(part: &Part) -> Option<&ToolAnswer> {
    match &part.content {
        Content::Result(answer) => Some(answer),
        _ => None,
    }
}

/// The id that we give to a call that came without one.
pub(super) fn our_id(number: usize) -> String {
    format!("{OUR_IDS}{number}")
}

/// The number in an id that we gave.
pub(super) fn our_number(id: &str) -> Option<usize> {
    let number = id.strip_prefix(OUR_IDS)?;
    number
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| number.parse().ok())
        .flatten()
}

/// The id of a call as the provider knows it.
fn known_id(id: &str) -> Option<&str> {
    Some(id).filter(|id| !id.is_empty() && our_number(id).is_none())
}

fn function_call(request: &ToolRequest) -> Value {
    let mut call = json!({ "name": to_wire(&request.tool), "args": object(&request.arguments) });
    if let Some(id) = known_id(&request.provider_call_id) {
        call["id"] = id.into();
    }
    call
}

fn function_response(answer: &ToolAnswer, nested: bool) -> Value {
    let key = if answer.is_error { "error" } else { "output" };
    let mut response = json!({ "name": to_wire(&answer.tool), "response": { key: answer.text } });
    if let Some(id) = known_id(&answer.call_id) {
        response["id"] = id.into();
    }
    if nested && !answer.media.is_empty() {
        response["parts"] = answer.media.iter().map(media_part).collect();
    }
    response
}

fn media_part(media: &Media) -> Value {
    match &media.source {
        MediaSource::Data(data) => {
            json!({ "inlineData": { "mimeType": media.media_type, "data": data } })
        }
        MediaSource::Url(url) => {
            json!({ "fileData": { "mimeType": media.media_type, "fileUri": url } })
        }
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
