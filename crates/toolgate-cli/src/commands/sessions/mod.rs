//! `toolgate sessions`: lists, shows and resumes sessions, undoes their changes, hides or erases
//! them.

mod delete;
mod list;
mod rename;
mod show;
mod undo;

use clap::{Args, Subcommand};
use toolgate::search::SearchTime;

pub(crate) use self::rename::parse_title;
use super::run::RunArgs;
use crate::{CliError, CommandContext, Exit, SessionArgs, env::runtime};

/// Shows and resumes sessions, undoes their file changes, hides or erases them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate sessions list                 the newest ones
  toolgate sessions show 4c21            its messages and calls
  toolgate sessions undo 4c21            undo its file changes
  toolgate sessions delete 4c21          hide it; `restore` shows it again")]
pub struct SessionsArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub what: SessionsCommand,
}

/// A subcommand of `toolgate sessions`.
#[derive(Debug, Subcommand)]
pub enum SessionsCommand {
    /// List sessions, the newest last
    List(SessionsListArgs),
    /// Show the messages and calls of a session
    Show(SessionShowArgs),
    /// Resume a session
    Resume(Box<SessionResumeArgs>),
    /// Undo a session's file changes
    Undo(SessionUndoArgs),
    /// Give a session a title
    Rename(SessionRenameArgs),
    /// Hide sessions, or erase them permanently
    Delete(SessionDeleteArgs),
    /// Restore hidden sessions
    Restore(SessionRestoreArgs),
}

/// Lists sessions, the newest last.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate sessions list
  toolgate sessions list --all --limit 100   also hidden ones and those of agents
  toolgate sessions list --unfinished        running, suspended, or their process was lost
  toolgate sessions list --label tenant=acme
  toolgate sessions list --model gpt-5       those whose last reply came from it
  toolgate sessions list --json")]
pub struct SessionsListArgs {
    /// Include hidden sessions and those of agents
    #[arg(long)]
    pub all: bool,
    /// Only sessions whose last run has not ended
    #[arg(long)]
    pub unfinished: bool,
    /// Only sessions of this principal
    #[arg(long, value_name = "NAME")]
    pub principal: Option<String>,
    /// Only sessions with this label; can be repeated
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = list::parse_label)]
    pub labels: Vec<(String, String)>,
    /// Only sessions whose last reply came from this model: provider:name, or only the name
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Only sessions in this directory, or one whose path ends so
    #[arg(long, value_name = "DIR")]
    pub project: Option<String>,
    /// Only sessions last used at this time or later: a date (2026-01-31), a time, or an age (3d)
    #[arg(long, value_name = "TIME", value_parser = list::parse_search_time)]
    pub after: Option<SearchTime>,
    /// Only sessions last used before this time
    #[arg(long, value_name = "TIME", value_parser = list::parse_search_time)]
    pub before: Option<SearchTime>,
    /// Only sessions with this status, as in the JSON: done, waiting, running, lost, failed …
    #[arg(long, value_name = "STATUS")]
    pub status: Option<String>,
    /// Only sessions whose title contains these words
    #[arg(long, value_name = "WORDS")]
    pub title: Option<String>,
    /// Maximum number of sessions
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub limit: usize,
}

/// Shows the messages and calls of a session, with those of its agents.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate sessions show 4c21
  toolgate sessions show 4c21 --events     one line per event
  toolgate sessions show 4c21 --operator   with the causes of failed calls
  toolgate sessions show 4c21 --json       the events as they are stored")]
pub struct SessionShowArgs {
    /// The session: an id, or a part of one
    pub id: String,
    /// Print one line per event
    #[arg(long)]
    pub events: bool,
    /// Print the cause of each failed call: error chain, panic message, stack. The model never reads it
    #[arg(long, conflicts_with = "events")]
    pub operator: bool,
}

/// Resumes a session in its own directory, with the model and the options that it was started with,
/// like `toolgate run --resume`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate sessions resume 4c21                      continue where it stopped
  toolgate sessions resume 4c21 \"and now the docs\"   continue with a new message")]
pub struct SessionResumeArgs {
    /// The session: an id, or a part of one
    pub id: String,
    /// The next message
    #[arg(value_name = "TASK")]
    pub task: Vec<String>,
    /// The model and the limits.
    #[command(flatten)]
    pub talk: SessionArgs,
}

/// Undoes the changes of a session's file tools, newest first: through the gate, with a receipt.
///
/// A file is restored only if it is still as the session left it. The effects of shell commands
/// cannot be undone.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate sessions undo 4c21 --dry-run    show what would be undone
  toolgate sessions undo 4c21              confirm, then undo
  toolgate sessions undo 4c21 --call 9f02  only the changes of one call")]
pub struct SessionUndoArgs {
    /// The session: an id, or a part of one
    pub id: String,
    /// Undo only the changes of this call: an id, or a part of one
    #[arg(long, value_name = "CALL")]
    pub call: Option<String>,
    /// Show what would be undone, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Restore files even if they were changed since; later changes are lost
    #[arg(long)]
    pub force: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub yes: bool,
}

/// Gives a session a title, which `sessions list` shows and `search` finds.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate sessions rename 4c21 Certificate of the shop")]
pub struct SessionRenameArgs {
    /// The session: an id, or a part of one
    pub id: String,
    /// The title
    #[arg(required = true, value_name = "TITLE")]
    pub title: Vec<String>,
}

/// Hides sessions, or erases them permanently. Receipts stay either way.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate sessions delete 4c21 77aa       hide them; `toolgate sessions restore` shows them again
  toolgate sessions delete 4c21 --erase    erase it permanently, after confirmation")]
pub struct SessionDeleteArgs {
    /// The sessions: ids, or parts of them
    #[arg(required = true, value_name = "ID")]
    pub ids: Vec<String>,
    /// Erase them permanently instead of hiding them
    #[arg(long)]
    pub erase: bool,
    /// Also delete the memories that came from them
    #[arg(long, requires = "erase")]
    pub memories: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub yes: bool,
}

/// Restores hidden sessions.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate sessions list --all             shows which are hidden
  toolgate sessions restore 4c21")]
pub struct SessionRestoreArgs {
    /// The sessions: ids, or parts of them
    #[arg(required = true, value_name = "ID")]
    pub ids: Vec<String>,
}

/// Runs the subcommand.
pub(crate) fn run(args: &SessionsArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    match &args.what {
        SessionsCommand::List(args) => runtime::block_on(list::list_sessions(args, cx)),
        SessionsCommand::Show(args) => runtime::block_on(show::show_session(args, cx)),
        SessionsCommand::Resume(args) => resume_session(args, cx),
        SessionsCommand::Undo(args) => runtime::block_on(undo::run_undo(args, cx)),
        SessionsCommand::Rename(args) => runtime::block_on(rename::rename_session(args, cx)),
        SessionsCommand::Delete(args) => runtime::block_on(delete::delete_sessions(args, cx)),
        SessionsCommand::Restore(args) => runtime::block_on(delete::restore_sessions(args, cx)),
    }
}

fn resume_session(args: &SessionResumeArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    let SessionResumeArgs { id, task, talk } = args;
    let run = RunArgs {
        task: task.clone(),
        resume: Some(id.clone()),
        talk: talk.clone(),
        ..RunArgs::default()
    };
    super::run::run(&run, cx)
}
