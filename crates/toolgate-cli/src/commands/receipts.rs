//! `toolgate receipts`: what every call left behind, and whether it is still what it was.

use std::{
    fs::File,
    io::{self, BufReader, IsTerminal, Write},
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use serde_json::json;
use toolgate::{
    CallId, Checkpoint, DoubtfulCheckpoint, LedgerVerifier, Principal, Status, StoreHandle,
    Timestamp, ToolName, Verified,
    layers::{Ledger, LedgerError, ReceiptFilter, SealedReceipt, verify_export},
};

use crate::{CliError, Cx, Exit, ids, runtime, style, table::Table, times};

/// Lists, shows, verifies and exports receipts: one for each call, also for those that were refused.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate receipts verify                             is the chain what it was?
  toolgate receipts list --tool run_shell --status ok
  toolgate receipts show 9f02
  toolgate receipts export receipts.jsonl && toolgate receipts verify receipts.jsonl")]
pub struct ReceiptsArgs {
    /// What to do.
    #[command(subcommand)]
    pub what: ReceiptsCommand,
}

/// What can be done with receipts.
#[derive(Debug, Subcommand)]
pub enum ReceiptsCommand {
    /// List receipts, the newest last
    List(ListArgs),
    /// Show the receipt of a call
    Show(ShowArgs),
    /// Recompute the chain and say whether it is intact
    Verify(VerifyArgs),
    /// Write the chain as lines of JSON
    Export(ExportArgs),
}

/// Which receipts.
#[derive(Debug, Default, Args)]
pub struct FilterArgs {
    /// Only those of this session: an id, or a part of one
    #[arg(long, value_name = "SESSION")]
    pub session: Option<String>,
    /// Only those of this tool
    #[arg(long, value_name = "TOOL")]
    pub tool: Option<String>,
    /// Only calls that settled like this, such as ok or consent_denied
    #[arg(long, value_name = "STATUS")]
    pub status: Option<Status>,
    /// Only calls that this person approved
    #[arg(long, value_name = "NAME")]
    pub approver: Option<String>,
    /// Only calls that ended at this time or later
    #[arg(long, value_name = "TIME", value_parser = times::read)]
    pub from: Option<Timestamp>,
    /// Only calls that ended before this time
    #[arg(long, value_name = "TIME", value_parser = times::read)]
    pub until: Option<Timestamp>,
}

/// Lists receipts, the newest last.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate receipts list --session 4c21
  toolgate receipts list --from 2026-11-16 --status ok --json")]
pub struct ListArgs {
    /// Which.
    #[command(flatten)]
    pub filter: FilterArgs,
    /// How many at most, the newest of them
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub limit: usize,
}

/// Shows the receipt of a call.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate receipts show 9f02
  toolgate receipts show 9f02 --json")]
pub struct ShowArgs {
    /// The call: an id, or a part of one
    pub id: String,
}

/// Recomputes the chain from its first record and says whether it is intact.
///
/// Without a file it is the chain in the database. Exits with 7 if something is not what it was, and names the first record.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate receipts verify
  toolgate receipts verify receipts.jsonl
  toolgate receipts verify receipts.jsonl --checkpoints kept.jsonl --key 3b6a…")]
pub struct VerifyArgs {
    /// A file that `export` has written
    pub file: Option<PathBuf>,
    /// Signed checkpoints that were kept elsewhere, one JSON object per line
    #[arg(long, value_name = "FILE", requires = "key")]
    pub checkpoints: Option<PathBuf>,
    /// A public key whose checkpoints are believed: 64 hex digits
    #[arg(long, value_name = "KEY", value_parser = public_key)]
    pub key: Vec<PublicKey>,
}

/// The public half of a key that signs checkpoints.
pub type PublicKey = [u8; 32];

/// Writes the chain as lines of JSON. Receipts that are not wanted are there in outline, so that the file can be verified.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolgate receipts export receipts.jsonl
  toolgate receipts export --session 4c21 > session.jsonl")]
pub struct ExportArgs {
    /// Where to; the standard output unless given. A file that exists is not overwritten
    pub file: Option<PathBuf>,
    /// Which.
    #[command(flatten)]
    pub filter: FilterArgs,
}

/// Does it.
pub(crate) fn run(args: &ReceiptsArgs, cx: &Cx) -> Result<Exit, CliError> {
    runtime::block_on(async {
        match &args.what {
            ReceiptsCommand::List(args) => list(args, cx).await,
            ReceiptsCommand::Show(args) => show(args, cx).await,
            ReceiptsCommand::Verify(args) => verify(args, cx).await,
            ReceiptsCommand::Export(args) => export(args, cx).await,
        }
    })
}

impl FilterArgs {
    async fn read(&self, store: &StoreHandle) -> Result<ReceiptFilter, CliError> {
        let session = match &self.session {
            // A session that was erased has receipts all the same.
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

async fn list(args: &ListArgs, cx: &Cx) -> Result<Exit, CliError> {
    let store = cx.store().await?;
    let filter = args.filter.read(&store).await?;
    let receipts = every(&Ledger::main(store), filter).await?;
    let newest = &receipts[receipts.len().saturating_sub(args.limit)..];
    if cx.out.is_json() {
        newest
            .iter()
            .try_for_each(|sealed| cx.out.json(&as_json(sealed)))?;
        return Ok(Exit::Done);
    }
    let mut table = Table::new().head([
        "record",
        "call",
        "tool",
        "ended",
        "session",
        "status",
        "approved by",
    ]);
    for SealedReceipt {
        counter, receipt, ..
    } in newest
    {
        let by = receipt
            .approval
            .as_ref()
            .and_then(|approval| approval.by.as_ref());
        table.row([
            counter.to_string(),
            style::bold(ids::short(receipt.invocation_id)).to_string(),
            receipt.tool_name.to_string(),
            times::shown(receipt.ended_at),
            ids::short(receipt.session_id),
            status(receipt.status),
            by.map_or_else(String::new, |by| style::plain(by.as_str())),
        ]);
    }
    match table.is_empty() {
        true => cx.out.note("there are no such receipts")?,
        false => cx.out.line(table)?,
    }
    Ok(Exit::Done)
}

/// All receipts that a filter wants, page by page.
async fn every(ledger: &Ledger, mut filter: ReceiptFilter) -> Result<Vec<SealedReceipt>, CliError> {
    let mut all = Vec::new();
    loop {
        let page = ledger.list(&filter).await.map_err(tampered)?;
        all.extend(page.receipts);
        match page.next {
            Some(next) => filter.after = next,
            None => return Ok(all),
        }
    }
}

async fn show(args: &ShowArgs, cx: &Cx) -> Result<Exit, CliError> {
    let ledger = Ledger::main(cx.store().await?);
    let unknown = || {
        CliError::usage(format!("there is no receipt of a call {}", args.id))
            .hint("`toolgate receipts list` shows them")
    };
    let call: CallId = match args.id.parse() {
        Ok(whole) => whole,
        Err(_) => {
            let all = every(&ledger, ReceiptFilter::default()).await?;
            let calls = all.iter().map(|sealed| sealed.receipt.invocation_id);
            ids::one_of(&args.id, "call", calls)?.ok_or_else(unknown)?
        }
    };
    let sealed = ledger
        .show(call)
        .await
        .map_err(tampered)?
        .ok_or_else(unknown)?;
    match cx.out.is_json() {
        true => cx.out.json(&as_json(&sealed))?,
        false => cx
            .out
            .line(style::plain(&serde_json::to_string_pretty(&as_json(
                &sealed,
            ))?))?,
    }
    Ok(Exit::Done)
}

fn as_json(sealed: &SealedReceipt) -> serde_json::Value {
    json!({ "record": sealed.counter, "hash": sealed.hash, "uri": sealed.uri, "receipt": sealed.receipt })
}

async fn verify(args: &VerifyArgs, cx: &Cx) -> Result<Exit, CliError> {
    let verifier = match args.key.is_empty() {
        true => None,
        false => Some(believed(&args.key)?),
    };
    let elsewhere = args
        .checkpoints
        .as_deref()
        .map(checkpoints)
        .transpose()?
        .unwrap_or_default();
    let (chain, outlines) = match &args.file {
        Some(path) => {
            let verified =
                verify_export(open(path)?, &elsewhere, verifier.as_ref()).map_err(tampered)?;
            (verified.chain, verified.outlines)
        }
        None => {
            let ledger = Ledger::main(cx.store().await?);
            let verifier = match verifier {
                Some(verifier) => Some(verifier),
                None => our_own(&ledger, cx).await?,
            };
            (
                ledger
                    .verify(&elsewhere, verifier.as_ref())
                    .await
                    .map_err(tampered)?,
                0,
            )
        }
    };
    tell(cx, &chain, outlines)?;
    Ok(Exit::Done)
}

/// Believes the keys of this machine, if nobody else has signed in this store: what others have signed only they, or
/// whoever knows their keys, can hold against it.
async fn our_own(ledger: &Ledger, cx: &Cx) -> Result<Option<LedgerVerifier>, CliError> {
    let (verifier, stored) = (
        cx.keys()?.ledger_verifier(),
        ledger.checkpoints().await.map_err(tampered)?,
    );
    let foreign = |checkpoint: &Checkpoint| {
        matches!(
            verifier.verify(checkpoint),
            Err(DoubtfulCheckpoint::UnknownKey(_))
        )
    };
    if stored.iter().any(foreign) {
        cx.out
            .note("checkpoints by keys of others are not looked at; --key names one to believe")?;
        return Ok(None);
    }
    Ok((!stored.is_empty()).then_some(verifier))
}

fn tell(cx: &Cx, chain: &Verified, outlines: u64) -> Result<(), CliError> {
    let Verified {
        counter,
        hash,
        signed,
        ..
    } = chain;
    if cx.out.is_json() {
        return cx.out.json(&json!({
            "intact": true, "receipts": counter, "outlines": outlines, "head": hash, "signed": signed,
        }));
    }
    let outlines = if outlines > 0 {
        format!(" ({outlines} of them in outline)")
    } else {
        String::new()
    };
    let plural = if *counter == 1 { "receipt" } else { "receipts" };
    cx.out.line(format_args!(
        "{}: {counter} {plural}{outlines}, head {hash}",
        style::good("intact")
    ))?;
    match signed {
        Some(signed) => cx.out.note(format_args!(
            "a signed checkpoint vouches for all up to record {signed}"
        )),
        None => cx.out.note(style::dim(
            "no signed checkpoint was held against it, so a cut-off end would not show",
        )),
    }
}

/// What was found wrong with the chain ends the program in its own way.
fn tampered(error: LedgerError) -> CliError {
    let is_tampered = matches!(error, LedgerError::Tampered(_) | LedgerError::Line { .. });
    let error = CliError::from(error);
    match is_tampered {
        true => error
            .while_doing("the receipts are not what they were")
            .exit(Exit::Tampered)
            .hint("do not rely on it from that record on; compare with an export or a backup from before"),
        false => error,
    }
}

async fn export(args: &ExportArgs, cx: &Cx) -> Result<Exit, CliError> {
    let store = cx.store().await?;
    let filter = args.filter.read(&store).await?;
    let ledger = Ledger::main(store);
    let Some(path) = &args.file else {
        if io::stdout().is_terminal() && !cx.out.is_json() {
            cx.out.note(style::dim(
                "the chain follows; `toolgate receipts export FILE` writes it to a file",
            ))?;
        }
        ledger
            .export(io::stdout().lock(), &filter)
            .await
            .map_err(tampered)?;
        return Ok(Exit::Done);
    };
    let file = File::create_new(path).map_err(|error| {
        let problem = CliError::usage(format!("{}: {error}", path.display()));
        if error.kind() == io::ErrorKind::AlreadyExists {
            problem.hint("choose another name; nothing was overwritten")
        } else {
            problem
        }
    })?;
    let mut writer = io::BufWriter::new(file);
    let written = match ledger.export(&mut writer, &filter).await {
        Ok(written) => written,
        Err(error) => {
            let _ = std::fs::remove_file(path);
            return Err(tampered(error));
        }
    };
    writer.flush()?;
    match cx.out.is_json() {
        true => cx.out.json(&json!({ "file": path, "receipts": written }))?,
        false => {
            cx.out.line(format_args!(
                "wrote {written} receipts to {}",
                path.display()
            ))?;
            let next = style::note("next");
            cx.out.note(format_args!(
                "{next}: `toolgate receipts verify {}` needs nothing but the file",
                path.display()
            ))?;
        }
    }
    Ok(Exit::Done)
}

fn status(status: Status) -> String {
    match status {
        Status::Ok => style::good(status).to_string(),
        other if other.is_refusal() => style::warn(other).to_string(),
        other => style::bad(other).to_string(),
    }
}

fn open(path: &Path) -> Result<BufReader<File>, CliError> {
    let file = File::open(path)
        .map_err(|error| CliError::usage(format!("{}: {error}", path.display())))?;
    Ok(BufReader::new(file))
}

fn checkpoints(path: &Path) -> Result<Vec<Checkpoint>, CliError> {
    let text = io::read_to_string(open(path)?)?;
    let lines = (1..)
        .zip(text.lines())
        .filter(|(_, line)| !line.trim().is_empty());
    let read = lines.map(|(number, line)| {
        serde_json::from_str(line)
            .map_err(|error| CliError::usage(format!("{}, line {number}: {error}", path.display())))
    });
    read.collect()
}

fn believed(keys: &[PublicKey]) -> Result<LedgerVerifier, CliError> {
    let trust = |verifier: LedgerVerifier, key: &PublicKey| verifier.trusting(*key);
    keys.iter()
        .try_fold(LedgerVerifier::none(), trust)
        .map_err(|error| CliError::usage(error.to_string()))
}

fn public_key(text: &str) -> Result<PublicKey, String> {
    let wrong = || "a public key: 64 hex digits".to_owned();
    let text = text.trim();
    if text.len() != 64 || !text.is_ascii() {
        return Err(wrong());
    }
    let mut key = [0; 32];
    for (place, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * place..2 * place + 2], 16).map_err(|_| wrong())?;
    }
    Ok(key)
}
