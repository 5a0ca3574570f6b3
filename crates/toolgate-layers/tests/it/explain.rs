//! Explanations: every layer's verdict with its own reason, and no side effects.

use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;
use toolgate_core::{
    Annotations, CallSeed, KeyKind, Keyring, Registry, SecretKey, Stack, Status, ToolError, View,
    tool_fn,
};
use toolgate_layers::{
    CallVerdict, Catalog, Config, Explanation, Ledger, Resources, default_stack, explain,
};
use toolgate_testkit::{TestClock, env_at, seed_for};

static RUNS: AtomicU32 = AtomicU32::new(0);

fn registry() -> Registry {
    let registry = Registry::new();
    let run = async |_: serde_json::Value, _cx| {
        RUNS.fetch_add(1, Ordering::SeqCst);
        Ok::<_, ToolError>("ran")
    };
    registry
        .register(tool_fn("look", "Looks.", run).with_annotations(Annotations::read_only()))
        .expect("free");
    registry
        .register(tool_fn("write", "Writes.", run))
        .expect("free");
    registry
}

/// Builds the default stack with every optional layer enabled.
fn build_everything(parts: &Resources, more: &str) -> (Stack, View) {
    let registry = registry();
    let text = format!(
        "{more}\n[layers.rate_limit]\nmax_calls = 2\n[layers.budget]\nlimit = 10\ndefault_cost = 1\n[layers.idempotency]\n[layers.telemetry]\n"
    );
    let layers = Config::parse(&text)
        .and_then(|config| default_stack(&config, parts))
        .expect("valid");
    let stack = Stack::over(registry.clone())
        .any_layers(layers)
        .build()
        .expect("in order");
    let view = View::for_stack(&registry, &stack).expect("additive");
    (stack, view)
}

fn seed(view: &View, tool: &str, arguments: serde_json::Value) -> CallSeed {
    CallSeed {
        env: env_at(&TestClock::new()),
        ..seed_for(view, tool, arguments)
    }
}

fn find_layer<'a>(explanation: &'a Explanation, name: &str) -> &'a toolgate_layers::ExplainedLayer {
    explanation
        .layers
        .iter()
        .find(|layer| layer.name.as_str() == name)
        .expect(name)
}

#[tokio::test]
async fn explaining_a_call_that_would_run_has_no_side_effects() {
    let parts = Resources::new();
    let (stack, view) = build_everything(&parts, "");
    let seed = seed(&view, "look", json!({}));
    for _ in 0..5 {
        let explanation = explain(&stack, seed.clone()).await;
        assert_eq!(explanation.verdict, CallVerdict::Runs, "{explanation}");
        let silent = |name: &&str| {
            !explanation
                .layers
                .iter()
                .any(|layer| layer.name.as_str() == *name)
        };
        let silent: Vec<_> = stack
            .layers()
            .map(|(name, _)| name.as_str())
            .filter(silent)
            .collect();
        assert_eq!(
            silent,
            ["progress", "file_changes", "hooks"],
            "it takes no time, writes nothing and has no hooks"
        );
        assert!(
            explanation
                .layers
                .iter()
                .all(|layer| layer.verdict == CallVerdict::Runs),
            "{explanation}"
        );
    }
    assert_eq!(RUNS.load(Ordering::SeqCst), 0);
    assert!(
        seed.env.store().ledgers().await.expect("reads").is_empty(),
        "no receipt was sealed"
    );
}

#[tokio::test]
async fn a_call_that_needs_approval_names_the_asking_layer_and_continues() {
    let (stack, view) = build_everything(&Resources::new(), "");
    let explanation = explain(&stack, seed(&view, "write", json!({}))).await;
    assert_eq!(explanation.verdict, CallVerdict::Asks, "{explanation}");
    assert_eq!(
        find_layer(&explanation, "approval").verdict,
        CallVerdict::Asks
    );
    assert!(
        find_layer(&explanation, "policy")
            .reason
            .as_deref()
            .expect("says why")
            .contains("no rule allows")
    );
    assert_eq!(
        find_layer(&explanation, "timeout").verdict,
        CallVerdict::Runs,
        "the layers below are explained as well"
    );
    let text = explanation.to_string();
    assert!(text.ends_with("if approved"), "{text}");
    let mut lines = text.lines().skip_while(|line| !line.ends_with("asks"));
    lines.next().expect("a layer asks");
    let reason = lines.next().expect("its reason is below it");
    assert!(reason.starts_with("        "), "{text}");
}

#[tokio::test]
async fn a_call_that_would_be_blocked_names_the_layer_the_rule_and_the_text_for_the_model() {
    let policy =
        "[layers.policy]\nrules = [{ name = 'hands off', effect = 'deny', tool = 'write' }]\n";
    let (stack, view) = build_everything(&Resources::new(), policy);
    let explanation = explain(&stack, seed(&view, "write", json!({}))).await;
    assert_eq!(explanation.verdict, CallVerdict::Settles(Status::Blocked));
    assert_eq!(
        find_layer(&explanation, "policy").verdict,
        CallVerdict::Settles(Status::Blocked)
    );
    assert!(
        explanation
            .text
            .as_deref()
            .expect("told")
            .contains("hands off"),
        "{explanation}"
    );
    assert!(
        explanation
            .layers
            .iter()
            .all(|layer| layer.name.as_str() != "approval"),
        "no layer further in was reached"
    );
}

#[tokio::test]
async fn the_reasons_of_an_explanation_are_those_of_the_receipt() {
    let parts = Resources::new();
    let policy =
        "[layers.policy]\nrules = [{ name = 'hands off', effect = 'deny', tool = 'write' }]\n";
    let (stack, view) = build_everything(&parts, policy);
    let explanation = explain(&stack, seed(&view, "write", json!({}))).await;
    let call = toolgate_core::Call::new(seed(&view, "write", json!({})));
    stack.run(call.clone()).await;
    let ledger = Ledger::main(call.env().store().clone());
    let receipt = ledger
        .find_receipt(call.id)
        .await
        .expect("reads")
        .expect("sealed")
        .receipt;
    let said = receipt
        .layers
        .iter()
        .find(|layer| layer.name.as_str() == "policy")
        .expect("was entered");
    assert_eq!(
        said.reason.as_deref(),
        find_layer(&explanation, "policy").reason.as_deref()
    );
}

#[tokio::test]
async fn an_unknown_tool_and_invalid_arguments_are_explained_too() {
    let (stack, view) = build_everything(&Resources::new(), "");
    let explanation = explain(&stack, seed(&view, "lock", json!({}))).await;
    assert_eq!(
        explanation.verdict,
        CallVerdict::Settles(Status::ToolNotFound)
    );
    assert!(explanation.text.expect("told").contains("look"));
}

#[test]
fn the_catalog_has_every_layer_of_the_specification() {
    let names: Vec<_> = Catalog::bundled()
        .entries()
        .iter()
        .map(|entry| entry.name)
        .collect();
    assert_eq!(
        names,
        [
            "receipts",
            "telemetry",
            "toasts",
            "progress",
            "file_changes",
            "summary",
            "hooks",
            "output_cap",
            "redact",
            "require_reason",
            "handoff",
            "scope",
            "policy",
            "validate",
            "rate_limit",
            "budget",
            "loop_guard",
            "approval",
            "idempotency",
            "retry",
            "circuit_breaker",
            "timeout",
            "dry_run",
            "catch_panic",
        ]
    );
}

#[tokio::test]
async fn with_signed_approvals_the_explanation_still_has_the_reason() {
    let key = SecretKey::new("k1".parse().expect("a name"), KeyKind::HmacSha256, [7; 32]);
    let parts = Resources::new().with(Keyring::new(key));
    let (stack, view) = build_everything(&parts, "");
    let explanation = explain(&stack, seed(&view, "write", json!({}))).await;
    assert_eq!(explanation.verdict, CallVerdict::Asks, "{explanation}");
    assert_eq!(
        find_layer(&explanation, "approval").reason.as_deref(),
        Some("needs approval"),
        "{explanation}"
    );
}
