//! One budget as a person writes it down.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::{
    AccountKey, BudgetError, BudgetPeriod, BudgetScope, BudgetUnit, MAX_AMOUNT, Payer, Timestamp,
};

/// A budget.
///
/// Everybody in the scope has one of this size: `scope = "user"` with a limit of 5 lets each person spend 5. With
/// `only`, it is for one of them.
///
/// ```
/// use toolgate_core::{BudgetRule, BudgetUnit};
/// let rule: BudgetRule = serde_json::from_str(
///     r#"{ "name": "daily", "scope": "user", "period": "day", "unit": "usd", "limit": 2.5 }"#,
/// )?;
/// assert_eq!((rule.unit, rule.limit), (BudgetUnit::Usd, 2_500_000_000));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Entry", into = "Entry")]
#[schemars(
    description = "How much may be spent, by each in the scope or by the one that `only` names."
)]
pub struct BudgetRule {
    /// What people call it.
    pub name: String,
    /// Whose spending it bounds.
    pub scope: BudgetScope,
    /// The one it is for, if it is not for everybody in the scope.
    pub only: Option<String>,
    /// When it starts anew.
    pub period: BudgetPeriod,
    /// What it counts.
    pub unit: BudgetUnit,
    /// How much there is.
    pub limit: u64,
    /// What happens if it is not known whose spending it is.
    pub missing: MissingPayer,
}

/// What happens to something that a budget would count if it were known who pays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MissingPayer {
    /// It is refused: whoever leaves out a name must not get around a limit.
    #[default]
    Refuse,
    /// The budget does not count it.
    Ignore,
}

/// The rule as it stands in a file.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// What people call it.
    name: String,
    /// Whose spending it bounds.
    scope: BudgetScope,
    /// The one it is for, if it is not for everybody in the scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    only: Option<String>,
    /// When it starts anew.
    #[serde(default = "total")]
    period: BudgetPeriod,
    /// What it counts.
    unit: BudgetUnit,
    /// How much there is: dollars, or a whole number of anything else.
    limit: Amount,
    /// What happens if it is not known whose spending it is.
    #[serde(default)]
    missing: MissingPayer,
}

const fn total() -> BudgetPeriod {
    BudgetPeriod::Total
}

/// A number as people write it.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum Amount {
    Whole(u64),
    Decimal(f64),
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AmountVisitor)
    }
}

struct AmountVisitor;

impl de::Visitor<'_> for AmountVisitor {
    type Value = Amount;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of 0 or more")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Amount, E> {
        Ok(Amount::Whole(number))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Amount, E> {
        let whole = u64::try_from(number).map(Amount::Whole);
        whole.map_err(|_| E::invalid_value(de::Unexpected::Signed(number), &self))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Amount, E> {
        if number.is_finite() && number >= 0.0 {
            return Ok(Amount::Decimal(number));
        }
        Err(E::invalid_value(de::Unexpected::Float(number), &self))
    }
}

/// Why a rule makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadBudget {
    /// It has no name.
    #[error("a budget needs a name")]
    NoName,
    /// Only money comes in parts.
    #[error("the limit of {name} has to be a whole number of {}", .unit.as_str())]
    NotWhole {
        /// Which budget.
        name: String,
        /// What it counts.
        unit: BudgetUnit,
    },
    /// No account can hold so much.
    #[error("the limit of {name} is more than can be counted")]
    TooLarge {
        /// Which budget.
        name: String,
    },
    /// There is nobody to choose from.
    #[error("the budget {name} is for everybody together and cannot be for one of them only")]
    OnlyOfAll {
        /// Which budget.
        name: String,
    },
}

const NANO: u64 = 1_000_000_000;

impl Amount {
    /// The amount in the smallest parts of its unit, if it can be counted.
    fn units(&self, unit: BudgetUnit) -> Option<u64> {
        match (self, unit) {
            (Self::Whole(number), BudgetUnit::Usd) => number.checked_mul(NANO),
            (Self::Whole(number), _) => Some(*number),
            (Self::Decimal(number), _) => {
                let nano = (number * NANO as f64).round();
                // A limit that is too small to count is not "no limit" and not nothing either.
                (nano < MAX_AMOUNT as f64).then(|| {
                    if *number > 0.0 {
                        (nano as u64).max(1)
                    } else {
                        0
                    }
                })
            }
        }
    }
}

impl TryFrom<Entry> for BudgetRule {
    type Error = BadBudget;

    fn try_from(entry: Entry) -> Result<Self, BadBudget> {
        let Entry {
            name,
            scope,
            only,
            period,
            unit,
            limit,
            missing,
        } = entry;
        if name.trim().is_empty() {
            return Err(BadBudget::NoName);
        }
        if only.is_some() && scope == BudgetScope::Global {
            return Err(BadBudget::OnlyOfAll { name });
        }
        if matches!(limit, Amount::Decimal(_)) && unit != BudgetUnit::Usd {
            return Err(BadBudget::NotWhole { name, unit });
        }
        let Some(limit) = limit.units(unit).filter(|limit| *limit <= MAX_AMOUNT) else {
            return Err(BadBudget::TooLarge { name });
        };
        Ok(Self {
            name,
            scope,
            only,
            period,
            unit,
            limit,
            missing,
        })
    }
}

impl From<BudgetRule> for Entry {
    fn from(rule: BudgetRule) -> Self {
        let BudgetRule {
            name,
            scope,
            only,
            period,
            unit,
            limit,
            missing,
        } = rule;
        let limit = match unit {
            BudgetUnit::Usd if limit % NANO != 0 => Amount::Decimal(limit as f64 / NANO as f64),
            BudgetUnit::Usd => Amount::Whole(limit / NANO),
            BudgetUnit::Tokens | BudgetUnit::Calls | BudgetUnit::Requests => Amount::Whole(limit),
        };
        Self {
            name,
            scope,
            only,
            period,
            unit,
            limit,
            missing,
        }
    }
}

impl BudgetRule {
    /// A budget for everybody in a scope.
    pub fn new(
        name: &str,
        scope: BudgetScope,
        period: BudgetPeriod,
        unit: BudgetUnit,
        limit: u64,
    ) -> Self {
        Self {
            name: name.to_owned(),
            scope,
            only: None,
            period,
            unit,
            limit,
            missing: MissingPayer::Refuse,
        }
    }

    /// The account that something is paid from at a time; none if the budget is not about it.
    pub(crate) fn account(
        &self,
        payer: &Payer,
        at: Timestamp,
    ) -> Result<Option<AccountKey>, BudgetError> {
        let Some(value) = payer.value(self.scope) else {
            // Something that is no call of a tool has no tool, and nobody hides one by not naming it.
            let counts = self.scope != BudgetScope::Tool && self.missing == MissingPayer::Refuse;
            let refused = BudgetError::UnknownPayer {
                budget: self.name.clone(),
                scope: self.scope,
            };
            return if counts { Err(refused) } else { Ok(None) };
        };
        if self.only.as_deref().is_some_and(|only| *only != *value) {
            return Ok(None);
        }
        let period = self.period.label(at).into();
        Ok(Some(AccountKey {
            scope: self.scope,
            value,
            unit: self.unit,
            period,
        }))
    }

    /// Whether an account is one of this budget.
    pub(crate) fn is_about(&self, account: &AccountKey) -> bool {
        self.scope == account.scope
            && self.unit == account.unit
            && self.period.has(&account.period)
            && self
                .only
                .as_deref()
                .is_none_or(|only| *only == *account.value)
    }

    /// What people call the budget that an account is part of.
    pub(crate) fn title(&self, account: &AccountKey) -> String {
        match (self.scope, &self.only) {
            (BudgetScope::Global, _) | (_, Some(_)) => self.name.clone(),
            (scope, None) => format!("{} ({} {})", self.name, scope.as_str(), account.value),
        }
    }
}
