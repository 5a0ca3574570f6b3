//! Encodes requests for Anthropic's messages API.

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use serde_json::{Map, Value, json};
use toolgate_core::{
    Effort, Media, MediaSource, Message, MessagePart, ModelRequest, PartContent, Role, Schema,
    ToolAnswer, ToolChoice, ToolSpec, View,
};

use super::{Anthropic, Thinking, WIRE, schema::enforceable_schema};
use crate::{
    providers::{
        foreign_call::arguments_as_object, openai_shared::describe_media, tool_names::NameRule,
    },
    wire::body::{BodyChunks, JsonBody, encode_items},
};

/// The rule for names of tools.
pub(crate) const NAMES: NameRule = NameRule { longest: 128 };

/// The default limit on output tokens: what every current model supports.
const DEFAULT_MAX_TOKENS: u32 = 32_000;
/// The smallest thinking budget that the API accepts.
const MIN_THINKING_BUDGET: u32 = 1024;

impl Anthropic {
    pub(super) fn encode_request(&self, request: &ModelRequest) -> BodyChunks {
        let mut body = JsonBody::new(&request.extra);
        let marker = request.cache.then(|| json!({ "type": "ephemeral" }));
        body.write_field("model", &*self.endpoint.name().model);
        body.write_field("stream", &true);
        let max_tokens = request.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS);
        body.write_field("max_tokens", &max_tokens);
        if let Some(instructions) = request
            .instructions
            .as_deref()
            .filter(|text| !text.trim().is_empty())
        {
            body.write_field(
                "system",
                &[with_cache_marker(
                    json!({ "type": "text", "text": instructions }),
                    marker.as_ref(),
                )],
            );
        }
        if !request.view.is_empty() {
            let tools = self.tools[usize::from(request.cache)]
                .get_or_encode(&request.view, |view| encode_tools(view, marker.as_ref()));
            body.write_list("tools", [tools]);
            body.write_optional("tool_choice", tool_choice(request));
        }
        body.write_optional(
            "thinking",
            self.thinking.thinking_config(request, max_tokens),
        );
        body.write_optional("output_config", output_config(request, self.thinking));
        // The API marks the last block itself, so that encoded messages can be reused as they are.
        body.write_optional("cache_control", marker);
        body.write_spliced("messages", encode_messages(&request.messages));
        body.finish()
    }
}

fn with_cache_marker(mut block: Value, marker: Option<&Value>) -> Value {
    if let (Some(fields), Some(marker)) = (block.as_object_mut(), marker) {
        fields.insert("cache_control".to_owned(), marker.clone());
    }
    block
}

fn encode_tools(view: &View, marker: Option<&Value>) -> Bytes {
    let last = view.len().saturating_sub(1);
    let tools = list_tools(view).into_iter().enumerate();
    // A marker covers everything before it, and the API accepts only a few of them.
    encode_items(tools.map(|(at, told)| with_cache_marker(told, marker.filter(|_| at == last))))
}

pub(crate) fn list_tools(view: &View) -> Vec<Value> {
    let tool = |spec: &ToolSpec| {
        json!({
            "name": NAMES.to_wire(spec.name.as_str()),
            "description": spec.description,
            "input_schema": input_schema(&spec.input),
        })
    };
    view.specs().map(tool).collect()
}

/// Returns the schema of a tool. The API requires its root to be declared as an object.
pub(crate) fn input_schema(input: &Schema) -> Value {
    let mut schema = input.as_json().as_object().cloned().unwrap_or_default();
    schema.entry("type").or_insert_with(|| "object".into());
    schema.into()
}

fn tool_choice(request: &ModelRequest) -> Option<Value> {
    let one_at_a_time = request.parallel_calls == Some(false);
    let mut choice = match &request.choice {
        ToolChoice::Auto if !one_at_a_time => return None,
        ToolChoice::None => return Some(json!({ "type": "none" })),
        ToolChoice::Auto => json!({ "type": "auto" }),
        ToolChoice::Required => json!({ "type": "any" }),
        ToolChoice::Named(tool) => json!({ "type": "tool", "name": NAMES.to_wire(tool.as_str()) }),
    };
    if one_at_a_time {
        choice["disable_parallel_tool_use"] = true.into();
    }
    Some(choice)
}

impl Thinking {
    /// Turns thinking on if an effort is requested and the API accepts it.
    fn thinking_config(self, request: &ModelRequest, max_tokens: u32) -> Option<Value> {
        let forced = matches!(request.choice, ToolChoice::Required | ToolChoice::Named(_))
            && !request.view.is_empty();
        // The API rejects thinking together with a forced call.
        if forced {
            return None;
        }
        let effort = request.effort.filter(|effort| *effort != Effort::Minimal);
        let adaptive = || json!({ "type": "adaptive", "display": "summarized" });
        match self {
            Self::Adaptive => effort.map(|_| adaptive()),
            Self::Bound => {
                // These models always think, so sending the setting changes nothing else.
                let mut config = if effort.is_some() {
                    adaptive()
                } else {
                    json!({ "type": "adaptive" })
                };
                config["block_binding"] = json!({ "prefix_mismatch_behavior": "drop_block" });
                Some(config)
            }
            Self::Budget => {
                // The budget is part of `max_tokens`, so half of that is left for the answer.
                let budget = thinking_budget(effort?).min(max_tokens / 2);
                let possible =
                    budget >= MIN_THINKING_BUDGET && !calls_without_thoughts(&request.messages);
                possible.then(|| json!({ "type": "enabled", "budget_tokens": budget }))
            }
        }
    }
}

const fn thinking_budget(effort: Effort) -> u32 {
    match effort {
        Effort::Minimal | Effort::Low => 2048,
        Effort::Medium => 8192,
        Effort::High => 16_000,
    }
}

/// Checks whether the calls that are being answered came without thoughts, as from another
/// provider. Thinking by budget requires that the message with the calls begins with a thought.
fn calls_without_thoughts(window: &[std::sync::Arc<Message>]) -> bool {
    let answered = window
        .last()
        .is_some_and(|message| message.role == Role::Tool);
    let asked = window
        .iter()
        .rfind(|message| message.role == Role::Assistant);
    let first = asked
        .and_then(|message| message.parts.first())
        .and_then(|part| part.native_for(WIRE));
    let thought = first
        .is_some_and(|block| block["type"] == "thinking" || block["type"] == "redacted_thinking");
    answered && !thought
}

fn output_config(request: &ModelRequest, thinking: Thinking) -> Option<Value> {
    let mut config = Map::new();
    if let Some(output) = &request.output {
        let schema = enforceable_schema(output.schema.as_json());
        config.insert(
            "format".to_owned(),
            json!({ "type": "json_schema", "schema": schema }),
        );
    }
    if let Some(effort) = request.effort.filter(|_| thinking != Thinking::Budget) {
        let word = match effort {
            Effort::Minimal | Effort::Low => "low",
            Effort::Medium => "medium",
            Effort::High => "high",
        };
        config.insert("effort".to_owned(), word.into());
    }
    (!config.is_empty()).then(|| config.into())
}

/// Encodes the conversation. Consecutive messages of one side are joined, so that results come
/// first in the message that answers calls, whatever text follows them.
fn encode_messages(window: &[std::sync::Arc<Message>]) -> Vec<Bytes> {
    let written = window.iter().map(|message| {
        (
            wire_role(message.role),
            message.encoded_for(WIRE, encode_blocks),
        )
    });
    let written: Vec<_> = written.filter(|(_, blocks)| !blocks.is_empty()).collect();
    // Only the brackets and roles between the cached fragments are new.
    let mut pieces = vec![Bytes::from_static(b"[")];
    for (at, group) in written.chunk_by(|(a, _), (b, _)| a == b).enumerate() {
        pieces.push(Bytes::from_static(match (group[0].0, at) {
            ("user", 0) => br#"{"role":"user","content":["#,
            ("user", _) => br#",{"role":"user","content":["#,
            (_, 0) => br#"{"role":"assistant","content":["#,
            _ => br#",{"role":"assistant","content":["#,
        }));
        for (at, (_, blocks)) in group.iter().enumerate() {
            if at > 0 {
                pieces.push(Bytes::from_static(b","));
            }
            pieces.push(blocks.clone());
        }
        pieces.push(Bytes::from_static(b"]}"));
    }
    pieces.push(Bytes::from_static(b"]"));
    pieces
}

const fn wire_role(role: Role) -> &'static str {
    match role {
        Role::User | Role::Tool => "user",
        Role::Assistant => "assistant",
    }
}

fn encode_blocks(message: &Message) -> Bytes {
    encode_items(
        message
            .parts
            .iter()
            .filter_map(|part| encode_block(message.role, part)),
    )
}

fn encode_block(role: Role, part: &MessagePart) -> Option<Value> {
    if let Some(native) = part.native_for(WIRE) {
        // The model may send an empty block of text, but the API rejects one in a request.
        return (native["type"] != "text" || !is_blank(&native["text"])).then(|| native.clone());
    }
    match &part.content {
        PartContent::Text(said) => text_block(said),
        PartContent::Call(request) => Some(json!({
            "type": "tool_use",
            "id": wire_call_id(&request.provider_call_id),
            "name": NAMES.to_wire(&request.tool),
            "input": arguments_as_object(&request.arguments),
        })),
        PartContent::Result(answer) => Some(result_block(answer)),
        // The API accepts images and documents only from the user.
        PartContent::Media(media) if role == Role::Assistant => text_block(&describe_media(media)),
        PartContent::Media(media) => Some(media_block(media)),
        // Only the provider that sent it can read it.
        PartContent::Reasoning(_) | PartContent::Ran(_) | PartContent::Opaque => None,
    }
}

fn is_blank(text: &Value) -> bool {
    text.as_str().is_none_or(|text| text.trim().is_empty())
}

fn text_block(text: &str) -> Option<Value> {
    (!text.trim().is_empty()).then(|| json!({ "type": "text", "text": text }))
}

/// Returns an id that the API accepts: other providers use other characters, and some send no id.
fn wire_call_id(id: &str) -> String {
    let fits = |c: char| {
        if c.is_ascii_alphanumeric() || c == '_' || c == '-' {
            c
        } else {
            '_'
        }
    };
    if id.is_empty() {
        "call".to_owned()
    } else {
        id.chars().map(fits).collect()
    }
}

fn result_block(answer: &ToolAnswer) -> Value {
    let mut block = json!({ "type": "tool_result", "tool_use_id": wire_call_id(&answer.call_id) });
    if answer.media.is_empty() {
        block["content"] = answer.text.as_str().into();
    } else {
        let media = answer.media.iter().map(media_block);
        block["content"] = text_block(&answer.text).into_iter().chain(media).collect();
    }
    if answer.is_error {
        block["is_error"] = true.into();
    }
    block
}

fn media_block(media: &Media) -> Value {
    const IMAGES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];
    let kind = media.media_type.as_str();
    let source = match &media.source {
        MediaSource::Url(url) => json!({ "type": "url", "url": url }),
        MediaSource::Data(data) => json!({ "type": "base64", "media_type": kind, "data": data }),
    };
    if IMAGES.contains(&kind) {
        return json!({ "type": "image", "source": source });
    }
    let source = match &media.source {
        _ if kind == "application/pdf" => Some(source),
        MediaSource::Data(data) if kind.starts_with("text/") => plain_text_source(data),
        _ => None,
    };
    match source {
        Some(source) => with_title(json!({ "type": "document", "source": source }), media),
        None => json!({ "type": "text", "text": describe_media(media) }),
    }
}

fn with_title(mut document: Value, media: &Media) -> Value {
    if let Some(name) = &media.name {
        document["title"] = name.as_str().into();
    }
    document
}

fn plain_text_source(base64: &str) -> Option<Value> {
    let text = String::from_utf8(BASE64_STANDARD.decode(base64).ok()?).ok()?;
    (!text.trim().is_empty())
        .then(|| json!({ "type": "text", "media_type": "text/plain", "data": text }))
}

#[cfg(test)]
mod tests;
