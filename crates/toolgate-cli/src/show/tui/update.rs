//! The update function: an input changes the state and may return effects. Nothing is carried out
//! here.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use toolgate::{event::SessionEvent, layers::ToastLevel, value::CallId};

use super::{
    ChatApp, UiEffect, UiMessage,
    app::{OverlayWindow, PanelFocus},
    approvals,
    keys::{self, KeyAction, KeyContext},
    offers, palette,
    search::{ConversationSearch, StepDirection},
    transcript::Transcript,
};
use crate::show::screen::ConversationItem;

/// Applies an input, and returns the effects to carry out.
pub fn update(app: &mut ChatApp, msg: UiMessage) -> Vec<UiEffect> {
    match msg {
        // Some terminals also report releases; a key must not count twice.
        UiMessage::Key(key) if key.kind == KeyEventKind::Release => Vec::new(),
        UiMessage::Key(key) => handle_key(app, key),
        UiMessage::Paste(text) => handle_paste(app, &text),
        UiMessage::Tick(now) => {
            // The clock of another process may be ahead of ours; times on the screen must not go
            // back.
            app.now = app.now.max(now);
            Vec::new()
        }
        UiMessage::Event(event) => {
            app.screen.apply(&event);
            if let Some(SessionEvent::UserMessage {
                text: Some(text), ..
            }) = event.as_session()
                && event.turn_info().session == app.setup.session
            {
                app.input.remember(text);
            }
            app.now = app.now.max(event.at());
            fix_selection(app);
            Vec::new()
        }
        UiMessage::Piece(piece) => {
            app.screen.apply_piece(&piece);
            fix_selection(app);
            Vec::new()
        }
        UiMessage::Toasts(toasts) => {
            app.toasts = toasts;
            Vec::new()
        }
        UiMessage::RunStarted => {
            app.at_work = true;
            Vec::new()
        }
        UiMessage::RunEnded => {
            app.at_work = false;
            app.stopping = false;
            Vec::new()
        }
        UiMessage::Decided(call, result) => {
            app.deciding.retain(|deciding| *deciding != call);
            result
                .err()
                .map(|problem| UiEffect::Tell(ToastLevel::Error, problem))
                .into_iter()
                .collect()
        }
        UiMessage::Shown(call, generation, shown) => {
            app.screen.set_shown(call, generation, shown);
            Vec::new()
        }
        UiMessage::Edited(question, text) => approvals::show_edited(app, question, text),
        UiMessage::Explained(text) => {
            app.window = Some(OverlayWindow::Text {
                title: "What each layer decides".to_owned(),
                text,
                scroll: 0,
            });
            Vec::new()
        }
        UiMessage::Previewed(rule, matches) => {
            approvals::store_preview(app, &rule, matches);
            Vec::new()
        }
        UiMessage::Terminate => vec![UiEffect::Quit],
    }
}

/// Corrects selections and focus after the screen has changed.
fn fix_selection(app: &mut ChatApp) {
    app.transcripts
        .resize_with(app.screen.agents().len().max(1), Transcript::default);
    let asked = |id: &CallId| {
        app.screen
            .pending_calls()
            .any(|call| call.invocation.id == *id)
    };
    app.deciding.retain(asked);
    // The selection stays while its request is pending: the panel shows it before it has the focus,
    // and the next key must not decide about one that has just arrived.
    if app.approval.is_none_or(|chosen| !asked(&chosen)) {
        app.approval = app
            .screen
            .pending_calls()
            .next()
            .map(|call| call.invocation.id);
    }
    if app.approval.is_none() && app.focus == PanelFocus::Approvals {
        app.focus = PanelFocus::Message;
    }
}

fn handle_paste(app: &mut ChatApp, text: &str) -> Vec<UiEffect> {
    match &mut app.window {
        Some(window) => {
            if let Some(field) = text_field(window) {
                // One line: a line break in pasted text must not submit the field.
                field.push_str(&super::text::one_line(text));
            }
        }
        None => {
            app.focus = PanelFocus::Message;
            app.input.paste(text);
        }
    }
    Vec::new()
}

fn handle_key(app: &mut ChatApp, key: KeyEvent) -> Vec<UiEffect> {
    let action = keys::find_action(app.key_context(), key);
    // Only two Ctrl-C in a row quit. Any other key in between starts over.
    if action != Some(KeyAction::Interrupt) {
        app.stopping = false;
    }
    if app.window.is_some()
        && let Some(effects) = handle_window_key(app, key)
    {
        return effects;
    }
    match action {
        Some(action) => perform_action(app, action),
        None => {
            if app.key_context() == KeyContext::Message {
                app.input.handle_key(key);
            }
            Vec::new()
        }
    }
}

/// Returns the text field of a window, if it has one.
fn text_field(window: &mut OverlayWindow) -> Option<&mut String> {
    match window {
        OverlayWindow::Palette { filter, .. } => Some(filter),
        OverlayWindow::Search { words } => Some(words),
        OverlayWindow::Deny { reason, .. } => Some(reason),
        OverlayWindow::Help { .. }
        | OverlayWindow::Text { .. }
        | OverlayWindow::Detail { .. }
        | OverlayWindow::Edited { .. }
        | OverlayWindow::Always(_) => None,
    }
}

/// Handles the keys of a window that are not in the table: writing, choosing, confirming.
fn handle_window_key(app: &mut ChatApp, key: KeyEvent) -> Option<Vec<UiEffect>> {
    let window = app.window.as_mut()?;
    let is_text = !key
        .modifiers
        .intersects(KeyModifiers::CONTROL | KeyModifiers::ALT);
    if let OverlayWindow::Palette { selected, .. } = window {
        match key.code {
            KeyCode::Up => *selected = selected.saturating_sub(1),
            KeyCode::Down => *selected += 1,
            _ => *selected = 0,
        }
    }
    if let Some(field) = text_field(window) {
        match key.code {
            KeyCode::Char(c) if is_text => field.push(c),
            KeyCode::Char('u') => field.clear(),
            KeyCode::Backspace => drop(field.pop()),
            KeyCode::Enter => return Some(submit_field(app)),
            KeyCode::Up | KeyCode::Down => {}
            _ => return None,
        }
        return Some(Vec::new());
    }
    match (window, key.code) {
        (OverlayWindow::Always(_), _) => approvals::answer_rule(app, key),
        (OverlayWindow::Edited { .. }, KeyCode::Char('y')) if is_text => {
            Some(approvals::confirm_edit(app))
        }
        (OverlayWindow::Edited { .. }, KeyCode::Char('e')) if is_text => {
            Some(approvals::edit_again(app))
        }
        (OverlayWindow::Edited { .. }, KeyCode::Char('n')) if is_text => {
            app.window = None;
            Some(Vec::new())
        }
        _ => None,
    }
}

/// Handles Enter in a window with a text field.
fn submit_field(app: &mut ChatApp) -> Vec<UiEffect> {
    match app.window.take() {
        Some(OverlayWindow::Palette { filter, selected }) => {
            let found = palette::find_commands(&filter);
            let chosen = found
                .get(selected.min(found.len().saturating_sub(1)))
                .map(|command| command.action);
            chosen
                .map(|action| perform_action(app, action))
                .unwrap_or_default()
        }
        Some(OverlayWindow::Search { words }) => {
            app.search = app
                .focused_agent()
                .map(|agent| ConversationSearch::new(&words, &app.screen, agent));
            app.search = app.search.take().filter(|search| !search.words.is_empty());
            app.focus = PanelFocus::Conversation;
            show_match(app);
            Vec::new()
        }
        Some(OverlayWindow::Deny {
            question, reason, ..
        }) => approvals::deny_question(app, question, &reason),
        other => {
            app.window = other;
            Vec::new()
        }
    }
}

/// Carries out a command of the user.
fn perform_action(app: &mut ChatApp, action: KeyAction) -> Vec<UiEffect> {
    match action {
        KeyAction::Send => return send_message(app),
        KeyAction::NewLine => app.input.new_line(),
        KeyAction::Earlier => app.input.show_earlier(),
        KeyAction::Later => app.input.show_later(),
        KeyAction::Interrupt => return interrupt_run(app),
        KeyAction::QuitIfEmpty if app.input.is_blank() => return vec![UiEffect::Quit],
        KeyAction::QuitIfEmpty => {}
        KeyAction::Quit => return vec![UiEffect::Quit],
        KeyAction::Resume if app.at_work => return show_info("a run is in progress"),
        KeyAction::Resume => return vec![UiEffect::Resume],
        KeyAction::NextPanel => move_focus(app, StepDirection::Next),
        KeyAction::PreviousPanel => move_focus(app, StepDirection::Previous),
        KeyAction::Back => go_back(app),
        KeyAction::NextAgent => show_agent(app, StepDirection::Next),
        KeyAction::PreviousAgent => show_agent(app, StepDirection::Previous),
        KeyAction::Up
        | KeyAction::Down
        | KeyAction::PageUp
        | KeyAction::PageDown
        | KeyAction::Top
        | KeyAction::End => move_or_scroll(app, action),
        KeyAction::PreviousCall => select_call(app, StepDirection::Previous),
        KeyAction::NextCall => select_call(app, StepDirection::Next),
        KeyAction::Open => {
            app.window = app
                .detail_target()
                .map(|call| OverlayWindow::Detail { call, scroll: 0 })
        }
        KeyAction::Approve => return approvals::approve_selected(app),
        KeyAction::ApproveUnseen => return approvals::approve_unseen(app),
        KeyAction::Deny => return approvals::open_denial(app),
        KeyAction::Edit => return approvals::edit_selected(app),
        KeyAction::Always => return approvals::propose_rule(app),
        KeyAction::Explain => return approvals::explain_selected(app),
        KeyAction::Search => {
            app.window = Some(OverlayWindow::Search {
                words: String::new(),
            })
        }
        KeyAction::NextMatch => step_search(app, StepDirection::Next),
        KeyAction::PreviousMatch => step_search(app, StepDirection::Previous),
        KeyAction::Palette => {
            app.window = Some(OverlayWindow::Palette {
                filter: String::new(),
                selected: 0,
            })
        }
        KeyAction::Help => app.window = Some(OverlayWindow::Help { scroll: 0 }),
        KeyAction::Copy => return copy_reply(app),
        KeyAction::Save => return save_conversation(app),
        KeyAction::Thinking => app.thinking = !app.thinking,
        KeyAction::Dismiss => {
            return app
                .toasts
                .iter()
                .map(|toast| UiEffect::Dismiss(toast.id))
                .collect();
        }
        KeyAction::ToastAction => return offers::run_toast_action(app),
        KeyAction::CancelCall => return offers::cancel_call(app),
    }
    Vec::new()
}

pub(super) fn show_info(text: impl Into<String>) -> Vec<UiEffect> {
    vec![UiEffect::Tell(ToastLevel::Info, text.into())]
}

fn send_message(app: &mut ChatApp) -> Vec<UiEffect> {
    let text = app.input.take_message();
    if text.is_empty() {
        return Vec::new();
    }
    // After a message the user wants to see the reply.
    app.agent = 0;
    app.transcripts[0].follow_end();
    vec![UiEffect::Say(text)]
}

/// Stops the run or clears the message the first time; quits the second time.
fn interrupt_run(app: &mut ChatApp) -> Vec<UiEffect> {
    if std::mem::replace(&mut app.stopping, true) {
        return vec![UiEffect::Quit];
    }
    if app.at_work {
        return vec![UiEffect::Interrupt];
    }
    if app.window.take().is_none() {
        app.input.set_text("");
    }
    Vec::new()
}

fn go_back(app: &mut ChatApp) {
    if app.window.take().is_none() {
        app.focus = PanelFocus::Message;
        app.search = None;
    }
}

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

fn move_focus(app: &mut ChatApp, way: StepDirection) {
    if app.window.is_some() {
        return;
    }
    let panels = panels(app);
    let now = panels
        .iter()
        .position(|panel| *panel == app.focus)
        .unwrap_or_default();
    app.focus = panels[step_index(now, panels.len(), way)];
}

fn step_index(now: usize, len: usize, way: StepDirection) -> usize {
    match way {
        StepDirection::Next => (now + 1) % len,
        StepDirection::Previous => (now + len - 1) % len,
    }
}

fn show_agent(app: &mut ChatApp, way: StepDirection) {
    let agents = app.screen.agents().len();
    if agents > 1 {
        app.agent = step_index(app.agent, agents, way);
        app.call = None;
        app.search = None;
    }
}

/// Scrolls or moves the selection in the window or panel that has the keys.
fn move_or_scroll(app: &mut ChatApp, action: KeyAction) {
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
        | OverlayWindow::Edited { scroll, .. } => Some(scroll),
        OverlayWindow::Palette { .. }
        | OverlayWindow::Search { .. }
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

fn select_call(app: &mut ChatApp, way: StepDirection) {
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
    show_item(app, place, |_| true);
}

fn step_search(app: &mut ChatApp, way: StepDirection) {
    let Some(mut search) = app.search.take() else {
        return;
    };
    if let Some(agent) = app.focused_agent() {
        search.step(way, &app.screen, agent);
    }
    app.search = Some(search);
    show_match(app);
}

fn show_match(app: &mut ChatApp) {
    let Some(search) = &app.search else { return };
    let (words, Some(place)) = (search.words.clone(), search.current_item()) else {
        return;
    };
    show_item(app, place, |line| line.to_lowercase().contains(&words));
}

/// Scrolls to an item, unless it is visible already.
fn show_item(app: &mut ChatApp, place: usize, wanted: impl Fn(&str) -> bool) {
    let is_wanted = |line: &ratatui::text::Line<'_>| wanted(&line.to_string());
    let seen = app
        .laid_out
        .lines
        .iter()
        .any(|(item, line)| *item == place && is_wanted(line));
    let height = app.laid_out.height.max(1);
    if !seen {
        app.with_transcript(|transcript, source| {
            transcript.scroll_to_item(source, place, height, is_wanted)
        });
    }
}

fn copy_reply(app: &ChatApp) -> Vec<UiEffect> {
    let items = app
        .focused_agent()
        .map(|agent| agent.items.as_slice())
        .unwrap_or_default();
    let last = items.iter().rev().find_map(|item| match item {
        ConversationItem::Model(text) => Some(text.clone()),
        _ => None,
    });
    last.map_or_else(
        || show_info("there is no reply to copy yet"),
        |text| vec![UiEffect::Copy(text)],
    )
}

fn save_conversation(app: &ChatApp) -> Vec<UiEffect> {
    match app.focused_agent() {
        Some(agent) if !agent.items.is_empty() => {
            vec![UiEffect::Save(super::export::export_markdown(
                &app.screen,
                agent,
                &app.setup,
            ))]
        }
        _ => show_info("there is nothing to save yet"),
    }
}

#[cfg(test)]
mod tests;
