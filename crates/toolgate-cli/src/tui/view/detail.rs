//! Everything about one call: what was asked, who decided, what came of it, and its way through the layers.

use ratatui::text::{Line, Span};
use toolgate::{LayerNote, LayerStatus, NoteFields, Subject, Timestamp, Unsettled};
use unicode_width::UnicodeWidthStr;

use super::{super::text, approvals, paint};
use crate::screen::CallView;

pub(super) fn lines(call: &CallView, now: Timestamp, width: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let (sign, style) = paint::sign(call, now);
    lines.push(Line::from(vec![
        Span::styled(format!("{sign} "), style),
        Span::styled(text::one_line(call.invocation.tool.as_str()), paint::BOLD),
        Span::raw(format!("  {}", paint::standing(call, now))),
    ]));
    for (name, value) in facts(call) {
        let value = text::wrap(&value, width.saturating_sub(12).max(8), paint::PLAIN);
        lines.extend(text::with_lead(
            Span::styled(format!("{name:<12}"), paint::DIM),
            value,
        ));
    }
    let arguments = call
        .arguments
        .as_ref()
        .map(|arguments| text::readable(arguments.as_value()));
    section(&mut lines, "Arguments");
    lines.extend(text::wrap(
        arguments.as_deref().unwrap_or("(not shown)"),
        width,
        paint::PLAIN,
    ));
    if let Some(request) = &call.question {
        section(&mut lines, "Question");
        lines.extend(approvals::about(request, now, width, usize::MAX));
    }
    if let Some(result) = &call.result {
        section(&mut lines, "Result");
        lines.extend(text::wrap(
            &text::readable(result.as_value()),
            width,
            paint::PLAIN,
        ));
    }
    if let Some(notes) = call.note_fields() {
        noted(&mut lines, notes, width);
    }
    lines
}

fn section(lines: &mut Vec<Line<'static>>, title: &str) {
    lines.push(Line::default());
    lines.push(Line::styled(title.to_owned(), paint::NOTE));
}

fn facts(call: &CallView) -> Vec<(&'static str, String)> {
    let mut facts = vec![("asked at", call.requested_at.to_string())];
    facts.extend(call.started_at.map(|at| ("started at", at.to_string())));
    facts.extend(call.settled_at.map(|at| ("settled at", at.to_string())));
    facts.extend((call.attempts > 1).then(|| ("attempts", call.attempts.to_string())));
    facts.extend(call.decided_by.as_ref().map(|who| {
        let edited = if call.edited {
            ", with other arguments"
        } else {
            ""
        };
        ("decided by", format!("{who}{edited}"))
    }));
    facts.extend(call.reason.clone().map(|reason| ("reason", reason)));
    // A receipt has the id of its call.
    facts.push(("receipt", call.invocation.id.to_string()));
    facts.push(("session", call.invocation.turn.session.to_string()));
    facts
}

fn noted(lines: &mut Vec<Line<'static>>, notes: &NoteFields, width: usize) {
    let words: Vec<&str> = [&notes.summary, &notes.description]
        .into_iter()
        .flatten()
        .map(String::as_str)
        .collect();
    if !words.is_empty() {
        section(lines, "Noted");
        lines.extend(text::wrap(&words.join("\n"), width, paint::PLAIN));
    }
    if !notes.layers.is_empty() {
        section(lines, "Way through the layers");
        lines.extend(timeline(&notes.layers, width));
    }
    if !notes.provenance.is_empty() {
        section(lines, "Who changed what");
    }
    for changed in &notes.provenance {
        let subject = match changed.subject {
            Subject::Arguments => "arguments",
            Subject::Result => "result",
        };
        let mut places: Vec<&str> = changed
            .changes
            .iter()
            .map(|change| change.pointer.as_str())
            .collect();
        places.extend(changed.truncated.then_some("…"));
        let row = format!("{}: {subject} {}", changed.layer, places.join(", "));
        lines.extend(text::wrap(&row, width, paint::PLAIN));
    }
}

/// A bar per layer: when the call entered and left it, beside the whole.
fn timeline(layers: &[LayerNote], width: usize) -> Vec<Line<'static>> {
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
        let name = text::cut(&text::one_line(note.name.as_str()), names);
        lines.push(Line::from(vec![
            Span::raw(format!("{name}{} ", " ".repeat(names - name.width()))),
            Span::styled(" ".repeat(from), paint::DIM),
            Span::styled("█".repeat(to - from), style(note)),
            Span::styled(format!("{} {took:>7} µs", " ".repeat(bar - to)), paint::DIM),
        ]));
        for said in [said(note)].into_iter().flatten() {
            let said = text::wrap(&said, width.saturating_sub(4).max(8), paint::DIM);
            lines.extend(text::with_lead(Span::raw("    "), said));
        }
    }
    lines
}

/// What a layer did, and why.
fn said(note: &LayerNote) -> Option<String> {
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

fn style(note: &LayerNote) -> ratatui::style::Style {
    match note.status {
        LayerStatus::Settled(toolgate::Status::Ok) => paint::GOOD,
        LayerStatus::Settled(status) if status.is_refusal() => paint::WARN,
        LayerStatus::Settled(_) => paint::BAD,
        LayerStatus::Open(Unsettled::Suspended) => paint::WARN,
        LayerStatus::Open(Unsettled::Dropped) => paint::DIM,
    }
}
