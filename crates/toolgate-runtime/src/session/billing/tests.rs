//! The rules of billing model requests, one test each.

use super::*;
use futures::future::join_all;
use std::time::Duration;
use toolgate_core::{
    AccountKey, BudgetPeriod, BudgetRule, BudgetScope, BudgetUnit, ExpenseState, MemoryStore,
    PriceTable, StoreHandle,
};
use toolgate_testkit::{FaultyStore, StoreCall, StoreFault, TestClock};

use BudgetPeriod::{Day, Total};
use BudgetUnit::{Requests, Tokens, Usd};

const DOLLAR: u64 = 1_000_000_000;

/// Input costs nothing, so that sums are easy: a million output tokens cost one dollar, or ten.
fn prices() -> Prices {
    let table = r#"{ "providers": { "acme": { "models": {
        "small": { "input": 0, "output": 1 }, "large": { "input": 0, "output": 10 } } } } }"#;
    serde_json::from_str::<PriceTable>(table)
        .expect("a table")
        .into()
}

fn model(name: &str) -> ModelName {
    ModelName::new("acme", name)
}

fn turn(n: u128) -> TurnId {
    TurnId::new(uuid::Uuid::from_u128(n))
}

fn rule(period: BudgetPeriod, unit: BudgetUnit, limit: u64) -> BudgetRule {
    BudgetRule::new("b", BudgetScope::Global, period, unit, limit)
}

/// A request with this output limit.
fn request(max_tokens: u32) -> ModelRequest {
    ModelRequest {
        max_tokens: Some(max_tokens),
        ..ModelRequest::default()
    }
}

fn written(output: u64) -> Option<Usage> {
    Some(Usage {
        output,
        ..Usage::default()
    })
}

struct Bench {
    store: StoreHandle,
    clock: TestClock,
    spending: ModelBilling,
}

fn bench(rules: impl IntoIterator<Item = BudgetRule>) -> Bench {
    let store = StoreHandle::new(MemoryStore::new());
    let clock = TestClock::new();
    let service = BillingService::new(store.clone(), Budgets::new(rules));
    let spending = ModelBilling::new(service, Arc::new(clock.clone())).with_prices(prices());
    Bench {
        store,
        clock,
        spending,
    }
}

impl Bench {
    /// Returns what is spent and reserved in the only account.
    async fn spent_and_reserved(&self) -> (u64, u64) {
        let rows = self.store.accounts("", None, 10).await.expect("lists");
        assert_eq!(rows.len(), 1, "{rows:?}");
        (rows[0].spent, rows[0].reserved)
    }

    async fn pay(&self, n: u128, tokens: u32) -> Result<Vec<u8>, BudgetError> {
        let hold = self
            .spending
            .reserve(turn(n), &request(tokens), &model("small"))
            .await?;
        let paid = self.spending.settle(hold, written(tokens.into())).await;
        assert!(paid.unbooked.is_none());
        Ok(paid.alerts.into_iter().map(|alert| alert.percent).collect())
    }
}

#[tokio::test]
async fn without_a_budget_the_store_is_not_asked() {
    let down = FaultyStore::new(MemoryStore::new(), |_, _| {
        StoreFault::Panic("must not be called")
    });
    let service = BillingService::new(StoreHandle::new(down), Budgets::default());
    let spending = ModelBilling::new(service, Arc::new(TestClock::new())).with_prices(prices());
    let hold = spending
        .reserve(turn(1), &request(10), &model("small"))
        .await
        .expect("allowed");
    assert!(hold.is_empty());
    assert_eq!(
        spending.settle(hold, written(5)).await.cost,
        Cost::NanoUsd(5_000)
    );
    let hold = spending
        .reserve(turn(1), &request(10), &model("unheard-of"))
        .await
        .expect("allowed");
    assert_eq!(spending.settle(hold, written(5)).await.cost, Cost::Unknown);
    let service = spending.service();
    let lost = service.recover(ChargeId::Turn(turn(1)), ExpenseState::Spent);
    assert_eq!(lost.await.expect("nothing to do"), []);
    let session = SessionId::new(uuid::Uuid::from_u128(9));
    let lost = service.recover_session(session, |_| async { panic!("must not be called") });
    assert_eq!(lost.await.expect("nothing to do"), []);
}

#[tokio::test]
async fn fifty_requests_at_once_against_a_budget_for_ten_spend_ten() {
    let bench = bench([rule(Total, Requests, 10)]);
    let asked = (0..50).map(|n| {
        let spending = bench.spending.clone();
        async move {
            let hold = spending
                .reserve(turn(n), &request(1), &model("small"))
                .await
                .ok()?;
            tokio::task::yield_now().await;
            Some(spending.settle(hold, written(1)).await.cost)
        }
    });
    let answered = join_all(asked).await.into_iter().flatten().count();
    assert_eq!((answered, bench.spent_and_reserved().await), (10, (10, 0)));
}

#[tokio::test]
async fn a_jump_reports_every_threshold_once_and_the_next_day_starts_anew() {
    let bench = bench([rule(Day, Usd, DOLLAR)]);
    assert!(bench.pay(1, 400_000).await.expect("enough").is_empty());
    assert_eq!(bench.pay(2, 550_000).await.expect("enough"), [50, 75, 90]);
    assert!(bench.pay(3, 10_000).await.expect("enough").is_empty());
    assert_eq!(bench.pay(4, 40_000).await.expect("the rest"), [100]);
    assert!(matches!(
        bench.pay(5, 1).await,
        Err(BudgetError::Exceeded { .. })
    ));
    bench.clock.advance(Duration::from_secs(24 * 3600));
    assert_eq!(
        bench.pay(6, 950_000).await.expect("a new day"),
        [50, 75, 90]
    );
}

#[tokio::test]
async fn a_request_over_the_budget_is_rejected_before_it_is_sent_with_the_rest() {
    let bench = bench([rule(Total, Usd, DOLLAR)]);
    bench.pay(1, 900_000).await.expect("enough");
    let refused = bench
        .spending
        .reserve(turn(2), &request(200_000), &model("small"))
        .await
        .expect_err("too much");
    let text = "it would take $0.200000, but only $0.100000 is left of the budget b for total";
    assert_eq!(refused.to_string(), text);
    assert_eq!(bench.spent_and_reserved().await, (900_000_000, 0));
}

#[tokio::test]
async fn a_request_that_runs_over_midnight_is_charged_to_its_first_day() {
    let bench = bench([rule(Day, Requests, 1)]);
    let hold = bench
        .spending
        .reserve(turn(1), &request(1), &model("small"))
        .await
        .expect("enough");
    bench.clock.advance(Duration::from_secs(24 * 3600));
    assert_eq!(
        bench.spending.settle(hold, written(1)).await.alerts[0].period,
        "2026-01-01"
    );
    bench
        .spending
        .reserve(turn(2), &request(1), &model("small"))
        .await
        .map(drop)
        .expect("the next day is untouched");
}

#[tokio::test]
async fn an_unknown_price_is_rejected_where_money_counts_unless_it_is_allowed() {
    let bench = bench([rule(Total, Usd, DOLLAR)]);
    let unknown = model("unheard-of");
    let refused = bench.spending.reserve(turn(1), &request(1), &unknown).await;
    assert!(
        matches!(refused, Err(BudgetError::UnknownPrice { .. })),
        "{refused:?}"
    );
    let lenient = bench.spending.clone().on_unknown_price(UnknownPrice::Allow);
    let hold = lenient
        .reserve(turn(1), &request(1), &unknown)
        .await
        .expect("allowed");
    assert_eq!(lenient.settle(hold, written(1)).await.cost, Cost::Unknown);
}

#[tokio::test]
async fn tokens_count_without_prices() {
    let bench = bench([rule(Total, Tokens, 100)]);
    let unknown = model("unheard-of");
    let hold = bench
        .spending
        .reserve(turn(1), &request(90), &unknown)
        .await
        .expect("enough");
    let usage = Usage {
        input: 5,
        cache_read: 6,
        cache_write: 7,
        output: 8,
        reasoning: 4,
    };
    let paid = bench.spending.settle(hold, Some(usage)).await;
    assert_eq!(
        (paid.cost, bench.spent_and_reserved().await),
        (Cost::Unknown, (26, 0))
    );
    assert!(
        bench
            .spending
            .reserve(turn(2), &request(75), &unknown)
            .await
            .is_err()
    );
}

#[tokio::test]
async fn a_reply_without_usage_is_charged_in_full_and_its_cost_is_unknown() {
    let bench = bench([rule(Total, Usd, DOLLAR)]);
    let hold = bench
        .spending
        .reserve(turn(1), &request(600_000), &model("small"))
        .await
        .expect("enough");
    let paid = bench.spending.settle(hold, None).await;
    assert_eq!((paid.cost, paid.alerts.len()), (Cost::Unknown, 1));
    assert_eq!(bench.spent_and_reserved().await, (600_000_000, 0));
}

#[tokio::test]
async fn the_reservation_of_an_unsent_request_is_released() {
    let bench = bench([rule(Total, Requests, 1)]);
    for n in 0..3 {
        let hold = bench
            .spending
            .reserve(turn(n), &request(1), &model("small"))
            .await
            .expect("enough");
        bench.spending.release(hold).await.expect("gives back");
    }
    assert_eq!(bench.spent_and_reserved().await, (0, 0));
}

#[tokio::test]
async fn reservations_of_a_lost_process_are_charged_if_sent_and_released_if_not() {
    for (state, spent, alerts) in [
        (ExpenseState::Spent, 600_000_000, 1),
        (ExpenseState::Unspent, 0, 0),
    ] {
        let bench = bench([rule(Total, Usd, DOLLAR)]);
        let lost = bench
            .spending
            .reserve(turn(1), &request(600_000), &model("small"))
            .await
            .expect("enough");
        drop(lost);
        assert_eq!(
            bench.spent_and_reserved().await,
            (0, 600_000_000),
            "it counts until it is recovered"
        );
        let budgets = bench.spending.service().budgets().clone();
        let again = BillingService::new(bench.store.clone(), budgets);
        for alerts in [alerts, 0] {
            let lost = again.recover(ChargeId::Turn(turn(1)), state);
            assert_eq!(lost.await.expect("recovers").len(), alerts);
        }
        assert_eq!(bench.spent_and_reserved().await, (spent, 0), "{state:?}");
    }
}

#[tokio::test]
async fn unreachable_accounts_allow_nothing() {
    let down = FaultyStore::new(MemoryStore::new(), |call, _| match call {
        StoreCall::Reserve => StoreFault::Fail(StoreError::Backend("down".into())),
        _ => StoreFault::Pass,
    });
    let budgets = Budgets::new([rule(Total, Requests, 10)]);
    let service = BillingService::new(StoreHandle::new(down), budgets);
    let spending = ModelBilling::new(service, Arc::new(TestClock::new()));
    let refused = spending
        .reserve(turn(1), &request(1), &model("small"))
        .await;
    assert!(matches!(refused, Err(BudgetError::Store(_))), "{refused:?}");
}

#[tokio::test]
async fn what_cannot_be_charged_stays_reserved() {
    let store = FaultyStore::new(MemoryStore::new(), |call, _| match call {
        StoreCall::SettleCharge => StoreFault::Fail(StoreError::Backend("down".into())),
        _ => StoreFault::Pass,
    });
    let budgets = Budgets::new([rule(Total, Requests, 1)]);
    let service = BillingService::new(StoreHandle::new(store.clone()), budgets);
    let spending = ModelBilling::new(service, Arc::new(TestClock::new())).with_prices(prices());
    let hold = spending
        .reserve(turn(1), &request(1), &model("small"))
        .await
        .expect("enough");
    let paid = spending.settle(hold, written(1)).await;
    assert_eq!(
        paid.cost,
        Cost::NanoUsd(1_000),
        "the cost is known all the same"
    );
    assert!(paid.unbooked.is_some());
    assert!(
        spending
            .reserve(turn(2), &request(1), &model("small"))
            .await
            .is_err()
    );
}

#[tokio::test]
async fn the_model_that_was_used_is_the_one_that_is_charged() {
    let bench = bench([rule(Total, Usd, DOLLAR)]);
    let mut hold = bench
        .spending
        .reserve(turn(1), &request(10), &model("small"))
        .await
        .expect("enough");
    let routed = RoutedModel {
        requested: "acme:small".into(),
        selected: "acme:large".into(),
        reason: "heavy".into(),
        weight: None,
    };
    hold.use_routed_model(&routed);
    assert_eq!(
        bench.spending.settle(hold, written(10)).await.cost,
        Cost::NanoUsd(100_000)
    );
    let careful = bench.spending.clone().may_use([model("large")]);
    let hold = careful
        .reserve(turn(2), &request(10), &model("small"))
        .await
        .expect("enough");
    assert_eq!(
        bench.spent_and_reserved().await,
        (100_000, 100_000),
        "the highest price is reserved"
    );
    careful.release(hold).await.expect("gives back");
    let unsure = bench.spending.clone().may_use([model("unheard-of")]);
    let refused = unsure.reserve(turn(3), &request(10), &model("small")).await;
    assert!(matches!(refused, Err(BudgetError::UnknownPrice { .. })));
}

#[tokio::test]
async fn every_payer_has_an_account_and_the_smallest_rest_decides() {
    let user = BudgetRule::new("mine", BudgetScope::User, Total, Requests, 1);
    let bench = bench([
        user,
        BudgetRule::new("ours", BudgetScope::Org, Total, Requests, 2),
    ]);
    let as_user = |name: &str| {
        let payer = Payer {
            org: Some("acme".into()),
            user: Some(name.into()),
            ..Payer::default()
        };
        bench.spending.for_payer(payer)
    };
    let ask = async |n, who: &str| {
        as_user(who)
            .reserve(turn(n), &request(1), &model("small"))
            .await
            .map(drop)
    };
    ask(1, "ann").await.expect("her first");
    let hers = ask(2, "ann").await.expect_err("her second");
    assert!(hers.to_string().contains("mine (user ann)"), "{hers}");
    ask(3, "bob").await.expect("his first");
    let ours = ask(4, "eve").await.expect_err("together too many");
    assert!(ours.to_string().contains("ours (org acme)"), "{ours}");
    let key: AccountKey = "budget/user/eve/requests/total"
        .parse()
        .expect("an account");
    assert_eq!(
        bench.store.account(&key).await.expect("reads"),
        None,
        "nothing of hers is reserved"
    );
    let without_payer = bench
        .spending
        .reserve(turn(5), &request(1), &model("small"))
        .await;
    assert!(
        matches!(without_payer, Err(BudgetError::UnknownPayer { .. })),
        "{without_payer:?}"
    );
}

#[test]
fn the_estimate_counts_what_the_model_reads() {
    let said = |text: &str| Arc::new(Message::user(text));
    let mut request = ModelRequest {
        instructions: Some("fg".into()),
        ..ModelRequest::default()
    };
    request.messages.extend([said("abc"), said("de")]);
    assert_eq!(request_bytes(&request), 7);
    let picture = Media::from_base64("image/png", "A".repeat(10_000_000));
    let shown = Message::new(
        toolgate_core::Role::User,
        vec![PartContent::Media(picture).into()],
    );
    assert_eq!(
        message_bytes(&shown),
        PICTURE,
        "a larger image does not count more"
    );
    let paper = Media::from_base64("application/pdf", "A".repeat(10_000_000));
    let shown = Message::new(
        toolgate_core::Role::User,
        vec![PartContent::Media(paper).into()],
    );
    assert_eq!(message_bytes(&shown), 10_000_000);
}

#[tokio::test]
async fn a_request_is_found_by_the_session_that_asks_even_if_another_one_pays() {
    let bench = bench([rule(Total, Requests, 10)]);
    let session = |n| SessionId::new(uuid::Uuid::from_u128(n));
    let payer = Payer {
        session: Some(session(9)),
        ..Payer::default()
    };
    let delegated = bench.spending.for_payer(payer).for_session(session(10));
    let hold = delegated
        .reserve(turn(1), &request(1), &model("small"))
        .await;
    drop(hold.expect("enough"));
    let recover = async |n| {
        let lost = delegated
            .service()
            .recover_session(session(n), |_| async { Ok(true) });
        lost.await.expect("recovers");
        bench.spent_and_reserved().await
    };
    assert_eq!(recover(9).await, (0, 1));
    assert_eq!(recover(10).await, (1, 0));
}
