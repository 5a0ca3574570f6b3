//! Decodes streams of chat completions.

use std::mem;

use serde::Deserialize;
use serde_json::{Map, Value};
use toolgate_core::{
    Delta, FinishReason, Message, MessagePart, ModelRequest, PartContent, RawArguments, Reply,
    Role, ToolRequest, Usage, View,
};

use super::request::WIRE;
use crate::{
    providers::openai_shared::{NAMES, OpenAiUsage},
    wire::{
        errors::WireFailure,
        exchange::{DecodeProgress, ReplyDecoder},
        sse::SseEvent,
    },
};

/// Builds a reply from chunks. Servers differ in what they send, so every field may be missing.
#[derive(Debug)]
pub(super) struct ChatDecoder {
    view: View,
    /// The number of messages so far, for ids where the server sends none.
    said: usize,
    id: Option<String>,
    model: Option<String>,
    text: String,
    refusal: String,
    reasoning: String,
    /// The field in which the server sends reasoning.
    reasoning_field: &'static str,
    calls: Vec<CallSoFar>,
    finish: Option<FinishReason>,
    usage: Option<Usage>,
    has_choice: bool,
}

/// A call that may not be complete yet.
#[derive(Debug, Default)]
struct CallSoFar {
    number: Option<u64>,
    id: String,
    tool: String,
    arguments: String,
    /// Additional fields that the server sent with the call, to be sent back.
    beside: Map<String, Value>,
    announced: bool,
    /// The number of bytes of the arguments that were streamed on.
    passed: usize,
}

#[derive(Debug, Deserialize)]
struct ChatChunk {
    id: Option<String>,
    model: Option<String>,
    choices: Option<Vec<ChatChoice>>,
    usage: Option<OpenAiUsage>,
    error: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct ChatChoice {
    #[serde(default)]
    index: u64,
    delta: Option<ChatDelta>,
    finish_reason: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ChatDelta {
    content: Option<Value>,
    refusal: Option<String>,
    reasoning_content: Option<Value>,
    reasoning: Option<Value>,
    tool_calls: Option<Vec<ChatCallDelta>>,
}

#[derive(Debug, Deserialize)]
struct ChatCallDelta {
    index: Option<u64>,
    id: Option<String>,
    function: Option<ChatFunctionDelta>,
    #[serde(flatten)]
    beside: Map<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
struct ChatFunctionDelta {
    name: Option<String>,
    arguments: Option<Value>,
}

impl ChatDecoder {
    pub(super) fn new(request: &ModelRequest) -> Self {
        Self {
            view: request.view.clone(),
            said: request.messages.len(),
            id: None,
            model: None,
            text: String::new(),
            refusal: String::new(),
            reasoning: String::new(),
            reasoning_field: "reasoning_content",
            calls: Vec::new(),
            finish: None,
            usage: None,
            has_choice: false,
        }
    }

    fn decode_chunk(&mut self, chunk: ChatChunk, deltas: &mut Vec<Delta>) {
        self.id = self.id.take().or(chunk.id.filter(|id| !id.is_empty()));
        self.model = self
            .model
            .take()
            .or(chunk.model.filter(|model| !model.is_empty()));
        if let Some(usage) = chunk.usage {
            self.usage = Some(usage.into());
        }
        // Choices after the first are alternatives, which were not requested.
        for choice in chunk
            .choices
            .unwrap_or_default()
            .into_iter()
            .filter(|choice| choice.index == 0)
        {
            self.has_choice = true;
            if let Some(delta) = choice.delta {
                self.decode_delta(delta, deltas);
            }
            self.finish = choice
                .finish_reason
                .as_deref()
                .map(parse_finish)
                .or(self.finish);
        }
    }

    fn decode_delta(&mut self, delta: ChatDelta, deltas: &mut Vec<Delta>) {
        let thoughts = delta
            .reasoning_content
            .map(|said| ("reasoning_content", said));
        let thoughts = thoughts.or(delta.reasoning.map(|said| ("reasoning", said)));
        if let Some((field, said)) = thoughts {
            self.reasoning_field = field;
            append_text(
                &mut self.reasoning,
                &content_text(&said),
                deltas,
                Delta::Reasoning,
            );
        }
        if let Some(content) = delta.content {
            append_text(
                &mut self.reasoning,
                &content_reasoning(&content),
                deltas,
                Delta::Reasoning,
            );
            append_text(&mut self.text, &content_text(&content), deltas, Delta::Text);
        }
        if let Some(refusal) = delta.refusal {
            append_text(&mut self.refusal, &refusal, deltas, Delta::Text);
        }
        for call in delta.tool_calls.unwrap_or_default() {
            self.decode_call(call, deltas);
        }
    }

    fn decode_call(&mut self, delta: ChatCallDelta, deltas: &mut Vec<Delta>) {
        let function = delta.function.unwrap_or_default();
        let id = delta.id.unwrap_or_default();
        let name = function.name.unwrap_or_default();
        let index = self.call_index(delta.index, &id, &name);
        let own_id = self.generate_id(index);
        let call = &mut self.calls[index];
        if call.id.is_empty() {
            call.id = id;
        }
        if call.tool.is_empty() && !name.is_empty() {
            call.tool = NAMES.from_wire(&self.view, &name);
        }
        match function.arguments {
            None | Some(Value::Null) => {}
            Some(Value::String(text)) => call.arguments.push_str(&text),
            // Some servers send arguments as an object instead of text.
            Some(json) => call.arguments.push_str(&json.to_string()),
        }
        call.beside.extend(
            delta
                .beside
                .into_iter()
                .filter(|(field, _)| field != "type"),
        );
        call.stream_new(index, own_id, deltas);
    }

    /// Returns an id for a call that has none, unique in the conversation and made of characters
    /// that all providers accept.
    fn generate_id(&self, index: usize) -> String {
        let named: String = self
            .id
            .iter()
            .flat_map(|id| id.chars())
            .filter(char::is_ascii_alphanumeric)
            .collect();
        match named.len() {
            0 => format!("call_{}_{index}", self.said),
            length => format!("call_{}_{index}", &named[length.saturating_sub(32)..]),
        }
    }

    /// Returns the index of the call that a delta belongs to. Most servers number calls; some send
    /// each call complete and number none or all alike.
    fn call_index(&mut self, number: Option<u64>, id: &str, name: &str) -> usize {
        let known = match number {
            Some(_) => self.calls.iter().rposition(|call| call.number == number),
            // Without number, id and name, the delta can only continue the last call.
            None if id.is_empty() && name.is_empty() => self.calls.len().checked_sub(1),
            None => self
                .calls
                .iter()
                .rposition(|call| !id.is_empty() && call.id == id),
        };
        // Some servers give all calls the same number; another id means another call.
        let same = |place: &usize| {
            let call = &self.calls[*place];
            id.is_empty() || call.id.is_empty() || call.id == id
        };
        known.filter(same).unwrap_or_else(|| {
            self.calls.push(CallSoFar {
                number,
                ..CallSoFar::default()
            });
            self.calls.len() - 1
        })
    }

    fn take_parts(&mut self) -> Vec<MessagePart> {
        let mut parts = Vec::new();
        if !self.reasoning.is_empty() {
            let told = mem::take(&mut self.reasoning);
            let native = Map::from_iter([(self.reasoning_field.to_owned(), told.as_str().into())]);
            parts.push(
                MessagePart::from(PartContent::Reasoning(told)).with_native(WIRE, native.into()),
            );
        }
        if !self.text.is_empty() {
            parts.push(MessagePart::from_text(mem::take(&mut self.text)));
        }
        if !self.refusal.is_empty() {
            let refusal = mem::take(&mut self.refusal);
            let native = Map::from_iter([("refusal".to_owned(), refusal.as_str().into())]);
            parts.push(MessagePart::from_text(refusal).with_native(WIRE, native.into()));
        }
        parts.extend(
            mem::take(&mut self.calls)
                .into_iter()
                .map(CallSoFar::into_part),
        );
        parts
    }
}

impl ReplyDecoder for ChatDecoder {
    fn decode_event(
        &mut self,
        event: SseEvent,
        deltas: &mut Vec<Delta>,
    ) -> Result<DecodeProgress, WireFailure> {
        if event.data.trim() == "[DONE]" {
            return Ok(DecodeProgress::Complete);
        }
        let chunk: ChatChunk = serde_json::from_str(&event.data).map_err(|error| {
            WireFailure::malformed(format!("a chunk is not a chat completion: {error}"))
        })?;
        if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
            return Err(WireFailure::from_error_json(&error));
        }
        // Not complete at the finish reason: the chunk with the usage comes after it.
        self.decode_chunk(
            ChatChunk {
                error: None,
                ..chunk
            },
            deltas,
        );
        Ok(DecodeProgress::More)
    }

    /// Checks for a finish reason, since some servers omit the final `[DONE]` event.
    fn is_complete(&self) -> bool {
        self.finish.is_some()
    }

    fn take_reply(&mut self) -> Result<Reply, WireFailure> {
        if !self.has_choice {
            return Err(WireFailure::malformed("the reply has no choice"));
        }
        if let Some(nameless) = self.calls.iter().position(|call| call.tool.is_empty()) {
            return Err(WireFailure::malformed(format!(
                "call {nameless} of the reply names no tool"
            )));
        }
        let refused = !self.refusal.is_empty();
        let finish = if refused {
            FinishReason::Filtered
        } else {
            self.finish.unwrap_or(FinishReason::Other)
        };
        let message = Message::new(Role::Assistant, self.take_parts());
        Ok(Reply {
            message,
            usage: self.usage,
            finish,
            model: self.model.take(),
            id: self.id.take(),
        })
    }
}

impl CallSoFar {
    /// Streams what is new, once the tool is known.
    fn stream_new(&mut self, index: usize, own_id: String, deltas: &mut Vec<Delta>) {
        // The first delta names the tool, so arguments that arrive earlier are held back.
        if self.tool.is_empty() {
            return;
        }
        if !mem::replace(&mut self.announced, true) {
            if self.id.is_empty() {
                self.id = own_id;
            }
            deltas.push(Delta::Call {
                index,
                id: self.id.clone(),
                tool: self.tool.clone(),
            });
        }
        let new = &self.arguments[self.passed..];
        if !new.is_empty() {
            deltas.push(Delta::Arguments {
                index,
                text: new.to_owned(),
            });
            self.passed = self.arguments.len();
        }
    }

    fn into_part(self) -> MessagePart {
        let arguments = RawArguments::Text(self.arguments);
        let part = MessagePart::from(PartContent::Call(ToolRequest {
            provider_call_id: self.id,
            tool: self.tool,
            arguments,
        }));
        if self.beside.is_empty() {
            part
        } else {
            part.with_native(WIRE, self.beside.into())
        }
    }
}

fn append_text(
    whole: &mut String,
    piece: &str,
    deltas: &mut Vec<Delta>,
    delta: fn(String) -> Delta,
) {
    if !piece.is_empty() {
        whole.push_str(piece);
        deltas.push(delta(piece.to_owned()));
    }
}

/// Returns the text of a content: a string, or a list of parts with text.
fn content_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            .filter_map(|part| part.get("text")?.as_str())
            .collect(),
        _ => String::new(),
    }
}

/// Returns the reasoning among the parts of a content.
fn content_reasoning(content: &Value) -> String {
    let parts = content.as_array().map(Vec::as_slice).unwrap_or_default();
    parts
        .iter()
        .filter_map(|part| part.get("thinking"))
        .map(content_text)
        .collect()
}

fn parse_finish(reason: &str) -> FinishReason {
    match reason {
        "stop" => FinishReason::Stop,
        "length" => FinishReason::Length,
        "tool_calls" | "function_call" => FinishReason::Calls,
        "content_filter" => FinishReason::Filtered,
        _ => FinishReason::Other,
    }
}

#[cfg(test)]
mod tests;
