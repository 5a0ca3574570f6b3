//! The services a runtime provides to a call: a clock, the store, and a probe that records events.

use std::{fmt, sync::Arc};

use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    BudgetAlert, Call, Clock, FileChange, Json, LedgerDraft, MemoryStore, RecordKey, StoppedClock,
    StoreHandle, ToastNotice,
};

/// The services of a call. Cloning shares them.
#[derive(Clone)]
pub struct CallEnv {
    clock: Arc<dyn Clock>,
    store: StoreHandle,
    probe: Arc<dyn Probe>,
}

impl CallEnv {
    /// Creates an environment from its parts.
    pub fn new(clock: Arc<dyn Clock>, store: StoreHandle, probe: Arc<dyn Probe>) -> Self {
        Self {
            clock,
            store,
            probe,
        }
    }

    /// Creates an environment outside any runtime: a stopped clock, an empty store, no probe.
    pub fn detached() -> Self {
        Self::new(
            Arc::new(StoppedClock),
            StoreHandle::new(MemoryStore::new()),
            Arc::new(NoProbe),
        )
    }

    /// Returns the same environment with another probe.
    pub fn with_probe(&self, probe: Arc<dyn Probe>) -> Self {
        Self {
            clock: self.clock.clone(),
            store: self.store.clone(),
            probe,
        }
    }

    /// Returns the clock.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Returns the store.
    pub fn store(&self) -> &StoreHandle {
        &self.store
    }

    /// Returns the probe.
    pub fn probe(&self) -> &Arc<dyn Probe> {
        &self.probe
    }
}

impl fmt::Debug for CallEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallEnv").finish_non_exhaustive()
    }
}

/// An observer of what happens to a call. The runtime implements it to write the journal.
pub trait Probe: Send + Sync + 'static {
    /// Records that the executor is about to start. If this fails, it does not start.
    ///
    /// When it completes, the intent is as durable as this tool needs.
    fn before_start(&self, call: &Call, outside: bool) -> StartPermit;

    /// Completes when the request for the call is durable. Known now by default: requests are not
    /// recorded here.
    fn when_recorded(&self, _call: &Call) -> StartPermit {
        StartPermit::Now(Ok(()))
    }

    /// Records progress of the tool.
    fn report_progress(&self, call: &Call, progress: Progress);

    /// Records a diagnostic line; nothing may depend on it.
    fn write_log(&self, call: &Call, level: LogLevel, text: &str);

    /// Records the files that the call has changed; `omitted` more are not listed. Ignored by
    /// default.
    fn report_files(&self, _call: &Call, _changes: Vec<FileChange>, _omitted: u64) {}

    /// Records a message for the people at the screen. Ignored by default.
    fn show_toast(&self, _call: &Call, _toast: ToastNotice) {}

    /// Records that budgets have reached thresholds when the call was paid for. Ignored by default.
    fn report_budget_alerts(&self, _call: &Call, _alerts: Vec<BudgetAlert>) {}

    /// Checks whether [`seal_with_outcome`](Self::seal_with_outcome) would accept an entry now. If
    /// the journal has failed, this is an error, and nothing may happen whose outcome cannot be
    /// recorded.
    fn can_seal_with_outcome(&self, _call: &Call) -> Result<bool, StopReason> {
        Ok(false)
    }

    /// Accepts a ledger entry that is sealed in the same write as the outcome of this run of the
    /// call, replacing an earlier one for the same chain. Returns the entry as an error if outcomes
    /// are not recorded here. If another writer records this outcome by now, the entry is dropped,
    /// because that writer has its own.
    fn seal_with_outcome(&self, _call: &Call, entry: LedgerDraft) -> Result<(), LedgerDraft> {
        Err(entry)
    }

    /// Accepts records that are written with the next event of the call that has to be durable: its
    /// start or its outcome. Each key has to name the call, so that it is new. Returns false if events
    /// are not recorded here; then nothing is written.
    fn write_with_call(&self, _call: &Call, _records: Vec<(RecordKey, Json)>) -> bool {
        false
    }

    /// Accepts records that are written in the same write as the outcome of this run of the call,
    /// and only with it. Each key has to name the call, so that it is new. Returns false if outcomes
    /// are not recorded here; then nothing is written.
    fn write_with_outcome(&self, _call: &Call, _records: Vec<(RecordKey, Json)>) -> bool {
        false
    }
}

/// The permission to start an executor: known now, or when the intent is durable.
pub enum StartPermit {
    /// Known now.
    Now(Result<(), StopReason>),
    /// Known later.
    Later(BoxFuture<'static, Result<(), StopReason>>),
}

/// A probe that records nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProbe;

impl Probe for NoProbe {
    fn before_start(&self, _: &Call, _: bool) -> StartPermit {
        StartPermit::Now(Ok(()))
    }
    fn report_progress(&self, _: &Call, _: Progress) {}
    fn write_log(&self, _: &Call, _: LogLevel, _: &str) {}
}

/// The progress of a tool.
///
/// ```
/// use toolgate_core::Progress;
/// assert_eq!(Progress::fraction(3, 12).percent(), Some(25.0));
/// assert_eq!(Progress::busy().percent(), None);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Progress {
    /// The meaning of the numbers.
    pub kind: ProgressKind,
    /// The amount done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<u64>,
    /// The total amount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// A description of the current work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The label of the work on a screen, such as "Building", if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// The kinds of progress a screen can draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProgressKind {
    /// Work of unknown length.
    Indeterminate,
    /// A known share is done.
    Determinate,
    /// A known number of steps is done.
    Steps,
}

impl Progress {
    /// Creates progress of unknown length.
    pub fn busy() -> Self {
        Self {
            kind: ProgressKind::Indeterminate,
            current: None,
            total: None,
            message: None,
            label: None,
        }
    }

    /// Creates progress of which `current` of `total` is done.
    pub fn fraction(current: u64, total: u64) -> Self {
        Self {
            kind: ProgressKind::Determinate,
            current: Some(current),
            total: Some(total),
            message: None,
            label: None,
        }
    }

    /// Creates progress in step `current` of `total`.
    pub fn step(current: u64, total: u64) -> Self {
        Self {
            kind: ProgressKind::Steps,
            ..Self::fraction(current, total)
        }
    }

    /// Sets the description of the current work.
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// Sets the label of the work.
    pub fn with_label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Returns the finished share in percent, if it is known.
    pub fn percent(&self) -> Option<f64> {
        match (self.current, self.total) {
            (Some(current), Some(total)) if total > 0 => {
                Some(100.0 * current.min(total) as f64 / total as f64)
            }
            _ => None,
        }
    }
}

/// The importance of a diagnostic line.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// For developers.
    Debug,
    /// For information.
    Info,
    /// Something is unusual.
    Warn,
    /// Something is wrong.
    Error,
}

/// The reason an executor was not started at the last moment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StopReason {
    /// The turn was interrupted.
    #[error("the turn was interrupted")]
    Interrupted,
    /// The intent could not be made durable; without a record there is no effect.
    #[error("the start could not be recorded: {0}")]
    NotRecorded(String),
}

/// Redacts secrets in what is stored and shown.
///
/// It works on copies: the tool's arguments and the model's answer are not changed.
pub trait Redactor: Send + Sync + 'static {
    /// Returns a copy that may be shown.
    ///
    /// # Errors
    ///
    /// [`RedactionError`] if that cannot be guaranteed; then nothing may be shown.
    fn redact(&self, value: &crate::Json) -> Result<crate::Json, RedactionError>;

    /// Returns a copy of plain text that may be shown.
    ///
    /// # Errors
    ///
    /// As for [`Redactor::redact`].
    fn redact_text(&self, text: &str) -> Result<String, RedactionError>;

    /// Returns the parts of a text that are secret, for an approver who has to see the rest: the value
    /// of the field with this name, if it has one. By default there are none, and everything is shown.
    ///
    /// It hides less than [`Redactor::redact_text`]: only the values are masked that cannot be
    /// anything else ([`ApprovalRequest::show`](crate::ApprovalRequest::show)).
    fn find_secrets(&self, field: Option<&str>, text: &str) -> Vec<crate::SecretSpan> {
        let _ = (field, text);
        Vec::new()
    }

    /// Returns how many bytes of `text` can be redacted and shown now, although more text follows.
    ///
    /// Text that arrives in pieces must not show a secret that is split over two of them. Whatever
    /// follows, redacting the first part and the rest separately has to give the same as redacting
    /// the whole. By default nothing can be shown before the text is complete.
    fn safe_prefix(&self, text: &str) -> usize {
        let _ = text;
        0
    }
}

/// An error for a value of which no copy may be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("redaction failed, so nothing is shown")]
pub struct RedactionError;
