//! Changes of a configuration in Rust: they have the same effect and the same checks as the file.

use serde_json::json;
use toolgate_core::{
    AnyLayer, Band, BillingService, Budgets, Call, Hooks, Json, Layer, LayerExt, MemoryStore, Next,
    Outcome, Payer, Refusal, Status, StoreHandle, from_fn,
};
use toolgate_layers::{
    AskWhen, BadOption, Catalog, CommitmentKey, Config, ConfigError, Configurable, FilePreview,
    HandoffSink, MemoryReceipts, PathBase, Policy, PolicyEffect, PolicyFallback, PolicyOptions,
    PolicyRule, RateLimit, Redact, Resources, Retry, RuleBook, Scope, SecretScanner,
    SharedRedactor, default_stack, span_fn,
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
    Outcome::refused(Refusal::Blocked, "blocked by the program")
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
fn an_added_layer_stands_at_the_inner_end_of_its_band_and_outside_approval() {
    let config = Config::default()
        .with_layer(from_fn(pass).named("mine").in_band(Band::Decide))
        .with_layer(from_fn(pass).named("innermost").in_band(Band::Bound));
    let names = layer_names(&config);
    let at = |name: &str| names.iter().position(|known| known == name).expect(name);
    assert_eq!(at("mine") + 1, at("approval"));
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

/// A layer of a program, which takes a resource of the program.
struct Greeting;

#[derive(Clone)]
struct Greeter;

impl Layer for Greeting {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        next.run(call).await
    }
}

#[derive(Default, serde::Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct GreetingOptions {}

impl Configurable for Greeting {
    const NAME: &'static str = "greeting";
    const SUMMARY: &'static str = "Greets.";
    type Options = GreetingOptions;

    fn configure(_: GreetingOptions, parts: &Resources) -> Result<Self, BadOption> {
        parts
            .get::<Greeter>()
            .map(|_| Self)
            .ok_or_else(|| BadOption::new("greeter", "the program has provided none"))
    }
}

#[test]
fn a_resource_that_no_layer_takes_is_rejected_when_the_stack_is_built() {
    let built = |config: &Config, parts: &Resources| default_stack(config, parts).map(drop);
    // The layers take a `StoreHandle`.
    let parts = Resources::new().with(MemoryStore::new());
    let error = built(&Config::default(), &parts).expect_err("no layer takes it");
    assert_eq!(error.location(), "the resources");
    assert!(error.problem().contains("MemoryStore"), "{error}");
    let catalog = Catalog::bundled().with_layer::<Greeting>(Band::Record);
    let parse = |text: &str| Config::parse_with_catalog("t.toml", text, catalog.clone());
    let parts = || Resources::new().with(Greeter);
    assert_eq!(
        built(&parse("[layers.greeting]").expect("valid"), &parts()),
        Ok(())
    );
    // The file may disable the layer that takes it.
    assert_eq!(built(&parse("").expect("valid"), &parts()), Ok(()));
    assert!(built(&Config::default(), &parts()).is_err());
}

#[test]
fn every_resource_with_a_setter_is_accepted_by_any_stack() {
    let store = StoreHandle::new(MemoryStore::new());
    let parts = Resources::new()
        .billing(BillingService::new(store.clone(), Budgets::default()))
        .store(store.clone())
        .payer(Payer::default())
        .rule_book(RuleBook::new(
            store,
            toolgate_testkit::keyring_with("rules", 5),
        ))
        .preview(FilePreview::new(&PathBase::new("/nowhere")))
        .ask_when(AskWhen::new(|_| None))
        .path_base("/nowhere")
        .redactor(SecretScanner::standard())
        .hooks(Hooks::new())
        .handoff_sink(HandoffSink::new(|_, _| {}))
        .receipt_sink(MemoryReceipts::default())
        .commitment_key(CommitmentKey::new([7; 32]))
        .span_sink(span_fn(|_| Ok(())));
    let config = Config::parse("[stack]\norder = ['validate']").expect("valid");
    default_stack(&config, &parts).expect("builds");
}
