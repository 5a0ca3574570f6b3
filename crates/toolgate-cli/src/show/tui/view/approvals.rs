//! The panel of pending approvals, with details of the selected one.

use ratatui::{
    Frame,
    layout::Rect,
    text::{Line, Span},
    widgets::Paragraph,
};
use toolgate::{approval::ApprovalRequest, layers::RuleDraft, value::Timestamp};

use super::{
    super::{ChatApp, app::PanelFocus, text},
    item, paint, panel,
};
use crate::show::{
    entitlement::Entitlement,
    render::{format_duration, risk_text},
    screen::CallView,
};

/// The most lines of a diff or of arguments that the panel renders; more never fits.
const MAX_DETAIL_LINES: usize = 100;
/// The most calls that are listed at once.
const MAX_LISTED: usize = 5;

/// Returns the height that the panel wants.
pub(super) fn panel_height(app: &ChatApp, width: u16) -> u16 {
    let waiting = app.screen.pending_calls().count().min(MAX_LISTED);
    let about = app.selected_approval().map_or(0, |(_, request)| {
        request_lines(
            request,
            app.now,
            usize::from(width.max(8)) - 2,
            MAX_DETAIL_LINES,
        )
        .len()
    });
    u16::try_from(if waiting == 0 { 0 } else { 1 + waiting + about }).unwrap_or(u16::MAX)
}

pub(super) fn draw_panel(app: &ChatApp, frame: &mut Frame<'_>, area: Rect) {
    let focused = app.focus == PanelFocus::Approvals && app.window.is_none();
    let block = panel(panel_title(app, focused, area.width), focused).border_style(paint::WARN);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let width = usize::from(inner.width);
    let mut lines = list_lines(app, width, focused, usize::from(inner.height));
    if let Some((_, request)) = app.selected_approval() {
        let room = usize::from(inner.height).saturating_sub(lines.len());
        let mut about = request_lines(request, app.now, width.max(8) - 2, MAX_DETAIL_LINES);
        if about.len() > room {
            about.truncate(room.saturating_sub(1));
            about.push(Line::styled("… Enter shows everything", paint::DIM));
        }
        lines.extend(text::with_lead(Span::raw("  "), about));
    }
    frame.render_widget(Paragraph::new(lines), inner);
}

fn panel_title(app: &ChatApp, focused: bool, width: u16) -> String {
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

/// Renders an approval request: reason, risk, expiry, and what would change.
pub(crate) fn request_lines(
    request: &ApprovalRequest,
    now: Timestamp,
    width: usize,
    most: usize,
) -> Vec<Line<'static>> {
    let mut facts = vec![risk_text(request.risk).to_owned()];
    facts.extend(request.expires_at.map(|until| expiry_text(until, now)));
    facts.extend(
        request
            .quorum
            .as_ref()
            .map(|quorum| format!("{} approvals needed", quorum.needed)),
    );
    let reason = request
        .reason
        .as_deref()
        .map(|reason| format!("{} · ", text::one_line(reason)))
        .unwrap_or_default();
    let mut lines = text::wrap_text(
        &format!("{reason}{}", facts.join(" · ")),
        width,
        paint::WARN,
    );
    for changed in &request.changed {
        let code = changed.code().replace('_', " ");
        lines.extend(text::wrap_text(
            &format!("requested again: {code}"),
            width,
            paint::BAD,
        ));
    }
    lines.extend(preview_lines(request, width, most));
    lines
}

/// Renders the preview if there is one, otherwise the arguments.
fn preview_lines(request: &ApprovalRequest, width: usize, most: usize) -> Vec<Line<'static>> {
    let begin = |text: String| text.lines().take(most).collect::<Vec<_>>().join("\n");
    match &request.shown {
        Some(shown) => text::diff_lines(&begin(text::format_value(shown)), width),
        None if request.withheld => {
            text::wrap_text("the arguments are withheld", width, paint::DIM)
        }
        None => text::wrap_text(
            &begin(text::format_value(request.arguments.as_json().as_value())),
            width,
            paint::PLAIN,
        ),
    }
}

fn expiry_text(until: Timestamp, now: Timestamp) -> String {
    match u64::try_from(until.since(now).as_millis()) {
        Ok(ms) if until > now => format!("expires in {}", format_duration(ms)),
        _ => "expired".to_owned(),
    }
}
