//! Messages and calls as lines.

use ratatui::{
    style::{Modifier, Style},
    text::{Line, Span},
};
use toolgate::{Status, stack::Progress};
use unicode_width::UnicodeWidthStr;

use super::{
    super::{text, transcript::TranscriptSource},
    paint,
};
use crate::show::{
    render,
    screen::{CallState, CallView, ConversationItem},
};

/// The fewest columns in which a purpose is shown.
const MIN_PURPOSE_WIDTH: usize = 16;

/// The most lines of a failed call's reason.
const MAX_REASON_LINES: usize = 3;

/// Renders one item, with an empty line before it where something new begins.
pub(crate) fn item_lines(
    source: TranscriptSource<'_>,
    place: usize,
    width: u16,
) -> Vec<Line<'static>> {
    let items = &source.agent.items;
    let width = usize::from(width.max(8));
    let mut lines = match &items[place] {
        ConversationItem::User { text, steering } => user_lines(text, *steering, width),
        ConversationItem::Model(text) => text::markdown_lines(text, width),
        ConversationItem::Note(text) => text::with_lead(
            Span::styled("· ", paint::DIM),
            text::wrap_text(text, width - 2, paint::DIM),
        ),
        ConversationItem::Call(id) => source
            .screen
            .call(*id)
            .map(|call| call_lines(call, source, width))
            .unwrap_or_default(),
    };
    let before = place.checked_sub(1).map(|before| &items[before]);
    let goes_on = matches!(
        (before, &items[place]),
        (Some(ConversationItem::Call(_)), ConversationItem::Call(_))
    );
    if before.is_some() && !goes_on {
        lines.insert(0, Line::default());
    }
    lines
}

/// Renders the streaming reply, with the reasoning if it is shown.
pub(crate) fn reply_lines(source: TranscriptSource<'_>, width: u16) -> Vec<Line<'static>> {
    let agent = source.agent;
    let width = usize::from(width.max(8));
    let mut lines = Vec::new();
    if source.thinking && !agent.thinking.is_empty() {
        let style = paint::DIM.add_modifier(Modifier::ITALIC);
        lines.push(Line::default());
        lines.extend(text::wrap_text(&agent.thinking, width, style));
    }
    if !agent.coming.is_empty() {
        lines.push(Line::default());
        lines.extend(text::markdown_lines(&agent.coming, width));
    }
    lines
}

fn user_lines(words: &str, steering: bool, width: usize) -> Vec<Line<'static>> {
    let sign = if steering { "» " } else { "› " };
    text::with_lead(
        Span::styled(sign, paint::NOTE),
        text::wrap_text(words, width - 2, paint::BOLD),
    )
}

fn call_lines(call: &CallView, source: TranscriptSource<'_>, width: usize) -> Vec<Line<'static>> {
    let mut lines = vec![head_line(call, source, width)];
    if let Some((words, style)) = call_remark(call) {
        let remark = text::wrap_text(&words, width.saturating_sub(2).max(4), style);
        lines.extend(text::with_lead(
            Span::raw("  "),
            remark.into_iter().take(MAX_REASON_LINES).collect(),
        ));
    }
    lines.extend(text::output_lines(call, width));
    lines
}

/// Renders the first line: symbol, tool, arguments, and the state at the end.
fn head_line(call: &CallView, source: TranscriptSource<'_>, width: usize) -> Line<'static> {
    let (sign, style) = paint::call_sign(call, source.now);
    let standing = text::truncate_line(
        &paint::call_status(call, source.now),
        width.saturating_sub(12),
    );
    let tool = text::one_line(call.invocation.tool.as_str());
    let room = width.saturating_sub(standing.width() + 3);
    let tool = text::truncate_line(&tool, room);
    let (what, purpose) = fit_purpose(call, room.saturating_sub(tool.width() + 1));
    let used = tool.width() + 1 + what.width() + purpose.width() + standing.width();
    let gap = width.saturating_sub(2 + used).max(1);
    Line::from(vec![
        Span::styled(format!("{sign} "), style),
        Span::styled(tool, paint::BOLD),
        Span::raw(format!(" {what}")),
        Span::styled(purpose, paint::NOTE),
        Span::raw(" ".repeat(gap)),
        Span::styled(
            standing,
            if call.state == CallState::Pending {
                paint::WARN
            } else {
                paint::DIM
            },
        ),
    ])
}

/// Returns the arguments and what the call is for, truncated to `room` columns together. The
/// arguments have the first half, and more if the purpose is short.
fn fit_purpose(call: &CallView, room: usize) -> (String, String) {
    let purpose = call
        .purpose()
        .map(|purpose| format!(" – {}", text::one_line(purpose)));
    let purpose = purpose.unwrap_or_default();
    let first = room.saturating_sub(purpose.width()).max(room / 2);
    let what = text::truncate_line(&arguments_summary(call), first);
    let rest = room.saturating_sub(what.width());
    // A few letters of a sentence say nothing.
    if rest < purpose.width().min(MIN_PURPOSE_WIDTH) {
        return (what, String::new());
    }
    (what, text::truncate_line(&purpose, rest))
}

/// Formats the arguments of a call in one line.
pub(crate) fn arguments_summary(call: &CallView) -> String {
    match call.arguments_line() {
        Some(arguments) => text::one_line(&arguments),
        None => "(arguments not shown)".to_owned(),
    }
}

/// Returns a second line: progress, changed files, or the reason of a failure.
fn call_remark(call: &CallView) -> Option<(String, Style)> {
    match call.state {
        CallState::Running | CallState::External => {
            let progress = call.progress.as_ref().map(format_progress);
            progress
                .or_else(|| call.log.clone())
                .map(|words| (text::one_line(&words), paint::DIM))
        }
        CallState::Settled(Status::Ok) => {
            let files = render::format_other_files(call)?;
            Some((text::one_line(&files), paint::NOTE))
        }
        CallState::Settled(_) => call.reason.clone().map(|reason| (reason, paint::DIM)),
        CallState::Requested | CallState::Pending | CallState::Approved => None,
    }
}

/// Formats progress in one line.
pub(crate) fn format_progress(progress: &Progress) -> String {
    let share = progress.percent().map(|percent| {
        let full = (percent / 10.0).clamp(0.0, 10.0) as usize;
        format!(
            "{}{} {percent:.0} %",
            "█".repeat(full),
            "░".repeat(10 - full)
        )
    });
    let count = match (&share, progress.current, progress.total) {
        (None, Some(current), Some(total)) => Some(format!("{current} of {total}")),
        (None, Some(current), None) => Some(current.to_string()),
        _ => None,
    };
    let label = progress.label.as_deref().map(text::one_line);
    let message = progress.message.as_deref().map(text::one_line);
    [label, share, count, message]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(" ")
}
