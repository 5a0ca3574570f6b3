//! The summary at the end of a run: calls, tokens, cost, receipts and next steps.

use std::{collections::BTreeMap, time::Duration};

use anstyle::{AnsiColor, Style};
use toolgate::{RunEnd, Status, approval::ApprovalRequest, value::SessionId};

use super::FollowEnd;
use crate::{
    CliError, CommandContext, Exit,
    commands::receipts::SignedReceipts,
    env::{
        ids,
        style::{BAD, NOTE},
    },
    hints::find_hint,
    show::{
        render::{
            StyledLine, arguments::format_shown, format_duration, result::failed_command,
            status_style,
        },
        screen::{CallState, CallView, SessionScreen},
    },
};

const COMMAND: Style = Style::new().bold();

/// The most columns for the description of a pending call.
const MAX_PENDING_WIDTH: usize = 100;

/// The end of a run, and what is left to do.
#[derive(Debug)]
pub(crate) struct RunEnding {
    session: SessionId,
    end: RunEnd,
    /// The error, if there was one.
    error: Option<String>,
    /// The next step after the error, if one is known.
    hint: Option<String>,
    /// The pending approvals: the short id for commands, and a description.
    pending: Vec<(String, String)>,
    took: Duration,
    /// The exit code, if the end of the run alone does not give it.
    exit: Option<Exit>,
    /// Commands to suggest when it is done, instead of the usual ones.
    next: Option<Vec<(String, String)>>,
}

impl RunEnding {
    /// Describes how the followed run ended.
    pub(crate) fn from_follow_end(
        session: SessionId,
        ended: &FollowEnd,
        screen: &SessionScreen,
        took: Duration,
    ) -> Self {
        let asked = |request: &ApprovalRequest| {
            let call = request.approval_id.call_id();
            (ids::short_id(call), describe_pending(screen.call(call)))
        };
        let open = || {
            screen
                .pending_calls()
                .filter_map(|call| call.question.as_deref())
                .map(asked)
                .collect()
        };
        let mut exit = None;
        let (end, error, pending) = match ended {
            FollowEnd::Report(report) => {
                let error = report
                    .error
                    .as_ref()
                    .map(|error| CliError::from_error(error).to_string());
                let waiting = report
                    .pending
                    .iter()
                    .filter_map(|pending| pending.question.as_deref());
                let failed = { report.error.as_ref() }
                    .map(|error| CliError::from_error(error).exit_status());
                exit = failed.filter(|_| report.end == RunEnd::Failed);
                (report.end, error, waiting.map(asked).collect())
            }
            FollowEnd::Postponed => (RunEnd::Suspended, None, open()),
            FollowEnd::Quit => (RunEnd::Cancelled, None, open()),
        };
        let hint = match ended {
            FollowEnd::Report(report) => {
                { report.error.as_ref() }.and_then(|error| find_hint(error))
            }
            FollowEnd::Postponed | FollowEnd::Quit => None,
        };
        Self {
            session,
            end,
            error,
            hint,
            pending,
            took,
            exit,
            next: None,
        }
    }

    /// Suggests other commands than the usual ones when it is done.
    pub(crate) fn with_suggestions(self, next: Option<Vec<(String, String)>>) -> Self {
        Self { next, ..self }
    }

    /// Sets the exit code that stands instead of that of the run's end.
    pub(crate) fn with_exit(self, exit: Option<Exit>) -> Self {
        let exit = exit.or(self.exit);
        Self { exit, ..self }
    }

    /// Checks whether the run failed.
    pub(crate) fn is_failed(&self) -> bool {
        self.end == RunEnd::Failed
    }

    /// Returns a sentence on how to resume.
    pub(crate) fn resume_hint(&self) -> String {
        format!(
            "`toolgate run --resume {}` resumes it",
            ids::short_id(self.session)
        )
    }

    /// Returns the exit status of the program.
    pub(crate) fn exit_status(&self) -> Exit {
        self.exit.unwrap_or_else(|| self.end.into())
    }
}

/// Describes a pending call by its stored request: the copy in the event is redacted.
fn describe_pending(call: Option<&CallView>) -> String {
    let words = match call.and_then(|call| call.shown.as_ref()) {
        Some(Ok(shown)) => format!("{} {}", shown.tool, format_shown(shown)),
        Some(Err(problem)) => format!("not shown: {problem}"),
        None => "not shown: the request is not loaded".to_owned(),
    };
    StyledLine::plain(&words).clip(MAX_PENDING_WIDTH).text()
}

/// Builds the lines at the end of a run.
pub(crate) fn render_summary(
    cx: &CommandContext,
    screen: &SessionScreen,
    ending: &RunEnding,
    receipts: Option<StyledLine>,
) -> Vec<StyledLine> {
    let mut lines = vec![StyledLine::new(), headline(ending)];
    lines.extend(
        ending
            .error
            .as_deref()
            .map(|error| render_field("error", StyledLine::plain(error))),
    );
    let hint = ending.hint.as_deref();
    lines.extend(hint.map(|hint| render_field("hint", StyledLine::plain(hint))));
    let calls = count_calls(screen);
    lines.extend((!calls.is_blank()).then(|| render_field("calls", calls)));
    lines.extend(render_usage(screen));
    for alert in screen.budget_alerts() {
        let text = format!(
            "{} % of {} used: {} of {}",
            alert.percent, alert.budget, alert.spent, alert.limit
        );
        lines.push(render_field(
            "budget",
            StyledLine::styled(&text, AnsiColor::Yellow.on_default()),
        ));
    }
    lines.extend(receipts);
    let place = format!(
        "{}, stored in {}",
        ids::short_id(ending.session),
        cx.paths.display_db()
    );
    lines.push(render_field("session", StyledLine::plain(&place)));
    lines.extend(next_steps(ending));
    lines
}

fn headline(ending: &RunEnding) -> StyledLine {
    // Not bold: many terminals draw these brighter then, and they cannot be read on white.
    let good = AnsiColor::Green.on_default();
    let warn = AnsiColor::Yellow.on_default();
    let text = ending.end.text();
    let (text, style) = match ending.end {
        RunEnd::Completed => (text.to_owned(), good),
        RunEnd::Suspended => (format!("{text}: approval pending"), warn),
        RunEnd::MaxIterations | RunEnd::LoopGuard | RunEnd::Deadline | RunEnd::BudgetExceeded => {
            (format!("stopped: {text}"), warn)
        }
        RunEnd::Cancelled => (format!("{text}; progress is saved"), warn),
        RunEnd::Failed => (
            format!("{text}; progress is saved"),
            AnsiColor::Red.on_default().bold(),
        ),
    };
    StyledLine::styled(&text, style).with(
        &format!("  {}", format_duration(ending.took.as_millis() as u64)),
        Style::new().dimmed(),
    )
}

fn render_field(name: &str, text: StyledLine) -> StyledLine {
    let mut line = StyledLine::styled(&format!("{name:<9}"), NOTE);
    line.extend(text);
    line
}

/// Counts calls by status.
fn count_calls(screen: &SessionScreen) -> StyledLine {
    let mut counts: BTreeMap<Status, usize> = BTreeMap::new();
    let mut open = 0;
    let mut failed = 0;
    for call in screen.calls() {
        match call.state {
            CallState::Settled(Status::Ok) if failed_command(call).is_some() => failed += 1,
            CallState::Settled(status) => *counts.entry(status).or_default() += 1,
            _ => open += 1,
        }
    }
    let mut line = StyledLine::new();
    let mut add = |text: String, style| {
        let comma = if line.spans.is_empty() { "" } else { ", " };
        line.push(comma, Style::new());
        line.push(&text, style);
    };
    for (status, count) in counts {
        add(format!("{count} {}", status.text()), status_style(status));
    }
    if failed > 0 {
        let what = if failed == 1 { "command" } else { "commands" };
        add(format!("{failed} failed {what}"), BAD);
    }
    if open > 0 {
        add(format!("{open} open"), AnsiColor::Yellow.on_default());
    }
    line
}

fn render_usage(screen: &SessionScreen) -> Option<StyledLine> {
    let cost = screen.cost()?;
    let usage = screen.usage();
    let model = screen
        .agents()
        .first()
        .and_then(|agent| agent.model.clone());
    let read = usage.input + usage.cache_read + usage.cache_write;
    let model = model.map(|model| format!("{model}, ")).unwrap_or_default();
    Some(render_field(
        "model",
        StyledLine::plain(&format!(
            "{model}{read} tokens in, {} out, cost {cost}",
            usage.output
        )),
    ))
}

/// Returns the line about the receipts, and says only what was checked.
pub(crate) fn render_receipts(signed: &SignedReceipts) -> Option<StyledLine> {
    let (text, style) = match signed {
        SignedReceipts::Nothing => return None,
        SignedReceipts::Signed { count } => (
            format!("{count} in the chain; the new ones are verified and signed"),
            AnsiColor::Green.on_default(),
        ),
        SignedReceipts::Broken(error) => (
            format!("VERIFICATION FAILED: {error}"),
            AnsiColor::Red.on_default().bold(),
        ),
        SignedReceipts::Unsigned(error) => (
            format!("NOT SIGNED: {error}"),
            AnsiColor::Red.on_default().bold(),
        ),
    };
    Some(render_field("receipts", StyledLine::styled(&text, style)))
}

/// Lists commands for the next steps.
fn next_steps(ending: &RunEnding) -> Vec<StyledLine> {
    let session = ids::short_id(ending.session);
    let mut commands: Vec<(String, String)> = Vec::new();
    for (id, what) in &ending.pending {
        commands.push((format!("toolgate approvals approve {id}"), what.clone()));
    }
    let resume = format!("toolgate run --resume {session}");
    match ending.end {
        RunEnd::Completed if ending.next.is_some() => {
            commands.extend(ending.next.iter().flatten().cloned())
        }
        RunEnd::Completed => commands.push((
            format!("{resume} \"…\""),
            "continue the conversation".to_owned(),
        )),
        RunEnd::Suspended => commands.push((resume, "resume after the decision".to_owned())),
        RunEnd::MaxIterations
        | RunEnd::LoopGuard
        | RunEnd::Deadline
        | RunEnd::BudgetExceeded
        | RunEnd::Cancelled
        | RunEnd::Failed => {
            commands.push((resume, "resume".to_owned()));
        }
    }
    commands.push((
        format!("toolgate sessions show {session}"),
        "messages and calls".to_owned(),
    ));
    let width = commands
        .iter()
        .map(|(command, _)| command.len())
        .max()
        .unwrap_or(0)
        .min(44);
    let mut lines = Vec::new();
    for (at, (command, what)) in commands.iter().enumerate() {
        let name = if at == 0 { "next" } else { "" };
        let text = StyledLine::styled(&format!("{command:<width$}"), COMMAND)
            .with(&format!("  {what}"), Style::new().dimmed());
        lines.push(render_field(name, text));
    }
    lines
}
