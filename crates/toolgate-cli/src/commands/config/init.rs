//! `toolgate config init`: a file to start from, which explains every option and sets none.

use std::{
    fs, io,
    io::Write,
    path::{Path, PathBuf},
};

use serde_json::json;
use toolgate::gate::{CONFIG_NAME, ConfigFile, ConfigOwner, TrustedConfigs};

use super::ConfigInitArgs;
use crate::{CliError, CommandContext, Exit, env::style};

/// The template. Prose begins with `# `; a line that begins with `#` and no space is an option.
const TEMPLATE: &str = include_str!("init.toml");

pub(super) fn write_config(args: &ConfigInitArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    let path = target_path(args, cx)?;
    write_template(&path, args.force)?;
    if !args.user {
        cx.paths.home.create()?;
        // Trusted at once: the user asked for the file, and as written it changes nothing.
        let file = ConfigFile::read(ConfigOwner::Project, path.clone())?;
        TrustedConfigs::load(&cx.paths.home)?.add_trust(&cx.paths.home, &file)?;
    }
    if cx.out.is_json() {
        cx.out.print_json(&json!({ "written": path }))?;
        return Ok(Exit::Done);
    }
    let shown = style::escape_controls(&path.display().to_string());
    cx.out
        .print_line(format_args!("{} {shown}", style::good("written:")))?;
    cx.out
        .print_note("Remove the # from options you want to change, then: toolgate config check && toolgate config trust")?;
    Ok(Exit::Done)
}

fn target_path(args: &ConfigInitArgs, cx: &CommandContext) -> Result<PathBuf, CliError> {
    match (&args.file, args.user) {
        (Some(file), _) => Ok(file.clone()),
        (None, false) => Ok(cx.paths.workspace.join(CONFIG_NAME)),
        (None, true) => cx.paths.user_config.clone().ok_or_else(|| {
            CliError::new("there is no home directory to write to")
                .with_hint("name the file: `toolgate config init FILE`")
        }),
    }
}

/// Writes the file completely or not at all.
fn write_template(path: &Path, force: bool) -> Result<(), CliError> {
    let failed = |error: io::Error| {
        CliError::usage(format!("{} cannot be written: {error}", path.display()))
            .with_hint("name another path: `toolgate config init FILE`")
    };
    let directory = path
        .parent()
        .filter(|directory| !directory.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    fs::create_dir_all(directory).map_err(failed)?;
    // A temporary file is private by default, and renaming would keep that.
    let mut new = tempfile::Builder::new()
        .permissions(file_permissions())
        .tempfile_in(directory)
        .map_err(failed)?;
    new.write_all(TEMPLATE.as_bytes()).map_err(failed)?;
    let kept = if force {
        new.persist(path)
    } else {
        // The rename itself checks: a test before it could miss a file that appears meanwhile.
        new.persist_noclobber(path)
    };
    match kept {
        Ok(_) => Ok(()),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Err(CliError::usage(
            format!("{} exists already", path.display()),
        )
        .with_hint("--force replaces it")),
        Err(error) => Err(failed(error.error)),
    }
}

/// Returns the permissions of the file: a configuration is not secret, so others may read it.
fn file_permissions() -> fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o644)
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate::{Config, Registry, Resources, layers::BuildError};

    fn parse_text(text: &str) -> Result<Config, BuildError> {
        Ok(Config::parse_with_catalog(
            "init.toml",
            text,
            toolgate::gate::gate_catalog(),
        )?)
    }

    fn build_stack_of(text: &str) -> Result<(), BuildError> {
        let config = parse_text(text)?;
        let parts = Resources::new().with(toolgate::store::StoreHandle::new(
            toolgate::store::MemoryStore::new(),
        ));
        config.build(Registry::new(), &parts).map(drop)
    }

    fn is_option(line: &str) -> bool {
        line.starts_with('#') && !line.starts_with("# ") && line != "#"
    }

    /// The sections of the file, each a header and its options, uncommented.
    fn template_sections() -> Vec<(String, Vec<String>)> {
        let mut sections: Vec<(String, Vec<String>)> = Vec::new();
        for line in TEMPLATE
            .lines()
            .filter(|line| is_option(line))
            .map(|line| line[1..].to_owned())
        {
            if line.starts_with('[') {
                sections.push((line, Vec::new()))
            } else {
                sections
                    .last_mut()
                    .expect("an option is in a section")
                    .1
                    .push(line)
            }
        }
        sections
    }

    #[test]
    fn the_file_changes_nothing_as_it_is_written() {
        build_stack_of(TEMPLATE).expect("valid");
        assert!(
            TEMPLATE
                .lines()
                .all(|line| line.is_empty() || line.starts_with('#'))
        );
    }

    #[test]
    fn everything_in_the_file_is_valid_at_once_and_section_by_section() {
        let all: Vec<String> = TEMPLATE
            .lines()
            .map(|line| if is_option(line) { &line[1..] } else { line }.to_owned())
            .collect();
        build_stack_of(&all.join("\n")).expect("valid at once");
        for (header, options) in template_sections() {
            build_stack_of(&format!("{header}\n{}", options.join("\n")))
                .unwrap_or_else(|error| panic!("{header}: {error}"));
        }
    }

    #[test]
    fn every_option_of_the_file_is_valid_by_itself() {
        for (header, options) in template_sections()
            .iter()
            .filter(|(header, _)| !header.starts_with("[["))
        {
            for option in options {
                parse_text(&format!("{header}\n{option}"))
                    .unwrap_or_else(|error| panic!("{header} {option}: {error}"));
            }
        }
    }

    #[test]
    fn every_option_of_the_programs_own_sections_is_in_the_file() {
        let schema = Config::json_schema(&toolgate::gate::gate_catalog());
        for section in ["run", "tools", "tools.files", "tools.shell", "tools.fetch"] {
            let path = section
                .split('.')
                .fold(&schema, |at, name| &at["properties"][name]);
            let (_, options) = template_sections()
                .into_iter()
                .find(|(header, _)| *header == format!("[{section}]"))
                .expect(section);
            for (name, property) in path["properties"].as_object().expect("options") {
                let listed = options
                    .iter()
                    .any(|line| line.starts_with(&format!("{name} =")));
                assert!(
                    listed || property["properties"].is_object(),
                    "[{section}] {name}"
                );
            }
        }
    }
}
