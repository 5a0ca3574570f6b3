//! The calls that a layer is entered for: matchers, and layers that choose by themselves.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use toolgate_core::{
    AnyLayer, Call, Layer, LayerExt, Matcher, Next, Outcome, Refusal, Registry, Schema, Stack,
    Status, ToolSpec, from_fn,
};
use toolgate_testkit::{FakeExecutor, call, echo_under};

fn pass() -> impl Layer {
    from_fn(async |call, next: Next| next.run(call).await)
}

#[tokio::test]
async fn layers_can_be_restricted_to_some_tools() {
    let refuse = || from_fn(async |_: Call, _: Next| Outcome::refused(Refusal::Blocked, "no"));
    let stack = echo_under(refuse().on(Matcher::glob("fs_*").expect("valid")));
    assert!(stack.run(call("net_get")).await.is_ok());
    assert_eq!(
        stack.run(call("fs_write")).await.status(),
        Some(Status::Blocked)
    );
    let nested = refuse()
        .on(Matcher::glob("fs_*").expect("valid"))
        .on(Matcher::glob("*_write").expect("valid"));
    let stack = echo_under(nested);
    assert!(stack.run(call("fs_read")).await.is_ok());
    assert!(stack.run(call("net_write")).await.is_ok());
    assert_eq!(
        stack.run(call("fs_write")).await.status(),
        Some(Status::Blocked)
    );
}

#[tokio::test]
async fn a_matcher_that_panics_does_not_let_the_call_past_its_layer() {
    let executor = FakeExecutor::new();
    let layer = pass().on(Matcher::predicate(|_| panic!("oops")));
    let stack = Stack::over(executor.clone())
        .layer(layer)
        .build()
        .expect("in order");
    assert_eq!(
        stack.run(call("rm")).await.status(),
        Some(Status::LayerException)
    );
    assert!(executor.seen().is_empty());
}

/// Applies to calls of one tool only, and panics on another.
struct Choosy;

impl Layer for Choosy {
    async fn handle(&self, _: Call, _: Next) -> Outcome {
        Outcome::refused(Refusal::Blocked, "no")
    }

    fn applies_to(&self, call: &Call) -> bool {
        match call.tool.as_str() {
            "odd" => panic!("oops"),
            tool => tool == "rm",
        }
    }
}

#[tokio::test]
async fn a_layer_that_does_not_apply_to_a_call_is_skipped_without_a_note() {
    let wrapped = || {
        AnyLayer::new(
            Choosy
                .named("choosy")
                .on(Matcher::glob("*").expect("valid")),
        )
    };
    for layer in [AnyLayer::new(Choosy), wrapped()] {
        let executor = FakeExecutor::new();
        let stack = Stack::over(executor.clone())
            .layer(pass())
            .any_layers([layer])
            .build()
            .expect("in order");
        let outcome = stack.run(call("ls")).await;
        assert!(outcome.is_ok());
        let notes = outcome
            .settled()
            .and_then(|settled| settled.notes.fields())
            .expect("one layer was entered");
        assert_eq!(notes.layers.len(), 1);
        assert_eq!(stack.run(call("rm")).await.status(), Some(Status::Blocked));
        assert_eq!(
            stack.run(call("odd")).await.status(),
            Some(Status::LayerException),
            "a panic does not mean that the layer may be skipped"
        );
        assert_eq!(executor.seen().len(), 1);
    }
}

/// Counts the calls that are retried.
struct Again(Arc<AtomicUsize>);

impl Layer for Again {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        self.0.fetch_add(1, Ordering::Relaxed);
        next.run(call).await
    }

    fn applies_to(&self, call: &Call) -> bool {
        call.attempt > 1
    }
}

#[tokio::test]
async fn a_layer_may_apply_to_retries_only() {
    let again = Arc::new(AtomicUsize::new(0));
    let twice = from_fn(async |call: Call, next: Next| {
        next.clone().run(call.clone()).await;
        next.run(call).await
    });
    let executor = FakeExecutor::new();
    let stack = Stack::over(executor.clone())
        .layer(twice)
        .layer(Again(again.clone()))
        .build()
        .expect("in order");
    assert!(stack.run(call("rm")).await.is_ok());
    assert_eq!(
        (executor.seen().len(), again.load(Ordering::Relaxed)),
        (2, 1)
    );
}

#[tokio::test]
async fn a_matcher_that_matches_no_tool_is_a_warning() {
    let registry = Registry::new();
    let spec = ToolSpec::new("read", "Reads.", Schema::any_object());
    registry.register_host(spec).expect("free");
    let stack = Stack::over(registry)
        .layer(pass().on(Matcher::name("raed")))
        .layer(pass().on(Matcher::name("read")));
    let stack = stack.build().expect("in order");
    let warnings: Vec<_> = stack.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [r#"from_fn is restricted to [name "raed"], which fits no registered tool"#]
    );
}
