//! Tests of the decoder with the many ways in which servers stream.

use super::*;
use proptest::prelude::*;
use serde_json::json;

fn decode(chunks: &[Value]) -> (Vec<Delta>, Result<Reply, WireFailure>) {
    let mut decoder = ChatDecoder::new(&ModelRequest::default());
    let mut deltas = Vec::new();
    for chunk in chunks {
        let event = SseEvent {
            name: String::new(),
            data: chunk.to_string(),
        };
        decoder.decode_event(event, &mut deltas).expect("a chunk");
    }
    (deltas, decoder.take_reply())
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
        assert_eq!(
            RawArguments::Text(passed.collect()),
            call.arguments,
            "the streamed arguments match the reply"
        );
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
fn interleaved_deltas_are_assigned_to_their_call() {
    let piece = |index: u64, text: &str| {
        delta(json!({ "tool_calls": [{ "index": index, "function": { "arguments": text } }] }))
    };
    let start = |index: u64, id: &str| {
        delta(
            json!({ "tool_calls": [{ "index": index, "id": id, "type": "function", "function": { "name": "t", "arguments": "" } }] }),
        )
    };
    let chunks = [
        start(0, "a"),
        start(1, "b"),
        piece(1, "{\"x\""),
        piece(0, "{"),
        piece(1, ":1}"),
        piece(0, "}"),
    ];
    assert_eq!(
        calls(&chunks),
        [call("a", "t", "{}"), call("b", "t", "{\"x\":1}")]
    );
}

#[test]
fn complete_calls_without_numbers_are_distinguished_by_their_ids() {
    let whole = |id: &str| json!({ "id": id, "function": { "name": "t", "arguments": "{}" } });
    assert_eq!(
        calls(&[delta(json!({ "tool_calls": [whole("a"), whole("b")] }))]).len(),
        2
    );
    assert_eq!(
        calls(&[
            delta(json!({ "tool_calls": [whole("a")] })),
            delta(json!({ "tool_calls": [whole("b")] }))
        ])
        .len(),
        2
    );
}

#[test]
fn complete_calls_with_the_same_number_are_distinguished_by_their_ids() {
    let whole = |id: &str| {
        delta(
            json!({ "tool_calls": [{ "index": 0, "id": id, "function": { "name": "t", "arguments": "{}" } }] }),
        )
    };
    assert_eq!(
        calls(&[whole("a"), whole("b")]),
        [call("a", "t", "{}"), call("b", "t", "{}")]
    );
}

#[test]
fn calls_without_ids_get_ids_of_their_own() {
    let whole = json!({ "function": { "name": "t", "arguments": "{}" } });
    let mut chunk = delta(json!({ "tool_calls": [whole, whole] }));
    assert_eq!(
        calls(&[chunk.clone()]),
        [call("call_0_0", "t", "{}"), call("call_0_1", "t", "{}")]
    );
    chunk["id"] = "chatcmpl-12".into();
    let named = calls(&[chunk]);
    assert_eq!(
        named[1],
        call("call_chatcmpl12_1", "t", "{}"),
        "another reply gets another id"
    );
}

#[test]
fn arguments_may_come_as_an_object_and_before_the_name() {
    let chunks = [delta(
        json!({ "tool_calls": [{ "function": { "name": "t", "arguments": { "x": 1 } } }] }),
    )];
    assert_eq!(calls(&chunks), [call("call_0_0", "t", "{\"x\":1}")]);
    let late = [
        delta(
            json!({ "tool_calls": [{ "index": 0, "id": "a", "function": { "arguments": "{" } }] }),
        ),
        delta(
            json!({ "tool_calls": [{ "index": 0, "function": { "name": "t", "arguments": "}" } }] }),
        ),
    ];
    assert_eq!(calls(&late), [call("a", "t", "{}")]);
}

#[test]
fn a_call_that_never_names_a_tool_is_malformed() {
    let (_, reply) = decode(&[delta(json!({ "tool_calls": [{ "index": 0, "id": "a" }] }))]);
    assert_eq!(
        reply.expect_err("no name").detail,
        "call 0 of the reply names no tool"
    );
}

#[test]
fn additional_fields_of_a_call_are_stored() {
    let signed = json!({ "id": "a", "type": "function", "function": { "name": "t", "arguments": "{}" }, "extra": { "signature": "s" } });
    let (_, reply) = decode(&[delta(json!({ "tool_calls": [signed] }))]);
    assert_eq!(
        reply.expect("a reply").message.parts[0].native_for(WIRE),
        Some(&json!({ "extra": { "signature": "s" } }))
    );
}

#[test]
fn reasoning_is_read_under_every_name() {
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
        assert_eq!(
            reply.expect("a reply").message.parts[0].native_for(WIRE),
            Some(&json!({ field: "hm" }))
        );
    }
}

#[test]
fn calls_are_never_inferred_from_the_reason_to_stop() {
    let chunk = json!({ "choices": [{ "index": 0, "delta": { "content": "hi" }, "finish_reason": "tool_calls" }] });
    let reply = decode(&[chunk]).1.expect("a reply");
    assert_eq!(
        (reply.finish, reply.message.calls().count()),
        (FinishReason::Calls, 0)
    );
}

#[test]
fn a_stream_without_a_choice_is_not_a_reply() {
    assert!(decode(&[json!({ "choices": [] })]).1.is_err());
}

proptest! {
    /// Tests the deltas of three calls, in any order that keeps the order within each call.
    #[test]
    fn calls_do_not_depend_on_how_their_deltas_are_interleaved(
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
    let data =
        json!({ "error": { "message": "busy", "type": "server_error", "code": 503 } }).to_string();
    let failure = decoder
        .decode_event(
            SseEvent {
                name: String::new(),
                data,
            },
            &mut Vec::new(),
        )
        .expect_err("an error");
    assert_eq!(failure.detail, "busy");
    let nonsense = SseEvent {
        name: String::new(),
        data: "{".into(),
    };
    assert_eq!(
        decoder
            .decode_event(nonsense, &mut Vec::new())
            .expect_err("not JSON")
            .kind,
        toolgate_core::ModelErrorKind::Malformed
    );
}
