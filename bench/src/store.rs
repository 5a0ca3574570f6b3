//! The cost of durability: calls that are recorded before and after, many at a time. Durable turns,
//! approvals and long sessions are measured with a session and a model: see `shapes`.

use std::{error::Error, time::Instant};

use tempfile::TempDir;
use toolgate::{
    Registry, Stack, ToolError, View,
    session::{Dispatcher, TurnEnd, TurnRequest},
    stack::ToolRequest,
    store::StoreHandle,
    tool_fn,
    value::SessionId,
};
use toolgate_store::SqliteStore;

use crate::{
    BenchOptions, floors,
    measure::{CostGoal, CostRow, median},
    ours::EchoInput,
    store_floors::{StoredRows, TestDatabase},
};

/// The parts of the sheet.
pub(crate) const PARTS: [&str; 2] = ["sqlite", "postgres"];
/// The number of concurrent calls, and the number of all calls.
const WIDTH: usize = 64;
const CALLS: usize = 16 * WIDTH;

type Fallible<T> = Result<T, Box<dyn Error>>;

pub(crate) async fn rows(options: &BenchOptions) -> Result<Vec<CostRow>, String> {
    measure(options).await.map_err(|error| error.to_string())
}

async fn measure(options: &BenchOptions) -> Fallible<Vec<CostRow>> {
    let rounds = options.rounds;
    let mut rows = Vec::new();
    if options.wants("sqlite") {
        rows.push(sqlite_calls(rounds).await?);
    }
    if options.wants("postgres") {
        rows.extend(postgres_calls(rounds).await?);
    }
    Ok(rows)
}

/// A tool that may write, so that it is recorded before it runs and after.
pub(crate) fn registry() -> Registry {
    let registry = Registry::new();
    let tool = tool_fn("echo", "Says it again.", async |input: EchoInput, _cx| {
        Ok::<_, ToolError>(input.into_text())
    });
    registry.register(tool).expect("the name is free");
    registry
}

pub(crate) async fn dispatcher(
    store: StoreHandle,
    session: Option<SessionId>,
    stack: Stack,
) -> Fallible<Dispatcher> {
    let builder = Dispatcher::builder(stack)
        .store(store)
        .max_concurrent(WIDTH);
    Ok(match session {
        // The lease of a lost process may not have expired yet.
        Some(session) => builder.session(session).take_over().build().await?,
        None => builder.build().await?,
    })
}

fn requests(count: usize) -> Vec<ToolRequest> {
    let request = |n| {
        let text = floors::arguments_of(n).to_string();
        ToolRequest::from_text(&format!("call_{n}"), "echo", &text)
    };
    (0..count).map(request).collect()
}

pub(crate) async fn turn(dispatcher: &Dispatcher, view: &View, calls: usize) -> Fallible<()> {
    let report = dispatcher
        .open_turn(TurnRequest::new(view.clone(), requests(calls)))
        .await?
        .run()
        .await?;
    assert_eq!(
        (report.end, report.results.len()),
        (TurnEnd::Settled, calls)
    );
    Ok(())
}

/// Seconds for all calls, [`WIDTH`] at a time.
async fn timed_calls(store: StoreHandle) -> Fallible<f64> {
    let registry = registry();
    let view = toolgate_testkit::plain_view(&registry);
    let dispatcher = dispatcher(store, None, Stack::over(registry).build()?).await?;
    turn(&dispatcher, &view, 1).await?;
    let start = Instant::now();
    turn(&dispatcher, &view, CALLS).await?;
    Ok(start.elapsed().as_secs_f64())
}

fn calls_row(name: &str, ours: Vec<f64>, floor: Vec<f64>) -> CostRow {
    let ours = CALLS as f64 / median(ours);
    let floor = CALLS as f64 / median(floor);
    let note = "raw commits of the same rows, 64 writers in each";
    let row = CostRow::new(
        format!("durable calls, 64 at a time, {name}"),
        ours,
        "calls/s",
        Some(floor),
        note,
    );
    row.aiming(CostGoal::RatioAtLeast(0.5))
}

async fn sqlite_calls(rounds: usize) -> Fallible<CostRow> {
    let mut ours = Vec::new();
    let mut floor = Vec::new();
    for round in 0..=rounds {
        let directory = TempDir::new()?;
        let path = directory.path().join("ours.db");
        let spent = timed_calls(StoreHandle::new(SqliteStore::open(&path)?)).await?;
        // Intent and outcome: two commits for as many calls as run at a time.
        let raw = StoredRows::read(&path)?
            .write_sqlite(&directory.path().join("raw.db"), 2 * CALLS / WIDTH)?;
        if round > 0 {
            ours.push(spent);
            floor.push(raw);
        }
    }
    Ok(calls_row("SQLite", ours, floor))
}

async fn postgres_calls(rounds: usize) -> Fallible<Option<CostRow>> {
    let Ok(url) = std::env::var("TOOLGATE_TEST_POSTGRES") else {
        eprintln!("TOOLGATE_TEST_POSTGRES is not set: PostgreSQL is left out");
        return Ok(None);
    };
    let directory = TempDir::new()?;
    let path = directory.path().join("rows.db");
    timed_calls(StoreHandle::new(SqliteStore::open(&path)?)).await?;
    let rows = StoredRows::read(&path)?;
    let mut ours = Vec::new();
    let mut floor = Vec::new();
    let database = TestDatabase::create(&url).await?;
    for round in 0..=rounds {
        let spent = timed_calls(toolgate_store::open_store(&database.url).await?).await?;
        let raw = rows
            .write_postgres(&database.url, 2 * CALLS / WIDTH)
            .await?;
        if round > 0 {
            ours.push(spent);
            floor.push(raw);
        }
    }
    database.drop().await?;
    Ok(Some(calls_row("PostgreSQL", ours, floor)))
}
