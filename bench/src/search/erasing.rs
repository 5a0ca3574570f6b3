//! What it costs to erase a session.

use std::{path::Path, time::Instant};

use toolgate::{
    store::StoreHandle,
    value::{Clock, SystemClock},
};
use toolgate_store::SqliteStore;

use super::{
    Fallible,
    log::{LogLine, SessionLog},
    speed,
};
use crate::measure::{CostRow, median};

/// The number of messages of the session.
const MESSAGES: usize = 1_000;
/// Adds a session to the corpus, indexes it and measures how long it takes to erase it.
pub(super) async fn row(database: &Path, rounds: usize) -> Fallible<CostRow> {
    let service = speed::service(database)?;
    let store = StoreHandle::new(SqliteStore::open(database)?);
    let mut times = Vec::new();
    for _ in 0..rounds.clamp(1, 3) {
        let now = SystemClock::new().now();
        // A number that no session has, nor had: an erased one keeps its fence.
        let number = now.as_micros().unsigned_abs() / 1_000;
        let mut log = SessionLog::new(number, now, "scripted");
        for number in 0..MESSAGES {
            let text = format!(
                "the database of customer {number} was moved to host{number} because the disk of the old one is full"
            );
            log.push(&store, &LogLine::User { text }).await?;
        }
        log.flush(&store).await?;
        service.continue_index(|_| ()).await?;
        let start = Instant::now();
        store.erase_session(log.session, now).await?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let name = format!("erasing a session of {MESSAGES} messages");
    let note = "with its words, its vectors and the log of the file";
    Ok(CostRow::new(name, median(times), "ms", None, note))
}
