//! Toolgate in a terminal: the program `toolgate`.
//!
//! It puts the parts of Toolgate together and shows what happens. Nothing is decided here that the library does not
//! decide: every call passes [`Stack::run`](toolgate::Stack::run), every screen renders from lifecycle events, and every
//! flag about the gate is a line of `toolgate.toml` ([`settings`]).
//!
//! - [`Cli`] is what can be said, [`run`] does it, [`Exit`] says how it ended.
//! - [`Cx`] is what a command is handed; [`Gate`] is tools, layers, store and keys, put together.
//! - [`Screen`](screen::Screen) is what there is to show: a fold of events that the live display and the terminal UI share.

mod agents;
pub mod args;
pub mod commands;
mod context;
mod cx;
mod error;
mod exit;
pub mod feed;
mod gate;
mod hints;
pub mod ids;
mod model;
mod out;
pub mod paths;
pub mod render;
mod rules;
mod runtime;
pub mod screen;
pub mod settings;
mod style;
mod talk;
mod tools;
mod trust;
mod watch;

use std::{ffi::OsString, process::ExitCode};

use clap::Parser;

pub use args::Cli;
pub use cx::Cx;
pub use error::CliError;
pub use exit::Exit;
pub use gate::{Gate, GateArgs, INSTRUCTIONS};
pub use out::Out;
pub use talk::TalkArgs;

use args::Command;

/// Does what the command line says.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and versions are no mistakes, and go to the standard output.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage.into() } else { Exit::Done.into() };
        }
    };
    let out = Out::new(cli.global.json, cli.global.quiet, cli.global.color);
    match Cx::new(&cli.global).and_then(|cx| dispatch(cli.command, &cx)) {
        Ok(exit) => exit.into(),
        Err(error) => {
            if !error.is_broken_pipe() {
                out.error(&error);
            }
            error.code().into()
        }
    }
}

fn dispatch(command: Command, cx: &Cx) -> Result<Exit, CliError> {
    match command {
        Command::Run(args) => commands::run::run(&args, cx),
        Command::Completions(args) => commands::completions::run(&args, cx),
    }
}
