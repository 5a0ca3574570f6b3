//! Requests that tests ask with.

use std::sync::Arc;

use serde_json::json;
use toolgate_core::{
    Content, Effort, Media, MediaSource, Message, ModelRequest, OutputFormat, Part, Registry,
    Reply, Role, Schema, ToolAnswer, ToolChoice, ToolName, ToolSpec, View,
};

/// Someone says something.
pub(crate) fn saying(text: &str) -> ModelRequest {
    ModelRequest {
        messages: vec![Arc::new(Message::user(text))],
        ..ModelRequest::default()
    }
}

/// Two tools, one of which has a name that OpenAI does not take.
pub(crate) fn tools() -> View {
    let registry = Registry::new();
    let schema = json!({ "type": "object", "properties": { "path": { "type": "string" } }, "required": ["path"] });
    for name in ["files.read", "write"] {
        let schema = Schema::new(schema.clone()).expect("valid");
        registry
            .register_host(ToolSpec::new(name, "Reads or writes a file.", schema))
            .expect("free");
    }
    View::of(&registry)
}

/// The same conversation after a reply whose calls were answered, the first with a picture and a file.
pub(crate) fn answered(mut request: ModelRequest, reply: Reply) -> ModelRequest {
    let mut media = vec![
        Media::data("image/png", "iVBORw0KGgo="),
        Media::data("application/pdf", "JVBERi0="),
    ];
    let parts = reply.message.calls().map(|call| {
        Part::from(Content::Result(ToolAnswer {
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

/// Everything at once.
pub(crate) fn everything() -> ModelRequest {
    let schema = json!({
        "type": "object", "properties": { "answer": { "type": "string" } }, "required": ["answer"],
        "additionalProperties": false,
    });
    let picture = Media {
        source: MediaSource::Url("https://example.com/a.png".into()),
        ..Media::data("image/png", "")
    };
    let parts = vec![
        Part::text("Look:"),
        Content::Media(Media::data("image/jpeg", "/9j/")).into(),
        Content::Media(picture).into(),
        Content::Media(Media {
            name: Some("notes.pdf".into()),
            ..Media::data("application/pdf", "JVBERi0=")
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
