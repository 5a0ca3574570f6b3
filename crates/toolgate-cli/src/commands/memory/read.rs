//! `toolgate memory list`, `search`, `show` and `why`.

use serde_json::json;
use toolgate::{
    Gate,
    memory::{Memory, MemoryPage, MemoryRecord, MemorySource, RecallOptions, RecallScope},
};

use super::{
    MemoryListArgs, MemorySearchArgs, MemoryShowArgs, MemoryWhyArgs, find_memory,
    print::{print_ranked, print_records, scope_label},
};
use crate::{
    CliError, CommandContext, Exit,
    env::{style, times},
};

pub(super) async fn list_memories(
    args: &MemoryListArgs,
    cx: &CommandContext,
    gate: &Gate,
    memory: &Memory,
) -> Result<Exit, CliError> {
    let scopes = match args.scope.resolve(gate, memory).await? {
        Some(scope) => vec![scope],
        None if args.all => Vec::new(),
        None => RecallOptions {
            project: memory.project_directory().cloned(),
            ..RecallOptions::default()
        }
        .scopes(),
    };
    let before = match &args.before {
        Some(text) => Some(find_memory(memory, text).await?.id),
        None => None,
    };
    let page = MemoryPage {
        scopes,
        kind: args.kind,
        with_expired: args.expired,
        before,
        limit: args.limit,
        ..MemoryPage::default()
    };
    let found = memory.list(page).await?;
    if cx.out.is_json() {
        found
            .iter()
            .try_for_each(|record| cx.out.print_json(record))?;
    } else if found.is_empty() {
        cx.out.print_note(
            "there are no memories here yet; `toolgate memory add TEXT` adds one, and `--all` lists other directories",
        )?;
    } else {
        print_records(cx, &found)?;
        if found.len() == args.limit {
            let last = found.last().map(|record| record.id.to_string());
            cx.out.print_note(format_args!(
                "{}: older ones follow with --before {}",
                style::note("next"),
                last.unwrap_or_default()
            ))?;
        }
    }
    Ok(Exit::Done)
}

pub(super) async fn search_memories(
    args: &MemorySearchArgs,
    cx: &CommandContext,
    gate: &Gate,
    memory: &Memory,
) -> Result<Exit, CliError> {
    let usual = gate.memory_section().recall_options();
    let options = RecallOptions {
        scope: args.scope.scope.map(super::ScopeName::word),
        session: args.scope.find_session(gate).await?,
        project: memory.project_directory().cloned(),
        limit: args.limit.unwrap_or(usual.limit),
        min_score: args.min_score.unwrap_or(usual.min_score),
        max_tokens: args.max_tokens.unwrap_or(usual.max_tokens),
    };
    let found = memory.search(&args.text.join(" "), &options).await?;
    if cx.out.is_json() {
        for ranked in &found {
            let mut line = json!(ranked.record);
            line["score"] = json!(ranked.score);
            line["tokens"] = json!(ranked.tokens);
            cx.out.print_json(&line)?;
        }
    } else if found.is_empty() {
        cx.out.print_note(
            "no memory is relevant enough; --min-score 0 shows those that share a single word",
        )?;
    } else {
        print_ranked(cx, &found)?;
    }
    Ok(Exit::Done)
}

pub(super) async fn show_memory(
    args: &MemoryShowArgs,
    cx: &CommandContext,
    memory: &Memory,
) -> Result<Exit, CliError> {
    let record = find_memory(memory, &args.id).await?;
    if cx.out.is_json() {
        cx.out.print_json(&record)?;
        return Ok(Exit::Done);
    }
    for (name, value) in list_fields(&record) {
        cx.out
            .print_line(format_args!("{} {value}", style::dim(format!("{name:<9}"))))?;
    }
    let text = style::escape_controls(record.content.as_str());
    cx.out.print_line(format_args!("\n{text}"))?;
    Ok(Exit::Done)
}

/// Returns the names and values of what is stored about a memory, without its text.
pub(crate) fn list_fields(record: &MemoryRecord) -> [(&'static str, String); 6] {
    let time = |at| times::format_time(at);
    let recalled = record.last_recalled_at.map_or("never".to_owned(), time);
    let expires = record.expires_at.map_or("never".to_owned(), time);
    let scope = match &record.scope {
        RecallScope::Project(directory) => style::escape_controls(&format!("project {directory}")),
        RecallScope::Session(session) => format!("session {session}"),
        RecallScope::User => scope_label(&record.scope),
    };
    [
        ("memory", record.id.to_string()),
        ("kind", record.kind.to_string()),
        ("scope", scope),
        ("created", time(record.created_at)),
        (
            "recalled",
            format!("{recalled}; used {} times", record.uses),
        ),
        ("expires", expires),
    ]
}

pub(super) async fn explain_source(
    args: &MemoryWhyArgs,
    cx: &CommandContext,
    gate: &Gate,
    memory: &Memory,
) -> Result<Exit, CliError> {
    let record = find_memory(memory, &args.id).await?;
    let session_exists = source_session_exists(gate, &record).await?;
    if cx.out.is_json() {
        cx.out.print_json(&json!({
            "id": record.id,
            "source": record.source,
            "created_at": record.created_at,
            "session_exists": session_exists,
        }))?;
    } else {
        let command = |arguments: &str| cx.command_line(arguments);
        for line in describe_source(&record, session_exists, command) {
            cx.out.print_line(line)?;
        }
    }
    Ok(Exit::Done)
}

/// Checks whether the session in which a memory was said is still there; nothing if it names none.
pub(crate) async fn source_session_exists(
    gate: &Gate,
    record: &MemoryRecord,
) -> Result<Option<bool>, CliError> {
    Ok(match record.source.session {
        Some(session) => Some(gate.store().revision(session).await? > 0),
        None => None,
    })
}

/// Describes where a memory came from, line by line. `command_line` returns the whole command for
/// some arguments.
pub(crate) fn describe_source(
    record: &MemoryRecord,
    session_exists: Option<bool>,
    command_line: impl Fn(&str) -> String,
) -> Vec<String> {
    let MemorySource {
        origin,
        session,
        run,
        turn: _,
        call,
        pattern,
        imported_at,
    } = &record.source;
    let created = times::format_time(record.created_at);
    let mut lines = vec![format!("{}, on {created}", origin.text())];
    if let Some(pattern) = pattern {
        lines.push(format!("pattern  {}", style::escape_controls(pattern)));
    }
    if let Some(session) = session {
        let run = run.map_or(String::new(), |run| format!(", run {run}"));
        lines.push(format!("session  {session}{run}"));
        let next = if session_exists == Some(true) {
            let command = command_line(&format!("sessions show {session}"));
            format!("next: `{command}` shows it")
        } else {
            "the session is not in this database, or it was erased".to_owned()
        };
        lines.push(next);
    }
    if let Some(call) = call {
        lines.push(format!("call     {call}"));
    }
    if let Some(at) = imported_at {
        let at = times::format_time(*at);
        lines.push(format!(
            "imported from a file on {at}; the lines above are what the file says"
        ));
    }
    lines
}
