//! Bad stacks, each with its finding.

use std::time::Duration;

use toolgate_core::{
    AnyLayer, Band, Call, Layer, LayerCapabilities, LayerExt, LayerName, Matcher, Next, Outcome,
};
use toolgate_layers::{
    Catalog, Config, LintFinding, Redact, Resources, Timeout, default_stack, lint,
};

/// A layer that only declares its capabilities.
struct DeclaredLayer(&'static str, Band, LayerCapabilities);

impl Layer for DeclaredLayer {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        next.run(call).await
    }
    fn name(&self) -> LayerName {
        self.0.into()
    }
    fn band(&self) -> Band {
        self.1
    }
    fn capabilities(&self) -> LayerCapabilities {
        self.2
    }
}

fn declare(name: &'static str, band: Band, traits: LayerCapabilities) -> AnyLayer {
    AnyLayer::new(DeclaredLayer(name, band, traits))
}

fn audit() -> AnyLayer {
    declare(
        "audit",
        Band::Record,
        LayerCapabilities::for_kind("mine")
            .recording()
            .storing_notes(),
    )
}

fn redact() -> AnyLayer {
    AnyLayer::new(Redact::new())
}

fn policy() -> AnyLayer {
    declare(
        "policy",
        Band::Decide,
        LayerCapabilities::for_kind("policy").answering(),
    )
}

fn requiring() -> AnyLayer {
    declare(
        "requiring",
        Band::Decide,
        LayerCapabilities::for_kind("policy")
            .answering()
            .requiring_approval(),
    )
}

fn approval() -> AnyLayer {
    declare(
        "approval",
        Band::Decide,
        LayerCapabilities::for_kind("approval").answering().asking(),
    )
}

fn cache() -> AnyLayer {
    declare(
        "cache",
        Band::Repeat,
        LayerCapabilities::for_kind("idempotency")
            .answering()
            .caching(),
    )
}

fn retry() -> AnyLayer {
    declare(
        "retry",
        Band::Repeat,
        LayerCapabilities::for_kind("retry").repeating(),
    )
}

fn rewrite() -> AnyLayer {
    declare(
        "rewrite",
        Band::Shape,
        LayerCapabilities::for_kind("hooks").rewriting(),
    )
}

fn rate() -> AnyLayer {
    declare(
        "rate",
        Band::Decide,
        LayerCapabilities::for_kind("mine").answering().counting(),
    )
}

fn cap() -> AnyLayer {
    declare(
        "cap",
        Band::Shape,
        LayerCapabilities::for_kind("mine").recording().spilling(),
    )
}

fn summary() -> AnyLayer {
    declare(
        "summary",
        Band::Record,
        LayerCapabilities::for_kind("mine").annotating(),
    )
}

fn breaker() -> AnyLayer {
    declare(
        "breaker",
        Band::Repeat,
        LayerCapabilities::for_kind("mine").answering().breaking(),
    )
}

fn timeout() -> AnyLayer {
    AnyLayer::new(Timeout::after(Duration::from_secs(60)))
}

fn dry_run() -> AnyLayer {
    declare(
        "dry",
        Band::Bound,
        LayerCapabilities::for_kind("mine")
            .answering()
            .dry_running(),
    )
}

fn only_pay(layer: AnyLayer) -> AnyLayer {
    AnyLayer::new(layer.on(Matcher::name("pay")))
}

#[test]
fn each_bad_stack_has_its_finding() {
    let cases = [
        (
            "record-inside-answer",
            "audit",
            vec![policy(), audit(), redact()],
        ),
        ("record-inside-redaction", "audit", vec![redact(), audit()]),
        ("record-without-redaction", "audit", vec![audit(), policy()]),
        ("spill-inside-redaction", "cap", vec![redact(), cap()]),
        ("cache-outside-approval", "cache", vec![cache(), approval()]),
        ("cache-outside-decision", "cache", vec![cache(), policy()]),
        ("retry-outside-approval", "retry", vec![retry(), approval()]),
        ("count-inside-retry", "rate", vec![retry(), rate()]),
        (
            "rewrite-inside-decide",
            "rewrite",
            vec![policy(), rewrite()],
        ),
        ("ask-before-policy", "approval", vec![approval(), policy()]),
        ("limit-outside-retry", "timeout", vec![timeout(), retry()]),
        (
            "limit-outside-approval",
            "timeout",
            vec![timeout(), approval()],
        ),
        ("pretend-before-deciding", "dry", vec![dry_run(), policy()]),
        ("same-layer-twice", "retry", vec![retry(), retry()]),
        (
            "note-outside-record",
            "summary",
            vec![summary(), audit(), redact()],
        ),
        ("breaker-outside-retry", "breaker", vec![breaker(), retry()]),
        ("require-without-approval", "requiring", vec![requiring()]),
        (
            "require-without-approval",
            "requiring",
            vec![requiring(), only_pay(approval())],
        ),
    ];
    for (rule, layer, stack) in cases {
        let findings = lint(&stack, None);
        let found: Vec<_> = findings
            .iter()
            .map(|finding| (finding.rule, finding.layer.as_str()))
            .collect();
        assert_eq!(found, [(rule, layer)]);
        assert!(
            findings[0].to_string().len() > rule.len() + layer.len() + 20,
            "it has a reason: {}",
            findings[0]
        );
    }
}

#[test]
fn a_limit_longer_than_the_turn_is_found() {
    let findings = lint(&[timeout()], Some(Duration::from_secs(59)));
    assert_eq!(
        findings
            .iter()
            .map(|finding| finding.rule)
            .collect::<Vec<_>>(),
        ["limit-beyond-turn"]
    );
    assert_eq!(lint(&[timeout()], Some(Duration::from_secs(60))), []);
}

#[test]
fn no_limit_is_longer_than_any_turn() {
    let none = AnyLayer::new(Timeout::after(Duration::ZERO));
    let none_for_one =
        AnyLayer::new(Timeout::after(Duration::from_secs(1)).tool("build", Duration::ZERO));
    for layer in [none, none_for_one] {
        let findings = lint(&[layer], Some(Duration::from_secs(3600)));
        assert_eq!(
            findings
                .iter()
                .map(|finding| finding.rule)
                .collect::<Vec<_>>(),
            ["limit-beyond-turn"]
        );
    }
}

#[test]
fn the_right_order_of_the_same_layers_is_clean() {
    let good = [
        audit(),
        cap(),
        redact(),
        rewrite(),
        policy(),
        rate(),
        approval(),
        cache(),
        retry(),
        timeout(),
        dry_run(),
    ];
    assert_eq!(lint(&good, None), []);
    assert_eq!(lint(&[], None), []);
    assert_eq!(lint(&[requiring(), approval()], None), []);
    assert_eq!(
        lint(&[only_pay(requiring()), only_pay(approval())], None),
        []
    );
}

#[test]
fn a_layer_under_another_name_is_linted_the_same() {
    let build = |kind: &str, options: &str| {
        let text = format!("[stack]\norder = [\"{kind}\"]\n[layers.{kind}]\n{options}");
        let config = Config::parse(&text).expect(kind);
        let layers = default_stack(&config, &Resources::new());
        layers.expect(kind).remove(0)
    };
    let rules = |stack: &[AnyLayer]| {
        let findings = lint(stack, None);
        findings.iter().map(|found| found.rule).collect::<Vec<_>>()
    };
    for (rule, outer, inner, options) in [
        ("count-inside-retry", "retry", "rate_limit", "max_calls = 9"),
        ("count-inside-retry", "retry", "budget", "limit = 1"),
        ("spill-inside-redaction", "redact", "output_cap", ""),
        ("note-outside-record", "summary", "receipts", ""),
        ("breaker-outside-retry", "circuit_breaker", "retry", ""),
        ("pretend-before-deciding", "dry_run", "validate", ""),
    ] {
        let outer = build(outer, "");
        let inner = build(inner, options);
        let found = rules(&[outer.clone(), inner.clone()]);
        assert!(found.contains(&rule), "{rule}: {found:?}");
        // Each under the name of another kind.
        let renamed = [outer.named("receipts"), inner.named("redact")].map(AnyLayer::new);
        assert_eq!(rules(&renamed), found, "{rule}");
    }
}

#[test]
fn a_second_layer_with_another_name_is_accepted() {
    let stack = [
        AnyLayer::new(Timeout::after(Duration::from_secs(1)).named("short")),
        timeout(),
    ];
    assert_eq!(lint(&stack, None), []);
}

fn lint_config(text: &str) -> Vec<LintFinding> {
    lint(
        &default_stack(&Config::parse(text).expect(text), &Resources::new()).expect(text),
        Some(Duration::from_secs(3600)),
    )
}

#[test]
fn the_captain_recipe_is_clean() {
    assert_eq!(
        lint_config(include_str!("../../../../examples/captain/captain.toml")),
        []
    );
}

#[test]
fn the_default_stack_is_clean_with_and_without_everything() {
    assert_eq!(lint_config(""), []);
    let all: String = Catalog::bundled()
        .entries()
        .iter()
        .map(|entry| format!("[layers.{}]\n", entry.name))
        .collect();
    let all = all
        .replace("[layers.budget]", "[layers.budget]\nlimit = 1")
        .replace("rate_limit]", "rate_limit]\nmax_calls = 9");
    assert_eq!(lint_config(&all), []);
}

#[test]
fn a_policy_that_asks_needs_an_approval_layer_below_it() {
    for (text, found) in [
        ("[stack]\norder = ['policy']\n", true),
        ("[layers.approval]\nenabled = false\n", true),
        (
            "[stack]\norder = ['policy']\n[layers.policy]\ndefault = 'deny'\n",
            false,
        ),
        ("[stack]\norder = ['policy', 'approval']\n", false),
    ] {
        let findings = lint_config(text);
        let rules: Vec<_> = findings.iter().map(|finding| finding.rule).collect();
        assert_eq!(rules.contains(&"require-without-approval"), found, "{text}");
    }
}
