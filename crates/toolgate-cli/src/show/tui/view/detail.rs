//! Everything about one call: request, decision, outcome, and its path through the layers.

use ratatui::text::{Line, Span};
use toolgate::{
    stack::{ChangeSubject, LayerNote, LayerStatus, NoteFields, UnsettledReason},
    value::Timestamp,
};
use unicode_width::UnicodeWidthStr;

use super::{super::text, approvals, paint};
use crate::show::{
    render::result::format_value,
    screen::{CallState, CallView},
};

pub(super) fn detail_lines(call: &CallView, now: Timestamp, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let (sign, style) = paint::call_sign(call, now);
    lines.push(Line::from(vec![
        Span::styled(format!("{sign} "), style),
        Span::styled(text::one_line(call.invocation.tool.as_str()), paint::BOLD),
        Span::raw(format!("  {}", paint::call_status(call, now))),
    ]));
    for (name, value) in call_facts(call) {
        let value = text::wrap_text(&value, width.saturating_sub(12).max(8), paint::PLAIN);
        lines.extend(text::with_lead(
            Span::styled(format!("{name:<12}"), paint::DIM),
            value,
        ));
    }
    if call.state == CallState::Pending {
        push_section(&mut lines, "Approval request");
        lines.extend(approvals::request_lines(call, now, width));
    } else {
        let arguments = call
            .arguments
            .as_ref()
            .map(|arguments| format_value(arguments.as_value()));
        push_section(&mut lines, "Arguments");
        lines.extend(text::wrap_text(
            arguments.as_deref().unwrap_or("(not shown)"),
            width,
            paint::PLAIN,
        ));
    }
    if let Some(result) = &call.result {
        push_section(&mut lines, "Result");
        lines.extend(text::wrap_text(
            &format_value(result.as_value()),
            width,
            paint::PLAIN,
        ));
    }
    if let Some(notes) = call.note_fields() {
        push_notes(&mut lines, notes, width);
    }
    lines
}

fn push_section(lines: &mut Vec<Line<'static>>, title: &str) {
    lines.push(Line::default());
    lines.push(Line::styled(title.to_owned(), paint::NOTE));
}

fn call_facts(call: &CallView) -> Vec<(&'static str, String)> {
    let mut facts = vec![("requested", call.requested_at.to_string())];
    facts.extend(call.started_at.map(|at| ("started at", at.to_string())));
    facts.extend(call.settled_at.map(|at| ("settled at", at.to_string())));
    facts.extend((call.attempts > 1).then(|| ("attempts", call.attempts.to_string())));
    facts.extend(call.decided_by.as_ref().map(|who| {
        let edited = if call.edited {
            ", with edited arguments"
        } else {
            ""
        };
        let unseen = if call.unseen {
            ", without having been shown all of it"
        } else {
            ""
        };
        ("decided by", format!("{who}{edited}{unseen}"))
    }));
    facts.extend(call.reason.clone().map(|reason| ("reason", reason)));
    // A receipt has the id of its call.
    facts.push(("receipt", call.invocation.id.to_string()));
    facts.push(("session", call.invocation.turn.session.to_string()));
    facts
}

fn push_notes(lines: &mut Vec<Line<'static>>, notes: &NoteFields, width: usize) {
    let words: Vec<&str> = [&notes.summary, &notes.description]
        .into_iter()
        .flatten()
        .map(String::as_str)
        .collect();
    if !words.is_empty() {
        push_section(lines, "Notes");
        lines.extend(text::wrap_text(&words.join("\n"), width, paint::PLAIN));
    }
    if !notes.layers.is_empty() {
        push_section(lines, "Path through the layers");
        lines.extend(timeline_lines(&notes.layers, width));
    }
    if !notes.provenance.is_empty() {
        push_section(lines, "Changes");
    }
    for changed in &notes.provenance {
        let subject = match changed.subject {
            ChangeSubject::Arguments => "arguments",
            ChangeSubject::Result => "result",
        };
        let mut places: Vec<&str> = changed
            .changes
            .iter()
            .map(|change| change.pointer.as_str())
            .collect();
        places.extend(changed.truncated.then_some("…"));
        let row = format!("{}: {subject} {}", changed.layer, places.join(", "));
        lines.extend(text::wrap_text(&row, width, paint::PLAIN));
    }
}

/// Renders a bar per layer: when the call entered and left it, relative to the whole call.
fn timeline_lines(layers: &[LayerNote], width: usize) -> Vec<Line<'static>> {
    let began = layers
        .iter()
        .map(|note| note.started_at.as_micros())
        .min()
        .unwrap_or_default();
    let ended = layers
        .iter()
        .map(|note| note.ended_at.as_micros())
        .max()
        .unwrap_or_default();
    // All times may be equal, and the bars divide by this.
    let whole = (ended - began).max(1);
    let names = layers
        .iter()
        .map(|note| note.name.as_str().width())
        .max()
        .unwrap_or_default()
        .min(20);
    let bar = width.saturating_sub(names + 14).clamp(4, 40);
    let cells = i64::try_from(bar).unwrap_or(4);
    let mut lines = Vec::new();
    for note in layers {
        let from = (note.started_at.as_micros() - began) * cells / whole;
        let to = ((note.ended_at.as_micros() - began) * cells + whole - 1) / whole;
        let from = usize::try_from(from).unwrap_or_default().min(bar - 1);
        let to = usize::try_from(to).unwrap_or_default().clamp(from + 1, bar);
        let took = (note.ended_at.as_micros() - note.started_at.as_micros()).max(0);
        let name = text::truncate_line(&text::one_line(note.name.as_str()), names);
        lines.push(Line::from(vec![
            Span::raw(format!("{name}{} ", " ".repeat(names - name.width()))),
            Span::styled(" ".repeat(from), paint::DIM),
            Span::styled("█".repeat(to - from), bar_style(note)),
            Span::styled(format!("{} {took:>7} µs", " ".repeat(bar - to)), paint::DIM),
        ]));
        for said in [layer_remark(note)].into_iter().flatten() {
            let said = text::wrap_text(&said, width.saturating_sub(4).max(8), paint::DIM);
            lines.extend(text::with_lead(Span::raw("    "), said));
        }
    }
    lines
}

/// Returns what a layer did, and why.
fn layer_remark(note: &LayerNote) -> Option<String> {
    let did = match (note.answered, note.changed) {
        (true, _) => Some("answered"),
        (false, true) => Some("changed it"),
        (false, false) => None,
    };
    let attempt = (note.attempt > 1).then(|| format!("attempt {}", note.attempt));
    let parts = [
        did.map(str::to_owned),
        attempt,
        note.reason.as_deref().map(str::to_owned),
        note.error.clone(),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(": "))
}

fn bar_style(note: &LayerNote) -> ratatui::style::Style {
    match note.status {
        LayerStatus::Settled(toolgate::Status::Ok) => paint::GOOD,
        LayerStatus::Settled(status) if status.is_refusal() => paint::WARN,
        LayerStatus::Settled(_) => paint::BAD,
        LayerStatus::Open(UnsettledReason::Suspended) => paint::WARN,
        LayerStatus::Open(UnsettledReason::Dropped) => paint::DIM,
    }
}
