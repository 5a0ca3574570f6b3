//! The window of the search over all sessions.

use ratatui::text::Line;
use unicode_width::UnicodeWidthStr;

use super::{
    super::{SessionHit, SessionHits, text},
    choices::{field_lines, row_style},
    paint,
};
use crate::{
    env::ids,
    show::render::{StyledLine, snippet_line},
};

/// The number of lines of the preview.
const PREVIEW_LINES: usize = 5;

/// Renders the field, the hits, and a preview of the selected one, in at most `height` lines.
pub(super) fn hit_lines(
    words: &str,
    found: &SessionHits,
    selected: usize,
    width: usize,
    height: usize,
) -> Vec<Line<'static>> {
    let mut lines = field_lines("search: ", words, width);
    for remark in &found.remarks {
        lines.extend(text::wrap_text(remark, width, paint::DIM));
    }
    if found.hits.is_empty() {
        let told = if found.query.is_empty() {
            "words, \"phrases\", migr*, -word, tool:shell, after:3d"
        } else {
            "nothing found"
        };
        lines.push(Line::styled(told, paint::DIM));
        return lines;
    }
    let room = height
        .saturating_sub(lines.len() + PREVIEW_LINES + 1)
        .max(1);
    let first = (selected + 1).saturating_sub(room);
    let shown = found.hits.iter().enumerate().skip(first).take(room);
    lines.extend(shown.map(|(number, hit)| {
        let end = format!("{}  {}", hit.at, ids::short_id(hit.session));
        let room = width.saturating_sub(end.width() + 1);
        let mut name = StyledLine::plain(&text::one_line(&format!("{}: ", hit.what)));
        name.push(" ", anstyle::Style::new());
        name.extend(snippet_line(&hit.snippet));
        let mut row = text::convert_line(name.clip(room));
        let gap = " ".repeat(room.saturating_sub(row.width()) + 1);
        row.push_span(format!("{gap}{end}"));
        row.patch_style(row_style(number == selected))
    }));
    if let Some(hit) = found.hits.get(selected) {
        lines.push(Line::default());
        let mut preview: Vec<Line<'static>> = hit_notes(hit)
            .map(|note| Line::styled(text::truncate_line(&note, width), paint::DIM))
            .collect();
        let rows = snippet_line(&hit.snippet).wrap(width.max(2), &StyledLine::new());
        preview.extend(rows.into_iter().map(text::convert_line));
        preview.truncate(PREVIEW_LINES);
        lines.extend(preview);
    }
    lines
}

/// Returns what there is to know of the session of a hit.
fn hit_notes(hit: &SessionHit) -> impl Iterator<Item = String> {
    let place = hit.elsewhere.as_deref();
    let place = place.map(|directory| format!("in {directory}"));
    let origin = hit.imported_from.as_deref();
    let origin = origin.map(|format| format!("imported from {format}"));
    place
        .into_iter()
        .chain(origin)
        .map(|note| text::one_line(&note))
}

#[cfg(test)]
mod tests {
    use ratatui::style::Modifier;
    use toolgate::{search::SearchSnippet, value::SessionId};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn matches_are_marked_in_the_list_and_in_the_preview() {
        let hit = SessionHit {
            session: SessionId::new(Uuid::from_u128(1)),
            sequence: 1,
            what: "user".into(),
            at: "today".into(),
            snippet: SearchSnippet {
                text: "deploy the walrus now".into(),
                matches: std::iter::once(11..17).collect(),
                ..SearchSnippet::default()
            },
            elsewhere: None,
            imported_from: Some("claude".into()),
        };
        let found = SessionHits {
            query: "walrus".into(),
            hits: vec![hit],
            remarks: Vec::new(),
        };
        let lines = hit_lines("walrus", &found, 0, 80, 20);
        let spans = lines.iter().flat_map(|line| &line.spans);
        let is_marked = |span: &&ratatui::text::Span<'_>| {
            span.style.add_modifier.contains(Modifier::UNDERLINED)
        };
        let marked: Vec<&str> = spans.filter(is_marked).map(|span| &*span.content).collect();
        assert_eq!(marked, ["walrus", "walrus"]);
        let shown: Vec<String> = lines.iter().map(ToString::to_string).collect();
        assert!(
            shown.iter().any(|line| line == "imported from claude"),
            "{shown:?}"
        );
    }
}
