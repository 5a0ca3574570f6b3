//! One budget as it is configured.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::{
    AccountKey, AlertThresholds, BudgetError, BudgetPeriod, BudgetScope, BudgetUnit, MAX_AMOUNT,
    Payer, Timestamp, convert_dollars,
};

/// A budget.
///
/// Each payer in the scope has a budget of this size: `scope = "user"` with a limit of 5 lets each
/// user spend 5. With `only`, it is for one of them.
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
#[serde(try_from = "BudgetRuleEntry", into = "BudgetRuleEntry")]
#[schemars(
    description = "A spending limit for each payer in the scope, or for the one that `only` names."
)]
pub struct BudgetRule {
    /// The budget's name.
    pub name: String,
    /// The kind of payer it limits.
    pub scope: BudgetScope,
    /// The one payer it is for, if it is not for all payers in the scope.
    pub only: Option<String>,
    /// The period after which it starts again.
    pub period: BudgetPeriod,
    /// The unit it counts.
    pub unit: BudgetUnit,
    /// The limit.
    pub limit: u64,
    /// The treatment of an expense whose payer is not known.
    pub missing: MissingPayer,
    /// The used shares that raise an alert.
    pub alert_at: AlertThresholds,
}

/// The treatment of an expense whose payer in a budget's scope is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MissingPayer {
    /// It is rejected: leaving out a name must not bypass a limit.
    #[default]
    Refuse,
    /// The budget does not count it.
    Ignore,
}

/// The rule as it is written in a file.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BudgetRuleEntry {
    /// The budget's name.
    name: String,
    /// The kind of payer it limits.
    scope: BudgetScope,
    /// The one payer it is for, if it is not for all payers in the scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    only: Option<String>,
    /// The period after which it starts again.
    #[serde(default = "total")]
    period: BudgetPeriod,
    /// The unit it counts.
    unit: BudgetUnit,
    /// The limit: dollars, or a whole number of another unit.
    limit: LimitAmount,
    /// The treatment of an expense whose payer is not known.
    #[serde(default)]
    missing: MissingPayer,
    /// The used shares that raise an alert, in percent.
    #[serde(default, skip_serializing_if = "AlertThresholds::is_default")]
    alert_at: AlertThresholds,
}

const fn total() -> BudgetPeriod {
    BudgetPeriod::Total
}

/// A number as it is written in a file.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum LimitAmount {
    Whole(u64),
    Decimal(f64),
}

impl<'de> Deserialize<'de> for LimitAmount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LimitAmountVisitor)
    }
}

struct LimitAmountVisitor;

impl de::Visitor<'_> for LimitAmountVisitor {
    type Value = LimitAmount;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of 0 or more")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<LimitAmount, E> {
        Ok(LimitAmount::Whole(number))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<LimitAmount, E> {
        let whole = u64::try_from(number).map(LimitAmount::Whole);
        whole.map_err(|_| E::invalid_value(de::Unexpected::Signed(number), &self))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<LimitAmount, E> {
        if number.is_finite() && number >= 0.0 {
            return Ok(LimitAmount::Decimal(number));
        }
        Err(E::invalid_value(de::Unexpected::Float(number), &self))
    }
}

/// The reason a budget rule is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBudget {
    /// It has no name.
    #[error("a budget needs a name")]
    NoName,
    /// Only a limit in money may have a fraction.
    #[error("the limit of {name} has to be a whole number of {}", .unit.as_str())]
    NotWhole {
        /// The budget's name.
        name: String,
        /// The unit it counts.
        unit: BudgetUnit,
    },
    /// The limit exceeds [`MAX_AMOUNT`].
    #[error("the limit of {name} is too large")]
    TooLarge {
        /// The budget's name.
        name: String,
    },
    /// The global scope has only one payer.
    #[error("the budget {name} is for all payers together and cannot have `only`")]
    OnlyOfAll {
        /// The budget's name.
        name: String,
    },
}

const NANO_PER_DOLLAR: u64 = 1_000_000_000;

impl LimitAmount {
    /// Returns the amount in the smallest parts of its unit, unless it is too large.
    fn to_units(&self, unit: BudgetUnit) -> Option<u64> {
        match (self, unit) {
            (Self::Whole(number), BudgetUnit::Usd) => number.checked_mul(NANO_PER_DOLLAR),
            (Self::Whole(number), _) => Some(*number),
            (Self::Decimal(number), _) => convert_dollars(*number),
        }
    }
}

impl TryFrom<BudgetRuleEntry> for BudgetRule {
    type Error = InvalidBudget;

    fn try_from(entry: BudgetRuleEntry) -> Result<Self, InvalidBudget> {
        let BudgetRuleEntry {
            name,
            scope,
            only,
            period,
            unit,
            limit,
            missing,
            alert_at,
        } = entry;
        if name.trim().is_empty() {
            return Err(InvalidBudget::NoName);
        }
        if only.is_some() && scope == BudgetScope::Global {
            return Err(InvalidBudget::OnlyOfAll { name });
        }
        if matches!(limit, LimitAmount::Decimal(_)) && unit != BudgetUnit::Usd {
            return Err(InvalidBudget::NotWhole { name, unit });
        }
        let Some(limit) = limit.to_units(unit).filter(|limit| *limit <= MAX_AMOUNT) else {
            return Err(InvalidBudget::TooLarge { name });
        };
        Ok(Self {
            name,
            scope,
            only,
            period,
            unit,
            limit,
            missing,
            alert_at,
        })
    }
}

impl From<BudgetRule> for BudgetRuleEntry {
    fn from(rule: BudgetRule) -> Self {
        let BudgetRule {
            name,
            scope,
            only,
            period,
            unit,
            limit,
            missing,
            alert_at,
        } = rule;
        let limit = match unit {
            BudgetUnit::Usd if limit % NANO_PER_DOLLAR != 0 => {
                LimitAmount::Decimal(limit as f64 / NANO_PER_DOLLAR as f64)
            }
            BudgetUnit::Usd => LimitAmount::Whole(limit / NANO_PER_DOLLAR),
            BudgetUnit::Tokens | BudgetUnit::Calls | BudgetUnit::Requests => {
                LimitAmount::Whole(limit)
            }
        };
        Self {
            name,
            scope,
            only,
            period,
            unit,
            limit,
            missing,
            alert_at,
        }
    }
}

impl BudgetRule {
    /// Creates a budget for all payers in a scope.
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
            alert_at: AlertThresholds::default(),
        }
    }

    /// Returns the account that is charged at a time; `None` if the budget does not apply.
    pub(crate) fn account_for(
        &self,
        payer: &Payer,
        at: Timestamp,
    ) -> Result<Option<AccountKey>, BudgetError> {
        let Some(value) = payer.payer_in(self.scope) else {
            // A model request has no tool, and the runtime names the tool of every call, so a
            // missing tool hides nothing.
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
        let period = self.period.account_label(at);
        Ok(Some(AccountKey {
            scope: self.scope,
            value,
            unit: self.unit,
            period,
        }))
    }

    /// Checks whether an account belongs to this budget.
    pub(crate) fn owns_account(&self, account: &AccountKey) -> bool {
        self.scope == account.scope
            && self.unit == account.unit
            && self.period.is_label(&account.period)
            && self
                .only
                .as_deref()
                .is_none_or(|only| *only == *account.value)
    }

    /// Returns the name for people of the budget that an account belongs to.
    pub(crate) fn title_for(&self, account: &AccountKey) -> String {
        match (self.scope, &self.only) {
            (BudgetScope::Global, _) | (_, Some(_)) => self.name.clone(),
            (scope, None) => format!("{} ({} {})", self.name, scope.as_str(), account.value),
        }
    }
}
