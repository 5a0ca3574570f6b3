//! `toolgate config init`: a file to begin with, in which everything is explained and nothing is switched on.

use std::{
    fs, io,
    io::Write,
    path::{Path, PathBuf},
};

use serde_json::json;

use super::InitArgs;
use crate::{CliError, Cx, Exit, paths::CONFIG_NAME, style, trust::Trusted};

/// The file. Prose begins with `# `; a line that begins with `#` and no space is an option.
const TEMPLATE: &str = include_str!("init.toml");

pub(super) fn run(args: &InitArgs, cx: &Cx) -> Result<Exit, CliError> {
    let path = target(args, cx)?;
    write(&path, args.force)?;
    if !args.user {
        cx.paths.make_home()?;
        let path = path.canonicalize()?;
        Trusted::load(&cx.paths.home)?.trust(&cx.paths.home, &path, TEMPLATE)?;
    }
    if cx.out.is_json() {
        cx.out.json(&json!({ "written": path }))?;
        return Ok(Exit::Done);
    }
    let shown = style::plain(&path.display().to_string());
    cx.out
        .line(format_args!("{} {shown}", style::good("written:")))?;
    cx.out
        .note("Take the # away from what you want to change, then: toolgate config check && toolgate config trust")?;
    Ok(Exit::Done)
}

fn target(args: &InitArgs, cx: &Cx) -> Result<PathBuf, CliError> {
    match (&args.file, args.user) {
        (Some(file), _) => Ok(file.clone()),
        (None, false) => Ok(cx.paths.workspace.join(CONFIG_NAME)),
        (None, true) => cx.paths.user_config.clone().ok_or_else(|| {
            CliError::new("there is no home directory to write to")
                .hint("name the file: `toolgate config init FILE`")
        }),
    }
}

/// Writes the file whole or not at all.
fn write(path: &Path, force: bool) -> Result<(), CliError> {
    let failed = |error: io::Error| {
        CliError::usage(format!("{} cannot be written: {error}", path.display()))
            .hint("name another place: `toolgate config init FILE`")
    };
    let directory = path
        .parent()
        .filter(|directory| !directory.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    fs::create_dir_all(directory).map_err(failed)?;
    let mut new = tempfile::Builder::new()
        .permissions(readable())
        .tempfile_in(directory)
        .map_err(failed)?;
    new.write_all(TEMPLATE.as_bytes()).map_err(failed)?;
    let kept = if force {
        new.persist(path)
    } else {
        new.persist_noclobber(path)
    };
    match kept {
        Ok(_) => Ok(()),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Err(CliError::usage(
            format!("{} is there already", path.display()),
        )
        .hint("--force replaces it")),
        Err(error) => Err(failed(error.error)),
    }
}

/// A configuration is no secret: others may read it.
fn readable() -> fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o644)
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolgate::{Config, Parts, Registry, layers::BuildError};

    fn read(text: &str) -> Result<Config, BuildError> {
        Ok(Config::read("init.toml", text, crate::settings::catalog())?)
    }

    fn load(text: &str) -> Result<(), BuildError> {
        let config = read(text)?;
        let parts = Parts::new().with(toolgate::StoreHandle::new(toolgate::MemoryStore::new()));
        config.build(Registry::new(), &parts).map(drop)
    }

    fn is_option(line: &str) -> bool {
        line.starts_with('#') && !line.starts_with("# ") && line != "#"
    }

    /// The sections of the file, each a header and its options, uncommented.
    fn sections() -> Vec<(String, Vec<String>)> {
        let mut sections: Vec<(String, Vec<String>)> = Vec::new();
        for line in TEMPLATE
            .lines()
            .filter(|line| is_option(line))
            .map(|line| line[1..].to_owned())
        {
            match line.starts_with('[') {
                true => sections.push((line, Vec::new())),
                false => sections
                    .last_mut()
                    .expect("an option is in a section")
                    .1
                    .push(line),
            }
        }
        sections
    }

    #[test]
    fn the_file_changes_nothing_as_it_is_written() {
        load(TEMPLATE).expect("valid");
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
        load(&all.join("\n")).expect("valid at once");
        for (header, options) in sections() {
            load(&format!("{header}\n{}", options.join("\n")))
                .unwrap_or_else(|error| panic!("{header}: {error}"));
        }
    }

    #[test]
    fn every_option_of_the_file_is_valid_by_itself() {
        for (header, options) in sections()
            .iter()
            .filter(|(header, _)| !header.starts_with("[["))
        {
            for option in options {
                read(&format!("{header}\n{option}"))
                    .unwrap_or_else(|error| panic!("{header} {option}: {error}"));
            }
        }
    }

    #[test]
    fn every_option_of_the_programs_own_sections_is_in_the_file() {
        let schema = Config::json_schema(&crate::settings::catalog());
        for section in ["run", "tools", "tools.files", "tools.shell", "tools.fetch"] {
            let path = section
                .split('.')
                .fold(&schema, |at, name| &at["properties"][name]);
            let (_, options) = sections()
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
