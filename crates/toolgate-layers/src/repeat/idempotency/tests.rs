//! The rules of [`Idempotency`].

use std::pin::pin;

use futures::{FutureExt, poll};
use tokio::sync::Notify;
use toolgate_core::{
    AnyLayer, ApprovalAnswer, ApprovalRequest, CallSeed, Decision, Executor, Json, LayerExt,
    RedactionError, Redactor, Stack, Suspension, ToolError, ToolOutput, from_fn,
};
use toolgate_testkit::{FakeExecutor, TestClock, run_twice};

use super::*;
use crate::testing::*;

fn stack(layer: Idempotency, tool: &FakeExecutor) -> Stack {
    Stack::over(tool.clone())
        .layer(layer)
        .build()
        .expect("in order")
}

fn looks(clock: &TestClock, n: u128) -> Call {
    Call::new(nth_seed(clock, n, "look", json!({ "path": "a" })))
}

fn is_cached(outcome: &Outcome) -> bool {
    outcome
        .settled()
        .is_some_and(|settled| settled.cached && settled.status == Status::Ok)
}

#[tokio::test]
async fn a_second_identical_call_is_answered_with_the_first_result_and_marked() {
    let clock = TestClock::new();
    let tool = FakeExecutor::new().then(Outcome::ok("found"));
    let stack = stack(Idempotency::default(), &tool);
    let first = stack.run(looks(&clock, 11)).await;
    let second = stack.run(looks(&clock, 12)).await;
    assert!(!is_cached(&first) && is_cached(&second));
    let settled = second.settled().expect("settled");
    assert_eq!((&*settled.model_text(), settled.attempts), ("found", 0));
    let from = looks(&clock, 11).id;
    let notes = settled.notes.fields().expect("noted");
    assert_eq!(
        notes.metadata["idempotency"],
        json!({ "hit": true, "from": from })
    );
    assert_eq!(tool.seen().len(), 1);
}

#[tokio::test]
async fn only_the_named_arguments_of_the_file_have_to_be_identical() {
    let clock = TestClock::new();
    let tool = FakeExecutor::new();
    let options = serde_json::from_str(r#"{ "key": ["path", "body"] }"#).expect("reads");
    let stack = stack(Idempotency::new(&options).expect("valid"), &tool);
    let look = |n, arguments| stack.run(Call::new(nth_seed(&clock, n, "look", arguments)));
    look(11, json!({ "path": "a", "body": "x", "note": "one" })).await;
    let same = look(12, json!({ "path": "a", "body": "x", "note": "two" })).await;
    assert!(is_cached(&same), "the other argument does not count");
    let missing = look(13, json!({ "path": "a" })).await;
    let other = look(14, json!({ "path": "a", "body": "y" })).await;
    assert!(!is_cached(&missing) && !is_cached(&other));
}

#[tokio::test]
async fn other_arguments_tools_sessions_and_principals_are_not_identical() {
    let clock = TestClock::new();
    let tool = FakeExecutor::new();
    let stack = stack(Idempotency::default(), &tool);
    let look = |n| nth_seed(&clock, n, "look", json!({ "path": "a" }));
    let all = [
        look(11),
        nth_seed(&clock, 12, "look", json!({ "path": "b" })),
        in_session(look(13), 77),
        by_principal(look(14), "ann"),
        by_principal(look(15), "bob"),
    ];
    for seed in all {
        assert!(!is_cached(&stack.run(Call::new(seed)).await));
    }
    assert!(
        is_cached(
            &stack
                .run(Call::new(in_session(by_principal(look(16), "ann"), 5)))
                .await
        ),
        "a principal has many sessions"
    );
    assert_eq!(tool.seen().len(), 5);
}

#[tokio::test]
async fn another_version_of_the_tool_is_not_the_same_tool() {
    let clock = TestClock::new();
    let tool = FakeExecutor::new();
    let stack = stack(Idempotency::default(), &tool);
    stack.run(looks(&clock, 11)).await;
    let registry = toolgate_core::Registry::new();
    let spec =
        toolgate_core::ToolSpec::new("look", "Another text.", toolgate_core::Schema::any_object());
    registry
        .register_host(spec.with_annotations(toolgate_core::Annotations::read_only()))
        .expect("a good spec");
    let admission = toolgate_testkit::seed_for(
        &toolgate_testkit::plain_view(&registry),
        "look",
        json!({ "path": "a" }),
    );
    let seed = CallSeed {
        admission: admission.admission,
        ..nth_seed(&clock, 12, "look", json!({}))
    };
    assert!(!is_cached(&stack.run(Call::new(seed)).await));
}

#[tokio::test]
async fn a_result_expires_by_the_clock_of_the_call() {
    let clock = TestClock::new();
    let tool = FakeExecutor::new();
    let stack = stack(Idempotency::default(), &tool);
    stack.run(looks(&clock, 11)).await;
    clock.advance(Duration::from_secs(299));
    assert!(is_cached(&stack.run(looks(&clock, 12)).await));
    clock.advance(Duration::from_secs(1));
    assert!(!is_cached(&stack.run(looks(&clock, 13)).await));
}

#[tokio::test]
async fn only_successes_are_cached() {
    for outcome in [
        Outcome::failed(ToolError::new("no")),
        Outcome::refused(Refusal::DryRun, "not run"),
        Outcome::denied(None),
        Outcome::failed_with(Failure::Timeout, "late"),
    ] {
        let clock = TestClock::new();
        let tool = FakeExecutor::new().then(outcome);
        let stack = stack(Idempotency::default(), &tool);
        stack.run(looks(&clock, 11)).await;
        assert!(!is_cached(&stack.run(looks(&clock, 12)).await));
        assert_eq!(tool.seen().len(), 2);
    }
}

#[tokio::test]
async fn tools_that_may_write_are_cached_only_if_configured() {
    for writes in [false, true] {
        let clock = TestClock::new();
        let tool = FakeExecutor::new();
        let layer = Idempotency::new(&IdempotencyOptions {
            writes,
            ..Default::default()
        })
        .expect("fine");
        let stack = stack(layer, &tool);
        for n in [11, 12] {
            stack
                .run(Call::new(nth_seed(&clock, n, "change", json!({}))))
                .await;
        }
        assert_eq!(tool.seen().len(), if writes { 1 } else { 2 });
    }
}

#[tokio::test]
async fn a_custom_key_decides_what_is_identical_and_no_key_is_never_cached() {
    let clock = TestClock::new();
    let tool = FakeExecutor::new();
    let by_user = Idempotency::default()
        .key_fn(|call| Some(call.arguments.get("user")?.as_str()?.to_owned()));
    let stack = stack(by_user, &tool);
    for (n, arguments) in [
        (11, json!({ "user": "ann", "at": 1 })),
        (12, json!({ "user": "ann", "at": 2 })),
        (13, json!({ "at": 3 })),
        (14, json!({ "at": 3 })),
    ] {
        stack
            .run(Call::new(nth_seed(&clock, n, "look", arguments)))
            .await;
    }
    assert_eq!(
        tool.seen().len(),
        3,
        "only the second was answered from the cache"
    );
}

#[tokio::test]
async fn a_key_function_that_panics_stops_the_call() {
    let tool = FakeExecutor::new();
    let stack = stack(Idempotency::default().key_fn(|_| panic!("hunter2")), &tool);
    let outcome = stack.run(looks(&TestClock::new(), 11)).await;
    assert_eq!(
        (outcome.status(), tool.seen().len()),
        (Some(Status::LayerException), 0)
    );
    assert!(
        !outcome
            .settled()
            .expect("settled")
            .model_text()
            .contains("hunter2")
    );
}

/// Returns a stack with a layer whose state the test can read.
fn shared(layer: Idempotency, tool: impl Executor) -> (Arc<Idempotency>, Stack) {
    let layer = Arc::new(layer);
    let inner = layer.clone();
    let sharing = from_fn(move |call, next| {
        let layer = inner.clone();
        async move { layer.handle(call, next).await }
    });
    (
        layer,
        Stack::over(tool)
            .layer(sharing.in_band(Band::Repeat))
            .build()
            .expect("in order"),
    )
}

#[tokio::test]
async fn the_number_of_results_is_bounded() {
    let clock = TestClock::new();
    let tool = FakeExecutor::new();
    let layer = Idempotency::new(&IdempotencyOptions {
        max_entries: 3,
        ..Default::default()
    })
    .expect("fine");
    let (layer, stack) = shared(layer, tool);
    for n in 11..30 {
        stack
            .run(Call::new(nth_seed(
                &clock,
                n,
                "look",
                numbered_arguments(n as u64),
            )))
            .await;
    }
    layer.kept.run_pending_tasks();
    assert!(layer.kept.entry_count() <= 3);
}

#[tokio::test]
async fn the_bytes_of_all_results_are_bounded() {
    let large = || Outcome::ok("x".repeat(100_000));
    let clock = TestClock::new();
    let tool = (0..20).fold(FakeExecutor::new(), |tool, _| tool.then(large()));
    let layer = Idempotency::new(&IdempotencyOptions {
        max_bytes: 500_000,
        ..Default::default()
    })
    .expect("fine");
    let (layer, stack) = shared(layer, tool);
    for n in 11..31 {
        stack
            .run(Call::new(nth_seed(
                &clock,
                n,
                "look",
                numbered_arguments(n as u64),
            )))
            .await;
    }
    layer.kept.run_pending_tasks();
    assert_eq!(
        layer.kept.entry_count(),
        4,
        "a fifth would exceed the limit"
    );
    assert!(
        is_cached(
            &stack
                .run(Call::new(nth_seed(
                    &clock,
                    31,
                    "look",
                    numbered_arguments(30)
                )))
                .await
        ),
        "the newest stay"
    );
}

#[tokio::test]
async fn a_result_of_more_than_a_megabyte_is_not_cached() {
    for (bytes, kept) in [(MAX_RESULT_BYTES - 100, true), (MAX_RESULT_BYTES, false)] {
        let clock = TestClock::new();
        let tool = FakeExecutor::new().then(Outcome::ok("x".repeat(bytes)));
        let stack = stack(Idempotency::default(), &tool);
        stack.run(looks(&clock, 11)).await;
        assert_eq!(
            is_cached(&stack.run(looks(&clock, 12)).await),
            kept,
            "{bytes}"
        );
    }
}

#[tokio::test]
async fn identical_calls_with_external_results_do_not_wait_for_each_other() {
    let clock = TestClock::new();
    let layer = Idempotency::new(&IdempotencyOptions {
        writes: true,
        ..Default::default()
    })
    .expect("fine");
    let stack = Stack::over(toolgate_core::HostExecutor)
        .layer(layer)
        .build()
        .expect("in order");
    for n in [11, 12] {
        let outcome = stack.run(looks(&clock, n)).await;
        assert!(
            matches!(outcome.suspension(), Some(Suspension::Result)),
            "it is sent out as well"
        );
    }
    let mut back = CallSeed {
        generation: 1,
        ..nth_seed(&clock, 11, "look", json!({ "path": "a" }))
    };
    back.resumed
        .results
        .push((1, Arc::new(SettledOutcome::new(Status::Ok))));
    assert!(stack.run(Call::new(back)).await.is_ok());
    assert!(
        is_cached(&stack.run(looks(&clock, 13)).await),
        "its result is cached"
    );
}

/// An executor that counts its runs and waits for the test to release it.
#[derive(Clone, Default)]
struct GatedExecutor {
    runs: Arc<std::sync::atomic::AtomicUsize>,
    open: Arc<Notify>,
}

impl Executor for GatedExecutor {
    async fn execute(&self, _: Call) -> Outcome {
        self.runs.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        self.open.notified().await;
        Outcome::ok("found")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hundred_identical_calls_at_once_run_once() {
    let clock = TestClock::new();
    let gate = GatedExecutor::default();
    let stack = Stack::over(gate.clone())
        .layer(Idempotency::default())
        .build()
        .expect("in order");
    let calls: Vec<_> = (0..100)
        .map(|n| tokio::spawn(stack.run(looks(&clock, 100 + n))))
        .collect();
    gate.open.notify_one();
    let outcomes = futures::future::try_join_all(calls)
        .await
        .expect("no panic");
    assert!(outcomes.iter().all(Outcome::is_ok));
    assert_eq!(
        outcomes.iter().filter(|outcome| is_cached(outcome)).count(),
        99
    );
    assert_eq!(gate.runs.load(std::sync::atomic::Ordering::SeqCst), 1);
}

#[tokio::test]
async fn when_the_first_is_dropped_or_fails_exactly_one_of_the_others_runs() {
    let clock = TestClock::new();
    let gate = GatedExecutor::default();
    let runs = || gate.runs.load(std::sync::atomic::Ordering::SeqCst);
    let stack = Stack::over(gate.clone())
        .layer(Idempotency::default())
        .build()
        .expect("in order");
    let mut first = Box::pin(stack.run(looks(&clock, 11)));
    let mut second = pin!(stack.run(looks(&clock, 12)));
    let mut third = pin!(stack.run(looks(&clock, 13)));
    assert!(
        poll!(&mut first).is_pending()
            && poll!(&mut second).is_pending()
            && poll!(&mut third).is_pending()
    );
    assert_eq!(runs(), 1);
    drop(first);
    assert!(poll!(&mut second).is_pending() && poll!(&mut third).is_pending());
    assert_eq!(runs(), 2);
    gate.open.notify_one();
    assert!(!is_cached(&second.await) && is_cached(&third.await));

    let tool = FakeExecutor::new()
        .then(busy_outcome())
        .then_panic("boo")
        .then_ask();
    let failing = self::stack(Idempotency::default(), &tool);
    for (n, status) in [
        (21, Some(Status::ExecutorError)),
        (22, Some(Status::Exception)),
        (23, None),
    ] {
        assert_eq!(failing.run(looks(&clock, n)).await.status(), status);
    }
    assert!(
        failing.run(looks(&clock, 24)).await.is_ok(),
        "no call waits for a finished flight"
    );
}

#[tokio::test]
async fn waiting_calls_are_answered_even_if_the_result_expires_at_once() {
    let clock = TestClock::new();
    let gate = GatedExecutor::default();
    let (layer, stack) = shared(Idempotency::default(), gate.clone());
    let mut first = pin!(stack.run(looks(&clock, 11)));
    let mut second = pin!(stack.run(looks(&clock, 12)));
    assert!(poll!(&mut first).is_pending() && poll!(&mut second).is_pending());
    gate.open.notify_one();
    assert!(first.await.is_ok());
    layer.kept.invalidate_all();
    assert!(is_cached(&second.now_or_never().expect("does not run")));
}

#[tokio::test]
async fn cancelling_ends_the_wait_for_another_call() {
    let clock = TestClock::new();
    let gate = GatedExecutor::default();
    let stack = Stack::over(gate.clone())
        .layer(Idempotency::default())
        .build()
        .expect("in order");
    let mut first = pin!(stack.run(looks(&clock, 11)));
    let waiting = looks(&clock, 12);
    let cancel = waiting.cancel.clone();
    let mut second = pin!(stack.run(waiting));
    assert!(poll!(&mut first).is_pending() && poll!(&mut second).is_pending());
    cancel.cancel();
    assert_eq!(second.await.status(), Some(Status::Cancelled));
    gate.open.notify_one();
    assert!(first.await.is_ok());
}

struct HidingRedactor;

impl Redactor for HidingRedactor {
    fn redact(&self, value: &Json) -> Result<Json, RedactionError> {
        let text = value.to_string().replace("hunter2", "***");
        text.parse().map_err(|_| RedactionError)
    }
    fn redact_text(&self, text: &str) -> Result<String, RedactionError> {
        if text.contains("broken") {
            Err(RedactionError)
        } else {
            Ok(text.replace("hunter2", "***"))
        }
    }
}

#[tokio::test]
async fn cached_results_are_redacted_and_nothing_is_cached_if_that_fails() {
    let output = |text: &str| {
        let output = ToolOutput::from(json!({ "password": "hunter2" })).with_text(text);
        Outcome::ok(output.with_notes(|notes| notes.summary = Some("read hunter2".into())))
    };
    let clock = TestClock::new();
    let tool = FakeExecutor::new().then(output("it is hunter2"));
    let layer = || {
        let parts = Resources::new().with(SharedRedactor::new(HidingRedactor));
        Idempotency::configure(IdempotencyOptions::default(), &parts).expect("fine")
    };
    let keeping = stack(layer(), &tool);
    assert_eq!(
        keeping
            .run(looks(&clock, 11))
            .await
            .settled()
            .expect("settled")
            .model_text(),
        "it is hunter2"
    );
    let again = keeping.run(looks(&clock, 12)).await;
    assert!(is_cached(&again));
    assert!(
        !serde_json::to_string(again.settled().expect("settled"))
            .expect("JSON")
            .contains("hunter2")
    );
    assert_eq!(
        again
            .settled()
            .expect("settled")
            .notes
            .fields()
            .expect("noted")
            .summary,
        None,
        "the notes of the first call are about that call"
    );

    let tool = FakeExecutor::new().then(output("broken"));
    let withholding = stack(layer(), &tool);
    withholding.run(looks(&clock, 11)).await;
    assert!(!is_cached(&withholding.run(looks(&clock, 12)).await));
}

#[tokio::test]
async fn a_call_that_is_answered_from_the_cache_was_approved() {
    let clock = TestClock::new();
    let tool = FakeExecutor::new();
    let asking = from_fn(
        async |call: Call, next: Next| match next.decision_on(&call) {
            Some(_) => next.run(call).await,
            None => Outcome::await_decision(ApprovalRequest::for_call(&call)),
        },
    );
    let layers = [
        AnyLayer::new(asking.in_band(Band::Decide)),
        AnyLayer::new(Idempotency::default()),
    ];
    let stack = Stack::over(tool.clone())
        .any_layers(layers)
        .build()
        .expect("in order");
    for n in [11, 12] {
        let first = stack.run(looks(&clock, n)).await;
        let Some(Suspension::Decision(request)) = first.suspension() else {
            panic!("no approval was requested")
        };
        let mut seed = CallSeed {
            generation: 1,
            ..nth_seed(&clock, n, "look", json!({ "path": "a" }))
        };
        seed.resumed.answers.push(ApprovalAnswer::for_request(
            request,
            Decision::approve("ann"),
        ));
        assert_eq!(is_cached(&stack.run(Call::new(seed)).await), n == 12);
    }
    assert_eq!(tool.seen().len(), 1);
}

#[tokio::test]
async fn a_rehearsal_reads_the_cache_but_neither_stores_nor_waits() {
    let clock = TestClock::new();
    let gate = GatedExecutor::default();
    let stack = Stack::over(gate.clone())
        .layer(Idempotency::default())
        .build()
        .expect("in order");
    let rehearse = |n| {
        Call::new(CallSeed {
            rehearsal: true,
            ..nth_seed(&clock, n, "look", json!({ "path": "a" }))
        })
    };
    let mut first = pin!(stack.run(looks(&clock, 11)));
    assert!(poll!(&mut first).is_pending());
    let rehearsed = stack
        .run(rehearse(12))
        .now_or_never()
        .expect("does not wait");
    assert_eq!(rehearsed.status(), Some(Status::DryRun));
    gate.open.notify_one();
    first.await;
    assert!(is_cached(&stack.run(rehearse(13)).await));
}

#[tokio::test]
async fn an_external_result_is_not_replaced_by_a_cached_one() {
    let clock = TestClock::new();
    let tool = FakeExecutor::new().then(Outcome::ok("old"));
    let stack = stack(Idempotency::default(), &tool);
    stack.run(looks(&clock, 11)).await;
    let mut seed = nth_seed(&clock, 12, "look", json!({ "path": "a" }));
    let mut delivered = SettledOutcome::new(Status::Ok);
    delivered.value = "new".into();
    seed.resumed.results = vec![(1, Arc::new(delivered))];
    let text = |outcome: Outcome| {
        outcome
            .settled()
            .expect("settled")
            .model_text()
            .into_owned()
    };
    assert_eq!(text(stack.run(Call::new(seed)).await), "new");
    assert_eq!(
        text(stack.run(looks(&clock, 13)).await),
        "new",
        "and is cached"
    );
}

#[tokio::test]
async fn a_resumed_call_passes_again() {
    let seed = seed_at(&TestClock::new(), "look", json!({ "n": 1 }));
    run_twice(Idempotency::default(), seed)
        .await
        .assert_replays();
}

#[test]
fn options_that_make_no_sense_are_rejected() {
    let defaults = IdempotencyOptions::default;
    let list = || Some(vec!["a".to_owned()]);
    for (options, key) in [
        (
            IdempotencyOptions {
                ttl: HumanDuration::from_secs(0),
                ..defaults()
            },
            "ttl",
        ),
        (
            IdempotencyOptions {
                max_entries: 0,
                ..defaults()
            },
            "max_entries",
        ),
        (
            IdempotencyOptions {
                max_bytes: 0,
                ..defaults()
            },
            "max_bytes",
        ),
        (
            IdempotencyOptions {
                max_bytes: 1 << 32,
                ..defaults()
            },
            "max_bytes",
        ),
        (
            IdempotencyOptions {
                only: list(),
                except: list(),
                ..defaults()
            },
            "except",
        ),
    ] {
        assert_eq!(Idempotency::new(&options).expect_err("refused").key, key);
    }
    let read = |text| serde_json::from_str::<IdempotencyOptions>(text);
    assert!(read(r#"{ "key": "argument" }"#).is_err());
    assert_eq!(
        read(r#"{ "key": "arguments" }"#).ok(),
        Some(IdempotencyOptions::default())
    );
    let none = read(r#"{ "key": [] }"#).expect("reads");
    assert_eq!(Idempotency::new(&none).expect_err("refused").key, "key");
}
