//! Writing the chain of receipts as lines of JSON.

use std::{
    fs::File,
    io::{self, IsTerminal, Write},
};

use serde_json::json;
use toolgate::layers::Ledger;

use super::{ReceiptsExportArgs, verification_error};
use crate::{CliError, CommandContext, Exit, env::style};

pub(super) async fn export_receipts(
    args: &ReceiptsExportArgs,
    cx: &CommandContext,
) -> Result<Exit, CliError> {
    let store = cx.open_store().await?;
    let filter = args.filter.to_filter(&store).await?;
    let ledger = Ledger::main(store);
    let Some(path) = &args.file else {
        if io::stdout().is_terminal() && !cx.out.is_json() {
            cx.out.print_note(style::dim(
                "the chain follows; `toolgate receipts export FILE` writes it to a file",
            ))?;
        }
        ledger
            .export(io::stdout().lock(), &filter)
            .await
            .map_err(verification_error)?;
        return Ok(Exit::Done);
    };
    // An earlier export may be the only evidence against a changed chain: never overwrite it.
    let file = File::create_new(path).map_err(|error| {
        let problem = CliError::usage(format!("{}: {error}", path.display()));
        if error.kind() == io::ErrorKind::AlreadyExists {
            problem.with_hint("choose another name; nothing was overwritten")
        } else {
            problem
        }
    })?;
    let mut writer = io::BufWriter::new(file);
    let written = match ledger.export(&mut writer, &filter).await {
        Ok(written) => written,
        Err(error) => {
            // Half an export would look like a truncated chain.
            let _ = std::fs::remove_file(path);
            return Err(verification_error(error));
        }
    };
    writer.flush()?;
    if cx.out.is_json() {
        cx.out
            .print_json(&json!({ "file": path, "receipts": written }))?
    } else {
        cx.out.print_line(format_args!(
            "wrote {written} receipts to {}",
            path.display()
        ))?;
        let next = style::note("next");
        cx.out.print_note(format_args!(
            "{next}: `toolgate receipts verify {}` needs nothing but the file",
            path.display()
        ))?;
    }
    Ok(Exit::Done)
}
