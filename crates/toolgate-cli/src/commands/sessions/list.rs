//! Sessions in a list, each with how it stands.

use serde_json::json;
use toolgate::{
    ApprovalFilter, ApprovalState, Cost, Hidden, RunEnd, SessionFilter, SessionId, SessionRow,
    StoreHandle,
};

use super::ListArgs;
use crate::{
    CliError, Cx, Exit, family, ids, render,
    screen::{Item, Screen},
    style,
    table::Table,
    times,
};

/// How many rows are read at once.
const PAGE: usize = 500;

/// One session as the list shows it.
struct Entry {
    row: SessionRow,
    stands: Stands,
    words: String,
    calls: usize,
    cost: Option<Cost>,
}

/// How a session stands.
enum Stands {
    /// Somebody drives it.
    Running(String),
    /// It waits for so many decisions.
    Waiting(usize),
    /// Somebody has decided, and nobody has gone on since.
    Decided,
    /// It ended like this.
    Ended(RunEnd),
    /// Nothing is open, and no run has ended.
    Settled,
    /// Something is open, and nobody drives it.
    Open,
}

pub(super) async fn run(args: &ListArgs, cx: &Cx) -> Result<Exit, CliError> {
    let store = cx.store().await?;
    let mut entries = Vec::new();
    for row in newest(&store, args.all).await?.into_iter().rev() {
        if entries.len() >= args.limit {
            break;
        }
        if args.all || !family::is_agent(&store, row.session).await? {
            entries.push(entry(&store, row).await?);
        }
    }
    entries.reverse();
    match cx.out.is_json() {
        true => entries
            .iter()
            .try_for_each(|entry| cx.out.json(&as_json(entry)))?,
        false => print(cx, &entries)?,
    }
    Ok(Exit::Done)
}

/// All sessions, oldest first.
async fn newest(store: &StoreHandle, with_hidden: bool) -> Result<Vec<SessionRow>, CliError> {
    let hidden = if with_hidden {
        Hidden::Included
    } else {
        Hidden::LeftOut
    };
    let mut filter = SessionFilter {
        hidden,
        limit: PAGE,
        ..SessionFilter::default()
    };
    let mut rows = Vec::new();
    loop {
        let page = store.sessions(filter.clone()).await?;
        let is_full = page.len() == PAGE;
        rows.extend(page);
        filter.after = rows.last().map(|row: &SessionRow| row.session);
        if !is_full {
            return Ok(rows);
        }
    }
}

async fn entry(store: &StoreHandle, row: SessionRow) -> Result<Entry, CliError> {
    let screen = fold(store, row.session).await?;
    let held = row.held.as_ref().filter(|(_, until)| *until > times::now());
    let asked = ApprovalFilter {
        session: Some(row.session),
        pending: false,
        limit: usize::MAX,
        ..ApprovalFilter::default()
    };
    let asked = store.approvals(asked).await?;
    let count = |state| {
        asked
            .iter()
            .filter(|approval| approval.state == state)
            .count()
    };
    let stands = match (
        held,
        count(ApprovalState::Pending),
        count(ApprovalState::Answered),
        screen.end(),
    ) {
        (Some((holder, _)), ..) => Stands::Running(holder.to_string()),
        (None, pending @ 1.., ..) => Stands::Waiting(pending),
        (None, 0, 1.., _) => Stands::Decided,
        (None, 0, 0, Some(end)) => Stands::Ended(end),
        (None, 0, 0, None) if is_settled(&screen) => Stands::Settled,
        (None, 0, 0, None) => Stands::Open,
    };
    Ok(Entry {
        words: words(&screen),
        calls: screen.calls().len(),
        cost: screen.cost(),
        row,
        stands,
    })
}

fn is_settled(screen: &Screen) -> bool {
    let said = screen.agents().first().is_some_and(|agent| {
        agent
            .items
            .iter()
            .any(|item| matches!(item, Item::User { .. }))
    });
    !said && screen.open_calls().next().is_none()
}

/// The screen of a session alone, without its agents.
pub(super) async fn fold(store: &StoreHandle, session: SessionId) -> Result<Screen, CliError> {
    let mut screen = Screen::new();
    take_in(&mut screen, store, session).await?;
    Ok(screen)
}

/// Takes the events of a session into a screen.
pub(super) async fn take_in(
    screen: &mut Screen,
    store: &StoreHandle,
    session: SessionId,
) -> Result<(), CliError> {
    let mut after = 0;
    loop {
        let page = store.events(session, after, PAGE).await?;
        page.iter().for_each(|event| screen.apply(event));
        match page.last() {
            Some(last) if page.len() == PAGE => after = last.sequence(),
            _ => return Ok(()),
        }
    }
}

/// What the session is about: the first words that were said, or the first tool that was called.
fn words(screen: &Screen) -> String {
    let items = screen
        .agents()
        .first()
        .map_or(&[][..], |agent| &agent.items);
    let said = items.iter().find_map(|item| match item {
        Item::User { text, .. } => Some(text.split_whitespace().collect::<Vec<_>>().join(" ")),
        Item::Model(_) | Item::Call(_) | Item::Note(_) => None,
    });
    said.or_else(|| {
        screen
            .calls()
            .first()
            .map(|call| call.invocation.tool.to_string())
    })
    .unwrap_or_default()
}

fn as_json(entry: &Entry) -> serde_json::Value {
    let Entry {
        row,
        stands,
        words,
        calls,
        cost,
    } = entry;
    json!({
        "session": row.session, "created_at": row.created_at, "updated_at": row.updated_at, "events": row.revision,
        "state": stands.word(), "words": words, "calls": calls, "cost": cost.map(|cost| cost.to_string()),
        "hidden_at": row.hidden_at,
    })
}

fn print(cx: &Cx, entries: &[Entry]) -> Result<(), CliError> {
    let mut table =
        Table::new().head(["session", "last", "calls", "cost", "how it stands", "about"]);
    for Entry {
        row,
        stands,
        words,
        calls,
        cost,
    } in entries
    {
        let hidden = if row.hidden_at.is_some() {
            style::dim(" (hidden)").to_string()
        } else {
            String::new()
        };
        table.row([
            style::bold(ids::short(row.session)).to_string(),
            times::shown(row.updated_at),
            calls.to_string(),
            cost.map_or_else(String::new, |cost| cost.to_string()),
            format!("{}{hidden}", stands.shown()),
            render::Line::plain(words).clip(60).text(),
        ]);
    }
    match table.is_empty() {
        true => cx
            .out
            .note("there are no sessions yet; `toolgate demo` makes one"),
        false => cx.out.line(table),
    }
}

impl Stands {
    /// The word for machines.
    fn word(&self) -> &'static str {
        match self {
            Self::Running(_) => "running",
            Self::Waiting(_) => "waiting",
            Self::Decided => "decided",
            Self::Ended(RunEnd::Completed) | Self::Settled => "done",
            Self::Ended(RunEnd::Cancelled) | Self::Open => "interrupted",
            Self::Ended(end) => end.as_str(),
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::Running(holder) => {
                style::note(format!("running ({})", process(holder))).to_string()
            }
            Self::Decided => style::note("decided, can go on").to_string(),
            Self::Waiting(1) => style::warn("waits for a decision").to_string(),
            Self::Waiting(count) => style::warn(format!("waits for {count} decisions")).to_string(),
            Self::Ended(RunEnd::Completed) | Self::Settled => style::good("done").to_string(),
            Self::Ended(RunEnd::Cancelled) | Self::Open => style::warn("interrupted").to_string(),
            Self::Ended(RunEnd::Suspended) => style::warn("waits").to_string(),
            Self::Ended(end) => style::bad(end).to_string(),
        }
    }
}

/// `process 4711` out of the long name that a driver gives itself.
fn process(holder: &str) -> &str {
    let name = holder
        .split_once(" in ")
        .map_or(holder, |(_, process)| process);
    name.split_once('+').map_or(name, |(process, _)| process)
}
