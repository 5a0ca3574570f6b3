//! What was said and called, as lines.

use ratatui::{
    style::{Modifier, Style},
    text::{Line, Span},
};
use toolgate::{Progress, Status};
use unicode_width::UnicodeWidthStr;

use super::{
    super::{text, transcript::Source},
    paint,
};
use crate::screen::{CallState, CallView, Item};

/// How many lines of a failed call's reason are shown.
const MOST_REASON: usize = 3;

/// The lines of one item, with an empty line in front where something new begins.
pub(crate) fn lines(source: Source<'_>, place: usize, width: u16) -> Vec<Line<'static>> {
    let items = &source.agent.items;
    let width = usize::from(width.max(8));
    let mut lines = match &items[place] {
        Item::User { text, steering } => said(text, *steering, width),
        Item::Model(text) => text::markdown(text, width),
        Item::Note(text) => text::with_lead(
            Span::styled("· ", paint::DIM),
            text::wrap(text, width - 2, paint::DIM),
        ),
        Item::Call(id) => source
            .screen
            .call(*id)
            .map(|call| call_lines(call, source, width))
            .unwrap_or_default(),
    };
    let before = place.checked_sub(1).map(|before| &items[before]);
    let goes_on = matches!(
        (before, &items[place]),
        (Some(Item::Call(_)), Item::Call(_))
    );
    if before.is_some() && !goes_on {
        lines.insert(0, Line::default());
    }
    lines
}

/// The reply that is still coming, with what the model thinks if that is wanted.
pub(crate) fn coming(source: Source<'_>, width: u16) -> Vec<Line<'static>> {
    let (agent, width) = (source.agent, usize::from(width.max(8)));
    let mut lines = Vec::new();
    if source.thinking && !agent.thinking.is_empty() {
        let style = paint::DIM.add_modifier(Modifier::ITALIC);
        lines.push(Line::default());
        lines.extend(text::wrap(&agent.thinking, width, style));
    }
    if !agent.coming.is_empty() {
        lines.push(Line::default());
        lines.extend(text::markdown(&agent.coming, width));
    }
    lines
}

fn said(words: &str, steering: bool, width: usize) -> Vec<Line<'static>> {
    let sign = if steering { "» " } else { "› " };
    text::with_lead(
        Span::styled(sign, paint::NOTE),
        text::wrap(words, width - 2, paint::BOLD),
    )
}

fn call_lines(call: &CallView, source: Source<'_>, width: usize) -> Vec<Line<'static>> {
    let mut lines = vec![head(call, source, width)];
    if let Some((words, style)) = remark(call) {
        let remark = text::wrap(&words, width.saturating_sub(2).max(4), style);
        lines.extend(text::with_lead(
            Span::raw("  "),
            remark.into_iter().take(MOST_REASON).collect(),
        ));
    }
    lines
}

/// The first line: sign, tool, arguments, and at the end how it stands.
fn head(call: &CallView, source: Source<'_>, width: usize) -> Line<'static> {
    let (sign, style) = paint::sign(call, source.now);
    let standing = text::cut(&paint::standing(call, source.now), width.saturating_sub(12));
    let tool = text::one_line(call.invocation.tool.as_str());
    let room = width.saturating_sub(standing.width() + 3);
    let tool = text::cut(&tool, room);
    let what = text::cut(&summary(call), room.saturating_sub(tool.width() + 1));
    let gap = width
        .saturating_sub(2 + tool.width() + 1 + what.width() + standing.width())
        .max(1);
    Line::from(vec![
        Span::styled(format!("{sign} "), style),
        Span::styled(tool, paint::BOLD),
        Span::raw(format!(" {what}")),
        Span::raw(" ".repeat(gap)),
        Span::styled(
            standing,
            if call.state == CallState::Asked {
                paint::WARN
            } else {
                paint::DIM
            },
        ),
    ])
}

/// What the call is called with, in a line.
pub(crate) fn summary(call: &CallView) -> String {
    match &call.arguments {
        Some(arguments) => text::arguments_line(arguments.as_value()),
        None => "(arguments not shown)".to_owned(),
    }
}

/// What else there is to say: how far it is, or why it did not go well.
fn remark(call: &CallView) -> Option<(String, Style)> {
    match call.state {
        CallState::Running | CallState::Outside => {
            let progress = call.progress.as_ref().map(progress);
            progress
                .or_else(|| call.log.clone())
                .map(|words| (text::one_line(&words), paint::DIM))
        }
        CallState::Settled(Status::Ok) => None,
        CallState::Settled(_) => call.reason.clone().map(|reason| (reason, paint::DIM)),
        CallState::Requested | CallState::Asked | CallState::Approved => None,
    }
}

/// How far something has come, in a line.
pub(crate) fn progress(progress: &Progress) -> String {
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
    let message = progress.message.as_deref().map(text::one_line);
    [share, count, message]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(" ")
}
