//! Retry over Timeout as the default stack has them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use toolgate_core::{
    Annotations, Call, CallSeed, Clock, Context, ErrorCategory, Registry, SettledOutcome, Stack,
    Status, ToolError, View, tool_fn,
};
use toolgate_layers::{Config, Resources, default_stack};
use toolgate_testkit::{TestClock, env_at, seed_for};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

/// The behaviour of a tool at an attempt, counted from 1.
type Attempt = fn(
    u32,
    Context,
    TestClock,
) -> futures::future::BoxFuture<'static, Result<&'static str, ToolError>>;

/// Runs one call of a tool under the default stack and advances the clock whenever every task
/// sleeps.
async fn settle(annotations: Annotations, attempt: Attempt) -> (SettledOutcome, u32, TestClock) {
    let clock = TestClock::new();
    let started = Arc::new(AtomicU32::new(0));
    let hands = clock.clone();
    let count = started.clone();
    let registry = Registry::new();
    let tool = tool_fn("work", "Works.", move |_: Nothing, cx: Context| {
        attempt(count.fetch_add(1, Ordering::SeqCst) + 1, cx, hands.clone())
    });
    registry
        .register(tool.with_annotations(annotations))
        .expect("free");
    // There is no approver; these tests are about the layers below.
    let config =
        Config::parse("[layers.policy]\ndefault = 'allow'\n[layers.timeout]\nmax = '30s'\n")
            .expect("valid");
    let layers = default_stack(&config, &Resources::new()).expect("valid");
    let stack = Stack::over(registry.clone())
        .any_layers(layers)
        .build()
        .expect("in order");
    let view = View::for_stack(&registry, &stack).expect("additive");
    let call = Call::new(CallSeed {
        env: env_at(&clock),
        ..seed_for(&view, "work", json!({}))
    });
    let run = tokio::spawn(stack.run(call));
    while !run.is_finished() {
        tokio::task::yield_now().await;
        if clock.sleeper_count() > 0 {
            clock.advance(Duration::from_secs(1));
        }
    }
    let settled = run
        .await
        .expect("no panic")
        .settled()
        .cloned()
        .expect("settled");
    (settled, started.load(Ordering::SeqCst), clock)
}

fn transient_error() -> ToolError {
    ToolError::transient("the line was busy")
}

#[tokio::test]
async fn a_tool_that_fails_once_with_a_transient_error_settles_ok_at_the_second_attempt() {
    let (settled, started, _) = settle(Annotations::read_only(), |attempt, _, _| {
        Box::pin(async move {
            if attempt == 1 {
                Err(transient_error())
            } else {
                Ok("done")
            }
        })
    })
    .await;
    assert_eq!(
        (settled.status, settled.attempts, started),
        (Status::Ok, 2, 2)
    );
}

#[tokio::test]
async fn every_attempt_has_the_whole_limit_and_its_own_token() {
    let (settled, started, _) = settle(Annotations::read_only(), |attempt, cx, clock| {
        Box::pin(async move {
            // Two thirds of the limit each: together they exceed it.
            clock.sleep(Duration::from_secs(20)).await;
            assert!(
                !cx.is_cancelled(),
                "attempt {attempt} starts with a fresh token"
            );
            if attempt < 3 {
                Err(transient_error())
            } else {
                Ok("third time lucky")
            }
        })
    })
    .await;
    assert_eq!(
        (settled.status, settled.attempts, started),
        (Status::Ok, 3, 3)
    );
}

#[tokio::test]
async fn a_tool_that_may_not_be_repeated_is_never_retried() {
    let (settled, started, _) = settle(Annotations::default(), |_, _, _| {
        Box::pin(async { Err(transient_error()) })
    })
    .await;
    assert_eq!(
        (settled.status, settled.attempts, started),
        (Status::ExecutorError, 1, 1)
    );
    let idempotent = Annotations::default().with_idempotent(true);
    let (settled, started, _) = settle(idempotent, |_, _, _| {
        Box::pin(async { Err(transient_error()) })
    })
    .await;
    assert_eq!(
        (settled.status, started),
        (Status::ExecutorError, 3),
        "a tool that declares itself idempotent is retried"
    );
}

#[tokio::test]
async fn an_attempt_that_timed_out_is_not_retried() {
    let (settled, started, _) = settle(Annotations::read_only(), |_, cx, _| {
        Box::pin(async move {
            cx.cancelled().await;
            Err(ToolError::cancelled())
        })
    })
    .await;
    assert_eq!((settled.status, started), (Status::Timeout, 1));
    assert_eq!(
        settled.error.expect("told").category,
        ErrorCategory::Timeout
    );
}
