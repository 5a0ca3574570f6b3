//! Toasts in rows of their own, so that they cover nothing. They fade before they disappear.

use std::time::Duration;

use ratatui::{
    Frame,
    layout::Rect,
    style::Style,
    text::{Line, Span},
    widgets::Paragraph,
};
use toolgate::layers::{Toast, ToastLevel};

use super::{
    super::{ChatApp, text},
    paint,
};

/// The time before its end in which a toast is faded.
const FADE_TIME: Duration = Duration::from_millis(1_000);
/// The most lines of one toast.
const MAX_TOAST_LINES: usize = 3;

/// Returns the number of rows that the toasts want.
pub(super) fn toast_height(app: &ChatApp, width: u16) -> u16 {
    u16::try_from(toast_lines(app, width).len()).unwrap_or(u16::MAX)
}

/// Draws the toasts, newest first; of those that do not fit, the oldest are left out.
pub(super) fn draw_toasts(app: &ChatApp, frame: &mut Frame<'_>, area: Rect) {
    frame.render_widget(Paragraph::new(toast_lines(app, area.width)), area);
}

fn toast_lines(app: &ChatApp, width: u16) -> Vec<Line<'static>> {
    let room = usize::from(width).saturating_sub(3).max(1);
    let mut lines = Vec::new();
    for toast in app.toasts.iter().rev() {
        let words = format!(
            "{}: {}",
            text::one_line(&toast.title),
            text::one_line(&toast.message)
        );
        let style = toast_style(toast, app);
        let mut rows = text::wrap_text(&words, room, style);
        rows.truncate(MAX_TOAST_LINES);
        if let Some(action) = &toast.action {
            let offer = format!("Ctrl-O {}", text::one_line(&action.label));
            rows.push(Line::styled(text::truncate_line(&offer, room), paint::DIM));
        }
        for row in rows {
            lines.extend(text::with_lead(Span::styled(" │ ", style), vec![row]));
        }
    }
    lines
}

fn toast_style(toast: &Toast, app: &ChatApp) -> Style {
    let fades = |lasts: Duration| toast.created_at.plus(lasts.saturating_sub(FADE_TIME)) <= app.now;
    if toast.duration.is_some_and(fades) {
        return paint::DIM;
    }
    match toast.level {
        ToastLevel::Info => paint::NOTE,
        ToastLevel::Success => paint::GOOD,
        ToastLevel::Warning => paint::WARN,
        ToastLevel::Error => paint::BAD,
    }
}
