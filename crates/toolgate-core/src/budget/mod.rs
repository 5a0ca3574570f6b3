//! Budgets: limits on spending by payer, period and unit, the charges they need, and alerts.
//!
//! The accounts are in the store; these are their rules, and the service that spends from them.

pub(crate) mod alert;
pub(crate) mod billing;
pub(crate) mod charge;
pub(crate) mod price;
pub(crate) mod rule;

use std::sync::{Arc, LazyLock};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    AccountMovement, BudgetAlert, BudgetAlertLevel, BudgetAmounts, Charge, ChargeId, ChargeLine,
    Cost, ModelName, SessionId, StoreError, Timestamp, TurnInfo, budget::rule::BudgetRule,
};

/// The kind of payer whose spending a budget limits. Each payer has its own account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BudgetScope {
    /// All payers together.
    Global,
    /// An organisation.
    Org,
    /// A user.
    User,
    /// A project.
    Project,
    /// A session.
    Session,
    /// A run.
    Run,
    /// A tool. Model requests do not count.
    Tool,
}

/// The period after which a budget starts again, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BudgetPeriod {
    /// Never.
    Total,
    /// At midnight.
    Day,
    /// On the first day of the month.
    Month,
}

/// The unit that a budget counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BudgetUnit {
    /// Money, in billionths of a US dollar; in a configuration file in dollars.
    Usd,
    /// Tokens in and out of models.
    Tokens,
    /// Calls of tools.
    Calls,
    /// Requests to models.
    Requests,
}

/// The payer of an expense. A part that is not known stays `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Payer {
    /// The organisation.
    pub org: Option<Arc<str>>,
    /// The user.
    pub user: Option<Arc<str>>,
    /// The project.
    pub project: Option<Arc<str>>,
    /// The session.
    pub session: Option<SessionId>,
    /// The run, by the number of the message that began it.
    pub run: Option<u64>,
    /// The tool, if one is called.
    pub tool: Option<Arc<str>>,
}

/// An expense in every unit. Budgets in a unit with amount zero do not apply.
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

/// The treatment of an expense with an unknown price under a budget in money.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnknownPrice {
    /// It is rejected.
    #[default]
    Refuse,
    /// It is allowed, and no budget in money counts it.
    Allow,
}

/// The reason an expense was rejected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BudgetError {
    /// It would exceed the budget.
    #[error("it would take {wanted}, but only {left} is left of the budget {budget} for {period}")]
    Exceeded {
        /// The budget's name for people.
        budget: String,
        /// The period it is for.
        period: String,
        /// The amount needed, as text.
        wanted: String,
        /// The amount left, as text.
        left: String,
    },
    /// The budget's payer is not known here.
    #[error("the budget {budget} needs to know the {scope}, and it is not known", scope = .scope.as_str())]
    UnknownPayer {
        /// The budget's name.
        budget: String,
        /// The unknown kind of payer.
        scope: BudgetScope,
    },
    /// The budget is in money, and the price is unknown.
    #[error("the budget {budget} is in money, and the price{} is not known", of_model(.model.as_ref()))]
    UnknownPrice {
        /// The budget's name.
        budget: String,
        /// The model, if the price is that of a model.
        model: Option<ModelName>,
    },
    /// The accounts could not be read, so nothing is spent.
    #[error("the accounts could not be read: {0}")]
    Store(#[from] StoreError),
}

fn of_model(model: Option<&ModelName>) -> String {
    model.map_or_else(String::new, |model| format!(" of {model}"))
}

/// All budgets of a program. They are independent: every budget that applies has to allow an
/// expense.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Budgets(Arc<[BudgetRule]>);

impl Budgets {
    /// Creates budgets from these rules.
    pub fn new(rules: impl IntoIterator<Item = BudgetRule>) -> Self {
        Self(rules.into_iter().collect())
    }

    /// Returns the rules.
    pub fn rules(&self) -> &[BudgetRule] {
        &self.0
    }

    /// Checks whether there is no budget, so that nothing is counted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the charge to reserve before an expense; `None` if no budget applies.
    ///
    /// # Errors
    ///
    /// [`BudgetError`] if the payer or the price is not known and the rules reject that.
    pub fn build_charge(
        &self,
        id: ChargeId,
        payer: &Payer,
        at: Timestamp,
        expense: &Expense,
        unknown: UnknownPrice,
    ) -> Result<Option<Charge>, BudgetError> {
        let lines = self.charge_lines(payer, at, expense, unknown)?;
        Ok((!lines.is_empty()).then_some(Charge {
            id,
            session: payer.session,
            at,
            lines,
        }))
    }

    /// Returns the accounts and amounts of an expense, in the order of the accounts' names.
    fn charge_lines(
        &self,
        payer: &Payer,
        at: Timestamp,
        expense: &Expense,
        unknown: UnknownPrice,
    ) -> Result<Vec<ChargeLine>, BudgetError> {
        let mut lines: Vec<ChargeLine> = Vec::new();
        for rule in self.0.iter() {
            let Some(account) = rule.account_for(payer, at)? else {
                continue;
            };
            let amount = match (expense.amount_in(rule.unit), unknown) {
                (Some(0), _) | (None, UnknownPrice::Allow) => continue,
                (Some(amount), _) => amount,
                (None, UnknownPrice::Refuse) => {
                    return Err(BudgetError::UnknownPrice {
                        budget: rule.name.clone(),
                        model: None,
                    });
                }
            };
            match lines.iter_mut().find(|line| line.account == account) {
                // Two rules for the same account: the lower limit decides.
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

    /// Returns the alerts for bookings.
    pub(crate) fn alerts_for(&self, movements: &[AccountMovement]) -> Vec<BudgetAlert> {
        let pairs = movements
            .iter()
            .flat_map(|moved| self.0.iter().map(move |rule| (moved, rule)));
        let about = pairs.filter(|(moved, rule)| rule.owns_account(&moved.account));
        let alert = |moved: &AccountMovement, rule: &BudgetRule, percent| BudgetAlert {
            budget: rule.title_for(&moved.account),
            period: moved.account.period.to_string(),
            percent,
            level: BudgetAlertLevel::for_percent(percent),
            spent: rule.unit.format_amount(moved.after),
            limit: rule.unit.format_amount(rule.limit),
            amounts: Some(BudgetAmounts {
                unit: rule.unit.into(),
                spent: moved.after,
                limit: rule.limit,
            }),
        };
        let alerts = about.flat_map(|(moved, rule)| {
            let crossed = rule.alert_at.crossed(moved.before, moved.after, rule.limit);
            crossed
                .into_iter()
                .map(move |percent| alert(moved, rule, percent))
        });
        alerts.collect()
    }

    /// Converts an error of the store to one that names the budget.
    pub(crate) fn explain_store_error(&self, error: StoreError) -> BudgetError {
        let StoreError::AccountShort {
            account,
            wanted,
            left,
        } = error
        else {
            return error.into();
        };
        let about = self.0.iter().filter(|rule| rule.owns_account(&account));
        // Rules may share an account; the one with the lowest limit was short.
        let rule = about.min_by_key(|rule| rule.limit);
        BudgetError::Exceeded {
            budget: rule.map_or_else(|| account.to_string(), |rule| rule.title_for(&account)),
            period: account.period.to_string(),
            wanted: account.unit.format_amount(wanted),
            left: account.unit.format_amount(left),
        }
    }
}

impl Charge {
    /// Returns the amounts to book for `expense`, line by line. An unknown amount is booked as
    /// reserved.
    pub(crate) fn actual_amounts(&self, expense: &Expense) -> Vec<u64> {
        let line = |line: &ChargeLine| expense.amount_in(line.account.unit).unwrap_or(line.amount);
        self.lines.iter().map(line).collect()
    }
}

impl Expense {
    /// Creates the expense of a call of a tool.
    pub const fn for_call(cost: Cost) -> Self {
        Self {
            cost,
            tokens: 0,
            calls: 1,
            requests: 0,
        }
    }

    /// Creates the expense of a request to a model.
    pub const fn for_request(cost: Cost, tokens: u64) -> Self {
        Self {
            cost,
            tokens,
            calls: 0,
            requests: 1,
        }
    }

    /// Returns the amount in a unit, if it is known.
    pub const fn amount_in(&self, unit: BudgetUnit) -> Option<u64> {
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

/// The payer in the global scope; shared, because every call may need it.
static ALL_PAYERS: LazyLock<Arc<str>> = LazyLock::new(|| "all".into());
/// The label of the period that never ends; shared for the same reason.
static TOTAL_LABEL: LazyLock<Arc<str>> = LazyLock::new(|| "total".into());

impl Payer {
    /// Returns the payer of what is done in a turn. The turn's principal takes precedence over the
    /// user of this payer.
    #[must_use]
    pub fn for_turn(&self, turn: &TurnInfo) -> Self {
        let principal = turn.principal.as_ref();
        Self {
            user: principal
                .map(|principal| principal.as_str().into())
                .or_else(|| self.user.clone()),
            session: Some(turn.session),
            run: turn.run,
            ..self.clone()
        }
    }

    /// Returns the payer in a scope, if it is known.
    pub fn payer_in(&self, scope: BudgetScope) -> Option<Arc<str>> {
        match scope {
            BudgetScope::Global => Some(ALL_PAYERS.clone()),
            BudgetScope::Org => self.org.clone(),
            BudgetScope::User => self.user.clone(),
            BudgetScope::Project => self.project.clone(),
            BudgetScope::Session => self.session.map(|session| session.to_string().into()),
            // The number of a run is unique only within its session.
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

    /// Returns the word in configuration and in the names of accounts.
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

    /// Returns the word in configuration and in the names of accounts.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Usd => "usd",
            Self::Tokens => "tokens",
            Self::Calls => "calls",
            Self::Requests => "requests",
        }
    }

    /// Formats an amount for people.
    pub fn format_amount(self, amount: u64) -> String {
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
    /// Returns the name of the period that contains `at`: `total`, `2026-11-16` or `2026-11`.
    pub fn label_at(self, at: Timestamp) -> String {
        let format = match self {
            Self::Total => return "total".to_owned(),
            Self::Day => "%Y-%m-%d",
            Self::Month => "%Y-%m",
        };
        // A time outside the calendar's range counts as its first or last day.
        let edge = if at < Timestamp::EPOCH {
            jiff::Timestamp::MIN
        } else {
            jiff::Timestamp::MAX
        };
        let time = jiff::Timestamp::from_microsecond(at.as_micros()).unwrap_or(edge);
        time.strftime(format).to_string()
    }

    /// Returns the label of the period as a part of an account's name.
    pub(crate) fn account_label(self, at: Timestamp) -> Arc<str> {
        match self {
            Self::Total => TOTAL_LABEL.clone(),
            Self::Day | Self::Month => self.label_at(at).into(),
        }
    }

    /// Checks whether a label can be one of this period.
    pub(crate) fn is_label(self, label: &str) -> bool {
        // The first byte may be the sign of a year before zero.
        let dashes = label.bytes().skip(1).filter(|byte| *byte == b'-').count();
        match self {
            Self::Total => label == "total",
            Self::Day => label != "total" && dashes == 2,
            Self::Month => label != "total" && dashes == 1,
        }
    }
}

#[cfg(test)]
mod tests;
