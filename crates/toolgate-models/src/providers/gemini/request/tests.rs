//! Tests of the requests sent to Gemini.

use super::*;
use crate::ApiKey;
use std::sync::Arc;
use toolgate_core::{OutputFormat, Registry, Schema};

fn sent_by(name: &str, request: &ModelRequest) -> Value {
    let model = Gemini::builder(name)
        .key(ApiKey::new("key").expect("a key"))
        .build()
        .expect("set up");
    serde_json::from_slice(&model.encode_request(request).concat()).expect("JSON")
}

fn sent(request: &ModelRequest) -> Value {
    sent_by("gemini-3-pro", request)
}

fn asked(messages: Vec<Message>) -> ModelRequest {
    ModelRequest {
        messages: messages.into_iter().map(Arc::new).collect(),
        ..ModelRequest::default()
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

fn calling(id: &str, arguments: &str) -> MessagePart {
    PartContent::Call(ToolRequest::from_text(id, "read", arguments)).into()
}

fn result(id: &str, text: &str) -> ToolAnswer {
    ToolAnswer {
        call_id: id.into(),
        tool: "read".into(),
        text: text.into(),
        is_error: false,
        media: vec![],
    }
}

fn tool_message(answers: Vec<ToolAnswer>) -> Message {
    Message::new(
        Role::Tool,
        answers
            .into_iter()
            .map(|answer| PartContent::Result(answer).into())
            .collect(),
    )
}

#[test]
fn native_parts_are_sent_back_verbatim_and_answers_name_only_provider_ids() {
    let native = json!({ "functionCall": { "name": "read", "args": {} }, "thoughtSignature": "c2ln", "new": 1 });
    let request = asked(vec![
        Message::user("Read."),
        Message::new(
            Role::Assistant,
            vec![
                calling("gemini_0", "{}").with_native(WIRE, native.clone()),
                calling("fc-1", "{}").with_native(
                    WIRE,
                    json!({ "functionCall": { "id": "fc-1", "name": "read" } }),
                ),
            ],
        ),
        tool_message(vec![
            result("gemini_0", "A"),
            ToolAnswer {
                is_error: true,
                ..result("fc-1", "no")
            },
        ]),
    ]);
    let expected = json!([
        { "role": "user", "parts": [{ "text": "Read." }] },
        { "role": "model", "parts": [native, { "functionCall": { "id": "fc-1", "name": "read" } }] },
        { "role": "user", "parts": [
            { "functionResponse": { "name": "read", "response": { "output": "A" } } },
            { "functionResponse": { "name": "read", "response": { "error": "no" }, "id": "fc-1" } },
        ] },
    ]);
    assert_eq!(sent(&request)["contents"], expected);
    assert_eq!(sent_by("gemini-2.5-pro", &request)["contents"], expected);
}

#[test]
fn foreign_calls_are_marked_as_unsigned_where_signatures_are_required() {
    let thought = MessagePart::from(PartContent::Reasoning("hm".into()))
        .with_native("anthropic", json!({ "type": "thinking" }));
    let parts = vec![
        thought,
        calling("toolu_1", "{"),
        calling("toolu_2", "{}"),
        MessagePart::from_text(""),
    ];
    let request = asked(vec![
        Message::new(Role::Assistant, parts),
        Message::assistant(""),
    ]);
    let call = |id: &str, args: Value| json!({ "functionCall": { "id": id, "name": "read", "args": args } });
    let mut first = call("toolu_1", json!({ "INVALID_JSON": "{" }));
    let second = call("toolu_2", json!({}));
    assert_eq!(
        sent_by("gemini-2.5-pro", &request)["contents"],
        json!([{ "role": "model", "parts": [first, second] }])
    );
    first["thoughtSignature"] = SKIP_SIGNATURE.into();
    assert_eq!(
        sent(&request)["contents"],
        json!([{ "role": "model", "parts": [first, second] }])
    );
}

#[test]
fn images_are_part_of_a_result_or_follow_it() {
    let url = Media {
        source: MediaSource::Url("https://x/y".into()),
        ..Media::from_base64("application/pdf", "")
    };
    let media = vec![Media::from_base64("image/png", "AAAA"), url];
    let request = asked(vec![tool_message(vec![
        ToolAnswer {
            media,
            ..result("", "See.")
        },
        result("", "B"),
    ])]);
    let pictures = json!([
        { "inlineData": { "mimeType": "image/png", "data": "AAAA" } },
        { "fileData": { "mimeType": "application/pdf", "fileUri": "https://x/y" } },
    ]);
    let new = sent(&request)["contents"][0]["parts"].take();
    assert_eq!(new[0]["functionResponse"]["parts"], pictures);
    assert_eq!(new.as_array().map(Vec::len), Some(2));
    let old = sent_by("gemini-2.0-flash", &request)["contents"][0]["parts"].take();
    assert_eq!(old[0]["functionResponse"].get("parts"), None);
    assert_eq!(Value::from(&old.as_array().expect("a list")[2..]), pictures);
}

#[test]
fn tools_and_choices_use_the_words_of_the_api() {
    let mut request = asked(vec![Message::user("a")]);
    request.choice = ToolChoice::Required;
    assert_eq!(
        (
            sent(&request).get("tools"),
            sent(&request).get("toolConfig")
        ),
        (None, None)
    );
    request.view = view(&["files.read", "7zip"]);
    let tools = &sent(&request)["tools"][0]["functionDeclarations"];
    let names: Vec<_> = tools
        .as_array()
        .expect("a list")
        .iter()
        .map(|tool| tool["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(names, ["_7zip", &*to_wire_name("files.read")]);
    assert_eq!(
        tools[0]["parametersJsonSchema"],
        json!({ "type": "object" })
    );
    assert!(
        names
            .iter()
            .zip(["7zip", "files.read"])
            .all(|(wire, name)| from_wire_name(&request.view, wire) == name)
    );
    let cases = [
        (ToolChoice::Auto, Value::Null),
        (ToolChoice::None, json!({ "mode": "NONE" })),
        (ToolChoice::Required, json!({ "mode": "ANY" })),
        (
            ToolChoice::Named("7zip".into()),
            json!({ "mode": "ANY", "allowedFunctionNames": ["_7zip"] }),
        ),
    ];
    for (choice, expected) in cases {
        let request = ModelRequest {
            choice,
            ..request.clone()
        };
        assert_eq!(
            sent(&request)["toolConfig"]["functionCallingConfig"],
            expected
        );
    }
}

#[test]
fn settings_go_where_the_model_accepts_them() {
    let mut request = asked(vec![Message::user("a")]);
    assert_eq!(
        sent(&request),
        json!({ "contents": [{ "role": "user", "parts": [{ "text": "a" }] }] })
    );
    request.instructions = Some("Be brief.".into());
    request.max_tokens = Some(9);
    request.temperature = Some(0.5);
    request.effort = Some(Effort::Low);
    let schema = Schema::new(json!({ "type": "object", "title": "Answer" })).expect("valid");
    request.output = Some(OutputFormat {
        name: "answer".into(),
        schema,
    });
    let config = json!({
        "maxOutputTokens": 9, "temperature": 0.5,
        "responseMimeType": "application/json", "responseJsonSchema": { "type": "object", "title": "Answer" },
        "thinkingConfig": { "includeThoughts": true, "thinkingLevel": "LOW" },
    });
    assert_eq!(sent(&request)["generationConfig"], config);
    assert_eq!(
        sent(&request)["systemInstruction"],
        json!({ "parts": [{ "text": "Be brief." }] })
    );
    let thinking =
        |model: &str| sent_by(model, &request)["generationConfig"]["thinkingConfig"].take();
    assert_eq!(
        thinking("gemini-2.5-pro"),
        json!({ "includeThoughts": true, "thinkingBudget": 1024 })
    );
    assert_eq!(thinking("gemini-2.0-flash"), Value::Null);
    request.view = view(&["read"]);
    assert!(
        sent(&request)["generationConfig"]
            .get("responseJsonSchema")
            .is_some()
    );
    let old = sent_by("gemini-2.5-pro", &request);
    assert_eq!(
        old["generationConfig"].get("responseMimeType"),
        None,
        "no schema beside tools"
    );
    let wish = old["systemInstruction"]["parts"][1]["text"]
        .as_str()
        .expect("the schema in the instructions");
    assert!(wish.contains(r#""title":"Answer""#), "{wish}");
}
