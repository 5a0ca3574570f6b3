//! Lists to choose from: commands, sessions, completions.

use ratatui::{
    Frame,
    layout::Rect,
    text::{Line, Span},
    widgets::Paragraph,
};
use unicode_width::UnicodeWidthStr;

use super::{
    super::{ChatApp, message::SessionChoice, palette, text, update},
    paint,
};
use crate::env::ids;

/// Renders the command palette in at most `height` lines.
pub(super) fn palette_lines(
    filter: &str,
    selected: usize,
    width: usize,
    height: usize,
) -> Vec<Line<'static>> {
    let rows = palette::find_commands(filter)
        .into_iter()
        .map(|command| (command.name.to_owned(), command.keys));
    filtered_lines(filter, rows.collect(), selected, width, height)
}

/// Renders the sessions to choose from in at most `height` lines.
pub(super) fn session_lines(
    choices: &[SessionChoice],
    filter: &str,
    selected: usize,
    width: usize,
    height: usize,
) -> Vec<Line<'static>> {
    let rows = update::filter_sessions(choices, filter)
        .into_iter()
        .map(|choice| {
            let id = ids::short_id(choice.session);
            (
                text::one_line(&choice.about),
                format!("{}  {id}", choice.used),
            )
        });
    filtered_lines(filter, rows.collect(), selected, width, height)
}

/// Renders the field of a filter, which stays, and the part of the list with the selected row.
fn filtered_lines(
    filter: &str,
    rows: Vec<(String, String)>,
    selected: usize,
    width: usize,
    height: usize,
) -> Vec<Line<'static>> {
    let mut lines = field_lines("› ", filter, width);
    if rows.is_empty() {
        lines.push(Line::styled("nothing found", paint::DIM));
        return lines;
    }
    let room = height.saturating_sub(lines.len()).max(1);
    let first = (selected + 1).saturating_sub(room);
    let shown = rows.iter().enumerate().skip(first).take(room);
    lines.extend(shown.map(|(number, (name, end))| {
        let room = width.saturating_sub(end.width() + 1);
        let name = text::truncate_line(name, room);
        let gap = " ".repeat(room.saturating_sub(name.width()) + 1);
        Line::styled(format!("{name}{gap}{end}"), row_style(number == selected))
    }));
    lines
}

/// Renders a text field.
pub(super) fn field_lines(lead: &'static str, written: &str, width: usize) -> Vec<Line<'static>> {
    let room = width.saturating_sub(lead.width() + 1).max(4);
    // The end is where the user types.
    let rows = text::wrap_text(&format!("{written}▏"), room, paint::PLAIN);
    let last = rows.into_iter().next_back().unwrap_or_default();
    text::with_lead(Span::styled(lead, paint::DIM), vec![last])
}

pub(super) fn row_style(is_selected: bool) -> ratatui::style::Style {
    if is_selected {
        paint::CHOSEN
    } else {
        paint::PLAIN
    }
}

/// Returns the number of rows that the completions want.
pub(super) fn completion_height(app: &ChatApp) -> u16 {
    let shown = app.completion.as_ref().filter(|_| app.window.is_none());
    shown.map_or(0, |shown| u16::try_from(shown.choices.len()).unwrap_or(0))
}

/// Draws the completions of the word that is being written.
pub(super) fn draw_completion(app: &ChatApp, frame: &mut Frame<'_>, area: Rect) {
    let Some(shown) = &app.completion else { return };
    let width = usize::from(area.width).saturating_sub(2);
    let names = shown.choices.iter().map(|choice| choice.text.width());
    let names = names.max().unwrap_or_default().min(width);
    let first = (shown.selected + 1).saturating_sub(usize::from(area.height));
    let rows = shown.choices.iter().enumerate().skip(first);
    let rows = rows.map(|(number, choice)| {
        let name = text::truncate_line(&text::one_line(&choice.text), names);
        let gap = " ".repeat(names.saturating_sub(name.width()));
        let room = width.saturating_sub(names + 2);
        let does = text::truncate_line(choice.does, room);
        Line::from(vec![
            Span::raw("  "),
            Span::styled(format!("{name}{gap}"), row_style(number == shown.selected)),
            Span::styled(format!("  {does}"), paint::DIM),
        ])
    });
    frame.render_widget(Paragraph::new(rows.collect::<Vec<_>>()), area);
}
