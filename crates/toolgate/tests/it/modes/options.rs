//! Scenarios about the options of a single run: tools, layers, tool choice.

use serde_json::json;
use toolgate::{
    Annotations, Band, from_fn,
    model::{ScriptLine, ToolChoice},
    session::RunOptions,
    stack::LayerExt,
    tool::ToolSpec,
    value::Schema,
};

use crate::modes::{
    parity::{check_both, check_managed},
    scenario::ModeScenario,
};

fn look_line() -> ScriptLine {
    ScriptLine::new().call("look", json!({}))
}

fn with_choice(choice: ToolChoice) -> ModeScenario {
    let lines = [look_line(), look_line(), "Done.".into()];
    ModeScenario::with_lines(lines)
        .run_with("look", move |_| RunOptions::new().choice(choice.clone()))
}

#[tokio::test]
async fn with_tool_choice_none_the_model_sees_no_tools_and_calls_are_rejected() {
    check_both("choice_none", &with_choice(ToolChoice::None)).await;
}

#[tokio::test]
async fn a_model_that_must_call_something_must_only_at_first() {
    check_both("choice_required", &with_choice(ToolChoice::Required)).await;
}

#[tokio::test]
async fn a_model_that_must_call_one_tool_must_only_at_first() {
    check_both(
        "choice_named",
        &with_choice(ToolChoice::Named("look".into())),
    )
    .await;
}

#[tokio::test]
async fn tools_that_a_run_allows_narrow_those_of_the_session() {
    let lines = [
        ScriptLine::new()
            .call("look", json!({}))
            .call("note", json!({ "text": "a" })),
        "Done.".into(),
    ];
    let scenario =
        ModeScenario::with_lines(lines).setup(|_, builder| builder.allow(["look", "read"]));
    check_both(
        "allowed_tools",
        &scenario.run_with("look", |_| RunOptions::new().allow(["look", "note"])),
    )
    .await;
}

fn shadow_spec(name: &str) -> ToolSpec {
    let schema =
        Schema::new(json!({ "type": "object", "properties": { "deep": { "type": "boolean" } } }));
    ToolSpec::new(name, "Does it in another way.", schema.expect("valid"))
        .with_annotations(Annotations::read_only())
}

#[tokio::test]
async fn tools_of_a_run_replace_those_of_the_session() {
    let lines = [
        ScriptLine::new()
            .call("look", json!({ "deep": true }))
            .call("shadowed", json!({})),
        "Done.".into(),
        look_line(),
        "Done.".into(),
    ];
    let scenario = ModeScenario::with_lines(lines).run_with("look", |world| {
        RunOptions::new().tools(world.registry(vec![shadow_spec("look"), shadow_spec("shadowed")]))
    });
    check_both("tools_of_a_run", &scenario.run("look")).await;
}

#[tokio::test]
async fn layers_of_a_run_are_inside_those_of_the_session_in_the_same_band() {
    let lines = [
        ScriptLine::new()
            .call("note", json!({ "text": "a" }))
            .call("look", json!({})),
        "Done.".into(),
    ];
    let config = "[layers.scope]\nstage = 'reading'\nallowed_tools = ['look']\n";
    let scenario = ModeScenario::with_lines(lines)
        .config(config)
        .run_with("look", |_| {
            let own = from_fn(async |call, next| {
                next.run(call).await.with_notes(|notes| {
                    notes
                        .metadata
                        .insert("seen_by".to_owned(), json!("the run's own layer"));
                })
            });
            RunOptions::new().layer(own.named("own").in_band(Band::Decide))
        });
    let transcript = check_managed("layers_of_a_run", &scenario).await;
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
        "the session has blocked it before"
    );
    let look = entered("C2 look");
    let own = look.iter().position(|name| name == "own").expect("entered");
    let scope = look.iter().position(|name| name == "scope");
    assert!(scope.is_some_and(|scope| scope < own), "{look:?}");
    // That approval is requested after it: `place_layer` of the core and `front_door::settings`.
    assert_eq!(look[own + 1..], ["timeout"], "the last that decides");
    check_both("layers_of_a_run", &scenario).await;
}
