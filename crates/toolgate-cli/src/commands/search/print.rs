//! Prints the hits of a search.

use anstyle::Style;
use serde_json::Value;
use toolgate::search::{SearchAnswer, SearchHit, SearchKind};

use crate::{
    CliError, CommandContext,
    env::{ids, style, times},
    show::{
        hit_origins::HitOrigins,
        render::{StyledLine, snippet_line, wrap_for_output},
    },
};

/// The indentation of a snippet below its hit.
const INDENT: &str = "    ";

pub(super) fn print_answer(
    cx: &CommandContext,
    answer: &SearchAnswer,
    origins: &HitOrigins,
) -> Result<(), CliError> {
    if cx.out.is_json() {
        return cx.out.print_json(&answer_json(answer, origins)?);
    }
    for hit in &answer.hits {
        cx.out.print_line(head_line(hit, origins))?;
        let mut snippet = StyledLine::plain(INDENT);
        snippet.extend(snippet_line(&hit.snippet));
        for row in wrap_for_output(&snippet, INDENT) {
            cx.out.print_line(row)?;
        }
    }
    if answer.hits.is_empty() {
        cx.out.print_note("nothing was found")?;
    }
    for notice in &answer.notices {
        cx.out
            .print_note(format_args!("{}: {notice}", style::warn("note")))?;
    }
    for hint in &answer.hints {
        let hint = style::escape_controls(hint);
        cx.out
            .print_note(format_args!("{}: {hint}", style::note("hint")))?;
    }
    if answer.next.is_some() {
        let next = style::note("next");
        cx.out.print_note(format_args!(
            "{next}: there are more hits; `--limit` shows them, and `--json` has a cursor"
        ))?;
    }
    match answer.hits.first() {
        Some(hit) => {
            let show = cx.command_line(&format!("sessions show {}", ids::short_id(hit.session)));
            let next = style::note("next");
            cx.out
                .print_note(format_args!("{next}: `{show}` shows the first one"))
        }
        None => Ok(()),
    }
}

/// Returns an answer as JSON, in which a hit says from where its session was imported, if it was.
fn answer_json(answer: &SearchAnswer, origins: &HitOrigins) -> Result<Value, CliError> {
    let mut json = serde_json::to_value(answer).map_err(|error| CliError::from_error(&error))?;
    let listed = json["hits"].as_array_mut().into_iter().flatten();
    for (listed, hit) in listed.zip(&answer.hits) {
        if let Some(origin) = origins.of_session(hit.session) {
            listed["imported_from"] = (*origin.format).into();
        }
    }
    Ok(json)
}

/// Returns the line above a snippet: session, time, what it is, and where.
fn head_line(hit: &SearchHit, origins: &HitOrigins) -> StyledLine {
    let mut line = style::bold(ids::short_id(hit.session));
    let plain = Style::new();
    line.push(&format!("  {}  ", times::format_column_time(hit.at)), plain);
    line.extend(style::note(kind_text(hit)));
    if let Some(tool) = &hit.tool {
        line.push(&format!(" {tool}"), plain);
    }
    if let Some(status) = hit.status {
        line.push(&format!(" ({})", status.text()), plain);
    }
    if let Some(project) = &hit.project {
        line.extend(style::dim(format!("  {project}")));
    }
    if let Some(origin) = origins.of_session(hit.session) {
        line.extend(style::dim(format!("  imported from {}", origin.format)));
    }
    line
}

fn kind_text(hit: &SearchHit) -> &'static str {
    match hit.kind {
        SearchKind::User => "user",
        SearchKind::Assistant => "assistant",
        SearchKind::Call => "call",
        SearchKind::Result => "result",
        SearchKind::Title => "title",
    }
}
