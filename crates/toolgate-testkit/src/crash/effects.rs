//! What tools did to the world: a file that is only appended to and that no crash can take back.

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

use super::Kill;
use crate::kill_this_process;

/// A log of effects. Each is synced before its tool goes on, and a planned kill comes right before or after it.
///
/// ```
/// use toolgate_testkit::{call, crash::EffectLog};
/// let dir = tempfile::tempdir()?;
/// let log = EffectLog::at(dir.path().join("effects"));
/// let (key, other) = (call("pay").idempotency_key(), "something else");
/// log.happen(&key, "pay", "42")?;
/// assert!(log.has(&key)? && log.read()?[0].what != other);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct EffectLog {
    path: PathBuf,
    kill: Option<Kill>,
    written: Arc<AtomicU64>,
}

/// One effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effect {
    /// The key that the tool was handed; the same for a repeat of the same call. Of a model, what it was first told.
    pub key: String,
    /// Which tool.
    pub tool: String,
    /// What it did.
    pub what: String,
}

impl EffectLog {
    /// The log in this file, which need not exist yet.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            kill: None,
            written: Arc::default(),
        }
    }

    pub(super) fn with_kill(mut self, kill: Option<Kill>) -> Self {
        self.kill = kill;
        self
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many effects this process has had.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::SeqCst)
    }

    /// Has an effect. When this returns, it cannot be undone.
    pub fn happen(&self, key: &IdempotencyKey, tool: &str, what: &str) -> io::Result<()> {
        self.write(key.to_string(), tool, what)
    }

    /// Notes that a model was asked for a reply, in the conversation that begins with `task`, where the reply is the
    /// `number`-th, counted from 0.
    pub fn ask(&self, task: &str, model: &str, number: usize) -> io::Result<()> {
        self.write(task.to_owned(), model, &number.to_string())
    }

    fn write(&self, key: String, tool: &str, what: &str) -> io::Result<()> {
        let number = self.written.fetch_add(1, Ordering::SeqCst) + 1;
        if self.kill == Some(Kill::BeforeEffect(number)) {
            kill_this_process();
        }
        let effect = Effect {
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
        file.sync_data()?;
        if self.kill == Some(Kill::AfterEffect(number)) {
            kill_this_process();
        }
        Ok(())
    }

    /// Every effect so far, by any process.
    pub fn read(&self) -> io::Result<Vec<Effect>> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        text.lines()
            .map(|line| serde_json::from_str(line).map_err(io::Error::from))
            .collect()
    }

    /// Whether the call with this key has had an effect.
    pub fn has(&self, key: &IdempotencyKey) -> io::Result<bool> {
        let key = key.to_string();
        Ok(self.read()?.iter().any(|effect| effect.key == key))
    }
}
