//! Windows over everything else: help, details, commands, questions.

use ratatui::{
    Frame,
    layout::Rect,
    text::{Line, Span},
    widgets::{Block, Clear, Padding, Paragraph},
};
use toolgate::layers::{ArgumentPattern, RuleScope};

use super::{
    super::{
        App,
        app::{Always, Window},
        keys::{self, BINDINGS, Place},
        palette, text,
    },
    detail, paint,
};

/// The widest that a window gets: longer lines are hard to read.
const WIDEST: u16 = 100;

/// Lays out what the window shows, and keeps its place within what there is.
pub(super) fn lay_out(app: &mut App, area: Rect) {
    let place = place(area);
    let (width, height) = (
        usize::from(place.width.saturating_sub(4)).max(8),
        usize::from(place.height) - 2,
    );
    let settled = match &app.window {
        Some(Window::Detail { call, .. }) => app
            .screen
            .call(*call)
            .filter(|call| call.state.is_settled()),
        _ => None,
    };
    // A long result takes a while to lay out, and nothing about a settled call changes.
    let key = settled.map(|call| (call.invocation.id, width));
    let lines = match key.is_some() && key == app.laid_out.settled {
        true => std::mem::take(&mut app.laid_out.window),
        false => app
            .window
            .as_ref()
            .map(|window| lines(app, window, width))
            .unwrap_or_default(),
    };
    app.laid_out.settled = key;
    let most = lines.len().saturating_sub(height);
    match &mut app.window {
        Some(
            Window::Help { scroll }
            | Window::Text { scroll, .. }
            | Window::Detail { scroll, .. }
            | Window::Edited { scroll, .. },
        ) => *scroll = (*scroll).min(most),
        Some(Window::Palette { filter, selected }) => {
            *selected = (*selected).min(palette::commands(filter).len().saturating_sub(1));
        }
        Some(Window::Search { .. } | Window::Deny { .. } | Window::Always(_)) | None => {}
    }
    (app.laid_out.window, app.laid_out.window_height) = (lines, height);
}

fn place(area: Rect) -> Rect {
    let width = area
        .width
        .saturating_sub(4)
        .min(WIDEST)
        .max(area.width.min(20));
    let height = area.height.saturating_sub(2).max(area.height.min(3)).max(2);
    Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height.saturating_sub(height)) / 2,
        width,
        height,
    }
}

pub(super) fn draw(app: &App, frame: &mut Frame<'_>) {
    let Some(window) = &app.window else { return };
    let lines = &app.laid_out.window;
    let most = place(frame.area());
    let height = u16::try_from(lines.len() + 2)
        .unwrap_or(u16::MAX)
        .min(most.height);
    let place = Rect { height, ..most }.intersection(frame.area());
    let (title, keys) = title(window);
    let block = Block::bordered()
        .border_style(paint::NOTE)
        .title(Span::styled(format!(" {title} "), paint::BOLD))
        .title_bottom(Line::styled(format!(" {keys} "), paint::DIM).right_aligned())
        .padding(Padding::horizontal(1));
    let inner = block.inner(place);
    let shown: Vec<Line<'_>> = lines
        .iter()
        .skip(first(window, inner))
        .take(usize::from(inner.height))
        .cloned()
        .collect();
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(shown).block(block), place);
}

/// Which line is the first to be seen.
fn first(window: &Window, inner: Rect) -> usize {
    match window {
        Window::Help { scroll }
        | Window::Text { scroll, .. }
        | Window::Detail { scroll, .. }
        | Window::Edited { scroll, .. } => *scroll,
        // The line with the filter, and then as many commands as it takes for the selected one to be seen.
        Window::Palette { selected, .. } => {
            (selected + 3).saturating_sub(usize::from(inner.height))
        }
        Window::Search { .. } | Window::Deny { .. } | Window::Always(_) => 0,
    }
}

fn title(window: &Window) -> (String, &'static str) {
    match window {
        Window::Help { .. } => ("Keys".to_owned(), "Esc closes"),
        Window::Text { title, .. } => (title.clone(), "Esc closes"),
        Window::Detail { .. } => ("Call".to_owned(), "Esc closes"),
        Window::Palette { .. } => ("Commands".to_owned(), "Enter runs it, Esc closes"),
        Window::Search { .. } => ("Search".to_owned(), "Enter finds, then n and N"),
        Window::Deny { tool, .. } => (
            format!("Deny {}", text::one_line(tool)),
            "Enter denies, Esc leaves it open",
        ),
        Window::Edited { tool, .. } => (
            format!(
                "Run {} with these arguments?",
                text::one_line(tool.as_str())
            ),
            "y runs it, e edits again, Esc leaves it",
        ),
        Window::Always(_) => (
            "Always approve calls like this?".to_owned(),
            "y agrees, Esc leaves it open",
        ),
    }
}

fn lines(app: &App, window: &Window, width: usize) -> Vec<Line<'static>> {
    match window {
        Window::Help { .. } => help(width),
        Window::Text { text, .. } => text::wrap(text, width, paint::PLAIN),
        Window::Detail { call, .. } => match app.screen.call(*call) {
            Some(call) => detail::lines(call, app.now, width),
            None => Vec::new(),
        },
        Window::Palette { filter, selected } => commands(filter, *selected, width),
        Window::Search { words } => field("look for: ", words, width),
        Window::Deny { reason, .. } => {
            let mut lines = field("because: ", reason, width);
            lines.extend(text::wrap(
                "The model is told. Without a reason it is only told no.",
                width,
                paint::DIM,
            ));
            lines
        }
        Window::Edited { arguments, .. } => text::wrap(
            &text::readable(arguments.as_json().as_value()),
            width,
            paint::PLAIN,
        ),
        Window::Always(always) => rule(always, width),
    }
}

/// A line that is being written.
fn field(lead: &'static str, written: &str, width: usize) -> Vec<Line<'static>> {
    let room = width.saturating_sub(lead.len() + 1).max(4);
    // The end is where one writes.
    let rows = text::wrap(&format!("{written}▏"), room, paint::PLAIN);
    let last = rows.into_iter().next_back().unwrap_or_default();
    text::with_lead(Span::styled(lead, paint::DIM), vec![last])
}

fn help(width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for place in Place::ALL {
        if !lines.is_empty() {
            lines.push(Line::default());
        }
        lines.push(Line::styled(place.title(), paint::NOTE));
        for binding in BINDINGS.iter().filter(|binding| binding.place == place) {
            let does = text::wrap(binding.does, width.saturating_sub(20).max(8), paint::PLAIN);
            let keys = Span::styled(format!("  {:<17} ", keys::labels(binding)), paint::BOLD);
            lines.extend(text::with_lead(keys, does));
        }
    }
    lines
}

fn commands(filter: &str, selected: usize, width: usize) -> Vec<Line<'static>> {
    let mut lines = field("› ", filter, width);
    for (number, command) in palette::commands(filter).into_iter().enumerate() {
        let room = width.saturating_sub(command.keys.len() + 1);
        let name = text::cut(command.name, room);
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

/// What a standing rule says, and what it would have answered.
fn rule(always: &Always, width: usize) -> Vec<Line<'static>> {
    let rule = &always.rule;
    let mut lines = text::wrap(
        &format!("Calls of {} run without a question where", rule.tool),
        width,
        paint::PLAIN,
    );
    for (pointer, pattern) in &rule.arguments {
        let says = match pattern {
            ArgumentPattern::Equals(value) => {
                format!("{} is {value}", pointer.trim_start_matches('/'))
            }
            ArgumentPattern::Glob(glob) => {
                format!("{} fits {glob}", pointer.trim_start_matches('/'))
            }
        };
        lines.extend(text::with_lead(
            Span::raw("  "),
            text::wrap(&says, width.saturating_sub(2).max(8), paint::BOLD),
        ));
    }
    for name in &always.open {
        let says = format!("{name} may be anything");
        lines.extend(text::with_lead(
            Span::raw("  "),
            text::wrap(&says, width.saturating_sub(2).max(8), paint::WARN),
        ));
    }
    let chosen = |here: bool| if here { paint::CHOSEN } else { paint::PLAIN };
    lines.push(Line::default());
    lines.push(Line::from(vec![
        Span::styled(
            "s this session",
            chosen(matches!(rule.scope, RuleScope::Session { .. })),
        ),
        Span::raw("   "),
        Span::styled(
            "p this project",
            chosen(matches!(rule.scope, RuleScope::Project { .. })),
        ),
        Span::raw("   "),
        Span::styled("w everywhere", chosen(rule.scope == RuleScope::Global)),
    ]));
    let holds = match &rule.scope {
        RuleScope::Session { .. } => "It holds in this session.",
        RuleScope::Project { .. } => "It holds in every session of this project.",
        RuleScope::Global => "It holds in every session, wherever it works.",
    };
    lines.extend(text::wrap(holds, width, paint::PLAIN));
    lines.push(Line::default());
    lines.extend(preview(always, width));
    lines
}

fn preview(always: &Always, width: usize) -> Vec<Line<'static>> {
    match &always.preview {
        None => text::wrap("looking what it would have answered …", width, paint::DIM),
        Some(Err(problem)) => text::wrap(problem, width, paint::BAD),
        Some(Ok(calls)) => {
            let head = match calls.len() {
                0 => "Of what was asked before it would have answered nothing.".to_owned(),
                1 => "Of what was asked before it would have answered 1 call:".to_owned(),
                count => format!(
                    "Of what was asked before it would have answered {count} calls, newest first:"
                ),
            };
            let mut lines = text::wrap(&head, width, paint::DIM);
            for call in calls.iter().rev().take(5) {
                lines.push(Line::styled(
                    format!("  {}", text::cut(&text::one_line(call), width - 2)),
                    paint::DIM,
                ));
            }
            lines
        }
    }
}
