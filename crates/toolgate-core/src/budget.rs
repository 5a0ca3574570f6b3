//! Budgets: how much may be spent, by whom, in which time; which of them something counts towards; when to warn.
//!
//! Nothing here is kept: the accounts are in the store, and these are the rules about them.

use std::{fmt, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Charge, ChargeId, ChargeLine, Cost, LoopEvent, Movement, SessionId, StoreError, Timestamp,
    budget_rule::BudgetRule,
};

/// Whose spending a budget bounds. Each of them has an account of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BudgetScope {
    /// Everybody together.
    Global,
    /// An organisation.
    Org,
    /// A person.
    User,
    /// A project.
    Project,
    /// A session.
    Session,
    /// A run: what follows from one message of a person.
    Run,
    /// A tool. Models are no tools, so asking one does not count.
    Tool,
}

/// The time after which a budget starts anew, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BudgetPeriod {
    /// Never.
    Total,
    /// At midnight.
    Day,
    /// With the first of the month.
    Month,
}

/// What a budget counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BudgetUnit {
    /// Money, in billionths of a US dollar; in a configuration file in dollars.
    Usd,
    /// What models read and write.
    Tokens,
    /// Calls of tools.
    Calls,
    /// Requests to models.
    Requests,
}

/// Who pays for something. Nobody who is not known is made up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Payer {
    /// Which organisation.
    pub org: Option<Arc<str>>,
    /// Which person.
    pub user: Option<Arc<str>>,
    /// Which project.
    pub project: Option<Arc<str>>,
    /// Which session.
    pub session: Option<SessionId>,
    /// Which run, by the number of the message that began it.
    pub run: Option<u64>,
    /// Which tool, if one is called.
    pub tool: Option<Arc<str>>,
}

/// What something takes, in every unit. In a unit in which it takes nothing, no budget is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expense {
    /// Money, if the price is known.
    pub cost: Cost,
    /// Tokens.
    pub tokens: u64,
    /// Calls of tools.
    pub calls: u64,
    /// Requests to models.
    pub requests: u64,
}

/// What happens to something whose price nobody knows, where there is a budget in money.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnknownPrice {
    /// It is refused.
    #[default]
    Refuse,
    /// It is done, and no budget in money counts it.
    Allow,
}

/// A budget has been used up to a threshold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetAlert {
    /// Which budget, as people call it.
    pub budget: String,
    /// The period it is for.
    pub period: String,
    /// The threshold that was reached, in percent.
    pub percent: u8,
    /// How much is used, in words.
    pub spent: String,
    /// How much there is, in words.
    pub limit: String,
}

/// Why something cannot be paid for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BudgetError {
    /// It would be more than is left.
    #[error("it would take {wanted}, but only {left} is left of the budget {budget} for {period}")]
    Exceeded {
        /// Which budget, as people call it.
        budget: String,
        /// The period it is for.
        period: String,
        /// What it would take, in words.
        wanted: String,
        /// What is left, in words.
        left: String,
    },
    /// The budget is for somebody who is not known here.
    #[error("the budget {budget} needs to know the {scope}, and it is not known", scope = .scope.as_str())]
    UnknownPayer {
        /// Which budget.
        budget: String,
        /// Who is not known.
        scope: BudgetScope,
    },
    /// The budget is in money, and nobody knows the price.
    #[error("the budget {budget} is in money, and the price is not known")]
    UnknownPrice {
        /// Which budget.
        budget: String,
    },
    /// The accounts could not be asked, so nothing is spent.
    #[error("the accounts could not be asked")]
    Store(#[from] StoreError),
}

/// The shares of a budget at which somebody is told, in percent.
pub const THRESHOLDS: [u8; 4] = [50, 75, 90, 100];

/// The thresholds of a budget that are passed when what was spent from it grows from `before` to `after`.
///
/// Of several bookings one after the other, exactly one passes each threshold.
///
/// ```
/// use toolgate_core::crossed;
/// assert_eq!(crossed(40, 95, 100), [50, 75, 90]);
/// assert!(crossed(95, 96, 100).is_empty());
/// ```
pub fn crossed(before: u64, after: u64, limit: u64) -> Vec<u8> {
    let reached = |spent: u64, percent: u8| {
        u128::from(spent) * 100 >= u128::from(percent) * u128::from(limit)
    };
    THRESHOLDS
        .into_iter()
        .filter(|percent| !reached(before, *percent) && reached(after, *percent))
        .collect()
}

/// All budgets of a program. They are independent: something is done only if every one that it counts towards allows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Budgets(Arc<[BudgetRule]>);

impl Budgets {
    /// Budgets by these rules.
    pub fn new(rules: impl IntoIterator<Item = BudgetRule>) -> Self {
        Self(rules.into_iter().collect())
    }

    /// The rules.
    pub fn rules(&self) -> &[BudgetRule] {
        &self.0
    }

    /// Whether there is no budget, so that nothing is counted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What has to be set aside for something before it is done; nothing if no budget counts it.
    pub fn charge(
        &self,
        id: ChargeId,
        payer: &Payer,
        at: Timestamp,
        expense: &Expense,
        unknown: UnknownPrice,
    ) -> Result<Option<Charge>, BudgetError> {
        let lines = self.lines(payer, at, expense, unknown)?;
        Ok((!lines.is_empty()).then_some(Charge {
            id,
            session: payer.session,
            at,
            lines,
        }))
    }

    /// The accounts that something is paid from and how much, in the order of their names.
    pub fn lines(
        &self,
        payer: &Payer,
        at: Timestamp,
        expense: &Expense,
        unknown: UnknownPrice,
    ) -> Result<Vec<ChargeLine>, BudgetError> {
        let mut lines: Vec<ChargeLine> = Vec::new();
        for rule in self.0.iter() {
            let Some(account) = rule.account(payer, at)? else {
                continue;
            };
            let amount = match (expense.amount(rule.unit), unknown) {
                (Some(0), _) | (None, UnknownPrice::Allow) => continue,
                (Some(amount), _) => amount,
                (None, UnknownPrice::Refuse) => {
                    return Err(BudgetError::UnknownPrice {
                        budget: rule.name.clone(),
                    });
                }
            };
            match lines.iter_mut().find(|line| line.account == account) {
                // Two rules about the same account: the narrower one decides.
                Some(line) => line.limit = line.limit.min(rule.limit),
                None => lines.push(ChargeLine {
                    account,
                    limit: rule.limit,
                    amount,
                }),
            }
        }
        lines.sort_by(|a, b| a.account.cmp(&b.account));
        Ok(lines)
    }

    /// Whom to tell after something was booked, and what.
    pub fn alerts(&self, movements: &[Movement]) -> Vec<BudgetAlert> {
        let pairs = movements
            .iter()
            .flat_map(|moved| self.0.iter().map(move |rule| (moved, rule)));
        let about = pairs.filter(|(moved, rule)| rule.is_about(&moved.account));
        let alert = |moved: &Movement, rule: &BudgetRule, percent| BudgetAlert {
            budget: rule.title(&moved.account),
            period: moved.account.period.to_string(),
            percent,
            spent: rule.unit.show(moved.after),
            limit: rule.unit.show(rule.limit),
        };
        let alerts = about.flat_map(|(moved, rule)| {
            let crossed = crossed(moved.before, moved.after, rule.limit);
            crossed
                .into_iter()
                .map(move |percent| alert(moved, rule, percent))
        });
        alerts.collect()
    }

    /// What an error of the store means for whoever wanted to pay.
    pub fn refused(&self, error: StoreError) -> BudgetError {
        let StoreError::Short {
            account,
            wanted,
            left,
        } = error
        else {
            return error.into();
        };
        let about = self.0.iter().filter(|rule| rule.is_about(&account));
        let rule = about.min_by_key(|rule| rule.limit);
        BudgetError::Exceeded {
            budget: rule.map_or_else(|| account.to_string(), |rule| rule.title(&account)),
            period: account.period.to_string(),
            wanted: account.unit.show(wanted),
            left: account.unit.show(left),
        }
    }
}

impl Charge {
    /// What to book, line by line, for something that took `expense`. What is not known is booked as it was set aside.
    pub fn actual(&self, expense: &Expense) -> Vec<u64> {
        let line = |line: &ChargeLine| expense.amount(line.account.unit).unwrap_or(line.amount);
        self.lines.iter().map(line).collect()
    }
}

impl Expense {
    /// A call of a tool.
    pub const fn call(cost: Cost) -> Self {
        Self {
            cost,
            tokens: 0,
            calls: 1,
            requests: 0,
        }
    }

    /// A request to a model.
    pub const fn request(cost: Cost, tokens: u64) -> Self {
        Self {
            cost,
            tokens,
            calls: 0,
            requests: 1,
        }
    }

    /// How much it takes in a unit, if that is known.
    pub const fn amount(&self, unit: BudgetUnit) -> Option<u64> {
        match unit {
            BudgetUnit::Usd => match self.cost {
                Cost::NanoUsd(nano) => Some(nano),
                Cost::Unknown => None,
            },
            BudgetUnit::Tokens => Some(self.tokens),
            BudgetUnit::Calls => Some(self.calls),
            BudgetUnit::Requests => Some(self.requests),
        }
    }
}

impl Payer {
    /// Who pays in a scope, if that is known.
    pub fn value(&self, scope: BudgetScope) -> Option<Arc<str>> {
        match scope {
            BudgetScope::Global => Some("all".into()),
            BudgetScope::Org => self.org.clone(),
            BudgetScope::User => self.user.clone(),
            BudgetScope::Project => self.project.clone(),
            BudgetScope::Session => self.session.map(|session| session.to_string().into()),
            BudgetScope::Run => self
                .session
                .zip(self.run)
                .map(|(session, run)| format!("{session}/{run}").into()),
            BudgetScope::Tool => self.tool.clone(),
        }
    }
}

impl BudgetScope {
    /// Every scope.
    pub const ALL: [Self; 7] = [
        Self::Global,
        Self::Org,
        Self::User,
        Self::Project,
        Self::Session,
        Self::Run,
        Self::Tool,
    ];

    /// The word in configuration and in the names of accounts.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Global => "global",
            Self::Org => "org",
            Self::User => "user",
            Self::Project => "project",
            Self::Session => "session",
            Self::Run => "run",
            Self::Tool => "tool",
        }
    }

    pub(crate) fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == word)
    }
}

impl BudgetUnit {
    /// Every unit.
    pub const ALL: [Self; 4] = [Self::Usd, Self::Tokens, Self::Calls, Self::Requests];

    /// The word in configuration and in the names of accounts.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Usd => "usd",
            Self::Tokens => "tokens",
            Self::Calls => "calls",
            Self::Requests => "requests",
        }
    }

    /// An amount in words.
    pub fn show(self, amount: u64) -> String {
        match self {
            Self::Usd => Cost::NanoUsd(amount).to_string(),
            Self::Tokens | Self::Calls | Self::Requests => format!("{amount} {}", self.as_str()),
        }
    }

    pub(crate) fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.as_str() == word)
    }
}

impl BudgetPeriod {
    /// The name of the period that `at` falls into: `total`, `2026-11-16` or `2026-11`.
    pub fn label(self, at: Timestamp) -> String {
        let format = match self {
            Self::Total => return "total".to_owned(),
            Self::Day => "%Y-%m-%d",
            Self::Month => "%Y-%m",
        };
        // A time that no calendar has falls into its first or last day.
        let edge = if at < Timestamp::EPOCH {
            jiff::Timestamp::MIN
        } else {
            jiff::Timestamp::MAX
        };
        let time = jiff::Timestamp::from_microsecond(at.as_micros()).unwrap_or(edge);
        time.strftime(format).to_string()
    }

    /// Whether a label can be one of this period.
    pub(crate) fn has(self, label: &str) -> bool {
        let dashes = label.bytes().skip(1).filter(|byte| *byte == b'-').count();
        match self {
            Self::Total => label == "total",
            Self::Day => label != "total" && dashes == 2,
            Self::Month => label != "total" && dashes == 1,
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
        } = self;
        write!(
            f,
            "{percent} % of the budget {budget} for {period} is used: {spent} of {limit}"
        )
    }
}

impl From<BudgetAlert> for LoopEvent {
    fn from(alert: BudgetAlert) -> Self {
        let BudgetAlert {
            budget,
            period,
            percent,
            spent,
            limit,
        } = alert;
        Self::BudgetAlert {
            budget,
            period,
            percent,
            spent,
            limit,
        }
    }
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
