//! The few styles of the terminal UI. Colours are the terminal's own sixteen, so that they fit its theme.

use ratatui::style::{Color, Modifier, Style};
use toolgate::{Status, Timestamp};

use super::super::text;
use crate::{
    render::{SPINNER, status_sign, status_style, status_words, took},
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

/// The title of a panel: marked if keys go to it.
pub(crate) fn title(focused: bool) -> Style {
    if focused {
        NOTE.add_modifier(Modifier::BOLD)
    } else {
        DIM
    }
}

/// Something turns.
pub(crate) fn spinner(now: Timestamp) -> &'static str {
    let step = now.as_micros().max(0) / 100_000;
    SPINNER[usize::try_from(step).unwrap_or_default() % SPINNER.len()]
}

/// The sign and style of a call.
pub(crate) fn sign(call: &CallView, now: Timestamp) -> (&'static str, Style) {
    match call.state {
        CallState::Requested => ("○", DIM),
        CallState::Asked => ("?", WARN),
        CallState::Approved => ("●", NOTE),
        CallState::Running => (spinner(now), NOTE),
        CallState::Outside => ("◌", NOTE),
        CallState::Settled(status) => (status_sign(status), text::style(status_style(status))),
    }
}

/// How a call stands, in a few words.
pub(crate) fn standing(call: &CallView, now: Timestamp) -> String {
    let mut words = match call.state {
        CallState::Requested => "requested".to_owned(),
        CallState::Asked => "waits for you".to_owned(),
        CallState::Approved => "approved".to_owned(),
        CallState::Running if call.attempts > 1 => format!("running, attempt {}", call.attempts),
        CallState::Running => "running".to_owned(),
        CallState::Outside => "runs outside".to_owned(),
        CallState::Settled(Status::Ok) if call.cached => "remembered".to_owned(),
        CallState::Settled(status) => status_words(status).to_owned(),
    };
    if let Some(who) = &call.decided_by {
        words = format!("{words} · {}", text::one_line(who.as_str()));
    }
    match elapsed(call, now) {
        Some(ms) => format!("{words} · {}", took(ms)),
        None => words,
    }
}

/// How long the call took, or has taken so far.
pub(crate) fn elapsed(call: &CallView, now: Timestamp) -> Option<u64> {
    let so_far = || {
        let running = matches!(call.state, CallState::Running | CallState::Outside);
        let began = call.started_at.filter(|_| running)?;
        u64::try_from(now.since(began).as_millis()).ok()
    };
    call.duration_ms.or_else(so_far)
}
