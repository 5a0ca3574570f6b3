//! The summary at the end of a run: calls, tokens, cost, receipts and next steps.

use std::{collections::BTreeMap, time::Duration};

use anstyle::{AnsiColor, Style};
use toolgate::{RunEnd, Status, approval::ApprovalRequest, event::Cost, value::SessionId};

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

/// The columns for the name of a field.
const FIELD_WIDTH: usize = 9;

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
    pub(crate) fn resume_hint(&self, cx: &CommandContext) -> String {
        let resume = format!("run --resume {}", ids::short_id(self.session));
        format!("`{}` resumes it", cx.command_line(&resume))
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

/// Builds the lines at the end of a run, in at most `width` columns if there is a limit.
pub(crate) fn render_summary(
    cx: &CommandContext,
    screen: &SessionScreen,
    ending: &RunEnding,
    receipts: Option<StyledLine>,
    width: Option<usize>,
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
    let width = width.unwrap_or(usize::MAX);
    let indent = StyledLine::plain(&" ".repeat(FIELD_WIDTH));
    let mut lines: Vec<StyledLine> = { lines.into_iter() }
        .flat_map(|line| line.wrap(width, &indent))
        .collect();
    lines.extend(next_steps(cx, ending, width));
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
    let mut line = StyledLine::styled(&format!("{name:<FIELD_WIDTH$}"), NOTE);
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
    let unpriced = match cost {
        Cost::Unknown if read + usage.output > 0 => {
            " (a price file, `prices` under [run], adds it)"
        }
        Cost::Unknown | Cost::NanoUsd(_) => "",
    };
    Some(render_field(
        "model",
        StyledLine::plain(&format!(
            "{model}{read} tokens in, {} out, cost {cost}{unpriced}",
            usage.output
        )),
    ))
}

/// Returns the line about the receipts, and says only what was checked.
pub(crate) fn render_receipts(
    signed: &SignedReceipts,
    screen: &SessionScreen,
) -> Option<StyledLine> {
    let (text, style) = match signed {
        SignedReceipts::Nothing => return None,
        SignedReceipts::Signed { count, new_calls } => {
            // Another process may have added receipts of its own meanwhile.
            let of_run = { new_calls.iter() }.filter(|call| screen.call(**call).is_some());
            let of_run = of_run.count();
            (
                format!("{of_run} of this run, verified and signed; {count} in the chain"),
                AnsiColor::Green.on_default(),
            )
        }
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
fn next_steps(cx: &CommandContext, ending: &RunEnding, width: usize) -> Vec<StyledLine> {
    if cx.paths.db.starts_with("memory:") {
        // It ends with this process.
        return Vec::new();
    }
    let session = ids::short_id(ending.session);
    let mut commands: Vec<(String, String)> = Vec::new();
    for (id, what) in &ending.pending {
        let approve = cx.command_line(&format!("approvals approve {id}"));
        commands.push((approve, what.clone()));
    }
    let resume = cx.command_line(&format!("run --resume {session}"));
    match ending.end {
        RunEnd::Completed if ending.next.is_some() => {
            commands.extend(ending.next.iter().flatten().cloned())
        }
        RunEnd::Completed => commands.push((
            cx.command_line(&format!("run --resume {session} \"…\"")),
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
        cx.command_line(&format!("sessions show {session}")),
        "messages and calls".to_owned(),
    ));
    let column = { commands.iter() }
        .map(|(command, _)| command.len())
        .max()
        .unwrap_or(0)
        .min(44);
    let mut lines = Vec::new();
    for (at, (command, what)) in commands.iter().enumerate() {
        let name = if at == 0 { "next" } else { "" };
        let what = StyledLine::styled(what, Style::new().dimmed());
        if FIELD_WIDTH + column.max(command.len()) + 2 + what.width() <= width {
            let mut text = StyledLine::styled(&format!("{command:<column$}  "), COMMAND);
            text.extend(what);
            lines.push(render_field(name, text));
        } else {
            // The command stays in one piece, so that it can be copied.
            lines.push(render_field(name, StyledLine::styled(command, COMMAND)));
            let indent = StyledLine::plain(&" ".repeat(FIELD_WIDTH + 2));
            let mut line = indent.clone();
            line.extend(what);
            lines.extend(line.wrap(width, &indent));
        }
    }
    lines
}
