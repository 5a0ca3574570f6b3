//! Windows over everything else: help, details, commands, confirmations.

use ratatui::{
    Frame,
    layout::Rect,
    text::{Line, Span},
    widgets::{Block, Clear, Padding, Paragraph},
};

use toolgate::approval::ApprovalRequestRef;

use super::{
    super::{
        ChatApp,
        app::{OverlayWindow, RuleConfirmation},
        palette,
        slash::SLASH_COMMANDS,
        text, update,
    },
    approvals, choices, detail, hits, paint,
};
use crate::show::keys::{BINDINGS, KeyContext};

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
            .map(|window| window_lines(app, window, width, height))
            .unwrap_or_default()
    };
    app.laid_out.settled = key;
    let most = lines.len().saturating_sub(height);
    match &mut app.window {
        Some(
            OverlayWindow::Help { scroll }
            | OverlayWindow::Text { scroll, .. }
            | OverlayWindow::Detail { scroll, .. }
            | OverlayWindow::ApproveAll { scroll, .. }
            | OverlayWindow::Edited { scroll, .. },
        ) => *scroll = (*scroll).min(most),
        Some(OverlayWindow::Palette { filter, selected }) => {
            *selected = (*selected).min(palette::find_commands(filter).len().saturating_sub(1));
        }
        Some(OverlayWindow::Sessions {
            choices,
            filter,
            selected,
        }) => {
            let found = update::filter_sessions(choices, filter).len();
            *selected = (*selected).min(found.saturating_sub(1));
        }
        Some(
            OverlayWindow::Search { .. }
            | OverlayWindow::Hits { .. }
            | OverlayWindow::Deny { .. }
            | OverlayWindow::Always(_),
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
        Some(OverlayWindow::Edited { scroll, .. } | OverlayWindow::ApproveAll { scroll, .. }) => {
            (*scroll, None)
        }
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

pub(super) fn draw_window(app: &ChatApp, frame: &mut Frame<'_>, area: Rect) {
    let Some(window) = &app.window else { return };
    let lines = &app.laid_out.window;
    let most = window_area(area);
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
    let first = first_line(window);
    let block = match scroll_position(first, lines.len(), usize::from(inner.height)) {
        Some(position) => block.title_bottom(Line::styled(position, paint::NOTE)),
        None => block,
    };
    let shown: Vec<Line<'_>> = lines
        .iter()
        .skip(first)
        .take(usize::from(inner.height))
        .cloned()
        .collect();
    // Also beside the window: single letters of what is behind it would look like noise.
    let rows = Rect {
        x: area.x,
        width: area.width,
        ..place
    };
    frame.render_widget(Clear, rows);
    frame.render_widget(Paragraph::new(shown).block(block), place);
}

/// Returns which lines of a text are visible, if not all of them are.
fn scroll_position(first: usize, lines: usize, height: usize) -> Option<String> {
    let last = (first + height).min(lines);
    (lines > height).then(|| format!(" ↑↓ {}-{last} of {lines} ", first + 1))
}

/// Returns the first visible line.
fn first_line(window: &OverlayWindow) -> usize {
    match window {
        OverlayWindow::Help { scroll }
        | OverlayWindow::Text { scroll, .. }
        | OverlayWindow::Detail { scroll, .. }
        | OverlayWindow::ApproveAll { scroll, .. }
        | OverlayWindow::Edited { scroll, .. } => *scroll,
        // Lists are laid out with the selected row in view.
        OverlayWindow::Palette { .. }
        | OverlayWindow::Sessions { .. }
        | OverlayWindow::Search { .. }
        | OverlayWindow::Hits { .. }
        | OverlayWindow::Deny { .. }
        | OverlayWindow::Always(_) => 0,
    }
}

fn window_title(window: &OverlayWindow) -> (String, &'static str) {
    match window {
        OverlayWindow::Help { .. } => ("Keys".to_owned(), "Esc closes"),
        OverlayWindow::Text { title, .. } => (title.clone(), "Esc closes"),
        OverlayWindow::Detail { .. } => ("Call".to_owned(), "Esc closes"),
        OverlayWindow::Palette { .. } => ("Commands".to_owned(), "Enter runs it, Esc closes"),
        OverlayWindow::Sessions { .. } => {
            ("Sessions here".to_owned(), "Enter opens it, Esc closes")
        }
        OverlayWindow::Hits { .. } => (
            "Search all sessions".to_owned(),
            "Enter searches or opens it, → reads it, Esc closes",
        ),
        OverlayWindow::Search { .. } => ("Search".to_owned(), "Enter finds, then n and N"),
        OverlayWindow::Deny { tool, .. } => (
            format!("Deny {}", text::one_line(tool)),
            "Enter denies, Esc leaves it pending",
        ),
        OverlayWindow::ApproveAll { questions, .. } => (
            format!("Approve these {} requests?", questions.len()),
            "y approves all, n leaves them pending",
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

fn window_lines(
    app: &ChatApp,
    window: &OverlayWindow,
    width: usize,
    height: usize,
) -> Vec<Line<'static>> {
    match window {
        OverlayWindow::Help { .. } => help_lines(width),
        OverlayWindow::Text { text, .. } => text::wrap_text(text, width, paint::PLAIN),
        OverlayWindow::Detail { call, .. } => match app.screen.call(*call) {
            Some(call) => detail::detail_lines(call, app.now, width),
            None => Vec::new(),
        },
        OverlayWindow::Palette { filter, selected } => {
            choices::palette_lines(filter, *selected, width, height)
        }
        OverlayWindow::Sessions {
            choices,
            filter,
            selected,
        } => choices::session_lines(choices, filter, *selected, width, height),
        OverlayWindow::Hits {
            words,
            found,
            selected,
        } => hits::hit_lines(words, found, *selected, width, height),
        OverlayWindow::Search { words } => choices::field_lines("search: ", words, width),
        OverlayWindow::Deny { reason, .. } => {
            let mut lines = choices::field_lines("because: ", reason, width);
            lines.extend(text::wrap_text(
                "The model reads the reason. Without one it only learns that the call was denied.",
                width,
                paint::DIM,
            ));
            lines
        }
        OverlayWindow::ApproveAll { questions, .. } => all_request_lines(app, questions, width),
        OverlayWindow::Edited { shown, .. } => text::shown_lines(shown, width),
        OverlayWindow::Always(always) => rule_lines(always, width),
    }
}

fn all_request_lines(
    app: &ChatApp,
    questions: &[ApprovalRequestRef],
    width: usize,
) -> Vec<Line<'static>> {
    let calls = questions
        .iter()
        .filter_map(|question| app.screen.call(question.approval_id.call_id()));
    calls
        .flat_map(|call| approvals::request_lines(call, width))
        .collect()
}

fn help_lines(width: usize) -> Vec<Line<'static>> {
    let mut lines = vec![Line::styled("Commands in the message", paint::NOTE)];
    for command in SLASH_COMMANDS {
        let name = format!("/{} {}", command.name, command.argument);
        lines.extend(help_row(&name, command.does, width));
    }
    lines.extend(help_row(
        "@part",
        "choose a file by a part of its path",
        width,
    ));
    lines.extend(help_row(
        "//text",
        "send text that begins with a slash",
        width,
    ));
    for place in KeyContext::ALL {
        lines.push(Line::default());
        lines.push(Line::styled(place.title(), paint::NOTE));
        for binding in BINDINGS.iter().filter(|binding| binding.place == place) {
            lines.extend(help_row(&binding.label_list(), binding.does, width));
        }
    }
    lines
}

fn help_row(name: &str, does: &str, width: usize) -> Vec<Line<'static>> {
    let does = text::wrap_text(does, width.saturating_sub(20).max(8), paint::PLAIN);
    text::with_lead(Span::styled(format!("  {name:<17} "), paint::BOLD), does)
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
