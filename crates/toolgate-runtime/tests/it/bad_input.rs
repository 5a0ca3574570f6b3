//! Strange input from a model or a tool: a clear outcome or plain service, no panic, no hang.

use crate::common::{Probe, registry, stack, transcript, view};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use toolgate_core::{
    Arguments, Context, ExecutorTag, HostExecutor, OnExisting, RegisterError, Schema, SourceTrust,
    Status, Tool, ToolError, ToolOutput, ToolRequest, ToolSpec, tool_fn,
};
use toolgate_runtime::{Dispatcher, TurnEnd, TurnRequest};

/// Returns whatever a test wants it to return.
struct Odd(&'static str, fn() -> Result<ToolOutput, ToolError>);

impl Tool for Odd {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new(self.0, "Odd.", Schema::any_object())
    }
    async fn invoke(&self, _: Arguments, _: Context) -> Result<ToolOutput, ToolError> {
        (self.1)()
    }
}

fn deep(levels: usize) -> Value {
    (0..levels).fold(Value::Null, |inner, _| Value::Array(vec![inner]))
}

async fn statuses(registry: &toolgate_core::Registry, calls: Vec<ToolRequest>) -> Vec<Status> {
    let dispatcher = Dispatcher::builder(stack(registry))
        .build()
        .await
        .expect("builds");
    let size = calls.len();
    let report = dispatcher
        .open_turn(TurnRequest::new(view(registry), calls))
        .await
        .expect("opens")
        .run()
        .await
        .expect("runs");
    assert_eq!(report.end, TurnEnd::Settled);
    let (events, summary) = transcript(&dispatcher).await;
    assert_eq!(summary.ended.len(), size);
    for event in &events {
        let text = serde_json::to_string(&**event).expect("writes");
        let read: toolgate_core::Event =
            serde_json::from_str(&text).expect("an event that was made can be read");
        assert_eq!(read, **event);
        assert!(
            text.len() < 1 << 20,
            "events stay small: {} is {} bytes",
            event.name(),
            text.len()
        );
    }
    report
        .results
        .iter()
        .map(|result| result.status().expect("settled"))
        .collect()
}

#[tokio::test]
async fn odd_names_are_answered_as_unknown_tools() {
    let registry = registry(&Probe::default());
    let names = [
        "",
        " ",
        "\u{1b}[2J",
        "a b",
        "echo\0",
        "ECHO",
        "../echo",
        &"x".repeat(1 << 20),
        "🦀",
        "\u{202e}ohce",
    ];
    let calls = names
        .iter()
        .map(|name| ToolRequest::from_text("1", name, "{}"))
        .collect();
    assert_eq!(statuses(&registry, calls).await, [Status::ToolNotFound; 10]);
}

#[tokio::test]
async fn odd_arguments_are_rejected_or_served() {
    let registry = registry(&Probe::default());
    let deep_text = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let texts = [
        "",
        "null",
        "[]",
        "{",
        "{\"text\":}",
        "\u{feff}{}",
        "{\"text\":1e999}",
        "{\"text\":\"a\"}{}",
        &deep_text,
    ];
    let mut calls: Vec<_> = texts
        .iter()
        .map(|text| ToolRequest::from_text("1", "echo", text))
        .collect();
    calls.push(ToolRequest::from_json("2", "echo", deep(10_000)));
    calls.push(ToolRequest::from_json(
        "3",
        "echo",
        json!({ "text": deep(100) }),
    ));
    assert_eq!(
        statuses(&registry, calls).await,
        [Status::SchemaViolation; 11]
    );
    let served = vec![
        ToolRequest::from_json("1", "echo", json!({ "text": "x".repeat(10 << 20) })),
        ToolRequest::from_text("2", "echo", "{\"text\":\"\\ud800\\u0000 lone\"}"),
        ToolRequest::from_text("3", "echo", "{\"text\":\"twice\",\"text\":\"last\"}"),
    ];
    let found = statuses(&registry, served).await;
    assert_eq!(found[0], Status::Ok, "ten megabytes");
    assert_eq!(
        found[1],
        Status::SchemaViolation,
        "half a character is not JSON"
    );
    assert_eq!(found[2], Status::Ok);
}

#[tokio::test]
async fn odd_results_are_outcomes() {
    let registry = registry(&Probe::default());
    registry
        .register(Odd("deep", || Ok(deep(10_000).into())))
        .expect("free");
    registry
        .register(Odd("bytes", || {
            Ok(ToolOutput::from_bytes(vec![0xff, 0xfe, 0, b'x']))
        }))
        .expect("free");
    registry
        .register(Odd("large", || Ok("y".repeat(10 << 20).into())))
        .expect("free");
    registry
        .register(Odd(
            "wide",
            || Ok(json!([u64::MAX, i64::MIN, 1e308]).into()),
        ))
        .expect("free");
    registry
        .register(Odd("silent", || Err(ToolError::new(""))))
        .expect("free");
    let names = ["deep", "bytes", "large", "wide", "silent"];
    let calls = names
        .iter()
        .map(|name| ToolRequest::from_text("1", name, "{}"))
        .collect();
    use Status::{ExecutorError, Ok as Fine};
    assert_eq!(
        statuses(&registry, calls).await,
        [ExecutorError, Fine, Fine, Fine, ExecutorError]
    );
}

#[tokio::test]
async fn five_thousand_tools_are_shown_searched_and_called() {
    #[derive(Deserialize, JsonSchema)]
    struct Number {
        n: u32,
    }
    let registry = toolgate_core::Registry::new();
    for at in 0..5_000_u32 {
        let tool = tool_fn(
            &format!("tool_{at:04}"),
            "One of many.",
            move |input: Number, _cx| async move { Ok::<_, ToolError>(input.n + at) },
        );
        registry.register(tool).expect("free");
    }
    assert_eq!(view(&registry).specs().count(), 5_000);
    let calls = vec![
        ToolRequest::from_text("1", "tool_4999", r#"{"n":1}"#),
        ToolRequest::from_text("2", "tool_5000", r#"{"n":1}"#),
    ];
    assert_eq!(
        statuses(&registry, calls).await,
        [Status::Ok, Status::ToolNotFound]
    );
}

#[test]
fn a_tool_with_an_unusable_schema_or_name_is_rejected_by_name() {
    let registry = toolgate_core::Registry::new();
    let add = |name: &str, schema: Value| {
        let schema = Schema::new(schema).map_err(|error| error.to_string())?;
        let source = ExecutorTag::McpServer("somebody".into());
        let added = registry.register_from(
            ToolSpec::new(name, "", schema),
            source,
            SourceTrust::Untrusted,
            HostExecutor,
            OnExisting::Reject,
        );
        added
            .map(drop)
            .map_err(|error: RegisterError| error.to_string())
    };
    assert!(
        add("fine", json!({ "type": "object", "x-odd": [1], "properties": { "a": { "format": "made-up" } } })).is_ok()
    );
    for (name, schema, word) in [
        (
            "remote",
            json!({ "type": "object", "$ref": "https://example.com/s.json" }),
            "cannot be used",
        ),
        (
            "array",
            json!({ "type": "array" }),
            "the input schema of array",
        ),
        (
            "broken",
            json!({ "type": "object", "properties": 7 }),
            "cannot be used",
        ),
        ("has space", json!({ "type": "object" }), "is no tool name"),
        ("deep", deep(10_000), "nested deeper"),
    ] {
        let error = add(name, schema).expect_err(name);
        assert!(error.contains(word), "{name}: {error}");
    }
    assert_eq!(registry.len(), 1);
}
