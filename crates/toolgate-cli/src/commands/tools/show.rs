//! `toolgate tools show`: one tool, as the model is told of it.

use serde_json::Value;
use toolgate::{ShownTool, View};

use super::{described, word};
use crate::{CliError, Cx, Exit, GateArgs, preview::Preview, style, table::Table};

pub(super) fn run(name: &str, cx: &Cx) -> Result<Exit, CliError> {
    let preview = Preview::open(cx, &GateArgs::default())?;
    let view = View::under(&preview.registry, &preview.stack)?;
    let tool = view.get(name).ok_or_else(|| unknown(name, &view))?;
    if cx.out.is_json() {
        let mut said = described(&tool.entry, &tool.spec.description);
        said["input"] = tool.spec.input.as_json().as_value().clone();
        said["output"] = tool
            .spec
            .output
            .as_ref()
            .map(|output| output.as_json().as_value().clone())
            .into();
        cx.out.json(&said)?;
        return Ok(Exit::Done);
    }
    print(tool, cx)?;
    Ok(Exit::Done)
}

fn unknown(name: &str, view: &View) -> CliError {
    let closeness = |known: &str| strsim::jaro_winkler(name, known);
    let names = view.specs().map(|spec| spec.name.as_str());
    let near = names
        .max_by(|a, b| closeness(a).total_cmp(&closeness(b)))
        .filter(|near| closeness(near) > 0.7);
    let meant = near.map_or_else(String::new, |near| format!("; the nearest is {near}"));
    CliError::usage(format!("there is no tool named {name:?}{meant}"))
        .hint("`toolgate tools list` shows them all")
}

fn print(tool: &ShownTool, cx: &Cx) -> Result<(), CliError> {
    cx.out.line(format_args!(
        "{}\n{}\n",
        style::bold(&tool.spec.name),
        style::plain(&tool.spec.description)
    ))?;
    let parameters = parameters(tool);
    if !parameters.is_empty() {
        cx.out.line(format_args!("{parameters}\n"))?;
    }
    let annotations = &tool.entry.spec.annotations;
    let mut facts = Table::new();
    let mut fact = |name: &str, value: String| facts.row([style::dim(name).to_string(), value]);
    fact("effect", word(&annotations.effect()));
    fact(
        "kind",
        annotations
            .kind
            .as_ref()
            .map_or_else(|| "not said".to_owned(), word),
    );
    fact("can be repeated", yes(annotations.may_repeat()));
    fact("can be undone", yes(annotations.undo));
    fact("run by", tool.entry.executor.to_string());
    fact("fingerprint", tool.entry.fingerprint.to_string());
    cx.out.line(facts)
}

fn yes(yes: bool) -> String {
    if yes {
        "yes".to_owned()
    } else {
        "no".to_owned()
    }
}

/// What it takes, a parameter a line.
fn parameters(tool: &ShownTool) -> Table {
    let schema = tool.spec.input.as_json().as_value();
    let required = |name: &str| {
        schema["required"]
            .as_array()
            .is_some_and(|names| names.iter().any(|required| required == name))
    };
    let mut table = Table::new().head(["ARGUMENT", "TAKES", "", ""]);
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let needed = if required(name) {
            style::warn("required").to_string()
        } else {
            String::new()
        };
        let injected = tool
            .injected
            .iter()
            .find(|injected| injected.parameter == *name);
        let by = injected.map_or_else(String::new, |injected| {
            format!(" (asked for by the layer {})", injected.by)
        });
        let said = style::plain(property["description"].as_str().unwrap_or_default());
        table.row([name.clone(), kind(property), needed, said + &by]);
    }
    table
}

/// What a parameter takes, in a word or two.
fn kind(property: &Value) -> String {
    match &property["type"] {
        Value::String(kind) => kind.clone(),
        Value::Array(kinds) => {
            let kinds: Vec<_> = kinds
                .iter()
                .filter_map(Value::as_str)
                .filter(|kind| *kind != "null")
                .collect();
            kinds.join(" or ")
        }
        _ => "see --json".to_owned(),
    }
}
