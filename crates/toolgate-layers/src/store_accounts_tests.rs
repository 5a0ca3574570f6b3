//! The rules of accounts in the store, each by its name.

use super::*;
use crate::{Budget, BudgetOptions, SharedAccounts};
use futures::future::join_all;
use serde_json::json;
use std::{sync::Mutex, time::Duration};
use toolgate_core::{
    BudgetPeriod, BudgetRule, BudgetScope, Call, CallSeed, HostExecutor, MemoryStore, Outcome,
    Settled, Stack, Status,
};
use toolgate_testkit::{Fault, FaultyStore, Scripted, StoreCall, TestClock, echo, env_at, seed};

use BudgetPeriod::{Day, Total};
use BudgetScope::{Global, Session, Tool, User};
use BudgetUnit::{Calls, Usd};

const DOLLAR: u64 = 1_000_000_000;

fn rule(
    name: &str,
    scope: BudgetScope,
    period: BudgetPeriod,
    unit: BudgetUnit,
    limit: u64,
) -> BudgetRule {
    BudgetRule::new(name, scope, period, unit, limit)
}

fn nth(clock: &TestClock, n: u128, tool: &str) -> CallSeed {
    CallSeed {
        id: format!("{n:032x}").parse().expect("an id"),
        env: env_at(clock),
        ..seed(tool, json!({}))
    }
}

fn call(clock: &TestClock, n: u128) -> Call {
    Call::new(nth(clock, n, "look"))
}

fn priced(cost: f64) -> BudgetOptions {
    BudgetOptions {
        default_cost: Some(cost),
        ..BudgetOptions::default()
    }
}

fn budget(accounts: &StoreAccounts, options: BudgetOptions) -> Budget {
    Budget::new(options, SharedAccounts::new(accounts.clone())).expect("good options")
}

fn memory() -> StoreHandle {
    StoreHandle::new(MemoryStore::new())
}

/// What is spent and reserved in each account.
async fn stands(store: &StoreHandle) -> Vec<(u64, u64)> {
    let rows = store.accounts("", None, 100).await.expect("lists");
    rows.into_iter()
        .map(|row| (row.spent, row.reserved))
        .collect()
}

#[tokio::test]
async fn fifty_calls_at_once_against_a_budget_for_ten_run_ten() {
    let (store, clock) = (memory(), TestClock::new());
    let accounts = StoreAccounts::new(
        store.clone(),
        Budgets::new([rule("b", Global, Total, Calls, 10)]),
    );
    let executor = (0..50).fold(Scripted::new(), |script, _| {
        script.then(Outcome::ok(json!("done")))
    });
    let stack = Stack::over(executor.clone())
        .layer(budget(&accounts, BudgetOptions::default()))
        .build()
        .expect("ok");
    let outcomes = join_all((0..50).map(|n| stack.run(call(&clock, n)))).await;
    assert_eq!(
        outcomes.iter().filter(|outcome| outcome.is_ok()).count(),
        10
    );
    assert_eq!(
        (executor.seen().len(), stands(&store).await),
        (10, vec![(10, 0)])
    );
    let refused = outcomes
        .iter()
        .find(|outcome| !outcome.is_ok())
        .expect("most of them");
    assert_eq!(refused.status(), Some(Status::BudgetExceeded));
    let text = "the call was not run: it would take 1 calls, but only 0 calls is left of the budget b for total";
    assert_eq!(refused.settled().expect("settled").model_text(), text);
}

#[tokio::test]
async fn a_call_is_paid_by_everybody_it_counts_for_or_by_nobody() {
    let (store, clock) = (memory(), TestClock::new());
    let rules = [
        rule("session", Session, Total, Calls, 10),
        rule("tool", Tool, Total, Usd, DOLLAR),
    ];
    let accounts = StoreAccounts::new(store.clone(), Budgets::new(rules));
    let stack = Stack::over(echo())
        .layer(budget(&accounts, priced(0.75)))
        .build()
        .expect("ok");
    assert!(stack.run(call(&clock, 1)).await.is_ok());
    assert_eq!(
        stack.run(call(&clock, 2)).await.status(),
        Some(Status::BudgetExceeded)
    );
    assert_eq!(
        stands(&store).await,
        [(1, 0), (750_000_000, 0)],
        "the session has not paid for the second one"
    );
}

#[tokio::test]
async fn somebody_unknown_pays_nothing_and_nothing_is_run() {
    let (store, clock) = (memory(), TestClock::new());
    let accounts = StoreAccounts::new(
        store.clone(),
        Budgets::new([rule("mine", User, Total, Calls, 10)]),
    );
    let executor = Scripted::new();
    let stack = Stack::over(executor.clone())
        .layer(budget(&accounts, priced(0.0)))
        .build()
        .expect("ok");
    assert_eq!(
        stack.run(call(&clock, 1)).await.status(),
        Some(Status::BudgetExceeded)
    );
    assert!(executor.seen().is_empty());
    let known = accounts.paid_by(Payer {
        user: Some("ann".into()),
        ..Payer::default()
    });
    let stack = Stack::over(echo())
        .layer(budget(&known, priced(0.0)))
        .build()
        .expect("ok");
    assert!(stack.run(call(&clock, 1)).await.is_ok());
}

#[tokio::test]
async fn thresholds_are_told_once_a_day_and_a_jump_tells_all_of_them() {
    let (clock, told, toasts) = (
        TestClock::new(),
        Arc::new(Mutex::new(Vec::new())),
        ToastManager::new(),
    );
    let listener = {
        let told = told.clone();
        move |alert: &BudgetAlert, _: Timestamp| told.lock().expect("whole").push(alert.percent)
    };
    let accounts = StoreAccounts::new(
        memory(),
        Budgets::new([rule("daily", Global, Day, Usd, DOLLAR)]),
    );
    let accounts = accounts
        .on_alert(|_, _| panic!("a bad listener"))
        .on_alert(listener)
        .with_toasts(toasts.clone());
    let pay = async |n, cost| {
        let stack = Stack::over(echo())
            .layer(budget(&accounts, priced(cost)))
            .build()
            .expect("ok");
        assert!(stack.run(call(&clock, n)).await.is_ok());
        std::mem::take(&mut *told.lock().expect("whole"))
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
async fn what_a_lost_process_left_is_booked_if_the_call_may_have_run_and_given_back_if_not() {
    for (status, attempts_before, stand) in [
        (Status::Cancelled, 0, (0, 0)),
        (Status::Cancelled, 1, (DOLLAR / 2, 0)),
        (Status::OutcomeUnknown, 0, (DOLLAR / 2, 0)),
    ] {
        let (store, clock) = (memory(), TestClock::new());
        // Each process has accounts of its own over the same store.
        let process = || {
            StoreAccounts::new(
                store.clone(),
                Budgets::new([rule("b", Global, Total, Usd, DOLLAR)]),
            )
        };
        let stack = Stack::over(HostExecutor)
            .layer(budget(&process(), priced(0.5)))
            .build()
            .expect("ok");
        assert!(stack.run(call(&clock, 7)).await.suspension().is_some());
        assert_eq!(
            stands(&store).await,
            [(0, DOLLAR / 2)],
            "it counts while it runs outside"
        );
        for _ in 0..2 {
            let stack = Stack::over(HostExecutor)
                .layer(budget(&process(), priced(0.5)))
                .build()
                .expect("ok");
            let closing = Some(Arc::new(Settled::new(status)));
            let seed = CallSeed {
                closing,
                attempts_before,
                ..nth(&clock, 7, "look")
            };
            assert_eq!(stack.run(Call::new(seed)).await.status(), Some(status));
        }
        assert_eq!(
            stands(&store).await,
            [stand],
            "{status}, {attempts_before} attempts"
        );
    }
}

#[tokio::test]
async fn a_store_that_is_down_lets_nothing_run() {
    let down = FaultyStore::new(MemoryStore::new(), |call, _| match call {
        StoreCall::Reserve => Fault::Fail(StoreError::Backend("disk full".into())),
        _ => Fault::Pass,
    });
    let accounts = StoreAccounts::new(
        StoreHandle::new(down),
        Budgets::new([rule("b", Global, Total, Calls, 10)]),
    );
    let executor = Scripted::new();
    let stack = Stack::over(executor.clone())
        .layer(budget(&accounts, priced(0.0)))
        .build()
        .expect("ok");
    let outcome = stack.run(call(&TestClock::new(), 1)).await;
    let error = outcome
        .settled()
        .and_then(|settled| settled.error.clone())
        .expect("an error");
    assert!(error.operator.expect("a detail").contains("disk full"));
    assert!(executor.seen().is_empty());
}

#[tokio::test]
async fn a_rehearsal_is_judged_but_reserves_nothing() {
    let (store, clock) = (memory(), TestClock::new());
    let accounts = StoreAccounts::new(
        store.clone(),
        Budgets::new([rule("b", Global, Total, Usd, DOLLAR)]),
    );
    for (cost, status) in [(1.0, Status::DryRun), (1.5, Status::BudgetExceeded)] {
        let stack = Stack::over(echo())
            .layer(budget(&accounts, priced(cost)))
            .build()
            .expect("ok");
        let rehearsal = Call::new(CallSeed {
            rehearsal: true,
            ..nth(&clock, 1, "look")
        });
        assert_eq!(stack.run(rehearsal).await.status(), Some(status));
    }
    assert_eq!(stands(&store).await, []);
}

#[tokio::test]
async fn a_price_is_only_needed_where_money_counts() {
    let clock = TestClock::new();
    for (unit, runs) in [(Calls, true), (Usd, false)] {
        let accounts = StoreAccounts::new(
            memory(),
            Budgets::new([rule("b", Global, Total, unit, DOLLAR)]),
        );
        let stack = Stack::over(echo())
            .layer(budget(&accounts, BudgetOptions::default()))
            .build()
            .expect("ok");
        assert_eq!(stack.run(call(&clock, 1)).await.is_ok(), runs, "{unit:?}");
    }
}

#[tokio::test]
async fn a_call_that_was_paid_for_and_lost_before_its_outcome_was_written_is_not_paid_for_again() {
    let (store, clock) = (memory(), TestClock::new());
    let accounts = StoreAccounts::new(
        store.clone(),
        Budgets::new([rule("b", Global, Total, Calls, 10)]),
    );
    let stack = Stack::over(echo())
        .layer(budget(&accounts, BudgetOptions::default()))
        .build()
        .expect("ok");
    for _ in 0..3 {
        assert!(stack.run(call(&clock, 1)).await.is_ok());
    }
    assert_eq!(stands(&store).await, [(1, 0)]);
    assert!(stack.run(call(&clock, 2)).await.is_ok());
    assert_eq!(
        stands(&store).await,
        [(2, 0)],
        "another call is another call"
    );
}

#[tokio::test]
async fn what_was_set_aside_without_anybody_hearing_of_it_is_given_back() {
    let clock = TestClock::new();
    let lost = |call: StoreCall, _| match call {
        StoreCall::Reserve => {
            Fault::DoneButFail(StoreError::Backend("the connection was lost".into()))
        }
        _ => Fault::Pass,
    };
    let store = StoreHandle::new(FaultyStore::new(MemoryStore::new(), lost));
    let accounts = StoreAccounts::new(
        store.clone(),
        Budgets::new([rule("b", Global, Total, Calls, 10)]),
    );
    let stack = Stack::over(echo())
        .layer(budget(&accounts, BudgetOptions::default()))
        .build()
        .expect("ok");
    assert_eq!(
        stack.run(call(&clock, 1)).await.status(),
        Some(Status::BudgetExceeded)
    );
    assert_eq!(stands(&store).await, [(0, 0)]);
}
