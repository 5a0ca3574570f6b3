//! Tests of the requests sent to Anthropic.

use super::*;
use crate::ApiKey;
use std::sync::Arc;
use toolgate_core::{OutputFormat, Registry, Schema, ToolRequest};

fn model(name: &str) -> Anthropic {
    Anthropic::builder(name)
        .key(ApiKey::new("key").expect("a key"))
        .build()
        .expect("set up")
}

fn sent_by(name: &str, request: &ModelRequest) -> Value {
    serde_json::from_slice(&model(name).encode_request(request).concat()).expect("JSON")
}

fn sent(request: &ModelRequest) -> Value {
    sent_by("claude-sonnet-5", request)
}

fn asked(messages: Vec<Message>) -> ModelRequest {
    ModelRequest {
        messages: messages.into_iter().map(Arc::new).collect(),
        ..ModelRequest::default()
    }
}

fn calling(id: &str, arguments: &str) -> MessagePart {
    PartContent::Call(ToolRequest::from_text(id, "files.read", arguments)).into()
}

fn result(id: &str, text: &str) -> ToolAnswer {
    ToolAnswer {
        call_id: id.into(),
        tool: "files.read".into(),
        text: text.into(),
        is_error: false,
        media: vec![],
    }
}

fn view(names: &[&str]) -> View {
    let registry = Registry::new();
    for name in names {
        registry
            .register_host(ToolSpec::new(*name, "A tool.", Schema::any_object()))
            .expect("free");
    }
    toolgate_testkit::plain_view(&registry)
}

#[test]
fn results_and_following_text_are_one_message_with_results_first() {
    let request = asked(vec![
        Message::user("Read a."),
        Message::new(
            Role::Assistant,
            vec![
                MessagePart::from_text("I read."),
                calling("c1", r#"{"path":"a"}"#),
            ],
        ),
        Message::new(
            Role::Tool,
            vec![PartContent::Result(result("c1", "A")).into()],
        ),
        Message::user("Hurry."),
        Message::assistant("Done."),
    ]);
    let name = NAMES.to_wire("files.read");
    let expected = json!([
        { "role": "user", "content": [{ "type": "text", "text": "Read a." }] },
        { "role": "assistant", "content": [
            { "type": "text", "text": "I read." },
            { "type": "tool_use", "id": "c1", "name": name, "input": { "path": "a" } },
        ] },
        { "role": "user", "content": [
            { "type": "tool_result", "tool_use_id": "c1", "content": "A" },
            { "type": "text", "text": "Hurry." },
        ] },
        { "role": "assistant", "content": [{ "type": "text", "text": "Done." }] },
    ]);
    assert_eq!(sent(&request)["messages"], expected);
    assert_eq!(
        sent(&request)["messages"],
        expected,
        "the same from cached fragments"
    );
}

#[test]
fn empty_content_is_omitted_and_its_neighbours_are_joined() {
    let request = asked(vec![
        Message::user("a"),
        Message::assistant(" \n"),
        Message::new(
            Role::Assistant,
            vec![
                MessagePart::from_text("").with_native(WIRE, json!({ "type": "text", "text": "" })),
            ],
        ),
        Message::user("b"),
    ]);
    let expected = json!([{ "role": "user", "content": [
        { "type": "text", "text": "a" }, { "type": "text", "text": "b" },
    ] }]);
    assert_eq!(sent(&request)["messages"], expected);
    assert_eq!(sent(&asked(vec![]))["messages"], json!([]));
}

#[test]
fn native_blocks_are_sent_back_verbatim_and_foreign_ones_are_not() {
    let block = json!({ "type": "thinking", "thinking": "hm", "signature": "s", "new_field": [1] });
    let thought = || MessagePart::from(PartContent::Reasoning("hm".into()));
    let parts = vec![
        thought().with_native(WIRE, block.clone()),
        thought().with_native("openai", json!({ "type": "reasoning" })),
        PartContent::Opaque.into(),
        MessagePart::from_text("So."),
    ];
    let sent = sent(&asked(vec![Message::new(Role::Assistant, parts)]));
    assert_eq!(
        sent["messages"][0]["content"],
        json!([block, { "type": "text", "text": "So." }])
    );
}

#[test]
fn calls_of_other_providers_are_converted() {
    let parts = vec![calling("call|1/é", r#"{"a":"#), calling("", "[1]")];
    let answers = [
        result("call|1/é", ""),
        ToolAnswer {
            is_error: true,
            ..result("", "no")
        },
    ];
    let answers = answers
        .into_iter()
        .map(|answer| PartContent::Result(answer).into())
        .collect();
    let sent = sent(&asked(vec![
        Message::new(Role::Assistant, parts),
        Message::new(Role::Tool, answers),
    ]));
    let calls = &sent["messages"][0]["content"];
    let results = &sent["messages"][1]["content"];
    assert_eq!(
        (&calls[0]["id"], &calls[1]["id"]),
        (&json!("call_1__"), &json!("call"))
    );
    assert_eq!(
        calls[0]["input"],
        json!({ "INVALID_JSON": "{\"a\":" }),
        "not replaced by an empty object"
    );
    assert_eq!(calls[1]["input"], json!({ "INVALID_JSON": "[1]" }));
    assert_eq!(
        results[0],
        json!({ "type": "tool_result", "tool_use_id": "call_1__", "content": "" })
    );
    assert_eq!(
        results[1],
        json!({ "type": "tool_result", "tool_use_id": "call", "content": "no", "is_error": true })
    );
}

#[test]
fn images_and_files_go_where_the_api_accepts_them() {
    let named = |media: Media, name: &str| Media {
        name: Some(name.into()),
        ..media
    };
    let url = Media {
        source: MediaSource::Url("https://x/y".into()),
        ..Media::from_base64("image/png", "")
    };
    let media = vec![
        Media::from_base64("image/png", "AAAA"),
        url,
        named(Media::from_base64("application/pdf", "BBBB"), "b.pdf"),
        Media::from_base64("text/csv", BASE64_STANDARD.encode("a,b")),
        named(Media::from_base64("audio/wav", "CCCC"), "c.wav"),
    ];
    let expected = json!([
        { "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "AAAA" } },
        { "type": "image", "source": { "type": "url", "url": "https://x/y" } },
        {
            "type": "document", "title": "b.pdf",
            "source": { "type": "base64", "media_type": "application/pdf", "data": "BBBB" },
        },
        { "type": "document", "source": { "type": "text", "media_type": "text/plain", "data": "a,b" } },
        { "type": "text", "text": "[audio/wav c.wav that cannot be shown here]" },
    ]);
    let parts = media
        .iter()
        .cloned()
        .map(|media| PartContent::Media(media).into())
        .collect();
    assert_eq!(
        sent(&asked(vec![Message::new(Role::User, parts)]))["messages"][0]["content"],
        expected
    );
    let answer = PartContent::Result(ToolAnswer {
        media,
        ..result("c", "See.")
    })
    .into();
    let sent = sent(&asked(vec![Message::new(Role::Tool, vec![answer])]));
    let content = sent["messages"][0]["content"][0]["content"]
        .as_array()
        .expect("a list");
    assert_eq!(content[0], json!({ "type": "text", "text": "See." }));
    assert_eq!(Value::from(&content[1..]), expected);
}

#[test]
fn caching_is_marked_without_encoding_messages_again() {
    let mut request = asked(vec![Message::user("a")]);
    request.instructions = Some("Be brief.".into());
    request.view = view(&["a", "b"]);
    let plain = sent(&request);
    assert!(!plain.to_string().contains("cache_control"));
    request.cache = true;
    let marked = sent(&request);
    let marker = json!({ "type": "ephemeral" });
    assert_eq!(marked["cache_control"], marker);
    assert_eq!(
        marked["system"],
        json!([{ "type": "text", "text": "Be brief.", "cache_control": marker }])
    );
    assert_eq!(
        (
            &marked["tools"][0]["cache_control"],
            &marked["tools"][1]["cache_control"]
        ),
        (&Value::Null, &marker)
    );
    assert_eq!(marked["messages"], plain["messages"]);
}

#[test]
fn tool_choices_use_the_words_of_the_api() {
    let mut request = asked(vec![Message::user("a")]);
    request.choice = ToolChoice::Required;
    assert_eq!(
        sent(&request).get("tool_choice"),
        None,
        "without tools there is no choice"
    );
    request.view = view(&["a.b"]);
    let cases = [
        (ToolChoice::Auto, None, Value::Null),
        (ToolChoice::Auto, Some(true), Value::Null),
        (
            ToolChoice::Auto,
            Some(false),
            json!({ "type": "auto", "disable_parallel_tool_use": true }),
        ),
        (ToolChoice::None, Some(false), json!({ "type": "none" })),
        (ToolChoice::Required, None, json!({ "type": "any" })),
        (
            ToolChoice::Named("a.b".into()),
            Some(false),
            json!({ "type": "tool", "name": NAMES.to_wire("a.b"), "disable_parallel_tool_use": true }),
        ),
    ];
    for (choice, parallel_calls, expected) in cases {
        let request = ModelRequest {
            choice,
            parallel_calls,
            ..request.clone()
        };
        assert_eq!(sent(&request)["tool_choice"], expected);
    }
}

#[test]
fn an_effort_becomes_thinking_within_the_limits_of_the_api() {
    let mut request = asked(vec![Message::user("a")]);
    request.temperature = Some(0.5);
    assert_eq!(
        (
            sent(&request).get("thinking"),
            sent(&request).get("output_config")
        ),
        (None, None)
    );
    request.effort = Some(Effort::High);
    let adaptive = sent(&request);
    assert_eq!(adaptive["thinking"]["type"], "adaptive");
    assert_eq!(adaptive["output_config"], json!({ "effort": "high" }));
    let old = |request: &ModelRequest| sent_by("claude-sonnet-4-5", request);
    assert_eq!(
        old(&request)["thinking"],
        json!({ "type": "enabled", "budget_tokens": 16_000 })
    );
    assert_eq!(old(&request).get("output_config"), None);
    assert_eq!(
        old(&request).get("temperature"),
        None,
        "the API accepts none"
    );
    request.max_tokens = Some(4096);
    assert_eq!(
        old(&request)["thinking"]["budget_tokens"],
        2048,
        "less than max_tokens"
    );
    request.max_tokens = Some(1500);
    assert_eq!(
        old(&request).get("thinking"),
        None,
        "max_tokens leaves no room"
    );
    request.max_tokens = None;
    request.view = view(&["a"]);
    let forced = ModelRequest {
        choice: ToolChoice::Required,
        ..request.clone()
    };
    assert_eq!(
        (old(&forced).get("thinking"), sent(&forced).get("thinking")),
        (None, None)
    );
    request.effort = Some(Effort::Minimal);
    assert_eq!(
        (
            old(&request).get("thinking"),
            sent(&request).get("thinking")
        ),
        (None, None)
    );
}

#[test]
fn invalid_thoughts_are_dropped_for_models_that_would_reject_them() {
    let request = asked(vec![Message::user("a")]);
    let binding = json!({ "prefix_mismatch_behavior": "drop_block" });
    let thinking = |effort| {
        sent_by(
            "claude-opus-5-5",
            &ModelRequest {
                effort,
                ..request.clone()
            },
        )["thinking"]
            .take()
    };
    assert_eq!(
        thinking(None),
        json!({ "type": "adaptive", "block_binding": binding })
    );
    let told = json!({ "type": "adaptive", "display": "summarized", "block_binding": binding });
    assert_eq!(thinking(Some(Effort::Low)), told);
}

#[test]
fn calls_that_came_without_thoughts_are_answered_without_a_budget() {
    let answer = || {
        Message::new(
            Role::Tool,
            vec![PartContent::Result(result("c", "A")).into()],
        )
    };
    let thought = MessagePart::from(PartContent::Reasoning("hm".into()));
    let thought = thought.with_native(
        WIRE,
        json!({ "type": "thinking", "thinking": "hm", "signature": "s" }),
    );
    for (parts, thinks) in [
        (vec![calling("c", "{}")], false),
        (vec![thought, calling("c", "{}")], true),
    ] {
        let mut request = asked(vec![
            Message::user("a"),
            Message::new(Role::Assistant, parts),
            answer(),
        ]);
        request.effort = Some(Effort::Low);
        assert_eq!(
            sent_by("claude-sonnet-4-5", &request)
                .get("thinking")
                .is_some(),
            thinks
        );
        assert!(sent(&request).get("thinking").is_some());
    }
}

#[test]
fn the_output_format_is_sent_and_extras_win() {
    let mut request = asked(vec![Message::user("a")]);
    let schema =
        json!({ "type": "object", "properties": { "n": { "type": "integer", "minimum": 1 } } });
    request.output = Some(OutputFormat {
        name: "answer".into(),
        schema: Schema::new(schema).expect("valid"),
    });
    request.extra.insert("max_tokens".into(), 5.into());
    let sent = sent(&request);
    assert_eq!(sent["output_config"]["format"]["type"], "json_schema");
    assert_eq!(
        sent["output_config"]["format"]["schema"]["additionalProperties"],
        false
    );
    assert_eq!(sent["max_tokens"], 5);
}
