//! Several processes that spend from the same accounts: here several stores over one database.

use futures::future::join_all;
use toolgate_core::{
    AccountRow, BillingService, BudgetPeriod, BudgetRule, BudgetScope, BudgetUnit, Budgets, CallId,
    Charge, ChargeFilter, ChargeId, ChargeLine, ExpenseState, IdSource, StoreHandle, Timestamp,
};
use toolgate_store::SqliteStore;
use toolgate_testkit::CountingIds;

/// Returns a charge on two accounts, listed in either order.
fn charge(ids: &dyn IdSource, turned: bool) -> Charge {
    let line = |account: &str, limit| ChargeLine {
        account: account.parse().expect("an account"),
        limit,
        amount: 1,
    };
    let mut lines = vec![
        line("budget/global/all/calls/total", 10),
        line("budget/user/ann/calls/total", 1_000),
    ];
    if turned {
        lines.reverse();
    }
    Charge {
        id: ChargeId::Call(CallId::from_source(ids)),
        session: None,
        at: Timestamp::EPOCH,
        lines,
    }
}

async fn fifty_calls_against_a_budget_for_ten_spend_ten(stores: &[StoreHandle]) {
    let ids = CountingIds::new();
    let wanted: Vec<_> = (0..50)
        .map(|n| (&stores[n % stores.len()], charge(&ids, n % 3 == 0)))
        .collect();
    let reserved = join_all(
        wanted
            .into_iter()
            .map(|(store, charge)| store.reserve(charge)),
    )
    .await;
    let won: Vec<_> = reserved.into_iter().flatten().collect();
    assert_eq!(won.len(), 10);
    // Half of them are closed twice, by different stores at the same time. They count once.
    let ends = won
        .iter()
        .enumerate()
        .flat_map(|(n, charge)| (0..=n % 2).map(move |again| (n + again, charge)));
    let ends =
        ends.map(|(n, charge)| stores[n % stores.len()].settle_charge(charge.clone(), vec![1, 1]));
    let moved = join_all(ends)
        .await
        .into_iter()
        .collect::<Result<Vec<_>, _>>()
        .expect("are booked");
    let mut steps: Vec<_> = moved
        .iter()
        .flatten()
        .filter(|moved| &*moved.account.value == "ann")
        .collect();
    steps.sort_by_key(|moved| moved.before);
    assert!(
        steps
            .iter()
            .map(|moved| (moved.before, moved.after))
            .eq((0..10).map(|n| (n, n + 1))),
        "{steps:?}"
    );
    let rows = stores[0]
        .accounts("budget/", None, 10)
        .await
        .expect("lists");
    assert!(
        rows.iter().all(
            |AccountRow {
                 spent, reserved, ..
             }| (*spent, *reserved) == (10, 0)
        ),
        "{rows:?}"
    );
    assert_eq!(
        stores[1]
            .charges(ChargeFilter::default())
            .await
            .expect("lists"),
        []
    );
}

#[tokio::test]
async fn stores_on_one_file_never_overshoot_together() {
    let directory = tempfile::tempdir().expect("a directory");
    let open = || SqliteStore::open(directory.path().join("toolgate.db")).expect("opens");
    let stores = [(); 3].map(|()| StoreHandle::new(open()));
    fifty_calls_against_a_budget_for_ten_spend_ten(&stores).await;
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn stores_on_one_postgres_never_overshoot_together() {
    let Some(database) = crate::support::TestDatabase::create().await else {
        return;
    };
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(
            toolgate_store::open_store(&database.url())
                .await
                .expect("opens"),
        );
    }
    fifty_calls_against_a_budget_for_ten_spend_ten(&stores).await;
    drop(stores);
    database.drop().await;
}

#[tokio::test]
async fn reserved_amounts_are_found_after_the_process_is_gone() {
    let directory = tempfile::tempdir().expect("a directory");
    let open = || {
        StoreHandle::new(SqliteStore::open(directory.path().join("toolgate.db")).expect("opens"))
    };
    let ids = CountingIds::new();
    let store = open();
    let left = store.reserve(charge(&ids, false)).await.expect("reserves");
    drop(store);
    let store = open();
    assert_eq!(
        store.charges(ChargeFilter::default()).await.expect("lists"),
        std::slice::from_ref(&left)
    );
    store.release_charge(left).await.expect("releases");
    let rows = store.accounts("", None, 10).await.expect("lists");
    assert!(
        rows.iter().all(|row| (row.spent, row.reserved) == (0, 0)),
        "{rows:?}"
    );
}

#[tokio::test]
async fn reservations_in_old_files_are_recovered() {
    for version in ["v2", "v3"] {
        for (state, tokens, dollars) in [
            (ExpenseState::Spent, 32, 12),
            (ExpenseState::Unspent, 30, 5),
        ] {
            let directory = tempfile::tempdir().expect("a directory");
            let path = directory.path().join("old.sqlite");
            let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");
            std::fs::copy(format!("{fixtures}/{version}.sqlite"), &path).expect("copies");
            let store = StoreHandle::new(SqliteStore::open(&path).expect("opens"));
            let open = store.charges(ChargeFilter::default()).await.expect("lists");
            let [left] = open.as_slice() else {
                panic!("{open:?}");
            };
            let rule = BudgetRule::new(
                "tokens",
                BudgetScope::Global,
                BudgetPeriod::Month,
                BudgetUnit::Tokens,
                1_000,
            );
            let billing = BillingService::new(store.clone(), Budgets::new([rule]));
            for _ in 0..2 {
                billing.recover(left.id, state).await.expect("recovers");
            }
            let rows = store.accounts("", None, 10).await.expect("lists");
            let amounts: Vec<_> = rows.iter().map(|row| (row.spent, row.reserved)).collect();
            assert_eq!(amounts, [(tokens, 0), (dollars, 0)], "{version} {state:?}");
        }
    }
}
