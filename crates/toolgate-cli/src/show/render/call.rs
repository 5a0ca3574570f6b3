//! One call in one line: tool, arguments, state and duration.

use anstyle::{AnsiColor, Style};
use toolgate::{Status, layers::strip_dot_slash, stack::Progress, value::Timestamp};
use unicode_width::UnicodeWidthStr;

use super::StyledLine;
use crate::{
    env::style::{BAD, DIM, GOOD, NOTE, WARN},
    show::{
        render::{
            arguments::format_short,
            result::{failed_command, format_value, is_reconciled},
        },
        screen::{CallState, CallView},
    },
};

const UNCERTAIN: Style = AnsiColor::Magenta.on_default();

/// The frames of the spinner.
pub const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// The mark between the arguments and what the call is for.
const SEPARATOR: &str = "  – ";

/// The fewest columns for arguments, however long the rest of the line is.
const MIN_ARGUMENT_WIDTH: usize = 16;

/// Formats a call in about `width` columns. `now` gives the elapsed time of a running call, `frame`
/// the frame of its spinner.
pub fn call_line(call: &CallView, width: usize, now: Timestamp, frame: usize) -> StyledLine {
    let (sign, style) = call_sign(call, frame);
    let mut line = StyledLine::styled(sign, style).with(" ", Style::new());
    if let Some(agent) = &call.invocation.turn.agent_name {
        line.push(&format!("{agent} ▸ "), NOTE);
    }
    line.push(call.invocation.tool.as_str(), Style::new().bold());
    let mut end = StyledLine::new();
    for (text, style) in call_details(call, now) {
        end.push("  ", Style::new());
        end.push(&text, style);
    }
    // The state matters more than the end of a long command.
    let room = width.saturating_sub(line.width() + end.width() + 1);
    line.extend(arguments_and_purpose(call, room));
    line.extend(end);
    line
}

/// Formats the arguments, and after them what the call is for, in about `room` columns.
fn arguments_and_purpose(call: &CallView, room: usize) -> StyledLine {
    let mut line = StyledLine::new();
    let given = call.arguments_line().filter(|given| !given.is_empty());
    let purpose = call.purpose().map(crate::env::style::escape_controls);
    if let Some(given) = given {
        // What runs has the first half of the line, and more if the purpose is short.
        let other = purpose
            .as_ref()
            .map_or(0, |text| text.width() + SEPARATOR.width());
        let room = room
            .saturating_sub(other)
            .max(room / 2)
            .max(MIN_ARGUMENT_WIDTH);
        line.push(" ", Style::new());
        line.extend(StyledLine::plain(&given).clip(room));
    }
    let rest = room.saturating_sub(line.width() + SEPARATOR.width());
    if let Some(purpose) = purpose.filter(|_| rest >= MIN_ARGUMENT_WIDTH) {
        line.push(SEPARATOR, DIM);
        line.extend(StyledLine::styled(&purpose, NOTE).clip(rest));
    }
    line
}

/// Returns the symbol and style of a call; `frame` is the frame of the spinner.
pub(crate) fn call_sign(call: &CallView, frame: usize) -> (&'static str, Style) {
    match call.state {
        // The call succeeded, and what it ran did not.
        CallState::Settled(Status::Ok) if failed_command(call).is_some() => ("✗", BAD),
        CallState::Requested => ("·", DIM),
        CallState::Pending => ("?", WARN),
        CallState::Approved => ("✔", GOOD),
        CallState::Running | CallState::External => (SPINNER[frame % SPINNER.len()], NOTE),
        CallState::Settled(status) => (status_sign(status), status_style(status)),
    }
}

/// Returns the symbol of a status.
pub fn status_sign(status: Status) -> &'static str {
    match status {
        Status::Ok => "✓",
        Status::DryRun => "○",
        Status::OutcomeUnknown => "?",
        Status::Cancelled => "◌",
        status if status.is_refusal() => "⊘",
        _ => "✗",
    }
}

/// Returns the style of a status.
pub fn status_style(status: Status) -> Style {
    match status {
        Status::Ok => GOOD,
        Status::DryRun => NOTE,
        Status::OutcomeUnknown => UNCERTAIN.bold(),
        Status::Cancelled => DIM,
        status if status.is_refusal() => WARN,
        _ => BAD,
    }
}

fn call_details(call: &CallView, now: Timestamp) -> Vec<(String, Style)> {
    let mut found = Vec::new();
    let by = call.deciders();
    match call.state {
        CallState::Requested => {}
        CallState::Pending => found.push((call.state.text().to_owned(), WARN)),
        CallState::Approved => found.extend(by.map(|by| (format_approval(&by, call), GOOD))),
        CallState::Running | CallState::External => {
            found.extend(
                call.started_at
                    .map(|at| (format_duration(now.since(at).as_millis() as u64), DIM)),
            );
            found.extend(
                call.progress
                    .as_ref()
                    .and_then(format_progress)
                    .map(|text| (text, NOTE)),
            );
        }
        CallState::Settled(status) => {
            if status != Status::Ok {
                let words = match (&by, status) {
                    (Some(by), Status::Denied) => format!("denied by {by}"),
                    _ => status.text().to_owned(),
                };
                let reason = call.reason.as_deref().and_then(|text| text.lines().next());
                found.push((
                    words
                        + &reason
                            .map(|reason| format!(": {reason}"))
                            .unwrap_or_default(),
                    status_style(status),
                ));
            }
            found.extend(format_files(call).map(|files| (files, NOTE)));
            found.extend(failed_command(call).map(|end| (end, BAD)));
            found.extend(
                is_reconciled(call).then(|| ("already applied, not run again".to_owned(), GOOD)),
            );
            found.extend(is_result_redacted(call).then(|| ("secrets redacted".to_owned(), NOTE)));
            if status != Status::Denied {
                found.extend(by.map(|by| (format_approval(&by, call), DIM)));
            }
            found.extend(call.cached.then(|| ("cached".to_owned(), DIM)));
            found.extend((call.attempts > 1).then(|| (format!("{} attempts", call.attempts), DIM)));
            found.extend(call.took_ms().map(|ms| (format_duration(ms), DIM)));
        }
    }
    found
}

/// Renders everything about a call that events show: the line, the whole reason, arguments, result
/// and changed files.
pub fn render_details(call: &CallView, width: usize) -> Vec<StyledLine> {
    let mut rows = vec![call_line(
        call,
        width,
        call.settled_at.unwrap_or(call.requested_at),
        0,
    )];
    let indent = StyledLine::plain("    ");
    let mut add = |name: &str, text: &str| {
        for (number, line) in text.lines().enumerate() {
            let name = if number == 0 { name } else { "" };
            let mut row = StyledLine::styled(&format!("  {name:<10}"), DIM);
            row.push(&crate::env::style::escape_controls(line), Style::new());
            rows.extend(row.wrap(width, &indent));
        }
    };
    if let Some(purpose) = call.purpose() {
        add("for", purpose);
    }
    if let Some(reason) = &call.reason {
        add("reason", reason);
    }
    if let Some(arguments) = &call.arguments {
        add("arguments", &format_value(arguments.as_value()));
    }
    if let Some(result) = &call.result {
        add("result", &format_value(result.as_value()));
    }
    for file in &call.files {
        add(file.change.text(), &file.path);
    }
    rows
}

/// Formats the files that a call changed. A single one that the arguments name is not repeated.
fn format_files(call: &CallView) -> Option<String> {
    let first = call.files.first()?;
    let change = first.change.text();
    if names_its_file(call) {
        return Some(change.to_owned());
    }
    let path = crate::env::style::escape_controls(&first.path);
    let more = call.files.len() as u64 - 1 + call.more_files;
    Some(match more {
        0 => format!("{change} {path}"),
        more => format!("{change} {path} and {more} more"),
    })
}

/// Formats the files that a call changed, unless the arguments name the only one.
pub(crate) fn format_other_files(call: &CallView) -> Option<String> {
    format_files(call).filter(|_| !names_its_file(call))
}

/// Checks whether the arguments name the only file that the call changed.
fn names_its_file(call: &CallView) -> bool {
    let ([file], 0) = (call.files.as_slice(), call.more_files) else {
        return false;
    };
    let arguments = call.arguments.as_ref();
    let named = arguments.and_then(|arguments| arguments.get("path")?.as_str());
    named.is_some_and(|named| strip_dot_slash(named) == file.path)
}

/// Checks whether a layer redacted the result.
fn is_result_redacted(call: &CallView) -> bool {
    call.note_fields()
        .is_some_and(|notes| notes.layers.iter().any(|layer| layer.redacted))
}

/// Returns who approved the call and, if other arguments run, which ones were refused.
fn format_approval(by: &str, call: &CallView) -> String {
    if !call.edited {
        return format!("approved by {by}");
    }
    let refused = call.requested_arguments.as_ref();
    let refused = refused.map(|given| format_short(given.as_value()));
    match refused {
        Some(refused) => format!("approved by {by}, with changes; refused: {refused}"),
        None => format!("approved by {by}, with changes"),
    }
}

/// Formats progress: a bar, numbers and the last message.
fn format_progress(progress: &Progress) -> Option<String> {
    let bar = match (progress.current, progress.total) {
        (Some(current), Some(total)) if total > 0 => {
            let full = (current.min(total) * 10 / total) as usize;
            let percent = current.min(total) * 100 / total;
            Some(format!(
                "{}{} {percent} %",
                "█".repeat(full),
                "░".repeat(10 - full)
            ))
        }
        (Some(current), _) => Some(current.to_string()),
        (None, _) => None,
    };
    let message = progress
        .message
        .as_deref()
        .and_then(|text| text.trim_end().lines().last())
        .map(str::to_owned);
    let label = progress.label.clone();
    let words: Vec<String> = label.into_iter().chain(bar).chain(message).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// Formats a duration for people.
pub fn format_duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{:.1} s", ms as f64 / 1e3),
        _ => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1_000),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::show::screen::SessionScreen;
    use serde_json::json;
    use std::sync::Arc;
    use toolgate::{
        Event,
        event::{Invocation, ToolEvent},
        stack::{Outcome, TurnInfo},
        tool::ToolError,
        value::{CallId, Digest, Json, SessionId, TurnId},
    };
    use uuid::Uuid;

    fn invocation() -> Arc<Invocation> {
        let turn = TurnId::new(Uuid::from_u128(2));
        Arc::new(Invocation {
            id: CallId::new(Uuid::from_u128(3)),
            call_id: "c1".into(),
            tool: "pay".into(),
            emit_order: 0,
            turn: Arc::new(TurnInfo::new(SessionId::new(Uuid::from_u128(1)), turn)),
        })
    }

    /// Returns a call after these events.
    fn fold_call(
        invocation: &Arc<Invocation>,
        events: impl IntoIterator<Item = ToolEvent>,
    ) -> CallView {
        let mut screen = SessionScreen::new();
        for (sequence, event) in (1..).zip(events) {
            let now = Timestamp::EPOCH;
            let event = Event::for_invocation(sequence, now, invocation.clone(), event);
            screen.apply(&event.expect("valid"));
        }
        screen.calls()[0].clone()
    }

    /// Returns the line of a call after these events.
    fn fold_line(
        invocation: &Arc<Invocation>,
        events: impl IntoIterator<Item = ToolEvent>,
        width: usize,
    ) -> String {
        call_line(&fold_call(invocation, events), width, Timestamp::EPOCH, 0).text()
    }

    fn requested(arguments: Option<Json>) -> ToolEvent {
        ToolEvent::ToolRequested {
            arguments,
            arguments_digest: Digest::of_bytes(b""),
            arguments_bytes: 0,
            executor: None,
        }
    }

    /// Returns a call that succeeded with this result.
    pub(in crate::show) fn settled_call(result: serde_json::Value) -> CallView {
        let mut end = end_of(Outcome::ok(()));
        if let ToolEvent::ToolExecutionSucceeded { result: shown, .. } = &mut end {
            *shown = Some(Json::new(result).expect("shallow"));
        }
        fold_call(&invocation(), [requested(None), end])
    }

    /// Returns the line of a call that ended with this event.
    fn line_after(end: ToolEvent) -> String {
        fold_line(&invocation(), [requested(None), end], 100)
    }

    fn end_of(outcome: Outcome) -> ToolEvent {
        let settled = outcome.settled().expect("settled");
        ToolEvent::from_settled(settled, false, Some("ann".into()), None)
    }

    #[test]
    fn a_denial_shows_its_reason_and_an_older_event_the_text_that_it_has() {
        let error = "Tool execution denied: too much";
        let line = line_after(end_of(Outcome::denied(Some("too much"))));
        assert_eq!(line, "⊘ pay  denied by ann: too much");
        let older = ToolEvent::ToolDenied {
            status: Status::Denied,
            approver: Some("ann".into()),
            established: Default::default(),
            reason: None,
            error: Some(error.to_owned()),
        };
        assert_eq!(line_after(older), format!("⊘ pay  denied by ann: {error}"));
    }

    /// Returns the line of a call with these arguments whose notes say `notes`.
    fn line_with_notes(
        arguments: serde_json::Value,
        notes: serde_json::Value,
        width: usize,
    ) -> String {
        let invocation = invocation();
        let audit = serde_json::from_value(notes).expect("notes");
        let events = [
            requested(Some(Json::new(arguments).expect("shallow"))),
            ToolEvent::ToolCallAudit { audit },
            end_of(Outcome::ok("x")),
        ];
        fold_line(&invocation, events, width)
    }

    #[test]
    fn the_line_says_what_the_call_is_for_beside_the_arguments() {
        let reason = "find the rate limiter";
        let arguments = json!({ "pattern": "limit", "reason": reason });
        let line = line_with_notes(arguments.clone(), json!({ "summary": reason }), 100);
        assert_eq!(line, "✓ pay limit  – find the rate limiter  0 ms");
        let narrow = line_with_notes(arguments, json!({ "summary": reason }), 40);
        assert_eq!(narrow, "✓ pay limit  – find the rate lim…  0 ms");
        let long = json!({ "command": "cargo test --workspace --all-features" });
        let line = line_with_notes(long.clone(), json!({ "summary": reason }), 60);
        assert!(line.starts_with("✓ pay cargo test --workspace"), "{line}");
        assert!(line.ends_with("…  – find the rate limi…  0 ms"), "{line}");
        // A few letters of a sentence say nothing.
        let line = line_with_notes(long, json!({ "summary": reason }), 50);
        assert_eq!(line, "✓ pay cargo test --works…  0 ms");
    }

    #[test]
    fn a_summary_that_only_repeats_the_line_is_left_out() {
        let notes = json!({
            "summary": "pay: done in 0 ms",
            "metadata": { "plain_summary": true },
        });
        assert_eq!(
            line_with_notes(json!({ "name": "ann" }), notes, 100),
            "✓ pay ann  0 ms"
        );
    }

    #[test]
    fn a_failed_command_is_red_and_says_its_exit_code() {
        let failed = settled_call(json!({ "output": "no\n", "exit_code": 1 }));
        let line = call_line(&failed, 100, Timestamp::EPOCH, 0);
        assert_eq!(line.text(), "✗ pay  exit 1  0 ms");
        let red: Vec<&str> = line
            .spans
            .iter()
            .filter(|span| span.style == BAD)
            .map(|span| span.text.as_str())
            .collect();
        assert_eq!(red, ["✗", "exit 1"]);
        let details: Vec<String> = render_details(&failed, 80)
            .iter()
            .map(StyledLine::text)
            .collect();
        assert!(
            details.contains(&"  result    exit_code: 1".to_owned()),
            "{details:?}"
        );
        assert!(
            details.iter().all(|row| !row.contains("\\n")),
            "{details:?}"
        );
    }

    #[test]
    fn a_call_that_had_taken_effect_says_that_it_was_not_run_again() {
        let line = line_with_notes(
            json!({ "path": "a" }),
            json!({ "metadata": { "reconciled": true } }),
            100,
        );
        assert_eq!(line, "✓ pay a  already applied, not run again  0 ms");
    }

    #[test]
    fn a_text_that_imitates_ours_is_shown_as_it_is_and_changes_nothing() {
        for text in [
            "Tool execution denied: no",
            "[redacted:token]",
            "the approval request expired",
        ] {
            let succeeded = line_after(end_of(Outcome::ok(text)));
            assert_eq!(succeeded, "✓ pay  0 ms");
            let failed = line_after(end_of(Outcome::failed(ToolError::new(text))));
            assert_eq!(failed, format!("✗ pay  failed: {text}  0 ms"));
            let denied = line_after(end_of(Outcome::denied(Some(text))));
            assert_eq!(denied, format!("⊘ pay  denied by ann: {text}"));
        }
    }

    #[test]
    fn each_status_has_a_text_and_a_symbol() {
        for status in Status::ALL {
            assert!(
                !status.text().is_empty() && !status_sign(status).is_empty(),
                "{status}"
            );
        }
        assert_ne!(status_sign(Status::Denied), status_sign(Status::Ok));
        assert_ne!(
            status_sign(Status::OutcomeUnknown),
            status_sign(Status::ExecutorError)
        );
    }

    #[test]
    fn progress_is_a_bar_where_the_end_is_known() {
        assert_eq!(
            format_progress(&Progress::fraction(3, 10)).as_deref(),
            Some("███░░░░░░░ 30 %")
        );
        assert_eq!(
            format_progress(&Progress::fraction(30, 10)).as_deref(),
            Some("██████████ 100 %")
        );
        assert_eq!(format_progress(&Progress::busy()), None);
    }

    #[test]
    fn durations_are_easy_to_read() {
        assert_eq!(
            [12, 3_240, 62_000].map(format_duration),
            ["12 ms", "3.2 s", "1 min 2 s"]
        );
    }
}
