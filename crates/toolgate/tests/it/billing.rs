//! Tool calls and model requests that spend from the same accounts.

use std::sync::Arc;

use futures::future::join_all;
use serde_json::json;
use toolgate::{
    budget::{
        AccountRow, BillingService, BudgetPeriod, BudgetRule, BudgetScope, BudgetUnit, Budgets,
        Payer, PriceTable, Prices,
    },
    layers::{Budget, BudgetOptions},
    model::{ModelName, ModelRequest, ScriptLine, ScriptedModel, Usage},
    prelude::*,
    session::ModelBilling,
    stack::{Call, CallSeed},
    store::{MemoryStore, StoreHandle},
    value::{CallId, TurnId},
};
use toolgate_testkit::{TestClock, seed};
use uuid::Uuid;

/// A cent in billionths of a dollar.
const CENT: u64 = 10_000_000;

/// Returns a price list in which a thousand output tokens cost a cent, and input is free.
fn prices() -> Prices {
    let table = json!({ "providers": { "scripted": { "models": { "script": { "input": 0, "output": 10 } } } } });
    serde_json::from_value::<PriceTable>(table)
        .expect("a table")
        .into()
}

fn budget_in_dollars(scope: BudgetScope) -> Budgets {
    let rule = BudgetRule::new(
        "shared",
        scope,
        BudgetPeriod::Total,
        BudgetUnit::Usd,
        100 * CENT,
    );
    Budgets::new([rule])
}

/// Returns the tool `look`. It takes a moment, so that other work comes in between.
fn look_registry() -> Registry {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Nothing {}
    let registry = Registry::new();
    let look = tool_fn("look", "Looks.", |_: Nothing, _cx| async {
        tokio::task::yield_now().await;
        Ok::<_, ToolError>("seen")
    });
    registry.register(look).expect("free");
    registry
}

/// Returns a layer for which each call costs 10 cents.
fn ten_cents_a_call(billing: BillingService) -> Budget {
    let options = BudgetOptions {
        default_cost: Some(0.1),
        ..BudgetOptions::default()
    };
    Budget::new(options, billing).expect("valid options")
}

async fn accounts(store: &StoreHandle) -> Vec<AccountRow> {
    store.accounts("", None, 10).await.expect("lists")
}

#[tokio::test]
async fn calls_and_requests_at_once_never_exceed_a_shared_budget_and_lose_no_booking() {
    let store = StoreHandle::new(MemoryStore::new());
    let billing = BillingService::new(store.clone(), budget_in_dollars(BudgetScope::Global));
    let requests = ModelBilling::new(billing.clone(), Arc::new(TestClock::new()));
    let requests = requests.with_prices(prices());
    let stack = Stack::over(look_registry())
        .layer(ten_cents_a_call(billing))
        .build()
        .expect("valid order");
    let within_limit = async || {
        let rows = accounts(&store).await;
        assert!(rows[0].spent + rows[0].reserved <= 100 * CENT, "{rows:?}");
    };
    let call = async |n| {
        let call = Call::new(CallSeed {
            id: CallId::new(Uuid::from_u128(n)),
            ..seed("look", json!({}))
        });
        let ran = stack.run(call).await.is_ok();
        within_limit().await;
        if ran { 10 * CENT } else { 0 }
    };
    // Each request reserves 9 cents and costs 4.
    let ask = async |n| {
        let turn = TurnId::new(Uuid::from_u128(n));
        let model = ModelName::new("scripted", "script");
        let request = ModelRequest {
            max_tokens: Some(9_000),
            ..ModelRequest::default()
        };
        let Ok(held) = requests.reserve(turn, &request, &model).await else {
            return 0;
        };
        within_limit().await;
        tokio::task::yield_now().await;
        let usage = Usage {
            output: 4_000,
            ..Usage::default()
        };
        let settled = requests.settle(held, Some(usage)).await;
        assert!(settled.unbooked.is_none());
        4 * CENT
    };
    let mut spent_by_calls = 0;
    let mut spent_by_requests = 0;
    for wave in 0..5 {
        // One after the other, so that both compete for what is left.
        let pairs = (0..20).map(|n| futures::future::join(call(wave * 20 + n), ask(wave * 20 + n)));
        for (by_call, by_request) in join_all(pairs).await {
            spent_by_calls += by_call;
            spent_by_requests += by_request;
        }
    }
    assert!(spent_by_calls > 0 && spent_by_requests > 0);
    let spent = spent_by_calls + spent_by_requests;
    let rows = accounts(&store).await;
    assert_eq!((rows[0].spent, rows[0].reserved), (spent, 0));
    assert!(spent > 90 * CENT, "the budget is used: {spent}");
}

#[tokio::test]
async fn calls_and_requests_of_a_session_are_paid_by_its_principal() {
    let store = StoreHandle::new(MemoryStore::new());
    let budgets = budget_in_dollars(BudgetScope::User);
    let team = Payer {
        user: Some("team".into()),
        ..Payer::default()
    };
    let registry = look_registry();
    let billing = BillingService::new(store.clone(), budgets.clone()).paid_by(team.clone());
    let stack = Stack::over(registry.clone())
        .layer(ten_cents_a_call(billing))
        .build()
        .expect("valid order");
    let usage = Usage {
        output: 1_000,
        ..Usage::default()
    };
    let script = [
        ScriptLine::new().call("look", json!({})).usage(usage),
        ScriptLine::new().say("done").usage(usage),
    ];
    let own = store.clone();
    let session = Session::ungated(ScriptedModel::new(script), registry)
        .stack(stack)
        .dispatcher(move |dispatcher| dispatcher.store(own))
        .principal("ann")
        .payer(team)
        .budgets(budgets)
        .prices(prices())
        .build()
        .await
        .expect("builds");
    let report = session.run("look").await.expect("runs");
    assert_eq!(report.end, RunEnd::Completed);
    let rows = accounts(&store).await;
    let found: Vec<_> = rows
        .iter()
        .map(|row| (row.account.to_string(), row.spent, row.reserved))
        .collect();
    assert_eq!(
        found,
        [("budget/user/ann/usd/total".to_owned(), 12 * CENT, 0)]
    );
}
