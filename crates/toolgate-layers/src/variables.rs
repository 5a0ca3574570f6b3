//! Variables of the environment that override something in a configuration file.

use std::ops::Range;

use serde_json::Value;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{Catalog, config_error::nearest, section::ConfigSection};

/// How all names begin.
const PREFIX: &str = "TOOLGATE_";
/// How names begin that override something in the file.
const SECTIONS: [&str; 2] = ["STACK__", "LAYERS__"];
/// How many parts of a name are words of ours: the section, the layer and the option. The others, such as the names of
/// tools, are kept as they are written.
const OUR_PARTS: usize = 3;

/// A variable and the place in the file that it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) path: Vec<String>,
    pub(crate) value: String,
}

impl Variable {
    /// Reads a variable; nothing if it is somebody else's, and what is wrong if it is neither.
    pub(crate) fn read(
        name: &str,
        value: String,
        catalog: &Catalog,
    ) -> Result<Option<Self>, String> {
        if !is_ours(name) {
            return Ok(None);
        }
        let added = |rest: &str| {
            let name = |section: &ConfigSection| format!("{}__", section.name.to_uppercase());
            catalog
                .sections()
                .iter()
                .any(|section| rest.starts_with(&name(section)))
        };
        let ours =
            |rest: &&str| SECTIONS.iter().any(|section| rest.starts_with(section)) || added(rest);
        let rest = name.strip_prefix(PREFIX).filter(ours);
        let Some(rest) = rest else {
            let known = names(catalog);
            let known: Vec<_> = known.iter().map(String::as_str).collect();
            let near = closest(name, &known)
                .map_or_else(String::new, |near| format!("; the nearest is `{near}`"));
            return Err(format!("it overrides nothing{near}"));
        };
        let part = |(at, part): (usize, &str)| {
            if at < OUR_PARTS {
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

    /// Lays the value over the file; the part that is in the way if there is one.
    pub(crate) fn lay_over<'a>(
        &'a self,
        table: &mut DeTable<'a>,
        place: &Range<usize>,
    ) -> Result<(), String> {
        overlay(table, &self.path, value_of(&self.value, place), place)
    }
}

/// Whether a variable can only be meant for a configuration, rightly written or not.
pub(crate) fn is_ours(name: &str) -> bool {
    let name = name.to_uppercase();
    let Some(rest) = name.strip_prefix(PREFIX) else {
        return false;
    };
    rest.contains("__") || rest.starts_with("LAYER") || rest.starts_with("STACK")
}

/// The names of all options, for saying which one was probably meant.
fn names(catalog: &Catalog) -> Vec<String> {
    let keys = |schema: &Value| -> Vec<String> {
        schema["properties"]
            .as_object()
            .map(|properties| properties.keys().cloned().collect())
            .unwrap_or_default()
    };
    let stack = keys(&schemars::schema_for!(crate::StackSection).to_value());
    let stack = stack
        .into_iter()
        .map(|key| format!("{PREFIX}STACK__{}", key.to_uppercase()));
    let layers = catalog.entries().iter().flat_map(|entry| {
        let common = ["enabled", "on"].map(str::to_owned);
        let kind = entry.name.to_uppercase();
        let name = move |key: String| format!("{PREFIX}LAYERS__{kind}__{}", key.to_uppercase());
        keys(&entry.schema()).into_iter().chain(common).map(name)
    });
    let added = catalog.sections().iter().flat_map(|section| {
        let name = section.name.to_uppercase();
        keys(&(section.schema)())
            .into_iter()
            .map(move |key| format!("{PREFIX}{name}__{}", key.to_uppercase()))
    });
    stack.chain(layers).chain(added).collect()
}

/// The name that reads the same but for underscores, else the most similar one.
fn closest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let plain = |name: &str| {
        name.to_uppercase()
            .replace('_', "")
            .replacen("LAYERS", "LAYER", 1)
    };
    let same = known
        .iter()
        .copied()
        .find(|known| plain(known) == plain(name));
    same.or_else(|| nearest(name, known))
}

/// Puts a value at a path; the part that is in the way if there is one.
fn overlay<'a>(
    table: &mut DeTable<'a>,
    path: &[String],
    value: Spanned<DeValue<'a>>,
    place: &Range<usize>,
) -> Result<(), String> {
    let (first, rest) = path
        .split_first()
        .expect("a variable that begins with a prefix has parts");
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
                (
                    Spanned::new(place.clone(), key.into_inner()),
                    replaced(value.into_inner(), place),
                )
            });
            DeValue::Table(moved.collect())
        }
        DeValue::Array(items) => DeValue::Array(
            items
                .into_iter()
                .map(|item| replaced(item.into_inner(), place))
                .collect(),
        ),
        plain => plain,
    };
    Spanned::new(place.clone(), value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> Option<Vec<String>> {
        Variable::read(name, String::new(), &Catalog::bundled())
            .expect(name)
            .map(|variable| variable.path)
    }

    #[test]
    fn words_of_ours_are_lower_case_and_names_of_others_stay_as_they_are() {
        let parts = path("TOOLGATE_LAYERS__BUDGET__COSTS__DeleteUser").expect("ours");
        assert_eq!(parts, ["layers", "budget", "costs", "DeleteUser"]);
        assert_eq!(path("TOOLGATE_INTERLEAVINGS"), None);
        assert_eq!(path("MY_TOOLGATE_LAYERS__X"), None);
    }

    #[test]
    fn a_misspelt_name_is_refused_with_the_nearest_one() {
        for (name, near) in [
            (
                "TOOLGATE_LAYER__TIMEOUT__MAX_MS",
                "TOOLGATE_LAYERS__TIMEOUT__MAX_MS",
            ),
            (
                "TOOLGATE_LAYERS_TIMEOUT_MAX_MS",
                "TOOLGATE_LAYERS__TIMEOUT__MAX_MS",
            ),
            ("TOOLGATE_STACKS__ORDER", "TOOLGATE_STACK__ORDER"),
            ("TOOLGATE_STACK_ORDER", "TOOLGATE_STACK__ORDER"),
            (
                "toolgate_layers__timeout__max_ms",
                "TOOLGATE_LAYERS__TIMEOUT__MAX_MS",
            ),
        ] {
            let problem = Variable::read(name, String::new(), &Catalog::bundled()).expect_err(name);
            assert!(
                problem.ends_with(&format!("the nearest is `{near}`")),
                "{name}: {problem}"
            );
        }
    }
}
