//! What the index costs a durable turn.

use std::time::Instant;

use tempfile::TempDir;
use toolgate::{
    Stack, search::SearchService, session::Dispatcher, store::StoreHandle, value::SystemClock,
};
use toolgate_store::SqliteStore;

use super::Fallible;
use crate::{
    measure::{CostGoal, CostRow, median},
    store,
};

/// The number of turns of a run.
const TURNS: usize = 20;
/// Indexing may add so much to a turn.
const TURN_GOAL: f64 = 1.1;

/// Two stores that do the same turns; one of them is indexed after each run.
pub(super) async fn rows(rounds: usize) -> Fallible<Vec<CostRow>> {
    let directory = TempDir::new()?;
    let plain = StoreHandle::new(SqliteStore::open(directory.path().join("plain.db"))?);
    let indexed = StoreHandle::new(SqliteStore::open(directory.path().join("indexed.db"))?);
    let service = SearchService::new(indexed.clone(), SystemClock::new());
    let registry = store::registry();
    let view = toolgate_testkit::plain_view(&registry);
    let stack = Stack::over(registry).build()?;
    let without: Dispatcher = store::dispatcher(plain, None, stack.clone()).await?;
    let with: Dispatcher = store::dispatcher(indexed, None, stack).await?;
    let mut alone = Vec::new();
    let mut behind = Vec::new();
    let mut whole = Vec::new();
    // A turn waits for the disk, whose times differ more than those of searches.
    for round in 0..=rounds * 8 {
        let start = Instant::now();
        for _ in 0..TURNS {
            store::turn(&without, &view, 1).await?;
        }
        let floor = start.elapsed().as_secs_f64();
        // As a gate does it: a task that indexes what the run before wrote, while this one works.
        let task = service.clone();
        let start = Instant::now();
        let indexing = tokio::spawn(async move { task.catch_up(u64::MAX).await });
        for _ in 0..TURNS {
            store::turn(&with, &view, 1).await?;
        }
        let spent = start.elapsed().as_secs_f64();
        indexing.await??;
        let start = Instant::now();
        service.catch_up(u64::MAX).await?;
        let rest = start.elapsed().as_secs_f64();
        if round > 0 {
            let per_turn = |seconds: f64| seconds * 1e6 / TURNS as f64;
            alone.push(per_turn(floor));
            behind.push(per_turn(spent));
            whole.push(per_turn(spent + rest));
        }
    }
    let floor = median(alone);
    let note = "the same turn without an index";
    let row = |name: &str, value: f64| CostRow::new(name, value, "us", Some(floor), note);
    Ok(vec![
        row("a durable turn, indexed behind it", median(behind))
            .aiming(CostGoal::RatioAtMost(TURN_GOAL)),
        row(
            "the same with all the time that indexing takes",
            median(whole),
        ),
    ])
}
