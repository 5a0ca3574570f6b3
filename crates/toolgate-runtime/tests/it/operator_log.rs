//! What only the operator reads: it is logged and stored redacted, and never told to the model.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use toolgate_core::{
    Json, RedactionError, Redactor, Registry, Stack, ToolError, ToolRequest, View, tool_fn,
};
use toolgate_runtime::{Dispatcher, TurnRequest};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

/// Replaces one word.
struct HidesWord;

impl Redactor for HidesWord {
    fn redact(&self, value: &Json) -> Result<Json, RedactionError> {
        let text = self.redact_text(&value.to_string())?;
        text.parse().map_err(|_| RedactionError)
    }
    fn redact_text(&self, text: &str) -> Result<String, RedactionError> {
        Ok(text.replace("hunter2", "***"))
    }
}

/// Collects the fields of log lines.
#[derive(Clone, Default)]
struct CollectedLog(Arc<Mutex<Vec<(Level, String)>>>);

impl Subscriber for CollectedLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("toolgate")
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        struct Fields(String);
        impl Visit for Fields {
            fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
                self.0.push_str(&format!("{field}={value:?} "));
            }
        }
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        let line = (*event.metadata().level(), fields.0);
        self.0.lock().expect("whole").push(line);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[tokio::test]
async fn the_cause_of_a_failure_is_logged_and_stored_redacted_and_the_model_never_reads_it() {
    let log = CollectedLog::default();
    let _logged = tracing::subscriber::set_default(log.clone());
    let registry = Registry::new();
    let failing = tool_fn("pay", "Pays.", async |_: Nothing, _| {
        let cause = "postgres://ann:hunter2@db refused the connection";
        Err::<String, _>(ToolError::new("the tool failed").with_operator_detail(cause))
    });
    registry.register(failing).expect("free");
    let stack = Stack::over(registry.clone()).build().expect("in order");
    let view = View::for_stack(&registry, &stack).expect("fits");
    let dispatcher = Dispatcher::builder(stack)
        .redactor(HidesWord)
        .build()
        .await
        .expect("builds");
    let calls = vec![ToolRequest::from_text("1", "pay", "{}")];
    let turn = dispatcher.open_turn(TurnRequest::new(view, calls)).await;
    let report = turn.expect("opens").run().await.expect("runs");
    let call = report.results[0].id;

    let lines = log.0.lock().expect("whole").clone();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0].0, Level::ERROR);
    let cause = "postgres://ann:***@db refused the connection";
    for part in [cause, "tool=pay", &call.to_string(), "executor_error"] {
        assert!(lines[0].1.contains(part), "{part}: {}", lines[0].1);
    }
    let outcome = dispatcher.store().load_outcome(call).await.expect("reads");
    let outcome = outcome.expect("is stored");
    let error = outcome.error.as_ref().expect("failed");
    assert_eq!(error.operator.as_deref(), Some(cause));
    assert_eq!(outcome.model_text(), "the tool failed");
    let session = dispatcher.session();
    let events = dispatcher.store().events(session, 0, 100).await;
    let events = serde_json::to_string(&events.expect("reads")).expect("writes");
    assert!(!events.contains("postgres"), "{events}");
}
