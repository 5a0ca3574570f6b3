//! The sidebar: agents and their running calls.

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    text::{Line, Span},
    widgets::Paragraph,
};
use toolgate::{RunEnd, value::SessionId};

use super::{
    super::{ChatApp, app::PanelFocus, text},
    item, paint, panel,
};
use crate::show::screen::{AgentView, CallState};

pub(super) fn draw_sidebar(app: &ChatApp, frame: &mut Frame<'_>, area: Rect) {
    let agents = app.screen.agents();
    let listed = u16::try_from(agents.len() + 1)
        .unwrap_or(u16::MAX)
        .min(area.height.div_ceil(2).max(2));
    let [top, below] =
        Layout::vertical([Constraint::Length(listed), Constraint::Min(0)]).areas(area);
    let title = panel(
        " agents ".to_owned(),
        app.focus == PanelFocus::Agents && app.window.is_none(),
    );
    let inner = title.inner(top);
    frame.render_widget(title, top);
    // The selected agent stays visible, however many there are.
    let skip = (app.agent + 1).saturating_sub(usize::from(inner.height));
    let rows: Vec<Line<'_>> = agents
        .iter()
        .enumerate()
        .skip(skip)
        .map(|(n, agent)| agent_row(app, n, agent, area))
        .collect();
    frame.render_widget(Paragraph::new(rows), inner);
    draw_running(app, frame, below);
}

fn agent_row(app: &ChatApp, number: usize, agent: &AgentView, area: Rect) -> Line<'static> {
    let (sign, style) = agent_sign(app, agent);
    let waiting = pending_count(app, agent.session);
    let ask = if waiting > 0 {
        format!(" ?{waiting}")
    } else {
        String::new()
    };
    let room = usize::from(area.width).saturating_sub(5 + ask.len());
    let name = text::truncate_line(&app.agent_title(agent), room);
    let here = number == app.agent;
    Line::from(vec![
        Span::styled(if here { "▸ " } else { "  " }, paint::NOTE),
        Span::styled(format!("{sign} "), style),
        Span::styled(name, if here { paint::BOLD } else { paint::PLAIN }),
        Span::styled(ask, paint::WARN),
    ])
}

/// Returns the symbol of an agent: its activity, or how its run ended.
fn agent_sign(app: &ChatApp, agent: &AgentView) -> (&'static str, ratatui::style::Style) {
    match agent.end {
        None if pending_count(app, agent.session) > 0 => ("?", paint::WARN),
        None if agent.items.is_empty() => ("○", paint::DIM),
        None => (paint::spinner_frame(app.now), paint::NOTE),
        Some(RunEnd::Completed) => ("✓", paint::GOOD),
        Some(RunEnd::Suspended) => ("?", paint::WARN),
        Some(RunEnd::Cancelled) => ("■", paint::DIM),
        Some(
            RunEnd::MaxIterations | RunEnd::LoopGuard | RunEnd::Deadline | RunEnd::BudgetExceeded,
        ) => ("!", paint::WARN),
        Some(RunEnd::Failed) => ("✗", paint::BAD),
    }
}

fn pending_count(app: &ChatApp, session: SessionId) -> usize {
    app.screen
        .pending_calls()
        .filter(|call| call.invocation.turn.session == session)
        .count()
}

/// Draws the running calls with their progress.
fn draw_running(app: &ChatApp, frame: &mut Frame<'_>, area: Rect) {
    let runs = |state| matches!(state, CallState::Running | CallState::External);
    let mut lines = Vec::new();
    for call in app.screen.open_calls().filter(|call| runs(call.state)) {
        let width = usize::from(area.width).saturating_sub(1);
        let (sign, style) = paint::call_sign(call, app.now);
        let time = paint::elapsed_ms(call, app.now)
            .map(crate::show::render::format_duration)
            .unwrap_or_default();
        let tool = text::truncate_line(
            &text::one_line(call.invocation.tool.as_str()),
            width.saturating_sub(4 + time.len()),
        );
        lines.push(Line::from(vec![
            Span::styled(format!("{sign} "), style),
            Span::styled(format!("{tool} "), paint::BOLD),
            Span::styled(time, paint::DIM),
        ]));
        let what = call
            .progress
            .as_ref()
            .map_or_else(|| item::arguments_summary(call), item::format_progress);
        lines.push(Line::styled(
            format!("  {}", text::truncate_line(&what, width.saturating_sub(2))),
            paint::DIM,
        ));
    }
    if !lines.is_empty() && area.height > 1 {
        let title = panel(format!(" running {} ", lines.len() / 2), false);
        frame.render_widget(Paragraph::new(lines).block(title), area);
    }
}

/// Draws the agents in one line, where there is no room for a list.
pub(super) fn draw_tabs(app: &ChatApp, frame: &mut Frame<'_>, area: Rect) {
    let mut line = Line::default();
    for (number, agent) in app.screen.agents().iter().enumerate() {
        let (sign, style) = agent_sign(app, agent);
        let name = text::truncate_line(&app.agent_title(agent), 16);
        line.push_span(Span::styled(format!(" {sign} "), style));
        line.push_span(Span::styled(
            name,
            if number == app.agent {
                paint::CHOSEN
            } else {
                paint::PLAIN
            },
        ));
    }
    frame.render_widget(line, area);
}
