//! Parameters that the program fills: the model neither sees nor sets them, and everything that
//! decides does.

use std::sync::{Arc, Mutex};

use futures::executor::block_on;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use toolgate_core::{
    Band, Call, LayerExt, Next, Outcome, Principal, RegisterError, Registry, Stack, Status, Tool,
    ToolError, around, tool_fn,
};
use toolgate_testkit::seed_for;

#[derive(Deserialize, JsonSchema)]
struct Refund {
    amount: u32,
    tenant: String,
}

fn refund() -> impl Tool {
    tool_fn("refund", "Sends money back.", async |input: Refund, _cx| {
        Ok::<_, ToolError>(format!("{} for {}", input.amount, input.tenant))
    })
}

fn registry_with(value: impl Fn(&Call) -> Option<String> + Send + Sync + 'static) -> Registry {
    let registry = Registry::new();
    registry
        .register(refund().fill("tenant", value))
        .expect("registers");
    registry
}

fn north(_: &Call) -> Option<String> {
    Some("north".to_owned())
}

/// Returns a registry with the tool `refund`, for which the program fills in the tenant `north`.
pub(crate) fn registry_of_tenant_north() -> Registry {
    registry_with(north)
}

/// Runs a call as a model makes it and returns the outcome.
fn run_call(registry: &Registry, arguments: Value) -> Outcome {
    let view = toolgate_testkit::plain_view(registry);
    let stack = Stack::over(registry.clone()).build().expect("builds");
    block_on(stack.run(Call::new(seed_for(&view, "refund", arguments))))
}

fn model_text(outcome: &Outcome) -> String {
    let settled = outcome.settled().expect("settled");
    settled.model_text().into_owned()
}

#[test]
fn the_model_is_not_shown_a_parameter_that_the_program_fills() {
    let registry = registry_with(north);
    let view = toolgate_testkit::plain_view(&registry);
    let shown = &view.get("refund").expect("shown").spec.input;
    assert_eq!(shown.parameters().collect::<Vec<_>>(), ["amount"]);
    assert!(!shown.as_json().as_value().to_string().contains("tenant"));
    let outcome = run_call(&registry, json!({ "amount": 5 }));
    assert_eq!(model_text(&outcome), "5 for north");
}

#[test]
fn a_value_of_the_model_for_such_a_parameter_violates_the_schema() {
    // The schema of this tool would accept any further parameter.
    let outcome = run_call(
        &registry_with(north),
        json!({ "amount": 5, "tenant": "south" }),
    );
    assert_eq!(outcome.status(), Some(Status::SchemaViolation));
}

#[test]
fn deciding_layers_see_the_filled_value() {
    let registry = registry_with(north);
    let view = toolgate_testkit::plain_view(&registry);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = |band: Band| {
        let seen = seen.clone();
        around(move |call: Call, next: Next| {
            let tenant = call.arguments.get("tenant").cloned();
            seen.lock().expect("whole").push((band, tenant));
            next.run(call)
        })
        .in_band(band)
    };
    let stack = Stack::over(registry.clone())
        .layer(record(Band::Shape))
        .layer(record(Band::Decide))
        .build()
        .expect("builds");
    let call = Call::new(seed_for(&view, "refund", json!({ "amount": 5 })));
    assert!(block_on(stack.run(call)).is_ok());
    assert_eq!(
        *seen.lock().expect("whole"),
        [(Band::Shape, None), (Band::Decide, Some(json!("north")))]
    );
}

#[test]
fn without_a_value_the_call_does_not_run() {
    let none = run_call(&registry_with(|_| None), json!({ "amount": 5 }));
    assert_eq!(none.status(), Some(Status::Blocked));
    let broken = run_call(
        &registry_with(|_| panic!("no session")),
        json!({ "amount": 5 }),
    );
    assert_eq!(broken.status(), Some(Status::Blocked));
    assert!(model_text(&broken).contains("tenant"));
}

#[test]
fn the_value_can_depend_on_the_call() {
    let registry = registry_with(|call| {
        let principal = call.turn().principal.as_ref()?;
        Some(principal.to_string())
    });
    let view = toolgate_testkit::plain_view(&registry);
    let stack = Stack::over(registry.clone()).build().expect("builds");
    let mut seed = seed_for(&view, "refund", json!({ "amount": 5 }));
    let mut turn = (*seed.turn).clone();
    turn.principal = Some(Principal::from("ann"));
    seed.turn = Arc::new(turn);
    let outcome = block_on(stack.run(Call::new(seed)));
    assert_eq!(model_text(&outcome), "5 for ann");
}

#[test]
fn a_parameter_that_the_tool_does_not_have_cannot_be_filled() {
    let registry = Registry::new();
    let misspelled = refund().fill("tennant", north);
    assert!(matches!(
        registry.register(misspelled),
        Err(RegisterError::HostValue { .. })
    ));
}
