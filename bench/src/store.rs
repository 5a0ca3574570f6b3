//! The cost of durability: calls that are recorded before and after, turns that suspend and resume,
//! long sessions.

use std::{
    error::Error,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use tempfile::TempDir;
use toolgate::{
    Decision, Event, Registry, Stack, ToolError, View,
    event::TurnEvent,
    session::{Dispatcher, TurnEnd, TurnRequest},
    stack::{Suspension, ToolRequest, TurnInfo},
    store::{
        EventStore, LogPosition, RecordKey, RecordStore, StoreHandle, StoreRecord, WriteBatch,
    },
    tool_fn,
    value::{Json, SessionId, Timestamp, TurnId},
};
use toolgate_store::SqliteStore;
use toolgate_testkit::{AskFirst, FaultyStore, StoreCall, StoreFault};

use crate::{
    BenchOptions, floors,
    measure::{CostGoal, CostRow, cpu_ns, median},
    ours::EchoInput,
    store_floors::{StoredRows, SyncedLog, TestDatabase},
};

/// The parts of the sheet.
pub(crate) const PARTS: [&str; 5] = ["lone", "sqlite", "postgres", "resume", "session"];
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
    if options.wants("lone") {
        rows.push(lone(rounds).await?);
    }
    if options.wants("sqlite") {
        rows.push(sqlite_calls(rounds).await?);
    }
    if options.wants("postgres") {
        rows.extend(postgres_calls(rounds).await?);
    }
    if options.wants("resume") {
        rows.extend(resume(rounds).await?);
    }
    if options.wants("session") {
        rows.extend(long_session(rounds).await?);
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
    let text = floors::arguments().to_string();
    (0..count)
        .map(|n| ToolRequest::from_text(&format!("call_{n}"), "echo", &text))
        .collect()
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

/// One record at a time beside one sync at a time.
async fn lone(rounds: usize) -> Fallible<CostRow> {
    let directory = TempDir::new()?;
    let store = SqliteStore::open(directory.path().join("ours.db"))?;
    let mut log = SyncedLog::create(&directory.path().join("log"))?;
    let mut ours = Vec::new();
    let mut floor = Vec::new();
    for n in 0..rounds * 20 {
        let record = StoreRecord::Json(Json::from("a record of ordinary size, written once"));
        let start = Instant::now();
        store
            .put_record_once(RecordKey::Other(format!("lone/{n}").into()), record)
            .await?;
        ours.push(start.elapsed().as_secs_f64() * 1e6);
        let start = Instant::now();
        log.sync()?;
        floor.push(start.elapsed().as_secs_f64() * 1e6);
    }
    let row = CostRow::new(
        "one durable record, SQLite",
        median(ours),
        "us",
        Some(median(floor)),
        "one append and sync",
    );
    Ok(row.aiming(CostGoal::RatioAtMost(1.2)))
}

/// Suspends for a decision, and resumes with a fresh store handle and dispatcher. The dispatcher is
/// returned: closing it is not part of resuming.
async fn stop_and_go_on(
    first: StoreHandle,
    fresh: impl AsyncFn() -> Fallible<StoreHandle>,
) -> Fallible<Dispatcher> {
    let registry = registry();
    let view = toolgate_testkit::plain_view(&registry);
    let stack = Stack::over(registry).layer(AskFirst).build()?;
    let before = dispatcher(first, None, stack.clone()).await?;
    let session = before.session();
    let report = before
        .open_turn(TurnRequest::new(view.clone(), requests(1)))
        .await?
        .run()
        .await?;
    assert_eq!(report.end, TurnEnd::Suspended);
    drop(before);
    let after = dispatcher(fresh().await?, Some(session), stack).await?;
    let Some(Suspension::Decision(request)) = &report.results[0].waits_for else {
        return Err("no approval was requested".into());
    };
    after
        .approval_service()
        .decide(request, Decision::approve("ann"))
        .await?;
    let report = after.resume(report.turn, view).await?.run().await?;
    assert_eq!(report.end, TurnEnd::Settled);
    Ok(after)
}

async fn resume(rounds: usize) -> Fallible<Vec<CostRow>> {
    let directory = TempDir::new()?;
    let path = directory.path().join("ours.db");
    let needed = count_syncs(&directory.path().join("count.db")).await?;
    let mut log = SyncedLog::create(&directory.path().join("log"))?;
    let keep = SqliteStore::open(&path)?;
    let mut wall = Vec::new();
    let mut cpu = Vec::new();
    let mut syncs = Vec::new();
    let mut syncs_cpu = Vec::new();
    for _ in 0..rounds * 4 {
        let start = Instant::now();
        let spent = cpu_ns();
        let open = async || Ok(StoreHandle::new(SqliteStore::open(&path)?));
        let gone_on = stop_and_go_on(StoreHandle::new(keep.clone()), open).await?;
        wall.push(start.elapsed().as_secs_f64() * 1e6);
        cpu.push((cpu_ns() - spent) as f64 / 1e3);
        drop(gone_on);
        let start = Instant::now();
        let spent = cpu_ns();
        (0..needed).try_for_each(|_| log.sync())?;
        syncs.push(start.elapsed().as_secs_f64() * 1e6);
        syncs_cpu.push((cpu_ns() - spent) as f64 / 1e3);
    }
    let note = format!("the {needed} syncs it needs");
    Ok(vec![
        CostRow::new(
            "stop, decide and resume, SQLite",
            median(wall),
            "us",
            Some(median(syncs)),
            &note,
        )
        .aiming(CostGoal::RatioAtMost(1.5)),
        CostRow::new(
            "stop, decide and resume, SQLite, processor",
            median(cpu),
            "us",
            Some(median(syncs_cpu)),
            &note,
        )
        .aiming(CostGoal::ValueAtMost(150.0)),
    ])
}

/// Counts the writes that wait for the disk one after the other. Leases are written too, but not
/// synced.
async fn count_syncs(path: &Path) -> Fallible<u64> {
    let syncs = Arc::new(AtomicU64::new(0));
    let counted = syncs.clone();
    let store = FaultyStore::new(SqliteStore::open(path)?, move |call, _| {
        let lease = matches!(
            call,
            StoreCall::AcquireLease | StoreCall::RenewLease | StoreCall::ReleaseLease
        );
        counted.fetch_add((call.is_write() && !lease).into(), Ordering::Relaxed);
        StoreFault::Pass
    });
    let open = async || Ok(StoreHandle::new(store.clone()));
    stop_and_go_on(open().await?, open).await?;
    Ok(syncs.load(Ordering::Relaxed))
}

/// Measures opening a session, and its next turn, by its length.
async fn long_session(rounds: usize) -> Fallible<Vec<CostRow>> {
    let directory = TempDir::new()?;
    let short = directory.path().join("short.db");
    let long = directory.path().join("long.db");
    let sessions = [fill(&short, 100).await?, fill(&long, 100_000).await?];
    let registry = registry();
    let view = toolgate_testkit::plain_view(&registry);
    let stack = Stack::over(registry).build()?;
    let mut opened = [Vec::new(), Vec::new()];
    let mut next = [Vec::new(), Vec::new()];
    for _ in 0..rounds * 4 {
        for (at, path) in [&short, &long].into_iter().enumerate() {
            let start = Instant::now();
            let store = StoreHandle::new(SqliteStore::open(path)?);
            let dispatcher = dispatcher(store, Some(sessions[at]), stack.clone()).await?;
            opened[at].push(start.elapsed().as_secs_f64() * 1e3);
            let spent = cpu_ns();
            turn(&dispatcher, &view, 1).await?;
            next[at].push((cpu_ns() - spent) as f64 / 1e3);
        }
    }
    let [short_open, long_open] = opened.map(median);
    let [short_next, long_next] = next.map(median);
    let note = "the same at 100 events";
    Ok(vec![
        CostRow::new(
            "opening a session of 100,000 events, SQLite",
            long_open,
            "ms",
            Some(short_open),
            note,
        )
        .aiming(CostGoal::ValueAtMost(50.0)),
        CostRow::new(
            "its next turn, processor",
            long_next,
            "us",
            Some(short_next),
            note,
        )
        .aiming(CostGoal::RatioAtMost(1.1)),
    ])
}

/// Writes a session with a number of events.
async fn fill(path: &Path, count: u64) -> Fallible<SessionId> {
    let store = SqliteStore::open(path)?;
    let session = SessionId::new(uuid::Uuid::from_u128(7));
    let info = Arc::new(TurnInfo::new(
        session,
        TurnId::new(uuid::Uuid::from_u128(8)),
    ));
    for first in (0..count).step_by(1_000) {
        let last = count.min(first + 1_000);
        let event = |n| {
            Event::for_turn(
                n,
                Timestamp::from_micros(n as i64),
                info.clone(),
                TurnEvent::TurnSettled,
            )
        };
        let events = (first + 1..=last)
            .map(|n| event(n).map(Arc::new))
            .collect::<Result<_, _>>()?;
        store
            .append(
                session,
                LogPosition::unleased(first),
                WriteBatch {
                    events,
                    ..WriteBatch::default()
                },
            )
            .await?;
    }
    Ok(session)
}
