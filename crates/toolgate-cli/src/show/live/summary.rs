//! The summary at the end of a run: calls, tokens, cost, receipts and next steps.

use std::{collections::BTreeMap, time::Duration};

use anstyle::{AnsiColor, Style};
use toolgate::{
    Gate, RunEnd, Status, approval::ApprovalRequest, layers::LedgerError, value::SessionId,
};

use super::FollowEnd;
use crate::{
    CliError, CommandContext, Exit,
    env::{ids, style::NOTE},
    show::{
        render::{StyledLine, format_duration, status_style},
        screen::{CallState, CallView, SessionScreen},
    },
};

const COMMAND: Style = Style::new().bold();

/// The end of a run, and what is left to do.
#[derive(Debug)]
pub(crate) struct RunEnding {
    session: SessionId,
    end: RunEnd,
    /// The error, if there was one.
    error: Option<String>,
    /// The pending approvals: the short id for commands, and a description.
    pending: Vec<(String, String)>,
    took: Duration,
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
            let call = screen.call(request.approval_id.call_id());
            let given = call.and_then(CallView::arguments_line).unwrap_or_default();
            (
                ids::short_id(request.approval_id.call_id()),
                format!("{} {given}", request.tool),
            )
        };
        let open = || {
            screen
                .pending_calls()
                .filter_map(|call| call.question.as_deref())
                .map(asked)
                .collect()
        };
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
                (report.end, error, waiting.map(asked).collect())
            }
            FollowEnd::Postponed => (RunEnd::Suspended, None, open()),
            FollowEnd::Quit => (RunEnd::Cancelled, None, open()),
        };
        Self {
            session,
            end,
            error,
            pending,
            took,
            next: None,
        }
    }

    /// Suggests other commands than the usual ones when it is done.
    pub(crate) fn with_suggestions(self, next: Option<Vec<(String, String)>>) -> Self {
        Self { next, ..self }
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
        self.end.into()
    }
}

/// Builds the lines at the end of a run.
pub(crate) async fn render_summary(
    cx: &CommandContext,
    gate: &Gate,
    screen: &SessionScreen,
    ending: &RunEnding,
) -> Result<Vec<StyledLine>, CliError> {
    let mut lines = vec![StyledLine::new(), headline(ending)];
    lines.extend(
        ending
            .error
            .as_deref()
            .map(|error| render_field("error", StyledLine::plain(error))),
    );
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
    lines.extend(check_receipts(gate).await?);
    let place = format!(
        "{}, stored in {}",
        ids::short_id(ending.session),
        cx.paths.display_db()
    );
    lines.push(render_field("session", StyledLine::plain(&place)));
    lines.extend(next_steps(ending));
    Ok(lines)
}

fn headline(ending: &RunEnding) -> StyledLine {
    let good = AnsiColor::Green.on_default().bold();
    let warn = AnsiColor::Yellow.on_default().bold();
    let text = ending.end.text();
    let (text, style) = match ending.end {
        RunEnd::Completed => (text.to_owned(), good),
        RunEnd::Suspended => (format!("{text}: approval pending"), warn),
        RunEnd::MaxIterations | RunEnd::LoopGuard | RunEnd::BudgetExceeded => {
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
    for call in screen.calls() {
        match call.state {
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

async fn check_receipts(gate: &Gate) -> Result<Option<StyledLine>, CliError> {
    Ok(match gate.sign_checkpoint().await {
        Ok(None) => None,
        Ok(Some(checkpoint)) => {
            let text = format!("{} in the chain, intact and signed", checkpoint.counter);
            Some(render_field(
                "receipts",
                StyledLine::styled(&text, AnsiColor::Green.on_default()),
            ))
        }
        // A line of the summary, not an error: the run itself has to be reported too.
        Err(error @ (LedgerError::Tampered(_) | LedgerError::HeadLost(_))) => {
            let style = AnsiColor::Red.on_default().bold();
            Some(render_field(
                "receipts",
                StyledLine::styled(&format!("VERIFICATION FAILED: {error}"), style),
            ))
        }
        Err(error) => return Err(error.into()),
    })
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
