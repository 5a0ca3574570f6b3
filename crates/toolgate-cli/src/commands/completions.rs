//! `toolgate completions`: a completion script for a shell.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::{Cli, CliError, CommandContext, Exit};

/// Prints a script that completes commands, options and values in a shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate completions bash > ~/.local/share/bash-completion/completions/toolgate
  toolgate completions zsh  > ~/.zfunc/_toolgate
  toolgate completions fish > ~/.config/fish/completions/toolgate.fish")]
pub struct CompletionsArgs {
    /// The shell
    pub shell: Shell,
}

/// Prints the script.
pub(crate) fn run(args: &CompletionsArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    // Into memory first: the generator panics if it cannot write, for example to a closed pipe.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "toolgate", &mut script);
    cx.out
        .print_line(String::from_utf8_lossy(&script).trim_end())?;
    Ok(Exit::Done)
}
