//! What Gemini streams back.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use toolgate_core::{
    Content, Delta, Finish, Media, Message, ModelErrorKind, ModelRequest, Part, ProviderCall,
    Reply, Role, ToolRequest, Usage, View,
};

use super::{
    WIRE,
    request::{from_wire, our_id, our_number},
};
use crate::{
    errors::Failure,
    exchange::{Decoder, Progress},
    sse::Event,
};

/// Puts a reply together from parts. Words come in many small ones, everything else comes whole.
#[derive(Debug)]
pub(super) struct ContentDecoder {
    view: View,
    /// The number of the first call that has no id: one that no call of the conversation has.
    number: usize,
    calls: usize,
    items: Vec<Item>,
    /// What the provider looked up, as it tells beside the parts.
    looked_up: [(&'static str, Value); 2],
    usage: Option<RawUsage>,
    finish: Option<String>,
    finish_message: Option<String>,
    model: Option<String>,
    id: Option<String>,
}

/// A part as it came, and what it is.
#[derive(Debug)]
struct Item {
    native: Map<String, Value>,
    content: Content,
}

/// A chunk; everything may be missing.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Chunk {
    candidates: Option<Vec<Candidate>>,
    prompt_feedback: Option<Feedback>,
    usage_metadata: Option<RawUsage>,
    model_version: Option<String>,
    response_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate {
    #[serde(default)]
    index: u64,
    content: Option<Parts>,
    finish_reason: Option<String>,
    finish_message: Option<String>,
    grounding_metadata: Option<Value>,
    url_context_metadata: Option<Value>,
}

#[derive(Deserialize)]
struct Parts {
    parts: Option<Vec<Map<String, Value>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Feedback {
    block_reason: Option<String>,
    block_reason_message: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawUsage {
    prompt_token_count: Option<u64>,
    tool_use_prompt_token_count: Option<u64>,
    cached_content_token_count: Option<u64>,
    candidates_token_count: Option<u64>,
    thoughts_token_count: Option<u64>,
}

impl ContentDecoder {
    pub(super) fn new(request: &ModelRequest) -> Self {
        Self {
            view: request.view.clone(),
            number: next_number(request),
            calls: 0,
            items: Vec::new(),
            looked_up: [("google_search", Value::Null), ("url_context", Value::Null)],
            usage: None,
            finish: None,
            finish_message: None,
            model: None,
            id: None,
        }
    }

    fn chunk(&mut self, chunk: Chunk, deltas: &mut Vec<Delta>) -> Result<(), Failure> {
        if let Some(Feedback {
            block_reason: Some(reason),
            block_reason_message,
        }) = chunk.prompt_feedback
        {
            let why =
                block_reason_message.unwrap_or_else(|| format!("the prompt was blocked: {reason}"));
            return Err(Failure::new(ModelErrorKind::Refused, why));
        }
        self.usage = chunk.usage_metadata.or(self.usage);
        self.model = chunk.model_version.or(self.model.take());
        self.id = chunk.response_id.or(self.id.take());
        // Others than the first are alternatives, which nobody asked for.
        for candidate in chunk
            .candidates
            .unwrap_or_default()
            .into_iter()
            .filter(|candidate| candidate.index == 0)
        {
            let parts = candidate
                .content
                .and_then(|content| content.parts)
                .unwrap_or_default();
            parts.into_iter().for_each(|part| self.part(part, deltas));
            self.finish = candidate.finish_reason.or(self.finish.take());
            self.finish_message = candidate.finish_message.or(self.finish_message.take());
            let told = [candidate.grounding_metadata, candidate.url_context_metadata];
            for (looked_up, told) in self.looked_up.iter_mut().zip(told) {
                looked_up.1 = told.unwrap_or_else(|| looked_up.1.take());
            }
        }
        Ok(())
    }

    fn part(&mut self, native: Map<String, Value>, deltas: &mut Vec<Delta>) {
        if let Some(text) = native.get("text").and_then(Value::as_str) {
            let said = (!text.is_empty()).then(|| text.to_owned());
            let thought = is_thought(&native);
            deltas.extend(said.map(if thought {
                Delta::Reasoning
            } else {
                Delta::Text
            }));
            return self.words(native, thought);
        }
        let content = match native.get("functionCall") {
            Some(call) => Content::Call(self.call(call, deltas)),
            None => self.other(&native),
        };
        self.items.push(Item { native, content });
    }

    /// Takes words. Those that go on where the last ones ended are joined to them, unless either is signed: what a
    /// signature stands for must not change.
    fn words(&mut self, native: Map<String, Value>, thought: bool) {
        let text = native
            .get("text")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        match self.items.last_mut() {
            Some(last) if is_plain(&native) && last.goes_on(thought) => last.append(&text),
            // Words that are none end many streams. The API does not take them back, unless they are signed.
            _ if is_plain(&native) && text.is_empty() => {}
            _ => {
                let content = if thought {
                    Content::Reasoning(text)
                } else {
                    Content::Text(text)
                };
                self.items.push(Item { native, content });
            }
        }
    }

    fn call(&mut self, call: &Value, deltas: &mut Vec<Delta>) -> ToolRequest {
        let id = call["id"]
            .as_str()
            .filter(|id| !id.is_empty())
            .map(str::to_owned);
        let id = id.unwrap_or_else(|| our_id(self.number + self.calls));
        let tool = from_wire(&self.view, call["name"].as_str().unwrap_or_default());
        let args = match &call["args"] {
            Value::Null => json!({}),
            args => args.clone(),
        };
        let index = self.calls;
        self.calls += 1;
        deltas.push(Delta::Call {
            index,
            id: id.clone(),
            tool: tool.clone(),
        });
        deltas.push(Delta::Arguments {
            index,
            text: args.to_string(),
        });
        ToolRequest::json(&id, &tool, args)
    }

    /// A part that is neither words nor a call of ours.
    fn other(&mut self, native: &Map<String, Value>) -> Content {
        let field = |name: &str| native.get(name);
        if let Some(code) = field("executableCode") {
            return ran("code_execution".to_owned(), code, code.clone());
        }
        if let Some(call) = field("toolCall") {
            return ran(tool_type(call), call, call["args"].clone());
        }
        if let Some(result) = field("codeExecutionResult") {
            let failed = result["outcome"]
                .as_str()
                .is_some_and(|outcome| outcome != "OUTCOME_OK");
            return self.came_of("code_execution".to_owned(), result, result.clone(), failed);
        }
        if let Some(result) = field("toolResponse") {
            return self.came_of(tool_type(result), result, result["response"].clone(), false);
        }
        match field("inlineData").map(|data| (data["mimeType"].as_str(), data["data"].as_str())) {
            Some((Some(kind), Some(data))) => Content::Media(Media::data(kind, data)),
            _ => Content::Opaque,
        }
    }

    /// Tells what came of a call that the provider made with the call, or by itself if the call was in an earlier reply.
    fn came_of(&mut self, tool: String, part: &Value, result: Value, failed: bool) -> Content {
        let id = part["id"].as_str().unwrap_or_default();
        let open = self
            .items
            .iter_mut()
            .find_map(|item| match &mut item.content {
                Content::Ran(call)
                    if call.result.is_null() && call.tool == tool && call.id == id =>
                {
                    Some(call)
                }
                _ => None,
            });
        match open {
            Some(call) => {
                (call.result, call.failed) = (result, failed);
                Content::Opaque
            }
            None => Content::Ran(ProviderCall {
                id: id.to_owned(),
                tool,
                arguments: Value::Null,
                result,
                failed,
            }),
        }
    }

    /// Why the model stopped, or why what it said is no reply.
    fn finished(&mut self) -> Result<Finish, Failure> {
        let reason = self.finish.take().unwrap_or_default();
        let said = self.items.iter().any(|item| item.says_something());
        let why = |what: &str| {
            let message = self
                .finish_message
                .as_ref()
                .map(|message| format!(": {message}"))
                .unwrap_or_default();
            format!("{what} ({reason}){message}")
        };
        Ok(match reason.as_str() {
            "STOP" if self.calls > 0 => Finish::Calls,
            "STOP" => Finish::Stop,
            "MAX_TOKENS" => Finish::Length,
            "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" | "MALFORMED_RESPONSE" => {
                return Err(Failure::malformed(why(
                    "the model wrote a call that cannot be read",
                )));
            }
            "SAFETY"
            | "RECITATION"
            | "LANGUAGE"
            | "BLOCKLIST"
            | "PROHIBITED_CONTENT"
            | "SPII"
            | "IMAGE_SAFETY"
            | "IMAGE_PROHIBITED_CONTENT"
            | "IMAGE_RECITATION" => match said {
                true => Finish::Filtered,
                false => {
                    return Err(Failure::new(
                        ModelErrorKind::Refused,
                        why("the reply was blocked"),
                    ));
                }
            },
            _ => Finish::Other,
        })
    }
}

impl Decoder for ContentDecoder {
    fn event(&mut self, event: Event, deltas: &mut Vec<Delta>) -> Result<Progress, Failure> {
        let unreadable = |_| Failure::malformed("a chunk is not what the API describes");
        let value: Value = serde_json::from_str(&event.data).map_err(unreadable)?;
        if value.get("error").is_some() {
            return Err(Failure::from_value(&value));
        }
        self.chunk(Chunk::deserialize(value).map_err(unreadable)?, deltas)?;
        Ok(Progress::More)
    }

    /// Nothing marks the end of the stream, but nothing ends without a reason either.
    fn is_whole(&self) -> bool {
        self.finish.is_some()
    }

    fn reply(&mut self) -> Result<Reply, Failure> {
        let finish = self.finished()?;
        let items = std::mem::take(&mut self.items).into_iter();
        let mut parts: Vec<Part> = items
            .map(|item| Part::from(item.content).with_native(WIRE, item.native.into()))
            .collect();
        // Told beside the parts, so it is not given back either.
        let looked_up = self
            .looked_up
            .iter_mut()
            .filter(|(_, told)| !told.is_null());
        parts.extend(looked_up.map(|(tool, told)| Part::from(looked_up_call(tool, told.take()))));
        let message = Message::new(Role::Assistant, parts);
        let usage = self.usage.map(Usage::from);
        Ok(Reply {
            message,
            usage,
            finish,
            model: self.model.take(),
            id: self.id.take(),
        })
    }
}

impl Item {
    /// Whether words of the same kind can be joined to it.
    fn goes_on(&self, thought: bool) -> bool {
        let words = matches!(self.content, Content::Text(_) | Content::Reasoning(_));
        words && is_plain(&self.native) && is_thought(&self.native) == thought
    }

    fn append(&mut self, piece: &str) {
        if let Content::Text(text) | Content::Reasoning(text) = &mut self.content {
            text.push_str(piece);
        }
        if let Some(Value::String(text)) = self.native.get_mut("text") {
            text.push_str(piece);
        }
    }

    fn says_something(&self) -> bool {
        !matches!(&self.content, Content::Text(text) | Content::Reasoning(text) if text.is_empty())
    }
}

/// The first number that is not in use. Messages may be left out, so counting calls would not do.
fn next_number(request: &ModelRequest) -> usize {
    let calls = request.messages.iter().flat_map(|message| message.calls());
    calls
        .filter_map(|call| our_number(&call.provider_call_id))
        .max()
        .map_or(0, |last| last.saturating_add(1))
}

/// Whether a part of words has nothing beside its words.
fn is_plain(native: &Map<String, Value>) -> bool {
    native
        .keys()
        .all(|field| field == "text" || field == "thought")
}

fn is_thought(native: &Map<String, Value>) -> bool {
    native.get("thought") == Some(&Value::Bool(true))
}

fn ran(tool: String, part: &Value, arguments: Value) -> Content {
    let id = part["id"].as_str().unwrap_or_default().to_owned();
    Content::Ran(ProviderCall {
        id,
        tool,
        arguments,
        result: Value::Null,
        failed: false,
    })
}

fn tool_type(part: &Value) -> String {
    part["toolType"].as_str().unwrap_or("tool").to_lowercase()
}

fn looked_up_call(tool: &str, told: Value) -> Content {
    let arguments = match &told["webSearchQueries"] {
        Value::Null => Value::Null,
        queries => json!({ "queries": queries }),
    };
    Content::Ran(ProviderCall {
        id: String::new(),
        tool: tool.to_owned(),
        arguments,
        result: told,
        failed: false,
    })
}

impl From<RawUsage> for Usage {
    fn from(raw: RawUsage) -> Self {
        let count = |count: Option<u64>| count.unwrap_or_default();
        let cached = count(raw.cached_content_token_count);
        let read =
            count(raw.prompt_token_count).saturating_add(count(raw.tool_use_prompt_token_count));
        let reasoning = count(raw.thoughts_token_count);
        Self {
            input: read.saturating_sub(cached),
            cache_read: cached,
            cache_write: 0,
            output: count(raw.candidates_token_count).saturating_add(reasoning),
            reasoning,
        }
    }
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
