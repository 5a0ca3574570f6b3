//! What is drawn: it follows from the state alone, and costs the same whether the session is short or long.

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

use super::{App, app::Focus};

/// From this width on there is room for a second column.
const TWO_COLUMNS: u16 = 60;
/// From this width on the second column is there also with a single agent.
const ROOMY: u16 = 100;

/// Where everything goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Areas {
    pub(crate) sidebar: Option<Rect>,
    pub(crate) tabs: Option<Rect>,
    pub(crate) conversation: Rect,
    pub(crate) approvals: Option<Rect>,
    pub(crate) input: Rect,
    pub(crate) status: Rect,
}

/// Lays everything out for a screen of this size and draws it.
pub fn draw(app: &mut App, frame: &mut Frame<'_>) {
    let areas = lay_out(app, frame.area());
    view(app, &areas, frame);
}

/// Decides what goes where, and lays out the part of the conversation that is to be seen.
fn lay_out(app: &mut App, area: Rect) -> Areas {
    let areas = areas(app, area);
    let height = usize::from(areas.conversation.height);
    app.input
        .set_focused(app.focus == Focus::Message && app.window.is_none());
    let lines = app.with_transcript(|transcript, source| {
        transcript.set_width(areas.conversation.width);
        transcript.window(source, height)
    });
    (app.laid_out.height, app.laid_out.lines) = (height, lines.unwrap_or_default());
    windows::lay_out(app, area);
    areas
}

/// Draws what was laid out.
fn view(app: &App, areas: &Areas, frame: &mut Frame<'_>) {
    if let Some(area) = areas.tabs {
        sidebar::tabs(app, frame, area);
    }
    if let Some(area) = areas.sidebar {
        sidebar::draw(app, frame, area);
    }
    conversation::draw(app, frame, areas.conversation);
    if let Some(area) = areas.approvals {
        approvals::draw(app, frame, area);
    }
    status::input(app, frame, areas.input);
    status::draw(app, frame, areas.status);
    toasts::draw(app, frame, areas.conversation);
    windows::draw(app, frame);
}

fn areas(app: &App, area: Rect) -> Areas {
    let agents = app.screen.agents().len() > 1;
    let written = u16::try_from(app.input.height(area.width.saturating_sub(2))).unwrap_or(1);
    let input = (written + 1).min(area.height.saturating_sub(2).max(1));
    let [main, input, status] = Layout::vertical([
        Constraint::Min(0),
        Constraint::Length(input),
        Constraint::Length(1),
    ])
    .areas(area);
    let beside = area.width >= ROOMY && app.screen.open_calls().next().is_some();
    let (sidebar, tabs, main) = match () {
        () if area.width >= TWO_COLUMNS && (agents || beside) => {
            let wide = if area.width >= 120 { 34 } else { 25 };
            let [sidebar, main] =
                Layout::horizontal([Constraint::Length(wide), Constraint::Min(0)]).areas(main);
            (Some(sidebar), None, main)
        }
        () if agents => {
            let [tabs, main] =
                Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(main);
            (None, Some(tabs), main)
        }
        () => (None, None, main),
    };
    let wanted = approvals::height(app, main.width).min(main.height * 3 / 5);
    let [conversation, below] =
        Layout::vertical([Constraint::Min(0), Constraint::Length(wanted)]).areas(main);
    let approvals = (below.height > 0).then_some(below);
    // A column of air at each side: text that touches the edge is hard to read.
    let air = u16::from(conversation.width > 20);
    let conversation = Rect {
        x: conversation.x + air,
        width: conversation.width.saturating_sub(2 * air),
        ..conversation
    };
    Areas {
        sidebar,
        tabs,
        conversation,
        approvals,
        input,
        status,
    }
}

/// A panel with a line above it that says what it is.
pub(crate) fn panel<'a>(title: String, focused: bool) -> Block<'a> {
    let style = paint::title(focused);
    Block::new()
        .borders(Borders::TOP)
        .border_style(style)
        .title_style(style)
        .title(title)
}
