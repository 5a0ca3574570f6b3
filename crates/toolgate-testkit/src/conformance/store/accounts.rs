//! The store rules for budgets: accounts are never overdrawn, and charges are settled once.

use futures::future::join_all;
use toolgate_core::{
    AccountKey, AccountMovement, AccountRow, BudgetScope, BudgetUnit, CallId, Charge, ChargeFilter,
    ChargeId, ChargeLine, IdSource, MAX_AMOUNT, SessionId, StoreError, StoreHandle, Timestamp,
    TurnId,
};

use super::{StoreRule, ensure, error_text};

pub(super) const RULES: [(&str, StoreRule); 9] = [
    ("an_unused_account_does_not_exist", |s, i| {
        Box::pin(unknown_account(s, i))
    }),
    ("a_charge_is_reserved_whole_or_not_at_all", |s, i| {
        Box::pin(reserves_all_or_none(s, i))
    }),
    ("an_open_charge_is_not_reserved_again", |s, i| {
        Box::pin(reserves_once(s, i))
    }),
    ("a_charge_is_settled_or_released_once", |s, i| {
        Box::pin(ends_a_charge_once(s, i))
    }),
    (
        "of_two_charges_with_one_id_only_the_open_one_can_be_ended",
        |s, i| Box::pin(ends_only_the_open_charge(s, i)),
    ),
    (
        "concurrent_charges_never_exceed_the_limit_together",
        |s, i| Box::pin(never_exceeds_the_limit(s, i)),
    ),
    (
        "charges_settled_concurrently_each_return_their_own_movement",
        |s, i| Box::pin(returns_own_movements(s, i)),
    ),
    ("open_charges_are_listed_by_session_and_in_pages", |s, i| {
        Box::pin(lists_open_charges(s, i))
    }),
    ("accounts_are_listed_by_name_prefix", |s, i| {
        Box::pin(lists_accounts(s, i))
    }),
];

/// Returns an account that no other rule uses. Its value shows that any text is allowed.
fn fresh_account(ids: &dyn IdSource, period: &str) -> AccountKey {
    let value = format!("{}/\u{0}ä", CallId::from_source(ids)).into();
    AccountKey {
        scope: BudgetScope::User,
        value,
        unit: BudgetUnit::Usd,
        period: period.into(),
    }
}

fn charge_line(account: &AccountKey, limit: u64, amount: u64) -> ChargeLine {
    ChargeLine {
        account: account.clone(),
        limit,
        amount,
    }
}

fn fresh_charge(ids: &dyn IdSource, lines: Vec<ChargeLine>) -> Charge {
    let at = Timestamp::from_micros(1_794_776_226_000_001);
    Charge {
        id: ChargeId::Call(CallId::from_source(ids)),
        session: None,
        at,
        lines,
    }
}

async fn check_balance(
    store: &StoreHandle,
    account: &AccountKey,
    spent: u64,
    reserved: u64,
) -> Result<(), String> {
    let found = store.account(account).await.map_err(error_text)?;
    let wanted = AccountRow {
        account: account.clone(),
        spent,
        reserved,
    };
    ensure(
        found.as_ref() == Some(&wanted),
        format!("not {spent} spent and {reserved} reserved: {found:?}"),
    )
}

async fn unknown_account(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let unknown_account = fresh_account(ids, "total");
    ensure(
        store
            .account(&unknown_account)
            .await
            .map_err(error_text)?
            .is_none(),
        "there is an account",
    )?;
    let rejected = store
        .reserve(fresh_charge(ids, vec![charge_line(&unknown_account, 5, 6)]))
        .await;
    ensure(
        matches!(rejected, Err(StoreError::AccountShort { left: 5, .. })),
        format!("{rejected:?}"),
    )?;
    ensure(
        store
            .account(&unknown_account)
            .await
            .map_err(error_text)?
            .is_none(),
        "a rejected charge created an account",
    )
}

async fn reserves_all_or_none(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let rich = fresh_account(ids, "2026-11");
    let poor = fresh_account(ids, "total");
    store
        .reserve(fresh_charge(
            ids,
            vec![charge_line(&rich, 100, 1), charge_line(&poor, 2, 1)],
        ))
        .await
        .map_err(error_text)?;
    // The first account could pay; it must not be touched because the second cannot.
    let too_much = fresh_charge(
        ids,
        vec![charge_line(&rich, 100, 10), charge_line(&poor, 2, 2)],
    );
    match store.reserve(too_much.clone()).await {
        Err(StoreError::AccountShort {
            account,
            wanted: 2,
            left: 1,
        }) if account == poor => {}
        other => return Err(format!("{other:?}")),
    }
    check_balance(store, &rich, 0, 1).await?;
    check_balance(store, &poor, 0, 1).await?;
    let open = store
        .charges(ChargeFilter::for_charge(too_much.id))
        .await
        .map_err(error_text)?;
    ensure(open.is_empty(), "a rejected charge is open")
}

async fn reserves_once(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let payer = fresh_account(ids, "total");
    let first = fresh_charge(ids, vec![charge_line(&payer, 10, 6)]);
    ensure(
        store.reserve(first.clone()).await.map_err(error_text)? == first,
        "another charge was returned",
    )?;
    let again = Charge {
        lines: vec![charge_line(&payer, 10, 9)],
        ..first.clone()
    };
    ensure(
        store.reserve(again).await.map_err(error_text)? == first,
        "it was reserved again",
    )?;
    let many = join_all((0..8).map(|_| store.reserve(first.clone()))).await;
    ensure(
        many.iter()
            .all(|one| one.as_ref().is_ok_and(|one| *one == first)),
        "not all callers got the open charge",
    )?;
    check_balance(store, &payer, 0, 6).await
}

async fn ends_a_charge_once(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let payer = fresh_account(ids, "total");
    let first = store
        .reserve(fresh_charge(ids, vec![charge_line(&payer, 10, 6)]))
        .await
        .map_err(error_text)?;
    let moved = store
        .settle_charge(first.clone(), vec![4])
        .await
        .map_err(error_text)?;
    ensure(
        moved
            == [AccountMovement {
                account: payer.clone(),
                before: 0,
                after: 4,
            }],
        format!("{moved:?}"),
    )?;
    for _ in 0..2 {
        let moved = store
            .settle_charge(first.clone(), vec![4])
            .await
            .map_err(error_text)?;
        ensure(moved.is_empty(), "it was charged twice")?;
        store
            .release_charge(first.clone())
            .await
            .map_err(error_text)?;
    }
    check_balance(store, &payer, 4, 0).await?;
    let second = store
        .reserve(fresh_charge(ids, vec![charge_line(&payer, 10, 6)]))
        .await
        .map_err(error_text)?;
    store
        .release_charge(second.clone())
        .await
        .map_err(error_text)?;
    ensure(
        store
            .settle_charge(second, vec![6])
            .await
            .map_err(error_text)?
            .is_empty(),
        "it was charged after its release",
    )?;
    check_balance(store, &payer, 4, 0).await?;
    let third = store
        .reserve(fresh_charge(ids, vec![charge_line(&payer, 10, 5)]))
        .await
        .map_err(error_text)?;
    let moved = store
        .settle_charge(third, Vec::new())
        .await
        .map_err(error_text)?;
    ensure(
        moved[0].after == 9,
        "a charge without an actual amount is not settled at the reserved amount",
    )?;
    let costly = store
        .reserve(fresh_charge(ids, vec![charge_line(&payer, u64::MAX, 1)]))
        .await
        .map_err(error_text)?;
    let moved = store
        .settle_charge(costly, vec![u64::MAX])
        .await
        .map_err(error_text)?;
    ensure(moved[0].after == MAX_AMOUNT, format!("{moved:?}"))
}

async fn ends_only_the_open_charge(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let payer = fresh_account(ids, "2026-11-16");
    let other = fresh_account(ids, "2026-11-17");
    let first = store
        .reserve(fresh_charge(ids, vec![charge_line(&payer, 10, 6)]))
        .await
        .map_err(error_text)?;
    store
        .release_charge(first.clone())
        .await
        .map_err(error_text)?;
    // The same id in a new period: a late answer to the old charge must not end the new one.
    let later = Charge {
        lines: vec![charge_line(&other, 10, 3)],
        ..first.clone()
    };
    let later = store.reserve(later).await.map_err(error_text)?;
    store
        .release_charge(first.clone())
        .await
        .map_err(error_text)?;
    ensure(
        store
            .settle_charge(first, vec![6])
            .await
            .map_err(error_text)?
            .is_empty(),
        "an old charge was settled",
    )?;
    check_balance(store, &payer, 0, 0).await?;
    check_balance(store, &other, 0, 3).await?;
    store
        .settle_charge(later, vec![2])
        .await
        .map_err(error_text)?;
    check_balance(store, &other, 2, 0).await
}

async fn never_exceeds_the_limit(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let one = fresh_account(ids, "total");
    let two = fresh_account(ids, "2026-11");
    let wanted = |n: u64| match n % 2 {
        // In both orders: a store that locks accounts as they are listed would deadlock.
        0 => vec![charge_line(&one, 10, 1), charge_line(&two, 1_000, 1)],
        _ => vec![charge_line(&two, 1_000, 1), charge_line(&one, 10, 1)],
    };
    let charges: Vec<_> = (0..50).map(|n| fresh_charge(ids, wanted(n))).collect();
    let reserved = join_all(charges.into_iter().map(|charge| store.reserve(charge))).await;
    let won: Vec<_> = reserved.into_iter().flatten().collect();
    ensure(
        won.len() == 10,
        format!("{} of 50 were reserved, not 10", won.len()),
    )?;
    check_balance(store, &one, 0, 10).await?;
    let settled = join_all(
        won.into_iter()
            .map(|charge| store.settle_charge(charge, vec![1, 1])),
    )
    .await;
    ensure(
        settled.iter().all(Result::is_ok),
        "some could not be settled",
    )?;
    check_balance(store, &one, 10, 0).await?;
    check_balance(store, &two, 10, 0).await
}

async fn returns_own_movements(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let payer = fresh_account(ids, "total");
    let mut open = Vec::new();
    for _ in 0..20 {
        open.push(
            store
                .reserve(fresh_charge(ids, vec![charge_line(&payer, 100, 5)]))
                .await
                .map_err(error_text)?,
        );
    }
    let settled = join_all(
        open.into_iter()
            .map(|charge| store.settle_charge(charge, vec![3])),
    )
    .await;
    let moved = settled
        .into_iter()
        .collect::<Result<Vec<_>, _>>()
        .map_err(error_text)?;
    let mut steps: Vec<_> = moved
        .iter()
        .flatten()
        .map(|moved| (moved.before, moved.after))
        .collect();
    steps.sort_unstable();
    ensure(
        steps == (0..20).map(|n| (n * 3, n * 3 + 3)).collect::<Vec<_>>(),
        format!("{steps:?}"),
    )
}

async fn lists_open_charges(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let session = SessionId::from_source(ids);
    let payer = fresh_account(ids, "total");
    let turn = Charge {
        id: ChargeId::Turn(TurnId::from_source(ids)),
        ..fresh_charge(ids, vec![charge_line(&payer, 100, 1)])
    };
    let mut open: Vec<_> = (0..3)
        .map(|_| fresh_charge(ids, vec![charge_line(&payer, 100, 1)]))
        .chain([turn])
        .collect();
    open.iter_mut()
        .for_each(|charge| charge.session = Some(session));
    for charge in open.iter().rev() {
        store.reserve(charge.clone()).await.map_err(error_text)?;
    }
    store
        .reserve(fresh_charge(ids, vec![charge_line(&payer, 100, 1)]))
        .await
        .map_err(error_text)?;
    let of = ChargeFilter {
        session: Some(session),
        ..ChargeFilter::default()
    };
    ensure(
        store.charges(of.clone()).await.map_err(error_text)? == open,
        "they are not in order, or not all",
    )?;
    let page = ChargeFilter {
        after: Some(open[0].id),
        limit: 2,
        ..of.clone()
    };
    ensure(
        store.charges(page).await.map_err(error_text)? == open[1..3],
        "a page is wrong",
    )?;
    store
        .release_charge(open[3].clone())
        .await
        .map_err(error_text)?;
    ensure(
        store.charges(of).await.map_err(error_text)? == open[..3],
        "one that was released is listed",
    )?;
    let one = store
        .charges(ChargeFilter::for_charge(open[1].id))
        .await
        .map_err(error_text)?;
    ensure(one == open[1..2], "a charge is not found by its id")
}

async fn lists_accounts(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let first = fresh_account(ids, "2026-11");
    let with = |period: &str| AccountKey {
        period: period.into(),
        ..first.clone()
    };
    let all = [first.clone(), with("2026-11-16"), with("2026-12")];
    let lines = all
        .iter()
        .map(|account| charge_line(account, 10, 1))
        .collect();
    store
        .reserve(fresh_charge(ids, lines))
        .await
        .map_err(error_text)?;
    let names = |rows: Vec<AccountRow>| rows.into_iter().map(|row| row.account).collect::<Vec<_>>();
    let prefix = format!("budget/user/{}/", first.value);
    let found = names(
        store
            .accounts(&prefix, None, 10)
            .await
            .map_err(error_text)?,
    );
    ensure(found == all, format!("{found:?}"))?;
    let page = names(
        store
            .accounts(&prefix, Some(&all[0]), 1)
            .await
            .map_err(error_text)?,
    );
    ensure(page == all[1..2], format!("{page:?}"))?;
    let november = names(
        store
            .accounts(&first.to_string(), None, 10)
            .await
            .map_err(error_text)?,
    );
    ensure(november == all[..2], format!("{november:?}"))?;
    let none = store
        .accounts(&format!("{prefix}x"), None, 10)
        .await
        .map_err(error_text)?;
    ensure(none.is_empty(), "other accounts were listed")
}
