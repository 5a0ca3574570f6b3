//! Scenarios in which somebody has to decide first.

use std::time::Duration;

use serde_json::json;
use toolgate::models::Line;

use crate::{
    parity::check,
    scenario::{Ruling, Scenario, Step},
};

fn paying() -> Scenario {
    let pay = |amount: u32| json!({ "amount": amount });
    Scenario::of([
        Line::new()
            .call("ask_pay", pay(1))
            .call("look", json!({}))
            .call("ask_pay", pay(2))
            .call("ask_pay", pay(3)),
        Line::new().say("Done."),
        Line::new().say("As you like."),
    ])
}

fn paying_once() -> Scenario {
    Scenario::of([
        Line::new().call("ask_pay", json!({ "amount": 5 })),
        "Done.".into(),
    ])
    .run("pay 5")
}

#[tokio::test]
async fn an_approved_call_runs_once_the_session_is_resumed() {
    check(
        "approved",
        &paying_once().decide(0, Ruling::Approve).resume(),
    )
    .await;
}

#[tokio::test]
async fn a_denied_call_never_runs_and_the_model_reads_why() {
    let scenario = paying_once()
        .decide(0, Ruling::Deny(Some("too much")))
        .resume();
    check("denied", &scenario.on_sqlite()).await;
}

#[tokio::test]
async fn a_call_that_nobody_decides_on_expires() {
    check(
        "expired",
        &paying_once()
            .then(Step::Pass(Duration::from_secs(60)))
            .resume(),
    )
    .await;
}

#[tokio::test]
async fn decisions_come_in_any_order_each_about_its_own_call() {
    let scenario = paying()
        .run("pay three times")
        .decide(2, Ruling::Edit(json!({ "amount": 30 })))
        .decide(1, Ruling::Deny(None))
        .resume()
        .decide(0, Ruling::Approve)
        .resume();
    check("mixed_decisions", &scenario).await;
}

#[tokio::test]
async fn edited_arguments_are_checked_again() {
    let scenario = paying_once()
        .decide(0, Ruling::Edit(json!({ "amount": "all" })))
        .resume();
    check("edited_badly", &scenario).await;
}

#[tokio::test]
async fn whoever_says_something_else_instead_of_deciding_does_not_want_the_calls() {
    check(
        "said_instead_of_decided",
        &paying().run("pay three times").run("never mind"),
    )
    .await;
}

#[tokio::test]
async fn a_suspended_session_goes_on_in_another_process() {
    let scenario = paying_once()
        .then(Step::Lose)
        .decide(0, Ruling::Approve)
        .then(Step::Lose)
        .resume();
    check("suspended_elsewhere", &scenario.on_sqlite()).await;
}
