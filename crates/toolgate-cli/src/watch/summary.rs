//! What there is to say when a run has ended: what was called, what it cost, whether the receipts are intact, what next.

use std::{collections::BTreeMap, time::Duration};

use anstyle::{AnsiColor, Style};
use toolgate::{ApprovalRequest, RunEnd, SessionId, Status, layers::LedgerError};

use super::Ended;
use crate::{
    CliError, Cx, Exit, Gate, ids,
    render::{Line, status_style, status_words, took},
    screen::{CallState, Screen},
};

const NAME: Style = AnsiColor::Cyan.on_default();
const COMMAND: Style = Style::new().bold();

/// How a run ended, and what is left of it.
#[derive(Debug)]
pub(crate) struct Ending {
    session: SessionId,
    end: RunEnd,
    /// What went wrong, if something did.
    error: Option<String>,
    /// The approvals that wait: what each is called in commands, and what it is about.
    pending: Vec<(String, String)>,
    took: Duration,
    /// Commands to try when it is done, in place of the usual ones.
    next: Option<Vec<(String, String)>>,
}

impl Ending {
    /// How it ended for whoever watched.
    pub(crate) fn of(session: SessionId, ended: &Ended, screen: &Screen, took: Duration) -> Self {
        let asked = |request: &ApprovalRequest| {
            let given = crate::render::arguments::in_short(request.arguments.as_json().as_value());
            (
                ids::short(request.approval_id.call()),
                format!("{} {given}", request.tool),
            )
        };
        let open = || {
            screen
                .pending()
                .filter_map(|call| call.question.as_deref())
                .map(asked)
                .collect()
        };
        let (end, error, pending) = match ended {
            Ended::Report(report) => {
                let error = report
                    .error
                    .as_ref()
                    .map(|error| CliError::of(error).to_string());
                let waiting = report
                    .pending
                    .iter()
                    .filter_map(|pending| pending.question.as_deref());
                (report.end, error, waiting.map(asked).collect())
            }
            Ended::Left => (RunEnd::Suspended, None, open()),
            Ended::Quit => (RunEnd::Cancelled, None, open()),
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
    pub(crate) fn suggesting(self, next: Option<Vec<(String, String)>>) -> Self {
        Self { next, ..self }
    }

    /// How to go on.
    pub(crate) fn resume(&self) -> String {
        format!(
            "`toolgate run --resume {}` goes on",
            ids::short(self.session)
        )
    }

    /// How the program ends.
    pub(crate) fn exit(&self) -> Exit {
        self.end.into()
    }
}

/// The lines at the end of a run.
pub(crate) async fn summary(
    cx: &Cx,
    gate: &Gate,
    screen: &Screen,
    ending: &Ending,
) -> Result<Vec<Line>, CliError> {
    let mut lines = vec![Line::new(), headline(ending)];
    lines.extend(
        ending
            .error
            .as_deref()
            .map(|error| field("error", Line::plain(error))),
    );
    let calls = calls(screen);
    lines.extend((!calls.is_blank()).then(|| field("calls", calls)));
    lines.extend(spent(screen));
    for alert in screen.alerts() {
        let text = format!(
            "{} % of {} used: {} of {}",
            alert.percent, alert.budget, alert.spent, alert.limit
        );
        lines.push(field(
            "budget",
            Line::styled(&text, AnsiColor::Yellow.on_default()),
        ));
    }
    lines.extend(receipts(gate).await?);
    let place = format!(
        "{}, kept in {}",
        ids::short(ending.session),
        cx.paths.shown_db()
    );
    lines.push(field("session", Line::plain(&place)));
    lines.extend(next(ending));
    Ok(lines)
}

fn headline(ending: &Ending) -> Line {
    let good = AnsiColor::Green.on_default().bold();
    let warn = AnsiColor::Yellow.on_default().bold();
    let (text, style) = match ending.end {
        RunEnd::Completed => ("done", good),
        RunEnd::Suspended => ("waits for a decision", warn),
        RunEnd::MaxIterations => ("stopped: the rounds are used up", warn),
        RunEnd::LoopGuard => ("stopped: it was going round in circles", warn),
        RunEnd::BudgetExceeded => ("stopped: no budget left", warn),
        RunEnd::Cancelled => ("interrupted; what was done is saved", warn),
        RunEnd::Failed => (
            "failed; what was done is saved",
            AnsiColor::Red.on_default().bold(),
        ),
    };
    Line::styled(text, style).with(
        &format!("  {}", took(ending.took.as_millis() as u64)),
        Style::new().dimmed(),
    )
}

fn field(name: &str, text: Line) -> Line {
    let mut line = Line::styled(&format!("{name:<9}"), NAME);
    line.extend(text);
    line
}

/// How many calls ended in which way.
fn calls(screen: &Screen) -> Line {
    let mut counts: BTreeMap<Status, usize> = BTreeMap::new();
    let mut open = 0;
    for call in screen.calls() {
        match call.state {
            CallState::Settled(status) => *counts.entry(status).or_default() += 1,
            _ => open += 1,
        }
    }
    let mut line = Line::new();
    let mut add = |text: String, style| {
        let comma = if line.spans.is_empty() { "" } else { ", " };
        line.push(comma, Style::new());
        line.push(&text, style);
    };
    for (status, count) in counts {
        add(
            format!("{count} {}", status_words(status)),
            status_style(status),
        );
    }
    if open > 0 {
        add(format!("{open} open"), AnsiColor::Yellow.on_default());
    }
    line
}

fn spent(screen: &Screen) -> Option<Line> {
    let cost = screen.cost()?;
    let (usage, model) = (
        screen.usage(),
        screen
            .agents()
            .first()
            .and_then(|agent| agent.model.clone()),
    );
    let read = usage.input + usage.cache_read + usage.cache_write;
    let model = model.map(|model| format!("{model}, ")).unwrap_or_default();
    Some(field(
        "model",
        Line::plain(&format!(
            "{model}{read} tokens read, {} written, cost {cost}",
            usage.output
        )),
    ))
}

async fn receipts(gate: &Gate) -> Result<Option<Line>, CliError> {
    Ok(match gate.vouch().await {
        Ok(None) => None,
        Ok(Some(checkpoint)) => {
            let text = format!("{} in the chain, intact and signed", checkpoint.counter);
            Some(field(
                "receipts",
                Line::styled(&text, AnsiColor::Green.on_default()),
            ))
        }
        Err(LedgerError::Tampered(tampered)) => {
            let style = AnsiColor::Red.on_default().bold();
            Some(field(
                "receipts",
                Line::styled(&format!("NOT INTACT: {tampered}"), style),
            ))
        }
        Err(error) => return Err(error.into()),
    })
}

/// What to do next.
fn next(ending: &Ending) -> Vec<Line> {
    let session = ids::short(ending.session);
    let mut commands: Vec<(String, String)> = Vec::new();
    for (id, what) in &ending.pending {
        commands.push((format!("toolgate approvals approve {id}"), what.clone()));
    }
    let resume = format!("toolgate run --resume {session}");
    match ending.end {
        RunEnd::Completed if ending.next.is_some() => {
            commands.extend(ending.next.iter().flatten().cloned())
        }
        RunEnd::Completed => commands.push((format!("{resume} \"…\""), "say more".to_owned())),
        RunEnd::Suspended => commands.push((resume, "go on when it is decided".to_owned())),
        RunEnd::MaxIterations
        | RunEnd::LoopGuard
        | RunEnd::BudgetExceeded
        | RunEnd::Cancelled
        | RunEnd::Failed => {
            commands.push((resume, "go on".to_owned()));
        }
    }
    commands.push((
        format!("toolgate sessions show {session}"),
        "what was said and done".to_owned(),
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
        let text = Line::styled(&format!("{command:<width$}"), COMMAND)
            .with(&format!("  {what}"), Style::new().dimmed());
        lines.push(field(name, text));
    }
    lines
}
