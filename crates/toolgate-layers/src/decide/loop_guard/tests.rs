//! Tests of [`LoopGuard`].

use serde_json::{Value, json};
use toolgate_core::{CallSeed, Stack, ToolError, TurnInfo};
use toolgate_testkit::{FakeExecutor, TestClock, echo_under, run_twice};

use super::*;
use crate::testing::*;

/// Returns call number `n`, made in the iteration of that number.
fn call_in_iteration(n: u32, tool: &str, arguments: Value) -> CallSeed {
    in_iteration(nth_seed(&TestClock::new(), n.into(), tool, arguments), n)
}

fn in_iteration(seed: CallSeed, iteration: u32) -> CallSeed {
    let mut turn = TurnInfo::clone(&seed.turn);
    turn.iteration = iteration;
    CallSeed {
        turn: Arc::new(turn),
        ..seed
    }
}

fn nth_look(n: u32) -> CallSeed {
    call_in_iteration(n, "look", json!({ "path": "a" }))
}

/// Returns a guard that blocks the third identical call.
fn strict_guard() -> LoopGuard {
    LoopGuard::new(&LoopGuardOptions {
        identical: 3,
        ..Default::default()
    })
    .expect("valid options")
}

fn stack_under(
    layer: LoopGuard,
    outcomes: impl IntoIterator<Item = Outcome>,
) -> (FakeExecutor, Stack) {
    let tool = outcomes
        .into_iter()
        .fold(FakeExecutor::new(), FakeExecutor::then);
    (
        tool.clone(),
        Stack::over(tool).layer(layer).build().expect("valid order"),
    )
}

async fn status_and_text(stack: &Stack, seed: CallSeed) -> (Option<Status>, String) {
    let outcome = stack.run(Call::new(seed)).await;
    (
        outcome.status(),
        outcome
            .settled()
            .expect("settled")
            .model_text()
            .into_owned(),
    )
}

async fn status_of(stack: &Stack, seed: CallSeed) -> Status {
    status_and_text(stack, seed).await.0.expect("settled")
}

fn failed_outcome() -> Outcome {
    Outcome::failed(ToolError::new("no such table"))
}

#[tokio::test]
async fn the_call_before_the_limit_carries_a_hint_and_the_next_is_blocked() {
    let (tool, stack) = stack_under(LoopGuard::default(), (0..4).map(|_| Outcome::ok("x")));
    for n in 11..14 {
        assert_eq!(
            status_and_text(&stack, nth_look(n)).await,
            (Some(Status::Ok), "x".to_owned())
        );
    }
    let hinted =
        "x\n\n[You have made this call 4 times with the same result; the next one will be blocked.]".to_owned();
    assert_eq!(
        status_and_text(&stack, nth_look(14)).await,
        (Some(Status::Ok), hinted)
    );
    for n in [15, 16] {
        assert_eq!(status_of(&stack, nth_look(n)).await, Status::LoopGuard);
    }
    assert_eq!(tool.seen().len(), 4);
    assert_eq!(
        status_of(&stack, call_in_iteration(17, "look", json!({}))).await,
        Status::Ok
    );
    assert_eq!(
        status_of(&stack, nth_look(18)).await,
        Status::Ok,
        "another call was made in between"
    );
}

#[tokio::test]
async fn a_hint_does_not_change_the_value() {
    let stack = echo_under(strict_guard());
    stack.run(Call::new(nth_look(11))).await;
    let hinted = stack.run(Call::new(nth_look(12))).await;
    let settled = hinted.settled().expect("settled");
    assert!(settled.model_text().contains("will be blocked"));
    assert_eq!(settled.value.as_value(), &json!({ "path": "a" }));
}

#[tokio::test]
async fn polling_with_a_changing_result_is_progress() {
    let (_, stack) = stack_under(
        LoopGuard::default(),
        (0..10).map(|n| Outcome::ok(json!({ "percent": n }))),
    );
    for n in 11..21 {
        let (status, text) = status_and_text(&stack, nth_look(n)).await;
        assert!(status == Some(Status::Ok) && !text.contains("blocked"));
    }
}

#[tokio::test]
async fn a_few_polls_with_the_same_result_are_not_a_loop() {
    let polls = ["running", "running", "running", "done"].map(Outcome::ok);
    let (_, stack) = stack_under(LoopGuard::default(), polls);
    for n in 11..15 {
        assert_eq!(status_of(&stack, nth_look(n)).await, Status::Ok);
    }
}

#[tokio::test]
async fn after_repeated_errors_only_failed_arguments_are_blocked() {
    let (tool, stack) = stack_under(LoopGuard::default(), (0..4).map(|_| failed_outcome()));
    for n in 11..14_u32 {
        assert_eq!(
            status_of(
                &stack,
                call_in_iteration(n, "look", numbered_arguments(n.into()))
            )
            .await,
            Status::ExecutorError
        );
    }
    for n in 11..14_u32 {
        assert_eq!(
            status_of(
                &stack,
                call_in_iteration(n + 10, "look", numbered_arguments(n.into()))
            )
            .await,
            Status::LoopGuard
        );
    }
    let (other, hint) = status_and_text(
        &stack,
        call_in_iteration(31, "look", numbered_arguments(31)),
    )
    .await;
    assert!(
        other == Some(Status::ExecutorError) && hint.contains("failed 4 times"),
        "{hint}"
    );
    assert_eq!(
        status_of(
            &stack,
            call_in_iteration(32, "look", numbered_arguments(32))
        )
        .await,
        Status::Ok,
        "this call succeeds"
    );
    assert_eq!(
        status_of(
            &stack,
            call_in_iteration(33, "look", numbered_arguments(11))
        )
        .await,
        Status::Ok,
        "and the others may be retried"
    );
    assert_eq!(tool.seen().len(), 6);
}

#[tokio::test]
async fn a_blocked_call_is_not_an_error_of_the_tool() {
    for refused in [
        Refusal::Denied,
        Refusal::Expired,
        Refusal::Blocked,
        Refusal::OutOfScope,
        Refusal::RateLimited,
        Refusal::BudgetExceeded,
    ] {
        let (tool, stack) = stack_under(
            LoopGuard::default(),
            (0..9).map(|_| Outcome::refused(refused, "no")),
        );
        for n in 11..20_u32 {
            assert_eq!(
                status_and_text(
                    &stack,
                    call_in_iteration(n, "look", numbered_arguments(n.into()))
                )
                .await,
                (Some(refused.into()), "no".to_owned())
            );
        }
        assert_eq!(tool.seen().len(), 9);
    }
}

#[tokio::test]
async fn the_same_call_for_the_next_user_message_is_not_a_loop() {
    let stack = echo_under(strict_guard());
    for n in 11..20 {
        assert_eq!(
            status_of(&stack, in_iteration(nth_look(n), 0)).await,
            Status::Ok,
            "each message takes one iteration"
        );
    }
    for (n, iteration) in [(21, 0), (22, 1), (23, 0), (24, 1), (25, 0)] {
        assert_eq!(
            status_of(&stack, in_iteration(nth_look(n), iteration)).await,
            Status::Ok,
            "each message takes two iterations"
        );
    }
    for (n, expected) in [(31, Status::Ok), (32, Status::LoopGuard)] {
        assert_eq!(
            status_of(&stack, nth_look(n)).await,
            expected,
            "within one message it is a loop"
        );
    }
}

#[tokio::test]
async fn a_tool_that_was_stopped_works_again_for_the_next_message() {
    let (_, stack) = stack_under(LoopGuard::default(), (0..3).map(|_| failed_outcome()));
    for n in 11..14 {
        stack.run(Call::new(nth_look(n))).await;
    }
    assert_eq!(status_of(&stack, nth_look(14)).await, Status::LoopGuard);
    assert_eq!(
        status_of(&stack, in_iteration(nth_look(15), 0)).await,
        Status::Ok
    );
}

#[tokio::test]
async fn sessions_are_tracked_separately() {
    let stack = echo_under(strict_guard());
    for n in 11..17_u32 {
        assert!(
            stack
                .run(Call::new(in_session(nth_look(n), u128::from(50 + n % 3))))
                .await
                .is_ok()
        );
    }
    assert_eq!(
        status_of(&stack, in_session(nth_look(17), 50)).await,
        Status::LoopGuard
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn siblings_of_one_turn_count_once() {
    let stack = echo_under(strict_guard());
    let sibling = |n| CallSeed {
        turn: nth_look(11).turn,
        ..nth_look(n)
    };
    let calls = (0..20).map(|n| tokio::spawn(stack.run(Call::new(sibling(100 + n)))));
    let outcomes = futures::future::try_join_all(calls)
        .await
        .expect("no panic");
    assert!(outcomes.iter().all(Outcome::is_ok));
    assert_eq!(
        status_of(&stack, nth_look(12)).await,
        Status::Ok,
        "this is the second identical call"
    );
    assert_eq!(status_of(&stack, nth_look(13)).await, Status::LoopGuard);
}

#[tokio::test]
async fn a_rehearsal_is_judged_but_not_counted() {
    let guard = Arc::new(strict_guard());
    let inner = guard.clone();
    let sharing = toolgate_core::from_fn(move |call, next| {
        let guard = inner.clone();
        async move { guard.handle(call, next).await }
    });
    let stack = echo_under(sharing);
    let rehearse = |seed: CallSeed| CallSeed {
        rehearsal: true,
        ..seed
    };
    for n in 11..20 {
        let (status, text) = status_and_text(&stack, rehearse(nth_look(n))).await;
        assert!(status == Some(Status::DryRun) && !text.contains("blocked"));
    }
    guard.agents.run_pending_tasks();
    assert_eq!(guard.agents.entry_count(), 0, "it evicts no agent");
    for n in 21..23 {
        assert!(stack.run(Call::new(nth_look(n))).await.is_ok());
    }
    assert_eq!(
        status_of(&stack, rehearse(in_iteration(nth_look(23), 0))).await,
        Status::DryRun,
        "for a new message"
    );
    assert_eq!(
        status_of(&stack, rehearse(nth_look(24))).await,
        Status::LoopGuard,
        "the rehearsal has not begun a new task"
    );
}

#[tokio::test]
async fn a_call_that_resumes_counts_once_and_is_not_blocked() {
    run_twice(strict_guard(), nth_look(11))
        .await
        .assert_replays();
    let stack = Stack::over(FakeExecutor::new().then_ask())
        .layer(strict_guard())
        .build()
        .expect("valid order");
    assert!(
        stack
            .run(Call::new(nth_look(11)))
            .await
            .suspension()
            .is_some()
    );
    let again = CallSeed {
        generation: 1,
        attempts_before: 1,
        ..nth_look(11)
    };
    assert!(
        !status_and_text(&stack, again).await.1.contains("blocked"),
        "it settles for the first time"
    );
    stack.run(Call::new(nth_look(12))).await;
    assert!(
        stack
            .run(Call::new(CallSeed {
                generation: 1,
                ..nth_look(13)
            }))
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn a_call_that_ran_before_a_crash_is_not_blocked() {
    let stack = echo_under(strict_guard());
    for n in [11, 12] {
        stack.run(Call::new(nth_look(n))).await;
    }
    let mut known = nth_look(13);
    known
        .resumed
        .results
        .push((1, Arc::new(SettledOutcome::new(Status::Ok))));
    assert_eq!(status_of(&stack, known).await, Status::Ok);
}

#[test]
fn invalid_limits_are_rejected() {
    let defaults = LoopGuardOptions::default;
    for (options, key) in [
        (
            LoopGuardOptions {
                identical: 1,
                ..defaults()
            },
            "identical",
        ),
        (
            LoopGuardOptions {
                ping_pong: 3,
                ..defaults()
            },
            "ping_pong",
        ),
        (
            LoopGuardOptions {
                errors: 0,
                ..defaults()
            },
            "errors",
        ),
    ] {
        assert_eq!(LoopGuard::new(&options).expect_err("rejected").key, key);
    }
}
