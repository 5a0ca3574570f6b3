//! Recomputing the chain of receipts, from the database or from an exported file.

use std::{
    fs::File,
    io::{self, BufReader},
    path::Path,
};

use serde_json::json;
use toolgate::{
    layers::{Ledger, verify_export},
    ledger::{Checkpoint, CheckpointError, LedgerVerifier, VerifiedLedger},
};

use super::{PublicKey, ReceiptsVerifyArgs, verification_error};
use crate::{CliError, CommandContext, Exit, env::style};

pub(super) async fn verify_receipts(
    args: &ReceiptsVerifyArgs,
    cx: &CommandContext,
) -> Result<Exit, CliError> {
    let verifier = if args.key.is_empty() {
        None
    } else {
        Some(trusted_verifier(&args.key)?)
    };
    let elsewhere = args
        .checkpoints
        .as_deref()
        .map(read_checkpoints)
        .transpose()?
        .unwrap_or_default();
    let (chain, outlines) = match &args.file {
        Some(path) => {
            let verified = verify_export(open_file(path)?, &elsewhere, verifier.as_ref())
                .map_err(verification_error)?;
            (verified.chain, verified.outlines)
        }
        None => {
            let ledger = Ledger::main(cx.open_store().await?);
            let verifier = match verifier {
                Some(verifier) => Some(verifier),
                None => own_verifier(&ledger, cx).await?,
            };
            (
                ledger
                    .verify(&elsewhere, verifier.as_ref())
                    .await
                    .map_err(verification_error)?,
                0,
            )
        }
    };
    print_verified(cx, &chain, outlines)?;
    Ok(Exit::Done)
}

/// Trusts the keys of this machine, unless the store has checkpoints of other keys: those can only
/// be verified by an operator who knows their public keys.
async fn own_verifier(
    ledger: &Ledger,
    cx: &CommandContext,
) -> Result<Option<LedgerVerifier>, CliError> {
    let verifier = cx.load_keys()?.ledger_verifier();
    let stored = ledger.checkpoints().await.map_err(verification_error)?;
    let foreign = |checkpoint: &Checkpoint| {
        matches!(
            verifier.verify(checkpoint),
            Err(CheckpointError::UnknownKey(_))
        )
    };
    if stored.iter().any(foreign) {
        cx.out
            .print_note("checkpoints of other keys are not verified; --key names a key to trust")?;
        return Ok(None);
    }
    // Without checkpoints there is nothing to verify against, and the result says so.
    Ok((!stored.is_empty()).then_some(verifier))
}

fn print_verified(
    cx: &CommandContext,
    chain: &VerifiedLedger,
    outlines: u64,
) -> Result<(), CliError> {
    let VerifiedLedger {
        counter,
        hash,
        signed,
        ..
    } = chain;
    if cx.out.is_json() {
        return cx.out.print_json(&json!({
            "intact": true, "receipts": counter, "outlines": outlines, "head": hash, "signed": signed,
        }));
    }
    let outlines = if outlines > 0 {
        format!(" ({outlines} of them in outline)")
    } else {
        String::new()
    };
    let plural = if *counter == 1 { "receipt" } else { "receipts" };
    cx.out.print_line(format_args!(
        "{}: {counter} {plural}{outlines}, head {hash}",
        style::good("intact")
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
