//! Toolgate in a terminal: the program `toolgate`.
//!
//! It opens a [`Gate`](toolgate::Gate) and displays what happens. The library makes every decision:
//! every call passes [`Stack::run`](toolgate::Stack::run), every screen renders from lifecycle
//! events, and every flag about the gate is a line of `toolgate.toml`.
//!
//! - [`Cli`] is the parsed command line, [`run`] executes it, [`Exit`] is the exit code.
//! - [`CommandContext`] is the context of a command; [`GateArgs`] are the options of its gate.
//! - [`SessionScreen`](crate::show::screen::SessionScreen) is the displayed state: a fold of events that the live display and
//!   the terminal UI share.

pub mod args;
mod assembly;
pub mod commands;
mod demo;
pub mod env;
mod error;
mod exit;
mod hints;
pub mod show;

use std::{ffi::OsString, process::ExitCode};

use clap::Parser;

pub use args::Cli;
pub use assembly::arguments::CallArgs;
pub use assembly::gate_args::{GateArgs, INSTRUCTIONS};
pub use assembly::session_args::SessionArgs;
pub use env::context::CommandContext;
pub use env::output::CommandOutput;
pub use error::CliError;
pub use exit::Exit;

use args::CliCommand;

/// Runs the command that `arguments` name and returns the exit code.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    // Before anything else: a request to stop counts from here on.
    let handlers = env::signals::install_handlers();
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and versions are not errors: clap prints them to the standard output.
            let _ = error.print();
            return if error.use_stderr() {
                Exit::Usage.into()
            } else {
                Exit::Done.into()
            };
        }
    };
    // Apart from the context, so that its own errors are printed in the chosen format, too.
    let out = CommandOutput::new(cli.global.json, cli.global.quiet, cli.global.color);
    let cx = handlers.and_then(|()| CommandContext::new(&cli.global));
    match cx.and_then(|cx| dispatch_command(cli.command, &cx)) {
        Ok(exit) => exit.into(),
        Err(error) => {
            // `toolgate … | head` closes the pipe early; a message about that would only be noise.
            if !error.is_broken_pipe() {
                out.print_error(&error);
            }
            error.exit_status().into()
        }
    }
}

fn dispatch_command(command: CliCommand, cx: &CommandContext) -> Result<Exit, CliError> {
    match command {
        CliCommand::Demo(args) => commands::demo::run(&args, cx),
        CliCommand::Run(args) => commands::run::run(&args, cx),
        CliCommand::Chat(args) => commands::chat::run(&args, cx),
        CliCommand::Init(args) => commands::init::run(&args, cx),
        CliCommand::Approvals(args) => commands::approvals::run(&args, cx),
        CliCommand::Sessions(args) => commands::sessions::run(&args, cx),
        CliCommand::Search(args) => commands::search::run(&args, cx),
        CliCommand::Memory(args) => commands::memory::run(&args, cx),
        CliCommand::Export(args) => commands::export::run(&args, cx),
        CliCommand::Import(args) => commands::import::run(&args, cx),
        CliCommand::Receipts(args) => commands::receipts::run(&args, cx),
        CliCommand::Budget(args) => commands::budget::run(&args, cx),
        CliCommand::Explain(args) => commands::explain::run(&args, cx),
        CliCommand::Stack(args) => commands::stack::run(&args, cx),
        CliCommand::Tools(args) => commands::tools::run(&args, cx),
        CliCommand::Config(args) => commands::config::run(&args, cx),
        CliCommand::Doctor(args) => commands::doctor::run(&args, cx),
        CliCommand::Completions(args) => commands::completions::run(&args, cx),
        CliCommand::Man(args) => commands::man::run(&args, cx),
    }
}
