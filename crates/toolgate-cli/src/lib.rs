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
mod arguments;
pub mod commands;
mod config_file;
mod confirm;
mod context;
mod cx;
mod demo;
mod error;
mod exit;
mod family;
pub mod feed;
mod gate;
mod hints;
pub mod ids;
mod model;
mod out;
pub mod paths;
mod preview;
pub mod render;
mod rules;
mod runtime;
pub mod screen;
pub mod settings;
mod style;
mod table;
mod talk;
mod times;
mod tools;
mod trust;
pub mod tui;
mod watch;

use std::{ffi::OsString, process::ExitCode};

use clap::Parser;

pub use args::Cli;
pub use arguments::CallArgs;
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
            return if error.use_stderr() {
                Exit::Usage.into()
            } else {
                Exit::Done.into()
            };
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
        Command::Demo(args) => commands::demo::run(&args, cx),
        Command::Run(args) => commands::run::run(&args, cx),
        Command::Chat(args) => commands::chat::run(&args, cx),
        Command::Approvals(args) => commands::approvals::run(&args, cx),
        Command::Sessions(args) => commands::sessions::run(&args, cx),
        Command::Receipts(args) => commands::receipts::run(&args, cx),
        Command::Budget(args) => commands::budget::run(&args, cx),
        Command::Explain(args) => commands::explain::run(&args, cx),
        Command::Stack(args) => commands::stack::run(&args, cx),
        Command::Tools(args) => commands::tools::run(&args, cx),
        Command::Config(args) => commands::config::run(&args, cx),
        Command::Doctor(args) => commands::doctor::run(&args, cx),
        Command::Completions(args) => commands::completions::run(&args, cx),
        Command::Man(args) => commands::man::run(&args, cx),
    }
}
