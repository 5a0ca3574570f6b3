//! What Anthropic's messages stream back.

use std::{collections::BTreeMap, mem};

use serde::Deserialize;
use serde_json::{Map, Value};
use toolgate_core::{
    Content, Delta, Finish, Message, ModelErrorKind, ModelRequest, Part, ProviderCall,
    RawArguments, Reply, Role, ToolRequest, Usage, View,
};

use super::{WIRE, request::NAMES};
use crate::{
    errors::Failure,
    exchange::{Decoder, Progress},
    foreign::object,
    sse::Event,
};

/// Puts a reply together from blocks that grow piece by piece. Blocks may grow at the same time.
#[derive(Debug)]
pub(super) struct MessageDecoder {
    view: View,
    started: bool,
    id: Option<String>,
    model: Option<String>,
    blocks: BTreeMap<u64, Block>,
    calls: usize,
    usage: Option<RawUsage>,
    finish: Option<Finish>,
    refusal: Option<String>,
}

/// A block as far as it came.
#[derive(Debug)]
struct Block {
    item: Map<String, Value>,
    /// The arguments of a call, as text.
    json: String,
    /// Which call of the reply it is, if it is one.
    call: Option<usize>,
}

/// An event. What is not named here is of no concern.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Said {
    MessageStart {
        message: Start,
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
        delta: End,
        #[serde(default)]
        usage: RawUsage,
    },
    MessageStop,
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Start {
    id: Option<String>,
    model: Option<String>,
    #[serde(default)]
    usage: RawUsage,
}

#[derive(Deserialize)]
struct End {
    stop_reason: Option<String>,
    stop_details: Option<StopDetails>,
}

#[derive(Deserialize)]
struct StopDetails {
    explanation: Option<String>,
}

/// What was used so far; later counts take the place of earlier ones.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct RawUsage {
    input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    output_tokens_details: Option<OutputDetails>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct OutputDetails {
    thinking_tokens: Option<u64>,
}

impl MessageDecoder {
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

    fn start(&mut self, start: Start) {
        self.started = true;
        self.id = start.id;
        self.model = start.model;
        self.usage = Some(start.usage);
    }

    fn block_start(&mut self, index: u64, item: Map<String, Value>, deltas: &mut Vec<Delta>) {
        let mut block = Block {
            item,
            json: String::new(),
            call: None,
        };
        match block.kind() {
            "text" => deltas.extend(said(block.field("text")).map(Delta::Text)),
            "thinking" => deltas.extend(said(block.field("thinking")).map(Delta::Reasoning)),
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

    fn block_delta(
        &mut self,
        index: u64,
        delta: &Map<String, Value>,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), Failure> {
        let missing = || Failure::malformed("a piece came for a block that was not begun");
        let block = self.blocks.get_mut(&index).ok_or_else(missing)?;
        let text = |field: &str| delta.get(field).and_then(Value::as_str).unwrap_or_default();
        match text("type") {
            "text_delta" => {
                block.append("text", text("text"));
                deltas.extend(said(text("text")).map(Delta::Text));
            }
            "thinking_delta" => {
                block.append("thinking", text("thinking"));
                deltas.extend(said(text("thinking")).map(Delta::Reasoning));
            }
            "input_json_delta" => {
                block.json.push_str(text("partial_json"));
                let piece = said(text("partial_json")).zip(block.call);
                deltas.extend(piece.map(|(text, index)| Delta::Arguments { index, text }));
            }
            "signature_delta" => drop(
                block
                    .item
                    .insert("signature".to_owned(), text("signature").into()),
            ),
            "citations_delta" => block.cite(delta.get("citation")),
            _ => block.merge(delta),
        }
        Ok(())
    }

    fn end(&mut self, end: End, usage: RawUsage) {
        self.usage = Some(self.usage.unwrap_or_default().then(usage));
        let Some(reason) = end.stop_reason else {
            return;
        };
        if reason == "refusal" {
            let explanation = end.stop_details.and_then(|details| details.explanation);
            self.refusal =
                Some(explanation.unwrap_or_else(|| "the model refuses to answer this".to_owned()));
        }
        self.finish = Some(match reason.as_str() {
            "end_turn" | "stop_sequence" => Finish::Stop,
            "tool_use" => Finish::Calls,
            "max_tokens" | "model_context_window_exceeded" => Finish::Length,
            "refusal" => Finish::Filtered,
            "pause_turn" => Finish::Paused,
            _ => Finish::Other,
        });
    }

    /// Blocks in order. What came of a call that the provider made is told with the call.
    fn parts(&mut self) -> Vec<Part> {
        let blocks: Vec<Block> = mem::take(&mut self.blocks).into_values().collect();
        let results: BTreeMap<String, Value> = blocks.iter().filter_map(Block::result).collect();
        let asked: Vec<String> = blocks
            .iter()
            .filter(|block| block.ran())
            .map(|block| block.field("id").to_owned())
            .collect();
        blocks
            .into_iter()
            .map(|block| block.part(&self.view, &results, &asked))
            .collect()
    }
}

impl Decoder for MessageDecoder {
    fn event(&mut self, event: Event, deltas: &mut Vec<Delta>) -> Result<Progress, Failure> {
        let unreadable = |_| Failure::malformed("an event is not what the API describes");
        let value: Value = serde_json::from_str(&event.data).map_err(unreadable)?;
        if value["type"] == "error" {
            return Err(Failure::from_value(&value));
        }
        match Said::deserialize(value).map_err(unreadable)? {
            Said::MessageStart { message } => self.start(message),
            Said::ContentBlockStart {
                index,
                content_block,
            } => self.block_start(index, content_block, deltas),
            Said::ContentBlockDelta { index, delta } => self.block_delta(index, &delta, deltas)?,
            Said::MessageDelta { delta, usage } => self.end(delta, usage),
            Said::MessageStop if self.started => return Ok(Progress::Whole),
            Said::MessageStop => return Err(Failure::malformed("the reply ended before it began")),
            Said::Other => {}
        }
        Ok(Progress::More)
    }

    fn reply(&mut self) -> Result<Reply, Failure> {
        if let (true, Some(why)) = (self.blocks.is_empty(), self.refusal.take()) {
            return Err(Failure::new(ModelErrorKind::Refused, why));
        }
        let message = Message::new(Role::Assistant, self.parts());
        Ok(Reply {
            message,
            usage: self.usage.map(Usage::from),
            finish: self.finish.unwrap_or(Finish::Other),
            model: self.model.take(),
            id: self.id.take(),
        })
    }
}

impl Block {
    fn kind(&self) -> &str {
        self.field("type")
    }

    fn field(&self, name: &str) -> &str {
        self.item
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// Whether the provider makes this call itself.
    fn ran(&self) -> bool {
        self.call.is_none() && self.kind().ends_with("_tool_use")
    }

    /// What came of a call that the provider made, by its id.
    fn result(&self) -> Option<(String, Value)> {
        let content = self.item.get("content").cloned().unwrap_or_default();
        self.kind()
            .ends_with("_tool_result")
            .then(|| (self.field("tool_use_id").to_owned(), content))
    }

    fn append(&mut self, field: &str, piece: &str) {
        match self.item.get_mut(field) {
            Some(Value::String(text)) => text.push_str(piece),
            _ => drop(self.item.insert(field.to_owned(), piece.into())),
        }
    }

    fn cite(&mut self, citation: Option<&Value>) {
        let Some(citation) = citation else { return };
        match self.item.get_mut("citations") {
            Some(Value::Array(all)) => all.push(citation.clone()),
            _ => drop(
                self.item
                    .insert("citations".to_owned(), vec![citation.clone()].into()),
            ),
        }
    }

    /// Takes a piece of a kind that is not known yet: texts grow, everything else is as it was said last.
    fn merge(&mut self, delta: &Map<String, Value>) {
        for (field, value) in delta.iter().filter(|(field, _)| *field != "type") {
            match value {
                Value::String(piece) => self.append(field, piece),
                other => drop(self.item.insert(field.clone(), other.clone())),
            }
        }
    }

    /// The arguments as text. A call without any comes with an empty object and no pieces.
    fn arguments(&self) -> RawArguments {
        RawArguments::Text(match self.json.is_empty() {
            true => self
                .item
                .get("input")
                .map_or_else(|| "{}".to_owned(), Value::to_string),
            false => self.json.clone(),
        })
    }

    fn part(mut self, view: &View, results: &BTreeMap<String, Value>, asked: &[String]) -> Part {
        let arguments = self.arguments();
        if !self.json.is_empty() {
            self.item.insert("input".to_owned(), object(&arguments));
        }
        let content = match self.kind() {
            "text" => Content::Text(self.field("text").to_owned()),
            "thinking" => Content::Reasoning(self.field("thinking").to_owned()),
            "tool_use" => Content::Call(ToolRequest {
                provider_call_id: self.field("id").to_owned(),
                tool: NAMES.from_wire(view, self.field("name")),
                arguments,
            }),
            _ if self.ran() => Content::Ran(self.provider_call(results)),
            _ => match self.result() {
                // The call itself was in an earlier reply.
                Some((id, result)) if !asked.contains(&id) => {
                    Content::Ran(earlier_call(self.kind(), id, result))
                }
                _ => Content::Opaque,
            },
        };
        Part::from(content).with_native(WIRE, self.item.into())
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

/// A piece that says something.
fn said(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

impl RawUsage {
    /// The counts after more of them came.
    fn then(self, later: Self) -> Self {
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

impl From<RawUsage> for Usage {
    fn from(raw: RawUsage) -> Self {
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
#[path = "decode_tests.rs"]
mod tests;
