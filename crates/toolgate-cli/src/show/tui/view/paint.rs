//! The styles of the terminal UI. Colours are the terminal's own sixteen, so that they match its
//! theme.

use ratatui::style::{Color, Modifier, Style};
use toolgate::{Status, value::Timestamp};

use super::super::text;
use crate::show::{
    render::{self, SPINNER, format_duration, result::outcome_text},
    screen::{CallState, CallView},
};

pub(crate) const PLAIN: Style = Style::new();
pub(crate) const DIM: Style = Style::new().add_modifier(Modifier::DIM);
pub(crate) const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
pub(crate) const GOOD: Style = Style::new().fg(Color::Green);
pub(crate) const WARN: Style = Style::new().fg(Color::Yellow);
pub(crate) const BAD: Style = Style::new().fg(Color::Red);
pub(crate) const NOTE: Style = Style::new().fg(Color::Cyan);
pub(crate) const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);
pub(crate) const FOUND: Style = Style::new().fg(Color::Black).bg(Color::Yellow);

/// Returns the style of a panel's title; the panel with the focus is highlighted.
pub(crate) fn title_style(focused: bool) -> Style {
    if focused {
        NOTE.add_modifier(Modifier::BOLD)
    } else {
        DIM
    }
}

/// Returns the number of the current frame of the spinner.
fn frame_number(now: Timestamp) -> usize {
    let step = now.as_micros().max(0) / 100_000;
    usize::try_from(step).unwrap_or_default() % SPINNER.len()
}

/// Returns the current frame of the spinner.
pub(crate) fn spinner_frame(now: Timestamp) -> &'static str {
    SPINNER[frame_number(now)]
}

/// Returns the symbol and style of a call.
pub(crate) fn call_sign(call: &CallView, now: Timestamp) -> (&'static str, Style) {
    let (sign, style) = render::call_sign(call, frame_number(now));
    (sign, text::convert_style(style))
}

/// Returns the state of a call in a few words.
pub(crate) fn call_status(call: &CallView, now: Timestamp) -> String {
    let mut words = match call.state {
        CallState::Running if call.attempts > 1 => {
            format!("{}, attempt {}", call.state.text(), call.attempts)
        }
        CallState::Settled(Status::Ok) if call.cached => "cached".to_owned(),
        _ => outcome_text(call),
    };
    if let Some(who) = call.deciders() {
        words = format!("{words} · {}", text::one_line(&who));
    }
    match elapsed_ms(call, now) {
        Some(ms) => format!("{words} · {}", format_duration(ms)),
        None => words,
    }
}

/// Returns how long the call took, or has taken so far.
pub(crate) fn elapsed_ms(call: &CallView, now: Timestamp) -> Option<u64> {
    let so_far = || {
        let running = matches!(call.state, CallState::Running | CallState::External);
        let began = call.started_at.filter(|_| running)?;
        u64::try_from(now.since(began).as_millis()).ok()
    };
    call.took_ms().or_else(so_far)
}
