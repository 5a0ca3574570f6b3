//! The rules of [`RateLimit`].

use super::*;
use crate::try_out::*;
use std::time::Duration;
use toolgate_core::{CallSeed, Stack};
use toolgate_testkit::{Scripted, TestClock, echo, echo_under, run_twice};

fn per(per: RateScope, calls: u32) -> RateLimit {
    let limits = vec![CallsPer {
        calls,
        period: Span::secs(60),
        per,
    }];
    RateLimit::new(RateLimitOptions {
        limits,
        ..Default::default()
    })
    .expect("fine")
}

async fn passes(stack: &Stack, seed: CallSeed) -> bool {
    let outcome = stack.run(Call::new(seed)).await;
    assert!(
        outcome.is_ok() || outcome.status() == Some(Status::RateLimited),
        "{outcome:?}"
    );
    outcome.is_ok()
}

#[tokio::test]
async fn a_total_of_zero_allows_nothing() {
    let clock = TestClock::new();
    assert!(
        !passes(
            &echo_under(RateLimit::max_calls(0)),
            nth(&clock, 11, "look", json!({}))
        )
        .await
    );
    assert!(
        !passes(
            &echo_under(per(RateScope::All, 0)),
            nth(&clock, 11, "look", json!({}))
        )
        .await
    );
}

#[tokio::test]
async fn a_window_opens_again_when_it_said_it_would() {
    let (clock, stack) = (TestClock::new(), echo_under(per(RateScope::All, 2)));
    let call = |n| nth(&clock, n, "look", json!({}));
    assert!(passes(&stack, call(11)).await);
    clock.advance(Duration::from_millis(20_500));
    assert!(passes(&stack, call(12)).await);
    let refused = stack.run(Call::new(call(13))).await;
    let settled = refused.settled().expect("settled");
    assert_eq!(
        settled.model_text(),
        "only 2 calls are allowed per 1m; try again in 40 s"
    );
    assert_eq!(
        settled.notes.fields().expect("noted").metadata["rate_limit"],
        json!({ "retry_at": "2026-01-01T00:01:00.000000Z" })
    );
    clock.advance(Duration::from_secs(40));
    assert!(passes(&stack, call(14)).await);
}

#[tokio::test]
async fn tools_sessions_and_principals_are_counted_apart() {
    let clock = TestClock::new();
    let look = |n| nth(&clock, n, "look", json!({}));
    for (scope, other) in [
        (RateScope::Tool, nth(&clock, 13, "change", json!({}))),
        (RateScope::Session, in_session(look(13), 9)),
        (RateScope::Principal, by(look(13), "ann")),
        (RateScope::Principal, in_session(look(13), 9)),
    ] {
        let stack = echo_under(per(scope, 1));
        assert!(
            passes(&stack, look(11)).await && !passes(&stack, look(12)).await,
            "{scope:?}"
        );
        assert!(passes(&stack, other.clone()).await, "{scope:?}");
        let all = echo_under(per(RateScope::All, 1));
        assert!(passes(&all, look(11)).await && !passes(&all, other).await);
    }
}

#[tokio::test]
async fn tools_that_are_not_named_are_not_limited() {
    let options = RateLimitOptions {
        max_calls: Some(0),
        tools: Some(vec!["ch*".into()]),
        ..Default::default()
    };
    let stack = echo_under(RateLimit::new(options).expect("fine"));
    let clock = TestClock::new();
    assert!(passes(&stack, nth(&clock, 11, "look", json!({}))).await);
    assert!(!passes(&stack, nth(&clock, 12, "change", json!({}))).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_made_at_the_same_time_cannot_overshoot() {
    let options = RateLimitOptions {
        max_calls: Some(12),
        limits: vec![CallsPer {
            calls: 10,
            period: Span::secs(60),
            per: RateScope::Session,
        }],
        tools: None,
    };
    let (clock, stack) = (
        TestClock::new(),
        echo_under(RateLimit::new(options).expect("fine")),
    );
    let calls = (0..100)
        .map(|n| tokio::spawn(stack.run(Call::new(nth(&clock, 100 + n, "look", json!({}))))));
    let outcomes = futures::future::try_join_all(calls)
        .await
        .expect("no panic");
    assert_eq!(
        outcomes.iter().filter(|outcome| outcome.is_ok()).count(),
        10
    );
}

#[tokio::test]
async fn a_call_refused_by_one_limit_counts_for_none() {
    let limits = vec![
        CallsPer {
            calls: 2,
            period: Span::secs(600),
            per: RateScope::All,
        },
        CallsPer {
            calls: 1,
            period: Span::secs(60),
            per: RateScope::Tool,
        },
    ];
    let limit = RateLimit::new(RateLimitOptions {
        limits,
        ..Default::default()
    })
    .expect("fine");
    let (clock, stack) = (TestClock::new(), echo_under(limit));
    assert!(passes(&stack, nth(&clock, 11, "look", json!({}))).await);
    assert!(!passes(&stack, nth(&clock, 12, "look", json!({}))).await);
    assert!(passes(&stack, nth(&clock, 13, "change", json!({}))).await);
}

#[tokio::test]
async fn a_call_that_comes_back_counts_once() {
    let clock = TestClock::new();
    run_twice(RateLimit::max_calls(1), seed_at(&clock, "look", json!({})))
        .await
        .assert_replays();

    let tool = Scripted::new().then_ask();
    let stack = Stack::over(tool)
        .layer(RateLimit::max_calls(2))
        .build()
        .expect("in order");
    let seed = seed_at(&clock, "look", json!({}));
    assert!(
        stack
            .run(Call::new(seed.clone()))
            .await
            .suspension()
            .is_some()
    );
    assert!(
        passes(
            &stack,
            CallSeed {
                generation: 1,
                attempts_before: 1,
                ..seed
            }
        )
        .await
    );
    assert!(
        passes(&stack, nth(&clock, 11, "look", json!({}))).await,
        "the first call took one place, not two"
    );
    assert!(!passes(&stack, nth(&clock, 12, "look", json!({}))).await);
}

#[tokio::test]
async fn a_call_that_comes_back_without_having_been_counted_counts_now() {
    let (clock, stack) = (TestClock::new(), echo_under(RateLimit::max_calls(1)));
    assert!(
        passes(
            &stack,
            CallSeed {
                generation: 1,
                ..nth(&clock, 11, "look", json!({}))
            }
        )
        .await
    );
    assert!(
        !passes(
            &stack,
            CallSeed {
                generation: 1,
                ..nth(&clock, 12, "look", json!({}))
            }
        )
        .await
    );
}

#[tokio::test]
async fn what_has_run_outside_is_not_refused_when_the_store_has_forgotten_that_it_counted() {
    let clock = TestClock::new();
    let host = toolgate_core::HostExecutor;
    let stack = Stack::over(host)
        .layer(RateLimit::max_calls(1))
        .build()
        .expect("in order");
    let mut seed = nth(&clock, 11, "look", json!({}));
    assert!(
        stack
            .run(Call::new(seed.clone()))
            .await
            .suspension()
            .is_some()
    );
    seed.env = toolgate_testkit::env_at(&clock);
    seed.resumed.results.push((
        1,
        std::sync::Arc::new(toolgate_core::Settled::new(Status::Ok)),
    ));
    for generation in [1, 0] {
        assert!(
            passes(
                &stack,
                CallSeed {
                    generation,
                    ..seed.clone()
                }
            )
            .await
        );
    }
    assert!(
        !passes(&stack, nth(&clock, 12, "look", json!({}))).await,
        "it has its place"
    );
}

#[tokio::test]
async fn a_rehearsal_is_judged_but_not_counted() {
    let clock = TestClock::new();
    let stack = Stack::over(echo())
        .layer(RateLimit::max_calls(1))
        .build()
        .expect("in order");
    let rehearse = || {
        Call::new(CallSeed {
            rehearsal: true,
            ..seed_at(&clock, "look", json!({}))
        })
    };
    for _ in 0..3 {
        assert_eq!(stack.run(rehearse()).await.status(), Some(Status::DryRun));
    }
    assert!(passes(&stack, nth(&clock, 11, "look", json!({}))).await);
    assert_eq!(
        stack.run(rehearse()).await.status(),
        Some(Status::RateLimited)
    );
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let window = |calls, secs| {
        vec![CallsPer {
            calls,
            period: Span::secs(secs),
            per: RateScope::All,
        }]
    };
    for options in [
        RateLimitOptions::default(),
        RateLimitOptions {
            limits: window(1, 0),
            ..Default::default()
        },
        RateLimitOptions {
            limits: window(MOST_CALLS + 1, 1),
            ..Default::default()
        },
        RateLimitOptions {
            max_calls: Some(1),
            tools: Some(vec!["[".into()]),
            ..Default::default()
        },
    ] {
        assert!(RateLimit::new(options).is_err());
    }
    let read = serde_json::from_str::<RateLimitOptions>;
    assert!(read(r#"{ "limits": [{ "calls": 5, "period": "1m", "per": "tool" }] }"#).is_ok());
    assert!(read(r#"{ "limits": [{ "calls": 5, "period": "1m", "per": "tools" }] }"#).is_err());
}
