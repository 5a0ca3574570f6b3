//! Alerts of budgets: the thresholds, the levels and the numbers.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{BudgetUnit, SessionEvent};

/// An alert that a budget has reached a threshold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "StoredBudgetAlert")]
pub struct BudgetAlert {
    /// The budget's name for people.
    pub budget: String,
    /// The period it is for.
    pub period: String,
    /// The threshold that was reached, in percent.
    pub percent: u8,
    /// The level of the alert.
    pub level: BudgetAlertLevel,
    /// The amount spent, as text.
    pub spent: String,
    /// The limit, as text.
    pub limit: String,
    /// The amounts as numbers. Events of older versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amounts: Option<BudgetAmounts>,
}

/// The amounts of an alert as numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetAmounts {
    /// The unit of both numbers.
    pub unit: AlertUnit,
    /// The amount spent.
    pub spent: u64,
    /// The limit.
    pub limit: u64,
}

/// The unit of the amounts of an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AlertUnit {
    /// Money, in billionths of a US dollar.
    NanoUsd,
    /// Tokens in and out of models.
    Tokens,
    /// Calls of tools.
    Calls,
    /// Requests to models.
    Requests,
    /// Iterations of a recursive agent.
    Iterations,
    /// Seconds of a recursive agent.
    Seconds,
}

/// The level of an alert, by the share of the budget that is used.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum BudgetAlertLevel {
    /// Less than 75 percent.
    Info,
    /// From 75 percent.
    Warning,
    /// From 90 percent.
    Critical,
    /// 100 percent.
    Exceeded,
}

impl BudgetAlertLevel {
    /// Returns the level of a threshold.
    ///
    /// ```
    /// use toolgate_core::BudgetAlertLevel;
    /// assert_eq!(BudgetAlertLevel::for_percent(50), BudgetAlertLevel::Info);
    /// assert_eq!(BudgetAlertLevel::for_percent(80), BudgetAlertLevel::Warning);
    /// ```
    pub const fn for_percent(percent: u8) -> Self {
        match percent {
            ..75 => Self::Info,
            75..90 => Self::Warning,
            90..100 => Self::Critical,
            100.. => Self::Exceeded,
        }
    }

    /// Returns the word in events.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
            Self::Exceeded => "exceeded",
        }
    }
}

impl From<BudgetUnit> for AlertUnit {
    fn from(unit: BudgetUnit) -> Self {
        match unit {
            BudgetUnit::Usd => Self::NanoUsd,
            BudgetUnit::Tokens => Self::Tokens,
            BudgetUnit::Calls => Self::Calls,
            BudgetUnit::Requests => Self::Requests,
        }
    }
}

/// An alert as it is stored: one of an older version has no level. The schema of events is that of
/// this type.
#[derive(Deserialize, JsonSchema)]
struct StoredBudgetAlert {
    /// The budget's name for people.
    budget: String,
    /// The period it is for.
    period: String,
    /// The threshold that was reached, in percent.
    percent: u8,
    /// The level of the alert. Events of older versions have none.
    level: Option<BudgetAlertLevel>,
    /// The amount spent, as text.
    spent: String,
    /// The limit, as text.
    limit: String,
    /// The amounts as numbers. Events of older versions have none.
    amounts: Option<BudgetAmounts>,
}

impl From<StoredBudgetAlert> for BudgetAlert {
    fn from(stored: StoredBudgetAlert) -> Self {
        let StoredBudgetAlert {
            budget,
            period,
            percent,
            level,
            spent,
            limit,
            amounts,
        } = stored;
        Self {
            budget,
            period,
            percent,
            level: level.unwrap_or_else(|| BudgetAlertLevel::for_percent(percent)),
            spent,
            limit,
            amounts,
        }
    }
}

impl fmt::Display for BudgetAlert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            budget,
            period,
            percent,
            spent,
            limit,
            ..
        } = self;
        write!(
            f,
            "{percent} % of the budget {budget} for {period} is used: {spent} of {limit}"
        )
    }
}

impl From<BudgetAlert> for SessionEvent {
    fn from(alert: BudgetAlert) -> Self {
        Self::BudgetAlert(alert)
    }
}

/// The used shares of a budget that raise an alert: percents from 1 to 100 in ascending order, each
/// once. By default 50, 75, 90 and 100.
///
/// ```
/// use toolgate_core::AlertThresholds;
/// let thresholds = AlertThresholds::new([100, 80])?;
/// assert_eq!(thresholds.percents(), [80, 100]);
/// assert!(AlertThresholds::new([101]).is_err());
/// # Ok::<(), toolgate_core::InvalidThreshold>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Vec<i64>")]
#[schemars(extend("uniqueItems" = true))]
pub struct AlertThresholds(#[schemars(inner(range(min = 1, max = 100)))] Vec<u8>);

/// The reason thresholds are not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidThreshold {
    /// It is no percent.
    #[error("the threshold of an alert is a whole number from 1 to 100, not {0}")]
    OutOfRange(i64),
    /// It is there twice.
    #[error("the threshold {0} is there twice")]
    Duplicate(u8),
}

impl AlertThresholds {
    /// Creates thresholds from percents, in any order. Without any, there are no alerts.
    ///
    /// # Errors
    ///
    /// [`InvalidThreshold`] for a number that is no percent, and for one that is there twice.
    pub fn new(percents: impl IntoIterator<Item = u8>) -> Result<Self, InvalidThreshold> {
        let mut sorted: Vec<u8> = percents.into_iter().collect();
        sorted.sort_unstable();
        if let Some(percent) = sorted.iter().find(|percent| !(1..=100).contains(*percent)) {
            return Err(InvalidThreshold::OutOfRange(i64::from(*percent)));
        }
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(InvalidThreshold::Duplicate(pair[0])),
            None => Ok(Self(sorted)),
        }
    }

    /// Returns the percents in ascending order.
    pub fn percents(&self) -> &[u8] {
        &self.0
    }

    /// Returns the thresholds that are crossed when the spent amount grows from `before` to `after`.
    ///
    /// Of several consecutive bookings, exactly one crosses each threshold.
    ///
    /// ```
    /// let thresholds = toolgate_core::AlertThresholds::default();
    /// assert_eq!(thresholds.crossed(40, 95, 100), [50, 75, 90]);
    /// assert!(thresholds.crossed(95, 96, 100).is_empty());
    /// ```
    pub fn crossed(&self, before: u64, after: u64, limit: u64) -> Vec<u8> {
        let reached = |spent: u64, percent: u8| {
            // In 128 bits, because the product may exceed 64.
            u128::from(spent) * 100 >= u128::from(percent) * u128::from(limit)
        };
        let crossed = |percent: &u8| !reached(before, *percent) && reached(after, *percent);
        self.0.iter().copied().filter(crossed).collect()
    }

    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for AlertThresholds {
    fn default() -> Self {
        Self(vec![50, 75, 90, 100])
    }
}

impl TryFrom<Vec<i64>> for AlertThresholds {
    type Error = InvalidThreshold;

    fn try_from(percents: Vec<i64>) -> Result<Self, InvalidThreshold> {
        let percent =
            |number: i64| u8::try_from(number).map_err(|_| InvalidThreshold::OutOfRange(number));
        let percents: Vec<u8> = percents
            .into_iter()
            .map(percent)
            .collect::<Result<_, _>>()?;
        Self::new(percents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_begins_at_its_own_threshold() {
        let levels = [1, 74, 75, 89, 90, 99, 100].map(BudgetAlertLevel::for_percent);
        use BudgetAlertLevel::{Critical, Exceeded, Info, Warning};
        assert_eq!(
            levels,
            [Info, Info, Warning, Warning, Critical, Critical, Exceeded]
        );
    }

    #[test]
    fn thresholds_are_percents_in_ascending_order_each_once() {
        let read = |text: &str| serde_json::from_str::<AlertThresholds>(text);
        assert_eq!(
            read("[100, 1, 60]").expect("valid").percents(),
            [1, 60, 100]
        );
        assert!(read("[]").expect("no alerts").crossed(0, 9, 1).is_empty());
        for (text, problem) in [
            ("[0]", "not 0"),
            ("[50, 101]", "not 101"),
            ("[-1]", "not -1"),
            ("[300]", "not 300"),
            ("[90, 50, 90]", "the threshold 90 is there twice"),
        ] {
            let error = read(text).expect_err("not valid").to_string();
            assert!(error.contains(problem), "{error}");
        }
    }

    #[test]
    fn an_alert_of_an_older_version_gets_its_level_from_the_percent() {
        let old = r#"{ "budget": "b", "period": "total", "percent": 90, "spent": "9 calls", "limit": "10 calls" }"#;
        let alert: BudgetAlert = serde_json::from_str(old).expect("reads");
        assert_eq!(
            (alert.level, alert.amounts),
            (BudgetAlertLevel::Critical, None)
        );
    }
}
