//! The layers that a configuration file can name, with their default order and the reason for it.

use std::{any::TypeId, fmt};

use schemars::{JsonSchema, Schema, generate::SchemaSettings};
use serde::de::{DeserializeOwned, IntoDeserializer};
use serde_json::Value;
use toml::{Spanned, de::DeValue};
use toolgate_core::{AnyLayer, Band, Layer};

use crate::{
    ProgramSection, Resources,
    config::{changes::LayerEdit, section::SectionEntry},
};

/// A layer that a configuration file can name.
///
/// Bundled layers implement it. A program adds its own layers with [`Catalog::with_layer`].
pub trait Configurable: Layer + Sized {
    /// The layer's name in a configuration file.
    const NAME: &'static str;

    /// A one-line summary of the layer.
    const SUMMARY: &'static str;

    /// The options. Derive with `deny_unknown_fields` and `default`, so that an unknown key is
    /// rejected.
    type Options: DeserializeOwned + JsonSchema + Default + 'static;

    /// Builds the layer from its options and the resources that no file can hold.
    ///
    /// # Errors
    ///
    /// Returns [`BadOption`] if an option has a value that makes no sense.
    fn configure(options: Self::Options, parts: &Resources) -> Result<Self, BadOption>;
}

/// The error for an option whose value makes no sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadOption {
    /// The option's key.
    pub key: &'static str,
    /// The problem, with what would be right.
    pub problem: String,
}

impl BadOption {
    /// Creates an error about the option `key`.
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

/// The layers that a configuration file can name, in default order, and the sections of the program
/// that loads it.
#[derive(Debug, Clone)]
pub struct Catalog {
    entries: Vec<CatalogEntry>,
    sections: Vec<SectionEntry>,
}

/// One kind of layer in a [`Catalog`].
#[derive(Clone)]
pub struct CatalogEntry {
    /// The layer's name in a configuration file.
    pub name: &'static str,
    /// A one-line summary of the layer.
    pub summary: &'static str,
    /// The layer's band.
    pub band: Band,
    /// The reason for its position.
    pub why: &'static str,
    /// True if the default stack contains it.
    pub by_default: bool,
    /// True if it comes with this crate.
    pub(crate) bundled: bool,
    layer: TypeId,
    schema: fn() -> Value,
    check: for<'a> fn(Spanned<DeValue<'a>>) -> Result<(), toml::de::Error>,
    make: MakeLayer,
}

/// Builds a layer from its options and the program's changes of them.
type MakeLayer =
    for<'a> fn(Spanned<DeValue<'a>>, &[LayerEdit], &Resources) -> Result<AnyLayer, LayerBuildError>;

/// The error for a layer that could not be built from its options.
#[derive(Debug)]
pub(crate) enum LayerBuildError {
    Unreadable(toml::de::Error),
    Bad(BadOption),
}

impl CatalogEntry {
    /// Creates the entry of a layer that is part of a stack only if a file names it.
    pub fn for_layer<L: Configurable>(band: Band) -> Self {
        Self {
            name: L::NAME,
            summary: L::SUMMARY,
            band,
            why: "it was configured",
            by_default: false,
            bundled: false,
            layer: TypeId::of::<L>(),
            schema: schema_of::<L::Options>,
            check: |options| deserialize_options::<L>(options).map(drop),
            make: |options, edits, parts| {
                let options =
                    deserialize_edited::<L>(options, edits).map_err(LayerBuildError::Unreadable)?;
                L::configure(options, parts)
                    .map(AnyLayer::new)
                    .map_err(LayerBuildError::Bad)
            },
        }
    }

    /// Sets the reason for the layer's position.
    pub fn because(self, why: &'static str) -> Self {
        Self { why, ..self }
    }

    /// Adds the layer to the default stack.
    pub fn by_default(self) -> Self {
        Self {
            by_default: true,
            ..self
        }
    }

    /// Returns the JSON Schema of the layer's options.
    pub fn options_schema(&self) -> Value {
        (self.schema)()
    }

    /// Checks options without building the layer.
    pub(crate) fn check_options(
        &self,
        options: Spanned<DeValue<'_>>,
    ) -> Result<(), toml::de::Error> {
        (self.check)(options)
    }

    /// Checks whether this is the entry of `L`.
    pub(crate) fn is_layer<L: Configurable>(&self) -> bool {
        self.layer == TypeId::of::<L>()
    }

    /// Returns the options, changed by `edits`, if this is the entry of `L`. Ones that cannot be
    /// deserialized are reported when the layer is built.
    pub(crate) fn options_of<L: Configurable>(
        &self,
        options: &Spanned<DeValue<'_>>,
        edits: &[LayerEdit],
    ) -> Option<L::Options> {
        self.is_layer::<L>()
            .then(|| deserialize_edited::<L>(options.clone(), edits).ok())?
    }

    /// Builds the layer from its options, changed by `edits`.
    pub(crate) fn build_layer(
        &self,
        options: Spanned<DeValue<'_>>,
        edits: &[LayerEdit],
        parts: &Resources,
    ) -> Result<AnyLayer, LayerBuildError> {
        (self.make)(options, edits, parts)
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

/// Deserializes the options of `L`.
fn deserialize_options<L: Configurable>(
    options: Spanned<DeValue<'_>>,
) -> Result<L::Options, toml::de::Error> {
    serde::Deserialize::deserialize(options.into_deserializer())
}

/// Deserializes the options of `L` and applies the changes of the program.
fn deserialize_edited<L: Configurable>(
    options: Spanned<DeValue<'_>>,
    edits: &[LayerEdit],
) -> Result<L::Options, toml::de::Error> {
    let mut options = deserialize_options::<L>(options)?;
    for edit in edits {
        edit.apply_to(&mut options);
    }
    Ok(options)
}

/// Returns the schema of `T` as a part of a larger schema: inlined, without title and meta schema.
pub(crate) fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        // Inlined: the options of several layers go into one file, and their `$defs` could clash.
        settings.inline_subschemas = true;
    });
    let mut schema: Schema = settings.into_generator().into_root_schema_for::<T>();
    schema.remove("title");
    let mut schema = schema.to_value();
    bound_numbers(&mut schema);
    schema
}

/// Adds the maximum of numbers: editors do not derive it from `format`.
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
    /// Adds the program's own kind of layer at the inner end of its band. In the default order, layers
    /// that decide stand outside those that ask for approval all the same.
    pub fn with_layer<L: Configurable>(self, band: Band) -> Self {
        self.with_entry(CatalogEntry::for_layer::<L>(band))
    }

    /// Adds an entry at the inner end of its band, replacing one of the same name.
    pub fn with_entry(mut self, entry: CatalogEntry) -> Self {
        // Replacing is intended: a program may exchange a bundled layer for its own.
        self.entries.retain(|known| known.name != entry.name);
        let at = self
            .entries
            .iter()
            .position(|known| known.band > entry.band)
            .unwrap_or(self.entries.len());
        self.entries.insert(at, entry);
        self
    }

    /// Returns all kinds of layers, outermost first.
    pub fn entries(&self) -> &[CatalogEntry] {
        &self.entries
    }

    /// Adds a section that is not about layers. [`Config::section`](crate::Config::section) returns
    /// it.
    pub fn with_section<T: ProgramSection>(mut self) -> Self {
        self.sections.retain(|known| known.name != T::NAME);
        self.sections.push(SectionEntry::for_type::<T>());
        self
    }

    /// Returns the sections of the program.
    pub(crate) fn sections(&self) -> &[SectionEntry] {
        &self.sections
    }

    /// Returns the kind of layer with this name.
    pub fn get(&self, name: &str) -> Option<&CatalogEntry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// Creates a catalog with the bundled entries and no sections.
    pub(crate) fn from_bundled(mut entries: Vec<CatalogEntry>) -> Self {
        for entry in &mut entries {
            entry.bundled = true;
        }
        Self {
            entries,
            sections: Vec::new(),
        }
    }

    /// Returns the position of a kind in the default order.
    pub(crate) fn position(&self, name: &str) -> usize {
        self.entries
            .iter()
            .position(|entry| entry.name == name)
            .unwrap_or(self.entries.len())
    }
}
