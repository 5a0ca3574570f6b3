//! Drawing: it follows from the state alone, and costs the same whether the session is short or
//! long.

pub(crate) mod approvals;
mod conversation;
mod detail;
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
/// The least width with a second column for a single agent.
const MIN_WIDE: u16 = 100;

/// The areas of the screen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScreenAreas {
    pub(crate) sidebar: Option<Rect>,
    pub(crate) tabs: Option<Rect>,
    pub(crate) conversation: Rect,
    pub(crate) approvals: Option<Rect>,
    pub(crate) input: Rect,
    pub(crate) status: Rect,
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
    app.laid_out.height = height;
    app.laid_out.lines = lines.unwrap_or_default();
    windows::lay_out_window(app, area);
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
    toasts::draw_toasts(app, frame, areas.conversation);
    windows::draw_window(app, frame);
}

fn split_areas(app: &ChatApp, area: Rect) -> ScreenAreas {
    let agents = app.screen.agents().len() > 1;
    let written = u16::try_from(app.input.row_count(area.width.saturating_sub(2))).unwrap_or(1);
    let input = (written + 1).min(area.height.saturating_sub(2).max(1));
    let [main, input, status] = Layout::vertical([
        Constraint::Min(0),
        Constraint::Length(input),
        Constraint::Length(1),
    ])
    .areas(area);
    let beside = area.width >= MIN_WIDE && app.screen.open_calls().next().is_some();
    let (sidebar, tabs, main) = if area.width >= MIN_TWO_COLUMNS && (agents || beside) {
        let wide = if area.width >= 120 { 34 } else { 25 };
        let [sidebar, main] =
            Layout::horizontal([Constraint::Length(wide), Constraint::Min(0)]).areas(main);
        (Some(sidebar), None, main)
    } else if agents {
        let [tabs, main] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(main);
        (None, Some(tabs), main)
    } else {
        (None, None, main)
    };
    let wanted = approvals::panel_height(app, main.width).min(main.height * 3 / 4);
    let [conversation, below] =
        Layout::vertical([Constraint::Min(0), Constraint::Length(wanted)]).areas(main);
    let approvals = (below.height > 0).then_some(below);
    // A column of space at each side: text that touches the edge is hard to read.
    let air = u16::from(conversation.width > 20);
    let conversation = Rect {
        x: conversation.x + air,
        width: conversation.width.saturating_sub(2 * air),
        ..conversation
    };
    ScreenAreas {
        sidebar,
        tabs,
        conversation,
        approvals,
        input,
        status,
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
