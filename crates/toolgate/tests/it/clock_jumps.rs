//! Processes whose clocks differ by a day, as after the clock of their machine was set: a process keeps
//! the time at which it began, and one that begins later has the new time.

use std::time::Duration;

use toolgate::{
    Registry, Stack, Status, ToolError,
    approval::Decision,
    budget::{
        BillingService, BudgetPeriod, BudgetRule, BudgetScope, BudgetUnit, Budgets, ChargeId,
        Expense, ExpenseState, UnknownPrice,
    },
    event::Cost,
    layers::{CallRate, RateLimit, RateLimitOptions, RateScope},
    session::{Dispatcher, DispatcherBuilder, RejectCode, TurnRequest},
    store::{MemoryStore, SqliteStore, StoreHandle},
    tool_fn,
    value::{CallId, Clock, HumanDuration, Timestamp},
};
use toolgate_core::ToolRequest;
use toolgate_testkit::TestClock;

use crate::approval_world::{ApprovalWorld, call_statuses, code_of, resume_turn};

/// The days by which the clock is set, one after the other.
const JUMPS: [i64; 5] = [1, -1, 1, -1, 0];

/// Returns a clock that is some days ahead of the usual one of tests.
fn clock_ahead_by(days: i64) -> TestClock {
    let day = 24 * 3600 * 1_000_000;
    TestClock::at(Timestamp::from_micros(
        TestClock::new().now().as_micros() + days * day,
    ))
}

fn send_registry() -> Registry {
    let registry = Registry::new();
    let send =
        |_: serde_json::Map<String, serde_json::Value>, _cx| async { Ok::<_, ToolError>("sent") };
    registry
        .register(tool_fn("send", "Sends.", send))
        .expect("free");
    registry
}

/// Calls the tool `send` in a turn of its own.
async fn send(driver: &Dispatcher, registry: &Registry) -> Option<Status> {
    let calls = vec![ToolRequest::from_text("1", "send", "{}")];
    let view = toolgate_testkit::plain_view(registry);
    let turn = driver.open_turn(TurnRequest::new(view, calls)).await;
    let report = turn.expect("opens").run().await.expect("runs");
    report.results[0].status()
}

fn builder_at(store: &StoreHandle, stack: Stack, days: i64) -> DispatcherBuilder {
    Dispatcher::builder(stack)
        .store(store.clone())
        .clock(clock_ahead_by(days))
}

#[tokio::test]
async fn a_living_driver_keeps_its_session_whatever_the_clocks_of_others_say() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = SqliteStore::open(directory.path().join("toolgate.db")).expect("opens");
    let store = StoreHandle::new(store);
    let registry = send_registry();
    let stack = || {
        let stack = Stack::over(registry.clone()).build();
        stack.expect("in order")
    };
    let first = builder_at(&store, stack(), 0)
        .build()
        .await
        .expect("builds");
    let session = first.session();
    for days in JUMPS {
        let other = builder_at(&store, stack(), days)
            .session(session)
            .build()
            .await;
        assert!(other.is_err(), "{days}");
        assert_eq!(send(&first, &registry).await, Some(Status::Ok), "{days}");
    }
    drop(first);
    for days in JUMPS {
        let next = builder_at(&store, stack(), days)
            .session(session)
            .build()
            .await;
        let next = next.expect("the driver is gone");
        assert_eq!(send(&next, &registry).await, Some(Status::Ok), "{days}");
    }
}

#[tokio::test]
async fn a_rate_limit_counts_uses_of_a_later_day_as_new() {
    let store = StoreHandle::new(MemoryStore::new());
    let registry = send_registry();
    let stack = || {
        let options = RateLimitOptions {
            limits: vec![CallRate {
                calls: 2,
                period: HumanDuration::from_secs(3_600),
                per: RateScope::Tool,
            }],
            ..RateLimitOptions::default()
        };
        let layer = RateLimit::new(options).expect("valid");
        let stack = Stack::over(registry.clone()).layer(layer).build();
        stack.expect("in order")
    };
    let send_at = async |days| {
        let driver = builder_at(&store, stack(), days)
            .build()
            .await
            .expect("builds");
        send(&driver, &registry).await
    };
    for _ in 0..2 {
        assert_eq!(send_at(0).await, Some(Status::Ok));
    }
    for days in [0, -1, 0, -1] {
        let limited = send_at(days).await;
        assert_eq!(
            limited,
            Some(Status::RateLimited),
            "{days}: set back, it allows less"
        );
    }
    assert_eq!(send_at(1).await, Some(Status::Ok), "the period is over");
}

#[tokio::test]
async fn an_amount_is_booked_once_in_the_day_in_which_it_was_reserved() {
    let store = StoreHandle::new(MemoryStore::new());
    let (scope, unit) = (BudgetScope::Global, BudgetUnit::Calls);
    let rule = BudgetRule::new("b", scope, BudgetPeriod::Day, unit, 2);
    let billing = BillingService::new(store.clone(), Budgets::new([rule]));
    let reserve = async |number, days| {
        let id = ChargeId::Call(CallId::new(uuid::Uuid::from_u128(number)));
        let now = clock_ahead_by(days).now();
        let expense = Expense::for_call(Cost::Unknown);
        let budgets = billing.budgets();
        let charge = budgets.build_charge(id, billing.payer(), now, &expense, UnknownPrice::Refuse);
        let charge = charge.expect("known").expect("counts");
        billing.reserve(charge).await.map(|charge| charge.id)
    };
    let spent = async || {
        let rows = store.accounts("", None, 10).await.expect("lists");
        let row =
            |row: &toolgate::budget::AccountRow| (row.account.to_string(), row.spent, row.reserved);
        rows.iter().map(row).collect::<Vec<_>>()
    };
    let lost = reserve(1, 0).await.expect("enough");
    // The clock is set before the amount is booked, and again before that is repeated.
    for _ in JUMPS {
        let booked = billing.recover(lost, ExpenseState::Spent).await;
        booked.expect("books");
    }
    let today = "budget/global/all/calls/2026-01-01".to_owned();
    assert_eq!(spent().await, [(today.clone(), 1, 0)]);
    for (number, days, fits) in [(2, -1, true), (3, 0, true), (4, 0, false), (5, 1, true)] {
        assert_eq!(reserve(number, days).await.is_ok(), fits, "{number}");
    }
    let rows = spent().await;
    assert_eq!(rows.len(), 3, "a day each: {rows:?}");
    assert!(rows.contains(&(today, 1, 1)), "{rows:?}");
}

#[tokio::test]
async fn a_decision_counts_by_the_clock_of_the_process_that_makes_it() {
    let world = ApprovalWorld::new();
    let hour = Duration::from_secs(3_600);
    let stack = world.stack(world.asking_layer().expires_after(hour));
    let (process, report, named) = world.run_until_asked(stack).await;
    let decide_at = async |days| {
        let there = ApprovalWorld {
            clock: clock_ahead_by(days),
            ..world.clone()
        };
        let service = there.approval_service();
        service.decide(&named, Decision::approve("ann")).await
    };
    assert_eq!(code_of(decide_at(1).await), RejectCode::Expired);
    decide_at(-1).await.expect("is in time there");
    assert_eq!(
        call_statuses(&resume_turn(&process, &report, world.view()).await),
        [Some(Status::Ok)]
    );
    assert_eq!(world.effects().len(), 1, "it ran once");
}
