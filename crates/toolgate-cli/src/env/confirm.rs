//! Yes or no, from the user at the terminal.

use std::io::{self, Write};

use crate::{CliError, CommandContext, Exit, env::style};

/// Asks for confirmation unless `yes` is set. Fails without a terminal, so that a script never
/// confirms by accident.
pub(crate) fn require_confirmation(
    cx: &CommandContext,
    question: &str,
    yes: bool,
) -> Result<(), CliError> {
    if yes {
        return Ok(());
    }
    if !cx.out.is_interactive() {
        return Err(
            CliError::usage("confirmation needs a terminal").with_hint("add --yes to confirm")
        );
    }
    let mut out = cx.out.stdout();
    write!(out, "{} [y/N] ", style::warn(question))?;
    out.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(CliError::new("nothing was done").with_exit(Exit::NotAllowed)),
    }
}
