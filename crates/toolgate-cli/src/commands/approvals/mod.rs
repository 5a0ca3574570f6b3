//! `toolgate approvals`: pending approvals, decisions and standing rules.

mod decide;
mod rules;
mod show;

use clap::{Args, Subcommand};

use crate::{CliError, CommandContext, Exit, env::runtime};

/// Lists pending approvals, approves or denies them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate approvals list                          the pending ones
  toolgate approvals show 7f3a                     one of them in full, with the changes as a diff
  toolgate approvals approve 7f3a                  let the call run
  toolgate approvals deny 7f3a --reason \"not on Friday\"")]
pub struct ApprovalsArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub what: ApprovalsCommand,
}

/// A subcommand of `toolgate approvals`.
#[derive(Debug, Subcommand)]
pub enum ApprovalsCommand {
    /// List pending approvals
    List(ApprovalsListArgs),
    /// Show one approval in full
    Show(ApprovalsShowArgs),
    /// Approve calls
    Approve(ApproveArgs),
    /// Deny calls
    Deny(DenyArgs),
    /// List, add, preview, sign and revoke standing rules
    Rules(rules::RulesArgs),
}

/// Lists pending approvals, oldest first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate approvals list
  toolgate approvals list --all --session 4c21     all approvals of one session
  toolgate approvals list --json")]
pub struct ApprovalsListArgs {
    /// Include approvals that are already decided
    #[arg(long)]
    pub all: bool,
    /// Only those of this session: an id, or a part of one
    #[arg(long, value_name = "SESSION")]
    pub session: Option<String>,
}

/// Shows one approval in full: the call, the reason for the request, the changes, the votes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate approvals show 7f3a
  toolgate approvals show approval_01890a5d-ac96-774b-bcce-b302099a8057 --json")]
pub struct ApprovalsShowArgs {
    /// The approval: an id, or a part of one
    pub id: String,
}

/// The approvals to decide on, and the approver.
#[derive(Debug, Args)]
pub struct DecisionArgs {
    /// The approvals: ids, or parts of them
    #[arg(
        value_name = "ID",
        required_unless_present = "all",
        conflicts_with = "all"
    )]
    pub ids: Vec<String>,
    /// Decide on all pending approvals
    #[arg(long)]
    pub all: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub yes: bool,
    /// Record this name as a claim beside your account, which decides
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
}

/// Approves pending calls, so that they run. Each is printed in full first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate approvals approve 7f3a 9c01
  toolgate approvals approve 7f3a --unseen         without printing it; the decision records that
  toolgate approvals approve 7f3a --edit '{\"command\": \"cargo test\"}'
  toolgate approvals approve --all --yes")]
pub struct ApproveArgs {
    /// The approvals and the approver.
    #[command(flatten)]
    pub which: DecisionArgs,
    /// Run it with these arguments instead: JSON, or @FILE with JSON
    #[arg(long, value_name = "JSON", conflicts_with = "all")]
    pub edit: Option<String>,
    /// Approve without being shown the requests; the decision records that
    #[arg(long)]
    pub unseen: bool,
}

/// Denies pending calls. The model receives the reason.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate approvals deny 7f3a --reason \"use the staging database\"
  toolgate approvals deny --all")]
pub struct DenyArgs {
    /// The approvals and the approver.
    #[command(flatten)]
    pub which: DecisionArgs,
    /// Reason, for the model and the record
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// Runs the subcommand.
pub(crate) fn run(args: &ApprovalsArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    runtime::block_on(async {
        match &args.what {
            ApprovalsCommand::List(args) => show::list_approvals(args, cx).await,
            ApprovalsCommand::Show(args) => show::show_approval(args, cx).await,
            ApprovalsCommand::Approve(args) => decide::run_approve(args, cx).await,
            ApprovalsCommand::Deny(args) => decide::run_deny(args, cx).await,
            ApprovalsCommand::Rules(args) => rules::run_rules(args, cx).await,
        }
    })
}
