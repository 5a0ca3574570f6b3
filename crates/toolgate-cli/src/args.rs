//! The command line of `toolgate`: commands, global options and their `--help` texts.

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
  toolgate init                              set up this project: model, policy, checks
  toolgate run \"why does the test fail?\"     let an agent work in this directory
  git diff | toolgate run \"review this\"      with input from a pipe
  toolgate approvals list                    the pending approval requests

By default, sessions are stored in one SQLite file below ~/.local/share/toolgate."
)]
pub struct Cli {
    /// The options of every command.
    #[command(flatten)]
    pub global: GlobalArgs,
    /// The command to run.
    #[command(subcommand)]
    pub command: CliCommand,
}

/// The options of every command.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub struct GlobalArgs {
    /// Print JSON for machines, one value per line
    #[arg(long, global = true)]
    pub json: bool,
    /// Print nothing but the result
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// Colour the output
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub color: ColorMode,
    /// Use this configuration instead of the project's
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
    // The long form puts an empty line between any two options, so that no page fits on a screen.
    #[arg(long, short, global = true, action = ArgAction::HelpShort)]
    pub help: Option<bool>,
    /// Print the version
    #[arg(long, short = 'V', global = true, action = ArgAction::Version)]
    pub version: Option<bool>,
}

/// The setting of `--color`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ColorMode {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// A command of the program.
#[derive(Debug, Subcommand)]
pub enum CliCommand {
    /// Let an agent work on a task
    Run(Box<commands::run::RunArgs>),
    /// Chat with an agent in the terminal
    Chat(commands::chat::ChatArgs),
    /// Show what Toolgate does, in a temporary project, without a key
    Demo(commands::demo::DemoArgs),
    /// Write a configuration for the model and the policy that fit, and check the set-up
    Init(commands::init::InitArgs),
    /// List pending approvals, approve or deny them
    Approvals(commands::approvals::ApprovalsArgs),
    /// Show and resume sessions, undo their file changes, hide or erase them
    Sessions(commands::sessions::SessionsArgs),
    /// Find messages, calls and results of all sessions
    Search(Box<commands::search::SearchArgs>),
    /// List, add, find, change and forget memories, which later sessions recall
    Memory(commands::memory::MemoryArgs),
    /// Write sessions to a file: Markdown, an HTML page, or a lossless archive
    Export(commands::export::ExportArgs),
    /// Import archives of sessions, or the sessions of other agents
    Import(commands::import::ImportArgs),
    /// List, show, verify and export the receipts of calls
    Receipts(commands::receipts::ReceiptsArgs),
    /// Show what is left of budgets, and what models cost
    Budget(commands::budget::BudgetArgs),
    /// Explain what the gate would do with a call, and why, without executing it
    Explain(commands::explain::ExplainArgs),
    /// Show the layers that every call passes, and check their order
    Stack(commands::stack::StackArgs),
    /// List the tools that agents have here, or call one by hand
    Tools(commands::tools::ToolsArgs),
    /// Check, show, write and trust the configuration
    Config(commands::config::ConfigArgs),
    /// Find problems that keep Toolgate from working here, and suggest fixes
    Doctor(commands::doctor::DoctorArgs),
    /// Print a completion script for a shell
    Completions(commands::completions::CompletionsArgs),
    /// Write the manual pages
    Man(commands::man::ManArgs),
}
