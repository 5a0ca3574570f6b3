//! Memories as people read them. Their text is foreign: control characters are made visible.

use toolgate::memory::{MemoryRecord, RankedMemory, RecallScope};

use crate::{
    CliError, CommandContext,
    env::{ids, style, times},
    show::render::TextTable,
};

/// Returns the text in one line.
pub(super) fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    style::escape_controls(&words.join(" "))
}

pub(super) fn scope_label(scope: &RecallScope) -> String {
    match scope {
        RecallScope::Session(session) => format!("session {}", ids::short_id(session)),
        RecallScope::Project(directory) => {
            let name = directory.rsplit('/').next().unwrap_or(directory);
            format!("project {}", one_line(name))
        }
        RecallScope::User => "user".to_owned(),
    }
}

pub(super) fn print_records(cx: &CommandContext, records: &[MemoryRecord]) -> Result<(), CliError> {
    let created = times::zoned_head("created");
    let mut table =
        TextTable::for_output().with_head(["memory", "kind", "scope", "uses", &created, "text"]);
    for record in records {
        table.add_row([
            style::bold(ids::short_id(record.id)),
            record.kind.to_string().into(),
            scope_label(&record.scope).into(),
            record.uses.to_string().into(),
            times::format_column_time(record.created_at).into(),
            one_line(record.content.as_str()).into(),
        ]);
    }
    cx.out.print_line(table)
}

pub(super) fn print_ranked(cx: &CommandContext, found: &[RankedMemory]) -> Result<(), CliError> {
    let mut table = TextTable::for_output().with_head(["memory", "score", "kind", "scope", "text"]);
    for ranked in found {
        let record = &ranked.record;
        table.add_row([
            style::bold(ids::short_id(record.id)),
            format!("{:.3}", ranked.score).into(),
            record.kind.to_string().into(),
            scope_label(&record.scope).into(),
            one_line(record.content.as_str()).into(),
        ]);
    }
    cx.out.print_line(table)
}
