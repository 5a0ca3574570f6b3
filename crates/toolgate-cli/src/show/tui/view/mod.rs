//! Drawing: it follows from the state alone, and costs the same whether the session is short or
//! long.

pub(crate) mod approvals;
mod choices;
mod conversation;
mod detail;
mod greeting;
mod hits;
pub(crate) mod item;
pub(crate) mod paint;
mod sidebar;
mod status;
mod toasts;
mod windows;

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    widgets::{Block, Borders},
};

use super::{ChatApp, app::PanelFocus};

/// The least width with a second column.
const MIN_TWO_COLUMNS: u16 = 60;

/// The areas of the screen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScreenAreas {
    pub(crate) sidebar: Option<Rect>,
    pub(crate) tabs: Option<Rect>,
    pub(crate) conversation: Rect,
    pub(crate) approvals: Option<Rect>,
    pub(crate) toasts: Rect,
    pub(crate) completion: Rect,
    pub(crate) input: Rect,
    pub(crate) status: Rect,
    /// The place for windows.
    pub(crate) window: Rect,
}

/// Lays everything out for a screen of this size and draws it.
pub fn draw(app: &mut ChatApp, frame: &mut Frame<'_>) {
    let areas = lay_out(app, frame.area());
    draw_areas(app, &areas, frame);
}

/// Computes the areas, and lays out the visible part of the conversation.
fn lay_out(app: &mut ChatApp, area: Rect) -> ScreenAreas {
    let areas = split_areas(app, area);
    let height = usize::from(areas.conversation.height);
    app.input
        .set_focused(app.focus == PanelFocus::Message && app.window.is_none());
    let lines = app.with_transcript(|transcript, source| {
        transcript.set_width(areas.conversation.width);
        transcript.visible_lines(source, height)
    });
    if let Some(mut search) = app.search.take() {
        let width = areas.conversation.width;
        app.with_transcript(|_, source| search.refresh(source, width));
        app.search = Some(search);
    }
    app.laid_out.height = height;
    app.laid_out.lines = lines.unwrap_or_default();
    windows::lay_out_window(app, areas.window);
    if let Some(area) = areas.approvals {
        approvals::note_seen(app, area);
    }
    areas
}

/// Draws the layout.
fn draw_areas(app: &ChatApp, areas: &ScreenAreas, frame: &mut Frame<'_>) {
    if let Some(area) = areas.tabs {
        sidebar::draw_tabs(app, frame, area);
    }
    if let Some(area) = areas.sidebar {
        sidebar::draw_sidebar(app, frame, area);
    }
    conversation::draw_conversation(app, frame, areas.conversation);
    if let Some(area) = areas.approvals {
        approvals::draw_panel(app, frame, area);
    }
    status::draw_input(app, frame, areas.input);
    status::draw_status(app, frame, areas.status);
    choices::draw_completion(app, frame, areas.completion);
    toasts::draw_toasts(app, frame, areas.toasts);
    windows::draw_window(app, frame, areas.window);
}

fn split_areas(app: &ChatApp, area: Rect) -> ScreenAreas {
    let written = u16::try_from(app.input.row_count(area.width.saturating_sub(2))).unwrap_or(1);
    let input = (written + 1).min(area.height.saturating_sub(2).max(1));
    let completion = choices::completion_height(app).min(area.height / 2);
    let [main, completion, input, status] = Layout::vertical([
        Constraint::Min(0),
        Constraint::Length(completion),
        Constraint::Length(input),
        Constraint::Length(1),
    ])
    .areas(area);
    let (sidebar, tabs, main) = split_agents(app, main);
    let said = toasts::toast_height(app, main.width);
    let wanted = approvals::panel_height(app, main.width);
    // Some rows of the conversation stay, as long as there are any to spare.
    let most = main.height.saturating_sub(3).max(main.height * 3 / 4);
    let approvals = wanted.min(most);
    let said = said.min(main.height.saturating_sub(approvals) / 2);
    let rows = [
        Constraint::Min(0),
        Constraint::Length(said),
        Constraint::Length(approvals),
    ];
    let [conversation, toasts, below] = Layout::vertical(rows).areas(main);
    // A window covers the panels, so the toasts move below it: they may be about the window.
    let (toasts, window) = if app.window.is_some() && said > 0 {
        let [window, toasts] =
            Layout::vertical([Constraint::Min(0), Constraint::Length(said)]).areas(area);
        (toasts, window)
    } else {
        (toasts, area)
    };
    ScreenAreas {
        sidebar,
        tabs,
        conversation: with_margins(conversation),
        approvals: (below.height > 0).then_some(below),
        toasts,
        completion,
        input,
        status,
        window,
    }
}

/// Splits off the list of agents, if there are several: a column, or a line where there is no room.
fn split_agents(app: &ChatApp, main: Rect) -> (Option<Rect>, Option<Rect>, Rect) {
    if app.screen.agents().len() < 2 {
        return (None, None, main);
    }
    if main.width >= MIN_TWO_COLUMNS {
        let wide = if main.width >= 120 { 34 } else { 25 };
        let [sidebar, main] =
            Layout::horizontal([Constraint::Length(wide), Constraint::Min(0)]).areas(main);
        return (Some(sidebar), None, main);
    }
    let [tabs, main] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(main);
    (None, Some(tabs), main)
}

/// Leaves a column of space at each side: text that touches the edge is hard to read.
fn with_margins(area: Rect) -> Rect {
    let air = u16::from(area.width > 20);
    Rect {
        x: area.x + air,
        width: area.width.saturating_sub(2 * air),
        ..area
    }
}

/// Creates a panel with a titled line above it.
pub(crate) fn panel<'a>(title: String, focused: bool) -> Block<'a> {
    let style = paint::title_style(focused);
    Block::new()
        .borders(Borders::TOP)
        .border_style(style)
        .title_style(style)
        .title(title)
}

#[cfg(test)]
mod tests;
