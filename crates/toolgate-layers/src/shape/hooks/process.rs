//! Runs the command of a hook: JSON on its input, bounded output, a time limit.

use std::{
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use toolgate_core::Digest;

use crate::record::receipts::{jsonl::run_blocking, sanitize::truncate_text};

/// The most bytes of output that are read. A hook that writes more fails.
const MAX_OUTPUT_BYTES: u64 = 64 * 1024;
/// The longest reason on the error output that is used, in characters.
const MAX_REASON_CHARS: usize = 1_000;
/// The time between two looks at the process.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A command with its directory and its time limit.
#[derive(Debug, Clone)]
pub(super) struct HookProcess {
    pub(super) words: Vec<String>,
    pub(super) directory: PathBuf,
    pub(super) timeout: Duration,
    /// The files that the command names, as they were when the hook was added.
    pub(super) files: HookFiles,
}

/// The digests of files. A call may change a script that a hook runs, and a changed script must not run
/// as the user.
#[derive(Debug, Clone, Default)]
pub(super) struct HookFiles(Arc<[(PathBuf, Option<Digest>)]>);

impl HookFiles {
    pub(super) fn remember(files: Vec<PathBuf>) -> Self {
        let files = files.into_iter();
        Self(
            files
                .map(|file| (file.clone(), digest_file(&file)))
                .collect(),
        )
    }

    /// Returns the first file that is not as it was.
    fn find_changed(&self) -> Option<&Path> {
        let changed = |(file, known): &&(PathBuf, Option<Digest>)| {
            known.is_none() || digest_file(file) != *known
        };
        self.0.iter().find(changed).map(|(file, _)| file.as_path())
    }
}

fn digest_file(file: &Path) -> Option<Digest> {
    std::fs::read(file)
        .ok()
        .map(|bytes| Digest::of_bytes(&bytes))
}

/// The way in which a hook ended.
#[derive(Debug)]
pub(super) enum HookExit {
    /// With 0; this is its output.
    Answered(String),
    /// With 2; this is what it wrote to the error output.
    Blocked(String),
    /// In any other way.
    Failed(String),
    /// It was not started, because a file that it names has changed.
    Changed(String),
}

impl HookProcess {
    /// Runs the command on a thread for blocking work.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the command is killed.
    pub(super) async fn run(self, input: Value) -> HookExit {
        let stop = StopOnDrop::default();
        let stopped = stop.0.clone();
        let ended = run_blocking(move || self.run_here(&input, &stopped)).await;
        match ended {
            Some(Ok(exit)) => exit,
            Some(Err(error)) => HookExit::Failed(error.to_string()),
            None => HookExit::Failed("it was interrupted".to_owned()),
        }
    }

    fn run_here(&self, input: &Value, stopped: &AtomicBool) -> io::Result<HookExit> {
        if let Some(file) = self.files.find_changed() {
            return Ok(HookExit::Changed(format!(
                "a hook was not run, because {} has changed since the gate was opened",
                file.display()
            )));
        }
        let mut child = KilledOnDrop(self.command().spawn()?);
        let text = serde_json::to_vec(input)?;
        let mut stdin = child.0.stdin.take();
        // On threads of their own: a hook may write before it has read everything.
        let writing = thread::spawn(move || {
            // A hook that does not read its input is none the worse for it.
            let _ = stdin.take().map(|mut stdin| stdin.write_all(&text));
        });
        let output = read_bounded(child.0.stdout.take());
        let errors = read_bounded(child.0.stderr.take());
        let Some(status) = self.wait(&mut child.0, stopped)? else {
            let text = format!("it took longer than {:?}", self.timeout);
            return Ok(HookExit::Failed(text));
        };
        // Ends what the hook left behind, which may keep its pipes open.
        drop(child);
        drop(writing);
        let output = output.join().unwrap_or_default();
        let errors = errors.join().unwrap_or_default();
        Ok(match status.code() {
            _ if output.len() as u64 > MAX_OUTPUT_BYTES => {
                HookExit::Failed("it wrote more than 64 KiB".to_owned())
            }
            Some(0) => HookExit::Answered(String::from_utf8_lossy(&output).into_owned()),
            Some(2) => {
                let reason = String::from_utf8_lossy(&errors);
                HookExit::Blocked(truncate_text(reason.trim(), MAX_REASON_CHARS))
            }
            Some(code) => HookExit::Failed(format!("it ended with exit code {code}")),
            None => HookExit::Failed("it was ended by a signal".to_owned()),
        })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command
            .args(&self.words[1..])
            .current_dir(&self.directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| {
                // Only listed names pass, as for commands of `run_shell`, so no key of ours does.
                name.to_str().is_some_and(is_passed_variable)
            }));
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command
    }

    /// Waits for the end; `None` if the time is over or the call was dropped.
    fn wait(
        &self,
        child: &mut Child,
        stopped: &AtomicBool,
    ) -> io::Result<Option<std::process::ExitStatus>> {
        let started = Instant::now();
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
            if started.elapsed() >= self.timeout || stopped.load(Ordering::Relaxed) {
                return Ok(None);
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

fn is_passed_variable(name: &str) -> bool {
    const PASSED: [&str; 8] = [
        "PATH", "LANG", "LANGUAGE", "TERM", "USER", "LOGNAME", "TZ", "HOME",
    ];
    PASSED.contains(&name) || name.starts_with("LC_")
}

/// Reads up to the limit on a thread of its own. Closing the pipe afterwards ends a hook that goes
/// on writing.
fn read_bounded(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            // One byte more than the limit tells that there was more. What was read before an error
            // counts.
            let _ = pipe.take(MAX_OUTPUT_BYTES + 1).read_to_end(&mut bytes);
        }
        bytes
    })
}

/// Tells the waiting thread to stop when the future is dropped.
#[derive(Default)]
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A process that is killed with its group when this is dropped.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        #[cfg(unix)]
        if let Some(group) = i32::try_from(self.0.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw)
        {
            // The group may be empty by now.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
