//! Scenarios about policy rules, limits and the loop guard.

use serde_json::json;
use toolgate::{
    model::ScriptLine,
    session::{OnCap, OnFailure, RunOptions},
};

use crate::modes::{parity::check_both, scenario::ModeScenario};

fn look_line() -> ScriptLine {
    ScriptLine::new().call("look", json!({}))
}

fn done_line() -> ScriptLine {
    "Done.".into()
}

#[tokio::test]
async fn a_call_that_policy_blocks_never_runs() {
    let rules = "rules = [{ name = 'no-notes', effect = 'deny', tool = 'note', reason = 'nothing is written here' }]\n";
    let lines = [
        ScriptLine::new()
            .call("note", json!({ "text": "a" }))
            .call("look", json!({})),
        done_line(),
    ];
    check_both(
        "policy_blocked",
        &ModeScenario::with_lines(lines)
            .config(rules)
            .run("write it down"),
    )
    .await;
}

#[tokio::test]
async fn a_call_outside_the_scope_never_runs() {
    let config = "[layers.scope]\nstage = 'reading'\nallowed_tools = ['look']\n";
    let lines = [
        ScriptLine::new()
            .call("note", json!({ "text": "a" }))
            .call("look", json!({})),
        done_line(),
    ];
    check_both(
        "scope_violation",
        &ModeScenario::with_lines(lines)
            .config(config)
            .run("write it down"),
    )
    .await;
}

#[tokio::test]
async fn a_call_beyond_the_rate_limit_is_blocked_and_a_replay_is_not_counted_again() {
    let config = "[layers.rate_limit]\nmax_calls = 2\n";
    let lines = [
        look_line().call("read", json!({ "path": "a" })),
        ScriptLine::new().call("read", json!({ "path": "b" })),
        done_line(),
    ];
    check_both(
        "rate_limited",
        &ModeScenario::with_lines(lines).config(config).run("read"),
    )
    .await;
}

#[tokio::test]
async fn a_call_that_costs_more_than_is_left_is_blocked() {
    let config = "[layers.budget]\nlimit = 1.0\ndefault_cost = 0.6\n";
    let lines = [look_line(), look_line(), done_line()];
    check_both(
        "tool_budget_reached",
        &ModeScenario::with_lines(lines)
            .config(config)
            .run("look twice"),
    )
    .await;
}

#[tokio::test]
async fn a_dry_run_does_nothing() {
    let config = "[layers.dry_run]\nonly = ['note']\n";
    let lines = [
        ScriptLine::new()
            .call("note", json!({ "text": "a" }))
            .call("look", json!({})),
        done_line(),
    ];
    check_both(
        "dry_run",
        &ModeScenario::with_lines(lines)
            .config(config)
            .run("write it down"),
    )
    .await;
}

#[tokio::test]
async fn at_the_iteration_limit_the_model_gets_one_last_request_without_tools() {
    let scenario = ModeScenario::with_lines([look_line().times(2), "This is what I have.".into()]);
    let scenario = scenario.setup(|_, builder| builder.max_iterations(2).instructions("Be brief."));
    check_both("cap_reached", &scenario.run("look for ever")).await;
}

#[tokio::test]
async fn tool_calls_in_the_last_reply_are_rejected() {
    let scenario = ModeScenario::with_lines([look_line().always()])
        .setup(|_, builder| builder.max_iterations(1));
    check_both("cap_ignored", &scenario.run("look for ever").resume()).await;
}

#[tokio::test]
async fn an_iteration_limit_can_be_an_error_and_can_be_raised() {
    let scenario = ModeScenario::with_lines([look_line().times(2), done_line()]);
    let scenario = scenario.run_with("look", |_| {
        RunOptions::new().max_iterations(1).on_cap(OnCap::Fail)
    });
    check_both(
        "cap_as_error",
        &scenario.resume_with(|_| RunOptions::new().max_iterations(5)),
    )
    .await;
}

#[tokio::test]
async fn a_model_in_a_loop_is_stopped() {
    let scenario = ModeScenario::with_lines([look_line().always()])
        .config("[layers.loop_guard]\nidentical = 3\n");
    check_both("loop_guard", &scenario.run("look for ever")).await;
}

#[tokio::test]
async fn with_abort_on_failure_no_further_call_starts_and_the_run_stops() {
    let first = ScriptLine::new()
        .call("look", json!({}))
        .call("fail", json!({}))
        .call("note", json!({ "text": "a" }));
    let scenario = ModeScenario::with_lines([first, done_line()]);
    let scenario = scenario.setup(|_, builder| {
        builder.dispatcher(|dispatcher| dispatcher.on_failure(OnFailure::Abort).max_concurrent(1))
    });
    check_both("abort_on_failure", &scenario.run("try").resume()).await;
}
