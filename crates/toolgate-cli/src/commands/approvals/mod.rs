//! `toolgate approvals`: what waits for a decision, the decisions, and the standing rules.

mod decide;
mod rules;
mod show;

use clap::{Args, Subcommand};

use crate::{CliError, Cx, Exit, runtime};

/// Shows what waits for a decision, and decides.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate approvals list                          what waits
  toolgate approvals show 7f3a                     one of them in full, with the difference it makes
  toolgate approvals approve 7f3a                  let it run
  toolgate approvals deny 7f3a --reason \"not on Friday\"")]
pub struct ApprovalsArgs {
    /// What to do.
    #[command(subcommand)]
    pub what: ApprovalsCommand,
}

/// What can be done with approvals.
#[derive(Debug, Subcommand)]
pub enum ApprovalsCommand {
    /// List what waits for a decision
    List(ListArgs),
    /// Show one approval in full
    Show(ShowArgs),
    /// Let calls run
    Approve(ApproveArgs),
    /// Refuse calls
    Deny(DenyArgs),
    /// List, add, try out and take back standing rules
    Rules(rules::RulesArgs),
}

/// Lists what waits for a decision, oldest first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate approvals list
  toolgate approvals list --all --session 4c21     also what was decided in one session
  toolgate approvals list --json")]
pub struct ListArgs {
    /// Also those that are decided
    #[arg(long)]
    pub all: bool,
    /// Only those of this session: an id, or a part of one
    #[arg(long, value_name = "SESSION")]
    pub session: Option<String>,
}

/// Shows one approval in full: what will run, why somebody is asked, what it changes, who has voted.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate approvals show 7f3a
  toolgate approvals show approval_01890a5d-ac96-774b-bcce-b302099a8057 --json")]
pub struct ShowArgs {
    /// The approval: an id, or a part of one
    pub id: String,
}

/// Which approvals are decided on, and by whom.
#[derive(Debug, Args)]
pub struct Which {
    /// The approvals: ids, or parts of them
    #[arg(
        value_name = "ID",
        required_unless_present = "all",
        conflicts_with = "all"
    )]
    pub ids: Vec<String>,
    /// All that wait
    #[arg(long)]
    pub all: bool,
    /// Do not ask whether all of them are meant
    #[arg(long, short, requires = "all")]
    pub yes: bool,
    /// Decide in this name instead of your own
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
}

/// Lets calls run that wait for a decision.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate approvals approve 7f3a 9c01
  toolgate approvals approve 7f3a --edit '{\"command\": \"cargo test\"}'
  toolgate approvals approve --all --yes")]
pub struct ApproveArgs {
    /// Which, and by whom.
    #[command(flatten)]
    pub which: Which,
    /// Run it with these arguments instead: JSON, or @FILE with JSON
    #[arg(long, value_name = "JSON", conflicts_with = "all")]
    pub edit: Option<String>,
}

/// Refuses calls that wait for a decision. The model is told, with the reason.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate approvals deny 7f3a --reason \"use the staging database\"
  toolgate approvals deny --all")]
pub struct DenyArgs {
    /// Which, and by whom.
    #[command(flatten)]
    pub which: Which,
    /// Why, for the model and the record
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// Does it.
pub(crate) fn run(args: &ApprovalsArgs, cx: &Cx) -> Result<Exit, CliError> {
    runtime::block_on(async {
        match &args.what {
            ApprovalsCommand::List(args) => show::list(args, cx).await,
            ApprovalsCommand::Show(args) => show::show(args, cx).await,
            ApprovalsCommand::Approve(args) => decide::approve(args, cx).await,
            ApprovalsCommand::Deny(args) => decide::deny(args, cx).await,
            ApprovalsCommand::Rules(args) => rules::run(args, cx).await,
        }
    })
}
