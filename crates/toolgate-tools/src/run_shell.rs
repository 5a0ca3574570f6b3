//! Runs a command in a shell, kept in its place by the sandbox.

use std::{
    borrow::Cow,
    io,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    pin::Pin,
    process::{Command, ExitStatus},
    time::{Duration, Instant},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::{
    io::AsyncReadExt,
    net::unix::pipe::Receiver,
    time::{Sleep, sleep, timeout},
};
use toolgate_core::{
    Annotations, Arguments, Context, ErrorCategory, Kind, Progress, Resource, Schema, SideEffect,
    Stopped, Tool, ToolError, ToolOutput, ToolSpec, typed,
};

use crate::{
    Enforced, Network, Sandbox, SandboxError, SandboxMode, ShellOptions,
    sandbox::{Ended, Leash, Started},
    shell_output::{Kept, Shown},
    shell_pipes::{self, Feed},
};

/// The tool `run_shell`: a command in, its output and how it ended out.
///
/// A command that fails is a result like any other, with its exit code. So is one that took too long: it is stopped
/// with all it has started, and the result says so. Both streams come in one text, in the order in which they were
/// written. What the command may touch is up to the [`Sandbox`]; where that cannot hold, nothing runs.
///
/// ```
/// use toolgate_core::Registry;
/// use toolgate_tools::{RunShell, ShellOptions};
/// # let dir = tempfile::tempdir()?;
/// # let workspace = dir.path();
/// let registry = Registry::new();
/// registry.register(RunShell::new(workspace, ShellOptions::default())?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct RunShell {
    sandbox: Sandbox,
    options: ShellOptions,
}

/// What the model says.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// The command, as one would type it into a shell.
    command: String,
    /// The directory to run it in, below the workspace. The workspace itself if nothing is said.
    cwd: Option<String>,
    /// After how many milliseconds to give up.
    #[schemars(range(min = 1))]
    timeout_ms: Option<u64>,
    /// What the command reads from its standard input. Nothing if nothing is said.
    stdin: Option<String>,
}

/// What came of a command.
#[derive(Debug, Serialize, JsonSchema)]
struct Report {
    /// What it printed, standard output and standard error together.
    output: String,
    /// The exit code, unless it was ended by a signal.
    exit_code: Option<i32>,
    /// The signal that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    /// Whether it was stopped because it took too long.
    timed_out: bool,
    /// How many bytes it printed.
    output_bytes: u64,
    /// How many bytes of the output were left out.
    omitted_bytes: u64,
    /// Whether all of the output was UTF-8.
    utf8: bool,
    /// How many processes it left running, which were ended with it.
    left_running: u32,
    /// How long it took.
    duration_ms: u64,
    /// What kept it in its place.
    sandbox: Enforced,
}

impl RunShell {
    /// Runs commands below `root`.
    pub fn new(root: impl AsRef<Path>, options: ShellOptions) -> Result<Self, SandboxError> {
        Ok(Self {
            sandbox: Sandbox::new(root, &options)?,
            options,
        })
    }

    /// Runs commands in a sandbox that was made before.
    pub fn within(sandbox: Sandbox, options: ShellOptions) -> Self {
        Self { sandbox, options }
    }

    /// The sandbox that commands are kept in.
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    async fn run(&self, input: Input, cx: &Context) -> Result<Report, ToolError> {
        // The first time this tries things out, which would hold up others on this thread.
        tokio::task::spawn_blocking(Sandbox::check).await?;
        let enforced = self.sandbox.enforced().map_err(refused)?;
        let cwd = self.directory(input.cwd.as_deref())?;
        let limit = self.limit(input.timeout_ms, cx);
        let since = Instant::now();
        let (ours, output, errors) = shell_pipes::output()?;
        let (stdin, feed) = shell_pipes::input(input.stdin)?;
        let mut command = Command::new(&self.options.shell);
        command
            .arg("-c")
            .arg(&input.command)
            .stdin(stdin)
            .stdout(output)
            .stderr(errors);
        // Whoever gives up now cannot know how far it came.
        let starting = cx.on_stop(|| Stopped::Unconfirmed);
        let started = self.sandbox.start(command, &cwd).await;
        starting.done();
        let mut running = Running::new(started.map_err(refused)?, cx);
        let mut reading = Reading {
            pipe: ours,
            kept: Kept::new(self.options.output_bytes),
            cx,
            shown: None,
        };
        let (ended, why) = running
            .watch(&mut reading, feed, limit, self.grace())
            .await?;
        match why {
            Some(Why::Cancelled) => Err(cancelled(&reading.kept)),
            Some(Why::OutOfTime) => {
                Ok(report(ended, true, reading.kept, since.elapsed(), enforced))
            }
            None => Ok(report(
                ended,
                false,
                reading.kept,
                since.elapsed(),
                enforced,
            )),
        }
    }

    /// The directory to run in: below the workspace, whatever links lead there.
    fn directory(&self, cwd: Option<&str>) -> Result<PathBuf, ToolError> {
        let root = self.sandbox.root();
        let Some(cwd) = cwd else {
            return Ok(root.to_owned());
        };
        let wrong = |why: &str| {
            let text = format!(
                "cwd: {cwd:?} {why}; name a directory below the workspace, or leave cwd out"
            );
            ToolError::new(text).with_category(ErrorCategory::InvalidInput)
        };
        let real = root
            .join(cwd)
            .canonicalize()
            .map_err(|_| wrong("is not there"))?;
        match () {
            () if !real.starts_with(root) => Err(wrong("is outside the workspace")),
            () if !real.is_dir() => Err(wrong("is no directory")),
            () => Ok(real),
        }
    }

    /// How long the command may take: what the model says, no longer than allowed, and so that there is time to stop
    /// it and tell what it printed before somebody above gives up.
    fn limit(&self, wanted: Option<u64>, cx: &Context) -> Duration {
        let longest = self.options.longest_timeout_ms;
        let own = Duration::from_millis(wanted.unwrap_or(self.options.timeout_ms).min(longest));
        let Some(left) = cx.deadline.map(|deadline| deadline.since(cx.now())) else {
            return own;
        };
        own.min(left.saturating_sub((self.grace() * 2).min(left / 10)))
    }

    fn grace(&self) -> Duration {
        Duration::from_millis(self.options.grace_ms)
    }
}

impl Tool for RunShell {
    fn spec(&self) -> ToolSpec {
        let spec = ToolSpec::new("run_shell", describe(&self.sandbox), Schema::of::<Input>());
        let mut annotations = Annotations::default()
            .with_kind(Kind::Execute)
            .with_idempotent(false);
        annotations.side_effect = Some(match (self.sandbox.mode, self.sandbox.network) {
            (SandboxMode::Required, Network::Off | Network::Loopback) => SideEffect::ProcessExec,
            // Nobody can promise that it reaches nothing.
            (SandboxMode::BestEffort | SandboxMode::Off, _) | (_, Network::On) => {
                SideEffect::Network
            }
        });
        annotations.hints.destructive = Some(true);
        annotations.hints.open_world = Some(annotations.side_effect == Some(SideEffect::Network));
        annotations.long_running = Some("running a command".to_owned());
        let annotations = annotations.with_resource(Resource::workspace());
        spec.with_annotations(annotations)
            .with_output(Schema::of::<Report>())
    }

    async fn invoke(&self, arguments: Arguments, cx: Context) -> Result<ToolOutput, ToolError> {
        let report = self.run(typed(&arguments)?, &cx).await?;
        let text = in_words(&report);
        Ok(ToolOutput::of(report)?.with_text(text))
    }
}

/// What the model is told about the tool.
fn describe(sandbox: &Sandbox) -> String {
    let network = match sandbox.network {
        Network::Off => "There is no network.",
        Network::Loopback => "There is no network but 127.0.0.1, where only this command is.",
        Network::On => "The network can be reached.",
    };
    let files = match sandbox.mode {
        SandboxMode::Off => "",
        SandboxMode::Required | SandboxMode::BestEffort => {
            " Files can be written below the workspace and in $TMPDIR, which is emptied afterwards; elsewhere \
             \"Permission denied\" or \"Read-only file system\" is final."
        }
    };
    format!(
        "Runs a command in a shell, in the workspace, and returns its output and exit code.{files} {network} Nothing \
         keeps running after the command has ended, not even in the background. Nobody answers questions: pass flags \
         such as --yes."
    )
}

/// A command that is running; it does not outlive this.
struct Running<'a> {
    started: Started,
    cx: &'a Context,
    stop: Option<toolgate_core::StopHandle>,
}

impl<'a> Running<'a> {
    /// The longest that somebody who stops a call is held up.
    const STOP: Duration = Duration::from_secs(1);

    fn new(started: Started, cx: &'a Context) -> Self {
        let leash = started.leash.clone();
        let stop = cx.on_stop(move || match leash.end_and_wait(Self::STOP) {
            true => Stopped::Confirmed,
            false => Stopped::Unconfirmed,
        });
        Self {
            started,
            cx,
            stop: Some(stop),
        }
    }

    /// Reads until the command and all that it has started have ended, by themselves or because they had to.
    async fn watch(
        &mut self,
        reading: &mut Reading<'_>,
        feed: Feed,
        limit: Duration,
        grace: Duration,
    ) -> Result<(Ended, Option<Why>), ToolError> {
        let patience = Box::pin(sleep(limit));
        let mut ladder = Ladder {
            leash: self.started.leash.clone(),
            cx: self.cx,
            patience,
            grace,
            asked: false,
        };
        let (ended, why) = {
            let mut pipes = std::pin::pin!(async { tokio::join!(reading.all(), feed.write()).0 });
            let (mut read, mut why) = (false, None);
            loop {
                tokio::select! {
                    ended = &mut self.started.ended => break (ended, why),
                    done = &mut pipes, if !read => {
                        done.map_err(lost)?;
                        read = true;
                    }
                    step = ladder.step() => why = why.or(Some(step)),
                }
            }
        };
        let ended = ended.map_err(lost)?;
        // Nobody is left who could hold the pipe; only where there is no sandbox somebody may be.
        if let Ok(read) = timeout(Self::STOP, reading.all()).await {
            read.map_err(lost)?;
        }
        if let Some(stop) = self.stop.take() {
            stop.done();
        }
        Ok((ended, why))
    }
}

/// What is done to a command that has to end: it is asked, and after a while it is ended.
struct Ladder<'a> {
    leash: Leash,
    cx: &'a Context,
    patience: Pin<Box<Sleep>>,
    grace: Duration,
    asked: bool,
}

impl Ladder<'_> {
    /// Waits until there is a reason to go one step further, and goes it. Losing this future loses nothing.
    async fn step(&mut self) -> Why {
        let why = tokio::select! {
            () = &mut self.patience => Why::OutOfTime,
            () = self.cx.cancelled(), if !self.asked => Why::Cancelled,
        };
        match self.asked {
            false => self.leash.ask(),
            true => self.leash.end(),
        }
        self.asked = true;
        self.patience
            .as_mut()
            .reset(tokio::time::Instant::now() + self.grace);
        why
    }
}

/// Why a command had to end.
#[derive(Clone, Copy)]
enum Why {
    OutOfTime,
    Cancelled,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // Something went wrong, or nobody waits any more. What has ended takes no notice.
        self.started.leash.end();
    }
}

/// Keeps what is printed and shows the last line of it now and then.
struct Reading<'a> {
    pipe: Receiver,
    kept: Kept,
    cx: &'a Context,
    shown: Option<Instant>,
}

impl Reading<'_> {
    const PAUSE: Duration = Duration::from_millis(200);

    async fn all(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match self.pipe.read(&mut buffer).await? {
                0 => return Ok(()),
                count => self.take(&buffer[..count]),
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.kept.push(bytes);
        if self
            .shown
            .is_some_and(|shown| shown.elapsed() < Self::PAUSE)
        {
            return;
        }
        self.shown = Some(Instant::now());
        let line = self.kept.last_line();
        if !line.is_empty() {
            self.cx.progress(Progress {
                current: Some(self.kept.total()),
                ..Progress::busy().with_message(line)
            });
        }
    }
}

fn report(ended: Ended, timed_out: bool, kept: Kept, took: Duration, sandbox: Enforced) -> Report {
    let output_bytes = kept.total();
    let Shown {
        text,
        omitted,
        is_utf8,
    } = kept.show();
    let (exit_code, signal) = how_it_ended(ended.status);
    Report {
        output: text,
        exit_code,
        signal,
        timed_out,
        output_bytes,
        omitted_bytes: omitted,
        utf8: is_utf8,
        left_running: ended.left,
        duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        sandbox,
    }
}

/// The exit code or the signal; what was ended with everything else was killed.
fn how_it_ended(status: Option<ExitStatus>) -> (Option<i32>, Option<i32>) {
    match status {
        Some(status) => (status.code(), status.signal()),
        None => (None, Some(rustix::process::Signal::KILL.as_raw())),
    }
}

/// The report as the model reads it.
fn in_words(report: &Report) -> String {
    let mut lines: Vec<Cow<'_, str>> = Vec::new();
    match report.output.trim_end() {
        "" => lines.push("[no output]".into()),
        output => lines.push(output.into()),
    }
    let seconds = report.duration_ms as f64 / 1000.0;
    match (report.timed_out, report.exit_code, report.signal) {
        (true, _, _) => {
            lines.push(
                format!("[stopped: it took longer than its time limit; {seconds:.1} s]").into(),
            );
        }
        (false, Some(code), _) => lines.push(format!("[exit code {code}]").into()),
        (false, None, Some(signal)) => lines.push(format!("[ended by signal {signal}]").into()),
        (false, None, None) => lines.push("[ended]".into()),
    }
    if !report.utf8 {
        lines.push("[parts of the output are not UTF-8 and were replaced]".into());
    }
    match report.left_running {
        0 => {}
        1 => lines.push("[1 process that was left running was ended]".into()),
        many => lines.push(format!("[{many} processes that were left running were ended]").into()),
    }
    lines.join("\n")
}

fn cancelled(kept: &Kept) -> ToolError {
    let text = match kept.last_line() {
        line if line.is_empty() => {
            "the command was cancelled and stopped; it had printed nothing".to_owned()
        }
        line => {
            format!("the command was cancelled and stopped; the last line it printed was: {line}")
        }
    };
    ToolError::new(text).with_category(ErrorCategory::Cancelled)
}

/// The model learns that commands do not run here, the operator what to do about it.
fn refused(error: SandboxError) -> ToolError {
    let detail = with_causes(&error);
    match error {
        SandboxError::Missing { .. } => {
            ToolError::new("commands cannot be run here, because they could not be kept in a sandbox; do without them")
                .with_category(ErrorCategory::Permission)
                .with_operator(format!(
                    "{detail} (hint: `sandbox = \"best-effort\"` runs commands with what there is, `sandbox = \"off\"` \
                     with all rights)"
                ))
        }
        _ => ToolError::new("the command could not be started").with_operator(detail),
    }
}

fn with_causes(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", with_causes(source)),
        None => error.to_string(),
    }
}

/// The command may have run to any point.
fn lost(error: impl std::error::Error) -> ToolError {
    ToolError::new("the command was lost sight of and stopped; it is not known how far it came")
        .with_category(ErrorCategory::Unknown)
        .with_operator(error.to_string())
}
