//! The message editor, and the status line below: state, model, tokens and cost.

use ratatui::{
    Frame,
    layout::Rect,
    text::{Line, Span},
};
use toolgate::{RunEnd, budget::BudgetAlertLevel, event::Cost};
use unicode_width::UnicodeWidthStr;

use super::{
    super::{ChatApp, app::PanelFocus, text},
    paint, panel,
};

pub(super) fn draw_input(app: &ChatApp, frame: &mut Frame<'_>, area: Rect) {
    let block = panel(
        " message ".to_owned(),
        app.focus == PanelFocus::Message && app.window.is_none(),
    );
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let [sign, written] = [
        Rect {
            width: inner.width.min(2),
            ..inner
        },
        text_area(inner),
    ];
    frame.render_widget(Span::styled("› ", paint::NOTE), sign);
    frame.render_widget(app.input.widget(), written);
}

fn text_area(area: Rect) -> Rect {
    Rect {
        x: area.x + area.width.min(2),
        width: area.width.saturating_sub(2),
        ..area
    }
}

pub(super) fn draw_status(app: &ChatApp, frame: &mut Frame<'_>, area: Rect) {
    let width = usize::from(area.width);
    let spent = usage_text(app);
    let room = width.saturating_sub(spent.width() + 1);
    let mut left = vec![run_status(app)];
    // Before the model, whose name may be too long for the rest.
    let help = if app.input.is_empty() { "?" } else { "F1" };
    left.push(format!("{help} help"));
    left.extend(
        app.search
            .as_ref()
            .map(crate::show::tui::search::ConversationSearch::status_text),
    );
    left.push(text::one_line(&model_name(app)));
    let left = text::truncate_line(&left.join(" · "), room);
    let gap = " ".repeat(width.saturating_sub(left.width() + spent.width()));
    let style = if app.screen.pending_calls().next().is_some() {
        paint::WARN
    } else {
        paint::DIM
    };
    let line = Line::from(vec![
        Span::styled(left, style),
        Span::raw(gap),
        Span::styled(spent, budget_style(app)),
    ]);
    frame.render_widget(line, area);
}

/// Returns the model that works, or that the next run of the session uses.
fn model_name(app: &ChatApp) -> String {
    let routed = app.focused_agent().and_then(|agent| agent.model.clone());
    match routed {
        Some(model) if app.at_work || app.agent > 0 => model.to_string(),
        _ => app.setup.model.clone(),
    }
}

/// Returns the state of the run in a few words.
fn run_status(app: &ChatApp) -> String {
    if app.stopping && app.at_work {
        return "stopping; Ctrl-C again quits".to_owned();
    }
    if app.stopping {
        return "Ctrl-C again quits".to_owned();
    }
    let waiting = app.screen.pending_calls().count();
    match (app.at_work, waiting, app.screen.run_end()) {
        (true, 0, _) => {
            let round = app
                .screen
                .agents()
                .first()
                .map_or(0, |agent| agent.iteration);
            format!(
                "{} working, iteration {}",
                paint::spinner_frame(app.now),
                round + 1
            )
        }
        (true, waiting, _) => format!("? {waiting} pending"),
        (false, _, None) if app.screen.agents().is_empty() => "ready".to_owned(),
        (false, _, None) => "stopped; Ctrl-R resumes".to_owned(),
        (false, _, Some(RunEnd::Completed)) => "ready".to_owned(),
        (
            false,
            _,
            Some(
                end @ (RunEnd::Suspended
                | RunEnd::Cancelled
                | RunEnd::Deadline
                | RunEnd::MaxIterations),
            ),
        ) => {
            format!("{}; Ctrl-R resumes", end.text())
        }
        (false, _, Some(end @ (RunEnd::BudgetExceeded | RunEnd::LoopGuard))) => {
            end.text().to_owned()
        }
        (false, _, Some(end @ RunEnd::Failed)) => format!("{}; Ctrl-R retries", end.text()),
    }
}

/// Returns the tokens and cost so far.
fn usage_text(app: &ChatApp) -> String {
    let usage = app.screen.usage();
    let mut parts = Vec::new();
    if let Some(alert) = app.screen.budget_alerts().last() {
        parts.push(text::one_line(&format!(
            "{} {} %",
            alert.budget, alert.percent
        )));
    }
    if usage.total_tokens() > 0 {
        parts.push(format!(
            "{} tok",
            text::format_thousands(usage.total_tokens())
        ));
    }
    match app.screen.cost() {
        Some(Cost::Unknown) => parts.push("cost unknown".to_owned()),
        Some(cost @ Cost::NanoUsd(_)) => parts.push(cost.to_string()),
        None => {}
    }
    parts.join(" · ")
}

fn budget_style(app: &ChatApp) -> ratatui::style::Style {
    match app.screen.budget_alerts().last() {
        Some(alert) => match alert.level {
            BudgetAlertLevel::Info => paint::DIM,
            BudgetAlertLevel::Warning | BudgetAlertLevel::Critical => paint::WARN,
            BudgetAlertLevel::Exceeded => paint::BAD,
        },
        None => paint::DIM,
    }
}
