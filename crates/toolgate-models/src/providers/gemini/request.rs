//! Encodes requests for Gemini.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use toolgate_core::{
    Effort, Media, MediaSource, Message, MessagePart, ModelRequest, PartContent, Role, ToolAnswer,
    ToolChoice, ToolRequest, ToolSpec, View,
};

use super::{Gemini, GeminiFamily, WIRE};
use crate::{
    providers::{foreign_call::arguments_as_object, tool_names::NameRule},
    wire::body::{BodyChunks, JsonBody, encode_items},
};

const NAMES: NameRule = NameRule { longest: 63 };

/// The prefix of ids that we assign because the provider sent none.
const ASSIGNED_ID_PREFIX: &str = "gemini_";

/// The value that Google documents for calls of another model: without it, the missing signature is
/// an error.
const SKIP_SIGNATURE: &str = "skip_thought_signature_validator";

impl Gemini {
    pub(super) fn encode_request(&self, request: &ModelRequest) -> BodyChunks {
        let mut body = JsonBody::new(&request.extra);
        let has_tools = !request.view.is_empty();
        let in_words = request
            .output
            .as_ref()
            .filter(|_| has_tools && self.age != GeminiFamily::ThinkingLevel);
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
            body.write_field("systemInstruction", &json!({ "parts": instructions }));
        }
        if has_tools {
            body.write_raw(
                "tools",
                self.tools.get_or_encode(&request.view, encode_tools),
            );
            body.write_optional("toolConfig", tool_config(&request.choice));
        }
        body.write_optional(
            "generationConfig",
            self.generation_config(request, in_words.is_none()),
        );
        let contents = request.messages.iter().map(|message| match self.age {
            GeminiFamily::ThinkingLevel => {
                message.encoded_for(WIRE, |message| encode_content(message, true))
            }
            GeminiFamily::Plain | GeminiFamily::ThinkingBudget { .. } => {
                // Under a name of its own: the two families encode the same message differently,
                // and a session may switch between them.
                message.encoded_for("gemini-2", |message| encode_content(message, false))
            }
        });
        body.write_list("contents", contents);
        body.finish()
    }

    fn generation_config(&self, request: &ModelRequest, with_schema: bool) -> Option<Value> {
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
        if let Some(thinking) = request
            .effort
            .and_then(|effort| self.age.thinking_config(effort))
        {
            set("thinkingConfig", thinking);
        }
        (!config.is_empty()).then(|| config.into())
    }
}

impl GeminiFamily {
    fn thinking_config(self, effort: Effort) -> Option<Value> {
        let level = |level: &str| json!({ "includeThoughts": true, "thinkingLevel": level });
        let budget = |tokens: u32| json!({ "includeThoughts": true, "thinkingBudget": tokens });
        Some(match (self, effort) {
            (Self::Plain, _) => return None,
            (Self::ThinkingBudget { quick: true }, Effort::Minimal) => {
                json!({ "thinkingBudget": 0 })
            }
            (Self::ThinkingBudget { quick: false }, Effort::Minimal) => budget(128),
            (Self::ThinkingBudget { .. }, Effort::Low) => budget(1024),
            (Self::ThinkingBudget { .. }, Effort::Medium) => budget(8192),
            (Self::ThinkingBudget { .. }, Effort::High) => budget(24_576),
            (Self::ThinkingLevel, Effort::Minimal) => level("MINIMAL"),
            (Self::ThinkingLevel, Effort::Low) => level("LOW"),
            (Self::ThinkingLevel, Effort::Medium) => level("MEDIUM"),
            (Self::ThinkingLevel, Effort::High) => level("HIGH"),
        })
    }
}

/// Returns the name of a tool as Gemini accepts it: it begins with a letter or an underscore.
pub(super) fn to_wire_name(name: &str) -> Cow<'_, str> {
    let wire = NAMES.to_wire(name);
    if wire.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        wire
    } else {
        Cow::Owned(format!("_{wire}"))
    }
}

/// Returns the tool of the view that has this wire name, or else the wire name itself.
pub(crate) fn from_wire_name(view: &View, wire: &str) -> String {
    if view.get(wire).is_some() {
        return wire.to_owned();
    }
    let shown = view
        .specs()
        .map(|spec| spec.name.as_str())
        .find(|name| to_wire_name(name) == wire);
    shown.unwrap_or(wire).to_owned()
}

fn encode_tools(view: &View) -> Bytes {
    serde_json::to_vec(&list_tools(view))
        .expect("values are JSON")
        .into()
}

pub(crate) fn list_tools(view: &View) -> Vec<Value> {
    let tool = |spec: &ToolSpec| {
        json!({
            "name": to_wire_name(spec.name.as_str()),
            "description": spec.description,
            "parametersJsonSchema": spec.input.as_json(),
        })
    };
    let declarations: Vec<Value> = view.specs().map(tool).collect();
    vec![json!({ "functionDeclarations": declarations })]
}

fn tool_config(choice: &ToolChoice) -> Option<Value> {
    let calling = match choice {
        ToolChoice::Auto => return None,
        ToolChoice::None => json!({ "mode": "NONE" }),
        ToolChoice::Required => json!({ "mode": "ANY" }),
        ToolChoice::Named(tool) => {
            json!({ "mode": "ANY", "allowedFunctionNames": [to_wire_name(tool.as_str())] })
        }
    };
    Some(json!({ "functionCallingConfig": calling }))
}

/// Encodes a message. If `nested`, results may hold images and calls have to be signed.
fn encode_content(message: &Message, nested: bool) -> Bytes {
    let role = if message.role == Role::Assistant {
        "model"
    } else {
        "user"
    };
    let mut parts: Vec<Value> = message
        .parts
        .iter()
        .filter_map(|one| encode_part(one, nested))
        .collect();
    if nested {
        mark_unsigned(message, &mut parts);
    } else {
        parts.extend(
            message
                .parts
                .iter()
                .filter_map(tool_answer)
                .flat_map(|answer| &answer.media)
                .map(media_part),
        );
    }
    if parts.is_empty() {
        Bytes::new()
    } else {
        encode_items([json!({ "role": role, "parts": parts })])
    }
}

/// Marks the first call of a message from another model as unsigned.
fn mark_unsigned(message: &Message, parts: &mut [Value]) {
    let ours = message
        .parts
        .iter()
        .any(|part| part.native_for(WIRE).is_some());
    let first = parts
        .iter_mut()
        .find(|part| part.get("functionCall").is_some())
        .filter(|_| !ours);
    if let Some(call) = first {
        call["thoughtSignature"] = SKIP_SIGNATURE.into();
    }
}

fn encode_part(part: &MessagePart, nested: bool) -> Option<Value> {
    if let Some(native) = part.native_for(WIRE) {
        return Some(native.clone());
    }
    match &part.content {
        PartContent::Text(text) if text.is_empty() => None,
        PartContent::Text(text) => Some(json!({ "text": text })),
        PartContent::Call(request) => Some(json!({ "functionCall": function_call(request) })),
        PartContent::Result(answer) => {
            Some(json!({ "functionResponse": function_response(answer, nested) }))
        }
        PartContent::Media(media) => Some(media_part(media)),
        // Only the provider that sent it can read it.
        PartContent::Reasoning(_) | PartContent::Ran(_) | PartContent::Opaque => None,
    }
}

fn tool_answer(part: &MessagePart) -> Option<&ToolAnswer> {
    match &part.content {
        PartContent::Result(answer) => Some(answer),
        _ => None,
    }
}

/// Returns the id that we assign to a call without one.
pub(super) fn assigned_id(number: usize) -> String {
    format!("{ASSIGNED_ID_PREFIX}{number}")
}

/// Returns the number in an id that we assigned.
pub(super) fn assigned_number(id: &str) -> Option<usize> {
    let number = id.strip_prefix(ASSIGNED_ID_PREFIX)?;
    number
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| number.parse().ok())
        .flatten()
}

/// Returns the id of a call if the provider assigned it.
fn provider_id(id: &str) -> Option<&str> {
    Some(id).filter(|id| !id.is_empty() && assigned_number(id).is_none())
}

fn function_call(request: &ToolRequest) -> Value {
    let mut call = json!({ "name": to_wire_name(&request.tool), "args": arguments_as_object(&request.arguments) });
    // The provider has never seen an id that we assigned; such calls are matched by name and order.
    if let Some(id) = provider_id(&request.provider_call_id) {
        call["id"] = id.into();
    }
    call
}

fn function_response(answer: &ToolAnswer, nested: bool) -> Value {
    let key = if answer.is_error { "error" } else { "output" };
    let mut response =
        json!({ "name": to_wire_name(&answer.tool), "response": { key: answer.text } });
    if let Some(id) = provider_id(&answer.call_id) {
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
mod tests;
