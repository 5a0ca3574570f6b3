//! What the runtime lends a call while it runs: time, the store, and somebody who writes things down.

use std::{fmt, sync::Arc};

use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Call, Clock, LedgerDraft, MemoryStore, StoppedClock, StoreHandle};

/// The surroundings of a call. Cloning shares them.
#[derive(Clone)]
pub struct Env {
    clock: Arc<dyn Clock>,
    store: StoreHandle,
    probe: Arc<dyn Probe>,
}

impl Env {
    /// Puts the parts together.
    pub fn new(clock: Arc<dyn Clock>, store: StoreHandle, probe: Arc<dyn Probe>) -> Self {
        Self {
            clock,
            store,
            probe,
        }
    }

    /// Surroundings for a call outside any runtime: a stopped clock, a store of its own, nobody listening.
    pub fn detached() -> Self {
        Self::new(
            Arc::new(StoppedClock),
            StoreHandle::new(MemoryStore::new()),
            Arc::new(Unwatched),
        )
    }

    /// The same surroundings with somebody else listening.
    pub fn with_probe(&self, probe: Arc<dyn Probe>) -> Self {
        Self {
            clock: self.clock.clone(),
            store: self.store.clone(),
            probe,
        }
    }

    /// The clock.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The store.
    pub fn store(&self) -> &StoreHandle {
        &self.store
    }

    /// Who is told what happens.
    pub fn probe(&self) -> &Arc<dyn Probe> {
        &self.probe
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env").finish_non_exhaustive()
    }
}

/// Is told what happens to a call. The runtime implements it to write the journal.
pub trait Probe: Send + Sync + 'static {
    /// The executor is about to be started. If this fails, it is not.
    ///
    /// When it returns, the intent is as durable as it has to be for this tool.
    fn starting(&self, call: &Call, outside: bool) -> Starting;

    /// The tool has come further.
    fn progress(&self, call: &Call, progress: Progress);

    /// Somebody has a diagnostic line; nothing may depend on it.
    fn log(&self, call: &Call, level: LogLevel, text: &str);

    /// Whether [`seal_with_outcome`](Self::seal_with_outcome) would take an entry now. If the journal has failed, this
    /// says so, and nothing should happen whose outcome could not be written down.
    fn seals_with_outcome(&self, _call: &Call) -> Result<bool, StopReason> {
        Ok(false)
    }

    /// Takes an entry that is to be sealed in the same write as the outcome of this pass, in place of an earlier one for
    /// the same chain. Gives it back if nobody writes outcomes down. If somebody else writes this one down by now, the
    /// entry is dropped: they have their own.
    fn seal_with_outcome(&self, _call: &Call, entry: LedgerDraft) -> Result<(), LedgerDraft> {
        Err(entry)
    }
}

/// Whether an executor may be started: known at once, or when the intent is durable.
pub enum Starting {
    /// Known now.
    Now(Result<(), StopReason>),
    /// Known later.
    Later(BoxFuture<'static, Result<(), StopReason>>),
}

/// Nobody listens.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unwatched;

impl Probe for Unwatched {
    fn starting(&self, _: &Call, _: bool) -> Starting {
        Starting::Now(Ok(()))
    }
    fn progress(&self, _: &Call, _: Progress) {}
    fn log(&self, _: &Call, _: LogLevel, _: &str) {}
}

/// How far a tool has come.
///
/// ```
/// use toolgate_core::Progress;
/// assert_eq!(Progress::of(3, 12).percent(), Some(25.0));
/// assert_eq!(Progress::busy().percent(), None);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Progress {
    /// How to read the numbers.
    pub kind: ProgressKind,
    /// How much is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<u64>,
    /// How much there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// What is being done right now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The kinds of progress a screen can draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProgressKind {
    /// Something is going on.
    Indeterminate,
    /// A known share is done.
    Determinate,
    /// A known number of steps is done.
    Steps,
}

impl Progress {
    /// Something is going on.
    pub fn busy() -> Self {
        Self {
            kind: ProgressKind::Indeterminate,
            current: None,
            total: None,
            message: None,
        }
    }

    /// `current` of `total` is done.
    pub fn of(current: u64, total: u64) -> Self {
        Self {
            kind: ProgressKind::Determinate,
            current: Some(current),
            total: Some(total),
            message: None,
        }
    }

    /// Step `current` of `total` is being done.
    pub fn step(current: u64, total: u64) -> Self {
        Self {
            kind: ProgressKind::Steps,
            ..Self::of(current, total)
        }
    }

    /// Says what is being done.
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// The share that is done, if it can be told.
    pub fn percent(&self) -> Option<f64> {
        match (self.current, self.total) {
            (Some(current), Some(total)) if total > 0 => {
                Some(100.0 * current.min(total) as f64 / total as f64)
            }
            _ => None,
        }
    }
}

/// How important a diagnostic line is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// For developers.
    Debug,
    /// For the curious.
    Info,
    /// Something is odd.
    Warn,
    /// Something is wrong.
    Error,
}

/// Why an executor was not started at the last moment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StopReason {
    /// Somebody stopped the turn.
    #[error("the turn was interrupted")]
    Interrupted,
    /// The intent could not be made durable; without a record there is no effect.
    #[error("the start could not be recorded: {0}")]
    NotRecorded(String),
}

/// Takes secrets out of what is stored and shown.
///
/// It works on copies: what the tool receives and what the model is answered is not its business.
pub trait Redactor: Send + Sync + 'static {
    /// Returns a copy that may be shown, or an error if that cannot be made sure. Then nothing is shown.
    fn redact(&self, value: &crate::Json) -> Result<crate::Json, RedactionFailed>;

    /// The same for plain text.
    fn redact_text(&self, text: &str) -> Result<String, RedactionFailed>;
}

/// A copy that may be shown could not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("redaction failed, so nothing is shown")]
pub struct RedactionFailed;
