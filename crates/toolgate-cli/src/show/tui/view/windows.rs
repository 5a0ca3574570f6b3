//! Windows over everything else: help, details, commands, confirmations.

use ratatui::{
    Frame,
    layout::Rect,
    text::{Line, Span},
    widgets::{Block, Clear, Padding, Paragraph},
};

use super::{
    super::{
        ChatApp,
        app::{OverlayWindow, RuleConfirmation},
        keys::{self, BINDINGS, KeyContext},
        palette, text,
    },
    detail, paint,
};

/// The largest width of a window: longer lines are hard to read.
const MAX_WINDOW_WIDTH: u16 = 100;

/// Lays out the content of the window, and clamps its scroll position.
pub(super) fn lay_out_window(app: &mut ChatApp, area: Rect) {
    let place = window_area(area);
    let width = usize::from(place.width.saturating_sub(4)).max(8);
    let height = usize::from(place.height) - 2;
    let settled = match &app.window {
        Some(OverlayWindow::Detail { call, .. }) => app
            .screen
            .call(*call)
            .filter(|call| call.state.is_settled()),
        _ => None,
    };
    // A long result takes a while to lay out, and nothing about a settled call changes.
    let key = settled.map(|call| (call.invocation.id, width));
    let lines = if key.is_some() && key == app.laid_out.settled {
        std::mem::take(&mut app.laid_out.window)
    } else {
        app.window
            .as_ref()
            .map(|window| window_lines(app, window, width))
            .unwrap_or_default()
    };
    app.laid_out.settled = key;
    let most = lines.len().saturating_sub(height);
    match &mut app.window {
        Some(
            OverlayWindow::Help { scroll }
            | OverlayWindow::Text { scroll, .. }
            | OverlayWindow::Detail { scroll, .. }
            | OverlayWindow::Edited { scroll, .. },
        ) => *scroll = (*scroll).min(most),
        Some(OverlayWindow::Palette { filter, selected }) => {
            *selected = (*selected).min(palette::find_commands(filter).len().saturating_sub(1));
        }
        Some(
            OverlayWindow::Search { .. } | OverlayWindow::Deny { .. } | OverlayWindow::Always(_),
        )
        | None => {}
    }
    app.laid_out.window = lines;
    app.laid_out.window_height = height;
    note_seen(app);
}

/// Remembers how much of the window was on the screen, and the request of a call that was there in
/// full.
fn note_seen(app: &mut ChatApp) {
    let (scroll, call) = match &app.window {
        Some(OverlayWindow::Detail { call, scroll }) => (*scroll, Some(*call)),
        Some(OverlayWindow::Edited { scroll, .. }) => (*scroll, None),
        _ => {
            app.laid_out.window_seen = 0;
            return;
        }
    };
    // Without a gap: who jumps to the end has not seen the middle.
    if scroll <= app.laid_out.window_seen {
        let seen = scroll + app.laid_out.window_height;
        app.laid_out.window_seen = app.laid_out.window_seen.max(seen);
    }
    let call = call.and_then(|call| app.screen.call(call));
    let key = call
        .filter(|call| matches!(call.shown, Some(Ok(_))))
        .and_then(|call| Some((call.invocation.id, call.question.as_ref()?.generation)));
    if let Some(key) = key.filter(|_| app.is_window_seen()) {
        app.seen.insert(key);
    }
}

fn window_area(area: Rect) -> Rect {
    let width = area
        .width
        .saturating_sub(4)
        .min(MAX_WINDOW_WIDTH)
        .max(area.width.min(20));
    // Never less than the two borders, which are subtracted from it.
    let height = area.height.saturating_sub(2).max(area.height.min(3)).max(2);
    Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height.saturating_sub(height)) / 2,
        width,
        height,
    }
}

pub(super) fn draw_window(app: &ChatApp, frame: &mut Frame<'_>) {
    let Some(window) = &app.window else { return };
    let lines = &app.laid_out.window;
    let most = window_area(frame.area());
    let height = u16::try_from(lines.len() + 2)
        .unwrap_or(u16::MAX)
        .min(most.height);
    let place = Rect { height, ..most }.intersection(frame.area());
    let (title, keys) = window_title(window);
    let block = Block::bordered()
        .border_style(paint::NOTE)
        .title(Span::styled(format!(" {title} "), paint::BOLD))
        .title_bottom(Line::styled(format!(" {keys} "), paint::DIM).right_aligned())
        .padding(Padding::horizontal(1));
    let inner = block.inner(place);
    let shown: Vec<Line<'_>> = lines
        .iter()
        .skip(first_line(window, inner))
        .take(usize::from(inner.height))
        .cloned()
        .collect();
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(shown).block(block), place);
}

/// Returns the first visible line.
fn first_line(window: &OverlayWindow, inner: Rect) -> usize {
    match window {
        OverlayWindow::Help { scroll }
        | OverlayWindow::Text { scroll, .. }
        | OverlayWindow::Detail { scroll, .. }
        | OverlayWindow::Edited { scroll, .. } => *scroll,
        // The line with the filter, then as many commands as are needed for the selected one to be
        // visible.
        OverlayWindow::Palette { selected, .. } => {
            (selected + 3).saturating_sub(usize::from(inner.height))
        }
        OverlayWindow::Search { .. } | OverlayWindow::Deny { .. } | OverlayWindow::Always(_) => 0,
    }
}

fn window_title(window: &OverlayWindow) -> (String, &'static str) {
    match window {
        OverlayWindow::Help { .. } => ("Keys".to_owned(), "Esc closes"),
        OverlayWindow::Text { title, .. } => (title.clone(), "Esc closes"),
        OverlayWindow::Detail { .. } => ("Call".to_owned(), "Esc closes"),
        OverlayWindow::Palette { .. } => ("Commands".to_owned(), "Enter runs it, Esc closes"),
        OverlayWindow::Search { .. } => ("Search".to_owned(), "Enter finds, then n and N"),
        OverlayWindow::Deny { tool, .. } => (
            format!("Deny {}", text::one_line(tool)),
            "Enter denies, Esc leaves it pending",
        ),
        OverlayWindow::Edited { shown, .. } => (
            format!("Run {} with these arguments?", shown.tool),
            "y runs it, e edits again, n leaves it pending",
        ),
        OverlayWindow::Always(always) => (
            text::one_line(&always.proposal.title()),
            "Esc leaves it pending",
        ),
    }
}

fn window_lines(app: &ChatApp, window: &OverlayWindow, width: usize) -> Vec<Line<'static>> {
    match window {
        OverlayWindow::Help { .. } => help_lines(width),
        OverlayWindow::Text { text, .. } => text::wrap_text(text, width, paint::PLAIN),
        OverlayWindow::Detail { call, .. } => match app.screen.call(*call) {
            Some(call) => detail::detail_lines(call, app.now, width),
            None => Vec::new(),
        },
        OverlayWindow::Palette { filter, selected } => command_lines(filter, *selected, width),
        OverlayWindow::Search { words } => field_lines("search: ", words, width),
        OverlayWindow::Deny { reason, .. } => {
            let mut lines = field_lines("because: ", reason, width);
            lines.extend(text::wrap_text(
                "The model reads the reason. Without one it only learns that the call was denied.",
                width,
                paint::DIM,
            ));
            lines
        }
        OverlayWindow::Edited { shown, .. } => text::shown_lines(shown, width),
        OverlayWindow::Always(always) => rule_lines(always, width),
    }
}

/// Renders a text field.
fn field_lines(lead: &'static str, written: &str, width: usize) -> Vec<Line<'static>> {
    let room = width.saturating_sub(lead.len() + 1).max(4);
    // The end is where the user types.
    let rows = text::wrap_text(&format!("{written}▏"), room, paint::PLAIN);
    let last = rows.into_iter().next_back().unwrap_or_default();
    text::with_lead(Span::styled(lead, paint::DIM), vec![last])
}

fn help_lines(width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for place in KeyContext::ALL {
        if !lines.is_empty() {
            lines.push(Line::default());
        }
        lines.push(Line::styled(place.title(), paint::NOTE));
        for binding in BINDINGS.iter().filter(|binding| binding.place == place) {
            let does = text::wrap_text(binding.does, width.saturating_sub(20).max(8), paint::PLAIN);
            let keys = Span::styled(format!("  {:<17} ", keys::key_labels(binding)), paint::BOLD);
            lines.extend(text::with_lead(keys, does));
        }
    }
    lines
}

fn command_lines(filter: &str, selected: usize, width: usize) -> Vec<Line<'static>> {
    let mut lines = field_lines("› ", filter, width);
    for (number, command) in palette::find_commands(filter).into_iter().enumerate() {
        let room = width.saturating_sub(command.keys.len() + 1);
        let name = text::truncate_line(command.name, room);
        let row = format!("{name:<room$} {}", command.keys);
        lines.push(Line::styled(
            row,
            if number == selected {
                paint::CHOSEN
            } else {
                paint::PLAIN
            },
        ));
    }
    lines
}

/// Renders a standing rule, and what it would have answered.
fn rule_lines(always: &RuleConfirmation, width: usize) -> Vec<Line<'static>> {
    let rule = always.proposal.rule().to_string();
    let mut lines = text::wrap_text(&rule, width, paint::BOLD);
    lines.push(Line::default());
    let keys: Vec<String> = always
        .proposal
        .keys()
        .map(|(key, does)| format!("{key} {does}"))
        .collect();
    lines.extend(text::wrap_text(&keys.join("  "), width, paint::PLAIN));
    lines.push(Line::default());
    let (preview, style) = match &always.preview {
        None => (
            "checking what it would have answered …".to_owned(),
            paint::DIM,
        ),
        Some(Err(problem)) => (problem.clone(), paint::BAD),
        Some(Ok(told)) => (told.join("\n"), paint::DIM),
    };
    lines.extend(text::wrap_text(&preview, width, style));
    lines
}
