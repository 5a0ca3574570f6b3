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
    table::Table,
};

pub(super) fn run(args: &ShowArgs, cx: &Cx) -> Result<Exit, CliError> {
    let preview = Preview::open(cx, &GateArgs::default())?;
    let variables: Vec<String> = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect();
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
        let mut table = Table::new();
        for entry in section {
            let option = entry.path.rsplit('.').next().unwrap_or(&entry.path);
            table.row([
                format!("{option} = {}", toml(&entry.value)?),
                style::dim(format!("# {}", origin(entry))).to_string(),
            ]);
        }
        match section.first().and_then(section_of) {
            Some(name) => cx.out.line(format_args!("\n{}\n{table}", style::bold(format!("[{name}]"))))?,
            None => cx.out.line(format_args!("\n{table}"))?,
        }
    }
    Ok(())
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

fn toml(value: &Value) -> Result<String, CliError> {
    let value = toml::Value::try_from(value).map_err(|error| CliError::new(error.to_string()))?;
    Ok(style::plain(&value.to_string()))
}
