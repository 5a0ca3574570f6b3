//! The rules of budgets, one test each.

use super::*;
use crate::{AccountKey, AlertThresholds, BudgetRule, MissingPayer, TurnId};
use proptest::prelude::*;

use BudgetPeriod::{Day, Month, Total};
use BudgetScope::{Global, Org, Project, Run, Session, Tool, User};
use BudgetUnit::{Calls, Requests, Tokens, Usd};

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn noon() -> Timestamp {
    at("2026-11-16T12:00:00Z")
}

fn rule(scope: BudgetScope, period: BudgetPeriod, unit: BudgetUnit, limit: u64) -> BudgetRule {
    BudgetRule::new("b", scope, period, unit, limit)
}

fn crossed_thresholds(before: u64, after: u64, limit: u64) -> Vec<u8> {
    AlertThresholds::default().crossed(before, after, limit)
}

fn id() -> ChargeId {
    ChargeId::Turn(TurnId::new(uuid::Uuid::from_u128(1)))
}

fn full_payer() -> Payer {
    Payer {
        org: Some("acme".into()),
        user: Some("ann".into()),
        project: Some("site".into()),
        session: Some(SessionId::new(uuid::Uuid::from_u128(2))),
        run: Some(7),
        tool: Some("search".into()),
    }
}

fn charge_lines_of(
    rules: Vec<BudgetRule>,
    payer: &Payer,
    expense: Expense,
) -> Result<Vec<(String, u64, u64)>, BudgetError> {
    let charge =
        Budgets::new(rules).build_charge(id(), payer, noon(), &expense, UnknownPrice::Refuse)?;
    let lines = charge.map_or_else(Vec::new, |charge| charge.lines);
    Ok(lines
        .into_iter()
        .map(|line| (line.account.to_string(), line.limit, line.amount))
        .collect())
}

#[test]
fn a_large_booking_crosses_every_threshold_on_the_way_once() {
    assert_eq!(crossed_thresholds(40, 95, 100), [50, 75, 90]);
    assert!(crossed_thresholds(95, 99, 100).is_empty());
    assert_eq!(crossed_thresholds(99, 300, 100), [100]);
    assert_eq!(crossed_thresholds(0, 1, 1), [50, 75, 90, 100]);
    assert!(
        crossed_thresholds(0, 0, 0).is_empty(),
        "nothing was spent, so no threshold is crossed"
    );
    assert_eq!(crossed_thresholds(0, u64::MAX, u64::MAX), [50, 75, 90, 100]);
}

#[test]
fn a_period_is_a_day_or_a_month_in_utc() {
    assert_eq!(
        Day.label_at(at("2026-11-16T23:59:59.999999Z")),
        "2026-11-16"
    );
    assert_eq!(Day.label_at(at("2026-11-17T00:00:00Z")), "2026-11-17");
    assert_eq!(Month.label_at(at("2026-12-01T00:00:00Z")), "2026-12");
    assert_eq!(Total.label_at(noon()), "total");
    for edge in [i64::MIN, i64::MAX] {
        let edge = Timestamp::from_micros(edge);
        assert!(
            Day.is_label(&Day.label_at(edge)) && Month.is_label(&Month.label_at(edge)),
            "{}",
            Day.label_at(edge)
        );
    }
    for (period, label) in [(Day, "2026-11-16"), (Month, "2026-11"), (Total, "total")] {
        for other in [Day, Month, Total] {
            assert_eq!(other.is_label(label), other == period, "{label}");
        }
    }
}

#[test]
fn an_expense_is_charged_to_every_account_that_applies() {
    let scopes = [Global, Org, User, Project, Session, Run, Tool];
    let rules = scopes
        .into_iter()
        .map(|scope| rule(scope, Total, Calls, 5))
        .collect();
    let lines =
        charge_lines_of(rules, &full_payer(), Expense::for_call(Cost::NanoUsd(9))).expect("known");
    let names: Vec<_> = lines.iter().map(|(name, ..)| name.as_str()).collect();
    let session = "00000000-0000-0000-0000-000000000002";
    assert_eq!(
        names,
        [
            "budget/global/all/calls/total",
            "budget/org/acme/calls/total",
            "budget/project/site/calls/total",
            &format!("budget/run/{session}/7/calls/total"),
            &format!("budget/session/{session}/calls/total"),
            "budget/tool/search/calls/total",
            "budget/user/ann/calls/total",
        ]
    );
    assert!(
        lines
            .iter()
            .all(|(_, limit, amount)| (*limit, *amount) == (5, 1))
    );
}

#[test]
fn each_unit_counts_what_it_names() {
    let rules = || {
        [Usd, Tokens, Calls, Requests]
            .map(|unit| rule(Global, Day, unit, 5))
            .to_vec()
    };
    let amounts = |expense| {
        let lines = charge_lines_of(rules(), &full_payer(), expense).expect("known");
        lines
            .into_iter()
            .map(|(name, _, amount)| format!("{} {amount}", &name[18..]))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        amounts(Expense::for_call(Cost::NanoUsd(3))),
        ["calls/2026-11-16 1", "usd/2026-11-16 3"]
    );
    let request = Expense::for_request(Cost::NanoUsd(4), 70);
    assert_eq!(
        amounts(request),
        [
            "requests/2026-11-16 1",
            "tokens/2026-11-16 70",
            "usd/2026-11-16 4"
        ]
    );
    assert_eq!(
        amounts(Expense::for_call(Cost::NanoUsd(0))),
        ["calls/2026-11-16 1"],
        "a free call needs no money"
    );
}

#[test]
fn an_unknown_payer_is_rejected_unless_the_rule_ignores_it() {
    let no_payer = Payer::default();
    for scope in [Org, User, Project, Session, Run] {
        let refused = charge_lines_of(
            vec![rule(scope, Total, Calls, 5)],
            &no_payer,
            Expense::for_call(Cost::Unknown),
        );
        assert!(
            matches!(refused, Err(BudgetError::UnknownPayer { scope: s, .. }) if s == scope),
            "{scope:?}"
        );
        let lenient = BudgetRule {
            missing: MissingPayer::Ignore,
            ..rule(scope, Total, Calls, 5)
        };
        assert_eq!(
            charge_lines_of(vec![lenient], &no_payer, Expense::for_call(Cost::Unknown))
                .expect("ignored"),
            []
        );
    }
    let tool = charge_lines_of(
        vec![rule(Tool, Total, Usd, 5)],
        &no_payer,
        Expense::for_request(Cost::NanoUsd(1), 1),
    );
    assert_eq!(tool.expect("a model is not a tool"), []);
}

#[test]
fn an_unknown_price_is_rejected_only_by_budgets_in_money() {
    let unknown = Expense::for_request(Cost::Unknown, 10);
    let refused = charge_lines_of(vec![rule(Global, Total, Usd, 5)], &full_payer(), unknown);
    assert!(matches!(refused, Err(BudgetError::UnknownPrice { .. })));
    assert_eq!(
        charge_lines_of(
            vec![rule(Global, Total, Tokens, 50)],
            &full_payer(),
            unknown
        )
        .expect("no money")
        .len(),
        1
    );
    let budgets = Budgets::new([
        rule(Global, Total, Usd, 5),
        rule(Global, Total, Requests, 5),
    ]);
    let allowed = budgets
        .build_charge(id(), &full_payer(), noon(), &unknown, UnknownPrice::Allow)
        .expect("allowed");
    assert_eq!(allowed.expect("counts requests").lines.len(), 1);
}

#[test]
fn of_two_rules_for_one_account_the_lower_limit_decides() {
    let rules = vec![rule(User, Day, Usd, 500), rule(User, Day, Usd, 50)];
    let lines =
        charge_lines_of(rules, &full_payer(), Expense::for_call(Cost::NanoUsd(3))).expect("known");
    assert_eq!(
        lines,
        [("budget/user/ann/usd/2026-11-16".to_owned(), 50, 3)]
    );
}

#[test]
fn a_rule_for_one_payer_does_not_apply_to_others() {
    let only = |name: &str| BudgetRule {
        only: Some(name.into()),
        ..rule(User, Total, Calls, 5)
    };
    let expense = Expense::for_call(Cost::Unknown);
    assert_eq!(
        charge_lines_of(vec![only("ann")], &full_payer(), expense)
            .expect("known")
            .len(),
        1
    );
    assert_eq!(
        charge_lines_of(vec![only("bob")], &full_payer(), expense).expect("known"),
        []
    );
}

#[test]
fn an_unknown_amount_is_booked_as_reserved() {
    let budgets = Budgets::new([
        rule(Global, Total, Usd, 50),
        rule(Global, Total, Tokens, 50),
    ]);
    let wanted = Expense::for_request(Cost::NanoUsd(9), 30);
    let charge = budgets.build_charge(id(), &full_payer(), noon(), &wanted, UnknownPrice::Refuse);
    let charge = charge.expect("known").expect("counts");
    assert_eq!(
        charge.actual_amounts(&Expense::for_request(Cost::Unknown, 12)),
        [12, 9]
    );
    assert_eq!(
        charge.actual_amounts(&Expense::for_request(Cost::NanoUsd(2), 12)),
        [12, 2]
    );
}

#[test]
fn alerts_name_the_budget_the_period_and_the_amounts() {
    let budgets = Budgets::new([BudgetRule::new("daily", User, Day, Usd, 10_000_000_000)]);
    let account: AccountKey = "budget/user/ann/usd/2026-11-16"
        .parse()
        .expect("an account");
    let moved = |account: &AccountKey, before, after| AccountMovement {
        account: account.clone(),
        before,
        after,
    };
    let alerts = budgets.alerts_for(&[moved(&account, 4_000_000_000, 9_500_000_000)]);
    assert_eq!(
        alerts.iter().map(|alert| alert.percent).collect::<Vec<_>>(),
        [50, 75, 90]
    );
    let text =
        "50 % of the budget daily (user ann) for 2026-11-16 is used: $9.500000 of $10.000000";
    assert_eq!(alerts[0].to_string(), text);
    let other: AccountKey = "budget/user/ann/usd/2026-11".parse().expect("an account");
    assert_eq!(
        budgets.alerts_for(&[moved(&other, 0, u64::MAX)]),
        [],
        "of another period"
    );
}

#[test]
fn an_exceeded_budget_is_named_with_the_amount_left() {
    let budgets = Budgets::new([BudgetRule::new("small", User, Day, Calls, 3)]);
    let account = "budget/user/ann/calls/2026-11-16"
        .parse()
        .expect("an account");
    let refused = budgets.explain_store_error(StoreError::AccountShort {
        account,
        wanted: 2,
        left: 1,
    });
    let text = "it would take 2 calls, but only 1 calls is left of the budget small (user ann) for 2026-11-16";
    assert_eq!(refused.to_string(), text);
}

#[test]
fn limits_are_dollars_for_money_and_whole_numbers_otherwise() {
    let read = |text: &str| serde_json::from_str::<BudgetRule>(text);
    let rule = |unit: &str, limit: &str| {
        read(&format!(
            r#"{{ "name": "b", "scope": "org", "period": "month", "unit": "{unit}", "limit": {limit} }}"#
        ))
    };
    assert_eq!(
        rule("usd", "12.345678901").expect("money").limit,
        12_345_678_901
    );
    assert_eq!(rule("usd", "3").expect("money").limit, 3_000_000_000);
    assert_eq!(
        rule("usd", "1e-30").expect("money").limit,
        1,
        "a tiny limit is not zero"
    );
    assert_eq!(rule("tokens", "3").expect("tokens").limit, 3);
    for (unit, limit) in [
        ("tokens", "1.5"),
        ("usd", "-1"),
        ("calls", "-1"),
        ("usd", "1e300"),
        ("usd", "\"5\""),
    ] {
        assert!(rule(unit, limit).is_err(), "{limit} {unit}");
    }
    assert!(rule("usd", "10000000000").is_err(), "too large");
    assert!(rule("eur", "1").is_err());
    for text in [
        r#"{ "name": "b", "scope": "org", "unit": "usd", "limit": 1, "perod": "day" }"#,
        r#"{ "name": " ", "scope": "org", "unit": "usd", "limit": 1 }"#,
        r#"{ "name": "b", "scope": "global", "only": "x", "unit": "usd", "limit": 1 }"#,
        r#"{ "name": "b", "scope": "org", "unit": "usd", "limit": 1, "alert_at": [0] }"#,
    ] {
        assert!(read(text).is_err(), "{text}");
    }
    for (unit, limit) in [("usd", "12.345678901"), ("usd", "3"), ("calls", "7")] {
        let rule = rule(unit, limit).expect("a rule");
        let text = serde_json::to_string(&rule).expect("writes");
        assert_eq!(read(&text).expect("reads"), rule);
    }
}

proptest! {
    #[test]
    fn each_threshold_is_passed_once_in_any_order_of_spending(
        steps in prop::collection::vec(0_u64..60, 0..20),
        limit in 1_u64..200,
    ) {
        let (mut spent, mut passed) = (0, Vec::new());
        for step in steps {
            passed.extend(crossed_thresholds(spent, spent + step, limit));
            spent += step;
        }
        let reached: Vec<u8> =
            [50, 75, 90, 100].into_iter().filter(|percent| spent * 100 >= u64::from(*percent) * limit).collect();
        prop_assert_eq!(passed, reached);
    }
}
