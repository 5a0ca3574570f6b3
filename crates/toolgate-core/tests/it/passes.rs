//! The rules of passes through the deciding layers: what a stored `next`, a changed argument and a
//! repeated requirement can and cannot do.

use std::sync::{Arc, Mutex};

use serde_json::json;
use toolgate_core::{
    Arguments, Band, Call, Layer, LayerCapabilities, LayerExt, LayerStatus, Next, Outcome, Stack,
    StackError, Status, from_fn, map_call,
};
use toolgate_testkit::{FakeExecutor, call, call_with, echo};

fn require(reason: &'static str) -> impl Layer {
    map_call(move |call| call.require_approval(reason, None))
        .named("require")
        .in_band(Band::Decide)
}

fn approve() -> impl Layer {
    from_fn(async |call: Call, next: Next| next.run_approved(call).await)
        .named("approve")
        .in_band(Band::Decide)
}

fn arguments(text: &str) -> Arguments {
    Arguments::parse(text).expect("an object")
}

/// Runs `next` with two sets of arguments, one after the other.
fn run_with_both(first: &'static str, second: &'static str) -> impl Layer {
    from_fn(move |call: Call, next: Next| async move {
        let again = next.clone();
        next.run(call.clone().with_arguments(arguments(first)))
            .await;
        again.run(call.with_arguments(arguments(second))).await
    })
}

#[tokio::test]
async fn a_next_of_an_earlier_pass_does_not_run_although_its_arguments_were_decided_on() {
    let executor = FakeExecutor::new();
    let stored: Arc<Mutex<Option<(Call, Next)>>> = Arc::default();
    // Large amounts need approval, and nothing asks for it.
    let policy = map_call(|call: Call| match call.arguments.get("n") {
        Some(n) if *n == 9 => call.require_approval("large", None),
        _ => call,
    });
    let replay = from_fn(move |call: Call, next: Next| {
        let earlier = stored
            .lock()
            .expect("no panic")
            .replace((call.clone(), next.clone()));
        async move {
            match earlier {
                Some((call, next)) => next.run(call).await,
                None => next.run(call).await,
            }
        }
    });
    let stack = Stack::over(executor.clone())
        .layer(run_with_both(r#"{"n":1}"#, r#"{"n":9}"#))
        .layer(policy.in_band(Band::Decide))
        .layer(replay.named("replay").in_band(Band::Repeat))
        .build()
        .expect("in order");
    let outcome = stack.run(call("pay")).await;
    assert_eq!(outcome.status(), Some(Status::Blocked));
    assert_eq!(executor.seen().len(), 1, "only the first pass");
    let error = outcome.settled().expect("settled").error.clone();
    assert_eq!(
        error.and_then(|error| error.operator).as_deref(),
        Some("replay: it passed on the call after the decision on it had ended")
    );
}

#[tokio::test]
async fn changed_arguments_are_blocked_at_the_layer_that_changed_them_and_it_is_named() {
    let executor = FakeExecutor::new();
    let answers = from_fn(async |_, _| Outcome::ok("cached"));
    let stack = Stack::over(executor.clone())
        .layer(map_call(|call| call).named("policy").in_band(Band::Decide))
        .layer(
            map_call(|call| call.with_arguments(arguments(r#"{"n":9}"#)))
                .named("sneaky")
                .in_band(Band::Repeat),
        )
        .layer(answers.named("cache").in_band(Band::Bound))
        .build()
        .expect("in order");
    let outcome = stack.run(call_with("pay", json!({ "n": 1 }))).await;
    let settled = outcome.settled().expect("settled");
    assert_eq!(settled.status, Status::Blocked);
    assert_eq!(
        settled.model_text(),
        "the arguments were changed after they had been decided on"
    );
    let error = settled.error.as_ref().expect("an error");
    assert_eq!(
        error.operator.as_deref(),
        Some("sneaky: it changed the arguments after they had been decided on")
    );
    let notes = settled.notes.fields().expect("notes");
    let sneaky = &notes.layers[1];
    assert_eq!(
        (sneaky.name.as_str(), sneaky.reason.as_deref()),
        (
            "sneaky",
            Some("it changed the arguments after they had been decided on")
        )
    );
    assert_eq!(notes.layers.len(), 2, "no layer below was entered");
    assert_eq!(sneaky.status, LayerStatus::Settled(Status::Blocked));
    assert!(executor.seen().is_empty());
}

#[tokio::test]
async fn two_passes_at_once_do_not_disturb_each_other() {
    let executor = FakeExecutor::new();
    let both = from_fn(async |call: Call, next: Next| {
        let one = call.clone().with_arguments(arguments(r#"{"n":1}"#));
        let two = call.with_arguments(arguments(r#"{"n":2}"#));
        let (first, second) = futures::join!(next.clone().run(one), next.run(two));
        assert!(first.is_ok(), "{first:?}");
        second
    });
    // Both calls have been decided on before the first one continues.
    let barrier = Arc::new(tokio::sync::Barrier::new(2));
    let wait = from_fn(move |call: Call, next: Next| {
        let barrier = barrier.clone();
        async move {
            barrier.wait().await;
            next.run(call).await
        }
    });
    let stack = Stack::over(executor.clone())
        .layer(both)
        .layer(wait.named("wait").in_band(Band::Decide))
        .build()
        .expect("in order");
    let outcome = stack.run(call("pay")).await;
    assert!(outcome.is_ok(), "{outcome:?}");
    assert_eq!(executor.seen().len(), 2);
}

#[tokio::test]
async fn a_requirement_that_was_met_is_unmet_again_if_a_layer_below_makes_it_again() {
    let executor = FakeExecutor::new();
    let over = || Stack::over(executor.clone());
    let again = || {
        map_call(|call| call.require_approval("it pays", None))
            .named("again")
            .in_band(Band::Repeat)
    };
    let stack = over()
        .layer(require("it pays"))
        .layer(approve())
        .layer(again())
        .build()
        .expect("in order");
    assert_eq!(stack.run(call("pay")).await.status(), Some(Status::Blocked));
    assert!(executor.seen().is_empty());

    // Another requirement below does not bring back the one that was met.
    let other = over()
        .layer(require("it pays"))
        .layer(approve())
        .layer(require("it is late"))
        .build()
        .expect("in order");
    let outcome = other.run(call("pay")).await;
    assert_eq!(
        outcome.settled().expect("settled").model_text(),
        "approval is required, and no approval layer asked for it: it is late"
    );
}

/// A deciding layer that asks for approval.
struct AskingLayer;

impl Layer for AskingLayer {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        next.run_approved(call).await
    }
    fn band(&self) -> Band {
        Band::Decide
    }
    fn capabilities(&self) -> LayerCapabilities {
        LayerCapabilities::default().asking()
    }
}

fn decide(name: &str) -> impl Layer {
    map_call(|call| call).named(name).in_band(Band::Decide)
}

#[test]
fn a_layer_that_asks_cannot_enclose_one_that_decides_and_the_error_says_why() {
    let builder = || {
        Stack::over(echo())
            .layer(AskingLayer.named("ask"))
            .layer(decide("policy"))
    };
    let error = builder().build().expect_err("asks too early");
    assert!(matches!(error, StackError::AsksTooEarly { .. }));
    assert_eq!(
        error.to_string(),
        "ask encloses policy: approval would be requested for calls that policy rejects afterwards"
    );
    assert!(builder().allow_out_of_band("ask").build().is_ok());
    assert!(builder().allow_out_of_band("policy").build().is_ok());
    let two = Stack::over(echo())
        .layer(decide("policy"))
        .layer(AskingLayer.named("ask"))
        .layer(AskingLayer.named("ask again"));
    assert!(two.build().is_ok(), "several may ask");
}

#[test]
fn a_placed_layer_stands_last_in_its_band_and_outside_the_layers_that_ask() {
    let stack = Stack::over(echo())
        .layer(decide("scope"))
        .layer(AskingLayer.named("ask"))
        .layer(map_call(|call| call).named("retry").in_band(Band::Repeat))
        .place_layer(toolgate_core::AnyLayer::new(decide("budget")))
        .place_layer(toolgate_core::AnyLayer::new(AskingLayer.named("ask again")))
        .place_layer(toolgate_core::AnyLayer::new(
            map_call(|call| call).named("trim"),
        ))
        .build()
        .expect("in order");
    let names: Vec<&str> = stack.layers().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        ["trim", "scope", "budget", "ask", "ask again", "retry"]
    );
}
