//! The questions that a program asks an error of the front door.

use serde_json::json;
use toolgate::{
    Error, Gate,
    budget::{BudgetPeriod, BudgetRule, BudgetScope, BudgetUnit},
    model::{ScriptLine, ScriptedModel},
    prelude::*,
    store::MemoryStore,
};

/// Sends a letter.
#[tool(side_effect = "network")]
async fn send() -> String {
    "sent".to_owned()
}

fn sends() -> ScriptedModel {
    ScriptedModel::new([
        ScriptLine::new().call("send", json!({})),
        ScriptLine::new().say("Sent."),
    ])
}

/// Returns the answers to all questions, in the order of their names.
fn answers(error: &Error) -> [bool; 4] {
    [
        error.is_budget_exceeded(),
        error.is_invalid_configuration(),
        error.is_lease_lost(),
        error.is_pending_approval(),
    ]
}

#[tokio::test]
async fn a_run_that_waits_for_a_person_is_pending() {
    let gate = Gate::in_memory().expect("builds").tool(send);
    let session = gate.expect("registered").session(sends()).await;
    let report = session.expect("opens").run("Go.").await.expect("runs");
    let error = Error::from(report.completed().expect_err("it waits"));
    assert_eq!(answers(&error), [false, false, false, true]);
}

#[tokio::test]
async fn a_session_that_another_gate_drives_is_held() {
    let store = MemoryStore::new();
    let gate = || {
        let keys = toolgate::approval::SecretKey::new(
            "k1".parse().expect("an id"),
            toolgate::approval::KeyKind::HmacSha256,
            [7; 32],
        );
        let builder = Gate::builder().store(store.clone());
        builder
            .keyring(toolgate::approval::Keyring::new(keys))
            .build()
    };
    let first = gate().expect("builds").session(sends()).await;
    let first = first.expect("opens");
    let second = gate()
        .expect("builds")
        .open_session(first.id(), sends())
        .await;
    let error = second.expect_err("it is held");
    assert_eq!(answers(&error), [false, false, true, false], "{error}");
}

#[tokio::test]
async fn a_run_without_budget_is_over_it() {
    let limit = BudgetRule::new(
        "tokens",
        BudgetScope::Session,
        BudgetPeriod::Total,
        BudgetUnit::Tokens,
        0,
    );
    let gate = Gate::builder().in_memory().expect("keys").budget(limit);
    let session = gate.build().expect("builds").session(sends()).await;
    let report = session.expect("opens").run("Go.").await.expect("reports");
    let error = Error::from(report.completed().expect_err("no budget"));
    assert_eq!(answers(&error), [true, false, false, false], "{error}");
}

#[tokio::test]
async fn an_unknown_provider_or_a_malformed_name_is_a_mistake_of_the_program() {
    let gate = Gate::in_memory().expect("builds");
    for name in ["opnai:gpt-5", "gpt-5"] {
        let error = gate.session(name).await.expect_err("no such model");
        assert_eq!(answers(&error), [false, true, false, false], "{error}");
        assert!(error.hint().is_some(), "{error}");
    }
}
