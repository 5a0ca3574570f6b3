//! The command line: what can be said to `toolgate`, and what `--help` teaches.

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

use crate::commands;

/// Runs agents whose every tool call passes one gate: checked, decided on, bounded, recorded.
#[derive(Debug, Parser)]
#[command(
    name = "toolgate",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    disable_help_flag = true,
    disable_version_flag = true,
    max_term_width = 100,
    after_help = "\
Examples:
  toolgate demo                              see what it does, without a key
  toolgate run \"why does the test fail?\"     let an agent work in this directory
  git diff | toolgate run \"review this\"      with something to read
  toolgate approvals list                    what waits for a decision

Where nothing is said, sessions are kept in one SQLite file below ~/.local/share/toolgate."
)]
pub struct Cli {
    /// What holds for every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What holds for every command.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Print JSON for machines, one value per line
    #[arg(long, global = true)]
    pub json: bool,
    /// Print nothing but the result
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// When to use colours
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub color: Color,
    /// Another configuration than the project's own
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "TOOLGATE_CONFIG",
        hide_env_values = true
    )]
    pub config: Option<PathBuf>,
    /// The database: a path, sqlite:PATH, postgres://… or memory:
    #[arg(
        long,
        global = true,
        value_name = "ADDRESS",
        env = "TOOLGATE_DB",
        hide_env_values = true
    )]
    pub db: Option<String>,
    /// Work in this directory instead of the current one
    #[arg(long, short = 'C', global = true, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Print this help
    // The long form, with a line between any two options, fits no screen.
    #[arg(long, short, global = true, action = ArgAction::HelpShort)]
    pub help: Option<bool>,
    /// Print the version
    #[arg(long, short = 'V', global = true, action = ArgAction::Version)]
    pub version: Option<bool>,
}

/// When colours are used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Let an agent work on a task
    Run(Box<commands::run::RunArgs>),
    /// Talk with an agent in the terminal
    Chat(commands::chat::ChatArgs),
    /// Show what Toolgate does, in a temporary project, without a key
    Demo(commands::demo::DemoArgs),
    /// Show what waits for a decision, and decide
    Approvals(commands::approvals::ApprovalsArgs),
    /// Show what was done in sessions, take changes back, hide or erase sessions
    Sessions(commands::sessions::SessionsArgs),
    /// List, show, verify and export the receipts of calls
    Receipts(commands::receipts::ReceiptsArgs),
    /// Show what is left of budgets, and what models cost
    Budget(commands::budget::BudgetArgs),
    /// Say what the gate would do with a call, and why, without doing it
    Explain(commands::explain::ExplainArgs),
    /// Show the layers that every call passes, and check their order
    Stack(commands::stack::StackArgs),
    /// List the tools that agents have here, or call one by hand
    Tools(commands::tools::ToolsArgs),
    /// Check, show, write and trust the configuration
    Config(commands::config::ConfigArgs),
    /// Look for what keeps Toolgate from working here, and say how to mend it
    Doctor(commands::doctor::DoctorArgs),
    /// Print a script that completes commands in a shell
    Completions(commands::completions::CompletionsArgs),
    /// Write the manual pages
    Man(commands::man::ManArgs),
}
