//! The update function: something came in, the state changes, and perhaps something is to be done. Nothing is done here.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use toolgate::{CallId, LoopEvent, layers::ToastLevel};

use super::{
    App, Effect, Msg,
    app::{Focus, Window},
    approvals,
    keys::{self, Action, Place},
    palette,
    search::{Search, Way},
    transcript::Transcript,
};
use crate::screen::Item;

/// Takes in something that came, and says what is to be done.
pub fn update(app: &mut App, msg: Msg) -> Vec<Effect> {
    match msg {
        Msg::Key(key) if key.kind == KeyEventKind::Release => Vec::new(),
        Msg::Key(key) => pressed(app, key),
        Msg::Paste(text) => pasted(app, &text),
        Msg::Tick(now) => {
            app.now = app.now.max(now);
            Vec::new()
        }
        Msg::Event(event) => {
            app.screen.apply(&event);
            if let Some(LoopEvent::UserMessage {
                text: Some(text), ..
            }) = event.as_loop()
                && event.turn_info().session == app.setup.session
            {
                app.input.remember(text);
            }
            app.now = app.now.max(event.at());
            settle(app);
            Vec::new()
        }
        Msg::Piece(piece) => {
            app.screen.piece(&piece);
            settle(app);
            Vec::new()
        }
        Msg::Toasts(toasts) => {
            app.toasts = toasts;
            Vec::new()
        }
        Msg::RunBegan => {
            app.at_work = true;
            Vec::new()
        }
        Msg::RunOver => {
            (app.at_work, app.stopping) = (false, false);
            Vec::new()
        }
        Msg::Decided(call, result) => {
            app.deciding.retain(|deciding| *deciding != call);
            result
                .err()
                .map(|problem| Effect::Tell(ToastLevel::Error, problem))
                .into_iter()
                .collect()
        }
        Msg::Edited(question, text) => approvals::edited(app, question, text),
        Msg::Explained(text) => {
            app.window = Some(Window::Text {
                title: "What each layer makes of it".to_owned(),
                text,
                scroll: 0,
            });
            Vec::new()
        }
        Msg::Previewed(rule, matches) => {
            approvals::previewed(app, &rule, matches);
            Vec::new()
        }
        Msg::Terminate => vec![Effect::Quit],
    }
}

/// Brings what points into the screen in line with what is there now.
fn settle(app: &mut App) {
    app.transcripts
        .resize_with(app.screen.agents().len().max(1), Transcript::default);
    let asked = |id: &CallId| app.screen.pending().any(|call| call.invocation.id == *id);
    app.deciding.retain(asked);
    // What somebody looks at stays selected; until somebody does, it is the first in the list.
    if app.focus != Focus::Approvals || app.approval.is_none_or(|chosen| !asked(&chosen)) {
        app.approval = app.screen.pending().next().map(|call| call.invocation.id);
    }
    if app.approval.is_none() && app.focus == Focus::Approvals {
        app.focus = Focus::Message;
    }
}

fn pasted(app: &mut App, text: &str) -> Vec<Effect> {
    match &mut app.window {
        Some(window) => {
            if let Some(field) = field(window) {
                field.push_str(&super::text::one_line(text));
            }
        }
        None => {
            app.focus = Focus::Message;
            app.input.paste(text);
        }
    }
    Vec::new()
}

fn pressed(app: &mut App, key: KeyEvent) -> Vec<Effect> {
    let action = keys::action(app.place(), key);
    if action != Some(Action::Interrupt) {
        app.stopping = false;
    }
    if app.window.is_some()
        && let Some(effects) = in_window(app, key)
    {
        return effects;
    }
    match action {
        Some(action) => perform(app, action),
        None => {
            if app.place() == Place::Message {
                app.input.key(key);
            }
            Vec::new()
        }
    }
}

/// The line of text that a window has, if it has one.
fn field(window: &mut Window) -> Option<&mut String> {
    match window {
        Window::Palette { filter, .. } => Some(filter),
        Window::Search { words } => Some(words),
        Window::Deny { reason, .. } => Some(reason),
        Window::Help { .. }
        | Window::Text { .. }
        | Window::Detail { .. }
        | Window::Edited { .. }
        | Window::Always(_) => None,
    }
}

/// What a key does in a window beside what the table says: writing, choosing, agreeing.
fn in_window(app: &mut App, key: KeyEvent) -> Option<Vec<Effect>> {
    let window = app.window.as_mut()?;
    let is_text = !key
        .modifiers
        .intersects(KeyModifiers::CONTROL | KeyModifiers::ALT);
    if let Window::Palette { selected, .. } = window {
        match key.code {
            KeyCode::Up => *selected = selected.saturating_sub(1),
            KeyCode::Down => *selected += 1,
            _ => *selected = 0,
        }
    }
    if let Some(field) = field(window) {
        match key.code {
            KeyCode::Char(c) if is_text => field.push(c),
            KeyCode::Char('u') => field.clear(),
            KeyCode::Backspace => drop(field.pop()),
            KeyCode::Enter => return Some(submit(app)),
            KeyCode::Up | KeyCode::Down => {}
            _ => return None,
        }
        return Some(Vec::new());
    }
    match (window, key.code) {
        (Window::Edited { .. }, KeyCode::Char('y') | KeyCode::Enter) => {
            Some(approvals::confirm_edit(app))
        }
        (Window::Edited { .. }, KeyCode::Char('e')) => Some(approvals::edit_again(app)),
        (Window::Always(_), KeyCode::Char('y') | KeyCode::Enter) => {
            Some(approvals::confirm_rule(app))
        }
        (Window::Always(_), KeyCode::Char(c @ ('s' | 'p' | 'w'))) if is_text => {
            Some(approvals::rescope(app, c))
        }
        _ => None,
    }
}

/// Enter in a window with a line of text.
fn submit(app: &mut App) -> Vec<Effect> {
    match app.window.take() {
        Some(Window::Palette { filter, selected }) => {
            let found = palette::commands(&filter);
            let chosen = found
                .get(selected.min(found.len().saturating_sub(1)))
                .map(|command| command.action);
            chosen
                .map(|action| perform(app, action))
                .unwrap_or_default()
        }
        Some(Window::Search { words }) => {
            app.search = app
                .focused()
                .map(|agent| Search::new(&words, &app.screen, agent));
            app.search = app.search.take().filter(|search| !search.words.is_empty());
            app.focus = Focus::Conversation;
            show_match(app);
            Vec::new()
        }
        Some(Window::Deny {
            question, reason, ..
        }) => approvals::deny(app, question, &reason),
        other => {
            app.window = other;
            Vec::new()
        }
    }
}

/// Does what a key or a command asks for.
fn perform(app: &mut App, action: Action) -> Vec<Effect> {
    match action {
        Action::Send => return send(app),
        Action::NewLine => app.input.new_line(),
        Action::Earlier => app.input.earlier(),
        Action::Later => app.input.later(),
        Action::Interrupt => return interrupt(app),
        Action::QuitIfEmpty if app.input.is_blank() => return vec![Effect::Quit],
        Action::QuitIfEmpty => {}
        Action::Quit => return vec![Effect::Quit],
        Action::GoOn if app.at_work => return tell("the run is under way"),
        Action::GoOn => return vec![Effect::GoOn],
        Action::NextPanel => focus(app, Way::Next),
        Action::PreviousPanel => focus(app, Way::Before),
        Action::Back => back(app),
        Action::NextAgent => show_agent(app, Way::Next),
        Action::PreviousAgent => show_agent(app, Way::Before),
        Action::Up
        | Action::Down
        | Action::PageUp
        | Action::PageDown
        | Action::Top
        | Action::End => go(app, action),
        Action::PreviousCall => select_call(app, Way::Before),
        Action::NextCall => select_call(app, Way::Next),
        Action::Open => app.window = app.meant().map(|call| Window::Detail { call, scroll: 0 }),
        Action::Approve => return approvals::approve(app),
        Action::Deny => return approvals::ask_reason(app),
        Action::Edit => return approvals::edit(app),
        Action::Always => return approvals::propose_rule(app),
        Action::Explain => return approvals::explain(app),
        Action::Search => {
            app.window = Some(Window::Search {
                words: String::new(),
            })
        }
        Action::NextMatch => find(app, Way::Next),
        Action::PreviousMatch => find(app, Way::Before),
        Action::Palette => {
            app.window = Some(Window::Palette {
                filter: String::new(),
                selected: 0,
            })
        }
        Action::Help => app.window = Some(Window::Help { scroll: 0 }),
        Action::Copy => return copy(app),
        Action::Save => return save(app),
        Action::Thinking => app.thinking = !app.thinking,
        Action::Dismiss => {
            return app
                .toasts
                .iter()
                .map(|toast| Effect::Dismiss(toast.id))
                .collect();
        }
    }
    Vec::new()
}

pub(super) fn tell(text: impl Into<String>) -> Vec<Effect> {
    vec![Effect::Tell(ToastLevel::Info, text.into())]
}

fn send(app: &mut App) -> Vec<Effect> {
    let text = app.input.take();
    if text.is_empty() {
        return Vec::new();
    }
    // Whoever says something wants to see the answer.
    app.agent = 0;
    app.transcripts[0].end();
    vec![Effect::Say(text)]
}

/// The first time the run stops, or what is written goes away; the second time the program ends.
fn interrupt(app: &mut App) -> Vec<Effect> {
    if std::mem::replace(&mut app.stopping, true) {
        return vec![Effect::Quit];
    }
    if app.at_work {
        return vec![Effect::Interrupt];
    }
    if app.window.take().is_none() {
        app.input.set("");
    }
    Vec::new()
}

fn back(app: &mut App) {
    if app.window.take().is_none() {
        app.focus = Focus::Message;
        app.search = None;
    }
}

/// The panels that there are now, in the order in which Tab goes through them.
fn panels(app: &App) -> Vec<Focus> {
    let mut panels = vec![Focus::Message];
    if app.screen.pending().next().is_some() {
        panels.push(Focus::Approvals);
    }
    panels.push(Focus::Conversation);
    if app.screen.agents().len() > 1 {
        panels.push(Focus::Agents);
    }
    panels
}

fn focus(app: &mut App, way: Way) {
    if app.window.is_some() {
        return;
    }
    let panels = panels(app);
    let now = panels
        .iter()
        .position(|panel| *panel == app.focus)
        .unwrap_or_default();
    app.focus = panels[step(now, panels.len(), way)];
}

fn step(now: usize, len: usize, way: Way) -> usize {
    match way {
        Way::Next => (now + 1) % len,
        Way::Before => (now + len - 1) % len,
    }
}

fn show_agent(app: &mut App, way: Way) {
    let agents = app.screen.agents().len();
    if agents > 1 {
        app.agent = step(app.agent, agents, way);
        (app.call, app.search) = (None, None);
    }
}

/// Moves in whatever has the keys: a window, the calls that wait, the conversation.
fn go(app: &mut App, action: Action) {
    let page = app.laid_out.window_height.max(2) - 1;
    if let Some(window) = &mut app.window {
        if let Some(scroll) = scroll_of(window) {
            *scroll = match action {
                Action::Up => scroll.saturating_sub(1),
                Action::Down => *scroll + 1,
                Action::PageUp => scroll.saturating_sub(page),
                Action::PageDown => *scroll + page,
                Action::Top => 0,
                _ => usize::MAX / 2,
            };
        }
        return;
    }
    match (app.focus, action) {
        (Focus::Approvals, Action::Up) => choose_approval(app, Way::Before),
        (Focus::Approvals, Action::Down) => choose_approval(app, Way::Next),
        _ => scroll(app, action),
    }
}

fn scroll_of(window: &mut Window) -> Option<&mut usize> {
    match window {
        Window::Help { scroll }
        | Window::Text { scroll, .. }
        | Window::Detail { scroll, .. }
        | Window::Edited { scroll, .. } => Some(scroll),
        Window::Palette { .. }
        | Window::Search { .. }
        | Window::Deny { .. }
        | Window::Always(_) => None,
    }
}

fn choose_approval(app: &mut App, way: Way) {
    let waiting: Vec<CallId> = app
        .screen
        .pending()
        .map(|call| call.invocation.id)
        .collect();
    let now = waiting
        .iter()
        .position(|id| Some(*id) == app.approval)
        .unwrap_or_default();
    app.approval = match way {
        Way::Next => waiting.get(now + 1).or(waiting.last()),
        Way::Before => waiting.get(now.saturating_sub(1)),
    }
    .copied();
}

fn scroll(app: &mut App, action: Action) {
    let height = app.laid_out.height.max(1);
    let page = height.saturating_sub(2).max(1);
    app.with_transcript(|transcript, source| match action {
        Action::Up => transcript.up(source, 1, height),
        Action::Down => transcript.down(source, 1, height),
        Action::PageUp => transcript.up(source, page, height),
        Action::PageDown => transcript.down(source, page, height),
        Action::Top => transcript.top(),
        _ => transcript.end(),
    });
}

fn select_call(app: &mut App, way: Way) {
    let calls: Vec<CallId> = app.calls_here().collect();
    let now = app
        .call
        .and_then(|chosen| calls.iter().position(|id| *id == chosen));
    let next = match (now, way) {
        (None, _) => calls.len().checked_sub(1),
        (Some(now), Way::Next) => Some((now + 1).min(calls.len() - 1)),
        (Some(now), Way::Before) => Some(now.saturating_sub(1)),
    };
    app.call = next.and_then(|place| calls.get(place).copied());
    app.focus = Focus::Conversation;
    let Some((chosen, agent)) = app.call.zip(app.focused()) else {
        return;
    };
    let Some(place) = agent
        .items
        .iter()
        .position(|item| *item == Item::Call(chosen))
    else {
        return;
    };
    show_item(app, place, |_| true);
}

fn find(app: &mut App, way: Way) {
    let Some(mut search) = app.search.take() else {
        return;
    };
    if let Some(agent) = app.focused() {
        search.go(way, &app.screen, agent);
    }
    app.search = Some(search);
    show_match(app);
}

fn show_match(app: &mut App) {
    let Some(search) = &app.search else { return };
    let (words, Some(place)) = (search.words.clone(), search.place()) else {
        return;
    };
    show_item(app, place, |line| line.to_lowercase().contains(&words));
}

/// Scrolls to an item, unless it is to be seen already.
fn show_item(app: &mut App, place: usize, wanted: impl Fn(&str) -> bool) {
    let is_wanted = |line: &ratatui::text::Line<'_>| wanted(&line.to_string());
    let seen = app
        .laid_out
        .lines
        .iter()
        .any(|(item, line)| *item == place && is_wanted(line));
    let height = app.laid_out.height.max(1);
    if !seen {
        app.with_transcript(|transcript, source| transcript.show(source, place, height, is_wanted));
    }
}

fn copy(app: &App) -> Vec<Effect> {
    let items = app
        .focused()
        .map(|agent| agent.items.as_slice())
        .unwrap_or_default();
    let last = items.iter().rev().find_map(|item| match item {
        Item::Model(text) => Some(text.clone()),
        _ => None,
    });
    last.map_or_else(
        || tell("there is no reply to copy yet"),
        |text| vec![Effect::Copy(text)],
    )
}

fn save(app: &App) -> Vec<Effect> {
    match app.focused() {
        Some(agent) if !agent.items.is_empty() => {
            vec![Effect::Save(super::export::markdown(
                &app.screen,
                agent,
                &app.setup,
            ))]
        }
        _ => tell("there is nothing to save yet"),
    }
}
