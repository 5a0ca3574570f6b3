//! One call in one line: tool, arguments, state and duration.

use anstyle::{AnsiColor, Style};
use toolgate::{Status, stack::Progress, value::Timestamp};

use super::StyledLine;
use crate::{
    env::style::{BAD, DIM, GOOD, NOTE, WARN},
    show::screen::{CallState, CallView},
};

const UNCERTAIN: Style = AnsiColor::Magenta.on_default();

/// The frames of the spinner.
pub const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// The fewest columns for arguments, however long the rest of the line is.
const MIN_ARGUMENT_WIDTH: usize = 16;

/// Formats a call in about `width` columns. `now` gives the elapsed time of a running call, `frame`
/// the frame of its spinner.
pub fn call_line(call: &CallView, width: usize, now: Timestamp, frame: usize) -> StyledLine {
    let (sign, style) = state_sign(call.state, frame);
    let mut line = StyledLine::styled(sign, style).with(" ", Style::new());
    if let Some(agent) = &call.invocation.turn.agent_name {
        line.push(&format!("{agent} ▸ "), AnsiColor::Blue.on_default());
    }
    line.push(call.invocation.tool.as_str(), Style::new().bold());
    let mut end = StyledLine::new();
    for (text, style) in call_details(call, now) {
        end.push("  ", Style::new());
        end.push(&text, style);
    }
    if let Some(given) = call.arguments_line() {
        // The state matters more than the end of a long command.
        let room = width
            .saturating_sub(line.width() + end.width() + 1)
            .max(MIN_ARGUMENT_WIDTH);
        line.push(" ", Style::new());
        line.extend(StyledLine::plain(&given).clip(room));
    }
    line.extend(end);
    line
}

/// Returns the symbol and style of a state; `frame` is the frame of the spinner.
pub(crate) fn state_sign(state: CallState, frame: usize) -> (&'static str, Style) {
    match state {
        CallState::Requested => ("·", DIM),
        CallState::Pending => ("?", WARN.bold()),
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
    let by = call
        .decided_by
        .as_ref()
        .map(|by| crate::env::style::escape_controls(by.as_str()));
    match call.state {
        CallState::Requested => {}
        CallState::Pending => found.push((call.state.text().to_owned(), WARN)),
        CallState::Approved => found.extend(by.map(|by| (format_approval(&by, call.edited), GOOD))),
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
            found.extend(failed_exit_code(call).map(|code| (format!("exit {code}"), WARN)));
            found.extend(is_result_redacted(call).then(|| ("secrets redacted".to_owned(), NOTE)));
            if status != Status::Denied {
                found.extend(by.map(|by| (format_approval(&by, call.edited), DIM)));
            }
            found.extend(call.cached.then(|| ("cached".to_owned(), DIM)));
            found.extend((call.attempts > 1).then(|| (format!("{} attempts", call.attempts), DIM)));
            found.extend(call.duration_ms.map(|ms| (format_duration(ms), DIM)));
        }
    }
    found
}

/// Returns the exit code of a command that failed: the call succeeded, the command did not.
fn failed_exit_code(call: &CallView) -> Option<i64> {
    call.result
        .as_ref()?
        .get("exit_code")?
        .as_i64()
        .filter(|code| *code != 0)
}

/// Checks whether a layer redacted the result.
fn is_result_redacted(call: &CallView) -> bool {
    call.note_fields()
        .is_some_and(|notes| notes.layers.iter().any(|layer| layer.redacted))
}

fn format_approval(by: &str, edited: bool) -> String {
    format!(
        "approved by {by}{}",
        if edited { ", with changes" } else { "" }
    )
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
    let words: Vec<String> = bar.into_iter().chain(message).collect();
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
mod tests {
    use super::*;
    use crate::show::screen::SessionScreen;
    use std::sync::Arc;
    use toolgate::{
        Event,
        event::{Invocation, ToolEvent},
        stack::{Outcome, TurnInfo},
        tool::ToolError,
        value::{CallId, Digest, SessionId, TurnId},
    };
    use uuid::Uuid;

    /// Returns the line of a call that ended with this event.
    fn line_after(end: ToolEvent) -> String {
        let turn = TurnId::new(Uuid::from_u128(2));
        let invocation = Arc::new(Invocation {
            id: CallId::new(Uuid::from_u128(3)),
            call_id: "c1".into(),
            tool: "pay".into(),
            emit_order: 0,
            turn: Arc::new(TurnInfo::new(SessionId::new(Uuid::from_u128(1)), turn)),
        });
        let requested = ToolEvent::ToolRequested {
            arguments: None,
            arguments_digest: Digest::of_bytes(b""),
            arguments_bytes: 0,
            executor: None,
        };
        let mut screen = SessionScreen::new();
        for (sequence, event) in (1..).zip([requested, end]) {
            let now = Timestamp::EPOCH;
            let event = Event::for_invocation(sequence, now, invocation.clone(), event);
            screen.apply(&event.expect("valid"));
        }
        call_line(&screen.calls()[0], 100, Timestamp::EPOCH, 0).text()
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
