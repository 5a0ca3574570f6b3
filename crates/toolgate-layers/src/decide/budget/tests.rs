//! Tests of [`Budget`].

use std::{pin::pin, sync::Arc};

use futures::{future::BoxFuture, poll};
use serde_json::json;
use toolgate_core::{
    AnyLayer, CallId, CallSeed, LayerExt, SettledOutcome, Stack, ToolError, from_fn,
};
use toolgate_testkit::{FakeExecutor, TestClock, echo_under, run_twice};

use super::*;
use crate::{Accounts, DryRun, Idempotency, testing::*};

fn default_cost(cost: f64) -> BudgetOptions {
    BudgetOptions {
        default_cost: Some(cost),
        ..Default::default()
    }
}

fn budget_over(accounts: &MemoryAccounts, cost: f64) -> Budget {
    Budget::new(default_cost(cost), SharedAccounts::new(accounts.clone())).expect("valid options")
}

fn accounts_with(limit: f64) -> MemoryAccounts {
    MemoryAccounts::with_limit(limit).expect("an amount")
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
        "the call would cost 0.75, but only 0.5 is left of the budget total"
    );
    assert_eq!((tool.seen().len(), accounts.left()), (0, 0.5));
}

#[tokio::test]
async fn a_call_that_ran_costs_its_price_once_whatever_its_outcome() {
    for outcome in [
        Outcome::failed(ToolError::new("no")),
        Outcome::refused(Status::OutcomeUnknown, "who knows"),
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
    let view = toolgate_core::View::from_registry(&registry);
    let call = |tool| Call::new(toolgate_testkit::seed_for(&view, tool, json!({})));
    let costs = BTreeMap::from([("set".to_owned(), 3.0)]);
    let shared = || SharedAccounts::new(accounts_with(9.0));
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
                with_default.cost_of(&call(tool)),
                without.cost_of(&call(tool))
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
        let stack = echo_under(
            Budget::new(options, SharedAccounts::new(accounts_with(1.0))).expect("valid options"),
        );
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
fn hanging_stack(accounts: &MemoryAccounts) -> Stack {
    let never = from_fn(async |_, _| std::future::pending().await).in_band(Band::Bound);
    Stack::over(FakeExecutor::new())
        .layer(budget_over(accounts, 0.5))
        .layer(never)
        .build()
        .expect("valid order")
}

/// Accounts that fail to reserve in a given way.
struct BrokenAccounts(fn() -> Result<CallReservation, BudgetRejection>);

impl Accounts for BrokenAccounts {
    fn check<'a>(
        &'a self,
        _: &'a BudgetAccount,
        _: f64,
    ) -> BoxFuture<'a, Result<(), BudgetRejection>> {
        Box::pin(async { (self.0)().map(drop) })
    }
    fn reserve<'a>(
        &'a self,
        _: CallId,
        _: &'a BudgetAccount,
        _: f64,
    ) -> BoxFuture<'a, Result<CallReservation, BudgetRejection>> {
        Box::pin(async { (self.0)() })
    }
    fn settle(&self, _: CallReservation, _: f64) -> BoxFuture<'_, Result<(), AccountsUnavailable>> {
        panic!("hunter2")
    }
    fn release(&self, _: CallReservation) -> BoxFuture<'_, Result<(), AccountsUnavailable>> {
        panic!("hunter2")
    }
}

#[tokio::test]
async fn accounts_that_fail_or_panic_let_nothing_run() {
    let down: fn() -> _ = || Err(AccountsUnavailable("postgres://u:hunter2@db".into()).into());
    let panics: fn() -> _ = || panic!("hunter2");
    for broken in [down, panics] {
        let tool = FakeExecutor::new();
        let layer = Budget::new(
            default_cost(1.0),
            SharedAccounts::new(BrokenAccounts(broken)),
        )
        .expect("valid options");
        let outcome = Stack::over(tool.clone())
            .layer(layer)
            .build()
            .expect("valid order")
            .run(nth_look_call(11))
            .await;
        let settled = outcome.settled().expect("settled");
        assert_eq!(
            (settled.status, tool.seen().len()),
            (Status::BudgetExceeded, 0)
        );
        assert!(!settled.model_text().contains("hunter2"));
    }
}

#[tokio::test]
async fn accounts_that_fail_afterwards_do_not_change_the_outcome() {
    let reserve: fn() -> _ = || {
        Ok(CallReservation {
            call: nth_look_call(11).id,
            amount: 1.0,
        })
    };
    let layer = Budget::new(
        default_cost(1.0),
        SharedAccounts::new(BrokenAccounts(reserve)),
    )
    .expect("valid options");
    assert!(echo_under(layer).run(nth_look_call(11)).await.is_ok());
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
    let stack = Stack::over(toolgate_core::HostExecutor)
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
    let layer = Budget::new(
        BudgetOptions::default(),
        SharedAccounts::new(accounts_with(1.0)),
    )
    .expect("valid options");
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
    let parts = || Resources::new().with(SharedAccounts::new(accounts_with(1.0)));
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
        let stack = Stack::over(toolgate_core::HostExecutor)
            .layer(budget_over(&accounts, 0.5))
            .build()
            .expect("valid order");
        assert!(stack.run(nth_look_call(21)).await.suspension().is_some());
        assert_eq!(accounts.left(), 0.5, "reserved while it runs outside");
        for _ in 0..2 {
            let outcome = stack.run(closing_call(21, status, attempts)).await;
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
