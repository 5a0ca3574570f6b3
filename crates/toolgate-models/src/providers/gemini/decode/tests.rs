//! Tests of the decoder for Gemini's chunks.

use super::*;
use std::sync::Arc;

fn decode_chunks(chunks: &[Value]) -> (Vec<Delta>, Result<Reply, WireFailure>) {
    let mut decoder = GeminiDecoder::new(&ModelRequest::default());
    let mut deltas = Vec::new();
    for chunk in chunks {
        let event = SseEvent {
            name: String::new(),
            data: chunk.to_string(),
        };
        if let Err(failure) = decoder.decode_event(event, &mut deltas) {
            return (deltas, Err(failure));
        }
    }
    assert!(decoder.is_complete());
    (deltas, decoder.take_reply())
}

fn parts(parts: Value) -> Value {
    json!({ "candidates": [{ "content": { "role": "model", "parts": parts } }] })
}

fn end(reason: &str) -> Value {
    json!({ "candidates": [{ "finishReason": reason }] })
}

fn natives(reply: &Reply) -> Vec<&Value> {
    reply
        .message
        .parts
        .iter()
        .filter_map(|part| part.native_for(WIRE))
        .collect()
}

#[test]
fn texts_are_joined_but_never_across_a_signature() {
    let chunks = [
        parts(json!([{ "text": "h", "thought": true }, { "text": "m", "thought": true }])),
        parts(json!([{ "text": "So" }])),
        parts(json!([{ "text": " it" }, { "text": " is", "thoughtSignature": "c2ln" }])),
        parts(json!([{ "text": "." }, { "text": "", "thoughtSignature": "ZW5k" }])),
        parts(json!([{ "text": "" }])),
        end("STOP"),
    ];
    let (deltas, reply) = decode_chunks(&chunks);
    let reply = reply.expect("a reply");
    let kept = json!([
        { "text": "hm", "thought": true },
        { "text": "So it" },
        { "text": " is", "thoughtSignature": "c2ln" },
        { "text": "." },
        { "text": "", "thoughtSignature": "ZW5k" },
    ]);
    assert_eq!(json!(natives(&reply)), kept);
    assert_eq!(
        (reply.message.text().as_str(), reply.finish),
        ("So it is.", FinishReason::Stop)
    );
    assert_eq!(
        reply.message.parts[0].content,
        PartContent::Reasoning("hm".into())
    );
    assert_eq!(deltas.len(), 6, "empty text is not streamed: {deltas:?}");
}

#[test]
fn calls_without_ids_get_one_that_is_unique_in_the_conversation() {
    let asked = |id: &str| {
        Message::new(
            Role::Assistant,
            vec![PartContent::Call(ToolRequest::from_text(id, "read", "{}")).into()],
        )
    };
    let messages = vec![Arc::new(asked("gemini_7")), Arc::new(asked("x"))];
    let mut decoder = GeminiDecoder::new(&ModelRequest {
        messages,
        ..ModelRequest::default()
    });
    let chunk = parts(json!([
        { "functionCall": { "name": "read", "args": { "path": "a" } }, "thoughtSignature": "c2ln" },
        { "functionCall": { "name": "read", "id": "fc-1" } },
        { "functionCall": { "name": "read", "args": {} } },
    ]));
    let mut deltas = Vec::new();
    for chunk in [chunk, end("STOP")] {
        decoder
            .decode_event(
                SseEvent {
                    name: String::new(),
                    data: chunk.to_string(),
                },
                &mut deltas,
            )
            .expect("fine");
    }
    let reply = decoder.take_reply().expect("a reply");
    let ids: Vec<_> = reply
        .message
        .calls()
        .map(|call| call.provider_call_id.as_str())
        .collect();
    assert_eq!(
        (ids, reply.finish),
        (vec!["gemini_8", "fc-1", "gemini_10"], FinishReason::Calls)
    );
    assert_eq!(
        reply.message.calls().next(),
        Some(&ToolRequest::from_json(
            "gemini_8",
            "read",
            json!({ "path": "a" })
        ))
    );
    assert_eq!(
        natives(&reply)[0]["functionCall"].get("id"),
        None,
        "the native part is unchanged"
    );
    assert_eq!(
        deltas[1],
        Delta::Arguments {
            index: 0,
            text: r#"{"path":"a"}"#.into()
        }
    );
    assert_eq!(
        deltas[3],
        Delta::Arguments {
            index: 1,
            text: "{}".into()
        }
    );
}

#[test]
fn provider_executed_calls_are_stored_with_their_results() {
    let code = json!({ "language": "PYTHON", "code": "1+1" });
    let outcome = json!({ "outcome": "OUTCOME_FAILED", "output": "no" });
    let grounding = json!({ "webSearchQueries": ["x"], "groundingChunks": [] });
    let chunks = [
        parts(json!([{ "executableCode": code }])),
        parts(json!([{ "codeExecutionResult": outcome }])),
        parts(
            json!([{ "toolCall": { "id": "t1", "toolType": "GOOGLE_MAPS", "args": { "q": 1 } } }]),
        ),
        parts(
            json!([{ "toolResponse": { "id": "t1", "toolType": "GOOGLE_MAPS", "response": { "r": 2 } } }]),
        ),
        parts(
            json!([{ "inlineData": { "mimeType": "image/png", "data": "AAAA" } }, { "hologram": 1 }]),
        ),
        json!({ "candidates": [{ "finishReason": "STOP", "groundingMetadata": grounding }] }),
    ];
    let reply = decode_chunks(&chunks).1.expect("a reply");
    let contents: Vec<_> = reply
        .message
        .parts
        .iter()
        .map(|part| part.content.clone())
        .collect();
    let ran = |id: &str, tool: &str, arguments: Value, result: Value, failed| {
        PartContent::Ran(ProviderCall {
            id: id.into(),
            tool: tool.into(),
            arguments,
            result,
            failed,
        })
    };
    let expected = [
        ran("", "code_execution", code, outcome, true),
        PartContent::Opaque,
        ran(
            "t1",
            "google_maps",
            json!({ "q": 1 }),
            json!({ "r": 2 }),
            false,
        ),
        PartContent::Opaque,
        PartContent::Media(Media::from_base64("image/png", "AAAA")),
        PartContent::Opaque,
        ran(
            "",
            "google_search",
            json!({ "queries": ["x"] }),
            grounding,
            false,
        ),
    ];
    assert_eq!(contents, expected);
    assert_eq!(
        natives(&reply).len(),
        6,
        "metadata beside the parts is not sent back"
    );
}

#[test]
fn finish_reasons_are_classified() {
    let text = || parts(json!([{ "text": "x" }]));
    let finish = |reason: &str| {
        decode_chunks(&[text(), end(reason)])
            .1
            .map(|reply| reply.finish)
            .map_err(|failure| failure.kind)
    };
    assert_eq!(finish("STOP"), Ok(FinishReason::Stop));
    assert_eq!(finish("MAX_TOKENS"), Ok(FinishReason::Length));
    assert_eq!(finish("SAFETY"), Ok(FinishReason::Filtered));
    assert_eq!(finish("SOMETHING_NEW"), Ok(FinishReason::Other));
    assert_eq!(
        finish("MALFORMED_FUNCTION_CALL"),
        Err(ModelErrorKind::Malformed)
    );
    let silent = |chunk: Value| decode_chunks(&[chunk]).1.expect_err("no reply");
    let blocked =
        silent(json!({ "candidates": [{ "finishReason": "SAFETY", "finishMessage": "bad" }] }));
    assert_eq!(
        (blocked.kind, blocked.detail.as_str()),
        (
            ModelErrorKind::Refused,
            "the reply was blocked (SAFETY): bad"
        )
    );
    let prompt = silent(json!({ "promptFeedback": { "blockReason": "PROHIBITED_CONTENT" } }));
    assert_eq!(prompt.kind, ModelErrorKind::Refused);
    let error = json!({ "error": { "code": 503, "status": "UNAVAILABLE", "message": "busy" } });
    assert_eq!(silent(error).kind, ModelErrorKind::Overloaded);
    assert_eq!(
        silent(json!({ "candidates": 1 })).kind,
        ModelErrorKind::Malformed
    );
}

#[test]
fn a_stream_without_a_finish_reason_is_not_complete() {
    let mut decoder = GeminiDecoder::new(&ModelRequest::default());
    let chunk = parts(json!([{ "text": "x" }])).to_string();
    decoder
        .decode_event(
            SseEvent {
                name: String::new(),
                data: chunk,
            },
            &mut Vec::new(),
        )
        .expect("fine");
    assert!(!decoder.is_complete());
}

#[test]
fn reasoning_and_cached_tokens_are_counted_once() {
    let usage = json!({ "usageMetadata": {
        "promptTokenCount": 100, "cachedContentTokenCount": 80, "toolUsePromptTokenCount": 5,
        "candidatesTokenCount": 10, "thoughtsTokenCount": 30, "totalTokenCount": 145,
    } });
    let usage = decode_chunks(&[usage, end("STOP")])
        .1
        .expect("a reply")
        .usage
        .expect("usage");
    assert_eq!(
        usage,
        Usage {
            input: 25,
            cache_read: 80,
            cache_write: 0,
            output: 40,
            reasoning: 30
        }
    );
    assert_eq!(usage.total_tokens(), 145);
}
