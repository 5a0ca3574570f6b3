//! The panel of pending approvals, with details of the selected one.

use ratatui::{
    Frame,
    layout::Rect,
    text::{Line, Span},
    widgets::Paragraph,
};

use super::{
    super::{ChatApp, app::PanelFocus, text},
    item, paint, panel,
};
use crate::show::{keys::offered_answers, screen::CallView};

/// The most calls that are listed at once.
const MAX_LISTED: usize = 5;

/// Returns the height that the panel wants.
pub(super) fn panel_height(app: &ChatApp, width: u16) -> u16 {
    let waiting = app.screen.pending_calls().count().min(MAX_LISTED);
    let width = usize::from(width.max(8));
    // What fits is seen, so these are the keys that will be offered.
    let keys = key_lines(app, width, true).len();
    let about = app
        .selected_approval()
        .map_or(0, |(call, _)| request_lines(call, width - 2).len());
    u16::try_from(if waiting == 0 {
        0
    } else {
        1 + waiting + about + keys
    })
    .unwrap_or(u16::MAX)
}

/// Remembers the selected request if the panel shows all of it.
pub(super) fn note_seen(app: &mut ChatApp, area: Rect) {
    let Some((call, request)) = app.selected_approval() else {
        return;
    };
    // The line above the panel, the list, everything about the call, and the keys.
    let fits = panel_height(app, area.width) <= area.height;
    let key = (call.invocation.id, request.generation);
    if fits && matches!(call.shown, Some(Ok(_))) && app.window.is_none() {
        app.seen.insert(key);
    }
}

pub(super) fn draw_panel(app: &ChatApp, frame: &mut Frame<'_>, area: Rect) {
    let focused = app.focus == PanelFocus::Approvals && app.window.is_none();
    let block = panel(panel_title(app), focused).border_style(paint::WARN);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let width = usize::from(inner.width);
    let mut lines = list_lines(app, width, focused, usize::from(inner.height));
    if let Some((call, request)) = app.selected_approval() {
        let keys = key_lines(app, width, app.is_seen(request));
        let room = usize::from(inner.height).saturating_sub(lines.len() + keys.len());
        let mut about = request_lines(call, width.max(8) - 2);
        if about.len() > room {
            let shown = room.saturating_sub(1);
            let more = format!("… {} more rows; v shows all of them", about.len() - shown);
            about.truncate(shown);
            about.push(Line::styled(more, paint::WARN));
        }
        lines.extend(text::with_lead(Span::raw("  "), about));
        lines.extend(keys);
    }
    frame.render_widget(Paragraph::new(lines), inner);
}

fn panel_title(app: &ChatApp) -> String {
    match app.screen.pending_calls().count() {
        1 => " 1 approval pending ".to_owned(),
        waiting => format!(" {waiting} approvals pending "),
    }
}

/// Renders the keys that answer the selected request, each of them in any width.
pub(crate) fn key_lines(app: &ChatApp, width: usize, is_seen: bool) -> Vec<Line<'static>> {
    let Some((_, request)) = app.selected_approval() else {
        return Vec::new();
    };
    let pending = app.screen.pending_calls().count();
    let offered = offered_answers(request, &app.setup.me, is_seen, pending);
    let mut keys: Vec<(String, &str)> = offered
        .map(|binding| (binding.label_list(), binding.label))
        .collect();
    let is_here = app.focus == PanelFocus::Approvals;
    if !is_here {
        keys.insert(0, ("Tab".to_owned(), "to decide:"));
    }
    let mut lines = vec![Line::from("  ")];
    for (key, label) in keys {
        let used = lines.last().map_or(0, Line::width);
        if used > 2 && used + key.len() + label.len() + 1 > width {
            lines.push(Line::from("  "));
        }
        let style = if is_here { paint::BOLD } else { paint::DIM };
        lines.last_mut().into_iter().for_each(|line| {
            line.push_span(Span::styled(key.clone(), style.patch(paint::WARN)));
            line.push_span(Span::styled(format!(" {label}  "), paint::DIM));
        });
    }
    lines
}

/// Renders the list of calls around the selected one.
fn list_lines(app: &ChatApp, width: usize, focused: bool, height: usize) -> Vec<Line<'static>> {
    let waiting: Vec<&CallView> = app.screen.pending_calls().collect();
    let chosen = app.selected_approval().map(|(call, _)| call.invocation.id);
    let at = waiting
        .iter()
        .position(|call| Some(call.invocation.id) == chosen)
        .unwrap_or_default();
    let most = MAX_LISTED.min(height.saturating_sub(1)).max(1);
    let skip = (at + 1).saturating_sub(most);
    let row = |(number, call): (usize, &&CallView)| {
        let here = number == at;
        let sign = if here { "▸" } else { " " };
        let on_its_way = if app.deciding.contains(&call.invocation.id) {
            " …"
        } else {
            ""
        };
        let who = match &call.invocation.turn.agent_name {
            Some(name) => format!(" ({})", text::one_line(name)),
            None => String::new(),
        };
        let tool = text::one_line(call.invocation.tool.as_str());
        let row = format!(
            "{sign}{} {tool} {}{who}{on_its_way}",
            number + 1,
            item::arguments_summary(call)
        );
        let style = match (here, focused) {
            (true, true) => paint::CHOSEN,
            (true, false) => paint::BOLD,
            (false, _) => paint::PLAIN,
        };
        Line::styled(text::truncate_line(&row, width), style)
    };
    waiting
        .iter()
        .enumerate()
        .skip(skip)
        .take(most)
        .map(row)
        .collect()
}

/// Renders the approval request of a call: everything an approver sees.
pub(crate) fn request_lines(call: &CallView, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    match &call.shown {
        Some(Ok(shown)) => lines.extend(text::shown_lines(shown, width)),
        Some(Err(problem)) => lines.extend(text::wrap_text(problem, width, paint::BAD)),
        None => lines.push(Line::styled("loading the request …", paint::DIM)),
    }
    lines
}
