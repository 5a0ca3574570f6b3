//! Scenarios in which rules, caps and guards have the last word.

use serde_json::json;
use toolgate::{OnCap, OnFailure, RunOptions, models::Line};

use crate::{parity::check, scenario::Scenario};

fn look() -> Line {
    Line::new().call("look", json!({}))
}

fn done() -> Line {
    "Done.".into()
}

#[tokio::test]
async fn what_a_policy_denies_never_runs() {
    let rules = "rules = [{ name = 'no-notes', effect = 'deny', tool = 'note', reason = 'nothing is written here' }]\n";
    let lines = [
        Line::new()
            .call("note", json!({ "text": "a" }))
            .call("look", json!({})),
        done(),
    ];
    check(
        "policy_blocked",
        &Scenario::of(lines).config(rules).run("write it down"),
    )
    .await;
}

#[tokio::test]
async fn what_is_outside_the_scope_never_runs() {
    let config = "[layers.scope]\nstage = 'reading'\nallowed_tools = ['look']\n";
    let lines = [
        Line::new()
            .call("note", json!({ "text": "a" }))
            .call("look", json!({})),
        done(),
    ];
    check(
        "scope_violation",
        &Scenario::of(lines).config(config).run("write it down"),
    )
    .await;
}

#[tokio::test]
async fn a_call_beyond_the_rate_is_refused_and_a_replay_is_not_counted_again() {
    let config = "[layers.rate_limit]\nmax_calls = 2\n";
    let lines = [
        look().call("read", json!({ "path": "a" })),
        Line::new().call("read", json!({ "path": "b" })),
        done(),
    ];
    check(
        "rate_limited",
        &Scenario::of(lines).config(config).run("read"),
    )
    .await;
}

#[tokio::test]
async fn a_call_that_costs_more_than_is_left_is_refused() {
    let config = "[layers.budget]\nlimit = 1.0\ndefault_cost = 0.6\n";
    let lines = [look(), look(), done()];
    check(
        "tool_budget_reached",
        &Scenario::of(lines).config(config).run("look twice"),
    )
    .await;
}

#[tokio::test]
async fn a_pretended_call_does_nothing() {
    let config = "[layers.dry_run]\nonly = ['note']\n";
    let lines = [
        Line::new()
            .call("note", json!({ "text": "a" }))
            .call("look", json!({})),
        done(),
    ];
    check(
        "dry_run",
        &Scenario::of(lines).config(config).run("write it down"),
    )
    .await;
}

#[tokio::test]
async fn at_the_cap_the_model_is_asked_once_more_without_tools() {
    let scenario = Scenario::of([look().times(2), "This is what I have.".into()]);
    let scenario = scenario.setup(|_, builder| builder.max_iterations(2).instructions("Be brief."));
    check("cap_reached", &scenario.run("look for ever")).await;
}

#[tokio::test]
async fn a_model_that_calls_tools_in_its_closing_words_is_refused() {
    let scenario = Scenario::of([look().always()]).setup(|_, builder| builder.max_iterations(1));
    check("cap_ignored", &scenario.run("look for ever").resume()).await;
}

#[tokio::test]
async fn a_cap_can_be_an_error_and_more_rounds_can_be_given() {
    let scenario = Scenario::of([look().times(2), done()]);
    let scenario = scenario.run_with("look", |_| {
        RunOptions::new().max_iterations(1).on_cap(OnCap::Fail)
    });
    check(
        "cap_as_error",
        &scenario.resume_with(|_| RunOptions::new().max_iterations(5)),
    )
    .await;
}

#[tokio::test]
async fn a_model_that_goes_round_in_circles_is_stopped() {
    let scenario = Scenario::of([look().always()]).config("[layers.loop_guard]\nidentical = 3\n");
    check("loop_guard", &scenario.run("look for ever")).await;
}

#[tokio::test]
async fn where_one_failure_is_enough_the_rest_is_not_started_and_the_run_stops() {
    let first = Line::new()
        .call("look", json!({}))
        .call("fail", json!({}))
        .call("note", json!({ "text": "a" }));
    let scenario = Scenario::of([first, done()]);
    let scenario = scenario.setup(|_, builder| {
        builder.dispatcher(|dispatcher| dispatcher.on_failure(OnFailure::Abort).max_concurrent(1))
    });
    check("abort_on_failure", &scenario.run("try").resume()).await;
}
