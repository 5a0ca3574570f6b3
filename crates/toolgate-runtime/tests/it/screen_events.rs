//! What screens show comes from events: labels of long work, changed files, messages. They are
//! redacted and bounded. One call can be cancelled alone.

use std::sync::Arc;

use crate::common::statuses;
use toolgate_core::{
    Annotations, Band, Call, Event, FileChange, FileChangeKind, Layer, LongRunningLabel, Next,
    Outcome, Registry, Stack, Status, ToastAction, ToastLevel, ToastNotice, ToolError, ToolEvent,
    ToolRequest, View, tool_fn,
};
use toolgate_runtime::{BusDelivery, Dispatcher, TurnEnd, TurnRequest};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

/// Replaces one word.
struct HidesWord;

impl toolgate_core::Redactor for HidesWord {
    fn redact(
        &self,
        value: &toolgate_core::Json,
    ) -> Result<toolgate_core::Json, toolgate_core::RedactionError> {
        let text = self.redact_text(&value.to_string())?;
        text.parse().map_err(|_| toolgate_core::RedactionError)
    }
    fn redact_text(&self, text: &str) -> Result<String, toolgate_core::RedactionError> {
        Ok(text.replace("hunter2", "***"))
    }
}

/// Reports what the bundled layers report.
struct Reporter;

impl Layer for Reporter {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        let label = LongRunningLabel("Building hunter2".into());
        let mut outcome = next.run(call.clone().with_extension(label)).await;
        if let Some(settled) = outcome.settled_mut() {
            settled.text = Some(format!("hunter2 {}", "x".repeat(9_000)).into());
        }
        let probe = call.env().probe();
        let file = |n: usize| FileChange::new(&format!("hunter2/{n}"), FileChangeKind::Created);
        probe.report_files(&call, (0..150).map(file).collect(), 7);
        let toast = ToastNotice {
            level: ToastLevel::Error,
            title: "build".into(),
            message: "it used hunter2".into(),
            duration_ms: Some(5_000),
            action: Some(ToastAction::show_call(call.id)),
        };
        probe.show_toast(&call, toast);
        outcome
    }

    fn band(&self) -> Band {
        Band::Record
    }
}

async fn run_build(dispatcher: &Dispatcher, view: View) -> Vec<Arc<Event>> {
    let calls = vec![ToolRequest::from_text("1", "build", "{}")];
    let turn = dispatcher.open_turn(TurnRequest::new(view, calls)).await;
    turn.expect("opens").run().await.expect("runs");
    let events = dispatcher.store().events(dispatcher.session(), 0, 100);
    events.await.expect("reads")
}

#[tokio::test]
async fn labels_files_and_messages_are_events_that_are_redacted_and_bounded() {
    let registry = Registry::new();
    let build = tool_fn("build", "Builds.", async |_: Nothing, _| {
        Ok::<_, ToolError>(1)
    });
    registry.register(build).expect("free");
    let stack = Stack::over(registry.clone()).layer(Reporter).build();
    let stack = stack.expect("in order");
    let view = View::for_stack(&registry, &stack).expect("fits");
    let builder = Dispatcher::builder(stack).redactor(HidesWord);
    let dispatcher = builder.build().await.expect("builds");
    let events = run_build(&dispatcher, view).await;
    let names: Vec<&str> = events.iter().map(|event| event.name()).collect();
    assert_eq!(
        names,
        [
            "turn_opened",
            "tool_requested",
            "tool_execution_started",
            "tool_execution_progress",
            "tool_files_changed",
            "tool_toast",
            "tool_execution_succeeded",
            "turn_settled"
        ]
    );
    let text = serde_json::to_string(&events).expect("writes");
    assert!(!text.contains("hunter2"), "{text}");
    for event in events.iter().filter_map(|event| event.as_tool()) {
        match event.1 {
            ToolEvent::ToolExecutionProgress { progress } => {
                assert_eq!(progress.label.as_deref(), Some("Building ***"));
            }
            ToolEvent::ToolFilesChanged { changes, omitted } => {
                assert_eq!((changes.len(), *omitted), (100, 57));
                assert_eq!(changes[0].path, "***/0");
            }
            ToolEvent::ToolToast(toast) => {
                assert_eq!(toast.message, "it used ***");
                let action = toast.action.as_ref().expect("is kept");
                assert_eq!(action.shown_call(), Some(event.0.id));
            }
            ToolEvent::ToolExecutionSucceeded { model_text, .. } => {
                let text = model_text.as_deref().expect("differs from the result");
                assert_eq!((text.len(), &text[..5]), (2 * 1024, "*** x"));
            }
            _ => {}
        }
    }
}

#[tokio::test]
async fn one_call_is_cancelled_and_its_sibling_continues() {
    let registry = Registry::new();
    let hang = tool_fn(
        "hang",
        "Hangs.",
        async |_: Nothing, cx: toolgate_core::Context| {
            cx.cancelled().await;
            let error = ToolError::new("stopped on request");
            Err::<String, _>(error.with_category(toolgate_core::ErrorCategory::Cancelled))
        },
    );
    let deaf = tool_fn("deaf", "Never stops.", async |_: Nothing, _| {
        std::future::pending::<Result<String, ToolError>>().await
    });
    let deaf = deaf.with_annotations(Annotations::read_only());
    let quick = tool_fn("quick", "Is quick.", async |_: Nothing, _| {
        Ok::<_, ToolError>("done")
    });
    registry.register(hang).expect("free");
    registry.register(deaf).expect("free");
    registry.register(quick).expect("free");
    let stack = Stack::over(registry.clone()).build().expect("in order");
    let view = View::for_stack(&registry, &stack).expect("fits");
    // Without a grace period, a call that does not react is aborted at once.
    let builder = Dispatcher::builder(stack).grace(std::time::Duration::ZERO);
    // Two at a time: the last two wait until one is cancelled.
    let dispatcher = builder.max_concurrent(2).build().await.expect("builds");
    let calls = ["hang", "deaf", "hang", "quick"];
    let calls = calls
        .iter()
        .enumerate()
        .map(|(n, tool)| ToolRequest::from_text(&n.to_string(), tool, "{}"));
    let mut events = dispatcher.bus().subscribe();
    let request = TurnRequest::new(view, calls.collect());
    let turn = dispatcher.open_turn(request).await.expect("opens");
    let handle = turn.handle();
    let running = tokio::spawn(turn.run());
    let mut ids = Vec::new();
    let mut started = 0;
    while started < 2 {
        let Some(BusDelivery::Event(event)) = events.next().await else {
            continue;
        };
        match event.as_tool() {
            Some((call, ToolEvent::ToolRequested { .. })) => ids.push(call.id),
            Some((_, ToolEvent::ToolExecutionStarted { .. })) => started += 1,
            _ => {}
        }
    }
    assert!(handle.cancel_call(ids[2]), "it waits to start");
    assert!(handle.cancel_call(ids[1]));
    assert!(handle.cancel_call(ids[0]));
    let report = running.await.expect("no panic").expect("runs");
    assert_eq!(report.end, TurnEnd::Settled, "the turn is not interrupted");
    let stopped = Some(Status::Cancelled);
    let ended = [stopped, stopped, stopped, Some(Status::Ok)];
    assert_eq!(statuses(&report), ended);
    assert!(!handle.cancel_call(ids[3]), "it has settled");
}
