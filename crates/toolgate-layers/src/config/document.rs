//! The parsed file: checks its sections and plans the layers of the stack.

use std::{collections::BTreeSet, ops::Range};

use serde::{Deserialize, de::IntoDeserializer};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};
use toolgate_core::{AnyLayer, LayerExt, Matcher};

use crate::{
    Budget, Catalog, CatalogEntry, ConfigError, Configurable, Resources, StackSection,
    config::{
        budgets::BudgetSection, catalog::LayerBuildError, changes::ConfigChanges,
        error::ConfigOrigin,
    },
};

/// The file with its environment overrides, parsed and checked.
pub(super) struct ConfigDocument<'a> {
    catalog: &'a Catalog,
    changes: &'a ConfigChanges,
    pub(super) origin: ConfigOrigin,
    /// The position of the program's changes.
    program: Range<usize>,
    pub(super) stack: StackSection,
    /// The positions of the names in `stack.order`, and of those in `stack.allow_out_of_band`.
    order: Vec<Range<usize>>,
    allowed: Vec<Range<usize>>,
    layers: Vec<LayerSection<'a>>,
    pub(super) budgets: BudgetSection,
    /// The program's own sections, by name.
    pub(super) others: Vec<(&'static str, Spanned<DeValue<'a>>)>,
}

/// The tables of the file with every override applied, and the origin of each value.
pub(super) struct MergedTable<'a> {
    pub(super) origin: ConfigOrigin,
    pub(super) table: DeTable<'a>,
    /// The position of the program's changes.
    pub(super) program: Range<usize>,
}

/// The table of one layer in the file.
#[derive(Clone)]
pub(super) struct LayerSection<'a> {
    pub(super) name: String,
    pub(super) kind: &'a CatalogEntry,
    enabled: Option<bool>,
    on: Option<Matcher>,
    pub(super) options: Spanned<DeValue<'a>>,
    place: Range<usize>,
}

/// The keys that every layer has.
const COMMON_KEYS: [&str; 3] = ["use", "enabled", "on"];
/// The sections of the file.
const FILE_SECTIONS: [&str; 3] = ["stack", "layers", "budget"];

impl<'a> ConfigDocument<'a> {
    pub(super) fn from_table(
        catalog: &'a Catalog,
        changes: &'a ConfigChanges,
        merged: MergedTable<'a>,
    ) -> Result<Self, ConfigError> {
        let MergedTable {
            origin,
            table,
            program,
        } = merged;
        let stack = StackSection::default();
        let layers = Vec::new();
        let budgets = BudgetSection::default();
        let order = Vec::new();
        let allowed = Vec::new();
        let others = Vec::new();
        let mut document = Self {
            catalog,
            changes,
            origin,
            program,
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
                    document.stack = stack.map_err(|error| {
                        document.origin.options_error(&error, "stack", &value, &[])
                    })?;
                    document.order = entry_positions(&value, "order");
                    document.allowed = entry_positions(&value, "allow_out_of_band");
                }
                "layers" => document.layers = document.parse_layers(value)?,
                "budget" => document.budgets = BudgetSection::from_value(&document.origin, &value)?,
                other => match catalog
                    .sections()
                    .iter()
                    .find(|section| section.name == other)
                {
                    Some(section) => {
                        let wrong = |error| {
                            document
                                .origin
                                .options_error(&error, section.name, &value, &[])
                        };
                        (section.check)(value.clone()).map_err(wrong)?;
                        document.others.push((section.name, value));
                    }
                    None => {
                        let known = FILE_SECTIONS
                            .into_iter()
                            .chain(catalog.sections().iter().map(|section| section.name));
                        return Err(document.origin.unknown_word(
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
        let added = document.changes.budgets().iter().cloned();
        let place = document.program.clone();
        document
            .budgets
            .add_rules(&document.origin, &place, added)?;
        Ok(document)
    }

    fn parse_layers(
        &self,
        layers: Spanned<DeValue<'a>>,
    ) -> Result<Vec<LayerSection<'a>>, ConfigError> {
        let place = layers.span();
        let DeValue::Table(layers) = layers.into_inner() else {
            return Err(self.origin.error_at(
                &place,
                "`layers` contains one table per layer",
                None,
            ));
        };
        layers
            .into_iter()
            .map(|(name, value)| self.parse_layer(name.span(), name.get_ref(), value))
            .collect()
    }

    fn parse_layer(
        &self,
        at: Range<usize>,
        name: &str,
        value: Spanned<DeValue<'a>>,
    ) -> Result<LayerSection<'a>, ConfigError> {
        let place = value.span();
        let DeValue::Table(mut table) = value.into_inner() else {
            return Err(self.origin.error_at(
                &place,
                format!("`layers.{name}` is a table of options"),
                None,
            ));
        };
        let path = format!("layers.{name}");
        let mut take = |key: &str| table.remove(key);
        let kind = take("use");
        let enabled = take("enabled");
        let on = take("on");
        let (named_at, named) = match &kind {
            Some(kind) => (
                kind.span(),
                self.parse_common_key::<String>(kind, &path, "use")?,
            ),
            None => (at.clone(), name.to_owned()),
        };
        let known = self.catalog.entries().iter().map(|entry| entry.name);
        let Some(kind) = self.catalog.get(&named) else {
            return Err(self
                .origin
                .unknown_word(&named_at, "the catalog", "layer", &named, known));
        };
        if kind.name != name && self.catalog.get(name).is_some() {
            // Otherwise the layer of that name would silently be missing from the default stack.
            let problem =
                format!("{path} is the table of the layer `{name}` and cannot use `{named}`");
            return Err(self.origin.error_at(
                &named_at,
                problem,
                Some("choose another name for the table".into()),
            ));
        }
        let enabled = enabled
            .map(|value| self.parse_common_key::<bool>(&value, &path, "enabled"))
            .transpose()?;
        let on = on
            .map(|value| self.parse_matcher(&value, &path))
            .transpose()?;
        let options = Spanned::new(place, DeValue::Table(table));
        // Checked when the file is loaded, not when the layer is built: a typo must not wait for
        // the first session.
        kind.check_options(options.clone()).map_err(|error| {
            self.origin
                .options_error(&error, &path, &options, &COMMON_KEYS)
        })?;
        Ok(LayerSection {
            name: name.to_owned(),
            kind,
            enabled,
            on,
            options,
            place: at,
        })
    }

    fn parse_common_key<T: for<'de> Deserialize<'de>>(
        &self,
        value: &Spanned<DeValue<'a>>,
        path: &str,
        key: &str,
    ) -> Result<T, ConfigError> {
        T::deserialize(value.clone().into_deserializer()).map_err(|error| {
            self.origin
                .options_error(&error, &format!("{path}.{key}"), value, &[])
        })
    }

    fn parse_matcher(
        &self,
        value: &Spanned<DeValue<'a>>,
        path: &str,
    ) -> Result<Matcher, ConfigError> {
        let patterns: Vec<String> = self.parse_common_key(value, path, "on")?;
        if patterns.is_empty() {
            let problem = format!("{path}.on is empty, so the layer would have no effect");
            return Err(self.origin.error_at(
                &value.span(),
                problem,
                Some("set enabled = false to disable the layer".into()),
            ));
        }
        let mut all = Matcher::names([]);
        for pattern in patterns {
            let matcher = Matcher::glob(&pattern).map_err(|error| {
                self.origin
                    .error_at(&value.span(), format!("{path}.on: {error}"), None)
            })?;
            all = all.or(matcher);
        }
        Ok(all)
    }

    /// Returns the layers of the effective stack in order.
    pub(super) fn plan_layers(&self) -> Result<Vec<LayerSection<'a>>, ConfigError> {
        let plan = match &self.stack.order {
            Some(order) => self.listed_layers(order)?,
            None => self.default_layers(),
        };
        self.check_out_of_band_names(&plan)?;
        self.check_changes(&plan)?;
        if !plan.iter().any(|section| section.kind.is_layer::<Budget>()) {
            self.budgets.check_enforceable(&self.origin)?;
        }
        Ok(plan)
    }

    /// Rejects names in `stack.allow_out_of_band` that no layer of the stack has.
    fn check_out_of_band_names(&self, plan: &[LayerSection<'a>]) -> Result<(), ConfigError> {
        // A layer that is disabled for now may stay on the list.
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
                    .unknown_word(&place(at), "the stack", "layer", name, known))
            }
            None => Ok(()),
        }
    }

    /// Rejects changes of layers that the stack does not have: a limit of the program must not be
    /// dropped silently.
    fn check_changes(&self, plan: &[LayerSection<'a>]) -> Result<(), ConfigError> {
        let known = || plan.iter().map(|section| &*section.name);
        let mut required = self.changes.required_layers();
        match required.find(|name| !known().any(|known| known == *name)) {
            Some(missing) if self.layers.iter().any(|section| section.name == missing) => {
                let problem = format!("layers.{missing} is disabled and cannot be changed");
                Err(self.origin.error_at(&self.program, problem, None))
            }
            Some(missing) => {
                let place = &self.program;
                Err(self
                    .origin
                    .unknown_word(place, "the stack", "layer", missing, known()))
            }
            None => Ok(()),
        }
    }

    /// Rejects a resource that no layer takes: one of the wrong type would otherwise be ignored.
    pub(super) fn check_resources(
        &self,
        plan: &[LayerSection<'a>],
        parts: &Resources,
    ) -> Result<(), ConfigError> {
        // A layer of the program that a file disables may still be the one that takes it.
        let built = |entry: &CatalogEntry| {
            entry.bundled || plan.iter().any(|section| section.kind.name == entry.name)
        };
        match parts.unused_type() {
            Some(name) if self.catalog.entries().iter().all(built) => {
                Err(ConfigError::unused_resource(name))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Returns the table of a layer, or an empty one if the catalog has the layer.
    pub(super) fn section_or_default(&self, name: &str) -> Option<LayerSection<'a>> {
        let section = self.layers.iter().find(|section| section.name == name);
        section
            .cloned()
            .or_else(|| self.catalog.get(name).map(default_section))
    }

    /// Returns the options of a layer with the program's changes, if it is a layer of type `L`.
    pub(super) fn edited_options<L: Configurable>(
        &self,
        section: &LayerSection<'a>,
    ) -> Option<L::Options> {
        let edits = self.changes.edits_of(&section.name);
        section.kind.options_of::<L>(&section.options, &edits)
    }

    /// Returns the layers that `stack.order` lists.
    fn listed_layers(&self, order: &[String]) -> Result<Vec<LayerSection<'a>>, ConfigError> {
        let mut seen = BTreeSet::new();
        let mut plan = Vec::new();
        for (at, name) in order.iter().enumerate() {
            let place = self.order.get(at).cloned().unwrap_or(0..0);
            if !seen.insert(name) {
                let problem = format!(
                    "stack.order names `{name}` twice; a second layer of this kind needs a table with another name"
                );
                return Err(self.origin.error_at(&place, problem, None));
            }
            let known = || {
                self.layers
                    .iter()
                    .map(|s| &*s.name)
                    .chain(self.catalog.entries().iter().map(|e| e.name))
            };
            plan.push(self.section_or_default(name).ok_or_else(|| {
                self.origin
                    .unknown_word(&place, "stack.order", "layer", name, known())
            })?);
        }
        match self
            .layers
            .iter()
            .find(|section| section.enabled != Some(false) && !seen.contains(&section.name))
        {
            // A table that has no effect is a mistake: the layer would silently be missing.
            Some(unused) => {
                let problem = format!(
                    "layers.{0} is not in stack.order, so it would have no effect",
                    unused.name
                );
                Err(self.origin.error_at(
                    &unused.place,
                    problem,
                    Some("add it to stack.order, or set enabled = false".into()),
                ))
            }
            None => Ok(plan
                .into_iter()
                .filter(|section| section.enabled != Some(false))
                .collect()),
        }
    }

    /// Returns the default layers and those that have a table, in default order.
    fn default_layers(&self) -> Vec<LayerSection<'a>> {
        let told =
            |entry: &&CatalogEntry| self.layers.iter().any(|section| section.name == entry.name);
        let by_default = self
            .catalog
            .entries()
            .iter()
            .filter(|entry| entry.by_default && !told(entry))
            .map(default_section);
        let mut plan: Vec<_> = self.layers.iter().cloned().chain(by_default).collect();
        plan.retain(|section| section.enabled != Some(false));
        // By name within a kind, so that the order does not depend on the order of tables in the
        // file.
        plan.sort_by_key(|section| {
            (
                self.catalog.position(section.kind.name),
                section.name.clone(),
            )
        });
        plan
    }

    /// Builds one layer under its name, restricted to the tools that `on` matches.
    pub(super) fn build_layer(
        &self,
        section: LayerSection<'a>,
        parts: &Resources,
    ) -> Result<AnyLayer, ConfigError> {
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
        let edits = self.changes.edits_of(&name);
        let layer =
            kind.build_layer(options.clone(), &edits, parts)
                .map_err(|error| match error {
                    LayerBuildError::Unreadable(error) => {
                        self.origin
                            .options_error(&error, &path, &options, &COMMON_KEYS)
                    }
                    LayerBuildError::Bad(bad) => {
                        // After a change it is not known whose value is bad.
                        let at = if edits.is_empty() {
                            key(bad.key).unwrap_or_else(|| place.clone())
                        } else {
                            self.program.clone()
                        };
                        self.origin.error_at(
                            &at,
                            format!("{path}.{}: {}", bad.key, bad.problem),
                            None,
                        )
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

/// Returns the section of a layer without a table in the file.
fn default_section<'a>(kind: &'a CatalogEntry) -> LayerSection<'a> {
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

/// Returns the positions of the entries of a list.
fn entry_positions(table: &Spanned<DeValue<'_>>, key: &str) -> Vec<Range<usize>> {
    match table.get_ref().get(key).map(Spanned::get_ref) {
        Some(DeValue::Array(items)) => items.iter().map(Spanned::span).collect(),
        _ => Vec::new(),
    }
}
