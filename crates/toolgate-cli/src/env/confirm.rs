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
    match read_answer(cx, &format!("{question} [y/N]"))?.as_str() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(nothing_done()),
    }
}

/// Prints a question and returns the line that the user answers, without blanks around it.
pub(crate) fn read_answer(cx: &CommandContext, question: &str) -> Result<String, CliError> {
    let mut out = cx.out.stdout();
    write!(out, "{} ", style::warn(question))?;
    out.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(answer.trim().to_owned())
}

/// Returns the end of a command that the user did not confirm.
pub(crate) fn nothing_done() -> CliError {
    CliError::new("nothing was done").with_exit(Exit::NotAllowed)
}
