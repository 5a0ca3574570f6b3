//! One call in one line: what it is, how it stands, how long it took.

use anstyle::{AnsiColor, Style};
use toolgate::{Progress, Provenance, Status, Subject, Timestamp};

use super::{Line, arguments};
use crate::screen::{CallState, CallView};

const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();
const WARN: Style = AnsiColor::Yellow.on_default();
const UNSURE: Style = AnsiColor::Magenta.on_default();
const DIM: Style = Style::new().dimmed();

/// The pictures of something that turns, one after the other.
pub const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// The least that is shown of arguments, however long the rest of the line is.
const LEAST: usize = 16;

/// A call as it stands, in about `width` columns: `now` is for what still runs, `frame` for what turns meanwhile.
pub fn call_line(call: &CallView, width: usize, now: Timestamp, frame: usize) -> Line {
    let (sign, style) = sign(call.state, frame);
    let mut line = Line::styled(sign, style).with(" ", Style::new());
    if let Some(agent) = &call.invocation.turn.agent_name {
        line.push(&format!("{agent} ▸ "), AnsiColor::Blue.on_default());
    }
    line.push(call.invocation.tool.as_str(), Style::new().bold());
    let mut end = Line::new();
    for (text, style) in details(call, now) {
        end.push("  ", Style::new());
        end.push(&text, style);
    }
    if let Some(given) = &call.arguments {
        // How it stands matters more than the end of a long command.
        let room = width
            .saturating_sub(line.width() + end.width() + 1)
            .max(LEAST);
        line.push(" ", Style::new());
        line.extend(Line::plain(&arguments::in_short(given.as_value())).clip(room));
    }
    line.extend(end);
    line
}

fn sign(state: CallState, frame: usize) -> (&'static str, Style) {
    match state {
        CallState::Requested => ("·", DIM),
        CallState::Asked => ("?", WARN.bold()),
        CallState::Approved => ("✔", GOOD),
        CallState::Running | CallState::Outside => {
            (SPINNER[frame % SPINNER.len()], AnsiColor::Cyan.on_default())
        }
        CallState::Settled(status) => (status_sign(status), status_style(status)),
    }
}

/// The sign of a status.
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

/// The style of a status.
pub fn status_style(status: Status) -> Style {
    match status {
        Status::Ok => GOOD,
        Status::DryRun => AnsiColor::Cyan.on_default(),
        Status::OutcomeUnknown => UNSURE.bold(),
        Status::Cancelled => DIM,
        status if status.is_refusal() => WARN,
        _ => BAD,
    }
}

/// A status in words.
pub fn status_words(status: Status) -> &'static str {
    match status {
        Status::Ok => "done",
        Status::ToolNotFound => "no such tool",
        Status::SchemaViolation => "arguments do not fit",
        Status::Denied => "denied",
        Status::Expired => "nobody decided in time",
        Status::Blocked => "refused by policy",
        Status::OutOfScope => "out of scope",
        Status::RateLimited => "too many calls",
        Status::BudgetExceeded => "no budget left",
        Status::LoopGuard => "going round in circles",
        Status::ExecutorError => "failed",
        Status::Timeout => "took too long",
        Status::Cancelled => "cancelled",
        Status::OutcomeUnknown => "nobody knows whether it took effect",
        Status::Redacted => "result withheld",
        Status::DryRun => "only pretended",
        Status::Exception => "the tool broke",
        Status::LayerException => "a layer broke",
    }
}

fn details(call: &CallView, now: Timestamp) -> Vec<(String, Style)> {
    let mut found = Vec::new();
    let by = call
        .decided_by
        .as_ref()
        .map(|by| crate::style::plain(by.as_str()));
    match call.state {
        CallState::Requested => {}
        CallState::Asked => found.push(("waits for a decision".to_owned(), WARN)),
        CallState::Approved => found.extend(by.map(|by| (approved(&by, call.edited), GOOD))),
        CallState::Running | CallState::Outside => {
            found.extend(
                call.started_at
                    .map(|at| (took(now.since(at).as_millis() as u64), DIM)),
            );
            found.extend(
                call.progress
                    .as_ref()
                    .and_then(progress)
                    .map(|text| (text, AnsiColor::Cyan.on_default())),
            );
        }
        CallState::Settled(status) => {
            if status != Status::Ok {
                let words = match (&by, status) {
                    (Some(by), Status::Denied) => format!("denied by {by}"),
                    _ => status_words(status).to_owned(),
                };
                // What the model is told repeats that it was denied.
                let told = call
                    .reason
                    .as_deref()
                    .map(|reason| reason.trim_start_matches("Tool execution denied: "));
                let reason = told.and_then(|reason| reason.lines().next());
                found.push((
                    words
                        + &reason
                            .map(|reason| format!(": {reason}"))
                            .unwrap_or_default(),
                    status_style(status),
                ));
            }
            found.extend(exit_code(call).map(|code| (format!("exit {code}"), WARN)));
            found.extend(
                is_redacted(call)
                    .then(|| ("secrets taken out".to_owned(), AnsiColor::Cyan.on_default())),
            );
            if status != Status::Denied {
                found.extend(by.map(|by| (approved(&by, call.edited), DIM)));
            }
            found.extend(call.cached.then(|| ("remembered".to_owned(), DIM)));
            found.extend((call.attempts > 1).then(|| (format!("{} attempts", call.attempts), DIM)));
            found.extend(call.duration_ms.map(|ms| (took(ms), DIM)));
        }
    }
    found
}

/// The code with which a command failed: the call went well, and the command did not.
fn exit_code(call: &CallView) -> Option<i64> {
    call.result
        .as_ref()?
        .get("exit_code")?
        .as_i64()
        .filter(|code| *code != 0)
}

/// Whether something was taken out of the result that nobody should see.
fn is_redacted(call: &CallView) -> bool {
    let by_redaction = |change: &Provenance| {
        change.layer.as_str() == "redact" && change.subject == Subject::Result
    };
    call.note_fields()
        .is_some_and(|notes| notes.provenance.iter().any(by_redaction))
}

fn approved(by: &str, edited: bool) -> String {
    format!(
        "approved by {by}{}",
        if edited { ", with changes" } else { "" }
    )
}

/// How far the work has come: a bar, numbers, words.
fn progress(progress: &Progress) -> Option<String> {
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

/// How long something took, for people.
pub fn took(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{:.1} s", ms as f64 / 1e3),
        _ => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_has_words_and_a_sign() {
        for status in Status::ALL {
            assert!(
                !status_words(status).is_empty() && !status_sign(status).is_empty(),
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
            progress(&Progress::of(3, 10)).as_deref(),
            Some("███░░░░░░░ 30 %")
        );
        assert_eq!(
            progress(&Progress::of(30, 10)).as_deref(),
            Some("██████████ 100 %")
        );
        assert_eq!(progress(&Progress::busy()), None);
    }

    #[test]
    fn durations_are_told_as_people_tell_them() {
        assert_eq!(
            [12, 3_240, 62_000].map(took),
            ["12 ms", "3.2 s", "1 min 2 s"]
        );
    }
}
