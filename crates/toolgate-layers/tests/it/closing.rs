//! A call that ended outside the stack enters it once more: it is recorded and cleaned up, but not
//! decided on or run.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use toolgate_core::{
    Annotations, AnyLayer, Call, CallError, CallSeed, ErrorCategory, Json, Layer, Outcome,
    RedactionError, Registry, Schema, SettledOutcome, Stack, Status, Timestamp, ToolSpec,
};
use toolgate_layers::{
    Config, FileChanges, Ledger, MemoryReceipts, OutputCap, ReceiptFilter, Receipts, Redact,
    Resources, SharedRedactor, SinkError, Summary, Telemetry, ToastLevel, Toasts, ToolSpan,
    default_stack, receipt_fn, redact_fn, span_fn,
};
use toolgate_testkit::{FakeExecutor, ReportProbe, TestClock, env_at, seed_for};

fn interrupted() -> SettledOutcome {
    let mut end = SettledOutcome::new(Status::Cancelled);
    end.error = Some(CallError::new(
        ErrorCategory::Cancelled,
        "the turn was interrupted",
    ));
    end
}

fn settled_later(value: Value) -> SettledOutcome {
    Outcome::ok(value).settled().expect("settled").clone()
}

fn ended_call(tool: &str, end: SettledOutcome) -> CallSeed {
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
        ..seed_for(
            &toolgate_testkit::plain_view(&registry),
            tool,
            json!({ "path": "a" }),
        )
    }
}

/// Runs a call that ended like this through a layer, over an executor that must not be reached.
async fn run_closed(layer: impl Layer, end: SettledOutcome) -> Outcome {
    let executor = FakeExecutor::new();
    let stack = Stack::over(executor.clone())
        .layer(layer)
        .build()
        .expect("in order");
    let outcome = stack.run(Call::new(ended_call("build", end))).await;
    assert!(executor.seen().is_empty(), "the executor is not reached");
    outcome
}

/// Runs a call that ended like this through a layer, with a probe.
async fn run_closed_with(probe: &Arc<ReportProbe>, layer: impl Layer, end: SettledOutcome) {
    let stack = Stack::over(FakeExecutor::new()).layer(layer).build();
    let seed = probe.attach(ended_call("build", end));
    stack.expect("in order").run(Call::new(seed)).await;
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
        let mut end = SettledOutcome::new(status);
        end.started_at = Timestamp::from_micros(5);
        end.ended_at = Timestamp::from_micros(9);
        let stack = Stack::over(FakeExecutor::new())
            .layer(Receipts::to(kept.clone()))
            .build()
            .expect("in order");
        let outcome = stack
            .run(Call::new(CallSeed {
                attempts_before: 2,
                ..ended_call("build", end)
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
        assert_eq!(times, (5, 9), "known times are preserved");
    }
}

#[tokio::test]
async fn a_closing_receipt_that_cannot_be_written_is_reported() {
    let failing = Receipts::to(receipt_fn(async |_| Err(SinkError::new("disk full"))));
    let outcome = run_closed(failing.clone(), interrupted()).await;
    assert_eq!(outcome.status(), Some(Status::LayerException));
    let notes = outcome
        .settled()
        .and_then(|settled| settled.notes.fields())
        .expect("notes");
    assert_eq!(notes.metadata["settled_as"], "cancelled");
    let again = run_closed(failing, interrupted()).await;
    let text = again.settled().expect("settled").model_text().into_owned();
    assert!(
        text.contains("its receipt could not be written"),
        "an ended call is never reported as not run: {text}"
    );
}

#[tokio::test]
async fn an_ended_call_has_a_new_span_linked_to_the_previous_one() {
    let spans = Arc::new(Mutex::new(Vec::<Arc<ToolSpan>>::new()));
    let seen = spans.clone();
    let telemetry = Telemetry::to(span_fn(move |span: &Arc<ToolSpan>| {
        seen.lock().expect("whole").push(span.clone());
        Ok(())
    }));
    let stack = Stack::over(FakeExecutor::new().then_hang())
        .layer(telemetry)
        .build()
        .expect("in order");
    let seed = ended_call("build", interrupted());
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
async fn an_interrupted_or_unknown_call_is_shown_once() {
    for (end, level) in [
        (interrupted(), ToastLevel::Info),
        (
            SettledOutcome::new(Status::OutcomeUnknown),
            ToastLevel::Error,
        ),
    ] {
        let probe = ReportProbe::new();
        run_closed_with(&probe, Toasts::new(), end).await;
        let shown = probe.toasts();
        assert_eq!((shown.len(), shown[0].level), (1, level));
    }
}

#[tokio::test]
async fn files_are_reported_if_the_call_turns_out_to_have_succeeded() {
    let probe = ReportProbe::new();
    run_closed_with(&probe, FileChanges::new(), interrupted()).await;
    assert!(probe.files().is_empty());
    let end = settled_later(json!({ "files_changed": ["a.rs"] }));
    run_closed_with(&probe, FileChanges::new(), end).await;
    let paths: Vec<_> = probe
        .files()
        .into_iter()
        .map(|change| change.path)
        .collect();
    assert_eq!(paths, ["a.rs"]);
}

#[tokio::test]
async fn the_summary_of_an_ended_call_has_no_invented_duration() {
    let line = |outcome: Outcome| {
        let notes = outcome
            .settled()
            .and_then(|settled| settled.notes.fields())
            .expect("notes")
            .clone();
        notes.summary.expect("a line")
    };
    assert_eq!(
        line(run_closed(Summary::default(), interrupted()).await),
        "Building: cancelled in an unknown time"
    );
    let mut end = interrupted();
    end.ended_at = Timestamp::from_micros(2_000);
    assert_eq!(
        line(run_closed(Summary::default(), end).await),
        "Building: cancelled in 2 ms"
    );
}

#[tokio::test]
async fn a_result_that_is_known_later_is_capped_and_redacted_like_any_other() {
    let long = run_closed(
        OutputCap::new(512),
        settled_later(json!("x".repeat(10_000))),
    )
    .await;
    assert!(long.settled().expect("settled").model_text().len() <= 512);
    let secret = run_closed(
        Redact::new(),
        settled_later(json!({ "password": "hunter2" })),
    )
    .await;
    assert_eq!(
        secret.settled().expect("settled").value["password"],
        "[redacted:password]"
    );
    // Fails on the arguments.
    let rules = redact_fn(|value: &Json| {
        if value.get("path").is_some() {
            Err(RedactionError)
        } else {
            Ok(None)
        }
    });
    let failing = Redact::with(SharedRedactor::new(rules));
    let outcome = run_closed(failing, interrupted()).await;
    assert_eq!(
        outcome.status(),
        Some(Status::Cancelled),
        "a call that has ended is not blocked"
    );
}

#[tokio::test]
async fn the_default_stack_keeps_the_outcome_of_an_ended_call_and_seals_one_receipt() {
    let parts = Resources::new();
    let config =
        Config::parse("[layers.summary]\n[layers.toasts]\n[layers.progress]\n").expect("valid");
    let layers: Vec<AnyLayer> = default_stack(&config, &parts).expect("valid");
    let executor = FakeExecutor::new();
    let stack = Stack::over(executor.clone())
        .any_layers(layers)
        .build()
        .expect("in order");
    let call = Call::new(ended_call("build", interrupted()));
    assert_eq!(
        stack.run(call.clone()).await.status(),
        Some(Status::Cancelled)
    );
    assert!(executor.seen().is_empty());
    let ledger = Ledger::main(call.env().store().clone());
    let page = ledger
        .list_receipts(&ReceiptFilter::default())
        .await
        .expect("reads");
    assert_eq!(page.receipts.len(), 1);
    let receipt = &page.receipts[0].receipt;
    assert_eq!((receipt.status, receipt.attempts), (Status::Cancelled, 0));
}
