//! The hook at the end of a run: it sees what was said and called, at most once for each run.
//!
//! A hook runs in a task of its own, so it never delays the report. Before it runs, a claim is
//! stored under session, run and hook; only the process that stored the claim runs the hook. So a
//! hook runs at most once, also if the process dies in the middle:
//!
//! | The process dies | The hook |
//! |---|---|
//! | before the claim is stored | runs when the session is resumed, or when its next run begins |
//! | after the claim, before the hook has finished | is not run again |
//! | after the hook, before that is recorded | is not run again |
//!
//! A suspended run has not ended. It ends when it is resumed and completes, or when a new message
//! begins the next run; the hook then sees it with the end `suspended`.

mod capture;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::future::BoxFuture;
use serde_json::json;
use tokio::sync::watch;
use toolgate_core::{
    Clock, Json, RecordKey, RunEnd, SessionEvent, SessionId, StoreError, StoreHandle, run_contained,
};

pub use self::capture::{CapturedCall, CapturedRun};
use crate::{RunReport, session::SessionShared};

/// A hook that sees the end of every run of a session, at most once each.
///
/// It runs after the end of the run is durable, in a task of its own. A run that is suspended has
/// not ended: the hook sees it when it does. A run that ended because of an error, a limit or an
/// interruption is seen then, and not again if it is resumed. The runs of agents belong to the run
/// that delegated, and are not seen one by one.
///
/// ```
/// use futures::future::BoxFuture;
/// use toolgate_runtime::{CapturedRun, RunEndError, RunEndHook};
///
/// struct PrintEnd;
/// impl RunEndHook for PrintEnd {
///     fn name(&self) -> &str { "print-end" }
///     fn run_ended<'a>(&'a self, run: &'a CapturedRun) -> BoxFuture<'a, Result<(), RunEndError>> {
///         Box::pin(async move {
///             println!("run {} of {} ended: {}", run.run, run.session, run.end);
///             Ok(())
///         })
///     }
/// }
/// ```
pub trait RunEndHook: Send + Sync + 'static {
    /// Returns the name under which it is recorded that the hook has run; letters, digits, `-` and
    /// `_`. It must not change, and each hook of a session needs one of its own.
    fn name(&self) -> &str;

    /// Looks at a run that has ended. The messages are as they were said: secrets in them are not
    /// redacted.
    fn run_ended<'a>(&'a self, run: &'a CapturedRun) -> BoxFuture<'a, Result<(), RunEndError>>;
}

/// A failure of a hook. It is logged; the run and its report are not affected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RunEndError(pub String);

/// How far a hook got with a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEndState {
    /// No process has begun.
    Unclaimed,
    /// A process has begun. If it is gone, the hook is not run again.
    Claimed,
    /// The hook has finished, or failed.
    Done,
}

/// The hooks of a session, and the tasks in which they run.
pub(crate) struct RunEndHooks {
    hooks: Vec<Arc<dyn RunEndHook>>,
    /// The number of tasks under way.
    running: watch::Sender<usize>,
    /// The last run whose hooks this process has started.
    last_started: Mutex<Option<u64>>,
}

impl RunEndHooks {
    pub(crate) fn new(hooks: Vec<Arc<dyn RunEndHook>>) -> Self {
        Self {
            hooks,
            running: watch::Sender::new(0),
            last_started: Mutex::new(None),
        }
    }

    fn last_started(&self) -> Option<u64> {
        let last = self.last_started.lock();
        *last.unwrap_or_else(PoisonError::into_inner)
    }

    fn note_started(&self, run: u64) {
        let last = self.last_started.lock();
        *last.unwrap_or_else(PoisonError::into_inner) = Some(run);
    }

    /// Waits until no hook is running, at most for `limit`. Returns true if none is.
    pub(crate) async fn wait(&self, limit: Duration) -> bool {
        let mut running = self.running.subscribe();
        let idle = running.wait_for(|count| *count == 0);
        tokio::time::timeout(limit, idle).await.is_ok()
    }
}

/// Counts a task while it lives, also if it panics or its runtime is shut down.
struct RunningHook(watch::Sender<usize>);

impl RunningHook {
    fn begin(running: &watch::Sender<usize>) -> Self {
        running.send_modify(|count| *count += 1);
        Self(running.clone())
    }
}

impl Drop for RunningHook {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

impl SessionShared {
    /// Starts the hooks for a run that has just ended.
    pub(crate) fn start_run_end_hooks(&self, report: &RunReport) {
        match report.end {
            RunEnd::Suspended => {}
            RunEnd::Completed
            | RunEnd::MaxIterations
            | RunEnd::BudgetExceeded
            | RunEnd::LoopGuard
            | RunEnd::Deadline
            | RunEnd::Cancelled
            | RunEnd::Failed => self.spawn_hooks(report.run, report.end),
        }
    }

    /// Starts the hooks for the run before the one that begins, unless this process has: it was
    /// suspended, or an earlier process died before it could start them. Only the last run can be
    /// without them, because each run begins with this look back.
    pub(crate) async fn start_missed_hooks(&self, run: u64) -> Result<(), StoreError> {
        if self.run_end.hooks.is_empty() || self.run_end.last_started() == Some(run) {
            return Ok(());
        }
        let ended = |event: &toolgate_core::Event| {
            event.turn_info().run == Some(run)
                && matches!(event.as_session(), Some(SessionEvent::RunEnded { .. }))
        };
        let last = self.find_last_event(ended).await?;
        let end = match last.as_ref().and_then(|event| event.as_session()) {
            Some(SessionEvent::RunEnded { end, .. }) => *end,
            // Its process died in the middle, and it is not resumed any more.
            _ => RunEnd::Failed,
        };
        self.spawn_hooks(run, end);
        Ok(())
    }

    fn spawn_hooks(&self, run: u64, end: RunEnd) {
        self.run_end.note_started(run);
        for hook in &self.run_end.hooks {
            let task = HookTask {
                running: RunningHook::begin(&self.run_end.running),
                hook: hook.clone(),
                store: self.dispatcher.store().clone(),
                clock: self.dispatcher.0.clock.clone(),
                session: self.dispatcher.session(),
                run,
                end,
            };
            tokio::spawn(task.run());
        }
    }
}

/// One hook for one run.
struct HookTask {
    running: RunningHook,
    hook: Arc<dyn RunEndHook>,
    store: StoreHandle,
    clock: Arc<dyn Clock>,
    session: SessionId,
    run: u64,
    end: RunEnd,
}

impl HookTask {
    async fn run(self) {
        let name = self.hook.name().to_owned();
        let session = self.session;
        if let Err(error) = self.claim_and_run().await {
            // The error may repeat what was said, so only its kind is logged by default.
            tracing::warn!(%session, hook = name, "the hook at the end of a run failed");
            tracing::debug!(%session, hook = name, "{error}");
        }
        drop(self.running);
    }

    async fn claim_and_run(&self) -> Result<(), RunEndError> {
        let name = self.hook.name();
        if !is_hook_name(name) {
            return Err(RunEndError(format!(
                "{name:?} is not the name of a hook: use 1 to 64 of a-z A-Z 0-9 - _"
            )));
        }
        // Read before the claim: if the store fails here, a later process can still run the hook.
        let captured = CapturedRun::load(&self.store, self.session, self.run, self.end).await;
        let captured = captured.map_err(store_failure)?;
        let stored = self.put_mark("claim", json!({ "at": self.clock.now() }));
        if stored.await?.is_some() {
            return Ok(());
        }
        let worked = run_contained(self.hook.run_ended(&captured)).await;
        let worked = worked.unwrap_or_else(|_| Err(RunEndError("the hook panicked".to_owned())));
        let mark = json!({ "at": self.clock.now(), "failed": worked.is_err() });
        self.put_mark("done", mark).await?;
        worked
    }

    /// Stores a mark unless there is one, and returns the one that was there.
    async fn put_mark(
        &self,
        step: &str,
        mark: serde_json::Value,
    ) -> Result<Option<Json>, RunEndError> {
        let key = mark_key(self.session, self.run, self.hook.name(), step);
        let mark = Json::new(mark).expect("flat JSON");
        self.store
            .put_json_once(key, mark)
            .await
            .map_err(store_failure)
    }
}

fn store_failure(error: StoreError) -> RunEndError {
    RunEndError(error.to_string())
}

fn is_hook_name(name: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    (1..=64).contains(&name.len()) && name.bytes().all(is_plain)
}

/// Returns the key of a mark. It is erased with its session.
fn mark_key(session: SessionId, run: u64, hook: &str, step: &str) -> RecordKey {
    RecordKey::Other(format!("run-end/{session}/{run:012}/{hook}/{step}").into())
}

/// Returns how far a hook got with a run, in any process.
///
/// # Errors
///
/// Fails if the store does.
pub async fn run_end_state(
    store: &StoreHandle,
    session: SessionId,
    run: u64,
    hook: &str,
) -> Result<RunEndState, StoreError> {
    let done = mark_key(session, run, hook, "done");
    if store.load_json(&done).await?.is_some() {
        return Ok(RunEndState::Done);
    }
    let claim = mark_key(session, run, hook, "claim");
    Ok(match store.load_json(&claim).await? {
        Some(_) => RunEndState::Claimed,
        None => RunEndState::Unclaimed,
    })
}
