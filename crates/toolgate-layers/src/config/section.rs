//! Sections of a configuration file that are not about layers and belong to the program that loads
//! it.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, de::DeserializeOwned, de::IntoDeserializer};
use serde_json::Value;
use toml::{Spanned, de::DeValue};

use crate::config::catalog::schema_of;

/// A section of the file that a program adds to the ones about layers.
///
/// Its type rejects unknown keys (`#[serde(deny_unknown_fields)]`), so that a misspelt key is
/// reported when the file is loaded.
///
/// ```
/// use toolgate_layers::{Catalog, Config, ProgramSection};
///
/// #[derive(Default, serde::Deserialize, schemars::JsonSchema)]
/// #[serde(default, deny_unknown_fields)]
/// struct SlidingWindow {
///     width: u32,
/// }
///
/// impl ProgramSection for SlidingWindow {
///     const NAME: &'static str = "window";
/// }
///
/// let catalog = || Catalog::bundled().with_section::<SlidingWindow>();
/// let config = Config::parse_with_catalog("app.toml", "[window]\nwidth = 80", catalog())?;
/// assert_eq!(config.section::<SlidingWindow>()?.width, 80);
/// let wrong = Config::parse_with_catalog("app.toml", "[window]\nwidht = 80", catalog()).unwrap_err();
/// assert_eq!(wrong.to_string(), "app.toml:2:1: window has no option `widht`; the nearest is `width`");
/// # Ok::<(), toolgate_layers::ConfigError>(())
/// ```
pub trait ProgramSection: DeserializeOwned + JsonSchema + Default {
    /// The name of the section in the file.
    const NAME: &'static str;
}

/// A section as a [`Catalog`](crate::Catalog) stores it.
#[derive(Clone, Copy)]
pub(crate) struct SectionEntry {
    pub(crate) name: &'static str,
    pub(crate) schema: fn() -> Value,
    pub(crate) check: for<'a> fn(Spanned<DeValue<'a>>) -> Result<(), toml::de::Error>,
}

impl SectionEntry {
    /// Returns the entry for the section type `T`.
    pub(crate) fn for_type<T: ProgramSection>() -> Self {
        Self {
            name: T::NAME,
            schema: schema_of::<T>,
            // As a function pointer: the catalog checks sections of types that it does not know.
            check: |value| deserialize_section::<T>(value).map(drop),
        }
    }
}

/// Deserializes a section.
pub(crate) fn deserialize_section<T: DeserializeOwned>(
    value: Spanned<DeValue<'_>>,
) -> Result<T, toml::de::Error> {
    Deserialize::deserialize(value.into_deserializer())
}

impl fmt::Debug for SectionEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
