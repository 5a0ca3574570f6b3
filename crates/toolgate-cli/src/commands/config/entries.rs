//! The options in effect, with their values and sources.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Map, Value};
use toolgate::{Config, Stack, layers::ConfigError};

/// An option in effect.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct OptionEntry {
    /// The section and the option, as in `layers.timeout.max`.
    pub(super) path: String,
    pub(super) value: Value,
    pub(super) from: ValueSource,
    /// The variable that sets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) variable: Option<String>,
}

/// The source of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ValueSource {
    Default,
    File,
    Variable,
}

/// A section of the file, with the schema of its options.
struct OptionSection {
    path: Vec<String>,
    schema: Value,
}

/// Lists the options in effect: the sections of the program, those of the stack, and the layers in
/// it.
pub(super) fn list_options(
    config: &Config,
    stack: &Stack,
    variables: &[String],
) -> Result<Vec<OptionEntry>, ConfigError> {
    let mut entries = Vec::new();
    for section in collect_sections(config, stack) {
        let path: Vec<&str> = section.path.iter().map(String::as_str).collect();
        match config.value_at(&path)? {
            Some(Value::Object(set)) => section.add_options(&set, variables, &mut entries),
            Some(list) => entries.push(entry_from_setting(&section.path, list, variables)),
            None => section.add_options(&Map::new(), variables, &mut entries),
        }
    }
    Ok(entries)
}

fn collect_sections(config: &Config, stack: &Stack) -> Vec<OptionSection> {
    let whole = Config::json_schema(config.catalog());
    let mut sections = Vec::new();
    for (name, schema) in whole["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| *name != "layers")
    {
        add_nested_sections(vec![name.clone()], schema, &mut sections);
    }
    // Layers come from the stack, not from the schema: only those in effect, under their own names.
    for layer in stack.any_layers() {
        let kind = layer
            .capabilities()
            .kind
            .and_then(|kind| config.catalog().get(kind));
        let schema = kind.map_or(Value::Null, |kind| kind.options_schema());
        add_nested_sections(
            vec!["layers".to_owned(), layer.name().to_string()],
            &schema,
            &mut sections,
        );
    }
    sections
}

/// Adds a section and the sections in it, as `[tools.shell]` is in `[tools]`.
fn add_nested_sections(path: Vec<String>, schema: &Value, sections: &mut Vec<OptionSection>) {
    sections.push(OptionSection {
        path: path.clone(),
        schema: schema.clone(),
    });
    for (name, inner) in schema["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, inner)| is_table(inner))
    {
        let path = path.iter().chain([name]).cloned().collect();
        add_nested_sections(path, inner, sections);
    }
}

/// Returns true if an option is a table with options of its own.
fn is_table(schema: &Value) -> bool {
    schema["properties"].is_object()
}

impl OptionSection {
    /// Adds the options of the section: those that are set, and those that have their default.
    fn add_options(
        &self,
        set: &Map<String, Value>,
        variables: &[String],
        entries: &mut Vec<OptionEntry>,
    ) {
        let properties = self.schema["properties"].as_object();
        let known = properties
            .into_iter()
            .flat_map(Map::keys)
            .chain(set.keys())
            .collect::<BTreeSet<_>>();
        for name in known
            .into_iter()
            .filter(|name| !is_table(&self.schema["properties"][name.as_str()]))
        {
            let mut path = self.path.clone();
            path.push(name.clone());
            if let Some(value) = set.get(name) {
                entries.push(entry_from_setting(&path, value.clone(), variables));
            } else if let Some(value) = self.default_value(name) {
                entries.push(OptionEntry {
                    path: path.join("."),
                    value,
                    from: ValueSource::Default,
                    variable: None,
                });
            }
        }
    }

    fn default_value(&self, option: &str) -> Option<Value> {
        // A schema states a default at the option, or at the section for all of its options.
        let of_option = self.schema["properties"][option].get("default");
        of_option
            .or_else(|| self.schema["default"].get(option))
            .filter(|value| !value.is_null())
            .cloned()
    }
}

/// Builds the entry of an option that a file or a variable sets.
fn entry_from_setting(path: &[String], value: Value, variables: &[String]) -> OptionEntry {
    let variable = variables
        .iter()
        .find(|name| sets_option(name, path))
        .cloned();
    let from = if variable.is_some() {
        ValueSource::Variable
    } else {
        ValueSource::File
    };
    let option = path.last().map(String::as_str).unwrap_or_default();
    OptionEntry {
        path: path.join("."),
        value: hide_secrets(option, value),
        from,
        variable,
    }
}

/// Returns true if a variable sets this option, a part of it, or its section.
fn sets_option(variable: &str, path: &[String]) -> bool {
    let Some(rest) = variable.strip_prefix("TOOLGATE_") else {
        return false;
    };
    // `zip` stops at the shorter one: a variable may set a whole section, or a part of a value.
    let parts: Vec<String> = rest.split("__").map(str::to_lowercase).collect();
    parts
        .iter()
        .zip(path)
        .all(|(part, name)| *part == name.to_lowercase())
        // `TOOLGATE_HOME` and the like name no section.
        && rest.contains("__")
}

/// Removes secrets: headers often contain keys, and addresses passwords.
fn hide_secrets(option: &str, value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = |(name, value): (String, Value)| match option {
                // Headers carry the keys of collectors.
                "headers" => (name, Value::from("(not shown)")),
                _ => (name.clone(), hide_secrets(&name, value)),
            };
            Value::Object(map.into_iter().map(kept).collect())
        }
        Value::Array(items) => items
            .into_iter()
            .map(|item| hide_secrets(option, item))
            .collect(),
        Value::String(text) => Value::String(toolgate::gate::display_address(&text)),
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_)) => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate::{Registry, Resources};

    fn list_for(text: &str, variables: &[(&str, &str)]) -> Vec<OptionEntry> {
        let config = Config::parse_with_catalog("t.toml", text, toolgate::gate::gate_catalog())
            .expect("valid");
        let pairs = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let config = config.with_environment(pairs).expect("valid");
        let stack = config
            .build(Registry::new(), &Resources::new())
            .expect("a stack");
        let names: Vec<String> = variables
            .iter()
            .map(|(name, _)| (*name).to_owned())
            .collect();
        list_options(&config, &stack, &names).expect("lists")
    }

    fn find_entry<'a>(entries: &'a [OptionEntry], path: &str) -> &'a OptionEntry {
        entries
            .iter()
            .find(|entry| entry.path == path)
            .unwrap_or_else(|| panic!("{path}: {entries:?}"))
    }

    #[test]
    fn every_option_names_its_source() {
        let entries = list_for(
            "[run]\nmodel = 'ollama:m'\n[layers.timeout]\nmax = '5s'",
            &[
                ("TOOLGATE_TOOLS__SHELL__GRACE", "1s"),
                ("TOOLGATE_LAYERS__RETRY__MAX_ATTEMPTS", "7"),
                ("TOOLGATE_RUN__MAX_TOKENS", "9"),
            ],
        );
        assert_eq!(
            (
                find_entry(&entries, "run.model").from,
                find_entry(&entries, "layers.timeout.max").from
            ),
            (ValueSource::File, ValueSource::File)
        );
        let overridden = find_entry(&entries, "layers.retry.max_attempts");
        assert_eq!(
            (overridden.from, &overridden.value),
            (ValueSource::Variable, &Value::from(7))
        );
        assert_eq!(
            overridden.variable.as_deref(),
            Some("TOOLGATE_LAYERS__RETRY__MAX_ATTEMPTS")
        );
        assert_eq!(
            find_entry(&entries, "run.max_tokens").from,
            ValueSource::Variable
        );
        assert_eq!(
            find_entry(&entries, "tools.shell.grace").from,
            ValueSource::Variable
        );
        assert_eq!(
            find_entry(&entries, "tools.shell.network").from,
            ValueSource::Default
        );
        let default = find_entry(&entries, "layers.policy.default");
        assert_eq!(
            (default.from, &default.value),
            (ValueSource::Default, &Value::from("ask_writes"))
        );
    }

    #[test]
    fn headers_and_passwords_are_not_shown() {
        let said = |option, value: Value| hide_secrets(option, value).to_string();
        assert!(
            !said(
                "headers",
                serde_json::json!({ "authorization": "Bearer hunter2" })
            )
            .contains("hunter2")
        );
        assert!(!said("endpoint", "https://me:hunter2@host/x".into()).contains("hunter2"));
        assert_eq!(said("template", "a@b".into()), "\"a@b\"");
    }
}
