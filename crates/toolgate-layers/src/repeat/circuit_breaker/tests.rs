//! The rules of [`CircuitBreaker`].

use super::*;
use crate::{Retry, testing::*};
use futures::{FutureExt, poll};
use serde_json::json;
use std::{pin::pin, sync::Arc};
use toolgate_core::{AnyLayer, CallSeed, Refusal, Stack, ToolError};
use toolgate_testkit::{FakeExecutor, TestClock, run_twice};

fn breaker(failure_threshold: u32) -> CircuitBreaker {
    CircuitBreaker::new(CircuitBreakerOptions {
        failure_threshold,
        ..Default::default()
    })
    .expect("fine")
}

fn stack(tool: &FakeExecutor, failure_threshold: u32) -> Stack {
    Stack::over(tool.clone())
        .layer(breaker(failure_threshold))
        .build()
        .expect("in order")
}

async fn run(stack: &Stack, clock: &TestClock) -> Outcome {
    stack.run(call_at(clock, "look", json!({}))).await
}

fn is_open(outcome: &Outcome) -> bool {
    outcome
        .settled()
        .is_some_and(|s| s.model_text().contains("is unavailable"))
}

#[tokio::test]
async fn an_open_circuit_answers_at_once_with_its_end() {
    let clock = TestClock::new();
    let tool = FakeExecutor::new()
        .then(busy_outcome())
        .then(busy_outcome());
    let stack = stack(&tool, 2);
    for _ in 0..2 {
        assert!(!is_open(&run(&stack, &clock).await));
    }
    let outcome = run(&stack, &clock).await;
    assert_eq!(
        (outcome.status(), tool.seen().len()),
        (Some(Status::ExecutorError), 2)
    );
    assert_eq!(
        outcome.settled().expect("settled").model_text(),
        "the tool look is unavailable until 2026-01-01T00:00:30.000000Z after 2 failures in a row; \
         use another tool or retry later"
    );
    assert!(
        stack
            .run(call_at(&clock, "change", json!({})))
            .await
            .is_ok(),
        "other tools are not affected"
    );
}

#[tokio::test]
async fn a_success_in_between_resets_the_count() {
    let tool = FakeExecutor::new()
        .then(busy_outcome())
        .then(Outcome::ok("fine"))
        .then(busy_outcome())
        .then(Outcome::ok("fine"));
    let clock = TestClock::new();
    let stack = stack(&tool, 2);
    for _ in 0..5 {
        assert!(!is_open(&run(&stack, &clock).await));
    }
}

#[tokio::test]
async fn errors_about_the_call_and_blocked_calls_do_not_open_the_circuit() {
    let mut tool = FakeExecutor::new();
    for category in [
        ErrorCategory::InvalidInput,
        ErrorCategory::NotFound,
        ErrorCategory::Cancelled,
        ErrorCategory::Internal,
    ] {
        tool = tool.then(Outcome::failed(
            ToolError::new("no").with_category(category),
        ));
    }
    tool = tool
        .then(Outcome::denied(None))
        .then(Outcome::refused(Refusal::DryRun, "not run"));
    let clock = TestClock::new();
    let stack = stack(&tool, 1);
    for _ in 0..7 {
        assert!(!is_open(&run(&stack, &clock).await));
    }
}

#[tokio::test]
async fn ordinary_errors_of_a_tool_neither_open_the_circuit_nor_reset_the_count() {
    let no_order = || Outcome::failed(ToolError::new("no such order"));
    let mut tool = FakeExecutor::new();
    for _ in 0..10 {
        tool = tool.then(no_order());
    }
    let tool = tool
        .then(busy_outcome())
        .then(no_order())
        .then(busy_outcome());
    let clock = TestClock::new();
    let stack = stack(&tool, 2);
    for _ in 0..13 {
        assert!(!is_open(&run(&stack, &clock).await));
    }
    assert!(is_open(&run(&stack, &clock).await), "two failures");
}

#[tokio::test]
async fn the_attempts_of_one_call_count_once() {
    let clock = TestClock::new();
    let tool = FakeExecutor::new()
        .then(busy_outcome())
        .then(busy_outcome())
        .then(busy_outcome());
    let at_once = Retry::new(crate::RetryOptions {
        initial_delay: HumanDuration::from_millis(0),
        max_delay: HumanDuration::from_millis(0),
        ..Default::default()
    });
    let stack = Stack::over(tool.clone())
        .layer(at_once.expect("valid"))
        .layer(breaker(2))
        .build()
        .expect("in order");
    run(&stack, &clock).await;
    assert_eq!(tool.seen().len(), 3);
    assert!(run(&stack, &clock).await.is_ok(), "one failure so far");
}

#[tokio::test]
async fn a_circuit_per_principal_does_not_affect_others() {
    let of =
        |clock: &TestClock, who| Call::new(by_principal(seed_at(clock, "look", json!({})), who));
    for (per, affected) in [(CircuitScope::Tool, true), (CircuitScope::Principal, false)] {
        let clock = TestClock::new();
        let tool = FakeExecutor::new().then(busy_outcome());
        let options: CircuitBreakerOptions =
            serde_json::from_value(json!({ "failure_threshold": 1, "per": per })).expect("valid");
        let stack = Stack::over(tool)
            .layer(CircuitBreaker::new(options).expect("valid"))
            .build()
            .expect("in order");
        stack.run(of(&clock, "ann")).await;
        assert!(is_open(&stack.run(of(&clock, "ann")).await));
        assert_eq!(
            is_open(&stack.run(of(&clock, "bob")).await),
            affected,
            "{per:?}"
        );
    }
}

#[tokio::test]
async fn timeouts_panics_and_transient_errors_open_it() {
    for tool in [
        FakeExecutor::new().then(Outcome::failed_with(Failure::Timeout, "late")),
        FakeExecutor::new().then(Outcome::failed_with(Failure::OutcomeUnknown, "who knows")),
        FakeExecutor::new().then(busy_outcome()),
        FakeExecutor::new().then_panic("boo"),
    ] {
        let clock = TestClock::new();
        let stack = stack(&tool, 1);
        run(&stack, &clock).await;
        assert!(is_open(&run(&stack, &clock).await));
    }
}

#[tokio::test]
async fn exactly_one_probe_is_let_through_and_its_success_closes_the_circuit() {
    let clock = TestClock::new();
    let tool = FakeExecutor::new().then(busy_outcome()).then_hang();
    let stack = stack(&tool, 1);
    run(&stack, &clock).await;
    clock.advance(Duration::from_secs(30));
    {
        let mut probe = pin!(stack.run(call_at(&clock, "look", json!({}))));
        assert!(poll!(&mut probe).is_pending());
        assert!(
            is_open(&run(&stack, &clock).await),
            "a second probe is not let through"
        );
    }
    // The probe was dropped: its slot is free again.
    assert!(run(&stack, &clock).await.is_ok());
    assert!(run(&stack, &clock).await.is_ok(), "closed");
    assert_eq!(tool.seen().len(), 4);
}

#[tokio::test]
async fn a_probe_that_fails_opens_the_circuit_again() {
    let clock = TestClock::new();
    let tool = FakeExecutor::new()
        .then(busy_outcome())
        .then(busy_outcome());
    let stack = stack(&tool, 1);
    run(&stack, &clock).await;
    clock.advance(Duration::from_secs(30));
    run(&stack, &clock).await;
    assert!(is_open(&run(&stack, &clock).await));
    clock.advance(Duration::from_secs(30));
    assert!(run(&stack, &clock).await.is_ok());
}

#[tokio::test]
async fn a_probe_without_a_finding_frees_its_slot() {
    let clock = TestClock::new();
    let tool = FakeExecutor::new().then(busy_outcome()).then_ask();
    let stack = stack(&tool, 1);
    run(&stack, &clock).await;
    clock.advance(Duration::from_secs(30));
    assert!(run(&stack, &clock).await.suspension().is_some());
    assert!(run(&stack, &clock).await.is_ok());
}

#[tokio::test]
async fn retry_does_not_wait_for_an_open_circuit() {
    let clock = TestClock::new();
    let tool = FakeExecutor::new().then(busy_outcome());
    let layers = [AnyLayer::new(Retry::default()), AnyLayer::new(breaker(1))];
    let stack = Stack::over(tool.clone())
        .any_layers(layers)
        .build()
        .expect("in order");
    let mut first = pin!(stack.run(call_at(&clock, "look", json!({}))));
    assert!(
        poll!(&mut first).is_pending(),
        "waits for its second attempt"
    );
    clock.advance(Duration::from_secs(1));
    let second = first.now_or_never().expect("no further wait");
    assert!(is_open(&second));
    assert_eq!(tool.seen().len(), 1);
}

#[tokio::test]
async fn a_rehearsal_takes_no_slot_and_is_not_counted() {
    let clock = TestClock::new();
    let tool = FakeExecutor::new().then(busy_outcome());
    let stack = stack(&tool, 1);
    let rehearse = || CallSeed {
        rehearsal: true,
        ..seed_at(&clock, "look", json!({}))
    };
    run(&stack, &clock).await;
    assert!(
        is_open(&stack.run(Call::new(rehearse())).await),
        "the verdict is given"
    );
    clock.advance(Duration::from_secs(30));
    for _ in 0..3 {
        assert_eq!(
            stack.run(Call::new(rehearse())).await.status(),
            Some(Status::DryRun)
        );
    }
    assert!(run(&stack, &clock).await.is_ok());
}

#[tokio::test]
async fn an_external_result_is_accepted_although_the_circuit_is_open() {
    let clock = TestClock::new();
    let tool = FakeExecutor::new().then(busy_outcome());
    let stack = stack(&tool, 1);
    run(&stack, &clock).await;
    let mut seed = seed_at(&clock, "look", json!({}));
    seed.resumed.results = vec![(1, Arc::new(toolgate_core::SettledOutcome::new(Status::Ok)))];
    assert!(stack.run(Call::new(seed)).await.is_ok());
}

#[tokio::test]
async fn a_resumed_call_passes_again() {
    run_twice(breaker(1), seed_at(&TestClock::new(), "look", json!({})))
        .await
        .assert_replays();
}

#[test]
fn options_that_make_no_sense_are_rejected() {
    let defaults = CircuitBreakerOptions::default;
    for (options, key) in [
        (
            CircuitBreakerOptions {
                failure_threshold: 0,
                ..defaults()
            },
            "failure_threshold",
        ),
        (
            CircuitBreakerOptions {
                open_for: HumanDuration::from_secs(0),
                ..defaults()
            },
            "open_for",
        ),
        (
            CircuitBreakerOptions {
                half_open_probes: 0,
                ..defaults()
            },
            "half_open_probes",
        ),
    ] {
        assert_eq!(CircuitBreaker::new(options).expect_err("refused").key, key);
    }
}
