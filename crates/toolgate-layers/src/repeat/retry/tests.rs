//! The rules of [`Retry`].

use super::*;
use crate::testing::{busy_outcome, call_at, seed_at};
use futures::{FutureExt, poll};
use proptest::prelude::*;
use std::{pin::pin, task::Poll};
use toolgate_core::{CallSeed, ErrorCategory, Failure, SettledOutcome, Stack, ToolError};
use toolgate_testkit::{FakeExecutor, TestClock, run_twice};

fn steady() -> RetryOptions {
    RetryOptions {
        jitter: 0.0,
        ..RetryOptions::default()
    }
}

fn stack(retry: Retry, tool: &FakeExecutor) -> Stack {
    Stack::over(tool.clone())
        .layer(retry)
        .build()
        .expect("in order")
}

/// Runs a call and advances the clock in small steps while it waits; also returns the waiting time.
async fn run_through(stack: &Stack, clock: &TestClock, call: Call) -> (Outcome, Duration) {
    let step = Duration::from_millis(100);
    let mut run = pin!(stack.run(call));
    let mut waited = Duration::ZERO;
    loop {
        if let Poll::Ready(outcome) = poll!(&mut run) {
            return (outcome, waited);
        }
        assert_eq!(
            clock.sleeper_count(),
            1,
            "the call waits for something else"
        );
        clock.advance(step);
        waited += step;
    }
}

#[tokio::test]
async fn a_transient_error_is_retried_until_it_succeeds() {
    let clock = TestClock::new();
    let tool = FakeExecutor::new()
        .then(busy_outcome())
        .then(busy_outcome());
    let stack = stack(Retry::new(steady()).expect("fine"), &tool);
    let (outcome, waited) = run_through(&stack, &clock, call_at(&clock, "look", json!({}))).await;
    assert!(outcome.is_ok());
    assert_eq!(outcome.settled().map(|s| s.attempts), Some(3));
    assert_eq!(waited, Duration::from_millis(600), "200 ms, then 400 ms");
    let keys: Vec<_> = tool
        .seen()
        .iter()
        .map(|call| call.idempotency_key())
        .collect();
    assert!(keys.iter().all(|key| *key == keys[0]));
}

#[tokio::test]
async fn the_last_error_is_returned_when_the_limit_is_reached() {
    let clock = TestClock::new();
    let tool = FakeExecutor::new()
        .then(busy_outcome())
        .then(busy_outcome())
        .then(busy_outcome());
    let stack = stack(Retry::default(), &tool);
    let (outcome, _) = run_through(&stack, &clock, call_at(&clock, "look", json!({}))).await;
    assert_eq!(outcome.status(), Some(Status::ExecutorError));
    let settled = outcome.settled().expect("settled");
    assert_eq!(
        settled.model_text(),
        "the server is busy (failed after 3 attempts)"
    );
    let notes = settled.notes.fields().expect("noted");
    assert_eq!(
        notes.metadata["retry"],
        json!({ "attempts": 3, "gave_up": true })
    );
    assert_eq!(tool.seen().len(), 3);
}

#[tokio::test]
async fn a_tool_that_may_write_is_never_repeated() {
    let clock = TestClock::new();
    let tool = FakeExecutor::new().then(busy_outcome());
    let run = stack(Retry::default(), &tool).run(call_at(&clock, "change", json!({})));
    let outcome = run.now_or_never().expect("no wait");
    assert_eq!(
        (outcome.status(), tool.seen().len()),
        (Some(Status::ExecutorError), 1)
    );
}

#[tokio::test]
async fn only_transient_errors_by_type_are_repeated() {
    let error = |category| {
        Outcome::failed(ToolError::new("timeout, connection refused").with_category(category))
    };
    for outcome in [
        error(ErrorCategory::Internal),
        error(ErrorCategory::InvalidInput),
        error(ErrorCategory::Timeout),
        error(ErrorCategory::Refused),
        Outcome::refused(Refusal::RateLimited, "slow down"),
        Outcome::failed_with(Failure::OutcomeUnknown, "who knows"),
    ] {
        let clock = TestClock::new();
        let tool = FakeExecutor::new().then(outcome.clone());
        let run = stack(Retry::default(), &tool).run(call_at(&clock, "look", json!({})));
        let got = run.now_or_never().expect("no wait");
        assert_eq!(
            (got.status(), tool.seen().len()),
            (outcome.status(), 1),
            "{outcome:?}"
        );
    }
}

#[tokio::test]
async fn a_custom_test_decides_instead_and_one_that_panics_means_no_retry() {
    let late = || Outcome::failed(ToolError::new("late").with_category(ErrorCategory::Timeout));
    let clock = TestClock::new();
    let tool = FakeExecutor::new().then(late());
    let eager = Retry::default().retry_if(|error| error.category == ErrorCategory::Timeout);
    let (outcome, _) = run_through(
        &stack(eager, &tool),
        &clock,
        call_at(&clock, "look", json!({})),
    )
    .await;
    assert!(outcome.is_ok());

    let tool = FakeExecutor::new().then(busy_outcome());
    let broken = Retry::default().retry_if(|_| panic!("no"));
    let run = stack(broken, &tool).run(call_at(&clock, "look", json!({})));
    let outcome = run.now_or_never().expect("no wait");
    assert_eq!(
        (outcome.status(), tool.seen().len()),
        (Some(Status::ExecutorError), 1)
    );
}

#[tokio::test]
async fn cancelling_during_a_delay_returns_at_once() {
    let clock = TestClock::new();
    let tool = FakeExecutor::new().then(busy_outcome());
    let call = call_at(&clock, "look", json!({}));
    let cancel = call.cancel.clone();
    let mut run = pin!(stack(Retry::default(), &tool).run(call));
    assert!(poll!(&mut run).is_pending());
    assert_eq!(clock.sleeper_count(), 1);
    cancel.cancel();
    let Poll::Ready(outcome) = poll!(&mut run) else {
        panic!("still waiting")
    };
    assert_eq!(
        (outcome.status(), tool.seen().len()),
        (Some(Status::Cancelled), 1)
    );
}

#[tokio::test]
async fn no_delay_exceeds_the_deadline() {
    let clock = TestClock::new();
    let tool = FakeExecutor::new().then(busy_outcome());
    let call = call_at(&clock, "look", json!({})).with_time_limit(Duration::from_millis(200));
    let run = stack(Retry::new(steady()).expect("fine"), &tool).run(call);
    let outcome = run.now_or_never().expect("no wait");
    assert_eq!(
        (outcome.status(), tool.seen().len()),
        (Some(Status::ExecutorError), 1)
    );
}

#[tokio::test]
async fn known_attempts_are_replayed_without_waiting() {
    let clock = TestClock::new();
    let failed = busy_outcome().settled().cloned().expect("settled");
    let mut seed = CallSeed {
        generation: 2,
        ..seed_at(&clock, "look", json!({}))
    };
    seed.resumed.results = vec![
        (1, Arc::new(failed)),
        (2, Arc::new(SettledOutcome::new(Status::Ok))),
    ];
    let tool = FakeExecutor::new();
    let outcome = stack(Retry::default(), &tool)
        .run(Call::new(seed))
        .now_or_never()
        .expect("no wait");
    assert_eq!((outcome.status(), tool.seen().len()), (Some(Status::Ok), 0));
}

#[tokio::test]
async fn a_suspended_call_is_returned_unchanged_and_resumes() {
    let twice = run_twice(
        Retry::default(),
        seed_at(&TestClock::new(), "look", json!({ "n": 1 })),
    )
    .await;
    assert!(twice.first.suspension().is_some());
    assert!(twice.second.is_ok());
    twice.assert_replays();
}

#[test]
fn options_that_make_no_sense_are_rejected() {
    let defaults = RetryOptions::default;
    for (options, key) in [
        (
            RetryOptions {
                max_attempts: 0,
                ..defaults()
            },
            "max_attempts",
        ),
        (
            RetryOptions {
                multiplier: 0.5,
                ..defaults()
            },
            "multiplier",
        ),
        (
            RetryOptions {
                multiplier: f64::NAN,
                ..defaults()
            },
            "multiplier",
        ),
        (
            RetryOptions {
                multiplier: f64::INFINITY,
                ..defaults()
            },
            "multiplier",
        ),
        (
            RetryOptions {
                jitter: 1.1,
                ..defaults()
            },
            "jitter",
        ),
        (
            RetryOptions {
                jitter: f64::NAN,
                ..defaults()
            },
            "jitter",
        ),
        (
            RetryOptions {
                initial_delay: HumanDuration::from_secs(9),
                ..defaults()
            },
            "initial_delay",
        ),
    ] {
        assert_eq!(Retry::new(options).expect_err("refused").key, key);
    }
    assert!(serde_json::from_str::<RetryOptions>(r#"{ "max_retries": 3 }"#).is_err());
}

proptest! {
    #[test]
    fn no_delay_exceeds_the_maximum(
        attempt in 1_u32.., initial in 0_u64..5_000, multiplier in 1.0..1e6_f64, jitter in 0.0..=1.0_f64, seed: u64,
    ) {
        let initial_delay = HumanDuration::from_millis(initial);
        let options = RetryOptions { initial_delay, multiplier, jitter, ..RetryOptions::default() };
        let delay = Retry::new(options).expect("fine").with_seed(seed).delay_after(attempt);
        prop_assert!(delay <= Duration::from_secs(5));
        prop_assert!(initial > 0 || delay.is_zero());
    }
}
