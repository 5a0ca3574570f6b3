//! Accounts, and what is reserved and booked in them: the arithmetic that all stores share.

use std::{collections::BTreeMap, fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{BudgetScope, BudgetUnit, CallId, SessionId, StoreError, Timestamp, TurnId};

/// The largest amount an account can hold, so that every database can store it.
pub const MAX_AMOUNT: u64 = i64::MAX as u64;

/// The name of an account: its payer, unit and period.
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
    /// The kind of payer.
    pub scope: BudgetScope,
    /// The payer; any text.
    pub value: Arc<str>,
    /// The unit it counts.
    pub unit: BudgetUnit,
    /// The period, such as `2026-11-16`, `2026-11` or `total`.
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

/// An error for text that does not name an account.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an account; write it as budget/<scope>/<value>/<unit>/<period>")]
pub struct InvalidAccountKey(String);

impl FromStr for AccountKey {
    type Err = InvalidAccountKey;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // The value may contain slashes: everything else is split off from both ends.
        let parts = || {
            let (scope, rest) = text.strip_prefix("budget/")?.split_once('/')?;
            let (rest, period) = rest
                .rsplit_once('/')
                .filter(|(_, period)| !period.is_empty())?;
            let (value, unit) = rest.rsplit_once('/')?;
            let scope = BudgetScope::from_word(scope)?;
            let unit = BudgetUnit::from_word(unit)?;
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

crate::value::text::serde_as_text!(AccountKey);

impl AccountKey {
    /// Returns the bytes of its text without writing the text.
    fn text_bytes(&self) -> impl Iterator<Item = u8> {
        [
            self.scope.as_str(),
            "/",
            &*self.value,
            "/",
            self.unit.as_str(),
            "/",
            &*self.period,
        ]
        .into_iter()
        .flat_map(str::bytes)
    }
}

// In the order of their texts, because databases sort the text column.
impl Ord for AccountKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // Equality first: looking up one of a few accounts mostly compares equal ones.
        if self == other {
            return std::cmp::Ordering::Equal;
        }
        self.text_bytes().cmp(other.text_bytes())
    }
}

impl PartialOrd for AccountKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The id of a charge: what is paid for. Each has at most one open charge at a time.
// The derived order is that of the texts (`call` before `turn`), by which databases sort and page.
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

/// An error for text that is not the id of a charge.
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

crate::value::text::serde_as_text!(ChargeId);

/// Amounts that are reserved together in all accounts of an expense, until its actual cost is
/// known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    /// The id: what is paid for.
    pub id: ChargeId,
    /// The session, so that a driver that resumes it finds its open charges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The time it was reserved.
    pub at: Timestamp,
    /// The accounts and amounts, in the order of the accounts' names.
    pub lines: Vec<ChargeLine>,
}

/// A part of a charge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChargeLine {
    /// The account.
    pub account: AccountKey,
    /// The most that may be spent from it.
    pub limit: u64,
    /// The reserved amount.
    pub amount: u64,
}

/// The state of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountRow {
    /// The account.
    pub account: AccountKey,
    /// The amount booked.
    pub spent: u64,
    /// The amount reserved by open charges.
    pub reserved: u64,
}

/// The change of an account's spent amount by a booking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountMovement {
    /// The account.
    pub account: AccountKey,
    /// The amount booked before.
    pub before: u64,
    /// The amount booked now.
    pub after: u64,
}

/// A filter for the list of open charges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChargeFilter {
    /// Only the one with this id.
    pub id: Option<ChargeId>,
    /// Only those of this session.
    pub session: Option<SessionId>,
    /// Only those after this one.
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
    /// Creates a filter for the charge with one id.
    pub fn for_charge(id: ChargeId) -> Self {
        Self {
            id: Some(id),
            limit: 1,
            ..Self::default()
        }
    }

    /// Checks whether a charge passes the filter. The store handles the order and the limit.
    pub fn matches(&self, charge: &Charge) -> bool {
        self.id.is_none_or(|wanted| wanted == charge.id)
            && self
                .session
                .is_none_or(|wanted| Some(wanted) == charge.session)
            && self.after.is_none_or(|after| after < charge.id)
    }
}

/// Accounts by name.
pub type AccountRows = BTreeMap<AccountKey, AccountRow>;

impl AccountRow {
    /// Creates an account to which nothing was ever charged.
    pub fn empty(account: AccountKey) -> Self {
        Self {
            account,
            spent: 0,
            reserved: 0,
        }
    }

    /// Returns the amount that can still be reserved under a limit. Reserved amounts count as
    /// spent.
    pub const fn amount_left(&self, limit: u64) -> u64 {
        limit
            .saturating_sub(self.spent)
            .saturating_sub(self.reserved)
    }
}

impl Charge {
    /// Returns its accounts, each once and in order.
    pub fn accounts(&self) -> impl Iterator<Item = &AccountKey> {
        let mut all: Vec<&AccountKey> = self.lines.iter().map(|line| &line.account).collect();
        all.sort_unstable();
        all.dedup();
        all.into_iter()
    }

    /// Reserves all amounts in `rows`, or none.
    ///
    /// # Errors
    ///
    /// [`StoreError::AccountShort`] with the account that has not enough left.
    pub fn reserve_in(&self, rows: &mut AccountRows) -> Result<(), StoreError> {
        // First all checks: a charge that is rejected must not leave an account behind.
        for (number, line) in self.lines.iter().enumerate() {
            let earlier = self.lines[..number].iter();
            let taken: u64 = earlier
                .filter(|earlier| earlier.account == line.account)
                .map(|earlier| earlier.amount)
                .sum();
            let limit = line.limit.min(MAX_AMOUNT);
            let left = rows
                .get(&line.account)
                .map_or(limit, |row| row.amount_left(limit))
                .saturating_sub(taken);
            if line.amount > left {
                return Err(StoreError::AccountShort {
                    account: line.account.clone(),
                    wanted: line.amount,
                    left,
                });
            }
        }
        for line in &self.lines {
            row_mut(rows, &line.account).reserved += line.amount;
        }
        Ok(())
    }

    /// Books `actual`, line by line, instead of the reserved amounts. A line without one is booked
    /// as reserved.
    pub fn settle_in(&self, rows: &mut AccountRows, actual: &[u64]) -> Vec<AccountMovement> {
        // By account and not by line: an alert compares before and after, and two lines of one
        // account would cross a threshold twice.
        let mut moved: Vec<AccountMovement> = self
            .accounts()
            .map(|account| {
                let before = row_mut(rows, account).spent;
                AccountMovement {
                    account: account.clone(),
                    before,
                    after: before,
                }
            })
            .collect();
        for (number, line) in self.lines.iter().enumerate() {
            let row = row_mut(rows, &line.account);
            let cost = actual.get(number).copied().unwrap_or(line.amount);
            // The actual amount may exceed the reservation. It is booked in full, even past the
            // limit.
            row.reserved = row.reserved.saturating_sub(line.amount);
            row.spent = row.spent.saturating_add(cost).min(MAX_AMOUNT);
        }
        for movement in &mut moved {
            movement.after = row_mut(rows, &movement.account).spent;
        }
        moved
    }

    /// Releases the reserved amounts.
    pub fn release_in(&self, rows: &mut AccountRows) {
        release_lines(&self.lines, rows);
    }
}

fn release_lines(lines: &[ChargeLine], rows: &mut AccountRows) {
    for line in lines {
        let row = row_mut(rows, &line.account);
        row.reserved = row.reserved.saturating_sub(line.amount);
    }
}

fn row_mut<'a>(rows: &'a mut AccountRows, account: &AccountKey) -> &'a mut AccountRow {
    // Searched twice, because an entry would need a copy of the name even if the row exists.
    if !rows.contains_key(account) {
        rows.insert(account.clone(), AccountRow::empty(account.clone()));
    }
    rows.get_mut(account).expect("inserted above")
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
    fn an_account_key_round_trips_with_any_value() {
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
        let call = CallId::new(uuid::Uuid::from_u128(7));
        let turn = TurnId::new(uuid::Uuid::from_u128(8));
        for id in [ChargeId::Call(call), ChargeId::Turn(turn)] {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        assert_eq!("call".parse::<ChargeId>(), Err(InvalidChargeId));
        assert_eq!("turn/x".parse::<ChargeId>(), Err(InvalidChargeId));
    }

    #[test]
    fn reserved_amounts_count_as_spent_until_released() {
        let mut rows = AccountRows::new();
        let all = charge(&[(A, 10, 10)]);
        all.reserve_in(&mut rows).expect("enough");
        match charge(&[(A, 10, 1)]).reserve_in(&mut rows.clone()) {
            Err(StoreError::AccountShort {
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
    fn the_actual_amount_is_booked_even_if_it_exceeds_the_reservation() {
        let mut rows = AccountRows::new();
        let both = charge(&[(B, 10, 1), (A, 10, 5)]);
        both.reserve_in(&mut rows).expect("enough");
        let moved = both.settle_in(&mut rows, &[1, 12]);
        assert_eq!(moved.len(), 2);
        assert_eq!(
            moved[1],
            AccountMovement {
                account: key(A),
                before: 0,
                after: 12
            }
        );
        assert_eq!(
            (
                rows[&key(A)].spent,
                rows[&key(A)].reserved,
                rows[&key(A)].amount_left(10)
            ),
            (12, 0, 0)
        );
    }

    #[test]
    fn amounts_saturate_at_the_maximum() {
        let mut rows = AccountRows::new();
        let huge = charge(&[(A, u64::MAX, MAX_AMOUNT)]);
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
        fn the_limit_holds_whatever_is_reserved_settled_and_released(
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
                        // It costs at most what was reserved.
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
