//! Files that are generated from the code, so that they cannot contradict it.

use std::{fmt::Write, path::Path};

use serde_json::Value;
use toolgate_core::{ApprovalState, RunEnd, Status};
use toolgate_layers::{Catalog, CatalogEntry, Config};

use crate::cli_page;

/// A file and its generator.
type Generated = (&'static str, fn() -> Result<String, String>);

const FILES: [Generated; 6] = [
    ("docs/reference/events.schema.json", || {
        json(&toolgate_core::Event::json_schema())
    }),
    ("docs/reference/toolgate.schema.json", || {
        json(&Config::json_schema(&toolgate::gate::gate_catalog()))
    }),
    ("docs/reference/layers.md", || {
        Ok(layers_page(&Catalog::bundled()))
    }),
    ("docs/reference/statuses.md", || Ok(statuses_page())),
    ("docs/reference/cli.md", || Ok(cli_page::page())),
    ("docs/reference/keys.md", || {
        Ok(toolgate_cli::show::keys::render_reference())
    }),
];

/// Writes all generated files.
pub(crate) fn write(root: &Path) -> Result<(), String> {
    for (name, content) in FILES {
        let path = root.join(name);
        let folder = path.parent().unwrap_or(root);
        std::fs::create_dir_all(folder)
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        std::fs::write(&path, content()?)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        println!("wrote {name}");
    }
    Ok(())
}

/// Checks that all generated files are up to date.
#[cfg(test)]
pub(crate) fn check(root: &Path) -> Result<(), String> {
    for (name, content) in FILES {
        let published = std::fs::read_to_string(root.join(name)).unwrap_or_default();
        if published != content()? {
            return Err(format!(
                "{name} is not what the code says\nhint: `cargo xtask generate` writes it anew"
            ));
        }
    }
    Ok(())
}

fn json(value: &Value) -> Result<String, String> {
    serde_json::to_string_pretty(value)
        .map(|text| text + "\n")
        .map_err(|error| error.to_string())
}

const HEAD: &str = "\
# Layers

Written from the catalog by `cargo xtask generate`. The order is that of the default stack, outermost first.

Every layer can be named in `toolgate.toml` as `[layers.<name>]`. Besides its own options it takes `enabled` (true or
false), `on` (patterns of tool names it is restricted to) and `use` (which layer it is, for one under a name of its
own). Lengths of time are written `250ms`, `30s` or `1h 30m`. The
[schema](toolgate.schema.json) tells editors the same.

";

fn layers_page(catalog: &Catalog) -> String {
    let mut page = HEAD.to_owned();
    page.push_str("| Layer | Band | By default |\n|---|---|---|\n");
    for entry in catalog.entries() {
        let by_default = if entry.by_default {
            "yes"
        } else {
            "when asked for"
        };
        let CatalogEntry { name, band, .. } = entry;
        let _ = writeln!(page, "| [`{name}`](#{name}) | {band} | {by_default} |");
    }
    for entry in catalog.entries() {
        let _ = write!(
            page,
            "\n## {}\n\n{} Its place: {}.\n",
            entry.name, entry.summary, entry.why
        );
        page.push_str(&options(&entry.options_schema()));
    }
    page
}

const STATUSES_HEAD: &str = "\
# Statuses

Written from the code by `cargo xtask generate`. Events, receipts and `--json` carry the word; screens, summaries and
the guide show the text. The [glossary](../concepts/glossary.md) defines the terms.

";

/// Renders the words and texts of call statuses, approval states and run ends.
fn statuses_page() -> String {
    let mut page = STATUSES_HEAD.to_owned();
    page.push_str("## How a call settles\n\n| Word | Text |\n|---|---|\n");
    for status in Status::ALL {
        let _ = writeln!(page, "| `{}` | {} |", status.as_str(), status.text());
    }
    page.push_str("\n## The state of an approval\n\n| Word | Text |\n|---|---|\n");
    for state in [ApprovalState::Pending, ApprovalState::Answered] {
        let _ = writeln!(page, "| `{}` | {} |", state.as_str(), state.text());
    }
    page.push_str("\nOnce the call has settled, its status.\n");
    page.push_str("\n## How a run ends\n\n| Word | Text |\n|---|---|\n");
    for end in RunEnd::ALL {
        let _ = writeln!(page, "| `{}` | {} |", end.as_str(), end.text());
    }
    page
}

/// Renders the options of a layer as a table.
fn options(schema: &Value) -> String {
    let Some(properties) = schema["properties"]
        .as_object()
        .filter(|properties| !properties.is_empty())
    else {
        return "\nIt has no options.\n".to_owned();
    };
    let mut table = "\n| Option | Takes | Default | |\n|---|---|---|---|\n".to_owned();
    for (name, property) in properties {
        let default = property
            .get("default")
            .or_else(|| schema["default"].get(name))
            .filter(|value| !value.is_null());
        let default = default.map_or_else(String::new, |value| format!("`{value}`"));
        let what = property["description"]
            .as_str()
            .unwrap_or_default()
            .replace('\n', " ");
        let _ = writeln!(
            table,
            "| `{name}` | {} | {default} | {what} |",
            takes(property)
        );
    }
    table
}

/// Describes the value of a property in a few words.
fn takes(property: &Value) -> String {
    if let Some(words) = words(property) {
        return words.join(", ");
    }
    match &property["type"] {
        Value::String(kind) => named(kind, property),
        Value::Array(kinds) => {
            let kinds = kinds
                .iter()
                .filter_map(Value::as_str)
                .filter(|kind| *kind != "null");
            kinds
                .map(|kind| named(kind, property))
                .collect::<Vec<_>>()
                .join(" or ")
        }
        _ => "see the schema".to_owned(),
    }
}

fn named(kind: &str, property: &Value) -> String {
    match kind {
        "string" => "text".to_owned(),
        "integer" => "whole number".to_owned(),
        "boolean" => "true or false".to_owned(),
        "array" => format!("list of {}", takes(&property["items"])),
        "object" => "table".to_owned(),
        other => other.to_owned(),
    }
}

/// Returns the words of an enumeration, wherever the schema has them.
fn words(property: &Value) -> Option<Vec<String>> {
    let listed = property["enum"]
        .as_array()
        .map(|words| words.iter().collect::<Vec<_>>());
    let one_of = ["oneOf", "anyOf"]
        .iter()
        .find_map(|key| property[*key].as_array());
    if let Some(listed) = listed {
        return Some(
            listed
                .iter()
                .filter_map(|word| word.as_str())
                .map(|word| format!("`{word}`"))
                .collect(),
        );
    }
    let mut found = Vec::new();
    for option in one_of? {
        match option["const"].as_str() {
            Some(word) => found.push(format!("`{word}`")),
            None if option["type"] == "null" => {}
            None => found.extend(words(option).unwrap_or_else(|| vec![takes(option)])),
        }
    }
    Some(found)
}
