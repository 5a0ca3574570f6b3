//! Alerts of budgets for tool calls are events of the session.

use std::time::Duration;

use serde_json::{Value, json};
use toolgate::{
    budget::{
        AlertThresholds, AlertUnit, BillingService, BudgetAlert, BudgetAlertLevel, BudgetPeriod,
        BudgetRule, BudgetScope, BudgetUnit, Budgets,
    },
    event::SessionEvent,
    layers::{Budget, BudgetOptions},
    model::{ScriptLine, ScriptedModel},
    prelude::*,
    store::{MemoryStore, StoreError, StoreHandle},
    value::SessionId,
};
use toolgate_testkit::{FaultyStore, StoreCall, StoreFault, TestClock};

/// Returns the tool `look`.
fn look_registry() -> Registry {
    let registry = Registry::new();
    let look = |_: serde_json::Map<String, Value>, _cx| async { Ok::<_, ToolError>("seen") };
    registry
        .register(tool_fn("look", "Looks.", look))
        .expect("free");
    registry
}

fn calls_a_day(limit: u64) -> BudgetRule {
    let (scope, period) = (BudgetScope::Tool, BudgetPeriod::Day);
    BudgetRule::new("looking", scope, period, BudgetUnit::Calls, limit)
}

/// Opens a session whose model calls `look` once for each message. Only calls are paid for.
async fn open_session(
    store: &StoreHandle,
    session: SessionId,
    rule: BudgetRule,
    clock: &TestClock,
) -> Session {
    let registry = look_registry();
    let budgets = Budgets::new([rule]);
    let billing = BillingService::new(store.clone(), budgets.clone());
    let budget = Budget::new(BudgetOptions::default(), billing).expect("valid options");
    let stack = Stack::over(registry.clone()).layer(budget).build();
    let look = ScriptLine::new().call("look", json!({}));
    let script = std::iter::repeat_n([look, ScriptLine::new().say("done")], 4).flatten();
    let store = store.clone();
    let clock = clock.clone();
    Session::ungated(ScriptedModel::new(script), registry)
        .stack(stack.expect("valid order"))
        .budgets(budgets)
        .dispatcher(move |dispatcher| {
            dispatcher
                .store(store)
                .session(session)
                .clock(clock)
                .take_over()
        })
        .build()
        .await
        .expect("builds")
}

fn session_id() -> SessionId {
    SessionId::new(uuid::Uuid::from_u128(7))
}

/// Returns the alerts in the log of the session.
async fn logged_alerts(store: &StoreHandle) -> Vec<BudgetAlert> {
    let log = store.events(session_id(), 0, 1_000).await.expect("reads");
    let alert = |event: &std::sync::Arc<Event>| match event.as_session() {
        Some(SessionEvent::BudgetAlert(alert)) => Some(alert.clone()),
        _ => None,
    };
    log.iter().filter_map(alert).collect()
}

fn percents(alerts: &[BudgetAlert]) -> Vec<u8> {
    alerts.iter().map(|alert| alert.percent).collect()
}

#[tokio::test]
async fn alerts_of_tool_calls_are_events_with_their_level_and_numbers() {
    use BudgetAlertLevel::{Critical, Exceeded, Info, Warning};
    let store = StoreHandle::new(MemoryStore::new());
    let clock = TestClock::new();
    let session = open_session(&store, session_id(), calls_a_day(2), &clock).await;
    let mut events = session.bus().subscribe();
    for run in ["one", "two"] {
        let report = session.run(run).await.expect("runs");
        assert_eq!(report.end, RunEnd::Completed);
    }
    let logged = logged_alerts(&store).await;
    assert_eq!(
        percents(&logged),
        [50, 75, 90, 100],
        "the second call passes three of them"
    );
    let levels: Vec<_> = logged.iter().map(|alert| alert.level).collect();
    assert_eq!(levels, [Info, Warning, Critical, Exceeded]);
    let alert = &logged[0];
    assert_eq!(
        (&*alert.budget, &*alert.period),
        ("looking (tool look)", "2026-01-01")
    );
    let amounts = alert.amounts.expect("numbers");
    assert_eq!(
        (amounts.unit, amounts.spent, amounts.limit),
        (AlertUnit::Calls, 1, 2)
    );
    let mut live = 0;
    while let Some(delivery) = events.try_next() {
        if let toolgate::event::BusDelivery::Event(event) = delivery
            && let Some(SessionEvent::BudgetAlert(_)) = event.as_session()
        {
            live += 1;
        }
    }
    assert_eq!(live, 4, "screens hear of them, too");
}

#[tokio::test]
async fn the_thresholds_of_a_rule_alert_once_in_each_period() {
    let store = StoreHandle::new(MemoryStore::new());
    let clock = TestClock::new();
    let rule = BudgetRule {
        alert_at: AlertThresholds::new([60, 30]).expect("valid"),
        ..calls_a_day(3)
    };
    let session = open_session(&store, session_id(), rule, &clock).await;
    for _ in 0..3 {
        session.run("look").await.expect("runs");
    }
    assert_eq!(percents(&logged_alerts(&store).await), [30, 60]);
    clock.advance(Duration::from_secs(24 * 3600));
    session.run("look").await.expect("runs");
    let logged = logged_alerts(&store).await;
    assert_eq!(percents(&logged), [30, 60, 30], "the next day begins anew");
    assert_eq!(logged[2].period, "2026-01-02");
}

#[tokio::test]
async fn alerts_of_what_is_booked_after_a_crash_are_events() {
    let memory = MemoryStore::new();
    let fails = |asked: StoreCall, _| match asked {
        StoreCall::SettleCharge => StoreFault::Fail(StoreError::Backend("lost".into())),
        _ => StoreFault::Pass,
    };
    let broken = StoreHandle::new(FaultyStore::new(memory.clone(), fails));
    let clock = TestClock::new();
    let rule = calls_a_day(2);
    // The first process ends before it has booked its call.
    let session = open_session(&broken, session_id(), rule.clone(), &clock).await;
    session.run("look").await.expect("runs");
    drop(session);
    let store = StoreHandle::new(memory);
    assert!(logged_alerts(&store).await.is_empty());
    let session = open_session(&store, session_id(), rule, &clock).await;
    session.run("look").await.expect("runs");
    let logged = logged_alerts(&store).await;
    assert_eq!(
        percents(&logged),
        [50, 75, 90, 100],
        "the first call is booked when the session is resumed, and then the second"
    );
}
