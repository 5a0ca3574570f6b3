//! Toasts in the corner. They fade before they disappear.

use std::time::Duration;

use ratatui::{
    Frame,
    layout::Rect,
    style::Style,
    text::Line,
    widgets::{Block, Borders, Clear, Paragraph},
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

pub(super) fn draw_toasts(app: &ChatApp, frame: &mut Frame<'_>, area: Rect) {
    let width = (area.width * 2 / 3)
        .clamp(area.width.min(24), 48)
        .min(area.width);
    let mut y = area.y;
    for toast in app.toasts.iter().rev() {
        let words = format!(
            "{}: {}",
            text::one_line(&toast.title),
            text::one_line(&toast.message)
        );
        let style = toast_style(toast, app);
        let room = usize::from(width).saturating_sub(3).max(1);
        let mut lines = text::wrap_text(&words, room, style);
        lines.truncate(MAX_TOAST_LINES);
        if let Some(action) = &toast.action {
            let offer = format!("Ctrl-O {}", text::one_line(&action.label));
            lines.push(Line::styled(text::truncate_line(&offer, room), paint::DIM));
        }
        let height = u16::try_from(lines.len()).unwrap_or(1);
        if y + height > area.bottom() {
            return;
        }
        let place = Rect {
            x: area.right() - width,
            y,
            width,
            height,
        };
        let block = Block::new().borders(Borders::LEFT).border_style(style);
        frame.render_widget(Clear, place);
        frame.render_widget(Paragraph::new(lines).block(block), place);
        y += height;
    }
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
