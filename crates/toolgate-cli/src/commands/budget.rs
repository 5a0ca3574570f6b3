//! `toolgate budget`: limits, spent amounts, and the prices of models.

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use toolgate::{
    budget::{AccountRow, BudgetRule, BudgetUnit, DollarsPerMillion, Price},
    event::Cost,
    gate,
    model::ModelName,
    store::StoreHandle,
};

use crate::{
    CliError, CommandContext, Exit,
    env::{runtime, style, times},
    show::render::{StyledLine, TextTable},
};

/// The number of rows per query.
const PAGE: usize = 500;
/// The width of a bar.
const BAR_WIDTH: usize = 20;

/// Shows the budgets of the configuration with what is spent, and what models cost.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate budget                                    what is left of each budget
  toolgate budget prices                             what models cost, and the date of the prices
  toolgate budget prices anthropic:claude-sonnet-4-5")]
pub struct BudgetArgs {
    /// The subcommand; `list` by default.
    #[command(subcommand)]
    pub what: Option<BudgetCommand>,
}

/// A subcommand of `toolgate budget`.
#[derive(Debug, Subcommand)]
pub enum BudgetCommand {
    /// Show what is left of each budget
    List(BudgetListArgs),
    /// Show what models cost
    Prices(PricesArgs),
}

/// Shows the budgets of the configuration for their current period, with spent and reserved
/// amounts.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate budget list
  toolgate budget list --json")]
pub struct BudgetListArgs {}

/// Shows what models cost, in US dollars per million tokens.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate budget prices
  toolgate budget prices openai:gpt-5 --json")]
pub struct PricesArgs {
    /// The model, as provider:name; by default all of them
    pub model: Option<String>,
}

/// A budget and one account of it.
struct BudgetBalance<'a> {
    rule: &'a BudgetRule,
    period: String,
    /// `None` if nothing was ever charged to it.
    row: Option<AccountRow>,
}

/// Runs the subcommand.
pub(crate) fn run(args: &BudgetArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    match &args.what {
        Some(BudgetCommand::Prices(args)) => print_prices(args, cx),
        Some(BudgetCommand::List(_)) | None => runtime::block_on(list_budgets(cx)),
    }
}

async fn list_budgets(cx: &CommandContext) -> Result<Exit, CliError> {
    let config = cx.load_config()?;
    let rules = config.budgets().rules();
    if rules.is_empty() {
        if !cx.out.is_json() {
            cx.out.print_note(
                "the configuration has no budgets; `[[budget]]` in toolgate.toml adds one",
            )?;
        }
        return Ok(Exit::Done);
    }
    let store = cx.open_store().await?;
    let mut table = TextTable::for_output().with_head([
        "budget", "of", "period", "spent", "reserved", "left", "limit", "used",
    ]);
    for rule in rules {
        for standing in load_balances(&store, rule).await? {
            if cx.out.is_json() {
                cx.out.print_json(&standing.to_json())?
            } else {
                table.add_row(standing.table_cells())
            }
        }
    }
    if !cx.out.is_json() {
        cx.out.print_line(table)?;
    }
    Ok(Exit::Done)
}

/// Returns the accounts of a budget in its current period; one without an account if nothing was
/// charged yet.
async fn load_balances<'a>(
    store: &StoreHandle,
    rule: &'a BudgetRule,
) -> Result<Vec<BudgetBalance<'a>>, CliError> {
    let period = rule.period.label_at(times::current_time());
    let prefix = format!("budget/{}/", rule.scope.as_str());
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let page = store.accounts(&prefix, after.as_ref(), PAGE).await?;
        let is_full = page.len() == PAGE;
        after = page.last().map(|row| row.account.clone());
        // Accounts of earlier periods stay in the store.
        let is_mine = |row: &AccountRow| {
            row.account.unit == rule.unit
                && *row.account.period == *period
                && rule
                    .only
                    .as_deref()
                    .is_none_or(|only| *only == *row.account.value)
        };
        let mine = page.into_iter().filter(is_mine);
        found.extend(mine.map(|row| BudgetBalance {
            rule,
            period: period.clone(),
            row: Some(row),
        }));
        if !is_full {
            break;
        }
    }
    if found.is_empty() {
        found.push(BudgetBalance {
            rule,
            period,
            row: None,
        });
    }
    Ok(found)
}

impl BudgetBalance<'_> {
    fn amounts(&self) -> [u64; 3] {
        match &self.row {
            Some(row) => [row.spent, row.reserved, row.amount_left(self.rule.limit)],
            None => [0, 0, self.rule.limit],
        }
    }

    fn payer(&self) -> String {
        let only = || self.rule.only.clone().unwrap_or_default();
        style::escape_controls(
            &self
                .row
                .as_ref()
                .map_or_else(only, |row| row.account.value.to_string()),
        )
    }

    fn to_json(&self) -> Value {
        let rule = self.rule;
        let [spent, reserved, left] = self.amounts();
        // Money is counted in billionths of a dollar; the unit says so, because a script cannot
        // guess it.
        let unit = if rule.unit == BudgetUnit::Usd {
            "nano_usd"
        } else {
            rule.unit.as_str()
        };
        json!({
            "budget": rule.name, "scope": rule.scope.as_str(), "of": self.payer(), "period": self.period, "unit": unit,
            "spent": spent, "reserved": reserved, "left": left, "limit": rule.limit,
        })
    }

    fn table_cells(&self) -> [StyledLine; 8] {
        let rule = self.rule;
        let [spent, reserved, left] = self.amounts();
        let show = |amount| rule.unit.format_amount(amount).into();
        [
            style::bold(&rule.name),
            format!("{} {}", rule.scope.as_str(), self.payer())
                .trim()
                .into(),
            self.period.as_str().into(),
            show(spent),
            show(reserved),
            show(left),
            show(rule.limit),
            // Reserved amounts count as used: they are not left.
            usage_bar(rule.limit - left.min(rule.limit), rule.limit),
        ]
    }
}

/// Formats the used part as a bar with a percentage.
fn usage_bar(used: u64, limit: u64) -> StyledLine {
    let percent = if limit == 0 {
        100
    } else {
        // Amounts are billionths of a dollar: a hundred times as much may not fit into 64 bits.
        (u128::from(used) * 100 / u128::from(limit)) as usize
    };
    let full = (percent * BAR_WIDTH / 100).min(BAR_WIDTH);
    let text = format!(
        "{}{} {percent} %",
        "█".repeat(full),
        "░".repeat(BAR_WIDTH - full)
    );
    match percent {
        0..75 => style::good(text),
        75..100 => style::warn(text),
        _ => style::bad(text),
    }
}

fn print_prices(args: &PricesArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    let section = gate::RunSection::of(&cx.load_config()?)?;
    let prices = gate::load_prices(&section)?;
    let since = prices.as_of().map(str::to_owned);
    let mut table = TextTable::for_output().with_head([
        "model",
        "input",
        "output",
        "cache read",
        "cache write",
    ]);
    let mut show = |name: &ModelName, price: &Price| {
        if cx.out.is_json() {
            cx.out
                .print_json(&price_json(name, price, since.as_deref()))
        } else {
            table.add_row(price_cells(name, price));
            Ok(())
        }
    };
    match &args.model {
        Some(text) => {
            let name = gate::parse_model_name(text)?;
            let price = prices.price_of(&name).ok_or_else(|| {
                CliError::usage(format!("the price of {name} is unknown"))
                    .with_hint(format!("put it into a file: [providers.{}.models.\"{}\"] with input = … and output = …, in dollars for a million tokens; \
                                       `prices = \"FILE\"` under [run] in toolgate.toml names the file", name.provider, name.model))
            })?;
            show(&name, price)?;
        }
        None => prices
            .models()
            .try_for_each(|(name, price)| show(&name, price))?,
    }
    if !cx.out.is_json() {
        cx.out.print_line(table)?;
        let since = since.unwrap_or_else(|| "an unknown date".to_owned());
        cx.out.print_note(style::dim(format!(
            "US dollars per million tokens, as of {since}"
        )))?;
    }
    Ok(Exit::Done)
}

fn price_json(name: &ModelName, price: &Price, since: Option<&str>) -> Value {
    let usd = |dollars: DollarsPerMillion| dollars.as_nano() as f64 / 1e9;
    json!({
        "model": name.to_string(), "input": usd(price.input), "output": usd(price.output),
        "cache_read": price.cache_read.map(usd), "cache_write": price.cache_write.map(usd), "as_of": since,
    })
}

fn price_cells(name: &ModelName, price: &Price) -> [StyledLine; 5] {
    let usd = |dollars: Option<DollarsPerMillion>| {
        dollars.map_or_else(StyledLine::new, |dollars| {
            Cost::NanoUsd(dollars.as_nano())
                .to_string()
                .trim_end_matches('0')
                .trim_end_matches('.')
                .into()
        })
    };
    [
        name.to_string().into(),
        usd(Some(price.input)),
        usd(Some(price.output)),
        usd(price.cache_read),
        usd(price.cache_write),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_full_when_nothing_is_left_and_never_longer() {
        let shown = |used, limit| usage_bar(used, limit).text();
        assert_eq!(shown(0, 10), format!("{} 0 %", "░".repeat(20)));
        assert_eq!(
            shown(5, 10),
            format!("{}{} 50 %", "█".repeat(10), "░".repeat(10))
        );
        assert_eq!(
            shown(u64::MAX, u64::MAX),
            format!("{} 100 %", "█".repeat(20))
        );
        assert_eq!(shown(0, 0), format!("{} 100 %", "█".repeat(20)));
    }
}
