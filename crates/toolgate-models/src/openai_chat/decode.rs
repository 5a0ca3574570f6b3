//! What chat completions stream back.

use std::mem;

use serde::Deserialize;
use serde_json::{Map, Value};
use toolgate_core::{
    Content, Delta, Finish, Message, ModelRequest, Part, RawArguments, Reply, Role, ToolRequest, Usage, View,
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
        self.model = self.model.take().or(chunk.model.filter(|model| !model.is_empty()));
        if let Some(usage) = chunk.usage {
            self.usage = Some(usage.into());
        }
        // Others than the first are alternatives, which nobody asked for.
        for choice in chunk.choices.unwrap_or_default().into_iter().filter(|choice| choice.index == 0) {
            self.has_choice = true;
            if let Some(delta) = choice.delta {
                self.delta(delta, deltas);
            }
            self.finish = choice.finish_reason.as_deref().map(finish).or(self.finish);
        }
    }

    fn delta(&mut self, delta: ChoiceDelta, deltas: &mut Vec<Delta>) {
        let thoughts = delta.reasoning_content.map(|said| ("reasoning_content", said));
        let thoughts = thoughts.or(delta.reasoning.map(|said| ("reasoning", said)));
        if let Some((field, said)) = thoughts {
            self.reasoning_field = field;
            append(&mut self.reasoning, &words(&said), deltas, Delta::Reasoning);
        }
        if let Some(content) = delta.content {
            append(&mut self.reasoning, &thinking(&content), deltas, Delta::Reasoning);
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
        let (id, name) = (delta.id.unwrap_or_default(), function.name.unwrap_or_default());
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
        call.beside.extend(delta.beside.into_iter().filter(|(field, _)| field != "type"));
        call.pass_on(index, own_id, deltas);
    }

    /// An id for a call that has none, such as no other call of the conversation has: all providers take its characters.
    fn own_id(&self, index: usize) -> String {
        let named: String = self.id.iter().flat_map(|id| id.chars()).filter(char::is_ascii_alphanumeric).collect();
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
            None => self.calls.iter().rposition(|call| !id.is_empty() && call.id == id),
        };
        let same = |place: &usize| {
            let call = &self.calls[*place];
            id.is_empty() || call.id.is_empty() || call.id == id
        };
        known.filter(same).unwrap_or_else(|| {
            self.calls.push(CallSoFar { number, ..CallSoFar::default() });
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
        let chunk: Chunk = serde_json::from_str(&event.data)
            .map_err(|error| Failure::malformed(format!("a chunk is not a chat completion: {error}")))?;
        if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
            return Err(Failure::from_value(&error));
        }
        self.chunk(Chunk { error: None, ..chunk }, deltas);
        Ok(Progress::More)
    }

    /// Some servers leave out the last event; a reason to stop says as much.
    fn is_whole(&self) -> bool {
        self.finish.is_some()
    }

    fn reply(&mut self) -> Result<Reply, Failure> {
        if !self.has_choice {
            return Err(Failure::malformed("the reply says nothing, not even that it is empty"));
        }
        if let Some(nameless) = self.calls.iter().position(|call| call.tool.is_empty()) {
            return Err(Failure::malformed(format!("call {nameless} of the reply names no tool")));
        }
        let refused = !self.refusal.is_empty();
        let finish = if refused { Finish::Filtered } else { self.finish.unwrap_or(Finish::Other) };
        let message = Message::new(Role::Assistant, self.parts());
        Ok(Reply { message, usage: self.usage, finish, model: self.model.take(), id: self.id.take() })
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
            deltas.push(Delta::Call { index, id: self.id.clone(), tool: self.tool.clone() });
        }
        let new = &self.arguments[self.passed..];
        if !new.is_empty() {
            deltas.push(Delta::Arguments { index, text: new.to_owned() });
            self.passed = self.arguments.len();
        }
    }

    fn part(self) -> Part {
        let arguments = RawArguments::Text(self.arguments);
        let part = Part::from(Content::Call(ToolRequest { provider_call_id: self.id, tool: self.tool, arguments }));
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
        Value::Array(parts) => parts.iter().filter_map(|part| part.get("text")?.as_str()).collect(),
        _ => String::new(),
    }
}

/// The thoughts among the parts of a content.
fn thinking(content: &Value) -> String {
    let parts = content.as_array().map(Vec::as_slice).unwrap_or_default();
    parts.iter().filter_map(|part| part.get("thinking")).map(words).collect()
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
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn decode(chunks: &[Value]) -> (Vec<Delta>, Result<Reply, Failure>) {
        let (mut decoder, mut deltas) = (ChatDecoder::new(&ModelRequest::default()), Vec::new());
        for chunk in chunks {
            let event = Event { name: String::new(), data: chunk.to_string() };
            decoder.event(event, &mut deltas).expect("a chunk");
        }
        (deltas, decoder.reply())
    }

    fn delta(delta: Value) -> Value {
        json!({ "choices": [{ "index": 0, "delta": delta }] })
    }

    fn calls(chunks: &[Value]) -> Vec<(String, String, String)> {
        let (deltas, reply) = decode(chunks);
        let reply = reply.expect("a reply");
        let calls: Vec<_> = reply.message.calls().cloned().collect();
        for (number, call) in calls.iter().enumerate() {
            let passed = deltas.iter().filter_map(|delta| match delta {
                Delta::Arguments { index, text } if *index == number => Some(text.as_str()),
                _ => None,
            });
            assert_eq!(RawArguments::Text(passed.collect()), call.arguments, "what is streamed is what is asked for");
        }
        let text = |call: ToolRequest| match call.arguments {
            RawArguments::Text(text) => (call.provider_call_id, call.tool, text),
            RawArguments::Json(json) => (call.provider_call_id, call.tool, json.to_string()),
        };
        calls.into_iter().map(text).collect()
    }

    fn call(id: &str, tool: &str, arguments: &str) -> (String, String, String) {
        (id.to_owned(), tool.to_owned(), arguments.to_owned())
    }

    #[test]
    fn interleaved_pieces_of_calls_find_their_call() {
        let piece = |index: u64, text: &str| {
            delta(json!({ "tool_calls": [{ "index": index, "function": { "arguments": text } }] }))
        };
        let start = |index: u64, id: &str| {
            delta(
                json!({ "tool_calls": [{ "index": index, "id": id, "type": "function", "function": { "name": "t", "arguments": "" } }] }),
            )
        };
        let chunks = [start(0, "a"), start(1, "b"), piece(1, "{\"x\""), piece(0, "{"), piece(1, ":1}"), piece(0, "}")];
        assert_eq!(calls(&chunks), [call("a", "t", "{}"), call("b", "t", "{\"x\":1}")]);
    }

    #[test]
    fn whole_calls_without_numbers_are_told_apart_by_their_ids() {
        let whole = |id: &str| json!({ "id": id, "function": { "name": "t", "arguments": "{}" } });
        assert_eq!(calls(&[delta(json!({ "tool_calls": [whole("a"), whole("b")] }))]).len(), 2);
        assert_eq!(
            calls(&[delta(json!({ "tool_calls": [whole("a")] })), delta(json!({ "tool_calls": [whole("b")] }))]).len(),
            2
        );
    }

    #[test]
    fn whole_calls_that_are_all_numbered_alike_are_told_apart_by_their_ids() {
        let whole = |id: &str| {
            delta(json!({ "tool_calls": [{ "index": 0, "id": id, "function": { "name": "t", "arguments": "{}" } }] }))
        };
        assert_eq!(calls(&[whole("a"), whole("b")]), [call("a", "t", "{}"), call("b", "t", "{}")]);
    }

    #[test]
    fn calls_without_ids_get_ids_of_their_own() {
        let whole = json!({ "function": { "name": "t", "arguments": "{}" } });
        let mut chunk = delta(json!({ "tool_calls": [whole, whole] }));
        assert_eq!(calls(&[chunk.clone()]), [call("call_0_0", "t", "{}"), call("call_0_1", "t", "{}")]);
        chunk["id"] = "chatcmpl-12".into();
        let named = calls(&[chunk]);
        assert_eq!(named[1], call("call_chatcmpl12_1", "t", "{}"), "another reply has another id");
    }

    #[test]
    fn arguments_may_come_as_an_object_and_before_the_name() {
        let chunks = [delta(json!({ "tool_calls": [{ "function": { "name": "t", "arguments": { "x": 1 } } }] }))];
        assert_eq!(calls(&chunks), [call("call_0_0", "t", "{\"x\":1}")]);
        let late = [
            delta(json!({ "tool_calls": [{ "index": 0, "id": "a", "function": { "arguments": "{" } }] })),
            delta(json!({ "tool_calls": [{ "index": 0, "function": { "name": "t", "arguments": "}" } }] })),
        ];
        assert_eq!(calls(&late), [call("a", "t", "{}")]);
    }

    #[test]
    fn a_call_that_never_names_a_tool_is_malformed() {
        let (_, reply) = decode(&[delta(json!({ "tool_calls": [{ "index": 0, "id": "a" }] }))]);
        assert_eq!(reply.expect_err("no name").detail, "call 0 of the reply names no tool");
    }

    #[test]
    fn what_is_put_beside_a_call_is_kept() {
        let signed = json!({ "id": "a", "type": "function", "function": { "name": "t", "arguments": "{}" }, "extra": { "signature": "s" } });
        let (_, reply) = decode(&[delta(json!({ "tool_calls": [signed] }))]);
        assert_eq!(
            reply.expect("a reply").message.parts[0].native(WIRE),
            Some(&json!({ "extra": { "signature": "s" } }))
        );
    }

    #[test]
    fn thoughts_are_read_under_every_name() {
        for (chunk, field) in [
            (json!({ "reasoning_content": "hm" }), "reasoning_content"),
            (json!({ "reasoning": "hm", "content": null }), "reasoning"),
            (
                json!({ "content": [{ "type": "thinking", "thinking": [{ "type": "text", "text": "hm" }] }] }),
                "reasoning_content",
            ),
        ] {
            let (deltas, reply) = decode(&[delta(chunk)]);
            assert_eq!(deltas, [Delta::Reasoning("hm".into())]);
            assert_eq!(reply.expect("a reply").message.parts[0].native(WIRE), Some(&json!({ field: "hm" })));
        }
    }

    #[test]
    fn calls_are_never_inferred_from_the_reason_to_stop() {
        let chunk = json!({ "choices": [{ "index": 0, "delta": { "content": "hi" }, "finish_reason": "tool_calls" }] });
        let reply = decode(&[chunk]).1.expect("a reply");
        assert_eq!((reply.finish, reply.message.calls().count()), (Finish::Calls, 0));
    }

    #[test]
    fn a_stream_without_a_choice_is_no_reply() {
        assert!(decode(&[json!({ "choices": [] })]).1.is_err());
    }

    proptest! {
        /// The pieces of three calls, in any order that keeps each call's own.
        #[test]
        fn however_the_pieces_of_calls_are_mixed_the_calls_are_the_same(
            order in Just([0_usize, 0, 0, 1, 1, 1, 2, 2, 2]).prop_shuffle(),
            numbered in any::<bool>(),
        ) {
            let mut given = [0_usize; 3];
            let chunks: Vec<Value> = order.iter().map(|of| {
                let piece = ["", "{\"x\":", "1}"][given[*of]];
                given[*of] += 1;
                let mut call = json!({ "id": format!("id{of}"), "function": { "name": format!("t{of}"), "arguments": piece } });
                if numbered {
                    call["index"] = (*of).into();
                }
                delta(json!({ "tool_calls": [call] }))
            }).collect();
            let mut found = calls(&chunks);
            found.sort();
            let expected = [0, 1, 2].map(|of| call(&format!("id{of}"), &format!("t{of}"), "{\"x\":1}"));
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn an_error_in_the_middle_is_an_error() {
        let mut decoder = ChatDecoder::new(&ModelRequest::default());
        let data = json!({ "error": { "message": "busy", "type": "server_error", "code": 503 } }).to_string();
        let failure = decoder.event(Event { name: String::new(), data }, &mut Vec::new()).expect_err("an error");
        assert_eq!(failure.detail, "busy");
        let nonsense = Event { name: String::new(), data: "{".into() };
        assert_eq!(
            decoder.event(nonsense, &mut Vec::new()).expect_err("not JSON").kind,
            toolgate_core::ModelErrorKind::Malformed
        );
    }
}
