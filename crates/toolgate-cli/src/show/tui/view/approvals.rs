//! The panel of pending approvals, with details of the selected one.

use ratatui::{
    Frame,
    layout::Rect,
    text::{Line, Span},
    widgets::Paragraph,
};
use toolgate::{layers::RuleDraft, value::Timestamp};

use super::{
    super::{ChatApp, app::PanelFocus, text},
    item, paint, panel,
};
use crate::show::{entitlement::Entitlement, render::format_duration, screen::CallView};

/// The most calls that are listed at once.
const MAX_LISTED: usize = 5;

/// Returns the height that the panel wants.
pub(super) fn panel_height(app: &ChatApp, width: u16) -> u16 {
    let waiting = app.screen.pending_calls().count().min(MAX_LISTED);
    let about = app.selected_approval().map_or(0, |(call, _)| {
        request_lines(call, app.now, usize::from(width.max(8)) - 2).len()
    });
    u16::try_from(if waiting == 0 { 0 } else { 1 + waiting + about }).unwrap_or(u16::MAX)
}

/// Remembers the selected request if the panel shows all of it.
pub(super) fn note_seen(app: &mut ChatApp, area: Rect) {
    let Some((call, request)) = app.selected_approval() else {
        return;
    };
    // The line above the panel, the list, and everything about the call.
    let fits = panel_height(app, area.width) <= area.height;
    let key = (call.invocation.id, request.generation);
    if fits && matches!(call.shown, Some(Ok(_))) && app.window.is_none() {
        app.seen.insert(key);
    }
}

pub(super) fn draw_panel(app: &ChatApp, frame: &mut Frame<'_>, area: Rect) {
    let focused = app.focus == PanelFocus::Approvals && app.window.is_none();
    let block = panel(panel_title(app, focused, area.width), focused).border_style(paint::WARN);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let width = usize::from(inner.width);
    let mut lines = list_lines(app, width, focused, usize::from(inner.height));
    if let Some((call, _)) = app.selected_approval() {
        let room = usize::from(inner.height).saturating_sub(lines.len());
        let mut about = request_lines(call, app.now, width.max(8) - 2);
        if about.len() > room {
            let shown = room.saturating_sub(1);
            let more = format!(
                "… {} more rows; Enter shows all of them",
                about.len() - shown
            );
            about.truncate(shown);
            about.push(Line::styled(more, paint::WARN));
        }
        lines.extend(text::with_lead(Span::raw("  "), about));
    }
    frame.render_widget(Paragraph::new(lines), inner);
}

pub(crate) fn panel_title(app: &ChatApp, focused: bool, width: u16) -> String {
    let waiting = app.screen.pending_calls().count();
    let calls = if waiting == 1 {
        "1 approval pending".to_owned()
    } else {
        format!("{waiting} approvals pending")
    };
    let selected = app.selected_approval().map(|(_, request)| request);
    let has_draft = selected.is_some_and(|request| RuleDraft::check_request(request).is_ok());
    // Keys that would be rejected are not offered.
    let can_approve =
        selected.is_none_or(|request| Entitlement::of(request, &app.setup.me).can_approve());
    let keys = match (focused, width, has_draft) {
        (true, 70.., _) if !can_approve => "n deny  ? explain",
        (true, _, _) if !can_approve => "n ?",
        (true, 70.., true) => "y approve  n deny  e edit  a always  ? explain",
        (true, 70.., false) => "y approve  n deny  e edit  ? explain",
        (true, _, true) => "y n e a ?",
        (true, _, false) => "y n e ?",
        (false, _, _) => "Tab to decide",
    };
    text::truncate_line(&format!(" {calls} · {keys} "), usize::from(width))
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

/// Renders the approval request of a call: how long it is valid, and everything an approver sees.
pub(crate) fn request_lines(call: &CallView, now: Timestamp, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if let Some(until) = call
        .question
        .as_ref()
        .and_then(|request| request.expires_at)
    {
        lines.extend(text::wrap_text(
            &expiry_text(until, now),
            width,
            paint::WARN,
        ));
    }
    match &call.shown {
        Some(Ok(shown)) => lines.extend(text::shown_lines(shown, width)),
        Some(Err(problem)) => lines.extend(text::wrap_text(problem, width, paint::BAD)),
        None => lines.push(Line::styled("loading the request …", paint::DIM)),
    }
    lines
}

fn expiry_text(until: Timestamp, now: Timestamp) -> String {
    match u64::try_from(until.since(now).as_millis()) {
        Ok(ms) if until > now => format!("expires in {}", format_duration(ms)),
        _ => "expired".to_owned(),
    }
}
