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
//!
//! [[budget]]               # how much may be spent; kept in the store
//! name = "daily"
//! scope = "user"
//! period = "day"
//! unit = "usd"
//! limit = 5.0
//! ```
//!
//! Without `[stack] order` the layers are those of the default stack and the ones that have a table. With it, they
//! are exactly the ones it lists, the first outermost. An unknown key, layer or word refuses to load, and the error
//! names the line and the nearest valid word.

use std::{collections::BTreeSet, ffi::OsString, ops::Range, path::Path, sync::Arc};

use serde::{Deserialize, de::IntoDeserializer};
use serde_json::Value;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};
use toolgate_core::{AnyLayer, Budgets, Executor, LayerExt, Matcher, Stack};

use crate::{
    Approval, Budget, BuildError, Catalog, CatalogEntry, ConfigError, Configurable, Parts, Policy,
    Redact, Section, Span,
    asks::{AskedBelow, PolicyAsks},
    budget_section::BudgetSection,
    catalog::MakeError,
    config_error::Origin,
    config_schema, section,
    variables::{Variable, is_ours},
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
    /// What is laid over the file, the later over the earlier.
    variables: Vec<Variable>,
    stack: StackSection,
    budgets: Budgets,
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
    /// The places of the names in `stack.order`, and of those in `stack.allow_out_of_band`.
    order: Vec<Range<usize>>,
    allowed: Vec<Range<usize>>,
    layers: Vec<LayerSection<'a>>,
    budgets: BudgetSection,
    /// The sections of the program, by name.
    others: Vec<(&'static str, Spanned<DeValue<'a>>)>,
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
const SECTIONS: [&str; 3] = ["stack", "layers", "budget"];

impl Config {
    /// Reads a configuration from text.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        Self::read("toolgate.toml", text, Catalog::bundled())
    }

    /// Reads a configuration file.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::unreadable(&name, &error))?;
        Self::read(&name, &text, Catalog::bundled())
    }

    /// Reads a configuration with layers of one's own; `name` is what errors call the file.
    pub fn read(name: &str, text: &str, catalog: Catalog) -> Result<Self, ConfigError> {
        let (name, stack, budgets) = (name.to_owned(), StackSection::default(), Budgets::default());
        Self {
            catalog,
            name,
            text: text.into(),
            variables: Vec::new(),
            stack,
            budgets,
        }
        .checked()
    }

    /// Lays variables such as `TOOLGATE_LAYERS__TIMEOUT__MAX_MS=5000` over the file, and over those of earlier calls.
    ///
    /// The value is read as TOML, and as plain text if it is none. A variable that looks as if it were meant for the
    /// file (`TOOLGATE_LAYER…`, `TOOLGATE_STACK…`, or one with `__` after `TOOLGATE_`) and overrides nothing is
    /// refused; others are left alone.
    pub fn with_environment(
        mut self,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let mut ours = Vec::new();
        for (name, value) in variables {
            ours.extend(
                Variable::read(&name, value, &self.catalog)
                    .map_err(|problem| self.bad(&name, problem))?,
            );
        }
        // The shorter path first, so that a part is laid over its whole.
        ours.sort_by(|a, b| a.path.cmp(&b.path));
        self.variables.extend(ours);
        self.checked()
    }

    /// The same with the variables of this process. One of ours that is not UTF-8 is refused.
    pub fn with_process_environment(self) -> Result<Self, ConfigError> {
        self.with_raw_environment(std::env::vars_os())
    }

    fn with_raw_environment(
        self,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        let mut texts = Vec::new();
        for (name, value) in variables {
            let shown = name.to_string_lossy().into_owned();
            if !is_ours(&shown) {
                continue;
            }
            let (Ok(name), Ok(value)) = (name.into_string(), value.into_string()) else {
                return Err(self.bad(&shown, "it is not UTF-8".to_owned()));
            };
            texts.push((name, value));
        }
        self.with_environment(texts)
    }

    fn bad(&self, variable: &str, problem: String) -> ConfigError {
        let mut origin = Origin::file(&self.name, &self.text);
        let place = origin.variable(variable);
        origin.error(&place, problem, None)
    }

    /// What the file says about the stack as a whole.
    pub fn stack(&self) -> &StackSection {
        &self.stack
    }

    /// The budgets of the file. The layer `budget` keeps calls of tools within them; requests to models are for whoever
    /// makes them.
    pub fn budgets(&self) -> &Budgets {
        &self.budgets
    }

    /// A section that the program has added to the catalog; as it is by default if the file does not have it.
    pub fn section<T: Section>(&self) -> Result<T, ConfigError> {
        let document = self.document()?;
        match document.others.iter().find(|(name, _)| *name == T::NAME) {
            Some((name, value)) => section::read(value.clone())
                .map_err(|error| document.origin.options(&error, name, value, &[])),
            None => Ok(T::default()),
        }
    }

    /// What the file and the variables over it say at a place, such as `["layers", "policy", "rules"]`; nothing if they do
    /// not.
    pub fn value(&self, path: &[&str]) -> Result<Option<Value>, ConfigError> {
        let (origin, mut table) = self.table()?;
        let Some((last, above)) = path.split_last() else {
            return Ok(None);
        };
        for key in above {
            table = match table.remove(*key).map(Spanned::into_inner) {
                Some(DeValue::Table(inner)) => inner,
                Some(_) | None => return Ok(None),
            };
        }
        let Some(value) = table.remove(*last) else {
            return Ok(None);
        };
        let read = Value::deserialize(value.clone().into_deserializer());
        read.map(Some)
            .map_err(|error| origin.options(&error, &path.join("."), &value, &[]))
    }

    /// The kinds of layers the file can name.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Makes the layers, outermost first.
    pub fn layers(&self, parts: &Parts) -> Result<Vec<AnyLayer>, ConfigError> {
        let document = self.document()?;
        let plan = document.plan()?;
        if plan.iter().any(|section| section.kind.name == Budget::NAME) {
            document.budgets.open(&document.origin, parts)?;
        }
        let asks = PolicyAsks::new(asked_below(&plan));
        parts.put(asks.clone());
        let mut layers: Vec<Option<AnyLayer>> = vec![None; plan.len()];
        Redact::begin(parts);
        for first in [true, false] {
            for (at, section) in plan
                .iter()
                .enumerate()
                .filter(|(_, section)| section.kind.first == first)
            {
                asks.making(at);
                layers[at] = Some(document.layer(section.clone(), parts)?);
            }
            Redact::share(parts);
        }
        Ok(layers.into_iter().flatten().collect())
    }

    /// Builds the whole stack over `executor`, with the layers that the file allows to stand outside their band.
    ///
    /// ```
    /// use toolgate_core::Registry;
    /// use toolgate_layers::{Config, Parts};
    /// let stack = Config::default().build(Registry::new(), &Parts::new())?;
    /// # Ok::<(), toolgate_layers::BuildError>(())
    /// ```
    pub fn build(&self, executor: impl Executor, parts: &Parts) -> Result<Stack, BuildError> {
        let builder = Stack::over(executor).any_layers(self.layers(parts)?);
        let allowed = self.stack.allow_out_of_band.iter();
        Ok(allowed
            .fold(builder, |builder, name| builder.allow_out_of_band(name))
            .build()?)
    }

    /// The JSON Schema of the file, for editors.
    pub fn json_schema(catalog: &Catalog) -> Value {
        config_schema::schema(catalog)
    }

    fn checked(mut self) -> Result<Self, ConfigError> {
        let document = self.document()?;
        document.plan()?;
        (self.stack, self.budgets) = (document.stack, document.budgets.budgets);
        Ok(self)
    }

    fn document(&self) -> Result<Document<'_>, ConfigError> {
        let (origin, table) = self.table()?;
        Document::read(&self.catalog, origin, table)
    }

    /// The file with the variables over it.
    fn table(&self) -> Result<(Origin, DeTable<'_>), ConfigError> {
        let mut origin = Origin::file(&self.name, &self.text);
        let mut table = DeTable::parse(&self.text)
            .map_err(|error| origin.toml(&error, "the file"))?
            .into_inner();
        for variable in &self.variables {
            let place = origin.variable(&variable.name);
            variable.lay_over(&mut table, &place).map_err(|taken| {
                origin.error(
                    &place,
                    format!("`{taken}` is a value and has no parts"),
                    None,
                )
            })?;
        }
        Ok((origin, table))
    }
}

impl<'a> Document<'a> {
    fn read(catalog: &'a Catalog, origin: Origin, table: DeTable<'a>) -> Result<Self, ConfigError> {
        let (stack, layers, budgets) = (
            StackSection::default(),
            Vec::new(),
            BudgetSection::default(),
        );
        let (order, allowed, others) = (Vec::new(), Vec::new(), Vec::new());
        let mut document = Self {
            catalog,
            origin,
            stack,
            order,
            allowed,
            layers,
            budgets,
            others,
        };
        for (key, value) in table {
            match &**key.get_ref() {
                "stack" => {
                    let stack = StackSection::deserialize(value.clone().into_deserializer());
                    document.stack = stack
                        .map_err(|error| document.origin.options(&error, "stack", &value, &[]))?;
                    document.order = entries(&value, "order");
                    document.allowed = entries(&value, "allow_out_of_band");
                }
                "layers" => document.layers = document.sections(value)?,
                "budget" => document.budgets = BudgetSection::read(&document.origin, &value)?,
                other => match catalog
                    .sections()
                    .iter()
                    .find(|section| section.name == other)
                {
                    Some(section) => {
                        let wrong =
                            |error| document.origin.options(&error, section.name, &value, &[]);
                        (section.check)(value.clone()).map_err(wrong)?;
                        document.others.push((section.name, value));
                    }
                    None => {
                        let known = SECTIONS
                            .into_iter()
                            .chain(catalog.sections().iter().map(|section| section.name));
                        return Err(document.origin.unknown(
                            &key.span(),
                            "the file",
                            "section",
                            other,
                            known,
                        ));
                    }
                },
            }
        }
        Ok(document)
    }

    fn sections(&self, layers: Spanned<DeValue<'a>>) -> Result<Vec<LayerSection<'a>>, ConfigError> {
        let place = layers.span();
        let DeValue::Table(layers) = layers.into_inner() else {
            return Err(self
                .origin
                .error(&place, "`layers` holds one table per layer", None));
        };
        layers
            .into_iter()
            .map(|(name, value)| self.section(name.span(), name.get_ref(), value))
            .collect()
    }

    fn section(
        &self,
        at: Range<usize>,
        name: &str,
        value: Spanned<DeValue<'a>>,
    ) -> Result<LayerSection<'a>, ConfigError> {
        let place = value.span();
        let DeValue::Table(mut table) = value.into_inner() else {
            return Err(self.origin.error(
                &place,
                format!("`layers.{name}` is a table of options"),
                None,
            ));
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
            return Err(self
                .origin
                .unknown(&named_at, "the catalog", "layer", &named, known));
        };
        if kind.name != name && self.catalog.get(name).is_some() {
            // The kind of that name would silently be missing.
            let problem =
                format!("{path} is the table of the layer `{name}` and cannot use `{named}`");
            return Err(self.origin.error(
                &named_at,
                problem,
                Some("give it a name of its own".into()),
            ));
        }
        let enabled = enabled
            .map(|value| self.common::<bool>(&value, &path, "enabled"))
            .transpose()?;
        let on = on.map(|value| self.matcher(&value, &path)).transpose()?;
        let options = Spanned::new(place, DeValue::Table(table));
        kind.check(options.clone())
            .map_err(|error| self.origin.options(&error, &path, &options, &COMMON))?;
        Ok(LayerSection {
            name: name.to_owned(),
            kind,
            enabled,
            on,
            options,
            place: at,
        })
    }

    fn common<T: for<'de> Deserialize<'de>>(
        &self,
        value: &Spanned<DeValue<'a>>,
        path: &str,
        key: &str,
    ) -> Result<T, ConfigError> {
        T::deserialize(value.clone().into_deserializer()).map_err(|error| {
            self.origin
                .options(&error, &format!("{path}.{key}"), value, &[])
        })
    }

    fn matcher(&self, value: &Spanned<DeValue<'a>>, path: &str) -> Result<Matcher, ConfigError> {
        let patterns: Vec<String> = self.common(value, path, "on")?;
        if patterns.is_empty() {
            let problem = format!("{path}.on names no tool, so the layer would do nothing");
            return Err(self.origin.error(
                &value.span(),
                problem,
                Some("set enabled = false to switch it off".into()),
            ));
        }
        let mut all = Matcher::names([]);
        for pattern in patterns {
            let matcher = Matcher::glob(&pattern).map_err(|error| {
                self.origin
                    .error(&value.span(), format!("{path}.on: {error}"), None)
            })?;
            all = all.or(matcher);
        }
        Ok(all)
    }

    /// The layers of the effective stack in order.
    fn plan(&self) -> Result<Vec<LayerSection<'a>>, ConfigError> {
        let plan = match &self.stack.order {
            Some(order) => self.listed(order)?,
            None => self.usual(),
        };
        self.check_allowed(&plan)?;
        if !plan.iter().any(|section| section.kind.name == Budget::NAME) {
            self.budgets.check_unheeded(&self.origin)?;
        }
        Ok(plan)
    }

    /// Refuses names in `stack.allow_out_of_band` that no layer of the stack has.
    fn check_allowed(&self, plan: &[LayerSection<'a>]) -> Result<(), ConfigError> {
        // A layer that is switched off for now may stay on the list.
        let known = || {
            plan.iter()
                .chain(&self.layers)
                .map(|section| &*section.name)
        };
        let place = |at: usize| self.allowed.get(at).cloned().unwrap_or(0..0);
        match self
            .stack
            .allow_out_of_band
            .iter()
            .enumerate()
            .find(|(_, name)| !known().any(|known| known == *name))
        {
            Some((at, name)) => {
                let known: BTreeSet<_> = known().collect();
                Err(self
                    .origin
                    .unknown(&place(at), "the stack", "layer", name, known))
            }
            None => Ok(()),
        }
    }

    fn listed(&self, order: &[String]) -> Result<Vec<LayerSection<'a>>, ConfigError> {
        let mut seen = BTreeSet::new();
        let mut plan = Vec::new();
        for (at, name) in order.iter().enumerate() {
            let place = self.order.get(at).cloned().unwrap_or(0..0);
            if !seen.insert(name) {
                let problem = format!(
                    "stack.order names `{name}` twice; a second one needs a table with a name of its own"
                );
                return Err(self.origin.error(&place, problem, None));
            }
            let known = || {
                self.layers
                    .iter()
                    .map(|s| &*s.name)
                    .chain(self.catalog.entries().iter().map(|e| e.name))
            };
            let section = self
                .layers
                .iter()
                .find(|section| section.name == *name)
                .cloned();
            let section = section.or_else(|| self.catalog.get(name).map(plain));
            plan.push(section.ok_or_else(|| {
                self.origin
                    .unknown(&place, "stack.order", "layer", name, known())
            })?);
        }
        match self
            .layers
            .iter()
            .find(|section| section.enabled != Some(false) && !seen.contains(&section.name))
        {
            // Options that nobody reads are a mistake: the layer would silently be missing.
            Some(unused) => {
                let problem = format!(
                    "layers.{0} is not in stack.order, so it would do nothing",
                    unused.name
                );
                Err(self.origin.error(
                    &unused.place,
                    problem,
                    Some("list it, or set enabled = false".into()),
                ))
            }
            None => Ok(plan
                .into_iter()
                .filter(|section| section.enabled != Some(false))
                .collect()),
        }
    }

    fn usual(&self) -> Vec<LayerSection<'a>> {
        let told =
            |entry: &&CatalogEntry| self.layers.iter().any(|section| section.name == entry.name);
        let by_default = self
            .catalog
            .entries()
            .iter()
            .filter(|entry| entry.by_default && !told(entry))
            .map(plain);
        let mut plan: Vec<_> = self.layers.iter().cloned().chain(by_default).collect();
        plan.retain(|section| section.enabled != Some(false));
        plan.sort_by_key(|section| {
            (
                self.catalog.position(section.kind.name),
                section.name.clone(),
            )
        });
        plan
    }

    fn layer(&self, section: LayerSection<'a>, parts: &Parts) -> Result<AnyLayer, ConfigError> {
        let LayerSection {
            name,
            kind,
            on,
            options,
            place,
            ..
        } = section;
        let path = format!("layers.{name}");
        let key = |key: &str| match options.get_ref() {
            DeValue::Table(table) => table.get(key).map(Spanned::span),
            _ => None,
        };
        let layer = kind
            .make(options.clone(), parts)
            .map_err(|error| match error {
                MakeError::Unreadable(error) => {
                    self.origin.options(&error, &path, &options, &COMMON)
                }
                MakeError::Bad(bad) => {
                    let at = key(bad.key).unwrap_or_else(|| place.clone());
                    self.origin
                        .error(&at, format!("{path}.{}: {}", bad.key, bad.problem), None)
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
    let asks =
        |section: &LayerSection<'_>| section.kind.name == Approval::NAME && section.on.is_none();
    let chooses = |section: &LayerSection<'_>| match section.options.get_ref() {
        DeValue::Table(table) => table.contains_key("tools") || table.contains_key("ask_from"),
        _ => false,
    };
    let inside = &plan[policy + 1..];
    let general = inside
        .iter()
        .rposition(|section| asks(section) && !chooses(section));
    let at = policy + 1 + general.or_else(|| inside.iter().rposition(asks))?;
    let sees_all = plan
        .iter()
        .any(|section| is_policy(section) && section.on.is_none());
    Some(AskedBelow { at, sees_all })
}

/// A layer about which the file says nothing.
fn plain<'a>(kind: &'a CatalogEntry) -> LayerSection<'a> {
    let options = Spanned::new(0..0, DeValue::Table(DeTable::new()));
    let name = kind.name.to_owned();
    LayerSection {
        name,
        kind,
        enabled: None,
        on: None,
        options,
        place: 0..0,
    }
}

/// The places of the entries of a list.
fn entries(table: &Spanned<DeValue<'_>>, key: &str) -> Vec<Range<usize>> {
    match table.get_ref().get(key).map(Spanned::get_ref) {
        Some(DeValue::Array(items)) => items.iter().map(Spanned::span).collect(),
        _ => Vec::new(),
    }
}

/// The layers of the default stack, as `config` adjusts them, outermost first.
///
/// Layers know nothing of `[stack] allow_out_of_band`; [`Config::build`] makes the whole stack and heeds it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_variable_of_ours_that_is_not_utf_8_is_refused_and_others_are_left_alone() {
        use std::os::unix::ffi::OsStringExt;
        let broken = || OsString::from_vec(vec![b'5', 0xff]);
        let with = |name: &str| {
            Config::default()
                .with_raw_environment([(name.into(), broken())])
                .map(drop)
        };
        assert_eq!(with("HOME"), Ok(()));
        let error = with("TOOLGATE_LAYERS__TIMEOUT__MAX_MS").expect_err("not UTF-8");
        assert_eq!(
            error.to_string(),
            "the variable TOOLGATE_LAYERS__TIMEOUT__MAX_MS: it is not UTF-8"
        );
    }
}
