//! Environment variables that override values of a configuration file.

use std::ops::Range;

use serde_json::Value;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{
    Catalog,
    config::{error::nearest_word, section::SectionEntry},
};

/// The prefix of all names.
const VARIABLE_PREFIX: &str = "TOOLGATE_";
/// The prefixes of names that override a section of the file.
const VARIABLE_SECTIONS: [&str; 2] = ["STACK__", "LAYERS__"];
/// The number of leading parts of a name that are case-insensitive: the section, the layer and the
/// option. The others, such as the names of tools, keep their case.
const CASE_INSENSITIVE_PARTS: usize = 3;

/// An environment variable and the path in the file that it overrides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EnvOverride {
    pub(crate) name: String,
    pub(crate) path: Vec<String>,
    pub(crate) value: String,
}

impl EnvOverride {
    /// Parses a variable. Returns `None` if it is not meant for Toolgate, and the problem if it is
    /// but overrides nothing.
    pub(crate) fn parse(
        name: &str,
        value: String,
        catalog: &Catalog,
    ) -> Result<Option<Self>, String> {
        if !is_toolgate_variable(name) {
            return Ok(None);
        }
        let added = |rest: &str| {
            let name = |section: &SectionEntry| format!("{}__", section.name.to_uppercase());
            catalog
                .sections()
                .iter()
                .any(|section| rest.starts_with(&name(section)))
        };
        let ours = |rest: &&str| {
            VARIABLE_SECTIONS
                .iter()
                .any(|section| rest.starts_with(section))
                || added(rest)
        };
        let rest = name.strip_prefix(VARIABLE_PREFIX).filter(ours);
        let Some(rest) = rest else {
            let known = known_variable_names(catalog);
            let known: Vec<_> = known.iter().map(String::as_str).collect();
            let near = closest_name(name, &known)
                .map_or_else(String::new, |near| format!("; the nearest is `{near}`"));
            return Err(format!("it overrides nothing{near}"));
        };
        let part = |(at, part): (usize, &str)| {
            if at < CASE_INSENSITIVE_PARTS {
                part.to_lowercase()
            } else {
                part.to_owned()
            }
        };
        let path: Vec<_> = rest.split("__").enumerate().map(part).collect();
        if path.iter().any(String::is_empty) {
            return Err("a part of the name is empty".into());
        }
        Ok(Some(Self {
            name: name.to_owned(),
            path,
            value,
        }))
    }

    /// Overrides the value in the file. Fails with the part of the path that is not a table.
    pub(crate) fn apply_to<'a>(
        &'a self,
        table: &mut DeTable<'a>,
        place: &Range<usize>,
    ) -> Result<(), String> {
        insert_at_path(table, &self.path, parse_value(&self.value, place), place)
    }
}

/// Checks whether a variable can only be meant for a configuration, spelt correctly or not.
pub(crate) fn is_toolgate_variable(name: &str) -> bool {
    // Deliberately broad: a misspelt limit that is silently ignored is worse than a rejected
    // variable.
    let name = name.to_uppercase();
    let Some(rest) = name.strip_prefix(VARIABLE_PREFIX) else {
        return false;
    };
    rest.contains("__") || rest.starts_with("LAYER") || rest.starts_with("STACK")
}

/// Returns the variable names of all options, to suggest the nearest one.
fn known_variable_names(catalog: &Catalog) -> Vec<String> {
    let keys = |schema: &Value| -> Vec<String> {
        schema["properties"]
            .as_object()
            .map(|properties| properties.keys().cloned().collect())
            .unwrap_or_default()
    };
    let stack = keys(&schemars::schema_for!(crate::StackSection).to_value());
    let stack = stack
        .into_iter()
        .map(|key| format!("{VARIABLE_PREFIX}STACK__{}", key.to_uppercase()));
    let layers = catalog.entries().iter().flat_map(|entry| {
        let common = ["enabled", "on"].map(str::to_owned);
        let kind = entry.name.to_uppercase();
        let name =
            move |key: String| format!("{VARIABLE_PREFIX}LAYERS__{kind}__{}", key.to_uppercase());
        keys(&entry.options_schema())
            .into_iter()
            .chain(common)
            .map(name)
    });
    let added = catalog.sections().iter().flat_map(|section| {
        let name = section.name.to_uppercase();
        keys(&(section.schema)())
            .into_iter()
            .map(move |key| format!("{VARIABLE_PREFIX}{name}__{}", key.to_uppercase()))
    });
    stack.chain(layers).chain(added).collect()
}

/// Returns the name that differs only in underscores, else the most similar one.
fn closest_name<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let plain = |name: &str| {
        name.to_uppercase()
            .replace('_', "")
            .replacen("LAYERS", "LAYER", 1)
    };
    let same = known
        .iter()
        .copied()
        .find(|known| plain(known) == plain(name));
    same.or_else(|| nearest_word(name, known))
}

/// Inserts a value at a path. Fails with the part of the path that is not a table.
pub(crate) fn insert_at_path<'a>(
    table: &mut DeTable<'a>,
    path: &[String],
    value: Spanned<DeValue<'a>>,
    place: &Range<usize>,
) -> Result<(), String> {
    let (first, rest) = path.split_first().expect("a path has parts");
    if rest.is_empty() {
        // An insert alone would keep the old key with its position, and an error about the variable
        // would name a line of the file.
        table.remove(first.as_str());
        table.insert(Spanned::new(place.clone(), first.clone().into()), value);
        return Ok(());
    }
    if !table.contains_key(first.as_str()) {
        let empty = Spanned::new(place.clone(), DeValue::Table(DeTable::new()));
        table.insert(Spanned::new(place.clone(), first.clone().into()), empty);
    }
    match table.get_mut(first.as_str()).map(Spanned::get_mut) {
        Some(DeValue::Table(inner)) => insert_at_path(inner, rest, value, place),
        _ => Err(first.clone()),
    }
}

/// Parses the value of a variable: TOML if it is valid, else plain text.
fn parse_value<'a>(text: &'a str, place: &Range<usize>) -> Spanned<DeValue<'a>> {
    // `MESSAGE=too slow` is not TOML; users should not have to quote plain text twice.
    let value = match DeValue::parse(text) {
        Ok(value) => value.into_inner(),
        Err(_) => DeValue::String(text.into()),
    };
    with_position(value, place)
}

/// Replaces the positions in a value, and in everything inside it, by `place`.
fn with_position<'a>(value: DeValue<'a>, place: &Range<usize>) -> Spanned<DeValue<'a>> {
    let value = match value {
        DeValue::Table(table) => {
            let moved = table.into_iter().map(|(key, value)| {
                (
                    Spanned::new(place.clone(), key.into_inner()),
                    with_position(value.into_inner(), place),
                )
            });
            DeValue::Table(moved.collect())
        }
        DeValue::Array(items) => DeValue::Array(
            items
                .into_iter()
                .map(|item| with_position(item.into_inner(), place))
                .collect(),
        ),
        plain => plain,
    };
    Spanned::new(place.clone(), value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed_path(name: &str) -> Option<Vec<String>> {
        EnvOverride::parse(name, String::new(), &Catalog::bundled())
            .expect(name)
            .map(|variable| variable.path)
    }

    #[test]
    fn option_names_are_lower_case_and_tool_names_keep_their_case() {
        let parts = parsed_path("TOOLGATE_LAYERS__BUDGET__COSTS__DeleteUser").expect("ours");
        assert_eq!(parts, ["layers", "budget", "costs", "DeleteUser"]);
        assert_eq!(parsed_path("TOOLGATE_INTERLEAVINGS"), None);
        assert_eq!(parsed_path("MY_TOOLGATE_LAYERS__X"), None);
    }

    #[test]
    fn a_misspelt_name_is_rejected_with_the_nearest_one() {
        for (name, near) in [
            (
                "TOOLGATE_LAYER__TIMEOUT__MAX",
                "TOOLGATE_LAYERS__TIMEOUT__MAX",
            ),
            (
                "TOOLGATE_LAYERS_TIMEOUT_MAX",
                "TOOLGATE_LAYERS__TIMEOUT__MAX",
            ),
            ("TOOLGATE_STACKS__ORDER", "TOOLGATE_STACK__ORDER"),
            ("TOOLGATE_STACK_ORDER", "TOOLGATE_STACK__ORDER"),
            (
                "toolgate_layers__timeout__max",
                "TOOLGATE_LAYERS__TIMEOUT__MAX",
            ),
        ] {
            let problem =
                EnvOverride::parse(name, String::new(), &Catalog::bundled()).expect_err(name);
            assert!(
                problem.ends_with(&format!("the nearest is `{near}`")),
                "{name}: {problem}"
            );
        }
    }
}
