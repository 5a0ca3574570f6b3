//! Decodes streams of the responses API.

use std::{collections::BTreeMap, mem};

use serde_json::Value;
use toolgate_core::{
    Delta, FinishReason, Message, ModelRequest, PartContent, Reply, Role, Usage, View,
};

use super::items::{self, text_field};
use crate::{
    providers::openai_shared::{NAMES, OpenAiUsage},
    wire::{
        errors::WireFailure,
        exchange::{DecodeProgress, ReplyDecoder},
        sse::SseEvent,
    },
};

/// Builds a reply from events. The last event has everything; those before it are streamed on as
/// they arrive.
#[derive(Debug)]
pub(super) struct ResponsesDecoder {
    view: View,
    /// The complete items, by their index in the output.
    items: BTreeMap<u64, Value>,
    /// The calls that were streamed on, by their index in the output: the index within the reply
    /// and the bytes of arguments sent.
    calls: BTreeMap<u64, (usize, usize)>,
    /// The whole response, once it has arrived.
    response: Value,
}

impl ResponsesDecoder {
    pub(super) fn new(request: &ModelRequest) -> Self {
        Self {
            view: request.view.clone(),
            items: BTreeMap::new(),
            calls: BTreeMap::new(),
            response: Value::Null,
        }
    }

    /// Streams the start of a call, and the part of its arguments that was not streamed yet.
    fn stream_call(&mut self, place: u64, item: &Value, deltas: &mut Vec<Delta>) {
        let next = self.calls.len();
        let (index, passed) = self.calls.entry(place).or_insert_with(|| {
            let tool = NAMES.from_wire(&self.view, text_field(item, "name"));
            deltas.push(Delta::Call {
                index: next,
                id: text_field(item, "call_id").to_owned(),
                tool,
            });
            (next, 0)
        });
        // Servers that do not stream arguments send them whole with the finished item.
        // `get`, because a server may finish with less text than it streamed, and that must not
        // panic.
        if let Some(new) = text_field(item, "arguments")
            .get(*passed..)
            .filter(|new| !new.is_empty())
        {
            *passed += new.len();
            deltas.push(Delta::Arguments {
                index: *index,
                text: new.to_owned(),
            });
        }
    }

    fn stream_arguments(
        &mut self,
        place: u64,
        piece: &str,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), WireFailure> {
        let unknown =
            || WireFailure::malformed("arguments arrived for a call that has not started");
        let (index, passed) = self.calls.get_mut(&place).ok_or_else(unknown)?;
        *passed += piece.len();
        deltas.push(Delta::Arguments {
            index: *index,
            text: piece.to_owned(),
        });
        Ok(())
    }

    fn finish_reason(&self, items: &[Value]) -> FinishReason {
        let reason = text_field(&self.response["incomplete_details"], "reason");
        match (text_field(&self.response, "status"), reason) {
            ("incomplete", "max_output_tokens") => FinishReason::Length,
            ("incomplete", "content_filter") => FinishReason::Filtered,
            ("incomplete", _) => FinishReason::Other,
            _ if items.iter().any(items::is_refusal) => FinishReason::Filtered,
            _ if items.iter().any(is_function_call) => FinishReason::Calls,
            _ => FinishReason::Stop,
        }
    }
}

impl ReplyDecoder for ResponsesDecoder {
    fn decode_event(
        &mut self,
        event: SseEvent,
        deltas: &mut Vec<Delta>,
    ) -> Result<DecodeProgress, WireFailure> {
        let mut event: Value = serde_json::from_str(&event.data)
            .map_err(|error| WireFailure::malformed(format!("an event is not JSON: {error}")))?;
        let place = event["output_index"].as_u64().unwrap_or_default();
        let piece = || text_field(&event, "delta").to_owned();
        match text_field(&event, "type") {
            "response.output_text.delta" | "response.refusal.delta" => {
                deltas.push(Delta::Text(piece()))
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                deltas.push(Delta::Reasoning(piece()));
            }
            // The final item joins its parts in the same way, so what was streamed equals the
            // reply.
            "response.reasoning_summary_part.added"
                if event["summary_index"].as_u64() > Some(0) =>
            {
                deltas.push(Delta::Reasoning("\n\n".to_owned()));
            }
            "response.function_call_arguments.delta" => {
                self.stream_arguments(place, text_field(&event, "delta"), deltas)?
            }
            "response.output_item.added" if is_function_call(&event["item"]) => {
                self.stream_call(place, &event["item"], deltas)
            }
            "response.output_item.done" => {
                let item = event["item"].take();
                if is_function_call(&item) {
                    self.stream_call(place, &item, deltas);
                }
                self.items.insert(place, item);
            }
            "response.completed" | "response.incomplete" => {
                self.response = event["response"].take();
                return Ok(DecodeProgress::Complete);
            }
            "response.failed" => {
                return Err(WireFailure::from_error_json(&event["response"]["error"]));
            }
            "error" => return Err(WireFailure::from_error_json(&event)),
            _ => {}
        }
        Ok(DecodeProgress::More)
    }

    fn take_reply(&mut self) -> Result<Reply, WireFailure> {
        let output = self.response["output"].take();
        // Some servers do not repeat the items at the end.
        let items = match output {
            Value::Array(items) if !items.is_empty() => items,
            _ => mem::take(&mut self.items).into_values().collect(),
        };
        let finish = self.finish_reason(&items);
        // A usage in another shape makes the cost unknown; it must not fail the reply.
        let usage = self.response["usage"].take();
        let usage = serde_json::from_value::<Option<OpenAiUsage>>(usage)
            .unwrap_or_default()
            .map(Usage::from);
        let parts = items
            .into_iter()
            .map(|item| items::item_to_part(item, &self.view))
            .collect::<Vec<_>>();
        let nameless = |content: &PartContent| matches!(content, PartContent::Call(call) if call.tool.is_empty());
        if parts.iter().any(|part| nameless(&part.content)) {
            return Err(WireFailure::malformed("a call of the reply names no tool"));
        }
        let named = |field: &str| self.response[field].as_str().map(str::to_owned);
        let message = Message::new(Role::Assistant, parts);
        Ok(Reply {
            message,
            usage,
            finish,
            model: named("model"),
            id: named("id"),
        })
    }
}

fn is_function_call(item: &Value) -> bool {
    item["type"] == "function_call"
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolgate_core::ModelErrorKind;

    fn decode_events(events: &[Value]) -> (Vec<Delta>, Result<Reply, WireFailure>) {
        let mut decoder = ResponsesDecoder::new(&ModelRequest::default());
        let mut deltas = Vec::new();
        for event in events {
            let event = SseEvent {
                name: String::new(),
                data: event.to_string(),
            };
            match decoder.decode_event(event, &mut deltas) {
                Ok(DecodeProgress::More) => {}
                Ok(DecodeProgress::Complete) => return (deltas, decoder.take_reply()),
                Err(failure) => return (deltas, Err(failure)),
            }
        }
        panic!("the reply is not complete")
    }

    fn call(arguments: &str) -> Value {
        json!({ "type": "function_call", "id": "fc", "call_id": "c", "name": "t", "arguments": arguments })
    }

    fn completed(output: Value) -> Value {
        json!({ "type": "response.completed", "response": { "id": "r", "model": "m", "status": "completed", "output": output } })
    }

    #[test]
    fn arguments_that_were_not_streamed_are_streamed_once_complete() {
        for streamed in [None, Some("{\"a\"")] {
            let added = json!({ "type": "response.output_item.added", "output_index": 1, "item": call("") });
            let piece = |text| json!({ "type": "response.function_call_arguments.delta", "output_index": 1, "delta": text });
            let done = json!({ "type": "response.output_item.done", "output_index": 1, "item": call("{\"a\":1}") });
            let mut events = vec![added];
            events.extend(streamed.map(piece));
            events.extend([done, completed(json!([]))]);
            let (deltas, reply) = decode_events(&events);
            let text: String = deltas
                .iter()
                .filter_map(|delta| match delta {
                    Delta::Arguments { index: 0, text } => Some(text.as_str()),
                    _ => None,
                })
                .collect();
            assert_eq!(text, "{\"a\":1}");
            let reply = reply.expect("a reply");
            assert_eq!(
                (reply.message.calls().count(), reply.finish),
                (1, FinishReason::Calls),
                "from the items before the final event"
            );
        }
    }

    #[test]
    fn a_truncated_reply_names_the_reason() {
        for (reason, finish) in [
            ("max_output_tokens", FinishReason::Length),
            ("content_filter", FinishReason::Filtered),
            ("max_messages", FinishReason::Other),
        ] {
            let response = json!({ "status": "incomplete", "incomplete_details": { "reason": reason }, "output": [call("{")] });
            let (_, reply) =
                decode_events(&[json!({ "type": "response.incomplete", "response": response })]);
            assert_eq!(reply.expect("a reply").finish, finish);
        }
    }

    #[test]
    fn failures_in_the_middle_of_a_stream_are_classified() {
        let failed = |code: &str| json!({ "type": "response.failed", "response": { "error": { "code": code, "message": "no" } } });
        let error =
            |code: Value| json!({ "type": "error", "code": code, "message": "no", "param": null });
        for (event, kind) in [
            (failed("server_error"), ModelErrorKind::Server),
            (failed("rate_limit_exceeded"), ModelErrorKind::RateLimited),
            (failed("invalid_prompt"), ModelErrorKind::Refused),
            (failed("bio_policy"), ModelErrorKind::Refused),
            (failed("invalid_image_url"), ModelErrorKind::BadRequest),
            (
                error(json!("context_length_exceeded")),
                ModelErrorKind::TooLong,
            ),
            (error(json!(null)), ModelErrorKind::Server),
        ] {
            let failure = decode_events(&[event]).1.expect_err("a failure");
            assert_eq!((failure.kind, failure.detail.as_str()), (kind, "no"));
        }
    }

    #[test]
    fn arguments_of_a_call_that_never_began_are_malformed() {
        let stray = json!({ "type": "response.function_call_arguments.delta", "output_index": 3, "delta": "{" });
        assert_eq!(
            decode_events(&[stray]).1.expect_err("stray").kind,
            ModelErrorKind::Malformed
        );
    }

    #[test]
    fn unknown_events_are_ignored() {
        let (deltas, reply) =
            decode_events(&[json!({ "type": "response.invented" }), completed(json!([]))]);
        assert!(deltas.is_empty());
        assert_eq!(reply.expect("a reply").finish, FinishReason::Stop);
    }

    #[test]
    fn parts_of_a_summary_are_separated() {
        let part = |index: u64| json!({ "type": "response.reasoning_summary_part.added", "summary_index": index });
        let piece =
            |text: &str| json!({ "type": "response.reasoning_summary_text.delta", "delta": text });
        let (deltas, _) = decode_events(&[
            part(0),
            piece("a"),
            part(1),
            piece("b"),
            completed(json!([])),
        ]);
        assert_eq!(
            deltas,
            ["a", "\n\n", "b"].map(|text| Delta::Reasoning(text.into()))
        );
    }
}
