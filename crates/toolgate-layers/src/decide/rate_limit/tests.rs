//! Tests of [`RateLimit`].

use super::*;
use crate::testing::*;
use std::time::Duration;
use toolgate_core::{CallSeed, Stack, Status};
use toolgate_testkit::{FakeExecutor, TestClock, echo, echo_under, run_twice};

fn per(per: RateScope, calls: u32) -> RateLimit {
    let limits = vec![CallRate {
        calls,
        period: HumanDuration::from_secs(60),
        per,
    }];
    RateLimit::new(RateLimitOptions {
        limits,
        ..Default::default()
    })
    .expect("valid options")
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
            nth_seed(&clock, 11, "look", json!({}))
        )
        .await
    );
    assert!(
        !passes(
            &echo_under(per(RateScope::All, 0)),
            nth_seed(&clock, 11, "look", json!({}))
        )
        .await
    );
}

#[tokio::test]
async fn a_window_has_room_again_at_the_stated_time() {
    let clock = TestClock::new();
    let stack = echo_under(per(RateScope::All, 2));
    let call = |n| nth_seed(&clock, n, "look", json!({}));
    assert!(passes(&stack, call(11)).await);
    clock.advance(Duration::from_millis(20_500));
    assert!(passes(&stack, call(12)).await);
    let refused = stack.run(Call::new(call(13))).await;
    let settled = refused.settled().expect("settled");
    assert_eq!(
        settled.model_text(),
        "only 2 calls are allowed per 1m; retry in 40 s"
    );
    assert_eq!(
        settled.notes.fields().expect("noted").metadata["rate_limit"],
        json!({ "retry_at": "2026-01-01T00:01:00.000000Z" })
    );
    clock.advance(Duration::from_secs(40));
    assert!(passes(&stack, call(14)).await);
}

#[tokio::test]
async fn tools_sessions_and_principals_are_counted_separately() {
    let clock = TestClock::new();
    let look = |n| nth_seed(&clock, n, "look", json!({}));
    for (scope, other) in [
        (RateScope::Tool, nth_seed(&clock, 13, "change", json!({}))),
        (RateScope::Session, in_session(look(13), 9)),
        (RateScope::Principal, by_principal(look(13), "ann")),
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
    let stack = echo_under(RateLimit::new(options).expect("valid options"));
    let clock = TestClock::new();
    assert!(passes(&stack, nth_seed(&clock, 11, "look", json!({}))).await);
    assert!(!passes(&stack, nth_seed(&clock, 12, "change", json!({}))).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_calls_cannot_exceed_the_limit() {
    let options = RateLimitOptions {
        max_calls: Some(12),
        limits: vec![CallRate {
            calls: 10,
            period: HumanDuration::from_secs(60),
            per: RateScope::Session,
        }],
        ..RateLimitOptions::default()
    };
    let clock = TestClock::new();
    let stack = echo_under(RateLimit::new(options).expect("valid options"));
    let calls = (0..100)
        .map(|n| tokio::spawn(stack.run(Call::new(nth_seed(&clock, 100 + n, "look", json!({}))))));
    let outcomes = futures::future::try_join_all(calls)
        .await
        .expect("no panic");
    assert_eq!(
        outcomes.iter().filter(|outcome| outcome.is_ok()).count(),
        10
    );
}

#[tokio::test]
async fn a_call_rejected_by_one_limit_counts_for_none() {
    let limits = vec![
        CallRate {
            calls: 2,
            period: HumanDuration::from_secs(600),
            per: RateScope::All,
        },
        CallRate {
            calls: 1,
            period: HumanDuration::from_secs(60),
            per: RateScope::Tool,
        },
    ];
    let limit = RateLimit::new(RateLimitOptions {
        limits,
        ..Default::default()
    })
    .expect("valid options");
    let clock = TestClock::new();
    let stack = echo_under(limit);
    assert!(passes(&stack, nth_seed(&clock, 11, "look", json!({}))).await);
    assert!(!passes(&stack, nth_seed(&clock, 12, "look", json!({}))).await);
    assert!(passes(&stack, nth_seed(&clock, 13, "change", json!({}))).await);
}

#[tokio::test]
async fn a_call_that_resumes_counts_once() {
    let clock = TestClock::new();
    run_twice(RateLimit::max_calls(1), seed_at(&clock, "look", json!({})))
        .await
        .assert_replays();

    let tool = FakeExecutor::new().then_ask();
    let stack = Stack::over(tool)
        .layer(RateLimit::max_calls(2))
        .build()
        .expect("valid order");
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
        passes(&stack, nth_seed(&clock, 11, "look", json!({}))).await,
        "the first call counted once, not twice"
    );
    assert!(!passes(&stack, nth_seed(&clock, 12, "look", json!({}))).await);
}

#[tokio::test]
async fn a_call_that_resumes_uncounted_counts_now() {
    let clock = TestClock::new();
    let stack = echo_under(RateLimit::max_calls(1));
    assert!(
        passes(
            &stack,
            CallSeed {
                generation: 1,
                ..nth_seed(&clock, 11, "look", json!({}))
            }
        )
        .await
    );
    assert!(
        !passes(
            &stack,
            CallSeed {
                generation: 1,
                ..nth_seed(&clock, 12, "look", json!({}))
            }
        )
        .await
    );
}

#[tokio::test]
async fn a_call_that_ran_outside_is_not_rejected_when_the_store_has_lost_its_count() {
    let clock = TestClock::new();
    let host = toolgate_core::HostExecutor;
    let stack = Stack::over(host)
        .layer(RateLimit::max_calls(1))
        .build()
        .expect("valid order");
    let mut seed = nth_seed(&clock, 11, "look", json!({}));
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
        std::sync::Arc::new(toolgate_core::SettledOutcome::new(Status::Ok)),
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
        !passes(&stack, nth_seed(&clock, 12, "look", json!({}))).await,
        "it is counted"
    );
}

#[tokio::test]
async fn a_rehearsal_is_judged_but_not_counted() {
    let clock = TestClock::new();
    let stack = Stack::over(echo())
        .layer(RateLimit::max_calls(1))
        .build()
        .expect("valid order");
    let rehearse = || {
        Call::new(CallSeed {
            rehearsal: true,
            ..seed_at(&clock, "look", json!({}))
        })
    };
    for _ in 0..3 {
        assert_eq!(stack.run(rehearse()).await.status(), Some(Status::DryRun));
    }
    assert!(passes(&stack, nth_seed(&clock, 11, "look", json!({}))).await);
    assert_eq!(
        stack.run(rehearse()).await.status(),
        Some(Status::RateLimited)
    );
}

#[test]
fn invalid_options_are_rejected() {
    let window = |calls, secs| {
        vec![CallRate {
            calls,
            period: HumanDuration::from_secs(secs),
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
            limits: window(MAX_WINDOW_CALLS + 1, 1),
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
