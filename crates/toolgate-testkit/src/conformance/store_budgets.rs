//! What every store keeps: accounts that are never overdrawn, and charges that are settled once.

use futures::future::join_all;
use toolgate_core::{
    AccountKey, AccountRow, BudgetScope, BudgetUnit, CallId, Charge, ChargeFilter, ChargeId,
    ChargeLine, IdSource, MAX_AMOUNT, Movement, SessionId, StoreError, StoreHandle, Timestamp,
    TurnId,
};

use super::{
    ensure,
    store::{StoreRule, text},
};

pub(super) const RULES: [(&str, StoreRule); 9] = [
    (
        "an_account_that_nothing_was_paid_from_is_not_there",
        |s, i| Box::pin(unknown_account(s, i)),
    ),
    ("a_charge_is_set_aside_whole_or_not_at_all", |s, i| {
        Box::pin(all_or_none(s, i))
    }),
    ("a_charge_that_is_open_is_not_set_aside_again", |s, i| {
        Box::pin(set_aside_once(s, i))
    }),
    ("a_charge_is_settled_or_released_once", |s, i| {
        Box::pin(ended_once(s, i))
    }),
    (
        "of_two_charges_for_the_same_thing_only_the_open_one_can_be_ended",
        |s, i| Box::pin(only_the_open_one(s, i)),
    ),
    ("charges_made_at_once_never_overshoot_together", |s, i| {
        Box::pin(no_overshoot(s, i))
    }),
    (
        "charges_settled_at_once_are_each_told_their_own_movement",
        |s, i| Box::pin(own_movements(s, i)),
    ),
    ("open_charges_are_listed_by_session_and_in_pages", |s, i| {
        Box::pin(listed(s, i))
    }),
    ("accounts_are_listed_by_the_start_of_their_names", |s, i| {
        Box::pin(accounts_listed(s, i))
    }),
];

/// An account that no other rule uses. Any text can be the value.
fn account(ids: &dyn IdSource, period: &str) -> AccountKey {
    let value = format!("{}/\u{0}ä", CallId::from_source(ids)).into();
    AccountKey {
        scope: BudgetScope::User,
        value,
        unit: BudgetUnit::Usd,
        period: period.into(),
    }
}

fn line(account: &AccountKey, limit: u64, amount: u64) -> ChargeLine {
    ChargeLine {
        account: account.clone(),
        limit,
        amount,
    }
}

fn charge(ids: &dyn IdSource, lines: Vec<ChargeLine>) -> Charge {
    let at = Timestamp::from_micros(1_794_776_226_000_001);
    Charge {
        id: ChargeId::Call(CallId::from_source(ids)),
        session: None,
        at,
        lines,
    }
}

async fn stands(
    store: &StoreHandle,
    account: &AccountKey,
    spent: u64,
    reserved: u64,
) -> Result<(), String> {
    let found = store.account(account).await.map_err(text)?;
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
    let nobody = account(ids, "total");
    ensure(
        store.account(&nobody).await.map_err(text)?.is_none(),
        "there is an account",
    )?;
    let refused = store.reserve(charge(ids, vec![line(&nobody, 5, 6)])).await;
    ensure(
        matches!(refused, Err(StoreError::Short { left: 5, .. })),
        format!("{refused:?}"),
    )?;
    ensure(
        store.account(&nobody).await.map_err(text)?.is_none(),
        "a refused charge made an account",
    )
}

async fn all_or_none(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let (rich, poor) = (account(ids, "2026-11"), account(ids, "total"));
    store
        .reserve(charge(ids, vec![line(&rich, 100, 1), line(&poor, 2, 1)]))
        .await
        .map_err(text)?;
    let too_much = charge(ids, vec![line(&rich, 100, 10), line(&poor, 2, 2)]);
    match store.reserve(too_much.clone()).await {
        Err(StoreError::Short {
            account,
            wanted: 2,
            left: 1,
        }) if account == poor => {}
        other => return Err(format!("{other:?}")),
    }
    stands(store, &rich, 0, 1).await?;
    stands(store, &poor, 0, 1).await?;
    let open = store
        .charges(ChargeFilter::of(too_much.id))
        .await
        .map_err(text)?;
    ensure(open.is_empty(), "a refused charge is open")
}

async fn set_aside_once(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let payer = account(ids, "total");
    let first = charge(ids, vec![line(&payer, 10, 6)]);
    ensure(
        store.reserve(first.clone()).await.map_err(text)? == first,
        "another charge was returned",
    )?;
    let again = Charge {
        lines: vec![line(&payer, 10, 9)],
        ..first.clone()
    };
    ensure(
        store.reserve(again).await.map_err(text)? == first,
        "it was set aside anew",
    )?;
    let many = join_all((0..8).map(|_| store.reserve(first.clone()))).await;
    ensure(
        many.iter()
            .all(|one| one.as_ref().is_ok_and(|one| *one == first)),
        "not all got the open one",
    )?;
    stands(store, &payer, 0, 6).await
}

async fn ended_once(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let payer = account(ids, "total");
    let first = store
        .reserve(charge(ids, vec![line(&payer, 10, 6)]))
        .await
        .map_err(text)?;
    let moved = store
        .settle_charge(first.clone(), vec![4])
        .await
        .map_err(text)?;
    ensure(
        moved
            == [Movement {
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
            .map_err(text)?;
        ensure(moved.is_empty(), "it was booked twice")?;
        store.release_charge(first.clone()).await.map_err(text)?;
    }
    stands(store, &payer, 4, 0).await?;
    let second = store
        .reserve(charge(ids, vec![line(&payer, 10, 6)]))
        .await
        .map_err(text)?;
    store.release_charge(second.clone()).await.map_err(text)?;
    ensure(
        store
            .settle_charge(second, vec![6])
            .await
            .map_err(text)?
            .is_empty(),
        "it was booked after its release",
    )?;
    stands(store, &payer, 4, 0).await?;
    let third = store
        .reserve(charge(ids, vec![line(&payer, 10, 5)]))
        .await
        .map_err(text)?;
    let moved = store.settle_charge(third, Vec::new()).await.map_err(text)?;
    ensure(
        moved[0].after == 9,
        "what has no amount is not booked as it was set aside",
    )?;
    let costly = store
        .reserve(charge(ids, vec![line(&payer, u64::MAX, 1)]))
        .await
        .map_err(text)?;
    let moved = store
        .settle_charge(costly, vec![u64::MAX])
        .await
        .map_err(text)?;
    ensure(moved[0].after == MAX_AMOUNT, format!("{moved:?}"))
}

async fn only_the_open_one(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let (payer, other) = (account(ids, "2026-11-16"), account(ids, "2026-11-17"));
    let first = store
        .reserve(charge(ids, vec![line(&payer, 10, 6)]))
        .await
        .map_err(text)?;
    store.release_charge(first.clone()).await.map_err(text)?;
    let later = Charge {
        lines: vec![line(&other, 10, 3)],
        ..first.clone()
    };
    let later = store.reserve(later).await.map_err(text)?;
    store.release_charge(first.clone()).await.map_err(text)?;
    ensure(
        store
            .settle_charge(first, vec![6])
            .await
            .map_err(text)?
            .is_empty(),
        "an old charge was booked",
    )?;
    stands(store, &payer, 0, 0).await?;
    stands(store, &other, 0, 3).await?;
    store.settle_charge(later, vec![2]).await.map_err(text)?;
    stands(store, &other, 2, 0).await
}

async fn no_overshoot(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let (one, two) = (account(ids, "total"), account(ids, "2026-11"));
    let wanted = |n: u64| match n % 2 {
        0 => vec![line(&one, 10, 1), line(&two, 1_000, 1)],
        _ => vec![line(&two, 1_000, 1), line(&one, 10, 1)],
    };
    let charges: Vec<_> = (0..50).map(|n| charge(ids, wanted(n))).collect();
    let reserved = join_all(charges.into_iter().map(|charge| store.reserve(charge))).await;
    let won: Vec<_> = reserved.into_iter().flatten().collect();
    ensure(
        won.len() == 10,
        format!("{} of 50 were let through, not 10", won.len()),
    )?;
    stands(store, &one, 0, 10).await?;
    let settled = join_all(
        won.into_iter()
            .map(|charge| store.settle_charge(charge, vec![1, 1])),
    )
    .await;
    ensure(
        settled.iter().all(Result::is_ok),
        "some could not be settled",
    )?;
    stands(store, &one, 10, 0).await?;
    stands(store, &two, 10, 0).await
}

async fn own_movements(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let payer = account(ids, "total");
    let mut open = Vec::new();
    for _ in 0..20 {
        open.push(
            store
                .reserve(charge(ids, vec![line(&payer, 100, 5)]))
                .await
                .map_err(text)?,
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
        .map_err(text)?;
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

async fn listed(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let (session, payer) = (SessionId::from_source(ids), account(ids, "total"));
    let turn = Charge {
        id: ChargeId::Turn(TurnId::from_source(ids)),
        ..charge(ids, vec![line(&payer, 100, 1)])
    };
    let mut open: Vec<_> = (0..3)
        .map(|_| charge(ids, vec![line(&payer, 100, 1)]))
        .chain([turn])
        .collect();
    open.iter_mut()
        .for_each(|charge| charge.session = Some(session));
    for charge in open.iter().rev() {
        store.reserve(charge.clone()).await.map_err(text)?;
    }
    store
        .reserve(charge(ids, vec![line(&payer, 100, 1)]))
        .await
        .map_err(text)?;
    let of = ChargeFilter {
        session: Some(session),
        ..ChargeFilter::default()
    };
    ensure(
        store.charges(of.clone()).await.map_err(text)? == open,
        "they are not in order, or not all",
    )?;
    let page = ChargeFilter {
        after: Some(open[0].id),
        limit: 2,
        ..of.clone()
    };
    ensure(
        store.charges(page).await.map_err(text)? == open[1..3],
        "a page is wrong",
    )?;
    store.release_charge(open[3].clone()).await.map_err(text)?;
    ensure(
        store.charges(of).await.map_err(text)? == open[..3],
        "one that was released is listed",
    )?;
    let one = store
        .charges(ChargeFilter::of(open[1].id))
        .await
        .map_err(text)?;
    ensure(one == open[1..2], "one of them is not found")
}

async fn accounts_listed(store: &StoreHandle, ids: &dyn IdSource) -> Result<(), String> {
    let first = account(ids, "2026-11");
    let with = |period: &str| AccountKey {
        period: period.into(),
        ..first.clone()
    };
    let all = [first.clone(), with("2026-11-16"), with("2026-12")];
    let lines = all.iter().map(|account| line(account, 10, 1)).collect();
    store.reserve(charge(ids, lines)).await.map_err(text)?;
    let names = |rows: Vec<AccountRow>| rows.into_iter().map(|row| row.account).collect::<Vec<_>>();
    let prefix = format!("budget/user/{}/", first.value);
    let found = names(store.accounts(&prefix, None, 10).await.map_err(text)?);
    ensure(found == all, format!("{found:?}"))?;
    let page = names(
        store
            .accounts(&prefix, Some(&all[0]), 1)
            .await
            .map_err(text)?,
    );
    ensure(page == all[1..2], format!("{page:?}"))?;
    let november = names(
        store
            .accounts(&first.to_string(), None, 10)
            .await
            .map_err(text)?,
    );
    ensure(november == all[..2], format!("{november:?}"))?;
    let none = store
        .accounts(&format!("{prefix}x"), None, 10)
        .await
        .map_err(text)?;
    ensure(none.is_empty(), "others were listed")
}
