//! Moving around: panels, agents, calls, scrolling and search.

use toolgate::value::CallId;

use super::super::{
    ChatApp,
    app::{OverlayWindow, PanelFocus},
    search::{ConversationSearch, StepDirection},
};
use crate::show::{keys::KeyAction, screen::ConversationItem};

/// Returns the panels that exist now, in the order of Tab.
fn panels(app: &ChatApp) -> Vec<PanelFocus> {
    let mut panels = vec![PanelFocus::Message];
    if app.screen.pending_calls().next().is_some() {
        panels.push(PanelFocus::Approvals);
    }
    panels.push(PanelFocus::Conversation);
    if app.screen.agents().len() > 1 {
        panels.push(PanelFocus::Agents);
    }
    panels
}

pub(super) fn move_focus(app: &mut ChatApp, way: StepDirection) {
    if app.window.is_some() {
        return;
    }
    let panels = panels(app);
    let now = panels
        .iter()
        .position(|panel| *panel == app.focus)
        .unwrap_or_default();
    app.focus = panels[way.step_index(now, panels.len())];
}

pub(super) fn show_agent(app: &mut ChatApp, way: StepDirection) {
    let agents = app.screen.agents().len();
    if agents > 1 {
        app.agent = way.step_index(app.agent, agents);
        app.call = None;
        app.search = None;
    }
}

/// Scrolls or moves the selection in the window or panel that has the keys.
pub(super) fn move_or_scroll(app: &mut ChatApp, action: KeyAction) {
    let page = app.laid_out.window_height.max(2) - 1;
    if let Some(window) = &mut app.window {
        if let Some(scroll) = window_scroll(window) {
            *scroll = match action {
                KeyAction::Up => scroll.saturating_sub(1),
                KeyAction::Down => *scroll + 1,
                KeyAction::PageUp => scroll.saturating_sub(page),
                KeyAction::PageDown => *scroll + page,
                KeyAction::Top => 0,
                // The layout clamps it to the last page, whose position is not known here.
                _ => usize::MAX / 2,
            };
        }
        return;
    }
    match (app.focus, action) {
        (PanelFocus::Approvals, KeyAction::Up) => choose_approval(app, StepDirection::Previous),
        (PanelFocus::Approvals, KeyAction::Down) => choose_approval(app, StepDirection::Next),
        _ => scroll_conversation(app, action),
    }
}

fn window_scroll(window: &mut OverlayWindow) -> Option<&mut usize> {
    match window {
        OverlayWindow::Help { scroll }
        | OverlayWindow::Text { scroll, .. }
        | OverlayWindow::Detail { scroll, .. }
        | OverlayWindow::ApproveAll { scroll, .. }
        | OverlayWindow::Edited { scroll, .. } => Some(scroll),
        OverlayWindow::Palette { .. }
        | OverlayWindow::Sessions { .. }
        | OverlayWindow::Search { .. }
        | OverlayWindow::Hits { .. }
        | OverlayWindow::Deny { .. }
        | OverlayWindow::Always(_) => None,
    }
}

fn choose_approval(app: &mut ChatApp, way: StepDirection) {
    let waiting: Vec<CallId> = app
        .screen
        .pending_calls()
        .map(|call| call.invocation.id)
        .collect();
    let now = waiting
        .iter()
        .position(|id| Some(*id) == app.approval)
        .unwrap_or_default();
    app.approval = match way {
        StepDirection::Next => waiting.get(now + 1).or(waiting.last()),
        StepDirection::Previous => waiting.get(now.saturating_sub(1)),
    }
    .copied();
}

/// Selects the pending request with this number.
pub(super) fn choose_numbered(app: &mut ChatApp, digit: char) {
    let place = digit.to_digit(10).unwrap_or_default() as usize;
    let named = place
        .checked_sub(1)
        .and_then(|place| app.screen.pending_calls().nth(place));
    if let Some(call) = named.map(|call| call.invocation.id) {
        app.approval = Some(call);
    }
}

fn scroll_conversation(app: &mut ChatApp, action: KeyAction) {
    let height = app.laid_out.height.max(1);
    let page = height.saturating_sub(2).max(1);
    app.with_transcript(|transcript, source| match action {
        KeyAction::Up => transcript.scroll_up(source, 1, height),
        KeyAction::Down => transcript.scroll_down(source, 1, height),
        KeyAction::PageUp => transcript.scroll_up(source, page, height),
        KeyAction::PageDown => transcript.scroll_down(source, page, height),
        KeyAction::Top => transcript.scroll_to_top(),
        _ => transcript.follow_end(),
    });
}

pub(super) fn select_call(app: &mut ChatApp, way: StepDirection) {
    let calls: Vec<CallId> = app.calls_here().collect();
    let now = app
        .call
        .and_then(|chosen| calls.iter().position(|id| *id == chosen));
    let next = match (now, way) {
        (None, _) => calls.len().checked_sub(1),
        (Some(now), StepDirection::Next) => Some((now + 1).min(calls.len() - 1)),
        (Some(now), StepDirection::Previous) => Some(now.saturating_sub(1)),
    };
    app.call = next.and_then(|place| calls.get(place).copied());
    app.focus = PanelFocus::Conversation;
    let Some((chosen, agent)) = app.call.zip(app.focused_agent()) else {
        return;
    };
    let Some(place) = agent
        .items
        .iter()
        .position(|item| *item == ConversationItem::Call(chosen))
    else {
        return;
    };
    show_line(app, place, 0);
}

/// Searches the conversation and shows the newest match.
pub(super) fn begin_search(app: &mut ChatApp, words: &str) {
    let search = app.with_transcript(|transcript, source| {
        ConversationSearch::new(words, source, transcript.width())
    });
    app.search = search.filter(|search| !search.words.is_empty());
    app.focus = PanelFocus::Conversation;
    show_match(app);
}

pub(super) fn step_search(app: &mut ChatApp, way: StepDirection) {
    if let Some(search) = &mut app.search {
        search.step(way);
        show_match(app);
    }
}

fn show_match(app: &mut ChatApp) {
    let found = app
        .search
        .as_ref()
        .and_then(ConversationSearch::current_match);
    if let Some(found) = found {
        show_line(app, found.item, found.line);
    }
}

/// Scrolls to a line of an item, unless it is visible already.
fn show_line(app: &mut ChatApp, item: usize, line: usize) {
    let mut visible = app.laid_out.lines.iter();
    if visible.any(|shown| (shown.item, shown.number) == (item, line)) {
        return;
    }
    let height = app.laid_out.height.max(1);
    app.with_transcript(|transcript, source| transcript.scroll_to_line(source, item, line, height));
}
