//! `toolgate receipts`: the evidence of every call, and the verification of its chain.

mod export;
mod restore;
mod verify;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;
use toolgate::{
    EvidenceService, Status,
    layers::{Ledger, LedgerError, ReceiptFilter, SealedReceipt},
    store::StoreHandle,
    value::{CallId, Principal, Timestamp, ToolName},
};

use crate::{
    CliError, CommandContext, Exit,
    env::{ids, runtime, style, times},
    show::render::{StyledLine, TextTable},
};

/// Lists, shows, verifies and exports receipts: one for each call, also for calls that were blocked
/// or denied.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate receipts verify                             check that the chain is intact
  toolgate receipts list --tool run_shell --status ok
  toolgate receipts show 9f02
  toolgate receipts export receipts.jsonl && toolgate receipts verify receipts.jsonl")]
pub struct ReceiptsArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub what: ReceiptsCommand,
}

/// A subcommand of `toolgate receipts`.
#[derive(Debug, Subcommand)]
pub enum ReceiptsCommand {
    /// List receipts, the newest last
    List(ReceiptsListArgs),
    /// Show the receipt of a call
    Show(ReceiptsShowArgs),
    /// Recompute the chain and report whether it is intact
    Verify(ReceiptsVerifyArgs),
    /// Accept that records are lost because a backup was restored
    AcceptRestore(ReceiptsAcceptRestoreArgs),
    /// Write the chain as lines of JSON
    Export(ReceiptsExportArgs),
}

/// The filter of receipts.
#[derive(Debug, Default, Args)]
pub struct ReceiptFilterArgs {
    /// Only those of this session: an id, or a part of one
    #[arg(long, value_name = "SESSION")]
    pub session: Option<String>,
    /// Only those of this tool
    #[arg(long, value_name = "TOOL")]
    pub tool: Option<String>,
    /// Only calls that settled with this status, such as ok or consent_denied
    #[arg(long, value_name = "STATUS")]
    pub status: Option<Status>,
    /// Only calls that this person approved
    #[arg(long, value_name = "NAME")]
    pub approver: Option<String>,
    /// Only calls that ended at this time or later
    #[arg(long, value_name = "TIME", value_parser = times::parse_time)]
    pub from: Option<Timestamp>,
    /// Only calls that ended before this time
    #[arg(long, value_name = "TIME", value_parser = times::parse_time)]
    pub until: Option<Timestamp>,
}

/// Lists receipts, the newest last.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate receipts list --session 4c21
  toolgate receipts list --from 2026-11-16 --status ok --json")]
pub struct ReceiptsListArgs {
    /// The filter.
    #[command(flatten)]
    pub filter: ReceiptFilterArgs,
    /// Maximum number of receipts, the newest ones
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub limit: usize,
}

/// Shows the receipt of a call.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate receipts show 9f02
  toolgate receipts show 9f02 --json")]
pub struct ReceiptsShowArgs {
    /// The call: an id, or a part of one
    pub id: String,
}

/// Recomputes the chain from its first record and reports whether it is intact.
///
/// Without a file it is the chain in the database. It is compared with the checkpoints that your
/// keys have signed, with the head that was last signed on this machine, and with the calls that
/// settled: each has to have its receipt. Prints what was not checked.
///
/// Exits with 7 if the verification fails, and names the first bad record; with 8 if the receipts
/// are consistent and no signature confirms any of them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate receipts verify
  toolgate receipts verify receipts.jsonl
  toolgate receipts verify receipts.jsonl --checkpoints kept.jsonl --key 3b6a…")]
pub struct ReceiptsVerifyArgs {
    /// A file that `export` has written
    pub file: Option<PathBuf>,
    /// Signed checkpoints that were stored elsewhere, one JSON object per line
    #[arg(long, value_name = "FILE")]
    pub checkpoints: Option<PathBuf>,
    /// Another public key whose checkpoints are trusted, besides your own: 64 hex digits
    #[arg(long, value_name = "KEY", value_parser = verify::parse_public_key)]
    pub key: Vec<PublicKey>,
}

/// Accepts that records are lost because a backup of the database was restored.
///
/// The last signed head of each ledger is stored beside the keys. After a restore it is not in
/// the ledger any more, and `verify` exits with 7. This command shows what is lost, asks, and
/// stores a signed note with your account. It accepts nothing else: a chain that was changed still
/// fails.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate receipts accept-restore
  toolgate receipts accept-restore --yes --json")]
pub struct ReceiptsAcceptRestoreArgs {
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub yes: bool,
}

/// The public half of a key that signs checkpoints.
pub type PublicKey = [u8; 32];

/// Writes the chain as lines of JSON. Receipts outside the filter are included in outline, so that
/// the file can be verified.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate receipts export receipts.jsonl
  toolgate receipts export --session 4c21 > session.jsonl")]
pub struct ReceiptsExportArgs {
    /// The file to write, by default the standard output; an existing file is not overwritten
    pub file: Option<PathBuf>,
    /// The filter.
    #[command(flatten)]
    pub filter: ReceiptFilterArgs,
}

/// Runs the subcommand.
pub(crate) fn run(args: &ReceiptsArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    runtime::block_on(async {
        match &args.what {
            ReceiptsCommand::List(args) => list_receipts(args, cx).await,
            ReceiptsCommand::Show(args) => show_receipt(args, cx).await,
            ReceiptsCommand::Verify(args) => verify::verify_receipts(args, cx).await,
            ReceiptsCommand::AcceptRestore(args) => restore::accept_restore(args, cx).await,
            ReceiptsCommand::Export(args) => export::export_receipts(args, cx).await,
        }
    })
}

impl ReceiptFilterArgs {
    async fn to_filter(&self, store: &StoreHandle) -> Result<ReceiptFilter, CliError> {
        let session = match &self.session {
            // An erased session still has receipts, so a whole id is not looked up.
            Some(text) => match text.parse() {
                Ok(whole) => Some(whole),
                Err(_) => Some(ids::find_session(store, text).await?),
            },
            None => None,
        };
        Ok(ReceiptFilter {
            from: self.from,
            until: self.until,
            tool: self.tool.as_deref().map(ToolName::from),
            status: self.status,
            session,
            approver: self.approver.as_deref().map(Principal::from),
            ..ReceiptFilter::default()
        })
    }
}

async fn list_receipts(args: &ReceiptsListArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    let store = cx.open_store().await?;
    let filter = args.filter.to_filter(&store).await?;
    let receipts = load_receipts(&Ledger::main(store), filter).await?;
    // The ledger lists from its first record, so the newest are at the end.
    let newest = &receipts[receipts.len().saturating_sub(args.limit)..];
    if cx.out.is_json() {
        newest
            .iter()
            .try_for_each(|sealed| cx.out.print_json(&receipt_json(sealed)))?;
        return Ok(Exit::Done);
    }
    let mut table = TextTable::for_output().with_head([
        "record",
        "call",
        "tool",
        &times::zoned_head("ended"),
        "session",
        "status",
        "approved by",
    ]);
    for SealedReceipt {
        counter, receipt, ..
    } in newest
    {
        let approval = receipt.approval.as_ref();
        let voters = approval.map(|approval| approval.by.iter().chain(&approval.with));
        let voters = voters.map(|voters| voters.map(Principal::as_str).collect::<Vec<_>>());
        table.add_row([
            counter.to_string().into(),
            style::bold(ids::short_id(receipt.invocation_id)),
            receipt.tool_name.as_str().into(),
            times::format_column_time(receipt.ended_at).into(),
            ids::short_id(receipt.session_id).into(),
            status_label(receipt.status),
            voters.unwrap_or_default().join(", ").into(),
        ]);
    }
    if table.is_empty() {
        cx.out.print_note("there are no such receipts")?
    } else {
        cx.out.print_line(table)?
    }
    Ok(Exit::Done)
}

/// Loads all receipts that match a filter, page by page.
async fn load_receipts(
    ledger: &Ledger,
    mut filter: ReceiptFilter,
) -> Result<Vec<SealedReceipt>, CliError> {
    let mut all = Vec::new();
    loop {
        let page = ledger
            .list_receipts(&filter)
            .await
            .map_err(verification_error)?;
        all.extend(page.receipts);
        match page.next {
            Some(next) => filter.after = next,
            None => return Ok(all),
        }
    }
}

async fn show_receipt(args: &ReceiptsShowArgs, cx: &CommandContext) -> Result<Exit, CliError> {
    let ledger = Ledger::main(cx.open_store().await?);
    let unknown = || {
        CliError::usage(format!("there is no receipt of a call {}", args.id))
            .with_hint("`toolgate receipts list` shows them")
    };
    let call: CallId = match args.id.parse() {
        Ok(whole) => whole,
        Err(_) => {
            // Only a whole id can be looked up; a part is compared with all of them.
            let all = load_receipts(&ledger, ReceiptFilter::default()).await?;
            let calls = all.iter().map(|sealed| sealed.receipt.invocation_id);
            ids::find_id(&args.id, "call", calls)?.ok_or_else(unknown)?
        }
    };
    let sealed = ledger
        .find_receipt(call)
        .await
        .map_err(verification_error)?
        .ok_or_else(unknown)?;
    if cx.out.is_json() {
        cx.out.print_json(&receipt_json(&sealed))?
    } else {
        cx.out
            .print_line(style::escape_controls(&serde_json::to_string_pretty(
                &receipt_json(&sealed),
            )?))?
    }
    Ok(Exit::Done)
}

fn receipt_json(sealed: &SealedReceipt) -> serde_json::Value {
    json!({ "record": sealed.counter, "hash": sealed.hash, "uri": sealed.uri, "receipt": sealed.receipt })
}

/// Gives a failed verification its own exit code and hint.
fn verification_error(error: LedgerError) -> CliError {
    let hint = match &error {
        LedgerError::Tampered(_) | LedgerError::Line { .. } => {
            "do not rely on the chain from that record on; compare it with an earlier export or backup"
        }
        LedgerError::HeadLost(_) => {
            "if you have restored a backup, `toolgate receipts accept-restore` shows what is lost and asks"
        }
        _ => return error.into(),
    };
    CliError::from(error)
        .while_doing("the verification of receipts failed")
        .with_exit(Exit::VerificationFailed)
        .with_hint(hint)
}

/// What became of the receipts at the end of a command that made calls.
pub(crate) enum SignedReceipts {
    /// There are none.
    Nothing,
    /// Those since the last checkpoint were verified, and the head of the chain is signed.
    Signed {
        /// The number of receipts in the chain.
        count: u64,
        /// The calls of the receipts since a position in the chain.
        new_calls: Vec<CallId>,
    },
    /// The verification failed, and nothing was signed.
    Broken(CliError),
    /// The head of the chain could not be remembered beside the keys, so it is not signed. What ran is
    /// stored and stays done.
    Unsigned(CliError),
}

impl SignedReceipts {
    /// Verifies the new receipts and signs the chain.
    ///
    /// # Errors
    ///
    /// Fails if the store or the keys cannot be used.
    pub(crate) async fn sign(evidence: &EvidenceService) -> Result<Self, CliError> {
        Self::sign_since(evidence, None).await
    }

    /// Verifies the new receipts and signs the chain; lists the calls of those after the head that
    /// the chain had before.
    ///
    /// # Errors
    ///
    /// Fails like [`SignedReceipts::sign`].
    pub(crate) async fn sign_since(
        evidence: &EvidenceService,
        before: Option<(&Ledger, u64)>,
    ) -> Result<Self, CliError> {
        let error = match evidence.sign_checkpoint().await {
            Ok(None) => return Ok(Self::Nothing),
            Ok(Some(checkpoint)) => {
                let new_calls = match before {
                    Some((ledger, after)) => {
                        let filter = ReceiptFilter {
                            after,
                            ..ReceiptFilter::default()
                        };
                        let new = load_receipts(ledger, filter).await?.into_iter();
                        new.map(|sealed| sealed.receipt.invocation_id).collect()
                    }
                    None => Vec::new(),
                };
                let count = checkpoint.counter;
                return Ok(Self::Signed { count, new_calls });
            }
            Err(error) => error,
        };
        let is_file = matches!(error, LedgerError::Io(_));
        let error = verification_error(error);
        match error.exit_status() {
            Exit::VerificationFailed => Ok(Self::Broken(error)),
            _ if is_file => Ok(Self::Unsigned(error.with_hint(UNSIGNED_HINT))),
            _ => Err(error),
        }
    }

    /// Returns what went wrong.
    pub(crate) fn error(&self) -> Option<&CliError> {
        match self {
            Self::Nothing | Self::Signed { .. } => None,
            Self::Broken(error) | Self::Unsigned(error) => Some(error),
        }
    }

    /// Returns the exit code that replaces that of a command which would end with `exit`. A break that
    /// was found is never hidden behind what the command did.
    pub(crate) fn failure(&self, exit: Exit) -> Option<Exit> {
        match self {
            Self::Nothing | Self::Signed { .. } => None,
            Self::Broken(_) => Some(Exit::VerificationFailed),
            Self::Unsigned(_) => (exit == Exit::Done).then_some(Exit::Unsigned),
        }
    }
}

/// The hint about receipts that could not be signed.
const UNSIGNED_HINT: &str =
    "the run itself is stored; `toolgate receipts verify` checks its receipts";

/// Signs the receipts at the end of a command that made calls and would end with `exit`. A failed
/// verification is printed and gives the exit code.
pub(crate) async fn sign_receipts(
    cx: &CommandContext,
    evidence: &EvidenceService,
    exit: Exit,
) -> Result<Exit, CliError> {
    let signed = SignedReceipts::sign(evidence).await?;
    if let Some(error) = signed.error() {
        cx.out.print_error(error);
    }
    Ok(signed.failure(exit).unwrap_or(exit))
}

fn status_label(status: Status) -> StyledLine {
    match status {
        Status::Ok => style::good(status.text()),
        other if other.is_refusal() => style::warn(other.text()),
        other => style::bad(other.text()),
    }
}
