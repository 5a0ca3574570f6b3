//! Listing many sessions, as `toolgate sessions list` does.

use std::time::Instant;

use tempfile::TempDir;
use toolgate::store::{SessionFilter, SessionOrder, StoreHandle};

use super::{LoopSetup, StackKind, ToolBehaviour, sqlite_store};
use crate::measure::{CostGoal, CostRow, median};

/// Measures the list of a thousand sessions of three turns beside that of the last ten of them.
pub(super) async fn rows(rounds: usize) -> Vec<CostRow> {
    const SESSIONS: usize = 1_000;
    const FEW: usize = 10;
    let directory = TempDir::new().expect("is made");
    let path = directory.path().join("many.db");
    let store = sqlite_store(&path);
    let setup = LoopSetup::new(StackKind::Default, ToolBehaviour::Reads);
    for _ in 0..SESSIONS {
        setup.run(store.clone(), 3, 1, 1).await;
    }
    let mut all = Vec::new();
    let mut few = Vec::new();
    for _ in 0..rounds * 4 {
        all.push(timed_list(&store, SESSIONS).await);
        few.push(timed_list(&store, FEW).await);
    }
    let goal = CostGoal::ValueAtMost(10.0);
    vec![
        CostRow::new(
            "listing 1,000 sessions, SQLite",
            median(all),
            "ms",
            Some(median(few)),
            "the last 10 of them",
        )
        .aiming(goal),
    ]
}

async fn timed_list(store: &StoreHandle, count: usize) -> f64 {
    let filter = SessionFilter {
        order: SessionOrder::LastUse,
        without_agents: true,
        limit: count,
        ..SessionFilter::default()
    };
    let start = Instant::now();
    let rows = store.sessions(filter).await.expect("are listed");
    let spent = start.elapsed().as_secs_f64() * 1e3;
    assert_eq!(rows.len(), count);
    // Everything that the list shows is in its rows.
    let calls = rows
        .iter()
        .filter_map(|row| Some(row.totals.as_ref()?.calls));
    assert_eq!(calls.sum::<u64>(), 3 * count as u64);
    spent
}
