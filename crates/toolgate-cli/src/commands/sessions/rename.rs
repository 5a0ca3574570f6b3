//! `toolgate sessions rename`: gives a session a title.

use serde_json::json;
use toolgate::{Gate, store::SessionTitle};

use super::SessionRenameArgs;
use crate::{
    CliError, CommandContext, Exit, GateArgs,
    env::{ids, style},
};

pub(super) async fn rename_session(
    args: &SessionRenameArgs,
    cx: &CommandContext,
) -> Result<Exit, CliError> {
    // The redactor is that of the configuration, so the gate has to be opened.
    let gate = GateArgs::default().open_gate(cx).await?;
    let title = parse_title(&args.title.join(" "), &gate).map_err(|error| {
        error.with_hint("write it after the id: `toolgate sessions rename ID TITLE`")
    })?;
    let session = ids::find_session(gate.store(), &args.id).await?;
    gate.store().rename_session(session, title.clone()).await?;
    if cx.out.is_json() {
        cx.out
            .print_json(&json!({ "session": session, "title": title.as_str() }))?;
    } else {
        let name = style::escape_controls(title.as_str());
        cx.out
            .print_line(format_args!("{} {session}: {name}", style::good("renamed")))?;
    }
    Ok(Exit::Done)
}

/// Parses the title of a session. Secrets in it are redacted, as in the text that titles are searched
/// and listed with.
///
/// # Errors
///
/// Fails if the text has no visible character.
pub(crate) fn parse_title(text: &str, gate: &Gate) -> Result<SessionTitle, CliError> {
    SessionTitle::new(&gate.redact_text(text))
        .ok_or_else(|| CliError::usage("the title has no visible character"))
}
