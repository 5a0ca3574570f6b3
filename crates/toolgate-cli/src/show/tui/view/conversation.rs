//! The conversation of one agent.

use ratatui::{
    Frame,
    layout::{Alignment, Rect},
    text::Line,
    widgets::Paragraph,
};

use super::{
    super::{ChatApp, transcript::ScrollPosition},
    greeting, paint,
};
use crate::show::screen::ConversationItem;

pub(super) fn draw_conversation(app: &ChatApp, frame: &mut Frame<'_>, area: Rect) {
    if app.laid_out.lines.is_empty() {
        let lines = greeting::greeting_lines(app, usize::from(area.width));
        return frame.render_widget(Paragraph::new(lines), area);
    }
    let chosen = app.call.and_then(|call| {
        let items = &app.focused_agent()?.items;
        items
            .iter()
            .position(|item| *item == ConversationItem::Call(call))
    });
    let lines = marked_lines(app);
    for ((item, line), y) in lines.iter().zip(area.top()..area.bottom()) {
        frame.buffer_mut().set_line(area.x, y, line, area.width);
        if Some(*item) == chosen && line.width() > 0 {
            let row = Rect {
                y,
                height: 1,
                ..area
            };
            frame.buffer_mut().set_style(row, paint::CHOSEN);
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

/// Returns the visible lines with their items, with the matches of the search marked.
fn marked_lines(app: &ChatApp) -> Vec<(usize, Line<'static>)> {
    let lines = &app.laid_out.lines;
    let mut marked = Vec::with_capacity(lines.len());
    for group in lines.chunk_by(|one, next| one.item == next.item) {
        let texts: Vec<&Line<'static>> = group.iter().map(|line| &line.text).collect();
        let rows = match &app.search {
            Some(search) => search.mark_lines(group[0].item, group[0].number, &texts),
            None => texts.into_iter().cloned().collect(),
        };
        marked.extend(rows.into_iter().map(|row| (group[0].item, row)));
    }
    marked
}
