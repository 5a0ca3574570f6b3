//! Accounts, and what is set aside and booked in them. The arithmetic that all stores share.

use std::{collections::BTreeMap, fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{BudgetScope, BudgetUnit, CallId, SessionId, StoreError, Timestamp, TurnId};

/// The largest amount an account can hold: what every database can count to.
pub const MAX_AMOUNT: u64 = i64::MAX as u64;

/// Names an account: whose it is, what it counts and for which period.
///
/// ```
/// use toolgate_core::{AccountKey, BudgetScope, BudgetUnit};
/// let key: AccountKey = "budget/user/ann/usd/2026-11".parse()?;
/// assert_eq!((key.scope, &*key.value, key.unit, &*key.period), (BudgetScope::User, "ann", BudgetUnit::Usd, "2026-11"));
/// assert_eq!(key.to_string(), "budget/user/ann/usd/2026-11");
/// # Ok::<(), toolgate_core::InvalidAccountKey>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AccountKey {
    /// What kind of payer it belongs to.
    pub scope: BudgetScope,
    /// Which one; any text.
    pub value: Arc<str>,
    /// What it counts.
    pub unit: BudgetUnit,
    /// For which period, such as `2026-11-16`, `2026-11` or `total`.
    pub period: Arc<str>,
}

impl fmt::Display for AccountKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            scope,
            value,
            unit,
            period,
        } = self;
        write!(
            f,
            "budget/{}/{value}/{}/{period}",
            scope.as_str(),
            unit.as_str()
        )
    }
}

/// The text names no account.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an account; one reads budget/<scope>/<value>/<unit>/<period>")]
pub struct InvalidAccountKey(String);

impl FromStr for AccountKey {
    type Err = InvalidAccountKey;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // The value may hold slashes: everything else is split off from both ends.
        let parts = || {
            let (scope, rest) = text.strip_prefix("budget/")?.split_once('/')?;
            let (rest, period) = rest
                .rsplit_once('/')
                .filter(|(_, period)| !period.is_empty())?;
            let (value, unit) = rest.rsplit_once('/')?;
            let (scope, unit) = (BudgetScope::from_word(scope)?, BudgetUnit::from_word(unit)?);
            Some(Self {
                scope,
                value: value.into(),
                unit,
                period: period.into(),
            })
        };
        parts().ok_or_else(|| InvalidAccountKey(text.chars().take(128).collect()))
    }
}

crate::text::serde_as_text!(AccountKey);

// In the order of their texts, which is that of the stores.
impl Ord for AccountKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.to_string().cmp(&other.to_string())
    }
}

impl PartialOrd for AccountKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// What is paid for. There is one open charge for each at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChargeId {
    /// A tool is called: `call/<id>`.
    Call(CallId),
    /// A model is asked for a turn: `turn/<id>`.
    Turn(TurnId),
}

impl fmt::Display for ChargeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(call) => write!(f, "call/{call}"),
            Self::Turn(turn) => write!(f, "turn/{turn}"),
        }
    }
}

/// The text names nothing that is paid for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a charge is named call/<id> or turn/<id>")]
pub struct InvalidChargeId;

impl FromStr for ChargeId {
    type Err = InvalidChargeId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some(("call", id)) => id.parse().map(Self::Call).map_err(|_| InvalidChargeId),
            Some(("turn", id)) => id.parse().map(Self::Turn).map_err(|_| InvalidChargeId),
            _ => Err(InvalidChargeId),
        }
    }
}

crate::text::serde_as_text!(ChargeId);

/// Amounts that are set aside together, in all accounts that something is paid from, until it is known what it cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    /// What for.
    pub id: ChargeId,
    /// In which session, so that whoever takes it up again finds what is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// When it was set aside.
    pub at: Timestamp,
    /// How much from which account, in the order of their names.
    pub lines: Vec<ChargeLine>,
}

/// A part of a charge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChargeLine {
    /// From which account.
    pub account: AccountKey,
    /// How much may be spent from it in all.
    pub limit: u64,
    /// How much is set aside.
    pub amount: u64,
}

/// How an account stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountRow {
    /// Which account.
    pub account: AccountKey,
    /// What was booked.
    pub spent: u64,
    /// What is set aside for what is under way.
    pub reserved: u64,
}

/// How much more was spent from an account after something was booked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Movement {
    /// Which account.
    pub account: AccountKey,
    /// What was booked before.
    pub before: u64,
    /// What is booked now.
    pub after: u64,
}

/// Which open charges are listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChargeFilter {
    /// Only the one for this.
    pub id: Option<ChargeId>,
    /// Only those of this session.
    pub session: Option<SessionId>,
    /// Only those whose name is behind this one's.
    pub after: Option<ChargeId>,
    /// At most this many.
    pub limit: usize,
}

impl Default for ChargeFilter {
    fn default() -> Self {
        Self {
            id: None,
            session: None,
            after: None,
            limit: 100,
        }
    }
}

impl ChargeFilter {
    /// The charge for one thing.
    pub fn of(id: ChargeId) -> Self {
        Self {
            id: Some(id),
            limit: 1,
            ..Self::default()
        }
    }

    /// Whether a charge is wanted. The store sees to the order and the limit.
    pub fn wants(&self, charge: &Charge) -> bool {
        self.id.is_none_or(|wanted| wanted == charge.id)
            && self
                .session
                .is_none_or(|wanted| Some(wanted) == charge.session)
            && self.after.is_none_or(|after| after < charge.id)
    }
}

/// The accounts that a charge is about, by name.
pub type AccountRows = BTreeMap<AccountKey, AccountRow>;

impl AccountRow {
    /// An account from which nothing was ever paid.
    pub fn empty(account: AccountKey) -> Self {
        Self {
            account,
            spent: 0,
            reserved: 0,
        }
    }

    /// How much can still be set aside under a limit. What is set aside counts as spent.
    pub const fn left(&self, limit: u64) -> u64 {
        limit
            .saturating_sub(self.spent)
            .saturating_sub(self.reserved)
    }
}

impl Charge {
    /// The accounts it is about, each once and in order.
    pub fn accounts(&self) -> impl Iterator<Item = &AccountKey> {
        let all: std::collections::BTreeSet<_> =
            self.lines.iter().map(|line| &line.account).collect();
        all.into_iter()
    }

    /// Sets everything aside in `rows`, or says which account is short. Then some of `rows` are changed already, and
    /// none of them may be kept.
    pub fn reserve_in(&self, rows: &mut AccountRows) -> Result<(), StoreError> {
        for line in &self.lines {
            let row = row(rows, &line.account);
            let left = row.left(line.limit.min(MAX_AMOUNT));
            if line.amount > left {
                let account = line.account.clone();
                return Err(StoreError::Short {
                    account,
                    wanted: line.amount,
                    left,
                });
            }
            row.reserved += line.amount;
        }
        Ok(())
    }

    /// Books `actual`, line by line, in place of what was set aside. A line without one is booked as it was set aside.
    pub fn settle_in(&self, rows: &mut AccountRows, actual: &[u64]) -> Vec<Movement> {
        let before: Vec<_> = self
            .accounts()
            .map(|account| row(rows, account).clone())
            .collect();
        for (number, line) in self.lines.iter().enumerate() {
            let row = row(rows, &line.account);
            let cost = actual.get(number).copied().unwrap_or(line.amount);
            row.reserved = row.reserved.saturating_sub(line.amount);
            row.spent = row.spent.saturating_add(cost).min(MAX_AMOUNT);
        }
        let moved = before.into_iter().map(|old| {
            let after = row(rows, &old.account).spent;
            Movement {
                account: old.account,
                before: old.spent,
                after,
            }
        });
        moved.collect()
    }

    /// Gives back what was set aside.
    pub fn release_in(&self, rows: &mut AccountRows) {
        for line in &self.lines {
            let row = row(rows, &line.account);
            row.reserved = row.reserved.saturating_sub(line.amount);
        }
    }
}

fn row<'a>(rows: &'a mut AccountRows, account: &AccountKey) -> &'a mut AccountRow {
    rows.entry(account.clone())
        .or_insert_with(|| AccountRow::empty(account.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(text: &str) -> AccountKey {
        text.parse().expect("an account")
    }

    fn charge(lines: &[(&str, u64, u64)]) -> Charge {
        let line = |(account, limit, amount): &(&str, u64, u64)| ChargeLine {
            account: key(account),
            limit: *limit,
            amount: *amount,
        };
        let id = ChargeId::Call(CallId::new(uuid::Uuid::from_u128(1)));
        Charge {
            id,
            session: None,
            at: Timestamp::EPOCH,
            lines: lines.iter().map(line).collect(),
        }
    }

    const A: &str = "budget/user/ann/usd/total";
    const B: &str = "budget/global/all/calls/2026-11-16";

    #[test]
    fn an_account_is_read_back_whatever_its_value_is() {
        for value in ["ann", "", "a/b", "/", "a/usd/total", "\u{0}", "ä ö"] {
            let key = AccountKey {
                scope: BudgetScope::Org,
                value: value.into(),
                unit: BudgetUnit::Tokens,
                period: "2026-11".into(),
            };
            assert_eq!(key.to_string().parse(), Ok(key));
        }
        for bad in [
            "",
            "budget",
            "budget/user/ann/usd/",
            "budget/pet/rex/usd/total",
            "budget/user/ann/eur/total",
        ] {
            assert_eq!(
                bad.parse::<AccountKey>(),
                Err(InvalidAccountKey(bad.to_owned()))
            );
        }
    }

    #[test]
    fn a_charge_is_named_by_what_it_is_for() {
        let (call, turn) = (
            CallId::new(uuid::Uuid::from_u128(7)),
            TurnId::new(uuid::Uuid::from_u128(8)),
        );
        for id in [ChargeId::Call(call), ChargeId::Turn(turn)] {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        assert_eq!("call".parse::<ChargeId>(), Err(InvalidChargeId));
        assert_eq!("turn/x".parse::<ChargeId>(), Err(InvalidChargeId));
    }

    #[test]
    fn what_is_set_aside_counts_as_spent_until_it_is_given_back() {
        let (mut rows, all) = (AccountRows::new(), charge(&[(A, 10, 10)]));
        all.reserve_in(&mut rows).expect("enough");
        match charge(&[(A, 10, 1)]).reserve_in(&mut rows.clone()) {
            Err(StoreError::Short {
                account,
                wanted: 1,
                left: 0,
            }) => assert_eq!(account, key(A)),
            other => panic!("{other:?}"),
        }
        all.release_in(&mut rows);
        charge(&[(A, 10, 10)])
            .reserve_in(&mut rows)
            .expect("enough again");
    }

    #[test]
    fn two_lines_for_one_account_count_together() {
        let mut rows = AccountRows::new();
        assert!(
            charge(&[(A, 10, 6), (A, 10, 6)])
                .reserve_in(&mut rows)
                .is_err()
        );
    }

    #[test]
    fn what_was_spent_is_booked_even_if_it_is_more_than_was_set_aside() {
        let (mut rows, both) = (AccountRows::new(), charge(&[(B, 10, 1), (A, 10, 5)]));
        both.reserve_in(&mut rows).expect("enough");
        let moved = both.settle_in(&mut rows, &[1, 12]);
        assert_eq!(moved.len(), 2);
        assert_eq!(
            moved[1],
            Movement {
                account: key(A),
                before: 0,
                after: 12
            }
        );
        assert_eq!(
            (
                rows[&key(A)].spent,
                rows[&key(A)].reserved,
                rows[&key(A)].left(10)
            ),
            (12, 0, 0)
        );
    }

    #[test]
    fn no_amount_is_too_large_to_count() {
        let (mut rows, huge) = (AccountRows::new(), charge(&[(A, u64::MAX, MAX_AMOUNT)]));
        huge.reserve_in(&mut rows).expect("enough");
        assert!(
            charge(&[(A, u64::MAX, 1)])
                .reserve_in(&mut rows.clone())
                .is_err()
        );
        huge.settle_in(&mut rows, &[u64::MAX]);
        assert_eq!(rows[&key(A)].spent, MAX_AMOUNT);
    }

    proptest! {
        #[test]
        fn the_limit_holds_whatever_is_set_aside_settled_and_released(
            steps in prop::collection::vec((0_u8..3, 0_u64..8), 0..60),
        ) {
            let (mut rows, mut open) = (AccountRows::new(), Vec::new());
            for (step, amount) in steps {
                match step {
                    0 => {
                        let wanted = charge(&[(A, 20, amount)]);
                        let mut copy = rows.clone();
                        if wanted.reserve_in(&mut copy).is_ok() {
                            (rows, _) = (copy, open.push(wanted));
                        }
                    }
                    1 => open.pop().into_iter().for_each(|charge: Charge| {
                        // It costs at most what was set aside.
                        charge.settle_in(&mut rows, &[charge.lines[0].amount.min(amount)]);
                    }),
                    _ => open.pop().into_iter().for_each(|charge| charge.release_in(&mut rows)),
                }
                let row = rows.get(&key(A)).cloned().unwrap_or_else(|| AccountRow::empty(key(A)));
                prop_assert!(row.spent + row.reserved <= 20);
                let set_aside: u64 = open.iter().map(|charge| charge.lines[0].amount).sum();
                prop_assert_eq!(row.reserved, set_aside);
            }
        }
    }
}
