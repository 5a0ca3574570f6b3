//! The conversation of one agent.

use ratatui::{
    Frame,
    layout::{Alignment, Rect},
    text::{Line, Span},
    widgets::Paragraph,
};

use super::{
    super::{ChatApp, transcript::ScrollPosition},
    paint,
};
use crate::show::screen::ConversationItem;

const WELCOME: &str =
    "Describe the task. Every tool call passes the gate; pending approvals appear below.";

pub(super) fn draw_conversation(app: &ChatApp, frame: &mut Frame<'_>, area: Rect) {
    if app.laid_out.lines.is_empty() {
        let hint = Paragraph::new(WELCOME)
            .style(paint::DIM)
            .wrap(ratatui::widgets::Wrap { trim: true });
        return frame.render_widget(hint, area);
    }
    let chosen = app.call.and_then(|call| {
        let items = &app.focused_agent()?.items;
        items
            .iter()
            .position(|item| *item == ConversationItem::Call(call))
    });
    let words = app
        .search
        .as_ref()
        .map(|search| search.words.as_str())
        .filter(|words| !words.is_empty());
    for ((item, line), y) in app.laid_out.lines.iter().zip(area.top()..area.bottom()) {
        let marked = words.map(|words| mark_matches(line, words));
        frame
            .buffer_mut()
            .set_line(area.x, y, marked.as_ref().unwrap_or(line), area.width);
        if Some(*item) == chosen && line.width() > 0 {
            frame.buffer_mut().set_style(
                Rect {
                    y,
                    height: 1,
                    ..area
                },
                paint::CHOSEN,
            );
        }
    }
    draw_more_hint(app, frame, area);
}

/// Shows a hint that there is more below while the user has scrolled up.
fn draw_more_hint(app: &ChatApp, frame: &mut Frame<'_>, area: Rect) {
    let is_up = app
        .transcripts
        .get(app.agent)
        .is_some_and(|transcript| transcript.scroll() != ScrollPosition::Follow);
    if is_up && area.height > 2 {
        let row = Rect {
            y: area.bottom() - 1,
            height: 1,
            ..area
        };
        let sign = Line::styled(" ↓ more below ", paint::CHOSEN).alignment(Alignment::Right);
        frame.render_widget(sign, row);
    }
}

/// Marks the matches of the search in a line.
fn mark_matches(line: &Line<'static>, words: &str) -> Line<'static> {
    let mut spans = Vec::new();
    for span in &line.spans {
        let lower = span.content.to_lowercase();
        // Some letters change their length with their case. Then the positions do not fit, and the
        // span stays as it is.
        if lower.len() != span.content.len() || !lower.contains(words) {
            spans.push(span.clone());
            continue;
        }
        let mut from = 0;
        for (at, _) in lower.match_indices(words) {
            let (Some(before), Some(found)) = (
                span.content.get(from..at),
                span.content.get(at..at + words.len()),
            ) else {
                continue;
            };
            spans.push(Span::styled(before.to_owned(), span.style));
            spans.push(Span::styled(found.to_owned(), paint::FOUND));
            from = at + words.len();
        }
        spans.push(Span::styled(
            span.content.get(from..).unwrap_or_default().to_owned(),
            span.style,
        ));
    }
    Line {
        spans,
        ..line.clone()
    }
}
