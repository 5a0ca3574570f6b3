//! Decodes streams of Anthropic's messages API.

use std::{collections::BTreeMap, mem};

use serde::Deserialize;
use serde_json::{Map, Value};
use toolgate_core::{
    Delta, FinishReason, Message, MessagePart, ModelErrorKind, ModelRequest, PartContent,
    ProviderCall, RawArguments, Reply, Role, ToolRequest, Usage, View,
};

use super::{WIRE, request::NAMES};
use crate::{
    providers::foreign_call::arguments_as_object,
    wire::{
        errors::WireFailure,
        exchange::{DecodeProgress, ReplyDecoder},
        sse::SseEvent,
    },
};

/// Builds a reply from blocks that arrive in pieces. Blocks may be interleaved.
#[derive(Debug)]
pub(super) struct AnthropicDecoder {
    view: View,
    started: bool,
    id: Option<String>,
    model: Option<String>,
    blocks: BTreeMap<u64, BlockSoFar>,
    calls: usize,
    usage: Option<AnthropicUsage>,
    finish: Option<FinishReason>,
    refusal: Option<String>,
}

/// A block that may not be complete yet.
#[derive(Debug)]
struct BlockSoFar {
    item: Map<String, Value>,
    /// The arguments of a call, as text.
    json: String,
    /// The index of the call within the reply, if the block is a call.
    call: Option<usize>,
}

/// An event of the stream. Events that are not listed here are ignored.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum AnthropicEvent {
    MessageStart {
        message: AnthropicMessageStart,
    },
    ContentBlockStart {
        index: u64,
        content_block: Map<String, Value>,
    },
    ContentBlockDelta {
        index: u64,
        delta: Map<String, Value>,
    },
    MessageDelta {
        delta: AnthropicMessageEnd,
        #[serde(default)]
        usage: AnthropicUsage,
    },
    MessageStop,
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct AnthropicMessageStart {
    id: Option<String>,
    model: Option<String>,
    #[serde(default)]
    usage: AnthropicUsage,
}

#[derive(Deserialize)]
struct AnthropicMessageEnd {
    stop_reason: Option<String>,
    stop_details: Option<AnthropicStopDetails>,
}

#[derive(Deserialize)]
struct AnthropicStopDetails {
    explanation: Option<String>,
}

/// The token counts so far; later counts replace earlier ones.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct AnthropicUsage {
    input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    output_tokens_details: Option<AnthropicOutputDetails>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct AnthropicOutputDetails {
    thinking_tokens: Option<u64>,
}

impl AnthropicDecoder {
    pub(super) fn new(request: &ModelRequest) -> Self {
        Self {
            view: request.view.clone(),
            started: false,
            id: None,
            model: None,
            blocks: BTreeMap::new(),
            calls: 0,
            usage: None,
            finish: None,
            refusal: None,
        }
    }

    fn start_message(&mut self, start: AnthropicMessageStart) {
        self.started = true;
        self.id = start.id;
        self.model = start.model;
        self.usage = Some(start.usage);
    }

    fn start_block(&mut self, index: u64, item: Map<String, Value>, deltas: &mut Vec<Delta>) {
        let mut block = BlockSoFar {
            item,
            json: String::new(),
            call: None,
        };
        match block.kind() {
            "text" => deltas.extend(non_empty(block.field("text")).map(Delta::Text)),
            "thinking" => deltas.extend(non_empty(block.field("thinking")).map(Delta::Reasoning)),
            "tool_use" => {
                let tool = NAMES.from_wire(&self.view, block.field("name"));
                deltas.push(Delta::Call {
                    index: self.calls,
                    id: block.field("id").to_owned(),
                    tool,
                });
                block.call = Some(self.calls);
                self.calls += 1;
            }
            _ => {}
        }
        self.blocks.insert(index, block);
    }

    fn extend_block(
        &mut self,
        index: u64,
        delta: &Map<String, Value>,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), WireFailure> {
        let missing = || WireFailure::malformed("a delta arrived for a block that has not started");
        let block = self.blocks.get_mut(&index).ok_or_else(missing)?;
        let text = |field: &str| delta.get(field).and_then(Value::as_str).unwrap_or_default();
        match text("type") {
            "text_delta" => {
                block.append_text("text", text("text"));
                deltas.extend(non_empty(text("text")).map(Delta::Text));
            }
            "thinking_delta" => {
                block.append_text("thinking", text("thinking"));
                deltas.extend(non_empty(text("thinking")).map(Delta::Reasoning));
            }
            "input_json_delta" => {
                block.json.push_str(text("partial_json"));
                let piece = non_empty(text("partial_json")).zip(block.call);
                deltas.extend(piece.map(|(text, index)| Delta::Arguments { index, text }));
            }
            "signature_delta" => drop(
                block
                    .item
                    .insert("signature".to_owned(), text("signature").into()),
            ),
            "citations_delta" => block.add_citation(delta.get("citation")),
            // Unknown deltas are merged, so that new kinds of blocks can be sent back complete.
            _ => block.merge_delta(delta),
        }
        Ok(())
    }

    fn end_message(&mut self, end: AnthropicMessageEnd, usage: AnthropicUsage) {
        self.usage = Some(self.usage.unwrap_or_default().updated_with(usage));
        let Some(reason) = end.stop_reason else {
            return;
        };
        if reason == "refusal" {
            let explanation = end.stop_details.and_then(|details| details.explanation);
            self.refusal =
                Some(explanation.unwrap_or_else(|| "the model refused to answer".to_owned()));
        }
        self.finish = Some(match reason.as_str() {
            "end_turn" | "stop_sequence" => FinishReason::Stop,
            "tool_use" => FinishReason::Calls,
            "max_tokens" | "model_context_window_exceeded" => FinishReason::Length,
            "refusal" => FinishReason::Filtered,
            "pause_turn" => FinishReason::Paused,
            _ => FinishReason::Other,
        });
    }

    /// Returns the blocks in order. The result of a provider-executed call is stored with the call.
    fn take_parts(&mut self) -> Vec<MessagePart> {
        let blocks: Vec<BlockSoFar> = mem::take(&mut self.blocks).into_values().collect();
        let results: BTreeMap<String, Value> = blocks
            .iter()
            .filter_map(BlockSoFar::provider_result)
            .collect();
        // A result whose call is in this reply is stored with the call; the others stand alone.
        let asked: Vec<String> = blocks
            .iter()
            .filter(|block| block.is_provider_call())
            .map(|block| block.field("id").to_owned())
            .collect();
        blocks
            .into_iter()
            .map(|block| block.into_part(&self.view, &results, &asked))
            .collect()
    }
}

impl ReplyDecoder for AnthropicDecoder {
    fn decode_event(
        &mut self,
        event: SseEvent,
        deltas: &mut Vec<Delta>,
    ) -> Result<DecodeProgress, WireFailure> {
        let unreadable = |_| WireFailure::malformed("an event is not what the API describes");
        let value: Value = serde_json::from_str(&event.data).map_err(unreadable)?;
        if value["type"] == "error" {
            return Err(WireFailure::from_error_json(&value));
        }
        match AnthropicEvent::deserialize(value).map_err(unreadable)? {
            AnthropicEvent::MessageStart { message } => self.start_message(message),
            AnthropicEvent::ContentBlockStart {
                index,
                content_block,
            } => self.start_block(index, content_block, deltas),
            AnthropicEvent::ContentBlockDelta { index, delta } => {
                self.extend_block(index, &delta, deltas)?
            }
            AnthropicEvent::MessageDelta { delta, usage } => self.end_message(delta, usage),
            AnthropicEvent::MessageStop if self.started => return Ok(DecodeProgress::Complete),
            AnthropicEvent::MessageStop => {
                return Err(WireFailure::malformed("the reply ended before it began"));
            }
            AnthropicEvent::Other => {}
        }
        Ok(DecodeProgress::More)
    }

    fn take_reply(&mut self) -> Result<Reply, WireFailure> {
        // A refusal without content is an error; one after some content is a reply that was
        // filtered.
        if let (true, Some(why)) = (self.blocks.is_empty(), self.refusal.take()) {
            return Err(WireFailure::new(ModelErrorKind::Refused, why));
        }
        let message = Message::new(Role::Assistant, self.take_parts());
        Ok(Reply {
            message,
            usage: self.usage.map(Usage::from),
            finish: self.finish.unwrap_or(FinishReason::Other),
            model: self.model.take(),
            id: self.id.take(),
        })
    }
}

impl BlockSoFar {
    fn kind(&self) -> &str {
        self.field("type")
    }

    fn field(&self, name: &str) -> &str {
        self.item
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// Checks whether this is a provider-executed call.
    fn is_provider_call(&self) -> bool {
        self.call.is_none() && self.kind().ends_with("_tool_use")
    }

    /// Returns the id and the result of a provider-executed call.
    fn provider_result(&self) -> Option<(String, Value)> {
        let content = self.item.get("content").cloned().unwrap_or_default();
        self.kind()
            .ends_with("_tool_result")
            .then(|| (self.field("tool_use_id").to_owned(), content))
    }

    fn append_text(&mut self, field: &str, piece: &str) {
        match self.item.get_mut(field) {
            Some(Value::String(text)) => text.push_str(piece),
            _ => drop(self.item.insert(field.to_owned(), piece.into())),
        }
    }

    fn add_citation(&mut self, citation: Option<&Value>) {
        let Some(citation) = citation else { return };
        match self.item.get_mut("citations") {
            Some(Value::Array(all)) => all.push(citation.clone()),
            _ => drop(
                self.item
                    .insert("citations".to_owned(), vec![citation.clone()].into()),
            ),
        }
    }

    /// Merges a delta of an unknown type: texts are appended, other values replaced.
    fn merge_delta(&mut self, delta: &Map<String, Value>) {
        for (field, value) in delta.iter().filter(|(field, _)| *field != "type") {
            match value {
                Value::String(piece) => self.append_text(field, piece),
                other => drop(self.item.insert(field.clone(), other.clone())),
            }
        }
    }

    /// Returns the arguments as text. A call without any has an empty object and no deltas.
    fn arguments(&self) -> RawArguments {
        RawArguments::Text(if self.json.is_empty() {
            self.item
                .get("input")
                .map_or_else(|| "{}".to_owned(), Value::to_string)
        } else {
            self.json.clone()
        })
    }

    fn into_part(
        mut self,
        view: &View,
        results: &BTreeMap<String, Value>,
        asked: &[String],
    ) -> MessagePart {
        let arguments = self.arguments();
        // The block is sent back later, and it began with an empty input.
        if !self.json.is_empty() {
            self.item
                .insert("input".to_owned(), arguments_as_object(&arguments));
        }
        let content = match self.kind() {
            "text" => PartContent::Text(self.field("text").to_owned()),
            "thinking" => PartContent::Reasoning(self.field("thinking").to_owned()),
            "tool_use" => PartContent::Call(ToolRequest {
                provider_call_id: self.field("id").to_owned(),
                tool: NAMES.from_wire(view, self.field("name")),
                arguments,
            }),
            _ if self.is_provider_call() => PartContent::Ran(self.provider_call(results)),
            _ => match self.provider_result() {
                // The call itself was in an earlier reply.
                Some((id, result)) if !asked.contains(&id) => {
                    PartContent::Ran(earlier_call(self.kind(), id, result))
                }
                _ => PartContent::Opaque,
            },
        };
        MessagePart::from(content).with_native(WIRE, self.item.into())
    }

    fn provider_call(&self, results: &BTreeMap<String, Value>) -> ProviderCall {
        let id = self.field("id").to_owned();
        let result = results.get(&id).cloned().unwrap_or_default();
        let arguments = self.item.get("input").cloned().unwrap_or_default();
        ProviderCall {
            tool: self.field("name").to_owned(),
            arguments,
            failed: is_failure(&result),
            result,
            id,
        }
    }
}

fn earlier_call(kind: &str, id: String, result: Value) -> ProviderCall {
    let tool = kind.trim_end_matches("_tool_result").to_owned();
    ProviderCall {
        id,
        tool,
        arguments: Value::Null,
        failed: is_failure(&result),
        result,
    }
}

fn is_failure(result: &Value) -> bool {
    result["type"]
        .as_str()
        .is_some_and(|kind| kind.ends_with("_error"))
}

/// Returns the text unless it is empty.
fn non_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

impl AnthropicUsage {
    /// Returns the counts updated with later ones.
    fn updated_with(self, later: Self) -> Self {
        Self {
            input_tokens: later.input_tokens.or(self.input_tokens),
            cache_read_input_tokens: later
                .cache_read_input_tokens
                .or(self.cache_read_input_tokens),
            cache_creation_input_tokens: later
                .cache_creation_input_tokens
                .or(self.cache_creation_input_tokens),
            output_tokens: later.output_tokens.or(self.output_tokens),
            output_tokens_details: later.output_tokens_details.or(self.output_tokens_details),
        }
    }
}

impl From<AnthropicUsage> for Usage {
    fn from(raw: AnthropicUsage) -> Self {
        let reasoning = raw
            .output_tokens_details
            .and_then(|details| details.thinking_tokens);
        Self {
            input: raw.input_tokens.unwrap_or_default(),
            cache_read: raw.cache_read_input_tokens.unwrap_or_default(),
            cache_write: raw.cache_creation_input_tokens.unwrap_or_default(),
            output: raw.output_tokens.unwrap_or_default(),
            reasoning: reasoning.unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests;
