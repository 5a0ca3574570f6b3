//! Files that are written from the code, so that they cannot say something else than it does.

use std::{fmt::Write, path::Path};

use serde_json::Value;
use toolgate_layers::{Catalog, CatalogEntry, Config};

use crate::cli_page;

/// A file and how it is written.
type Generated = (&'static str, fn() -> Result<String, String>);

const FILES: [Generated; 5] = [
    ("docs/reference/events.schema.json", || {
        json(&toolgate_core::Event::json_schema())
    }),
    ("docs/reference/toolgate.schema.json", || {
        json(&Config::json_schema(&toolgate_cli::settings::catalog()))
    }),
    ("docs/reference/layers.md", || {
        Ok(layers_page(&Catalog::bundled()))
    }),
    ("docs/reference/cli.md", || Ok(cli_page::page())),
    ("docs/reference/keys.md", || {
        Ok(toolgate_cli::tui::keys::reference())
    }),
];

/// Writes all of them.
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

/// Checks that all of them are what the code says.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    for (name, content) in FILES {
        let published = std::fs::read_to_string(root.join(name)).unwrap_or_default();
        if published != content()? {
            return Err(format!(
                "{name} is not what the code says\nhint: `cargo xtask generate` writes it anew"
            ));
        }
    }
    println!("\n== generated files: as the code has them");
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
    page.push_str(
        "| Layer | Band | By default | In the design documents | Where it differs, and why |\n|---|---|---|---|---|\n",
    );
    for entry in catalog.entries() {
        let by_default = if entry.by_default {
            "yes"
        } else {
            "when asked for"
        };
        let CatalogEntry {
            name,
            band,
            origin,
            differs,
            ..
        } = entry;
        let _ = writeln!(
            page,
            "| [`{name}`](#{name}) | {band} | {by_default} | {origin} | {differs} |"
        );
    }
    for entry in catalog.entries() {
        let _ = write!(
            page,
            "\n## {}\n\n{} Its place: {}.\n",
            entry.name, entry.summary, entry.why
        );
        page.push_str(&options(&entry.schema()));
    }
    page.push_str(TAIL);
    page
}

const TAIL: &str = "
## Names of the design documents that are not layers here

| There | Here |
|---|---|
| `tools_use_middleware`, `schema_transform` | `Transform`; a layer that needs one brings it along, and `View::under(&registry, &stack)` applies it |
| `compose_tool_callers`, `Chain` | `Stack::over(executor).layer(outer).layer(inner).build()` |
| `default_tool_caller` | the executor below the stack |
| `toolMiddleware({ beforeExecute, afterExecute, onError, aroundExecute })` | `before`, `after`, `on_error`, `around`, all of them ordinary layers |
| `match` | `.on(Matcher)`, or `on` in a file |
| `audit` on a result | `Settled::notes`; the event is `tool_call_audit` |
| `audit.consent`, `audit.scope`, `audit.layers`, … | fields of the same names in the notes |
| `ProgressManager`, `ToastManager`, `FileWatcher` | the same names, as stores that a screen subscribes to |
| `MiddlewareConfig` | `Config` for what a file can hold, `Parts` for what it cannot |
| `DefaultMiddlewareStack` | `default_stack(&config, &parts)` |
| `ToolLifecycle` | the dispatcher of `toolgate-runtime` |
";

/// The options of a layer as a table.
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

/// What a property takes, in a few words.
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

/// The words of an enumeration, wherever the schema has them.
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
