//! Fills the search index in the background, after runs have ended.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use toolgate_core::{SearchService, StoreHandle};

/// The number of events and documents that are indexed before other tasks get their turn.
const STEP: u64 = 256;

/// Returns a handle to a store that indexes new events whenever a run has ended.
///
/// The run does not wait for it. If the process ends first, nothing is lost: the next search indexes
/// what is missing.
#[must_use]
pub fn index_after_runs(store: StoreHandle, search: SearchService) -> StoreHandle {
    let is_running = Arc::new(AtomicBool::new(false));
    store.on_run_end(move || {
        // One task at a time; it sees what other runs write meanwhile.
        if is_running.swap(true, Ordering::AcqRel) {
            return;
        }
        let search = search.clone();
        let is_running = is_running.clone();
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => {
                let running = RunningMark(is_running);
                drop(runtime.spawn(async move {
                    let _running = running;
                    index_everything(&search).await;
                }));
            }
            Err(_) => is_running.store(false, Ordering::Release),
        }
    })
}

/// Indexes until nothing is left, nothing moves, or something fails. A later run or search tries
/// again.
async fn index_everything(search: &SearchService) {
    loop {
        match search.catch_up(STEP).await {
            Ok(progress) if !progress.is_complete && progress.events + progress.embedded > 0 => {
                tokio::task::yield_now().await;
            }
            Ok(_) | Err(_) => return,
        }
    }
}

/// Says that a task is running, until it ends, panics or is dropped with its runtime.
struct RunningMark(Arc<AtomicBool>);

impl Drop for RunningMark {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
