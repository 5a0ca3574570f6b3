//! Tests of [`Budget`].

use std::{
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::poll;
use serde_json::json;
use toolgate_core::{
    AnyLayer, CallSeed, Failure, HostExecutor, LayerExt, SettledOutcome, Stack, Timestamp,
    ToolError, from_fn,
};
use toolgate_testkit::{
    FakeExecutor, FaultyStore, ReportProbe, StoreCall, StoreFault, TestClock, echo, echo_under,
    run_twice,
};

use BudgetPeriod::{Day, Total};
use BudgetScope::{Global, Session, Tool, User};
use BudgetUnit::{Calls, Usd};

use super::*;
use crate::{DryRun, Idempotency, Toast, ToastLevel, ToastManager, testing::*};

const DOLLAR: u64 = 1_000_000_000;

fn default_cost(cost: f64) -> BudgetOptions {
    BudgetOptions {
        default_cost: Some(cost),
        ..Default::default()
    }
}

fn budget_rule(
    name: &str,
    scope: BudgetScope,
    period: BudgetPeriod,
    unit: BudgetUnit,
    limit: u64,
) -> BudgetRule {
    BudgetRule::new(name, scope, period, unit, limit)
}

fn memory_store() -> StoreHandle {
    StoreHandle::new(MemoryStore::new())
}

fn billing_over(store: &StoreHandle, rule: BudgetRule) -> BillingService {
    BillingService::new(store.clone(), Budgets::new([rule]))
}

fn stack_over(executor: impl toolgate_core::Executor, budget: Budget) -> Stack {
    Stack::over(executor)
        .layer(budget)
        .build()
        .expect("valid order")
}

/// Returns the spent and reserved amounts of each account.
fn account_totals(store: &StoreHandle) -> Vec<(u64, u64)> {
    let rows = store.accounts("", None, 100).now_or_never();
    let rows = rows.expect("in memory").expect("the store answers");
    rows.into_iter()
        .map(|row| (row.spent, row.reserved))
        .collect()
}

/// One budget in dollars, with its account in memory.
struct DollarAccount {
    store: StoreHandle,
    limit: f64,
}

impl DollarAccount {
    fn billing(&self) -> BillingService {
        let limit = convert_dollars(self.limit).expect("an amount");
        billing_over(&self.store, budget_rule("b", Global, Total, Usd, limit))
    }

    fn totals(&self) -> (u64, u64) {
        let rows = account_totals(&self.store);
        rows.first().copied().unwrap_or_default()
    }

    fn spent(&self) -> f64 {
        self.totals().0 as f64 / 1e9
    }

    fn left(&self) -> f64 {
        let limit = convert_dollars(self.limit).expect("an amount");
        (limit - self.totals().0 - self.totals().1) as f64 / 1e9
    }
}

fn budget_over(accounts: &DollarAccount, cost: f64) -> Budget {
    Budget::new(default_cost(cost), accounts.billing()).expect("valid options")
}

fn accounts_with(limit: f64) -> DollarAccount {
    DollarAccount {
        store: memory_store(),
        limit,
    }
}

fn nth_look_call(n: u128) -> Call {
    Call::new(nth_seed(&TestClock::new(), n, "look", json!({})))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_calls_at_once_against_a_budget_for_ten_spend_exactly_ten() {
    let accounts = accounts_with(1.0);
    let stack = echo_under(budget_over(&accounts, 0.1));
    let calls = (0..50).map(|n| tokio::spawn(stack.run(nth_look_call(100 + n))));
    let outcomes = futures::future::try_join_all(calls)
        .await
        .expect("no panic");
    assert_eq!(
        outcomes.iter().filter(|outcome| outcome.is_ok()).count(),
        10
    );
    assert_eq!((accounts.spent(), accounts.left()), (1.0, 0.0));
}

#[tokio::test]
async fn a_call_that_would_exceed_the_budget_is_rejected_before_it_runs() {
    let accounts = accounts_with(0.5);
    let tool = FakeExecutor::new();
    let stack = Stack::over(tool.clone())
        .layer(budget_over(&accounts, 0.75))
        .build()
        .expect("valid order");
    let outcome = stack.run(nth_look_call(11)).await;
    let settled = outcome.settled().expect("settled");
    assert_eq!(settled.status, Status::BudgetExceeded);
    assert_eq!(
        settled.model_text(),
        "the call was not run: it would take $0.750000, but only $0.500000 is left of the budget b for total"
    );
    assert_eq!((tool.seen().len(), accounts.left()), (0, 0.5));
}

#[tokio::test]
async fn a_call_that_ran_costs_its_price_once_whatever_its_outcome() {
    for outcome in [
        Outcome::failed(ToolError::new("no")),
        Outcome::failed_with(Failure::OutcomeUnknown, "who knows"),
    ] {
        let accounts = accounts_with(1.0);
        let tool = FakeExecutor::new().then(outcome);
        let outcome = Stack::over(tool)
            .layer(budget_over(&accounts, 0.5))
            .build()
            .expect("valid order")
            .run(nth_look_call(11))
            .await;
        assert_eq!((accounts.spent(), accounts.left()), (0.5, 0.5));
        assert_eq!(
            outcome
                .settled()
                .expect("settled")
                .notes
                .fields()
                .expect("noted")
                .metadata["cost"],
            0.5
        );
    }
}

#[tokio::test]
async fn a_call_that_did_not_run_costs_nothing() {
    let accounts = accounts_with(1.0);
    let pretended = Stack::over(FakeExecutor::new())
        .layer(budget_over(&accounts, 0.5))
        .layer(DryRun::all());
    pretended
        .build()
        .expect("valid order")
        .run(nth_look_call(11))
        .await;
    assert_eq!((accounts.spent(), accounts.left()), (0.0, 1.0));

    let layers = [
        AnyLayer::new(budget_over(&accounts, 0.5)),
        AnyLayer::new(Idempotency::default()),
    ];
    let remembering = Stack::over(FakeExecutor::new())
        .any_layers(layers)
        .build()
        .expect("valid order");
    for n in [11, 12, 13] {
        assert!(remembering.run(nth_look_call(n)).await.is_ok());
    }
    assert_eq!(
        (accounts.spent(), accounts.left()),
        (0.5, 0.5),
        "only the first ran"
    );
}

#[tokio::test]
async fn prices_come_from_the_options_then_the_tool_then_the_default() {
    let registry = toolgate_core::Registry::new();
    for (name, cost) in [
        ("set", Some(5.0)),
        ("priced", Some(2.0)),
        ("plain", None),
        ("odd", Some(f64::NAN)),
    ] {
        let mut annotations = toolgate_core::Annotations::read_only();
        annotations.cost = cost;
        let spec = toolgate_core::ToolSpec::new(name, "", toolgate_core::Schema::any_object());
        registry
            .register_host(spec.with_annotations(annotations))
            .expect("a good spec");
    }
    let view = toolgate_testkit::plain_view(&registry);
    let call = |tool| Call::new(toolgate_testkit::seed_for(&view, tool, json!({})));
    let costs = BTreeMap::from([("set".to_owned(), 3.0)]);
    let shared = || accounts_with(9.0).billing();
    let with_default = Budget::new(
        BudgetOptions {
            costs: costs.clone(),
            ..default_cost(0.5)
        },
        shared(),
    )
    .expect("valid options");
    let without = Budget::new(
        BudgetOptions {
            costs,
            ..Default::default()
        },
        shared(),
    )
    .expect("valid options");
    for (tool, cost, unpriced) in [
        ("set", 3.0, Some(3.0)),
        ("priced", 2.0, Some(2.0)),
        ("plain", 0.5, None),
        ("odd", 0.5, None),
    ] {
        assert_eq!(
            (
                with_default.price_of(&call(tool)),
                without.price_of(&call(tool))
            ),
            (Some(cost), unpriced),
            "{tool}"
        );
    }
}

#[tokio::test]
async fn a_tool_without_a_price_is_rejected_unless_configured_as_free() {
    for (on_unknown, status) in [
        (OnUnknownCost::Refuse, Status::BudgetExceeded),
        (OnUnknownCost::Free, Status::Ok),
    ] {
        let options = BudgetOptions {
            on_unknown,
            ..Default::default()
        };
        let stack =
            echo_under(Budget::new(options, accounts_with(1.0).billing()).expect("valid options"));
        assert_eq!(stack.run(nth_look_call(11)).await.status(), Some(status));
    }
}

#[tokio::test]
async fn a_dropped_call_is_paid_for_if_it_had_started_and_released_if_not() {
    let accounts = accounts_with(1.0);
    let hanging = Stack::over(FakeExecutor::new().then_hang())
        .layer(budget_over(&accounts, 0.5))
        .build()
        .expect("valid order");
    {
        let mut run = pin!(hanging.run(nth_look_call(11)));
        assert!(poll!(&mut run).is_pending());
        assert_eq!((accounts.spent(), accounts.left()), (0.0, 0.5));
    }
    assert_eq!((accounts.spent(), accounts.left()), (0.5, 0.5));

    let waiting = hanging_stack(&accounts);
    {
        let mut run = pin!(waiting.run(nth_look_call(12)));
        assert!(poll!(&mut run).is_pending());
        assert_eq!(accounts.left(), 0.0);
    }
    assert_eq!((accounts.spent(), accounts.left()), (0.5, 0.5));
}

/// Returns a stack that never reaches the tool.
fn hanging_stack(accounts: &DollarAccount) -> Stack {
    let never = from_fn(async |_, _| std::future::pending().await).in_band(Band::Bound);
    Stack::over(FakeExecutor::new())
        .layer(budget_over(accounts, 0.5))
        .layer(never)
        .build()
        .expect("valid order")
}

/// Returns a budget for ten calls over a store that fails at some calls.
fn faulty_budget(fault: impl Fn(StoreCall) -> StoreFault + Send + Sync + 'static) -> Budget {
    let store = FaultyStore::new(MemoryStore::new(), move |asked, _| fault(asked));
    let rule = budget_rule("b", Global, Total, Calls, 10);
    let billing = billing_over(&StoreHandle::new(store), rule);
    Budget::new(BudgetOptions::default(), billing).expect("valid options")
}

#[tokio::test]
async fn accounts_that_fail_or_panic_let_nothing_run() {
    let down: fn() -> _ =
        || StoreFault::Fail(StoreError::Backend("postgres://u:hunter2@db".into()));
    let panics: fn() -> _ = || StoreFault::Panic("hunter2");
    for broken in [down, panics] {
        let tool = FakeExecutor::new();
        let layer = faulty_budget(move |asked| match asked {
            StoreCall::Reserve => broken(),
            _ => StoreFault::Pass,
        });
        let outcome = stack_over(tool.clone(), layer).run(nth_look_call(11)).await;
        let settled = outcome.settled().expect("settled");
        assert_eq!(
            (settled.status, tool.seen().len()),
            (Status::BudgetExceeded, 0)
        );
        assert!(!settled.model_text().contains("hunter2"));
        let error = settled.error.clone().expect("an error");
        assert!(error.operator.expect("a detail").contains("hunter2"));
    }
}

#[tokio::test]
async fn accounts_that_fail_afterwards_do_not_change_the_outcome() {
    let down: fn() -> _ = || StoreFault::Fail(StoreError::Backend("down".into()));
    let panics: fn() -> _ = || StoreFault::Panic("down");
    for broken in [down, panics] {
        let layer = faulty_budget(move |asked| match asked {
            StoreCall::SettleCharge => broken(),
            _ => StoreFault::Pass,
        });
        assert!(echo_under(layer).run(nth_look_call(11)).await.is_ok());
    }
}

#[tokio::test]
async fn a_call_that_resumes_is_paid_for_once() {
    let clock = TestClock::new();
    let accounts = accounts_with(1.0);
    let twice = run_twice(
        budget_over(&accounts, 1.0),
        seed_at(&clock, "look", json!({})),
    )
    .await;
    assert!(twice.first.suspension().is_some() && twice.second.is_ok());
    assert_eq!((accounts.spent(), accounts.left()), (1.0, 0.0));
}

#[tokio::test]
async fn while_a_call_runs_outside_its_cost_stays_reserved() {
    let clock = TestClock::new();
    let accounts = accounts_with(1.0);
    let stack = Stack::over(HostExecutor)
        .layer(budget_over(&accounts, 1.0))
        .build()
        .expect("valid order");
    let mut seed = seed_at(&clock, "look", json!({}));
    assert!(
        stack
            .run(Call::new(seed.clone()))
            .await
            .suspension()
            .is_some()
    );
    assert_eq!((accounts.spent(), accounts.left()), (0.0, 0.0));
    seed.resumed.results = vec![(1, Arc::new(SettledOutcome::new(Status::Ok)))];
    seed.generation = 1;
    assert!(stack.run(Call::new(seed.clone())).await.is_ok());
    assert_eq!(accounts.spent(), 1.0);
    seed.id = nth_look_call(12).id;
    assert!(
        stack.run(Call::new(seed)).await.is_ok(),
        "a call that has run is not rejected, even without money"
    );
}

#[tokio::test]
async fn a_call_that_ran_outside_is_not_rejected_when_its_price_is_unknown() {
    let layer =
        Budget::new(BudgetOptions::default(), accounts_with(1.0).billing()).expect("valid options");
    let mut seed = seed_at(&TestClock::new(), "look", json!({}));
    seed.resumed.results = vec![(1, Arc::new(SettledOutcome::new(Status::Ok)))];
    seed.generation = 1;
    assert!(echo_under(layer).run(Call::new(seed)).await.is_ok());
}

#[tokio::test]
async fn a_rehearsal_is_judged_but_reserves_nothing() {
    let accounts = accounts_with(1.0);
    let rehearse = || {
        Call::new(CallSeed {
            rehearsal: true,
            ..nth_seed(&TestClock::new(), 11, "look", json!({}))
        })
    };
    assert_eq!(
        echo_under(budget_over(&accounts, 1.0))
            .run(rehearse())
            .await
            .status(),
        Some(Status::DryRun)
    );
    assert_eq!(
        echo_under(budget_over(&accounts, 2.0))
            .run(rehearse())
            .await
            .status(),
        Some(Status::BudgetExceeded)
    );
    assert_eq!((accounts.spent(), accounts.left()), (0.0, 1.0));
    let mut run = pin!(hanging_stack(&accounts).run(rehearse()));
    assert!(poll!(&mut run).is_pending());
    assert_eq!(accounts.left(), 1.0, "not even while it lasts");
}

#[test]
fn invalid_options_are_rejected() {
    let parts = || Resources::new().with(accounts_with(1.0).billing());
    let limited = || BudgetOptions {
        limit: Some(1.0),
        ..Default::default()
    };
    for (options, parts, key) in [
        (default_cost(-1.0), parts(), "default_cost"),
        (default_cost(f64::NAN), parts(), "default_cost"),
        (
            BudgetOptions {
                costs: [("a".to_owned(), -1.0)].into(),
                ..Default::default()
            },
            parts(),
            "costs",
        ),
        (BudgetOptions::default(), Resources::new(), "limit"),
        (
            BudgetOptions {
                limit: Some(-1.0),
                ..Default::default()
            },
            Resources::new(),
            "limit",
        ),
        (limited(), parts(), "limit"),
    ] {
        assert_eq!(
            Budget::configure(options, &parts)
                .expect_err("rejected")
                .key,
            key
        );
    }
    assert!(Budget::configure(limited(), &Resources::new()).is_ok());
    assert!(serde_json::from_str::<BudgetOptions>(r#"{ "on_unknown": "ignore" }"#).is_err());
}

/// Returns the call as it enters once more because it has ended outside the stack.
fn closing_call(n: u128, status: Status, attempts_before: u32) -> Call {
    let seed = nth_seed(&TestClock::new(), n, "look", json!({}));
    Call::new(CallSeed {
        closing: Some(Arc::new(SettledOutcome::new(status))),
        attempts_before,
        ..seed
    })
}

#[tokio::test]
async fn a_call_that_ended_outside_the_stack_is_booked_if_it_may_have_run_and_released_if_not() {
    for (status, attempts, spent) in [
        (Status::Cancelled, 0, 0.0),
        (Status::Cancelled, 1, 0.5),
        (Status::OutcomeUnknown, 0, 0.5),
    ] {
        let accounts = accounts_with(1.0);
        let stack = Stack::over(HostExecutor)
            .layer(budget_over(&accounts, 0.5))
            .build()
            .expect("valid order");
        assert!(stack.run(nth_look_call(21)).await.suspension().is_some());
        assert_eq!(accounts.left(), 0.5, "reserved while it runs outside");
        for _ in 0..2 {
            // Another process, which knows only the store.
            let again = stack_over(HostExecutor, budget_over(&accounts, 0.5));
            let outcome = again.run(closing_call(21, status, attempts)).await;
            assert_eq!(
                outcome.status(),
                Some(status),
                "no decision is made any more"
            );
        }
        assert_eq!(
            (accounts.spent(), accounts.left()),
            (spent, 1.0 - spent),
            "{status}, {attempts} attempts"
        );
    }
}

#[tokio::test]
async fn a_call_without_a_reservation_is_not_charged_when_it_closes() {
    let accounts = accounts_with(1.0);
    echo_under(budget_over(&accounts, 0.5))
        .run(closing_call(22, Status::OutcomeUnknown, 1))
        .await;
    assert_eq!((accounts.spent(), accounts.left()), (0.0, 1.0));
}

#[tokio::test]
async fn a_call_is_paid_by_every_account_or_by_none() {
    let store = memory_store();
    let rules = [
        budget_rule("session", Session, Total, Calls, 10),
        budget_rule("tool", Tool, Total, Usd, DOLLAR),
    ];
    let billing = BillingService::new(store.clone(), Budgets::new(rules));
    let budget = Budget::new(default_cost(0.75), billing).expect("valid options");
    let stack = stack_over(echo(), budget);
    assert!(stack.run(nth_look_call(1)).await.is_ok());
    assert_eq!(
        stack.run(nth_look_call(2)).await.status(),
        Some(Status::BudgetExceeded)
    );
    assert_eq!(
        account_totals(&store),
        [(1, 0), (750_000_000, 0)],
        "the session has not paid for the second call"
    );
}

#[tokio::test]
async fn without_a_known_payer_nothing_is_paid_and_nothing_runs() {
    let billing = billing_over(&memory_store(), budget_rule("mine", User, Total, Calls, 10));
    let executor = FakeExecutor::new();
    let unknown = Budget::new(default_cost(0.0), billing.clone()).expect("valid options");
    let stack = stack_over(executor.clone(), unknown);
    assert_eq!(
        stack.run(nth_look_call(1)).await.status(),
        Some(Status::BudgetExceeded)
    );
    assert!(executor.seen().is_empty());
    let known = billing.paid_by(Payer {
        user: Some("ann".into()),
        ..Payer::default()
    });
    let known = Budget::new(default_cost(0.0), known).expect("valid options");
    assert!(echo_under(known).run(nth_look_call(1)).await.is_ok());
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
    let shown = toasts.clone();
    let billing = billing_over(
        &memory_store(),
        budget_rule("daily", Global, Day, Usd, DOLLAR),
    )
    .on_alert(listener)
    .on_alert(move |alert, at| {
        shown.show(Toast::for_budget(alert, at));
    });
    let pay = async |n, cost| {
        let budget = Budget::new(default_cost(cost), billing.clone()).expect("valid options");
        let call = Call::new(nth_seed(&clock, n, "look", json!({})));
        assert!(echo_under(budget).run(call).await.is_ok());
        std::mem::take(&mut *told.lock().expect("not poisoned"))
    };
    assert!(pay(1, 0.4).await.is_empty());
    assert_eq!(pay(2, 0.55).await, [50, 75, 90]);
    assert_eq!(pay(3, 0.05).await, [100]);
    let shown = toasts.current();
    let text = "100 % of the budget is used: $1.000000 of $1.000000 (2026-01-01)";
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
async fn a_price_is_only_needed_if_a_budget_in_money_applies() {
    let for_another = BudgetRule {
        only: Some("change".into()),
        ..budget_rule("b", Tool, Total, Usd, DOLLAR)
    };
    for (rule, runs) in [
        (budget_rule("b", Global, Total, Calls, 1), true),
        (for_another, true),
        (budget_rule("b", Global, Total, Usd, DOLLAR), false),
    ] {
        let billing = billing_over(&memory_store(), rule.clone());
        let budget = Budget::new(BudgetOptions::default(), billing).expect("valid options");
        assert_eq!(
            echo_under(budget).run(nth_look_call(1)).await.is_ok(),
            runs,
            "{rule:?}"
        );
    }
}

#[tokio::test]
async fn a_call_paid_for_before_a_crash_is_not_paid_for_again() {
    let store = memory_store();
    let billing = billing_over(&store, budget_rule("b", Global, Total, Calls, 10));
    let budget = Budget::new(BudgetOptions::default(), billing.clone()).expect("valid options");
    let stack = echo_under(budget);
    let seed = nth_seed(&TestClock::new(), 1, "look", json!({}));
    for _ in 0..3 {
        assert!(stack.run(Call::new(seed.clone())).await.is_ok());
    }
    assert_eq!(account_totals(&store), [(1, 0)]);
    // The process is lost after the record and before the booking.
    let lost = nth_seed(&TestClock::new(), 2, "look", json!({}));
    let payer = Payer::default();
    let id = ChargeId::Call(lost.id);
    let expense = Expense::for_call(Cost::Unknown);
    let now = Timestamp::EPOCH;
    let charge = billing
        .budgets()
        .build_charge(id, &payer, now, &expense, UnknownPrice::Refuse)
        .expect("known")
        .expect("counts");
    billing.reserve(charge).await.expect("enough");
    let paid = StoreRecord::Json(Json::null());
    let own = lost.env.store();
    own.put_record_once(booked_record_key(lost.id), paid)
        .await
        .expect("stores");
    assert!(stack.run(Call::new(lost)).await.is_ok());
    assert_eq!(account_totals(&store), [(2, 0)]);
}

#[tokio::test]
async fn an_amount_that_is_booked_after_a_crash_raises_its_alerts() {
    let fails = |asked: StoreCall, _| match asked {
        StoreCall::SettleCharge => StoreFault::Fail(StoreError::Backend("down".into())),
        _ => StoreFault::Pass,
    };
    // The call comes back before its outcome was written, or it has ended elsewhere.
    for closes in [false, true] {
        let memory = MemoryStore::new();
        let rule = budget_rule("b", Global, Total, Calls, 2);
        let layer_over = |store: StoreHandle| {
            let billing = billing_over(&store, rule.clone());
            Budget::new(BudgetOptions::default(), billing).expect("valid options")
        };
        let broken = StoreHandle::new(FaultyStore::new(memory.clone(), fails));
        let seed = nth_seed(&TestClock::new(), 1, "look", json!({}));
        let probe = ReportProbe::new();
        let first = Call::new(probe.attach(seed.clone()));
        assert!(echo_under(layer_over(broken)).run(first).await.is_ok());
        assert!(probe.alerts().is_empty(), "nothing is booked yet");
        let again = CallSeed {
            closing: closes.then(|| Arc::new(SettledOutcome::new(Status::OutcomeUnknown))),
            ..probe.attach(seed)
        };
        let stack = echo_under(layer_over(StoreHandle::new(memory)));
        for _ in 0..2 {
            stack.run(Call::new(again.clone())).await;
        }
        let percents: Vec<u8> = probe.alerts().iter().map(|alert| alert.percent).collect();
        assert_eq!(percents, [50], "once, {closes}");
    }
}

#[tokio::test]
async fn a_reservation_whose_answer_was_lost_is_released_unless_an_earlier_attempt_ran() {
    for (attempts_before, left_over) in [(0, 0), (1, 1)] {
        let lost = |asked: StoreCall, _| match asked {
            StoreCall::Reserve => {
                StoreFault::DoneButFail(StoreError::Backend("the connection was lost".into()))
            }
            _ => StoreFault::Pass,
        };
        let store = StoreHandle::new(FaultyStore::new(MemoryStore::new(), lost));
        let billing = billing_over(&store, budget_rule("b", Global, Total, Calls, 10));
        let budget = Budget::new(BudgetOptions::default(), billing).expect("valid options");
        let call = Call::new(CallSeed {
            attempts_before,
            ..nth_seed(&TestClock::new(), 1, "look", json!({}))
        });
        assert_eq!(
            echo_under(budget).run(call).await.status(),
            Some(Status::BudgetExceeded)
        );
        assert_eq!(account_totals(&store), [(0, left_over)]);
    }
}
