//! Requests for the tests.

use std::sync::Arc;

use serde_json::json;
use toolgate_core::{
    Effort, Media, MediaSource, Message, MessagePart, ModelRequest, OutputFormat, PartContent,
    Registry, Reply, Role, Schema, ToolAnswer, ToolChoice, ToolName, ToolSpec, View,
};

/// Builds a request with one user message.
pub(crate) fn saying(text: &str) -> ModelRequest {
    ModelRequest {
        messages: vec![Arc::new(Message::user(text))],
        ..ModelRequest::default()
    }
}

/// Returns two tools, one of which has a name that OpenAI does not accept.
pub(crate) fn tools() -> View {
    let registry = Registry::new();
    let schema = json!({ "type": "object", "properties": { "path": { "type": "string" } }, "required": ["path"] });
    for name in ["files.read", "write"] {
        let schema = Schema::new(schema.clone()).expect("valid");
        registry
            .register_host(ToolSpec::new(name, "Reads or writes a file.", schema))
            .expect("free");
    }
    toolgate_testkit::plain_view(&registry)
}

/// Continues a conversation after a reply: its calls are answered, the first with an image and a
/// file.
pub(crate) fn answered(mut request: ModelRequest, reply: Reply) -> ModelRequest {
    let mut media = vec![
        Media::from_base64("image/png", "iVBORw0KGgo="),
        Media::from_base64("application/pdf", "JVBERi0="),
    ];
    let parts = reply.message.calls().map(|call| {
        MessagePart::from(PartContent::Result(ToolAnswer {
            call_id: call.provider_call_id.clone(),
            tool: call.tool.clone(),
            text: "done".to_owned(),
            is_error: false,
            media: std::mem::take(&mut media),
        }))
    });
    let answers = Message::new(Role::Tool, parts.collect());
    request
        .messages
        .extend([Arc::new(reply.message), Arc::new(answers)]);
    request
}

/// Builds a request that uses every setting.
pub(crate) fn everything() -> ModelRequest {
    let schema = json!({
        "type": "object", "properties": { "answer": { "type": "string" } }, "required": ["answer"],
        "additionalProperties": false,
    });
    let picture = Media {
        source: MediaSource::Url("https://example.com/a.png".into()),
        ..Media::from_base64("image/png", "")
    };
    let parts = vec![
        MessagePart::from_text("Look:"),
        PartContent::Media(Media::from_base64("image/jpeg", "/9j/")).into(),
        PartContent::Media(picture).into(),
        PartContent::Media(Media {
            name: Some("notes.pdf".into()),
            ..Media::from_base64("application/pdf", "JVBERi0=")
        })
        .into(),
    ];
    ModelRequest {
        instructions: Some("Be brief.".into()),
        messages: vec![
            Arc::new(Message::user("hello")),
            Arc::new(Message::new(Role::User, parts)),
        ],
        view: tools(),
        choice: ToolChoice::Named(ToolName::from("files.read")),
        parallel_calls: Some(false),
        output: Some(OutputFormat {
            name: "final answer".into(),
            schema: Schema::new(schema).expect("valid"),
        }),
        max_tokens: Some(1000),
        temperature: Some(0.5),
        effort: Some(Effort::Low),
        cache: true,
        ..ModelRequest::default()
    }
}
