//! Scenarios about what a single run brings: tools, layers, a choice.

use serde_json::json;
use toolgate::{
    Annotations, Band, LayerExt, RunOptions, Schema, ToolChoice, ToolSpec, from_fn, models::Line,
};

use crate::{
    parity::{check, check_core},
    scenario::Scenario,
};

fn look() -> Line {
    Line::new().call("look", json!({}))
}

fn with_choice(choice: ToolChoice) -> Scenario {
    let lines = [look(), look(), "Done.".into()];
    Scenario::of(lines).run_with("look", move |_| RunOptions::new().choice(choice.clone()))
}

#[tokio::test]
async fn a_model_that_may_call_nothing_is_shown_nothing_and_refused() {
    check("choice_none", &with_choice(ToolChoice::None)).await;
}

#[tokio::test]
async fn a_model_that_must_call_something_must_only_at_first() {
    check("choice_required", &with_choice(ToolChoice::Required)).await;
}

#[tokio::test]
async fn a_model_that_must_call_one_tool_must_only_at_first() {
    check(
        "choice_named",
        &with_choice(ToolChoice::Named("look".into())),
    )
    .await;
}

#[tokio::test]
async fn tools_that_a_run_allows_narrow_those_of_the_session() {
    let lines = [
        Line::new()
            .call("look", json!({}))
            .call("note", json!({ "text": "a" })),
        "Done.".into(),
    ];
    let scenario = Scenario::of(lines).setup(|_, builder| builder.allow(["look", "read"]));
    check(
        "allowed_tools",
        &scenario.run_with("look", |_| RunOptions::new().allow(["look", "note"])),
    )
    .await;
}

fn shadow(name: &str) -> ToolSpec {
    let schema =
        Schema::new(json!({ "type": "object", "properties": { "deep": { "type": "boolean" } } }));
    ToolSpec::new(name, "Does it in another way.", schema.expect("valid"))
        .with_annotations(Annotations::read_only())
}

#[tokio::test]
async fn tools_of_a_run_take_the_place_of_the_sessions() {
    let lines = [
        Line::new()
            .call("look", json!({ "deep": true }))
            .call("shadowed", json!({})),
        "Done.".into(),
        look(),
        "Done.".into(),
    ];
    let scenario = Scenario::of(lines).run_with("look", |world| {
        RunOptions::new().tools(world.registry(vec![shadow("look"), shadow("shadowed")]))
    });
    check("tools_of_a_run", &scenario.run("look")).await;
}

#[tokio::test]
async fn layers_of_a_run_stand_inside_the_sessions_of_the_same_band() {
    let lines = [
        Line::new()
            .call("note", json!({ "text": "a" }))
            .call("look", json!({})),
        "Done.".into(),
    ];
    let config = "[layers.scope]\nstage = 'reading'\nallowed_tools = ['look']\n";
    let scenario = Scenario::of(lines).config(config).run_with("look", |_| {
        let own = from_fn(async |call, next| {
            next.run(call).await.noting(|notes| {
                notes
                    .metadata
                    .insert("seen_by".to_owned(), json!("the run's own layer"));
            })
        });
        RunOptions::new().layer(own.named("own").in_band(Band::Decide))
    });
    let transcript = check_core("layers_of_a_run", &scenario).await;
    let entered = |call: &str| {
        let layers = transcript.receipts[call]["layers"]
            .as_array()
            .expect("listed")
            .iter();
        layers
            .map(|layer| layer["name"].as_str().expect("named").to_owned())
            .collect::<Vec<_>>()
    };
    assert!(
        !entered("C1 note").contains(&"own".to_owned()),
        "the session has refused it before"
    );
    let look = entered("C2 look");
    let own = look.iter().position(|name| name == "own").expect("entered");
    assert_eq!(
        (look[own - 1].as_str(), look[own + 1].as_str()),
        ("approval", "retry")
    );
    check("layers_of_a_run", &scenario).await;
}
