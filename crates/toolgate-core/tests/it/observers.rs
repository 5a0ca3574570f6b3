//! The rules of layers that watch: what they see of an outcome, and when they run.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use toolgate_core::{
    Band, Call, CallEnv, CallSeed, Clock, Layer, LayerExt, MemoryStore, Next, NoProbe, Outcome,
    ResumeState, Stack, StoreHandle, ToolError, after, before, from_fn, observe, on_error,
};
use toolgate_testkit::{FakeExecutor, TestClock, call, seed};

/// Counts how often `before` and `on_error` run.
#[derive(Clone, Default)]
struct Counts {
    before: Arc<AtomicU32>,
    on_error: Arc<AtomicU32>,
}

impl Counts {
    fn layers(&self) -> (impl Layer + use<>, impl Layer + use<>) {
        let started = self.before.clone();
        let failed = self.on_error.clone();
        (
            before(move |_| {
                started.fetch_add(1, Ordering::Relaxed);
                std::future::ready(())
            }),
            on_error(move |_, _| {
                failed.fetch_add(1, Ordering::Relaxed);
                std::future::ready(())
            }),
        )
    }

    fn read(&self) -> [u32; 2] {
        [&self.before, &self.on_error].map(|count| count.load(Ordering::Relaxed))
    }
}

async fn count_with(layer: impl Layer, executor: FakeExecutor) -> [u32; 2] {
    let counts = Counts::default();
    let (before, on_error) = counts.layers();
    let stack = Stack::over(executor)
        .layer(before)
        .layer(on_error)
        .layer(layer)
        .build()
        .expect("in order");
    stack.run(call("pay")).await;
    counts.read()
}

fn pass() -> impl Layer {
    from_fn(async |call, next: Next| next.run(call).await)
}

#[tokio::test]
async fn before_and_on_error_run_for_real_executions_only() {
    let failing = || FakeExecutor::new().then(Outcome::failed(ToolError::new("broken")));
    assert_eq!(count_with(pass(), FakeExecutor::new()).await, [1, 0]);
    assert_eq!(count_with(pass(), failing()).await, [1, 1]);
    let denied = from_fn(async |_, _| Outcome::denied(None));
    assert_eq!(count_with(denied, failing()).await, [0, 0]);
    let failed_cache = from_fn(async |_, _| {
        let mut outcome = Outcome::failed(ToolError::new("cached"));
        outcome.settled_mut().expect("settled").cached = true;
        outcome
    });
    assert_eq!(count_with(failed_cache, failing()).await, [0, 0]);
}

#[tokio::test]
async fn before_and_on_error_run_once_per_call_and_not_per_attempt() {
    let retry = from_fn(async |call: Call, next: Next| {
        for _ in 0..2 {
            next.clone().run(call.clone()).await;
        }
        next.run(call).await
    });
    let broken = || Outcome::failed(ToolError::new("broken"));
    let executor = FakeExecutor::new()
        .then(broken())
        .then(broken())
        .then(broken());
    let counted = count_with(retry.in_band(Band::Repeat), executor.clone()).await;
    assert_eq!(executor.seen().len(), 3);
    assert_eq!(counted, [1, 1]);
}

#[tokio::test]
async fn before_does_not_run_again_when_a_call_resumes_with_its_result() {
    let counts = Counts::default();
    let (before, on_error) = counts.layers();
    let stack = Stack::over(FakeExecutor::new())
        .layer(before)
        .layer(on_error)
        .build()
        .expect("in order");
    let failed = Outcome::failed(ToolError::new("broken"));
    let result = Arc::new(failed.settled().expect("settled").clone());
    let resumed = CallSeed {
        resumed: ResumeState {
            results: vec![(1, result)],
            ..ResumeState::default()
        },
        ..seed("pay", json!({}))
    };
    stack.run(Call::new(resumed)).await;
    assert_eq!(counts.read(), [0, 1], "it started before it was suspended");
}

#[tokio::test]
async fn before_sees_the_call_as_it_runs() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = seen.clone();
    let stack = Stack::over(FakeExecutor::new())
        .layer(before(move |call: Call| {
            let text = call.arguments.as_json().to_string();
            log.lock().expect("no panic").push(text);
            std::future::ready(())
        }))
        .layer(toolgate_core::map_call(|call| {
            let other = toolgate_core::Arguments::parse(r#"{"n":2}"#).expect("an object");
            call.with_arguments(other)
        }))
        .build()
        .expect("in order");
    stack.run(call("pay")).await;
    assert_eq!(*seen.lock().expect("no panic"), [r#"{"n":2}"#]);
}

#[tokio::test]
async fn a_panic_in_before_settles_the_call_without_running_it() {
    let executor = FakeExecutor::new();
    let broken = before(|_| async { panic!("boo") });
    let stack = Stack::over(executor.clone())
        .layer(broken)
        .build()
        .expect("in order");
    let outcome = stack.run(call("pay")).await;
    assert_eq!(
        outcome.status(),
        Some(toolgate_core::Status::LayerException)
    );
    assert!(executor.seen().is_empty());
}

#[tokio::test]
async fn every_layer_sees_when_the_call_began_and_how_long_it_took() {
    let clock = Arc::new(TestClock::new());
    let spans: Arc<Mutex<Vec<(&'static str, Duration)>>> = Arc::default();
    let log = |name| {
        let spans = spans.clone();
        move |outcome: &Outcome| {
            let settled = outcome.settled().expect("settled");
            spans
                .lock()
                .expect("no panic")
                .push((name, settled.duration()));
        }
    };
    let in_observe = log("observe");
    let in_after = log("after");
    let in_layer = log("layer");
    let tick = clock.clone();
    let work = from_fn(move |call: Call, next: Next| {
        let tick = tick.clone();
        let in_layer = in_layer.clone();
        async move {
            let outcome = next.run(call).await;
            in_layer(&outcome);
            tick.advance(Duration::from_secs(5));
            outcome
        }
    });
    let tick = clock.clone();
    let slow = before(move |_| {
        tick.advance(Duration::from_secs(2));
        std::future::ready(())
    });
    let stack = Stack::over(FakeExecutor::new())
        .layer(observe(move |_, outcome| in_observe(outcome)))
        .layer(after(move |_, outcome| {
            in_after(&outcome);
            std::future::ready(())
        }))
        .layer(work)
        .layer(slow)
        .build()
        .expect("in order");
    let clock: Arc<dyn Clock> = clock;
    let env = CallEnv::new(
        clock,
        StoreHandle::new(MemoryStore::new()),
        Arc::new(NoProbe),
    );
    let timed = CallSeed {
        env,
        ..seed("pay", json!({}))
    };
    stack.run(Call::new(timed)).await;
    let seconds: Vec<(&str, u64)> = spans
        .lock()
        .expect("no panic")
        .iter()
        .map(|(name, span)| (*name, span.as_secs()))
        .collect();
    assert_eq!(seconds, [("layer", 2), ("after", 7), ("observe", 7)]);
}
