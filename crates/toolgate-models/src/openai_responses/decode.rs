//! What responses stream back.

use std::{collections::BTreeMap, mem};

use serde_json::Value;
use toolgate_core::{Content, Delta, Finish, Message, ModelRequest, Reply, Role, Usage, View};

use super::items::{self, text};
use crate::{
    errors::Failure,
    exchange::{Decoder, Progress},
    openai::{NAMES, RawUsage},
    sse::Event,
};

/// Puts a reply together from events. The last one has everything; those before it are passed on as they come.
#[derive(Debug)]
pub(super) struct ResponsesDecoder {
    view: View,
    /// Items that are whole, by their place in the output.
    items: BTreeMap<u64, Value>,
    /// Calls that were passed on, by the same place: which call of the reply it is and how much of its arguments.
    calls: BTreeMap<u64, (usize, usize)>,
    /// The whole response, once it is there.
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

    /// Passes on that a call begins, and what of its arguments was not passed on yet.
    fn call(&mut self, place: u64, item: &Value, deltas: &mut Vec<Delta>) {
        let next = self.calls.len();
        let (index, passed) = self.calls.entry(place).or_insert_with(|| {
            let tool = NAMES.from_wire(&self.view, text(item, "name"));
            deltas.push(Delta::Call {
                index: next,
                id: text(item, "call_id").to_owned(),
                tool,
            });
            (next, 0)
        });
        if let Some(new) = text(item, "arguments")
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

    fn arguments(
        &mut self,
        place: u64,
        piece: &str,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), Failure> {
        let unknown = || Failure::malformed("arguments came for a call that had not begun");
        let (index, passed) = self.calls.get_mut(&place).ok_or_else(unknown)?;
        *passed += piece.len();
        deltas.push(Delta::Arguments {
            index: *index,
            text: piece.to_owned(),
        });
        Ok(())
    }

    fn finish(&self, items: &[Value]) -> Finish {
        let reason = text(&self.response["incomplete_details"], "reason");
        match (text(&self.response, "status"), reason) {
            ("incomplete", "max_output_tokens") => Finish::Length,
            ("incomplete", "content_filter") => Finish::Filtered,
            ("incomplete", _) => Finish::Other,
            _ if items.iter().any(items::is_refusal) => Finish::Filtered,
            _ if items.iter().any(is_call) => Finish::Calls,
            _ => Finish::Stop,
        }
    }
}

impl Decoder for ResponsesDecoder {
    fn event(&mut self, event: Event, deltas: &mut Vec<Delta>) -> Result<Progress, Failure> {
        let mut event: Value = serde_json::from_str(&event.data)
            .map_err(|error| Failure::malformed(format!("an event is not JSON: {error}")))?;
        let place = event["output_index"].as_u64().unwrap_or_default();
        let piece = || text(&event, "delta").to_owned();
        match text(&event, "type") {
            "response.output_text.delta" | "response.refusal.delta" => {
                deltas.push(Delta::Text(piece()))
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                deltas.push(Delta::Reasoning(piece()));
            }
            "response.reasoning_summary_part.added"
                if event["summary_index"].as_u64() > Some(0) =>
            {
                deltas.push(Delta::Reasoning("\n\n".to_owned()));
            }
            "response.function_call_arguments.delta" => {
                self.arguments(place, text(&event, "delta"), deltas)?
            }
            "response.output_item.added" if is_call(&event["item"]) => {
                self.call(place, &event["item"], deltas)
            }
            "response.output_item.done" => {
                let item = event["item"].take();
                if is_call(&item) {
                    self.call(place, &item, deltas);
                }
                self.items.insert(place, item);
            }
            "response.completed" | "response.incomplete" => {
                self.response = event["response"].take();
                return Ok(Progress::Whole);
            }
            "response.failed" => return Err(Failure::from_value(&event["response"]["error"])),
            "error" => return Err(Failure::from_value(&event)),
            _ => {}
        }
        Ok(Progress::More)
    }

    fn reply(&mut self) -> Result<Reply, Failure> {
        let output = self.response["output"].take();
        // Some servers do not repeat the items at the end.
        let items = match output {
            Value::Array(items) if !items.is_empty() => items,
            _ => mem::take(&mut self.items).into_values().collect(),
        };
        let finish = self.finish(&items);
        let usage = self.response["usage"].take();
        let usage = serde_json::from_value::<Option<RawUsage>>(usage)
            .unwrap_or_default()
            .map(Usage::from);
        let parts = items
            .into_iter()
            .map(|item| items::part(item, &self.view))
            .collect::<Vec<_>>();
        let nameless =
            |content: &Content| matches!(content, Content::Call(call) if call.tool.is_empty());
        if parts.iter().any(|part| nameless(&part.content)) {
            return Err(Failure::malformed("a call of the reply names no tool"));
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

fn is_call(item: &Value) -> bool {
    item["type"] == "function_call"
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolgate_core::ModelErrorKind;

    fn decode(events: &[Value]) -> (Vec<Delta>, Result<Reply, Failure>) {
        let (mut decoder, mut deltas) =
            (ResponsesDecoder::new(&ModelRequest::default()), Vec::new());
        for event in events {
            let event = Event {
                name: String::new(),
                data: event.to_string(),
            };
            match decoder.event(event, &mut deltas) {
                Ok(Progress::More) => {}
                Ok(Progress::Whole) => return (deltas, decoder.reply()),
                Err(failure) => return (deltas, Err(failure)),
            }
        }
        panic!("the reply is not whole")
    }

    fn call(arguments: &str) -> Value {
        json!({ "type": "function_call", "id": "fc", "call_id": "c", "name": "t", "arguments": arguments })
    }

    fn completed(output: Value) -> Value {
        json!({ "type": "response.completed", "response": { "id": "r", "model": "m", "status": "completed", "output": output } })
    }

    #[test]
    fn arguments_that_were_not_streamed_are_passed_on_once_they_are_whole() {
        for streamed in [None, Some("{\"a\"")] {
            let added = json!({ "type": "response.output_item.added", "output_index": 1, "item": call("") });
            let piece = |text| json!({ "type": "response.function_call_arguments.delta", "output_index": 1, "delta": text });
            let done = json!({ "type": "response.output_item.done", "output_index": 1, "item": call("{\"a\":1}") });
            let mut events = vec![added];
            events.extend(streamed.map(piece));
            events.extend([done, completed(json!([]))]);
            let (deltas, reply) = decode(&events);
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
                (1, Finish::Calls),
                "from the items before the end"
            );
        }
    }

    #[test]
    fn a_reply_that_was_cut_says_why() {
        for (reason, finish) in [
            ("max_output_tokens", Finish::Length),
            ("content_filter", Finish::Filtered),
            ("max_messages", Finish::Other),
        ] {
            let response = json!({ "status": "incomplete", "incomplete_details": { "reason": reason }, "output": [call("{")] });
            let (_, reply) =
                decode(&[json!({ "type": "response.incomplete", "response": response })]);
            assert_eq!(reply.expect("a reply").finish, finish);
        }
    }

    #[test]
    fn failures_in_the_middle_are_typed() {
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
            let failure = decode(&[event]).1.expect_err("a failure");
            assert_eq!((failure.kind, failure.detail.as_str()), (kind, "no"));
        }
    }

    #[test]
    fn arguments_of_a_call_that_never_began_are_malformed() {
        let stray = json!({ "type": "response.function_call_arguments.delta", "output_index": 3, "delta": "{" });
        assert_eq!(
            decode(&[stray]).1.expect_err("stray").kind,
            ModelErrorKind::Malformed
        );
    }

    #[test]
    fn events_that_nobody_knows_are_passed_over() {
        let (deltas, reply) =
            decode(&[json!({ "type": "response.invented" }), completed(json!([]))]);
        assert!(deltas.is_empty());
        assert_eq!(reply.expect("a reply").finish, Finish::Stop);
    }

    #[test]
    fn parts_of_a_summary_are_set_apart() {
        let part = |index: u64| json!({ "type": "response.reasoning_summary_part.added", "summary_index": index });
        let piece =
            |text: &str| json!({ "type": "response.reasoning_summary_text.delta", "delta": text });
        let (deltas, _) = decode(&[
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
