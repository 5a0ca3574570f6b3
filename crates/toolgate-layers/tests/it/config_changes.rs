//! Changes of a configuration in Rust: they have the same effect and the same checks as the file.

use serde_json::json;
use toolgate_core::{AnyLayer, Band, Call, Json, LayerExt, Next, Outcome, Status, from_fn};
use toolgate_layers::{
    Config, ConfigError, Policy, PolicyEffect, PolicyFallback, PolicyOptions, PolicyRule,
    RateLimit, Redact, Resources, Retry, Scope, SharedRedactor, default_stack,
};
use toolgate_testkit::{call, echo};

fn layer_names(config: &Config) -> Vec<String> {
    let layers = default_stack(config, &Resources::new()).expect("builds");
    let name = |layer: &AnyLayer| layer.name().to_string();
    layers.iter().map(name).collect()
}

fn deny(tool: &str) -> PolicyRule {
    PolicyRule {
        tool: Some([tool].into()),
        ..PolicyRule::new(PolicyEffect::Deny)
    }
}

async fn pass(call: Call, next: Next) -> Outcome {
    next.run(call).await
}

async fn block(_: Call, _: Next) -> Outcome {
    Outcome::refused(Status::Blocked, "blocked by the program")
}

fn problem(changed: Result<Config, ConfigError>) -> String {
    changed.expect_err("rejected").to_string()
}

#[test]
fn options_of_the_program_are_added_to_those_of_the_file() {
    let file = "[layers.policy]\ndefault = 'allow'\nrules = [{ effect = 'deny', tool = 'a' }]";
    let config = Config::parse(file)
        .and_then(|config| config.add_policy_rules([deny("b")]))
        .and_then(|config| config.add_policy_rules([deny("c")]))
        .expect("valid");
    let by_hand = PolicyOptions {
        default: PolicyFallback::Allow,
        rules: vec![deny("a"), deny("b"), deny("c")],
        ..PolicyOptions::default()
    };
    assert_eq!(config.layer_options::<Policy>(), Ok(by_hand));
    let config = config.policy_default(PolicyFallback::Deny).expect("valid");
    let options = config.layer_options::<Policy>().expect("reads");
    assert_eq!(options.default, PolicyFallback::Deny);
}

#[tokio::test]
async fn a_rule_of_the_program_blocks_calls() {
    let config = Config::default()
        .policy_default(PolicyFallback::Allow)
        .expect("valid");
    let run = async |config: &Config| {
        let stack = config.build(echo(), &Resources::new()).expect("builds");
        stack.run(call("echo")).await.status()
    };
    assert_eq!(run(&config).await, Some(Status::Ok));
    let strict = config.add_policy_rules([deny("echo")]).expect("valid");
    assert_eq!(run(&strict).await, Some(Status::Blocked));
}

#[test]
fn editing_a_layer_that_the_default_stack_lacks_adds_it_like_a_table() {
    assert!(!layer_names(&Config::default()).contains(&"scope".to_owned()));
    let edited = Config::default()
        .edit_layer::<Scope>(|_| {})
        .expect("valid");
    let written = Config::parse("[layers.scope]").expect("valid");
    assert_eq!(layer_names(&edited), layer_names(&written));
}

#[test]
fn a_change_that_would_have_no_effect_is_rejected() {
    let disabled = Config::parse("[layers.policy]\nenabled = false").expect("valid");
    assert_eq!(
        problem(disabled.policy_default(PolicyFallback::Deny)),
        "toolgate.toml as changed by the program: layers.policy is disabled and cannot be changed"
    );
    let ordered = Config::parse("[stack]\norder = ['policy', 'approval']").expect("valid");
    assert_eq!(
        problem(ordered.edit_layer::<Retry>(|_| {})),
        "toolgate.toml as changed by the program: layers.retry is not in stack.order, so it would have no effect"
    );
    assert_eq!(
        problem(Config::default().without_layer("polcy")),
        "toolgate.toml as changed by the program: the catalog has no layer `polcy`; the nearest is `policy`"
    );
    assert_eq!(
        problem(Config::default().replace_layer("polcy", from_fn(pass))),
        "toolgate.toml as changed by the program: the stack has no layer `polcy`; the nearest is `policy`"
    );
}

#[test]
fn a_bad_option_of_the_program_is_rejected_when_the_stack_is_built() {
    let rule = PolicyRule::new(PolicyEffect::Deny);
    let config = Config::default().add_policy_rules([rule]).expect("reads");
    let error = default_stack(&config, &Resources::new()).expect_err("no condition");
    assert_eq!(error.location(), "toolgate.toml as changed by the program");
    assert!(
        error.problem().starts_with("layers.policy.rules"),
        "{error}"
    );
}

#[test]
fn a_removed_layer_is_gone_unless_the_configuration_needs_it() {
    let config = Config::default().without_layer("retry").expect("valid");
    let mut expected = layer_names(&Config::default());
    expected.retain(|name| name != "retry");
    assert_eq!(layer_names(&config), expected);
    let budget =
        "[layers.budget]\n[[budget]]\nname = 'few'\nscope = 'session'\nunit = 'calls'\nlimit = 5";
    let config = Config::parse(budget).expect("valid");
    let text = problem(config.without_layer("budget"));
    assert!(text.contains("the stack has no layer `budget`"), "{text}");
}

#[test]
fn an_added_layer_stands_at_the_inner_end_of_its_band() {
    let config = Config::default()
        .with_layer(from_fn(pass).named("mine").in_band(Band::Decide))
        .with_layer(from_fn(pass).named("innermost").in_band(Band::Bound));
    let names = layer_names(&config);
    let at = |name: &str| names.iter().position(|known| known == name).expect(name);
    assert_eq!(at("mine"), at("approval") + 1);
    assert_eq!(at("innermost"), names.len() - 1);
    config
        .build(echo(), &Resources::new())
        .expect("in its band");
}

#[tokio::test]
async fn a_replacement_stands_in_the_place_of_the_layer_under_its_name() {
    let config = Config::default()
        .replace_layer("policy", from_fn(block).in_band(Band::Decide))
        .expect("valid");
    assert_eq!(layer_names(&config), layer_names(&Config::default()));
    let stack = config.build(echo(), &Resources::new()).expect("builds");
    let outcome = stack.run(call("echo")).await;
    assert_eq!(outcome.status(), Some(Status::Blocked));
    let text = outcome
        .settled()
        .expect("settled")
        .model_text()
        .into_owned();
    assert!(text.contains("blocked by the program"), "{text}");
}

#[test]
fn secrets_that_the_program_names_are_redacted_in_the_whole_stack() {
    let config = Config::default()
        .edit_layer::<Redact>(|redact| redact.fields.push("iban".into()))
        .expect("valid");
    let parts = Resources::new();
    config.build(echo(), &parts).expect("builds");
    let redactor = parts.get::<SharedRedactor>().expect("shared");
    let payment = Json::new(json!({ "iban": "DE02120300000000202051" })).expect("shallow");
    let shown = redactor.redacted_json(&payment).expect("redacts");
    assert_ne!(shown, payment);
}

#[test]
fn a_file_cannot_undo_what_the_program_changes() {
    let config = Config::default()
        .edit_layer::<RateLimit>(|_| {})
        .and_then(|config| {
            let variable = "TOOLGATE_LAYERS__RATE_LIMIT__ENABLED".to_owned();
            config.with_environment([(variable, "false".to_owned())])
        });
    assert!(problem(config).contains("layers.rate_limit is disabled"));
}
