//! `toolgate config trust` and `untrust`: trust in the configuration and the instructions of a project.

use std::{
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
};

use serde_json::json;
use toolgate::gate::{
    ConfigFile, ConfigOwner, ConfigTrust, InstructionsFile, StateDir, TrustedConfigs,
};

use super::{ConfigTrustArgs, ConfigUntrustArgs};
use crate::{CliError, CommandContext, Exit, env::style};

/// A file that a project brings, and that is used only if the user trusts it.
enum ProjectFile {
    Config(ConfigFile),
    Instructions(InstructionsFile),
}

impl ProjectFile {
    fn read(path: PathBuf) -> Result<Self, CliError> {
        if InstructionsFile::is_named_so(&path) {
            return Ok(Self::Instructions(InstructionsFile::read(path)?));
        }
        let file = ConfigFile::read(ConfigOwner::Project, path)?;
        // An invalid file is not trusted: every later command would fail on it.
        file.parse_own_config()?;
        Ok(Self::Config(file))
    }

    fn path(&self) -> &Path {
        match self {
            Self::Config(file) => &file.path,
            Self::Instructions(file) => &file.path,
        }
    }

    fn text(&self) -> &str {
        match self {
            Self::Config(file) => &file.text,
            Self::Instructions(file) => &file.text,
        }
    }

    /// Returns the path for a display.
    fn shown(&self) -> String {
        style::escape_controls(&self.path().display().to_string())
    }

    fn named_files(&self) -> Result<Vec<PathBuf>, CliError> {
        match self {
            Self::Config(file) => Ok(file.named_files()?),
            Self::Instructions(_) => Ok(Vec::new()),
        }
    }

    fn check_trust(&self, home: &StateDir) -> Result<ConfigTrust, CliError> {
        Ok(match self {
            Self::Config(file) => file.check_trust(home)?,
            Self::Instructions(file) => file.check_trust(home)?,
        })
    }

    /// Trusts the text that was read, and that the user has seen: the file may have changed since.
    fn add_trust(&self, home: &StateDir) -> Result<(), CliError> {
        let mut trusted = TrustedConfigs::load(home)?;
        match self {
            Self::Config(file) => trusted.add_trust(home, file)?,
            Self::Instructions(file) => trusted.trust_instructions(home, file)?,
        }
        Ok(())
    }
}

pub(super) fn run_trust(args: &ConfigTrustArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    let file = ProjectFile::read(target_path(args.file.as_deref(), cx)?)?;
    let shown = file.shown();
    let before = file.check_trust(&cx.paths.home)?;
    if before == ConfigTrust::Trusted {
        return report_trusted(
            cx,
            &file,
            &format!("{} {shown}, as before", style::good("trusted:")),
        );
    }
    if !args.yes {
        confirm_trust(cx, &file, before)?;
    }
    cx.paths.home.create()?;
    file.add_trust(&cx.paths.home)?;
    report_trusted(cx, &file, &format!("{} {shown}", style::good("trusted:")))
}

pub(super) fn run_untrust(args: &ConfigUntrustArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    let path = target_path(args.file.as_deref(), cx)?;
    let mut trusted = TrustedConfigs::load(&cx.paths.home)?;
    let known = trusted.knows(&path) && trusted.revoke_trust(&cx.paths.home, &path)?;
    let shown = style::escape_controls(&path.display().to_string());
    match (cx.out.is_json(), known) {
        (true, _) => cx
            .out
            .print_json(&json!({ "file": path, "trusted": false, "was_trusted": known }))?,
        (false, true) => cx.out.print_line(format_args!(
            "{} {shown}",
            style::warn("no longer trusted:")
        ))?,
        (false, false) => cx.out.print_line(format_args!("{shown} was not trusted"))?,
    }
    Ok(Exit::Done)
}

fn target_path(file: Option<&Path>, cx: &CommandContext) -> Result<PathBuf, CliError> {
    let path = match file {
        Some(file) => file.to_owned(),
        None => ConfigFile::of_project(&cx.paths.workspace).ok_or_else(|| {
            CliError::usage(format!(
                "there is no toolgate.toml in {} or above it",
                cx.paths.workspace.display()
            ))
            .with_hint("`toolgate init` writes one, and trusts it")
        })?,
    };
    // The file is looked up under the resolved path of its directory, so it is trusted under that
    // path.
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    match (parent.canonicalize(), path.file_name()) {
        (Ok(parent), Some(name)) => Ok(parent.join(name)),
        _ => Ok(path),
    }
}

fn report_trusted(cx: &CommandContext, file: &ProjectFile, line: &str) -> Result<Exit, CliError> {
    if cx.out.is_json() {
        cx.out
            .print_json(&json!({ "file": file.path(), "trusted": true }))?
    } else {
        cx.out.print_line(line)?
    }
    Ok(Exit::Done)
}

/// Shows the file and asks the user to trust it.
fn confirm_trust(
    cx: &CommandContext,
    file: &ProjectFile,
    before: ConfigTrust,
) -> Result<(), CliError> {
    if !cx.out.is_interactive() || !io::stderr().is_terminal() {
        return Err(CliError::usage("confirmation needs a terminal")
            .with_hint("read the file, then add --yes"));
    }
    let shown = file.shown();
    let what = if before == ConfigTrust::Changed {
        "has changed since it was trusted"
    } else {
        "is new here"
    };
    cx.out
        .print_line(format_args!("{} {what}:\n", style::bold(&shown)))?;
    let is_config = matches!(file, ProjectFile::Config(_));
    for line in file.text().lines() {
        let said = style::escape_controls(line);
        if is_config && line.trim_start().starts_with('#') {
            cx.out.print_line(style::dim(said))?
        } else {
            cx.out.print_line(said)?
        }
    }
    let named = file.named_files()?;
    if !named.is_empty() {
        let intro = "\nIt names these files, which are trusted with it as they are now:";
        cx.out.print_line(intro)?;
    }
    for path in named {
        let shown = style::escape_controls(&path.display().to_string());
        cx.out.print_line(format_args!("  {shown}"))?;
    }
    let mut out = cx.out.stdout();
    write!(out, "\n{} [y/N] ", style::warn("Trust this file?"))?;
    out.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(CliError::new("it stays untrusted").with_exit(Exit::NotAllowed)),
    }
}
