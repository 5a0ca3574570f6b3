//! `toolgate sessions rename`: gives a session a title.

use serde_json::json;
use toolgate::store::SessionTitle;

use super::SessionRenameArgs;
use crate::{
    CliError, CommandContext, Exit,
    env::{ids, style},
};

pub(super) async fn rename_session(
    args: &SessionRenameArgs,
    cx: &CommandContext,
) -> Result<Exit, CliError> {
    let title = parse_title(&args.title.join(" ")).map_err(|error| {
        error.with_hint("write it after the id: `toolgate sessions rename ID TITLE`")
    })?;
    let store = cx.open_store().await?;
    let session = ids::find_session(&store, &args.id).await?;
    store.rename_session(session, title.clone()).await?;
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

/// Parses the title of a session.
///
/// # Errors
///
/// Fails if the text has no visible character.
pub(crate) fn parse_title(text: &str) -> Result<SessionTitle, CliError> {
    SessionTitle::new(text).ok_or_else(|| CliError::usage("the title has no visible character"))
}
