//! The effects of tools: an append-only file that survives every crash.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use serde::{Deserialize, Serialize};
use toolgate_core::IdempotencyKey;

use super::KillPoint;
use crate::kill_this_process;

/// A log of effects. Each is synced before its tool continues, and a planned kill happens right
/// before or after it.
///
/// ```
/// use toolgate_testkit::{call, crash::EffectLog};
/// let dir = tempfile::tempdir()?;
/// let log = EffectLog::open_at(dir.path().join("effects"));
/// let key = call("pay").idempotency_key();
/// let other = "something else";
/// log.record_effect(&key, "pay", "42")?;
/// assert!(log.has_effect(&key)? && log.read_effects()?[0].what != other);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct EffectLog {
    path: PathBuf,
    kill: Option<KillPoint>,
    written: Arc<AtomicU64>,
}

/// One effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedEffect {
    /// The tool's idempotency key; the same for a repeat of the same call. For a model, the first
    /// message it got.
    pub key: String,
    /// The tool's name.
    pub tool: String,
    /// The effect.
    pub what: String,
}

impl EffectLog {
    /// Opens the log in this file, which need not exist yet.
    pub fn open_at(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            kill: None,
            written: Arc::default(),
        }
    }

    pub(super) fn with_kill(mut self, kill: Option<KillPoint>) -> Self {
        self.kill = kill;
        self
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns how many effects this process has had.
    pub fn effect_count(&self) -> u64 {
        self.written.load(Ordering::SeqCst)
    }

    /// Records an effect. When this returns, it cannot be undone.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn record_effect(&self, key: &IdempotencyKey, tool: &str, what: &str) -> io::Result<()> {
        self.append_effect(key.to_string(), tool, what)
    }

    /// Records that a model was asked for the `number`-th reply, counted from 0, in the
    /// conversation that begins with `task`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn record_request(&self, task: &str, model: &str, number: usize) -> io::Result<()> {
        self.append_effect(task.to_owned(), model, &number.to_string())
    }

    fn append_effect(&self, key: String, tool: &str, what: &str) -> io::Result<()> {
        let number = self.written.fetch_add(1, Ordering::SeqCst) + 1;
        if self.kill == Some(KillPoint::BeforeEffect(number)) {
            kill_this_process();
        }
        let effect = LoggedEffect {
            key,
            tool: tool.to_owned(),
            what: what.to_owned(),
        };
        let mut line = serde_json::to_vec(&effect)?;
        line.push(b'\n');
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.path)?;
        file.write_all(&line)?;
        // Synced before the tool returns: a process that is killed next must not lose the effect.
        file.sync_data()?;
        if self.kill == Some(KillPoint::AfterEffect(number)) {
            kill_this_process();
        }
        Ok(())
    }

    /// Reads every effect so far, by any process.
    ///
    /// # Errors
    /// If the file cannot be read or a line is not an effect.
    pub fn read_effects(&self) -> io::Result<Vec<LoggedEffect>> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        text.lines()
            .map(|line| serde_json::from_str(line).map_err(io::Error::from))
            .collect()
    }

    /// Checks whether the call with this key has had an effect.
    ///
    /// # Errors
    /// As [`EffectLog::read_effects`].
    pub fn has_effect(&self, key: &IdempotencyKey) -> io::Result<bool> {
        let key = key.to_string();
        Ok(self.read_effects()?.iter().any(|effect| effect.key == key))
    }
}
