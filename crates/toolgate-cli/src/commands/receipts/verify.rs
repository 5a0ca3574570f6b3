//! Recomputing the chain of receipts, from the database or from an exported file.

use std::{
    fs::File,
    io::{self, BufReader},
    path::Path,
};

use serde_json::json;
use toolgate::{
    layers::{ComparedCall, VerifiedExport, verify_export},
    ledger::{Checkpoint, EvidenceReport, LedgerVerifier, UncheckedCheckpoint},
};

use super::{PublicKey, ReceiptsVerifyArgs, verification_error};
use crate::{
    CliError, CommandContext, Exit,
    env::{ids, style},
};

/// The most calls that are named for one kind of disagreement.
const MAX_NAMED: usize = 20;

pub(super) async fn verify_receipts(
    args: &ReceiptsVerifyArgs,
    cx: &CommandContext,
) -> Result<Exit, CliError> {
    let trusted = trusted_verifier(&args.key)?;
    let elsewhere = args
        .checkpoints
        .as_deref()
        .map(read_checkpoints)
        .transpose()?
        .unwrap_or_default();
    let Some(path) = &args.file else {
        let evidence = cx.open_evidence().await?;
        let verified = evidence.verify(&elsewhere, &trusted).await;
        return print_report(cx, &verified.map_err(verification_error)?);
    };
    // Our own keys are trusted, if there are any; verifying a file creates none.
    let verifier = match cx.paths.home.find_keys()? {
        Some(keys) => keys.ledger_verifier().with_keys_of(&trusted),
        None => trusted,
    };
    let verified = verify_export(open_file(path)?, &elsewhere, Some(&verifier));
    print_export(cx, &verified.map_err(verification_error)?)
}

fn print_report(cx: &CommandContext, report: &EvidenceReport) -> Result<Exit, CliError> {
    let exit = if !report.is_intact() {
        Exit::VerificationFailed
    } else if report.is_unsigned() {
        Exit::Unsigned
    } else {
        Exit::Done
    };
    let chain = &report.chain;
    let outcomes = &report.outcomes;
    let not_checked = report.not_checked();
    if cx.out.is_json() {
        cx.out.print_json(&json!({
            "intact": report.is_intact(), "receipts": chain.counter, "outlines": 0, "head": chain.hash,
            "signed": report.confirmed(), "matched": outcomes.matched, "missing": outcomes.missing,
            "excess": outcomes.excess, "differing": outcomes.differing, "restores": report.restores,
            "not_checked": not_checked,
        }))?;
        return Ok(exit);
    }
    if !report.is_intact() {
        print_calls(cx, "a settled call without its receipt", &outcomes.missing)?;
        print_calls(
            cx,
            "a receipt of a call that did not settle",
            &outcomes.excess,
        )?;
        print_calls(
            cx,
            "a receipt with another status than its call",
            &outcomes.differing,
        )?;
        cx.out.print_error(
            &CliError::new("the verification of receipts failed: receipts and outcomes disagree")
                .with_hint("compare the database with an earlier export or backup"),
        );
    } else {
        print_intact(
            cx,
            chain.counter,
            0,
            &chain.hash.to_string(),
            report.confirmed(),
        )?;
    }
    for restore in &report.restores {
        cx.out.print_note(format_args!(
            "a loss was accepted by {}: record {} was signed, and the ledger ended at {}",
            style::escape_controls(restore.accepted.as_str()),
            restore.lost.counter,
            restore.kept.counter
        ))?;
    }
    print_not_checked(cx, &not_checked)?;
    Ok(exit)
}

fn print_export(cx: &CommandContext, verified: &VerifiedExport) -> Result<Exit, CliError> {
    let VerifiedExport { chain, outlines } = verified;
    let exit = if chain.counter > 0 && chain.signed.is_none() {
        Exit::Unsigned
    } else {
        Exit::Done
    };
    let foreign = |foreign: &UncheckedCheckpoint| {
        format!(
            "the checkpoint of record {} has the unknown key {}",
            foreign.counter, foreign.key
        )
    };
    let mut not_checked: Vec<String> = chain.not_checked.iter().map(foreign).collect();
    not_checked
        .push("whether each settled call has its receipt: a file has no outcomes".to_owned());
    if cx.out.is_json() {
        cx.out.print_json(&json!({
            "intact": true, "receipts": chain.counter, "outlines": outlines, "head": chain.hash,
            "signed": chain.signed, "not_checked": not_checked,
        }))?;
        return Ok(exit);
    }
    let head = chain.hash.to_string();
    print_intact(cx, chain.counter, *outlines, &head, chain.signed)?;
    print_not_checked(cx, &not_checked)?;
    Ok(exit)
}

fn print_intact(
    cx: &CommandContext,
    counter: u64,
    outlines: u64,
    head: &str,
    signed: Option<u64>,
) -> Result<(), CliError> {
    let outlines = if outlines > 0 {
        format!(" ({outlines} of them in outline)")
    } else {
        String::new()
    };
    let plural = if counter == 1 { "receipt" } else { "receipts" };
    let unsigned = counter > 0 && signed.is_none();
    let word = if unsigned {
        style::warn("consistent, but unsigned")
    } else {
        style::good("intact")
    };
    cx.out.print_line(format_args!(
        "{word}: {counter} {plural}{outlines}, head {head}"
    ))?;
    match signed {
        Some(signed) => cx.out.print_note(format_args!(
            "a signed checkpoint confirms all receipts up to record {signed}"
        )),
        None => cx.out.print_note(style::dim(
            "no signed checkpoint was verified, so a truncated chain would not be detected",
        )),
    }
}

/// Names the calls for which receipts and outcomes disagree.
fn print_calls(cx: &CommandContext, what: &str, calls: &[ComparedCall]) -> Result<(), CliError> {
    for ComparedCall {
        call,
        session,
        tool,
    } in calls.iter().take(MAX_NAMED)
    {
        cx.out.print_line(format_args!(
            "{}: {} {call} of session {}",
            style::bad(what),
            style::escape_controls(tool.as_str()),
            ids::short_id(*session)
        ))?;
    }
    match calls.len().saturating_sub(MAX_NAMED) {
        0 => Ok(()),
        more => cx.out.print_line(format_args!("{what}: {more} more")),
    }
}

fn print_not_checked(cx: &CommandContext, notes: &[String]) -> Result<(), CliError> {
    notes.iter().try_for_each(|note| {
        cx.out
            .print_note(style::dim(format!("not checked: {note}")))
    })
}

fn open_file(path: &Path) -> Result<BufReader<File>, CliError> {
    let file = File::open(path)
        .map_err(|error| CliError::usage(format!("{}: {error}", path.display())))?;
    Ok(BufReader::new(file))
}

fn read_checkpoints(path: &Path) -> Result<Vec<Checkpoint>, CliError> {
    let text = io::read_to_string(open_file(path)?)?;
    let lines = (1..)
        .zip(text.lines())
        .filter(|(_, line)| !line.trim().is_empty());
    let read = lines.map(|(number, line)| {
        serde_json::from_str(line)
            .map_err(|error| CliError::usage(format!("{}, line {number}: {error}", path.display())))
    });
    read.collect()
}

fn trusted_verifier(keys: &[PublicKey]) -> Result<LedgerVerifier, CliError> {
    let trust = |verifier: LedgerVerifier, key: &PublicKey| verifier.trusting(*key);
    keys.iter()
        .try_fold(LedgerVerifier::trusting_none(), trust)
        .map_err(|error| CliError::usage(error.to_string()))
}

pub(super) fn parse_public_key(text: &str) -> Result<PublicKey, String> {
    let wrong = || "expected a public key: 64 hex digits".to_owned();
    let text = text.trim();
    // The slices below are in bytes; inside a wide character they would panic.
    if text.len() != 64 || !text.is_ascii() {
        return Err(wrong());
    }
    let mut key = [0; 32];
    for (place, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * place..2 * place + 2], 16).map_err(|_| wrong())?;
    }
    Ok(key)
}
