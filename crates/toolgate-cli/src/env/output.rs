//! The output of a command: text for people, JSON for machines, less with `--quiet`.

use std::{
    fmt::Display,
    io::{self, IsTerminal, Write},
};

use anstream::{AutoStream, ColorChoice};
use serde::Serialize;

use crate::{
    CliError,
    args::ColorMode,
    env::style,
    show::render::{self, StyledLine},
};

/// The output of a command. Results go to the standard output, everything else to the error output.
#[derive(Debug, Clone, Copy)]
pub struct CommandOutput {
    json: bool,
    quiet: bool,
    color: ColorChoice,
}

impl CommandOutput {
    /// Creates the output from the global options.
    pub fn new(json: bool, quiet: bool, color: ColorMode) -> Self {
        let color = match color {
            ColorMode::Auto => ColorChoice::Auto,
            ColorMode::Always => ColorChoice::Always,
            ColorMode::Never => ColorChoice::Never,
        };
        Self { json, quiet, color }
    }

    /// Returns true if the output is JSON.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Returns true if only results are printed.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Returns true if a user at a terminal can read the output and answer.
    pub fn is_interactive(&self) -> bool {
        !self.json && io::stdout().is_terminal() && io::stdin().is_terminal()
    }

    /// Returns true if the output can be drawn again: a user at a terminal that knows escape codes.
    pub fn can_redraw(&self) -> bool {
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        self.is_interactive() && !is_dumb
    }

    /// Returns true if the standard output shows colours.
    pub fn is_colored(&self) -> bool {
        match self.color {
            ColorChoice::Auto => AutoStream::choice(&io::stdout()) != ColorChoice::Never,
            ColorChoice::Never => false,
            ColorChoice::Always | ColorChoice::AlwaysAnsi => true,
        }
    }

    /// Prints a line of the result; styles are stripped where colours are off.
    pub fn print_line(&self, text: impl Display) -> Result<(), CliError> {
        Ok(writeln!(self.stdout(), "{text}")?)
    }

    /// Prints a value as one line of JSON.
    pub fn print_json(&self, value: &impl Serialize) -> Result<(), CliError> {
        let line = serde_json::to_string(value)?;
        // Flushed line by line: a reader of the pipe follows the run as it happens.
        let mut out = io::stdout().lock();
        Ok(writeln!(out, "{line}").and_then(|()| out.flush())?)
    }

    /// Prints a line that is not part of the result to the error output, unless quiet.
    pub fn print_note(&self, text: impl Display) -> Result<(), CliError> {
        if self.quiet {
            return Ok(());
        }
        Ok(writeln!(self.stderr(), "{text}")?)
    }

    /// Prints a line like [`CommandOutput::print_note`], wrapped between words on a terminal.
    pub fn print_wrapped_note(&self, line: &StyledLine, indent: &str) -> Result<(), CliError> {
        let mut rows = render::wrap_for_output(line, indent).into_iter();
        rows.try_for_each(|row| self.print_note(row))
    }

    /// Returns the standard output, which strips styles where colours are off.
    pub fn stdout(&self) -> AutoStream<io::Stdout> {
        AutoStream::new(io::stdout(), self.color)
    }

    /// Returns the error output, which strips styles where colours are off.
    pub fn stderr(&self) -> AutoStream<io::Stderr> {
        AutoStream::new(io::stderr(), self.color)
    }

    /// Prints an error with its hint.
    pub fn print_error(&self, error: &CliError) {
        // Errors quote files and names that others wrote. JSON escapes control characters itself,
        // but not those that turn or hide text.
        let text = style::escape_controls(&error.to_string());
        let hint = error.hint_text().map(style::escape_controls);
        // If the error output is closed too, the exit code still reports the failure.
        let _ = if self.json {
            let exit = error.exit_status().code();
            let said = serde_json::json!({ "error": text, "hint": hint, "exit": exit });
            writeln!(io::stderr(), "{said}")
        } else {
            let hint = hint.map(|hint| format!("\n{}: {hint}", style::note("hint")));
            let hint = hint.unwrap_or_default();
            writeln!(self.stderr(), "{}: {text}{hint}", style::bad("error"))
        };
    }
}
