//! `toolgate budget`: what may be spent, what is spent, and what models cost.

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use toolgate::{AccountRow, BudgetRule, BudgetUnit, Cost, Dollars, ModelName, Price, StoreHandle};

use crate::{CliError, Cx, Exit, model, runtime, settings::RunSection, style, table::Table, times};

/// How many rows are read at once.
const PAGE: usize = 500;
/// How wide a bar is.
const BAR: usize = 20;

/// Shows the budgets of the configuration with what is spent, and what models cost.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate budget                                    what is left of each budget
  toolgate budget prices                             what models cost, and since when that is known
  toolgate budget prices anthropic:claude-sonnet-4-5")]
pub struct BudgetArgs {
    /// What to show; the budgets unless given.
    #[command(subcommand)]
    pub what: Option<BudgetCommand>,
}

/// What can be shown.
#[derive(Debug, Subcommand)]
pub enum BudgetCommand {
    /// Show what is left of each budget
    List(BudgetListArgs),
    /// Show what models cost
    Prices(PricesArgs),
}

/// Shows the budgets of the configuration for their current period, with what is spent and set aside.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate budget list
  toolgate budget list --json")]
pub struct BudgetListArgs {}

/// Shows what models cost, in US dollars for a million tokens.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate budget prices
  toolgate budget prices openai:gpt-5 --json")]
pub struct PricesArgs {
    /// The model, as provider:name; all of them unless given
    pub model: Option<String>,
}

/// A budget and one account of it.
struct Standing<'a> {
    rule: &'a BudgetRule,
    period: String,
    /// Nothing if nothing was ever paid from it.
    row: Option<AccountRow>,
}

/// Shows it.
pub(crate) fn run(args: &BudgetArgs, cx: &Cx) -> Result<Exit, CliError> {
    match &args.what {
        Some(BudgetCommand::Prices(args)) => prices(args, cx),
        Some(BudgetCommand::List(_)) | None => runtime::block_on(list(cx)),
    }
}

async fn list(cx: &Cx) -> Result<Exit, CliError> {
    let config = cx.config()?;
    let rules = config.budgets().rules();
    if rules.is_empty() {
        if !cx.out.is_json() {
            cx.out.note(
                "the configuration has no budgets; `[[budget]]` in toolgate.toml makes one",
            )?;
        }
        return Ok(Exit::Done);
    }
    let store = cx.store().await?;
    let mut table = Table::new().head([
        "budget",
        "of",
        "period",
        "spent",
        "set aside",
        "left",
        "limit",
        "used",
    ]);
    for rule in rules {
        for standing in standings(&store, rule).await? {
            match cx.out.is_json() {
                true => cx.out.json(&standing.as_json())?,
                false => table.row(standing.cells()),
            }
        }
    }
    if !cx.out.is_json() {
        cx.out.line(table)?;
    }
    Ok(Exit::Done)
}

/// The accounts of a budget in its current period; one without an account if nobody has paid yet.
async fn standings<'a>(
    store: &StoreHandle,
    rule: &'a BudgetRule,
) -> Result<Vec<Standing<'a>>, CliError> {
    let (period, prefix) = (
        rule.period.label(times::now()),
        format!("budget/{}/", rule.scope.as_str()),
    );
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = store.accounts(&prefix, after.as_ref(), PAGE).await?;
        let is_full = page.len() == PAGE;
        after = page.last().map(|row| row.account.clone());
        let is_mine = |row: &AccountRow| {
            row.account.unit == rule.unit
                && *row.account.period == *period
                && rule
                    .only
                    .as_deref()
                    .is_none_or(|only| *only == *row.account.value)
        };
        let mine = page.into_iter().filter(is_mine);
        found.extend(mine.map(|row| Standing {
            rule,
            period: period.clone(),
            row: Some(row),
        }));
        if !is_full {
            break;
        }
    }
    if found.is_empty() {
        found.push(Standing {
            rule,
            period,
            row: None,
        });
    }
    Ok(found)
}

impl Standing<'_> {
    fn amounts(&self) -> [u64; 3] {
        match &self.row {
            Some(row) => [row.spent, row.reserved, row.left(self.rule.limit)],
            None => [0, 0, self.rule.limit],
        }
    }

    fn payer(&self) -> String {
        let only = || self.rule.only.clone().unwrap_or_default();
        style::plain(
            &self
                .row
                .as_ref()
                .map_or_else(only, |row| row.account.value.to_string()),
        )
    }

    fn as_json(&self) -> Value {
        let (rule, [spent, reserved, left]) = (self.rule, self.amounts());
        // Money is counted in billionths of a dollar, which no machine should have to guess.
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

    fn cells(&self) -> [String; 8] {
        let (rule, [spent, reserved, left]) = (self.rule, self.amounts());
        let show = |amount| rule.unit.show(amount);
        [
            style::bold(style::plain(&rule.name)).to_string(),
            format!("{} {}", rule.scope.as_str(), self.payer())
                .trim()
                .to_owned(),
            self.period.clone(),
            show(spent),
            show(reserved),
            show(left),
            show(rule.limit),
            bar(rule.limit - left.min(rule.limit), rule.limit),
        ]
    }
}

/// How much is used, as a bar with the percentage behind it.
fn bar(used: u64, limit: u64) -> String {
    let percent = if limit == 0 {
        100
    } else {
        (u128::from(used) * 100 / u128::from(limit)) as usize
    };
    let full = (percent * BAR / 100).min(BAR);
    let text = format!("{}{} {percent} %", "█".repeat(full), "░".repeat(BAR - full));
    match percent {
        0..75 => style::good(text).to_string(),
        75..100 => style::warn(text).to_string(),
        _ => style::bad(text).to_string(),
    }
}

fn prices(args: &PricesArgs, cx: &Cx) -> Result<Exit, CliError> {
    let section: RunSection = cx.config()?.section()?;
    let prices = model::prices(&section)?;
    let since = prices.as_of().map(str::to_owned);
    let mut table = Table::new().head(["model", "reads", "writes", "reads again", "remembers"]);
    let mut show = |name: &ModelName, price: &Price| match cx.out.is_json() {
        true => cx.out.json(&price_json(name, price, since.as_deref())),
        false => {
            table.row(price_cells(name, price));
            Ok(())
        }
    };
    match &args.model {
        Some(text) => {
            let name = model::read(text)?;
            let price = prices.price(&name).ok_or_else(|| {
                CliError::usage(format!("nobody knows what {name} costs"))
                    .hint("`prices = \"FILE\"` under [run] in toolgate.toml adds prices; `toolgate budget prices` lists those that are known")
            })?;
            show(&name, price)?;
        }
        None => prices
            .models()
            .try_for_each(|(name, price)| show(&name, price))?,
    }
    if !cx.out.is_json() {
        cx.out.line(table)?;
        let since = since.unwrap_or_else(|| "an unknown day".to_owned());
        cx.out.note(style::dim(format!(
            "US dollars for a million tokens, as of {since}"
        )))?;
    }
    Ok(Exit::Done)
}

fn price_json(name: &ModelName, price: &Price, since: Option<&str>) -> Value {
    let usd = |dollars: Dollars| dollars.as_nano() as f64 / 1e9;
    json!({
        "model": name.to_string(), "input": usd(price.input), "output": usd(price.output),
        "cache_read": price.cache_read.map(usd), "cache_write": price.cache_write.map(usd), "as_of": since,
    })
}

fn price_cells(name: &ModelName, price: &Price) -> [String; 5] {
    let usd = |dollars: Option<Dollars>| {
        dollars.map_or_else(String::new, |dollars| {
            Cost::NanoUsd(dollars.as_nano())
                .to_string()
                .trim_end_matches('0')
                .trim_end_matches('.')
                .to_owned()
        })
    };
    [
        name.to_string(),
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
    fn a_bar_is_full_when_nothing_is_left_and_never_fuller() {
        let shown = |used, limit| anstream::adapter::strip_str(&bar(used, limit)).to_string();
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
