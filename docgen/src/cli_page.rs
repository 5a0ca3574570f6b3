//! The page of commands, generated from the command line's own help.

use std::fmt::Write;

use clap::{Command, CommandFactory};
use toolgate_cli::{Cli, Exit};

const HEAD: &str = "\
# The command line

Written from the program's own help by `cargo xtask generate`. `toolgate COMMAND --help` says the same, and
`toolgate man --to DIR` writes it as manual pages.

Every command prints text for people, and with `--json` one JSON value per line for machines. Results go to the standard
output, everything else to the error output. An error says what went wrong and, after `hint:`, what to do next.

";

/// Renders the whole page.
pub(crate) fn page() -> String {
    let mut program = Cli::command().term_width(WIDTH);
    program.build();
    let mut page = HEAD.to_owned();
    let mut contents = String::new();
    let mut sections = String::new();
    for command in program.get_subcommands() {
        entry(program.get_name(), command, 0, &mut contents, &mut sections);
    }
    page.push_str("| Command | |\n|---|---|\n");
    let _ = write!(page, "{contents}\n{}\n", exits());
    let _ = write!(page, "## toolgate\n\n```text\n{}\n```\n", help(&program));
    page.push_str(&sections);
    page
}

const WIDTH: usize = 100;

/// Renders a command and its subcommands: a line in the contents, and a section.
fn entry(
    above: &str,
    command: &Command,
    depth: usize,
    contents: &mut String,
    sections: &mut String,
) {
    let words = format!("{above} {}", command.get_name());
    let about = command
        .get_about()
        .map(ToString::to_string)
        .unwrap_or_default();
    let _ = writeln!(
        contents,
        "| [`{words}`](#{}) | {about} |",
        words.replace(' ', "-")
    );
    let heading = if depth == 0 { "##" } else { "###" };
    let _ = write!(
        sections,
        "\n{heading} {words}\n\n```text\n{}\n```\n",
        help(&without_globals(command))
    );
    for inner in command.get_subcommands() {
        entry(&words, inner, depth + 1, contents, sections);
    }
}

fn help(command: &Command) -> String {
    let text = command.clone().term_width(WIDTH).render_help().to_string();
    text.lines()
        .map(str::trim_end)
        .collect::<Vec<_>>()
        .join("\n")
        .trim_end()
        .to_owned()
}

/// Returns the command without the global options, which the first section has.
fn without_globals(command: &Command) -> Command {
    let hidden = |argument: clap::Arg| {
        let global = argument.get_help_heading() == Some(GLOBAL);
        argument.hide(global)
    };
    command.clone().mut_args(hidden)
}

const GLOBAL: &str = "Global options";

/// Renders the exit codes.
fn exits() -> String {
    let mut table = "## Exit codes\n\n| Code | Means |\n|---|---|\n".to_owned();
    for exit in Exit::ALL {
        let _ = writeln!(table, "| {} | {} |", exit.code(), exit.meaning());
    }
    table
}
