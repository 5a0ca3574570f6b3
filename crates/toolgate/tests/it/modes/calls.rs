//! Scenarios about calls: how many there are, and how each of them can end.

use serde_json::json;
use toolgate::model::ScriptLine;

use crate::modes::{parity::check_both, scenario::ModeScenario};

fn done_line() -> ScriptLine {
    "Done.".into()
}

#[tokio::test]
async fn a_model_that_needs_no_tools_answers_at_once() {
    check_both("no_tools", &ModeScenario::with_lines(["Hello."]).run("hi")).await;
}

#[tokio::test]
async fn one_call_is_executed_and_its_result_sent_to_the_model() {
    let lines = [
        ScriptLine::new()
            .say("Let me look.")
            .call("look", json!({})),
        done_line(),
    ];
    check_both(
        "one_call",
        &ModeScenario::with_lines(lines).run("look around"),
    )
    .await;
}

#[tokio::test]
async fn calls_of_one_message_are_answered_in_its_order() {
    let first = ScriptLine::new()
        .call("read", json!({ "path": "a" }))
        .call("note", json!({ "text": "b" }))
        .call("look", json!({}));
    check_both(
        "parallel_calls",
        &ModeScenario::with_lines([first, done_line()]).run("do it all"),
    )
    .await;
}

#[tokio::test]
async fn iterations_follow_one_another() {
    let lines = [
        ScriptLine::new().call("look", json!({})),
        ScriptLine::new().call("read", json!({ "path": "a" })),
        ScriptLine::new().call("note", json!({ "text": "a" })),
        done_line(),
    ];
    check_both(
        "sequential_rounds",
        &ModeScenario::with_lines(lines)
            .run("step by step")
            .on_sqlite(),
    )
    .await;
}

#[tokio::test]
async fn an_unknown_tool_is_reported_with_similar_names() {
    let lines = [
        ScriptLine::new()
            .call("lok", json!({}))
            .call("look", json!({})),
        done_line(),
    ];
    check_both("unknown_tool", &ModeScenario::with_lines(lines).run("look")).await;
}

#[tokio::test]
async fn arguments_that_are_no_json_or_break_the_schema_never_reach_a_tool() {
    let first = ScriptLine::new()
        .raw_call("a", "read", "{\"path\": ")
        .raw_call("b", "read", "[]")
        .raw_call("c", "read", "{\"path\": 5}")
        .raw_call("d", "ask_pay", "{}");
    check_both(
        "bad_arguments",
        &ModeScenario::with_lines([first, done_line()]).run("read"),
    )
    .await;
}

#[tokio::test]
async fn a_tool_that_fails_or_panics_leaves_its_siblings_alone() {
    let first = ScriptLine::new()
        .call("boom", json!({}))
        .call("fail", json!({}))
        .call("look", json!({}));
    check_both(
        "failing_tools",
        &ModeScenario::with_lines([first, done_line()]).run("try"),
    )
    .await;
}

#[tokio::test]
async fn a_transient_failure_is_retried_invisibly() {
    let lines = [ScriptLine::new().call("flaky", json!({})), done_line()];
    check_both(
        "retry_then_ok",
        &ModeScenario::with_lines(lines).run("try").ticking(),
    )
    .await;
}

#[tokio::test]
async fn a_tool_that_times_out_is_stopped_and_the_model_reads_it() {
    let lines = [ScriptLine::new().call("hang", json!({})), done_line()];
    let scenario =
        ModeScenario::with_lines(lines).config("[layers.timeout]\nper_tool = { hang = '1s' }\n");
    check_both("timeout", &scenario.run("wait").ticking()).await;
}
