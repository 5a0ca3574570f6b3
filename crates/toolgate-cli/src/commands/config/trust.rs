//! `toolgate config trust` and `untrust`: which configuration of a project counts.

use std::{
    io::{self, IsTerminal, Write},
    path::PathBuf,
};

use serde_json::json;

use super::{TrustArgs, UntrustArgs};
use crate::{
    CliError, Cx, Exit,
    config_file::{ConfigFile, Owner, Trust},
    style,
    trust::Trusted,
};

pub(super) fn trust(args: &TrustArgs, cx: &Cx) -> Result<Exit, CliError> {
    let file = ConfigFile::read(Owner::Project, target(args.file.as_deref(), cx)?)?;
    file.config()?;
    let shown = style::plain(&file.path.display().to_string());
    let before = file.trust(&cx.paths.home)?;
    if before == Trust::Trusted {
        return done(
            cx,
            &file,
            &format!("{} {shown}, as before", style::good("trusted:")),
        );
    }
    if !args.yes {
        ask(cx, &file, before)?;
    }
    cx.paths.make_home()?;
    // The text that was read and shown is the one that counts, not whatever is in the file by now.
    Trusted::load(&cx.paths.home)?.trust(&cx.paths.home, &file.path, &file.text)?;
    done(cx, &file, &format!("{} {shown}", style::good("trusted:")))
}

pub(super) fn untrust(args: &UntrustArgs, cx: &Cx) -> Result<Exit, CliError> {
    let path = target(args.file.as_deref(), cx)?;
    let mut trusted = Trusted::load(&cx.paths.home)?;
    let known = trusted.knows(&path) && trusted.forget(&cx.paths.home, &path)?;
    let shown = style::plain(&path.display().to_string());
    match (cx.out.is_json(), known) {
        (true, _) => cx
            .out
            .json(&json!({ "file": path, "trusted": false, "was_trusted": known }))?,
        (false, true) => cx
            .out
            .line(format_args!("{} {shown}", style::warn("trusted no more:")))?,
        (false, false) => cx.out.line(format_args!("{shown} was not trusted"))?,
    }
    Ok(Exit::Done)
}

fn target(file: Option<&std::path::Path>, cx: &Cx) -> Result<PathBuf, CliError> {
    let path = match file {
        Some(file) => file.to_owned(),
        None => cx.paths.project().ok_or_else(|| {
            CliError::usage(format!(
                "there is no toolgate.toml in {} or above it",
                cx.paths.workspace.display()
            ))
            .hint("`toolgate config init` writes one, and trusts it")
        })?,
    };
    // A file is trusted under the path by which a project finds it.
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(std::path::Path::new("."));
    match (parent.canonicalize(), path.file_name()) {
        (Ok(parent), Some(name)) => Ok(parent.join(name)),
        _ => Ok(path),
    }
}

fn done(cx: &Cx, file: &ConfigFile, line: &str) -> Result<Exit, CliError> {
    match cx.out.is_json() {
        true => cx
            .out
            .json(&json!({ "file": file.path, "trusted": true }))?,
        false => cx.out.line(line)?,
    }
    Ok(Exit::Done)
}

/// Shows the file and asks whether it is to count.
fn ask(cx: &Cx, file: &ConfigFile, before: Trust) -> Result<(), CliError> {
    if !cx.out.is_interactive() || !io::stderr().is_terminal() {
        return Err(
            CliError::usage("nobody can be asked here").hint("read the file, then say --yes")
        );
    }
    let shown = style::plain(&file.path.display().to_string());
    let what = if before == Trust::Changed {
        "has changed since it was trusted"
    } else {
        "is new here"
    };
    cx.out
        .line(format_args!("{} {what}:\n", style::bold(&shown)))?;
    for line in file.text.lines() {
        let said = style::plain(line);
        match line.trim_start().starts_with('#') {
            true => cx.out.line(style::dim(said))?,
            false => cx.out.line(said)?,
        }
    }
    let mut out = cx.out.stdout();
    write!(
        out,
        "\n{} [y/N] ",
        style::warn("Let it count in this project?")
    )?;
    out.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(CliError::new("it stays untrusted").exit(Exit::Refused)),
    }
}
