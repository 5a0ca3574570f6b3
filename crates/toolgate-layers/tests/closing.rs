//! A call that ended outside the stack comes by once more: it is recorded, cleared up after, and not decided or run.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use toolgate_core::{
    Annotations, AnyLayer, Call, CallError, CallSeed, ErrorCategory, Json, Layer, Outcome,
    RedactionFailed, Registry, Schema, Settled, Stack, Status, Timestamp, ToolSpec, View,
};
use toolgate_layers::{
    Config, FileChanges, FileWatcher, Ledger, MemoryReceipts, OutputCap, Parts, Progress,
    ProgressManager, ReceiptFilter, Receipts, Redact, SinkError, Summary, Telemetry, ToastLevel,
    ToastManager, Toasts, ToolSpan, default_stack, receipt_fn, span_fn,
};
use toolgate_testkit::{Scripted, TestClock, env_at, seed_for};

fn interrupted() -> Settled {
    let mut end = Settled::new(Status::Cancelled);
    end.error = Some(CallError::new(
        ErrorCategory::Cancelled,
        "the turn was interrupted",
    ));
    end
}

fn found_out(value: Value) -> Settled {
    Outcome::ok(value).settled().expect("settled").clone()
}

fn call_of(tool: &str, end: Settled) -> CallSeed {
    let registry = Registry::new();
    let mut annotations = Annotations::default();
    annotations.long_running = Some("Building".into());
    let spec =
        ToolSpec::new("build", "Builds.", Schema::any_object()).with_annotations(annotations);
    registry.register_host(spec).expect("a new name");
    let env = env_at(&TestClock::new());
    CallSeed {
        env,
        closing: Some(Arc::new(end)),
        ..seed_for(&View::of(&registry), tool, json!({ "path": "a" }))
    }
}

/// Lets a call that ended like this come by, over an executor that must not be reached.
async fn closed(layer: impl Layer, end: Settled) -> Outcome {
    let executor = Scripted::new();
    let stack = Stack::over(executor.clone())
        .layer(layer)
        .build()
        .expect("in order");
    let outcome = stack.run(Call::new(call_of("build", end))).await;
    assert!(executor.seen().is_empty(), "nothing is run");
    outcome
}

#[tokio::test]
async fn interrupted_expired_and_unknown_calls_have_one_receipt_each() {
    for status in [
        Status::Cancelled,
        Status::Expired,
        Status::OutcomeUnknown,
        Status::Ok,
    ] {
        let kept = MemoryReceipts::default();
        let mut end = Settled::new(status);
        (end.started_at, end.ended_at) = (Timestamp::from_micros(5), Timestamp::from_micros(9));
        let stack = Stack::over(Scripted::new())
            .layer(Receipts::to(kept.clone()))
            .build()
            .expect("in order");
        let outcome = stack
            .run(Call::new(CallSeed {
                attempts_before: 2,
                ..call_of("build", end)
            }))
            .await;
        assert_eq!(outcome.status(), Some(status));
        let receipts = kept.receipts();
        assert_eq!(
            (receipts.len(), receipts[0].status, receipts[0].attempts),
            (1, status, 2)
        );
        let times = (
            receipts[0].started_at.as_micros(),
            receipts[0].ended_at.as_micros(),
        );
        assert_eq!(times, (5, 9), "what is known about the times is kept");
    }
}

#[tokio::test]
async fn a_closing_receipt_that_cannot_be_written_is_admitted() {
    let failing = Receipts::to(receipt_fn(async |_| Err(SinkError::new("disk full"))));
    let outcome = closed(failing.clone(), interrupted()).await;
    assert_eq!(outcome.status(), Some(Status::LayerException));
    let notes = outcome
        .settled()
        .and_then(|settled| settled.notes.fields())
        .expect("notes");
    assert_eq!(notes.metadata["settled_as"], "cancelled");
    let again = closed(failing, interrupted()).await;
    let text = again.settled().expect("settled").model_text().into_owned();
    assert!(
        text.contains("its receipt could not be written"),
        "an ended call is never said to be refused: {text}"
    );
}

#[tokio::test]
async fn the_span_of_an_ended_call_is_its_own_and_linked_to_the_pass_before() {
    let spans = Arc::new(Mutex::new(Vec::<Arc<ToolSpan>>::new()));
    let seen = spans.clone();
    let telemetry = Telemetry::to(span_fn(move |span: &Arc<ToolSpan>| {
        seen.lock().expect("whole").push(span.clone());
        Ok(())
    }));
    let stack = Stack::over(Scripted::new().then_hang())
        .layer(telemetry)
        .build()
        .expect("in order");
    let seed = call_of("build", interrupted());
    let mut run = Box::pin(stack.run(Call::new(CallSeed {
        closing: None,
        ..seed.clone()
    })));
    assert!(futures::poll!(&mut run).is_pending());
    drop(run);
    stack.run(Call::new(seed)).await;
    let spans = spans.lock().expect("whole");
    assert_eq!(spans.len(), 2);
    assert_ne!(spans[0].span_id, spans[1].span_id);
    assert_eq!(spans[1].links[0].span_id, spans[0].span_id);
    assert_eq!(
        spans[1].attributes.text("toolgate.status"),
        Some("cancelled")
    );
    assert_eq!(spans[1].events[0].name, "closed");
}

#[tokio::test]
async fn people_are_told_once_that_a_call_was_interrupted_or_nobody_knows() {
    for (end, level) in [
        (interrupted(), ToastLevel::Info),
        (Settled::new(Status::OutcomeUnknown), ToastLevel::Error),
    ] {
        let toasts = ToastManager::new();
        closed(Toasts::new(toasts.clone()), end).await;
        let shown = toasts.current();
        assert_eq!((shown.len(), shown[0].level), (1, level));
    }
}

#[tokio::test]
async fn progress_of_an_ended_call_ends_and_none_begins() {
    let manager = ProgressManager::new();
    let seed = call_of("build", interrupted());
    manager.begin(toolgate_layers::ProgressItem::new(
        seed.id.to_string(),
        "left over",
        Timestamp::EPOCH,
    ));
    let counts = Arc::new(Mutex::new(Vec::new()));
    let kept = counts.clone();
    manager.on_change(move |items| kept.lock().expect("whole").push(items.len()));
    closed(Progress::new(manager.clone()), interrupted()).await;
    assert!(manager.active().is_empty());
    assert_eq!(
        *counts.lock().expect("whole"),
        [0],
        "nothing was shown in between"
    );
}

#[tokio::test]
async fn files_are_reported_if_it_was_found_out_that_the_call_went_well() {
    let watcher = FileWatcher::new();
    closed(FileChanges::new(watcher.clone()), interrupted()).await;
    assert!(watcher.recent(10).is_empty());
    closed(
        FileChanges::new(watcher.clone()),
        found_out(json!({ "files_changed": ["a.rs"] })),
    )
    .await;
    let paths: Vec<_> = watcher
        .recent(10)
        .into_iter()
        .map(|change| change.path)
        .collect();
    assert_eq!(paths, ["a.rs"]);
}

#[tokio::test]
async fn the_summary_of_an_ended_call_claims_no_time_that_is_not_known() {
    let line = |outcome: Outcome| {
        let notes = outcome
            .settled()
            .and_then(|settled| settled.notes.fields())
            .expect("notes")
            .clone();
        notes.summary.expect("a line")
    };
    assert_eq!(
        line(closed(Summary::default(), interrupted()).await),
        "Building: cancelled in an unknown time"
    );
    let mut end = interrupted();
    end.ended_at = Timestamp::from_micros(2_000);
    assert_eq!(
        line(closed(Summary::default(), end).await),
        "Building: cancelled in 2 ms"
    );
}

#[tokio::test]
async fn what_was_found_out_later_is_capped_and_redacted_like_any_result() {
    let long = closed(OutputCap::new(512), found_out(json!("x".repeat(10_000)))).await;
    assert!(long.settled().expect("settled").model_text().len() <= 512);
    let secret = closed(Redact::new(), found_out(json!({ "password": "hunter2" }))).await;
    assert_eq!(
        secret.settled().expect("settled").value["password"],
        "[redacted:password]"
    );
    let failing = Redact::new().own(|phase, _, _: &Json| match phase {
        toolgate_layers::Phase::In => Err(RedactionFailed),
        toolgate_layers::Phase::Out => Ok(None),
    });
    let outcome = closed(failing, interrupted()).await;
    assert_eq!(
        outcome.status(),
        Some(Status::Cancelled),
        "what has ended is not refused"
    );
}

#[tokio::test]
async fn the_whole_default_stack_lets_an_ended_call_through_as_it_ended_and_seals_one_receipt() {
    let parts = Parts::new();
    let config =
        Config::parse("[layers.summary]\n[layers.toasts]\n[layers.progress]\n").expect("valid");
    let layers: Vec<AnyLayer> = default_stack(&config, &parts).expect("valid");
    let executor = Scripted::new();
    let stack = Stack::over(executor.clone())
        .any_layers(layers)
        .build()
        .expect("in order");
    let call = Call::new(call_of("build", interrupted()));
    assert_eq!(
        stack.run(call.clone()).await.status(),
        Some(Status::Cancelled)
    );
    assert!(executor.seen().is_empty());
    let ledger = Ledger::main(call.env().store().clone());
    let page = ledger.list(&ReceiptFilter::default()).await.expect("reads");
    assert_eq!(page.receipts.len(), 1);
    let receipt = &page.receipts[0].receipt;
    assert_eq!((receipt.status, receipt.attempts), (Status::Cancelled, 0));
}
