//! The options of a gate: the default stack is adjusted in Rust, and files are trusted as on the
//! command line.

use serde_json::json;
use toolgate::{
    Gate, Next, RunEnd,
    budget::{BudgetPeriod, BudgetRule, BudgetScope, BudgetUnit},
    from_fn,
    gate::{ApproveMode, ConfigFile, ConfigOwner, StateDir},
    layers::{PolicyEffect, PolicyRule, Timeout},
    model::{ScriptLine, ScriptedModel},
    prelude::*,
};

/// Tells the time.
#[tool(side_effect = "network")]
async fn clock() -> String {
    "noon".to_owned()
}

fn asks_for_the_time() -> ScriptedModel {
    ScriptedModel::new([
        ScriptLine::new().call("clock", json!({})),
        ScriptLine::new().say("Noon."),
    ])
}

async fn end_of_run(gate: &Gate) -> RunEnd {
    let session = gate.session(asks_for_the_time()).await.expect("opens");
    session.run("What time is it?").await.expect("runs").end
}

#[tokio::test]
async fn a_rule_in_rust_counts_like_one_in_the_file() {
    let allow = PolicyRule {
        tool: Some(["clock"].into()),
        ..PolicyRule::new(PolicyEffect::Allow)
    };
    let gate = Gate::builder().in_memory().expect("keys").tool(clock);
    let gate = gate.rule(allow).build().expect("builds");
    assert_eq!(end_of_run(&gate).await, RunEnd::Completed);
    let gate = Gate::in_memory()
        .expect("builds")
        .tool(clock)
        .expect("registered");
    assert_eq!(end_of_run(&gate).await, RunEnd::Suspended);
}

#[tokio::test]
async fn a_mode_answers_in_place_of_an_approver() {
    for (mode, status) in [
        (ApproveMode::Yes, "ok"),
        (ApproveMode::Never, "consent_denied"),
    ] {
        let gate = Gate::builder().in_memory().expect("keys").tool(clock);
        let gate = gate.approve(mode).user("ann").build().expect("builds");
        assert_eq!(end_of_run(&gate).await, RunEnd::Completed);
        let receipts = gate.ledger().list_receipts(&Default::default()).await;
        let page = receipts.expect("listed");
        let first = page.receipts.first().expect("one receipt");
        assert_eq!(first.receipt.status.as_str(), status);
    }
}

#[test]
fn layers_are_added_replaced_removed_and_configured_in_rust() {
    let names = |gate: &Gate| -> Vec<String> {
        let layers = gate.stack().layers();
        layers.map(|(name, _)| name.to_string()).collect()
    };
    let gate = || Gate::builder().in_memory().expect("keys");
    let own = from_fn(|call: Call, next: Next| next.run(call)).named("tenant");
    let built = gate()
        .layer(own.in_band(toolgate::Band::Decide))
        .without_layer("toasts")
        .edit_layer::<Timeout>(|timeout| timeout.message = Some("too slow".into()))
        .build()
        .expect("builds");
    let names = names(&built);
    assert!(!names.contains(&"toasts".to_owned()));
    let place = |name: &str| names.iter().position(|known| known == name);
    assert!(place("tenant").is_some());
    assert!(
        place("tenant") < place("approval"),
        "approval is the last to decide: {names:?}"
    );
    let error = gate().without_layer("tosts").build().expect_err("misspelt");
    assert!(error.to_string().contains("toasts"), "{error}");
}

#[tokio::test]
async fn a_budget_limits_tools_and_models_of_the_gate() {
    let limit = BudgetRule::new(
        "calls",
        BudgetScope::Session,
        BudgetPeriod::Total,
        BudgetUnit::Calls,
        0,
    );
    let gate = Gate::builder().in_memory().expect("keys").tool(clock);
    let gate = gate.approve(ApproveMode::Yes).budget(limit);
    let gate = gate.build().expect("builds");
    end_of_run(&gate).await;
    let page = gate.ledger().list_receipts(&Default::default()).await;
    let page = page.expect("listed");
    let first = page.receipts.first().expect("one receipt");
    assert_eq!(first.receipt.status.as_str(), "budget_exceeded");
}

#[test]
fn a_configuration_of_a_project_needs_trust_and_a_named_one_does_not() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("toolgate.toml");
    std::fs::write(&path, "[run]\napprove = 'yes'").expect("written");
    let state = StateDir::new(dir.path().join("home")).expect("absolute");
    let gate = || {
        let gate = Gate::builder().in_memory().expect("keys");
        gate.state_dir(state.clone())
    };
    let found = ConfigFile::read(ConfigOwner::Project, path.clone()).expect("readable");
    let error = gate().found_config(found).build().expect_err("not trusted");
    assert!(error.to_string().contains("is not trusted yet"), "{error}");
    assert!(error.hint().is_some());
    let named = gate()
        .config_file(&path)
        .build()
        .expect("named by the program");
    assert_eq!(named.approve_mode(), ApproveMode::Yes);
    let error = gate().config_file(dir.path().join("none.toml")).build();
    assert!(
        error
            .expect_err("missing")
            .to_string()
            .contains("none.toml")
    );
}

#[test]
fn keys_and_database_inside_the_workspace_are_rejected_before_they_are_created() {
    let dir = tempfile::tempdir().expect("a directory");
    let state = StateDir::new(dir.path().join("home")).expect("absolute");
    let builder = Gate::builder().state_dir(state).workspace(dir.path());
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let opened = runtime.expect("starts").block_on(builder.open());
    let error = opened.expect_err("rejected");
    assert!(
        error.to_string().contains("lies in the workspace"),
        "{error}"
    );
    assert!(!dir.path().join("home").exists());
}

#[tokio::test]
async fn what_is_installed_in_a_gate_is_shown_and_passes_its_stack() {
    let gate = Gate::in_memory().expect("builds");
    let install = |registry: &toolgate::Registry| registry.register(clock).map(drop);
    let gate = gate.install(install).expect("registered");
    let again = Gate::in_memory().expect("builds").tool(clock);
    let again = again.expect("registered").install(install);
    assert!(again.expect_err("taken").to_string().contains("clock"));
    assert!(gate.view().expect("shown").get("clock").is_some());
    assert_eq!(end_of_run(&gate).await, RunEnd::Suspended);
}
