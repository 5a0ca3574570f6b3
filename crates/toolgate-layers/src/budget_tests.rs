//! The rules of [`Budget`].

use std::{pin::pin, sync::Arc};

use futures::{future::BoxFuture, poll};
use serde_json::json;
use toolgate_core::{AnyLayer, CallId, CallSeed, LayerExt, Settled, Stack, ToolError, from_fn};
use toolgate_testkit::{Scripted, TestClock, echo_under, run_twice};

use super::*;
use crate::{Accounts, DryRun, Idempotency, try_out::*};

fn priced(cost: f64) -> BudgetOptions {
    BudgetOptions {
        default_cost: Some(cost),
        ..Default::default()
    }
}

fn budget(accounts: &MemoryAccounts, cost: f64) -> Budget {
    Budget::new(priced(cost), SharedAccounts::new(accounts.clone())).expect("fine")
}

fn accounts(limit: f64) -> MemoryAccounts {
    MemoryAccounts::limit(limit).expect("an amount")
}

fn look(n: u128) -> Call {
    Call::new(nth(&TestClock::new(), n, "look", json!({})))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_calls_at_once_against_a_budget_for_ten_spend_exactly_ten() {
    let accounts = accounts(1.0);
    let stack = echo_under(budget(&accounts, 0.1));
    let calls = (0..50).map(|n| tokio::spawn(stack.run(look(100 + n))));
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
async fn a_call_that_would_exceed_the_budget_is_refused_before_it_runs() {
    let (accounts, tool) = (accounts(0.5), Scripted::new());
    let stack = Stack::over(tool.clone())
        .layer(budget(&accounts, 0.75))
        .build()
        .expect("in order");
    let outcome = stack.run(look(11)).await;
    let settled = outcome.settled().expect("settled");
    assert_eq!(settled.status, Status::BudgetExceeded);
    assert_eq!(
        settled.model_text(),
        "the call would cost 0.75, but only 0.5 is left of the budget total"
    );
    assert_eq!((tool.seen().len(), accounts.left()), (0, 0.5));
}

#[tokio::test]
async fn a_call_that_ran_costs_its_price_once_whatever_came_of_it() {
    for outcome in [
        Outcome::failed(ToolError::new("no")),
        Outcome::refused(Status::OutcomeUnknown, "who knows"),
    ] {
        let (accounts, tool) = (accounts(1.0), Scripted::new().then(outcome));
        let outcome = Stack::over(tool)
            .layer(budget(&accounts, 0.5))
            .build()
            .expect("in order")
            .run(look(11))
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
    let accounts = accounts(1.0);
    let pretended = Stack::over(Scripted::new())
        .layer(budget(&accounts, 0.5))
        .layer(DryRun::all());
    pretended.build().expect("in order").run(look(11)).await;
    assert_eq!((accounts.spent(), accounts.left()), (0.0, 1.0));

    let layers = [
        AnyLayer::new(budget(&accounts, 0.5)),
        AnyLayer::new(Idempotency::default()),
    ];
    let remembering = Stack::over(Scripted::new())
        .any_layers(layers)
        .build()
        .expect("in order");
    for n in [11, 12, 13] {
        assert!(remembering.run(look(n)).await.is_ok());
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
    let view = toolgate_core::View::of(&registry);
    let call = |tool| Call::new(toolgate_testkit::seed_for(&view, tool, json!({})));
    let costs = BTreeMap::from([("set".to_owned(), 3.0)]);
    let shared = || SharedAccounts::new(accounts(9.0));
    let with_default = Budget::new(
        BudgetOptions {
            costs: costs.clone(),
            ..priced(0.5)
        },
        shared(),
    )
    .expect("fine");
    let without = Budget::new(
        BudgetOptions {
            costs,
            ..Default::default()
        },
        shared(),
    )
    .expect("fine");
    for (tool, cost, unpriced) in [
        ("set", 3.0, Some(3.0)),
        ("priced", 2.0, Some(2.0)),
        ("plain", 0.5, None),
        ("odd", 0.5, None),
    ] {
        assert_eq!(
            (with_default.cost(&call(tool)), without.cost(&call(tool))),
            (Some(cost), unpriced),
            "{tool}"
        );
    }
}

#[tokio::test]
async fn a_tool_without_a_price_is_refused_unless_it_is_said_to_be_free() {
    for (on_unknown, status) in [
        (OnUnknownCost::Refuse, Status::BudgetExceeded),
        (OnUnknownCost::Free, Status::Ok),
    ] {
        let options = BudgetOptions {
            on_unknown,
            ..Default::default()
        };
        let stack =
            echo_under(Budget::new(options, SharedAccounts::new(accounts(1.0))).expect("fine"));
        assert_eq!(stack.run(look(11)).await.status(), Some(status));
    }
}

#[tokio::test]
async fn a_dropped_call_is_paid_for_if_it_had_started_and_released_if_not() {
    let accounts = accounts(1.0);
    let hanging = Stack::over(Scripted::new().then_hang())
        .layer(budget(&accounts, 0.5))
        .build()
        .expect("in order");
    {
        let mut run = pin!(hanging.run(look(11)));
        assert!(poll!(&mut run).is_pending());
        assert_eq!((accounts.spent(), accounts.left()), (0.0, 0.5));
    }
    assert_eq!((accounts.spent(), accounts.left()), (0.5, 0.5));

    let waiting = hanging_under(&accounts);
    {
        let mut run = pin!(waiting.run(look(12)));
        assert!(poll!(&mut run).is_pending());
        assert_eq!(accounts.left(), 0.0);
    }
    assert_eq!((accounts.spent(), accounts.left()), (0.5, 0.5));
}

/// A stack that never gets as far as the tool.
fn hanging_under(accounts: &MemoryAccounts) -> Stack {
    let never = from_fn(async |_, _| std::future::pending().await).in_band(Band::Bound);
    Stack::over(Scripted::new())
        .layer(budget(accounts, 0.5))
        .layer(never)
        .build()
        .expect("in order")
}

/// Accounts that fail in one way.
struct Broken(fn() -> Result<Reservation, BudgetRefusal>);

impl Accounts for Broken {
    fn check<'a>(
        &'a self,
        _: &'a BudgetAccount,
        _: f64,
    ) -> BoxFuture<'a, Result<(), BudgetRefusal>> {
        Box::pin(async { (self.0)().map(drop) })
    }
    fn reserve<'a>(
        &'a self,
        _: CallId,
        _: &'a BudgetAccount,
        _: f64,
    ) -> BoxFuture<'a, Result<Reservation, BudgetRefusal>> {
        Box::pin(async { (self.0)() })
    }
    fn settle(&self, _: Reservation, _: f64) -> BoxFuture<'_, Result<(), AccountsDown>> {
        panic!("hunter2")
    }
    fn release(&self, _: Reservation) -> BoxFuture<'_, Result<(), AccountsDown>> {
        panic!("hunter2")
    }
}

#[tokio::test]
async fn accounts_that_fail_or_panic_let_nothing_run() {
    let down: fn() -> _ = || Err(AccountsDown("postgres://u:hunter2@db".into()).into());
    let panics: fn() -> _ = || panic!("hunter2");
    for broken in [down, panics] {
        let tool = Scripted::new();
        let layer = Budget::new(priced(1.0), SharedAccounts::new(Broken(broken))).expect("fine");
        let outcome = Stack::over(tool.clone())
            .layer(layer)
            .build()
            .expect("in order")
            .run(look(11))
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
        Ok(Reservation {
            call: look(11).id,
            amount: 1.0,
        })
    };
    let layer = Budget::new(priced(1.0), SharedAccounts::new(Broken(reserve))).expect("fine");
    assert!(echo_under(layer).run(look(11)).await.is_ok());
}

#[tokio::test]
async fn a_call_that_comes_back_is_paid_for_once() {
    let (clock, accounts) = (TestClock::new(), accounts(1.0));
    let twice = run_twice(budget(&accounts, 1.0), seed_at(&clock, "look", json!({}))).await;
    assert!(twice.first.suspension().is_some() && twice.second.is_ok());
    assert_eq!((accounts.spent(), accounts.left()), (1.0, 0.0));
}

#[tokio::test]
async fn while_a_call_runs_outside_its_cost_stays_reserved() {
    let (clock, accounts) = (TestClock::new(), accounts(1.0));
    let stack = Stack::over(toolgate_core::HostExecutor)
        .layer(budget(&accounts, 1.0))
        .build()
        .expect("in order");
    let mut seed = seed_at(&clock, "look", json!({}));
    assert!(
        stack
            .run(Call::new(seed.clone()))
            .await
            .suspension()
            .is_some()
    );
    assert_eq!((accounts.spent(), accounts.left()), (0.0, 0.0));
    seed.resumed.results = vec![(1, Arc::new(Settled::new(Status::Ok)))];
    seed.generation = 1;
    assert!(stack.run(Call::new(seed.clone())).await.is_ok());
    assert_eq!(accounts.spent(), 1.0);
    seed.id = look(12).id;
    assert!(
        stack.run(Call::new(seed)).await.is_ok(),
        "what has run is not refused, even without money"
    );
}

#[tokio::test]
async fn what_has_run_outside_is_not_refused_when_its_price_is_no_longer_known() {
    let layer =
        Budget::new(BudgetOptions::default(), SharedAccounts::new(accounts(1.0))).expect("fine");
    let mut seed = seed_at(&TestClock::new(), "look", json!({}));
    seed.resumed.results = vec![(1, Arc::new(Settled::new(Status::Ok)))];
    seed.generation = 1;
    assert!(echo_under(layer).run(Call::new(seed)).await.is_ok());
}

#[tokio::test]
async fn a_rehearsal_is_judged_but_reserves_nothing() {
    let accounts = accounts(1.0);
    let rehearse = || {
        Call::new(CallSeed {
            rehearsal: true,
            ..nth(&TestClock::new(), 11, "look", json!({}))
        })
    };
    assert_eq!(
        echo_under(budget(&accounts, 1.0))
            .run(rehearse())
            .await
            .status(),
        Some(Status::DryRun)
    );
    assert_eq!(
        echo_under(budget(&accounts, 2.0))
            .run(rehearse())
            .await
            .status(),
        Some(Status::BudgetExceeded)
    );
    assert_eq!((accounts.spent(), accounts.left()), (0.0, 1.0));
    let mut run = pin!(hanging_under(&accounts).run(rehearse()));
    assert!(poll!(&mut run).is_pending());
    assert_eq!(accounts.left(), 1.0, "not even while it lasts");
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let parts = || Parts::new().with(SharedAccounts::new(accounts(1.0)));
    let limited = || BudgetOptions {
        limit: Some(1.0),
        ..Default::default()
    };
    for (options, parts, key) in [
        (priced(-1.0), parts(), "default_cost"),
        (priced(f64::NAN), parts(), "default_cost"),
        (
            BudgetOptions {
                costs: [("a".to_owned(), -1.0)].into(),
                ..Default::default()
            },
            parts(),
            "costs",
        ),
        (BudgetOptions::default(), Parts::new(), "limit"),
        (
            BudgetOptions {
                limit: Some(-1.0),
                ..Default::default()
            },
            Parts::new(),
            "limit",
        ),
        (limited(), parts(), "limit"),
    ] {
        assert_eq!(
            Budget::configure(options, &parts).expect_err("refused").key,
            key
        );
    }
    assert!(Budget::configure(limited(), &Parts::new()).is_ok());
    assert!(serde_json::from_str::<BudgetOptions>(r#"{ "on_unknown": "ignore" }"#).is_err());
}

/// The call as it enters once more because it has ended outside the stack.
fn closing(n: u128, status: Status, attempts_before: u32) -> Call {
    let seed = nth(&TestClock::new(), n, "look", json!({}));
    Call::new(CallSeed {
        closing: Some(Arc::new(Settled::new(status))),
        attempts_before,
        ..seed
    })
}

#[tokio::test]
async fn a_call_that_ended_outside_the_stack_is_booked_if_it_may_have_run_and_given_back_if_not() {
    for (status, attempts, spent) in [
        (Status::Cancelled, 0, 0.0),
        (Status::Cancelled, 1, 0.5),
        (Status::OutcomeUnknown, 0, 0.5),
    ] {
        let accounts = accounts(1.0);
        let stack = Stack::over(toolgate_core::HostExecutor)
            .layer(budget(&accounts, 0.5))
            .build()
            .expect("in order");
        assert!(stack.run(look(21)).await.suspension().is_some());
        assert_eq!(accounts.left(), 0.5, "reserved while it runs outside");
        for _ in 0..2 {
            let outcome = stack.run(closing(21, status, attempts)).await;
            assert_eq!(
                outcome.status(),
                Some(status),
                "nothing is decided any more"
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
async fn a_call_that_never_reserved_anything_is_not_charged_when_it_is_closed() {
    let accounts = accounts(1.0);
    echo_under(budget(&accounts, 0.5))
        .run(closing(22, Status::OutcomeUnknown, 1))
        .await;
    assert_eq!((accounts.spent(), accounts.left()), (0.0, 1.0));
}
