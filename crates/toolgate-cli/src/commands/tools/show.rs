//! `toolgate tools show`: one tool, as the model sees it.

use serde_json::Value;
use toolgate::{Gate, tool::ShownTool, value::serialized_word};

use super::describe_tool;
use crate::{
    CliError, CommandContext, Exit, GateArgs,
    env::style,
    show::render::{StyledLine, TextTable},
};

pub(super) fn show_tool(name: &str, cx: &CommandContext) -> Result<Exit, CliError> {
    let preview = GateArgs::default().open_preview(cx)?;
    let view = preview.view()?;
    let tool = view
        .get(name)
        .ok_or_else(|| unknown_tool_error(name, &preview))?;
    if cx.out.is_json() {
        let mut said = describe_tool(&tool.entry, &tool.spec.description);
        said["input"] = tool.spec.input.as_json().as_value().clone();
        said["output"] = tool
            .spec
            .output
            .as_ref()
            .map(|output| output.as_json().as_value().clone())
            .into();
        cx.out.print_json(&said)?;
        return Ok(Exit::Done);
    }
    print_tool(tool, cx)?;
    Ok(Exit::Done)
}

fn unknown_tool_error(name: &str, gate: &Gate) -> CliError {
    let near = gate.known_tools().nearest(name);
    let meant = near.map_or_else(String::new, |near| format!("; the nearest is {near}"));
    CliError::usage(format!("there is no tool named {name:?}{meant}"))
        .with_hint("`toolgate tools list` shows them all")
}

fn print_tool(tool: &ShownTool, cx: &CommandContext) -> Result<(), CliError> {
    cx.out.print_line(format_args!(
        "{}\n{}\n",
        style::bold(&tool.spec.name),
        style::escape_controls(&tool.spec.description)
    ))?;
    let parameters = parameter_table(tool);
    if !parameters.is_empty() {
        cx.out.print_line(format_args!("{parameters}\n"))?;
    }
    let annotations = &tool.entry.spec.annotations;
    let mut facts = TextTable::for_output();
    let mut fact = |name: &str, value: String| facts.add_row([style::dim(name), value.into()]);
    fact("effect", serialized_word(&annotations.strongest_effect()));
    fact(
        "kind",
        annotations
            .kind
            .as_ref()
            .map_or_else(|| "unknown".to_owned(), serialized_word),
    );
    fact("can be retried", yes_or_no(annotations.may_repeat()));
    fact("can be undone", yes_or_no(annotations.undo));
    fact("run by", tool.entry.executor.to_string());
    fact("fingerprint", tool.entry.fingerprint.to_string());
    cx.out.print_line(facts)
}

fn yes_or_no(yes: bool) -> String {
    if yes {
        "yes".to_owned()
    } else {
        "no".to_owned()
    }
}

/// Returns the parameters, one per row.
fn parameter_table(tool: &ShownTool) -> TextTable {
    let schema = tool.spec.input.as_json().as_value();
    let required = |name: &str| {
        schema["required"]
            .as_array()
            .is_some_and(|names| names.iter().any(|required| required == name))
    };
    let mut table = TextTable::for_output().with_head(["ARGUMENT", "TYPE", "", ""]);
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let needed = if required(name) {
            style::warn("required")
        } else {
            StyledLine::new()
        };
        let injected = tool
            .injected
            .iter()
            .find(|injected| injected.parameter == *name);
        let by = injected.map_or_else(String::new, |injected| {
            format!(" (required by the layer {})", injected.by)
        });
        let said = property["description"].as_str().unwrap_or_default();
        table.add_row([
            name.as_str().into(),
            parameter_type(property).into(),
            needed,
            format!("{said}{by}").into(),
        ]);
    }
    table
}

/// Returns the type of a parameter in a word or two.
fn parameter_type(property: &Value) -> String {
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
