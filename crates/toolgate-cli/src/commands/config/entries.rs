//! Every option that counts, with its value and where that comes from.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Map, Value};
use toolgate::{Config, ConfigError, Stack};

/// An option that counts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Entry {
    /// The section and the option, as in `layers.timeout.max_ms`.
    pub(super) path: String,
    pub(super) value: Value,
    pub(super) from: From,
    /// The variable it comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) variable: Option<String>,
}

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum From {
    Default,
    File,
    Variable,
}

/// A section of the file, and what its options are by default.
struct Section {
    path: Vec<String>,
    schema: Value,
}

/// Lists what counts: the sections of the program, those about the stack, and the layers that are in it.
pub(super) fn list(
    config: &Config,
    stack: &Stack,
    variables: &[String],
) -> Result<Vec<Entry>, ConfigError> {
    let mut entries = Vec::new();
    for section in sections(config, stack) {
        let path: Vec<&str> = section.path.iter().map(String::as_str).collect();
        match config.value(&path)? {
            Some(Value::Object(set)) => section.options(&set, variables, &mut entries),
            Some(list) => entries.push(said(&section.path, list, variables)),
            None => section.options(&Map::new(), variables, &mut entries),
        }
    }
    Ok(entries)
}

fn sections(config: &Config, stack: &Stack) -> Vec<Section> {
    let whole = Config::json_schema(config.catalog());
    let mut sections = Vec::new();
    for (name, schema) in whole["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| *name != "layers")
    {
        nested(vec![name.clone()], schema, &mut sections);
    }
    for layer in stack.any_layers() {
        let kind = layer
            .traits()
            .kind
            .and_then(|kind| config.catalog().get(kind));
        let schema = kind.map_or(Value::Null, |kind| kind.schema());
        nested(
            vec!["layers".to_owned(), layer.name().to_string()],
            &schema,
            &mut sections,
        );
    }
    sections
}

/// A section and those within it, as `[tools.shell]` is in `[tools]`.
fn nested(path: Vec<String>, schema: &Value, sections: &mut Vec<Section>) {
    sections.push(Section {
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
        nested(path, inner, sections);
    }
}

/// Whether an option is a table with options of its own.
fn is_table(schema: &Value) -> bool {
    schema["properties"].is_object()
}

impl Section {
    /// What is set, and what is as by default.
    fn options(&self, set: &Map<String, Value>, variables: &[String], entries: &mut Vec<Entry>) {
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
                entries.push(said(&path, value.clone(), variables));
            } else if let Some(value) = self.default_of(name) {
                entries.push(Entry {
                    path: path.join("."),
                    value,
                    from: From::Default,
                    variable: None,
                });
            }
        }
    }

    fn default_of(&self, option: &str) -> Option<Value> {
        let of_option = self.schema["properties"][option].get("default");
        of_option
            .or_else(|| self.schema["default"].get(option))
            .filter(|value| !value.is_null())
            .cloned()
    }
}

/// Something that a file or a variable says.
fn said(path: &[String], value: Value, variables: &[String]) -> Entry {
    let variable = variables.iter().find(|name| is_about(name, path)).cloned();
    let from = if variable.is_some() {
        From::Variable
    } else {
        From::File
    };
    let option = path.last().map(String::as_str).unwrap_or_default();
    Entry {
        path: path.join("."),
        value: without_secrets(option, value),
        from,
        variable,
    }
}

/// Whether a variable sets this option, a part of it, or the section it is in.
fn is_about(variable: &str, path: &[String]) -> bool {
    let Some(rest) = variable.strip_prefix("TOOLGATE_") else {
        return false;
    };
    let parts: Vec<String> = rest.split("__").map(str::to_lowercase).collect();
    parts
        .iter()
        .zip(path)
        .all(|(part, name)| *part == name.to_lowercase())
        && rest.contains("__")
}

/// Headers often hold keys, and addresses passwords.
fn without_secrets(option: &str, value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = |(name, value): (String, Value)| match option {
                "headers" => (name, Value::from("(not shown)")),
                _ => (name.clone(), without_secrets(&name, value)),
            };
            Value::Object(map.into_iter().map(kept).collect())
        }
        Value::Array(items) => items
            .into_iter()
            .map(|item| without_secrets(option, item))
            .collect(),
        Value::String(text) => Value::String(crate::paths::without_password(&text)),
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_)) => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate::{Parts, Registry};

    fn listed(text: &str, variables: &[(&str, &str)]) -> Vec<Entry> {
        let config = Config::read("t.toml", text, crate::settings::catalog()).expect("valid");
        let pairs = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let config = config.with_environment(pairs).expect("valid");
        let stack = config
            .build(Registry::new(), &Parts::new())
            .expect("a stack");
        let names: Vec<String> = variables
            .iter()
            .map(|(name, _)| (*name).to_owned())
            .collect();
        list(&config, &stack, &names).expect("lists")
    }

    fn find<'a>(entries: &'a [Entry], path: &str) -> &'a Entry {
        entries
            .iter()
            .find(|entry| entry.path == path)
            .unwrap_or_else(|| panic!("{path}: {entries:?}"))
    }

    #[test]
    fn every_part_says_where_it_comes_from() {
        let entries = listed(
            "[run]\nmodel = 'ollama:m'\n[layers.timeout]\nmax_ms = 5",
            &[
                ("TOOLGATE_TOOLS__SHELL__GRACE_MS", "1"),
                ("TOOLGATE_LAYERS__RETRY__MAX_ATTEMPTS", "7"),
                ("TOOLGATE_RUN__MAX_TOKENS", "9"),
            ],
        );
        assert_eq!(
            (
                find(&entries, "run.model").from,
                find(&entries, "layers.timeout.max_ms").from
            ),
            (From::File, From::File)
        );
        let overridden = find(&entries, "layers.retry.max_attempts");
        assert_eq!(
            (overridden.from, &overridden.value),
            (From::Variable, &Value::from(7))
        );
        assert_eq!(
            overridden.variable.as_deref(),
            Some("TOOLGATE_LAYERS__RETRY__MAX_ATTEMPTS")
        );
        assert_eq!(find(&entries, "run.max_tokens").from, From::Variable);
        assert_eq!(find(&entries, "tools.shell.grace_ms").from, From::Variable);
        assert_eq!(find(&entries, "tools.shell.network").from, From::Default);
        let default = find(&entries, "layers.policy.default");
        assert_eq!(
            (default.from, &default.value),
            (From::Default, &Value::from("ask_writes"))
        );
    }

    #[test]
    fn headers_and_passwords_are_not_shown() {
        let said = |option, value: Value| without_secrets(option, value).to_string();
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
