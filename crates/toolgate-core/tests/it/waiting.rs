//! Layers that a call passes without entering them, and that are woken for an outcome.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use serde_json::json;
use toolgate_core::{
    Arguments, Band, Call, CallError, ErrorCategory, Failure, Layer, LayerExt, LayerName, Next,
    Outcome, Refusal, Stack, Status, from_fn,
};
use toolgate_testkit::{FakeExecutor, call, call_with, seed};

/// What a woken layer does.
#[derive(Clone, Copy, PartialEq)]
enum OnWake {
    PassOn,
    RunAgain,
    Rewrite,
    Answer,
    Suspend,
    Panic,
}

/// Waits for outcomes that are not ok.
struct WaitingLayer {
    name: &'static str,
    band: Band,
    on_wake: OnWake,
    entered: Arc<AtomicUsize>,
}

impl WaitingLayer {
    fn new(name: &'static str, band: Band, on_wake: OnWake) -> (Self, Arc<AtomicUsize>) {
        let entered = Arc::<AtomicUsize>::default();
        let layer = Self {
            name,
            band,
            on_wake,
            entered: entered.clone(),
        };
        (layer, entered)
    }
}

impl Layer for WaitingLayer {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        self.entered.fetch_add(1, Ordering::Relaxed);
        if call.is_rehearsal() {
            return next.run(call).await;
        }
        assert!(next.has_outcome());
        match self.on_wake {
            OnWake::PassOn => next.run(call).await,
            OnWake::RunAgain => {
                let first = next.clone().run(call.clone()).await;
                assert!(!first.is_ok() && !next.has_outcome());
                next.run(call).await
            }
            OnWake::Rewrite => {
                let other = Arguments::parse(r#"{"other":1}"#).expect("valid");
                next.run(call.with_arguments(other)).await
            }
            OnWake::Answer => Outcome::refused(Refusal::Blocked, "answered"),
            OnWake::Suspend => {
                Outcome::await_decision(toolgate_core::ApprovalRequest::for_call(&call))
            }
            OnWake::Panic => panic!("woken"),
        }
    }

    fn waits_for_outcome(&self, _: &Call) -> bool {
        true
    }

    fn name(&self) -> LayerName {
        self.name.into()
    }

    fn band(&self) -> Band {
        self.band
    }
}

fn failure(text: &str) -> Outcome {
    Outcome::error(
        Failure::ExecutorError,
        CallError::new(ErrorCategory::Transient, text),
    )
    .with_notes(|notes| notes.summary = Some("made below".into()))
}

fn trail(outcome: &Outcome) -> Vec<String> {
    let notes = outcome.settled().expect("settled").notes.fields();
    let layers = notes
        .map(|notes| notes.layers.as_slice())
        .unwrap_or_default();
    layers.iter().map(|note| note.name.to_string()).collect()
}

fn pass(name: &str, band: Band) -> impl Layer + use<> {
    from_fn(async |call: Call, next: Next| next.run(call).await)
        .named(name)
        .in_band(band)
}

#[tokio::test]
async fn a_layer_that_waits_is_not_entered_for_an_outcome_that_it_does_not_want() {
    let (layer, entered) = WaitingLayer::new("waits", Band::Repeat, OnWake::RunAgain);
    let stack = Stack::over(FakeExecutor::new())
        .layer(pass("outer", Band::Decide))
        .layer(layer)
        .layer(pass("inner", Band::Bound))
        .build()
        .expect("in order");
    let outcome = stack.run(call("t")).await;
    assert!(outcome.is_ok());
    assert_eq!(entered.load(Ordering::Relaxed), 0);
    assert_eq!(trail(&outcome), ["outer", "inner"]);
}

#[tokio::test]
async fn a_woken_layer_gets_the_outcome_once_and_may_run_the_call_again() {
    // Over an entered layer, over the executor itself, and where deciding begins with it.
    for inner in [Some(Band::Bound), None] {
        for outer in [Some(Band::Decide), Some(Band::Record), None] {
            let (layer, entered) = WaitingLayer::new("waits", Band::Repeat, OnWake::RunAgain);
            let tool = FakeExecutor::new().then(failure("down"));
            let mut stack = Stack::over(tool.clone());
            if let Some(band) = outer {
                stack = stack.layer(pass("outer", band));
            }
            stack = stack.layer(layer);
            if let Some(band) = inner {
                stack = stack.layer(pass("inner", band));
            }
            let outcome = stack.build().expect("in order").run(call("t")).await;
            assert!(outcome.is_ok(), "{outer:?} {inner:?}: {outcome:?}");
            assert_eq!(entered.load(Ordering::Relaxed), 1);
            let seen = tool.seen();
            let attempts: Vec<u32> = seen.iter().map(|call| call.attempt).collect();
            assert_eq!(attempts, [1, 2]);
            let settled = outcome.settled().expect("settled");
            assert_eq!(settled.attempts, 2);
            // The notes of the first attempt stay, as with a layer that was entered at once.
            let notes = settled.notes.fields().expect("noted");
            assert_eq!(notes.summary.as_deref(), Some("made below"));
            assert!(trail(&outcome).contains(&"waits".to_owned()));
        }
    }
}

#[tokio::test]
async fn layers_are_woken_from_the_inside_out() {
    let (first, _) = WaitingLayer::new("first", Band::Repeat, OnWake::PassOn);
    let (second, _) = WaitingLayer::new("second", Band::Repeat, OnWake::PassOn);
    let (third, entered) = WaitingLayer::new("third", Band::Bound, OnWake::RunAgain);
    let stack = Stack::over(FakeExecutor::new().then(failure("a")).then(failure("b")))
        .layer(first)
        .layer(second)
        .layer(third)
        .build()
        .expect("in order");
    let outcome = stack.run(call("t")).await;
    assert_eq!(outcome.status(), Some(Status::ExecutorError));
    assert_eq!(trail(&outcome), ["third", "second", "first"]);
    assert_eq!(entered.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_woken_layer_neither_changes_nor_suspends_a_call_that_has_run() {
    for (on_wake, detail) in [
        (
            OnWake::Rewrite,
            "it changed the arguments of a call that had already run",
        ),
        (OnWake::Suspend, "it suspended a call that had already run"),
        (OnWake::Panic, "it panicked"),
    ] {
        let (layer, _) = WaitingLayer::new("waits", Band::Shape, on_wake);
        let tool = FakeExecutor::new().then(failure("down"));
        let stack = Stack::over(tool.clone())
            .layer(layer)
            .build()
            .expect("in order");
        let outcome = stack.run(call_with("t", json!({ "n": 1 }))).await;
        let settled = outcome.settled().expect("settled");
        assert_eq!(settled.status, Status::LayerException);
        let operator = settled
            .error
            .as_ref()
            .and_then(|error| error.operator.as_deref());
        assert!(operator.expect("a detail").contains(detail), "{operator:?}");
        assert_eq!(tool.seen().len(), 1);
    }
}

#[tokio::test]
async fn a_woken_layer_that_answers_loses_no_note_of_the_outcome() {
    let (layer, _) = WaitingLayer::new("waits", Band::Decide, OnWake::Answer);
    let stack = Stack::over(FakeExecutor::new().then(failure("down")))
        .layer(layer)
        .build()
        .expect("in order");
    let outcome = stack.run(call("t")).await;
    let settled = outcome.settled().expect("settled");
    assert_eq!(settled.status, Status::Blocked);
    let notes = settled.notes.fields().expect("noted");
    assert_eq!(notes.summary.as_deref(), Some("made below"));
}

#[tokio::test]
async fn a_layer_that_waits_sees_what_another_layer_answers_below_it() {
    let (layer, entered) = WaitingLayer::new("waits", Band::Record, OnWake::PassOn);
    let refuse = from_fn(async |_: Call, _: Next| Outcome::refused(Refusal::Blocked, "no"));
    let stack = Stack::over(FakeExecutor::new())
        .layer(layer)
        .layer(refuse.in_band(Band::Decide))
        .build()
        .expect("in order");
    assert_eq!(stack.run(call("t")).await.status(), Some(Status::Blocked));
    assert_eq!(entered.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_rehearsal_enters_layers_that_wait() {
    let (layer, entered) = WaitingLayer::new("waits", Band::Repeat, OnWake::PassOn);
    let stack = Stack::over(FakeExecutor::new())
        .layer(layer)
        .build()
        .expect("in order");
    let mut rehearsed = seed("t", json!({}));
    rehearsed.rehearsal = true;
    let outcome = stack.run(Call::new(rehearsed)).await;
    assert_eq!(outcome.status(), Some(Status::DryRun));
    assert_eq!(entered.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_layer_that_panics_when_asked_about_an_outcome_fails_the_call() {
    struct Panicking;
    impl Layer for Panicking {
        async fn handle(&self, call: Call, next: Next) -> Outcome {
            next.run(call).await
        }
        fn waits_for_outcome(&self, _: &Call) -> bool {
            true
        }
        fn wants_outcome(&self, _: &Call, _: &Outcome) -> bool {
            panic!("asked")
        }
    }
    let stack = Stack::over(FakeExecutor::new())
        .layer(Panicking)
        .build()
        .expect("in order");
    let outcome = stack.run(call("t")).await;
    assert_eq!(outcome.status(), Some(Status::LayerException));
}

#[tokio::test]
async fn more_layers_than_can_wait_are_entered() {
    let mut stack = Stack::over(FakeExecutor::new());
    let mut counts = Vec::new();
    for _ in 0..70 {
        let (layer, entered) = WaitingLayer::new("waits", Band::Repeat, OnWake::PassOn);
        counts.push(entered);
        stack = stack.layer(Waits(layer));
    }
    let outcome = stack.build().expect("in order").run(call("t")).await;
    assert!(outcome.is_ok());
    let entered = |range: std::ops::Range<usize>| -> usize {
        counts[range]
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .sum()
    };
    assert_eq!(entered(0..64), 0);
    assert_eq!(entered(64..70), 6);
}

/// Enters like [`WaitingLayer`], without looking for an outcome.
struct Waits(WaitingLayer);

impl Layer for Waits {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        self.0.entered.fetch_add(1, Ordering::Relaxed);
        next.run(call).await
    }
    fn waits_for_outcome(&self, _: &Call) -> bool {
        true
    }
    fn band(&self) -> Band {
        Band::Repeat
    }
}

#[tokio::test]
async fn a_redacting_layer_is_entered_even_if_it_would_wait() {
    struct WaitingRedactor;
    impl Layer for WaitingRedactor {
        async fn handle(&self, call: Call, next: Next) -> Outcome {
            let mut outcome = next.run(call).await;
            if let Some(settled) = outcome.settled_mut() {
                settled.notes = toolgate_core::Notes::default();
            }
            outcome
        }
        fn waits_for_outcome(&self, _: &Call) -> bool {
            true
        }
        fn capabilities(&self) -> toolgate_core::LayerCapabilities {
            toolgate_core::LayerCapabilities::default().redacting()
        }
    }
    let stack = Stack::over(FakeExecutor::new().then(failure("down")))
        .layer(pass("outer", Band::Record))
        .layer(WaitingRedactor)
        .build()
        .expect("in order");
    let outcome = stack.run(call("t")).await;
    let notes = outcome.settled().expect("settled").notes.fields();
    assert_eq!(notes.expect("a trail").summary, None);
}

#[tokio::test]
async fn a_next_that_a_woken_layer_keeps_is_useless_after_the_call() {
    struct KeepsNext(Arc<std::sync::Mutex<Option<(Call, Next)>>>);
    impl Layer for KeepsNext {
        async fn handle(&self, call: Call, next: Next) -> Outcome {
            let kept = (call.clone(), next.clone());
            *self.0.lock().expect("no panic") = Some(kept);
            next.run(call).await
        }
        fn waits_for_outcome(&self, _: &Call) -> bool {
            true
        }
        fn band(&self) -> Band {
            Band::Decide
        }
    }
    let kept = Arc::default();
    let tool = FakeExecutor::new().then(failure("down"));
    let stack = Stack::over(tool.clone())
        .layer(KeepsNext(Arc::clone(&kept)))
        .build()
        .expect("in order");
    stack.run(call("t")).await;
    let (late, next) = kept.lock().expect("no panic").take().expect("woken");
    let outcome = next.run(late).await;
    assert_eq!(outcome.status(), Some(Status::Blocked), "{outcome:?}");
    assert_eq!(tool.seen().len(), 1);
}

/// Waits for every outcome, and notes the arguments with which it is asked and woken.
struct ArgumentsLog {
    band: Band,
    seen: Arc<std::sync::Mutex<Vec<String>>>,
}

impl ArgumentsLog {
    fn note(&self, call: &Call) {
        let arguments = call.arguments.as_json().to_string();
        self.seen.lock().expect("whole").push(arguments);
    }
}

impl Layer for ArgumentsLog {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        self.note(&call);
        next.run(call).await
    }

    fn waits_for_outcome(&self, _: &Call) -> bool {
        true
    }

    fn wants_outcome(&self, call: &Call, _: &Outcome) -> bool {
        self.note(call);
        true
    }

    fn band(&self) -> Band {
        self.band
    }
}

#[tokio::test]
async fn a_woken_layer_above_the_decision_does_not_see_what_the_program_filled_in() {
    for (band, sees_host_values) in [
        (Band::Record, false),
        (Band::Shape, false),
        (Band::Decide, true),
        (Band::Repeat, true),
    ] {
        let registry = crate::host_values::registry_of_tenant_north();
        let view = toolgate_testkit::plain_view(&registry);
        let seen = Arc::<std::sync::Mutex<Vec<String>>>::default();
        let layer = ArgumentsLog {
            band,
            seen: seen.clone(),
        };
        let stack = Stack::over(registry).layer(layer).build().expect("builds");
        let seed = toolgate_testkit::seed_for(&view, "refund", json!({ "amount": 5 }));
        let outcome = stack.run(Call::new(seed)).await;
        assert!(outcome.is_ok());
        let seen = seen.lock().expect("whole");
        assert_eq!(seen.len(), 2, "asked once and woken once: {seen:?}");
        for arguments in &*seen {
            assert_eq!(arguments.contains("north"), sees_host_values, "{band:?}");
        }
    }
}
