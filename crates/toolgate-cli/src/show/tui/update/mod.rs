//! The update function: an input changes the state and may return effects. Nothing is carried out
//! here.

mod hits;
mod keyboard;
mod navigation;
mod written;

use crossterm::event::KeyEventKind;
use toolgate::{event::SessionEvent, layers::ToastLevel, value::CallId};

use super::{
    ChatApp, UiEffect, UiMessage,
    app::{OverlayWindow, PanelFocus},
    approvals, completion, slash,
    transcript::Transcript,
};

pub(super) use written::filter_sessions;

/// Applies an input, and returns the effects to carry out.
pub fn update(app: &mut ChatApp, msg: UiMessage) -> Vec<UiEffect> {
    match msg {
        // Some terminals also report releases; a key must not count twice.
        UiMessage::Key(key) if key.kind == KeyEventKind::Release => Vec::new(),
        UiMessage::Key(key) => keyboard::handle_key(app, key),
        UiMessage::Paste(text) => keyboard::handle_paste(app, &text),
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
                app.input.remember(&slash::to_draft(text));
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
        UiMessage::MemoriesListed(text) => {
            app.window = Some(OverlayWindow::Text {
                title: "Memories".to_owned(),
                text,
                scroll: 0,
            });
            Vec::new()
        }
        UiMessage::Previewed(rule, matches) => {
            approvals::store_preview(app, &rule, matches);
            Vec::new()
        }
        UiMessage::FilesFound(part, files) => {
            completion::show_files(app, &part, files);
            Vec::new()
        }
        UiMessage::SessionsListed(listed) => written::choose_session(app, listed),
        UiMessage::HitsFound(found) => hits::show_hits(app, found),
        UiMessage::HitShown(shown) => hits::show_near(app, shown),
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

pub(super) fn show_error(text: impl Into<String>) -> Vec<UiEffect> {
    vec![UiEffect::Tell(ToastLevel::Error, text.into())]
}

pub(super) fn show_info(text: impl Into<String>) -> Vec<UiEffect> {
    vec![UiEffect::Tell(ToastLevel::Info, text.into())]
}

#[cfg(test)]
mod tests;
