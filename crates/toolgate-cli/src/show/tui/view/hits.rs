//! The window of the search over all sessions.

use ratatui::text::Line;
use unicode_width::UnicodeWidthStr;

use super::{
    super::{SessionHits, text},
    choices::{field_lines, row_style},
    paint,
};
use crate::env::ids;

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
        let name = format!("{}: {}", hit.what, hit.snippet);
        let name = text::truncate_line(&text::one_line(&name), room);
        let gap = " ".repeat(room.saturating_sub(name.width()) + 1);
        Line::styled(format!("{name}{gap}{end}"), row_style(number == selected))
    }));
    if let Some(hit) = found.hits.get(selected) {
        lines.push(Line::default());
        let mut preview = text::wrap_text(&text::one_line(&hit.snippet), width, paint::PLAIN);
        if let Some(directory) = &hit.elsewhere {
            let place = text::one_line(&format!("in {directory}"));
            preview.insert(
                0,
                Line::styled(text::truncate_line(&place, width), paint::DIM),
            );
        }
        preview.truncate(PREVIEW_LINES);
        lines.extend(preview);
    }
    lines
}
