//! Everything about one call: request, decision, outcome, and its path through the layers.

use ratatui::text::{Line, Span};
use toolgate::{
    stack::{ChangeSubject, LayerNote, LayerStatus, NoteFields, UnsettledReason},
    value::Timestamp,
};
use unicode_width::UnicodeWidthStr;

use super::{super::text, approvals, paint};
use crate::show::{
    render::{format_duration, result::format_value},
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
        lines.extend(approvals::request_lines(call, width));
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
        push_notes(&mut lines, notes, call.started_at.is_some(), width);
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
    facts.extend(call.deciders().map(|who| {
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

fn push_notes(lines: &mut Vec<Line<'static>>, notes: &NoteFields, has_run: bool, width: usize) {
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
        push_section(lines, "Layers, each with its own time");
        lines.extend(own_time_lines(&notes.layers, has_run, width));
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

/// Renders a bar per layer: its own time, without that of the layers below it.
fn own_time_lines(layers: &[LayerNote], has_run: bool, width: usize) -> Vec<Line<'static>> {
    let own = own_times(layers);
    // All times may be 0, and the bars divide by this.
    let longest = own.iter().copied().max().unwrap_or_default().max(1);
    let names = layers
        .iter()
        .map(|note| note.name.as_str().width())
        .max()
        .unwrap_or_default()
        .min(20);
    let room = width.saturating_sub(names + 14).clamp(4, 40);
    let cells = u64::try_from(room).unwrap_or(4);
    let mut lines = Vec::new();
    for (place, (note, took)) in layers.iter().zip(own).enumerate() {
        let bar = usize::try_from((took * cells).div_ceil(longest)).unwrap_or(room);
        let name = text::truncate_line(&text::one_line(note.name.as_str()), names);
        lines.push(Line::from(vec![
            Span::raw(format!("{name}{} ", " ".repeat(names - name.width()))),
            Span::styled("█".repeat(bar), bar_style(note)),
            Span::styled(
                format!("{} {:>9}", " ".repeat(room - bar), format_micros(took)),
                paint::DIM,
            ),
        ]));
        let is_innermost = layers
            .get(place + 1)
            .is_none_or(|next| next.attempt > note.attempt);
        let tool =
            (has_run && is_innermost && !note.answered).then(|| "with the tool itself".to_owned());
        for said in [tool, layer_remark(note)].into_iter().flatten() {
            let said = text::wrap_text(&said, width.saturating_sub(4).max(8), paint::DIM);
            lines.extend(text::with_lead(Span::raw("    "), said));
        }
    }
    lines
}

/// Returns the own time of each visit to a layer, in microseconds. The notes are in the order of
/// entering.
fn own_times(layers: &[LayerNote]) -> Vec<u64> {
    let took = |note: &LayerNote| {
        let micros = note.ended_at.as_micros() - note.started_at.as_micros();
        u64::try_from(micros).unwrap_or_default()
    };
    let mut own: Vec<u64> = layers.iter().map(took).collect();
    let mut around: Vec<usize> = Vec::new();
    for (place, note) in layers.iter().enumerate() {
        // A retry enters the layers below it again, each after it was left.
        if let Some(before) = around
            .iter()
            .position(|outer| layers[*outer].name == note.name)
        {
            around.truncate(before);
        }
        while around
            .last()
            .is_some_and(|outer| layers[*outer].ended_at < note.started_at)
        {
            around.pop();
        }
        if let Some(outer) = around.last() {
            own[*outer] = own[*outer].saturating_sub(took(note));
        }
        around.push(place);
    }
    own
}

fn format_micros(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        _ => format_duration(micros / 1_000),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn note(name: &str, from: u64, to: u64, attempt: u32) -> LayerNote {
        let at = |micros: u64| format!("2025-06-15T15:06:40.{micros:06}Z");
        serde_json::from_value(json!({
            "name": name, "band": "repeat", "status": "ok", "changed": false, "attempt": attempt,
            "started_at": at(from), "ended_at": at(to),
        }))
        .expect("a note")
    }

    #[test]
    fn the_time_of_a_layer_is_without_that_of_the_layers_below() {
        let layers = [
            note("receipts", 0, 900, 1),
            note("retry", 100, 800, 1),
            note("timeout", 200, 300, 1),
            note("timeout", 400, 750, 2),
        ];
        assert_eq!(own_times(&layers), [200, 250, 100, 350]);
        // With a clock that stands still, nothing has taken any time.
        let still = [note("receipts", 5, 5, 1), note("retry", 5, 5, 1)];
        assert_eq!(own_times(&still), [0, 0]);
    }
}
