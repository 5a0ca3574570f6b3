//! Accepting that records are lost because a backup was restored.

use serde_json::json;
use toolgate::ledger::LostHead;

use super::{ReceiptsAcceptRestoreArgs, verification_error};
use crate::{
    CliError, CommandContext, Exit,
    env::{confirm::require_confirmation, style},
};

pub(super) async fn accept_restore(
    args: &ReceiptsAcceptRestoreArgs,
    cx: &CommandContext,
) -> Result<Exit, CliError> {
    let evidence = cx.open_evidence().await?;
    let Some(lost) = evidence.lost_head().await.map_err(verification_error)? else {
        if cx.out.is_json() {
            cx.out
                .print_json(&json!({ "accepted": false, "lost": null }))?;
        } else {
            cx.out
                .print_note("nothing is lost: the last signed record is in the ledger")?;
        }
        return Ok(Exit::Done);
    };
    if !cx.out.is_json() {
        print_loss(cx, &lost)?;
    }
    require_confirmation(cx, "Accept this loss?", args.yes)?;
    let by = cx.current_approver(None);
    let accepted = evidence.accept_restore(by).await;
    let note = accepted.map_err(verification_error)?;
    if cx.out.is_json() {
        cx.out
            .print_json(&json!({ "accepted": note.is_some(), "restore": note }))?;
    } else {
        cx.out.print_line(format_args!(
            "{}: a signed note of it is stored with the ledger",
            style::good("accepted")
        ))?;
    }
    Ok(Exit::Done)
}

fn print_loss(cx: &CommandContext, lost: &LostHead) -> Result<(), CliError> {
    let LostHead { signed, found } = lost;
    cx.out.print_line(format_args!(
        "signed on this machine: record {}, {}",
        signed.counter, signed.hash
    ))?;
    cx.out.print_line(format_args!(
        "the ledger ends now at: record {}, {}",
        found.counter, found.hash
    ))?;
    let missing = signed.counter.saturating_sub(found.counter);
    if missing > 0 {
        cx.out.print_line(format_args!(
            "{}: the receipts of {missing} calls at least",
            style::bad("lost")
        ))
    } else {
        cx.out.print_line(format_args!(
            "{}: record {} is another one now, so receipts at or before it are lost",
            style::bad("lost"),
            signed.counter
        ))
    }
}
