//! `toolgate sessions`: what was done, taking it up again, taking it back, and being rid of it.

mod delete;
mod list;
mod show;
mod undo;

use clap::{Args, Subcommand};

use super::run::RunArgs;
use crate::{CliError, Cx, Exit, TalkArgs, ids, runtime};

/// Shows what was done in sessions, takes changes back, and hides or erases sessions.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate sessions list                 the newest ones
  toolgate sessions show 4c21            what was said and called
  toolgate sessions undo 4c21            take back what it changed in files
  toolgate sessions delete 4c21          hide it; `restore` brings it back")]
pub struct SessionsArgs {
    /// What to do.
    #[command(subcommand)]
    pub what: SessionsCommand,
}

/// What can be done with sessions.
#[derive(Debug, Subcommand)]
pub enum SessionsCommand {
    /// List sessions, the newest last
    List(ListArgs),
    /// Show what was said and called in a session
    Show(ShowArgs),
    /// Go on with a session
    Resume(Box<ResumeArgs>),
    /// Take back what a session changed in files
    Undo(UndoArgs),
    /// Hide sessions, or erase them for good
    Delete(DeleteArgs),
    /// Bring hidden sessions back
    Restore(RestoreArgs),
}

/// Lists sessions, the newest last.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate sessions list
  toolgate sessions list --all --limit 100   also hidden ones and those of agents
  toolgate sessions list --json")]
pub struct ListArgs {
    /// Also hidden ones, and those of agents
    #[arg(long)]
    pub all: bool,
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub limit: usize,
}

/// Shows what was said and called in a session, with what its agents did.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate sessions show 4c21
  toolgate sessions show 4c21 --events     every event in a line
  toolgate sessions show 4c21 --json       the events as they are stored")]
pub struct ShowArgs {
    /// The session: an id, or a part of one
    pub id: String,
    /// Every event in a line
    #[arg(long)]
    pub events: bool,
}

/// Goes on with a session where it stopped, in the directory that it works in, like `toolgate run --resume`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate sessions resume 4c21                      go on
  toolgate sessions resume 4c21 \"and now the docs\"   say more")]
pub struct ResumeArgs {
    /// The session: an id, or a part of one
    pub id: String,
    /// What to say
    #[arg(value_name = "TASK")]
    pub task: Vec<String>,
    /// Which model, and how far it may go.
    #[command(flatten)]
    pub talk: TalkArgs,
}

/// Takes back what the file tools of a session changed, newest first: through the gate, with a receipt.
///
/// Files are put back only where they are still as the session left them. What a shell command did cannot be taken back.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate sessions undo 4c21 --dry-run    show what would be taken back
  toolgate sessions undo 4c21              ask, then take it back
  toolgate sessions undo 4c21 --call 9f02  only what one call did")]
pub struct UndoArgs {
    /// The session: an id, or a part of one
    pub id: String,
    /// Only what this call changed: an id, or a part of one
    #[arg(long, value_name = "CALL")]
    pub call: Option<String>,
    /// Show what would be taken back, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Put files back even if they were changed since; what was changed since is lost
    #[arg(long)]
    pub force: bool,
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
}

/// Hides sessions, or erases them for good. Receipts stay either way.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate sessions delete 4c21 77aa       hide them; `toolgate sessions restore` brings them back
  toolgate sessions delete 4c21 --erase    for good, after a question")]
pub struct DeleteArgs {
    /// The sessions: ids, or parts of them
    #[arg(required = true, value_name = "ID")]
    pub ids: Vec<String>,
    /// Remove them for good instead of hiding them
    #[arg(long)]
    pub erase: bool,
    /// Do not ask before erasing
    #[arg(long, short)]
    pub yes: bool,
}

/// Brings hidden sessions back.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate sessions list --all             shows which are hidden
  toolgate sessions restore 4c21")]
pub struct RestoreArgs {
    /// The sessions: ids, or parts of them
    #[arg(required = true, value_name = "ID")]
    pub ids: Vec<String>,
}

/// Does it.
pub(crate) fn run(args: &SessionsArgs, cx: &Cx) -> Result<Exit, CliError> {
    match &args.what {
        SessionsCommand::List(args) => runtime::block_on(list::run(args, cx)),
        SessionsCommand::Show(args) => runtime::block_on(show::run(args, cx)),
        SessionsCommand::Resume(args) => resume(args, cx),
        SessionsCommand::Undo(args) => runtime::block_on(undo::run(args, cx)),
        SessionsCommand::Delete(args) => runtime::block_on(delete::delete(args, cx)),
        SessionsCommand::Restore(args) => runtime::block_on(delete::restore(args, cx)),
    }
}

/// A run, in the directory of the session.
fn resume(args: &ResumeArgs, cx: &Cx) -> Result<Exit, CliError> {
    let ResumeArgs { id, task, talk } = args;
    let there = runtime::block_on(async {
        let store = cx.store().await?;
        ids::workspace_of(&store, ids::find_session(&store, id).await?).await
    })?;
    let mut there_cx = cx.clone();
    there_cx.paths.workspace = there.unwrap_or_else(|| cx.paths.workspace.clone());
    let run = RunArgs {
        task: task.clone(),
        resume: Some(id.clone()),
        talk: talk.clone(),
        ..RunArgs::default()
    };
    super::run::run(&run, &there_cx)
}
