//! `toolgate man`: the manual pages, one for each command.

use std::path::PathBuf;

use clap::{Args, CommandFactory};
use serde_json::json;

use crate::{Cli, CliError, CommandContext, Exit, env::style};

/// Writes the manual pages: that of `toolgate` to the standard output, or all of them to a
/// directory.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate man | man -l -
  toolgate man --to ~/.local/share/man/man1")]
pub struct ManArgs {
    /// Write the pages of all commands to this directory
    #[arg(long, value_name = "DIR")]
    pub to: Option<PathBuf>,
}

/// Writes the pages.
pub(crate) fn run(args: &ManArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    let command = Cli::command().term_width(100);
    let Some(dir) = &args.to else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        cx.out
            .print_line(String::from_utf8_lossy(&page).trim_end())?;
        return Ok(Exit::Done);
    };
    let written =
        std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(command, dir));
    written.map_err(|error| {
        CliError::usage(format!("{} cannot be written: {error}", dir.display()))
            .with_hint("name another directory")
    })?;
    if cx.out.is_json() {
        cx.out.print_json(&json!({ "written": dir }))?
    } else {
        cx.out.print_note(format_args!(
            "{} {}",
            style::good("written to"),
            dir.display()
        ))?
    }
    Ok(Exit::Done)
}
