//! Prices of models: a dated table, and exact arithmetic over it.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::{Deserialize, Deserializer, de};

use crate::{Cost, MAX_AMOUNT, ModelName, Usage};

/// Prices by provider and model. The price of a model that is not in it is unknown, not zero.
///
/// A model is found by its exact name or an alias, and otherwise by its name without a date:
/// `-2025-08-07`, `-20250807` or `-latest` at its end. Nothing else is guessed.
///
/// ```
/// use toolgate_core::{Cost, ModelName, PriceTable, Prices, Usage};
/// let table: PriceTable = serde_json::from_str(
///     r#"{ "providers": { "acme": { "models": { "large": { "input": 1.25, "output": 10 } } } } }"#,
/// )?;
/// let prices = Prices::from(table);
/// let usage = Usage { input: 1_000, output: 100, ..Usage::default() };
/// assert_eq!(prices.request_cost(&ModelName::new("acme", "large-2026-01-01"), usage), Cost::NanoUsd(2_250_000));
/// assert_eq!(prices.request_cost(&ModelName::new("acme", "larger"), usage), Cost::Unknown);
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

/// Prices as they are written in a file: providers, their models, and dollars per million tokens.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PriceTable {
    /// The day on which the prices were valid.
    pub as_of: Option<String>,
    /// The source of the prices, for people.
    pub source: Vec<String>,
    /// The providers by name.
    pub providers: BTreeMap<String, ProviderPrices>,
}

/// The prices of one provider.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProviderPrices {
    /// Other names of the provider.
    pub aliases: Vec<String>,
    /// The models by name.
    pub models: BTreeMap<String, Price>,
}

/// The price of one model.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Other names of the model.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// The price of tokens in.
    pub input: DollarsPerMillion,
    /// The price of tokens out, reasoning included.
    pub output: DollarsPerMillion,
    /// The price of cached tokens in; by default `input`.
    #[serde(default)]
    pub cache_read: Option<DollarsPerMillion>,
    /// The price of tokens that are cached for some minutes; by default `input`.
    #[serde(default)]
    pub cache_write: Option<DollarsPerMillion>,
    /// The price of tokens that are cached for an hour; by default `cache_write`.
    #[serde(default)]
    pub cache_write_1h: Option<DollarsPerMillion>,
    /// Other prices for requests with many tokens in, the smallest threshold first.
    #[serde(default)]
    pub tiers: Vec<PriceTier>,
}

/// The prices of a whole request with more than a number of tokens in.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceTier {
    /// The number of tokens in, cached ones included.
    pub above: u64,
    /// The price of tokens in.
    pub input: DollarsPerMillion,
    /// The price of tokens out.
    pub output: DollarsPerMillion,
    /// The price of cached tokens in.
    #[serde(default)]
    pub cache_read: Option<DollarsPerMillion>,
    /// The price of tokens that are cached for some minutes.
    #[serde(default)]
    pub cache_write: Option<DollarsPerMillion>,
    /// The price of tokens that are cached for an hour.
    #[serde(default)]
    pub cache_write_1h: Option<DollarsPerMillion>,
}

/// Dollars per million tokens, stored in billionths so that sums are exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DollarsPerMillion(u64);

/// The lifetime of tokens in a provider's cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CacheLife {
    /// Some minutes.
    #[default]
    Minutes,
    /// An hour.
    Hour,
}

/// The prices that apply to one request.
#[derive(Clone, Copy)]
struct RequestRates {
    input: u64,
    output: u64,
    cache_read: u64,
    cache_write: [u64; 2],
}

const MILLION: u128 = 1_000_000;

/// Converts dollars to billionths of a dollar; `None` if they are not an amount of 0 or more that
/// an account can hold.
///
/// ```
/// use toolgate_core::convert_dollars;
/// assert_eq!(convert_dollars(2.5), Some(2_500_000_000));
/// assert_eq!(convert_dollars(1e-12), Some(1), "a small price is not free");
/// assert_eq!(convert_dollars(-1.0), None);
/// ```
pub fn convert_dollars(dollars: f64) -> Option<u64> {
    let nano = (dollars * 1e9).round();
    // Compared as floats, because the cast to an integer saturates silently.
    if !(dollars >= 0.0 && nano < MAX_AMOUNT as f64) {
        return None;
    }
    // A positive amount never becomes 0: a limit would block everything, and a price would be free.
    Some(if dollars > 0.0 {
        (nano as u64).max(1)
    } else {
        0
    })
}

impl Prices {
    /// Overrides these prices with those of a table: a model in both gets the whole new price.
    #[must_use]
    pub fn with_table(mut self, table: PriceTable) -> Self {
        if table.as_of.is_some() {
            self.as_of = table.as_of;
        }
        self.source.extend(table.source);
        for (provider, ProviderPrices { aliases, models }) in table.providers {
            // A table that overrides prices of an alias means the provider.
            let provider = self.providers.get(&provider).cloned().unwrap_or(provider);
            self.providers
                .extend(aliases.into_iter().map(|alias| (alias, provider.clone())));
            for (model, price) in models {
                let names = price.aliases.clone();
                let price = Arc::new(price);
                for name in names.into_iter().chain([model]) {
                    self.models.insert((provider.clone(), name), price.clone());
                }
            }
        }
        self
    }

    /// Returns the day on which the prices were valid, if it is known.
    pub fn as_of(&self) -> Option<&str> {
        self.as_of.as_deref()
    }

    /// Returns the source of the prices, for people.
    pub fn source(&self) -> &[String] {
        &self.source
    }

    /// Returns every model with a price, by provider and name, aliases included.
    pub fn models(&self) -> impl Iterator<Item = (ModelName, &Price)> {
        self.models.iter().map(|((provider, model), price)| {
            (ModelName::new(provider.as_str(), model.as_str()), &**price)
        })
    }

    /// Returns the number of models with a price, aliases included.
    pub fn len(&self) -> usize {
        self.models.len()
    }

    /// Checks whether no model has a price.
    pub fn is_empty(&self) -> bool {
        self.models.is_empty()
    }

    /// Returns the price of a model, if it is known.
    pub fn price_of(&self, model: &ModelName) -> Option<&Price> {
        let provider = self
            .providers
            .get(&*model.provider)
            .map_or(&*model.provider, String::as_str);
        let find = |name: &str| self.models.get(&(provider.to_owned(), name.to_owned()));
        let found = find(&model.model).or_else(|| strip_version_date(&model.model).and_then(find));
        found.map(|price| &**price)
    }

    /// Returns the cost of a request.
    pub fn request_cost(&self, model: &ModelName, usage: Usage) -> Cost {
        self.price_of(model).map_or(Cost::Unknown, |price| {
            price.request_cost(usage, CacheLife::Minutes)
        })
    }

    /// Returns the highest possible cost of a request with this many tokens in and out.
    pub fn max_request_cost(&self, model: &ModelName, read: u64, written: u64) -> Cost {
        self.price_of(model)
            .map_or(Cost::Unknown, |price| price.max_request_cost(read, written))
    }
}

impl From<PriceTable> for Prices {
    fn from(table: PriceTable) -> Self {
        Self::default().with_table(table)
    }
}

/// Returns the name of a model without its version date, if it has one.
fn strip_version_date(model: &str) -> Option<&str> {
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

/// Checks whether a text is a day of this century: `2025-08-07` or `20250807`.
fn is_date(text: &str) -> bool {
    let shape: String = text
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c })
        .collect();
    text.starts_with("20") && (shape == "00000000" || shape == "0000-00-00")
}

impl Price {
    /// Returns the cost of a request, rounded up to a billionth of a dollar.
    pub fn request_cost(&self, usage: Usage, life: CacheLife) -> Cost {
        let read = usage
            .input
            .saturating_add(usage.cache_read)
            .saturating_add(usage.cache_write);
        let rates = self.rates_for(read);
        let cache_write = rates.cache_write[usize::from(life == CacheLife::Hour)];
        sum_cost([
            (usage.input, rates.input),
            (usage.cache_read, rates.cache_read),
            (usage.cache_write, cache_write),
            (usage.output, rates.output),
        ])
    }

    /// Returns the highest possible cost of a request: all tokens in at the highest rate.
    pub fn max_request_cost(&self, read: u64, written: u64) -> Cost {
        let rates = self.rates_for(read);
        let [minutes, hour] = rates.cache_write;
        sum_cost([
            (
                read,
                rates.input.max(rates.cache_read).max(minutes).max(hour),
            ),
            (written, rates.output),
        ])
    }

    fn rates_for(&self, read: u64) -> RequestRates {
        let tier = self
            .tiers
            .iter()
            .filter(|tier| read > tier.above)
            .max_by_key(|tier| tier.above);
        let Some(tier) = tier else {
            return build_rates(
                self.input,
                self.output,
                self.cache_read,
                self.cache_write,
                self.cache_write_1h,
            );
        };
        build_rates(
            tier.input,
            tier.output,
            tier.cache_read,
            tier.cache_write,
            tier.cache_write_1h,
        )
    }
}

fn build_rates(
    input: DollarsPerMillion,
    output: DollarsPerMillion,
    cache_read: Option<DollarsPerMillion>,
    cache_write: Option<DollarsPerMillion>,
    cache_write_1h: Option<DollarsPerMillion>,
) -> RequestRates {
    let minutes = cache_write.unwrap_or(input);
    RequestRates {
        input: input.0,
        output: output.0,
        cache_read: cache_read.unwrap_or(input).0,
        cache_write: [minutes.0, cache_write_1h.unwrap_or(minutes).0],
    }
}

/// Returns the sum of tokens times their rates.
fn sum_cost<const N: usize>(parts: [(u64, u64); N]) -> Cost {
    let sum: u128 = parts
        .into_iter()
        .map(|(tokens, rate)| u128::from(tokens) * u128::from(rate))
        .sum();
    // Rounded up, so that many small requests cannot be free.
    Cost::NanoUsd(u64::try_from(sum.div_ceil(MILLION)).unwrap_or(u64::MAX))
}

impl DollarsPerMillion {
    /// Creates a price from billionths of a dollar per million tokens.
    pub const fn from_nano(nano: u64) -> Self {
        Self(nano)
    }

    /// Returns the price in billionths of a dollar.
    pub const fn as_nano(self) -> u64 {
        self.0
    }
}

impl<'de> Deserialize<'de> for DollarsPerMillion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DollarsVisitor)
    }
}

struct DollarsVisitor;

impl de::Visitor<'_> for DollarsVisitor {
    type Value = DollarsPerMillion;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("dollars per million tokens, 0 or more")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<DollarsPerMillion, E> {
        let nano = number.checked_mul(1_000_000_000).map(DollarsPerMillion);
        nano.ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(number), &self))
    }

    // TOML has only signed integers, so whole prices of a user's file arrive here.
    fn visit_i64<E: de::Error>(self, number: i64) -> Result<DollarsPerMillion, E> {
        let whole = u64::try_from(number)
            .map_err(|_| E::invalid_value(de::Unexpected::Signed(number), &self))?;
        self.visit_u64(whole)
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<DollarsPerMillion, E> {
        // Rounded, because most decimal prices are not exact in binary.
        let nano = (number * 1e9).round();
        if nano.is_finite() && number >= 0.0 && nano < u64::MAX as f64 {
            return Ok(DollarsPerMillion(nano as u64));
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
        let price = prices.price_of(&model("acme:large")).expect("known");
        let usage = Usage {
            input: 10,
            cache_read: 100,
            cache_write: 4,
            output: 2,
            reasoning: 1,
        };
        // 10 × 3000 + 100 × 300 + 4 × 3750 + 2 × 15000 billionths
        assert_eq!(
            price.request_cost(usage, CacheLife::Minutes),
            Cost::NanoUsd(30_000 + 30_000 + 15_000 + 30_000)
        );
        assert_eq!(
            price.request_cost(usage, CacheLife::Hour),
            Cost::NanoUsd(30_000 + 30_000 + 24_000 + 30_000)
        );
        assert_eq!(
            price.request_cost(Usage::default(), CacheLife::Minutes),
            Cost::NanoUsd(0)
        );
    }

    #[test]
    fn a_request_above_a_tier_is_charged_at_the_tier_as_a_whole() {
        let prices = prices(LARGE);
        let cost = |input, cache_read| {
            prices.request_cost(
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
            "cached tokens count"
        );
    }

    #[test]
    fn a_missing_cache_price_defaults_to_the_input_price() {
        let prices = prices(r#"{ "plain": { "input": 2, "output": 8 } }"#);
        let usage = Usage {
            cache_read: 5,
            cache_write: 5,
            ..Usage::default()
        };
        assert_eq!(
            prices.request_cost(&model("acme:plain"), usage),
            Cost::NanoUsd(20_000)
        );
    }

    #[test]
    fn a_model_is_found_by_name_alias_or_undated_name_and_never_by_similarity() {
        let prices = prices(LARGE);
        for known in [
            "acme:large",
            "acme:big",
            "acme:large-2025-08-07",
            "acme:large-20250807",
            "acme:large-latest",
            "acme-chat:large",
        ] {
            assert!(prices.price_of(&model(known)).is_some(), "{known}");
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
            assert_eq!(prices.price_of(&model(unknown)), None, "{unknown}");
            assert_eq!(
                prices.request_cost(&model(unknown), Usage::default()),
                Cost::Unknown,
                "the price of an unknown model is unknown even for no tokens"
            );
        }
    }

    #[test]
    fn an_exact_name_precedes_the_undated_name() {
        let prices = prices(
            r#"{ "m": { "input": 1, "output": 1 }, "m-2024-05-13": { "input": 5, "output": 1 } }"#,
        );
        let usage = Usage {
            input: 1,
            ..Usage::default()
        };
        assert_eq!(
            prices.request_cost(&model("acme:m-2024-05-13"), usage),
            Cost::NanoUsd(5_000)
        );
        assert_eq!(
            prices.request_cost(&model("acme:m-2024-08-06"), usage),
            Cost::NanoUsd(1_000)
        );
    }

    #[test]
    fn a_user_overrides_prices_and_adds_models() {
        let text = r#"{ "as_of": "2026-11-16", "source": ["our contract"],
            "providers": { "acme-chat": { "models": { "large": { "input": 1, "output": 1 } } },
                           "home": { "models": { "llama": { "input": 0, "output": 0 } } } } }"#;
        let prices = prices(LARGE).with_table(serde_json::from_str(text).expect("a table"));
        let usage = Usage {
            input: 300_000,
            ..Usage::default()
        };
        assert_eq!(
            prices.request_cost(&model("acme:large"), usage),
            Cost::NanoUsd(300_000_000),
            "and no tier is left"
        );
        assert_eq!(
            prices.request_cost(&model("home:llama"), usage),
            Cost::NanoUsd(0),
            "known to be free"
        );
        assert_eq!(
            (prices.as_of(), prices.source().len()),
            (Some("2026-11-16"), 1)
        );
    }

    #[test]
    fn a_table_with_a_mistake_is_rejected() {
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
    fn a_fraction_of_a_billionth_rounds_up() {
        let prices = prices(r#"{ "tiny": { "input": 0.000001, "output": 0 } }"#);
        let cost = |input| {
            prices.request_cost(
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
        fn nothing_costs_more_than_max_request_cost(
            input in 0_u64..400_000, cache_read in 0_u64..400_000, cache_write in 0_u64..400_000, output in 0_u64..100_000,
        ) {
            let prices = prices(LARGE);
            let price = prices.price_of(&model("acme:large")).expect("known");
            let usage = Usage { input, cache_read, cache_write, output, reasoning: 0 };
            let Cost::NanoUsd(most) = price.max_request_cost(input + cache_read + cache_write, output) else { unreachable!() };
            for life in [CacheLife::Minutes, CacheLife::Hour] {
                let Cost::NanoUsd(cost) = price.request_cost(usage, life) else { unreachable!() };
                prop_assert!(cost <= most);
            }
        }
    }
}
