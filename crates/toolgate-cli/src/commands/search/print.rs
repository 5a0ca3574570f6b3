//! Prints the hits of a search.

use anstyle::Style;
use toolgate::search::{SearchAnswer, SearchHit, SearchKind, SearchSnippet};

use crate::{
    CliError, CommandContext,
    env::{ids, style, times},
    show::render::{StyledLine, wrap_for_output},
};

/// The indentation of a snippet below its hit.
const INDENT: &str = "    ";

pub(super) fn print_answer(cx: &CommandContext, answer: &SearchAnswer) -> Result<(), CliError> {
    if cx.out.is_json() {
        return cx.out.print_json(answer);
    }
    for hit in &answer.hits {
        cx.out.print_line(head_line(hit))?;
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

/// Returns the line above a snippet: session, time, what it is, and where.
pub(crate) fn head_line(hit: &SearchHit) -> StyledLine {
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

/// Returns a snippet as one line, with its matches in bold.
pub(crate) fn snippet_line(snippet: &SearchSnippet) -> StyledLine {
    let mut line = StyledLine::new();
    let plain = Style::new();
    if snippet.is_cut_before {
        line.push("… ", plain);
    }
    let mut end = 0;
    for range in &snippet.matches {
        line.push(&snippet.text[end..range.start], plain);
        line.push(&snippet.text[range.clone()], plain.bold().underline());
        end = range.end;
    }
    line.push(&snippet.text[end..], plain);
    if snippet.is_cut_after {
        line.push(" …", plain);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_are_styled_and_control_characters_are_visible() {
        let snippet = SearchSnippet {
            text: "a\u{1b}[2J walrus\nand more".into(),
            matches: std::iter::once(6..12).collect(),
            is_cut_before: true,
            is_cut_after: false,
        };
        let line = snippet_line(&snippet);
        assert!(!line.text().contains('\u{1b}') && !line.text().contains('\n'));
        let marked = line.spans.iter().filter(|span| span.style != Style::new());
        let marked: Vec<&str> = marked.map(|span| span.text.as_str()).collect();
        assert_eq!(marked, ["walrus"]);
        assert!(line.text().starts_with("… a"));
    }
}
