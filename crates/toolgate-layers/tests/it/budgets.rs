//! The budgets of a configuration file: parsing, and calls that stay within them.

use serde_json::json;
use toolgate_core::{
    BillingService, BudgetPeriod, BudgetRule, BudgetScope, BudgetUnit, Budgets, Call, CallId,
    MemoryStore, Payer, Stack, Status, StoreHandle,
};
use toolgate_layers::{Config, Resources, ToastManager, default_stack};
use toolgate_testkit::{echo, seed};
use uuid::Uuid;

const CONFIG_FILE: &str = "[stack]
order = ['budget']
[layers.budget]
costs = { echo = 0.5 }
[[budget]]
name = 'site'
scope = 'project'
period = 'month'
unit = 'usd'
limit = 1
[[budget]]
name = 'each'
scope = 'tool'
unit = 'calls'
limit = 5
";

fn resources_over() -> Resources {
    let payer = Payer {
        project: Some("site".into()),
        ..Payer::default()
    };
    Resources::new()
        .with(StoreHandle::new(MemoryStore::new()))
        .with(payer)
}

fn configured_stack(text: &str, parts: &Resources) -> Stack {
    Config::parse(text)
        .expect("a valid configuration")
        .build(echo(), parts)
        .expect("valid order")
}

/// Returns a call with its own id: a call that is repeated is paid for once.
fn numbered_call(n: u128) -> Call {
    let mut seed = seed("echo", json!({}));
    seed.id = CallId::new(Uuid::from_u128(n));
    Call::new(seed)
}

#[tokio::test]
async fn calls_stay_within_the_budgets_of_the_file_and_alerts_are_shown() {
    let parts = resources_over();
    let stack = configured_stack(CONFIG_FILE, &parts);
    for n in 1..=2 {
        assert!(stack.run(numbered_call(n)).await.is_ok());
    }
    let refused = stack.run(numbered_call(3)).await;
    assert_eq!(refused.status(), Some(Status::BudgetExceeded));
    assert!(
        refused
            .settled()
            .expect("settled")
            .model_text()
            .contains("the budget site (project site)")
    );
    let shown = parts
        .get::<ToastManager>()
        .expect("created for the alerts")
        .current();
    assert!(
        shown
            .iter()
            .any(|toast| toast.title.starts_with("site") && toast.message.starts_with("100 % ")),
        "{shown:?}"
    );
}

#[tokio::test]
async fn two_stacks_over_one_store_share_a_budget_and_a_new_file_defines_new_ones() {
    let parts = resources_over();
    assert!(
        configured_stack(CONFIG_FILE, &parts)
            .run(numbered_call(1))
            .await
            .is_ok()
    );
    assert!(
        configured_stack(CONFIG_FILE, &parts)
            .run(numbered_call(2))
            .await
            .is_ok()
    );
    assert_eq!(
        configured_stack(CONFIG_FILE, &parts)
            .run(numbered_call(3))
            .await
            .status(),
        Some(Status::BudgetExceeded)
    );
    let more = CONFIG_FILE.replace("limit = 1\n", "limit = 1.5\n");
    assert!(
        configured_stack(&more, &parts)
            .run(numbered_call(4))
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn accounts_of_the_program_take_precedence_over_those_of_the_file() {
    let store = StoreHandle::new(MemoryStore::new());
    let one = BudgetRule::new(
        "own",
        BudgetScope::Global,
        BudgetPeriod::Total,
        BudgetUnit::Calls,
        1,
    );
    let own = BillingService::new(store.clone(), Budgets::new([one]));
    let parts = resources_over().with(own);
    let stack = configured_stack(CONFIG_FILE, &parts);
    assert!(stack.run(numbered_call(1)).await.is_ok());
    assert_eq!(
        stack.run(numbered_call(2)).await.status(),
        Some(Status::BudgetExceeded)
    );
    let rows = store.accounts("", None, 10).await.expect("lists");
    assert_eq!(rows.len(), 1, "{rows:?}");
}

#[test]
fn the_budgets_of_a_file_are_available_for_model_requests() {
    let config = Config::parse(CONFIG_FILE).expect("a valid configuration");
    let names: Vec<_> = config
        .budgets()
        .rules()
        .iter()
        .map(|rule| (rule.name.as_str(), rule.limit))
        .collect();
    assert_eq!(names, [("site", 1_000_000_000), ("each", 5)]);
}

#[test]
fn an_invalid_budget_is_rejected_with_its_location() {
    let budget =
        |lines: &str| format!("[[budget]]\nname = 'b'\nscope = 'org'\nunit = 'usd'\n{lines}\n");
    for (text, problem) in [
        (
            budget("limit = 1\nperod = 'day'"),
            "toolgate.toml:6:1: budget has no option `perod`; the nearest is `period`",
        ),
        (
            budget("limit = 1\nperiod = 'mont'"),
            "toolgate.toml:6:10: budget.period has no word `mont`; the nearest is `month`",
        ),
        (
            budget("limit = -1"),
            "toolgate.toml:5:9: budget.limit takes a number of 0 or more, not -1",
        ),
        (
            budget("limit = '5'"),
            "toolgate.toml:5:9: budget.limit takes a number of 0 or more, not \"5\"",
        ),
        (
            budget(""),
            "toolgate.toml:1:1: budget has no `limit`, which is required",
        ),
        (
            budget("limit = 1\nalert_at = [50, 101]"),
            "toolgate.toml:6:12: budget.alert_at: the threshold of an alert is a whole number from 1 to 100, not 101",
        ),
        (
            budget("limit = 1\nalert_at = [50, 50]"),
            "toolgate.toml:6:12: budget.alert_at: the threshold 50 is there twice",
        ),
        (
            budget("limit = 1\nalert_at = 50"),
            "toolgate.toml:6:12: budget.alert_at takes a list, not 50",
        ),
        (
            format!("{}{}", budget("limit = 1"), budget("limit = 2")),
            "toolgate.toml:6:1: there are two budgets `b`",
        ),
        (
            "[budget]\nname = 'b'".into(),
            "toolgate.toml:1:1: `budget` is a list of budgets",
        ),
    ] {
        assert_eq!(
            Config::parse(&text)
                .expect_err("makes no sense")
                .to_string(),
            problem
        );
    }
}

#[test]
fn a_budget_about_calls_needs_the_layer_and_the_layer_needs_a_store() {
    let about_calls = "[[budget]]\nname = 'b'\nscope = 'session'\nunit = 'calls'\nlimit = 5\n";
    let error = Config::parse(about_calls).expect_err("no layer would enforce it");
    assert_eq!(
        error.problem(),
        "the budget `b` is about calls, but the stack has no layer `budget`"
    );
    assert_eq!(error.hint(), Some("add a table [layers.budget]"));
    let about_models = about_calls.replace("calls", "requests");
    assert!(
        Config::parse(&about_models).is_ok(),
        "model requests enforce it"
    );
    let config = Config::parse(CONFIG_FILE).expect("a valid configuration");
    let error = default_stack(&config, &Resources::new()).expect_err("no store");
    assert_eq!(
        error.problem(),
        "budgets need a store, and the program has provided none"
    );
}
