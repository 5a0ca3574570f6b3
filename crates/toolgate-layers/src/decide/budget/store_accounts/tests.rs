//! Tests of the accounts in the store.

use super::*;
use crate::{Budget, BudgetOptions, SharedAccounts};
use futures::future::join_all;
use serde_json::json;
use std::{sync::Mutex, time::Duration};
use toolgate_core::{
    BudgetPeriod, BudgetRule, BudgetScope, Call, CallSeed, HostExecutor, MemoryStore, Outcome,
    SettledOutcome, Stack, Status,
};
use toolgate_testkit::{
    FakeExecutor, FaultyStore, StoreCall, StoreFault, TestClock, echo, env_at, seed,
};

use BudgetPeriod::{Day, Total};
use BudgetScope::{Global, Session, Tool, User};
use BudgetUnit::{Calls, Usd};

const DOLLAR: u64 = 1_000_000_000;

fn budget_rule(
    name: &str,
    scope: BudgetScope,
    period: BudgetPeriod,
    unit: BudgetUnit,
    limit: u64,
) -> BudgetRule {
    BudgetRule::new(name, scope, period, unit, limit)
}

fn numbered_seed(clock: &TestClock, n: u128, tool: &str) -> CallSeed {
    CallSeed {
        id: format!("{n:032x}").parse().expect("an id"),
        env: env_at(clock),
        ..seed(tool, json!({}))
    }
}

fn numbered_call(clock: &TestClock, n: u128) -> Call {
    Call::new(numbered_seed(clock, n, "look"))
}

fn default_cost(cost: f64) -> BudgetOptions {
    BudgetOptions {
        default_cost: Some(cost),
        ..BudgetOptions::default()
    }
}

fn budget_over(accounts: &StoreAccounts, options: BudgetOptions) -> Budget {
    Budget::new(options, SharedAccounts::new(accounts.clone())).expect("good options")
}

fn memory_store() -> StoreHandle {
    StoreHandle::new(MemoryStore::new())
}

/// Returns the spent and reserved amounts of each account.
async fn account_totals(store: &StoreHandle) -> Vec<(u64, u64)> {
    let rows = store
        .accounts("", None, 100)
        .await
        .expect("the store answers");
    rows.into_iter()
        .map(|row| (row.spent, row.reserved))
        .collect()
}

#[tokio::test]
async fn fifty_calls_at_once_against_a_budget_for_ten_run_ten() {
    let store = memory_store();
    let clock = TestClock::new();
    let accounts = StoreAccounts::new(
        store.clone(),
        Budgets::new([budget_rule("b", Global, Total, Calls, 10)]),
    );
    let executor = (0..50).fold(FakeExecutor::new(), |script, _| {
        script.then(Outcome::ok(json!("done")))
    });
    let stack = Stack::over(executor.clone())
        .layer(budget_over(&accounts, BudgetOptions::default()))
        .build()
        .expect("valid order");
    let outcomes = join_all((0..50).map(|n| stack.run(numbered_call(&clock, n)))).await;
    assert_eq!(
        outcomes.iter().filter(|outcome| outcome.is_ok()).count(),
        10
    );
    assert_eq!(
        (executor.seen().len(), account_totals(&store).await),
        (10, vec![(10, 0)])
    );
    let refused = outcomes
        .iter()
        .find(|outcome| !outcome.is_ok())
        .expect("a rejected call");
    assert_eq!(refused.status(), Some(Status::BudgetExceeded));
    let text = "the call was not run: it would take 1 calls, but only 0 calls is left of the budget b for total";
    assert_eq!(refused.settled().expect("settled").model_text(), text);
}

#[tokio::test]
async fn a_call_is_paid_by_every_account_or_by_none() {
    let store = memory_store();
    let clock = TestClock::new();
    let rules = [
        budget_rule("session", Session, Total, Calls, 10),
        budget_rule("tool", Tool, Total, Usd, DOLLAR),
    ];
    let accounts = StoreAccounts::new(store.clone(), Budgets::new(rules));
    let stack = Stack::over(echo())
        .layer(budget_over(&accounts, default_cost(0.75)))
        .build()
        .expect("valid order");
    assert!(stack.run(numbered_call(&clock, 1)).await.is_ok());
    assert_eq!(
        stack.run(numbered_call(&clock, 2)).await.status(),
        Some(Status::BudgetExceeded)
    );
    assert_eq!(
        account_totals(&store).await,
        [(1, 0), (750_000_000, 0)],
        "the session has not paid for the second call"
    );
}

#[tokio::test]
async fn without_a_known_payer_nothing_is_paid_and_nothing_runs() {
    let store = memory_store();
    let clock = TestClock::new();
    let accounts = StoreAccounts::new(
        store.clone(),
        Budgets::new([budget_rule("mine", User, Total, Calls, 10)]),
    );
    let executor = FakeExecutor::new();
    let stack = Stack::over(executor.clone())
        .layer(budget_over(&accounts, default_cost(0.0)))
        .build()
        .expect("valid order");
    assert_eq!(
        stack.run(numbered_call(&clock, 1)).await.status(),
        Some(Status::BudgetExceeded)
    );
    assert!(executor.seen().is_empty());
    let known = accounts.paid_by(Payer {
        user: Some("ann".into()),
        ..Payer::default()
    });
    let stack = Stack::over(echo())
        .layer(budget_over(&known, default_cost(0.0)))
        .build()
        .expect("valid order");
    assert!(stack.run(numbered_call(&clock, 1)).await.is_ok());
}

#[tokio::test]
async fn thresholds_alert_once_a_day_and_a_jump_alerts_all_of_them() {
    let clock = TestClock::new();
    let told = Arc::new(Mutex::new(Vec::new()));
    let toasts = ToastManager::new();
    let listener = {
        let told = told.clone();
        move |alert: &BudgetAlert, _: Timestamp| {
            told.lock().expect("not poisoned").push(alert.percent)
        }
    };
    let accounts = StoreAccounts::new(
        memory_store(),
        Budgets::new([budget_rule("daily", Global, Day, Usd, DOLLAR)]),
    );
    let accounts = accounts
        .on_alert(|_, _| panic!("a bad listener"))
        .on_alert(listener)
        .with_toasts(toasts.clone());
    let pay = async |n, cost| {
        let stack = Stack::over(echo())
            .layer(budget_over(&accounts, default_cost(cost)))
            .build()
            .expect("valid order");
        assert!(stack.run(numbered_call(&clock, n)).await.is_ok());
        std::mem::take(&mut *told.lock().expect("not poisoned"))
    };
    assert!(pay(1, 0.4).await.is_empty());
    assert_eq!(pay(2, 0.55).await, [50, 75, 90]);
    assert_eq!(pay(3, 0.05).await, [100]);
    let shown = toasts.current();
    let text = "100 % of the budget daily for 2026-01-01 is used: $1.000000 of $1.000000";
    assert_eq!(
        shown
            .last()
            .map(|toast| (toast.level, toast.message.as_str())),
        Some((ToastLevel::Error, text))
    );
    clock.advance(Duration::from_secs(24 * 3600));
    assert_eq!(pay(4, 0.5).await, [50]);
}

#[tokio::test]
async fn the_reservation_of_a_lost_process_is_booked_if_the_call_may_have_run_and_released_if_not()
{
    for (status, attempts_before, stand) in [
        (Status::Cancelled, 0, (0, 0)),
        (Status::Cancelled, 1, (DOLLAR / 2, 0)),
        (Status::OutcomeUnknown, 0, (DOLLAR / 2, 0)),
    ] {
        let store = memory_store();
        let clock = TestClock::new();
        // Each process has accounts of its own over the same store.
        let process = || {
            StoreAccounts::new(
                store.clone(),
                Budgets::new([budget_rule("b", Global, Total, Usd, DOLLAR)]),
            )
        };
        let stack = Stack::over(HostExecutor)
            .layer(budget_over(&process(), default_cost(0.5)))
            .build()
            .expect("valid order");
        assert!(
            stack
                .run(numbered_call(&clock, 7))
                .await
                .suspension()
                .is_some()
        );
        assert_eq!(
            account_totals(&store).await,
            [(0, DOLLAR / 2)],
            "the amount stays reserved while the call runs outside"
        );
        for _ in 0..2 {
            let stack = Stack::over(HostExecutor)
                .layer(budget_over(&process(), default_cost(0.5)))
                .build()
                .expect("valid order");
            let closing = Some(Arc::new(SettledOutcome::new(status)));
            let seed = CallSeed {
                closing,
                attempts_before,
                ..numbered_seed(&clock, 7, "look")
            };
            assert_eq!(stack.run(Call::new(seed)).await.status(), Some(status));
        }
        assert_eq!(
            account_totals(&store).await,
            [stand],
            "{status}, {attempts_before} attempts"
        );
    }
}

#[tokio::test]
async fn a_store_that_is_down_lets_nothing_run() {
    let down = FaultyStore::new(MemoryStore::new(), |call, _| match call {
        StoreCall::Reserve => StoreFault::Fail(StoreError::Backend("disk full".into())),
        _ => StoreFault::Pass,
    });
    let accounts = StoreAccounts::new(
        StoreHandle::new(down),
        Budgets::new([budget_rule("b", Global, Total, Calls, 10)]),
    );
    let executor = FakeExecutor::new();
    let stack = Stack::over(executor.clone())
        .layer(budget_over(&accounts, default_cost(0.0)))
        .build()
        .expect("valid order");
    let outcome = stack.run(numbered_call(&TestClock::new(), 1)).await;
    let error = outcome
        .settled()
        .and_then(|settled| settled.error.clone())
        .expect("an error");
    assert!(error.operator.expect("a detail").contains("disk full"));
    assert!(executor.seen().is_empty());
}

#[tokio::test]
async fn a_rehearsal_is_judged_but_reserves_nothing() {
    let store = memory_store();
    let clock = TestClock::new();
    let accounts = StoreAccounts::new(
        store.clone(),
        Budgets::new([budget_rule("b", Global, Total, Usd, DOLLAR)]),
    );
    for (cost, status) in [(1.0, Status::DryRun), (1.5, Status::BudgetExceeded)] {
        let stack = Stack::over(echo())
            .layer(budget_over(&accounts, default_cost(cost)))
            .build()
            .expect("valid order");
        let rehearsal = Call::new(CallSeed {
            rehearsal: true,
            ..numbered_seed(&clock, 1, "look")
        });
        assert_eq!(stack.run(rehearsal).await.status(), Some(status));
    }
    assert_eq!(account_totals(&store).await, []);
}

#[tokio::test]
async fn a_price_is_only_needed_if_money_is_counted() {
    let clock = TestClock::new();
    for (unit, runs) in [(Calls, true), (Usd, false)] {
        let accounts = StoreAccounts::new(
            memory_store(),
            Budgets::new([budget_rule("b", Global, Total, unit, DOLLAR)]),
        );
        let stack = Stack::over(echo())
            .layer(budget_over(&accounts, BudgetOptions::default()))
            .build()
            .expect("valid order");
        assert_eq!(
            stack.run(numbered_call(&clock, 1)).await.is_ok(),
            runs,
            "{unit:?}"
        );
    }
}

#[tokio::test]
async fn a_call_paid_for_before_a_crash_is_not_paid_for_again() {
    let store = memory_store();
    let clock = TestClock::new();
    let accounts = StoreAccounts::new(
        store.clone(),
        Budgets::new([budget_rule("b", Global, Total, Calls, 10)]),
    );
    let stack = Stack::over(echo())
        .layer(budget_over(&accounts, BudgetOptions::default()))
        .build()
        .expect("valid order");
    for _ in 0..3 {
        assert!(stack.run(numbered_call(&clock, 1)).await.is_ok());
    }
    assert_eq!(account_totals(&store).await, [(1, 0)]);
    assert!(stack.run(numbered_call(&clock, 2)).await.is_ok());
    assert_eq!(
        account_totals(&store).await,
        [(2, 0)],
        "another call is paid for separately"
    );
}

#[tokio::test]
async fn a_reservation_whose_answer_was_lost_is_released() {
    let clock = TestClock::new();
    let lost = |call: StoreCall, _| match call {
        StoreCall::Reserve => {
            StoreFault::DoneButFail(StoreError::Backend("the connection was lost".into()))
        }
        _ => StoreFault::Pass,
    };
    let store = StoreHandle::new(FaultyStore::new(MemoryStore::new(), lost));
    let accounts = StoreAccounts::new(
        store.clone(),
        Budgets::new([budget_rule("b", Global, Total, Calls, 10)]),
    );
    let stack = Stack::over(echo())
        .layer(budget_over(&accounts, BudgetOptions::default()))
        .build()
        .expect("valid order");
    assert_eq!(
        stack.run(numbered_call(&clock, 1)).await.status(),
        Some(Status::BudgetExceeded)
    );
    assert_eq!(account_totals(&store).await, [(0, 0)]);
}
