//! `toolgate sessions list`: sessions in a table, each with its status.

use std::{path::Path, sync::Arc};

use serde_json::json;
use toolgate::{
    RunEnd,
    event::Cost,
    search::{SearchTime, is_project, split_words},
    store::{
        HiddenSessions, ImportOrigin, RunState, SessionFilter, SessionOrder, SessionRow,
        SessionTitle, SessionTotals, StoreHandle,
    },
    value::{Labels, Principal, SessionId},
};

use super::SessionsListArgs;
use crate::{
    CliError, CommandContext, Exit,
    commands::search::resolve_project,
    env::{holders::SessionHolder, ids, style, times},
    show::{
        render::{StyledLine, TextTable},
        screen::SessionScreen,
        whole_texts::WholeTexts,
    },
};

/// The number of events per query.
const PAGE: usize = 500;

/// One session as the list shows it.
struct SessionEntry {
    row: SessionRow,
    stands: SessionStatus,
    words: String,
    calls: u64,
    cost: Option<Cost>,
    model: Option<Arc<str>>,
}

/// The status of a session.
enum SessionStatus {
    /// A process drives it.
    Driven(SessionHolder),
    /// It has this many pending approvals.
    Waiting(u64),
    /// Its approvals are decided, and it has not been resumed since.
    Decided,
    /// Its last run ended.
    Ended(RunEnd),
    /// Nothing is open, and no run has ended.
    Settled,
    /// Its last run has not ended, and it has no driver.
    Lost,
    /// Something is open, and it has no driver.
    Open,
    /// It was imported and is history.
    Imported(ImportOrigin),
    /// An event of it could not be read when they were counted.
    Damaged,
}

pub(super) async fn list_sessions(
    args: &SessionsListArgs,
    cx: &CommandContext,
) -> Result<Exit, CliError> {
    let store = cx.open_store().await?;
    let rows = load_sessions(&store, args).await?.into_iter();
    let has_status = |entry: &SessionEntry| {
        let is_wanted = |status: &String| entry.stands.json_word() == status;
        args.status.as_ref().is_none_or(is_wanted)
    };
    // From the last use back, so that the limit drops the oldest; printed in the order of use again.
    let mut entries: Vec<_> = rows
        .filter(|row| matches_row(row, args, cx))
        .map(SessionEntry::new)
        .filter(has_status)
        .take(args.limit)
        .collect();
    entries.reverse();
    if cx.out.is_json() {
        entries
            .iter()
            .try_for_each(|entry| cx.out.print_json(&entry_json(entry)))?
    } else {
        let is_narrowed = args.is_narrowed();
        print_entries(cx, &entries, is_narrowed)?
    }
    Ok(Exit::Done)
}

impl SessionsListArgs {
    /// Checks whether not every session is asked for.
    fn is_narrowed(&self) -> bool {
        self.unfinished
            || self.principal.is_some()
            || !self.labels.is_empty()
            || self.model.is_some()
            || self.is_filtered_here()
    }

    /// Checks whether there is a filter that the store does not know.
    fn is_filtered_here(&self) -> bool {
        self.project.is_some()
            || self.after.is_some()
            || self.before.is_some()
            || self.status.is_some()
            || self.title.is_some()
    }
}

/// Checks whether a session passes the filters that need only its row.
fn matches_row(row: &SessionRow, args: &SessionsListArgs, cx: &CommandContext) -> bool {
    let now = times::current_time();
    let is_project = |wanted: &String| {
        let wanted = resolve_project(cx, wanted);
        row.directory
            .as_deref()
            .is_some_and(|directory| is_project(directory, &wanted))
    };
    let title = row.title.as_ref().map_or("", SessionTitle::as_str);
    let has_words = |wanted: &String| {
        let known = split_words(title);
        let mut wanted = split_words(wanted).into_iter();
        wanted.all(|word| known.iter().any(|known| known.text == word.text))
    };
    args.project.as_ref().is_none_or(is_project)
        && args
            .after
            .is_none_or(|after| row.updated_at >= after.resolve(now))
        && args
            .before
            .is_none_or(|before| row.updated_at < before.resolve(now))
        && args.title.as_ref().is_none_or(has_words)
}

/// Parses a time of the command line.
pub(super) fn parse_search_time(text: &str) -> Result<SearchTime, String> {
    SearchTime::parse(text).ok_or_else(|| {
        "write a date such as 2026-01-31, a time such as 2026-01-31T12:00:00Z, or an age such as 3d".to_owned()
    })
}

/// Parses a label of the command line.
pub(super) fn parse_label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    Labels::new([(name, value)]).map_err(|error| error.to_string())?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Loads the sessions that the arguments ask for in one query; the one that was used last comes
/// first.
async fn load_sessions(
    store: &StoreHandle,
    args: &SessionsListArgs,
) -> Result<Vec<SessionRow>, CliError> {
    let hidden = if args.all {
        HiddenSessions::Included
    } else {
        HiddenSessions::Excluded
    };
    let filter = SessionFilter {
        hidden,
        unfinished: args.unfinished,
        principal: args.principal.as_deref().map(Principal::from),
        labels: Labels::new(args.labels.iter().map(|(name, value)| (name, value)))
            .map_err(|error| CliError::usage(error.to_string()))?,
        model: args.model.as_deref().map(Arc::from),
        without_agents: !args.all,
        order: SessionOrder::LastUse,
        // What is filtered here may reach back to the first session.
        limit: if args.is_filtered_here() {
            usize::MAX
        } else {
            args.limit
        },
        ..SessionFilter::default()
    };
    Ok(store.sessions(filter).await?)
}

impl SessionEntry {
    /// Returns what the list shows of a session: all of it is in its row.
    fn new(row: SessionRow) -> Self {
        let totals = row.totals.clone().unwrap_or_default();
        Self {
            stands: SessionStatus::of_row(&row),
            words: session_subject(&row, &totals),
            calls: totals.calls,
            cost: totals.cost,
            model: totals.model,
            row,
        }
    }
}

/// Applies the events of a session to a screen, with whole texts if they can be loaded.
pub(super) async fn apply_events(
    screen: &mut SessionScreen,
    store: &StoreHandle,
    session: SessionId,
    whole: Option<WholeTexts<'_>>,
) -> Result<(), CliError> {
    let mut after = 0;
    loop {
        let page = store.events(session, after, PAGE).await?;
        for event in &page {
            match whole {
                Some(whole) => screen.apply(&*whole.complete(event.clone()).await?),
                None => screen.apply(event),
            }
        }
        match page.last() {
            Some(last) if page.len() == PAGE => after = last.sequence(),
            _ => return Ok(()),
        }
    }
}

/// Returns the subject of the session: its title, or else the first tool that was called.
fn session_subject(row: &SessionRow, totals: &SessionTotals) -> String {
    let title = row.title.as_ref().map(ToString::to_string);
    let first = || Some(totals.first_tool.as_ref()?.to_string());
    title.or_else(first).unwrap_or_default()
}

fn entry_json(entry: &SessionEntry) -> serde_json::Value {
    let SessionEntry {
        row,
        stands,
        words,
        calls,
        cost,
        model,
    } = entry;
    json!({
        "session": row.session, "created_at": row.created_at, "updated_at": row.updated_at, "events": row.revision,
        "state": stands.json_word(), "words": words, "calls": calls, "cost": cost.map(|cost| cost.to_string()),
        "model": model,
        "title": row.title.as_ref().map(SessionTitle::as_str), "directory": row.directory.as_deref(),
        "imported_from": stands.imported_from(),
        "hidden_at": row.hidden_at, "principal": row.principal, "labels": row.labels,
        "last_run": row.last_run.map(|last| json!({ "run": last.run, "state": last.state.as_str(), "at": last.at })),
    })
}

fn print_entries(
    cx: &CommandContext,
    entries: &[SessionEntry],
    is_narrowed: bool,
) -> Result<(), CliError> {
    let mut table = TextTable::for_output().with_head([
        "session",
        &times::zoned_head("last used"),
        "calls",
        "cost",
        "status",
        "directory",
        "about",
    ]);
    for SessionEntry {
        row,
        stands,
        words,
        calls,
        cost,
        model: _,
    } in entries
    {
        let mut status = stands.status_label();
        if row.hidden_at.is_some() {
            status.extend(style::dim(" (hidden)"));
        }
        table.add_row([
            style::bold(ids::short_id(row.session)),
            times::format_column_time(row.updated_at).into(),
            calls.to_string().into(),
            cost.map_or_else(StyledLine::new, |cost| cost.to_string().into()),
            status,
            row.directory
                .as_deref()
                .map_or_else(String::new, |directory| short_path(Path::new(directory)))
                .into(),
            StyledLine::plain(words).clip_on_terminal(60),
        ]);
    }
    if table.is_empty() && is_narrowed {
        cx.out.print_note("no session matches")
    } else if table.is_empty() {
        cx.out
            .print_note("there are no sessions yet; `toolgate demo` creates one")
    } else {
        cx.out.print_line(table)
    }
}

/// Returns a path as people write it: from their home directory, if it is below it.
fn short_path(path: &Path) -> String {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    let below = home.and_then(|home| path.strip_prefix(home).ok());
    match below {
        Some(below) if below.as_os_str().is_empty() => "~".to_owned(),
        Some(below) => format!("~/{}", below.display()),
        None => path.display().to_string(),
    }
}

impl SessionStatus {
    /// Returns the status that follows from the row of a session. Whether a process that holds it is
    /// alive is seen here, not in the store.
    fn of_row(row: &SessionRow) -> Self {
        if row.totals.is_none() {
            return Self::Damaged;
        }
        // Whatever its events say: it is history, and nothing of it can be resumed or decided here.
        if let Some(origin) = &row.imported {
            return Self::Imported(origin.clone());
        }
        if let Some(holder) = SessionHolder::of_row(row) {
            return Self::Driven(holder);
        }
        let work = row.unsettled;
        let state = row.last_run.map(|last| last.state);
        // The order matters: a run that ended as suspended may have decisions since, and a decision
        // that was used stays until its call settles.
        match (work.pending, work.running, work.answered, state) {
            (pending @ 1.., ..) => Self::Waiting(pending),
            (0, 1.., ..) => Self::Lost,
            (0, 0, 1.., _) => Self::Decided,
            (0, 0, 0, Some(RunState::Ended(end))) => Self::Ended(end),
            (0, 0, 0, Some(RunState::Suspended)) => Self::Ended(RunEnd::Suspended),
            (0, 0, 0, Some(RunState::Running)) => Self::Lost,
            // `tools call` makes a session without a run, which has no end of its own.
            (0, 0, 0, None) if work.has_open_turn => Self::Open,
            (0, 0, 0, None) => Self::Settled,
        }
    }

    /// Returns the format from which the session was imported, if it was.
    fn imported_from(&self) -> Option<&str> {
        match self {
            Self::Imported(origin) => Some(&origin.format),
            Self::Driven(_)
            | Self::Waiting(_)
            | Self::Decided
            | Self::Ended(_)
            | Self::Settled
            | Self::Lost
            | Self::Open
            | Self::Damaged => None,
        }
    }

    /// Returns the word for JSON.
    fn json_word(&self) -> &'static str {
        match self {
            Self::Driven(holder) if holder.is_stopped => "stopped",
            Self::Driven(_) => "running",
            Self::Waiting(_) => "waiting",
            Self::Decided => "decided",
            Self::Ended(RunEnd::Completed) | Self::Settled => "done",
            Self::Lost => "lost",
            Self::Imported(_) => "imported",
            Self::Damaged => "damaged",
            Self::Ended(RunEnd::Cancelled) | Self::Open => "interrupted",
            Self::Ended(end) => end.as_str(),
        }
    }

    fn status_label(&self) -> StyledLine {
        match self {
            Self::Driven(holder) if holder.is_stopped => style::warn(format!("stopped ({holder})")),
            Self::Driven(holder) => style::note(format!("running ({holder})")),
            Self::Decided => style::note("decided, can be resumed"),
            Self::Lost => style::warn("process lost, can be resumed"),
            Self::Imported(origin) => {
                let format = style::escape_controls(&origin.format);
                style::dim(format!("imported ({format})"))
            }
            Self::Damaged => style::bad("damaged; `toolgate doctor --deep` says where"),
            Self::Waiting(1) => style::warn("1 pending approval"),
            Self::Waiting(count) => style::warn(format!("{count} pending approvals")),
            Self::Ended(RunEnd::Completed) | Self::Settled => style::good(RunEnd::Completed.text()),
            Self::Ended(RunEnd::Cancelled) | Self::Open => style::warn(RunEnd::Cancelled.text()),
            Self::Ended(end @ RunEnd::Suspended) => style::warn(end.text()),
            Self::Ended(end) => style::bad(end.text()),
        }
    }
}

#[cfg(test)]
mod tests;
