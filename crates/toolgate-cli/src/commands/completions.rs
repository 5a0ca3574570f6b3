//! `toolgate completions`: a script that completes commands in a shell.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::{Cli, CliError, Cx, Exit};

/// Prints a script that completes commands, options and words in a shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate completions bash > ~/.local/share/bash-completion/completions/toolgate
  toolgate completions zsh  > ~/.zfunc/_toolgate
  toolgate completions fish > ~/.config/fish/completions/toolgate.fish")]
pub struct CompletionsArgs {
    /// For which shell
    pub shell: Shell,
}

/// Prints the script.
pub(crate) fn run(args: &CompletionsArgs, cx: &Cx) -> Result<Exit, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "toolgate", &mut script);
    cx.out.line(String::from_utf8_lossy(&script).trim_end())?;
    Ok(Exit::Done)
}
