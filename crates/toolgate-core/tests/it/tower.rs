//! The adapters between Toolgate and tower.
#![cfg(feature = "tower")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use toolgate_core::{Band, Call, Executor, Outcome, Refusal, Stack, Status, TowerLayer};
use toolgate_testkit::{call, echo};
use tower::{
    Service, ServiceExt, limit::ConcurrencyLimitLayer, limit::RateLimitLayer,
    load_shed::LoadShedLayer,
};

#[tokio::test]
async fn a_stack_is_a_tower_service() {
    let mut stack = Stack::over(echo()).build().expect("in order");
    let Ok(outcome) = stack.ready().await.expect("ready").call(call("echo")).await;
    assert!(outcome.is_ok());
}

#[tokio::test]
async fn a_tower_layer_keeps_its_state_across_calls() {
    let limit = TowerLayer::new(
        "limit",
        Band::Decide,
        RateLimitLayer::new(2, Duration::from_secs(3600)),
    );
    let stack = Stack::over(echo()).layer(limit).build().expect("in order");
    assert!(stack.run(call("echo")).await.is_ok());
    assert!(stack.run(call("echo")).await.is_ok());
    let mut third = std::pin::pin!(stack.run(call("echo")));
    assert!(
        futures::poll!(&mut third).is_pending(),
        "the third call waits for the window to pass"
    );
}

#[tokio::test]
async fn a_concurrency_limit_from_tower_holds_and_its_errors_are_outcomes() {
    #[derive(Clone, Default)]
    struct Busy(Arc<AtomicUsize>);
    impl Executor for Busy {
        async fn execute(&self, _: Call) -> Outcome {
            self.0.fetch_add(1, Ordering::Relaxed);
            std::future::pending().await
        }
    }
    let layers = tower::ServiceBuilder::new()
        .layer(LoadShedLayer::new())
        .layer(ConcurrencyLimitLayer::new(1))
        .into_inner();
    let limit = TowerLayer::new("limit", Band::Decide, layers);
    let limit = limit.on_error(|_| Outcome::refused(Refusal::RateLimited, "one at a time"));
    let busy = Busy::default();
    let stack = Stack::over(busy.clone())
        .layer(limit)
        .build()
        .expect("in order");
    let mut first = std::pin::pin!(stack.run(call("a")));
    assert!(futures::poll!(&mut first).is_pending());
    assert_eq!(
        stack.run(call("b")).await.status(),
        Some(Status::RateLimited)
    );
    assert_eq!(busy.0.load(Ordering::Relaxed), 1);
}
