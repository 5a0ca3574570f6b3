//! `toolgate memory add` and `edit`.

use serde_json::json;
use toolgate::{
    Gate,
    memory::{ChangedMemory, Memory, MemoryEdit, MemoryRecord, NewMemory, PutMemory, RecallScope},
    value::Timestamp,
};

use super::{MemoryAddArgs, MemoryEditArgs, find_memory, print::scope_label};
use crate::{
    CliError, CommandContext, Exit,
    env::{ids, style, times},
};

pub(super) async fn add_memory(
    args: &MemoryAddArgs,
    cx: &CommandContext,
    gate: &Gate,
    memory: &Memory,
) -> Result<Exit, CliError> {
    let named = args.scope.resolve(gate, memory).await?;
    let scope = named.unwrap_or_else(|| usual_scope(memory));
    let new = NewMemory {
        kind: args.kind,
        expires_at: args.expires.map(|span| times::current_time().plus(span)),
        ..NewMemory::new(args.text.join(" "), scope)
    };
    let put = memory.add(new).await?;
    let record = put.record();
    let is_new = matches!(put, PutMemory::Stored(_));
    if cx.out.is_json() {
        cx.out
            .print_json(&json!({ "stored": is_new, "memory": record }))?;
        return Ok(Exit::Done);
    }
    let id = ids::short_id(record.id);
    let label = scope_label(&record.scope);
    cx.out.print_line(if is_new {
        format!("{} {id} ({label})", style::good("added"))
    } else {
        format!("{} {id} says the same ({label})", style::note("unchanged:"))
    })?;
    Ok(Exit::Done)
}

/// Returns the scope of a new memory unless another one is named: the project, if there is one.
pub(crate) fn usual_scope(memory: &Memory) -> RecallScope {
    let here = memory.project_directory().cloned();
    here.map_or(RecallScope::User, RecallScope::Project)
}

pub(super) async fn edit_memory(
    args: &MemoryEditArgs,
    cx: &CommandContext,
    memory: &Memory,
) -> Result<Exit, CliError> {
    let edit = MemoryEdit {
        content: (!args.text.is_empty()).then(|| args.text.join(" ")),
        kind: args.kind,
        expires_at: args.expires.as_deref().map(parse_expiry).transpose()?,
    };
    if edit.content.is_none() && edit.kind.is_none() && edit.expires_at.is_none() {
        return Err(CliError::usage("there is nothing to change")
            .with_hint("give a new text, --kind or --expires"));
    }
    let record = change_memory(memory, &args.id, edit).await?;
    if cx.out.is_json() {
        cx.out.print_json(&record)?;
    } else {
        cx.out.print_line(format_args!(
            "{} {}",
            style::good("changed"),
            ids::short_id(record.id)
        ))?;
    }
    Ok(Exit::Done)
}

/// Changes the memory that `id` names, and returns it as it is now.
pub(crate) async fn change_memory(
    memory: &Memory,
    id: &str,
    edit: MemoryEdit,
) -> Result<MemoryRecord, CliError> {
    let record = find_memory(memory, id).await?;
    match memory.edit(record.id, edit).await? {
        ChangedMemory::Changed(record) => Ok(*record),
        ChangedMemory::Missing => Err(CliError::new(format!("memory {} is gone", record.id))),
        ChangedMemory::Duplicate(other) => Err(CliError::new(format!(
            "memory {other} has this text already"
        ))
        .with_hint(format!(
            "`toolgate memory forget {}` deletes the other one",
            record.id
        ))),
    }
}

/// Parses `30d` or `never`.
fn parse_expiry(text: &str) -> Result<Option<Timestamp>, CliError> {
    if text == "never" {
        return Ok(None);
    }
    let span = times::parse_duration(text);
    let span = span.map_err(|problem| {
        CliError::usage(format!("--expires {text}: {problem}"))
            .with_hint("write it as 30d, 12h or never")
    })?;
    Ok(Some(times::current_time().plus(span)))
}
