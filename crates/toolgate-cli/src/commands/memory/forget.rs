//! `toolgate memory forget`.

use serde_json::json;
use toolgate::{
    Gate,
    memory::{ForgottenMemories, Memory, TextRemains},
};

use super::{MemoryForgetArgs, find_memory, print::scope_label};
use crate::{
    CliError, CommandContext, Exit,
    env::{confirm::require_confirmation, style},
};

pub(super) async fn forget_memories(
    args: &MemoryForgetArgs,
    cx: &CommandContext,
    gate: &Gate,
    memory: &Memory,
) -> Result<Exit, CliError> {
    let mut filter = memory.filter();
    if args.all {
        let scope = args.scope.resolve(gate, memory).await?;
        let scope = scope.ok_or_else(|| CliError::usage("name the scope with --scope"))?;
        let label = scope_label(&scope);
        filter.scopes = vec![scope];
        let count = memory.export(filter.clone()).await?.len();
        if count == 0 {
            cx.out
                .print_note(format_args!("there are no memories of the scope {label}"))?;
        } else {
            let question = format!("Delete {} of the scope {label}?", count_memories(count));
            require_confirmation(cx, &question, args.yes)?;
        }
    } else {
        // All of them before the first is deleted: a misspelt id must not be noticed halfway.
        for text in &args.ids {
            filter.ids.push(find_memory(memory, text).await?.id);
        }
    }
    let forgotten = memory.forget(filter).await?;
    print_forgotten(cx, &forgotten)?;
    Ok(Exit::Done)
}

fn print_forgotten(cx: &CommandContext, forgotten: &ForgottenMemories) -> Result<(), CliError> {
    if cx.out.is_json() {
        return cx.out.print_json(&json!({
            "forgotten": forgotten.ids,
            "remains": forgotten.remains.as_str(),
        }));
    }
    for id in &forgotten.ids {
        cx.out
            .print_line(format_args!("{} {id}", style::bad("forgotten")))?;
    }
    if forgotten.ids.is_empty() {
        return Ok(());
    }
    cx.out.print_note(describe_remains(forgotten.remains))?;
    cx.out.print_note(
        "The sessions in which they were said still have the words; `toolgate sessions delete ID --erase` erases one.",
    )
}

pub(super) fn count_memories(count: usize) -> String {
    match count {
        1 => "1 memory".to_owned(),
        more => format!("{more} memories"),
    }
}

/// Says what remains of deleted text in the files of the store.
pub(crate) const fn describe_remains(remains: TextRemains) -> &'static str {
    match remains {
        TextRemains::Nothing => {
            "Text and vectors are deleted; no byte of them is left in the database."
        }
        TextRemains::UntilCheckpoint => {
            "Text and vectors are deleted. Another process is reading the database: its write-ahead log has the bytes until the next checkpoint."
        }
        TextRemains::UntilVacuum => {
            "Text and vectors are deleted. The server has the bytes in dead rows until it vacuums the table memories \
             (`VACUUM memories` does it now), and in its write-ahead log and backups for as long as these are stored."
        }
    }
}
