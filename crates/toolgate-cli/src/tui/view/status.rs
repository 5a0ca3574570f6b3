//! Where messages are written, and the line below: the model, how it goes, what it cost.

use ratatui::{
    Frame,
    layout::Rect,
    text::{Line, Span},
};
use toolgate::{Cost, RunEnd};
use unicode_width::UnicodeWidthStr;

use super::{
    super::{App, app::Focus, text},
    paint, panel,
};

pub(super) fn input(app: &App, frame: &mut Frame<'_>, area: Rect) {
    let block = panel(
        " message ".to_owned(),
        app.focus == Focus::Message && app.window.is_none(),
    );
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let [sign, written] = [
        Rect {
            width: inner.width.min(2),
            ..inner
        },
        shifted(inner),
    ];
    frame.render_widget(Span::styled("› ", paint::NOTE), sign);
    frame.render_widget(app.input.area(), written);
}

fn shifted(area: Rect) -> Rect {
    Rect {
        x: area.x + area.width.min(2),
        width: area.width.saturating_sub(2),
        ..area
    }
}

pub(super) fn draw(app: &App, frame: &mut Frame<'_>, area: Rect) {
    let width = usize::from(area.width);
    let spent = spent(app);
    let room = width.saturating_sub(spent.width() + 1);
    let mut left = vec![state(app)];
    let model = app.focused().and_then(|agent| agent.model.clone());
    left.push(text::one_line(model.as_deref().unwrap_or(&app.setup.model)));
    left.extend(
        app.search
            .as_ref()
            .map(super::super::search::Search::standing),
    );
    left.push("F1 help".to_owned());
    let left = text::cut(&left.join(" · "), room);
    let gap = " ".repeat(width.saturating_sub(left.width() + spent.width()));
    let style = if app.screen.pending().next().is_some() {
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

/// How it goes, in a few words.
fn state(app: &App) -> String {
    if app.stopping && app.at_work {
        return "stopping; Ctrl-C again quits".to_owned();
    }
    if app.stopping {
        return "Ctrl-C again quits".to_owned();
    }
    let waiting = app.screen.pending().count();
    match (app.at_work, waiting, app.screen.end()) {
        (true, 0, _) => {
            let round = app
                .screen
                .agents()
                .first()
                .map_or(0, |agent| agent.iteration);
            format!("{} working, round {}", paint::spinner(app.now), round + 1)
        }
        (true, waiting, _) => format!("? {waiting} to decide"),
        (false, _, None) if app.screen.agents().is_empty() => "ready".to_owned(),
        (false, _, None) => "stopped; Ctrl-R goes on".to_owned(),
        (false, _, Some(RunEnd::Completed)) => "ready".to_owned(),
        (false, _, Some(RunEnd::Suspended)) => "waits; Ctrl-R goes on".to_owned(),
        (false, _, Some(RunEnd::Cancelled)) => "interrupted; Ctrl-R goes on".to_owned(),
        (false, _, Some(RunEnd::MaxIterations)) => "rounds used up; Ctrl-R goes on".to_owned(),
        (false, _, Some(RunEnd::BudgetExceeded)) => "budget used up".to_owned(),
        (false, _, Some(RunEnd::LoopGuard)) => "went round in circles".to_owned(),
        (false, _, Some(RunEnd::Failed)) => "failed; Ctrl-R tries again".to_owned(),
    }
}

/// What was used and spent.
fn spent(app: &App) -> String {
    let usage = app.screen.usage();
    let mut parts = Vec::new();
    if let Some(alert) = app.screen.alerts().last() {
        parts.push(text::one_line(&format!(
            "{} {} %",
            alert.budget, alert.percent
        )));
    }
    if usage.total() > 0 {
        parts.push(format!("{} tok", text::thousands(usage.total())));
    }
    match app.screen.cost() {
        Some(Cost::Unknown) => parts.push("cost unknown".to_owned()),
        Some(cost @ Cost::NanoUsd(_)) => parts.push(cost.to_string()),
        None => {}
    }
    parts.join(" · ")
}

fn budget_style(app: &App) -> ratatui::style::Style {
    match app.screen.alerts().last() {
        Some(alert) if alert.percent >= 100 => paint::BAD,
        Some(_) => paint::WARN,
        None => paint::DIM,
    }
}
