//! The budgets of a configuration file: how they are read, and that calls are kept within them.

use serde_json::json;
use toolgate_core::{Call, CallId, MemoryStore, Payer, Stack, Status, StoreHandle};
use toolgate_layers::{Config, MemoryAccounts, Parts, SharedAccounts, ToastManager};
use toolgate_testkit::{echo, seed};
use uuid::Uuid;

const FILE: &str = "[stack]
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

fn parts() -> Parts {
    let payer = Payer {
        project: Some("site".into()),
        ..Payer::default()
    };
    Parts::new()
        .with(StoreHandle::new(MemoryStore::new()))
        .with(payer)
}

fn stack(text: &str, parts: &Parts) -> Stack {
    Config::parse(text)
        .expect("sound")
        .build(echo(), parts)
        .expect("builds")
}

/// A call with an id of its own: one that is made again is paid for once.
fn nth(n: u128) -> Call {
    let mut seed = seed("echo", json!({}));
    seed.id = CallId::new(Uuid::from_u128(n));
    Call::new(seed)
}

#[tokio::test]
async fn calls_are_kept_within_the_budgets_of_the_file_and_alerts_are_shown() {
    let parts = parts();
    let stack = stack(FILE, &parts);
    for n in 1..=2 {
        assert!(stack.run(nth(n)).await.is_ok());
    }
    let refused = stack.run(nth(3)).await;
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
        .expect("made for the alerts")
        .current();
    assert!(
        shown
            .iter()
            .any(|toast| toast.message.starts_with("100 % of the budget site")),
        "{shown:?}"
    );
}

#[tokio::test]
async fn two_stacks_over_one_store_share_a_budget_and_a_new_file_brings_new_ones() {
    let parts = parts();
    assert!(stack(FILE, &parts).run(nth(1)).await.is_ok());
    assert!(stack(FILE, &parts).run(nth(2)).await.is_ok());
    assert_eq!(
        stack(FILE, &parts).run(nth(3)).await.status(),
        Some(Status::BudgetExceeded)
    );
    let more = FILE.replace("limit = 1\n", "limit = 1.5\n");
    assert!(stack(&more, &parts).run(nth(4)).await.is_ok());
}

#[tokio::test]
async fn accounts_that_the_program_brings_go_before_those_of_the_file() {
    let own = MemoryAccounts::limit(0.5).expect("an amount");
    let parts = parts().with(SharedAccounts::new(own.clone()));
    assert!(stack(FILE, &parts).run(nth(1)).await.is_ok());
    assert_eq!(own.left(), 0.0);
}

#[test]
fn the_budgets_of_a_file_are_there_for_whoever_asks_models() {
    let config = Config::parse(FILE).expect("sound");
    let names: Vec<_> = config
        .budgets()
        .rules()
        .iter()
        .map(|rule| (rule.name.as_str(), rule.limit))
        .collect();
    assert_eq!(names, [("site", 1_000_000_000), ("each", 5)]);
}

#[test]
fn a_budget_that_makes_no_sense_refuses_to_load_and_names_the_place() {
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
            "toolgate.toml:1:1: budget has no `limit`, which has to be given",
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
    let error = Config::parse(about_calls).expect_err("nobody would keep it");
    assert_eq!(
        error.problem(),
        "the budget `b` is about calls, but the stack has no layer `budget`"
    );
    assert_eq!(error.hint(), Some("add a table [layers.budget]"));
    let about_models = about_calls.replace("calls", "requests");
    assert!(
        Config::parse(&about_models).is_ok(),
        "whoever asks models keeps it"
    );
    let error = Config::parse(FILE)
        .expect("sound")
        .layers(&Parts::new())
        .expect_err("no store");
    assert_eq!(
        error.problem(),
        "budgets are kept in a store, and the program has given none"
    );
}
