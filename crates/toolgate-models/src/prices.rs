//! The bundled prices, and price files of the user that override them.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use toolgate_core::{PriceTable, Prices};

/// Returns the bundled prices: facts from the providers' public price pages at the date that the
/// table names.
///
/// They may be out of date; [`Prices::as_of`] and [`Prices::source`] say when and where they were
/// taken from.
///
/// ```
/// use toolgate_core::{Cost, ModelName, Usage};
/// let prices = toolgate_models::bundled_prices();
/// let usage = Usage { input: 1_000, output: 1_000, ..Usage::default() };
/// assert_eq!(prices.request_cost(&ModelName::new("openai", "gpt-5"), usage), Cost::NanoUsd(11_250_000));
/// assert_eq!(prices.request_cost(&ModelName::new("openai", "gpt-unknown"), usage), Cost::Unknown);
/// ```
pub fn bundled_prices() -> Prices {
    let table: PriceTable =
        serde_json::from_str(include_str!("../prices.json")).expect("a test parses the same text");
    table.into()
}

/// Loads a price file (JSON or TOML, by its extension) and lets its entries override `prices`. It
/// has the shape of the bundled table.
///
/// ```toml
/// as_of = "2026-11-16"
/// [providers.openai.models."gpt-5"]
/// input = 1.0
/// output = 8.0
/// [providers.ollama.models.llama3]
/// input = 0
/// output = 0
/// ```
pub fn load_prices_over(prices: Prices, path: impl AsRef<Path>) -> Result<Prices, PriceFileError> {
    let path = path.as_ref();
    let text = fs::read_to_string(path).map_err(|source| PriceFileError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    let malformed = |detail: String| PriceFileError::Malformed {
        path: path.to_owned(),
        detail,
    };
    let table: PriceTable = match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => {
            serde_json::from_str(&text).map_err(|error| malformed(error.to_string()))?
        }
        Some("toml") => toml::from_str(&text).map_err(|error| malformed(error.to_string()))?,
        _ => {
            return Err(PriceFileError::UnknownFormat {
                path: path.to_owned(),
            });
        }
    };
    Ok(prices.with_table(table))
}

/// The reason why a price file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PriceFileError {
    /// The file cannot be read.
    #[error("the prices in {} cannot be read: {source}", path.display())]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The file does not have the expected shape.
    #[error("the prices in {} are invalid: {detail}", path.display())]
    Malformed {
        /// The path of the file.
        path: PathBuf,
        /// The problem and its position in the file.
        detail: String,
    },
    /// The file is neither JSON nor TOML.
    #[error("{} ends in neither .json nor .toml", path.display())]
    UnknownFormat {
        /// The path of the file.
        path: PathBuf,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate_core::{Cost, ModelName, Usage};

    fn price_of(prices: &Prices, model: &str, usage: Usage) -> Cost {
        prices.request_cost(&model.parse::<ModelName>().expect("a name"), usage)
    }

    fn input_tokens(input: u64) -> Usage {
        Usage {
            input,
            ..Usage::default()
        }
    }

    #[test]
    fn the_bundled_table_has_a_date_and_a_source() {
        let prices = bundled_prices();
        assert!(prices.as_of().is_some_and(|date| date.len() == 10));
        assert!(
            prices
                .source()
                .iter()
                .any(|note| note.contains("price pages"))
        );
        assert!(prices.len() >= 40, "{}", prices.len());
    }

    #[test]
    fn every_bundled_price_is_plausible() {
        let text = include_str!("../prices.json");
        let table: PriceTable = serde_json::from_str(text).expect("a table");
        for (model, price) in table
            .providers
            .values()
            .flat_map(|provider| &provider.models)
        {
            assert!(
                price.output >= price.input,
                "{model}: output costs at least as much as input"
            );
            assert!(
                price.cache_read.is_none_or(|read| read < price.input),
                "{model}: cached input is cheaper"
            );
            assert!(
                price.cache_write.is_none_or(|write| write > price.input),
                "{model}"
            );
            assert!(
                price.cache_write_1h >= price.cache_write,
                "{model}: longer caching is not cheaper"
            );
            for tier in &price.tiers {
                assert!(
                    tier.input > price.input && tier.output > price.output,
                    "{model}: long prompts cost more"
                );
            }
        }
    }

    #[test]
    fn models_are_found_under_the_names_their_providers_use() {
        let prices = bundled_prices();
        for (model, nano) in [
            ("openai:gpt-4o-2024-08-06", 2_500),
            ("openai:gpt-4o-2024-05-13", 5_000),
            ("openai-chat:gpt-5-mini", 250),
            ("anthropic:claude-sonnet-4-5-20250929", 3_000),
            ("anthropic:claude-3-5-haiku-latest", 800),
            ("google:gemini-2.5-pro", 1_250),
        ] {
            assert_eq!(
                price_of(&prices, model, input_tokens(1)),
                Cost::NanoUsd(nano),
                "{model}"
            );
        }
        assert_eq!(
            price_of(&prices, "google:gemini-2.5-pro", input_tokens(200_001)),
            Cost::NanoUsd(200_001 * 2_500)
        );
        assert_eq!(
            price_of(&prices, "openai:gpt-5-turbo", input_tokens(1)),
            Cost::Unknown,
            "similar names do not match"
        );
    }

    #[test]
    fn a_price_file_of_the_user_overrides_the_table() {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).expect("writes");
            path
        };
        let toml = write(
            "mine.toml",
            "[providers.openai.models.gpt-5]\ninput = 1\noutput = 8.5\n",
        );
        let prices = load_prices_over(bundled_prices(), toml).expect("a table");
        assert_eq!(
            price_of(&prices, "openai:gpt-5", input_tokens(1)),
            Cost::NanoUsd(1_000)
        );
        assert_eq!(
            price_of(&prices, "openai:gpt-5-mini", input_tokens(1)),
            Cost::NanoUsd(250),
            "other prices stay"
        );
        let json = write(
            "more.json",
            r#"{ "providers": { "home": { "models": { "m": { "input": 0, "output": 0 } } } } }"#,
        );
        assert_eq!(
            price_of(
                &load_prices_over(prices, json).expect("a table"),
                "home:m",
                input_tokens(9)
            ),
            Cost::NanoUsd(0)
        );
        let wrong = write(
            "wrong.toml",
            "[providers.openai.models.gpt-5]\ninput = 1\nouput = 8\n",
        );
        let error = load_prices_over(Prices::default(), wrong)
            .expect_err("a wrong key")
            .to_string();
        assert!(
            error.contains("wrong.toml") && error.contains("ouput"),
            "{error}"
        );
        let other = load_prices_over(Prices::default(), write("prices.txt", ""));
        assert!(matches!(other, Err(PriceFileError::UnknownFormat { .. })));
        let missing = load_prices_over(Prices::default(), directory.path().join("none.json"));
        assert!(matches!(missing, Err(PriceFileError::Unreadable { .. })));
    }
}
