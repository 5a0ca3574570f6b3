//! What Anthropic's messages are asked with.

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use serde_json::{Map, Value, json};
use toolgate_core::{
    Content, Effort, Media, MediaSource, Message, ModelRequest, Part, Role, ToolAnswer, ToolChoice,
    ToolSpec, View,
};

use super::{Anthropic, Thinking, WIRE, schema::enforceable};
use crate::{
    body::{Chunks, JsonBody, fragment},
    foreign::object,
    names::NameRule,
    openai::mention,
};

/// What the API takes as names of tools.
pub(super) const NAMES: NameRule = NameRule { longest: 128 };

/// How much a model may write if nobody says: what every current model can.
const MAX_TOKENS: u32 = 32_000;
/// The least that the API takes as a budget for thinking.
const LEAST_BUDGET: u32 = 1024;

impl Anthropic {
    pub(super) fn body(&self, request: &ModelRequest) -> Chunks {
        let mut body = JsonBody::new(&request.extra);
        let marker = request.cache.then(|| json!({ "type": "ephemeral" }));
        body.field("model", &*self.endpoint.name().model);
        body.field("stream", &true);
        let max_tokens = request.max_tokens.unwrap_or(MAX_TOKENS);
        body.field("max_tokens", &max_tokens);
        if let Some(instructions) = request
            .instructions
            .as_deref()
            .filter(|text| !text.trim().is_empty())
        {
            body.field(
                "system",
                &[marked(
                    json!({ "type": "text", "text": instructions }),
                    marker.as_ref(),
                )],
            );
        }
        if !request.view.is_empty() {
            let tools = self.tools[usize::from(request.cache)]
                .get(&request.view, |view| tools(view, marker.as_ref()));
            body.list("tools", [tools]);
            body.optional("tool_choice", tool_choice(request));
        }
        body.optional("thinking", self.thinking.config(request, max_tokens));
        body.optional("output_config", output_config(request, self.thinking));
        // The API marks the last block itself, so that what was written of the messages stays as it is.
        body.optional("cache_control", marker);
        body.spliced("messages", messages(&request.messages));
        body.finish()
    }
}

fn marked(mut block: Value, marker: Option<&Value>) -> Value {
    if let (Some(fields), Some(marker)) = (block.as_object_mut(), marker) {
        fields.insert("cache_control".to_owned(), marker.clone());
    }
    block
}

fn tools(view: &View, marker: Option<&Value>) -> Bytes {
    let last = view.len().saturating_sub(1);
    let tool = |(at, spec): (usize, &ToolSpec)| {
        let told = json!({
            "name": NAMES.to_wire(spec.name.as_str()),
            "description": spec.description,
            "input_schema": input_schema(spec),
        });
        marked(told, marker.filter(|_| at == last))
    };
    fragment(view.specs().enumerate().map(tool))
}

/// The schema of a tool. The API wants its root to say that it is an object.
fn input_schema(spec: &ToolSpec) -> Value {
    let mut schema = spec
        .input
        .as_json()
        .as_object()
        .cloned()
        .unwrap_or_default();
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
    /// Turns thinking on if an effort is asked for and the API takes it.
    fn config(self, request: &ModelRequest, max_tokens: u32) -> Option<Value> {
        let forced = matches!(request.choice, ToolChoice::Required | ToolChoice::Named(_))
            && !request.view.is_empty();
        if forced {
            return None;
        }
        let effort = request.effort.filter(|effort| *effort != Effort::Minimal);
        let adaptive = || json!({ "type": "adaptive", "display": "summarized" });
        match self {
            Self::Adaptive => effort.map(|_| adaptive()),
            Self::Bound => {
                // These models think whether or not they are told to, so telling them changes nothing else.
                let mut config = if effort.is_some() {
                    adaptive()
                } else {
                    json!({ "type": "adaptive" })
                };
                config["block_binding"] = json!({ "prefix_mismatch_behavior": "drop_block" });
                Some(config)
            }
            Self::Budget => {
                let budget = budget(effort?).min(max_tokens / 2);
                let possible = budget >= LEAST_BUDGET && !calls_without_thoughts(&request.messages);
                possible.then(|| json!({ "type": "enabled", "budget_tokens": budget }))
            }
        }
    }
}

const fn budget(effort: Effort) -> u32 {
    match effort {
        Effort::Minimal | Effort::Low => 2048,
        Effort::Medium => 8192,
        Effort::High => 16_000,
    }
}

/// Whether the calls that are being answered came without thoughts, as from another provider. To think by budget, they
/// would have to begin with some.
fn calls_without_thoughts(window: &[std::sync::Arc<Message>]) -> bool {
    let answered = window
        .last()
        .is_some_and(|message| message.role == Role::Tool);
    let asked = window
        .iter()
        .rfind(|message| message.role == Role::Assistant);
    let first = asked
        .and_then(|message| message.parts.first())
        .and_then(|part| part.native(WIRE));
    let thought = first
        .is_some_and(|block| block["type"] == "thinking" || block["type"] == "redacted_thinking");
    answered && !thought
}

fn output_config(request: &ModelRequest, thinking: Thinking) -> Option<Value> {
    let mut config = Map::new();
    if let Some(output) = &request.output {
        let schema = enforceable(output.schema.as_json());
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

/// The conversation. Messages of one side that follow one another become one, so that results come first in the message
/// that answers calls, whatever is said after them.
fn messages(window: &[std::sync::Arc<Message>]) -> Vec<Bytes> {
    let written = window
        .iter()
        .map(|message| (side(message.role), message.fragment(WIRE, blocks)));
    let written: Vec<_> = written.filter(|(_, blocks)| !blocks.is_empty()).collect();
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

const fn side(role: Role) -> &'static str {
    match role {
        Role::User | Role::Tool => "user",
        Role::Assistant => "assistant",
    }
}

fn blocks(message: &Message) -> Bytes {
    fragment(
        message
            .parts
            .iter()
            .filter_map(|part| block(message.role, part)),
    )
}

fn block(role: Role, part: &Part) -> Option<Value> {
    if let Some(native) = part.native(WIRE) {
        // The model may say nothing in a block of text, but may not be told that it did.
        return (native["type"] != "text" || !is_blank(&native["text"])).then(|| native.clone());
    }
    match &part.content {
        Content::Text(said) => text(said),
        Content::Call(request) => Some(json!({
            "type": "tool_use",
            "id": call_id(&request.provider_call_id),
            "name": NAMES.to_wire(&request.tool),
            "input": object(&request.arguments),
        })),
        Content::Result(answer) => Some(result(answer)),
        Content::Media(media) if role == Role::Assistant => text(&mention(media)),
        Content::Media(media) => Some(media_block(media)),
        // Only the provider that it came from can read it.
        Content::Reasoning(_) | Content::Ran(_) | Content::Opaque => None,
    }
}

fn is_blank(text: &Value) -> bool {
    text.as_str().is_none_or(|text| text.trim().is_empty())
}

fn text(text: &str) -> Option<Value> {
    (!text.trim().is_empty()).then(|| json!({ "type": "text", "text": text }))
}

/// An id as the API takes it: other providers have others, and some have none.
fn call_id(id: &str) -> String {
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

fn result(answer: &ToolAnswer) -> Value {
    let mut block = json!({ "type": "tool_result", "tool_use_id": call_id(&answer.call_id) });
    if answer.media.is_empty() {
        block["content"] = answer.text.as_str().into();
    } else {
        let media = answer.media.iter().map(media_block);
        block["content"] = text(&answer.text).into_iter().chain(media).collect();
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
        MediaSource::Data(data) if kind.starts_with("text/") => plain_text(data),
        _ => None,
    };
    match source {
        Some(source) => titled(json!({ "type": "document", "source": source }), media),
        None => json!({ "type": "text", "text": mention(media) }),
    }
}

fn titled(mut document: Value, media: &Media) -> Value {
    if let Some(name) = &media.name {
        document["title"] = name.as_str().into();
    }
    document
}

fn plain_text(base64: &str) -> Option<Value> {
    let text = String::from_utf8(BASE64_STANDARD.decode(base64).ok()?).ok()?;
    (!text.trim().is_empty())
        .then(|| json!({ "type": "text", "media_type": "text/plain", "data": text }))
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
