//! Tests of the decoder for Anthropic's events.

use super::*;
use serde_json::json;

fn decode_events(
    events: &[Value],
) -> (
    Vec<Delta>,
    Result<DecodeProgress, WireFailure>,
    AnthropicDecoder,
) {
    let mut decoder = AnthropicDecoder::new(&ModelRequest::default());
    let mut deltas = Vec::new();
    let mut last = Ok(DecodeProgress::More);
    for event in events {
        last = decoder.decode_event(
            SseEvent {
                name: String::new(),
                data: event.to_string(),
            },
            &mut deltas,
        );
        if last.is_err() {
            break;
        }
    }
    (deltas, last, decoder)
}

fn start() -> Value {
    json!({ "type": "message_start", "message": { "id": "msg_1", "model": "claude", "usage": { "input_tokens": 3 } } })
}

fn begin(index: u64, block: Value) -> Value {
    json!({ "type": "content_block_start", "index": index, "content_block": block })
}

fn piece(index: u64, delta: Value) -> Value {
    json!({ "type": "content_block_delta", "index": index, "delta": delta })
}

fn end(reason: &str) -> [Value; 2] {
    [
        json!({ "type": "message_delta", "delta": { "stop_reason": reason }, "usage": { "output_tokens": 5 } }),
        json!({ "type": "message_stop" }),
    ]
}

fn reply(blocks: &[Value], reason: &str) -> Reply {
    let events = [&[start()], blocks, &end(reason)].concat();
    let (_, last, mut decoder) = decode_events(&events);
    assert_eq!(last, Ok(DecodeProgress::Complete));
    decoder.take_reply().expect("a reply")
}

#[test]
fn unknown_events_are_ignored_and_unknown_blocks_are_stored() {
    let block = json!({ "type": "hologram", "shape": "cu", "size": 1 });
    let events = [
        json!({ "type": "ping" }),
        json!({ "type": "weather", "index": 1 }),
        begin(0, block),
        piece(
            0,
            json!({ "type": "hologram_delta", "shape": "be", "size": 2 }),
        ),
    ];
    let reply = reply(&events, "end_turn");
    assert_eq!(reply.message.parts[0].content, PartContent::Opaque);
    let kept = json!({ "type": "hologram", "shape": "cube", "size": 2 });
    assert_eq!(reply.message.parts[0].native_for(WIRE), Some(&kept));
}

#[test]
fn a_provider_executed_call_is_stored_with_its_result() {
    let found = json!([{ "type": "web_search_result", "url": "https://x" }]);
    let failed =
        json!({ "type": "web_search_tool_result_error", "error_code": "max_uses_exceeded" });
    let events = [
        begin(
            0,
            json!({ "type": "server_tool_use", "id": "s1", "name": "web_search", "input": {} }),
        ),
        piece(
            0,
            json!({ "type": "input_json_delta", "partial_json": "{\"query\":" }),
        ),
        piece(
            0,
            json!({ "type": "input_json_delta", "partial_json": "\"x\"}" }),
        ),
        begin(
            1,
            json!({ "type": "web_search_tool_result", "tool_use_id": "s1", "content": found }),
        ),
        begin(
            2,
            json!({ "type": "web_search_tool_result", "tool_use_id": "s0", "content": failed }),
        ),
    ];
    let (deltas, ..) = decode_events(&events);
    assert!(deltas.is_empty(), "no call for us is streamed: {deltas:?}");
    let reply = reply(&events, "pause_turn");
    let ran = |at: usize| match &reply.message.parts[at].content {
        PartContent::Ran(call) => (
            call.id.as_str(),
            call.tool.as_str(),
            &call.arguments,
            &call.result,
            call.failed,
        ),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        ran(0),
        ("s1", "web_search", &json!({ "query": "x" }), &found, false)
    );
    assert_eq!(
        reply.message.parts[1].content,
        PartContent::Opaque,
        "already stored with the call"
    );
    assert_eq!(
        ran(2),
        ("s0", "web_search", &Value::Null, &failed, true),
        "the call was in an earlier reply"
    );
    assert_eq!(
        reply.message.parts[0]
            .native_for(WIRE)
            .map(|item| &item["input"]),
        Some(&json!({ "query": "x" }))
    );
    assert_eq!(
        (reply.finish, reply.message.calls().count()),
        (FinishReason::Paused, 0)
    );
}

#[test]
fn truncated_arguments_are_preserved() {
    let events = [
        begin(
            0,
            json!({ "type": "tool_use", "id": "t1", "name": "read", "input": {} }),
        ),
        piece(
            0,
            json!({ "type": "input_json_delta", "partial_json": "{\"path\": \"/et" }),
        ),
        begin(
            1,
            json!({ "type": "tool_use", "id": "t2", "name": "now", "input": {} }),
        ),
    ];
    let reply = reply(&events, "max_tokens");
    let calls: Vec<_> = reply.message.calls().cloned().collect();
    assert_eq!(
        calls,
        [
            ToolRequest::from_text("t1", "read", "{\"path\": \"/et"),
            ToolRequest::from_text("t2", "now", "{}")
        ]
    );
    let native = reply.message.parts[0].native_for(WIRE).expect("stored");
    assert_eq!(
        native["input"],
        json!({ "INVALID_JSON": "{\"path\": \"/et" }),
        "the API accepts only objects"
    );
    assert_eq!(reply.finish, FinishReason::Length);
}

#[test]
fn a_refusal_is_an_error_unless_there_is_content() {
    let refusal = json!({
        "type": "message_delta",
        "delta": { "stop_reason": "refusal", "stop_details": { "type": "refusal", "explanation": "no" } },
        "usage": { "output_tokens": 0 },
    });
    let (_, _, mut decoder) = decode_events(&[start(), refusal, end("refusal")[1].clone()]);
    let failure = decoder.take_reply().expect_err("no content");
    assert_eq!(
        (failure.kind, failure.detail.as_str()),
        (ModelErrorKind::Refused, "no")
    );
    let text = [begin(0, json!({ "type": "text", "text": "I was about" }))];
    assert_eq!(reply(&text, "refusal").finish, FinishReason::Filtered);
}

#[test]
fn an_error_in_the_middle_of_a_stream_is_classified() {
    let error = json!({ "type": "error", "error": { "type": "overloaded_error", "message": "Overloaded" } });
    let (_, last, _) = decode_events(&[start(), error]);
    assert_eq!(last.expect_err("an error").kind, ModelErrorKind::Overloaded);
}

#[test]
fn events_outside_the_api_are_malformed() {
    let cases = [
        vec![
            start(),
            piece(3, json!({ "type": "text_delta", "text": "x" })),
        ],
        vec![json!({ "type": "message_stop" })],
        vec![json!({ "type": "message_start" })],
        vec![json!([])],
    ];
    for events in cases {
        let (_, last, _) = decode_events(&events);
        assert_eq!(
            last.expect_err("malformed").kind,
            ModelErrorKind::Malformed,
            "{events:?}"
        );
    }
}

#[test]
fn later_counts_replace_earlier_ones() {
    let first = json!({ "type": "message_start", "message": { "usage": {
        "input_tokens": 10, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 2, "output_tokens": 1,
    } } });
    let last = json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": {
        "input_tokens": 12, "output_tokens": 50, "output_tokens_details": { "thinking_tokens": 30 },
    } });
    let (_, _, mut decoder) = decode_events(&[first, last, json!({ "type": "message_stop" })]);
    let usage = decoder.take_reply().expect("a reply").usage;
    assert_eq!(
        usage,
        Some(Usage {
            input: 12,
            cache_read: 7,
            cache_write: 2,
            output: 50,
            reasoning: 30
        })
    );
}
