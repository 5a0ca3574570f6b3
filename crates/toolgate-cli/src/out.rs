//! What a command prints: text for people, JSON for machines, nothing when told to be quiet.

use std::{
    fmt::Display,
    io::{self, IsTerminal, Write},
};

use anstream::{AutoStream, ColorChoice};
use serde::Serialize;

use crate::{CliError, args::Color};

/// Where a command prints to. Results go to the standard output, everything else to the error output.
#[derive(Debug, Clone, Copy)]
pub struct Out {
    json: bool,
    quiet: bool,
    color: ColorChoice,
}

impl Out {
    /// Prints as the global options say.
    pub fn new(json: bool, quiet: bool, color: Color) -> Self {
        let color = match color {
            Color::Auto => ColorChoice::Auto,
            Color::Always => ColorChoice::Always,
            Color::Never => ColorChoice::Never,
        };
        Self { json, quiet, color }
    }

    /// Whether machines read the output.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Whether only what was asked for is printed.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Whether a person looks at the standard output and can answer.
    pub fn is_interactive(&self) -> bool {
        !self.json && io::stdout().is_terminal() && io::stdin().is_terminal()
    }

    /// Whether colours are shown on the standard output.
    pub fn is_colored(&self) -> bool {
        match self.color {
            ColorChoice::Auto => AutoStream::choice(&io::stdout()) != ColorChoice::Never,
            ColorChoice::Never => false,
            ColorChoice::Always | ColorChoice::AlwaysAnsi => true,
        }
    }

    /// Prints a line of the result; styles are left out where they cannot be shown.
    pub fn line(&self, text: impl Display) -> Result<(), CliError> {
        Ok(writeln!(self.stdout(), "{text}")?)
    }

    /// Prints a value as one line of JSON.
    pub fn json(&self, value: &impl Serialize) -> Result<(), CliError> {
        let line = serde_json::to_string(value)?;
        let mut out = io::stdout().lock();
        Ok(writeln!(out, "{line}").and_then(|()| out.flush())?)
    }

    /// Tells something that is not part of the result, unless told to be quiet.
    pub fn note(&self, text: impl Display) -> Result<(), CliError> {
        if self.quiet {
            return Ok(());
        }
        Ok(writeln!(self.stderr(), "{text}")?)
    }

    /// The standard output.
    pub fn stdout(&self) -> AutoStream<io::Stdout> {
        AutoStream::new(io::stdout(), self.color)
    }

    /// The error output.
    pub fn stderr(&self) -> AutoStream<io::Stderr> {
        AutoStream::new(io::stderr(), self.color)
    }

    /// Prints an error with what to do next.
    pub fn error(&self, error: &CliError) {
        // If not even this can be written, the exit code still tells.
        let _ = match (self.json, error.next_step()) {
            (true, hint) => {
                let said = serde_json::json!({ "error": error.to_string(), "hint": hint, "exit": error.code().code() });
                writeln!(io::stderr(), "{said}")
            }
            (false, Some(hint)) => {
                writeln!(
                    self.stderr(),
                    "{}: {error}\n{}: {hint}",
                    crate::style::bad("error"),
                    crate::style::note("hint")
                )
            }
            (false, None) => writeln!(self.stderr(), "{}: {error}", crate::style::bad("error")),
        };
    }
}
