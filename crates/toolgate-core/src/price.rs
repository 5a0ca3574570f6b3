//! What models cost: a table of prices with a date, and exact arithmetic over it.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::{Deserialize, Deserializer, de};

use crate::{Cost, ModelName, Usage};

/// Prices by provider and model. A model that is not in it has no price, which is not a price of nothing.
///
/// A model is found by its exact name or an alias, and otherwise by its name without a date: `-2025-08-07`, `-20250807`
/// or `-latest` at its end. Nothing else is guessed.
///
/// ```
/// use toolgate_core::{Cost, ModelName, PriceTable, Prices, Usage};
/// let table: PriceTable = serde_json::from_str(
///     r#"{ "providers": { "acme": { "models": { "large": { "input": 1.25, "output": 10 } } } } }"#,
/// )?;
/// let prices = Prices::from(table);
/// let usage = Usage { input: 1_000, output: 100, ..Usage::default() };
/// assert_eq!(prices.cost(&ModelName::new("acme", "large-2026-01-01"), usage), Cost::NanoUsd(2_250_000));
/// assert_eq!(prices.cost(&ModelName::new("acme", "larger"), usage), Cost::Unknown);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Prices {
    as_of: Option<String>,
    source: Vec<String>,
    /// Other names of providers.
    providers: BTreeMap<String, String>,
    models: BTreeMap<(String, String), Arc<Price>>,
}

/// Prices as they stand in a file: providers, their models, and dollars per million tokens.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PriceTable {
    /// The day on which the prices were right.
    pub as_of: Option<String>,
    /// Where they are from, for people.
    pub source: Vec<String>,
    /// The providers by name.
    pub providers: BTreeMap<String, ProviderPrices>,
}

/// The prices of one provider.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProviderPrices {
    /// What else the provider is called here.
    pub aliases: Vec<String>,
    /// The models by name.
    pub models: BTreeMap<String, Price>,
}

/// The price of one model.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// What the model is called besides.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// For what it reads.
    pub input: Dollars,
    /// For what it writes, thoughts included.
    pub output: Dollars,
    /// For what it remembers; the price of reading unless said.
    #[serde(default)]
    pub cache_read: Option<Dollars>,
    /// For what it is told to remember for some minutes; the price of reading unless said.
    #[serde(default)]
    pub cache_write: Option<Dollars>,
    /// For what it is told to remember for an hour; the price for some minutes unless said.
    #[serde(default)]
    pub cache_write_1h: Option<Dollars>,
    /// Other prices for requests that make it read much, the smallest first.
    #[serde(default)]
    pub tiers: Vec<PriceTier>,
}

/// What a request costs as a whole if it makes the model read more than a number of tokens.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceTier {
    /// The number of tokens, remembered ones included.
    pub above: u64,
    /// For what it reads.
    pub input: Dollars,
    /// For what it writes.
    pub output: Dollars,
    /// For what it remembers.
    #[serde(default)]
    pub cache_read: Option<Dollars>,
    /// For what it is told to remember for some minutes.
    #[serde(default)]
    pub cache_write: Option<Dollars>,
    /// For what it is told to remember for an hour.
    #[serde(default)]
    pub cache_write_1h: Option<Dollars>,
}

/// Dollars for a million tokens, kept in billionths so that nothing is lost in sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dollars(u64);

/// How long a provider is told to remember something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CacheLife {
    /// For some minutes.
    #[default]
    Minutes,
    /// For an hour.
    Hour,
}

/// The prices that hold for one request.
#[derive(Clone, Copy)]
struct Rates {
    input: u64,
    output: u64,
    cache_read: u64,
    cache_write: [u64; 2],
}

const MILLION: u128 = 1_000_000;

impl Prices {
    /// Lays the prices of a table over these: a model that is in both gets the new price, whole.
    #[must_use]
    pub fn with(mut self, table: PriceTable) -> Self {
        if table.as_of.is_some() {
            self.as_of = table.as_of;
        }
        self.source.extend(table.source);
        for (provider, ProviderPrices { aliases, models }) in table.providers {
            // Somebody who corrects the prices of an alias means the provider.
            let provider = self.providers.get(&provider).cloned().unwrap_or(provider);
            self.providers
                .extend(aliases.into_iter().map(|alias| (alias, provider.clone())));
            for (model, price) in models {
                let (names, price) = (price.aliases.clone(), Arc::new(price));
                for name in names.into_iter().chain([model]) {
                    self.models.insert((provider.clone(), name), price.clone());
                }
            }
        }
        self
    }

    /// The day on which the prices were right, as far as that is known.
    pub fn as_of(&self) -> Option<&str> {
        self.as_of.as_deref()
    }

    /// Where the prices are from, for people.
    pub fn source(&self) -> &[String] {
        &self.source
    }

    /// Every model with a price, by provider and name, aliases included.
    pub fn models(&self) -> impl Iterator<Item = (ModelName, &Price)> {
        self.models.iter().map(|((provider, model), price)| {
            (ModelName::new(provider.as_str(), model.as_str()), &**price)
        })
    }

    /// How many models have a price, aliases included.
    pub fn len(&self) -> usize {
        self.models.len()
    }

    /// Whether no model has a price.
    pub fn is_empty(&self) -> bool {
        self.models.is_empty()
    }

    /// The price of a model, if it is known.
    pub fn price(&self, model: &ModelName) -> Option<&Price> {
        let provider = self
            .providers
            .get(&*model.provider)
            .map_or(&*model.provider, String::as_str);
        let find = |name: &str| self.models.get(&(provider.to_owned(), name.to_owned()));
        let found = find(&model.model).or_else(|| undated(&model.model).and_then(find));
        found.map(|price| &**price)
    }

    /// What a request has cost.
    pub fn cost(&self, model: &ModelName, usage: Usage) -> Cost {
        self.price(model)
            .map_or(Cost::Unknown, |price| price.cost(usage, CacheLife::Minutes))
    }

    /// The most a request can cost in which a model reads and writes so many tokens.
    pub fn at_most(&self, model: &ModelName, read: u64, written: u64) -> Cost {
        self.price(model)
            .map_or(Cost::Unknown, |price| price.at_most(read, written))
    }
}

impl From<PriceTable> for Prices {
    fn from(table: PriceTable) -> Self {
        Self::default().with(table)
    }
}

/// The name of a model without the date of a version, if it has one.
fn undated(model: &str) -> Option<&str> {
    let without = |length: usize| {
        let (name, date) = model.split_at_checked(model.len().checked_sub(length)?)?;
        is_date(date.strip_prefix('-')?).then_some(name)
    };
    let name = model
        .strip_suffix("-latest")
        .or_else(|| without("-20250807".len()))
        .or_else(|| without("-2025-08-07".len()));
    name.filter(|name| !name.is_empty())
}

/// Whether a text is a day of this century: `2025-08-07` or `20250807`.
fn is_date(text: &str) -> bool {
    let shape: String = text
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c })
        .collect();
    text.starts_with("20") && (shape == "00000000" || shape == "0000-00-00")
}

impl Price {
    /// What a request has cost, rounded up to a billionth of a dollar.
    pub fn cost(&self, usage: Usage, life: CacheLife) -> Cost {
        let read = usage
            .input
            .saturating_add(usage.cache_read)
            .saturating_add(usage.cache_write);
        let rates = self.rates(read);
        let cache_write = rates.cache_write[usize::from(life == CacheLife::Hour)];
        total([
            (usage.input, rates.input),
            (usage.cache_read, rates.cache_read),
            (usage.cache_write, cache_write),
            (usage.output, rates.output),
        ])
    }

    /// The most a request can cost: everything is read or remembered at the dearest price.
    pub fn at_most(&self, read: u64, written: u64) -> Cost {
        let rates = self.rates(read);
        let [minutes, hour] = rates.cache_write;
        total([
            (
                read,
                rates.input.max(rates.cache_read).max(minutes).max(hour),
            ),
            (written, rates.output),
        ])
    }

    fn rates(&self, read: u64) -> Rates {
        let tier = self
            .tiers
            .iter()
            .filter(|tier| read > tier.above)
            .max_by_key(|tier| tier.above);
        let Some(tier) = tier else {
            return rates(
                self.input,
                self.output,
                self.cache_read,
                self.cache_write,
                self.cache_write_1h,
            );
        };
        rates(
            tier.input,
            tier.output,
            tier.cache_read,
            tier.cache_write,
            tier.cache_write_1h,
        )
    }
}

fn rates(
    input: Dollars,
    output: Dollars,
    cache_read: Option<Dollars>,
    cache_write: Option<Dollars>,
    cache_write_1h: Option<Dollars>,
) -> Rates {
    let minutes = cache_write.unwrap_or(input);
    Rates {
        input: input.0,
        output: output.0,
        cache_read: cache_read.unwrap_or(input).0,
        cache_write: [minutes.0, cache_write_1h.unwrap_or(minutes).0],
    }
}

/// Adds up tokens times billionths of a dollar for a million of them.
fn total<const N: usize>(parts: [(u64, u64); N]) -> Cost {
    let sum: u128 = parts
        .into_iter()
        .map(|(tokens, rate)| u128::from(tokens) * u128::from(rate))
        .sum();
    Cost::NanoUsd(u64::try_from(sum.div_ceil(MILLION)).unwrap_or(u64::MAX))
}

impl Dollars {
    /// So many billionths of a dollar for a million tokens.
    pub const fn nano(nano: u64) -> Self {
        Self(nano)
    }

    /// How many billionths of a dollar it is.
    pub const fn as_nano(self) -> u64 {
        self.0
    }
}

impl<'de> Deserialize<'de> for Dollars {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DollarsVisitor)
    }
}

struct DollarsVisitor;

impl de::Visitor<'_> for DollarsVisitor {
    type Value = Dollars;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("dollars for a million tokens, 0 or more")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Dollars, E> {
        let nano = number.checked_mul(1_000_000_000).map(Dollars);
        nano.ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(number), &self))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Dollars, E> {
        let whole = u64::try_from(number)
            .map_err(|_| E::invalid_value(de::Unexpected::Signed(number), &self))?;
        self.visit_u64(whole)
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Dollars, E> {
        let nano = (number * 1e9).round();
        if nano.is_finite() && number >= 0.0 && nano < u64::MAX as f64 {
            return Ok(Dollars(nano as u64));
        }
        Err(E::invalid_value(de::Unexpected::Float(number), &self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prices(models: &str) -> Prices {
        let text = format!(
            r#"{{ "providers": {{ "acme": {{ "aliases": ["acme-chat"], "models": {models} }} }} }}"#
        );
        serde_json::from_str::<PriceTable>(&text)
            .expect("a table")
            .into()
    }

    fn model(text: &str) -> ModelName {
        text.parse().expect("a model")
    }

    const LARGE: &str = r#"{ "large": { "input": 3, "output": 15, "cache_read": 0.3, "cache_write": 3.75,
        "cache_write_1h": 6, "aliases": ["big"],
        "tiers": [{ "above": 200000, "input": 6, "output": 22.5, "cache_read": 0.6 }] } }"#;

    #[test]
    fn every_name_of_a_model_is_listed_with_its_price() {
        let prices = prices(LARGE);
        let listed: Vec<_> = prices
            .models()
            .map(|(name, price)| (name.to_string(), price.output.as_nano()))
            .collect();
        assert_eq!(
            listed,
            [
                ("acme:big".to_owned(), 15_000_000_000),
                ("acme:large".to_owned(), 15_000_000_000)
            ]
        );
    }

    #[test]
    fn each_kind_of_token_has_its_price() {
        let prices = prices(LARGE);
        let price = prices.price(&model("acme:large")).expect("known");
        let usage = Usage {
            input: 10,
            cache_read: 100,
            cache_write: 4,
            output: 2,
            reasoning: 1,
        };
        // 10 × 3000 + 100 × 300 + 4 × 3750 + 2 × 15000 billionths
        assert_eq!(
            price.cost(usage, CacheLife::Minutes),
            Cost::NanoUsd(30_000 + 30_000 + 15_000 + 30_000)
        );
        assert_eq!(
            price.cost(usage, CacheLife::Hour),
            Cost::NanoUsd(30_000 + 30_000 + 24_000 + 30_000)
        );
        assert_eq!(
            price.cost(Usage::default(), CacheLife::Minutes),
            Cost::NanoUsd(0)
        );
    }

    #[test]
    fn a_request_that_makes_it_read_more_than_a_tier_costs_the_tier_as_a_whole() {
        let prices = prices(LARGE);
        let cost = |input, cache_read| {
            prices.cost(
                &model("acme:large"),
                Usage {
                    input,
                    cache_read,
                    output: 1,
                    ..Usage::default()
                },
            )
        };
        assert_eq!(cost(200_000, 0), Cost::NanoUsd(200_000 * 3_000 + 15_000));
        assert_eq!(cost(200_001, 0), Cost::NanoUsd(200_001 * 6_000 + 22_500));
        assert_eq!(
            cost(1, 200_000),
            Cost::NanoUsd(6_000 + 200_000 * 600 + 22_500),
            "remembered tokens count"
        );
    }

    #[test]
    fn what_has_no_price_of_its_own_costs_what_reading_costs() {
        let prices = prices(r#"{ "plain": { "input": 2, "output": 8 } }"#);
        let usage = Usage {
            cache_read: 5,
            cache_write: 5,
            ..Usage::default()
        };
        assert_eq!(
            prices.cost(&model("acme:plain"), usage),
            Cost::NanoUsd(20_000)
        );
    }

    #[test]
    fn a_model_is_found_by_name_alias_or_name_without_a_date_and_never_by_likeness() {
        let prices = prices(LARGE);
        for known in [
            "acme:large",
            "acme:big",
            "acme:large-2025-08-07",
            "acme:large-20250807",
            "acme:large-latest",
            "acme-chat:large",
        ] {
            assert!(prices.price(&model(known)).is_some(), "{known}");
        }
        for unknown in [
            "acme:large-2",
            "acme:larger",
            "acme:larg",
            "acme:large-mini",
            "acme:large-mini-2025-08-07",
            "acme:large-2025-8-7",
            "acme:large-1025",
            "acme:large-2025080",
            "acme:-20250807",
            "acme:éa-20250807",
            "acme:LARGE",
            "other:large",
        ] {
            assert_eq!(prices.price(&model(unknown)), None, "{unknown}");
            assert_eq!(
                prices.cost(&model(unknown), Usage::default()),
                Cost::Unknown,
                "not even nothing is free"
            );
        }
    }

    #[test]
    fn an_exact_name_goes_before_the_name_without_a_date() {
        let prices = prices(
            r#"{ "m": { "input": 1, "output": 1 }, "m-2024-05-13": { "input": 5, "output": 1 } }"#,
        );
        let usage = Usage {
            input: 1,
            ..Usage::default()
        };
        assert_eq!(
            prices.cost(&model("acme:m-2024-05-13"), usage),
            Cost::NanoUsd(5_000)
        );
        assert_eq!(
            prices.cost(&model("acme:m-2024-08-06"), usage),
            Cost::NanoUsd(1_000)
        );
    }

    #[test]
    fn a_user_overrides_prices_and_adds_models() {
        let text = r#"{ "as_of": "2026-11-16", "source": ["our contract"],
            "providers": { "acme-chat": { "models": { "large": { "input": 1, "output": 1 } } },
                           "home": { "models": { "llama": { "input": 0, "output": 0 } } } } }"#;
        let prices = prices(LARGE).with(serde_json::from_str(text).expect("a table"));
        let usage = Usage {
            input: 300_000,
            ..Usage::default()
        };
        assert_eq!(
            prices.cost(&model("acme:large"), usage),
            Cost::NanoUsd(300_000_000),
            "and no tier is left"
        );
        assert_eq!(
            prices.cost(&model("home:llama"), usage),
            Cost::NanoUsd(0),
            "known to be free"
        );
        assert_eq!(
            (prices.as_of(), prices.source().len()),
            (Some("2026-11-16"), 1)
        );
    }

    #[test]
    fn a_table_with_a_mistake_is_refused() {
        for models in [
            r#"{ "m": { "input": 1 } }"#,
            r#"{ "m": { "input": -1, "output": 1 } }"#,
            r#"{ "m": { "input": "1", "output": 1 } }"#,
            r#"{ "m": { "input": 1, "output": 1e300 } }"#,
            r#"{ "m": { "input": 1, "output": 1, "cash_read": 1 } }"#,
        ] {
            let text = format!(r#"{{ "providers": {{ "a": {{ "models": {models} }} }} }}"#);
            assert!(
                serde_json::from_str::<PriceTable>(&text).is_err(),
                "{models}"
            );
        }
        assert!(serde_json::from_str::<PriceTable>(r#"{ "provider": {} }"#).is_err());
    }

    #[test]
    fn a_part_of_a_billionth_counts_as_one() {
        let prices = prices(r#"{ "tiny": { "input": 0.000001, "output": 0 } }"#);
        let cost = |input| {
            prices.cost(
                &model("acme:tiny"),
                Usage {
                    input,
                    ..Usage::default()
                },
            )
        };
        assert_eq!(
            (cost(1), cost(1_000), cost(1_001)),
            (Cost::NanoUsd(1), Cost::NanoUsd(1), Cost::NanoUsd(2))
        );
        assert_eq!(cost(0), Cost::NanoUsd(0));
    }

    proptest! {
        #[test]
        fn nothing_costs_more_than_at_most(
            input in 0_u64..400_000, cache_read in 0_u64..400_000, cache_write in 0_u64..400_000, output in 0_u64..100_000,
        ) {
            let prices = prices(LARGE);
            let price = prices.price(&model("acme:large")).expect("known");
            let usage = Usage { input, cache_read, cache_write, output, reasoning: 0 };
            let Cost::NanoUsd(most) = price.at_most(input + cache_read + cache_write, output) else { unreachable!() };
            for life in [CacheLife::Minutes, CacheLife::Hour] {
                let Cost::NanoUsd(cost) = price.cost(usage, life) else { unreachable!() };
                prop_assert!(cost <= most);
            }
        }
    }
}
