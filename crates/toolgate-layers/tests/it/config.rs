//! Configuration files, valid and invalid. An invalid one does not load; the error names the line
//! and the nearest word.

use serde_json::json;
use toolgate_core::{AnyLayer, Band, Registry, Schema, Stack, Status};
use toolgate_layers::{Catalog, Config, ConfigError, Resources, default_stack};

fn rejected(text: &str) -> ConfigError {
    Config::parse(text)
        .and_then(|config| default_stack(&config, &Resources::new()).map(drop))
        .expect_err(text)
}

fn layer_names(config: &Config) -> Vec<String> {
    default_stack(config, &Resources::new())
        .expect("valid")
        .iter()
        .map(|layer| layer.name().to_string())
        .collect()
}

fn parse_valid(text: &str) -> Config {
    Config::parse(text).expect(text)
}

#[test]
fn an_unknown_word_is_rejected_with_its_line_and_the_nearest_one() {
    for (text, expected) in [
        (
            "[layer.timeout]\n",
            "toolgate.toml:1:2: the file has no section `layer`; the nearest is `layers`",
        ),
        (
            "\n[layers.timeuot]\n",
            "toolgate.toml:2:9: the catalog has no layer `timeuot`; the nearest is `timeout`",
        ),
        (
            "[layers.timeout]\nmax = '1ms'\nmesage = 'x'\n",
            "toolgate.toml:3:1: layers.timeout has no option `mesage`; the nearest is `message`",
        ),
        (
            "[layers.timeout]\nenabeld = true\n",
            "toolgate.toml:2:1: layers.timeout has no option `enabeld`; the nearest is `enabled`",
        ),
        (
            "[layers.x]\nuse = 'redcat'\n",
            "toolgate.toml:2:7: the catalog has no layer `redcat`; the nearest is `redact`",
        ),
        (
            "[layers.policy]\n[[layers.policy.rules]]\nname = 'x'\nefect = 'allow'\n",
            "toolgate.toml:4:1: layers.policy.rules[0] has no option `efect`; the nearest is `effect`",
        ),
        (
            "[layers.policy]\nrules = [{ name = 'x', effect = 'alow' }]\n",
            "toolgate.toml:2:33: layers.policy.rules[0].effect has no word `alow`; the nearest is `allow`",
        ),
        (
            "[stack]\norder = ['timeout',\n 'policy']\nallow_out_of_band = [\n  'tiemout']\n",
            "toolgate.toml:5:3: the stack has no layer `tiemout`; the nearest is `timeout`",
        ),
        (
            "[stack]\nordre = []\n",
            "toolgate.toml:2:1: stack has no option `ordre`; the nearest is `order`",
        ),
        (
            "[stack]\norder = ['redact', 'timout']\n[layers.redact]\n",
            "toolgate.toml:2:20: stack.order has no layer `timout`; the nearest is `timeout`",
        ),
    ] {
        assert_eq!(rejected(text).to_string(), expected);
    }
}

#[test]
fn a_word_that_resembles_nothing_gets_the_list_instead() {
    let error = rejected("[layers.zzz]\n");
    assert_eq!(error.problem(), "the catalog has no layer `zzz`");
    assert!(error.hint().expect("a hint").contains("timeout"));
}

#[test]
fn wrong_types_and_broken_syntax_name_the_line() {
    for (text, place) in [
        ("[layers.timeout]\nmax = 'soon'\n", "toolgate.toml:2:7"),
        ("[layers.timeout]\nmax = -1\n", "toolgate.toml:2:7"),
        ("[layers.timeout]\ngrace = 'a while'\n", "toolgate.toml:2:9"),
        ("[layers.timeout]\nenabled = 'yes'\n", "toolgate.toml:2:11"),
        ("[layers]\ntimeout = 3\n", "toolgate.toml:2:11"),
        ("layers = 3\n", "toolgate.toml:1:10"),
        ("[layers.timeout\nmax = '1s'\n", "toolgate.toml:1:16"),
        (
            "[layers.timeout]\nmax = '1s'\nmax = '2s'\n",
            "toolgate.toml:3:1",
        ),
        ("[layers.timeout]\nmessage = ' '\n", "toolgate.toml:2:11"),
        ("[layers.timeout]\non = ['[']\n", "toolgate.toml:2:6"),
    ] {
        assert_eq!(
            rejected(text).location(),
            place,
            "{text}: {}",
            rejected(text)
        );
    }
}

#[test]
fn a_value_of_the_wrong_type_is_reported_with_its_key_in_terms_of_the_file() {
    for (text, expected) in [
        (
            "[layers.output_cap]\nmax_bytes = '30k'\n",
            "layers.output_cap.max_bytes takes a whole number of at least 0, not \"30k\"",
        ),
        (
            "[layers.output_cap]\nmax_bytes = -1\n",
            "layers.output_cap.max_bytes takes a whole number of at least 0, not -1",
        ),
        (
            "[layers.timeout]\ngrace = 5\n",
            "layers.timeout.grace: 5 has no unit; write \"30s\", with the quotes",
        ),
        (
            "[layers.timeout]\nper_tool = { run_shell = 600_000 }\n",
            "layers.timeout.per_tool.run_shell: 600000 has no unit; write \"30s\", with the quotes",
        ),
        (
            "[layers.timeout]\ngrace = true\n",
            "layers.timeout.grace takes a duration such as \"30s\", not true",
        ),
        (
            "[layers.timeout]\nenabled = 'yes'\n",
            "layers.timeout.enabled takes true or false, not \"yes\"",
        ),
        (
            "[layers.retry]\njitter = 'some'\n",
            "layers.retry.jitter takes a number, not \"some\"",
        ),
        (
            "[stack]\norder = 'timeout'\n",
            "stack.order takes a list, not \"timeout\"",
        ),
        (
            "[layers.scope]\nallowed_tools = [3]\n",
            "layers.scope.allowed_tools[0] takes a string in quotes, not 3",
        ),
        (
            "[layers.telemetry]\nsink = [1]\n",
            "layers.telemetry.sink takes a string in quotes or a table",
        ),
        (
            "[layers.output_cap]\nmax_bytes = 99999999999999999999\n",
            "layers.output_cap.max_bytes takes a whole number of at least 0, not 99999999999999999999",
        ),
        (
            "[layers.retry]\nmax_attempts = 5000000000\n",
            "layers.retry.max_attempts takes a whole number from 0 to 4294967295, not 5000000000",
        ),
        (
            "[layers.rate_limit]\nlimits = [{ calls = 5 }]\n",
            "layers.rate_limit.limits[0] has no `period`, which is required",
        ),
        (
            "[layers.toasts.levels]\nokay = 'off'\n",
            "layers.toasts.levels has no word `okay`; the nearest is `ok`",
        ),
        (
            "[layers.rate_limit]\n",
            "layers.rate_limit.max_calls: is required if there are no `limits`",
        ),
    ] {
        assert_eq!(rejected(text).problem(), expected, "{text}");
    }
}

#[test]
fn only_the_table_of_a_layer_is_offered_the_keys_that_every_layer_has() {
    let nested = rejected("[layers.policy]\n[[layers.policy.rules]]\nname = 'x'\nzzz = 1\n");
    assert!(
        !nested.hint().expect("a list").contains("enabled"),
        "{nested:?}"
    );
    assert!(
        rejected("[layers.policy]\nzzz = 1\n")
            .hint()
            .expect("a list")
            .contains("enabled")
    );
}

#[test]
fn a_table_named_after_one_kind_cannot_be_another() {
    let error = rejected("[layers.policy]\nuse = 'summary'\n");
    assert_eq!(
        error.problem(),
        "layers.policy is the table of the layer `policy` and cannot use `summary`"
    );
    assert!(
        layer_names(&parse_valid("[layers.policy]\nuse = 'policy'\n"))
            .contains(&"policy".to_owned())
    );
}

#[test]
fn a_layer_for_no_tool_at_all_is_rejected() {
    let error = rejected("[layers.policy]\non = []\n");
    assert_eq!(error.location(), "toolgate.toml:2:6");
    assert!(error.hint().expect("a hint").contains("enabled = false"));
}

#[test]
fn a_stack_is_built_with_layers_that_are_allowed_outside_their_band() {
    let order = "[stack]\norder = ['timeout', 'policy']\n";
    let refused = parse_valid(order)
        .build(Registry::new(), &Resources::new())
        .expect_err("out of band");
    assert!(
        refused.to_string().contains("allow_out_of_band"),
        "{refused}"
    );
    let allowed = parse_valid(&format!("{order}allow_out_of_band = ['timeout']\n"));
    let stack = allowed
        .build(Registry::new(), &Resources::new())
        .expect("the position is allowed");
    assert_eq!(stack.layers().count(), 2);
    let bad =
        parse_valid("[layers.retry]\nmax_attempts = 0\n").build(Registry::new(), &Resources::new());
    assert!(matches!(bad, Err(toolgate_layers::BuildError::Config(_))));
}

#[test]
fn a_disabled_layer_may_stay_in_allow_out_of_band() {
    parse_valid("[stack]\nallow_out_of_band = ['timeout']\n[layers.timeout]\nenabled = false\n");
}

fn pair(name: &str, value: &str) -> [(String, String); 1] {
    [(name.to_owned(), value.to_owned())]
}

#[test]
fn a_variable_that_overrides_nothing_is_rejected_with_the_nearest() {
    let error = Config::default()
        .with_environment(pair("TOOLGATE_LAYER__TIMEOUT__MAX", "5"))
        .expect_err("misspelt");
    assert_eq!(
        error.to_string(),
        "the variable TOOLGATE_LAYER__TIMEOUT__MAX: it overrides nothing; the nearest is \
         `TOOLGATE_LAYERS__TIMEOUT__MAX`"
    );
    Config::default()
        .with_environment(pair("TOOLGATE_INTERLEAVINGS", "5"))
        .expect("not a Toolgate variable");
}

#[test]
fn a_later_variable_overrides_an_earlier_one() {
    // A limit of 0 attempts is rejected when the layer is built.
    let attempts = |text: &str| pair("TOOLGATE_LAYERS__RETRY__MAX_ATTEMPTS", text);
    for (first, second, valid) in [("9", "0", false), ("0", "9", true)] {
        let config = Config::default()
            .with_environment(attempts(first))
            .expect("read later");
        let config = config
            .with_environment(attempts(second))
            .expect("read later");
        assert_eq!(
            default_stack(&config, &Resources::new()).is_ok(),
            valid,
            "{first}, then {second}"
        );
    }
    let part = Config::default()
        .with_environment(attempts("0"))
        .expect("read later");
    let whole = part
        .with_environment(pair("TOOLGATE_LAYERS__RETRY", "{ max_attempts = 2 }"))
        .expect("valid");
    assert!(
        default_stack(&whole, &Resources::new()).is_ok(),
        "a table replaces a single value"
    );
}

#[tokio::test]
async fn the_name_of_a_tool_in_a_variable_keeps_its_case() {
    let variables = [
        ("TOOLGATE_LAYERS__BUDGET__COSTS__DeleteUser", "5"),
        ("TOOLGATE_LAYERS__BUDGET__LIMIT", "1.0"),
        ("TOOLGATE_LAYERS__BUDGET__ON_UNKNOWN", "free"),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let config = parse_valid("[stack]\norder = ['budget']\n")
        .with_environment(variables)
        .expect("valid");
    let stack = config
        .build(toolgate_testkit::echo(), &Resources::new())
        .expect("in order");
    let priced = stack.run(toolgate_testkit::call("DeleteUser")).await;
    assert_eq!(priced.status(), Some(Status::BudgetExceeded));
}

#[test]
fn a_missing_file_is_named() {
    let error = Config::load("/nowhere/toolgate.toml").expect_err("there is none");
    assert!(
        error
            .to_string()
            .starts_with("/nowhere/toolgate.toml: cannot be read"),
        "{error}"
    );
    assert!(error.hint().is_some());
}

#[test]
fn variables_override_the_file() {
    let variables = [
        ("TOOLGATE_LAYERS__TIMEOUT__MESSAGE", "too slow, \"friend\""),
        ("TOOLGATE_LAYERS__REDACT__ENABLED", "false"),
        ("TOOLGATE_CRASH_KILLS", "not ours"),
        ("HOME", "/root"),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let config = parse_valid("[layers.redact]\narguments = true\n")
        .with_environment(variables)
        .expect("valid");
    assert!(!layer_names(&config).contains(&"redact".to_owned()));
    assert!(layer_names(&config).contains(&"timeout".to_owned()));
}

#[test]
fn a_bad_variable_is_named_instead_of_a_line() {
    let with = |name: &str, value: &str| {
        let variables = [(name.to_owned(), value.to_owned())];
        let config = parse_valid("[layers.timeout]\nmax = '5s'\n").with_environment(variables);
        config
            .and_then(|config| default_stack(&config, &Resources::new()).map(drop))
            .expect_err(name)
            .to_string()
    };
    assert_eq!(
        with("TOOLGATE_LAYERS__TIMEOUT__MAXX", "7s"),
        "the variable TOOLGATE_LAYERS__TIMEOUT__MAXX: layers.timeout has no option `maxx`; the nearest is `max`"
    );
    assert!(
        with("TOOLGATE_LAYERS__TIMEOUT__MAX", "soon")
            .starts_with("the variable TOOLGATE_LAYERS__TIMEOUT__MAX")
    );
    assert!(with("TOOLGATE_LAYERS__TIMEOUT__MAX__X", "1").contains("`max` is a value"));
    assert!(with("TOOLGATE_LAYERS____X", "1").contains("is empty"));
    assert!(with("TOOLGATE_LAYERS__TIMEOUT__PER_TOOL", "{ a = 'b' }").starts_with("the variable"));
}

#[test]
fn a_listed_order_is_the_whole_stack_outermost_first() {
    let config = parse_valid(
        "[stack]\norder = ['redact', 'slow', 'timeout']\n[layers.slow]\nuse = 'timeout'\nmax = '9s'\n",
    );
    assert_eq!(layer_names(&config), ["redact", "slow", "timeout"]);
    let twice = rejected("[stack]\norder = ['redact', 'redact']\n");
    assert!(twice.to_string().contains("`redact` twice"), "{twice}");
    let unused = rejected("[stack]\norder = ['redact']\n\n[layers.timeout]\nmax = '1s'\n");
    assert_eq!(unused.location(), "toolgate.toml:4:9");
    assert!(
        unused.problem().contains("is not in stack.order"),
        "{unused}"
    );
    assert_eq!(layer_names(&parse_valid("[stack]\norder = []\n")), [""; 0]);
}

#[test]
fn a_layer_with_a_custom_name_is_placed_beside_its_kind() {
    let config = parse_valid("[layers.short]\nuse = 'timeout'\nmax = '10ms'\non = ['ping*']\n");
    let names = layer_names(&config);
    let at = |name: &str| names.iter().position(|known| known == name).expect(name);
    assert!(at("short") < at("timeout"));
}

#[test]
fn the_default_stack_is_in_band_order_and_builds() {
    let layers = default_stack(&Config::default(), &Resources::new()).expect("valid");
    let bands: Vec<Band> = layers.iter().map(AnyLayer::band).collect();
    assert!(bands.is_sorted(), "{bands:?}");
    let stack = Stack::over(Registry::new())
        .any_layers(layers)
        .build()
        .expect("in order");
    assert!(stack.layers().count() > 1);
}

#[test]
fn every_bundled_layer_has_its_name_its_band_and_a_reason() {
    let catalog = Catalog::bundled();
    let all: String = catalog
        .entries()
        .iter()
        .map(|entry| format!("[layers.{}]\n", entry.name))
        .collect();
    // Two of them have no effect without a number.
    let all = all
        .replace("[layers.budget]", "[layers.budget]\nlimit = 1")
        .replace("rate_limit]", "rate_limit]\nmax_calls = 9");
    let layers = default_stack(&parse_valid(&all), &Resources::new())
        .expect("every other layer can be built from its defaults");
    assert_eq!(layers.len(), catalog.entries().len());
    for (layer, entry) in layers.iter().zip(catalog.entries()) {
        assert_eq!(
            (layer.name().as_str(), layer.band()),
            (entry.name, entry.band)
        );
        assert_eq!(layer.capabilities().kind, Some(entry.name));
        assert!(
            !entry.summary.is_empty() && !entry.why.is_empty(),
            "{}",
            entry.name
        );
    }
}

#[test]
fn the_schema_for_editors_accepts_what_loads_and_rejects_what_does_not() {
    let schema = Schema::new(Config::json_schema(&Catalog::bundled())).expect("a valid schema");
    let fits = |text: &str| {
        let table: toml::Table = text.parse().expect("valid TOML");
        schema
            .check_value(&serde_json::to_value(table).expect("writes"))
            .is_ok()
    };
    for good in [
        "",
        "[layers.timeout]\nmax = '3s'\nenabled = true\non = ['a*']\ngrace = '3s'\n",
        "[layers.mine]\nuse = 'redact'\narguments = true\n",
        "[layers.mine]\nuse = 'timeout'\nmax = '3s'\nenabled = true\non = ['a*']\n",
        "[layers.timeout]\nuse = 'timeout'\n",
        "[stack]\norder = ['redact']\nturn_deadline = '5m'\n",
    ] {
        assert!(fits(good), "{good}");
        parse_valid(good);
    }
    for bad in [
        "[layers.timeout]\nmax_sm = 3\n",
        "[layer]\n",
        "[layers.mine]\narguments = true\n",
        "[stack]\nx = 1\n",
        "[layers.mine]\nuse = 'timeout'\nmax_sm = 3\n",
        "[layers.mine]\nuse = 'timeout'\narguments = true\n",
        "[layers.timeout]\ngrace = 'soon'\n",
        "[layers.policy]\nuse = 'summary'\n",
        "[layers.policy]\non = []\n",
        "[layers.retry]\nmax_attempts = 5000000000\n",
        "[stack]\nturn_deadline = 'soon'\n",
    ] {
        assert!(!fits(bad), "{bad}");
        rejected(bad);
    }
    assert_eq!(schema.as_json()["title"], json!("toolgate.toml"));
}

#[test]
fn the_file_in_the_guide_loads() {
    let guide = include_str!("../../../../docs/guide/04-configure-a-stack.md");
    let file = guide
        .split("```toml\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .expect("the guide shows a file");
    let names = layer_names(&parse_valid(file));
    assert!(
        ["research", "policy", "rate_limit"]
            .iter()
            .all(|name| names.contains(&(*name).to_owned())),
        "{names:?}"
    );
}

/// A custom layer that a configuration file can name.
struct Greets(String);

#[derive(Default, serde::Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct GreetingOptions {
    word: String,
}

impl toolgate_core::Layer for Greets {
    async fn handle(
        &self,
        call: toolgate_core::Call,
        next: toolgate_core::Next,
    ) -> toolgate_core::Outcome {
        next.note_reason(self.0.as_str());
        next.run(call).await
    }
}

impl toolgate_layers::Configurable for Greets {
    const NAME: &'static str = "greets";
    const SUMMARY: &'static str = "Greets.";
    type Options = GreetingOptions;

    fn configure(
        options: GreetingOptions,
        _: &Resources,
    ) -> Result<Self, toolgate_layers::BadOption> {
        Ok(Self(options.word))
    }
}

#[test]
fn a_file_can_name_a_custom_layer_like_a_bundled_one() {
    let catalog = || Catalog::bundled().with_layer::<Greets>(Band::Shape);
    let config =
        Config::parse_with_catalog("mine.toml", "[layers.greets]\nword = 'hello'\n", catalog())
            .expect("valid");
    let names = layer_names(&config);
    let at = |name: &str| names.iter().position(|known| known == name).expect(name);
    assert!(at("redact") < at("greets") && at("greets") < at("policy"));
    let wrong =
        Config::parse_with_catalog("mine.toml", "[layers.greets]\nwrod = 'hello'\n", catalog())
            .expect_err("misspelt");
    assert_eq!(
        wrong.to_string(),
        "mine.toml:2:1: layers.greets has no option `wrod`; the nearest is `word`"
    );
}
