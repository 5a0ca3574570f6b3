//! The rules of [`LoopGuard`].

use serde_json::{Value, json};
use toolgate_core::{CallSeed, Stack, ToolError, TurnInfo};
use toolgate_testkit::{Scripted, TestClock, echo_under, run_twice};

use super::*;
use crate::try_out::*;

/// Call number `n`, made in the round of that number.
fn made(n: u32, tool: &str, arguments: Value) -> CallSeed {
    in_round(nth(&TestClock::new(), n.into(), tool, arguments), n)
}

fn in_round(seed: CallSeed, iteration: u32) -> CallSeed {
    let mut turn = TurnInfo::clone(&seed.turn);
    turn.iteration = iteration;
    CallSeed {
        turn: Arc::new(turn),
        ..seed
    }
}

fn nth_look(n: u32) -> CallSeed {
    made(n, "look", json!({ "path": "a" }))
}

/// Refuses the third identical call.
fn strict() -> LoopGuard {
    LoopGuard::new(&LoopGuardOptions {
        identical: 3,
        ..Default::default()
    })
    .expect("fine")
}

fn under(layer: LoopGuard, outcomes: impl IntoIterator<Item = Outcome>) -> (Scripted, Stack) {
    let tool = outcomes.into_iter().fold(Scripted::new(), Scripted::then);
    (
        tool.clone(),
        Stack::over(tool).layer(layer).build().expect("in order"),
    )
}

async fn text(stack: &Stack, seed: CallSeed) -> (Option<Status>, String) {
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

async fn status(stack: &Stack, seed: CallSeed) -> Status {
    text(stack, seed).await.0.expect("settled")
}

fn fail() -> Outcome {
    Outcome::failed(ToolError::new("no such table"))
}

#[tokio::test]
async fn the_call_before_the_limit_is_hinted_at_and_the_next_refused_until_something_else_is_done()
{
    let (tool, stack) = under(LoopGuard::default(), (0..4).map(|_| Outcome::ok("x")));
    for n in 11..14 {
        assert_eq!(
            text(&stack, nth_look(n)).await,
            (Some(Status::Ok), "x".to_owned())
        );
    }
    let hinted =
        "x\n\n[You have made this call 4 times with the same result; a further one will be refused.]".to_owned();
    assert_eq!(text(&stack, nth_look(14)).await, (Some(Status::Ok), hinted));
    for n in [15, 16] {
        assert_eq!(status(&stack, nth_look(n)).await, Status::LoopGuard);
    }
    assert_eq!(tool.seen().len(), 4);
    assert_eq!(
        status(&stack, made(17, "look", json!({}))).await,
        Status::Ok
    );
    assert_eq!(
        status(&stack, nth_look(18)).await,
        Status::Ok,
        "something else was done in between"
    );
}

#[tokio::test]
async fn the_value_stays_what_it_was_when_a_hint_is_added() {
    let stack = echo_under(strict());
    stack.run(Call::new(nth_look(11))).await;
    let hinted = stack.run(Call::new(nth_look(12))).await;
    let settled = hinted.settled().expect("settled");
    assert!(settled.model_text().contains("will be refused"));
    assert_eq!(settled.value.as_value(), &json!({ "path": "a" }));
}

#[tokio::test]
async fn polling_with_a_changing_result_is_progress() {
    let (_, stack) = under(
        LoopGuard::default(),
        (0..10).map(|n| Outcome::ok(json!({ "percent": n }))),
    );
    for n in 11..21 {
        let (status, text) = text(&stack, nth_look(n)).await;
        assert!(status == Some(Status::Ok) && !text.contains("refused"));
    }
}

#[tokio::test]
async fn a_few_polls_that_say_the_same_are_no_loop_yet() {
    let polls = ["running", "running", "running", "done"].map(Outcome::ok);
    let (_, stack) = under(LoopGuard::default(), polls);
    for n in 11..15 {
        assert_eq!(status(&stack, nth_look(n)).await, Status::Ok);
    }
}

#[tokio::test]
async fn after_the_same_error_over_and_over_only_what_failed_is_refused() {
    let (tool, stack) = under(LoopGuard::default(), (0..4).map(|_| fail()));
    for n in 11..14_u32 {
        assert_eq!(
            status(&stack, made(n, "look", numbered(n.into()))).await,
            Status::ExecutorError
        );
    }
    for n in 11..14_u32 {
        assert_eq!(
            status(&stack, made(n + 10, "look", numbered(n.into()))).await,
            Status::LoopGuard
        );
    }
    let (other, hint) = text(&stack, made(31, "look", numbered(31))).await;
    assert!(
        other == Some(Status::ExecutorError) && hint.contains("failed 4 times"),
        "{hint}"
    );
    assert_eq!(
        status(&stack, made(32, "look", numbered(32))).await,
        Status::Ok,
        "this one works"
    );
    assert_eq!(
        status(&stack, made(33, "look", numbered(11))).await,
        Status::Ok,
        "and the others may be tried again"
    );
    assert_eq!(tool.seen().len(), 6);
}

#[tokio::test]
async fn a_refusal_is_no_error_of_the_tool() {
    for refused in [
        Status::Denied,
        Status::Expired,
        Status::Blocked,
        Status::OutOfScope,
        Status::RateLimited,
        Status::BudgetExceeded,
    ] {
        let (tool, stack) = under(
            LoopGuard::default(),
            (0..9).map(|_| Outcome::refused(refused, "no")),
        );
        for n in 11..20_u32 {
            assert_eq!(
                text(&stack, made(n, "look", numbered(n.into()))).await,
                (Some(refused), "no".to_owned())
            );
        }
        assert_eq!(tool.seen().len(), 9);
    }
}

#[tokio::test]
async fn the_same_call_for_the_next_message_of_the_user_is_no_loop() {
    let stack = echo_under(strict());
    for n in 11..20 {
        assert_eq!(
            status(&stack, in_round(nth_look(n), 0)).await,
            Status::Ok,
            "each message takes one round"
        );
    }
    for (n, iteration) in [(21, 0), (22, 1), (23, 0), (24, 1), (25, 0)] {
        assert_eq!(
            status(&stack, in_round(nth_look(n), iteration)).await,
            Status::Ok,
            "each message takes two"
        );
    }
    for (n, expected) in [(31, Status::Ok), (32, Status::LoopGuard)] {
        assert_eq!(
            status(&stack, nth_look(n)).await,
            expected,
            "within one message it is one"
        );
    }
}

#[tokio::test]
async fn a_tool_that_was_stopped_works_again_for_the_next_message() {
    let (_, stack) = under(LoopGuard::default(), (0..3).map(|_| fail()));
    for n in 11..14 {
        stack.run(Call::new(nth_look(n))).await;
    }
    assert_eq!(status(&stack, nth_look(14)).await, Status::LoopGuard);
    assert_eq!(status(&stack, in_round(nth_look(15), 0)).await, Status::Ok);
}

#[tokio::test]
async fn sessions_are_watched_apart() {
    let stack = echo_under(strict());
    for n in 11..17_u32 {
        assert!(
            stack
                .run(Call::new(in_session(nth_look(n), u128::from(50 + n % 3))))
                .await
                .is_ok()
        );
    }
    assert_eq!(
        status(&stack, in_session(nth_look(17), 50)).await,
        Status::LoopGuard
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn siblings_of_one_turn_count_once() {
    let stack = echo_under(strict());
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
        status(&stack, nth_look(12)).await,
        Status::Ok,
        "this is the second time"
    );
    assert_eq!(status(&stack, nth_look(13)).await, Status::LoopGuard);
}

#[tokio::test]
async fn a_rehearsal_is_judged_but_not_counted() {
    let guard = Arc::new(strict());
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
        let (status, text) = text(&stack, rehearse(nth_look(n))).await;
        assert!(status == Some(Status::DryRun) && !text.contains("refused"));
    }
    guard.agents.run_pending_tasks();
    assert_eq!(guard.agents.entry_count(), 0, "nobody is pushed out by it");
    for n in 21..23 {
        assert!(stack.run(Call::new(nth_look(n))).await.is_ok());
    }
    assert_eq!(
        status(&stack, rehearse(in_round(nth_look(23), 0))).await,
        Status::DryRun,
        "for a new message"
    );
    assert_eq!(
        status(&stack, rehearse(nth_look(24))).await,
        Status::LoopGuard,
        "which the rehearsal has not begun"
    );
}

#[tokio::test]
async fn a_call_that_comes_back_counts_once_and_is_not_refused() {
    run_twice(strict(), nth_look(11)).await.assert_replays();
    let stack = Stack::over(Scripted::new().then_ask())
        .layer(strict())
        .build()
        .expect("in order");
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
        !text(&stack, again).await.1.contains("refused"),
        "the first time that it is over"
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
async fn what_has_run_before_the_process_was_lost_is_not_refused() {
    let stack = echo_under(strict());
    for n in [11, 12] {
        stack.run(Call::new(nth_look(n))).await;
    }
    let mut known = nth_look(13);
    known
        .resumed
        .results
        .push((1, Arc::new(Settled::new(Status::Ok))));
    assert_eq!(status(&stack, known).await, Status::Ok);
}

#[test]
fn limits_that_make_no_sense_are_refused() {
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
        assert_eq!(LoopGuard::new(&options).expect_err("refused").key, key);
    }
}
