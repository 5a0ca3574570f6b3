//! `toolgate config show`: the options in effect, and the source of each.

use serde_json::Value;
use toolgate::gate::ConfigOwner;

use super::{
    ConfigShowArgs,
    entries::{self, OptionEntry, ValueSource},
};
use crate::{CliError, CommandContext, Exit, GateArgs, env::style, show::render::StyledLine};

pub(super) fn show_config(args: &ConfigShowArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    let preview = GateArgs::default().open_preview(cx)?;
    let variables: Vec<String> = std::env::vars_os()
        .filter_map(|(name, _)| name.into_string().ok())
        .collect();
    let mut entries = entries::list_options(preview.configuration(), preview.stack(), &variables)?;
    entries.retain(|entry| !args.changed || entry.from != ValueSource::Default);
    if cx.out.is_json() {
        entries
            .iter()
            .try_for_each(|entry| cx.out.print_json(entry))?;
        return Ok(Exit::Done);
    }
    cx.out.print_line(style::dim(describe_file(cx)))?;
    print_options(cx, &entries)?;
    Ok(Exit::Done)
}

fn describe_file(cx: &CommandContext) -> String {
    let Some((owner, path)) = cx.paths.find_config() else {
        return "# There is no configuration; `toolgate init` writes one.".to_owned();
    };
    let path = style::escape_controls(&path.display().to_string());
    match owner {
        ConfigOwner::Named => format!("# The file is {path}, named with --config."),
        ConfigOwner::Project => format!("# The file is {path}, the project's configuration."),
        ConfigOwner::User => format!("# The file is {path}, the user's configuration."),
    }
}

/// Prints the options like a file, section by section.
fn print_options(cx: &CommandContext, entries: &[OptionEntry]) -> Result<(), CliError> {
    for section in entries.chunk_by(|a, b| section_name(a) == section_name(b)) {
        match section.first().and_then(section_name) {
            Some(name) => cx
                .out
                .print_line(format_args!("\n{}", style::bold(format!("[{name}]"))))?,
            None => cx.out.print_line("")?,
        }
        let lines: Vec<(StyledLine, &str)> = section
            .iter()
            .map(|entry| (option_line(entry), source_label(entry)))
            .collect();
        let widths = lines
            .iter()
            .map(|(line, _)| line.width())
            .filter(|width| *width <= MAX_COLUMN);
        let column = widths.max().unwrap_or(MAX_COLUMN);
        for (line, origin) in &lines {
            let gap = " ".repeat(column.saturating_sub(line.width()) + 2);
            cx.out.print_line(format_args!(
                "{line}{gap}{}",
                style::dim(format!("# {origin}"))
            ))?;
        }
    }
    Ok(())
}

/// The maximum width of the first column; the origin of a longer line follows it directly.
const MAX_COLUMN: usize = 60;

fn option_line(entry: &OptionEntry) -> StyledLine {
    let option = entry.path.rsplit('.').next().unwrap_or(&entry.path);
    format!("{option} = {}", to_toml(&entry.value)).into()
}

/// Returns the section of an option; `None` for a list that is a section by itself.
fn section_name(entry: &OptionEntry) -> Option<&str> {
    entry.path.rsplit_once('.').map(|(section, _)| section)
}

fn source_label(entry: &OptionEntry) -> &str {
    match (entry.from, &entry.variable) {
        (ValueSource::Default, _) => "default",
        (ValueSource::File, _) => "file",
        (ValueSource::Variable, name) => name.as_deref().unwrap_or("variable"),
    }
}

/// Formats a value as one line of TOML.
fn to_toml(value: &Value) -> String {
    match value {
        Value::Array(items) => format!(
            "[{}]",
            items.iter().map(to_toml).collect::<Vec<_>>().join(", ")
        ),
        Value::Object(map) if map.is_empty() => "{}".to_owned(),
        Value::Object(map) => {
            let parts: Vec<_> = map
                .iter()
                .map(|(name, value)| format!("{} = {}", toml_key(name), to_toml(value)))
                .collect();
            format!("{{ {} }}", parts.join(", "))
        }
        // JSON and TOML escape strings the same way.
        plain => plain.to_string(),
    }
}

fn toml_key(name: &str) -> String {
    let bare = !name.is_empty()
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    if bare {
        name.to_owned()
    } else {
        Value::from(name).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_as_toml_that_parses_to_the_same_value() {
        let value = serde_json::json!({ "a b": [1, 0.5, true, "x\ny\"z"], "c": { "d": {} } });
        let table: toml::Table = format!("v = {}", to_toml(&value)).parse().expect("TOML");
        assert_eq!(serde_json::to_value(&table["v"]).expect("JSON"), value);
    }
}
