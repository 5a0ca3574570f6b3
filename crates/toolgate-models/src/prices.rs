//! The prices that come with the program, and those that a user lays over them.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use toolgate_core::{PriceTable, Prices};

/// The prices that come with the program: facts from the providers' public price pages at the date that the table
/// names. They may be out of date; what they say of themselves is in [`Prices::as_of`] and [`Prices::source`].
///
/// ```
/// use toolgate_core::{Cost, ModelName, Usage};
/// let prices = toolgate_models::bundled_prices();
/// let usage = Usage { input: 1_000, output: 1_000, ..Usage::default() };
/// assert_eq!(prices.cost(&ModelName::new("openai", "gpt-5"), usage), Cost::NanoUsd(11_250_000));
/// assert_eq!(prices.cost(&ModelName::new("openai", "gpt-nobody-knows"), usage), Cost::Unknown);
/// ```
pub fn bundled_prices() -> Prices {
    let table: PriceTable =
        serde_json::from_str(include_str!("../prices.json")).expect("a test reads the same text");
    table.into()
}

/// Lays a file with prices over others: JSON or TOML, by its name, in the shape of the table that comes along.
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
pub fn prices_with(prices: Prices, path: impl AsRef<Path>) -> Result<Prices, PriceFileError> {
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
    Ok(prices.with(table))
}

/// Why a file with prices cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PriceFileError {
    /// It cannot be read.
    #[error("the prices in {} cannot be read", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Something in it is wrong.
    #[error("the prices in {} make no sense: {detail}", path.display())]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// What is wrong, and where.
        detail: String,
    },
    /// It is neither JSON nor TOML.
    #[error("{} is called neither .json nor .toml", path.display())]
    UnknownFormat {
        /// Which file.
        path: PathBuf,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate_core::{Cost, ModelName, Usage};

    fn cost(prices: &Prices, model: &str, usage: Usage) -> Cost {
        prices.cost(&model.parse::<ModelName>().expect("a name"), usage)
    }

    fn read(input: u64) -> Usage {
        Usage {
            input,
            ..Usage::default()
        }
    }

    #[test]
    fn the_bundled_table_has_a_date_and_says_where_it_is_from() {
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
                "{model}: writing costs at least as much as reading"
            );
            assert!(
                price.cache_read.is_none_or(|read| read < price.input),
                "{model}: remembering is cheaper"
            );
            assert!(
                price.cache_write.is_none_or(|write| write > price.input),
                "{model}"
            );
            assert!(
                price.cache_write_1h >= price.cache_write,
                "{model}: longer is not cheaper"
            );
            for tier in &price.tiers {
                assert!(
                    tier.input > price.input && tier.output > price.output,
                    "{model}: much costs more"
                );
            }
        }
    }

    #[test]
    fn models_are_found_under_the_names_that_providers_give_them() {
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
                cost(&prices, model, read(1)),
                Cost::NanoUsd(nano),
                "{model}"
            );
        }
        assert_eq!(
            cost(&prices, "google:gemini-2.5-pro", read(200_001)),
            Cost::NanoUsd(200_001 * 2_500)
        );
        assert_eq!(
            cost(&prices, "openai:gpt-5-turbo", read(1)),
            Cost::Unknown,
            "no likeness counts"
        );
    }

    #[test]
    fn a_file_of_the_user_goes_over_the_table() {
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
        let prices = prices_with(bundled_prices(), toml).expect("a table");
        assert_eq!(cost(&prices, "openai:gpt-5", read(1)), Cost::NanoUsd(1_000));
        assert_eq!(
            cost(&prices, "openai:gpt-5-mini", read(1)),
            Cost::NanoUsd(250),
            "the rest stays"
        );
        let json = write(
            "more.json",
            r#"{ "providers": { "home": { "models": { "m": { "input": 0, "output": 0 } } } } }"#,
        );
        assert_eq!(
            cost(
                &prices_with(prices, json).expect("a table"),
                "home:m",
                read(9)
            ),
            Cost::NanoUsd(0)
        );
        let wrong = write(
            "wrong.toml",
            "[providers.openai.models.gpt-5]\ninput = 1\nouput = 8\n",
        );
        let error = prices_with(Prices::default(), wrong)
            .expect_err("a wrong key")
            .to_string();
        assert!(
            error.contains("wrong.toml") && error.contains("ouput"),
            "{error}"
        );
        let other = prices_with(Prices::default(), write("prices.txt", ""));
        assert!(matches!(other, Err(PriceFileError::UnknownFormat { .. })));
        let missing = prices_with(Prices::default(), directory.path().join("none.json"));
        assert!(matches!(missing, Err(PriceFileError::Unreadable { .. })));
    }
}
