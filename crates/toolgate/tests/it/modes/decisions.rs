//! Scenarios with approval requests.

use std::time::Duration;

use serde_json::json;
use toolgate::{model::ScriptLine, session::RunOptions};

use crate::modes::{
    parity::check_both,
    scenario::{ModeScenario, ScenarioDecision, ScenarioStep},
};

fn paying() -> ModeScenario {
    let pay = |amount: u32| json!({ "amount": amount });
    ModeScenario::with_lines([
        ScriptLine::new()
            .call("ask_pay", pay(1))
            .call("look", json!({}))
            .call("ask_pay", pay(2))
            .call("ask_pay", pay(3)),
        ScriptLine::new().say("Done."),
        ScriptLine::new().say("As you like."),
    ])
}

fn paying_once() -> ModeScenario {
    ModeScenario::with_lines([
        ScriptLine::new().call("ask_pay", json!({ "amount": 5 })),
        "Done.".into(),
    ])
    .run("pay 5")
}

#[tokio::test]
async fn an_approved_call_runs_once_the_session_is_resumed() {
    check_both(
        "approved",
        &paying_once().decide(0, ScenarioDecision::Approve).resume(),
    )
    .await;
}

#[tokio::test]
async fn a_denied_call_never_runs_and_the_model_reads_the_reason() {
    let scenario = paying_once()
        .decide(0, ScenarioDecision::Deny(Some("too much")))
        .resume();
    check_both("denied", &scenario.on_sqlite()).await;
}

#[tokio::test]
async fn a_call_without_a_decision_expires() {
    check_both(
        "expired",
        &paying_once()
            .then(ScenarioStep::Pass(Duration::from_secs(60)))
            .resume(),
    )
    .await;
}

#[tokio::test]
async fn decisions_come_in_any_order_each_about_its_own_call() {
    let scenario = paying()
        .run("pay three times")
        .decide(2, ScenarioDecision::Edit(json!({ "amount": 30 })))
        .decide(1, ScenarioDecision::Deny(None))
        .resume()
        .decide(0, ScenarioDecision::Approve)
        .resume();
    check_both("mixed_decisions", &scenario).await;
}

#[tokio::test]
async fn edited_arguments_are_checked_again() {
    let scenario = paying_once()
        .decide(0, ScenarioDecision::Edit(json!({ "amount": "all" })))
        .resume();
    check_both("edited_badly", &scenario).await;
}

#[tokio::test]
async fn a_new_message_that_abandons_them_cancels_the_pending_calls() {
    check_both(
        "said_instead_of_decided",
        &paying()
            .run("pay three times")
            .run_with("never mind", |_| RunOptions::new().abandon_pending()),
    )
    .await;
}

#[tokio::test]
async fn a_suspended_session_is_resumed_in_another_process() {
    let scenario = paying_once()
        .then(ScenarioStep::Lose)
        .decide(0, ScenarioDecision::Approve)
        .then(ScenarioStep::Lose)
        .resume();
    check_both("suspended_elsewhere", &scenario.on_sqlite()).await;
}
