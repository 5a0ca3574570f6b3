//! The rules of the billing service, one test each.

use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use toolgate_core::{
    AccountKey, AccountRows, BillingService, BudgetAlert, BudgetError, BudgetPeriod, BudgetRule,
    BudgetScope, BudgetUnit, Budgets, CallId, Charge, ChargeId, ChargeLine, Cost, Expense,
    ExpenseState, MemoryStore, Payer, RecordKey, SessionId, SettledOutcome, Status, StoreError,
    StoreHandle, StoreRecord, Timestamp, TurnId, TurnInfo, UnknownPrice,
};
use toolgate_testkit::{FaultyStore, StoreCall, StoreFault};
use uuid::Uuid;

const SESSION: SessionId = SessionId::new(Uuid::from_u128(9));

fn dollars_rule(limit: u64) -> BudgetRule {
    BudgetRule::new(
        "b",
        BudgetScope::Global,
        BudgetPeriod::Total,
        BudgetUnit::Usd,
        limit,
    )
}

fn service_over(store: &StoreHandle, limit: u64) -> BillingService {
    let payer = Payer {
        session: Some(SESSION),
        ..Payer::default()
    };
    BillingService::new(store.clone(), Budgets::new([dollars_rule(limit)])).paid_by(payer)
}

fn memory_store() -> StoreHandle {
    StoreHandle::new(MemoryStore::new())
}

fn call(n: u128) -> CallId {
    CallId::new(Uuid::from_u128(n))
}

fn turn(n: u128) -> TurnId {
    TurnId::new(Uuid::from_u128(n))
}

fn cost(amount: u64) -> Expense {
    Expense::for_call(Cost::NanoUsd(amount))
}

/// Returns the charge of an expense at the beginning of time.
fn charge_for(billing: &BillingService, id: ChargeId, amount: u64) -> Charge {
    let budgets = billing.budgets();
    let at = Timestamp::EPOCH;
    let charge = budgets.build_charge(id, billing.payer(), at, &cost(amount), UnknownPrice::Refuse);
    charge.expect("known").expect("a budget applies")
}

async fn reserve(
    billing: &BillingService,
    id: ChargeId,
    amount: u64,
) -> Result<Charge, BudgetError> {
    billing.reserve(charge_for(billing, id, amount)).await
}

/// Returns what is spent and reserved in the only account.
async fn balance(store: &StoreHandle) -> (u64, u64) {
    let rows = store.accounts("", None, 10).await.expect("lists");
    assert!(rows.len() <= 1, "{rows:?}");
    rows.first().map_or((0, 0), |row| (row.spent, row.reserved))
}

async fn settle_call(store: &StoreHandle, n: u128, attempts: u32) {
    let mut settled = SettledOutcome::new(Status::Ok);
    settled.attempts = attempts;
    let record = StoreRecord::Outcome(Arc::new(settled));
    store
        .put_record_once(RecordKey::Outcome(call(n)), record)
        .await
        .expect("stores");
}

#[tokio::test]
async fn a_check_answers_as_a_reservation_would_and_reserves_nothing() {
    let store = memory_store();
    let billing = service_over(&store, 10);
    reserve(&billing, ChargeId::Call(call(1)), 6)
        .await
        .expect("enough");
    for (amount, fits) in [(4, true), (5, false)] {
        let charge = charge_for(&billing, ChargeId::Call(call(2)), amount);
        let checked = billing.check(&charge).await;
        assert_eq!(checked.is_ok(), fits, "{amount}");
        assert_eq!(balance(&store).await, (0, 6));
        let reserved = billing.reserve(charge).await;
        assert_eq!(
            checked.map_err(|error| error.to_string()),
            reserved.as_ref().map(drop).map_err(ToString::to_string)
        );
        if let Ok(charge) = reserved {
            billing.release(charge).await.expect("releases");
        }
    }
}

#[tokio::test]
async fn listeners_learn_of_each_threshold_once_even_if_another_one_panics() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let store = memory_store();
    let listener = {
        let told = told.clone();
        move |alert: &BudgetAlert, at: Timestamp| {
            assert_eq!(at, Timestamp::EPOCH);
            told.lock().expect("not poisoned").push(alert.percent);
        }
    };
    let billing = service_over(&store, 100)
        .on_alert(|_, _| panic!("a bad listener"))
        .on_alert(listener);
    let pay = async |n, amount| {
        let charge = reserve(&billing, ChargeId::Call(call(n)), amount).await;
        let expense = cost(amount);
        let settled = billing.settle(charge.expect("enough"), Some(&expense));
        let returned = settled.await.expect("books");
        let heard = std::mem::take(&mut *told.lock().expect("not poisoned"));
        assert!(returned.iter().map(|alert| alert.percent).eq(heard.clone()));
        heard
    };
    assert!(pay(1, 40).await.is_empty());
    assert_eq!(pay(2, 55).await, [50, 75, 90]);
    assert_eq!(pay(3, 5).await, [100]);
}

#[tokio::test]
async fn recovery_books_what_was_spent_and_releases_what_was_not() {
    let store = memory_store();
    let billing = service_over(&store, 1_000);
    let ids = [
        (ChargeId::Call(call(1)), 1),
        (ChargeId::Call(call(2)), 10),
        (ChargeId::Call(call(3)), 100),
        (ChargeId::Turn(turn(1)), 2),
        (ChargeId::Turn(turn(2)), 20),
    ];
    for (id, amount) in ids {
        reserve(&billing, id, amount).await.expect("enough");
    }
    settle_call(&store, 1, 1).await;
    settle_call(&store, 2, 0).await;
    // Another process, which knows only the store.
    let again = service_over(&store, 1_000);
    for _ in 0..2 {
        let recovered = again.recover_session(SESSION, |asked| async move { Ok(asked == turn(1)) });
        recovered.await.expect("recovers");
        assert_eq!(
            balance(&store).await,
            (1 + 2, 100),
            "the call that is not settled stays reserved"
        );
    }
}

#[tokio::test]
async fn reservations_are_recovered_behind_any_number_of_open_calls() {
    let store = memory_store();
    let billing = service_over(&store, 1_000);
    for n in 0..250 {
        reserve(&billing, ChargeId::Call(call(n)), 1)
            .await
            .expect("enough");
    }
    reserve(&billing, ChargeId::Turn(turn(1)), 7)
        .await
        .expect("enough");
    settle_call(&store, 249, 1).await;
    let recovered = billing.recover_session(SESSION, |_| async { Ok(true) });
    recovered.await.expect("recovers");
    assert_eq!(balance(&store).await, (8, 249));
}

#[tokio::test]
async fn without_budgets_the_store_is_never_asked() {
    let down = FaultyStore::new(MemoryStore::new(), |_, _| {
        StoreFault::Panic("must not be called")
    });
    let billing = BillingService::new(StoreHandle::new(down), Budgets::default());
    let id = ChargeId::Call(call(1));
    let payer = billing.payer();
    let charge =
        billing
            .budgets()
            .build_charge(id, payer, Timestamp::EPOCH, &cost(1), UnknownPrice::Refuse);
    assert_eq!(charge.expect("allowed"), None);
    let recovered = billing.recover(id, ExpenseState::Spent).await;
    assert_eq!(recovered.expect("nothing to do"), []);
    let recovered = billing.recover_session(SESSION, |_| async { Ok(true) });
    assert_eq!(recovered.await.expect("nothing to do"), []);
}

#[tokio::test]
async fn a_store_that_is_down_allows_nothing() {
    let down = FaultyStore::new(MemoryStore::new(), |asked, _| match asked {
        StoreCall::Reserve | StoreCall::Account => {
            StoreFault::Fail(StoreError::Backend("down".into()))
        }
        _ => StoreFault::Pass,
    });
    let billing = service_over(&StoreHandle::new(down), 10);
    let charge = charge_for(&billing, ChargeId::Call(call(1)), 1);
    let checked = billing.check(&charge).await;
    assert!(matches!(checked, Err(BudgetError::Store(_))), "{checked:?}");
    let reserved = billing.reserve(charge).await;
    assert!(
        matches!(reserved, Err(BudgetError::Store(_))),
        "{reserved:?}"
    );
}

#[test]
fn the_principal_of_a_turn_pays_in_place_of_the_configured_user() {
    let configured = Payer {
        org: Some("acme".into()),
        user: Some("team".into()),
        ..Payer::default()
    };
    let mut info = TurnInfo::new(SESSION, turn(1));
    info.run = Some(4);
    let unnamed = configured.for_turn(&info);
    assert_eq!(unnamed.user.as_deref(), Some("team"));
    info.principal = Some("ann".into());
    let named = configured.for_turn(&info);
    assert_eq!(
        (named.org.as_deref(), named.user.as_deref()),
        (Some("acme"), Some("ann"))
    );
    assert_eq!((named.session, named.run), (Some(SESSION), Some(4)));
}

/// How an expense ends.
#[derive(Debug, Clone, Copy)]
enum PlannedEnd {
    Settle,
    Release,
    /// The process is lost, and another one recovers.
    Lose(ExpenseState),
}

/// An expense of a tool or a model: the reserved amount, the part of it that it costs in percent,
/// and how it ends.
fn any_expense() -> impl Strategy<Value = (bool, u64, u64, PlannedEnd)> {
    let end = prop_oneof![
        3 => Just(PlannedEnd::Settle),
        1 => Just(PlannedEnd::Release),
        1 => Just(PlannedEnd::Lose(ExpenseState::Spent)),
        1 => Just(PlannedEnd::Lose(ExpenseState::Unspent)),
    ];
    (any::<bool>(), 1_u64..40, 0_u64..=100, end)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn calls_and_requests_together_never_exceed_a_budget_and_lose_no_booking(
        plan in prop::collection::vec(any_expense(), 1..40),
    ) {
        const LIMIT: u64 = 100;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let store = memory_store();
            let billing = service_over(&store, LIMIT);
            let tasks: Vec<_> = plan
                .into_iter()
                .enumerate()
                .map(|(n, (is_call, amount, percent, end))| {
                    let store = store.clone();
                    let billing = billing.clone();
                    tokio::spawn(async move {
                        let id = if is_call {
                            ChargeId::Call(call(n as u128))
                        } else {
                            ChargeId::Turn(turn(n as u128))
                        };
                        let Ok(charge) = reserve(&billing, id, amount).await else {
                            return 0;
                        };
                        let (spent, reserved) = balance(&store).await;
                        assert!(spent + reserved <= LIMIT, "{spent} spent, {reserved} reserved");
                        tokio::task::yield_now().await;
                        let actual = amount * percent / 100;
                        match end {
                            PlannedEnd::Settle => {
                                // Twice, as after an answer that was lost: it is booked once.
                                for charge in [charge.clone(), charge] {
                                    let expense = cost(actual);
                                    let booked = billing.settle(charge, Some(&expense));
                                    booked.await.expect("books");
                                }
                                actual
                            }
                            PlannedEnd::Release => {
                                billing.release(charge).await.expect("releases");
                                0
                            }
                            PlannedEnd::Lose(state) => {
                                billing.recover(id, state).await.expect("recovers");
                                if state == ExpenseState::Spent { amount } else { 0 }
                            }
                        }
                    })
                })
                .collect();
            let mut spent = 0;
            for task in tasks {
                spent += task.await.expect("no violation");
            }
            assert_eq!(balance(&store).await, (spent, 0));
        });
    }
}

proptest::proptest! {
    #[test]
    fn accounts_are_in_the_order_of_their_texts(
        texts in proptest::collection::vec(
            ("user|org|tool", "[a-c/]{0,3}", "usd|calls", "2026-1[01]|total"),
            2,
        ),
    ) {
        let key = |(scope, value, unit, period): &(String, String, String, String)| {
            format!("budget/{scope}/{value}/{unit}/{period}").parse::<AccountKey>().expect("a key")
        };
        let keys: Vec<AccountKey> = texts.iter().map(key).collect();
        proptest::prop_assert_eq!(
            keys[0].cmp(&keys[1]),
            keys[0].to_string().cmp(&keys[1].to_string())
        );
    }
}

#[test]
fn a_charge_that_is_short_in_one_account_reserves_in_none() {
    let line = |account: &str, limit| ChargeLine {
        account: account.parse().expect("a key"),
        limit,
        amount: 5,
    };
    let charge = Charge {
        id: ChargeId::Call(CallId::new(Uuid::from_u128(1))),
        session: None,
        at: Timestamp::EPOCH,
        lines: vec![
            line("budget/global/all/calls/total", 10),
            line("budget/user/ann/calls/total", 4),
        ],
    };
    let mut rows = AccountRows::new();
    assert!(charge.reserve_in(&mut rows).is_err());
    assert!(rows.values().all(|row| row.reserved == 0));
}
