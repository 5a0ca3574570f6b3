//! Appends receipts to a file per session, one JSON line each.

use std::{
    collections::HashMap,
    fmt::Write as _,
    fs::{DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use toolgate_core::{Call, SessionId};

use crate::{Receipt, ReceiptSink, SinkError};

/// The most files that stay open; others are reopened on demand.
const MAX_OPEN_FILES: usize = 64;

/// The default time to wait for a file that another process has locked.
const DEFAULT_PATIENCE: Duration = Duration::from_secs(2);

/// The longest pause between two attempts to lock a file.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// Appends receipts to `<dir>/<session id>.jsonl`, readable by the owner only. Clones share the
/// files.
///
/// A line is written whole, even if several calls or processes write at once. A line that was torn
/// by a crash stays as it is: the next receipt starts on a new line. A path whose last part is a
/// symbolic link is rejected. Written receipts survive the loss of the process; they are not forced
/// to disk, so a power failure may lose some.
///
/// If another process has locked the file, such as a backup, the sink waits for a limited time (two
/// seconds by default, see [`patience`](Self::patience)): before a call, which then does not run,
/// and again when its receipt is written.
///
/// ```no_run
/// use toolgate_layers::{JsonlReceipts, Receipts};
/// let receipts = Receipts::to(JsonlReceipts::new(".toolgate/receipts"));
/// ```
#[derive(Debug, Clone)]
pub struct JsonlReceipts {
    dir: PathBuf,
    patience: Duration,
    logs: Arc<Mutex<HashMap<SessionId, SharedLog>>>,
}

type SharedLog = Arc<Mutex<Option<ReceiptLog>>>;

impl JsonlReceipts {
    /// Creates a sink that writes below `dir`, which is created on demand.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        let dir = dir.into();
        // Made absolute now: a program that changes its directory later still has all receipts in
        // one place.
        let dir = std::path::absolute(&dir).unwrap_or(dir);
        Self {
            dir,
            patience: DEFAULT_PATIENCE,
            logs: Arc::default(),
        }
    }

    /// Sets the time to wait for a file that another process has locked.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Returns the file of a session.
    pub fn path(&self, session: SessionId) -> PathBuf {
        self.dir.join(format!("{session}.jsonl"))
    }

    /// Returns the shared slot for the log of a session.
    fn log_slot(&self, session: SessionId) -> SharedLog {
        // A poisoned lock is usable: no operation under it leaves the map half-changed.
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        if logs.len() >= MAX_OPEN_FILES && !logs.contains_key(&session) {
            // Only idle logs: one that a writer holds must stay the only one for its file in this
            // process.
            logs.retain(|_, log| Arc::strong_count(log) > 1);
        }
        logs.entry(session).or_default().clone()
    }

    /// Runs blocking work on the log of a session, opening it if necessary.
    async fn with_log<T: Send + 'static>(
        &self,
        session: SessionId,
        work: impl FnOnce(&mut ReceiptLog, Option<Instant>) -> io::Result<T> + Send + 'static,
    ) -> Result<T, SinkError> {
        let log = self.log_slot(session);
        let path = self.path(session);
        // Counted from here: calls that queue for the same log must not add up their waiting times.
        let until = Instant::now().checked_add(self.patience);
        run_blocking(move || {
            let mut slot = log.lock().unwrap_or_else(PoisonError::into_inner);
            let failed = |error: io::Error| SinkError::new(format!("{}: {error}", path.display()));
            // Removed from the slot during the work: after a failure its state is unknown, so it is
            // reopened.
            let mut log = match slot.take().filter(|log| log.is_file_at(&path)) {
                Some(log) => log,
                None => ReceiptLog::open(&path).map_err(failed)?,
            };
            let done = work(&mut log, until).map_err(failed)?;
            *slot = Some(log);
            Ok(done)
        })
        .await
        .unwrap_or_else(|| Err(SinkError::new("the writer was stopped")))
    }
}

impl ReceiptSink for JsonlReceipts {
    fn prepare<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<(), SinkError>> {
        let session = call.turn().session;
        let log = self.log_slot(session);
        // The fast path: an open file that can be locked right now needs no blocking thread.
        if log
            .try_lock()
            .is_ok_and(|log| log.as_ref().is_some_and(ReceiptLog::is_unlocked))
        {
            return Box::pin(std::future::ready(Ok(())));
        }
        Box::pin(self.with_log(session, |log, until| log.with_lock(until, |_| Ok(()))))
    }

    fn write<'a>(
        &'a self,
        _: &'a Call,
        receipt: &'a Arc<Receipt>,
    ) -> BoxFuture<'a, Result<Option<String>, SinkError>> {
        Box::pin(async move {
            let file = file_uri(&self.path(receipt.session_id));
            let of_line = move |number| format!("{file}#L{number}");
            let mut receipt = Receipt::clone(receipt);
            let session = receipt.session_id;
            let uri = of_line.clone();
            let number = self.with_log(session, move |log, until| {
                log.append(until, |number| {
                    // Its own, also as a mirror: the id of the receipt finds the other copies.
                    receipt.receipt_uri = Some(uri(number));
                    let mut line = serde_json::to_vec(&receipt)?;
                    line.push(b'\n');
                    Ok(line)
                })
            });
            Ok(Some(of_line(number.await?)))
        })
    }
}

/// An open file and the known state of its end.
#[derive(Debug)]
struct ReceiptLog {
    file: File,
    /// The length of the file at the last check.
    length: u64,
    /// The number of lines that end before that.
    lines: u64,
    /// True if the last line is incomplete.
    torn: bool,
}

/// Opens or creates a file to append to, readable by the owner only.
pub(crate) fn open_for_append(path: &Path) -> io::Result<File> {
    // A link planted at the path must not make us append to a file elsewhere.
    let no_follow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(no_follow)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ));
    }
    Ok(file)
}

impl ReceiptLog {
    /// Opens or creates the file, and rejects symbolic links and special files.
    fn open(path: &Path) -> io::Result<Self> {
        if let Some(dir) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        Ok(Self {
            file: open_for_append(path)?,
            length: 0,
            lines: 0,
            torn: false,
        })
    }

    /// Checks whether the path still names this file: another process may have moved or deleted it.
    fn is_file_at(&self, path: &Path) -> bool {
        match (self.file.metadata(), std::fs::symlink_metadata(path)) {
            (Ok(ours), Ok(there)) => (ours.dev(), ours.ino()) == (there.dev(), there.ino()),
            _ => false,
        }
    }

    /// Appends the line that `make_line` returns for its number, from 1. Returns the number.
    fn append(
        &mut self,
        until: Option<Instant>,
        make_line: impl FnOnce(u64) -> io::Result<Vec<u8>>,
    ) -> io::Result<u64> {
        let written = self.with_lock(until, |log| {
            // Other processes may have appended since; the number of the line and a torn end depend
            // on it.
            log.catch_up()?;
            let number = log.lines + if log.torn { 2 } else { 1 };
            let mut line = make_line(number)?;
            // Appended to the torn line of a killed process, the receipt would be unreadable too.
            if log.torn {
                line.insert(0, b'\n');
            }
            log.file.write_all(&line)?;
            log.file.flush()?;
            Ok((number, line.len() as u64))
        });
        let (number, length) = written?;
        self.length += length;
        self.lines = number;
        self.torn = false;
        Ok(number)
    }

    /// Checks whether the file can be locked right now.
    fn is_unlocked(&self) -> bool {
        self.file.try_lock().is_ok() && self.file.unlock().is_ok()
    }

    /// Runs `work` under the file lock, or fails if the lock cannot be acquired in time.
    fn with_lock<T>(
        &mut self,
        until: Option<Instant>,
        work: impl FnOnce(&mut Self) -> io::Result<T>,
    ) -> io::Result<T> {
        lock_until(&self.file, until)?;
        let done = work(self);
        self.file.unlock()?;
        done
    }

    /// Reads what other processes have appended.
    fn catch_up(&mut self) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        // Shorter than before: another process truncated the file, so the lines are counted from
        // the start.
        if length < self.length {
            self.length = 0;
            self.lines = 0;
            self.torn = false;
        }
        if length == self.length {
            return Ok(());
        }
        self.file.seek(SeekFrom::Start(self.length))?;
        let mut buffer = [0; 16 * 1024];
        loop {
            let read = self.file.read(&mut buffer)?;
            let Some(last) = buffer[..read].last() else {
                return Ok(());
            };
            self.torn = *last != b'\n';
            self.lines += buffer[..read].iter().filter(|byte| **byte == b'\n').count() as u64;
            self.length += read as u64;
        }
    }
}

/// Locks a file, or fails at `until`. It polls, because the system has no file lock with a timeout.
fn lock_until(file: &File, until: Option<Instant>) -> io::Result<()> {
    let mut pause = Duration::from_millis(1);
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if until.is_some_and(|until| Instant::now() >= until) => {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "another process holds the lock on the file",
                ));
            }
            Err(TryLockError::WouldBlock) => thread::sleep(pause),
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Runs blocking work on a blocking thread, or in place without a runtime. Returns `None` if the
/// work was cancelled or panicked.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => runtime.spawn_blocking(work).await.ok(),
        Err(_) => Some(work()),
    }
}

/// Returns the `file:` URI of a path, percent-encoded.
fn file_uri(path: &Path) -> String {
    let mut uri = String::from("file://");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => {
                uri.push(char::from(*byte))
            }
            other => write!(uri, "%{other:02X}").expect("writing to a string cannot fail"),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Receipts;
    use serde_json::json;
    use std::os::unix::fs::PermissionsExt;
    use toolgate_core::{Outcome, Stack, Status};
    use toolgate_testkit::{FakeExecutor, call, call_with, echo_under};

    fn file_in(dir: &Path) -> PathBuf {
        JsonlReceipts::new(dir).path(call("t").turn().session)
    }

    fn lines(path: &Path) -> Vec<String> {
        std::fs::read_to_string(path)
            .expect("readable")
            .lines()
            .map(str::to_owned)
            .collect()
    }

    fn uri_of(outcome: &Outcome) -> String {
        let notes = outcome
            .settled()
            .expect("settled")
            .notes
            .fields()
            .expect("notes");
        notes.receipt_location().expect("a location").to_owned()
    }

    #[tokio::test]
    async fn receipts_are_lines_of_a_private_file_and_the_outcome_has_the_line() {
        let dir = tempfile::tempdir().expect("a directory");
        let below = dir.path().join("a b/c");
        let stack = echo_under(Receipts::to(JsonlReceipts::new(&below)));
        stack.run(call("one")).await;
        let uri = uri_of(&stack.run(call("two")).await);
        let file = file_in(&below);
        assert_eq!(uri, format!("{}#L2", file_uri(&file)));
        assert!(uri.contains("/a%20b/c/"));
        let second: Receipt = serde_json::from_str(&lines(&file)[1]).expect("a receipt");
        assert_eq!(second.tool_name, "two");
        assert_eq!(second.receipt_uri, Some(uri), "the line names itself");
        assert_eq!(
            std::fs::metadata(&file)
                .expect("there")
                .permissions()
                .mode()
                & 0o777,
            0o600
        );
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn two_hundred_writers_leave_two_hundred_whole_lines() {
        let dir = tempfile::tempdir().expect("a directory");
        // Eight sinks on one file stand for eight processes: they share nothing but the file.
        let stacks = [(); 8].map(|()| echo_under(Receipts::to(JsonlReceipts::new(dir.path()))));
        let run = |n: usize| {
            tokio::spawn(stacks[n % 8].run(call_with("t", json!({ "text": "x".repeat(n * 50) }))))
        };
        let outcomes = futures::future::join_all((0..200).map(run)).await;
        let mut uris: Vec<_> = outcomes
            .into_iter()
            .map(|done| uri_of(&done.expect("no panic")))
            .collect();
        let lines = lines(&file_in(dir.path()));
        assert_eq!(lines.len(), 200);
        assert!(
            lines
                .iter()
                .all(|line| serde_json::from_str::<Receipt>(line).is_ok())
        );
        uris.sort();
        uris.dedup();
        assert_eq!(uris.len(), 200, "every receipt has a line of its own");
    }

    #[test]
    fn a_line_is_not_started_while_another_process_may_be_writing() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        let mut log = ReceiptLog::open(&path).expect("opens");
        let other = File::open(&path).expect("opens");
        other.lock_shared().expect("locked");
        let (done, written) = std::sync::mpsc::channel();
        let writer = std::thread::spawn(move || {
            done.send(
                log.append(None, |_| Ok(b"line\n".to_vec()))
                    .expect("written"),
            )
        });
        assert!(
            written
                .recv_timeout(std::time::Duration::from_millis(50))
                .is_err(),
            "it waits for its turn"
        );
        other.unlock().expect("unlocked");
        assert_eq!(written.recv(), Ok(1));
        writer.join().expect("no panic").expect("heard");
    }

    #[tokio::test]
    async fn no_call_runs_while_another_process_has_locked_the_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = file_in(dir.path());
        std::fs::write(&file, "").expect("written");
        let executor = FakeExecutor::new();
        let sink = JsonlReceipts::new(dir.path()).patience(Duration::from_millis(20));
        let stack = Stack::over(executor.clone())
            .layer(Receipts::to(sink))
            .build()
            .expect("in order");
        let other = File::open(&file).expect("opens");
        // In the second iteration the file is already open.
        for before in 0..2 {
            other.lock_shared().expect("locked");
            let outcome = stack.run(call("t")).await;
            assert_eq!(outcome.status(), Some(Status::ExecutorError));
            let detail = outcome
                .settled()
                .and_then(|settled| settled.error.clone()?.operator)
                .expect("a detail");
            assert!(detail.contains("holds the lock on the file"), "{detail}");
            assert_eq!(executor.seen().len(), before);
            other.unlock().expect("unlocked");
            assert!(stack.run(call("t")).await.is_ok(), "nothing was lost");
        }
        assert_eq!(lines(&file).len(), 2);
    }

    #[tokio::test]
    async fn a_file_that_is_locked_during_the_call_loses_the_receipt_but_does_not_hang() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = file_in(dir.path());
        std::fs::write(&file, "").expect("written");
        let other = File::open(&file).expect("opens");
        let locking = toolgate_core::map_call(move |call: Call| {
            other.lock_shared().expect("locked");
            call
        });
        let sink = JsonlReceipts::new(dir.path()).patience(Duration::from_millis(20));
        let stack = Stack::over(FakeExecutor::new())
            .layer(Receipts::to(sink))
            .layer(locking)
            .build()
            .expect("in order");
        assert_eq!(
            stack.run(call("t")).await.status(),
            Some(Status::LayerException)
        );
    }

    #[tokio::test]
    async fn a_torn_line_stays_and_the_next_receipt_starts_a_new_line() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = file_in(dir.path());
        std::fs::write(&file, "{\"whole\":1}\n{\"to").expect("written");
        let outcome = echo_under(Receipts::to(JsonlReceipts::new(dir.path())))
            .run(call("t"))
            .await;
        assert!(uri_of(&outcome).ends_with("#L3"));
        let lines = lines(&file);
        assert_eq!(lines[1], "{\"to");
        assert!(serde_json::from_str::<Receipt>(&lines[2]).is_ok());
    }

    #[tokio::test]
    async fn a_file_that_was_moved_away_is_created_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = file_in(dir.path());
        let stack = echo_under(Receipts::to(JsonlReceipts::new(dir.path())));
        stack.run(call("one")).await;
        std::fs::rename(&file, dir.path().join("old")).expect("moved");
        assert!(uri_of(&stack.run(call("two")).await).ends_with("#L1"));
        assert_eq!(lines(&file).len(), 1);
    }

    #[tokio::test]
    async fn no_call_runs_while_the_file_is_a_link_a_directory_or_below_a_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let linked = dir.path().join("l");
        let taken = dir.path().join("d");
        let blocked = dir.path().join("f");
        std::fs::create_dir(&linked).expect("made");
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), file_in(&linked)).expect("linked");
        std::fs::create_dir_all(file_in(&taken)).expect("made");
        std::fs::write(&blocked, "").expect("written");
        for place in [linked, taken, blocked] {
            let executor = FakeExecutor::new();
            let receipts = Receipts::to(JsonlReceipts::new(&place));
            let stack = Stack::over(executor.clone())
                .layer(receipts)
                .build()
                .expect("in order");
            let outcome = stack.run(call("t")).await;
            assert_eq!(outcome.status(), Some(Status::ExecutorError), "{place:?}");
            assert!(executor.seen().is_empty());
        }
        assert!(!dir.path().join("elsewhere").exists());
    }

    #[tokio::test]
    async fn a_file_that_goes_bad_during_the_call_stops_the_run() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = file_in(dir.path());
        let sink = JsonlReceipts::new(dir.path());
        let spoiled = file.clone();
        let spoil = toolgate_core::map_call(move |call: Call| {
            std::fs::remove_file(&spoiled).expect("removed");
            std::fs::create_dir(&spoiled).expect("made");
            call
        });
        let executor = FakeExecutor::new();
        let stack = Stack::over(executor.clone())
            .layer(Receipts::to(sink))
            .layer(spoil)
            .build()
            .expect("in order");
        assert_eq!(
            stack.run(call("t")).await.status(),
            Some(Status::LayerException)
        );
        assert_eq!(
            stack.run(call("t")).await.status(),
            Some(Status::ExecutorError)
        );
        assert_eq!(executor.seen().len(), 1);
    }

    #[test]
    fn it_also_writes_without_a_runtime() {
        let dir = tempfile::tempdir().expect("a directory");
        let stack = echo_under(Receipts::to(JsonlReceipts::new(dir.path())));
        assert!(futures::executor::block_on(stack.run(call("t"))).is_ok());
        assert_eq!(lines(&file_in(dir.path())).len(), 1);
    }
}
