//! Yes or no, from the person at the keyboard.

use std::io::{self, Write};

use crate::{CliError, Cx, Exit, style};

/// Asks, unless the command line has said yes already. Where nobody can be asked, that is an error.
pub(crate) fn confirm(cx: &Cx, question: &str, yes: bool) -> Result<(), CliError> {
    if yes {
        return Ok(());
    }
    if !cx.out.is_interactive() {
        return Err(CliError::usage("nobody can be asked here").hint("add --yes if you mean it"));
    }
    let mut out = cx.out.stdout();
    write!(out, "{} [y/N] ", style::warn(question))?;
    out.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(CliError::new("nothing was done").exit(Exit::Refused)),
    }
}
