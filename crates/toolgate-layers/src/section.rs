//! Sections of a configuration file that are not about layers: those of the program that reads it.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, de::DeserializeOwned, de::IntoDeserializer};
use serde_json::Value;
use toml::{Spanned, de::DeValue};

use crate::catalog::schema_of;

/// A section of the file that a program adds to the ones about layers.
///
/// Its type refuses keys that it does not know (`#[serde(deny_unknown_fields)]`), so that a misspelt one is found when
/// the file is read.
///
/// ```
/// use toolgate_layers::{Catalog, Config, Section};
///
/// #[derive(Default, serde::Deserialize, schemars::JsonSchema)]
/// #[serde(default, deny_unknown_fields)]
/// struct Window {
///     width: u32,
/// }
///
/// impl Section for Window {
///     const NAME: &'static str = "window";
/// }
///
/// let catalog = || Catalog::bundled().section::<Window>();
/// let config = Config::read("app.toml", "[window]\nwidth = 80", catalog())?;
/// assert_eq!(config.section::<Window>()?.width, 80);
/// let wrong = Config::read("app.toml", "[window]\nwidht = 80", catalog()).unwrap_err();
/// assert_eq!(wrong.to_string(), "app.toml:2:1: window has no option `widht`; the nearest is `width`");
/// # Ok::<(), toolgate_layers::ConfigError>(())
/// ```
pub trait Section: DeserializeOwned + JsonSchema + Default {
    /// What the file calls it.
    const NAME: &'static str;
}

/// A section as a catalog knows it.
#[derive(Clone, Copy)]
pub(crate) struct ConfigSection {
    pub(crate) name: &'static str,
    pub(crate) schema: fn() -> Value,
    pub(crate) check: for<'a> fn(Spanned<DeValue<'a>>) -> Result<(), toml::de::Error>,
}

impl ConfigSection {
    pub(crate) fn of<T: Section>() -> Self {
        Self {
            name: T::NAME,
            schema: schema_of::<T>,
            check: |value| read::<T>(value).map(drop),
        }
    }
}

/// Reads a section.
pub(crate) fn read<T: DeserializeOwned>(value: Spanned<DeValue<'_>>) -> Result<T, toml::de::Error> {
    Deserialize::deserialize(value.into_deserializer())
}

impl fmt::Debug for ConfigSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
