//! The greeting of an empty conversation: where it is, and what to do first.

use ratatui::text::{Line, Span};

use super::{
    super::{ChatApp, text},
    paint,
};
use crate::env::ids;

/// The first steps of a new user.
const FIRST_STEPS: [&str; 3] = [
    "Describe a task and press Enter, for example: What does this project do?",
    "@ names a file in the message, / lists the commands, ? all keys.",
    "A call that needs your approval is listed below: Tab goes there, y approves, n denies.",
];

/// Renders the greeting.
pub(super) fn greeting_lines(app: &ChatApp, width: usize) -> Vec<Line<'static>> {
    let setup = &app.setup;
    let mut lines = vec![Line::default()];
    let mut add = |name: &str, value: &str| {
        let value = text::wrap_text(value, width.saturating_sub(12).max(8), paint::BOLD);
        let name = Span::styled(format!("{name:<11} "), paint::DIM);
        lines.extend(text::with_lead(name, value));
    };
    add("directory", &text::one_line(&setup.project));
    add("model", &text::one_line(&setup.model));
    add("session", &ids::short_id(setup.session));
    if let Some(previous) = setup.previous {
        let id = ids::short_id(previous);
        add("before", &format!("{id}, saved; /resume returns to it"));
    }
    lines.push(Line::default());
    for (number, step) in FIRST_STEPS.iter().enumerate() {
        let step = text::wrap_text(step, width.saturating_sub(3).max(8), paint::PLAIN);
        let number = Span::styled(format!("{}  ", number + 1), paint::NOTE);
        lines.extend(text::with_lead(number, step));
    }
    lines
}
