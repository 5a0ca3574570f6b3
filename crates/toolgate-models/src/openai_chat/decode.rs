//! What chat completions stream back.

use std::mem;

use serde::Deserialize;
use serde_json::{Map, Value};
use toolgate_core::{
    Content, Delta, Finish, Message, ModelRequest, Part, RawArguments, Reply, Role, ToolRequest,
    Usage, View,
};

use super::request::WIRE;
use crate::{
    errors::Failure,
    exchange::{Decoder, Progress},
    openai::{NAMES, RawUsage},
    sse::Event,
};

/// Puts a reply together from chunks. Servers differ in what they send, so everything may be missing.
#[derive(Debug)]
pub(super) struct ChatDecoder {
    view: View,
    /// How many messages there are so far, for ids where the server gives none.
    said: usize,
    id: Option<String>,
    model: Option<String>,
    text: String,
    refusal: String,
    reasoning: String,
    /// What the server calls its thoughts.
    reasoning_field: &'static str,
    calls: Vec<CallSoFar>,
    finish: Option<Finish>,
    usage: Option<Usage>,
    has_choice: bool,
}

/// A call that may not be whole yet.
#[derive(Debug, Default)]
struct CallSoFar {
    number: Option<u64>,
    id: String,
    tool: String,
    arguments: String,
    /// What the server put beside the call, to be given back.
    beside: Map<String, Value>,
    announced: bool,
    /// How much of the arguments was passed on.
    passed: usize,
}

#[derive(Debug, Deserialize)]
struct Chunk {
    id: Option<String>,
    model: Option<String>,
    choices: Option<Vec<Choice>>,
    usage: Option<RawUsage>,
    error: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Choice {
    #[serde(default)]
    index: u64,
    delta: Option<ChoiceDelta>,
    finish_reason: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ChoiceDelta {
    content: Option<Value>,
    refusal: Option<String>,
    reasoning_content: Option<Value>,
    reasoning: Option<Value>,
    tool_calls: Option<Vec<CallDelta>>,
}

#[derive(Debug, Deserialize)]
struct CallDelta {
    index: Option<u64>,
    id: Option<String>,
    function: Option<FunctionDelta>,
    #[serde(flatten)]
    beside: Map<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
struct FunctionDelta {
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

    fn chunk(&mut self, chunk: Chunk, deltas: &mut Vec<Delta>) {
        self.id = self.id.take().or(chunk.id.filter(|id| !id.is_empty()));
        self.model = self
            .model
            .take()
            .or(chunk.model.filter(|model| !model.is_empty()));
        if let Some(usage) = chunk.usage {
            self.usage = Some(usage.into());
        }
        // Others than the first are alternatives, which nobody asked for.
        for choice in chunk
            .choices
            .unwrap_or_default()
            .into_iter()
            .filter(|choice| choice.index == 0)
        {
            self.has_choice = true;
            if let Some(delta) = choice.delta {
                self.delta(delta, deltas);
            }
            self.finish = choice.finish_reason.as_deref().map(finish).or(self.finish);
        }
    }

    fn delta(&mut self, delta: ChoiceDelta, deltas: &mut Vec<Delta>) {
        let thoughts = delta
            .reasoning_content
            .map(|said| ("reasoning_content", said));
        let thoughts = thoughts.or(delta.reasoning.map(|said| ("reasoning", said)));
        if let Some((field, said)) = thoughts {
            self.reasoning_field = field;
            append(&mut self.reasoning, &words(&said), deltas, Delta::Reasoning);
        }
        if let Some(content) = delta.content {
            append(
                &mut self.reasoning,
                &thinking(&content),
                deltas,
                Delta::Reasoning,
            );
            append(&mut self.text, &words(&content), deltas, Delta::Text);
        }
        if let Some(refusal) = delta.refusal {
            append(&mut self.refusal, &refusal, deltas, Delta::Text);
        }
        for call in delta.tool_calls.unwrap_or_default() {
            self.call(call, deltas);
        }
    }

    fn call(&mut self, delta: CallDelta, deltas: &mut Vec<Delta>) {
        let function = delta.function.unwrap_or_default();
        let (id, name) = (
            delta.id.unwrap_or_default(),
            function.name.unwrap_or_default(),
        );
        let index = self.place(delta.index, &id, &name);
        let own_id = self.own_id(index);
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
            Some(json) => call.arguments.push_str(&json.to_string()),
        }
        call.beside.extend(
            delta
                .beside
                .into_iter()
                .filter(|(field, _)| field != "type"),
        );
        call.pass_on(index, own_id, deltas);
    }

    /// An id for a call that has none, such as no other call of the conversation has: all providers take its characters.
    fn own_id(&self, index: usize) -> String {
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

    /// Which call a piece belongs to. Most servers number them; some send each call whole and number none or all alike.
    fn place(&mut self, number: Option<u64>, id: &str, name: &str) -> usize {
        let known = match number {
            Some(_) => self.calls.iter().rposition(|call| call.number == number),
            None if id.is_empty() && name.is_empty() => self.calls.len().checked_sub(1),
            None => self
                .calls
                .iter()
                .rposition(|call| !id.is_empty() && call.id == id),
        };
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

    fn parts(&mut self) -> Vec<Part> {
        let mut parts = Vec::new();
        if !self.reasoning.is_empty() {
            let told = mem::take(&mut self.reasoning);
            let native = Map::from_iter([(self.reasoning_field.to_owned(), told.as_str().into())]);
            parts.push(Part::from(Content::Reasoning(told)).with_native(WIRE, native.into()));
        }
        if !self.text.is_empty() {
            parts.push(Part::text(mem::take(&mut self.text)));
        }
        if !self.refusal.is_empty() {
            let refusal = mem::take(&mut self.refusal);
            let native = Map::from_iter([("refusal".to_owned(), refusal.as_str().into())]);
            parts.push(Part::text(refusal).with_native(WIRE, native.into()));
        }
        parts.extend(mem::take(&mut self.calls).into_iter().map(CallSoFar::part));
        parts
    }
}

impl Decoder for ChatDecoder {
    fn event(&mut self, event: Event, deltas: &mut Vec<Delta>) -> Result<Progress, Failure> {
        if event.data.trim() == "[DONE]" {
            return Ok(Progress::Whole);
        }
        let chunk: Chunk = serde_json::from_str(&event.data).map_err(|error| {
            Failure::malformed(format!("a chunk is not a chat completion: {error}"))
        })?;
        if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
            return Err(Failure::from_value(&error));
        }
        self.chunk(
            Chunk {
                error: None,
                ..chunk
            },
            deltas,
        );
        Ok(Progress::More)
    }

    /// Some servers leave out the last event; a reason to stop says as much.
    fn is_whole(&self) -> bool {
        self.finish.is_some()
    }

    fn reply(&mut self) -> Result<Reply, Failure> {
        if !self.has_choice {
            return Err(Failure::malformed(
                "the reply says nothing, not even that it is empty",
            ));
        }
        if let Some(nameless) = self.calls.iter().position(|call| call.tool.is_empty()) {
            return Err(Failure::malformed(format!(
                "call {nameless} of the reply names no tool"
            )));
        }
        let refused = !self.refusal.is_empty();
        let finish = if refused {
            Finish::Filtered
        } else {
            self.finish.unwrap_or(Finish::Other)
        };
        let message = Message::new(Role::Assistant, self.parts());
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
    /// Passes on what is new, once it is known which tool is meant.
    fn pass_on(&mut self, index: usize, own_id: String, deltas: &mut Vec<Delta>) {
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

    fn part(self) -> Part {
        let arguments = RawArguments::Text(self.arguments);
        let part = Part::from(Content::Call(ToolRequest {
            provider_call_id: self.id,
            tool: self.tool,
            arguments,
        }));
        match self.beside.is_empty() {
            true => part,
            false => part.with_native(WIRE, self.beside.into()),
        }
    }
}

fn append(whole: &mut String, piece: &str, deltas: &mut Vec<Delta>, delta: fn(String) -> Delta) {
    if !piece.is_empty() {
        whole.push_str(piece);
        deltas.push(delta(piece.to_owned()));
    }
}

/// The words of a content: text, or a list of parts with text.
fn words(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            .filter_map(|part| part.get("text")?.as_str())
            .collect(),
        _ => String::new(),
    }
}

/// The thoughts among the parts of a content.
fn thinking(content: &Value) -> String {
    let parts = content.as_array().map(Vec::as_slice).unwrap_or_default();
    parts
        .iter()
        .filter_map(|part| part.get("thinking"))
        .map(words)
        .collect()
}

fn finish(reason: &str) -> Finish {
    match reason {
        "stop" => Finish::Stop,
        "length" => Finish::Length,
        "tool_calls" | "function_call" => Finish::Calls,
        "content_filter" => Finish::Filtered,
        _ => Finish::Other,
    }
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
