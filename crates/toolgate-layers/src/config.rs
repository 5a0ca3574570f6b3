//! `toolgate.toml`: which layers a stack has, in which order, with which options.
//!
//! ```toml
//! [layers.timeout]
//! max_ms = 30_000
//!
//! [layers.research]        # a layer under a name of its own
//! use = "scope"
//! allowed_tools = ["read_file", "search_*"]
//! on = ["search_*"]        # only for these tools
//! ```
//!
//! Without `[stack] order` the layers are those of the default stack and the ones that have a table. With it, they
//! are exactly the ones it lists, the first outermost. An unknown key, layer or word refuses to load, and the error
//! names the line and the nearest valid word.

use std::{collections::BTreeSet, ops::Range, path::Path, sync::Arc};

use serde::{Deserialize, de::IntoDeserializer};
use serde_json::{Map, Value, json};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};
use toolgate_core::{AnyLayer, LayerExt, Matcher};

use crate::{
    Approval, Catalog, CatalogEntry, ConfigError, Configurable, Parts, Policy, Span,
    asks::{AskedBelow, PolicyAsks},
    catalog::MakeError,
    config_error::Origin,
};

/// A configuration file that was read and checked.
///
/// ```
/// use toolgate_layers::Config;
/// let config = Config::parse("[layers.timeout]\nmax_ms = 30_000")?;
/// let wrong = Config::parse("[layers.timeout]\nmax_sm = 30_000").unwrap_err();
/// assert_eq!(wrong.to_string(), "toolgate.toml:2:1: layers.timeout has no option `max_sm`; the nearest is `max_ms`");
/// # Ok::<(), toolgate_layers::ConfigError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Config {
    catalog: Catalog,
    name: String,
    text: Arc<str>,
    /// What is laid over the file.
    variables: Vec<(String, String)>,
    stack: StackSection,
}

/// The part of the file about the stack as a whole.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StackSection {
    /// The names of the layers, the first outermost. Without it, the default order.
    pub order: Option<Vec<String>>,
    /// The names of layers that may stand outside their band.
    pub allow_out_of_band: Vec<String>,
    /// How long a whole turn may take; the linter compares the limits of layers with it.
    pub turn_deadline: Option<Span>,
}

/// The file and the variables over it, read and checked.
struct Document<'a> {
    catalog: &'a Catalog,
    origin: Origin,
    stack: StackSection,
    stack_place: Range<usize>,
    layers: Vec<LayerSection<'a>>,
}

/// What a file says about one layer.
#[derive(Clone)]
struct LayerSection<'a> {
    name: String,
    kind: &'a CatalogEntry,
    enabled: Option<bool>,
    on: Option<Matcher>,
    options: Spanned<DeValue<'a>>,
    place: Range<usize>,
}

/// The keys that every layer has.
const COMMON: [&str; 3] = ["use", "enabled", "on"];
/// The sections of the file.
const SECTIONS: [&str; 2] = ["stack", "layers"];
/// How variables begin that override something in the file.
const PREFIXES: [&str; 2] = ["TOOLGATE_STACK__", "TOOLGATE_LAYERS__"];

impl Config {
    /// Reads a configuration from text.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        Self::read("toolgate.toml", text, Catalog::bundled())
    }

    /// Reads a configuration file.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError::unreadable(&name, &error))?;
        Self::read(&name, &text, Catalog::bundled())
    }

    /// Reads a configuration with layers of one's own; `name` is what errors call the file.
    pub fn read(name: &str, text: &str, catalog: Catalog) -> Result<Self, ConfigError> {
        let (name, stack) = (name.to_owned(), StackSection::default());
        Self { catalog, name, text: text.into(), variables: Vec::new(), stack }.checked()
    }

    /// Lays variables such as `TOOLGATE_LAYERS__TIMEOUT__MAX_MS=5000` over the file. Others are left alone.
    ///
    /// The value is read as TOML, and as plain text if it is none.
    pub fn with_environment(
        mut self,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let ours = |(name, _): &(String, String)| PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        self.variables.extend(variables.into_iter().filter(ours));
        // The shorter path first, so that a part is laid over its whole.
        self.variables.sort();
        self.checked()
    }

    /// The same with the variables of this process.
    pub fn with_process_environment(self) -> Result<Self, ConfigError> {
        let variables = std::env::vars_os();
        self.with_environment(
            variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
        )
    }

    /// What the file says about the stack as a whole.
    pub fn stack(&self) -> &StackSection {
        &self.stack
    }

    /// The kinds of layers the file can name.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Makes the layers, outermost first.
    pub fn layers(&self, parts: &Parts) -> Result<Vec<AnyLayer>, ConfigError> {
        let document = self.document()?;
        let plan = document.plan()?;
        let asks = PolicyAsks::new(asked_below(&plan));
        parts.put(asks.clone());
        let mut layers: Vec<Option<AnyLayer>> = vec![None; plan.len()];
        for first in [true, false] {
            for (at, section) in plan.iter().enumerate().filter(|(_, section)| section.kind.first == first) {
                asks.making(at);
                layers[at] = Some(document.layer(section.clone(), parts)?);
            }
        }
        Ok(layers.into_iter().flatten().collect())
    }

    /// The JSON Schema of the file, for editors.
    pub fn json_schema(catalog: &Catalog) -> Value {
        let common = json!({
            "enabled": { "type": "boolean", "description": "Whether the stack has this layer." },
            "on": { "type": "array", "items": { "type": "string" }, "description": "Only for tools whose name fits one of these patterns." },
        });
        let kind = |entry: &CatalogEntry| {
            let mut schema = entry.schema();
            schema["description"] = entry.summary.into();
            if !schema["properties"].is_object() {
                schema["properties"] = json!({});
            }
            let properties = schema["properties"].as_object_mut().expect("made an object above");
            properties.extend(common.as_object().expect("an object").clone());
            properties.insert("use".into(), json!({ "const": entry.name }));
            (entry.name.to_owned(), schema)
        };
        let layers: Map<String, Value> = catalog.entries().iter().map(kind).collect();
        let names: Vec<_> = catalog.entries().iter().map(|entry| entry.name).collect();
        let mut stack = schemars::schema_for!(StackSection).to_value();
        stack.as_object_mut().expect("a struct").remove("$schema");
        let defs = stack.as_object_mut().and_then(|stack| stack.remove("$defs")).unwrap_or_else(|| json!({}));
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "toolgate.toml",
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "stack": stack,
                "layers": {
                    "type": "object",
                    "properties": layers,
                    "additionalProperties": {
                        "type": "object",
                        "description": "A layer under a name of its own.",
                        "required": ["use"],
                        "properties": { "use": { "enum": names } },
                    },
                },
            },
            "$defs": defs,
        })
    }

    fn checked(mut self) -> Result<Self, ConfigError> {
        let document = self.document()?;
        document.plan()?;
        self.stack = document.stack;
        Ok(self)
    }

    fn document(&self) -> Result<Document<'_>, ConfigError> {
        let mut origin = Origin::file(&self.name, &self.text);
        let mut table = DeTable::parse(&self.text).map_err(|error| origin.toml(&error, "the file"))?.into_inner();
        for (name, value) in &self.variables {
            let place = origin.variable(name);
            let path: Vec<_> = name["TOOLGATE_".len()..].split("__").map(str::to_lowercase).collect();
            if path.iter().any(String::is_empty) {
                return Err(origin.error(&place, "a part of the name is empty", None));
            }
            overlay(&mut table, &path, value_of(value, &place), &place)
                .map_err(|taken| origin.error(&place, format!("`{taken}` is a value and has no parts"), None))?;
        }
        Document::read(&self.catalog, origin, table)
    }
}

impl<'a> Document<'a> {
    fn read(catalog: &'a Catalog, origin: Origin, table: DeTable<'a>) -> Result<Self, ConfigError> {
        let (stack, layers) = (StackSection::default(), Vec::new());
        let mut document = Self { catalog, origin, stack, stack_place: 0..0, layers };
        for (key, value) in table {
            match &**key.get_ref() {
                "stack" => {
                    document.stack_place = value.span();
                    let stack = StackSection::deserialize(value.into_deserializer());
                    document.stack = stack.map_err(|error| document.origin.toml(&error, "stack"))?;
                }
                "layers" => document.layers = document.sections(value)?,
                other => return Err(document.origin.unknown(&key.span(), "the file", "section", other, SECTIONS)),
            }
        }
        Ok(document)
    }

    fn sections(&self, layers: Spanned<DeValue<'a>>) -> Result<Vec<LayerSection<'a>>, ConfigError> {
        let place = layers.span();
        let DeValue::Table(layers) = layers.into_inner() else {
            return Err(self.origin.error(&place, "`layers` holds one table per layer", None));
        };
        layers.into_iter().map(|(name, value)| self.section(name.span(), name.get_ref(), value)).collect()
    }

    fn section(
        &self,
        at: Range<usize>,
        name: &str,
        value: Spanned<DeValue<'a>>,
    ) -> Result<LayerSection<'a>, ConfigError> {
        let place = value.span();
        let DeValue::Table(mut table) = value.into_inner() else {
            return Err(self.origin.error(&place, format!("`layers.{name}` is a table of options"), None));
        };
        let path = format!("layers.{name}");
        let mut take = |key: &str| table.remove(key);
        let (kind, enabled, on) = (take("use"), take("enabled"), take("on"));
        let (named_at, named) = match &kind {
            Some(kind) => (kind.span(), self.common::<String>(kind, &path, "use")?),
            None => (at.clone(), name.to_owned()),
        };
        let known = self.catalog.entries().iter().map(|entry| entry.name);
        let Some(kind) = self.catalog.get(&named) else {
            return Err(self.origin.unknown(&named_at, "the catalog", "layer", &named, known));
        };
        let enabled = enabled.map(|value| self.common::<bool>(&value, &path, "enabled")).transpose()?;
        let on = on.map(|value| self.matcher(&value, &path)).transpose()?;
        let options = Spanned::new(place, DeValue::Table(table));
        kind.check(options.clone()).map_err(|error| self.origin.options(&error, &path, &COMMON))?;
        Ok(LayerSection { name: name.to_owned(), kind, enabled, on, options, place: at })
    }

    fn common<T: for<'de> Deserialize<'de>>(
        &self,
        value: &Spanned<DeValue<'a>>,
        path: &str,
        key: &str,
    ) -> Result<T, ConfigError> {
        T::deserialize(value.clone().into_deserializer())
            .map_err(|error| self.origin.toml(&error, &format!("{path}.{key}")))
    }

    fn matcher(&self, value: &Spanned<DeValue<'a>>, path: &str) -> Result<Matcher, ConfigError> {
        let patterns: Vec<String> = self.common(value, path, "on")?;
        let mut all = Matcher::names([]);
        for pattern in patterns {
            let matcher = Matcher::glob(&pattern)
                .map_err(|error| self.origin.error(&value.span(), format!("{path}.on: {error}"), None))?;
            all = all.or(matcher);
        }
        Ok(all)
    }

    /// The layers of the effective stack in order.
    fn plan(&self) -> Result<Vec<LayerSection<'a>>, ConfigError> {
        match &self.stack.order {
            Some(order) => self.listed(order),
            None => Ok(self.usual()),
        }
    }

    fn listed(&self, order: &[String]) -> Result<Vec<LayerSection<'a>>, ConfigError> {
        let mut seen = BTreeSet::new();
        let place = self.stack_place.clone();
        let mut plan = Vec::new();
        for name in order {
            if !seen.insert(name) {
                let problem =
                    format!("stack.order names `{name}` twice; a second one needs a table with a name of its own");
                return Err(self.origin.error(&place, problem, None));
            }
            let known = || self.layers.iter().map(|s| &*s.name).chain(self.catalog.entries().iter().map(|e| e.name));
            let section = self.layers.iter().find(|section| section.name == *name).cloned();
            let section = section.or_else(|| self.catalog.get(name).map(plain));
            plan.push(section.ok_or_else(|| self.origin.unknown(&place, "stack.order", "layer", name, known()))?);
        }
        match self.layers.iter().find(|section| section.enabled != Some(false) && !seen.contains(&section.name)) {
            // Options that nobody reads are a mistake: the layer would silently be missing.
            Some(unused) => {
                let problem = format!("layers.{0} is not in stack.order, so it would do nothing", unused.name);
                Err(self.origin.error(&unused.place, problem, Some("list it, or set enabled = false".into())))
            }
            None => Ok(plan.into_iter().filter(|section| section.enabled != Some(false)).collect()),
        }
    }

    fn usual(&self) -> Vec<LayerSection<'a>> {
        let told = |entry: &&CatalogEntry| self.layers.iter().any(|section| section.name == entry.name);
        let by_default = self.catalog.entries().iter().filter(|entry| entry.by_default && !told(entry)).map(plain);
        let mut plan: Vec<_> = self.layers.iter().cloned().chain(by_default).collect();
        plan.retain(|section| section.enabled != Some(false));
        plan.sort_by_key(|section| (self.catalog.position(section.kind.name), section.name.clone()));
        plan
    }

    fn layer(&self, section: LayerSection<'a>, parts: &Parts) -> Result<AnyLayer, ConfigError> {
        let LayerSection { name, kind, on, options, place, .. } = section;
        let path = format!("layers.{name}");
        let key = |key: &str| match options.get_ref() {
            DeValue::Table(table) => table.get(key).map(Spanned::span),
            _ => None,
        };
        let layer = kind.make(options.clone(), parts).map_err(|error| match error {
            MakeError::Unreadable(error) => self.origin.options(&error, &path, &COMMON),
            MakeError::Bad(bad) => {
                let at = key(bad.key).unwrap_or_else(|| place.clone());
                self.origin.error(&at, format!("{path}.{}: {}", bad.key, bad.problem), None)
            }
        })?;
        Ok(match (on, name == kind.name) {
            (None, true) => layer,
            (None, false) => AnyLayer::new(layer.named(&name)),
            (Some(on), true) => AnyLayer::new(layer.on(on)),
            (Some(on), false) => AnyLayer::new(layer.named(&name).on(on)),
        })
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::parse("").expect("an empty file is valid")
    }
}

/// The approval layer further in that asks about every call that a policy wants to have asked about, if there is one:
/// the innermost, first among those that do not say by themselves what they ask about.
fn asked_below(plan: &[LayerSection<'_>]) -> Option<AskedBelow> {
    let is_policy = |section: &LayerSection<'_>| section.kind.name == Policy::NAME;
    let policy = plan.iter().rposition(is_policy)?;
    // One that is restricted to some tools would let the others through unasked.
    let asks = |section: &LayerSection<'_>| section.kind.name == Approval::NAME && section.on.is_none();
    let chooses = |section: &LayerSection<'_>| match section.options.get_ref() {
        DeValue::Table(table) => table.contains_key("tools") || table.contains_key("ask_from"),
        _ => false,
    };
    let inside = &plan[policy + 1..];
    let general = inside.iter().rposition(|section| asks(section) && !chooses(section));
    let at = policy + 1 + general.or_else(|| inside.iter().rposition(asks))?;
    let sees_all = plan.iter().any(|section| is_policy(section) && section.on.is_none());
    Some(AskedBelow { at, sees_all })
}

/// A layer about which the file says nothing.
fn plain<'a>(kind: &'a CatalogEntry) -> LayerSection<'a> {
    let options = Spanned::new(0..0, DeValue::Table(DeTable::new()));
    let name = kind.name.to_owned();
    LayerSection { name, kind, enabled: None, on: None, options, place: 0..0 }
}

/// Puts a value at a path; the part that is in the way if there is one.
fn overlay<'a>(
    table: &mut DeTable<'a>,
    path: &[String],
    value: Spanned<DeValue<'a>>,
    place: &Range<usize>,
) -> Result<(), String> {
    let (first, rest) = path.split_first().expect("a variable that begins with a prefix has parts");
    if rest.is_empty() {
        table.remove(first.as_str());
        table.insert(Spanned::new(place.clone(), first.clone().into()), value);
        return Ok(());
    }
    if !table.contains_key(first.as_str()) {
        let empty = Spanned::new(place.clone(), DeValue::Table(DeTable::new()));
        table.insert(Spanned::new(place.clone(), first.clone().into()), empty);
    }
    match table.get_mut(first.as_str()).map(Spanned::get_mut) {
        Some(DeValue::Table(inner)) => overlay(inner, rest, value, place),
        _ => Err(first.clone()),
    }
}

/// The value of a variable: TOML if it is some, else text.
fn value_of<'a>(text: &'a str, place: &Range<usize>) -> Spanned<DeValue<'a>> {
    let value = match DeValue::parse(text) {
        Ok(value) => value.into_inner(),
        Err(_) => DeValue::String(text.into()),
    };
    replaced(value, place)
}

/// The same value, all of whose parts are said to come from `place`.
fn replaced<'a>(value: DeValue<'a>, place: &Range<usize>) -> Spanned<DeValue<'a>> {
    let value = match value {
        DeValue::Table(table) => {
            let moved = table.into_iter().map(|(key, value)| {
                (Spanned::new(place.clone(), key.into_inner()), replaced(value.into_inner(), place))
            });
            DeValue::Table(moved.collect())
        }
        DeValue::Array(items) => {
            DeValue::Array(items.into_iter().map(|item| replaced(item.into_inner(), place)).collect())
        }
        plain => plain,
    };
    Spanned::new(place.clone(), value)
}

/// The layers of the default stack, as `config` adjusts them, outermost first.
///
/// ```
/// use toolgate_core::{Registry, Stack};
/// use toolgate_layers::{Config, Parts, default_stack};
/// let parts = Parts::new();
/// let stack = Stack::over(Registry::new()).any_layers(default_stack(&Config::default(), &parts)?).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn default_stack(config: &Config, parts: &Parts) -> Result<Vec<AnyLayer>, ConfigError> {
    config.layers(parts)
}
