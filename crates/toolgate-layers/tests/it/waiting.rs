//! Layers of the default stack that have nothing to do for a call are not entered.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use serde_json::json;
use toolgate_core::{
    Annotations, Call, CallError, CallSeed, ErrorCategory, Failure, MemoryStore, Outcome, Registry,
    Stack, Status, StoreHandle, Timestamp, ToolError, tool_fn,
};
use toolgate_layers::{Approval, CircuitBreaker, Config, Resources, RuleBook};
use toolgate_testkit::{
    FakeExecutor, TestClock, call_with, env_at, keyring_with, plain_view, seed_for,
};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct ReadInput {
    bytes: usize,
    fails: bool,
}

/// Runs a tool that only reads under the default stack.
async fn read(bytes: usize, fails: bool) -> Outcome {
    let registry = Registry::new();
    let tool = tool_fn("read", "Reads.", async |input: ReadInput, _cx| {
        if input.fails {
            Err(ToolError::new("gone").with_category(ErrorCategory::Transient))
        } else {
            Ok("x".repeat(input.bytes))
        }
    });
    registry
        .register(tool.with_annotations(Annotations::read_only()))
        .expect("the name is free");
    let config = Config::parse("").expect("valid");
    let stack = config.build(registry.clone(), &Resources::new());
    let arguments = json!({ "bytes": bytes, "fails": fails });
    let clock = TestClock::new();
    let seed = CallSeed {
        env: env_at(&clock),
        ..seed_for(&plain_view(&registry), "read", arguments)
    };
    let running = stack.expect("builds").run(Call::new(seed));
    let ticking = async {
        loop {
            tokio::task::yield_now().await;
            clock.advance(Duration::from_millis(100));
        }
    };
    tokio::select! {
        biased;
        outcome = running => outcome,
        () = ticking => unreachable!("it ticks until the call has settled"),
    }
}

fn entered(outcome: &Outcome) -> Vec<String> {
    let notes = outcome.settled().expect("settled").notes.fields();
    let layers = &notes.expect("a trail").layers;
    let mut names: Vec<String> = layers.iter().map(|note| note.name.to_string()).collect();
    names.sort();
    names.dedup();
    names
}

#[tokio::test]
async fn a_plain_read_enters_only_the_layers_that_have_something_to_do() {
    let outcome = read(10, false).await;
    assert!(outcome.is_ok());
    let always = [
        "loop_guard",
        "policy",
        "receipts",
        "redact",
        "summary",
        "timeout",
    ];
    assert_eq!(entered(&outcome), always);
}

#[tokio::test]
async fn an_outcome_wakes_the_layers_that_act_on_it() {
    let failed = read(10, true).await;
    let settled = failed.settled().expect("settled");
    assert_eq!(
        (settled.status, settled.attempts),
        (Status::ExecutorError, 3)
    );
    for layer in ["retry", "circuit_breaker", "toasts"] {
        assert!(entered(&failed).contains(&layer.to_owned()), "{layer}");
    }
    assert!(!entered(&failed).contains(&"output_cap".to_owned()));
    let long = read(200_000, false).await;
    assert!(long.is_ok() && entered(&long).contains(&"output_cap".to_owned()));
    let text = long.settled().and_then(|settled| settled.text.clone());
    assert!(text.expect("truncated").len() <= 50_000);
}

fn transient_failure() -> Outcome {
    let error = CallError::new(ErrorCategory::Transient, "down");
    Outcome::error(Failure::ExecutorError, error)
}

#[tokio::test]
async fn a_circuit_that_opened_answers_before_the_executor() {
    let failures = (0..5).fold(FakeExecutor::new(), |tool, _| {
        tool.then(transient_failure())
    });
    let stack = Stack::over(failures.clone())
        .layer(CircuitBreaker::default())
        .build()
        .expect("in order");
    for _ in 0..5 {
        stack.run(call_with("t", json!({}))).await;
    }
    assert_eq!(failures.seen().len(), 5);
    let outcome = stack.run(call_with("t", json!({}))).await;
    assert!(!outcome.is_ok());
    assert_eq!(failures.seen().len(), 5, "the tool was not called");
}

#[tokio::test]
async fn failures_count_in_a_row_also_if_the_layer_waited() {
    let tool = (0..4).fold(FakeExecutor::new(), |tool, _| {
        tool.then(transient_failure())
    });
    let tool = tool.then(Outcome::ok("fine"));
    let tool = (0..4).fold(tool, |tool, _| tool.then(transient_failure()));
    let stack = Stack::over(tool.clone())
        .layer(CircuitBreaker::default())
        .build()
        .expect("in order");
    for _ in 0..10 {
        stack.run(call_with("t", json!({}))).await;
    }
    assert_eq!(tool.seen().len(), 10, "no circuit opened: 4, a success, 4");
}

#[tokio::test]
async fn a_standing_rule_denies_a_call_that_needs_no_approval() {
    let store = StoreHandle::new(MemoryStore::new());
    let book = RuleBook::new(store, keyring_with("k1", 1)).in_project("shop");
    let tool = FakeExecutor::new();
    let stack = Stack::over(tool.clone())
        .layer(Approval::when_required().with_rules(book.clone()))
        .build()
        .expect("in order");
    let run = async || {
        stack
            .run(call_with("run_shell", json!({ "command": "git push" })))
            .await
    };
    // The first look-up finds no rules; the book knows that for a second.
    assert!(run().await.is_ok());
    assert!(run().await.is_ok());
    let rule = serde_json::from_value(json!({
        "id": "push", "effect": "deny", "tool": "run_shell", "owner": "ann",
        "created_at": Timestamp::EPOCH, "scope": { "scope": "project", "project": "shop" },
        "arguments": { "/command": { "equals": "git push" } },
    }));
    book.add(rule.expect("a rule")).await.expect("stored");
    assert_eq!(run().await.status(), Some(Status::Denied));
    assert_eq!(tool.seen().len(), 2);
}

#[tokio::test]
async fn a_condition_that_asks_once_is_asked_once() {
    let asked = AtomicBool::new(false);
    let first = move |_: &Call| {
        let is_first = !asked.swap(true, Ordering::Relaxed);
        is_first.then(|| "the first use".to_owned())
    };
    let tool = FakeExecutor::new();
    let stack = Stack::over(tool.clone())
        .layer(Approval::when(first))
        .build()
        .expect("in order");
    let outcome = stack.run(call_with("t", json!({}))).await;
    assert!(outcome.settled().is_none(), "it is suspended: {outcome:?}");
    assert!(tool.seen().is_empty());
}
