//! `toolgate config show`: what counts here, and where each part comes from.

use serde_json::Value;

use super::{
    ShowArgs,
    entries::{self, Entry, From},
};
use crate::{
    CliError, Cx, Exit, GateArgs,
    config_file::{ConfigFile, Owner},
    preview::Preview,
    style,
    table::width,
};

pub(super) fn run(args: &ShowArgs, cx: &Cx) -> Result<Exit, CliError> {
    let preview = Preview::open(cx, &GateArgs::default())?;
    let variables: Vec<String> = std::env::vars_os()
        .filter_map(|(name, _)| name.into_string().ok())
        .collect();
    let mut entries = entries::list(&preview.config, &preview.stack, &variables)?;
    entries.retain(|entry| !args.changed || entry.from != From::Default);
    if cx.out.is_json() {
        entries.iter().try_for_each(|entry| cx.out.json(entry))?;
        return Ok(Exit::Done);
    }
    cx.out.line(style::dim(source(cx)))?;
    print(cx, &entries)?;
    Ok(Exit::Done)
}

fn source(cx: &Cx) -> String {
    let Some((owner, path)) = ConfigFile::find(&cx.paths) else {
        return "# There is no configuration; `toolgate config init` writes one.".to_owned();
    };
    let path = style::plain(&path.display().to_string());
    match owner {
        Owner::Named => format!("# The file is {path}, as named."),
        Owner::Project => format!("# The file is {path}, that of the project."),
        Owner::User => format!("# The file is {path}, that of the user."),
    }
}

/// Prints the options like a file, section by section.
fn print(cx: &Cx, entries: &[Entry]) -> Result<(), CliError> {
    for section in entries.chunk_by(|a, b| section_of(a) == section_of(b)) {
        match section.first().and_then(section_of) {
            Some(name) => cx
                .out
                .line(format_args!("\n{}", style::bold(format!("[{name}]"))))?,
            None => cx.out.line("")?,
        }
        let lines: Vec<(String, &str)> = section
            .iter()
            .map(|entry| (line(entry), origin(entry)))
            .collect();
        let widths = lines
            .iter()
            .map(|(line, _)| width(line))
            .filter(|width| *width <= COLUMN);
        let column = widths.max().unwrap_or(COLUMN);
        for (line, origin) in &lines {
            let gap = " ".repeat(column.saturating_sub(width(line)) + 2);
            cx.out.line(format_args!(
                "{line}{gap}{}",
                style::dim(format!("# {origin}"))
            ))?;
        }
    }
    Ok(())
}

/// The origins of longer lines stand right behind them, out of the column.
const COLUMN: usize = 60;

fn line(entry: &Entry) -> String {
    let option = entry.path.rsplit('.').next().unwrap_or(&entry.path);
    style::plain(&format!("{option} = {}", toml(&entry.value)))
}

/// The section of an option; nothing for a list that is a section by itself.
fn section_of(entry: &Entry) -> Option<&str> {
    entry.path.rsplit_once('.').map(|(section, _)| section)
}

fn origin(entry: &Entry) -> &str {
    match (entry.from, &entry.variable) {
        (From::Default, _) => "default",
        (From::File, _) => "file",
        (From::Variable, name) => name.as_deref().unwrap_or("variable"),
    }
}

/// A value as TOML in one line.
fn toml(value: &Value) -> String {
    match value {
        Value::Array(items) => format!(
            "[{}]",
            items.iter().map(toml).collect::<Vec<_>>().join(", ")
        ),
        Value::Object(map) if map.is_empty() => "{}".to_owned(),
        Value::Object(map) => {
            let parts: Vec<_> = map
                .iter()
                .map(|(name, value)| format!("{} = {}", key(name), toml(value)))
                .collect();
            format!("{{ {} }}", parts.join(", "))
        }
        // JSON escapes text the way TOML does.
        plain => plain.to_string(),
    }
}

fn key(name: &str) -> String {
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
    fn values_are_shown_as_toml_that_reads_the_same() {
        let value = serde_json::json!({ "a b": [1, 0.5, true, "x\ny\"z"], "c": { "d": {} } });
        let table: toml::Table = format!("v = {}", toml(&value)).parse().expect("TOML");
        assert_eq!(serde_json::to_value(&table["v"]).expect("JSON"), value);
    }
}
