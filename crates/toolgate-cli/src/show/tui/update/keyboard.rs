//! Keys and pasted text: what each of them means in the place that has the focus.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::{
    super::{
        ChatApp, UiEffect,
        app::{OverlayWindow, PanelFocus},
        approvals, completion, offers, palette,
        search::StepDirection,
    },
    hits,
    navigation::*,
    show_info, written,
};
use crate::show::keys::{self, KeyAction};

pub(super) fn handle_paste(app: &mut ChatApp, text: &str) -> Vec<UiEffect> {
    match &mut app.window {
        Some(window) => {
            if let Some(field) = text_field(window) {
                // One line: a line break in pasted text must not submit the field.
                field.push_str(&crate::show::tui::text::one_line(text));
            }
        }
        None => {
            app.focus = PanelFocus::Message;
            app.input.paste(text);
            return completion::look_up(app);
        }
    }
    Vec::new()
}

pub(super) fn handle_key(app: &mut ChatApp, key: KeyEvent) -> Vec<UiEffect> {
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
    let is_writing = app.window.is_none() && app.focus == PanelFocus::Message;
    if is_writing && let Some(effects) = handle_completion_key(app, key) {
        return effects;
    }
    match (action, key.code) {
        (Some(KeyAction::Choose), KeyCode::Char(digit)) => choose_numbered(app, digit),
        (Some(action), _) => return perform_action(app, action),
        (None, _) if is_writing => {
            app.input.handle_key(key);
            return completion::look_up(app);
        }
        (None, _) => {}
    }
    Vec::new()
}

/// Handles the keys that choose among completions, while some are shown.
fn handle_completion_key(app: &mut ChatApp, key: KeyEvent) -> Option<Vec<UiEffect>> {
    let shown = app.completion.as_mut()?;
    if !key.modifiers.is_empty() {
        return None;
    }
    match key.code {
        KeyCode::Up => shown.step(StepDirection::Previous),
        KeyCode::Down => shown.step(StepDirection::Next),
        KeyCode::Esc => app.completion = None,
        KeyCode::Tab => drop(completion::accept(app)),
        KeyCode::Enter if completion::accept(app) => return Some(written::send_draft(app)),
        KeyCode::Enter => {}
        _ => return None,
    }
    Some(Vec::new())
}

/// Returns the text field of a window, if it has one.
fn text_field(window: &mut OverlayWindow) -> Option<&mut String> {
    match window {
        OverlayWindow::Palette { filter, .. } | OverlayWindow::Sessions { filter, .. } => {
            Some(filter)
        }
        OverlayWindow::Search { words } | OverlayWindow::Hits { words, .. } => Some(words),
        OverlayWindow::Deny { reason, .. } => Some(reason),
        OverlayWindow::Help { .. }
        | OverlayWindow::Text { .. }
        | OverlayWindow::Detail { .. }
        | OverlayWindow::ApproveAll { .. }
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
    if let Some(effects) = hits::handle_hit_key(window, key) {
        return Some(effects);
    }
    if let OverlayWindow::Palette { selected, .. } | OverlayWindow::Sessions { selected, .. } =
        window
    {
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
        (OverlayWindow::ApproveAll { .. }, KeyCode::Char('y')) if is_text => {
            Some(approvals::confirm_all(app))
        }
        (OverlayWindow::Edited { .. } | OverlayWindow::ApproveAll { .. }, KeyCode::Char('n'))
            if is_text =>
        {
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
            match found.get(selected.min(found.len().saturating_sub(1))) {
                Some(command) => perform_action(app, command.action),
                // The window stays, so that the filter can be corrected.
                None => {
                    app.window = Some(OverlayWindow::Palette { filter, selected });
                    Vec::new()
                }
            }
        }
        Some(OverlayWindow::Sessions {
            choices,
            filter,
            selected,
        }) => written::open_chosen(app, &choices, &filter, selected),
        Some(OverlayWindow::Hits {
            words,
            found,
            selected,
        }) => hits::submit(app, words, found, selected),
        Some(OverlayWindow::Search { words }) => {
            begin_search(app, &words);
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
pub(super) fn perform_action(app: &mut ChatApp, action: KeyAction) -> Vec<UiEffect> {
    match action {
        KeyAction::Send => return written::send_draft(app),
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
        KeyAction::ApproveAll => return approvals::propose_all(app),
        KeyAction::Deny => return approvals::open_denial(app),
        KeyAction::Edit => return approvals::edit_selected(app),
        KeyAction::Always => return approvals::propose_rule(app),
        KeyAction::Explain => return approvals::explain_selected(app),
        KeyAction::Search => {
            app.window = Some(OverlayWindow::Search {
                words: String::new(),
            })
        }
        KeyAction::SearchSessions => return hits::open_search(app, String::new()),
        KeyAction::NextMatch => step_search(app, StepDirection::Next),
        KeyAction::PreviousMatch => step_search(app, StepDirection::Previous),
        KeyAction::Palette => {
            app.window = Some(OverlayWindow::Palette {
                filter: String::new(),
                selected: 0,
            })
        }
        KeyAction::Help => app.window = Some(OverlayWindow::Help { scroll: 0 }),
        KeyAction::Copy => return written::copy_reply(app),
        KeyAction::Save => return written::save_conversation(app),
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
        KeyAction::Postpone => app.focus = PanelFocus::Message,
        KeyAction::Suspend => return vec![UiEffect::Suspend],
        // A digit, which the palette does not have.
        KeyAction::Choose => {}
    }
    Vec::new()
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
