//! Layer names for configuration files: what each is called, where it stands by default and why.

use std::fmt;

use schemars::{JsonSchema, Schema, generate::SchemaSettings};
use serde::de::{DeserializeOwned, IntoDeserializer};
use serde_json::Value;
use toml::{Spanned, de::DeValue};
use toolgate_core::{AnyLayer, Band, Layer};

use crate::{Parts, Section, section::ConfigSection};

/// A layer that a configuration file can name.
///
/// Bundled layers implement it; a layer of one's own that does so can be named as well ([`Catalog::with`]).
pub trait Configurable: Layer + Sized {
    /// What a configuration file calls it.
    const NAME: &'static str;

    /// What it does, in one line.
    const SUMMARY: &'static str;

    /// What can be set. An unknown key is refused, so derive it with `deny_unknown_fields` and `default`.
    type Options: DeserializeOwned + JsonSchema + Default;

    /// Makes the layer from its options and the parts that no file can hold.
    fn configure(options: Self::Options, parts: &Parts) -> Result<Self, BadOption>;
}

/// An option has a value that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadOption {
    /// Which option.
    pub key: &'static str,
    /// What is wrong with it, and what would be right.
    pub problem: String,
}

impl BadOption {
    /// Says what is wrong with an option.
    pub fn new(key: &'static str, problem: impl Into<String>) -> Self {
        Self {
            key,
            problem: problem.into(),
        }
    }
}

impl fmt::Display for BadOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.problem)
    }
}

impl std::error::Error for BadOption {}

/// What a configuration file can name: the layers, in the order in which they stand by default, and sections of whoever
/// reads the file.
#[derive(Debug, Clone)]
pub struct Catalog {
    entries: Vec<CatalogEntry>,
    sections: Vec<ConfigSection>,
}

/// One kind of layer.
#[derive(Clone)]
pub struct CatalogEntry {
    /// What a configuration file calls it.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// The band in which it stands.
    pub band: Band,
    /// Why it stands where it does.
    pub why: &'static str,
    /// Whether the default stack has it without being told.
    pub by_default: bool,
    /// What the design documents call it.
    pub origin: &'static str,
    /// Where it differs from them, and why.
    pub differs: &'static str,
    /// Whether it brings parts that other layers use, wherever they stand.
    pub(crate) first: bool,
    schema: fn() -> Value,
    check: for<'a> fn(Spanned<DeValue<'a>>) -> Result<(), toml::de::Error>,
    make: for<'a> fn(Spanned<DeValue<'a>>, &Parts) -> Result<AnyLayer, MakeError>,
}

/// Why a layer could not be made from its options.
#[derive(Debug)]
pub(crate) enum MakeError {
    Unreadable(toml::de::Error),
    Bad(BadOption),
}

impl CatalogEntry {
    /// The entry of a layer that is only there when it is asked for, at the inner end of its band.
    pub fn of<L: Configurable>(band: Band) -> Self {
        Self {
            name: L::NAME,
            summary: L::SUMMARY,
            band,
            why: "it was asked for",
            by_default: false,
            origin: "",
            differs: "",
            first: false,
            schema: schema_of::<L::Options>,
            check: |options| read::<L>(options).map(drop),
            make: |options, parts| {
                let options = read::<L>(options).map_err(MakeError::Unreadable)?;
                L::configure(options, parts)
                    .map(AnyLayer::new)
                    .map_err(MakeError::Bad)
            },
        }
    }

    /// Says why the layer stands where it does.
    pub fn because(self, why: &'static str) -> Self {
        Self { why, ..self }
    }

    /// Puts the layer into the default stack.
    pub fn by_default(self) -> Self {
        Self {
            by_default: true,
            ..self
        }
    }

    /// Has the layer made before others, because they use parts that it brings.
    pub(crate) fn first(self) -> Self {
        Self {
            first: true,
            ..self
        }
    }

    /// Says what the design documents call it and where it differs from them.
    pub(crate) fn origin(self, origin: &'static str, differs: &'static str) -> Self {
        Self {
            origin,
            differs,
            ..self
        }
    }

    /// The JSON Schema of its options.
    pub fn schema(&self) -> Value {
        (self.schema)()
    }

    pub(crate) fn check(&self, options: Spanned<DeValue<'_>>) -> Result<(), toml::de::Error> {
        (self.check)(options)
    }

    pub(crate) fn make(
        &self,
        options: Spanned<DeValue<'_>>,
        parts: &Parts,
    ) -> Result<AnyLayer, MakeError> {
        (self.make)(options, parts)
    }
}

impl fmt::Debug for CatalogEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CatalogEntry")
            .field("name", &self.name)
            .field("band", &self.band)
            .finish_non_exhaustive()
    }
}

fn read<L: Configurable>(options: Spanned<DeValue<'_>>) -> Result<L::Options, toml::de::Error> {
    serde::Deserialize::deserialize(options.into_deserializer())
}

pub(crate) fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let mut schema: Schema = settings.into_generator().into_root_schema_for::<T>();
    schema.remove("title");
    let mut schema = schema.to_value();
    bound_numbers(&mut schema);
    schema
}

/// Says how large numbers may be, which `format` alone tells no editor.
fn bound_numbers(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if map.get("format").is_some_and(|format| format == "uint32") {
                map.insert("maximum".into(), u32::MAX.into());
            }
            map.values_mut().for_each(bound_numbers);
        }
        Value::Array(items) => items.iter_mut().for_each(bound_numbers),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

impl Catalog {
    /// Adds a kind of layer of one's own at the inner end of its band.
    pub fn with<L: Configurable>(self, band: Band) -> Self {
        self.entry(CatalogEntry::of::<L>(band))
    }

    /// Adds an entry at the inner end of its band, in place of one of the same name.
    pub fn entry(mut self, entry: CatalogEntry) -> Self {
        self.entries.retain(|known| known.name != entry.name);
        let at = self
            .entries
            .iter()
            .position(|known| known.band > entry.band)
            .unwrap_or(self.entries.len());
        self.entries.insert(at, entry);
        self
    }

    /// All kinds, outermost first.
    pub fn entries(&self) -> &[CatalogEntry] {
        &self.entries
    }

    /// Adds a section of the file that is not about layers. [`Config::section`](crate::Config::section) reads it.
    pub fn section<T: Section>(mut self) -> Self {
        self.sections.retain(|known| known.name != T::NAME);
        self.sections.push(ConfigSection::of::<T>());
        self
    }

    pub(crate) fn sections(&self) -> &[ConfigSection] {
        &self.sections
    }

    /// Finds a kind by its name.
    pub fn get(&self, name: &str) -> Option<&CatalogEntry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    pub(crate) fn of(entries: Vec<CatalogEntry>) -> Self {
        Self {
            entries,
            sections: Vec::new(),
        }
    }

    /// The position of a kind in the default order.
    pub(crate) fn position(&self, name: &str) -> usize {
        self.entries
            .iter()
            .position(|entry| entry.name == name)
            .unwrap_or(self.entries.len())
    }
}
