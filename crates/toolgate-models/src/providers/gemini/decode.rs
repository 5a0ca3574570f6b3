//! Decodes streams of Gemini.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use toolgate_core::{
    Delta, FinishReason, Media, Message, MessagePart, ModelErrorKind, ModelRequest, PartContent,
    ProviderCall, Reply, Role, ToolRequest, Usage, View,
};

use super::{
    WIRE,
    request::{assigned_id, assigned_number, from_wire_name},
};
use crate::wire::{
    errors::WireFailure,
    exchange::{DecodeProgress, ReplyDecoder},
    sse::SseEvent,
};

/// Builds a reply from parts. Text arrives in many small parts, everything else arrives complete.
#[derive(Debug)]
pub(super) struct GeminiDecoder {
    view: View,
    /// The number of the first call without an id: one that no call of the conversation uses.
    number: usize,
    calls: usize,
    items: Vec<GeminiItem>,
    /// Searches and pages that the provider looked up, as reported beside the parts.
    looked_up: [(&'static str, Value); 2],
    usage: Option<GeminiUsage>,
    finish: Option<String>,
    finish_message: Option<String>,
    model: Option<String>,
    id: Option<String>,
}

/// A part as it came, and its decoded content.
#[derive(Debug)]
struct GeminiItem {
    native: Map<String, Value>,
    content: PartContent,
}

/// A chunk of the stream; every field may be missing.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiChunk {
    candidates: Option<Vec<GeminiCandidate>>,
    prompt_feedback: Option<PromptFeedback>,
    usage_metadata: Option<GeminiUsage>,
    model_version: Option<String>,
    response_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiCandidate {
    #[serde(default)]
    index: u64,
    content: Option<GeminiContent>,
    finish_reason: Option<String>,
    finish_message: Option<String>,
    grounding_metadata: Option<Value>,
    url_context_metadata: Option<Value>,
}

#[derive(Deserialize)]
struct GeminiContent {
    parts: Option<Vec<Map<String, Value>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PromptFeedback {
    block_reason: Option<String>,
    block_reason_message: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct GeminiUsage {
    prompt_token_count: Option<u64>,
    tool_use_prompt_token_count: Option<u64>,
    cached_content_token_count: Option<u64>,
    candidates_token_count: Option<u64>,
    thoughts_token_count: Option<u64>,
}

impl GeminiDecoder {
    pub(super) fn new(request: &ModelRequest) -> Self {
        Self {
            view: request.view.clone(),
            number: next_free_number(request),
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

    fn decode_chunk(
        &mut self,
        chunk: GeminiChunk,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), WireFailure> {
        if let Some(PromptFeedback {
            block_reason: Some(reason),
            block_reason_message,
        }) = chunk.prompt_feedback
        {
            let why =
                block_reason_message.unwrap_or_else(|| format!("the prompt was blocked: {reason}"));
            return Err(WireFailure::new(ModelErrorKind::Refused, why));
        }
        // Later counts replace earlier ones.
        self.usage = chunk.usage_metadata.or(self.usage);
        self.model = chunk.model_version.or(self.model.take());
        self.id = chunk.response_id.or(self.id.take());
        // Candidates after the first are alternatives, which were not requested.
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
            parts
                .into_iter()
                .for_each(|part| self.decode_part(part, deltas));
            self.finish = candidate.finish_reason.or(self.finish.take());
            self.finish_message = candidate.finish_message.or(self.finish_message.take());
            let told = [candidate.grounding_metadata, candidate.url_context_metadata];
            for (looked_up, told) in self.looked_up.iter_mut().zip(told) {
                looked_up.1 = told.unwrap_or_else(|| looked_up.1.take());
            }
        }
        Ok(())
    }

    fn decode_part(&mut self, native: Map<String, Value>, deltas: &mut Vec<Delta>) {
        if let Some(text) = native.get("text").and_then(Value::as_str) {
            let said = (!text.is_empty()).then(|| text.to_owned());
            let thought = is_thought(&native);
            deltas.extend(said.map(if thought {
                Delta::Reasoning
            } else {
                Delta::Text
            }));
            return self.add_text(native, thought);
        }
        let content = match native.get("functionCall") {
            Some(call) => PartContent::Call(self.decode_call(call, deltas)),
            None => self.decode_other(&native),
        };
        self.items.push(GeminiItem { native, content });
    }

    /// Adds text. It is joined to the text before it, unless either is signed: the content that a
    /// signature covers must not change.
    fn add_text(&mut self, native: Map<String, Value>, thought: bool) {
        let text = native
            .get("text")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        match self.items.last_mut() {
            Some(last) if is_unsigned(&native) && last.can_extend(thought) => {
                last.append_text(&text)
            }
            // Many streams end with an empty text. The API rejects it in a request, unless it is
            // signed.
            _ if is_unsigned(&native) && text.is_empty() => {}
            _ => {
                let content = if thought {
                    PartContent::Reasoning(text)
                } else {
                    PartContent::Text(text)
                };
                self.items.push(GeminiItem { native, content });
            }
        }
    }

    fn decode_call(&mut self, call: &Value, deltas: &mut Vec<Delta>) -> ToolRequest {
        let id = call["id"]
            .as_str()
            .filter(|id| !id.is_empty())
            .map(str::to_owned);
        let id = id.unwrap_or_else(|| assigned_id(self.number + self.calls));
        let tool = from_wire_name(&self.view, call["name"].as_str().unwrap_or_default());
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
        ToolRequest::from_json(&id, &tool, args)
    }

    /// Decodes a part that is neither text nor a call for us.
    fn decode_other(&mut self, native: &Map<String, Value>) -> PartContent {
        let field = |name: &str| native.get(name);
        if let Some(code) = field("executableCode") {
            return provider_call("code_execution".to_owned(), code, code.clone());
        }
        if let Some(call) = field("toolCall") {
            return provider_call(tool_type(call), call, call["args"].clone());
        }
        if let Some(result) = field("codeExecutionResult") {
            let failed = result["outcome"]
                .as_str()
                .is_some_and(|outcome| outcome != "OUTCOME_OK");
            return self.attach_result("code_execution".to_owned(), result, result.clone(), failed);
        }
        if let Some(result) = field("toolResponse") {
            return self.attach_result(
                tool_type(result),
                result,
                result["response"].clone(),
                false,
            );
        }
        match field("inlineData").map(|data| (data["mimeType"].as_str(), data["data"].as_str())) {
            Some((Some(kind), Some(data))) => PartContent::Media(Media::from_base64(kind, data)),
            _ => PartContent::Opaque,
        }
    }

    /// Stores the result of a provider-executed call with the call, or separately if the call was
    /// in an earlier reply.
    fn attach_result(
        &mut self,
        tool: String,
        part: &Value,
        result: Value,
        failed: bool,
    ) -> PartContent {
        let id = part["id"].as_str().unwrap_or_default();
        // Code execution may come without ids; then the first call without a result is the one that
        // ran.
        let open = self
            .items
            .iter_mut()
            .find_map(|item| match &mut item.content {
                PartContent::Ran(call)
                    if call.result.is_null() && call.tool == tool && call.id == id =>
                {
                    Some(call)
                }
                _ => None,
            });
        match open {
            Some(call) => {
                call.result = result;
                call.failed = failed;
                // Opaque and not dropped: the native part has to be sent back.
                PartContent::Opaque
            }
            None => PartContent::Ran(ProviderCall {
                id: id.to_owned(),
                tool,
                arguments: Value::Null,
                result,
                failed,
            }),
        }
    }

    /// Returns why the model stopped, or a failure if its output is not a reply.
    fn finish_reason(&mut self) -> Result<FinishReason, WireFailure> {
        let reason = self.finish.take().unwrap_or_default();
        let said = self.items.iter().any(|item| item.has_content());
        let why = |what: &str| {
            let message = self
                .finish_message
                .as_ref()
                .map(|message| format!(": {message}"))
                .unwrap_or_default();
            format!("{what} ({reason}){message}")
        };
        Ok(match reason.as_str() {
            // Gemini reports STOP after calls, too.
            "STOP" if self.calls > 0 => FinishReason::Calls,
            "STOP" => FinishReason::Stop,
            "MAX_TOKENS" => FinishReason::Length,
            "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" | "MALFORMED_RESPONSE" => {
                return Err(WireFailure::malformed(why(
                    "the model wrote a call that cannot be parsed",
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
            | "IMAGE_RECITATION" => {
                if said {
                    FinishReason::Filtered
                } else {
                    return Err(WireFailure::new(
                        ModelErrorKind::Refused,
                        why("the reply was blocked"),
                    ));
                }
            }
            _ => FinishReason::Other,
        })
    }
}

impl ReplyDecoder for GeminiDecoder {
    fn decode_event(
        &mut self,
        event: SseEvent,
        deltas: &mut Vec<Delta>,
    ) -> Result<DecodeProgress, WireFailure> {
        let unreadable = |_| WireFailure::malformed("a chunk is not what the API describes");
        let value: Value = serde_json::from_str(&event.data).map_err(unreadable)?;
        if value.get("error").is_some() {
            return Err(WireFailure::from_error_json(&value));
        }
        self.decode_chunk(GeminiChunk::deserialize(value).map_err(unreadable)?, deltas)?;
        Ok(DecodeProgress::More)
    }

    /// Checks for a finish reason: no event marks the end of the stream, but every complete reply
    /// has a reason.
    fn is_complete(&self) -> bool {
        self.finish.is_some()
    }

    fn take_reply(&mut self) -> Result<Reply, WireFailure> {
        let finish = self.finish_reason()?;
        let items = std::mem::take(&mut self.items).into_iter();
        let mut parts: Vec<MessagePart> = items
            .map(|item| MessagePart::from(item.content).with_native(WIRE, item.native.into()))
            .collect();
        // Reported beside the parts, so it has no native form to send back.
        let looked_up = self
            .looked_up
            .iter_mut()
            .filter(|(_, told)| !told.is_null());
        parts.extend(
            looked_up.map(|(tool, told)| MessagePart::from(lookup_call(tool, told.take()))),
        );
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

impl GeminiItem {
    /// Checks whether text of the same kind can be joined to it.
    fn can_extend(&self, thought: bool) -> bool {
        let words = matches!(
            self.content,
            PartContent::Text(_) | PartContent::Reasoning(_)
        );
        words && is_unsigned(&self.native) && is_thought(&self.native) == thought
    }

    fn append_text(&mut self, piece: &str) {
        if let PartContent::Text(text) | PartContent::Reasoning(text) = &mut self.content {
            text.push_str(piece);
        }
        if let Some(Value::String(text)) = self.native.get_mut("text") {
            text.push_str(piece);
        }
    }

    fn has_content(&self) -> bool {
        !matches!(&self.content, PartContent::Text(text) | PartContent::Reasoning(text) if text.is_empty())
    }
}

/// Returns the first number that is not in use. Messages may be dropped from the window, so
/// counting calls would not do.
fn next_free_number(request: &ModelRequest) -> usize {
    let calls = request.messages.iter().flat_map(|message| message.calls());
    calls
        .filter_map(|call| assigned_number(&call.provider_call_id))
        .max()
        .map_or(0, |last| last.saturating_add(1))
}

/// Checks whether a text part has no fields beside its text.
fn is_unsigned(native: &Map<String, Value>) -> bool {
    native
        .keys()
        .all(|field| field == "text" || field == "thought")
}

fn is_thought(native: &Map<String, Value>) -> bool {
    native.get("thought") == Some(&Value::Bool(true))
}

fn provider_call(tool: String, part: &Value, arguments: Value) -> PartContent {
    let id = part["id"].as_str().unwrap_or_default().to_owned();
    PartContent::Ran(ProviderCall {
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

fn lookup_call(tool: &str, told: Value) -> PartContent {
    let arguments = match &told["webSearchQueries"] {
        Value::Null => Value::Null,
        queries => json!({ "queries": queries }),
    };
    PartContent::Ran(ProviderCall {
        id: String::new(),
        tool: tool.to_owned(),
        arguments,
        result: told,
        failed: false,
    })
}

impl From<GeminiUsage> for Usage {
    fn from(raw: GeminiUsage) -> Self {
        // Gemini includes cached tokens in the prompt but counts thoughts beside the candidates.
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
mod tests;
