//! Scenarios about calls: how many there are, and how each of them can end.

use serde_json::json;
use toolgate::models::Line;

use crate::{parity::check, scenario::Scenario};

fn done() -> Line {
    "Done.".into()
}

#[tokio::test]
async fn a_model_that_needs_no_tools_answers_at_once() {
    check("no_tools", &Scenario::of(["Hello."]).run("hi")).await;
}

#[tokio::test]
async fn one_call_is_run_and_told() {
    let lines = [
        Line::new().say("Let me look.").call("look", json!({})),
        done(),
    ];
    check("one_call", &Scenario::of(lines).run("look around")).await;
}

#[tokio::test]
async fn calls_of_one_message_are_answered_in_its_order() {
    let first = Line::new()
        .call("read", json!({ "path": "a" }))
        .call("note", json!({ "text": "b" }))
        .call("look", json!({}));
    check(
        "parallel_calls",
        &Scenario::of([first, done()]).run("do it all"),
    )
    .await;
}

#[tokio::test]
async fn rounds_follow_one_another() {
    let lines = [
        Line::new().call("look", json!({})),
        Line::new().call("read", json!({ "path": "a" })),
        Line::new().call("note", json!({ "text": "a" })),
        done(),
    ];
    check(
        "sequential_rounds",
        &Scenario::of(lines).run("step by step").on_sqlite(),
    )
    .await;
}

#[tokio::test]
async fn an_unknown_tool_is_told_with_what_is_near() {
    let lines = [
        Line::new().call("lok", json!({})).call("look", json!({})),
        done(),
    ];
    check("unknown_tool", &Scenario::of(lines).run("look")).await;
}

#[tokio::test]
async fn arguments_that_are_no_json_or_break_the_schema_never_reach_a_tool() {
    let first = Line::new()
        .raw_call("a", "read", "{\"path\": ")
        .raw_call("b", "read", "[]")
        .raw_call("c", "read", "{\"path\": 5}")
        .raw_call("d", "ask_pay", "{}");
    check("bad_arguments", &Scenario::of([first, done()]).run("read")).await;
}

#[tokio::test]
async fn a_tool_that_fails_or_panics_leaves_its_siblings_alone() {
    let first = Line::new()
        .call("boom", json!({}))
        .call("fail", json!({}))
        .call("look", json!({}));
    check("failing_tools", &Scenario::of([first, done()]).run("try")).await;
}

#[tokio::test]
async fn a_failure_that_passes_is_tried_again_without_anybody_noticing() {
    let lines = [Line::new().call("flaky", json!({})), done()];
    check("retry_then_ok", &Scenario::of(lines).run("try").ticking()).await;
}

#[tokio::test]
async fn a_tool_that_takes_too_long_is_stopped_and_the_model_told() {
    let lines = [Line::new().call("hang", json!({})), done()];
    let scenario = Scenario::of(lines).config("[layers.timeout]\nper_tool = { hang = 1000 }\n");
    check("timeout", &scenario.run("wait").ticking()).await;
}
